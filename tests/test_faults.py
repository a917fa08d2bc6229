"""Every dependency with every fault, over real sockets, through a whole agent, sync and async.

Whatever breaks: the turn ends, the user gets an answer or is told that there is none, the receipt names what was missing and why, every other part is
there, and nobody reads a key or a private text in a log. docs/faults.md has the table.
"""

import asyncio
import json
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from crag_middleware.stages.grounding import REFUSAL
from tests.support.agents import agent_with
from tests.support.faulty import FAULTS, NEVER_ENDS, PRIVATE, SECRET, STANDALONE, FaultyServer
from tests.support.faulty_milvus import CONNECTION_FAULTS, CallProxy, ConnectionProxy, call_proxy
from tests.support.faulty_turn import ANSWER, HISTORY, TENANT_ID, ForeignKnowledge, Parts, fill
from tests.support.milvus import lite_server

pytestmark = [
    pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning"),
]

both = pytest.mark.parametrize("how", ["sync", "async"])

LIMIT_S = 15.0
"""No turn here may take so long, though the machine be busy: the longest deadline of a dependency at fault is 1 s."""

HTTP = ("evaluator", "rewriter", "tavily", "bocha", "embeddings", "reranker", "claim-checker")
CHAT = {
    "refused": "unavailable",
    "hang": "timeout",
    "slow": "timeout",
    "reset": "unavailable",
    "garbage": "invalid_reply",
    "wrong type": "failed",
    "401": "unauthorized",
    "429": "rate_limited",
    "503": "unavailable",
    "empty": "invalid_reply",
    "huge": "invalid_reply",
    "foreign exception": "failed",
}
WEB = {**CHAT, "wrong type": "invalid_reply", "foreign exception": "ForeignError"}
EMBEDDINGS = {fault: "timeout" if fault in NEVER_ENDS else "embedding" for fault in FAULTS}
PLAIN = {**CHAT, "wrong type": "refused"}
"""A `TypeError` on the way to an answer may as well say that the client takes no such option; with a schema OpenAI's client says it otherwise."""

REASONS: Mapping[str, Mapping[str, str]] = {
    "evaluator": CHAT,
    "rewriter": PLAIN,
    "claim-checker": CHAT,
    "tavily": WEB,
    "bocha": WEB,
    "embeddings": EMBEDDINGS,
    "reranker": PLAIN,
}
"""What the receipt gives as reason."""

STEPS = {
    "evaluator": ["grade", "grade_web"],
    "rewriter": ["rewrite", "keywords"],
    "tavily": ["search_web"],
    "bocha": ["search_web"],
    "embeddings": ["retrieve:dense"],
    "reranker": ["rerank"],
    "claim-checker": [],
}
"""What the receipt may name as missing; the first always."""

IMPOSSIBLE = {
    ("reranker", "success after a retry"): "no client of a reranker repeats a request, and neither do we: the fused order is good enough",
    (
        "milvus",
        "foreign exception",
    ): "what a Milvus client raises passes one place, which the call faults go through; a retriever of one's own is tested instead",
}
"""Cells that can't be, and why."""


@dataclass
class Turn:
    """What came of a turn."""

    text: str
    receipt: dict[str, Any]
    seconds: float

    @property
    def degraded(self) -> dict[str, str]:
        return {d["step"]: d["reason"] for d in (*self.receipt["degraded"], *(self.receipt["answer"] or {}).get("degraded", ()))}

    @property
    def origins(self) -> set[str]:
        return {source["origin"] for source in self.receipt["sources"]}


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running


