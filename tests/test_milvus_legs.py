"""A leg for each vector field of a real Milvus Lite collection, and what is told of those that are left out or fail."""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.embeddings import Embeddings
from langchain_milvus import Milvus
from langchain_milvus.utils.sparse import BaseSparseEmbedding
from langgraph.errors import GraphInterrupt
from pymilvus import DataType, Function, FunctionType, MilvusClient

from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.adapters.milvus_legs import Leg
from crag_middleware.adapters.milvus_schema import read_layout
from crag_middleware.adapters.milvus_vectors import checked, decoded, unit
from crag_middleware.errors import ConfigError, RetrievalError
from crag_middleware.findings import Found, Trouble
from crag_middleware.middleware import CRAGMiddleware
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import ScriptedEvaluator
from tests.support import milvus as support
from tests.support.agents import agent_with, ask, both
from tests.support.milvus import JSON, TENANT, WordEmbeddings, WordSparse, insert, make_collection, open_store, text_column, words

lite_uri = support.lite_uri

Search = Callable[..., Found]
COLUMNS = {"agent_id": TENANT, "metadata": JSON, "source": text_column()}
SYNONYMS = {"car": "automobile", "automobile": "car", "doctor": "physician", "physician": "doctor"}
TEXTS = {
    1: "The car is washed on Mondays.",
    2: "A physician is on call at night.",
    3: "The library opens at nine.",
    4: "图书馆周末照常开放。",
}


class LearnedSparse(WordSparse):
    """Weights words, and others that mean the same, as SPLADE does: places are hashes of words."""

    def embed_query(self, query: str) -> dict[int, float]:
        said = words(query)
        return super().embed_query(" ".join([*said, *(SYNONYMS[w] for w in said if w in SYNONYMS)]))


