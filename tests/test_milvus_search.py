"""Search in real Milvus Lite collections of several shapes."""

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_milvus import Milvus
from langgraph.errors import GraphInterrupt
from pymilvus import DataType, MilvusClient, MilvusException
from pymilvus.client.connection_manager import AsyncConnectionManager

from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.adapters.milvus_errors import CONNECT_FAILED
from crag_middleware.adapters.milvus_schema import read_layout
from crag_middleware.errors import ConfigError, RetrievalError, TenantError
from crag_middleware.findings import Trouble
from crag_middleware.settings import CRAGSettings
from crag_middleware.types import Passage
from tests.support import milvus as support
from tests.support.milvus import JSON, TENANT, WordEmbeddings, insert, lite_server, make_collection, open_store, text_column

lite_uri, lite_server_uri = support.lite_uri, support.lite_server_uri

Search = Callable[..., list[Passage]]
COLUMNS = {
    "agent_id": TENANT,
    "metadata": JSON,
    "source": text_column(),
    "title": text_column(),
    "url": text_column(),
    "confidence": (DataType.DOUBLE, {"nullable": True}),
    "created_at": (DataType.INT64, {"nullable": True}),
    "doc_id": text_column(),
    "page": (DataType.INT64, {"nullable": True}),
    "tags": (DataType.ARRAY, {"element_type": DataType.VARCHAR, "max_capacity": 4, "max_length": 16, "nullable": True}),
    "draft": (DataType.BOOL, {"nullable": True}),
}
ROWS: list[dict[str, Any]] = [
    {"id": "a1", "text": "The library opens at nine on weekdays.", "agent_id": "a", "source": "faq.md", "confidence": 0.95, "page": 1},
    {
        "id": "a2",
        "text": "图书馆周末照常开放，需要提前预约。",
        "agent_id": "a",
        "source": "常见问题.md",
        "confidence": 0.8,
        "page": 2,
        "draft": True,
    },
    {"id": "a3", "text": "Refunds take five days.", "agent_id": "a", "metadata": {"lang": "en", "confidence": 0.99, "n": 3}},
    {"id": "b1", "text": "The library opens at eight on weekdays. MARKER", "agent_id": "b", "source": "faq.md", "confidence": 1.0},
    {"id": "b2", "text": "图书馆周末照常开放 MARKER", "agent_id": "b", "metadata": {"lang": "zh", "agent_id": "a"}},
]


@pytest.fixture(params=["sync", "async"])
def search(request: pytest.FixtureRequest) -> Search:
    """Calls a retriever in its sync or its async form."""

    def call(
        retriever: MilvusRetriever,
        question: str = "When does the library open?",
        *,
        agent_id: Any = "a",
        limit: int = 5,
        timeout_s: float = 10,
    ) -> Any:
        arguments = {"agent_id": agent_id, "limit": limit, "timeout_s": timeout_s}
        if request.param == "sync":
            return [*retriever.retrieve(question, **arguments)]
        return [*asyncio.run(retriever.aretrieve(question, **arguments))]

    return call


@pytest.fixture
def store(lite_uri: str) -> Milvus:
    """Two tenants' rows in a hybrid collection with many columns."""
    insert(make_collection(lite_uri, "k", COLUMNS), "k", ROWS)
    return open_store(lite_uri, "k")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Milvus:
    """The same for tests that only read."""
    uri = str(tmp_path_factory.mktemp("library") / "knowledge.db")
    insert(make_collection(uri, "k", COLUMNS), "k", ROWS)
    return open_store(uri, "k")


def ids(passages: Sequence[Passage]) -> list[str]:
    return [p.id for p in passages]


