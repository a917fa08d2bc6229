"""What goes in belongs to one tenant, can be found, and can be put in again."""

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from langgraph.errors import GraphInterrupt
from pymilvus import MilvusException

from crag_middleware.errors import ConfigError, IngestError, TenantError
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.knowledge.store import KnowledgeStore
from crag_middleware.tenancy import quote
from tests.support.milvus import TENANT, WordEmbeddings, lite_server_uri, lite_uri, make_collection  # noqa: F401, fixtures

MARKER = "SECRET-MARKER"


class Counting(WordEmbeddings):
    """Counts what is embedded, and fails at a chosen text."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[int] = []
        self.fail_at = ""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.batches.append(len(texts))
        if self.fail_at in texts:
            raise OSError("model went away")
        return super().embed_documents(texts)


class AsyncOnly(WordEmbeddings):
    """Embeds documents only in an event loop."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


@pytest.fixture(params=["file", "server"])
def store(request) -> KnowledgeStore:
    """A new collection in a Milvus Lite file, and in a Milvus Lite server in another process."""
    uri = request.getfixturevalue("lite_uri" if request.param == "file" else "lite_server_uri")
    return open_knowledge(uri, Counting(), collection=f"k{uuid4().hex}")


@pytest.fixture
def file_store(lite_uri) -> KnowledgeStore:  # noqa: F811
    return open_knowledge(lite_uri, Counting())


def stored(store, expr='id != ""'):
    return {
        row["id"]: row for row in store.client.query(store.collection_name, filter=expr, output_fields=["*"], consistency_level="Strong")
    }


def owners(store):
    return {key: row["agent_id"] for key, row in stored(store).items()}


FORMS = {
    "add_texts": lambda s, d, **k: s.add_texts([x.page_content for x in d], [x.metadata for x in d], **k),
    "add_documents": lambda s, d, **k: s.add_documents(d, **k),
    "add_embeddings": lambda s, d, **k: s.add_embeddings(
        [x.page_content for x in d], [WordEmbeddings().embed_query(x.page_content) for x in d], [x.metadata for x in d], **k
    ),
    "aadd_texts": lambda s, d, **k: asyncio.run(s.aadd_texts([x.page_content for x in d], [x.metadata for x in d], **k)),
    "aadd_documents": lambda s, d, **k: asyncio.run(s.aadd_documents(d, **k)),
    "aadd_embeddings": lambda s, d, **k: asyncio.run(
        s.aadd_embeddings(
            [x.page_content for x in d], [WordEmbeddings().embed_query(x.page_content) for x in d], [x.metadata for x in d], **k
        )
    ),
    "upsert": lambda s, d, **k: s.upsert(documents=d, **k),
    "aupsert": lambda s, d, **k: asyncio.run(s.aupsert(documents=d, **k)),
}
DOCUMENTS = [
    Document(page_content="图书馆周末照常开放", metadata={"agent_id": "a", "source": "库.md", "page": 3, "team": "前台"}),
    Document(page_content="The library is open on weekends.", metadata={"agent_id": "b", "title": "Hours", "confidence": 0.5}),
]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_fills_and_stores_the_same_rows(store, form):
    ids = FORMS[form](store, DOCUMENTS)

    rows = stored(store)
    assert {row["agent_id"]: (row["source"], row["page"], row["title"], row["confidence"], row["metadata"]) for row in rows.values()} == {
        "a": ("库.md", 3, None, 0.92, {"team": "前台"}),
        "b": (None, None, "Hours", 0.5, {}),
    }
    expected = open_again(store).add_documents(DOCUMENTS)
    assert set(rows) == set(expected)
    assert ids in (expected, None)
    assert len(stored(store)) == 2


def open_again(store):
    return open_knowledge(store._connection_args["uri"], Counting(), collection=store.collection_name)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_takes_the_keyword_tenant_over_metadata_c123(file_store, form):
    FORMS[form](file_store, DOCUMENTS, agent_id="operator")

    assert set(owners(file_store).values()) == {"operator"}
    assert file_store.similarity_search("library", expr=f"agent_id == {quote('b')}") == []


@pytest.mark.parametrize("form", FORMS)
def test_every_form_refuses_a_missing_tenant_before_anything_is_embedded_l04(file_store, form):
    documents = [*DOCUMENTS, Document(page_content="whose is this")]

    with pytest.raises(TenantError, match=r"documents\[2\]"):
        FORMS[form](file_store, documents)
    assert (file_store.embeddings.batches, stored(file_store)) == ([], {})


