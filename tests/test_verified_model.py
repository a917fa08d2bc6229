"""What streams is what was checked, and in everything else the model is the agent's own."""

import asyncio
import gc
import itertools
import json
import pickle
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware, ModelRetryMiddleware
from langchain.agents.structured_output import AutoStrategy, ProviderStrategy, ToolStrategy
from langchain_core.caches import BaseCache, InMemoryCache
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.globals import set_llm_cache
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.rate_limiters import BaseRateLimiter
from langchain_core.runnables import RunnableBinding
from langchain_core.tools import tool
from langchain_core.tracers import BaseTracer
from langchain_deepseek import ChatDeepSeek
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphBubbleUp
from pydantic import BaseModel

from crag_middleware.adapters.answer_text import Texts
from crag_middleware.adapters.verified_model import VerifiedChatModel
from crag_middleware.drive import arun, run
from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.ports import Bound
from crag_middleware.stages.gate import Gate
from crag_middleware.steps import Call, Plan, ask
from crag_middleware.testing import ScriptedChatModel
from crag_middleware.world import World
from tests.support.models import NarrowModel
from tests.support.streaming_models import (
    USAGE,
    AsyncStreaming,
    Streaming,
    SyncStreaming,
    Whole,
    blocks,
    calling,
    reasoned,
    serve_stream,
    words,
)

ASK = {"messages": [("user", "Which port?")]}
TEXT = "The port is 9100 [1]. It was 80 before."


class Through:
    """An answer of which everything is let through at once."""

    waits = False

    def feed(self, text: str) -> Plan[str]:
        return text
        yield

    def end(self, *, is_final: bool) -> Plan[str]:
        return ""
        yield

    def judge(self, draft: str) -> Plan[str | None]:
        raise AssertionError("it does not wait")
        yield

    def failed(self, reason: str) -> None:
        raise AssertionError("it wants no other draft")

    def told(self) -> dict[str, Any] | None:
        return None


class BySentence(Through):
    """Holds each sentence until it is complete, drops those with `lie` in them, and tells how many it saw."""

    def __init__(self) -> None:
        self._gate = Gate()
        self.seen = 0
        self.is_final: bool | None = None

    def feed(self, text: str) -> Plan[str]:
        return self._passed([sentence.text for sentence in self._gate.feed(text)])
        yield

    def end(self, *, is_final: bool) -> Plan[str]:
        self.is_final = is_final
        return self._passed([sentence.text for sentence in self._gate.end()])
        yield

    def _passed(self, sentences: list[str]) -> str:
        self.seen += len(sentences)
        return "".join(sentence for sentence in sentences if "lie" not in sentence)

    def told(self) -> dict[str, Any] | None:
        return {"crag": {"sentences": self.seen, "is_final": self.is_final}}


class ButLast(Through):
    """Holds the last character."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> Plan[str]:
        whole, self._held = self._held + text, (self._held + text)[-1:]
        return whole[:-1]
        yield

    def end(self, *, is_final: bool) -> Plan[str]:
        return self._held
        yield


class Judged(Through):
    """Waits, and wants another draft as long as one has `BAD` in it, at most twice; each judging goes through a port."""

    waits = True

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.reason = ""

    def judge(self, draft: str) -> Plan[str | None]:
        is_bad = yield from ask(Call("checker", (draft,), {}, 5.0, bool, TenantError))
        self.judged.append(draft)
        return "Without BAD, please." if is_bad and len(self.judged) <= 2 else None

    def failed(self, reason: str) -> None:
        self.reason = reason

    def told(self) -> dict[str, Any] | None:
        return {"crag": {"judged": len(self.judged), "failed": self.reason}}


def _world() -> World:
    def check(draft: str) -> bool:
        return "BAD" in draft

    return World({"checker": Bound("checker", check, None, instant=True)}, lambda stage: None)


def perform(plan: Plan[Any]) -> Any:
    return run(plan, _world())


async def aperform(plan: Plan[Any]) -> Any:
    return await arun(plan, _world())


def verified(model: BaseChatModel, begin: Callable[[], Any] = Through) -> VerifiedChatModel:
    return VerifiedChatModel.around(model, begin, perform, aperform)


class Wrapping(AgentMiddleware):
    """Puts the checked model in the place of the agent's."""

    def __init__(self, begin: Callable[[], Any] | None = Through) -> None:
        self.begin = begin

    def _request(self, request: Any) -> Any:
        return request if self.begin is None else request.override(model=verified(request.model, self.begin))

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return handler(self._request(request))

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        return await handler(self._request(request))


@tool
def look_up(word: str) -> str:
    """Looks a word up."""
    return "9100"


def agent_of(model: BaseChatModel, begin: Callable[[], Any] | None = Through, *more: Any, **options: Any) -> Any:
    return create_agent(model, middleware=[*more, Wrapping(begin)], **options)


# The models: a name, what makes a fresh one, and whether it takes tools.

_server: list[str] = []


@pytest.fixture(scope="module", autouse=True)
def _serving() -> Iterator[None]:
    with serve_stream(reasoned) as url:
        _server[:] = [url]
        yield


def called() -> AIMessage:
    return AIMessage("", tool_calls=[{"name": "look_up", "args": {"word": "port"}, "id": "call-1"}])


