"""Whole agents over real Milvus Lite collections of `open_knowledge`: what one tenant asks never shows what another one knows."""

import asyncio
import json
import logging
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain.agents import create_agent

from crag_middleware.adapters.messages import text_of
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.middleware import CRAGMiddleware
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.assemble import NOTES
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator
from tests.support import milvus as support
from tests.support.agents import agent_with, ask, both

lite_uri = support.lite_uri
lite_server_uri = support.lite_server_uri

HOSTILE = [
    'a" or agent_id != "',
    '" or true or "',
    "') or ('1'=='1",
    'a") or (agent_id like "%',
    "C:\\team\\a",
    "trailing\\",
    'o"neil',
    "o'neil",
    "line1\nline2",
    "tab\tand\rreturn",
    "团队-一",
    "🚀🚀",
    "a%_b",
    'metadata["agent_id"]',
    "agent_id",
    " padded ",
    "é",  # composed
    "e\u0301",  # decomposed: another tenant
    "\u200bzero-width",
    "nul\x00inside",
    "$meta",
    "{agent_id}",
    "x" * 256,
]
QUESTION = "What is our pet policy?"


@pytest.fixture
def store(lite_uri):
    return open_knowledge(lite_uri, support.WordEmbeddings())


def fill(store, tenants):
    for number, tenant in enumerate(tenants):
        store.add_texts([f"Our pet policy MARKER-{number}X allows dogs."], [{"title": "Pets"}], agent_id=tenant)


def everything_said(model, result, events, caplog):
    requests = " ".join(text_of(m.content) for request in model.requests for m in request)
    logs = " ".join(f"{r.getMessage()} {r.exc_info or ''}" for r in caplog.records)
    return f"{requests} {json.dumps(result['crag'], ensure_ascii=False)} {events} {logs}"


@pytest.mark.parametrize("how", ["sync", "async"])
def test_hostile_tenants_see_their_own_rows_and_no_marker_of_another(store, how, caplog):
    """C055, C056, C057"""
    caplog.set_level(logging.DEBUG)
    fill(store, HOSTILE)
    middleware = CRAGMiddleware(store, evaluator=ScriptedEvaluator(), settings=CRAGSettings(explain=True, receipt_detail="full"))

    for number, tenant in enumerate(HOSTILE):
        model = ScriptedChatModel(replies=["ok"])
        agent = create_agent(model, middleware=[middleware])
        caplog.clear()
        events, result = stream(agent, tenant, how)

        said = everything_said(model, result, events, caplog)
        assert f"MARKER-{number}X" in said, tenant
        assert all(f"MARKER-{other}X" not in said for other in range(len(HOSTILE)) if other != number), tenant
        assert result["crag"]["degraded"] == []


def stream(agent, tenant, how):
    """Custom events and the result of one turn."""
    question = {"messages": [("user", QUESTION)]}
    options = {"context": {"agent_id": tenant}, "stream_mode": ["custom", "values"]}

    async def collect():
        return [item async for item in agent.astream(question, **options)]

    items = list(agent.stream(question, **options)) if how == "sync" else asyncio.run(collect())
    return [data for mode, data in items if mode == "custom"], [data for mode, data in items if mode == "values"][-1]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tenant=st.text(min_size=1, max_size=40))
def test_no_tenant_id_that_can_be_written_down_reaches_the_rows_of_another(store, tenant):
    """C055"""
    fill(store, ["victim"])
    agent, model = agent_with(CRAGMiddleware(store, evaluator=ScriptedEvaluator()))

    if tenant == "victim" or not tenant.strip() or any("\ud800" <= c <= "\udfff" for c in tenant):
        return
    result = ask(agent, QUESTION, context={"agent_id": tenant})

    assert result["crag"]["status"] == "no_evidence"
    assert "MARKER" not in str(model.requests) + str(result["crag"])


@both
def test_a_fresh_collection_and_a_tenant_without_rows_are_no_errors(store, how):
    """C075"""
    agent, model = agent_with(CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator()))

    empty = ask(agent, QUESTION, how)
    fill(store, ["b"])
    without_rows = ask(agent, QUESTION, how)

    for result in (empty, without_rows):
        assert (result["crag"]["verdict"], result["crag"]["status"], result["crag"]["degraded"]) == ("incorrect", "no_evidence", [])
    assert NOTES["no_evidence"]["en"] in model.requests[0][-1].text