@pytest.mark.parametrize("form", FORMS)
def test_every_form_refuses_an_id_of_another_tenant(file_store, form):
    file_store.add_texts(["theirs"], ids=["1"], agent_id="b")

    with pytest.raises(TenantError, match=r"documents\[1\].*another tenant") as caught:
        FORMS[form](file_store, DOCUMENTS, ids=["0", "1"], agent_id="a")
    assert caught.value.reason == "foreign_id"
    assert {key: (row["agent_id"], row["text"]) for key, row in stored(file_store).items()} == {"1": ("b", "theirs")}


def test_a_document_id_of_another_tenant_is_refused(store):
    store.add_documents([Document(page_content="theirs", id="1")], agent_id="b")

    with pytest.raises(TenantError):
        store.add_documents([Document(page_content="mine", id="1")], agent_id="a")
    store.add_documents([Document(page_content="newer", id="1")], agent_id="b")
    assert [row["text"] for row in stored(store).values()] == ["newer"]


def test_reserved_metadata_is_refused_and_nothing_written_c069(file_store):
    hostile = {"text": "other body", "pk": "z", "dense": "x", "sparse": 1, "agent_id": "victim"}

    with pytest.raises(ConfigError, match="`dense`, `pk`, `sparse`, `text`"):
        file_store.add_texts(["body"], [hostile], agent_id="a")
    assert stored(file_store) == {}


def test_ingesting_again_replaces_and_clears_fields(store):
    first = store.add_texts(["one"], [{"doc_id": "d", "title": "old", "team": "x"}], agent_id="a")
    second = store.add_texts(["one"], [{"doc_id": "d", "created_at": 5}], agent_id="a")

    assert first == second
    (row,) = stored(store).values()
    assert (row["title"], row["metadata"], row["created_at"]) == (None, {}, 5)


def test_ids_come_back_in_order_even_for_repeated_content(file_store):
    metadatas = [{"chunk_index": 0}, {"chunk_index": 1}, {"chunk_index": 0}]

    ids = file_store.add_texts(["same", "other", "same"], metadatas, agent_id="a")

    assert ids[0] == ids[2] != ids[1]
    assert set(stored(file_store)) == set(ids)
    assert file_store.embeddings.batches == [2]


def test_nothing_in_gives_nothing_back(file_store):
    assert file_store.add_texts([], agent_id="a") == []
    assert file_store.add_documents([]) == []
    assert file_store.add_embeddings([], []) == []
    assert asyncio.run(file_store.aadd_texts([])) == []
    assert file_store.upsert() is None
    assert file_store.embeddings.batches == []


def test_rows_just_written_are_found_c066(store):
    for n in range(5):
        text = f"sentinel{n} 新写入的第{n}行"
        store.add_texts([text], agent_id="a")
        assert store.similarity_search(f"sentinel{n}", k=1)[0].page_content == text


def test_texts_are_embedded_and_written_in_batches(file_store):
    ids = file_store.add_texts([f"text {n}" for n in range(25)], agent_id="a", batch_size=10)

    assert file_store.embeddings.batches == [10, 10, 5]
    assert list(stored(file_store)) != []
    assert set(stored(file_store)) == set(ids)


def test_vectors_made_elsewhere_are_not_made_again_and_must_fit_c072(file_store):
    file_store.add_embeddings(["one"], [[1.0] * 64], agent_id="a")

    assert file_store.embeddings.batches == []
    with pytest.raises(ConfigError, match="64 dimensions, got one with 16"):
        file_store.add_embeddings(["one"], [[1.0] * 16], agent_id="a")


def test_async_forms_use_the_async_embeddings(lite_uri):  # noqa: F811
    store = open_knowledge(lite_uri, AsyncOnly())

    asyncio.run(store.aadd_texts(["one"], agent_id="a"))

    assert len(stored(store)) == 1


def test_embeddings_that_fail_half_way_say_how_far_it_came_and_again_completes(store):
    texts = [f"text {n}" for n in range(9)]
    store.embeddings.fail_at = "text 7"

    with pytest.raises(IngestError, match=r"after 6 of 9 rows.*OSError") as caught:
        store.add_texts(texts, agent_id="a", batch_size=3)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__
    assert len(stored(store)) == 6
    store.embeddings.fail_at = ""
    assert len(set(store.add_texts(texts, agent_id="a", batch_size=3))) == len(stored(store)) == 9


@pytest.mark.parametrize("form", ["add_documents", "aadd_documents"])
@pytest.mark.parametrize("broken", ["gone", "other fields"])
def test_a_write_that_fails_is_ours_and_shows_no_row(store, form, broken, caplog, capfd):
    store.client.drop_collection(store.collection_name)
    if broken == "other fields":
        make_collection(store._connection_args["uri"], store.collection_name, {"agent_id": TENANT})
    documents = [Document(page_content=f"{MARKER} text", metadata={"title": MARKER}, id=MARKER)]

    with caplog.at_level(logging.DEBUG), pytest.raises(IngestError, match="after 0 of 1 rows") as caught:
        FORMS[form](store, documents, agent_id=MARKER)
    captured = capfd.readouterr()
    assert MARKER not in f"{caught.value!r}{caplog.text}{captured.out}{captured.err}"
    assert caught.value.__cause__ is None
    errors = [record.message for record in caplog.records if record.name.startswith("pymilvus") and record.levelno >= logging.ERROR]
    assert errors
    assert all("withheld" in message for message in errors)


