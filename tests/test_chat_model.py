"""The evaluator and the rewriter on chat models: scripted ones, and the real DeepSeek client against a server on loopback."""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.internal_call_transformer import InternalCallTransformer
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.output_parsers import JsonOutputParser
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from crag_middleware.adapters.chat_model import CALL_PASSAGES, ChatModelEvaluator, ChatModelRewriter
from crag_middleware.adapters.fan_out import PARALLEL_CALLS
from crag_middleware.errors import ConfigError, GradingError, RewriteError
from crag_middleware.ports import AsyncEvaluator, AsyncRewriter, Evaluator, Rewriter
from crag_middleware.settings import CHAT_THRESHOLDS
from crag_middleware.stages.grading import VERSION
from crag_middleware.types import EvaluatorKey, Exchange, Grade, Passage
from tests.support.chat_server import ChatServer, serve_chat
from tests.support.models import NarrowModel, ScriptedModel

PASSAGES = (Passage(id="p1", text="Milvus listens on port 19530."), Passage(id="p2", text="Bread needs salt."))
GOOD = json.dumps(
    {
        "grades": [
            {"passage": 1, "label": "relevant", "confidence": 0.97, "reason": "states the port"},
            {"passage": 2, "label": "incorrect", "confidence": 0.02, "reason": "bread"},
        ]
    }
)
QUESTION = "Which port does Milvus listen on?"
READ = [("p1", "relevant", 0.97), ("p2", "incorrect", 0.02)]
HISTORY = (Exchange("user", "Compare plan A and plan B."), Exchange("assistant", "A costs 5, B costs 9."))

Grader = Callable[..., Awaitable[Sequence[Grade]]]


@pytest.fixture(params=["sync", "async"])
def grade(request: pytest.FixtureRequest) -> Grader:
    """Grades with either form of an evaluator."""

    async def call(evaluator: ChatModelEvaluator, passages: Sequence[Passage] = PASSAGES, timeout_s: float = 10) -> Sequence[Grade]:
        if request.param == "async":
            return await evaluator.agrade(QUESTION, passages, timeout_s=timeout_s)
        return await asyncio.to_thread(evaluator.grade, QUESTION, passages, timeout_s=timeout_s)

    return call


@pytest.fixture(params=["sync", "async"])
def rewrite(request: pytest.FixtureRequest) -> Callable[..., Awaitable[str]]:
    """Rewrites with either form of a rewriter."""

    async def call(rewriter: ChatModelRewriter, question: str, **keywords: Any) -> str:
        if request.param == "async":
            return await rewriter.arewrite(question, **keywords)
        return await asyncio.to_thread(rewriter.rewrite, question, **keywords)

    return call


def short(grades: Sequence[Grade]) -> list[tuple[str, str, float | None]]:
    return [(g.passage_id, g.label, g.probability) for g in grades]


def all_relevant(asked: Mapping[str, Any] | str) -> str:
    """A reply that calls every passage of a prompt relevant."""
    text = asked if isinstance(asked, str) else asked["messages"][-1]["content"]
    return json.dumps({"grades": [{"passage": n, "label": "relevant", "confidence": 0.95} for n in range(1, text.count("<passage ") + 1)]})


# --- What a user builds


def test_evaluator_and_rewriter_satisfy_their_ports() -> None:
    evaluator, rewriter = ChatModelEvaluator(ScriptedModel(script=[GOOD])), ChatModelRewriter(ScriptedModel(script=["q"]))

    assert isinstance(evaluator, Evaluator)
    assert isinstance(evaluator, AsyncEvaluator)
    assert isinstance(rewriter, Rewriter)
    assert isinstance(rewriter, AsyncRewriter)
    assert evaluator.thresholds == CHAT_THRESHOLDS


def test_the_default_model_comes_from_the_environment_or_the_constant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "test-key")
    monkeypatch.delenv("CRAG_MODEL", raising=False)
    assert ChatModelEvaluator().model.model_name == "deepseek-flash"

    monkeypatch.setenv("CRAG_MODEL", "deepseek:deepseek-v4-pro")
    assert ChatModelEvaluator().model.model_name == "deepseek-v4-pro"
    assert ChatModelEvaluator("deepseek:other").model.model_name == "other"


