"""Where attacks take place: the store with its canaries, and the entrances that everybody uses."""

import asyncio
import contextvars
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import BaseMessage, HumanMessage

from crag_middleware.adapters.langchain_retriever import as_retriever_port
from crag_middleware.audit.outcome import Blind, Leak
from crag_middleware.errors import CRAGError, IngestError
from crag_middleware.knowledge.knowledge import Knowledge
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator
from crag_middleware.types import Passage

QUESTION = "For whom does the audit lamp shine at night?"
SOURCE = "crag-audit.md"
CHUNKS = 3
"""Rows of each canary tenant: one document, under one name for all of them."""

SETTLING_S = 10.0
"""Seconds in which what was planted must be found."""

How = Literal["sync", "async"]
HOWS: tuple[How, How] = ("sync", "async")

MakeRetriever = Callable[..., Any]
"""Builds what is searched with: called with the store and `settings=`."""


MakeMiddleware = Callable[..., AgentMiddleware[Any, Any, Any]]
"""Builds the middleware: `CRAGMiddleware`, or a function that is called in the same way."""


@dataclass(frozen=True, slots=True)
class Tenant:
    """A made-up tenant and the word that all its rows hold, and no row of anybody else."""

    agent_id: str = field(repr=False)
    word: str


class Site:
    """The store under audit, two canary tenants in it, and the public entrances.

    Args:
        store: Where canaries are planted.
        retriever: As for `audit`.
        middleware: As for `audit`.
    """

    def __init__(self, store: Knowledge, retriever: MakeRetriever | None, middleware: MakeMiddleware) -> None:
        self.store = store
        self._make_retriever = retriever
        self._make_middleware = middleware
        self._prefix = f"crag-audit-{secrets.token_hex(6)}"
        self._planted: list[str] = []
        self._words: set[str] = set()
        # Letters of both cases and an accent, so that there are ids that look alike; the one is the beginning of the other.
        self.victim = Tenant(f"{self._prefix}-Tenant-\u00e9", self.new_word())
        self.attacker = Tenant(f"{self.victim.agent_id}-2", self.new_word())

    def new_word(self) -> str:
        """A word that only rows with it hold."""
        word = f"canary{secrets.token_hex(8)}"
        self._words.add(word)
        return word

    def new_tenant(self, *, rows: bool = True) -> Tenant:
        """A tenant that nobody has heard of, with rows or without; what it has in the end is purged."""
        tenant = Tenant(f"{self._prefix}-{secrets.token_hex(6)}", self.new_word())
        self._planted.append(tenant.agent_id)
        if rows:
            self.plant(tenant)
        return tenant

    def plant(self, tenant: Tenant) -> list[str]:
        """Writes the tenant's rows, and gives their ids."""
        texts = [f"The audit lamp number {n} shines at night for {tenant.word}." for n in range(1, CHUNKS + 1)]
        metadata = [{"source": SOURCE, "doc_id": SOURCE, "title": "Audit", "chunk_index": n} for n in range(CHUNKS)]
        return self.write(tenant.agent_id, texts, metadata)

    def write(self, agent_id: str, texts: Sequence[str], metadata: Sequence[Mapping[str, Any]], **options: Any) -> list[str]:
        """Writes rows of a tenant that is purged in the end, however this ends."""
        self._planted.append(agent_id)
        return self.store.add_texts(texts, [dict(one) for one in metadata], agent_id=agent_id, **options)

    def open(self) -> None:
        """Plants both tenants, and waits until both ways of searching find them.

        Raises:
            Blind: They don't.
        """
        for tenant in (self.victim, self.attacker):
            self.plant(tenant)
        deadline = time.monotonic() + SETTLING_S
        while not all(self._finds_own(tenant, how) for tenant in (self.victim, self.attacker) for how in HOWS):
            if time.monotonic() > deadline:
                msg = "the canary rows are not found by their own tenants"
                raise Blind(msg)
            time.sleep(0.2)

    def close(self) -> None:
        """Deletes all rows of all made-up tenants.

        Raises:
            IngestError: Some could not be deleted.
        """
        left: dict[str, str] = {}
        for agent_id in dict.fromkeys(self._planted):
            try:
                self.store.purge(agent_id)
            except CRAGError as error:
                left[agent_id] = error.reason
        if left:
            reason = next(iter(left.values()))
            msg = f"made-up tenants could not be purged ({reason}); purge them when the store answers again: {', '.join(map(repr, left))}"
            raise IngestError(msg, reason=reason)

    def _finds_own(self, tenant: Tenant, how: How) -> bool:
        return any(tenant.word in passage.text for passage in self.search(tenant.agent_id, how=how))

    # Entrances

    def retriever(self, store: Knowledge | None = None, **settings: Any) -> Any:
        """What is searched with, under these settings."""
        store, chosen = self.store if store is None else store, CRAGSettings(**settings)
        if self._make_retriever is None:
            return as_retriever_port(store, tenant_field=None, settings=chosen, with_vectors=False)
        return self._make_retriever(store, settings=chosen)

    def search(self, agent_id: Any, *, how: How = "sync", retriever: Any = None) -> Sequence[Passage]:
        """What the tenant finds."""
        retriever = retriever or self.retriever()
        asked = {"agent_id": agent_id, "limit": 10, "timeout_s": 10.0}
        found: Sequence[Passage] = (
            retriever.retrieve(QUESTION, **asked) if how == "sync" else awaited(lambda: retriever.aretrieve(QUESTION, **asked))
        )
        return found

    def middleware(self, agent_id: Any = None, *, knowledge: Any = None, **options: Any) -> AgentMiddleware[Any, Any, Any]:
        """The middleware, with an evaluator that finds everything relevant unless another one is given."""
        if knowledge is None:
            knowledge = self.store if self._make_retriever is None else self.retriever()
        return self._make_middleware(knowledge, agent_id, **{"evaluator": ScriptedEvaluator(), **options})

    def agent(self, middleware: Any = None, *, reply: Any = None, **options: Any) -> tuple[Any, ScriptedChatModel]:
        """An agent, and its model, which says all that it was shown unless it is given another reply."""
        model = ScriptedChatModel(replies=[reply or shown])
        return create_agent(model, middleware=[middleware or self.middleware()], **options), model

    # Findings

    def check(self, tenant: Tenant, seen: object, where: str) -> None:
        """Passes if what a tenant saw is its own, and something at all.

        Raises:
            Leak: A word of another tenant is in it.
            Blind: Not even its own is.
        """
        self.check_none(seen, where, but=tenant)
        if tenant.word not in str(seen):
            msg = f"the tenant's own canary did not reach {where}"
            raise Blind(msg)

    def check_none(self, seen: object, where: str, *, but: Tenant | None = None) -> None:
        """Passes if no canary is in it, but for the tenant's own.

        Raises:
            Leak: One is.
        """
        told = str(seen)
        if any(word in told for word in self._words - ({but.word} if but else set())):
            msg = f"another tenant's canary reached {where}"
            raise Leak(msg)

    def check_found(self, tenant: Tenant) -> None:
        """Passes if the tenant finds rows, and its own only: a store that answers nobody refuses every attack.

        Raises:
            Leak: It finds others'.
            Blind: It finds none.
        """
        for how in HOWS:
            found = self.search(tenant.agent_id, how=how)
            self.check_rows(tenant, found, "a tenant's search")
            if not found:
                msg = "a tenant does not find its own rows"
                raise Blind(msg)

    def check_rows(self, tenant: Tenant | None, found: Sequence[Passage], where: str) -> None:
        """Passes if each passage holds the tenant's word; for no tenant, if there is none. Live rows count as foreign, too.

        Raises:
            Leak: One does not.
        """
        if any(tenant is None or tenant.word not in passage.text for passage in found):
            msg = f"another tenant's row reached {where}"
            raise Leak(msg)


def shown(messages: Sequence[BaseMessage]) -> str:
    """All that a model was shown, as its answer."""
    return "\n".join(str(message.text) for message in messages)


def ask(agent: Any, how: How, given: Any = QUESTION, **options: Any) -> dict[str, Any]:
    """A turn's result for a question, a message, or a whole input; None goes on with a run that was stopped."""
    if isinstance(given, str | HumanMessage):
        given = {"messages": [("user", given) if isinstance(given, str) else given]}
    result: dict[str, Any] = agent.invoke(given, **options) if how == "sync" else awaited(lambda: agent.ainvoke(given, **options))
    return result


def awaited(call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """What a coroutine function returns, in an event loop and a thread of its own, so that the caller may be in a loop, too."""

    async def run() -> Any:
        return await call()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, asyncio.run, run()).result()
