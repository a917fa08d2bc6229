"""The claim checker on chat models: scripted ones, and the real DeepSeek client against a server on loopback."""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.internal_call_transformer import InternalCallTransformer
from langchain_core.callbacks import BaseCallbackHandler
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from crag_middleware.adapters.chat_claim_checker import CALL_CLAIMS, ChatModelClaimChecker
from crag_middleware.adapters.fan_out import PARALLEL_CALLS
from crag_middleware.errors import ClaimCheckError, ConfigError
from crag_middleware.ports import AsyncClaimChecker, ClaimChecker
from crag_middleware.stages.claim_grounds import PIECE_CHARS
from crag_middleware.stages.claim_prompt import NO_GROUNDS, UNCHECKED, VERSION
from crag_middleware.testing.claim_suite import ClaimCheckerSuite
from crag_middleware.types import Checked, Claim, EvaluatorKey, Ground
from tests.support.chat_server import ChatServer, serve_chat
from tests.support.claims import checks_each, claim, claims_in, passages_in, source
from tests.support.models import NarrowModel, ScriptedModel

GROUNDS = (source("Milvus listens on port 19530.", 1), source("A plan has max 10 users.", 2), Ground("Bread needs salt.", "tool"))
CLAIMS = (claim("The port is 19530 [1].", 1), claim("It supports 100 users [2].", 2))
GOOD = json.dumps(
    {
        "claims": [
            {"claim": 1, "passage": 1, "label": "supported", "confidence": 0.97},
            {"claim": 2, "passage": 2, "label": "contradicted", "confidence": 0.02},
        ]
    }
)
READ = (Checked("supported", 0.97, 0), Checked("contradicted", 0.02, 1))
QUESTION = "Which port, and how many users?"

Check = Callable[..., Awaitable[Sequence[Checked]]]


@pytest.fixture(params=["sync", "async"])
def check(request: pytest.FixtureRequest) -> Check:
    """Checks with either form of a checker."""

    async def call(
        checker: ChatModelClaimChecker, claims: Sequence[Claim] = CLAIMS, grounds: Sequence[Ground] = GROUNDS, timeout_s: float = 10
    ) -> Sequence[Checked]:
        if request.param == "async":
            return await checker.acheck(claims, grounds, question=QUESTION, timeout_s=timeout_s)
        return await asyncio.to_thread(checker.check, claims, grounds, question=QUESTION, timeout_s=timeout_s)

    return call


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with serve_chat(replies=[GOOD]) as running:
        yield running


class TestChatModelClaimChecker(ClaimCheckerSuite):
    @pytest.fixture
    def checker(self) -> Iterator[Any]:
        with serve_chat(replies=[checks_each]) as running:
            yield ChatModelClaimChecker(running.model())


# --- What a user builds


def test_it_satisfies_its_port_and_has_a_threshold_and_a_key(server: ChatServer) -> None:
    model = server.model()
    checker, own = ChatModelClaimChecker(model), ChatModelClaimChecker(model.with_retry(), instructions="Check.")

    assert isinstance(checker, ClaimChecker)
    assert isinstance(checker, AsyncClaimChecker)
    assert checker.threshold == 0.5
    assert checker.model is model
    assert checker.key == EvaluatorKey("ChatModelClaimChecker", "deepseek-flash", VERSION)
    assert own.key.model == "deepseek-flash"
    assert own.key.prompt.startswith(f"{VERSION}+")


