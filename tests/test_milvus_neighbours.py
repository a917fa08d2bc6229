"""The chunks beside a passage in its document, from real Milvus Lite collections of several shapes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.documents import Document
from langchain_milvus import Milvus
from pymilvus import DataType, MilvusClient, MilvusException

from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.adapters.milvus_errors import CONNECT_FAILED
from crag_middleware.adapters.milvus_neighbours import beside
from crag_middleware.errors import RetrievalError, TenantError
from crag_middleware.settings import CRAGSettings
from crag_middleware.types import Passage
from tests.support import milvus as support
from tests.support.milvus import JSON, TENANT, insert, make_collection, open_store, text_column

lite_uri = support.lite_uri

Neighbours = Callable[..., list[list[Passage]]]
NUMBER = (DataType.INT64, {"nullable": True})
COLUMNS = {
    "agent_id": TENANT,
    "metadata": JSON,
    "doc_id": text_column(),
    "source": text_column(),
    "version": text_column(),
    "chunk_index": NUMBER,
    "created_at": NUMBER,
    "confidence": (DataType.DOUBLE, {"nullable": True}),
}
HOSTILE = ['say "hi"', "C:\\docs\\", "a\nb", '") or (agent_id != "', "手册，第一版", "'x'"]


@pytest.fixture(params=["sync", "async"])
def neighbours(request: pytest.FixtureRequest) -> Neighbours:
    """Calls a retriever in its sync or its async form."""

    def call(
        retriever: MilvusRetriever, passages: Sequence[Passage], *, agent_id: str = "a", reach: int = 1, timeout_s: float = 10
    ) -> list[list[Passage]]:
        arguments: dict[str, Any] = {"agent_id": agent_id, "reach": reach, "timeout_s": timeout_s}
        if request.param == "sync":
            return retriever.neighbours(passages, **arguments)
        return asyncio.run(retriever.aneighbours(passages, **arguments))

    return call


def chunks(document: str, count: int = 6, *, agent_id: str = "a", key: str = "", **fields: Any) -> list[dict[str, Any]]:
    """Rows of one document, its last chunk first."""
    key = key or f"{agent_id}-{document}"
    return [
        {"id": f"{key}-{i}", "text": f"Chunk {i} of {document}", "agent_id": agent_id, "doc_id": document, "chunk_index": i, **fields}
        for i in reversed(range(count))
    ]


def store_of(uri: str, rows: Sequence[Mapping[str, Any]]) -> Milvus:
    insert(make_collection(uri, "k", COLUMNS), "k", rows)
    return open_store(uri, "k")


def at(document: str | None, index: Any, **fields: Any) -> Passage:
    """A passage that says where it stands."""
    named = {"doc_id": document, "chunk_index": index} | fields
    return Passage("p", "text", source=str(named.pop("source", "")), metadata={k: v for k, v in named.items() if v is not None})


def ids(found: Sequence[Sequence[Passage]]) -> list[list[str]]:
    return [[p.id for p in each] for each in found]


class Counting(MilvusClient):
    """Counts queries."""

    expressions: ClassVar[list[str]] = []

    def query(self, *arguments: Any, **keywords: Any) -> Any:
        self.expressions.append(keywords["filter"])
        return super().query(*arguments, **keywords)


def test_chunks_before_and_after_come_in_the_document_s_order_without_the_passage(lite_uri: str, neighbours: Neighbours) -> None:
    retriever = MilvusRetriever(store_of(lite_uri, [*chunks("x"), *chunks("y")]))
    passages = [at("x", 2), at("x", 0), at("y", 5), at("z", 1)]

    assert ids(neighbours(retriever, passages)) == [["a-x-1", "a-x-3"], ["a-x-1"], ["a-y-4"], []]
    assert ids(neighbours(retriever, passages[:1], reach=2)) == [["a-x-0", "a-x-1", "a-x-3", "a-x-4"]]
    assert ids(neighbours(retriever, passages[:1], reach=5)) == [["a-x-0", "a-x-1", "a-x-3", "a-x-4", "a-x-5"]]
    assert neighbours(retriever, passages, reach=0) == [[], [], [], []]
    assert neighbours(retriever, []) == []


def test_a_found_passage_has_what_its_neighbours_are_found_by(lite_uri: str, neighbours: Neighbours) -> None:
    retriever = MilvusRetriever(store_of(lite_uri, chunks("x", source="x.md", created_at=5, confidence=0.5)))

    found = retriever.retrieve("chunk 3", agent_id="a", limit=1, timeout_s=10)
    ((before, after),) = neighbours(retriever, found)

    assert found[0].text == "Chunk 3 of x"
    assert before == Passage(
        "a-x-2",
        "Chunk 2 of x",
        source="x.md",
        created_at=5,
        confidence=0.5,
        metadata={"doc_id": "x", "chunk_index": 2},
    )
    assert after.id == "a-x-4"


def test_no_chunk_of_another_tenant_comes_back(lite_uri: str, neighbours: Neighbours) -> None:
    retriever = MilvusRetriever(store_of(lite_uri, [*chunks("x"), *chunks("x", agent_id="b"), *chunks("secret", agent_id="b")]))

    assert ids(neighbours(retriever, [at("x", 2), at("secret", 2)])) == [["a-x-1", "a-x-3"], []]
    assert ids(neighbours(retriever, [at("x", 2)], agent_id="b")) == [["b-x-1", "b-x-3"]]
    for nobody in ("", None, 0):
        with pytest.raises(TenantError):
            neighbours(retriever, [at("x", 2)], agent_id=nobody)  # type: ignore[arg-type]  # what a caller may get wrong


def test_any_name_of_a_document_is_a_value_and_no_expression(lite_uri: str, neighbours: Neighbours) -> None:
    """C055."""
    rows = [row for name in HOSTILE for row in chunks(name, 3, key=f"a{HOSTILE.index(name)}")]
    retriever = MilvusRetriever(store_of(lite_uri, [*rows, *chunks("x", agent_id="b")]))

    found = ids(neighbours(retriever, [at(name, 1) for name in HOSTILE]))

    assert found == [[f"a{i}-0", f"a{i}-2"] for i in range(len(HOSTILE))]


def test_a_store_that_ignores_the_filter_is_caught(lite_uri: str) -> None:
    """C057: every row is checked on return."""

    class Leaky(MilvusClient):
        def query(self, *arguments: Any, **keywords: Any) -> Any:
            return super().query(*arguments, **keywords | {"filter": 'id != ""'})

    store = store_of(lite_uri, [*chunks("x"), *chunks("x", agent_id="b")])
    store._milvus_client = Leaky(**store._connection_args)

    with pytest.raises(TenantError) as caught:
        MilvusRetriever(store).neighbours([at("x", 2)], agent_id="a", reach=1, timeout_s=10)

    assert caught.value.reason == "foreign_row"


def test_versions_of_a_document_are_not_mixed(lite_uri: str, neighbours: Neighbours) -> None:
    rows = [row for version in (None, "1", "2") for row in chunks("x", 3, key=f"v{version}", version=version)]
    retriever = MilvusRetriever(store_of(lite_uri, rows))

    found = ids(neighbours(retriever, [at("x", 1, version=version) for version in (None, "1", "2", "3")]))

    assert found == [["vNone-0", "vNone-2"], ["v1-0", "v1-2"], ["v2-0", "v2-2"], []]


def test_without_a_document_id_the_source_names_the_document(lite_uri: str, neighbours: Neighbours) -> None:
    rows = [row | {"doc_id": None} for row in chunks("s", 3, source="s.md")] + chunks("d", 3, source="s.md")
    retriever = MilvusRetriever(store_of(lite_uri, rows))

    assert ids(neighbours(retriever, [at(None, 1, source="s.md"), at("d", 1, source="s.md")])) == [["a-s-0", "a-s-2"], ["a-d-0", "a-d-2"]]


@pytest.mark.parametrize("index", [None, "2", -1, 1.5, True, [2], float("nan"), 2**70])
def test_a_passage_without_a_place_has_no_neighbours_and_nothing_is_asked(lite_uri: str, neighbours: Neighbours, index: Any) -> None:
    retriever = MilvusRetriever(store_of(lite_uri, chunks("x")))

    assert neighbours(retriever, [at("x", index)]) == [[]]


@pytest.mark.parametrize(
    "passage", [at(None, 2), at("", 2), at("x\ud800", 2), at("x", 2, doc_id=["x"]), at("x", 2, version=["1"]), Passage("x", "")]
)
def test_a_passage_without_a_usable_document_has_no_neighbours(lite_uri: str, neighbours: Neighbours, passage: Passage) -> None:
    retriever = MilvusRetriever(store_of(lite_uri, chunks("x")))

    assert ids(neighbours(retriever, [passage, at("x", 0)])) == [[], ["a-x-1"]]


@pytest.mark.parametrize(
    "columns", [{}, {"source": text_column()}, {"chunk_index": NUMBER}, {"chunk_index": text_column(), "doc_id": text_column()}]
)
def test_a_collection_without_places_has_no_neighbours(lite_uri: str, neighbours: Neighbours, columns: dict[str, Any]) -> None:
    client = make_collection(lite_uri, "k", {"agent_id": TENANT} | columns)
    insert(client, "k", [{"id": "x", "text": "library", "agent_id": "a"}])

    assert neighbours(MilvusRetriever(open_store(lite_uri, "k")), [at("x", 1, source="x.md")]) == [[]]


def test_keys_in_a_json_column_serve_as_columns_do(lite_uri: str, neighbours: Neighbours) -> None:
    client = make_collection(lite_uri, "k", {"agent_id": TENANT, "metadata": JSON})
    rows = [*chunks("x", version="1"), *chunks("x", key="old", version="0"), *chunks("x", agent_id="b"), *chunks('"', key="q")]
    rows += [row | {"doc_id": None} for row in chunks("s", 3, source="s.md")]
    base = {"id", "text", "agent_id"}
    insert(
        client, "k", [{k: v for k, v in r.items() if k in base} | {"metadata": {k: v for k, v in r.items() if k not in base}} for r in rows]
    )
    retriever = MilvusRetriever(open_store(lite_uri, "k"))

    found = ids(
        neighbours(retriever, [at("x", 2, version="1"), at("x", 2.0, version="0"), at('"', 0), at(None, 1, source="s.md"), at("x", 2)])
    )

    assert found == [["a-x-1", "a-x-3"], ["old-1", "old-3"], ["q-1"], ["a-s-0", "a-s-2"], []]


def test_dynamic_fields_serve_as_columns_do(lite_uri: str, neighbours: Neighbours) -> None:
    make_collection(lite_uri, "k", {}, dynamic=True)
    store = open_store(lite_uri, "k", enable_dynamic_field=True)
    rows = [*chunks("x", 3), *chunks("x", 3, agent_id="b")]
    documents = [Document(r["text"], metadata={k: r[k] for k in ("agent_id", "doc_id", "chunk_index")}) for r in rows]
    store.add_documents(documents, ids=[r["id"] for r in rows])

    assert ids(neighbours(MilvusRetriever(store, tenant_field='$meta["agent_id"]'), [at("x", 1)])) == [["a-x-0", "a-x-2"]]


def test_the_conditions_of_a_search_hold_here_too(lite_uri: str, neighbours: Neighbours) -> None:
    rows = [row | {"confidence": row["chunk_index"] / 10} for row in chunks("x")]
    store = store_of(lite_uri, rows)

    assert ids(neighbours(MilvusRetriever(store, settings=CRAGSettings(min_confidence=0.25)), [at("x", 3)], reach=3)) == [
        ["a-x-4", "a-x-5"]
    ]
    assert ids(neighbours(MilvusRetriever(store, settings=CRAGSettings(filter={"id": {"ne": "a-x-2"}})), [at("x", 3)])) == [["a-x-4"]]


def test_of_copies_at_one_place_the_newest_stays(lite_uri: str, neighbours: Neighbours) -> None:
    rows = [row for age in (2, 3, 1) for row in chunks("x", 3, key=f"k{age}", created_at=age)]

    assert ids(neighbours(MilvusRetriever(store_of(lite_uri, rows)), [at("x", 1)])) == [["k3-0", "k3-2"]]


def test_one_query_serves_a_hundred_passages(lite_uri: str) -> None:
    Counting.expressions.clear()
    client = make_collection(lite_uri, "k", {"agent_id": TENANT, "metadata": JSON})
    insert(
        client,
        "k",
        [
            {"id": f"{d}-{i}", "text": "x", "agent_id": "a", "metadata": {"doc_id": str(d), "chunk_index": i}}
            for d in range(100)
            for i in range(12)
        ],
    )
    store = open_store(lite_uri, "k")
    store._milvus_client = Counting(**store._connection_args)

    found = MilvusRetriever(store).neighbours([at(str(d), 5) for d in range(100)], agent_id="a", reach=5, timeout_s=30)

    assert [len(each) for each in found] == [10] * 100
    (expression,) = Counting.expressions
    assert expression.startswith('(agent_id == "a") and (')


def test_a_released_collection_and_a_lost_connection_cost_one_more_try(lite_uri: str) -> None:
    class LosesConnection(MilvusClient):
        left = 1

        def query(self, *arguments: Any, **keywords: Any) -> Any:
            if self.left:
                self.left -= 1
                raise MilvusException(CONNECT_FAILED, "connection lost: MARKER")
            return super().query(*arguments, **keywords)

    store = store_of(lite_uri, chunks("x"))
    retriever = MilvusRetriever(store)
    store.client.release_collection("k")
    assert ids(retriever.neighbours([at("x", 0)], agent_id="a", reach=1, timeout_s=10)) == [["a-x-1"]]
    store._milvus_client = LosesConnection(**store._connection_args)
    assert ids(retriever.neighbours([at("x", 0)], agent_id="a", reach=1, timeout_s=10)) == [["a-x-1"]]


def test_the_deadline_holds_and_failures_are_ours(lite_uri: str, neighbours: Neighbours) -> None:
    store = store_of(lite_uri, chunks("SECRET"))
    retriever = MilvusRetriever(store)

    with pytest.raises(RetrievalError) as late:
        neighbours(retriever, [at("SECRET", 2)], timeout_s=0)
    store.client.drop_collection("k")
    with pytest.raises(RetrievalError) as gone:
        neighbours(retriever, [at("SECRET", 2)])

    assert (late.value.reason, gone.value.reason) == ("timeout", "collection_missing")
    assert "SECRET" not in str(late.value) + str(gone.value)
    assert gone.value.__suppress_context__, "no traceback shows it"


async def test_the_loop_goes_on_and_cancelling_passes_through(lite_uri: str) -> None:
    retriever = MilvusRetriever(store_of(lite_uri, chunks("x")))
    task = asyncio.create_task(retriever.aneighbours([at("x", 2)], agent_id="a", reach=1, timeout_s=10))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


places = st.builds(
    at, st.sampled_from(["x", "y", None]), st.integers(0, 8), version=st.sampled_from([None, "1", "2"]), source=st.sampled_from(["s", ""])
)


@given(passages=st.lists(places, max_size=6), rows=st.lists(places, max_size=20), reach=st.integers(1, 5))
def test_what_comes_is_near_in_order_of_the_same_version_and_at_most_one_a_place(
    passages: list[Passage], rows: list[Passage], reach: int
) -> None:
    found = beside(passages, rows, reach)

    assert len(found) == len(passages)
    for passage, near in zip(passages, found, strict=True):
        own = passage.metadata["chunk_index"]
        indexes = [p.metadata["chunk_index"] for p in near]
        assert indexes == sorted(set(indexes))
        assert all(0 < abs(index - own) <= reach for index in indexes)

        def page(p: Passage) -> tuple[Any, ...]:
            return p.metadata.get("doc_id"), "" if p.metadata.get("doc_id") else p.source, p.metadata.get("version")

        assert {page(p) for p in near} <= {page(passage)}
        known = {r.metadata["chunk_index"] for r in rows if page(r) == page(passage)} if page(passage)[:2] != (None, "") else set()
        assert set(indexes) == {i for i in known if 0 < abs(i - own) <= reach}
