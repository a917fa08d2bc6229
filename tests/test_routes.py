"""Routes: what may be one, whose rows it gives, and what it costs a turn when it fails."""

import asyncio
import math
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.errors import GraphInterrupt

from crag_middleware.adapters.langchain_retriever import LangChainRetriever
from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.adapters.routes import Route, check_routes, route_ports
from crag_middleware.drive import arun, run
from crag_middleware.errors import ConfigError, RetrievalError, TenantError
from crag_middleware.findings import Found, Trouble
from crag_middleware.ports import bind
from crag_middleware.settings import CRAGSettings
from crag_middleware.steps import ask, retrieve
from crag_middleware.tenancy import Scope
from crag_middleware.testing import RetrieverSuite, ScriptedRetriever
from crag_middleware.types import Passage
from crag_middleware.world import World
from tests.support import milvus as support
from tests.support.agents import agent_with, crag, passage
from tests.support.agents import ask as ask_agent
from tests.support.milvus import JSON, TENANT, WordEmbeddings, insert, make_collection, open_store, text_column

lite_uri = support.lite_uri

Search = Callable[..., tuple[Passage, ...]]


@pytest.fixture(params=["sync", "async"])
def search(request: pytest.FixtureRequest) -> Search:
    """Asks a route as a turn would, through the ports and a driver; a route without that form is asked in the other."""

    def call(
        route: Route, question: str = "question", *, agent_id: str = "a", limit: int = 5, settings: CRAGSettings | None = None
    ) -> tuple[Passage, ...]:
        bound = bind(route_ports(route, settings or CRAGSettings()), "retrieve")
        world = World({"retriever": bound}, lambda stage: None)

        def plan() -> Any:
            return ask(retrieve(question, Scope(agent_id), limit=limit, timeout_s=route.timeout_s or 10))

        if request.param == "sync" and bound.sync is not None:
            return run(plan(), world)
        return asyncio.run(arun(plan(), world))

    return call


def everything(question: str, *, agent_id: str) -> list[Passage]:
    """A route's function for tests of the other arguments."""
    return [Passage(id="1", text=question)]


class Fixed(BaseRetriever):
    """Returns what it was given."""

    found: Any

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
        if isinstance(self.found, BaseException):
            raise self.found
        return self.found


# --- What every kind of route does


OWN = {"suite": ("one", "two"), "suite-other": ("three",)}


class TestSecondCollection(RetrieverSuite):
    @pytest.fixture
    def retriever(self, lite_uri: str) -> Any:
        client = make_collection(lite_uri, "tickets", {"team": text_column(nullable=False)})
        rows = [{"id": text, "text": f"port {text}", "team": tenant} for tenant, texts in OWN.items() for text in texts]
        insert(client, "tickets", rows)
        return route_ports(Route("tickets", open_store(lite_uri, "tickets"), tenant_field="team"), CRAGSettings())


class TestLangChainRoute(RetrieverSuite):
    @pytest.fixture
    def retriever(self) -> Any:
        class Knowing(BaseRetriever):
            def _get_relevant_documents(self, query: str, *, run_manager: Any, agent_id: str) -> list[Document]:
                return [Document(text, metadata={"agent_id": agent_id}) for text in OWN.get(agent_id, ())]

        return route_ports(Route("bm25", Knowing()), CRAGSettings())


class TestAsyncFunction(RetrieverSuite):
    @pytest.fixture
    def retriever(self) -> Any:
        async def search(question: str, *, agent_id: str) -> list[Document]:
            await asyncio.sleep(0)
            return [Document(text) for text in OWN.get(agent_id, ())]

        return route_ports(Route("api", search), CRAGSettings())


class TestObjectWithBothForms(RetrieverSuite):
    @pytest.fixture
    def retriever(self) -> Any:
        own = {tenant: [Passage(id=text, text=text) for text in texts] for tenant, texts in OWN.items()}
        return route_ports(Route("shelf", ScriptedRetriever(own)), CRAGSettings())


# --- Functions and objects


def test_a_function_is_passed_only_the_keywords_that_it_names(search: Search) -> None:
    seen: list[Any] = []

    def names_all(question: str, *, agent_id: str, limit: int, timeout_s: float) -> list[Passage]:
        seen.append((question, agent_id, limit, timeout_s))
        return []

    def names_one(question: str, agent_id: str, **others: Any) -> list[Passage]:
        seen.append((question, agent_id, others))
        return []

    search(Route("one", names_all, timeout_s=2.5), "问 a\ud800b")
    search(Route("two", names_one), "q")

    assert seen == [("问 a?b", "a", 5, 2.5), ("q", "a", {})]


