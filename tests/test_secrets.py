"""No key, token, password or header that the package is given comes out again: in reprs, receipts, states, streams, checkpoints, logs, errors or on screens."""

import asyncio
import json
import logging
import pickle
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import StructuredTool
from langchain_core.tracers.run_collector import RunCollectorCallbackHandler
from langchain_deepseek import ChatDeepSeek
from langchain_openai import OpenAIEmbeddings
from langgraph.checkpoint.memory import InMemorySaver
from typer.testing import CliRunner

from crag_middleware import cli
from crag_middleware.adapters.bocha import BochaWebSearch
from crag_middleware.adapters.chat_claim_checker import ChatModelClaimChecker
from crag_middleware.adapters.chat_model import ChatModelEvaluator, ChatModelRewriter
from crag_middleware.adapters.chat_refiner import ChatModelRefiner
from crag_middleware.adapters.embedding_evaluator import EmbeddingEvaluator
from crag_middleware.adapters.inner_model import resolve_model
from crag_middleware.adapters.langchain_search import LangChainWebSearch
from crag_middleware.adapters.routes import Route
from crag_middleware.adapters.tavily import TavilyWebSearch
from crag_middleware.adapters.web_chain import WebSearchChain
from crag_middleware.errors import ConfigError, CRAGError
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.middleware import CRAGMiddleware
from crag_middleware.named import named_evaluator
from crag_middleware.receipt import explain
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever
from tests.support.agents import agent_with, ask, both, crag, passage
from tests.support.faulty import refusing_port
from tests.support.milvus import WordEmbeddings
from tests.support.web_server import Handler, WebServer, raw

SECRET = "hunter-77-SECRET-4c1b9"
QUESTION = "Which port does the exporter use?"
TENANT = "acme"


class ToldError(Exception):
    """A client's error that quotes the key, as some do."""

    def __init__(self) -> None:
        super().__init__(f"401: key {SECRET} is not valid", {"Authorization": f"Bearer {SECRET}"})


def echo(status: int) -> Callable[[Handler], None]:
    """A server that quotes the headers it was sent, in its own words and as JSON."""

    def answer(handler: Handler) -> None:
        told = json.dumps({"error": {"message": str(handler.headers), "code": "x"}, "detail": str(handler.headers)})
        handler.reply(status, told.encode(), WWW_Authenticate="Bearer", Retry_After="0")

    return answer


FAULTS: dict[str, Callable[[Handler], None]] = {
    "401 that quotes the key": echo(401),
    "400 that quotes the key": echo(400),
    "500 that quotes the key": echo(500),
    "a reply that is no JSON": raw(SECRET.encode()),
    "a reply that is the key": lambda handler: handler.reply(200, json.dumps(SECRET).encode()),
    "another shape": echo(200),
}


class Raising(Embeddings):
    """Works until it is told to fail."""

    def __init__(self) -> None:
        self.key, self.fails = SECRET, True

    def embed_query(self, text: str) -> list[float]:
        if self.fails:
            raise ToldError
        return WordEmbeddings().embed_query(text)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


class RaisingRetriever(BaseRetriever):
    """A client of a search service with a header."""

    header: str = f"Bearer {SECRET}"

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
        raise ToldError


def refuse(query: str) -> str:
    raise ToldError


def tool() -> StructuredTool:
    return StructuredTool.from_function(func=refuse, name="search", description="Searches.")


def chat(url: str) -> ChatDeepSeek:
    return ChatDeepSeek(
        model="deepseek-flash", api_key=SECRET, base_url=url, max_retries=0, default_headers={"X-Team": f"team {SECRET}"}, timeout=3
    )


def embeddings(url: str) -> OpenAIEmbeddings:
    return OpenAIEmbeddings(model="m", api_key=SECRET, base_url=url, max_retries=0, check_embedding_ctx_length=False)


