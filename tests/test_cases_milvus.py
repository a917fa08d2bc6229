"""Cases of retrieval from Milvus, each through the public parts on real Milvus Lite."""

import logging
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_milvus import BM25BuiltInFunction, Milvus
from pymilvus import DataType, Function, FunctionType, MilvusClient
from pymilvus.exceptions import ConnectionNotExistException

from crag_middleware import ConfigError, CRAGMiddleware, CRAGSettings, MilvusRetriever, open_knowledge
from crag_middleware.testing import ScriptedEvaluator
from tests.support import milvus as support
from tests.support.agents import agent_with, ask, both, crag, passage
from tests.support.milvus import TENANT, WordEmbeddings, insert, make_collection, open_store

lite_uri = support.lite_uri

QUESTION = "When does the library open?"


def search(retriever: MilvusRetriever, question: str = QUESTION, agent_id: str = "a") -> list[str]:
    return [p.id for p in retriever.retrieve(question, agent_id=agent_id, limit=5, timeout_s=10)]


def keyword_collection(uri: str, analyzer: dict[str, Any] | None) -> Milvus:
    """A BM25 leg alone, over texts taken apart by the given analyzer."""
    client = MilvusClient(uri)
    schema = client.create_schema()
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=64)
    options: dict[str, Any] = {} if analyzer is None else {"analyzer_params": analyzer}
    schema.add_field("text", DataType.VARCHAR, max_length=1024, enable_analyzer=True, **options)
    schema.add_field("agent_id", DataType.VARCHAR, max_length=64, is_partition_key=True)
    schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
    schema.add_function(Function("bm25", FunctionType.BM25, input_field_names=["text"], output_field_names=["sparse"]))
    indexes = client.prepare_index_params()
    indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    client.create_collection("k", schema=schema, consistency_level="Strong")
    client.create_index("k", indexes, sync=False)
    client.load_collection("k")
    client.insert("k", [{"id": "x", "text": "图书馆周末照常开放", "agent_id": "a"}])
    return open_store(uri, "k", dense=False)


class TestPartitionKeyWithDynamicFields:
    """C060."""

    def test_a_partition_key_beside_free_keys_isolates_and_both_come_back(self, lite_uri: str) -> None:
        client = make_collection(lite_uri, "k", {"agent_id": TENANT}, dynamic=True)
        insert(
            client, "k", [{"id": t, "text": "The library opens at nine.", "agent_id": t, "team": f"team {t}", "n": 1} for t in ("a", "b")]
        )

        found = MilvusRetriever(open_store(lite_uri, "k", enable_dynamic_field=True)).retrieve(
            QUESTION, agent_id="a", limit=5, timeout_s=10
        )

        assert [(p.id, p.metadata) for p in found] == [("a", {"team": "team a", "n": 1})]

    def test_our_own_collection_keeps_free_keys_beside_its_declared_partition_key(self, lite_uri: str) -> None:
        store = open_knowledge(lite_uri, WordEmbeddings())
        store.add_texts(["The library opens at nine."], [{"team": "desk", "n": [1, 2]}], agent_id="a")

        (found,) = MilvusRetriever(store).retrieve(QUESTION, agent_id="a", limit=5, timeout_s=10)

        assert store.client.describe_collection("knowledge")["enable_dynamic_field"] is False
        assert (found.metadata["team"], found.metadata["n"]) == ("desk", [1, 2])

    def test_a_tenant_among_free_keys_that_is_no_column_must_be_named_as_such(self, lite_uri: str) -> None:
        make_collection(lite_uri, "k", {}, dynamic=True)

        with pytest.raises(ConfigError, match=r"no column `agent_id`.*\$meta"):
            MilvusRetriever(open_store(lite_uri, "k", enable_dynamic_field=True))


@pytest.mark.filterwarnings("ignore:.*ORM-style PyMilvus API")
def test_a_search_needs_no_connection_of_pymilvus_orm_classes_c064(lite_uri: str) -> None:
    orm = pytest.importorskip("pymilvus.orm", reason="this pymilvus has no ORM classes any more")
    connections, collection = orm.connections.connections, orm.collection.Collection
    insert(make_collection(lite_uri, "k", {"agent_id": TENANT}), "k", [{"id": "x", "text": "library", "agent_id": "a"}])
    store = open_store(lite_uri, "k")
    for alias, _ in connections.list_connections():
        connections.remove_connection(alias)

    with pytest.raises(ConnectionNotExistException):
        collection("k")
    retriever = MilvusRetriever(store)
    assert search(retriever) == ["x"]
    assert retriever.neighbours([passage("x", metadata={"doc_id": "d", "chunk_index": 1})], agent_id="a", reach=1, timeout_s=10) == [[]]


