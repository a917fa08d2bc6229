"""What a user may pass, turned into what we work with: the one place that knows the conveniences."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import Runnable

from crag_middleware.adapters.chat_model import ChatModelEvaluator, ChatModelRewriter
from crag_middleware.adapters.inner_model import ChatModel
from crag_middleware.calibration import Calibration, Scale, check_fits, load_calibration, sets_of
from crag_middleware.errors import ConfigError
from crag_middleware.ports import AsyncEvaluator, AsyncRewriter, Evaluator, Rewriter
from crag_middleware.settings import CHAT_THRESHOLDS, CRAGSettings
from crag_middleware.stages.assemble import approximate_tokens
from crag_middleware.tenancy import check_agent_id
from crag_middleware.types import EvaluatorKey, Thresholds

CalibrationLike = Calibration | str | Path
"""A calibration, or the path of its file."""


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


def evaluator_key(evaluator: object) -> EvaluatorKey:
    """Whose probabilities the evaluator's are: its own `key`, or its class name if it exposes none.

    Raises:
        ConfigError: Its `key` is something else.
    """
    own = getattr(evaluator, "key", None)
    if own is None:
        return EvaluatorKey(type(evaluator).__name__)
    if isinstance(own, EvaluatorKey):
        return own
    msg = f"an evaluator's `key` must be an EvaluatorKey(evaluator, model, prompt), got {type(own).__name__}"
    raise ConfigError(msg)


def calibration_of(evaluator: object) -> Calibration | None:
    """The calibration that the evaluator brings, for any collection and tenant; None if it brings none.

    Raises:
        ConfigError: Its `calibration` is something else, or belongs to another evaluator.
    """
    own = getattr(evaluator, "calibration", None)
    if own is None:
        return None
    if not isinstance(own, Calibration) or own.collection or own.tenant:
        got = "one for a collection or a tenant; pass that to CRAGMiddleware" if isinstance(own, Calibration) else type(own).__name__
        msg = f"an evaluator's `calibration` must be a Calibration for any collection and tenant, or None, got {got}"
        raise ConfigError(msg)
    check_fits(own, evaluator_key(evaluator), collection="")
    return own


def as_scales(
    given: CalibrationLike | Sequence[CalibrationLike] | None,
    evaluator: object,
    *,
    collection: str,
    agent_id: str | None,
    settings: CRAGSettings,
) -> Mapping[str | None, Scale]:
    """What the evaluator's numbers go through, by tenant; under None for every tenant without its own.

    The most specific calibration serves: one for the tenant and the collection, then for the tenant, then for the collection, then for any, and last
    the evaluator's own. With none, its numbers are taken as they are and cut by its own thresholds.

    Args:
        given: Calibrations, or paths of their files; one or several.
        evaluator: Who grades.
        collection: The knowledge's collection; empty if it has none.
        agent_id: The only tenant that is served; None if others are known at each turn only.
        settings: Its `lower` and `upper` override thresholds, and its `verdict_rule` may need a set map.

    Raises:
        ConfigError: A calibration can't be read, belongs to another evaluator or collection, competes with an equally specific one, or lacks the set map.
        TenantError: A calibration is for what is no tenant id.
    """
    found = _calibrations(given)
    for calibration in found:
        check_fits(calibration, evaluator_key(evaluator), collection=collection)
        if calibration.tenant is not None:
            check_agent_id(calibration.tenant)
    if len({(c.tenant, c.collection) for c in found}) < len(found):
        msg = "two of the calibrations are for the same tenant and collection; pass one of them"
        raise ConfigError(msg)

    serving: dict[str | None, Calibration | None] = {None: calibration_of(evaluator)}
    serving |= {c.tenant: c for c in sorted(found, key=lambda c: bool(c.collection))}
    if agent_id is not None:
        serving = {None: serving.get(agent_id) or serving[None]}
    if settings.verdict_rule == "set":
        for one in serving.values():
            sets_of(one)
    own = thresholds_of(evaluator)
    return {tenant: Scale(settings.thresholds(one.cuts if one else own), one) for tenant, one in serving.items()}


def fallback_scale(evaluator: object) -> Scale:
    """What a fallback evaluator's numbers go through: the calibration it brings, if any, and its own thresholds.

    Raises:
        ConfigError: They are not what they should be.
    """
    calibration = calibration_of(evaluator)
    return Scale(calibration.cuts if calibration else thresholds_of(evaluator), calibration)


def rescaled(scale: Scale, evaluator: object, settings: CRAGSettings) -> Scale:
    """The scale with the thresholds that other settings put in force.

    Raises:
        ConfigError: An override crosses the other threshold.
    """
    own = scale.calibration.cuts if scale.calibration else thresholds_of(evaluator)
    return Scale(settings.thresholds(own), scale.calibration)


def _calibrations(given: Any) -> list[Calibration]:
    match given:
        case None:
            return []
        case Calibration():
            return [given]
        case str() | Path():
            return [load_calibration(given)]
        case [*several] if all(isinstance(one, CalibrationLike) for one in several):
            return [calibration for one in several for calibration in _calibrations(one)]
    msg = f"`calibration` must be a Calibration, the path of its file, or a list of those, got {type(given).__name__}"
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