def test_passages_and_documents_become_passages_of_the_knowledge(search: Search) -> None:
    def mixed(question: str, *, agent_id: str) -> list[Any]:
        found = Passage(id="p", text="passage", score=3.5, origin="web")
        return [found, Document("document", id="d", metadata={"title": "T", "created_at": 7, "agent_id": agent_id, "page": 3})]

    first, second = search(Route("graph", mixed))

    assert (first.id, first.score, first.origin, first.rank) == ("p", 3.5, "knowledge", 1)
    assert (second.id, second.text, second.title, second.created_at) == ("d", "document", "T", 7)
    assert (second.metadata, second.rank) == ({"page": 3}, 2)


class Sync:
    def retrieve(self, question: str, *, agent_id: str) -> list[Passage]:
        return [Passage(id="sync", text=agent_id)]


class Async:
    async def aretrieve(self, question: str, *, agent_id: str) -> list[Passage]:
        return [Passage(id="async", text=agent_id)]


class AsyncUnderTheSyncName:
    async def retrieve(self, question: str, *, agent_id: str) -> list[Passage]:
        return [Passage(id="async", text=agent_id)]


class Called:
    def __call__(self, question: str, *, agent_id: str) -> list[Passage]:
        return [Passage(id="sync", text=agent_id)]


class CalledAsync:
    async def __call__(self, question: str, *, agent_id: str) -> list[Passage]:
        return [Passage(id="async", text=agent_id)]


class Both(Sync, Async):
    pass


class AsyncOnly(Both):
    async_only = True


@pytest.mark.parametrize(
    ("given", "forms"),
    [
        (Sync(), "sync"),
        (Sync().retrieve, "sync"),
        (Called(), "sync"),
        (Async(), "async"),
        (Async().aretrieve, "async"),
        (AsyncUnderTheSyncName(), "async"),
        (CalledAsync(), "async"),
        (partial(Async().aretrieve), "async"),
        (Both(), "sync async"),
        (AsyncOnly(), "async"),
    ],
)
def test_a_route_has_the_forms_that_were_given(search: Search, given: Any, forms: str) -> None:
    bound = bind(route_ports(Route("r", given), CRAGSettings()), "retrieve")

    assert (bound.sync is not None, bound.async_ is not None) == ("sync" in forms.split(), "async" in forms.split())
    assert search(Route("r", given))[0].text == "a"


def test_what_a_search_had_to_do_without_is_passed_on(search: Search) -> None:
    class Lame:
        def retrieve(self, question: str, *, agent_id: str) -> Found:
            return Found([Passage(id="1", text="x")], (Trouble("dense", "timeout"),))

    found = search(Route("r", Lame()))

    assert isinstance(found, Found)
    assert found.troubles == (Trouble("dense", "timeout"),)


@pytest.mark.parametrize(
    "reply", [None, "text", {"a": 1}, {Passage(id="1", text="x").id}, [Passage(id="1", text="x"), "SECRET"], [None], iter([])]
)
def test_a_reply_that_is_no_list_of_passages_or_documents_is_an_error_that_does_not_show_it(search: Search, reply: Any) -> None:
    def odd(question: str, *, agent_id: str) -> Any:
        return reply

    with pytest.raises(RetrievalError, match="must return a list of Passage or Document, got") as caught:
        search(Route("odd", odd))

    assert caught.value.reason == "invalid_reply"
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


def test_a_function_that_returns_a_coroutine_is_told_so(search: Search, recwarn: pytest.WarningsRecorder) -> None:
    async def inner(question: str) -> list[Passage]:
        return []

    with pytest.raises(RetrievalError, match="got coroutine"):
        search(Route("late", lambda question, agent_id: inner(question)))

    assert [w for w in recwarn if "never awaited" in str(w.message)] == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("SECRET"), "ValueError"),
        (TimeoutError("SECRET"), "timeout"),
        (httpx.ConnectError("SECRET"), "ConnectError"),
        (ExceptionGroup("SECRET", [OSError()]), "ExceptionGroup"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_failing_route_is_named_and_its_own_words_are_not_shown(search: Search, error: Exception, reason: str, is_async: bool) -> None:
    def failing(question: str, *, agent_id: str) -> list[Passage]:
        raise error

    async def afailing(question: str, *, agent_id: str) -> list[Passage]:
        raise error

    with pytest.raises(RetrievalError, match="route 'graph'") as caught:
        search(Route("graph", afailing if is_async else failing))

    assert caught.value.reason == reason
    assert "SECRET" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "error", [GraphInterrupt(()), TenantError("no", reason="foreign_row"), RetrievalError("ours", reason="unavailable")]
)
def test_errors_of_ours_and_the_frameworks_control_flow_pass_a_route(search: Search, error: Exception) -> None:
    def raising(question: str, *, agent_id: str) -> list[Passage]:
        raise error

    with pytest.raises(type(error)) as caught:
        search(Route("graph", raising))

    assert caught.value is error