@both
def test_a_collection_that_goes_away_is_a_failure_and_not_an_empty_one(store, how):
    """L03"""
    agent, model = agent_with(CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator()))
    store.client.drop_collection(store.collection_name)

    result = ask(agent, QUESTION, how)

    assert result["crag"]["status"] == "retrieval_failed"
    assert result["crag"]["degraded"] == [{"step": "retrieve", "reason": "collection_missing"}]
    assert NOTES["retrieval_failed"]["en"] in model.requests[0][-1].text


@both
def test_a_released_collection_is_loaded_and_searched(store, how):
    """C065"""
    fill(store, ["a"])
    agent, _ = agent_with(CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator()))
    store.client.release_collection(store.collection_name)

    assert ask(agent, QUESTION, how)["crag"]["status"] == "grounded"


@both
def test_the_floor_on_stored_confidence_keeps_ones_own_documents(store, how):
    store.add_texts(["Pet policy: dogs allowed.", "Pet policy rumour: cats banned."], [{}, {"confidence": 0.4}], agent_id="a")
    agent, _ = agent_with(CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator(), settings=CRAGSettings(min_confidence=0.9)))

    receipt = ask(agent, QUESTION, how)["crag"]

    assert [p["confidence"] for p in receipt["passages"]] == [pytest.approx(0.92)]


@both
def test_a_filter_narrows_and_never_widens(store, how):
    fill(store, ["a", "b"])
    store.add_texts(["Old pet policy: none."], [{"version": "1"}], agent_id="a")
    narrow = CRAGSettings(filter={"version": "1"})
    wide = CRAGSettings(filter={"title": {"in": ["Pets", '" or agent_id != "']}})

    for settings_, count in ((narrow, 1), (wide, 1)):
        agent, _ = agent_with(CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator(), settings=settings_))
        receipt = ask(agent, QUESTION, how)["crag"]
        assert len(receipt["passages"]) == count
        assert "MARKER-1X" not in str(receipt)


@both
def test_of_an_old_and_a_new_version_of_one_page_the_new_one_leads(store, how):
    store.add_texts(
        ["Rate limit: 100 calls a minute for the pet API.", "Rate limit: 500 calls a minute for the pet API."],
        [{"source": "limits.md", "version": "1.9"}, {"source": "limits.md", "version": "1.10"}],
        agent_id="a",
    )
    agent, model = agent_with(CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator()))

    ask(agent, "What is the rate limit of the pet API in calls a minute?", how)

    seen = model.requests[0][-1].text
    assert seen.index("500 calls") < seen.index("100 calls")
    assert "[1] knowledge: limits.md | version 1.10" in seen


@both
def test_chinese_and_english_rows_are_found_by_either_words(store, how):
    """C070"""
    store.add_texts(["图书馆周末照常开放。", "The library opens at nine."], agent_id="a")
    agent, model = agent_with(CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator(), settings=CRAGSettings(top_k=1)))

    ask(agent, "照常开放", how)
    ask(agent, "library opens", how)

    assert "图书馆周末照常开放。" in model.requests[0][-1].text
    assert "The library opens at nine." in model.requests[1][-1].text


def test_one_middleware_serves_loops_threads_and_a_server_in_another_process(lite_server_uri):
    """C061, C063"""
    store = open_knowledge(lite_server_uri, support.WordEmbeddings())
    fill(store, ["a", "b"])
    agent, _ = agent_with(CRAGMiddleware(store, evaluator=ScriptedEvaluator()))
    seen = {"a": [], "b": []}

    def work(tenant, how):
        result = ask(agent, QUESTION, how, context={"agent_id": tenant})
        seen[tenant].append(str(result["crag"]["sources"]))

    work("a", "ainvoke")
    work("b", "ainvoke")
    work("a", "invoke")
    threads = [threading.Thread(target=work, args=(tenant, how)) for tenant in "ab" for how in ("invoke", "ainvoke", "invoke", "ainvoke")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [len(seen[t]) for t in "ab"] == [6, 5]
    assert all("MARKER-0X" in s and "MARKER-1X" not in s for s in seen["a"])
    assert all("MARKER-1X" in s and "MARKER-0X" not in s for s in seen["b"])


async def test_fifty_turns_at_once_on_one_store(store):
    """C126"""
    fill(store, ["a", "b"])
    agent, model = agent_with(CRAGMiddleware(store, evaluator=ScriptedEvaluator()))

    async def one(number):
        tenant, own, other = ("a", "MARKER-0X", "MARKER-1X") if number % 2 else ("b", "MARKER-1X", "MARKER-0X")
        result = await agent.ainvoke({"messages": [("user", QUESTION)]}, context={"agent_id": tenant})
        assert own in str(result["crag"])
        assert other not in str(result["crag"])

    await asyncio.gather(*(one(n) for n in range(50)))

    assert len(model.requests) == 50
