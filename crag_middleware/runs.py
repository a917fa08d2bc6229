"""One call of a port as callbacks and telemetry see it: a run with a name, below the run around it, that holds no text.

What is asked and answered may be private. A run holds counts only, and a failure its short code: no message of a port's, and no traceback.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from langchain.agents.middleware.internal_call_transformer import internal_call_metadata
from langchain_core.callbacks import (
    AsyncCallbackManagerForChainRun,
    BaseCallbackHandler,
    BaseCallbackManager,
    CallbackManager,
    CallbackManagerForChainRun,
)
from langchain_core.runnables.config import (
    RunnableConfig,
    ensure_config,
    get_async_callback_manager_for_config,
    get_callback_manager_for_config,
    var_child_runnable_config,
)
from langchain_core.tracers import LangChainTracer
from langgraph.runtime import Runtime

from crag_middleware.errors import CRAGError
from crag_middleware.findings import Found, WebFound
from crag_middleware.steps import MAIN, Call
from crag_middleware.telemetry import Span, reason_of
from crag_middleware.world import World

SOURCE = "crag"
"""What stands under `lc_source` in the metadata of every run below ours, models' included, as LangChain's own middlewares have it."""

_GRAPH = "__pregel_"
"""How the keys begin under which LangGraph hands its channels, streams and checkpoints to what runs inside a node."""

NAMES = {
    MAIN: "retrieve",
    "evaluator": "grade",
    "fallback_evaluator": "grade_with_fallback",
    "rewriter": "rewrite",
    "keywords": "draft_web_query",
    "neighbours": "find_neighbours",
    "embedder": "embed",
    "reranker": "rerank",
    "refiner": "refine",
    "approver": "approve_web_query",
    "web_search": "search_web",
    "claim_checker": "check_claims",
    "write_back": "write_back",
}
"""What the call of a port is named, after `crag.`; ports that are not named here give their own name, and further routes `retrieve:<name>`."""


def name_of(call: Call[Any]) -> str:
    """The run's name, such as `crag.grade`."""
    return f"crag.{NAMES.get(call.port) or call.port.replace('route:', 'retrieve:')}"


def hidden_config() -> RunnableConfig:
    """The running config, marked as that of an inner call: callbacks and traces see it, the streams of the user don't."""
    config = ensure_config()  # Not `merge_configs`, which would name each callback of it twice.
    tags, metadata = config.get("tags") or [], config.get("metadata") or {}
    return {**config, "tags": list(dict.fromkeys([*tags, "nostream"])), "metadata": {**metadata, **internal_call_metadata()}}


def metered_config(world: World) -> RunnableConfig:
    """The hidden config, with the turn's meter among its callbacks and the middleware named as the source of what runs under it."""
    config = hidden_config()
    metadata = {**(config.get("metadata") or {}), "lc_source": SOURCE}
    return {**config, "metadata": metadata, "callbacks": world.meter.heard(config.get("callbacks"))}


def unseen_config() -> RunnableConfig:
    """The running config for what runs beside a turn: traces see it, and nothing else that is the user's, be it a callback, a stream or a checkpoint."""
    config = ensure_config()
    callbacks = config.get("callbacks")
    parent = callbacks.parent_run_id if isinstance(callbacks, BaseCallbackManager) else None
    tracers: list[BaseCallbackHandler] = [handler for handler in _handlers(config) if isinstance(handler, LangChainTracer)]
    configurable = {
        key: silent(value) if isinstance(value, Runtime) else value
        for key, value in (config.get("configurable") or {}).items()
        if isinstance(value, Runtime) or not key.startswith(_GRAPH)
    }
    return {**config, "callbacks": CallbackManager(tracers, [*tracers], parent), "configurable": configurable}


def silent(runtime: Runtime[Any]) -> Runtime[Any]:
    """The runtime without its stream."""
    return runtime.override(stream_writer=lambda _: None)


@contextmanager
def running_under(config: RunnableConfig) -> Iterator[None]:
    """Whatever is called inside runs under this config; under `hidden_config`, models are seen by callbacks and traces, and hidden from the user's streams."""
    token = var_child_runnable_config.set(config)
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


@dataclass(frozen=True, slots=True)
class SeenCall:
    """A call that callbacks and telemetry were told of; to be ended once, in the form in which it was begun.

    Attributes:
        run: The run in the callbacks; None if nobody listens.
        span: The span; None without telemetry.
    """

    run: Any = None
    span: Span | None = None

    @contextmanager
    def inside(self) -> Iterator[None]:
        """What is called inside stands below the run and the span."""
        if self.run is None and self.span is None:
            yield
            return
        with ExitStack() as stack:
            if self.run is not None:
                stack.enter_context(running_under({**ensure_config(), "callbacks": self.run.get_child()}))
            if self.span is not None:
                stack.enter_context(self.span.current())
            yield

    def end(self, outcome: object) -> None:
        """The call is over: its result, or the exception that ended it."""
        if self.span is not None:
            self.span.end(counted(outcome), reason_of(outcome))
        run: CallbackManagerForChainRun | None = self.run
        if run is None:
            return
        if isinstance(outcome, BaseException):
            run.on_chain_error(_bare(outcome))
        else:
            run.on_chain_end(counted(outcome))

    async def aend(self, outcome: object) -> None:
        """The async form of `end`."""
        if self.span is not None:
            self.span.end(counted(outcome), reason_of(outcome))
        run: AsyncCallbackManagerForChainRun | None = self.run
        if run is None:
            return
        if isinstance(outcome, BaseException):
            await run.on_chain_error(_bare(outcome))
        else:
            await run.on_chain_end(counted(outcome))


_UNSEEN = SeenCall()


def see(call: Call[Any], world: World) -> SeenCall:
    """Tells the running config's callbacks, and the telemetry, that a call begins."""
    config, span = ensure_config(), _span(call, world)
    if all(handler is world.meter for handler in _handlers(config)):
        return SeenCall(span=span) if span else _UNSEEN
    return SeenCall(get_callback_manager_for_config(config).on_chain_start(None, {}, name=name_of(call)), span)


async def asee(call: Call[Any], world: World) -> SeenCall:
    """The async form of `see`."""
    config, span = ensure_config(), _span(call, world)
    if all(handler is world.meter for handler in _handlers(config)):
        return SeenCall(span=span) if span else _UNSEEN
    return SeenCall(await get_async_callback_manager_for_config(config).on_chain_start(None, {}, name=name_of(call)), span)


def counted(outcome: object) -> dict[str, int]:
    """How much a call brought, in numbers; nothing of what."""
    match outcome:
        case WebFound():
            return {"passages": len(outcome), "requests": sum(attempt.requests for attempt in outcome.attempts)}
        case Found():
            return {"passages": len(outcome)}
        case tuple():
            return {"items": len(outcome)}
    return {}


def _span(call: Call[Any], world: World) -> Span | None:
    return world.telemetry.call(call, name_of(call), world.tenant) if world.telemetry else None


def _handlers(config: RunnableConfig) -> list[BaseCallbackHandler]:
    """Who hears of runs."""
    callbacks = config.get("callbacks")
    return callbacks.handlers if isinstance(callbacks, BaseCallbackManager) else callbacks or []


def _bare(error: BaseException) -> CRAGError:
    """The failure without its text, cause and traceback: tracers keep all of those."""
    reason = reason_of(error)
    return CRAGError(reason, reason=reason)