class TestPassages:
    def test_a_passage_holds_what_the_columns_say(self, lite_uri: str, search: Search) -> None:
        row = {"id": "x", "text": "Hello 世界", "agent_id": "a", "source": "s.md", "title": "T", "url": "https://e.org", "confidence": 0.5}
        extra = {
            "created_at": 1_700_000_000_000,
            "doc_id": "d",
            "page": 3,
            "tags": ["x", "y"],
            "metadata": {"lang": "en", "page": 99, "nothing": None},
        }
        insert(make_collection(lite_uri, "k", COLUMNS), "k", [row | extra])

        (passage,) = search(MilvusRetriever(open_store(lite_uri, "k")), "Hello")

        assert passage == Passage(
            id="x",
            text="Hello 世界",
            source="s.md",
            title="T",
            url="https://e.org",
            origin="knowledge",
            score=passage.score,
            rank=1,
            confidence=0.5,
            created_at=1_700_000_000_000,
            metadata={"doc_id": "d", "page": 3, "tags": ["x", "y"], "lang": "en"},
        )
        assert passage.score is not None
        assert passage.score > 0

    def test_named_fields_are_taken_from_the_json_column_too(self, lite_uri: str, search: Search) -> None:
        client = make_collection(lite_uri, "k", {"agent_id": TENANT, "metadata": JSON})
        keys = {
            "source": "s",
            "title": 7,
            "url": "u",
            "confidence": "high",
            "created_at": 5.0,
            "doc_id": "d",
            "agent_id": "kept, it is not the tenant field",
        }
        insert(client, "k", [{"id": "x", "text": "Hello", "agent_id": "a", "metadata": keys}])

        (passage,) = search(MilvusRetriever(open_store(lite_uri, "k")), "Hello")

        assert (passage.source, passage.title, passage.url, passage.confidence, passage.created_at) == ("s", "7", "u", None, 5)
        assert passage.metadata == {"doc_id": "d"}

    def test_best_first_ranked_from_one_and_no_more_than_asked(self, library: Milvus, search: Search) -> None:
        retriever = MilvusRetriever(library)

        passages = search(retriever, limit=2)

        assert ids(passages)[0] == "a1"
        assert [p.rank for p in passages] == [1, 2]
        assert sorted((p.score for p in passages), reverse=True) == [p.score for p in passages]
        assert len(search(retriever, limit=1)) == 1

    def test_an_empty_collection_and_an_empty_tenant_find_nothing(self, lite_uri: str, search: Search) -> None:
        """C075."""
        make_collection(lite_uri, "k", COLUMNS)
        retriever = MilvusRetriever(open_store(lite_uri, "k"))

        assert search(retriever) == []
        assert search(retriever, "图书馆") == []

    @pytest.mark.parametrize("question", ["", "？", "!!!", "\x00", "🙂", "\ud800", "library \udc00?", "x" * 20_000])
    def test_an_odd_question_is_no_error(self, library: Milvus, search: Search, question: str) -> None:
        assert set(ids(search(MilvusRetriever(library), question))) <= {"a1", "a2", "a3"}


class TestTenants:
    def test_no_row_of_another_tenant_comes_back(self, library: Milvus, search: Search) -> None:
        """C055, C057: the filter stands on each leg."""
        retriever = MilvusRetriever(library)

        for question in ("When does the library open?", "图书馆周末开放吗", "MARKER"):
            assert set(ids(search(retriever, question, limit=50))) <= {"a1", "a2", "a3"}
            assert set(ids(search(retriever, question, agent_id="b", limit=50))) <= {"b1", "b2"}
        assert search(retriever, agent_id="c") == []

    @pytest.mark.parametrize("agent_id", [None, "", "  ", [], 0, False])
    def test_an_empty_scope_searches_nothing(self, library: Milvus, search: Search, agent_id: object) -> None:
        """C119."""
        with pytest.raises(TenantError):
            search(MilvusRetriever(library), agent_id=agent_id)

    @given(agent_id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).filter(lambda s: bool(s.strip())))
    @example(agent_id='a" or agent_id != "')
    @example(agent_id="a\\")
    @example(agent_id='a") or (1 == 1) or (agent_id == "')
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_hostile_id_finds_its_own_rows_only(self, store: Milvus, agent_id: str) -> None:
        """C055, C056."""
        insert(store.client, "k", [{"id": "probe", "text": "The library", "agent_id": agent_id}])

        found = MilvusRetriever(store).retrieve("The library", agent_id=agent_id, limit=50, timeout_s=10)

        assert "probe" in ids(found)
        assert agent_id in ("a", "b") or ids(found) == ["probe"]

    def test_the_answer_to_the_same_question_is_each_tenant_s_own(self, library: Milvus, search: Search) -> None:
        """C117."""
        retriever = MilvusRetriever(library)

        answers = [ids(search(retriever, agent_id=agent_id)) for agent_id in ("a", "b", "a")]

        assert answers[0] == answers[2]
        assert not set(answers[0]) & set(answers[1])

    def test_a_store_that_ignores_filters_is_caught(self, store: Milvus) -> None:
        """C057: every row is checked on return."""

        class Leaky(MilvusClient):
            def hybrid_search(self, *arguments: Any, reqs: Any, **keywords: Any) -> Any:
                for request in reqs:
                    request._expr = ""
                return super().hybrid_search(*arguments, reqs=reqs, **keywords)

        store._milvus_client = Leaky(**store._connection_args)
        retriever = MilvusRetriever(store)

        with pytest.raises(TenantError) as caught:
            retriever.retrieve("library", agent_id="a", limit=5, timeout_s=10)

        assert caught.value.reason == "foreign_row"
        assert "MARKER" not in str(caught.value)

    def test_what_a_server_would_misread_is_refused_there_and_works_on_lite(self, store: Milvus, search: Search) -> None:
        """C056: Milvus cuts Chinese characters beyond U+FFFF to 16 bits before it parses."""

        class Server(MilvusClient):
            def get_server_version(self, *arguments: Any, **keywords: Any) -> str:
                return "v2.6.4"

        insert(store.client, "k", [{"id": "x", "text": "library", "agent_id": "𠮷野家"}])
        assert ids(search(MilvusRetriever(store), agent_id="𠮷野家")) == ["x"]
        store._milvus_client = Server(**store._connection_args)
        retriever = MilvusRetriever(store)

        assert ids(search(retriever))[0] == "a1"
        with pytest.raises(TenantError, match=r"U\+FFFF"):
            search(retriever, agent_id="𠮷野家")
        with pytest.raises(ConfigError, match=r"U\+FFFF"):
            MilvusRetriever(store, settings=CRAGSettings(filter={"source": "𠮷"}))


