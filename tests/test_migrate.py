"""Collections that others made come in whole, once, under the right tenant, and stay as they were."""

from contextlib import suppress
from uuid import uuid4

import pytest
from langchain_milvus import Milvus
from pymilvus import DataType, MilvusClient

from crag_middleware.errors import ConfigError, IngestError, TenantError
from crag_middleware.knowledge.open import open_knowledge
from tests.support.milvus import WordEmbeddings, lite_uri, make_collection, text_column  # noqa: F401, a fixture
from tests.test_ingest import Stop, facts
from tests.test_knowledge_ingest import Counting, file_store, stored  # noqa: F401, a fixture

TEXTS = ["The library is open on weekends.", "图书馆周末照常开放", "Refunds take 30 days.", "No running in the halls."]


def name():
    return f"old{uuid4().hex}"


@pytest.fixture
def langchain(lite_uri):  # noqa: F811
    """As `langchain_milvus.Milvus` makes it: dense only, INT64 keys by Milvus, dynamic fields, no tenant."""
    old = Milvus(
        WordEmbeddings(),
        connection_args={"uri": lite_uri},
        collection_name=name(),
        auto_id=True,
        enable_dynamic_field=True,
        index_params={"index_type": "AUTOINDEX", "metric_type": "L2"},
    )
    old.add_texts(TEXTS, [{"source": "hours.md", "page": 3, "team": {"名": "前台"}}, {"source": "hours.md"}, {"version": 2}, {}])
    return old


def everything(client, collection):
    return client.query(collection, filter="", output_fields=["*"], limit=1000, consistency_level="Strong")


def make(client, columns, rows, *, dynamic=False, dimension=64, key=DataType.INT64):
    """A plain collection with the key `key`, the vector `vec` and the given columns."""
    collection, schema = name(), client.create_schema(enable_dynamic_field=dynamic)
    schema.add_field("key", key, is_primary=True, **({"max_length": 100} if key == DataType.VARCHAR else {}))
    schema.add_field("vec", DataType.FLOAT_VECTOR, dim=dimension)
    for field, (kind, options) in columns.items():
        schema.add_field(field, kind, **options)
    client.create_collection(collection, schema=schema)
    indexes = client.prepare_index_params()
    indexes.add_index("vec", index_type="AUTOINDEX", metric_type="COSINE")
    client.create_index(collection, indexes, sync=False)
    client.load_collection(collection)
    embed = WordEmbeddings(dimension).embed_query
    given = [{"vec": embed(str(row.get("body", row.get("text", "x")))), **row} for row in rows]
    client.insert(collection, [{"key": n if key == DataType.INT64 else str(n), **row} for n, row in enumerate(given)])
    return collection


def test_a_langchain_collection_comes_in_with_its_fields_and_stays_as_it_was(file_store, langchain):  # noqa: F811
    before = everything(langchain.client, langchain.collection_name)

    done = file_store.migrate_from(langchain.client, langchain.collection_name, agent_id="a")

    rows = {row["text"]: row for row in stored(file_store).values()}
    assert (done.total, done.read, done.written, done.found, done.complete) == (4, 4, 4, 4, True)
    assert sorted(rows) == sorted(TEXTS)
    assert {row["agent_id"] for row in rows.values()} == {"a"}
    first = rows[TEXTS[0]]
    assert (first["source"], first["page"], first["metadata"]) == ("hours.md", 3, {"team": {"名": "前台"}})
    assert (rows[TEXTS[2]]["version"], rows[TEXTS[3]]["metadata"]) == ("2", {})
    assert file_store.similarity_search("图书馆周末", k=1, expr='agent_id == "a"')[0].page_content == TEXTS[1]
    assert everything(langchain.client, langchain.collection_name) == before


def test_once_more_writes_nothing_and_brings_what_changed_there(file_store, langchain):  # noqa: F811
    file_store.migrate_from(langchain.client, langchain.collection_name, agent_id="a")
    before, file_store.embeddings.batches = stored(file_store), []

    again = file_store.migrate_from(langchain.client, langchain.collection_name, agent_id="a")

    assert (again.written, again.updated, again.unchanged, again.complete) == (0, 0, 4, True)
    assert (stored(file_store), file_store.embeddings.batches) == (before, [])
    langchain.add_texts(["A fifth one."])
    more = file_store.migrate_from(langchain.client, langchain.collection_name, agent_id="a")
    assert (more.written, more.updated, more.unchanged, more.found) == (1, 0, 4, 5)
    assert file_store.embeddings.batches == [1]


def test_fields_are_renamed_and_left_out(file_store, lite_uri):  # noqa: F811
    client = MilvusClient(lite_uri)
    columns = {"body": text_column(), "link": text_column(), "junk": text_column(), "n": (DataType.INT64, {"nullable": True})}
    collection = make(client, columns, [{"body": text, "link": f"https://x/{n}", "junk": "j", "n": n} for n, text in enumerate(TEXTS)])

    done = file_store.migrate_from(client, collection, agent_id="a", fields={"body": "text", "link": "url", "junk": "", "key": "doc_id"})

    assert done.complete
    assert {
        (row["text"], row["url"], row["doc_id"], row["metadata"]["n"], len(row["metadata"])) for row in stored(file_store).values()
    } == {(text, f"https://x/{n}", str(n), n, 1) for n, text in enumerate(TEXTS)}