PARTS: dict[str, Callable[[str], dict[str, Any]]] = {
    "tavily": lambda url: {"web_search": TavilyWebSearch(api_key=SECRET, api_base_url=url)},
    "bocha": lambda url: {"web_search": BochaWebSearch(api_key=SECRET, api_base_url=url)},
    "a chain of both": lambda url: {
        "web_search": WebSearchChain(TavilyWebSearch(api_key=SECRET, api_base_url=url), BochaWebSearch(api_key=SECRET, api_base_url=url))
    },
    "evaluator": lambda url: {"evaluator": ChatModelEvaluator(chat(url))},
    "rewriter": lambda url: {"rewriter": ChatModelRewriter(chat(url))},
    "refiner": lambda url: {"refiner": ChatModelRefiner(chat(url)), "evaluator": ScriptedEvaluator()},
    "claim checker": lambda url: {"claim_checker": ChatModelClaimChecker(chat(url)), "evaluator": ScriptedEvaluator()},
    "embeddings": lambda url: {"evaluator": EmbeddingEvaluator(embeddings(url))},
}
"""What is given a key, on a server at this address."""

FOREIGN: dict[str, Callable[[], dict[str, Any]]] = {
    "search tool": lambda: {"web_search": LangChainWebSearch(tool())},
    "retriever": lambda: {"vector_store": RaisingRetriever()},
    "route": lambda: {"routes": Route("wiki", RaisingRetriever(), public=True)},
    "embeddings": lambda: {"evaluator": EmbeddingEvaluator(Raising())},
}
"""What raises an error that quotes its key."""


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[list[logging.LogRecord]]:
    """What all loggers said, at every level."""
    loggers = [logging.getLogger(), *(one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger))]
    before = [(one, one.level, one.propagate) for one in loggers]
    for one in loggers:
        one.setLevel(logging.DEBUG)
        one.propagate = True
    with caplog.at_level(logging.DEBUG):
        yield caplog.records
    for one, level, propagate in before:
        one.setLevel(level)
        one.propagate = propagate


def as_said(records: Sequence[logging.LogRecord], *, ours: bool = False) -> str:
    """What log records say to any handler."""
    return "\n".join(
        logging.Formatter().format(record) + repr(record.args) + repr(vars(record))
        for record in records
        if not ours or record.name.startswith("crag")
    )


def as_told(error: BaseException | None) -> str:
    """What an error says, with its causes, to whoever prints it; and whatever else is said of it."""
    return "" if error is None else "".join(traceback.format_exception(error)) + str(error) + repr(error) + repr(vars(error))


def as_shown(value: Any) -> str:
    """What printing a part and what it is made of shows."""
    return repr(value) + str(value) + "".join(f"{name}={held!r}" for name, held in getattr(value, "__dict__", {}).items())


async def _events(agent: Any, given: Any, config: Any) -> list[Any]:
    return [event async for event in agent.astream(given, config, stream_mode=["messages", "updates", "values", "custom", "debug"])]


def turn(how: str, **parts: Any) -> str:
    """All that a turn with these parts lets out: streams, state, receipt, explanation, checkpoints, errors."""
    parts = {
        "vector_store": ScriptedRetriever({TENANT: [passage("The exporter uses port 9100."), passage("Cats sleep.")]}),
        "evaluator": ScriptedEvaluator(otherwise=0.05),
        **parts,
    }
    middleware = CRAGMiddleware(agent_id=TENANT, settings=CRAGSettings(receipt_detail="full", turn_timeout_s=20), **parts)
    saver = InMemorySaver()
    agent = create_agent(ScriptedChatModel(replies=["It uses port 9100 [1]."]), middleware=[middleware], checkpointer=saver)
    config = {"configurable": {"thread_id": "1"}}
    given = {"messages": [("user", QUESTION)]}
    stream = ["messages", "updates", "values", "custom", "debug"]
    try:
        events = list(agent.stream(given, config, stream_mode=stream)) if how == "invoke" else asyncio.run(_events(agent, given, config))
    except CRAGError as error:
        return as_told(error) + as_shown(middleware)
    state = agent.get_state(config).values
    receipt = state["crag"]
    assert receipt["degraded"] or receipt.get("answer", {}).get("checked") == "failed"
    saved = repr({**saver.storage}) + repr(saver.blobs) + repr(saver.writes) + repr(pickle.dumps(state))
    return "".join((repr(events), repr(state), json.dumps(receipt), explain(receipt), saved, as_shown(middleware)))


