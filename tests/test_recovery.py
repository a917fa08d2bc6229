"""A Milvus server that is killed and started again: turns go on without it, and with it again, with the same middleware in the same process."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from crag_middleware import CRAGMiddleware, CRAGSettings
from crag_middleware.breaker import Breaker
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator
from tests.support.agents import agent_with
from tests.support.faulty import KNOWN, STANDALONE
from tests.support.faulty_milvus import LiteProcess
from tests.support.faulty_turn import ANSWER, TENANT_ID, fill
from tests.support.milvus import WordEmbeddings, open_store

PATIENCE_S = 60.0
"""A client's connection is tried again after a pause that grows; recovery takes a second or two, and on a busy machine may take longer."""

PAUSE = threading.Event()
"""Never set: waited for between two looks at a process that is coming up."""

Turn = Callable[[], dict[str, Any]]


@pytest.fixture
def milvus(tmp_path: Path) -> Iterator[LiteProcess]:
    process = LiteProcess(tmp_path / "data")
    try:
        fill(process.uri)
        yield process
    finally:
        process.kill()


@pytest.fixture
def middleware(milvus: LiteProcess) -> CRAGMiddleware:
    store = open_store(milvus.uri, "k", embedding_function=[WordEmbeddings()])
    built = CRAGMiddleware(store, TENANT_ID, evaluator=ScriptedEvaluator(), settings=CRAGSettings(retrieve_timeout_s=1.0))
    built._parts.breaker = Breaker(lambda: 30.0 * time.monotonic())  # rests of a second in place of half a minute
    return built


@pytest.fixture(params=["sync", "async"])
def turn(request: pytest.FixtureRequest, middleware: CRAGMiddleware) -> Iterator[Turn]:
    """Asks, and returns the receipt; async turns share one event loop, as in a server."""
    agent, model = agent_with(middleware, replies=[ANSWER])
    with asyncio.Runner() as runner:

        def ask() -> dict[str, Any]:
            given = {"messages": [("user", STANDALONE)]}
            result = agent.invoke(given) if request.param == "sync" else runner.run(agent.ainvoke(given))
            assert isinstance(model, ScriptedChatModel)
            assert result["messages"][-1].text, "every turn has an answer"
            receipt: dict[str, Any] = result["crag"]
            return receipt

        yield ask


def is_well(receipt: dict[str, Any]) -> bool:
    return receipt["status"] == "grounded" and receipt["sources"][0]["strips"][0]["text"] == KNOWN and not receipt["degraded"]


def until_well(turn: Turn) -> list[dict[str, Any]]:
    """The receipts up to the first that is well again."""
    receipts, end = [turn()], time.monotonic() + PATIENCE_S
    while not is_well(receipts[-1]):
        assert time.monotonic() < end, receipts[-1]["degraded"]
        PAUSE.wait(0.1)
        receipts.append(turn())
    return receipts


def test_turns_go_on_while_milvus_is_down_and_find_it_again(milvus: LiteProcess, turn: Turn) -> None:
    before = turn()
    milvus.kill()
    without = [turn() for _ in range(2)]
    milvus.start()
    again = until_well(turn)

    assert is_well(before)
    for receipt in (*without, *again[:-1]):
        assert receipt["status"] == "retrieval_failed"
        assert [d["step"] for d in receipt["degraded"]] == ["retrieve"]
        assert receipt["degraded"][0]["reason"] in ("unavailable", "timeout", "circuit_open")


def test_a_circuit_that_opened_lets_milvus_back_in_after_its_rest(milvus: LiteProcess, middleware: CRAGMiddleware, turn: Turn) -> None:
    clock = [1000.0]
    middleware._parts.breaker = Breaker(lambda: clock[0])
    milvus.kill()
    down = [turn()["degraded"] for _ in range(5)]
    milvus.start()
    resting = turn()["degraded"]
    clock[0] += 30
    trial = turn()

    while not is_well(trial):  # the client itself may still be waiting to connect
        assert trial["degraded"][0]["reason"] in ("unavailable", "timeout", "circuit_open")
        PAUSE.wait(0.1)
        clock[0] += 30
        trial = turn()

    assert [step["reason"] for (step,) in down[3:]] == ["circuit_open"] * 2
    assert resting == [{"step": "retrieve", "reason": "circuit_open"}]
    assert is_well(turn()), "and it stays"


@pytest.mark.slow
async def test_a_server_that_comes_and_goes_under_load_costs_no_answer(milvus: LiteProcess, middleware: CRAGMiddleware) -> None:
    agent, _ = agent_with(middleware, replies=[ANSWER])
    receipts: list[dict[str, Any]] = []
    stop, changed = asyncio.Event(), asyncio.Event()

    async def user() -> None:
        while not stop.is_set():
            result = await agent.ainvoke({"messages": [("user", STANDALONE)]})
            assert result["messages"][-1].text
            receipts.append(result["crag"])
            changed.set()
            await asyncio.sleep(0.02)

    async def well_again() -> None:
        begun = len(receipts)
        async with asyncio.timeout(PATIENCE_S):
            while not any(map(is_well, receipts[begun + 4 :])):
                await changed.wait()
                changed.clear()

    async with asyncio.TaskGroup() as users:
        for _ in range(4):
            users.create_task(user())
        await well_again()
        await asyncio.to_thread(milvus.kill)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(milvus.start)
        await well_again()
        stop.set()

    assert {receipt["status"] for receipt in receipts} == {"grounded", "retrieval_failed"}
