"""Real Milvus Lite stores for tests: a fresh file, a server in another process, small collections, and embeddings without a model."""

import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import sqrt
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from langchain_core.embeddings import Embeddings
from langchain_milvus import BM25BuiltInFunction, Milvus
from langchain_milvus.utils.sparse import BaseSparseEmbedding
from pymilvus import DataType, Function, FunctionType, MilvusClient, MilvusException

WORDS = re.compile(r"[a-z0-9]+|[\u4e00-\u9fff]+")
DIMENSION = 64


def words(text: str) -> list[str]:
    """Lower-case Latin words and numbers, and pairs of neighbours in Chinese runs."""
    found = []
    for run in WORDS.findall(text.lower()):
        found += [run] if run.isascii() or len(run) == 1 else [run[i : i + 2] for i in range(len(run) - 1)]
    return found


class WordEmbeddings(Embeddings):
    """Deterministic vectors: texts that share words are near."""

    def __init__(self, dimension: int = DIMENSION) -> None:
        self.dimension = dimension

    def embed_query(self, text: str) -> list[float]:
        vector = [0.0] * self.dimension
        for word in words(text):
            vector[crc32(word.encode()) % self.dimension] += 1.0
        vector[0] += 0.01
        length = sqrt(sum(x * x for x in vector))
        return [x / length for x in vector]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


class WordSparse(BaseSparseEmbedding):
    """Client-side sparse vectors of word counts."""

    def embed_query(self, query: str) -> dict[int, float]:
        vector: dict[int, float] = {}
        for word in words(query):
            key = crc32(word.encode()) % 100_000
            vector[key] = vector.get(key, 0.0) + 1.0
        return vector

    def embed_documents(self, texts: list[str]) -> list[dict[int, float]]:
        return [self.embed_query(text) for text in texts]


_files: list[str] = []


@pytest.fixture
def lite_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Milvus Lite file without collections, the same one for all tests: pymilvus would take a later server on the same port for the earlier one."""
    if not _files:
        _files.append(str(tmp_path_factory.mktemp("lite") / "knowledge.db"))
    try:
        client = MilvusClient(_files[0])
    except MilvusException:  # Lite breaks off a connection that was idle for long, and pymilvus fails once when it takes it up again
        client = MilvusClient(_files[0])
    for name in client.list_collections():
        client.drop_collection(name)
    return _files[0]


@contextmanager
def lite_server(directory: Path) -> Iterator[str]:
    """The address of a Milvus Lite server in another process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-u",
        "-m",
        "milvus_lite",
        "server",
        "--data-dir",
        str(directory),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        assert any("listening" in line for line in process.stdout), "the server ended before it listened"
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture(scope="module")
def lite_server_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Milvus Lite server in another process, shared by a module's tests."""
    with lite_server(tmp_path_factory.mktemp("server")) as uri:
        yield uri


Column = tuple[DataType, Mapping[str, Any]]

TENANT: Column = (DataType.VARCHAR, {"max_length": 256, "is_partition_key": True})
JSON: Column = (DataType.JSON, {"nullable": True})


def text_column(**options: Any) -> Column:
    """A VARCHAR column, nullable unless said otherwise."""
    return DataType.VARCHAR, {"max_length": 1024, "nullable": True, **options}


def make_collection(
    uri: str,
    name: str,
    columns: Mapping[str, Column],
    *,
    dense: bool = True,
    bm25: bool = True,
    client_sparse: bool = False,
    dimension: int = DIMENSION,
    metric: str = "COSINE",
    dynamic: bool = False,
) -> MilvusClient:
    """A collection with `id`, `text`, the given columns and the chosen vector fields: `dense`, `sparse` (BM25), `words` (client-side sparse)."""
    client = MilvusClient(uri)
    schema = client.create_schema(enable_dynamic_field=dynamic)
    schema.add_field("id", DataType.VARCHAR, is_primary=True, max_length=256)
    schema.add_field("text", DataType.VARCHAR, max_length=8192, enable_analyzer=True, analyzer_params={"tokenizer": "jieba"})
    for field, (kind, options) in columns.items():
        schema.add_field(field, kind, **options)
    indexes = client.prepare_index_params()
    if dense:
        schema.add_field("dense", DataType.FLOAT_VECTOR, dim=dimension)
        indexes.add_index("dense", index_type="AUTOINDEX", metric_type=metric)
    if bm25:
        schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
        schema.add_function(Function("bm25", FunctionType.BM25, input_field_names=["text"], output_field_names=["sparse"]))
        indexes.add_index("sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    if client_sparse:
        schema.add_field("words", DataType.SPARSE_FLOAT_VECTOR)
        indexes.add_index("words", index_type="SPARSE_INVERTED_INDEX", metric_type="IP")
    client.create_collection(name, schema=schema, consistency_level="Strong")
    client.create_index(name, indexes, sync=False)  # pymilvus would sleep half a second for each index
    client.load_collection(name)
    return client


def open_store(uri: str, name: str, *, dense: bool = True, bm25: bool = True, client_sparse: bool = False, **options: Any) -> Milvus:
    """A plain LangChain store over such a collection."""
    embeddings: list[Any] = [WordEmbeddings()] * dense + [WordSparse()] * client_sparse
    fields = ["dense"] * dense + ["words"] * client_sparse
    options = {"embedding_function": embeddings or None, "vector_field": fields + ["sparse"] * bm25, "primary_field": "id"} | options
    function = BM25BuiltInFunction(output_field_names="sparse", analyzer_params={"tokenizer": "jieba"}) if bm25 else None
    return Milvus(
        collection_name=name,
        connection_args={"uri": uri},
        builtin_function=function,
        consistency_level="Strong",
        **options,
    )


def insert(client: MilvusClient, name: str, rows: Sequence[Mapping[str, Any]], *, dense: bool = True, client_sparse: bool = False) -> None:
    """Writes rows, with the vectors that Milvus does not make itself."""
    dense_, sparse = WordEmbeddings(), WordSparse()
    client.insert(
        name,
        [
            {
                **row,
                **({"dense": dense_.embed_query(row["text"])} if dense else {}),
                **({"words": sparse.embed_query(row["text"])} if client_sparse else {}),
            }
            for row in rows
        ],
    )