class Broken(WordEmbeddings):
    """Answers with whatever it is given; an exception is raised."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def embed_query(self, text: str) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class BrokenSparse(WordSparse):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def embed_query(self, query: str) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture(params=["sync", "async"])
def search(request: pytest.FixtureRequest) -> Search:
    """Calls a retriever in its sync or its async form."""

    def call(retriever: MilvusRetriever, question: str, *, agent_id: str = "a", limit: int = 5) -> Found:
        arguments: dict[str, Any] = {"agent_id": agent_id, "limit": limit, "timeout_s": 10}
        if request.param == "sync":
            return retriever.retrieve(question, **arguments)
        return asyncio.run(retriever.aretrieve(question, **arguments))

    return call


def three_legs(uri: str) -> Milvus:
    """Whole numbers as ids, and three vector fields, of which the store embeds for one."""
    client = MilvusClient(uri)
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    schema.add_field("text", DataType.VARCHAR, max_length=8192, enable_analyzer=True, analyzer_params={"tokenizer": "jieba"})
    schema.add_field("agent_id", DataType.VARCHAR, max_length=256, is_partition_key=True)
    schema.add_field("splade", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_field("dense", DataType.FLOAT_VECTOR, dim=support.DIMENSION)
    schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(Function("bm25", FunctionType.BM25, input_field_names=["text"], output_field_names=["sparse"]))
    indexes = client.prepare_index_params()
    indexes.add_index("dense", index_type="AUTOINDEX", metric_type="COSINE")
    indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    indexes.add_index("splade", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    client.create_collection("k", schema=schema, consistency_level="Strong")
    client.create_index("k", indexes, sync=False)
    client.load_collection("k")
    learned, dense = LearnedSparse(), WordEmbeddings()
    rows = [{"id": key, "text": text, "agent_id": "a"} for key, text in TEXTS.items()]
    rows += [{"id": -key, "text": text, "agent_id": "b"} for key, text in TEXTS.items()]
    client.insert("k", [{**row, "dense": dense.embed_query(row["text"]), "splade": learned.embed_query(row["text"])} for row in rows])
    return open_store(uri, "k")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name.startswith("crag")]


class TestLegs:
    def test_a_field_with_an_embedder_of_its_own_is_one_leg_more(
        self, lite_uri: str, search: Search, caplog: pytest.LogCaptureFixture
    ) -> None:
        retriever = MilvusRetriever(three_legs(lite_uri), embedders={"splade": LearnedSparse()}, settings=CRAGSettings(explain=True))

        found = search(retriever, "doctor")

        assert not warnings(caplog)
        assert found[0].id == "2", "an INT64 id, in words; only the learned leg knows that a physician is a doctor"
        assert found[0].metadata["legs"]["splade"]["rank"] == 1
        assert "sparse" not in found[0].metadata["legs"]
        for passage in found:
            assert passage.score == pytest.approx(sum(1 / (60 + leg["rank"]) for leg in passage.metadata["legs"].values()), rel=1e-3)
        assert {leg for p in search(retriever, "the car, a doctor, 图书馆") for leg in p.metadata["legs"]} == {"dense", "sparse", "splade"}

    def test_every_leg_keeps_to_the_tenant(self, lite_uri: str, search: Search) -> None:
        retriever = MilvusRetriever(three_legs(lite_uri), embedders={"splade": LearnedSparse()})

        for question in ("doctor", "the car", "图书馆"):
            assert {int(p.id) > 0 for p in search(retriever, question, limit=50)} == {True}
            assert {int(p.id) < 0 for p in search(retriever, question, agent_id="b", limit=50)} == {True}
        assert search(retriever, "doctor", agent_id="c") == ()

    def test_a_field_that_nothing_embeds_for_is_told_once_with_what_to_do(
        self, lite_uri: str, search: Search, caplog: pytest.LogCaptureFixture
    ) -> None:
        retriever = MilvusRetriever(three_legs(lite_uri))

        search(retriever, "the car")
        search(retriever, "the car")

        (told,) = warnings(caplog)
        assert "splade" in told
        assert "MilvusRetriever(store, embedders={'splade': ...})" in told

    def test_a_given_embedder_stands_in_for_the_store_s_own(self, lite_uri: str, search: Search) -> None:
        store = three_legs(lite_uri)
        given = {"dense": WordEmbeddings(), "splade": LearnedSparse()}

        legs = read_layout(open_store(lite_uri, "k", embedding_function=[Broken(ValueError())]), embedders=given).legs

        assert [(leg.field, leg.embedder) for leg in legs] == [("dense", given["dense"]), ("splade", given["splade"]), ("sparse", None)]
        assert [leg.field for leg in read_layout(store).legs] == ["dense", "sparse"]

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"nope": WordSparse()}, r"'nope'.*no dense or sparse vector field.*`splade`, `dense`, `sparse`"),
            ({"text": WordSparse()}, "'text'"),
            ({"sparse": WordSparse()}, "Milvus makes its vectors from the text itself"),
            ({"splade": WordEmbeddings()}, "SPARSE_FLOAT_VECTOR and needs `BaseSparseEmbedding`, got WordEmbeddings"),
            ({"dense": WordSparse()}, "FLOAT_VECTOR and needs `Embeddings`, got WordSparse"),
            ({"splade": "splade-v3"}, "`embed_query`.*got str"),
            ({"splade": WordSparse}, "got ABCMeta"),
            ([WordSparse()], "must be a mapping.*got list"),
        ],
    )
    def test_an_embedder_that_fits_no_field_is_refused_with_a_way_out(self, lite_uri: str, given: Any, message: str) -> None:
        store = three_legs(lite_uri)

        with pytest.raises(ConfigError, match=message):
            MilvusRetriever(store, embedders=given)


class Server(MilvusClient):
    """Says that a collection has columns of types that Milvus Lite has not; takes and gives vectors of 16 bits as a server does."""

    kinds: ClassVar[Mapping[str, DataType]] = {}
    more: ClassVar[tuple[Mapping[str, Any], ...]] = ()

    def describe_collection(self, *arguments: Any, **keywords: Any) -> Any:
        described = super().describe_collection(*arguments, **keywords)
        fields = [field | {"type": self.kinds.get(field["name"], field["type"])} for field in described["fields"]]
        return described | {"fields": [*fields, *self.more]}


def pretending(store: Milvus, server: type[Server]) -> Milvus:
    store._milvus_client = server(**store._connection_args)
    return store


class TestTypes:
    def test_fields_that_no_question_can_be_searched_in_are_told_once_and_left_out(
        self, lite_uri: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Rich(Server):
            more = (
                {"name": "hash", "type": DataType.BINARY_VECTOR, "params": {"dim": 64}},
                {"name": "small", "type": DataType.INT8_VECTOR, "params": {"dim": 64}},
                {
                    "name": "clips",
                    "type": DataType.ARRAY,
                    "element_type": DataType.STRUCT,
                    "params": {},
                    "struct_fields": [{"name": "at", "type": DataType.INT64}, {"name": "frame", "type": DataType.FLOAT_VECTOR}],
                },
            )

        insert(make_collection(lite_uri, "k", COLUMNS), "k", [{"id": "x", "text": "library", "agent_id": "a"}])
        retriever = MilvusRetriever(pretending(open_store(lite_uri, "k"), Rich))

        (told,) = warnings(caplog)
        assert "hash (BINARY_VECTOR), small (INT8_VECTOR), clips[frame]" in told
        assert [p.id for p in retriever.retrieve("library", agent_id="a", limit=5, timeout_s=10)] == ["x"]

    @pytest.mark.parametrize("kind", [DataType.FLOAT16_VECTOR, DataType.BFLOAT16_VECTOR])
    def test_vectors_of_16_bits_go_out_and_come_back_in_their_own_bytes(self, lite_uri: str, kind: DataType) -> None:
        def narrow(numbers: Any) -> bytes:
            exact = np.asarray(numbers, "<f4")
            return exact.astype("<f2").tobytes() if kind is DataType.FLOAT16_VECTOR else exact.view("<u2")[1::2].tobytes()

        def widen(data: bytes) -> list[float]:
            if kind is DataType.FLOAT16_VECTOR:
                return np.frombuffer(data, "<f2").astype(float).tolist()
            return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(float).tolist()

        class Half(Server):
            kinds: ClassVar[Mapping[str, DataType]] = {"dense": kind}
            asked: ClassVar[list[bytes]] = []

            def search(self, *arguments: Any, data: Any, **keywords: Any) -> Any:
                self.asked.extend(data)
                (hits,) = super().search(*arguments, data=[widen(v) for v in data], **keywords)
                for hit in hits:
                    hit["entity"]["dense"] = [narrow(hit["entity"]["dense"])]
                return [hits]

        rows = [{"id": str(i), "text": text, "agent_id": "a"} for i, text in TEXTS.items()]
        insert(make_collection(lite_uri, "k", COLUMNS, bm25=False), "k", rows)
        retriever = MilvusRetriever(pretending(open_store(lite_uri, "k", bm25=False), Half), with_vectors=True)

        found = retriever.retrieve("When does the library open?", agent_id="a", limit=5, timeout_s=10)

        assert found[0].id == "3"
        assert len(Half.asked[0]) == 2 * support.DIMENSION
        assert widen(Half.asked[0]) == pytest.approx(WordEmbeddings().embed_query("When does the library open?"), rel=2**-8)
        assert found[0].vector == pytest.approx(WordEmbeddings().embed_query(TEXTS[3]), rel=2**-6)

    @given(st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=20))
    def test_no_number_is_moved_by_more_than_its_precision(self, numbers: list[float]) -> None:
        for kind, bits in ((DataType.FLOAT_VECTOR, 24), (DataType.FLOAT16_VECTOR, 11), (DataType.BFLOAT16_VECTOR, 8)):
            leg = Leg("dense", kind, "COSINE", {}, WordEmbeddings(), len(numbers))
            back = decoded(checked(numbers, leg), kind)
            assert back.tolist() == pytest.approx(numbers, rel=2.0**-bits, abs=1e-7)

    @given(st.lists(st.floats(-1000, 1000, width=32), max_size=20))
    def test_a_unit_vector_has_length_one_or_is_none(self, numbers: list[float]) -> None:
        vector = unit(numbers, DataType.FLOAT_VECTOR)

        assert (vector is None) == (not any(numbers))
        assert vector is None or math.isclose(math.hypot(*vector), 1, rel_tol=1e-9)


NO_DENSE = [
    ValueError("SECRET"),
    TimeoutError("SECRET"),
    None,
    "SECRET",
    ["x"] * 64,
    [math.nan] * 64,
    [[0.1]] * 64,
    [math.inf] * 64,
    {1: 2.0},
]
NO_SPARSE = [OSError("SECRET"), None, [0.1, 0.2], {"SECRET": 1.0}, {-1: 1.0}, {1: math.nan}, {1: "SECRET"}]


class TestFailingLegs:
    @pytest.mark.parametrize(
        ("field", "embedder"),
        [*(("dense", Broken(x)) for x in NO_DENSE), *(("splade", BrokenSparse(x)) for x in NO_SPARSE)],
        ids=lambda given: type(given).__name__,
    )
    def test_an_embedder_that_fails_costs_its_own_leg_and_is_told(
        self, lite_uri: str, search: Search, caplog: pytest.LogCaptureFixture, field: str, embedder: Any
    ) -> None:
        good: dict[str, Embeddings | BaseSparseEmbedding] = {"dense": WordEmbeddings(), "splade": LearnedSparse()}
        retriever = MilvusRetriever(three_legs(lite_uri), embedders=good | {field: embedder}, settings=CRAGSettings(explain=True))

        found = search(retriever, "SECRET: when does the library open?")

        assert found.troubles == (Trouble(field, "timeout" if isinstance(embedder.answer, TimeoutError) else "embedding"),)
        assert found[0].id == "3"
        assert {leg for p in found for leg in p.metadata["legs"]} == {"dense", "sparse", "splade"} - {field}
        (told,) = warnings(caplog)
        assert field in told
        assert "SECRET" not in told

    def test_a_leg_is_back_as_soon_as_its_embedder_is(self, lite_uri: str, search: Search) -> None:
        embedder = BrokenSparse(OSError())
        retriever = MilvusRetriever(three_legs(lite_uri), embedders={"splade": embedder})

        assert search(retriever, "the car").troubles
        embedder.answer = LearnedSparse().embed_query("the car")
        assert not search(retriever, "the car").troubles

    def test_bm25_alone_serves_while_every_embedder_is_down(self, lite_uri: str, search: Search) -> None:
        down: dict[str, Embeddings | BaseSparseEmbedding] = {"dense": Broken(OSError()), "splade": BrokenSparse(OSError())}

        found = search(MilvusRetriever(three_legs(lite_uri), embedders=down), "library")

        assert [p.id for p in found] == ["3"]
        assert [t.step for t in found.troubles] == ["dense", "splade"]

    def test_where_no_leg_is_left_the_search_failed(self, lite_uri: str, search: Search) -> None:
        insert(make_collection(lite_uri, "k", COLUMNS, bm25=False, client_sparse=True), "k", [], client_sparse=True)
        store = open_store(lite_uri, "k", bm25=False, client_sparse=True, embedding_function=[Broken(OSError("SECRET")), BrokenSparse({})])

        with pytest.raises(RetrievalError, match="OSError") as caught:
            search(MilvusRetriever(store), "library")

        assert caught.value.reason == "embedding"
        assert "SECRET" not in str(caught.value)
        assert caught.value.__suppress_context__, "no traceback shows it"

    def test_a_wrong_size_is_an_error_even_where_other_legs_work(self, lite_uri: str, search: Search) -> None:
        """C072: it would be wrong in every search, and be taken for a passing fault."""
        retriever = MilvusRetriever(three_legs(lite_uri), embedders={"dense": WordEmbeddings(16)})

        with pytest.raises(RetrievalError, match=r"\b16\b.*\b64\b") as caught:
            search(retriever, "library")

        assert caught.value.reason == "embedding_dimension"

    @both
    def test_the_receipt_names_the_leg_and_the_turn_goes_on(self, lite_uri: str, how: str) -> None:
        retriever = MilvusRetriever(three_legs(lite_uri), embedders={"splade": BrokenSparse(OSError("SECRET"))})
        agent, _ = agent_with(CRAGMiddleware(retriever, "a", evaluator=ScriptedEvaluator()))

        receipt = ask(agent, "When does the library open?", how)["crag"]

        assert receipt["status"] == "grounded"
        assert receipt["degraded"] == [{"step": "retrieve:splade", "reason": "embedding"}]
        assert "SECRET" not in str(receipt)

    def test_control_flow_is_no_failure_of_a_leg(self, lite_uri: str, search: Search) -> None:
        retriever = MilvusRetriever(three_legs(lite_uri), embedders={"splade": BrokenSparse(GraphInterrupt())})

        with pytest.raises(GraphInterrupt):
            search(retriever, "library")


class TestVectors:
    ROWS: ClassVar[list[dict[str, Any]]] = [
        {"id": str(i), "text": text, "agent_id": "a", "metadata": {"dense": "a word of the row's own"}} for i, text in TEXTS.items()
    ]

    def test_passages_bring_their_vectors_when_asked_to(self, lite_uri: str, search: Search) -> None:
        insert(make_collection(lite_uri, "k", COLUMNS), "k", self.ROWS)
        store = open_store(lite_uri, "k")

        plain, told = (search(MilvusRetriever(store, with_vectors=w), "the library, a car") for w in (False, True))

        assert plain == told, "the same passages, vectors aside"
        assert {p.vector for p in plain} == {None}
        for passage in told:
            assert passage.vector == pytest.approx(WordEmbeddings().embed_query(passage.text), abs=1e-6)
            assert passage.metadata == {"dense": "a word of the row's own"}

    def test_stored_vectors_of_any_length_come_at_length_one(self, lite_uri: str, search: Search) -> None:
        client = make_collection(lite_uri, "k", COLUMNS, metric="L2")
        vectors = {"long": [3.0, 4.0] + [0.0] * 62, "none": [0.0] * 64}
        client.insert("k", [{"id": key, "text": f"library {key}", "agent_id": "a", "dense": vector} for key, vector in vectors.items()])

        found = {p.id: p.vector for p in search(MilvusRetriever(open_store(lite_uri, "k"), with_vectors=True), "library")}

        assert found["none"] is None
        assert found["long"] == pytest.approx([0.6, 0.8] + [0.0] * 62)

    def test_they_are_the_first_dense_leg_s_whichever_legs_found_the_passage(self, lite_uri: str, search: Search) -> None:
        store = three_legs(lite_uri)
        retriever = MilvusRetriever(store, embedders={"dense": Broken(OSError()), "splade": LearnedSparse()}, with_vectors=True)

        found = search(retriever, "doctor")

        assert found[0].vector == pytest.approx(WordEmbeddings().embed_query(found[0].text), abs=1e-6)

    def test_without_a_dense_leg_there_are_none(self, lite_uri: str, search: Search) -> None:
        insert(make_collection(lite_uri, "k", COLUMNS, dense=False), "k", self.ROWS, dense=False)

        (passage,) = search(MilvusRetriever(open_store(lite_uri, "k", dense=False), with_vectors=True), "library")

        assert passage.vector is None
