"""Cases of tenants (kind 9 of CASES.md) through whole agents over a real Milvus, and what is remembered between turns."""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.errors import ConfigError, TenantError, WebSearchError
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.knowledge.store import KnowledgeStore
from crag_middleware.middleware import CRAGMiddleware
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever
from crag_middleware.types import Grade, Passage
from crag_middleware.web_policy import WebPolicy
from tests.support.agents import agent_with, ask, both, crag, passage
from tests.support.milvus import WordEmbeddings, lite_uri  # noqa: F401, a fixture

MODES: Any = ["custom", "messages", "values"]
PETS = "What is our pet policy?"
MARKERS = {"a": "MARKER-ALPHA", "b": "MARKER-BETA"}
EMPTY: list[Any] = [None, "", "  ", [], 0, False]


@pytest.fixture
def store(lite_uri: str) -> KnowledgeStore:  # noqa: F811
    opened = open_knowledge(lite_uri, WordEmbeddings())
    for tenant, marker in MARKERS.items():
        texts = [f"Our pet policy allows {animal}, says {marker}." for animal in ("cats", "dogs", "birds")]
        opened.add_texts(texts, [{"source": "pets.md"}] * 3, agent_id=tenant)
    return opened


def shown(messages: Sequence[Any]) -> str:
    """All that the model was shown, as its answer."""
    return "\n".join(message.text for message in messages)


class TenantWeb:
    """A web search that finds each tenant's own page."""

    def __init__(self, refuses: str | None = None) -> None:
        self.refuses = refuses
        self.asked: list[tuple[str, str]] = []

    def search(self, query: str, *, agent_id: str) -> list[Passage]:
        self.asked.append((agent_id, query))
        if agent_id == self.refuses:
            msg = "no"
            raise WebSearchError(msg, reason="unauthorized")
        return [Passage(id=f"web-{agent_id}", text=f"WEB-{MARKERS[agent_id]} on {query}", url=f"https://{agent_id}.example/", origin="web")]


# C117


@both
def test_the_same_question_on_one_instance_is_searched_graded_and_sent_for_each_tenant(how: str, store: KnowledgeStore) -> None:
    """C117: no memo is shared by text, and an empty id is no key."""
    evaluator, web = ScriptedEvaluator(otherwise=0.7), TenantWeb()
    agent, model = agent_with(CRAGMiddleware(store, evaluator=evaluator, web_search=web), replies=[shown])
    message = HumanMessage(PETS, id="same")

    for tenant, other in ("ab", "ba", "ab"):
        result = ask(agent, [message], how, context={"agent_id": tenant})
        assert MARKERS[tenant] in str(result)
        assert f"WEB-{MARKERS[tenant]}" in str(result)
        assert MARKERS[other] not in str(result)
    for bad in (None, ""):
        with pytest.raises(TenantError):
            ask(agent, [message], how, context={"agent_id": bad})

    assert [tenant for tenant, _ in web.asked] == ["a", "b"], "the third is remembered, for its own tenant"
    assert len(evaluator.asked) == 2 * 3, "knowledge and web are graded in each turn"
    assert len(model.requests) == 3


@both
def test_grades_of_a_passage_are_made_for_each_tenant(how: str) -> None:
    """C117: the same id and text in two tenants' knowledge is graded for each."""
    told = []

    class PerTenant:
        def grade(self, question: str, passages: Sequence[Passage], *, agent_id: str) -> Sequence[Grade]:
            told.append((agent_id, [p.id for p in passages]))
            return ScriptedEvaluator(otherwise=0.95 if agent_id == "a" else 0.1).grade(question, passages)

    common = passage("Pets are welcome.", "p")
    agent, _ = agent_with(crag(vector_store=ScriptedRetriever({"a": [common], "b": [common]}), evaluator=PerTenant(), agent_id=None))

    verdicts = [ask(agent, PETS, how, context={"agent_id": tenant})["crag"]["verdict"] for tenant in "aba"]

    assert verdicts == ["relevant", "incorrect", "relevant"]
    assert told == [("a", ["p"]), ("b", ["p"]), ("a", ["p"])]


@both
def test_evidence_of_another_configuration_is_not_used_again(how: str) -> None:
    """C117: the configuration is part of what tells a turn."""
    store, saver = ScriptedRetriever({"a": [passage("Pets are welcome.", "p")]}), InMemorySaver()
    thread: Any = {"configurable": {"thread_id": "1"}}

    for top_k in (5, 5, 1):
        agent, _ = agent_with(crag(vector_store=store, settings=CRAGSettings(top_k=top_k)), checkpointer=saver)
        ask(agent, [HumanMessage(PETS, id="same")], how, config=thread)
    asked = len(store.asked)
    assert asked == 2, "the second is the same turn, the third is not"