def test_unknown_keywords_are_refused_before_a_typo_decides_the_tenant(file_store):
    with pytest.raises(ConfigError, match="agentid"):
        file_store.add_documents(DOCUMENTS, agentid="operator")
    with pytest.raises(ConfigError, match="must be Documents, got str"):
        file_store.add_documents(["text"], agent_id="a")


def test_found_documents_come_back_as_they_were_given_and_can_be_put_in_again(store):
    given_in = Document(
        page_content="one", metadata={"agent_id": "a", "page": 2, "created_at": 7, "confidence": 0.7, "team": {"x": [1]}}, id="1"
    )
    store.add_documents([given_in])

    (found,) = store.similarity_search("one")

    assert found == given_in
    assert store.add_documents([found]) == ["1"]
    assert store.similarity_search("one") == [given_in]


def test_filter_is_refused_where_it_would_search_every_tenant_c059(file_store):
    file_store.add_documents(DOCUMENTS)

    for search in (
        lambda: file_store.similarity_search("library", filter='agent_id == "a"'),
        lambda: asyncio.run(file_store.asimilarity_search("library", filter={"agent_id": "a"})),
        lambda: file_store.as_retriever(search_kwargs={"filter": 'agent_id == "a"'}).invoke("library"),
    ):
        with pytest.raises(ConfigError, match="expr="):
            search()
    assert [d.metadata["agent_id"] for d in file_store.similarity_search("library", expr='agent_id == "a"')] == ["a"]


def test_the_inherited_search_keeps_working_from_call_to_call_l02(file_store):
    file_store.add_documents(DOCUMENTS)

    firsts = [
        file_store.similarity_search("library weekends", k=1, ranker_type=ranker)[0].page_content for ranker in ["weighted", "rrf"] * 2
    ]

    assert set(firsts) == {"The library is open on weekends."}


def test_event_loops_come_and_go(store):
    async def turn(n):
        await store.aadd_texts([f"text {n}"], agent_id="a")
        found = await store.asimilarity_search(f"text {n}", k=10)
        await store.adelete(ids=[found[0].id])
        return len(found)

    counts = [asyncio.run(turn(n)) for n in range(3)]
    with ThreadPoolExecutor(2) as pool:
        counts += list(pool.map(lambda n: asyncio.run(turn(n)), range(3, 5)))

    assert all(counts)
    assert stored(store) == {}


def test_many_writers_at_once_lose_and_mix_nothing(store):
    def write(n):
        return store.add_texts([f"{n} text {i}" for i in range(10)], agent_id=f"tenant {n % 2}")

    with ThreadPoolExecutor(8) as pool:
        ids = [key for part in pool.map(write, range(16)) for key in part]

    found = stored(store)
    assert set(found) == set(ids)
    assert all(row["agent_id"] == f"tenant {int(row['text'].split()[0]) % 2}" for row in found.values())


def test_deleting_by_id_copes_with_any_id_and_leaves_the_others(store):
    ids = ["it's", 'a "b"', "\\", "both ' and \"", "a\nb", "其一", "kept"]
    store.add_texts(ids, ids=ids, agent_id="a")

    assert store.delete(ids[:4]) is True
    assert asyncio.run(store.adelete(ids[4:6])) is True

    assert list(stored(store)) == ["kept"]
    with pytest.raises(ConfigError, match="nothing to delete"):
        store.delete()


def test_a_delete_that_milvus_refuses_is_false_in_both_forms(store):
    broken = 'agent_id === "a"'

    assert store.delete(expr=broken) is False
    assert asyncio.run(store.adelete(expr=broken)) is False

    store.client.drop_collection(store.collection_name)
    assert store.delete(["x"]) is False
    assert asyncio.run(store.adelete(["x"])) is False


BROKEN = f'agent_id === "{MARKER}"'
INHERITED = {
    "similarity_search": lambda s: s.similarity_search(MARKER, expr=BROKEN),
    "asimilarity_search": lambda s: asyncio.run(s.asimilarity_search(MARKER, expr=BROKEN)),
    "as_retriever": lambda s: s.as_retriever(search_kwargs={"expr": BROKEN}).invoke(MARKER),
    "get_pks": lambda s: s.get_pks(BROKEN),
    "aget_pks": lambda s: asyncio.run(s.aget_pks(BROKEN)),
    "search_by_metadata": lambda s: s.search_by_metadata(BROKEN),
    "asearch_by_metadata": lambda s: asyncio.run(s.asearch_by_metadata(BROKEN)),
}