def test_without_a_key_the_error_names_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.delenv("CRAG_MODEL", raising=False)

    with pytest.raises(ConfigError) as caught:
        ChatModelEvaluator()

    for way in ("deepseek:deepseek-flash", "DEEPSEEK_API_KEY", "CRAG_MODEL", "evaluator=EmbeddingEvaluator("):
        assert way in str(caught.value)


def test_a_missing_provider_package_or_an_unknown_provider_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="langchain-mistralai"):
        ChatModelEvaluator("mistralai:mistral-small")
    with pytest.raises(ConfigError, match="'no-such-model'"):
        ChatModelRewriter("no-such-model")


@pytest.mark.parametrize("options", [{"model": 3}, {"language": "fr"}, {"max_passage_chars": 0}])
def test_arguments_that_can_not_work_are_refused_when_built(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        ChatModelEvaluator(**{"model": ScriptedModel(script=[GOOD]), **options})


# --- One call


async def test_one_call_grades_all_passages(grade: Grader) -> None:
    model = ScriptedModel(script=[GOOD])

    assert short(await grade(ChatModelEvaluator(model))) == READ
    assert len(model.asked) == 1


async def test_no_passages_need_no_call(grade: Grader) -> None:
    model = ScriptedModel(script=[GOOD])

    assert list(await grade(ChatModelEvaluator(model), ())) == []
    assert model.asked == []


@pytest.mark.parametrize("model", [ScriptedModel(script=[GOOD], refuses=frozenset({"response_format"})), NarrowModel(script=[GOOD])])
async def test_a_model_without_any_structured_output_is_asked_in_plain_words(grade: Grader, model: ScriptedModel) -> None:
    assert short(await grade(ChatModelEvaluator(model))) == READ


async def test_content_blocks_are_read_as_text_c016(grade: Grader) -> None:
    blocks = [{"type": "reasoning", "summary": []}, {"type": "text", "text": GOOD[:40]}, {"type": "text", "text": GOOD[40:]}]

    assert short(await grade(ChatModelEvaluator(ScriptedModel(script=[blocks])))) == READ


@pytest.mark.parametrize("bound", [lambda m: m.with_retry(), lambda m: m.bind(stop=["x"]), lambda m: m.with_fallbacks([m])])
async def test_a_model_with_something_bound_around_it_serves_too(grade: Grader, bound: Callable[[Any], Any]) -> None:
    assert short(await grade(ChatModelEvaluator(bound(ScriptedModel(script=[GOOD]))))) == READ


async def test_a_reply_without_any_grade_is_a_failure_and_not_a_verdict_c040(grade: Grader) -> None:
    with pytest.raises(GradingError) as caught:
        await grade(ChatModelEvaluator(ScriptedModel(script=["I can't say."])))

    assert caught.value.reason == "invalid_reply"


async def test_prose_about_a_single_passage_is_understood_c040(grade: Grader) -> None:
    grades = await grade(ChatModelEvaluator(ScriptedModel(script=["The passage is relevant."])), PASSAGES[:1])

    assert short(grades) == [("p1", "relevant", 0.95)]


async def test_the_prompt_follows_the_language_of_the_question() -> None:
    model = ScriptedModel(script=[GOOD])

    ChatModelEvaluator(model).grade("Milvus 的默认端口是多少？", PASSAGES)
    ChatModelEvaluator(model).grade(QUESTION, PASSAGES)
    ChatModelEvaluator(model, language="zh", instructions="打分。").grade(QUESTION, PASSAGES)

    systems = [str(messages[0].text) for messages in model.asked]
    assert "打分" in systems[0]
    assert "You grade" in systems[1]
    assert systems[2].startswith("打分。\n只用 JSON")


# --- The ladder, with the real client


@pytest.fixture
def server() -> Any:
    with serve_chat(replies=[GOOD]) as running:
        yield running


async def test_thinking_is_off_for_inner_calls_and_the_given_model_stays_as_it_is(server: ChatServer, grade: Grader) -> None:
    model = server.model(extra_body={"mine": 1})
    before = model.model_dump()

    await grade(ChatModelEvaluator(model))

    (asked,) = server.requests
    assert asked["thinking"] == {"type": "disabled"}
    assert asked["mine"] == 1
    assert asked["max_tokens"] < 1000
    assert model.model_dump() == before
    model.invoke("hello")
    assert "thinking" not in server.requests[-1]


async def test_a_model_that_refuses_forced_tool_choice_is_never_asked_for_it_c039(server: ChatServer, grade: Grader) -> None:
    server.mood.refuses = frozenset({"tool_choice"})

    assert short(await grade(ChatModelEvaluator(server.model()))) == READ
    assert all("tools" not in asked and "tool_choice" not in asked for asked in server.requests)


@pytest.mark.parametrize(
    ("refuses", "first", "later"),
    [
        ((), ["json_schema"], ["json_schema"]),
        (("json_schema",), ["json_schema", "json_object"], ["json_object"]),
        (("json_schema", "json_object"), ["json_schema", "json_object", "plain"], ["plain"]),
        (("thinking",), ["json_schema", "json_object", "plain", "plain"], ["plain"]),
    ],
)
async def test_the_ladder_goes_down_once_and_remembers_c039(
    server: ChatServer, grade: Grader, caplog: pytest.LogCaptureFixture, refuses: tuple[str, ...], first: list[str], later: list[str]
) -> None:
    server.mood.refuses = frozenset(refuses)
    evaluator = ChatModelEvaluator(server.model())
    caplog.set_level(logging.INFO, "crag_middleware")

    grades = [await grade(evaluator), await grade(evaluator)]

    assert [short(g) for g in grades] == [READ, READ]
    assert server.forms() == first + later
    told = [record for record in caplog.records if record.name.startswith("crag_middleware")]
    assert len(told) == (1 if refuses else 0)


async def test_json_mode_always_finds_the_word_json_in_the_prompt_c042(server: ChatServer, grade: Grader) -> None:
    server.mood.refuses = frozenset({"json_schema"})
    evaluator = ChatModelEvaluator(server.model(), instructions="请给每个段落打分。", language="zh")

    assert short(await grade(evaluator)) == READ
    assert server.forms() == ["json_schema", "json_object"]


@pytest.mark.parametrize("blank", ["", "\n\n\n"])
async def test_a_blank_reply_is_asked_for_once_more_without_json_mode_c041(server: ChatServer, grade: Grader, blank: str) -> None:
    server.mood.replies = [blank, GOOD, GOOD]
    evaluator = ChatModelEvaluator(server.model())

    assert short(await grade(evaluator)) == READ
    assert server.forms() == ["json_schema", "plain"]
    await grade(evaluator)
    assert server.forms()[2:] == ["json_schema"]


async def test_blank_twice_is_a_failure_after_two_calls_c041(server: ChatServer, grade: Grader) -> None:
    server.mood.replies = [""]

    with pytest.raises(GradingError):
        await grade(ChatModelEvaluator(server.model()))

    assert len(server.requests) == 2


async def test_a_reply_that_ran_into_the_limit_keeps_its_complete_grades(server: ChatServer, grade: Grader) -> None:
    server.mood.replies, server.mood.finish = [GOOD[:-60]], "length"

    assert short(await grade(ChatModelEvaluator(server.model()))) == [READ[0], ("p2", "ungraded", None)]
    assert len(server.requests) == 1


# --- Failures


@pytest.mark.parametrize(
    ("status", "reason"),
    [(401, "unauthorized"), (403, "unauthorized"), (402, "quota"), (429, "rate_limited"), (500, "unavailable"), (503, "unavailable")],
)
async def test_a_real_failure_is_told_at_once_and_not_tried_on_the_next_rung_c051(
    server: ChatServer, grade: Grader, status: int, reason: str
) -> None:
    server.mood.status = status

    with pytest.raises(GradingError) as caught:
        await grade(ChatModelEvaluator(server.model()))

    assert caught.value.reason == reason
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert len(server.requests) == 1
    assert "Milvus" not in str(caught.value)


async def test_a_server_that_is_gone_is_unavailable_c051(grade: Grader) -> None:
    with serve_chat() as server:
        model = server.model()

    with pytest.raises(GradingError) as caught:
        await grade(ChatModelEvaluator(model))

    assert caught.value.reason == "unavailable"


async def test_a_slow_server_runs_into_the_deadline(server: ChatServer, grade: Grader) -> None:
    server.mood.hold.clear()

    with pytest.raises(GradingError) as caught:
        await grade(ChatModelEvaluator(server.model()), timeout_s=0.2)

    assert caught.value.reason == "timeout"


@pytest.mark.parametrize(
    ("error", "reason"), [(TimeoutError(), "timeout"), (ConnectionError(), "unavailable"), (RuntimeError("secret"), "failed")]
)
async def test_a_failure_of_any_other_client_has_a_reason_and_no_private_text(grade: Grader, error: Exception, reason: str) -> None:
    with pytest.raises(GradingError) as caught:
        await grade(ChatModelEvaluator(ScriptedModel(script=[error])))

    assert caught.value.reason == reason
    assert "secret" not in str(caught.value)


async def test_a_model_that_refuses_everything_is_not_remembered_as_unable(grade: Grader) -> None:
    model = ScriptedModel(script=[ValueError()] * 3 + [GOOD])
    evaluator = ChatModelEvaluator(model)

    with pytest.raises(GradingError):
        await grade(evaluator)

    assert short(await grade(evaluator)) == READ
    assert model.options[-1]["response_format"]["type"] == "json_schema"


async def test_control_flow_of_the_framework_passes_through(grade: Grader) -> None:
    with pytest.raises(GraphBubbleUp):
        await grade(ChatModelEvaluator(ScriptedModel(script=[GraphInterrupt(())])))


async def test_cancellation_passes_through(server: ChatServer) -> None:
    server.mood.hold.clear()
    task = asyncio.create_task(ChatModelEvaluator(server.model()).agrade(QUESTION, PASSAGES, timeout_s=10))
    await asyncio.to_thread(server.arrived.wait, 5)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


# --- Many passages


async def test_many_passages_are_split_under_a_cap_on_parallel_calls_c049(server: ChatServer, grade: Grader) -> None:
    server.mood.replies, server.mood.max_parallel = [all_relevant], PARALLEL_CALLS
    passages = [Passage(id=f"p{i}", text=f"text {i}") for i in range(CALL_PASSAGES * 6)]

    grades = await grade(ChatModelEvaluator(server.model()), passages)

    assert [g.passage_id for g in grades] == [p.id for p in passages]
    assert {g.label for g in grades} == {"relevant"}
    assert len(server.requests) == 6
    assert server.peak <= PARALLEL_CALLS


async def test_a_failed_call_among_several_leaves_its_passages_ungraded_and_is_logged_c049(
    grade: Grader, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(prompt: str) -> str:
        if "poison" in prompt:
            raise TimeoutError
        return all_relevant(prompt)

    passages = [Passage(id=f"p{i}", text="poison" if i == 0 else "text") for i in range(CALL_PASSAGES + 1)]

    grades = await grade(ChatModelEvaluator(ScriptedModel(script=[answer])), passages)

    assert [g.label for g in grades] == ["ungraded"] * CALL_PASSAGES + ["relevant"]
    ours = [
        r.getMessage() for r in caplog.records if r.name.startswith("crag_middleware")
    ]  # a client that an earlier test left may be closed meanwhile
    assert ours == ["1 of 2 grading calls failed: timeout"]


async def test_one_huge_passage_costs_the_others_nothing_c052(server: ChatServer, grade: Grader) -> None:
    huge = Passage(id="huge", text="word " * 30_000)
    server.mood.replies = [all_relevant]

    grades = await grade(ChatModelEvaluator(server.model()), [huge, *PASSAGES])

    assert [g.label for g in grades] == ["relevant"] * 3
    assert len(json.dumps(server.requests[0])) < 8000


async def test_an_empty_passage_in_front_costs_the_others_nothing(grade: Grader) -> None:
    empty = Passage(id="empty", text="")

    grades = await grade(ChatModelEvaluator(ScriptedModel(script=[all_relevant])), [empty, *PASSAGES])

    assert [g.label for g in grades] == ["relevant"] * 3


def test_the_key_names_model_and_prompt_and_tells_instructions_of_ones_own_apart(server: ChatServer) -> None:
    model = server.model()
    own, mine, other = (ChatModelEvaluator(model, instructions=words).key for words in (None, "Grade.", "Grade well."))

    assert own == EvaluatorKey("ChatModelEvaluator", "deepseek-flash", VERSION)
    assert ChatModelEvaluator(model.with_retry()).key == own
    assert {key.prompt.split("+")[0] for key in (mine, other)} == {VERSION}
    assert len({own, mine, other}) == 3


async def test_a_chain_that_ends_in_what_is_no_text_is_a_failure_that_says_so(grade: Grader) -> None:
    with pytest.raises(GradingError, match="got dict") as caught:
        await grade(ChatModelEvaluator(ScriptedModel(script=[GOOD]) | JsonOutputParser()))

    assert caught.value.reason == "invalid_reply"


def test_one_evaluator_serves_threads_and_event_loops_at_the_same_time(server: ChatServer) -> None:
    server.mood.refuses = frozenset({"json_schema"})
    evaluator = ChatModelEvaluator(server.model())
    results: list[Any] = []

    def work(number: int) -> None:
        run = asyncio.run(evaluator.agrade(QUESTION, PASSAGES)) if number % 2 else evaluator.grade(QUESTION, PASSAGES)
        results.append(short(run))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [READ] * 8
    assert asyncio.run(evaluator.agrade(QUESTION, PASSAGES)) == evaluator.grade(QUESTION, PASSAGES)


def test_event_loops_come_and_go(server: ChatServer) -> None:
    model = server.model()
    asyncio.run(model.ainvoke("a first loop, before any inner call"))
    evaluator, rewriter = ChatModelEvaluator(model), ChatModelRewriter(model)

    grades = [asyncio.run(evaluator.agrade(QUESTION, PASSAGES)) for _ in range(3)]
    queries = [asyncio.run(rewriter.arewrite("q")) for _ in range(2)]

    assert [short(g) for g in grades] == [READ] * 3
    assert len(set(queries)) == 1


# --- Inside an agent


class Grading(AgentMiddleware[Any, Any]):
    """Grades and rewrites before the model, as the plan does."""

    transformers = (InternalCallTransformer,)

    def __init__(self, model: Any) -> None:
        self.evaluator, self.rewriter = ChatModelEvaluator(model), ChatModelRewriter(model)
        self.grades: Sequence[Grade] = ()

    def before_model(self, state: Any, runtime: Any) -> None:
        self.rewriter.rewrite("and the second one?", history=HISTORY)
        self.grades = self.evaluator.grade(QUESTION, PASSAGES)

    async def abefore_model(self, state: Any, runtime: Any) -> None:
        await self.rewriter.arewrite("and the second one?", history=HISTORY)
        self.grades = await self.evaluator.agrade(QUESTION, PASSAGES)


def by_kind(asked: Mapping[str, Any]) -> str:
    system = asked["messages"][0]["content"]
    return GOOD if "grade" in system else "What about plan B?" if "Rewrite" in system else "The answer."


ASK = {"messages": [("user", QUESTION)]}


@pytest.fixture
def agent(server: ChatServer) -> Any:
    server.mood.replies = [by_kind]
    return create_agent(server.model(), system_prompt="Be brief.", middleware=[Grading(server.model())])


async def test_inner_calls_do_not_show_in_a_message_stream_c023(agent: Any) -> None:
    sync = [chunk for chunk, _ in agent.stream(ASK, stream_mode="messages")]
    asynchronous = [chunk async for chunk, _ in agent.astream(ASK, stream_mode="messages")]

    for chunks in (sync, asynchronous):
        assert "".join(chunk.text for chunk in chunks) == "The answer."


def test_inner_calls_do_not_show_in_v3_events_c023(agent: Any) -> None:
    run = agent.stream_events(ASK, version="v3")

    assert ["".join(message.text) for message in run.messages] == ["The answer."]


async def test_inner_calls_are_tagged_in_v2_events(agent: Any) -> None:
    events = [e async for e in agent.astream_events(ASK, version="v2") if e["event"] == "on_chat_model_start"]

    assert [("nostream" in e["tags"], e["name"]) for e in events] == [(True, "crag.rewrite"), (True, "crag.grade"), (False, "ChatDeepSeek")]


class Names(BaseCallbackHandler):
    """Keeps the names and tags of model runs."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, bool]] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, *, tags: Any = None, **kwargs: Any) -> None:
        self.seen.append((kwargs["name"], "mine" in (tags or [])))


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_inner_calls_are_counted_and_named_for_the_users_callbacks_c025(agent: Any, asynchronous: bool) -> None:
    usage, names = UsageMetadataCallbackHandler(), Names()
    config = {"callbacks": [usage, names], "tags": ["mine"]}

    result = await agent.ainvoke(ASK, config) if asynchronous else agent.invoke(ASK, config)

    assert [name for name, _ in names.seen[:2]] == ["crag.rewrite", "crag.grade"]
    assert len(names.seen) == 3
    assert all(tagged for _, tagged in names.seen)
    assert usage.usage_metadata["deepseek-flash"]["total_tokens"] == 3 * 120
    assert result["messages"][-1].text == "The answer."


# --- Rewriting


async def test_a_follow_up_is_made_stand_alone_c030(rewrite: Callable[..., Awaitable[str]]) -> None:
    model = ScriptedModel(script=["<think>..</think>Rewritten: 'What does plan B cost?'"])

    query = await rewrite(ChatModelRewriter(model), "What about the second one?", history=HISTORY, timeout_s=5)

    assert query == "What does plan B cost?"
    assert "assistant: A costs 5, B costs 9." in model.prompts[0]


async def test_the_rewriter_sees_one_system_and_one_human_text_and_nothing_else_c011(rewrite: Callable[..., Awaitable[str]]) -> None:
    model = ScriptedModel(script=["other words"])

    await rewrite(ChatModelRewriter(model), "q", history=HISTORY, tried=("first",))

    assert [[m.type for m in messages] for messages in model.asked] == [["system", "human"]]
    assert all(isinstance(m.content, str) for m in model.asked[0])
    assert not any(isinstance(m, AIMessage) for m in model.asked[0])


@pytest.mark.parametrize(
    ("reply", "reason"),
    [("", "empty"), ("first", "repeated"), ("x" * 1001, "invalid_reply"), (TimeoutError(), "timeout"), (RuntimeError(), "failed")],
)
async def test_a_rewriting_that_fails_says_why_c030(rewrite: Callable[..., Awaitable[str]], reply: Any, reason: str) -> None:
    with pytest.raises(RewriteError) as caught:
        await rewrite(ChatModelRewriter(ScriptedModel(script=[reply])), "q", tried=("first",))

    assert caught.value.reason == reason


async def test_rewriting_asks_in_plain_text_without_thinking(server: ChatServer, rewrite: Callable[..., Awaitable[str]]) -> None:
    server.mood.replies = ["other words"]

    assert await rewrite(ChatModelRewriter(server.model()), "q", tried=("first",)) == "other words"
    assert server.forms() == ["plain"]
    assert server.requests[0]["thinking"] == {"type": "disabled"}


async def test_rewriting_goes_on_without_provider_options_that_are_refused(
    server: ChatServer, rewrite: Callable[..., Awaitable[str]]
) -> None:
    server.mood.replies, server.mood.refuses = ["other words"], frozenset({"thinking"})
    rewriter = ChatModelRewriter(server.model())

    assert [await rewrite(rewriter, "q") for _ in range(2)] == ["other words"] * 2
    assert ["thinking" in asked for asked in server.requests] == [True, False, False]
