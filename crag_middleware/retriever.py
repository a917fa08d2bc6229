"""`CorrectiveRetriever`: the corrective pass outside agents, as a LangChain retriever and as a node of a graph of one's own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Unpack, cast

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.messages import AnyMessage, HumanMessage, MessageLikeRepresentation, convert_to_messages
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_core.runnables.config import ensure_config, patch_config
from langgraph.graph import MessagesState
from langgraph.runtime import Runtime, get_runtime
from pydantic import PrivateAttr

from crag_middleware.adapters.messages import read_question
from crag_middleware.drive import arun, run, running_under
from crag_middleware.errors import ConfigError, RetrievalError, TenantError
from crag_middleware.findings import Evidence
from crag_middleware.parts import AnyKnowledge, Given, Parts
from crag_middleware.plan import correct
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.assemble import excerpt
from crag_middleware.steps import Plan
from crag_middleware.tenancy import Scope, check_agent_id, resolve
from crag_middleware.types import Question, Source, Verdict
from crag_middleware.world import World


@dataclass(frozen=True, slots=True)
class Corrected:
    """What one corrective pass came to.

    Attributes:
        documents: One for each source, by number; empty if there is no evidence.
        block: The same as text for a model: rules and numbered sources in a fence, or the note that nothing was found; empty if nothing was looked up,
            such as for a greeting.
        receipt: The record of the pass, as plain JSON (docs/receipt.md).
    """

    documents: tuple[Document, ...]
    block: str
    receipt: dict[str, Any]


class CorrectedState(MessagesState):
    """The state of a graph with the messages and what the node of `CorrectiveRetriever.as_node` writes."""

    documents: list[Document]
    block: str
    receipt: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Turn:
    """One question: whose it is, the tenant's settings, and where progress is told."""

    scope: Scope
    settings: CRAGSettings
    question: Question
    tell: Callable[[dict[str, Any]], None]


