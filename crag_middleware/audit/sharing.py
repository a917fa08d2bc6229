"""Attacks on what tenants share: one instance of the middleware at the same time, and what it remembers between turns."""

import asyncio
import random
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from langchain_core.messages import HumanMessage

from crag_middleware.audit.outcome import Blind, Leak
from crag_middleware.audit.site import HOWS, QUESTION, Site, Tenant, ask, awaited
from crag_middleware.errors import RetrievalError, WebSearchError
from crag_middleware.testing import ScriptedEvaluator
from crag_middleware.types import Grade, Passage

TURNS = 12
"""Turns in threads, and as many in tasks."""

PAUSE_S = 0.01
"""The longest pause of a part that waits at random."""

AMBIGUOUS = 0.7
"""What makes the middleware search the web, too."""


class CanaryWeb:
    """A web search in this process: each tenant finds one page, which holds its word and `web`.

    Args:
        tenants: Who may ask.
        refuses: A tenant whose key is refused.
        pauses: Whether it waits at random.
    """

    def __init__(self, tenants: Sequence[Tenant], *, refuses: Tenant | None = None, pauses: bool = False) -> None:
        self._words = {tenant.agent_id: tenant.word for tenant in tenants}
        self._refuses = refuses and refuses.agent_id
        self._pauses = pauses
        self.asked: list[str] = []

    def search(self, query: str, *, agent_id: str) -> list[Passage]:
        """The tenant's page."""
        if self._pauses:
            time.sleep(random.random() * PAUSE_S)
        return self._found(agent_id)

    async def asearch(self, query: str, *, agent_id: str) -> list[Passage]:
        """The tenant's page."""
        if self._pauses:
            await asyncio.sleep(random.random() * PAUSE_S)
        return self._found(agent_id)

    def _found(self, agent_id: str) -> list[Passage]:
        self.asked.append(agent_id)
        if agent_id == self._refuses:
            msg = "the key was refused"
            raise WebSearchError(msg, reason="unauthorized")
        word = self._words[agent_id]
        return [Passage(id=word, text=page_text(word), title="Audit lamps", url=f"https://{word}.example/lamps", origin="web")]


def page_text(word: str) -> str:
    """What a tenant's page says."""
    return f"The audit lamp shines at night for {word}web."


class PausingEvaluator(ScriptedEvaluator):
    """One that finds everything worth a look at the web, after a pause at random."""

    def __init__(self) -> None:
        super().__init__(otherwise=AMBIGUOUS)

    def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        """The same grade for each."""
        time.sleep(random.random() * PAUSE_S)
        return super().grade(question, passages)

    async def agrade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        """The same grade for each."""
        await asyncio.sleep(random.random() * PAUSE_S)
        return super().grade(question, passages)


def shared_instance(site: Site) -> None:
    """Turns of two tenants at the same time on one instance, in threads and in tasks, with parts that pause at random."""
    both = (site.attacker, site.victim)
    web = CanaryWeb(both, pauses=True)
    agent, model = site.agent(site.middleware(evaluator=PausingEvaluator(), web_search=web))
    options = [{"context": {"agent_id": both[n % 2].agent_id}} for n in range(TURNS)]
    questions = [f"{QUESTION} In hall {n}?" for n in range(TURNS)]  # each its own, so that no web search is remembered

    async def tasks() -> list[Any]:
        turns = [
            agent.ainvoke({"messages": [("user", f"{question} Now?")]}, **given) for question, given in zip(questions, options, strict=True)
        ]
        return await asyncio.gather(*turns, return_exceptions=True)

    with ThreadPoolExecutor(TURNS + 1) as pool:
        running = [pool.submit(ask, agent, "sync", question, **given) for question, given in zip(questions, options, strict=True)]
        in_tasks = pool.submit(awaited, tasks)
        results = [turn.result() for turn in running] + in_tasks.result()
    for number, result in enumerate(results):
        if isinstance(result, BaseException):
            raise result
        site.check(both[number % 2], result, "a turn at the same time")
        _check_page(both[number % 2], result)
    for request in model.requests:
        if all(tenant.word in str(request) for tenant in both):
            msg = "one request to the model holds canaries of two tenants"
            raise Leak(msg)


def same_question(site: Site) -> None:
    """The same question, under the same message id, from both tenants in turn, on one instance."""
    message = HumanMessage(QUESTION, id="same")
    for how in HOWS:
        agent, model = site.agent()
        for tenant in (site.victim, site.attacker, site.victim, site.attacker):
            model.requests.clear()
            result = ask(agent, how, message, context={"agent_id": tenant.agent_id})
            site.check(tenant, [model.requests, result], "a turn with the same question")


def web_cache(site: Site) -> None:
    """The same web search for both tenants in turn, while the results of the first are still remembered."""
    both = (site.victim, site.attacker)
    for how in HOWS:
        web = CanaryWeb(both)
        agent, model = site.agent(site.middleware(evaluator=ScriptedEvaluator(otherwise=AMBIGUOUS), web_search=web))
        for tenant in both * 2:
            model.requests.clear()
            result = ask(agent, how, context={"agent_id": tenant.agent_id})
            site.check(tenant, [model.requests, result], "a turn with the same web search")
            _check_page(tenant, result)


def web_trouble(site: Site) -> None:
    """The web provider refuses one tenant's key, again and again: the other tenant is searched for all the same."""
    other = site.new_tenant()
    web = CanaryWeb((site.victim, other), refuses=site.victim)
    agent, _ = site.agent(site.middleware(evaluator=ScriptedEvaluator(otherwise=AMBIGUOUS), web_search=web))
    for number in range(4):
        ask(agent, "sync", f"{QUESTION} In hall {number}?", context={"agent_id": site.victim.agent_id})
    if site.victim.agent_id not in web.asked:
        msg = "the web was never searched"
        raise Blind(msg)
    result = ask(agent, "sync", context={"agent_id": other.agent_id})
    if f"{other.word}web" not in str(result):
        msg = "one tenant's trouble with the web kept another one's search back"
        raise Leak(msg)


def knowledge_trouble(site: Site) -> None:
    """The knowledge fails for one tenant, again and again: the other tenant is searched for all the same."""
    knowledge = FailingFor(site.victim, site.attacker)
    for how in HOWS:
        agent, model = site.agent(site.middleware(knowledge=knowledge))
        for _ in range(4):
            ask(agent, how, context={"agent_id": site.victim.agent_id})
        model.requests.clear()
        ask(agent, how, context={"agent_id": site.attacker.agent_id})
        if site.attacker.word not in str(model.requests):
            msg = "one tenant's trouble with the knowledge kept another one's search back"
            raise Leak(msg)


class FailingFor:
    """A retriever that is out of reach for one tenant, and finds the other one's row."""

    def __init__(self, failing: Tenant, served: Tenant) -> None:
        self._failing = failing
        self._found = [
            Passage(id=served.word, text=f"The audit lamp shines at night for {served.word}.", metadata={"agent_id": served.agent_id})
        ]

    def retrieve(self, question: str, *, agent_id: str) -> list[Passage]:
        """The other tenant's row."""
        if agent_id == self._failing.agent_id:
            msg = "out of reach"
            raise RetrievalError(msg, reason="unavailable")
        return self._found


def _check_page(tenant: Tenant, result: Any) -> None:
    """Passes if the turn shows the tenant's page."""
    if f"{tenant.word}web" not in str(result):
        msg = "the tenant's own web page did not reach its turn"
        raise Blind(msg)
