"""`CRAGMiddleware`: messages in, hooks out. What happens in between stands in `plan.py`."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, cast

from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    TracePolicy,
    omit_payload,
)
from langchain.agents.middleware.internal_call_transformer import InternalCallTransformer
from langchain_core.messages import AIMessage
from langgraph.runtime import Runtime
from langgraph.types import Command

from crag_middleware.adapters.answering import Watch, basis_of, capped
from crag_middleware.adapters.given import CalibrationLike
from crag_middleware.adapters.given_answers import AnyClaimChecker
from crag_middleware.adapters.given_recall import AnyReranker
from crag_middleware.adapters.given_settings import AnyTenantSettings
from crag_middleware.adapters.given_web import AnyWebPolicy, AnyWebSearch, Approval
from crag_middleware.adapters.inner_model import ChatModel
from crag_middleware.adapters.messages import inject, read_question
from crag_middleware.adapters.routes import Route
from crag_middleware.alarm import Alarm, Health
from crag_middleware.breaker import Breaker
from crag_middleware.drive import arun, run
from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.meter import Meter
from crag_middleware.parts import AnyEvaluator, AnyKnowledge, Parts
from crag_middleware.plan import correct
from crag_middleware.pool import Pools
from crag_middleware.ports import AsyncEvidenceKeeper, AsyncRefiner, AsyncRewriter, EvidenceKeeper, Refiner, Rewriter
from crag_middleware.receipt import record
from crag_middleware.settings import CRAGSettings
from crag_middleware.steps import Plan, spending
from crag_middleware.tenancy import Scope, check_agent_id, resolve
from crag_middleware.turn import Turn, digest, state_schema
from crag_middleware.types import Evidence, Question, Spent
from crag_middleware.verification import kept
from crag_middleware.world import World

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


class CRAGMiddleware(AgentMiddleware[AgentState[Any], Any, Any]):
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
    ) -> None:
        super().__init__()
        if isinstance(agent_id, str) or not (agent_id is None or callable(agent_id)):
            check_agent_id(agent_id)
        if name is not None and not (isinstance(name, str) and _NAME.fullmatch(name)):
            msg = f"`name` must be a letter followed by at most 63 letters, digits, `_` or `-`, got {name!r}"
            raise ConfigError(msg)
        if settings is not None and not isinstance(settings, CRAGSettings):
            msg = f"`settings` must be `CRAGSettings(...)`, got {type(settings).__name__}"
            raise ConfigError(msg)
        for argument, value in {
            "vector_store": vector_store,
            "evaluator": evaluator,
            "fallback_evaluator": fallback_evaluator,
            "web_search": web_search,
            "rewriter": rewriter,
            "reranker": reranker,
            "claim_checker": claim_checker,
            "write_back": write_back,
        }.items():
            if isinstance(value, type):
                msg = f"`{argument}` must be an instance, got the class {value.__name__}; write {value.__name__}(...)"
                raise ConfigError(msg)
        self._agent_id = agent_id
        self._name = name
        self._parts = parts = Parts(
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
            settings=settings or CRAGSettings(),
            tenant_settings=tenant_settings,
            tenant_field=tenant_field,
            token_counter=token_counter,
        )
        self._alarm, self._breaker, self._pools = Alarm(), Breaker(), Pools()
        self._receipt_key = f"crag_{name}" if name else "crag"
        self._turn_key = f"_{self._receipt_key}"
        self._configuration = digest(*parts.shown)
        self.state_schema = state_schema(self._receipt_key, self._turn_key, saved=parts.saves_evidence)
        for port in parts.ports.values():
            if port.sync is None:
                logger.warning("%s has only an async form: this agent works with ainvoke and astream only", port.label)

    @property
    def name(self) -> str:
        """The instance's name within the agent."""
        return self._name or type(self).__name__

    def health(self, agent_id: str) -> Health:
        """What the latest turns of a tenant looked like, as far as this instance saw them (docs/monitoring.md).

        Raises:
            TenantError: `agent_id` is no usable tenant id.
        """
        return self._alarm.health(digest(check_agent_id(agent_id)))

    @property
    def left_behind(self) -> Mapping[str, int]:
        """Calls of blocking ports that outlived their deadline and still run in a thread, by port; empty when all is well (docs/budget.md)."""
        inside = {port: getattr(bound.owner, "left_behind", {}) for port, bound in self._parts.ports.items()}
        nested = {f"{port}/{inner}": count for port, counts in inside.items() for inner, count in counts.items()}
        return {**self._pools.left_behind, **nested}

    def before_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Puts an earlier turn's receipt and evidence away: the turn may end before its first model call, or ask anew under an old message's id."""
        memo, question = self._memo(state), read_question(state["messages"], history=0)
        if not memo or question is None or (memo["message_id"], memo["text"]) == (question.message_id, digest(question.text)):
            return None
        nothing = Evidence(question=replace(question, skip="not_reached"), status="skipped")
        return {self._receipt_key: record(nothing, name=self.name, detail="injected"), self._turn_key: {}}

    async def abefore_agent(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Puts an earlier turn's receipt and evidence away."""
        return self.before_agent(state, runtime)

    def before_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Finds the turn's evidence, once per turn."""
        turn = self._begin(state, runtime)
        if turn is None:
            return None
        evidence = run(self._plan(state, turn), self._world(runtime, turn.scope, turn.settings))
        return self._remember(state, turn, evidence, runtime)

    async def abefore_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """Finds the turn's evidence, once per turn."""
        turn = self._begin(state, runtime)
        if turn is None:
            return None
        evidence = await arun(self._plan(state, turn), self._world(runtime, turn.scope, turn.settings))
        return self._remember(state, turn, evidence, runtime)

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Calls the model with the turn's evidence in a copy of its messages, and checks what it answers."""
        update: dict[str, Any] = {}
        if turn := self._unremembered(request):
            evidence = run(self._plan(request.state, turn), self._world(request.runtime, turn.scope, turn.settings))
            update = self._remember(request.state, turn, evidence, request.runtime)
            request = _updated(request, update)
        watch = self._watch(request)
        if watch is None:
            return _extended(handler(self._with_evidence(request)), update)
        response = handler(watch.over(self._with_evidence(request)))
        if (again := watch.unchecked(response)) is not None:
            response = watch.replaced(response, run(again, watch.world))
        return _extended(response, update | run(self._answered(request, response, watch), watch.world))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
        """Calls the model with the turn's evidence in a copy of its messages, and checks what it answers."""
        update: dict[str, Any] = {}
        if turn := self._unremembered(request):
            evidence = await arun(self._plan(request.state, turn), self._world(request.runtime, turn.scope, turn.settings))
            update = self._remember(request.state, turn, evidence, request.runtime)
            request = _updated(request, update)
        watch = self._watch(request)
        if watch is None:
            return _extended(await handler(self._with_evidence(request)), update)
        response = await handler(watch.over(self._with_evidence(request)))
        if (again := watch.unchecked(response)) is not None:
            response = watch.replaced(response, await arun(again, watch.world))
        return _extended(response, update | await arun(self._answered(request, response, watch), watch.world))

    def _watch(self, request: ModelRequest[Any]) -> Watch | None:
        """What checks the answer of a model call; None if nothing was looked up for the turn, or nothing is to be checked."""
        memo = self._memo(request.state)
        receipt: Mapping[str, Any] = cast("Mapping[str, Any]", request.state).get(self._receipt_key) or {}
        if not memo or receipt.get("status") in (None, "skipped"):
            return None
        scope = resolve(self._agent_id, request.runtime)
        settings = self._parts.settings_of(scope)
        if not settings.verify:
            return None
        question = read_question(request.messages, history=0)
        basis = basis_of(
            request,
            [receipt, *self._other_receipts(request.state, memo["message_id"])],
            key=self._receipt_key,
            question=question.text if question else "",
            block=memo["block"],
            scope=scope,
            settings=settings,
            threshold=self._parts.threshold,
            is_instant=self._parts.threshold is None or self._parts.ports["claim_checker"].instant,
        )
        return Watch(basis, self._world(request.runtime, scope, settings, Spent(**memo["spent"])))

    def _answered(self, request: ModelRequest[Any], response: ModelResponse[Any], watch: Watch) -> Plan[dict[str, Any]]:
        """The receipt with what is known of the answer, and web evidence of it kept, if somebody does; nothing for a step on the way to an answer."""
        told = next((m.response_metadata.get(self._receipt_key) for m in reversed(response.result) if isinstance(m, AIMessage)), None)
        if told is None:
            return {}
        state: Mapping[str, Any] = cast("Mapping[str, Any]", request.state)
        receipt = {**state[self._receipt_key], "answer": told}
        if "write_back" in self._parts.ports:
            scope = resolve(self._agent_id, request.runtime)
            receipt = yield from kept(receipt, scope, timeout_s=self._parts.settings_of(scope).retrieve_timeout_s)
        spent = yield from spending()
        receipt["spent"] = asdict(replace(spent, model_calls=spent.model_calls + told["repairs"]))
        receipt["rungs"] = list(dict.fromkeys([*receipt["rungs"], *told["rungs"]]))
        return {self._receipt_key: receipt, self._turn_key: {**self._memo(state), "spent": receipt["spent"]}}

    def _other_receipts(self, state: Mapping[str, Any], message_id: str) -> list[Mapping[str, Any]]:
        """The receipts of other instances for this turn."""
        keys = [key for key, memo in state.items() if key.startswith("_crag") and key != self._turn_key and memo]
        return [state[key[1:]] for key in keys if state[key]["message_id"] == message_id and state.get(key[1:])]

    def _begin(self, state: AgentState[Any], runtime: Runtime[Any]) -> Turn | None:
        """The turn to work on; None if its evidence is there already. The tenant is checked either way."""
        scope = resolve(self._agent_id, runtime)
        settings, messages = self._parts.settings_of(scope), state["messages"]
        question = read_question(messages, history=settings.history_messages)
        memo = self._memo(state)
        is_ours = memo.get("tenant") == digest(scope.agent_id) and memo.get("configuration") == self._configuration
        if question is None:
            if is_ours:  # summarised away in mid-turn
                return None
            question = Question(text="", skip="empty")
        turn = Turn(scope, settings, question, digest(question.text))
        same_message = is_ours and memo.get("message_id") == question.message_id
        # Once the answer has begun, a redacting middleware may have changed the question's text.
        answering = bool(messages) and messages[-1].id != question.message_id
        return None if same_message and (answering or memo.get("text") == turn.text) else turn

    def _unremembered(self, request: ModelRequest[Any]) -> Turn | None:
        """The turn whose evidence was not saved, when a run is resumed at its model call; None in every other case."""
        return None if self._memo(request.state) else self._begin(request.state, request.runtime)

    def _memo(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is remembered of the turn; empty before the first."""
        return state.get(self._turn_key) or {}

    def _plan(self, state: AgentState[Any], turn: Turn) -> Plan[Evidence]:
        return correct(turn.question, turn.scope, self._parts.policy_of(turn.scope), first_number=self._first_number(state, turn))

    def _first_number(self, state: Mapping[str, Any], turn: Turn) -> int:
        """One more than the last citation number that other instances gave in this turn."""
        return 1 + max((memo["last"] for memo in self._others(state, turn.question.message_id)), default=0)

    def _others(self, state: Mapping[str, Any], message_id: str) -> list[Mapping[str, Any]]:
        """What other instances remember of the turn."""
        memos = [memo for key, memo in state.items() if key.startswith("_crag") and key != self._turn_key and memo]
        return [memo for memo in memos if memo["message_id"] == message_id]

    def _world(self, runtime: Runtime[Any], scope: Scope, settings: CRAGSettings, spent: Spent | None = None) -> World:
        """What the drivers work with in a turn that has cost something already, or begins."""
        return World(
            self._parts.ports,
            lambda stage: runtime.stream_writer({"type": "crag", "name": self.name, "stage": stage}),
            timeout_s=settings.turn_timeout_s,
            tenant=digest(scope.agent_id),
            breaker=self._breaker,
            pools=self._pools,
            meter=Meter(spent),
        )

    def _remember(self, state: Mapping[str, Any], turn: Turn, evidence: Evidence, runtime: Runtime[Any]) -> dict[str, Any]:
        """The state update of a turn: the receipt for the caller, and what later model calls of the turn need."""
        tenant = digest(turn.scope.agent_id)
        health, changes = self._alarm.count(tenant, evidence, turn=_turn_id(tenant, turn, runtime))
        for change in changes:
            logger.log(logging.WARNING if change.began else logging.INFO, "crag alarm: %s", change)
            runtime.stream_writer({"type": "crag", "name": self.name, "stage": "alarm", **change.event()})
        outcome = {"status": evidence.status, "verdict": evidence.verdict}
        runtime.stream_writer({"type": "crag", "name": self.name, "stage": "done", **outcome})
        if evidence.troubles:
            logger.warning("crag turn degraded: %s", ", ".join(f"{t.step} ({t.reason})" for t in evidence.troubles))
        memo = {
            "tenant": tenant,
            "configuration": self._configuration,
            "message_id": turn.question.message_id,
            "text": turn.text,
            "block": evidence.block,
            "spent": asdict(evidence.spent),
            "last": evidence.sources[-1].number if evidence.sources else self._first_number(state, turn) - 1,
        }
        receipt = record(evidence, name=self.name, detail=turn.settings.receipt_detail, alarms=health.told())
        return {self._receipt_key: receipt, self._turn_key: memo}

    def _with_evidence(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request with the evidence of this tenant's turn.

        Raises:
            TenantError: A run that was stopped before its model call is resumed for another tenant, or for none.
        """
        memo = self._memo(request.state)
        if not memo.get("block"):
            return request
        scope = resolve(self._agent_id, request.runtime)
        if memo["tenant"] != digest(scope.agent_id):
            msg = "the evidence of this turn belongs to another tenant; resume a run with the context that it was started with"
            raise TenantError(msg, reason="tenant_conflict")
        settings = self._parts.settings_of(scope)
        messages, system = inject(
            memo["block"],
            request.messages,
            request.system_message,
            message_id=memo["message_id"],
            into_system=settings.position == "system",
            others=tuple(other["block"] for other in self._others(request.state, memo["message_id"]) if other["block"]),
        )
        has_evidence = bool(cast("Mapping[str, Any]", request.state).get(self._receipt_key, {}).get("sources"))
        options = capped(request, settings.max_temperature if has_evidence else None)
        return request.override(messages=messages, system_message=system, model_settings=options)


def _turn_id(tenant: str, turn: Turn, runtime: Runtime[Any]) -> str:
    """The same when a turn is run again in its thread; empty without a thread, where nothing can be resumed."""
    thread = getattr(getattr(runtime, "execution_info", None), "thread_id", None)
    return digest(tenant, str(thread), turn.question.message_id, turn.text) if thread and turn.question.message_id else ""


def _extended(response: ModelResponse[Any], update: Mapping[str, Any]) -> ModelResponse[Any] | ExtendedModelResponse[Any]:
    """The response with a state update, if there is one."""
    return ExtendedModelResponse(response, Command(update=dict(update))) if update else response


def _updated(request: ModelRequest[Any], update: Mapping[str, Any]) -> ModelRequest[Any]:
    return request.override(state=cast("AgentState[Any]", {**request.state, **update}))