class TestSchemas:
    def test_a_plain_column_is_isolated_and_warned_about(self, lite_uri: str, search: Search, caplog: pytest.LogCaptureFixture) -> None:
        client = make_collection(lite_uri, "k", {"team": text_column(nullable=False)})
        insert(client, "k", [{"id": x, "text": "library", "team": x} for x in ("a", "b")])

        with caplog.at_level(logging.WARNING, "crag_middleware"):
            retriever = MilvusRetriever(open_store(lite_uri, "k"), tenant_field="team")

        assert "no partition key" in caplog.text
        assert [(p.id, p.metadata) for p in search(retriever)] == [("a", {})]

    def test_a_partition_key_is_not_warned_about(self, library: Milvus, caplog: pytest.LogCaptureFixture) -> None:
        MilvusRetriever(library)

        assert not [r for r in caplog.records if r.name.startswith("crag")]

    @pytest.mark.parametrize("name", ['metadata["agent_id"]', "metadata['agent_id']"])
    def test_a_key_in_the_json_column_is_isolated(self, lite_uri: str, search: Search, name: str) -> None:
        client = make_collection(lite_uri, "k", {"metadata": JSON})
        owners = ["a", "b", 'a" or 1', None, 1, ["a"], True]
        insert(client, "k", [{"id": str(i), "text": "library", "metadata": {"agent_id": x, "n": i}} for i, x in enumerate(owners)])
        insert(client, "k", [{"id": "none", "text": "library", "metadata": None}, {"id": "empty", "text": "library", "metadata": {}}])
        retriever = MilvusRetriever(open_store(lite_uri, "k"), tenant_field=name)

        assert [(p.id, p.metadata) for p in search(retriever)] == [("0", {"n": 0})]
        assert ids(search(retriever, agent_id='a" or 1')) == ["2"]
        assert search(retriever, agent_id="1") == []

    @pytest.mark.parametrize("name", ['$meta["agent_id"]', 'metadata["agent_id"]'])
    def test_a_dynamic_field_is_isolated(self, lite_uri: str, search: Search, name: str) -> None:
        make_collection(lite_uri, "k", {}, dynamic=True)
        plain = open_store(lite_uri, "k", enable_dynamic_field=True)
        documents = [Document("library", metadata={"agent_id": x, "source": f"{x}.md", "lang": "en"}) for x in ("a", "b")]
        plain.add_documents(documents, ids=["1", "2"])

        (passage,) = search(MilvusRetriever(plain, tenant_field=name, settings=CRAGSettings(filter={"lang": "en"})))

        assert (passage.id, passage.source, passage.metadata) == ("1", "a.md", {"lang": "en"})

    def test_a_store_with_a_metadata_field_of_another_name(self, lite_uri: str, search: Search) -> None:
        make_collection(lite_uri, "k", {"extra": JSON})
        plain = open_store(lite_uri, "k", metadata_field="extra")
        plain.add_documents([Document("library", metadata={"agent_id": x, "title": x}) for x in ("a", "b")], ids=["1", "2"])

        (passage,) = search(MilvusRetriever(plain, tenant_field='extra["agent_id"]', settings=CRAGSettings(filter={"title": "a"})))

        assert (passage.id, passage.title) == ("1", "a")

    @pytest.mark.parametrize(
        "legs", [{"bm25": False}, {"dense": False}, {"client_sparse": True}, {"client_sparse": True, "bm25": False, "dense": False}]
    )
    @pytest.mark.parametrize("explain", [False, True])
    def test_any_set_of_legs_serves(self, lite_uri: str, search: Search, legs: dict[str, bool], explain: bool) -> None:
        kept = {k: v for k, v in legs.items() if k != "bm25"}
        insert(make_collection(lite_uri, "k", COLUMNS, **legs), "k", ROWS, **kept)  # type: ignore[arg-type]
        retriever = MilvusRetriever(open_store(lite_uri, "k", **legs), settings=CRAGSettings(explain=explain))

        found = search(retriever)

        assert found[0].id == "a1"
        assert found[0].score is not None
        assert found[0].score > 0
        assert set(ids(found)) <= {"a1", "a2", "a3"}
        assert search(retriever, "？") == [] or legs.get("dense", True)

    def test_with_l2_the_nearest_has_the_highest_score(self, lite_uri: str, search: Search) -> None:
        insert(make_collection(lite_uri, "k", COLUMNS, bm25=False, metric="L2"), "k", ROWS)

        found = search(MilvusRetriever(open_store(lite_uri, "k", bm25=False)))

        assert found[0].id == "a1"
        assert [p.score for p in found] == sorted((p.score for p in found), reverse=True)

    @pytest.mark.parametrize(
        ("columns", "options", "tenant_field", "message"),
        [
            ({"team": text_column()}, {}, None, r"no column `agent_id`.*open_knowledge.*tenant_field.*team"),
            ({"agent_id": (DataType.INT64, {})}, {}, None, "must be VARCHAR, got INT64"),
            ({"agent_id": TENANT}, {}, "team", "no column `team`"),
            ({"agent_id": TENANT}, {}, 'metadata["agent_id"]', r"`agent_id` is a column there, use `tenant_field='agent_id'`"),
            ({"team": TENANT}, {}, 'metadata["agent_id"]', "names no JSON column"),
            ({"team": TENANT}, {"dynamic": True}, None, "and dynamic fields"),
            ({"agent_id": TENANT}, {}, 'metadata["a"b"]', "must not"),
            ({"metadata": JSON}, {}, "metadata", "must be VARCHAR, got JSON"),
        ],
    )
    def test_what_cannot_be_isolated_is_refused_with_a_way_out(
        self, lite_uri: str, columns: Any, options: Any, tenant_field: str | None, message: str
    ) -> None:
        make_collection(lite_uri, "k", columns, **options)

        with pytest.raises(ConfigError, match=message):
            MilvusRetriever(open_store(lite_uri, "k"), tenant_field=tenant_field)

    def test_a_missing_collection_is_an_error_when_built(self, lite_uri: str) -> None:
        """L03."""
        with pytest.raises(ConfigError, match="no collection `typo`"):
            MilvusRetriever(open_store(lite_uri, "typo"))

    @pytest.mark.parametrize(("option", "name"), [("primary_field", "pk"), ("text_field", "body"), ("vector_field", "vector")])
    def test_a_store_whose_field_names_do_not_fit_is_refused(self, lite_uri: str, option: str, name: str) -> None:
        early = open_store(lite_uri, "k", **{option: [name, "sparse"] if option == "vector_field" else name})
        make_collection(lite_uri, "k", COLUMNS)

        with pytest.raises(ConfigError, match=rf"`{name}`.*agent_id"):
            MilvusRetriever(early)

    def test_a_field_without_an_index_is_refused(self, store: Milvus) -> None:
        store.client.release_collection("k")
        store.client.drop_index("k", "dense")

        with pytest.raises(ConfigError, match=r"`dense`.*no index"):
            MilvusRetriever(store)

    @pytest.mark.filterwarnings("ignore:The 'ranker_type'")
    def test_the_store_s_own_search_is_not_disturbed_and_does_not_disturb(self, store: Milvus, search: Search) -> None:
        """L02, C064: the store's vector-field list grows with each of its own searches."""
        retriever = MilvusRetriever(store)
        params = [{"metric_type": "COSINE", "params": {}}, {"metric_type": "BM25", "params": {}}]
        for _ in range(2):
            store.similarity_search("library", param=params, ranker_type="rrf", expr='agent_id == "a"')

        assert ids(search(retriever))[0] == "a1"
        assert ids(search(MilvusRetriever(store)))[0] == "a1"