def test_a_changed_map_rewrites_details_without_embedding(file_store, langchain):  # noqa: F811
    file_store.migrate_from(langchain.client, langchain.collection_name, agent_id="a")
    file_store.embeddings.batches = []

    done = file_store.migrate_from(langchain.client, langchain.collection_name, agent_id="a", fields={"source": "title"})

    assert (done.updated, done.unchanged, file_store.embeddings.batches) == (2, 2, [])
    assert sorted(str(row["title"]) for row in stored(file_store).values()) == ["None", "None", "hours.md", "hours.md"]


@pytest.mark.parametrize("key", [DataType.INT64, DataType.VARCHAR], ids=["numbers", "texts"])
def test_rows_that_name_their_tenant_go_to_it_c123(file_store, lite_uri, key):  # noqa: F811
    client = MilvusClient(lite_uri)
    rows = [{"text": text, "team": "ab"[n % 2]} for n, text in enumerate(TEXTS)]
    collection = make(client, {"text": text_column(), "team": text_column()}, rows, key=key)

    done = file_store.migrate_from(client, collection, fields={"team": "agent_id"})

    assert done.complete
    assert {row["text"]: row["agent_id"] for row in stored(file_store).values()} == {row["text"]: row["team"] for row in rows}


def test_with_a_tenant_given_rows_of_others_stay_out_c123(file_store, lite_uri):  # noqa: F811
    client = MilvusClient(lite_uri)
    metadatas = [{"agent_id": "a"}, {"agent_id": "victim"}, {}, {"agent_id": 5}]
    rows = [{"text": text, "metadata": metadata} for text, metadata in zip(TEXTS, metadatas, strict=True)]
    collection = make(client, {"text": text_column(), "metadata": (DataType.JSON, {})}, rows)

    done = file_store.migrate_from(client, collection, agent_id="a")

    assert [(left.reason, left.rows, left.first) for left in done.skipped] == [("it is another tenant's", 2, "1")]
    assert done.complete
    assert sorted(row["text"] for row in stored(file_store).values()) == sorted([TEXTS[0], TEXTS[2]])
    assert {row["agent_id"] for row in stored(file_store).values()} == {"a"}


@pytest.mark.parametrize("agent_id", ["", "  ", 0, [], False])
def test_a_tenant_that_is_none_moves_nothing_l04(file_store, langchain, agent_id):  # noqa: F811
    with pytest.raises(TenantError):
        file_store.migrate_from(langchain.client, langchain.collection_name, agent_id=agent_id)
    assert stored(file_store) == {}


def test_rows_without_any_tenant_are_refused_l04(file_store, langchain):  # noqa: F811
    done = file_store.migrate_from(langchain.client, langchain.collection_name)

    assert (done.complete, done.found, sum(left.rows for left in done.refused)) == (False, 0, 4)
    assert "`agent_id`" in done.refused[0].reason


def test_what_can_not_be_stored_is_told_and_the_counts_do_not_match_c067_c069(file_store, lite_uri):  # noqa: F811
    client = MilvusClient(lite_uri)
    rows = [
        {"text": "fits", "metadata": {"source": "x.md"}},
        {"text": " \n", "metadata": {}},
        {"text": "字" * 30_000, "metadata": {}},
        {"text": "body", "metadata": {"id": 1, "text": "other body", "dense": "x"}},
        {"text": "page", "metadata": {"page": "iv"}},
    ]
    collection = make(client, {"text": (DataType.VARCHAR, {"max_length": 65_535}), "metadata": (DataType.JSON, {})}, rows)

    done = file_store.migrate_from(client, collection, agent_id="a")

    assert (done.total, done.read, done.found, done.complete) == (5, 5, 1, False)
    assert [left.reason for left in done.skipped] == ["its text is blank"]
    assert {left.first: left.reason.split(";")[0] for left in done.refused} == {
        "2": "its text has more than 65535 bytes in UTF-8",
        "3": "the metadata holds reserved keys (`dense`, `id`)",
        "4": "`page` must be a whole number (int), got str",
    }
    mended = file_store.migrate_from(client, collection, agent_id="a", fields={"id": "old_id", "dense": "", "page": "page_label"})
    assert (mended.found, [left.first for left in mended.refused]) == (3, ["2"])


def test_rows_whose_text_is_nowhere_are_refused_and_not_taken_for_blank(file_store, lite_uri):  # noqa: F811
    client = MilvusClient(lite_uri)
    collection = make(client, {}, [{"body_text": text} for text in TEXTS], dynamic=True)

    lost = file_store.migrate_from(client, collection, agent_id="a")
    found = file_store.migrate_from(client, collection, agent_id="a", fields={"body_text": "text"})

    assert (lost.complete, lost.found, lost.refused[0].rows) == (False, 0, 4)
    assert (found.complete, sorted(row["text"] for row in stored(file_store).values())) == (True, sorted(TEXTS))