def test_a_late_function_is_left_behind(search: Search) -> None:
    async def late(question: str, *, agent_id: str) -> list[Passage]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(RetrievalError) as caught:
        search(Route("late", late, timeout_s=0.05))

    assert caught.value.reason == "timeout"


async def test_a_cancelled_route_is_cancelled() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waiting(question: str, *, agent_id: str) -> list[Passage]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    port = route_ports(Route("r", waiting), CRAGSettings())
    assert port.aretrieve is not None
    task = asyncio.ensure_future(port.aretrieve("q", agent_id="a", limit=1, timeout_s=9))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


# --- Tenants


def test_a_scoped_route_that_returns_another_tenants_document_is_fatal(search: Search) -> None:
    """C055, C058: also beyond the limit, and of whatever kind the route is."""
    for owner in ("b", "A", None, 'a" or agent_id != "'):
        foreign = [Document("x", metadata={"agent_id": "a"}), Document("SECRET", metadata={"agent_id": owner})]
        leaking: list[Any] = [
            lambda question, agent_id, foreign=foreign: foreign,
            lambda question, agent_id, foreign=foreign: [Passage(id=d.page_content, text="", metadata=d.metadata) for d in foreign],
            Fixed(found=foreign),
        ]
        for given in leaking:
            with pytest.raises(TenantError) as caught:
                search(Route("leaky", given), limit=1)
            assert "SECRET" not in str(caught.value)


def test_a_document_of_a_scoped_langchain_retriever_must_name_its_tenant(search: Search) -> None:
    document = Document("x", metadata={"team": "a"})

    with pytest.raises(TenantError):
        search(Route("r", Fixed(found=[document])))
    assert search(Route("r", Fixed(found=[document]), tenant_field="team"))[0].metadata == {}


def test_a_public_route_is_never_told_whose_question_it_is(search: Search) -> None:
    seen: list[Any] = []

    def shared(question: str, agent_id: str | None = None, limit: int = 0) -> list[Document]:
        seen.append((question, agent_id, limit))
        return [Document("for everybody")]

    class Shared(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any, agent_id: str | None = None, limit: int = 0) -> list[Document]:
            return shared(query, agent_id, limit)

    class Port:
        def retrieve(self, question: str, **others: Any) -> list[Document]:
            return shared(question, **others)

    for given in (shared, Shared(), Port()):
        assert [p.text for p in search(Route("handbook", given, public=True), agent_id="SECRET-TENANT")] == ["for everybody"]
    assert seen == [("question", None, 5), ("question", None, 5), ("question", None, 0)]


def test_a_public_route_whose_document_names_another_tenant_is_fatal(search: Search) -> None:
    documents = [Document("x"), Document("SECRET", metadata={"agent_id": "b"})]

    for given in (Fixed(found=documents), lambda question: documents):
        with pytest.raises(TenantError):
            search(Route("shared", given, public=True))
        assert len(search(Route("shared", given, public=True), agent_id="b")) == 2


def test_without_a_tenant_no_route_is_searched(search: Search) -> None:
    def unreached(question: str) -> list[Passage]:
        raise AssertionError

    for agent_id in ("", " ", "x" * 257):
        with pytest.raises(TenantError):
            search(Route("shared", unreached, public=True), agent_id=agent_id)


@pytest.mark.parametrize(
    "given",
    [lambda question: [], lambda question, **others: [], SimpleNamespace(retrieve=lambda question: [], aretrieve=Async().aretrieve)],
)
def test_what_can_not_be_told_whose_question_it_is_must_be_declared_public(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"route 'r': it names no parameter `agent_id`.*name it.*or say `public=True`"):
        Route("r", given)