MODELS: dict[str, Callable[[], BaseChatModel]] = {
    "fake": lambda: GenericFakeChatModel(messages=iter([AIMessage(TEXT, additional_kwargs={"note": "kept"})] * 3)),
    "scripted": lambda: ScriptedChatModel(replies=[called(), TEXT]),
    "words": lambda: Streaming(scripts=[calling("look_up", {"word": "port"}, text="One moment."), words(TEXT)]),
    "blocks": lambda: Streaming(scripts=[blocks(TEXT)]),
    "v1": lambda: Streaming(scripts=[calling("look_up", {"word": "port"}), blocks(TEXT)], output_version="v1"),
    "streaming": lambda: Streaming(scripts=[words(TEXT)], streaming=True),
    "not streaming": lambda: Streaming(scripts=[words(TEXT)], streaming=False),
    "disabled": lambda: Streaming(scripts=[words(TEXT)], disable_streaming=True),
    "disabled with tools": lambda: Streaming(
        scripts=[calling("look_up", {"word": "port"}), words(TEXT)], disable_streaming="tool_calling", binds="binding"
    ),
    "sync only": lambda: SyncStreaming(scripts=[words(TEXT)]),
    "async only": lambda: AsyncStreaming(scripts=[words(TEXT)]),
    "no stream": lambda: Whole(scripts=[words(TEXT)]),
    "narrow": lambda: NarrowModel(script=[TEXT]),
    "deepseek": lambda: ChatDeepSeek(model="deepseek-flash", api_key="test-key", base_url=_server[0], max_retries=0),
    "openai": lambda: ChatOpenAI(
        model="gpt-test", api_key="test-key", base_url=_server[0], max_retries=0, stream_usage=True, temperature=0
    ),
}
TAKES_TOOLS = frozenset(MODELS) - {"fake", "narrow"}
models = pytest.mark.parametrize("name", MODELS)


def plain(value: Any) -> Any:
    """The value as JSON without what differs from run to run: ids by the order they came in, no times."""

    def dumped(part: Any) -> Any:
        if isinstance(part, BaseModel):
            return {"class": type(part).__name__, **{name: getattr(part, name) for name in type(part).model_fields}}
        return repr(part)

    raw = json.dumps(value, default=dumped)
    raw = re.sub(r'"timestamp": \d+', '"timestamp": 0', raw)
    ids: dict[str, str] = {}
    return json.loads(re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", lambda found: ids.setdefault(found[0], f"id-{len(ids)}"), raw))


async def collected(items: AsyncIterator[Any]) -> list[Any]:
    return [item async for item in items]


async def _v3(agent: Any) -> list[Any]:
    return await collected(await agent.astream_events(ASK, version="v3"))


CALLS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda model: model.invoke("Which port?"),
    "ainvoke": lambda model: asyncio.run(model.ainvoke("Which port?")),
    "stream": lambda model: list(model.stream("Which port?")),
    "astream": lambda model: asyncio.run(collected(model.astream("Which port?"))),
    "batch": lambda model: model.batch(["Which port?"] * 2, {"max_concurrency": 1}),
    "abatch": lambda model: asyncio.run(model.abatch(["Which port?"] * 2, {"max_concurrency": 1})),
    "generate": lambda model: vars(model.generate([[HumanMessage("Which port?")]]).model_copy(update={"run": None})),
}
RUNS: dict[str, Callable[[Any], Any]] = {
    "invoke": lambda agent: agent.invoke(ASK),
    "messages": lambda agent: list(agent.stream(ASK, stream_mode="messages")),
    "amessages": lambda agent: asyncio.run(collected(agent.astream(ASK, stream_mode="messages"))),
    "values": lambda agent: list(agent.stream(ASK, stream_mode="values")),
    "aupdates": lambda agent: asyncio.run(collected(agent.astream(ASK, stream_mode="updates"))),
    "v3": lambda agent: list(agent.stream_events(ASK, version="v3")),
    "av3": lambda agent: asyncio.run(_v3(agent)),
    "v2": lambda agent: asyncio.run(collected(agent.astream_events(ASK, version="v2"))),
}


class TestLetThrough:
    """With an answer of which all is let through, nothing tells the checked model from the bare one."""

    @models
    @pytest.mark.parametrize("how", CALLS)
    def test_every_chunk_and_message_of_a_call_is_the_inner_models(self, name: str, how: str) -> None:
        bare, checked = CALLS[how](MODELS[name]()), CALLS[how](verified(MODELS[name]()))

        assert plain(checked) == plain(bare)

    @models
    @pytest.mark.parametrize("how", RUNS)
    def test_every_chunk_event_and_state_of_an_agent_is_as_with_the_bare_model(self, name: str, how: str) -> None:
        tools = [look_up] if name in TAKES_TOOLS else []

        bare = RUNS[how](agent_of(MODELS[name](), None, tools=tools))
        checked = RUNS[how](agent_of(MODELS[name](), tools=tools))

        assert plain(checked) == plain(bare)
        assert "9100" in json.dumps(plain(checked))


class Runs(BaseTracer):
    """Keeps the runs of models, with their parents' names."""

    def __init__(self) -> None:
        super().__init__()
        self.models: list[Any] = []

    def _persist_run(self, run: Any) -> None:
        pass

    def _on_llm_end(self, run: Any) -> None:
        self.models.append(run)

    def _on_llm_error(self, run: Any) -> None:
        self.models.append(run)


class Crossed(Through):
    """Puts a cross in the place of each piece."""

    def feed(self, text: str) -> Plan[str]:
        return text and "x"
        yield


class Delegating(Whole):
    """A model that calls another one to answer, which says `UNSEEN.`."""

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=Streaming(scripts=[words("UNSEEN.")]).invoke(messages))])

    def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        for chunk in Streaming(scripts=[words("UNSEEN.")]).stream(messages):
            yield ChatGenerationChunk(message=chunk)