class TestSettings:
    def test_search_parameters_given_to_the_store_count_and_its_own_defaults_do_not(self, library: Milvus) -> None:
        tuned = [{"metric_type": "COSINE", "params": {"ef": 99}}, {"metric_type": "BM25", "params": {}}]
        defaults = [{"metric_type": "COSINE", "params": {"ef": 10}}, {"metric_type": "BM25", "params": {"drop_ratio_build": 0.2}}]

        for params, expected in ((tuned, [{"ef": 99}, {}]), (defaults, [{}, {}]), (None, [{}, {}])):
            store = open_store(library._connection_args["uri"], "k", search_params=params)
            assert [leg.params for leg in read_layout(store).legs] == expected

    @pytest.mark.parametrize("question", ["照常开放", "周末可以预约吗"])
    def test_the_keyword_leg_alone_finds_chinese(self, lite_uri: str, search: Search, question: str) -> None:
        """C070."""
        insert(make_collection(lite_uri, "k", COLUMNS, dense=False), "k", ROWS, dense=False)

        assert ids(search(MilvusRetriever(open_store(lite_uri, "k", dense=False)), question)) == ["a2"]

    @pytest.mark.parametrize(
        ("condition", "expected"),
        [
            ({"page": 1}, {"a1"}),
            ({"page": {"gte": 1, "lt": 3}}, {"a1", "a2"}),
            ({"page": {"in": [2, 7]}}, {"a2"}),
            ({"draft": True}, {"a2"}),
            ({"draft": {"in": [True]}}, {"a2"}),
            ({"id": {"not_in": ["a1", "a3"]}}, {"a2"}),
            ({"source": '" or agent_id != "'}, set()),
            ({"lang": "en"}, {"a3"}),
            ({"lang": {"in": ["en", "zh"]}, "n": {"gt": 2.5}}, {"a3"}),
            ({"agent_id": "b"}, set()),
            ({"agent_id": {"ne": "a"}}, set()),
        ],
    )
    def test_a_filter_narrows_the_tenant_s_rows(self, library: Milvus, search: Search, condition: Any, expected: set[str]) -> None:
        retriever = MilvusRetriever(library, settings=CRAGSettings(filter=condition))

        assert set(ids(search(retriever))) == expected

    def test_rows_must_lie_above_the_confidence_floor(self, library: Milvus, search: Search) -> None:
        assert ids(search(MilvusRetriever(library, settings=CRAGSettings(min_confidence=0.9)))) == ["a1"]
        assert ids(search(MilvusRetriever(library, settings=CRAGSettings(min_confidence=0.95)))) == []

    def test_the_confidence_floor_works_on_a_json_key(self, lite_uri: str, search: Search) -> None:
        client = make_collection(lite_uri, "k", {"agent_id": TENANT, "metadata": JSON})
        insert(client, "k", [{"id": str(x), "text": "library", "agent_id": "a", "metadata": {"confidence": x}} for x in (0.85, 0.95)])

        assert ids(search(MilvusRetriever(open_store(lite_uri, "k"), settings=CRAGSettings(min_confidence=0.9)))) == ["0.95"]

    @pytest.mark.parametrize("given", [{"min_confidence": 0.9}, {"filter": {"nope": 1}}, {"filter": {"text": 1}}, {"filter": {"dense": 1}}])
    def test_a_condition_on_what_is_not_there_is_an_error_when_built(self, lite_uri: str, given: Any) -> None:
        make_collection(lite_uri, "k", {"agent_id": TENANT})

        with pytest.raises(ConfigError, match=r"confidence|nope|text|dense"):
            MilvusRetriever(open_store(lite_uri, "k"), settings=CRAGSettings(**given))

    @pytest.mark.parametrize("name", ["tags", "metadata", "dense", "sparse"])
    def test_a_condition_on_a_column_that_cannot_be_compared_is_refused(self, library: Milvus, name: str) -> None:
        with pytest.raises(ConfigError, match=f"can't compare the column '{name}'"):
            MilvusRetriever(library, settings=CRAGSettings(filter={name: "x"}))

    def test_a_row_s_own_legs_do_not_pass_for_those_of_explain(self, lite_uri: str, search: Search) -> None:
        row = {"id": "x", "text": "Hello", "agent_id": "a", "metadata": {"legs": "mine", "lang": "en"}}
        insert(make_collection(lite_uri, "k", COLUMNS), "k", [row])

        (plain,) = search(MilvusRetriever(open_store(lite_uri, "k")), "Hello")
        (explained,) = search(MilvusRetriever(open_store(lite_uri, "k"), settings=CRAGSettings(explain=True)), "Hello")

        assert plain.metadata == {"lang": "en"}
        assert explained.metadata["legs"].keys() == {"dense", "sparse"}

    @pytest.mark.filterwarnings("ignore:overflow")
    def test_explain_leaves_out_a_score_that_is_no_number(self, lite_uri: str, search: Search) -> None:
        row = {"id": "x", "text": "Hello", "agent_id": "a", "dense": [3e38] * 64}
        make_collection(lite_uri, "k", COLUMNS, metric="L2").insert("k", [row])

        (passage,) = search(MilvusRetriever(open_store(lite_uri, "k"), settings=CRAGSettings(explain=True)), "Hello")

        legs = passage.metadata["legs"]
        assert legs["sparse"].keys() == {"rank", "score"}
        assert legs["dense"] == {"rank": 1}

    def test_explain_adds_each_leg_s_rank_and_score(self, library: Milvus, search: Search) -> None:
        plain, explained = (search(MilvusRetriever(library, settings=CRAGSettings(explain=e)), "library 图书馆") for e in (False, True))

        assert [(p.id, p.score) for p in plain] == [(p.id, p.score) for p in explained]
        legs = {p.id: p.metadata["legs"] for p in explained}
        assert sorted(legs["a1"]) == sorted(legs["a2"]) == ["dense", "sparse"]
        assert {legs["a1"]["sparse"]["rank"], legs["a2"]["sparse"]["rank"]} == {1, 2}
        assert list(legs["a3"]) == ["dense"]
        for field in ("dense", "sparse"):
            by_rank = sorted((leg[field]["rank"], -leg[field]["score"]) for leg in legs.values() if field in leg)
            assert by_rank == sorted(by_rank, key=lambda pair: pair[1])

    def test_the_fusion_is_reciprocal_rank_with_the_given_constant(self, library: Milvus, search: Search) -> None:
        for k in (60, 1):
            (best, *_) = search(MilvusRetriever(library, settings=CRAGSettings(rrf_k=k, explain=True)))
            assert best.score == pytest.approx(sum(1 / (k + leg["rank"]) for leg in best.metadata["legs"].values()), rel=1e-3)

    def test_fewer_candidates_than_asked_for_are_raised_to_the_limit(self, library: Milvus, search: Search) -> None:
        assert len(search(MilvusRetriever(library, settings=CRAGSettings(candidates=1)))) == 3