def test_what_needs_the_tenant_can_not_be_public() -> None:
    class Needing(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any, agent_id: str) -> list[Document]:
            return []

    for given in (everything, Sync(), Async(), Needing(), LangChainRetriever(Fixed(found=[]), tenant_field=None)):
        with pytest.raises(ConfigError, match=r"it needs `agent_id`.*leave `public` out"):
            Route("r", given, public=True)


# --- Milvus


def test_a_milvus_route_searches_the_tenants_rows_under_the_settings(lite_uri: str, search: Search) -> None:
    """C055: an id that is Milvus syntax finds its own rows, which are none."""
    client = make_collection(lite_uri, "tickets", {"agent_id": TENANT, "version": text_column()})
    insert(client, "tickets", [{"id": f"{t}{v}", "text": f"question {v}", "agent_id": t, "version": v} for t in "ab" for v in "12"])
    store = open_store(lite_uri, "tickets")
    newest = CRAGSettings(filter={"version": "2"})

    for given in (store, store.as_retriever()):
        assert {p.id for p in search(Route("tickets", given))} == {"a1", "a2"}
        assert {p.id for p in search(Route("tickets", given), settings=newest)} == {"a2"}
        assert search(Route("tickets", given), agent_id='a" or agent_id != "') == ()
    assert {p.id for p in search(Route("tickets", MilvusRetriever(store)), settings=newest)} == {"a1", "a2"}
    with pytest.raises(ConfigError, match="no field 'colour'"):
        route_ports(Route("tickets", store), CRAGSettings(filter={"colour": "red"}))


def test_rows_under_an_id_of_their_own_can_be_everybodys(lite_uri: str, search: Search) -> None:
    client = make_collection(lite_uri, "handbook", {"agent_id": TENANT})
    insert(client, "handbook", [{"id": t, "text": "question", "agent_id": t} for t in ("everybody", "b")])
    handbook = MilvusRetriever(open_store(lite_uri, "handbook"))

    for found in (handbook.retrieve, handbook.aretrieve):
        route = Route("handbook", partial(found, agent_id="everybody"), public=True)
        assert [p.id for p in search(route)] == [p.id for p in search(route, agent_id="b")] == ["everybody"]


def test_langchains_own_search_can_be_public_where_rows_have_no_tenant(lite_uri: str, search: Search) -> None:
    """From several event loops, which LangChain's async search of Milvus does not survive; and C058."""
    for name, columns in (("shared", {"metadata": JSON}), ("owned", {"agent_id": TENANT})):
        client = make_collection(lite_uri, name, columns, bm25=False)
        insert(client, name, [{"id": "1", "text": "question", **({"agent_id": "a"} if name == "owned" else {})}])
    shared, owned = (open_store(lite_uri, name, bm25=False) for name in ("shared", "owned"))
    route = Route("shared", shared.as_retriever(search_kwargs={"k": 3}), public=True)

    assert [[p.text for p in search(route, agent_id=tenant)] for tenant in ("a", "b", "a")] == [["question"]] * 3
    for given in (shared, owned, owned.as_retriever(), owned.as_retriever(search_kwargs={"expr": 'agent_id == "a"'})):
        with pytest.raises(
            ConfigError, match=r"route 'r': a Milvus store can't be public as it is.*partial\(MilvusRetriever.*as_retriever"
        ):
            Route("r", given, public=True)


# --- LangChain


def test_a_retriever_without_an_async_form_of_its_own_has_none_here() -> None:
    """LangChain would run it in a pool that `asyncio.run` waits for at its end, however long it hangs."""

    class Own(Fixed):
        async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
            return self.found

    class Plain(InMemoryVectorStore):
        asimilarity_search = InMemoryVectorStore.__mro__[1].asimilarity_search  # type: ignore[attr-defined]

    given = {"own": Own(found=[]), "none": Fixed(found=[])}
    given |= {"own store": InMemoryVectorStore(WordEmbeddings()).as_retriever(), "no store": Plain(WordEmbeddings()).as_retriever()}

    for public in (False, True):
        ports = {name: route_ports(Route("r", it, public=public), CRAGSettings()) for name, it in given.items()}
        assert {name: port.aretrieve is not None for name, port in ports.items()} == {
            "own": True,
            "none": False,
            "own store": True,
            "no store": False,
        }
        assert all(port.retrieve for port in ports.values())


# --- What is refused