QUICK = ("401 that quotes the key", "another shape")


@both
@pytest.mark.parametrize(
    "fault", [fault if fault in QUICK else pytest.param(fault, marks=pytest.mark.slow) for fault in (*FAULTS, "refused")]
)
@pytest.mark.parametrize("name", PARTS)
def test_a_service_that_fails_lets_no_key_out(name: str, fault: str, how: str, logged: list[logging.LogRecord]) -> None:
    with WebServer(FAULTS.get(fault)) as server:
        url = f"http://127.0.0.1:{refusing_port()}" if fault == "refused" else server.url
        parts = PARTS[name](url)

        told = turn(how, **parts)

        assert fault == "refused" or any(SECRET in str(request["headers"]) for request in server.requests), "the key must be used"
    assert SECRET not in told
    assert SECRET not in as_said(logged, ours=True)
    assert SECRET not in "".join(repr(part) + str(part) for part in parts.values())


@both
@pytest.mark.parametrize("name", FOREIGN)
def test_a_part_whose_error_quotes_its_key_lets_it_out_nowhere(name: str, how: str, logged: list[logging.LogRecord]) -> None:
    told = turn(how, **FOREIGN[name]())

    assert SECRET not in told
    assert SECRET not in as_said(logged)


def failures(url: str) -> dict[str, Callable[[], object]]:
    """Calls that fail, each of which is given the key."""
    address = f"http://user:{SECRET}@127.0.0.1:{refusing_port()}"
    return {
        "Milvus' address": lambda: open_knowledge(address, WordEmbeddings(), timeout_s=1),
        "Milvus' token": lambda: open_knowledge(f"http://127.0.0.1:{refusing_port()}", WordEmbeddings(), token=SECRET, timeout_s=1),
        "Milvus' password": lambda: open_knowledge(
            f"http://127.0.0.1:{refusing_port()}", WordEmbeddings(), connection_args={"user": "u", "password": SECRET}, timeout_s=1
        ),
        "no address": lambda: open_knowledge(f"ftp://user:{SECRET}@host", WordEmbeddings()),
        "embeddings": lambda: open_knowledge("x.db", Raising()),
        "hosted embeddings": lambda: open_knowledge("x.db", embeddings(url)),
        "a key with a blank": lambda: TavilyWebSearch(api_key=f"{SECRET} {SECRET}"),
        "an address with a user": lambda: TavilyWebSearch(api_key="k", api_base_url=f"https://user:{SECRET}@api.example"),
        "an address with a query": lambda: BochaWebSearch(api_key="k", api_base_url=f"https://api.example/?key={SECRET}"),
        "settings": lambda: CRAGSettings(web_options=f"Bearer {SECRET}", filter=SECRET, rules=7),
        "tavily": lambda: TavilyWebSearch(api_key=SECRET, api_base_url=url).search("q", limit=1, timeout_s=3),
        "bocha": lambda: BochaWebSearch(api_key=SECRET, api_base_url=url).search("q", limit=1, timeout_s=3),
        "evaluator": lambda: ChatModelEvaluator(chat(url)).grade("q", [passage("x")], timeout_s=3),
        "search tool": lambda: LangChainWebSearch(tool()).search("q", limit=1),
    }


