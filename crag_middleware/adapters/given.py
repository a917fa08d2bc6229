"""What a user may pass for a port, turned into the port: the one place that knows the conveniences."""

from langchain_core.runnables import Runnable

from crag_middleware.adapters.chat_model import ChatModelEvaluator, ChatModelRewriter
from crag_middleware.adapters.inner_model import ChatModel
from crag_middleware.errors import ConfigError
from crag_middleware.ports import AsyncEvaluator, AsyncRewriter, Evaluator, Rewriter
from crag_middleware.settings import CHAT_THRESHOLDS
from crag_middleware.types import Thresholds


def as_evaluator(given: Evaluator | AsyncEvaluator | ChatModel | str | None) -> Evaluator | AsyncEvaluator:
    """The evaluator: itself, or one on the given chat model, or one on the default model.

    Raises:
        ConfigError: The default model has no key, or the object can't grade.
    """
    if given is None or isinstance(given, str | Runnable):
        return ChatModelEvaluator(given)
    if callable(getattr(given, "grade", None)) or callable(getattr(given, "agrade", None)):
        return given
    msg = f"`evaluator` must be a chat model, its name, or an object with `grade` or `agrade`, got {type(given).__name__}"
    raise ConfigError(msg)


def as_rewriter(given: Rewriter | AsyncRewriter | ChatModel | str | None, evaluator: object) -> Rewriter | AsyncRewriter | None:
    """The rewriter: itself, or one on the given chat model, or one on the evaluator's; None if the evaluator has none.

    Raises:
        ConfigError: The object can't rewrite.
    """
    if given is None:
        own = getattr(evaluator, "model", None)
        return ChatModelRewriter(own) if isinstance(own, Runnable) else None
    if isinstance(given, str | Runnable):
        return ChatModelRewriter(given)
    if callable(getattr(given, "rewrite", None)) or callable(getattr(given, "arewrite", None)):
        return given
    msg = f"`rewriter` must be a chat model, its name, or an object with `rewrite` or `arewrite`, got {type(given).__name__}"
    raise ConfigError(msg)


def thresholds_of(evaluator: object) -> Thresholds:
    """The evaluator's own thresholds; those for stated probabilities if it exposes none."""
    own = getattr(evaluator, "thresholds", CHAT_THRESHOLDS)
    if isinstance(own, Thresholds) and 0 <= own.lower <= own.upper <= 1:
        return own
    msg = f"an evaluator's `thresholds` must be Thresholds(lower, upper) in order and in [0, 1], got {own!r}"
    raise ConfigError(msg)
