"""`open_knowledge` makes what is missing and refuses what does not fit."""

import logging
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from uuid import uuid4

import pytest
from langchain_milvus import Milvus
from langgraph.errors import GraphInterrupt
from milvus_lite.server_manager import server_manager_instance
from pymilvus import MilvusClient

from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.open import connection_arguments, name_of, open_knowledge
from crag_middleware.knowledge.schema import OPTIONAL_INTEGERS, OPTIONAL_TEXT
from tests.support.milvus import TENANT, WordEmbeddings, lite_server_uri, lite_uri, make_collection  # noqa: F401, fixtures


class Named(WordEmbeddings):
    model = "words-v2"


@pytest.fixture(params=["file", "server"])
def uri(request):
    """A Milvus Lite file, and a Milvus Lite server in another process."""
    return request.getfixturevalue("lite_uri" if request.param == "file" else "lite_server_uri")


@pytest.fixture
def name():
    return f"k{uuid4().hex}"


def keyword_leg(store, query):
    hits = store.client.search(
        store.collection_name,
        data=[query],
        anns_field="sparse_embedding",
        limit=5,
        search_params={"metric_type": "BM25", "params": {}},
        output_fields=["text"],
    )
    return [hit["entity"]["text"] for hit in hits[0]]


class Sized(WordEmbeddings):
    """Answers what it was given."""

    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def embed_query(self, text):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("timeout_s", [0, -1, float("nan"), float("inf"), 3601, "5", True])
def test_a_timeout_that_is_none_is_refused_at_once(tmp_path, timeout_s):
    with pytest.raises(ConfigError, match="`timeout_s` must be a number of seconds above 0, at most 3600"):
        open_knowledge(tmp_path / "k.db", WordEmbeddings(), timeout_s=timeout_s)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("answer", "said"), [([], "an empty one"), (None, "TypeError"), (5, "TypeError")])
def test_embeddings_without_a_dimension_are_refused_at_once(tmp_path, answer, said):
    with pytest.raises(ConfigError, match=said):
        open_knowledge(tmp_path / "k.db", Sized(answer))
    assert list(tmp_path.iterdir()) == []


def test_control_flow_passes_through_opening(tmp_path):
    with pytest.raises(GraphInterrupt):
        open_knowledge(tmp_path / "k.db", Sized(GraphInterrupt()))


def test_a_missing_collection_is_made_with_every_field_l01(uri, name):
    store = open_knowledge(uri, WordEmbeddings(), collection=name)

    assert isinstance(store, Milvus)
    described = store.client.describe_collection(name)
    fields = {field["name"]: field for field in described["fields"]}
    required = {"id", "text", "agent_id", "dense_embedding", "sparse_embedding", "content_hash", "confidence", "created_at", "metadata"}
    assert set(fields) == required | {*OPTIONAL_TEXT, *OPTIONAL_INTEGERS}
    assert {field for field, info in fields.items() if info.get("nullable")} == {*OPTIONAL_TEXT, *OPTIONAL_INTEGERS}
    assert not described["enable_dynamic_field"]
    indexes = {index: store.client.describe_index(name, index) for index in store.client.list_indexes(name)}
    assert {(i["field_name"], i["metric_type"]) for i in indexes.values()} == {("dense_embedding", "COSINE"), ("sparse_embedding", "BM25")}


def test_the_tenant_is_a_sized_partition_key_without_dynamic_fields_c060(uri, name):
    store = open_knowledge(uri, WordEmbeddings(), collection=name)

    tenant = next(f for f in store.client.describe_collection(name)["fields"] if f["name"] == "agent_id")
    assert tenant["is_partition_key"]
    assert tenant["params"]["max_length"] == 256
    store.add_texts(["one"], agent_id="字" * 85 + "x")


def test_a_collection_without_rows_can_be_searched_l01(uri, name):
    assert open_knowledge(uri, WordEmbeddings(), collection=name).similarity_search("anything") == []


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("照常开放", "图书馆周末照常开放"),
        ("周末", "图书馆周末照常开放"),
        ("nginx", "Nginx 1.25.3 重新加载配置"),
        ("NGINX", "Nginx 1.25.3 重新加载配置"),
        ("1.25.3", "Nginx 1.25.3 重新加载配置"),
        ("配置", "Nginx 1.25.3 重新加载配置"),
        ("reloading", "Apache needs reloading."),
    ],
)
def test_the_keyword_leg_alone_finds_chinese_and_english_words_c070(uri, name, query, found):
    store = open_knowledge(uri, WordEmbeddings(), collection=name)
    store.add_texts(["图书馆周末照常开放", "Nginx 1.25.3 重新加载配置", "Apache needs reloading.", "无关的一句话"], agent_id="a")

    assert keyword_leg(store, query) == [found]