class TestCallbacks:
    @pytest.mark.parametrize("how", ["invoke", "messages", "v3"])
    @pytest.mark.parametrize("begin", [Through, Judged])
    def test_a_tracer_sees_one_run_under_the_inner_models_name_with_what_went_out(self, how: str, begin: Any) -> None:
        def traced(begin: Any) -> Any:
            tracer = Runs()
            RUNS[how](agent_of(MODELS["openai"]().model_copy(update={"callbacks": [tracer]}), begin))
            (seen,) = tracer.models
            return seen

        bare, checked = traced(None), traced(begin)

        assert checked.name == bare.name == "ChatOpenAI"
        assert plain([checked.extra, checked.inputs, checked.serialized]) == plain([bare.extra, bare.inputs, bare.serialized])
        assert plain(checked.outputs)["generations"][0][0]["text"] == plain(bare.outputs)["generations"][0][0]["text"]

    @pytest.mark.parametrize("how", ["invoke", "stream", "astream"])
    def test_usage_is_counted_once(self, how: str) -> None:
        usage = UsageMetadataCallbackHandler()

        CALLS[how](verified(MODELS["deepseek"]().model_copy(update={"callbacks": [usage]})))

        assert {name: total["total_tokens"] for name, total in usage.usage_metadata.items()} == {"deepseek-flash": 120}

    def test_the_callbacks_tags_and_metadata_of_the_inner_model_serve_and_stay_as_they_were(self) -> None:
        traced = Runs()
        model = Streaming(scripts=[words(TEXT)], callbacks=[traced], tags=["own"], metadata={"team": "a"})
        before = dict(model.metadata or {})

        verified(model).invoke("Which port?", {"metadata": {"turn": 1}})

        (seen,) = traced.models
        assert "own" in seen.tags
        assert (seen.extra["metadata"]["team"], seen.extra["metadata"]["turn"]) == ("a", 1)
        assert model.metadata == before

    def test_the_parameters_that_traces_show_are_the_inner_models(self) -> None:
        class Own(Whole):
            def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
                return {"own": 1, "stop": stop, **kwargs}

        traced = Runs()

        verified(Own(scripts=[words(TEXT)], callbacks=[traced])).invoke("x", stop=["y"], top_p=0.5)

        assert traced.models[0].extra["invocation_params"] == {"own": 1, "stop": ["y"], "top_p": 0.5}

    @pytest.mark.parametrize("how", ["messages", "amessages", "v3", "av3"])
    def test_models_that_the_inner_one_calls_in_turn_show_nothing(self, how: str) -> None:
        shown = RUNS[how](agent_of(Delegating(scripts=[]), Crossed))

        assert "x" in json.dumps(plain(shown))
        assert "UNSEEN" not in json.dumps(plain(shown))

    def test_v2_events_of_models_that_the_inner_one_calls_have_the_documented_tag(self) -> None:
        events = [event for event in RUNS["v2"](agent_of(Delegating(scripts=[]), Crossed)) if event["event"] == "on_chat_model_stream"]

        assert "".join(event["data"]["chunk"].text for event in events if "nostream" not in event["tags"]) == "x"
        assert "".join(event["data"]["chunk"].text for event in events if "nostream" in event["tags"]) == "UNSEEN."


class TestLikeTheInnerModel:
    @pytest.mark.parametrize("binds", ["self", "binding", "retry", "other"])
    @pytest.mark.parametrize("how", ["invoke", "ainvoke"])
    def test_whatever_bind_tools_returns_is_checked(self, binds: str, how: str) -> None:
        model = Streaming(scripts=[words("All lies. The port is 9100.")], binds=binds)

        bound = verified(model, BySentence).bind_tools([look_up], tool_choice="any")
        answer = CALLS[how](bound)

        assert answer.text.strip() == "The port is 9100."
        assert answer.response_metadata["crag"]["sentences"] == 2
        assert answer.response_metadata["model_name"] == ("with-tools" if binds == "other" else "blocks-1")
        if binds == "binding":
            assert isinstance(bound, RunnableBinding)
            assert model.options == [{"tools": [look_up], "tool_choice": "any"}]

    def test_a_model_whose_bind_tools_returns_what_cannot_be_checked_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"`bind_tools` returns a RunnableSequence.*verify=False"):
            verified(Streaming(scripts=[words(TEXT)], binds="sequence")).bind_tools([look_up])

    def test_a_model_without_tools_says_so_itself(self) -> None:
        with pytest.raises(NotImplementedError):
            verified(MODELS["fake"]()).bind_tools([look_up])

    def test_bound_options_reach_the_inner_model(self) -> None:
        model = Streaming(scripts=[words(TEXT)])

        verified(model).bind(temperature=0.1, stop=["x"]).invoke("Which port?")

        assert model.options == [{"temperature": 0.1}]

    def test_retries_and_fallbacks_around_it_work(self) -> None:
        flaky = Streaming(scripts=[[ValueError("down")], words(TEXT)])
        down = Streaming(scripts=[[ValueError("down")]])

        assert verified(flaky).with_retry(wait_exponential_jitter=False).invoke("Which port?").text == TEXT
        assert verified(down).with_fallbacks([verified(Streaming(scripts=[words(TEXT)]))]).invoke("Which port?").text == TEXT

    @pytest.mark.parametrize("how", ["invoke", "messages"])
    def test_retry_and_fallback_middlewares_work_with_it(self, how: str) -> None:
        flaky = Streaming(scripts=[[ValueError("down")], words(TEXT)])
        down = Streaming(scripts=[[ValueError("down")]])
        retry = ModelRetryMiddleware(max_retries=1, initial_delay=0, jitter=False)

        for agent in (agent_of(flaky, Through, retry), agent_of(down, Through, ModelFallbackMiddleware(Streaming(scripts=[words(TEXT)])))):
            shown = RUNS[how](agent)
            texts = [shown["messages"][-1].text] if how == "invoke" else [chunk.text for chunk, _ in shown]
            assert "".join(texts) == TEXT

    def test_its_rate_limiter_is_asked_once_for_each_draft(self) -> None:
        class Counting(BaseRateLimiter):
            asked = 0

            def acquire(self, *, blocking: bool = True) -> bool:
                self.asked += 1
                return True

            async def aacquire(self, *, blocking: bool = True) -> bool:
                return self.acquire()

        for how in CALLS:
            if how in ("batch", "abatch"):
                continue
            limiter = Counting()
            CALLS[how](verified(Streaming(scripts=[words("BAD."), words(TEXT)], rate_limiter=limiter), Judged))
            assert limiter.asked == 2

    def test_what_a_middleware_reads_of_it_is_the_inner_models(self) -> None:
        model = verified(MODELS["deepseek"]())
        inner = model.inner

        assert (model.model_name, model.temperature, model.max_retries) == ("deepseek-flash", None, 0)
        assert model.profile == inner.profile
        assert model._llm_type == inner._llm_type
        assert model._get_ls_params() == inner._get_ls_params()
        assert model.asdict() == inner.asdict()
        assert not hasattr(model, "no_such_thing")

    def test_it_counts_tokens_as_the_inner_model_does(self) -> None:
        class Counts(Whole):
            def get_token_ids(self, text: str) -> list[int]:
                return [7] * len(text)

            def get_num_tokens(self, text: str) -> int:
                return 41

            def get_num_tokens_from_messages(self, messages: list[BaseMessage]) -> int:  # as older ones have it
                return 42

        model = verified(Counts(scripts=[]))

        assert (model.get_token_ids("ab"), model.get_num_tokens("abc")) == ([7, 7], 41)
        assert model.get_num_tokens_from_messages([HumanMessage("x")]) == 42

    def test_a_copy_with_changes_changes_a_copy_of_the_inner_model(self) -> None:
        model = Streaming(scripts=[words("All lies. Fine.")], temperature=0.7)

        copied = verified(model, BySentence).model_copy(update={"temperature": 0.0, "tags": ["x"]})

        assert (copied.temperature, copied.tags, model.temperature, model.tags) == (0.0, ["x"], 0.7, None)
        assert "lies" not in copied.invoke("Which port?").text

    def test_it_can_be_shown_and_pickled_and_shows_no_key(self) -> None:
        model = verified(MODELS["deepseek"]())
        revived = pickle.loads(pickle.dumps(verified(Streaming(scripts=[words(TEXT)]))))

        assert "test-key" not in repr(model) + str(model._serialized)
        assert revived.invoke("Which port?").text == TEXT

    def test_concurrent_calls_of_one_model_do_not_mix(self) -> None:
        class Echo(Streaming):
            def _next(self, messages: list[BaseMessage], options: Any) -> Iterator[ChatGenerationChunk]:
                for number in range(20):
                    yield ChatGenerationChunk(message=AIMessageChunk(content=f"{messages[-1].text} {number}. "))

        model = verified(Echo(scripts=[]), BySentence)

        async def several() -> list[AIMessage]:
            return await asyncio.gather(*(model.ainvoke(f"n{i}", stream=True) for i in range(8)))

        for answers in (asyncio.run(several()), model.batch([f"n{i}" for i in range(8)], stream=True)):
            for i, answer in enumerate(answers):
                assert answer.text.split() == [word for number in range(20) for word in (f"n{i}", f"{number}.")]

    def test_a_checked_model_around_a_checked_model_checks_twice(self) -> None:
        class Upper(Through):
            def feed(self, text: str) -> Plan[str]:
                return text.upper()
                yield

        model = verified(verified(Streaming(scripts=[words("All lies. Fine.")], binds="binding"), BySentence), Upper)

        assert model.bind_tools([look_up]).invoke("x").text.strip() == "FINE."
        assert "".join(chunk.text for chunk in model.stream("x")).strip() == "FINE."

    @pytest.mark.parametrize("how", ["v3", "av3"])
    def test_a_model_with_events_of_its_own_and_no_chunks_is_checked_as_a_whole(self, how: str) -> None:
        class Native(Whole):
            def _stream_chat_model_events(self, *args: Any, **kwargs: Any) -> Any:
                raise AssertionError("these would show what was not checked")

            _astream_chat_model_events = _stream_chat_model_events

        raw = json.dumps(plain(RUNS[how](agent_of(Native(scripts=[words("All lies. Fine.")]), BySentence))))

        assert "Fine." in raw
        assert "lies" not in raw

    def test_the_first_of_several_generations_is_checked(self) -> None:
        result = verified(Whole(scripts=[words("All lies. Fine.")], n=2), BySentence).generate([[HumanMessage("x")]])

        assert [generation.text.strip() for generation in result.generations[0]] == ["Fine.", "All lies. Fine."]


