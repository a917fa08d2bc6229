"""What a user may pass, turned into what we work with: the one place that knows the conveniences."""

from collections.abc import Callable
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable

from crag_middleware.adapters.chat_model import ChatModelEvaluator, ChatModelRewriter
from crag_middleware.adapters.inner_model import ChatModel
from crag_middleware.errors import ConfigError
from crag_middleware.ports import AsyncEvaluator, AsyncRewriter, Evaluator, Rewriter
from crag_middleware.settings import CHAT_THRESHOLDS
from crag_middleware.stages.assemble import approximate_tokens
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
    """The evaluator's own thresholds, a `Thresholds` or a pair of numbers; those for stated probabilities if it exposes none.

    Raises:
        ConfigError: They are out of order or out of range.
    """
    own = getattr(evaluator, "thresholds", CHAT_THRESHOLDS)
    cuts = own if isinstance(own, tuple) else (getattr(own, "lower", None), getattr(own, "upper", None))
    match cuts:
        case (int() | float() as lower, int() | float() as upper) if 0 <= lower <= upper <= 1:
            return Thresholds(float(lower), float(upper))
    msg = f"an evaluator's `thresholds` must be Thresholds(lower, upper) in order and in [0, 1], got {own!r}"
    raise ConfigError(msg)


def as_token_counter(given: Callable[[Any], int] | None) -> Callable[[str], int]:
    """A counter of a text's tokens: the given one if it takes a text, or, as LangChain's own counters do, a list of messages; by default approximate.

    Raises:
        ConfigError: It takes neither.
    """
    if given is None:
        return approximate_tokens
    probe = "word " * 100
    if _tokens(given, [HumanMessage(probe)]) > 10:  # A counter of texts fails on a list, or, like `len`, counts the list's only element.
        return lambda text: given([HumanMessage(text)])
    if _tokens(given, probe) > 10:
        return given
    msg = "`token_counter` must return the number of tokens of a text, or of a list of messages; it did for neither"
    raise ConfigError(msg)


def _tokens(counter: Callable[[Any], int], sample: object) -> int:
    """What the counter says of the sample; -1 if it can't take it."""
    try:
        counted = counter(sample)
    except Exception:  # noqa: BLE001 - a counter that can't take the sample may fail in any way, and that is the answer
        return -1
    return counted if isinstance(counted, int) else -1