@pytest.fixture(scope="module")
def well(server: FaultyServer) -> Parts:
    return Parts(server)


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    """One event loop for all async turns, as a server has."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def knowledge(tmp_path_factory: pytest.TempPathFactory) -> str:
    uri = str(tmp_path_factory.mktemp("faults") / "knowledge.db")
    fill(uri)
    return uri


@pytest.fixture(scope="module")
def milvus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[CallProxy, str]]:
    """A server in another process, behind a proxy that breaks its calls."""
    with lite_server(tmp_path_factory.mktemp("server")) as uri:
        fill(uri)
        with call_proxy(uri.removeprefix("http://")) as proxied:
            yield proxied


def ask(middleware: Any, how: str, loop: asyncio.Runner) -> Turn:
    agent, _ = agent_with(middleware, replies=[ANSWER])
    begun = time.monotonic()
    result = agent.invoke({"messages": HISTORY}) if how == "sync" else loop.run(agent.ainvoke({"messages": HISTORY}))
    return Turn(result["messages"][-1].text, result["crag"], time.monotonic() - begun)


def check_private(turn: Turn, caplog: pytest.LogCaptureFixture) -> None:
    """No key and no private text in any log, no key and no tenant in the receipt, and the receipt can be saved."""
    logged = "\n".join(f"{r.getMessage()} {r.exc_text or ''} {r.exc_info or ''}" for r in caplog.records)
    assert not [private for private in PRIVATE if private in logged]
    saved = json.dumps(turn.receipt)
    assert SECRET not in saved
    assert TENANT_ID not in saved
    assert not [r for r in caplog.records if r.name == "asyncio"], "nothing is left without an owner"


@pytest.fixture(autouse=True)
def all_logs(caplog: pytest.LogCaptureFixture) -> None:
    """Everything that we and Milvus' client log; the others log only what goes wrong."""
    caplog.set_level(logging.DEBUG, "crag_middleware")
    caplog.set_level(logging.DEBUG, "pymilvus")


def test_every_cell_is_tested_or_said_to_be_impossible() -> None:
    said = {(part, fault) for part, reasons in REASONS.items() for fault in reasons} | IMPOSSIBLE.keys()
    retried = {(part, "success after a retry") for part in (*HTTP, "milvus")} - IMPOSSIBLE.keys()
    milvus_ = {("milvus", fault) for fault in MILVUS}

    assert said | retried | milvus_ == {(part, fault) for part in (*HTTP, "milvus") for fault in FAULTS}