class Port(BaseModel):
    """A port."""

    number: int


class TestStructuredOutput:
    @staticmethod
    def _agent(strategy: Any, model: BaseChatModel, begin: Any) -> Any:
        return agent_of(model, begin, response_format=strategy, tools=[look_up])

    @pytest.mark.parametrize("begin", [Through, BySentence, Judged])
    def test_the_tool_strategy_works(self, begin: Any) -> None:
        model = Streaming(scripts=[calling("Port", {"number": 9100})], binds="binding")

        result = self._agent(ToolStrategy(Port), model, begin).invoke(ASK)

        assert result["structured_response"] == Port(number=9100)
        assert model.options[0]["tool_choice"] == "any"

    @pytest.mark.parametrize("strategy", [ProviderStrategy(Port), AutoStrategy(Port), Port])
    @pytest.mark.parametrize("begin", [BySentence, Judged])
    def test_data_of_a_provider_is_passed_on_unchecked(self, strategy: Any, begin: Any) -> None:
        model = Streaming(scripts=[words('{"number": 9100}')], binds="binding", profile={"structured_output": True})

        result = self._agent(strategy, model, begin).invoke(ASK)

        assert result["structured_response"] == Port(number=9100)
        assert "response_format" in model.options[0]
        assert "crag" not in result["messages"][-1].response_metadata

    def test_what_is_asked_of_the_provider_is_as_with_the_bare_model(self) -> None:
        asked: list[Mapping[str, Any]] = []

        def answer(request: Mapping[str, Any]) -> list[dict[str, Any]]:
            asked.append(request)
            return [{"role": "assistant", "content": '{"number": 9100}'}]

        with serve_stream(answer) as url:
            openai = ChatOpenAI(model="gpt-4.1", api_key="test-key", base_url=url, max_retries=0)
            deepseek = ChatDeepSeek(model="deepseek-flash", api_key="test-key", base_url=url, max_retries=0)
            for begin, model, strategy in itertools.product((None, BySentence), (openai, deepseek), (ProviderStrategy, ToolStrategy, None)):
                self._agent(strategy(Port) if strategy else Port, model, begin).invoke(ASK)

        bare, checked = asked[: len(asked) // 2], asked[len(asked) // 2 :]
        assert checked == bare
        assert {"response_format", "tools"} <= bare[0].keys()

    def test_deepseek_is_asked_for_a_schema_where_it_takes_one(self) -> None:
        model = ChatDeepSeek(model="deepseek-flash", api_key="test-key")
        schema = ProviderStrategy(Port).to_model_kwargs()

        bound = verified(model).bind_tools([look_up], **schema)

        assert bound.bound.api_base == model.bind_tools([look_up], **schema, strict=True).bound.api_base != model.api_base

    def test_a_json_mode_that_is_bound_is_passed_on_unchecked(self) -> None:
        model = verified(Streaming(scripts=[words("lie")]), BySentence)

        assert model.bind(response_format={"type": "json_object"}).invoke("x").text == "lie"
        assert model.bind(response_format={"type": "text"}).invoke("x").text == ""

    def test_with_structured_output_is_the_inner_models(self) -> None:
        model = Streaming(scripts=[calling("Port", {"number": 9100})])

        assert verified(model, BySentence).with_structured_output(Port).invoke("x") == Port(number=9100)


class TestCache:
    @staticmethod
    @contextmanager
    def _cached(where: str) -> Iterator[BaseCache | None]:
        cache = InMemoryCache()
        set_llm_cache(cache if where == "global" else None)
        try:
            yield cache if where == "own" else None
        finally:
            set_llm_cache(None)

    @pytest.mark.parametrize("where", ["global", "own"])
    @pytest.mark.parametrize("how", ["invoke", "messages", "amessages", "v3", "av3"])
    def test_a_kept_answer_is_used_and_checked_again(self, where: str, how: str) -> None:
        with self._cached(where) as cache:
            model = Streaming(scripts=[words("All lies. Fine.")], cache=cache)
            message = [HumanMessage("Which port?", id="1")]
            first = verified(model, Through).invoke(message)
            agent = agent_of(model, BySentence)

            shown = json.dumps(plain(RUNS[how](agent)))

            assert first.text == "All lies. Fine."
            assert len(model.requests) == 1
            assert "Fine." in shown
            assert "lies" not in shown

    @pytest.mark.parametrize("where", ["global", "own"])
    def test_the_bare_model_and_the_checked_one_do_not_share_answers(self, where: str) -> None:
        with self._cached(where) as cache:
            model = Streaming(scripts=[words("All lies. Fine.")], cache=cache)

            answers = [verified(model, BySentence).invoke("x").text.strip(), model.invoke("x").text, model.invoke("x").text]

            assert answers == ["Fine.", "All lies. Fine.", "All lies. Fine."]
            assert len(model.requests) == 2

    @pytest.mark.parametrize("how", ["invoke", "ainvoke"])
    def test_a_kept_answer_that_is_no_longer_good_enough_is_written_anew(self, how: str) -> None:
        with self._cached("global"):
            model = Streaming(scripts=[words("BAD."), words("Good.")])
            CALLS[how](verified(model, Through))

            answers = [CALLS[how](verified(model, Judged)).text for _ in range(2)]

            assert answers == ["Good."] * 2
            assert len(model.requests) == 2

    def test_a_model_that_keeps_nothing_keeps_nothing(self) -> None:
        with self._cached("global"):
            model = Streaming(scripts=[words(TEXT)], cache=False)

            for _ in range(2):
                verified(model).invoke("x")

            assert len(model.requests) == 2

    def test_a_cache_that_was_never_set_is_missed_as_by_the_bare_model(self) -> None:
        with pytest.raises(ValueError, match="no cache found"):
            verified(Streaming(scripts=[words(TEXT)], cache=True)).invoke("x")


def named_blocks(text: str) -> list[AIMessageChunk]:
    """Blocks whose first piece of text names them, and an end without content."""
    first, *rest = words(text)[1:-1]
    parts = [
        {"type": "text", "text": str(first.text), "id": "t1", "index": 0},
        *({"type": "text", "text": str(r.text), "index": 0} for r in rest),
    ]
    return [*(AIMessageChunk(content=[part]) for part in parts), AIMessageChunk(content="", chunk_position="last")]


SHAPES = [
    words,
    blocks,
    named_blocks,
    lambda text: [AIMessageChunk(content=text, chunk_position="last")],
]


class TestHolding:
    @pytest.mark.parametrize("how", ["stream", "astream"])
    def test_a_token_is_shown_before_the_next_one_is_asked_for(self, how: str) -> None:
        model = Streaming(scripts=[words(TEXT)])
        log = model.log

        def follow(chunks: Iterator[Any]) -> None:
            for chunk in chunks:
                log.append(f"shown {chunk.text}")

        async def afollow() -> None:
            async for chunk in verified(model).astream("x"):
                log.append(f"shown {chunk.text}")

        follow(verified(model).stream("x")) if how == "stream" else asyncio.run(afollow())

        assert log[:7] == ["ask", "", "shown ", "The", "shown The", " port", "shown  port"]

    @pytest.mark.parametrize("how", ["stream", "astream"])
    @pytest.mark.parametrize("make", [words, blocks])
    def test_a_sentence_is_shown_as_soon_as_it_is_complete_and_nothing_empty_before(self, how: str, make: Any) -> None:
        chunks = CALLS[how](verified(Streaming(scripts=[make("One two three four. Five six.")]), BySentence))

        texts = [chunk.text for chunk in chunks if chunk.text]
        assert texts == ["One two three four.", " Five six."]
        empty = [chunk for chunk in chunks if not chunk.text]
        assert len(empty) <= (3 if make is words else 8)  # the first and the last of the stream, and usage; or reasoning and annotations

    @pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
    @pytest.mark.parametrize("make", SHAPES)
    def test_what_is_held_to_the_end_comes_out_in_the_shape_of_the_rest(self, how: str, make: Any) -> None:
        bare, checked = (
            CALLS[how](model)
            for model in (Streaming(scripts=[make("No stop at all")]), verified(Streaming(scripts=[make("No stop at all")]), BySentence))
        )

        if "stream" in how:
            bare, checked = sum(bare[1:], bare[0]), sum(checked[1:], checked[0])
        assert checked.content == bare.content
        assert checked.content_blocks == bare.content_blocks
        assert checked.usage_metadata == bare.usage_metadata
        assert checked.response_metadata == {**bare.response_metadata, "crag": {"sentences": 1, "is_final": True}}

    @pytest.mark.parametrize("how", ["stream", "astream"])
    @pytest.mark.parametrize("begin", [BySentence, ButLast])
    def test_all_chunks_of_an_answer_have_one_id(self, begin: Any, how: str) -> None:
        unmarked = [*(AIMessageChunk(content=word, id="own-1") for word in ("No ", "stop")), AIMessageChunk(content="")]

        chunks = CALLS[how](verified(Streaming(scripts=[unmarked]), begin))

        assert "".join(chunk.text for chunk in chunks) == "No stop"
        assert {chunk.id for chunk in chunks if chunk.text} == {"own-1"}

    @pytest.mark.parametrize(
        "more",
        [
            {"additional_kwargs": {"reasoning_content": "hm"}},
            {"usage_metadata": USAGE},
            {"tool_call_chunks": calling("look_up", {})[0].tool_call_chunks},
        ],
    )
    def test_what_does_not_wait_goes_out_without_the_text_it_came_with(self, more: dict[str, Any]) -> None:
        model = Streaming(scripts=[[AIMessageChunk(content="Half a", **more), AIMessageChunk(content=" sentence")]])

        first, *rest = verified(model, BySentence).stream("x")

        assert {name: getattr(first, name) for name in more} == more
        assert first.text == ""
        assert "".join(chunk.text for chunk in rest) == "Half a sentence"

    @pytest.mark.parametrize("how", ["stream", "astream"])
    def test_what_is_said_beside_a_text_that_is_dropped_goes_out_at_the_end(self, how: str) -> None:
        class Nothing(Through):
            def feed(self, text: str) -> Plan[str]:
                return ""
                yield

        unmarked = [AIMessageChunk(content="lie", response_metadata={"model_provider": "test", "note": n}) for n in (1, 2)]

        first, *rest = CALLS[how](verified(Streaming(scripts=[unmarked]), Nothing))

        assert first.text == ""
        assert first.response_metadata == {"model_provider": "test", "note": 3, "logprobs": None}
        assert [(chunk.text, chunk.chunk_position) for chunk in rest] == [("", "last")]

    @pytest.mark.parametrize("how", ["messages", "amessages"])
    @pytest.mark.parametrize("name", sorted(TAKES_TOOLS))
    def test_what_streams_has_the_id_and_the_text_of_what_is_saved(self, name: str, how: str) -> None:
        async def both() -> list[Any]:
            return await collected(agent.astream(ASK, stream_mode=["messages", "values"]))

        agent = agent_of(MODELS[name](), BySentence, tools=[look_up])
        parts = list(agent.stream(ASK, stream_mode=["messages", "values"])) if how == "messages" else asyncio.run(both())

        streamed: dict[str, str] = {}
        for mode, part in parts:
            if mode == "messages" and part[0].type != "tool":
                streamed[part[0].id] = streamed.get(part[0].id, "") + part[0].text
        saved = {m.id: m.text for m in parts[-1][1]["messages"] if isinstance(m, AIMessage)}
        assert {id_: text for id_, text in streamed.items() if text} == {id_: text for id_, text in saved.items() if text}
        assert parts[-1][1]["messages"][-1].response_metadata["crag"]["is_final"] is True

    def test_a_last_chunk_that_is_not_the_last_loses_nothing(self) -> None:
        script = [AIMessageChunk(content="One ", chunk_position="last"), AIMessageChunk(content="two"), AIMessageChunk(content=" three")]

        assert "".join(chunk.text for chunk in verified(Streaming(scripts=[script]), BySentence).stream("x")) == "One two three"

    def test_reasoning_tool_calls_and_usage_do_not_wait_for_a_held_text(self) -> None:
        script = [
            AIMessageChunk(content="Half a"),
            AIMessageChunk(content="", additional_kwargs={"reasoning_content": "hm"}),
            AIMessageChunk(content="", usage_metadata=USAGE),
            *calling("look_up", {"word": "port"})[:-1],
            AIMessageChunk(content=" sentence"),
        ]
        model = Streaming(scripts=[script])

        chunks = []
        for chunk in verified(model, BySentence).stream("x"):
            model.log.append("shown")
            chunks.append(chunk)

        assert model.log == ["ask", "Half a", "", "shown", "", "shown", "", "shown", "", "shown", " sentence", "closed", "shown"]
        whole = sum(chunks[1:], chunks[0])
        assert whole.text == "Half a sentence"
        assert whole.tool_calls[0]["args"] == {"word": "port"}
        assert whole.additional_kwargs == {"reasoning_content": "hm"}
        assert whole.usage_metadata == USAGE
        assert whole.response_metadata["crag"]["is_final"] is False

    def test_the_text_after_blocks_of_a_whole_message_stays_in_its_place(self) -> None:
        call = {"type": "tool_use", "id": "call-1", "name": "look_up", "input": {}}
        content = [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "No stop", "id": "t1"}, call]

        answer = verified(Whole(scripts=[[AIMessageChunk(content=content)]]), BySentence).invoke("x")

        assert answer.content == content

    def test_what_is_held_over_several_blocks_comes_out_in_the_last(self) -> None:
        content: list[Any] = [{"type": "text", "text": "One. Two"}, {"type": "text", "text": " three"}]

        answer = verified(Whole(scripts=[[AIMessageChunk(content=content)]]), BySentence).invoke("x")

        assert answer.content == [{"type": "text", "text": "One. "}, {"type": "text", "text": "Two three"}]

    @pytest.mark.parametrize("how", ["invoke", "stream"])
    def test_a_call_that_cannot_be_read_is_a_call(self, how: str) -> None:
        call = tool_call_chunk(name="look_up", args="[unreadable", id="call-1", index=0)
        script = [AIMessageChunk(content="One moment", tool_call_chunks=[call]), AIMessageChunk(content="", chunk_position="last")]

        answer = CALLS[how](verified(Streaming(scripts=[script]), BySentence))
        answer = sum(answer[1:], answer[0]) if how == "stream" else answer

        assert answer.invalid_tool_calls
        assert answer.response_metadata["crag"]["is_final"] is False

    def test_a_stream_without_chunks_fails_as_with_the_bare_model(self) -> None:
        for begin in (BySentence, Judged):
            with pytest.raises(ValueError, match="No generation chunks"):
                list(verified(Streaming(scripts=[[]]), begin).stream("x"))

    @given(
        text=st.text(alphabet="ab .。[1]\n好", min_size=1, max_size=60),
        cuts=st.lists(st.integers(0, 60), max_size=20),
        shape=st.sampled_from(["string", "block", "indexed", "mixed"]),
    )
    def test_however_the_text_is_cut_and_shaped_the_same_comes_out(self, text: str, cuts: list[int], shape: str) -> None:
        def content(piece: str, number: int) -> Any:
            if shape == "string":
                return piece
            if shape == "mixed" and number % 2:
                return [piece]
            return [{"type": "text", "text": piece, **({"index": 0} if shape == "indexed" else {})}]

        ends = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
        script = [AIMessageChunk(content=content(text[a:b], n)) for n, (a, b) in enumerate(itertools.pairwise(ends))]

        chunks = list(verified(Streaming(scripts=[script]), BySentence).stream("x"))

        assert "".join(chunk.text for chunk in chunks) == text
        assert sum(chunks[1:], chunks[0]).text == text

    @given(
        st.lists(
            st.sampled_from(["", "a", {"type": "text", "text": "b"}, {"type": "text", "text": ""}, {"type": "text"}, {"type": "image"}])
        )
    )
    def test_content_of_which_all_passes_stays_as_it_is(self, content: list[Any]) -> None:
        assert perform(Texts().checked(content, Through().feed, lambda: Through().end(is_final=True))) == content