class Slow(WordEmbeddings):
    """Embeddings that wait until they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def embed_query(self, text: str) -> list[float]:
        self.go.wait(20)
        return super().embed_query(text)


class Failing(WordEmbeddings):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def embed_query(self, text: str) -> list[float]:
        raise self.error


def store_with(store: Milvus, embeddings: WordEmbeddings) -> Milvus:
    return open_store(store._connection_args["uri"], "k", embedding_function=[embeddings])


class TestFailures:
    def test_a_collection_dropped_later_is_named_as_such(self, store: Milvus, search: Search) -> None:
        """L03: it does not look like an empty one."""
        retriever = MilvusRetriever(store)
        store.client.drop_collection("k")

        with pytest.raises(RetrievalError) as caught:
            search(retriever)

        assert caught.value.reason == "collection_missing"

    def test_a_released_collection_is_loaded_and_searched_again(self, store: Milvus, search: Search) -> None:
        """C065."""
        retriever = MilvusRetriever(store)
        store.client.release_collection("k")

        assert ids(search(retriever))[0] == "a1"

    def test_a_collection_that_stays_unloaded_is_an_error_of_its_own(self, store: Milvus) -> None:
        """C065."""

        class NeverLoads(MilvusClient):
            def load_collection(self, *arguments: Any, **keywords: Any) -> None:
                assert keywords["timeout"] <= 10

        retriever = MilvusRetriever(store)
        store.client.release_collection("k")
        store._milvus_client = NeverLoads(**store._connection_args)

        with pytest.raises(RetrievalError) as caught:
            retriever.retrieve("library", agent_id="a", limit=5, timeout_s=10)

        assert caught.value.reason == "not_loaded"

    @pytest.mark.parametrize(("failures", "reason"), [(1, None), (2, "unavailable")])
    def test_a_connection_that_was_lost_is_tried_once_more(self, store: Milvus, failures: int, reason: str | None) -> None:
        class LosesConnection(MilvusClient):
            left = failures

            def hybrid_search(self, *arguments: Any, **keywords: Any) -> Any:
                if self.left:
                    self.left -= 1
                    raise MilvusException(CONNECT_FAILED, "connection lost: MARKER")
                return super().hybrid_search(*arguments, **keywords)

        retriever = MilvusRetriever(store)
        store._milvus_client = LosesConnection(**store._connection_args)

        if reason is None:
            assert ids(retriever.retrieve("library", agent_id="a", limit=5, timeout_s=10))[0] == "a1"
            return
        with pytest.raises(RetrievalError, match="can't be reached") as caught:
            retriever.retrieve("library", agent_id="a", limit=5, timeout_s=10)
        assert caught.value.reason == reason
        assert "MARKER" not in str(caught.value)

    def test_a_failing_search_tells_nobody_the_tenant_or_the_question(
        self, store: Milvus, search: Search, caplog: pytest.LogCaptureFixture
    ) -> None:
        retriever = MilvusRetriever(store)
        store.client.drop_collection("k")
        make_collection(store._connection_args["uri"], "k", {"other": TENANT})
        pymilvus_logger = logging.getLogger("pymilvus")  # it does not hand its records on to the root logger
        pymilvus_logger.addHandler(caplog.handler)

        try:
            with caplog.at_level(logging.DEBUG), pytest.raises(RetrievalError) as caught:
                search(retriever, "SECRET question", agent_id='SECRET"\n tenant')
        finally:
            pymilvus_logger.removeHandler(caplog.handler)

        assert [r.name for r in caplog.records if r.levelno >= logging.ERROR]
        assert "SECRET" not in caplog.text + str(caught.value)
        assert "SECRET" in str(caught.value.__context__), "the filter is in the foreign error, which is what makes this a test"
        assert caught.value.__suppress_context__, "no traceback shows it"

    @pytest.mark.parametrize("size", [16, 65, 1])
    def test_embeddings_of_another_size_are_named_with_both_numbers(self, library: Milvus, search: Search, size: int) -> None:
        """C072."""
        retriever = MilvusRetriever(store_with(library, WordEmbeddings(size)))

        with pytest.raises(RetrievalError, match=rf"\b{size}\b.*\b64\b") as caught:
            search(retriever)

        assert caught.value.reason == "embedding_dimension"

    def test_an_embedding_model_that_fails_where_no_other_leg_is_left_is_an_error_without_its_text(
        self, lite_uri: str, search: Search
    ) -> None:
        insert(make_collection(lite_uri, "k", COLUMNS, bm25=False), "k", ROWS)
        retriever = MilvusRetriever(open_store(lite_uri, "k", bm25=False, embedding_function=[Failing(ValueError("SECRET question"))]))

        with pytest.raises(RetrievalError) as caught:
            search(retriever)

        assert caught.value.reason == "embedding"
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__, "no traceback shows it"
        assert "SECRET" not in str(caught.value)

    @pytest.mark.parametrize("error", [GraphInterrupt(), TenantError("x")])
    def test_control_flow_and_tenant_errors_of_an_embedder_pass(self, library: Milvus, search: Search, error: Exception) -> None:
        retriever = MilvusRetriever(store_with(library, Failing(error)))

        with pytest.raises(type(error)) as caught:
            search(retriever)

        assert caught.value is error

    def test_the_deadline_holds(self, lite_uri: str, search: Search) -> None:
        insert(make_collection(lite_uri, "k", COLUMNS, bm25=False), "k", ROWS)
        slow = Slow()
        retriever = MilvusRetriever(open_store(lite_uri, "k", bm25=False, embedding_function=[slow]))
        timer = threading.Timer(0.3, slow.go.set)
        timer.start()

        with pytest.raises(RetrievalError) as caught:
            search(retriever, timeout_s=0.1)

        assert caught.value.reason == "timeout"
        timer.join()

    def test_an_embedder_that_hangs_costs_its_own_leg_alone(self, library: Milvus) -> None:
        slow = Slow()
        retriever = MilvusRetriever(store_with(library, slow))

        found = retriever.retrieve("When does the library open?", agent_id="a", limit=5, timeout_s=2)

        slow.go.set()
        assert ids(found)[0] == "a1"
        assert found.troubles == (Trouble("dense", "timeout"),)

    async def test_an_async_embedder_that_hangs_costs_its_own_leg_alone(self, library: Milvus) -> None:
        class Hanging(WordEmbeddings):
            async def aembed_query(self, text: str) -> list[float]:
                return await asyncio.Event().wait()  # type: ignore[return-value]  # never

        retriever = MilvusRetriever(store_with(library, Hanging()))

        found = await retriever.aretrieve("When does the library open?", agent_id="a", limit=5, timeout_s=2)

        assert ids(found)[0] == "a1"
        assert found.troubles == (Trouble("dense", "timeout"),)

    async def test_cancelling_passes_through(self, library: Milvus) -> None:
        slow = Slow()
        task = asyncio.create_task(MilvusRetriever(store_with(library, slow)).aretrieve("x", agent_id="a", limit=5, timeout_s=10))
        await asyncio.sleep(0)
        task.cancel()
        slow.go.set()

        with pytest.raises(asyncio.CancelledError):
            await task

    def test_a_server_that_is_gone_is_named_as_such(self, tmp_path: Path, search: Search) -> None:
        with lite_server(tmp_path) as uri:
            insert(make_collection(uri, "k", COLUMNS), "k", ROWS)
            retriever = MilvusRetriever(open_store(uri, "k"))

        with pytest.raises(RetrievalError) as caught:
            search(retriever, timeout_s=0.5)

        assert caught.value.reason in ("unavailable", "timeout")


class TestLoopsAndThreads:
    """C061, C063."""

    @pytest.fixture(params=["file", "server"])
    def retriever(self, request: pytest.FixtureRequest) -> MilvusRetriever:
        """The same on a Lite file and on a server in another process."""
        uri = request.getfixturevalue("lite_uri" if request.param == "file" else "lite_server_uri")
        client = MilvusClient(uri)
        if client.has_collection("k"):
            client.drop_collection("k")
        insert(make_collection(uri, "k", COLUMNS), "k", ROWS)
        return MilvusRetriever(open_store(uri, "k"))

    @staticmethod
    async def ask(retriever: MilvusRetriever, agent_id: str = "a") -> list[str]:
        return ids(await retriever.aretrieve("When does the library open?", agent_id=agent_id, limit=5, timeout_s=10))

    def test_no_async_client_before_a_loop_asks(self, retriever: MilvusRetriever) -> None:
        assert len(retriever._clients) == 0

    def test_two_loops_in_a_row_a_thread_s_own_loop_and_sync_calls_between(self, retriever: MilvusRetriever) -> None:
        found = [asyncio.run(self.ask(retriever))]
        found.append(ids(retriever.retrieve("When does the library open?", agent_id="a", limit=5, timeout_s=10)))
        found.append(asyncio.run(self.ask(retriever)))
        with ThreadPoolExecutor(1) as pool:
            found.append(pool.submit(lambda: asyncio.run(self.ask(retriever))).result())

        assert found[0][0] == "a1"
        assert found == [found[0]] * 4

    def test_nothing_is_left_of_ended_loops(self, retriever: MilvusRetriever) -> None:
        """Neither here nor in pymilvus; gRPC itself forgets loops when the process' last async channel is closed."""

        def channels() -> int:
            return sum(len(manager._dedicated) + len(manager._registry) for manager in AsyncConnectionManager._instances.values())

        async def turn() -> int:
            await asyncio.gather(*[self.ask(retriever) for _ in range(3)])
            assert len(retriever._clients) == 1
            return channels()

        before = channels()
        during = [asyncio.run(turn()) for _ in range(8)]

        assert len(retriever._clients) == 0
        assert channels() == before
        assert during == [before + 1] * 8, "one channel for all calls of a loop"

    def test_a_loop_that_was_closed_the_hard_way_is_dropped_at_the_next_call(self, retriever: MilvusRetriever) -> None:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(self.ask(retriever))
        loop.close()

        asyncio.run(self.ask(retriever))

        assert len(retriever._clients) == 0

    def test_a_loop_that_failed_to_connect_tries_again(self, lite_uri: str) -> None:
        insert(make_collection(lite_uri, "k", COLUMNS), "k", ROWS)
        retriever = MilvusRetriever(open_store(lite_uri, "k"))
        good = retriever._clients._connection
        bad = good | {"uri": "http://127.0.0.1:1"}

        async def turn() -> list[str]:
            retriever._clients._connection = bad
            with pytest.raises(RetrievalError):
                await retriever.aretrieve("library", agent_id="a", limit=5, timeout_s=0.2)
            retriever._clients._connection = good
            return await self.ask(retriever)

        assert asyncio.run(turn())[0] == "a1"

    def test_eight_threads_do_not_mix_tenants(self, retriever: MilvusRetriever) -> None:
        def turn(i: int) -> tuple[str, list[str]]:
            agent_id = "ab"[i % 2]
            found = retriever.retrieve("When does the library open? 图书馆", agent_id=agent_id, limit=5, timeout_s=20)
            return agent_id, ids(found)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(turn, range(64)))

        assert all(found and all(i.startswith(agent_id) for i in found) for agent_id, found in answers)

    def test_eight_threads_with_loops_of_their_own_do_not_mix_tenants(self, retriever: MilvusRetriever) -> None:
        def turn(i: int) -> tuple[str, list[str]]:
            agent_id = "ab"[i % 2]
            return agent_id, asyncio.run(self.ask(retriever, agent_id))

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(turn, range(24)))

        assert all(found and all(i.startswith(agent_id) for i in found) for agent_id, found in answers)
        assert len(retriever._clients) == 0

    async def test_the_loop_goes_on_while_a_search_runs(self, library: Milvus) -> None:
        slow = Slow()
        task = asyncio.create_task(self.ask(MilvusRetriever(store_with(library, slow))))
        for _ in range(50):
            await asyncio.sleep(0)

        assert not task.done()
        slow.go.set()
        assert (await task)[0] == "a1"

    def test_a_row_just_written_is_found(self, retriever: MilvusRetriever) -> None:
        """C066: searches have the store's consistency level."""
        for i in range(5):
            insert(retriever._store.client, "k", [{"id": f"new{i}", "text": f"Zanzibar {i}", "agent_id": "z"}])
            assert len(retriever.retrieve("Zanzibar", agent_id="z", limit=10, timeout_s=10)) == i + 1