@pytest.mark.parametrize("name", ["", "1a", "a b", "图", "a" * 65, "knowledge", None, 5, "a\n"])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match=r"a route's `name` must be a letter.*got"):
        Route(name, everything)


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("weight", (0, -1, 100.1, math.inf, math.nan, "1", True, None)),
        ("timeout_s", (0, -1, 601, math.inf, math.nan, "1", False)),
        ("k", (0, 201, 1.5, "1", True)),
        ("trust", (-0.1, 1.1, math.nan, "1", True)),
        ("half_life_days", (0, -1, 40_000, math.inf, "1", True)),
        ("public", (None, 1, "yes")),
        ("tenant_field", ("", " ", 5)),
    ],
)
def test_an_argument_out_of_range_is_refused_with_what_was_got(argument: str, values: tuple[Any, ...]) -> None:
    for value in values:
        with pytest.raises(ConfigError, match=rf"route 'r': `{argument}` must .*got"):
            Route("r", Fixed(found=[]), **{argument: value})


def test_everything_wrong_with_the_numbers_is_said_at_once() -> None:
    with pytest.raises(
        ConfigError, match=r"`weight` must be a number above 0 and at most 100, got 0; `k` must be a whole number from 1 to 200, got 999"
    ):
        Route("r", everything, weight=0, k=999)


def test_the_ends_of_the_ranges_are_allowed() -> None:
    Route("r", everything, weight=100, timeout_s=600, k=1, trust=0, half_life_days=36_500)
    Route("R_2-b", everything, weight=0.001, timeout_s=0.001, k=200, trust=1, half_life_days=0.001)


@pytest.mark.parametrize("given", [None, 1, "search", [], object(), InMemoryVectorStore(WordEmbeddings()), SimpleNamespace(retrieve=5)])
def test_a_retriever_that_is_none_is_refused_with_what_is_accepted(given: Any) -> None:
    with pytest.raises(ConfigError, match=rf"langchain_milvus\.Milvus.*`as_retriever\(\)`.*function, got {type(given).__name__}"):
        Route("r", given)


@pytest.mark.parametrize(
    "given",
    [
        lambda: [],
        lambda agent_id: [],
        lambda question, index, agent_id: [],
        lambda question, *, agent_id, index: [],
        lambda agent_id, question: [],
    ],
)
def test_a_function_that_can_not_be_called_so_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="route 'r': it"):
        Route("r", given)


def test_a_class_in_the_place_of_its_instance_is_refused() -> None:
    for given in (Sync, Fixed, MilvusRetriever):
        with pytest.raises(ConfigError, match=rf"got the class {given.__name__}; write {given.__name__}\(\.\.\.\)"):
            Route("r", given)  # type: ignore[arg-type]  # what is tested


def test_a_tenant_field_that_would_do_nothing_is_refused() -> None:
    for given, public in ((everything, False), (Sync(), False), (Fixed(found=[]), True)):
        with pytest.raises(ConfigError, match=r"`tenant_field` does nothing for a .*leave it out"):
            Route("r", given, tenant_field="team", public=public)


def test_routes_are_frozen_and_do_not_show_what_they_search() -> None:
    route = Route("r", Fixed(found=["SECRET"]))

    with pytest.raises(AttributeError):
        route.weight = 2.0  # type: ignore[misc]  # what is tested
    assert "SECRET" not in repr(route)
    assert len({route, Route("r", Fixed(found=[]))}) == 2


def test_routes_may_be_none_one_or_a_list() -> None:
    one, two = Route("one", everything), Route("two", everything)

    assert check_routes(None) == check_routes([]) == check_routes(()) == ()
    assert check_routes(one) == (one,)
    assert check_routes([one, two]) == check_routes((one, two)) == (one, two)


@pytest.mark.parametrize("routes", ["graph", everything, {"graph": everything}, [everything], [Route("r", everything), None], [Route], 5])
def test_what_is_no_list_of_routes_is_refused(routes: Any) -> None:
    with pytest.raises(ConfigError, match=r"`routes` must be a list of `Route\(name, retriever, \.\.\.\)`, got \w+"):
        check_routes(routes)


def test_two_routes_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="names of their own, got 'r' more than once"):
        check_routes([Route("r", everything), Route("s", everything), Route("r", Sync())])