class CorrectiveRetriever(BaseRetriever):
    """Finds what the knowledge, or the web, says to a question: searched, graded, corrected and refined as `CRAGMiddleware` does it.

    `invoke` gives one document for each source, and none if there is no evidence. `page_content` holds the sentences that were kept, with `…` where others
    were left out; `metadata` holds `number`, `id`, `origin`, `title`, `source`, `url`, `section`, `page`, `label`, `strips` (each with `start` and `end` in the
    passage) and the pass's `verdict`. `correct` gives the text to put before a model and the receipt, too.

    Args:
        vector_store: The knowledge, as for `CRAGMiddleware`.
        agent_id: The tenant; None if each call says it. Both must agree. It never comes from a question.
        k: Documents that `invoke` gives at most, those of relevant sources first; None for all. How many passages are graded is `settings.top_k`.
        name: Names the runs in traces and the receipts.
        tags: Go to each run in traces.
        metadata: Goes to each run in traces.
        given: The other arguments of `CRAGMiddleware`, but for `claim_checker` and `write_back`, which look at answers.

    Raises:
        ConfigError: Something of this can't work; the message says what to do.
        TenantError: `agent_id` is no usable tenant id.
    """

    k: int | None = None

    _agent_id: str | None = PrivateAttr()
    _parts: Parts = PrivateAttr()

    def __init__(
        self,
        vector_store: AnyKnowledge,
        agent_id: str | None = None,
        *,
        k: int | None = None,
        name: str | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **given: Unpack[Given],
    ) -> None:
        super().__init__(name=name, tags=tags, metadata=metadata)
        self.k = _checked(k)
        if answering := sorted({"claim_checker", "write_back"} & given.keys()):
            msg = f"`{answering[0]}` looks at answers, and a retriever sees none; leave it out, or use `CRAGMiddleware`"
            raise ConfigError(msg)
        self._agent_id = None if agent_id is None else check_agent_id(agent_id)
        self._parts = Parts(vector_store, agent_id=self._agent_id, **given)

    def correct(self, question: str, *, agent_id: str | None = None, history: Sequence[MessageLikeRepresentation] = ()) -> Corrected:
        """What there is to a question, with the text for a model and the receipt. A search that fails is told in these; nothing is raised for it.

        Args:
            question: In the user's words.
            agent_id: The tenant; None if the retriever was built with it.
            history: The conversation before the question, oldest first, for a question that can't be understood without it.

        Raises:
            TenantError: There is no tenant, it is malformed or differs from the retriever's, or a row of another tenant came back.
            ConfigError: `question` is no text, or a part of the retriever has only an async form.
        """
        return self._run(self._asked(question, self._scope(agent_id), history))

    async def acorrect(self, question: str, *, agent_id: str | None = None, history: Sequence[MessageLikeRepresentation] = ()) -> Corrected:
        """The async form of `correct`."""
        return await self._arun(self._asked(question, self._scope(agent_id), history))

    def as_node(self) -> Runnable[Mapping[str, Any], dict[str, Any]]:
        """A node for a LangGraph graph whose state has `messages`, sync and async: it looks up the user's latest message.

        The tenant is the retriever's, or the one of the runtime's context (attribute or key `agent_id`), never one of the state. It writes `documents`, `block`
        and `receipt` (`CorrectedState`), as far as the state has them, and tells each stage in the stream `custom`, as the middleware does.
        """
        return RunnableLambda(self._node, self._anode, name=self.get_name())

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, agent_id: str | None = None, k: int | None = None
    ) -> list[Document]:
        with _nested(run_manager):
            return self._best(self.correct(query, agent_id=agent_id), _checked(k))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, agent_id: str | None = None, k: int | None = None
    ) -> list[Document]:
        with _nested(run_manager):
            return self._best(await self.acorrect(query, agent_id=agent_id), _checked(k))

    def _node(self, state: Mapping[str, Any]) -> dict[str, Any]:
        return _written(self._run(self._read(state)))

    async def _anode(self, state: Mapping[str, Any]) -> dict[str, Any]:
        return _written(await self._arun(self._read(state)))

    def _run(self, turn: _Turn) -> Corrected:
        return self._corrected(turn, run(self._plan(turn), self._world(turn)))

    async def _arun(self, turn: _Turn) -> Corrected:
        return self._corrected(turn, await arun(self._plan(turn), self._world(turn)))

    def _plan(self, turn: _Turn) -> Plan[Evidence]:
        return correct(turn.question, turn.scope, self._parts.policy_of(turn.scope))

    def _world(self, turn: _Turn) -> World:
        return self._parts.world(turn.scope, turn.settings, lambda stage: turn.tell({"stage": stage}))

    def _corrected(self, turn: _Turn, evidence: Evidence) -> Corrected:
        receipt, changes = self._parts.recorded(evidence, turn.scope, turn.settings, name=self.get_name())
        for change in changes:
            turn.tell({"stage": "alarm", **change.event()})
        turn.tell({"stage": "done", "status": evidence.status, "verdict": evidence.verdict})
        shown = zip(evidence.sources, receipt["sources"], strict=True)
        return Corrected(tuple(_document(source, told, evidence.verdict) for source, told in shown), evidence.block, receipt)

    def _asked(self, question: str, scope: Scope, history: Sequence[MessageLikeRepresentation]) -> _Turn:
        if not isinstance(question, str):
            msg = f"a question must be a string, got {type(question).__name__}"
            raise ConfigError(msg)
        return self._turn([*_messages(history), HumanMessage(question)], scope, lambda _: None)

    def _read(self, state: Mapping[str, Any]) -> _Turn:
        """The turn that the state of a graph is in."""
        runtime = get_runtime() or Runtime()
        messages = state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", None)
        if messages is None:
            msg = "the node of a `CorrectiveRetriever` needs a graph whose state has `messages`; elsewhere call `correct` in a node of your own"
            raise ConfigError(msg)
        known = {"type": "crag", "name": self.get_name()}
        return self._turn(_messages(messages), resolve(self._agent_id, runtime), lambda event: runtime.stream_writer({**known, **event}))

    def _turn(self, messages: Sequence[AnyMessage], scope: Scope, tell: Callable[[dict[str, Any]], None]) -> _Turn:
        settings = self._parts.settings_of(scope)
        question = read_question(messages, history=settings.history_messages)
        return _Turn(scope, settings, question or Question(text="", skip="empty"), tell)

    def _scope(self, agent_id: str | None) -> Scope:
        """The tenant of a call.

        Raises:
            TenantError: There is none, it is malformed, or it differs from the retriever's.
        """
        found = {check_agent_id(value) for value in (self._agent_id, agent_id) if value is not None}
        if not found:
            msg = "there is no tenant: give `CorrectiveRetriever(..., agent_id=...)`, or `agent_id=` with each call"
            raise TenantError(msg, reason="no_tenant")
        if len(found) > 1:
            msg = "`agent_id` of the retriever and of the call must agree, got two that differ"
            raise TenantError(msg, reason="tenant_conflict")
        return Scope(found.pop())

    def _best(self, corrected: Corrected, k: int | None) -> list[Document]:
        """The `k` best documents, by number.

        Raises:
            RetrievalError: There are none because the knowledge could not be searched.
        """
        receipt = corrected.receipt
        if receipt["status"] == "retrieval_failed" and not corrected.documents:
            msg = "the knowledge could not be searched; `correct` returns the receipt that says why"
            raise RetrievalError(msg, reason=receipt["degraded"][0]["reason"] if receipt["degraded"] else "failed")
        best = sorted(corrected.documents, key=lambda document: document.metadata["label"] != "relevant")
        return sorted(best[: k or self.k], key=lambda document: document.metadata["number"])


def _document(source: Source, told: Mapping[str, Any], verdict: Verdict | None) -> Document:
    """A source as a document: what was kept of it, and what the receipt tells of it."""
    passage = source.graded.passage
    return Document(excerpt(passage.text, source.strips).strip(), id=passage.id, metadata={**told, "verdict": verdict})


def _written(corrected: Corrected) -> dict[str, Any]:
    return {"documents": list(corrected.documents), "block": corrected.block, "receipt": corrected.receipt}


def _messages(given: Sequence[MessageLikeRepresentation]) -> list[AnyMessage]:
    """Messages, from whatever LangChain takes for such.

    Raises:
        ConfigError: They are none. The text does not hold them.
    """
    try:
        if not isinstance(given, str):
            return cast("list[AnyMessage]", convert_to_messages(given))
    except (TypeError, ValueError, NotImplementedError):
        pass
    msg = f"messages must be a list of LangChain messages, or of pairs of role and text, got {type(given).__name__}"
    raise ConfigError(msg)


def _checked(k: int | None) -> int | None:
    if k is not None and (not isinstance(k, int) or isinstance(k, bool) or k < 1):
        msg = f"`k` must be at least 1, or None for all, got {k!r}"
        raise ConfigError(msg)
    return k


@contextmanager
def _nested(run_manager: CallbackManagerForRetrieverRun | AsyncCallbackManagerForRetrieverRun) -> Iterator[None]:
    """Runs of models and retrievers inside belong to the retriever's own run."""
    with running_under(patch_config(ensure_config(), callbacks=run_manager.get_child())):
        yield