@both
def test_without_a_fault_nothing_is_missing(
    how: str, well: Parts, knowledge: str, loop: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    turn = ask(well.middleware(knowledge), how, loop)

    check_whole(turn, missing="")
    assert turn.degraded == {}
    check_private(turn, caplog)


@both
@pytest.mark.parametrize(("part", "fault"), [(part, fault) for part in HTTP for fault in REASONS[part] if fault != "success after a retry"])
def test_a_fault_costs_its_own_part_and_is_told(
    part: str,
    fault: str,
    how: str,
    server: FaultyServer,
    well: Parts,
    knowledge: str,
    loop: asyncio.Runner,
    caplog: pytest.LogCaptureFixture,
) -> None:
    middleware = Parts(server, part, fault, well=well).middleware(knowledge)

    turn = ask(middleware, how, loop)

    check_whole(turn, missing=part)
    check_told(turn, part, REASONS[part][fault])
    check_private(turn, caplog)


@both
@pytest.mark.parametrize("part", [part for part in HTTP if (part, "success after a retry") not in IMPOSSIBLE])
def test_a_service_that_answers_when_asked_again_costs_nothing(
    part: str, how: str, server: FaultyServer, well: Parts, knowledge: str, loop: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    asked = len(server.requests)

    turn = ask(Parts(server, part, "success after a retry", well=well).middleware(knowledge), how, loop)

    check_whole(turn, missing="")
    assert turn.degraded == {}
    assert sum(f"/{part}/success" in request["path"] for request in server.requests[asked:]) >= 2
    check_private(turn, caplog)


def check_whole(turn: Turn, *, missing: str) -> None:
    """The turn ended in time with an answer, and every part is there but the missing one."""
    receipt = turn.receipt
    assert turn.seconds < LIMIT_S
    assert turn.text == ANSWER
    assert receipt["status"] == ("retrieval_failed" if missing == "milvus" else "grounded")
    assert turn.origins == {"knowledge", "web"} - {{"milvus": "knowledge", "tavily": "web", "bocha": "web"}.get(missing, "")}
    graded = [p["label"] for p in receipt["passages"]]
    assert all((label == "ungraded") == (missing == "evaluator") for label in graded)
    known = [p for p in receipt["passages"] if p["origin"] == "knowledge"]
    assert all((p["rerank_score"] is None) == (missing == "reranker") for p in known)
    assert (receipt["query"] == STANDALONE) == (missing != "rewriter")
    assert receipt["answer"]["checked"] == ("failed" if missing == "claim-checker" else "checked")


def check_told(turn: Turn, part: str, *reasons: str) -> None:
    """The receipt names the part and why it is missing, and nothing else."""
    steps = STEPS.get(part) or ["check_claims"]
    assert steps[0] in turn.degraded
    assert turn.degraded.keys() <= set(steps)
    assert turn.degraded[steps[0]] in reasons
    assert set(turn.degraded.values()) <= {*reasons, "circuit_open"}


# Milvus

MILVUS = {
    "refused": ("unavailable", "timeout"),
    "hang": ("timeout",),
    "slow": ("timeout",),
    "reset": ("unavailable", "timeout"),
    "garbage": ("unavailable", "timeout"),
    "wrong type": ("failed", "timeout"),
    "401": ("unauthorized",),
    "429": ("rate_limited",),
    "503": ("unavailable", "timeout"),
    "empty": ("failed", "timeout"),
    "huge": ("failed", "timeout"),
}
"""What the receipt may give as reason: Milvus' client repeats by itself what may pass, until the time is up."""

STEPS["milvus"] = ["retrieve"]


def behind_proxy(milvus: tuple[CallProxy, str], fault: str, how: str, well: Parts, loop: asyncio.Runner, **settings: Any) -> Turn:
    """A turn whose Milvus has the fault, after a middleware was built that found it well."""
    calls, address = milvus
    connection = ConnectionProxy(address)
    try:
        middleware = well.middleware(connection.uri, **settings)
        if fault in CONNECTION_FAULTS:
            connection.meet(fault)
        else:
            calls.meet(fault)
        return ask(middleware, how, loop)
    finally:
        calls.meet("none")
        connection.close()


@both
@pytest.mark.parametrize("fault", MILVUS)
def test_without_milvus_the_web_answers(
    fault: str, how: str, milvus: tuple[CallProxy, str], well: Parts, loop: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    turn = behind_proxy(
        milvus, fault, how, well, loop, retrieve_timeout_s=10 if len(MILVUS[fault]) == 1 and fault not in NEVER_ENDS else 0.4
    )

    check_whole(turn, missing="milvus")
    check_told(turn, "milvus", *MILVUS[fault])
    check_private(turn, caplog)


@both
def test_milvus_that_answers_when_asked_again_costs_nothing(
    how: str, milvus: tuple[CallProxy, str], well: Parts, loop: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    turn = behind_proxy(milvus, "success after a retry", how, well, loop)

    check_whole(turn, missing="")
    assert turn.degraded == {}
    check_private(turn, caplog)


@both
def test_without_milvus_and_without_the_web_the_user_is_told_so(
    how: str, milvus: tuple[CallProxy, str], server: FaultyServer, well: Parts, loop: asyncio.Runner
) -> None:
    parts = Parts(server, "tavily", "503", well=well)

    turn = behind_proxy(milvus, "refused", how, parts, loop, retrieve_timeout_s=0.5, when_no_evidence="refuse")

    assert turn.text == REFUSAL["en"]
    assert turn.receipt["answer"]["action"] == "refused"
    assert turn.degraded.keys() == {"retrieve", "search_web"}


@both
def test_a_retriever_that_breaks_in_a_way_of_its_own_is_told_by_its_class(
    how: str, well: Parts, loop: asyncio.Runner, caplog: pytest.LogCaptureFixture
) -> None:
    turn = ask(well.middleware(ForeignKnowledge()), how, loop)

    check_whole(turn, missing="milvus")
    check_told(turn, "milvus", "ForeignError")
    check_private(turn, caplog)