@pytest.mark.parametrize("options", [{"model": 3}, {"language": "fr"}, {"max_ground_chars": 1499}, {"max_ground_chars": 100_001}])
def test_arguments_that_can_not_work_are_refused_when_built(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        ChatModelClaimChecker(**{"model": ScriptedModel(script=[GOOD]), **options})


# --- One call


async def test_one_call_checks_all_claims_of_an_answer(check: Check) -> None:
    model = ScriptedModel(script=[GOOD])

    assert await check(ChatModelClaimChecker(model)) == READ
    assert len(model.asked) == 1


async def test_a_source_that_says_another_number_does_not_support_its_claim_c111(check: Check) -> None:
    model = ScriptedModel(script=[GOOD])

    found = await check(ChatModelClaimChecker(model))

    assert (found[1].label, found[1].decided_by) == ("contradicted", 1)
    assert "Numbers must match as values" in str(model.asked[0][0].text)


async def test_a_refusal_has_no_claims_and_needs_no_call_c112(check: Check) -> None:
    model = ScriptedModel(script=[GOOD])

    assert await check(ChatModelClaimChecker(model), ()) == ()
    assert model.asked == []


@pytest.mark.parametrize("grounds", [(), (Ground(""), Ground(" \u200b\n", "tool"))])
async def test_without_grounds_nothing_is_supported_and_no_call_is_needed(check: Check, grounds: Sequence[Ground]) -> None:
    model = ScriptedModel(script=[GOOD])

    assert await check(ChatModelClaimChecker(model), CLAIMS, grounds) == (NO_GROUNDS, NO_GROUNDS)
    assert model.asked == []


async def test_a_blank_claim_is_unchecked_and_the_others_keep_their_places(check: Check) -> None:
    model = ScriptedModel(script=[checks_each])

    found = await check(ChatModelClaimChecker(model), [claim(" "), claim("Bread needs salt. [9]", 9), claim("[1]", 1)])

    assert found == (UNCHECKED, Checked("supported", 0.95, 2), UNCHECKED)
    assert claims_in(model.prompts[0]) == ["Bread needs salt."]


async def test_cited_grounds_stand_first_and_decided_by_is_the_place_in_the_list_given(check: Check) -> None:
    model = ScriptedModel(script=[checks_each])

    found = await check(ChatModelClaimChecker(model), [claim("A plan has max 10 users.", 2), claim("Bread needs salt.")])

    assert passages_in(model.prompts[0]) == [GROUNDS[i].text for i in (1, 0, 2)]
    assert [one.decided_by for one in found] == [1, 2]


async def test_claims_that_the_reply_misses_are_unchecked(check: Check) -> None:
    reply = json.dumps({"claims": [{"claim": 2, "label": "supported", "confidence": 0.9, "passage": 2}]})

    assert await check(ChatModelClaimChecker(ScriptedModel(script=[reply]))) == (UNCHECKED, Checked("supported", 0.9, 1))


async def test_a_reply_that_says_nothing_of_any_claim_is_a_failure_and_not_a_verdict_c040(check: Check) -> None:
    with pytest.raises(ClaimCheckError) as caught:
        await check(ChatModelClaimChecker(ScriptedModel(script=["Let me see."])))

    assert caught.value.reason == "invalid_reply"


async def test_content_blocks_are_read_as_text_c016(check: Check) -> None:
    blocks = [{"type": "reasoning", "summary": []}, {"type": "text", "text": GOOD[:40]}, {"type": "text", "text": GOOD[40:]}]

    assert await check(ChatModelClaimChecker(ScriptedModel(script=[blocks]))) == READ


def test_the_prompt_follows_the_language_of_the_claims() -> None:
    model = ScriptedModel(script=[checks_each])

    ChatModelClaimChecker(model).check([claim("默认端口是 19530。")], GROUNDS, question="Which port?")
    ChatModelClaimChecker(model).check(CLAIMS, GROUNDS, question="默认端口是多少？")
    ChatModelClaimChecker(model, language="zh", instructions="核查。").check(CLAIMS, GROUNDS)

    systems = [str(messages[0].text) for messages in model.asked]
    assert "核查陈述" in systems[0]
    assert "You check claims" in systems[1]
    assert systems[2].startswith("核查。\n只用 JSON")
    assert ["<question>" in prompt for prompt in model.prompts] == [True, True, False]


# --- The ladder


@pytest.mark.parametrize("model", [ScriptedModel(script=[GOOD], refuses=frozenset({"response_format"})), NarrowModel(script=[GOOD])])
async def test_a_model_without_any_structured_output_is_asked_in_plain_words(check: Check, model: ScriptedModel) -> None:
    assert await check(ChatModelClaimChecker(model)) == READ


@pytest.mark.parametrize(
    ("refuses", "forms"),
    [
        ((), ["json_schema"] * 2),
        (("json_schema",), ["json_schema", "json_object", "json_object"]),
        (("json_schema", "json_object"), ["json_schema", "json_object", "plain", "plain"]),
    ],
)
async def test_the_ladder_goes_down_once_and_remembers_c039(
    server: ChatServer, check: Check, refuses: tuple[str, ...], forms: list[str]
) -> None:
    server.mood.refuses = frozenset(refuses)
    checker = ChatModelClaimChecker(server.model())

    assert [await check(checker), await check(checker)] == [READ, READ]
    assert server.forms() == forms
    assert all(asked["thinking"] == {"type": "disabled"} and "tools" not in asked for asked in server.requests)


async def test_a_reply_that_ran_into_the_limit_keeps_what_is_complete(server: ChatServer, check: Check) -> None:
    server.mood.replies, server.mood.finish = [GOOD[:-60]], "length"

    assert await check(ChatModelClaimChecker(server.model())) == (READ[0], UNCHECKED)


# --- Many claims, long grounds, a small context


async def test_many_claims_are_split_under_a_cap_on_parallel_calls_c049(server: ChatServer, check: Check) -> None:
    server.mood.replies, server.mood.max_parallel = [checks_each], PARALLEL_CALLS
    claims = [claim(f"Fact {n}." if n % 2 else "Nobody says this.") for n in range(CALL_CLAIMS * 4)]
    grounds = [Ground(" ".join(f"Fact {n}." for n in range(CALL_CLAIMS * 4)))]

    found = await check(ChatModelClaimChecker(server.model()), claims, grounds)

    assert [one.label for one in found] == ["not_mentioned", "supported"] * CALL_CLAIMS * 2
    assert len(server.requests) == 4
    assert server.peak <= PARALLEL_CALLS


async def test_a_failed_call_among_several_leaves_its_claims_unchecked_and_is_logged_c049(
    check: Check, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(prompt: str) -> str:
        if "poison" in prompt:
            raise TimeoutError
        return checks_each(prompt)

    claims = [*[claim("poison")] * CALL_CLAIMS, claim("Bread needs salt.")]

    found = await check(ChatModelClaimChecker(ScriptedModel(script=[answer])), claims)

    assert found == (*[UNCHECKED] * CALL_CLAIMS, Checked("supported", 0.95, 2))
    assert [r.getMessage() for r in caplog.records] == ["1 of 2 claim checking calls failed: timeout"]


async def test_of_grounds_that_are_too_long_those_that_bear_on_the_claims_are_shown_in_one_call_c052(
    server: ChatServer, check: Check
) -> None:
    server.mood.replies = [checks_each]
    log = " ".join(f"Request {n} took {n * 7} ms and nothing happened." for n in range(5000))
    long = Ground(f"{log} The cellar holds forty casks. {log}", "tool")

    found = await check(
        ChatModelClaimChecker(server.model(), max_ground_chars=3000), [claim("The cellar holds forty casks.")], [long, *GROUNDS]
    )

    assert found == (Checked("supported", 0.95, 0),)
    assert len(server.requests) == 1
    assert sum(map(len, passages_in(server.requests[0]))) <= 3000


async def test_what_does_not_fit_the_context_is_asked_in_parts_until_it_does(server: ChatServer, check: Check) -> None:
    server.mood.replies, server.mood.window = [checks_each], 5000
    grounds = [source(f"Fact {n}. {'filler ' * 150}", n) for n in range(8)]
    claims = [claim("Fact 0."), claim("Fact 7."), claim("Nobody says this.")]

    found = await check(ChatModelClaimChecker(server.model()), claims, grounds)

    assert found == (Checked("supported", 0.95, 0), Checked("supported", 0.95, 7), Checked("not_mentioned", 0.05))
    assert max(len(passages_in(asked)) for asked in server.requests) == 8
    assert {len(claims_in(asked)) for asked in server.requests} == {3}


async def test_claims_that_do_not_fit_the_context_together_are_asked_about_apart(server: ChatServer, check: Check) -> None:
    server.mood.replies, server.mood.window = [checks_each], 4000
    claims = [claim(f"Long claim {n}. {'word ' * 150}") for n in range(4)]

    found = await check(ChatModelClaimChecker(server.model()), [*claims, claim("Bread needs salt.")])

    assert [one.label for one in found] == ["not_mentioned"] * 4 + ["supported"]
    assert min(len(claims_in(asked)) for asked in server.requests) < 5


async def test_a_ground_too_long_by_itself_leaves_unchecked_what_no_other_supports(
    server: ChatServer, check: Check, caplog: pytest.LogCaptureFixture
) -> None:
    server.mood.replies, server.mood.window = [checks_each], 2400
    huge = source("x" * PIECE_CHARS, 7)

    found = await check(ChatModelClaimChecker(server.model()), [claim("Bread needs salt."), claim("Nobody says this.")], [huge, GROUNDS[2]])

    assert found == (Checked("supported", 0.95, 1), UNCHECKED)
    assert [r.getMessage() for r in caplog.records if r.name.startswith("crag")] == ["1 of 2 claim checking calls failed: too_long"]


async def test_a_context_that_holds_nothing_is_a_failure(server: ChatServer, check: Check) -> None:
    server.mood.window = 100

    with pytest.raises(ClaimCheckError) as caught:
        await check(ChatModelClaimChecker(server.model()))

    assert caught.value.reason == "too_long"


# --- Failures


@pytest.mark.parametrize(("status", "reason"), [(401, "unauthorized"), (402, "quota"), (429, "rate_limited"), (503, "unavailable")])
async def test_an_outage_is_a_failure_that_quotes_nothing_c051(server: ChatServer, check: Check, status: int, reason: str) -> None:
    server.mood.status = status

    with pytest.raises(ClaimCheckError) as caught:
        await check(ChatModelClaimChecker(server.model()))

    assert caught.value.reason == reason
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert len(server.requests) == 1
    assert "19530" not in str(caught.value)


async def test_a_slow_server_runs_into_the_deadline(server: ChatServer, check: Check) -> None:
    server.mood.hold.clear()

    with pytest.raises(ClaimCheckError) as caught:
        await check(ChatModelClaimChecker(server.model()), timeout_s=0.2)

    assert caught.value.reason == "timeout"


async def test_control_flow_of_the_framework_passes_through(check: Check) -> None:
    with pytest.raises(GraphBubbleUp):
        await check(ChatModelClaimChecker(ScriptedModel(script=[GraphInterrupt(())])))


async def test_cancellation_passes_through(server: ChatServer) -> None:
    server.mood.hold.clear()
    task = asyncio.create_task(ChatModelClaimChecker(server.model()).acheck(CLAIMS, GROUNDS, timeout_s=10))
    await asyncio.to_thread(server.arrived.wait, 5)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


def test_one_checker_serves_threads_and_event_loops_at_the_same_time(server: ChatServer) -> None:
    server.mood.refuses = frozenset({"json_schema"})
    model = server.model()
    asyncio.run(model.ainvoke("a first loop, before any inner call"))
    checker = ChatModelClaimChecker(model)
    results: list[Any] = []

    def work(number: int) -> None:
        results.append(asyncio.run(checker.acheck(CLAIMS, GROUNDS)) if number % 2 else checker.check(CLAIMS, GROUNDS))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [READ] * 8


def test_no_private_text_is_logged(server: ChatServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "crag_middleware")
    server.mood.refuses, server.mood.replies = frozenset({"json_schema"}), [GOOD[:-60]]

    ChatModelClaimChecker(server.model()).check(CLAIMS, GROUNDS, question=QUESTION)

    told = " ".join(r.getMessage() for r in caplog.records if r.name.startswith("crag"))
    assert "crag.check" in told
    assert not any(word in told for word in ("19530", "users", "Bread"))


# --- Inside an agent


class Checking(AgentMiddleware[Any, Any]):
    """Checks an answer after the model wrote it, as the plan does."""

    transformers = (InternalCallTransformer,)

    def __init__(self, checker: Any) -> None:
        self.checker = checker
        self.found: list[Any] = []

    def after_model(self, state: Any, runtime: Any) -> None:
        self.found.append(self.checker.check([claim(state["messages"][-1].text)], GROUNDS))

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        self.found.append(await self.checker.acheck([claim(state["messages"][-1].text)], GROUNDS))


class Names(BaseCallbackHandler):
    """Keeps the names of model runs."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        self.seen.append(kwargs["name"])


def answers_and_checks(asked: Mapping[str, Any]) -> str:
    return checks_each(asked) if claims_in(asked) else "Bread needs salt."


async def test_its_calls_do_not_show_in_the_users_stream_and_do_in_callbacks_c023_c025(server: ChatServer) -> None:
    server.mood.replies = [answers_and_checks]
    checking, names = Checking(ChatModelClaimChecker(server.model())), Names()
    agent: Any = create_agent(server.model(), middleware=[checking])
    ask = {"messages": [("user", "What does bread need?")]}

    sync = [chunk.text for chunk, _ in agent.stream(ask, {"callbacks": [names]}, stream_mode="messages")]
    asynchronous = [chunk.text async for chunk, _ in agent.astream(ask, stream_mode="messages")]
    events = ["".join(message.text) for message in agent.stream_events(ask, version="v3").messages]

    assert "".join(sync) == "".join(asynchronous) == "".join(events) == "Bread needs salt."
    assert names.seen[1:] == ["crag.check"]
    assert checking.found == [(Checked("supported", 0.95, 2),)] * 3