@pytest.mark.parametrize("form", INHERITED)
def test_an_inherited_search_that_fails_logs_no_question_and_no_expression(file_store, form, caplog, capfd):
    file_store.add_documents(DOCUMENTS)

    with caplog.at_level(logging.DEBUG), suppress(MilvusException):
        INHERITED[form](file_store)

    captured = capfd.readouterr()
    assert "withheld" in caplog.text
    assert MARKER not in f"{caplog.text}{captured.out}{captured.err}"


def test_inherited_searches_of_rows_still_find_them(file_store):
    file_store.add_texts(["one"], ids=["1"], agent_id="a")

    assert file_store.get_pks('agent_id == "a"') == asyncio.run(file_store.aget_pks('agent_id == "a"')) == ["1"]
    found = [
        file_store.search_by_metadata('agent_id == "a"', ["id"]),
        asyncio.run(file_store.asearch_by_metadata('agent_id == "a"', ["id"])),
    ]
    assert [[document.page_content for document in some] for some in found] == [["one"], ["one"]]


@pytest.mark.parametrize("form", ["add_documents", "aadd_documents"])
def test_a_released_collection_is_loaded_and_written_to(store, form):
    store.client.release_collection(store.collection_name)

    FORMS[form](store, [Document(page_content="one", id="1")], agent_id="a")

    assert owners(store) == {"1": "a"}


@pytest.mark.parametrize("vectors", [None, 7, "x", [None], ["x" * 64], [["1"] * 64], [[None] * 64], [{}], [[10**400] * 64]], ids=str)
def test_embeddings_that_are_no_vectors_are_refused(file_store, vectors):
    with pytest.raises(ConfigError, match="embedding"):
        file_store.add_embeddings(["text"], vectors, agent_id="a")
    with pytest.raises(ConfigError, match="embedding"):
        asyncio.run(file_store.aadd_embeddings(["text"], vectors, agent_id="a"))


@pytest.mark.parametrize("size", [0, -1, 1.5, "x", None, True])
def test_a_batch_size_that_is_none_is_refused_before_anything_is_embedded(file_store, size):
    with pytest.raises(ConfigError, match="batch_size"):
        file_store.add_texts(["text"], agent_id="a", batch_size=size)
    assert file_store.embeddings.batches == []


def test_documents_that_are_no_list_are_refused(file_store):
    with pytest.raises(ConfigError, match="`documents` must be a list, got a single NoneType"):
        file_store.add_documents(None, agent_id="a")


def test_control_flow_passes_through_an_ingest(file_store, monkeypatch):
    def interrupt(texts):
        raise GraphInterrupt

    monkeypatch.setattr(file_store.embeddings, "embed_documents", interrupt)

    with pytest.raises(GraphInterrupt):
        file_store.add_texts(["text"], agent_id="a")


def test_making_a_store_from_texts_points_to_open_knowledge():
    with pytest.raises(ConfigError, match="open_knowledge"):
        KnowledgeStore.from_texts(["x"], WordEmbeddings())
    with pytest.raises(ConfigError, match="open_knowledge"):
        asyncio.run(KnowledgeStore.afrom_texts(["x"], WordEmbeddings()))


HOSTILE = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(lambda s: s.strip()) | st.sampled_from(
    [
        "a' or '1'=='1",
        '" or agent_id != "',
        "\\",
        '\\"',
        "a\nb",
        "a\tb\r",
        "%",
        "_",
        '"]',
        "租户，一",
        "🦊",
        "id in [1]",
        "\x00",
        "x\x85\u2028y",
    ]
)


@pytest.fixture(scope="module")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeStore:
    uri: Path = tmp_path_factory.mktemp("hostile") / "knowledge.db"
    return open_knowledge(uri, WordEmbeddings())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(own_id=HOSTILE, agent_id=HOSTILE, other=HOSTILE)
def test_hostile_ids_of_rows_and_tenants_never_reach_a_row_of_another(shared_store, own_id, agent_id, other):
    store = shared_store
    before = owners(store)
    try:
        store.add_texts(["text"], ids=[own_id], agent_id=agent_id)
    except ConfigError:
        return  # an id that a server would misread
    except TenantError:
        assert before.get(own_id, agent_id) != agent_id

    after = owners(store)

    assert after == {own_id: agent_id} | before
    if after[own_id] != other:
        with pytest.raises(TenantError):
            store.add_texts(["mine now"], ids=[own_id], agent_id=other)
        assert owners(store) == after
