"""Which collection a command is about: its options, and opening it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from grpc import RpcError
from langchain_core.embeddings import Embeddings
from pymilvus import MilvusClient, MilvusException

from crag_middleware.adapters.local_embeddings import E5Embeddings, LocalEmbeddings
from crag_middleware.adapters.milvus_errors import diagnosis
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.cli.shared import name_own_modules
from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.knowledge import Knowledge
from crag_middleware.knowledge.open import connection_arguments, open_knowledge
from crag_middleware.knowledge.schema import SHARED, Isolation
from crag_middleware.named import named_embeddings

AgentId = Annotated[str, typer.Option("--agent-id", "-a", metavar="ID", help="The tenant.", show_default=False)]
Uri = Annotated[str, typer.Option(metavar="URI", envvar="CRAG_URI", help="A file of Milvus Lite that ends in .db, or a server's address.")]
Token = Annotated[
    str | None,
    typer.Option(
        metavar="TOKEN", envvar="CRAG_TOKEN", help="user:password or API key of the server.", show_default=False, show_envvar=True
    ),
]
Database = Annotated[str | None, typer.Option(metavar="NAME", help="The database within the server.", show_default=False)]
Collection = Annotated[str, typer.Option(metavar="NAME", help="The collection.")]
EmbeddingsName = Annotated[
    str | None,
    typer.Option(
        "--embeddings",
        "-e",
        metavar="NAME",
        help="local, e5, or one's own as package.module:attribute.",
        show_default="those that made the collection; local for a new one",
    ),
]
IsolationName = Annotated[
    Isolation | None,
    typer.Option(
        "--isolation",
        help="What each tenant has of its own: a key in one collection, a collection, or a database.",
        show_default="what the collection was made with; partition_key for a new one",
    ),
]

DEFAULT_URI = "./knowledge.db"
DEFAULT_COLLECTION = "knowledge"

_BY_MODEL = {LocalEmbeddings.model: "local", E5Embeddings.model: "e5"}
"""The names of the embeddings that need no other to be given, by what a collection remembers of them."""


class _Unneeded(Embeddings):
    """Stands in for the embeddings of a collection where nothing is embedded: vectors of their length without meaning."""

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [0.0] * self._dimension


def opened(
    uri: str, token: str | None, database: str | None, collection: str, embeddings: str | None, isolation: Isolation | None = None
) -> Knowledge:
    """The collection to write to, made if it is missing.

    Raises:
        ConfigError: It can't be opened, or not with these embeddings, or has another isolation.
    """
    name_own_modules()
    kept = _notes(uri, token, database, collection)
    made = embeddings_of(collection, kept.get("crag.embedding_name", LocalEmbeddings.model), embeddings)
    kind = isolation or kept.get("crag.isolation", SHARED)
    return open_knowledge(uri, made, collection=collection, isolation=kind, token=token, database=database)


def searchable(
    uri: str, token: str | None, database: str | None, collection: str, embeddings: str | None, isolation: Isolation | None = None
) -> Knowledge:
    """The collection to search, which must be there, with the embeddings that made it.

    Raises:
        ConfigError: It is not there, or can't be opened, or not with these embeddings, or has another isolation.
    """
    _check_there(_notes(uri, token, database, collection), uri, collection)
    return opened(uri, token, database, collection, embeddings, isolation)


def embeddings_of(collection: str, remembered: str, named: str | None) -> Embeddings:
    """The embeddings that are named, or else those that a collection remembers.

    Raises:
        ConfigError: None are named, and those are none of ours; or they can't be built.
    """
    if named is None and remembered not in _BY_MODEL:
        msg = f"the collection {collection!r} was made with the embeddings {remembered!r}; name them with --embeddings package.module:attribute"
        raise ConfigError(msg)
    return named_embeddings(named or _BY_MODEL[remembered])


def existing(uri: str, token: str | None, database: str | None, collection: str, isolation: Isolation | None = None) -> Knowledge:
    """The collection to look at or delete from, without its embeddings.

    Raises:
        ConfigError: It is not there, was not made by `open_knowledge`, or has another isolation.
    """
    kept = _notes(uri, token, database, collection)
    _check_there(kept, uri, collection)
    stand_in, name = _Unneeded(int(kept["crag.embedding_dimension"])), kept["crag.embedding_name"]
    kind = isolation or kept.get("crag.isolation", SHARED)
    return open_knowledge(uri, stand_in, collection=collection, isolation=kind, token=token, database=database, embedding_name=name)


def client(uri: str, token: str | None, database: str | None) -> MilvusClient:
    """A connection to what is there already.

    Raises:
        ConfigError: There is no such file, or the server can't be reached.
    """
    arguments = connection_arguments(uri, token, database, None, None)
    if uri.endswith(".db") and not os.path.exists(uri):
        msg = f"there is no file {uri!r}"
        raise ConfigError(msg)
    with _reached(uri):
        return MilvusClient(**arguments)


def _notes(uri: str, token: str | None, database: str | None, collection: str) -> dict[str, Any]:
    """What is kept with the collection; nothing if it is not there."""
    if uri.endswith(".db") and not os.path.exists(uri):
        return {}
    found = client(uri, token, database)
    with _reached(uri):
        there = found.has_collection(collection)
        notes: dict[str, Any] = found.describe_collection(collection).get("properties") or {} if there else {}
    return {key: value for key, value in notes.items() if key.startswith("crag.")}


def _check_there(kept: Mapping[str, Any], uri: str, collection: str) -> None:
    if not kept:
        msg = f"there is no collection {collection!r} at {_place(uri)} that `crag ingest` or `open_knowledge` made"
        raise ConfigError(msg)


@contextmanager
def _reached(uri: str) -> Iterator[None]:
    """Milvus' errors as ours."""
    with redacted_logs():
        try:
            yield
        except (MilvusException, RpcError) as error:
            reason, what = diagnosis(error)
            msg = f"{_place(uri)} could not be opened: {what}"
            raise ConfigError(msg, reason=reason) from None


def _place(uri: str) -> str:
    """Where it is, but for an address, which may hold a password."""
    return repr(uri) if uri.endswith(".db") else "the server"
