"""Cancelling the caller's task cancels what runs: the other side sees its connection closed, and no task, thread or socket of ours is left."""

import asyncio
import gc
import os
import random
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever

from crag_middleware import Route, TenantError
from crag_middleware.adapters.fan_out import aask_each
from tests.support.agents import agent_with, crag, passage
from tests.support.faulty import KNOWN, FaultyServer
from tests.support.faulty_milvus import CallProxy, ConnectionProxy, call_proxy
from tests.support.faulty_turn import ANSWER, HISTORY, Parts, fill
from tests.support.milvus import lite_server

PATIENCE_S = 20.0
"""For what takes milliseconds on an idle machine."""

PARTS = ("evaluator", "rewriter", "tavily", "bocha", "embeddings", "reranker", "claim-checker")


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("cancellation") / "knowledge.db")
    fill(uri)
    return uri


@pytest.fixture(scope="module")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CallProxy, str]]:
    with lite_server(tmp_path_factory.mktemp("server")) as uri:
        fill(uri)
        with call_proxy(uri.removeprefix("http://")) as proxied:
            yield proxied


class HttpRetriever(BaseRetriever):
    """A hosted retriever's client, as integrations write it."""

    url: str

    def _get_relevant_documents(self, query: str, *, run_manager: Any, agent_id: str = "") -> list[Document]:
        return _read(httpx.post(self.url, json={"query": query}, timeout=30))

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any, agent_id: str = "") -> list[Document]:
        async with httpx.AsyncClient(timeout=30) as client:
            return _read(await client.post(self.url, json={"query": query}))


def _read(response: httpx.Response) -> list[Document]:
    return [Document(text) for text in response.raise_for_status().json()]


async def invoke(agent: Any) -> None:
    await agent.ainvoke({"messages": HISTORY})


async def stream(agent: Any) -> None:
    async for _ in agent.astream({"messages": HISTORY}, stream_mode="messages"):
        pass


async def until(is_so: Callable[[], bool]) -> None:
    """Returns as soon as it is so."""
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - what is waited for happens in other threads
            await asyncio.sleep(0.01)


async def cancel_in_the_middle(run: Awaitable[None], waiting: Callable[[], int]) -> None:
    """Cancels a turn when something waits for its call, and returns when nothing does, and nothing of the turn is left."""
    others = asyncio.all_tasks()
    task = asyncio.ensure_future(run)
    await until(lambda: waiting() == 1 or task.done())
    assert not task.done(), task
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await until(lambda: waiting() == 0)
    await until(lambda: asyncio.all_tasks() <= others)


@pytest.mark.parametrize("how", [invoke, stream])
@pytest.mark.parametrize("part", PARTS)
async def test_a_service_that_was_being_asked_sees_its_connection_closed(part: str, how: Any, server: FaultyServer, knowledge: str) -> None:
    agent, _ = agent_with(Parts(server, part, "watch").middleware(knowledge), replies=[ANSWER])

    await cancel_in_the_middle(how(agent), lambda: server.waiting)


@pytest.mark.parametrize("how", [invoke, stream])
async def test_the_agents_own_model_under_verification_sees_its_connection_closed(how: Any, server: FaultyServer) -> None:
    model = Parts(server, "evaluator", "watch").chat("evaluator")
    agent = create_agent(model, middleware=[crag([passage(KNOWN)])])

    await cancel_in_the_middle(how(agent), lambda: server.waiting)


@pytest.mark.parametrize("store", ["main", "route"])
async def test_a_langchain_retriever_sees_its_connection_closed(store: str, server: FaultyServer) -> None:
    retriever = HttpRetriever(url=server.at("evaluator", "watch"))
    middleware = crag(vector_store=retriever) if store == "main" else crag([passage(KNOWN)], routes=Route("hosted", retriever))
    agent, _ = agent_with(middleware)

    await cancel_in_the_middle(invoke(agent), lambda: server.waiting)


async def test_routes_that_are_asked_at_the_same_time_are_all_closed(server: FaultyServer) -> None:
    routes = [Route(f"hosted{n}", HttpRetriever(url=server.at("evaluator", "watch"))) for n in range(3)]
    agent, _ = agent_with(crag([passage(KNOWN)], routes=routes))
    task = asyncio.ensure_future(invoke(agent))
    await until(lambda: server.waiting == 3)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await until(lambda: server.waiting == 0)


