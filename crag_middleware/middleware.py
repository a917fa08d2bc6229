"""`CRAGMiddleware`: messages in, hooks out. What happens in between stands in `plan.py`."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

from langchain.agents.middleware import AgentState, ExtendedModelResponse, ModelRequest, ModelResponse, TracePolicy, omit_payload
from langchain.agents.middleware.internal_call_transformer import InternalCallTransformer
from langgraph.runtime import Runtime
from langgraph.types import Command

from crag_middleware.adapters.given import CalibrationLike
from crag_middleware.adapters.given_answers import AnyClaimChecker
from crag_middleware.adapters.given_recall import AnyReranker
from crag_middleware.adapters.given_settings import AnyTenantSettings
from crag_middleware.adapters.given_web import AnyWebPolicy, AnyWebSearch, Approval
from crag_middleware.adapters.inner_model import ChatModel
from crag_middleware.adapters.routes import Route
from crag_middleware.alarm import Health
from crag_middleware.drive import arun, run
from crag_middleware.errors import ConfigError
from crag_middleware.parts import AnyEvaluator, AnyKnowledge, Parts
from crag_middleware.ports import AsyncEvidenceKeeper, AsyncRefiner, AsyncRewriter, EvidenceKeeper, Refiner, Rewriter
from crag_middleware.settings import CRAGSettings
from crag_middleware.shadow import Shadow
from crag_middleware.telemetry import OpenTelemetry
from crag_middleware.telling import Outlets, ReceiptSink
from crag_middleware.tenancy import check_agent_id, digest
from crag_middleware.turns import Enabled, Turns

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


Mode = Literal["live", "shadow"]
"""Whether what is found reaches the model: see `CRAGMiddleware`."""


class CRAGMiddleware(Turns):
    """Grounds every answer of an agent in one tenant's knowledge, corrected before the model sees it.

    Once per user turn, before the first model call, it searches the knowledge, grades what came back, and refines it, rewrites the query or
    searches the web, as the grades demand. Each model call of the turn then gets the same numbered evidence in a copy of its messages;
    the saved history holds nothing of it. `result["crag"]` holds the turn's receipt (docs/receipt.md).

    Args:
        vector_store: Knowledge of `open_knowledge`, another `langchain_milvus.Milvus`, a LangChain retriever, or an object with `retrieve`
            or `aretrieve`.
        agent_id: The tenant: a string, or a function of the runtime, or None for `runtime.context` (attribute or key `agent_id`).
        evaluator: Grades passages: a chat model, its name, or an `Evaluator`. By default a `ChatModelEvaluator` on `DEFAULT_MODEL`.
        fallback_evaluator: Grades when the evaluator fails or the turn's time or budget runs short, such as `EmbeddingEvaluator(LocalEmbeddings())`. By default
            passages are then used without a grade (docs/budget.md).
        calibration: What the evaluator's numbers mean here: a `Calibration`, the path of a file that `crag calibrate` wrote, or several of those, of which
            the most specific for the turn's tenant and the collection serves. By default the evaluator's own, if it brings one (docs/calibration.md).
        web_search: The second source, such as `TavilyWebSearch`, or several, each asked when the one before failed; without one nothing ever goes to
            the web.
        web_policy: What the web search may do: a `WebPolicy` for all tenants, a mapping from `agent_id`, or a function of it, which must be quick. A tenant
            that these don't name has no web search. By default a plain `WebPolicy()` for all.
        approve_web_query: Called with each web query and the `agent_id` before it leaves; returns the text that may, changed or not, or None for none.
        rewriter: Makes follow-up questions understandable and tries other queries: a chat model, its name, or a `Rewriter`. By default the
            evaluator's chat model, if it has one.
        refiner: Picks the sentences that bear on the question. By default by words.
        claim_checker: Checks what the answer says against the evidence, the tools' results and the user's messages: a chat model, its name, or a
            `ClaimChecker`, such as `WordClaimChecker`. Without one only citations are checked (docs/answers.md).
        write_back: Keeps web evidence of checked answers in the tenant's knowledge, such as `WriteBack` (docs/write_back.md); needs a claim checker.
        routes: Further retrievers, asked at the same time as the main store: a `Route`, or several (docs/routes.md).
        reranker: Puts what all routes found in order before the best are graded: a `Reranker`, or one of LangChain's cross-encoders or reranking
            compressors (docs/reranking.md). By default the fused order stands.
        settings: Everything else, see `CRAGSettings`.
        tenant_settings: Settings of single tenants over those: a mapping from `agent_id` to settings by name, or a function of it, which must be quick
            (docs/tenants.md).
        name: Tells several instances on one agent apart; the receipt of a named one is `result["crag_<name>"]`.
        tenant_field: The VARCHAR column that holds the tenant in a store of your own, or `metadata["agent_id"]`.
        token_counter: Counts the tokens of a text, or of a list of messages as LangChain's counters do, for the context budget. By default approximate.
        mode: With `shadow`, everything runs beside the turn and changes nothing: the receipt says what would have been done (docs/shadow.md).
        enabled: Whether anything is done, or a function of the runtime that says so for each turn, which must be quick. Where it fails, nothing is done.
        receipt_sink: Called with each receipt when its turn is over, from any thread, such as to keep it; it must return soon.
        telemetry: Where spans and metrics go, such as `OpenTelemetry()` (docs/observability.md).

    Raises:
        ConfigError: Something of this can't work; the message says what to do.
        TenantError: `agent_id` is no usable tenant id.
    """

    # The framework's way to hide inner calls from v3 events; their tag `nostream` does the same for `stream_mode="messages"`.
    transformers = (InternalCallTransformer,)
    trace_policy = TracePolicy(process_inputs=omit_payload, process_outputs=omit_payload)

    def __init__(
        self,
        vector_store: AnyKnowledge,
        agent_id: str | Callable[[Runtime[Any]], str] | None = None,
        *,
        evaluator: AnyEvaluator | None = None,
        fallback_evaluator: AnyEvaluator | None = None,
        calibration: CalibrationLike | Sequence[CalibrationLike] | None = None,
        web_search: AnyWebSearch | Sequence[AnyWebSearch] | None = None,
        web_policy: AnyWebPolicy | None = None,
        approve_web_query: Approval | None = None,
        rewriter: Rewriter | AsyncRewriter | ChatModel | str | None = None,
        refiner: Refiner | AsyncRefiner | None = None,
        claim_checker: AnyClaimChecker | None = None,
        write_back: EvidenceKeeper | AsyncEvidenceKeeper | None = None,
        routes: Route | Sequence[Route] = (),
        reranker: AnyReranker | None = None,
        settings: CRAGSettings | None = None,
        tenant_settings: AnyTenantSettings | None = None,
        name: str | None = None,
        tenant_field: str | None = None,
        token_counter: Callable[[Any], int] | None = None,
        mode: Mode = "live",
        enabled: Enabled = True,
        receipt_sink: ReceiptSink | None = None,
        telemetry: OpenTelemetry | None = None,
    ) -> None:
        if isinstance(agent_id, str) or not (agent_id is None or callable(agent_id)):
            check_agent_id(agent_id)
        if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
            msg = f"`name` must be a letter followed by at most 63 letters, digits, `_` or `-`, got {name!r}"
            raise ConfigError(msg)
        if mode not in get_args(Mode):
            msg = f"`mode` must be 'live' or 'shadow', got {mode!r}"
            raise ConfigError(msg)
        if not isinstance(enabled, bool) and not callable(enabled):
            msg = f"`enabled` must be True, False or a function of the runtime that returns one of them, got {type(enabled).__name__}"
            raise ConfigError(msg)
        parts = Parts(
            vector_store,
            agent_id=agent_id if isinstance(agent_id, str) else None,
            evaluator=evaluator,
            fallback_evaluator=fallback_evaluator,
            calibration=calibration,
            web_search=web_search,
            web_policy=web_policy,
            approve_web_query=approve_web_query,
            rewriter=rewriter,
            refiner=refiner,
            claim_checker=claim_checker,
            write_back=write_back,
            routes=routes,
            reranker=reranker,
            settings=settings,
            tenant_settings=tenant_settings,
            tenant_field=tenant_field,
            token_counter=token_counter,
        )
        outlets = Outlets(receipt_sink, telemetry)
        super().__init__(parts, agent_id=agent_id, name=name, enabled=enabled, shadow=mode == "shadow", outlets=outlets)
        self._shadow = Shadow(self) if mode == "shadow" else None
        if telemetry is not None:
            telemetry.watch(self)
        for port in parts.ports.values():
            if port.sync is None:
                logger.warning("%s has only an async form: this agent works with ainvoke and astream only", port.label)

    def health(self, agent_id: str) -> Health:
        """What the latest turns of a tenant looked like, as far as this instance saw them (docs/monitoring.md).

        Raises:
            TenantError: `agent_id` is no usable tenant id.
        """
        return self._parts.alarm.health(digest(check_agent_id(agent_id)))

    @property
    def left_behind(self) -> Mapping[str, int]:
        """Calls of blocking ports that outlived their deadline and still run in a thread, by port; empty when all is well (docs/budget.md)."""
        inside = {port: getattr(bound.owner, "left_behind", {}) for port, bound in self._parts.ports.items()}
        nested = {f"{port}/{inner}": count for port, counts in inside.items() for inner, count in counts.items()}
        return {**self._parts.pools.left_behind, **nested}

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Puts an earlier turn's receipt and evidence away: the turn may end before its first model call, or ask anew under an old message's id."""
        return self._put_away(state)

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Puts an earlier turn's receipt and evidence away."""
        return self._put_away(state)

    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Finds the turn's evidence, once per turn."""
        if self._shadow is not None:
            return self._shadow.begin(state, runtime)
        if (off := self._off(state, runtime)) is not None:
            return off or None
        turn = self._begin(state, runtime)
        return None if turn is None else self._corrected(state, runtime, turn)

    async def abefore_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Finds the turn's evidence, once per turn."""
        if self._shadow is not None:
            return await self._shadow.abegin(state, runtime)
        if (off := self._off(state, runtime)) is not None:
            return off or None
        turn = self._begin(state, runtime)
        return None if turn is None else await self._acorrected(state, runtime, turn)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Calls the model with the turn's evidence in a copy of its messages, and checks what it answers."""
        if self._shadow is not None:
            return self._shadow.call(request, handler)
        update: dict[str, Any] = {}
        if turn := self._unremembered(request):
            update = self._corrected(request.state, request.runtime, turn)
            request = _updated(request, update)
        watch = self._watch(request)
        if watch is None:
            return _extended(handler(self._with_evidence(request)), update)
        response = handler(watch.over(self._with_evidence(request)))
        response, known = run(self._checked(request, response, watch), watch.world)
        return _extended(response, update | known)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Calls the model with the turn's evidence in a copy of its messages, and checks what it answers."""
        if self._shadow is not None:
            return await self._shadow.acall(request, handler)
        update: dict[str, Any] = {}
        if turn := self._unremembered(request):
            update = await self._acorrected(request.state, request.runtime, turn)
            request = _updated(request, update)
        watch = self._watch(request)
        if watch is None:
            return _extended(await handler(self._with_evidence(request)), update)
        response = await handler(watch.over(self._with_evidence(request)))
        response, known = await arun(self._checked(request, response, watch), watch.world)
        return _extended(response, update | known)

    def after_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Tells of the turn that is over; in shadow mode, checks its answer before."""
        if self._shadow is not None:
            return self._shadow.end(state)
        return self._ended(state)

    async def aafter_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Tells of the turn that is over; in shadow mode, checks its answer before."""
        if self._shadow is not None:
            return await self._shadow.aend(state)
        return self._ended(state)


def _extended(response: ModelResponse[Any], update: Mapping[str, Any]) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
    """The response with a state update, if there is one."""
    return ExtendedModelResponse(response, Command(update=dict(update))) if update else response


def _updated(request: ModelRequest[Any], update: Mapping[str, Any]) -> ModelRequest[Any]:
    return request.override(state=cast("AgentState[Any]", {**request.state, **update}))