class TestWaiting:
    """Nothing of a draft is shown before it was judged."""

    @pytest.mark.parametrize("how", [*CALLS, *RUNS])
    def test_a_rejected_draft_appears_nowhere_but_in_the_usage(self, how: str) -> None:
        model = Streaming(scripts=[words("BAD draft."), words(TEXT)])

        shown = RUNS[how](agent_of(model, Judged)) if how in RUNS else CALLS[how](verified(model, Judged))

        raw = json.dumps(plain(shown))
        assert "BAD" not in raw
        assert "Without" not in raw
        assert "9100" in raw
        counts = [int(count) for count in re.findall(r'"total_tokens": (\d+)', raw)]
        assert counts[0] == 30 or counts[:2] == [15, 15]  # both drafts in one message, or each in a chunk of its own

    def test_the_model_is_asked_again_with_its_draft_and_the_correction(self) -> None:
        model = Streaming(scripts=[words("BAD one."), words("BAD two."), words("BAD three.")])

        answer = verified(model, Judged).invoke("Which port?")

        assert [(m.type, m.text) for m in model.requests[2]] == [
            ("human", "Which port?"),
            ("ai", "BAD one."),
            ("human", "Without BAD, please."),
            ("ai", "BAD two."),
            ("human", "Without BAD, please."),
        ]
        assert answer.text == "BAD three."
        assert answer.response_metadata["crag"] == {"judged": 3, "failed": ""}
        assert answer.usage_metadata["total_tokens"] == 45

    def test_a_draft_without_text_is_not_put_among_the_messages(self) -> None:
        class NeverBlank(Judged):
            def judge(self, draft: str) -> Plan[str | None]:
                return None if draft else "Say something."
                yield

        model = Streaming(scripts=[blocks(""), words(TEXT)])

        answer = verified(model, NeverBlank).invoke("Which port?")

        assert [(m.type, m.text) for m in model.requests[1]] == [("human", "Which port?"), ("human", "Say something.")]
        assert answer.text == TEXT

    def test_the_draft_is_told_without_its_reasoning(self) -> None:
        model = Streaming(scripts=[blocks("BAD one."), blocks("Fine.")])

        answer = verified(model, Judged).invoke("Which port?")

        assert [(m.type, m.content) for m in model.requests[1][1:]] == [("ai", "BAD one."), ("human", "Without BAD, please.")]
        assert answer.content_blocks[0]["reasoning"] == "Let me think."

    @pytest.mark.parametrize("how", ["stream", "astream"])
    def test_nothing_is_shown_before_the_judgement(self, how: str) -> None:
        model = Streaming(scripts=[words("BAD."), words("Good.")])

        class Watched(Judged):
            def judge(self, draft: str) -> Plan[str | None]:
                model.log.append("judge")
                return (yield from super().judge(draft))

        async def afollow() -> None:
            async for chunk in verified(model, Watched).astream("x"):
                model.log.append(f"shown {chunk.text}")

        if how == "stream":
            for chunk in verified(model, Watched).stream("x"):
                model.log.append(f"shown {chunk.text}")
        else:
            asyncio.run(afollow())

        assert [entry for entry in model.log if entry.startswith(("judge", "shown"))][:4] == ["judge", "judge", "shown ", "shown Good."]

    @pytest.mark.parametrize("how", RUNS)
    def test_a_draft_that_calls_tools_is_passed_on_without_being_judged(self, how: str) -> None:
        model = Streaming(scripts=[calling("look_up", {"word": "port"}, text="BAD moment."), words(TEXT)])

        raw = json.dumps(plain(RUNS[how](agent_of(model, Judged, tools=[look_up]))))

        assert "BAD" in raw
        assert "call-1" in raw
        assert len(model.requests) == 2

    def test_a_draft_that_calls_tools_streams_from_its_first_call_on(self) -> None:
        model = Streaming(scripts=[[*calling("look_up", {"word": "port"}, text="One moment."), AIMessageChunk(content="later")]])

        for _ in verified(model, Judged).stream("x"):
            model.log.append("shown")

        assert model.log[:8] == ["ask", "One", " moment.", "", "shown", "shown", "shown", ""]

    @pytest.mark.parametrize("how", ["invoke", "messages", "av3"])
    def test_tool_calls_of_a_second_draft_run(self, how: str) -> None:
        model = Streaming(scripts=[words("BAD."), calling("look_up", {"word": "port"}), words(TEXT)])

        raw = json.dumps(plain(RUNS[how](agent_of(model, Judged, tools=[look_up]))))

        assert "BAD" not in raw
        assert TEXT.split(" ")[-1] in raw
        assert [message.type for message in model.requests[2]] == ["human", "ai", "tool"]

    @pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
    @pytest.mark.parametrize(
        ("second", "reason"),
        [
            ([TimeoutError("late")], "timeout"),
            ([AIMessageChunk(content="Half", usage_metadata=USAGE), ConnectionError("gone")], "unavailable"),
            ([], "empty"),
            (words(" "), "empty"),
        ],
    )
    def test_the_judged_draft_goes_out_when_no_other_comes(self, how: str, second: Any, reason: str) -> None:
        if how in ("invoke", "ainvoke") and not second:
            second = [AIMessageChunk(content="")]
        model = Streaming(scripts=[words("BAD but all there is."), second])

        answer = CALLS[how](verified(model, Judged))
        answer = sum(answer[1:], answer[0]) if "stream" in how else answer

        assert answer.text == "BAD but all there is."
        assert answer.response_metadata["crag"] == {"judged": 1, "failed": reason}
        told = sum(part.usage_metadata["total_tokens"] for part in second if isinstance(part, AIMessageChunk) and part.usage_metadata)
        assert answer.usage_metadata["total_tokens"] == 15 + (told if "stream" in how or reason == "empty" else 0)

    @pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream"])
    @pytest.mark.parametrize("error", [GraphBubbleUp("stop"), TenantError("not yours"), ConfigError("no")])
    def test_control_flow_of_a_second_draft_passes(self, how: str, error: Exception) -> None:
        with pytest.raises(type(error)) as raised:
            CALLS[how](verified(Streaming(scripts=[words("BAD."), [error]]), Judged))

        assert raised.value is error

    def test_an_error_after_something_of_the_second_draft_was_shown_passes(self) -> None:
        broken = [*calling("look_up", {"word": "port"})[:-1], ConnectionError("gone")]

        with pytest.raises(ConnectionError):
            list(verified(Streaming(scripts=[words("BAD."), broken]), Judged).stream("x"))