@pytest.mark.parametrize("name", failures(""))
def test_an_error_that_reaches_the_caller_quotes_no_key_nor_do_its_causes(
    name: str, logged: list[logging.LogRecord], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with WebServer(echo(401)) as server, pytest.raises(CRAGError) as raised:
        failures(server.url)[name]()

    assert SECRET not in as_told(raised.value)
    assert SECRET not in as_said(logged)


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"])
@pytest.mark.parametrize("proxy", ["http://user:{}@127.0.0.1:9", "http://user:{}@127.0.0.1:port", "gopher://user:{}@x"])
def test_a_proxys_password_stays_where_it_is(
    name: str, proxy: str, logged: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, proxy.format(SECRET))
    scheme = "http" if name == "HTTP_PROXY" else "https"

    with pytest.raises(CRAGError) as raised:
        TavilyWebSearch(api_key="k", api_base_url=f"{scheme}://api.invalid").search("q", limit=1, timeout_s=3)

    assert SECRET not in as_told(raised.value)
    assert SECRET not in as_said(logged)


@pytest.mark.parametrize(
    "build",
    [
        lambda: resolve_model("openai:some-model"),
        lambda: named_evaluator("chat", model="openai:some-model", base_url="http://127.0.0.1:9"),
    ],
)
def test_a_chat_model_that_cannot_be_built_tells_no_key(build: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_PROXY", f"gopher://user:{SECRET}@x")

    with pytest.raises(ConfigError) as raised:
        build()

    assert SECRET not in as_told(raised.value)


COMMANDS: dict[str, list[str]] = {
    "web": ["web", QUESTION, "-p", "tavily", "-p", "bocha"],
    "sources": ["sources", "-a", TENANT, "--uri", "ADDRESS", "--token", SECRET],
    "sources as JSON": ["sources", "-a", TENANT, "--uri", "ADDRESS", "--token", SECRET, "--json"],
    "ingest": ["ingest", ".", "-a", TENANT, "--uri", "ADDRESS", "--token", SECRET],
    "purge": ["purge", "-a", TENANT, "--uri", "ADDRESS", "--token", SECRET, "--yes"],
    "migrate": ["migrate", "ADDRESS", "-a", TENANT, "--uri", "ADDRESS", "--token", SECRET],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_line_shows_no_key(
    name: str, logged: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("TAVILY_API_KEY", "BOCHA_API_KEY", "DEEPSEEK_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.setenv(variable, SECRET)
    address = f"http://user:{SECRET}@127.0.0.1:{refusing_port()}"
    with WebServer(echo(401)) as server:
        for variable in ("TAVILY_API_BASE_URL", "BOCHA_API_BASE_URL"):
            monkeypatch.setenv(variable, server.url)

        done = CliRunner().invoke(cli.app, [address if word == "ADDRESS" else word for word in COMMANDS[name]])
    assert done.exit_code != 0
    captured = capfd.readouterr()
    assert SECRET not in done.output + captured.out + captured.err + as_told(done.exception)
    assert SECRET not in as_said(logged)


def test_parts_that_hold_keys_show_none_when_printed() -> None:
    parts = [part for make in PARTS.values() for part in make("http://127.0.0.1:9").values()]

    assert SECRET not in "".join(repr(part) + str(part) for part in parts)


@both
def test_a_trace_of_the_hooks_holds_no_passage_and_no_receipt(how: str) -> None:
    """What models are shown stands in the traces of their own calls, as in every agent's."""
    tracer = RunCollectorCallbackHandler()
    middleware = crag([passage("PASSAGE-MARKER uses port 9100.")])
    agent, _ = agent_with(middleware)

    ask(agent, QUESTION, how, config={"callbacks": [tracer]})

    runs = [run for root in tracer.traced_runs for run in with_those_below(root)]
    hooks = [run for run in runs if run.name.startswith("CRAGMiddleware")]
    assert hooks
    assert not [run.name for run in hooks if "PASSAGE-MARKER" in repr((run.inputs, run.outputs))]
    assert [run for run in runs if run.run_type in ("chat_model", "llm") and "PASSAGE-MARKER" in repr(run.inputs)]


def with_those_below(run: Any) -> list[Any]:
    return [run, *(below for child in run.child_runs for below in with_those_below(child))]