def test_an_english_collection_finds_english_words(uri, name):
    store = open_knowledge(uri, WordEmbeddings(), collection=name, language="en")
    store.add_texts(["The Library is open.", "Nothing else."], agent_id="a")

    assert keyword_leg(store, "library") == ["The Library is open."]


def test_rows_and_notes_survive_closing_and_reopening(lite_uri):  # noqa: F811
    open_knowledge(lite_uri, Named(), language="en").add_texts(["kept"], agent_id="a")
    server_manager_instance.release_server(lite_uri)

    store = open_knowledge(lite_uri, Named())

    assert [d.page_content for d in store.similarity_search("kept")] == ["kept"]
    kept = store.client.describe_collection("knowledge")["properties"]
    assert {k: v for k, v in kept.items() if k.startswith("crag.")} == {
        "crag.schema_version": "1",
        "crag.embedding_name": "words-v2",
        "crag.embedding_dimension": "64",
        "crag.language": "en",
    }


def test_other_embeddings_are_refused_by_name_and_dimension_c072(uri, name):
    open_knowledge(uri, WordEmbeddings(8), collection=name)

    with pytest.raises(ConfigError, match="embedding_dimension '8', got '16'"):
        open_knowledge(uri, WordEmbeddings(16), collection=name)
    with pytest.raises(ConfigError, match=r"embedding_name 'WordEmbeddings', got 'words-v2'.*`embedding_name=`"):
        open_knowledge(uri, Named(8), collection=name)
    open_knowledge(uri, Named(8), collection=name, embedding_name="WordEmbeddings")


def test_another_language_or_schema_version_is_refused(uri, name):
    store = open_knowledge(uri, WordEmbeddings(), collection=name)

    with pytest.raises(ConfigError, match="language 'zh', got 'en'"):
        open_knowledge(uri, WordEmbeddings(), collection=name, language="en")
    open_knowledge(uri, WordEmbeddings(), collection=name, language="zh")
    store.client.alter_collection_properties(name, {"crag.schema_version": "2"})
    with pytest.raises(ConfigError, match=r"schema_version '2', got '1'.*reads version 1"):
        open_knowledge(uri, WordEmbeddings(), collection=name)


def test_a_collection_made_by_others_is_refused_and_left_alone(lite_uri):  # noqa: F811
    client = make_collection(lite_uri, "theirs", {"agent_id": TENANT})

    with pytest.raises(ConfigError, match="not made by `open_knowledge`"):
        open_knowledge(lite_uri, WordEmbeddings(), collection="theirs")
    assert client.describe_collection("theirs").get("properties", {}) == {}


def test_threads_that_open_one_new_file_at_once_share_it(lite_uri):  # noqa: F811
    together = Barrier(8)

    def open_it(_):
        together.wait(timeout=10)
        return open_knowledge(lite_uri, WordEmbeddings())

    with ThreadPoolExecutor(8) as pool:
        stores = list(pool.map(open_it, range(8)))

    ids = [store.add_texts([f"text {n}"], agent_id="a")[0] for n, store in enumerate(stores)]
    assert len({d.id for d in stores[0].similarity_search("text", k=8)} & set(ids)) == 8


def test_processes_that_open_one_new_collection_at_once_share_it(lite_server_uri, name):  # noqa: F811
    script = textwrap.dedent(
        """
        import sys
        from crag_middleware.knowledge.open import open_knowledge
        from tests.support.milvus import WordEmbeddings
        print("ready", flush=True)
        sys.stdin.readline()
        for n in range(3):
            open_knowledge(sys.argv[1], WordEmbeddings(), collection=f"{sys.argv[2]}_{n}").add_texts([sys.argv[3]], agent_id="a")
        """
    )
    command = [sys.executable, "-W", "ignore", "-c", script, lite_server_uri, name]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": Path(__file__).parent.parent}
    processes = [subprocess.Popen([*command, f"text {n}"], **pipes) for n in range(3)]
    for process in processes:
        process.stdout.readline()
    for process in processes:
        process.stdin.write(b"go\n")
        process.stdin.flush()

    ends = [(process.communicate(timeout=60), process.returncode) for process in processes]

    assert [code for _, code in ends] == [0, 0, 0], ends
    for n in range(3):
        store = open_knowledge(lite_server_uri, WordEmbeddings(), collection=f"{name}_{n}")
        assert {d.page_content for d in store.similarity_search("text")} == {"text 0", "text 1", "text 2"}


def test_a_released_collection_is_loaded_again(uri, name):
    open_knowledge(uri, WordEmbeddings(), collection=name).client.release_collection(name)

    assert open_knowledge(uri, WordEmbeddings(), collection=name).similarity_search("x") == []