# --- What a turn makes of routes


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_a_receipt_says_which_route_found_what_and_what_it_is_worth(how: str) -> None:
    def graph(question: str, *, limit: int) -> list[Passage]:
        assert limit == 7
        return [Passage(id="g", text="The graph says so.", evidence_score=1.0), Passage(id="g2", text="BOTH say so!")]

    middleware = crag([passage("Both say so.", "m")], routes=[Route("graph", graph, public=True, trust=0.25, k=7, weight=3)])
    agent, _ = agent_with(middleware)

    receipt = ask_agent(agent, "Who says so?", how)["crag"]

    found = {p["id"]: (p["evidence_score"], [(h["route"], h["rank"], h["id"]) for h in p["hits"]]) for p in receipt["passages"]}
    assert len(found) == 2
    assert found["g"] == (0.25, [("graph", 1, "g")])
    assert sorted(*(hits for id_, (_, hits) in found.items() if id_ != "g")) == [("graph", 2, "g2"), ("knowledge", 1, "m")]
    assert [(r["route"], r["query"], r["found"], r["reason"]) for r in receipt["routes"]] == [("knowledge", 0, 1, ""), ("graph", 0, 2, "")]


# --- What a failing route costs a turn


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    """A port on which nobody listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


SLOW_S = 0.8
"""Deadline of each slow route."""


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_dead_slow_and_raising_routes_together_cost_a_turn_no_more_than_the_slowest_deadline(
    silent_port: int, closed_port: int, how: str
) -> None:
    """Five that never answer, one after the other, would take five deadlines; all at the same time one. What is lost is named, and the turn goes on."""

    def ask_port(port: int) -> str:
        return httpx.get(f"http://127.0.0.1:{port}/", timeout=60, trust_env=False).text

    def hanging(question: str) -> list[Passage]:
        return [Passage(id="late", text=ask_port(silent_port))]

    def dead(question: str) -> list[Passage]:
        return [Passage(id="dead", text=ask_port(closed_port))]

    def raising(question: str) -> list[Passage]:
        msg = "SECRET"
        raise ValueError(msg)

    class Hanging(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return [Document(ask_port(silent_port))]

    slow = [Route(f"slow{n}", hanging, timeout_s=SLOW_S, public=True) for n in range(4)]
    others = [Route("dead", dead, public=True), Route("raising", raising, public=True)]
    well = Route("well", lambda question: [Passage(id="w", text="The well route says so.")], public=True)
    middleware = crag(
        [passage("The main store says so.")], routes=[*slow, Route("langchain", Hanging(), timeout_s=SLOW_S, public=True), *others, well]
    )
    agent, model = agent_with(middleware)

    began = time.perf_counter()
    result = ask_agent(agent, "Who says so?", how)
    took = time.perf_counter() - began

    receipt = result["crag"]
    reasons = {entry["step"]: entry["reason"] for entry in receipt["degraded"]}
    assert reasons == {f"route:slow{n}": "timeout" for n in range(4)} | {
        "route:langchain": "timeout",
        "route:dead": "ConnectError",
        "route:raising": "ValueError",
    }
    assert receipt["status"] == "grounded"
    for text in ("The main store says so.", "The well route says so."):
        assert text in str(model.requests[-1])
    assert "SECRET" not in str(receipt)
    assert receipt["timings_ms"]["retrieving"] < 3 * SLOW_S * 1000
    assert took < 5 * SLOW_S, "the end of the event loop waited for a route that was left behind"


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_an_async_route_that_never_answers_is_cancelled_at_its_deadline(silent_port: int, how: str) -> None:
    async def hanging(question: str) -> list[Passage]:
        async with httpx.AsyncClient(timeout=60, trust_env=False) as client:
            return [Passage(id="late", text=(await client.get(f"http://127.0.0.1:{silent_port}/")).text)]

    middleware = crag([passage("The main store says so.")], routes=Route("slow", hanging, timeout_s=0.3, public=True))
    agent, _ = agent_with(middleware)

    assert ask_agent(agent, "Who says so?", how)["crag"]["degraded"] == [{"step": "route:slow", "reason": "timeout"}]
    for thread in threading.enumerate():
        if thread.name == "crag-route:slow":
            thread.join(10)  # cancelled in its thread, too
            assert not thread.is_alive()


@pytest.mark.parametrize("how", ["invoke", "ainvoke"])
def test_a_route_that_returns_another_tenants_row_ends_the_turn_whatever_the_others_found(how: str) -> None:
    def leaking(question: str, *, agent_id: str) -> list[Document]:
        return [Document("SECRET", metadata={"agent_id": "b"})]

    middleware = crag([passage("The main store says so.")], routes=[Route("well", everything), Route("leaky", leaking)])
    agent, model = agent_with(middleware)

    with pytest.raises(TenantError):
        ask_agent(agent, "Who says so?", how)
    assert model.requests == []