# C118: there is no semantic cache; what is remembered is found by tenant first, and by the whole text.

LONG = "Please tell me in detail what our company's handbook says about bringing a pet to the office on a weekday, "
NEAR = (f"{LONG}and whom to ask before.", f"{LONG.upper()}and whom to ask  before.", f"{LONG}and whom to ask beforehand.")


@both
def test_a_question_near_another_tenant_s_shares_no_result_of_knowledge_or_web(how: str, store: KnowledgeStore) -> None:
    """C118"""
    web = TenantWeb()
    agent, _ = agent_with(CRAGMiddleware(store, evaluator=ScriptedEvaluator(otherwise=0.7), web_search=web), replies=[shown])

    ask(agent, NEAR[0], how, context={"agent_id": "a"})
    for question in NEAR:
        result = ask(agent, question, how, context={"agent_id": "b"})
        assert MARKERS["a"] not in str(result)
        assert f"WEB-{MARKERS['b']}" in str(result)

    assert [tenant for tenant, _ in web.asked][:2] == ["a", "b"]
    assert len({query for tenant, query in web.asked if tenant == "b"}) >= 2, "likeness is not sameness, for one tenant neither"


@both
def test_the_breaker_the_budget_and_the_alarm_of_a_tenant_do_not_touch_another_one_s(how: str, store: KnowledgeStore) -> None:
    """C118: all that is remembered beside results is kept by tenant, too."""
    for web, policy in ((TenantWeb(refuses="a"), WebPolicy()), (TenantWeb(), WebPolicy(requests_per_day=1))):
        middleware = CRAGMiddleware(store, evaluator=ScriptedEvaluator(otherwise=0.7), web_search=web, web_policy=policy)
        agent, _ = agent_with(middleware, replies=[shown])
        failures = [
            ask(agent, question, how, context={"agent_id": "a"})["crag"]["degraded"] for question in (NEAR[0], NEAR[2], "And cats there?")
        ]
        result = ask(agent, NEAR[0], how, context={"agent_id": "b"})

        assert failures[-1], "the tenant's own web is closed by now"
        assert not result["crag"]["degraded"]
        assert f"WEB-{MARKERS['b']}" in str(result)
        assert [middleware.health(tenant).turns for tenant in ("a", "b", "c")] == [3, 1, 0]


# C119


@both
@pytest.mark.parametrize("bad", EMPTY)
def test_an_empty_scope_reaches_neither_milvus_nor_the_model(how: str, store: KnowledgeStore, bad: Any) -> None:
    """C119"""
    calls: list[str] = []

    class Counting:
        def __init__(self, client: Any) -> None:
            self.client = client

        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(self.client, name)

    middleware = CRAGMiddleware(store, evaluator=ScriptedEvaluator())
    store._milvus_client = Counting(store.client)
    agent, model = agent_with(middleware)

    with pytest.raises(TenantError):
        ask(agent, PETS, how, context={"agent_id": bad})
    with pytest.raises(TenantError):
        store.count(bad)

    assert not calls
    assert not model.requests


@pytest.mark.parametrize("wide", ["*", "%", "all", "admin", "a,b", "a|b", '["a", "b"]', "_", "a%", "None", "null"])
def test_no_id_stands_for_every_tenant(store: KnowledgeStore, wide: str) -> None:
    """C119: a scope of an administrator is no word in the place of an id."""
    assert not MilvusRetriever(store).retrieve(PETS, agent_id=wide, limit=10, timeout_s=10)
    assert (store.count(wide), store.sources(wide)) == (0, [])


# C121


@both
def test_the_context_decides_whatever_the_client_sends_beside_it(how: str, store: KnowledgeStore) -> None:
    """C121"""
    agent, _ = agent_with(CRAGMiddleware(store, evaluator=ScriptedEvaluator()), replies=[shown])
    claims = {"agent_id": "b", "tenant": "b"}
    message = HumanMessage(PETS, name="b", additional_kwargs=claims, response_metadata=claims)
    config: Any = {"configurable": claims, "metadata": claims, "tags": ["agent_id:b"]}

    result = ask(agent, {"messages": [message], **claims, "crag": claims, "_crag": claims}, how, config=config, context={"agent_id": "a"})

    assert MARKERS["a"] in str(result["crag"])
    assert MARKERS["b"] not in str(result)


# C123


def _file(store: KnowledgeStore, text: str, claims: dict[str, Any], folder: Path) -> None:
    (folder / "one.md").write_text(text)
    store.ingest(folder, agent_id="a", metadata=claims)