def test_a_collection_left_without_an_index_gets_it_when_opened(uri, name):
    client = open_knowledge(uri, WordEmbeddings(), collection=name).client
    client.release_collection(name)
    client.drop_index(name, "sparse_embedding")

    store = open_knowledge(uri, WordEmbeddings(), collection=name)
    store.add_texts(["图书馆周末照常开放"], agent_id="a")

    assert keyword_leg(store, "周末") == ["图书馆周末照常开放"]


def test_a_file_held_by_another_process_is_an_error_that_says_so(tmp_path):
    script = textwrap.dedent(
        """
        import sys
        from pymilvus import MilvusClient
        client = MilvusClient(sys.argv[1])
        print("held", flush=True)
        sys.stdin.read()
        """
    )
    uri = str(tmp_path / "held.db")
    with subprocess.Popen([sys.executable, "-c", script, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline().strip() == b"held"
        try:
            with pytest.raises(ConfigError, match="one process at a time"):
                open_knowledge(uri, WordEmbeddings())
        finally:
            other.communicate()


def test_an_unreachable_server_is_an_error_without_its_password(caplog):
    with pytest.raises(ConfigError, match="check address, token") as caught:
        open_knowledge("http://root:hunter2@127.0.0.1:9", WordEmbeddings(), timeout_s=0.3)

    assert "hunter2" not in str(caught.value) + caplog.text
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("uri", ["", "knowledge", "ftp://host", "http://", None, 5])
def test_an_address_that_can_be_none_is_refused(uri):
    with pytest.raises(ConfigError, match="`uri` must be"):
        open_knowledge(uri, WordEmbeddings())


def test_a_file_in_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="folder"):
        open_knowledge(tmp_path / "missing" / "knowledge.db", WordEmbeddings())


@pytest.mark.parametrize(
    "options", [{"language": "fr"}, {"consistency_level": "strong"}, {"collection": "../up"}, {"collection": ""}, {"collection": "1a"}]
)
def test_unknown_choices_are_refused_before_anything_is_opened(tmp_path, options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        open_knowledge(tmp_path / "knowledge.db", WordEmbeddings(), **options)
    assert list(tmp_path.iterdir()) == []


def test_embeddings_that_fail_are_an_error_when_opening(tmp_path):
    class Broken(WordEmbeddings):
        def embed_query(self, text: str) -> list[float]:
            raise OSError("no network")

    with pytest.raises(ConfigError, match="could not embed a word"):
        open_knowledge(tmp_path / "knowledge.db", Broken())


def test_token_database_and_tls_reach_the_client():
    more = {"secure": True, "server_pem_path": "server.pem"}

    assert connection_arguments("https://in01.example.com:19530", "key", "docs", more, 5.0) == {
        "uri": "https://in01.example.com:19530",
        "token": "key",
        "db_name": "docs",
        "timeout": 5.0,
        **more,
    }
    assert connection_arguments(Path("k.db"), None, None, None, None) == {"uri": "k.db"}
    with pytest.raises(ConfigError, match="token"):
        connection_arguments("http://localhost:19530", None, None, {"token": "key"}, None)


def test_databases_of_one_server_are_apart(lite_server_uri, name):  # noqa: F811
    client = MilvusClient(lite_server_uri)
    client.create_database(name)

    here, there = (open_knowledge(lite_server_uri, WordEmbeddings(), collection=name, database=d) for d in (None, name))
    here.add_texts(["here"], agent_id="a")
    there.add_texts(["there"], agent_id="a")

    assert [d.page_content for d in here.similarity_search("here")] == ["here"]
    assert [d.page_content for d in there.similarity_search("here")] == ["there"]


def test_embeddings_are_named_by_their_model_else_their_class():
    assert name_of(Named()) == "words-v2"
    assert name_of(WordEmbeddings()) == "WordEmbeddings"


def test_opening_loads_jieba_without_a_word():
    script = textwrap.dedent(
        """
        import jieba, logging, sys, tempfile
        from crag_middleware.knowledge.open import open_knowledge
        from tests.support.milvus import WordEmbeddings
        open_knowledge(tempfile.mkdtemp() + "/k.db", WordEmbeddings())
        assert jieba.dt.initialized and jieba.default_logger.level == logging.DEBUG
        """
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, cwd=Path(__file__).parent.parent)

    assert (done.returncode, done.stderr, done.stdout) == (0, "", "")


def test_opening_logs_nothing(lite_uri, caplog):  # noqa: F811
    with caplog.at_level(logging.WARNING):
        open_knowledge(lite_uri, WordEmbeddings())

    # Lite's own gRPC server complains about a call that pymilvus makes on every connection.
    assert [record for record in caplog.records if record.name != "grpc._server"] == []
