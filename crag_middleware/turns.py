"""What an instance does with one turn after another, under LangChain's hooks: begin, find the evidence, remember it, put it in, check the answer."""

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware, AgentState, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import Runtime

from crag_middleware.adapters.answering import Watch, basis_of, capped
from crag_middleware.adapters.messages import inject, read_question
from crag_middleware.drive import arun, run
from crag_middleware.errors import TenantError
from crag_middleware.findings import Evidence, Spent
from crag_middleware.parts import Parts
from crag_middleware.plan import correct
from crag_middleware.receipt import shadowed, unasked
from crag_middleware.settings import CRAGSettings
from crag_middleware.steps import Plan, spending
from crag_middleware.telling import Outlets
from crag_middleware.tenancy import Scope, digest, resolve
from crag_middleware.turn import Turn, state_schema
from crag_middleware.types import Question
from crag_middleware.verification import kept
from crag_middleware.world import World

logger = logging.getLogger(__name__)

Enabled = bool | Callable[[Runtime[Any]], bool]
"""Whether anything is done in a turn, or a function of the runtime that says so."""

Tell = Callable[[Mapping[str, Any]], None]


class Turns(AgentMiddleware[AgentState[Any], Any, Any]):
    """What `CRAGMiddleware` is built on.

    Args:
        parts: What the instance is built of.
        agent_id: The tenant, or where it comes from.
        name: The instance's name; None for the only one.
        enabled: Whether turns are worked on.
        shadow: Whether everything runs beside the turn and changes nothing.
        outlets: Who is told of turns.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        agent_id: str | Callable[[Runtime[Any]], str] | None,
        name: str | None,
        enabled: Enabled,
        shadow: bool,
        outlets: Outlets,
    ) -> None:
        super().__init__()
        self._parts = parts
        self._agent_id = agent_id
        self._name = name
        self._enabled = enabled
        self._is_shadow = shadow
        self._outlets = outlets
        self._receipt_key = f"crag_{name}" if name else "crag"
        self._turn_key = f"_{self._receipt_key}"
        self._configuration = digest(*parts.shown, *(("shadow",) if shadow else ()))
        self.state_schema = state_schema(self._receipt_key, self._turn_key, saved=parts.saves_evidence)

    @property
    def name(self) -> str:
        """The instance's name within the agent."""
        return self._name or type(self).__name__

    def _kept(self, receipt: Mapping[str, Any]) -> dict[str, Any]:
        """The receipt as a state update; none in shadow mode with somebody who takes receipts, where the state stays as it would be without us."""
        return {} if self._is_shadow and self._outlets.sink else {self._receipt_key: receipt}

    def _put_away(self, state: AgentState[Any]) -> dict[str, Any] | None:
        """The state update that puts an earlier turn's receipt and evidence away; None if there is nothing of an earlier turn."""
        memo, question = self._memo(state), read_question(state["messages"], history=0)
        told = cast("Mapping[str, Any]", state).get(self._receipt_key) or {}
        if question is None or not (memo or told):
            return None
        if (memo.get("message_id", told.get("message_id")), memo.get("text", "")) == (
            question.message_id,
            digest(question.text) if memo else "",
        ):
            return None
        receipt = unasked("not_reached", question, name=self.name)
        return {**self._kept(shadowed(receipt, tenant="") if self._is_shadow else receipt), self._turn_key: {}}

    def _off(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:
        """The state update of a turn in which nothing is done, empty if that is known already; None if the turn is worked on. Decided once a turn."""
        if self._enabled is True:
            return None
        question, memo = read_question(state["messages"], history=0) or Question(text="", skip="empty"), self._memo(state)
        if memo and (not question.message_id or memo["message_id"] == question.message_id):
            return None if memo.get("off") is None else {}
        failed = self._why_off(runtime)
        if failed is None:
            return None
        memo = {"message_id": question.message_id, "text": digest(question.text), "block": "", "last": 0, "off": failed}
        return {**self._kept(self._unasked(memo)), self._turn_key: memo}

    def _why_off(self, runtime: Runtime[Any]) -> str | None:
        """Why nothing is done in this turn: empty if it is switched off, or how the function failed that should say so; None if it is on."""
        if isinstance(self._enabled, bool):
            return None if self._enabled else ""
        try:
            answer: object = self._enabled(runtime)
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - a user's function may fail in any way
            logger.warning("crag: `enabled` failed with %s; nothing is done in this turn", type(error).__name__)
            return type(error).__name__
        if isinstance(answer, bool):
            return None if answer else ""
        if close := getattr(answer, "close", None):  # a coroutine that nobody awaits
            close()
        logger.warning("crag: `enabled` must return True or False, got %s; nothing is done in this turn", type(answer).__name__)
        return "invalid_reply"

    def _unasked(self, memo: Mapping[str, Any]) -> dict[str, Any]:
        """The receipt of a turn that is switched off."""
        reasons = {"enabled": memo["off"]} if memo["off"] else {}
        receipt = unasked("disabled", Question(text="", message_id=memo["message_id"]), name=self.name, reasons=reasons)
        return shadowed(receipt, tenant="") if self._is_shadow else receipt

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
        if self._memo(request.state) or self._off(request.state, request.runtime) is not None:
            return None
        return self._begin(request.state, request.runtime)

    def _memo(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is remembered of the turn; empty before the first."""
        return state.get(self._turn_key) or {}

    def _corrected(self, state: Mapping[str, Any], runtime: Runtime[Any], turn: Turn) -> dict[str, Any]:
        """The state update of the turn's corrective pass."""
        with self._spanned(turn) as tell:
            evidence = run(self._plan(state, turn), self._world(runtime, turn.scope, turn.settings))
            return self._remember(state, turn, evidence, runtime, tell)

    async def _acorrected(self, state: Mapping[str, Any], runtime: Runtime[Any], turn: Turn) -> dict[str, Any]:
        """The async form of `_corrected`."""
        with self._spanned(turn) as tell:
            evidence = await arun(self._plan(state, turn), self._world(runtime, turn.scope, turn.settings))
            return self._remember(state, turn, evidence, runtime, tell)

    def _spanned(self, turn: Turn) -> AbstractContextManager[Tell]:
        """What telemetry sees of the corrective pass."""
        telemetry = self._outlets.telemetry
        return telemetry.correcting(self.name, digest(turn.scope.agent_id)) if telemetry else nullcontext(lambda _: None)

    def _plan(self, state: Mapping[str, Any], turn: Turn) -> Plan[Evidence]:
        return correct(turn.question, turn.scope, self._parts.policy_of(turn.scope), first_number=self._first_number(state, turn))

    def _first_number(self, state: Mapping[str, Any], turn: Turn) -> int:
        """One more than the last citation number that other instances gave in this turn."""
        return 1 + max((memo["last"] for memo in self._others(state, turn.question.message_id)), default=0)

    def _others(self, state: Mapping[str, Any], message_id: str) -> list[Mapping[str, Any]]:
        """What other instances remember of the turn; nothing of those in shadow mode."""
        memos = [memo for key, memo in state.items() if key.startswith("_crag") and key != self._turn_key and memo]
        return [memo for memo in memos if memo["message_id"] == message_id and "shadow" not in memo]

    def _world(self, runtime: Runtime[Any], scope: Scope, settings: CRAGSettings, spent: Spent | None = None) -> World:
        """What the drivers work with in a turn that has cost something already, or begins."""
        report = runtime.stream_writer
        world = self._parts.world(scope, settings, lambda stage: report({"type": "crag", "name": self.name, "stage": stage}), spent)
        return replace(world, telemetry=self._outlets.telemetry) if self._outlets.telemetry else world

    def _remember(self, state: Mapping[str, Any], turn: Turn, evidence: Evidence, runtime: Runtime[Any], tell: Tell) -> dict[str, Any]:
        """The state update of a turn: the receipt for the caller, and what later model calls of the turn need."""
        tenant = digest(turn.scope.agent_id)
        turn_id = _turn_id(tenant, turn, runtime)
        receipt, changes = self._parts.recorded(evidence, turn.scope, turn.settings, name=self.name, turn=turn_id)
        tell(receipt)
        for change in changes:
            runtime.stream_writer({"type": "crag", "name": self.name, "stage": "alarm", **change.event()})
        outcome = {"status": evidence.status, "verdict": evidence.verdict}
        runtime.stream_writer({"type": "crag", "name": self.name, "stage": "done", **outcome})
        memo = {
            "tenant": tenant,
            "configuration": self._configuration,
            "message_id": turn.question.message_id,
            "text": turn.text,
            "block": evidence.block,
            "spent": asdict(evidence.spent),
            "receipt": receipt,
            "last": evidence.sources[-1].number if evidence.sources else self._first_number(state, turn) - 1,
        }
        return {self._receipt_key: receipt, self._turn_key: memo}

    def _own(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """The turn's receipt as it was written here.

        The public key may hold another one: some tools, such as deepagents' `task`, hand on the state of a subagent, whose tenant may be another.
        """
        own: Mapping[str, Any] = self._memo(state).get("receipt") or state.get(self._receipt_key) or {}
        return own

    def _ended(self, state: Mapping[str, Any]) -> dict[str, Any] | None:
        """Tells of a turn that is over, if anything is known of it, and puts its receipt back where another one came over it."""
        own = self._own(state)
        if own:
            self._outlets.tell(own)
        return None if own == (state.get(self._receipt_key) or {}) else {self._receipt_key: own}

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
        has_evidence = bool(self._own(cast("Mapping[str, Any]", request.state)).get("sources"))
        options = capped(request, settings.max_temperature if has_evidence else None)
        return request.override(messages=messages, system_message=system, model_settings=options)

    def _watch(self, request: ModelRequest[Any]) -> Watch | None:
        """What checks the answer of a model call; None if nothing was looked up for the turn, or nothing is to be checked."""
        state = cast("Mapping[str, Any]", request.state)
        memo, receipt = self._memo(state), self._own(state)
        if not memo or receipt.get("status") in (None, "skipped"):
            return None
        scope = resolve(self._agent_id, request.runtime)
        settings = self._parts.settings_of(scope)
        if not settings.verify:
            return None
        question = read_question(request.messages, history=0)
        others = [other["receipt"] for other in self._others(state, memo["message_id"]) if other.get("receipt")]
        basis = basis_of(
            request,
            [receipt, *others],
            key=self._receipt_key,
            question=question.text if question else "",
            block=memo["block"],
            scope=scope,
            settings=settings,
            threshold=self._parts.threshold,
            is_instant=self._parts.threshold is None or self._parts.ports["claim_checker"].instant,
        )
        return Watch(basis, self._world(request.runtime, scope, settings, Spent(**memo["spent"])))

    def _checked(
        self, request: ModelRequest[Any], response: ModelResponse[Any], watch: Watch
    ) -> Plan[tuple[ModelResponse[Any], dict[str, Any]]]:
        """The response, checked where that was not done while it was written, and the state update with what is known of the answer."""
        if (again := watch.unchecked(response)) is not None:
            response = watch.replaced(response, (yield from again))
        return response, (yield from self._answered(request, response))

    def _answered(self, request: ModelRequest[Any], response: ModelResponse[Any]) -> Plan[dict[str, Any]]:
        """The receipt with what is known of the answer, and web evidence of it kept, if somebody does; nothing for a step on the way to an answer."""
        told = next((m.response_metadata.get(self._receipt_key) for m in reversed(response.result) if isinstance(m, AIMessage)), None)
        if told is None:
            return {}
        state: Mapping[str, Any] = cast("Mapping[str, Any]", request.state)
        receipt = {**self._own(state), "answer": told}
        if "write_back" in self._parts.ports and not self._is_shadow:
            scope = resolve(self._agent_id, request.runtime)
            receipt = yield from kept(receipt, scope, timeout_s=self._parts.settings_of(scope).retrieve_timeout_s)
        spent = yield from spending()
        receipt["spent"] = asdict(replace(spent, model_calls=spent.model_calls + told["repairs"]))
        receipt["rungs"] = list(dict.fromkeys([*receipt["rungs"], *told["rungs"]]))
        return {self._receipt_key: receipt, self._turn_key: {**self._memo(state), "spent": receipt["spent"], "receipt": receipt}}


def _turn_id(tenant: str, turn: Turn, runtime: Runtime[Any]) -> str:
    """The same when a turn is run again in its thread; empty without a thread, where nothing can be resumed."""
    thread = getattr(getattr(runtime, "execution_info", None), "thread_id", None)
    return digest(tenant, str(thread), turn.question.message_id, turn.text) if thread and turn.question.message_id else ""
