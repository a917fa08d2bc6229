"""What a user may pass for the check of answers, turned into what we work with."""

from langchain_core.runnables import Runnable

from crag_middleware.adapters.chat_claim_checker import ChatModelClaimChecker
from crag_middleware.adapters.inner_model import ChatModel
from crag_middleware.errors import ConfigError
from crag_middleware.ports import AsyncClaimChecker, ClaimChecker
from crag_middleware.settings import CRAGSettings

AnyClaimChecker = ClaimChecker | AsyncClaimChecker | ChatModel | str
"""A claim checker, or the chat model for one."""

THRESHOLD = 0.5
"""For a checker that does not say where it cuts."""


def as_claim_checker(given: AnyClaimChecker | None) -> ClaimChecker | AsyncClaimChecker | None:
    """The claim checker: itself, or one on the given chat model; None if none is given.

    Raises:
        ConfigError: The object can't check.
    """
    if given is None:
        return None
    if isinstance(given, str | Runnable):
        return ChatModelClaimChecker(given)
    if callable(getattr(given, "check", None)) or callable(getattr(given, "acheck", None)):
        return given
    msg = f"`claim_checker` must be a chat model, its name, or an object with `check` or `acheck`, got {type(given).__name__}"
    raise ConfigError(msg)


def threshold_of(checker: object, settings: CRAGSettings) -> float | None:
    """From which P(supported) on a claim is supported, by the checker's own scale; None without a checker.

    Raises:
        ConfigError: It is no number in [0, 1], or settings ask for what only a checker can do.
    """
    if checker is None:
        wanted = {"on_unsupported": settings.on_unsupported != "flag", "add_citations": settings.add_citations}
        if idle := [f"`{name}`" for name, is_set in wanted.items() if is_set]:
            msg = f"the settings {' and '.join(idle)} need a claim checker; pass `claim_checker=`, such as a chat model or `WordClaimChecker()`"
            raise ConfigError(msg)
        return None
    own = getattr(checker, "threshold", THRESHOLD)
    if isinstance(own, int | float) and not isinstance(own, bool) and 0 <= own <= 1:
        return float(own)
    msg = f"a claim checker's `threshold` must be a number in [0, 1], got {own!r}"
    raise ConfigError(msg)