def test_a_search_in_milvus_is_given_up_and_its_connection_ends_with_the_event_loop(
    milvus: tuple[CallProxy, str], server: FaultyServer
) -> None:
    calls, address = milvus
    connection = ConnectionProxy(address)
    try:
        agent, _ = agent_with(Parts(server).middleware(connection.uri))
        before = connection.open
        calls.meet("watch")

        asyncio.run(cancel_in_the_middle(invoke(agent), lambda: calls.waiting))

        asyncio.run(until(lambda: connection.open <= before))
    finally:
        calls.meet("none")
        connection.close()


async def test_a_cancelled_turn_is_no_failure_of_the_service(server: FaultyServer, knowledge: str) -> None:
    middleware = Parts(server, "evaluator", "watch").middleware(knowledge)
    agent, _ = agent_with(middleware, replies=[ANSWER])

    for _ in range(4):
        await cancel_in_the_middle(invoke(agent), lambda: server.waiting)
    task = asyncio.ensure_future(invoke(agent))
    await until(lambda: server.waiting == 1 or task.done())

    assert not task.done(), "the service is still asked: its circuit did not open"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_grading_call_that_ends_the_turn_takes_the_others_with_it() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def call(number: int) -> None:
        if number:
            await begun.wait()
            raise TenantError("x")
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with pytest.raises(TenantError):
        await aask_each([0, 1], call)

    assert ended.is_set()


HANGING = """
import threading
from crag_middleware import ChatModelEvaluator, CRAGSettings, Passage
from tests.support.agents import agent_with, ask, crag
from tests.support.models import ScriptedModel

def hang(prompt):
    threading.Event().wait(100)

passages = [Passage(id=str(n), text=f"Passage {n}") for n in range(30)]
settings = CRAGSettings(top_k=30, recall_k=30, grade_timeout_s=0.2, near_duplicate=None)
agent, _ = agent_with(crag(passages, evaluator=ChatModelEvaluator(ScriptedModel(script=[hang])), settings=settings))
print(ask(agent, "Which passage?")["crag"]["degraded"])
"""


def test_a_process_ends_though_a_model_hangs_in_several_grading_calls() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=True)

    assert ended.stdout.strip() == "[{'step': 'grade', 'reason': 'timeout'}]"


def sockets() -> int:
    """Sockets that this process holds, those of the servers it plays included."""
    return sum(_target(name).startswith("socket:") for name in os.listdir("/proc/self/fd"))


def _target(name: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{name}")
    except OSError:  # it was the listing's own
        return ""


def ours() -> set[str]:
    """Threads of ours that run."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("crag")}


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts sockets in /proc")
@pytest.mark.parametrize("turns", [100, pytest.param(1000, marks=pytest.mark.slow)])
async def test_cancelled_turns_leave_no_task_no_thread_and_no_socket(
    turns: int, milvus: tuple[CallProxy, str], server: FaultyServer
) -> None:
    chance = random.Random(8)
    agent, _ = agent_with(Parts(server).middleware(f"http://{milvus[1]}"), replies=[ANSWER])
    given = {"messages": HISTORY}
    loop = asyncio.get_running_loop()
    await agent.ainvoke(given)

    async def seconds() -> float:
        begun = loop.time()
        await agent.ainvoke(given)
        return loop.time() - begun

    longest = await seconds()
    gc.collect()
    tasks, held = asyncio.all_tasks(), sockets()

    outcomes: list[Any] = []
    for _ in range(0, turns, 10):
        under_way = [asyncio.ensure_future(agent.ainvoke(given)) for _ in range(10)]
        for turn in under_way:
            loop.call_later(chance.uniform(0, longest), turn.cancel)
        longest = await seconds()  # beside them, as busy as the machine is now
        outcomes += await asyncio.gather(*under_way, return_exceptions=True)
    after = [await agent.ainvoke(given) for _ in range(3)]

    cancelled = [outcome for outcome in outcomes if isinstance(outcome, asyncio.CancelledError)]
    finished = [outcome for outcome in outcomes if isinstance(outcome, dict)]
    assert len(cancelled) + len(finished) == turns
    assert len(cancelled) > turns / 2
    assert [result["crag"]["degraded"] for result in (*finished, *after) if result["crag"]["degraded"]] == []
    await until(lambda: asyncio.all_tasks() <= tasks)
    await until(lambda: not ours())
    gc.collect()
    await until(lambda: sockets() <= held + 10)