def test_vectors_are_kept_where_they_are_the_same_model_s(file_store, langchain):  # noqa: F811
    done = file_store.migrate_from(langchain.client, langchain.collection_name, agent_id="a", keep_vectors=True, batch_size=2)

    assert (done.written, done.complete) == (4, True)
    assert file_store.embeddings.batches == [2]  # the sample that is compared
    vectors = {row["text"]: row["dense_embedding"] for row in stored(file_store).values()}
    assert vectors == {row["text"]: row["vector"] for row in everything(langchain.client, langchain.collection_name)}


def test_vectors_of_another_model_are_refused_c072(file_store, lite_uri):  # noqa: F811
    client = MilvusClient(lite_uri)
    other = make(client, {"text": text_column()}, [{"text": text, "vec": [(-1.0) ** i for i in range(64)]} for text in TEXTS])
    short = make(client, {"text": text_column()}, [{"text": text} for text in TEXTS], dimension=16)

    with pytest.raises(ConfigError, match="not those of these embeddings"):
        file_store.migrate_from(client, other, agent_id="a", keep_vectors=True)
    with pytest.raises(ConfigError, match="FLOAT_VECTOR field of 64 dimensions; it has none"):
        file_store.migrate_from(client, short, agent_id="a", keep_vectors=True)
    assert stored(file_store) == {}


def test_a_collection_of_ours_comes_with_its_ids_so_that_ingest_knows_them(file_store, lite_uri, tmp_path):  # noqa: F811
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.md").write_text("# Hours\n\nOpen on weekends.")
    file_store.ingest(tmp_path / "docs", agent_id="a", metadata={"team": "x"})
    file_store.add_texts(["theirs"], agent_id="b")
    new = open_knowledge(lite_uri, Counting(), collection=f"k{uuid4().hex}", embedding_name="another")

    done = new.migrate_from(file_store.client, file_store.collection_name)

    assert (done.complete, stored(new)) == (True, stored(file_store))
    assert new.ingest(tmp_path / "docs", agent_id="a", metadata={"team": "x"}).unchanged == 1


def test_a_run_that_stops_anywhere_goes_on_where_it_was(lite_uri, langchain):  # noqa: F811
    clean, told = (open_knowledge(lite_uri, Counting(), collection=f"k{uuid4().hex}") for _ in range(2))
    langchain.add_texts([f"text number {n}" for n in range(9)])
    clean.migrate_from(langchain.client, langchain.collection_name, agent_id="a")

    def stop(state):
        if state.done >= stops[0]:
            raise Stop

    stops = [2, 6]
    while stops:
        with suppress(Stop):
            told.migrate_from(langchain.client, langchain.collection_name, agent_id="a", batch_size=2, progress=stop)
        assert len(stored(told)) == stops.pop(0)
    told.embeddings.fail_at = "text number 6"
    with pytest.raises(IngestError):
        told.migrate_from(langchain.client, langchain.collection_name, agent_id="a", batch_size=2)
    told.embeddings.fail_at = ""
    heard = []
    done = told.migrate_from(langchain.client, langchain.collection_name, agent_id="a", batch_size=2, progress=heard.append)

    assert done.complete
    assert 0 < done.written < 13
    assert (heard[-1].done, heard[-1].total) == (13, 13)
    assert facts(told) == facts(clean)


def test_more_rows_than_are_read_at_once_all_come(file_store, lite_uri):  # noqa: F811
    client = MilvusClient(lite_uri)
    collection = make(client, {"text": text_column()}, [{"text": f"text {n}"} for n in range(1203)])

    done = file_store.migrate_from(client, collection, agent_id="a")

    assert (done.total, done.read, done.found, done.complete) == (1203, 1203, 1203, True)
    assert file_store.count("a") == 1203


def test_a_released_collection_is_loaded(file_store, langchain):  # noqa: F811
    langchain.client.release_collection(langchain.collection_name)

    assert file_store.migrate_from(langchain.client, langchain.collection_name, agent_id="a").complete


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"bodi": "text"}, "no field 'bodi'; it has: key, vec, body, other"),
        ({"body": "junk"}, "no field that is known to hold its text"),
        ({"body": "text", "other": ""}, "names no tenant"),
        ({"key": "text"}, "no field that is known to hold its text"),
    ],
    ids=str,
)
def test_a_schema_that_does_not_fit_is_refused_before_anything_is_read(file_store, lite_uri, fields, told):  # noqa: F811
    client = MilvusClient(lite_uri)
    collection = make(client, {"body": text_column(), "other": text_column()}, [{"body": "text"}])

    with pytest.raises(ConfigError, match=told):
        file_store.migrate_from(client, collection, agent_id=None if "tenant" in told else "a", fields=fields)
    assert stored(file_store) == {}


def test_a_collection_that_is_not_there_is_told_with_those_that_are(file_store, langchain):  # noqa: F811
    with pytest.raises(ConfigError, match=f"no collection 'typo'; there are: .*{langchain.collection_name}"):
        file_store.migrate_from(langchain.client, "typo", agent_id="a")