WAYS: dict[str, Any] = {
    "add_texts": lambda store, text, claims, _: store.add_texts([text], [claims], agent_id="a"),
    "aadd_texts": lambda store, text, claims, _: asyncio.run(store.aadd_texts([text], [claims], agent_id="a")),
    "add_documents": lambda store, text, claims, _: store.add_documents([Document(text, metadata=claims)], agent_id="a"),
    "upsert": lambda store, text, claims, _: store.upsert([None], [Document(text, metadata=claims)], agent_id="a"),
    "add_embeddings": lambda store, text, claims, _: store.add_embeddings(
        [text], [WordEmbeddings().embed_query(text)], [claims], agent_id="a"
    ),
    "ingest": _file,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "claims", [{"agent_id": "b", "tenant": "b"}, {"tenant": "b", "user_id": "b", "namespace": "b", "partition_key": "b"}]
)
def test_metadata_moves_no_document_to_another_tenant(store: KnowledgeStore, tmp_path: Path, way: str, claims: dict[str, Any]) -> None:
    """C123: the caller's tenant is written last, or the conflict is refused; the other one never finds it."""
    text = "Our pet policy allows UPLOADED snakes."
    try:
        WAYS[way](store, text, claims, tmp_path)
    except (TenantError, ConfigError):
        assert "agent_id" in claims
        written = False
    else:
        written = True

    agent, _ = agent_with(CRAGMiddleware(store, evaluator=ScriptedEvaluator()), replies=[shown])
    theirs = ask(agent, f"{PETS} UPLOADED snakes", context={"agent_id": "b"})
    own = MilvusRetriever(store).retrieve(f"{PETS} UPLOADED snakes", agent_id="a", limit=10, timeout_s=10)

    assert "allows UPLOADED" not in str(theirs)
    assert (store.count("a"), store.count("b")) == (3 + written, 3)
    assert any("UPLOADED" in found.text for found in own) is written


# C126


def test_threads_and_tasks_of_two_tenants_share_one_instance_over_milvus_and_nothing_else(
    store: KnowledgeStore, caplog: pytest.LogCaptureFixture
) -> None:
    """C126: no marker of the other tenant in a model call, a citation, an event or a log line, nor anything of a turn on the instance."""
    caplog.set_level(logging.DEBUG, "crag_middleware")
    chance = random.Random(11)

    class Pausing(ScriptedEvaluator):
        def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
            time.sleep(chance.random() / 100)
            return super().grade(question, passages)

        async def agrade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
            await asyncio.sleep(chance.random() / 100)
            return super().grade(question, passages)

    class PausingWeb(TenantWeb):
        def search(self, query: str, *, agent_id: str) -> list[Passage]:
            time.sleep(chance.random() / 100)
            return super().search(query, agent_id=agent_id)

    middleware = CRAGMiddleware(store, evaluator=Pausing(otherwise=0.7), web_search=PausingWeb())
    model = ScriptedChatModel(replies=[shown])
    agent = create_agent(model, middleware=[middleware])
    attributes = set(vars(middleware))
    seen: dict[int, tuple[str, str]] = {}

    def question(number: int) -> tuple[Any, dict[str, Any], str]:
        tenant = "ab"[number % 2]
        return {"messages": [("user", f"{PETS} Floor {number}?")]}, {"agent_id": tenant}, tenant

    def in_thread(number: int) -> None:
        given, context, tenant = question(number)
        parts = list(agent.stream(given, context=context, stream_mode=MODES))
        seen[number] = (tenant, str(parts))

    async def in_task(number: int) -> None:
        given, context, tenant = question(number)
        parts = [part async for part in agent.astream(given, context=context, stream_mode=MODES)]
        seen[number] = (tenant, str(parts))

    async def tasks() -> None:
        await asyncio.gather(*(in_task(number) for number in range(25)))

    threads = [threading.Thread(target=in_thread, args=(number,)) for number in range(25, 50)]
    threads.append(threading.Thread(target=lambda: asyncio.run(tasks())))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert len(seen) == len(model.requests) == 50
    for number, (tenant, told) in seen.items():
        other = "b" if tenant == "a" else "a"
        assert MARKERS[tenant] in told, number
        assert f"WEB-{MARKERS[tenant]}" in told, number
        assert f"Floor {number}?" in told, number
        assert MARKERS[other] not in told, number
    for request in model.requests:
        assert sum(marker in str(request) for marker in MARKERS.values()) == 1
    assert not any(marker in caplog.text for marker in (*MARKERS.values(), "pet policy"))
    assert set(vars(middleware)) == attributes
    assert not any(marker in str(vars(middleware)) for marker in MARKERS.values())