class TestEnding:
    @pytest.mark.parametrize("how", ["invoke", "ainvoke", "stream", "astream", "batch"])
    @pytest.mark.parametrize("begin", [Through, BySentence, Judged])
    @pytest.mark.parametrize("model", [Streaming, Whole, SyncStreaming])
    def test_an_error_of_the_inner_model_is_the_same_object(self, how: str, begin: Any, model: Any) -> None:
        error = ConnectionError("gone")

        with pytest.raises(ConnectionError) as raised:
            CALLS[how](verified(model(scripts=[[AIMessageChunk(content="Half a"), error]]), begin))

        assert raised.value is error

    def test_an_error_of_the_checks_closes_the_inner_stream(self) -> None:
        class Failing(Through):
            def feed(self, text: str) -> Plan[str]:
                if text:
                    raise TenantError("no")
                return text
                yield

        model = Streaming(scripts=[words(TEXT)])

        with pytest.raises(TenantError):
            list(verified(model, Failing).stream("x"))

        assert model.log == ["ask", "", "The", "closed"]

    @pytest.mark.parametrize("begin", [Through, BySentence])
    def test_a_stream_that_is_left_closes_the_inner_one(self, begin: Any) -> None:
        model = Streaming(scripts=[words(TEXT)])

        stream = verified(model, begin).stream("x")
        next(stream)
        stream.close()
        gc.collect()

        assert model.log[-1] == "closed"
        assert len(model.log) < len(words(TEXT))

    def test_an_iterator_that_is_no_generator_is_closed_too(self) -> None:
        class Chunks(Iterator[ChatGenerationChunk]):
            is_closed = False

            def __next__(self) -> ChatGenerationChunk:
                return ChatGenerationChunk(message=AIMessageChunk(content="x"))

            def close(self) -> None:
                self.is_closed = True

        chunks = Chunks()

        class Endless(Whole):
            def _stream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
                return chunks

        stream = verified(Endless(scripts=[])).stream("x")
        next(stream)
        stream.close()

        assert chunks.is_closed

    async def test_an_async_stream_that_is_left_closes_the_inner_one(self) -> None:
        model = Streaming(scripts=[words(TEXT)])

        chunks = verified(model)._astream([HumanMessage("x")])
        async with aclosing(chunks):
            await anext(chunks)

        assert model.log == ["ask", "", "closed"]

    @pytest.mark.parametrize("scripts", [[words(TEXT)], [words("BAD."), words(TEXT)]])
    @pytest.mark.parametrize("streamed", [True, False])
    async def test_a_cancelled_call_cancels_the_inner_one(self, scripts: Any, streamed: bool) -> None:
        reached = asyncio.Event()
        log: list[str] = []

        class Hanging(Streaming):
            async def _hang(self) -> None:
                reached.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    log.append("cancelled")
                    raise

            async def _astream(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> Any:
                async for chunk in super()._astream(messages, stop, None, **kwargs):
                    if len(self.requests) == len(scripts) and chunk.text:
                        await self._hang()
                    yield chunk

            async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
                result = self._generate(messages)
                if len(self.requests) == len(scripts):
                    await self._hang()
                return result

        agent = agent_of(Hanging(scripts=scripts), Judged)
        calling_it = collected(agent.astream(ASK, stream_mode="messages")) if streamed else agent.ainvoke(ASK)
        task = asyncio.ensure_future(calling_it)
        await asyncio.wait_for(reached.wait(), 10)
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert log == ["cancelled"]


def test_new_tokens_are_told_once_to_callbacks_in_every_mode() -> None:
    class Tokens(BaseCallbackHandler):
        def __init__(self) -> None:
            self.tokens: list[str] = []

        def on_llm_new_token(self, token: Any, **kwargs: Any) -> None:
            self.tokens.append(kwargs["chunk"].text)

    for how in ("messages", "amessages", "v3", "av3", "v2"):
        told = [Tokens(), Tokens()]
        for begin, handler in zip((None, Through), told, strict=True):
            RUNS[how](agent_of(Streaming(scripts=[words(TEXT)], callbacks=[handler]), begin))
        assert told[0].tokens == told[1].tokens
        assert "".join(told[1].tokens) == TEXT