@both
def test_what_was_not_there_is_found_once_it_was_written_c066(lite_uri: str, how: str) -> None:
    """An empty answer is kept nowhere, and every call says how consistent it must be."""
    said = []

    class Recording(MilvusClient):
        def hybrid_search(self, *arguments: Any, **keywords: Any) -> Any:
            said.append(keywords["consistency_level"])
            return super().hybrid_search(*arguments, **keywords)

        def query(self, *arguments: Any, **keywords: Any) -> Any:
            said.append(keywords["consistency_level"])
            return super().query(*arguments, **keywords)

    store = open_knowledge(lite_uri, WordEmbeddings(), consistency_level="Strong")
    agent, model = agent_with(CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator()))

    assert ask(agent, QUESTION, how)["crag"]["status"] == "no_evidence"
    store.add_texts(["The library opens at nine."], agent_id="a")
    assert ask(agent, QUESTION, how)["crag"]["status"] == "grounded"
    assert "opens at nine" in model.requests[-1][-1].text

    store._milvus_client = Recording(**store._connection_args)
    MilvusRetriever(store).retrieve(QUESTION, agent_id="a", limit=5, timeout_s=10)
    MilvusRetriever(store).neighbours([passage("x", metadata={"doc_id": "d", "chunk_index": 1})], agent_id="a", reach=1, timeout_s=10)
    assert said == ["Strong", "Strong"]


class TestChineseKeywords:
    """C070."""

    @pytest.mark.parametrize("analyzer", [None, {"tokenizer": "standard"}, {"type": "standard"}])
    def test_an_analyzer_that_finds_no_words_in_chinese_is_told_at_the_first_chinese_question(
        self, lite_uri: str, caplog: pytest.LogCaptureFixture, analyzer: dict[str, Any] | None
    ) -> None:
        retriever = MilvusRetriever(keyword_collection(lite_uri, analyzer))

        assert search(retriever, "opening hours") == []
        assert not [r for r in caplog.records if r.name.startswith("crag")]
        assert search(retriever, "照常开放") == [], "which is why it is told"
        search(retriever, "照常开放")

        (told,) = [r.getMessage() for r in caplog.records if r.name.startswith("crag") and r.levelno == logging.WARNING]
        assert "sparse" in told
        assert "jieba" in told
        assert "照常" not in told

    def test_one_that_does_finds_them_and_nothing_is_told(self, lite_uri: str, caplog: pytest.LogCaptureFixture) -> None:
        assert search(MilvusRetriever(keyword_collection(lite_uri, {"tokenizer": "jieba"})), "照常开放") == ["x"]
        assert not [r for r in caplog.records if r.name.startswith("crag")]


class TestSeenLocally:
    def test_a_new_collection_is_searchable_in_every_leg_where_the_library_s_own_set_up_is_not_l01(self, lite_uri: str) -> None:
        plain = Milvus(
            WordEmbeddings(),
            builtin_function=BM25BuiltInFunction(),
            vector_field=["dense", "sparse"],
            collection_name="plain",
            connection_args={"uri": lite_uri},
        )
        with pytest.raises(Exception, match=r"AUTOINDEX|index"):
            plain.add_documents([Document("library", metadata={"agent_id": "a"})], ids=["1"])

        store = open_knowledge(lite_uri, WordEmbeddings())
        store.add_texts(["The library opens at nine."], agent_id="a", ids=["x"])
        (found,) = MilvusRetriever(store, settings=CRAGSettings(explain=True)).retrieve(QUESTION, agent_id="a", limit=5, timeout_s=10)

        assert found.metadata["legs"].keys() == {"dense_embedding", "sparse_embedding"}

    def test_search_after_search_gives_the_same_l02(self, lite_uri: str) -> None:
        store = open_knowledge(lite_uri, WordEmbeddings())
        store.add_texts(["The library opens at nine.", "Refunds take five days."], agent_id="a")
        retriever = MilvusRetriever(store)

        first = search(retriever)

        assert len(first) == 2
        assert [search(retriever) for _ in range(3)] == [first] * 3
        assert len(store._vector_fields_from_embedding) == 1

    def test_a_typo_in_the_collection_s_name_is_no_empty_knowledge_l03(self, lite_uri: str) -> None:
        store = open_store(lite_uri, "knowlegde")

        with pytest.raises(ConfigError, match="no collection `knowlegde`"):
            CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator())

    @both
    def test_two_stores_serve_one_agent_under_names_of_their_own_l05(self, lite_uri: str, how: str) -> None:
        stores = [open_knowledge(lite_uri, WordEmbeddings(), collection=name) for name in ("hours", "rules")]
        for store, text in zip(stores, ["The library opens at nine.", "No food in the library."], strict=True):
            store.add_texts([text], agent_id="a")
        hours, rules = (
            CRAGMiddleware(store, "a", evaluator=ScriptedEvaluator(), **name)
            for store, name in zip(stores, ({}, {"name": "rules"}), strict=True)
        )
        agent, _ = agent_with([hours, rules])

        result = ask(agent, QUESTION, how)

        assert [s["number"] for s in result["crag"]["sources"] + result["crag_rules"]["sources"]] == [1, 2]
        with pytest.raises(AssertionError, match="duplicate"):
            agent_with([crag(), crag()])
