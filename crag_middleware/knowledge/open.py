"""Opening a knowledge collection: made if it is missing, checked if it is there."""

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from grpc import RpcError
from langchain_core.embeddings import Embeddings
from langgraph.errors import GraphBubbleUp
from pymilvus import MilvusClient, MilvusException

from crag_middleware.adapters.milvus_errors import diagnosis
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.schema import INDEXES, SCHEMA_VERSION, Language, collection_schema, notes
from crag_middleware.knowledge.store import KnowledgeStore
from crag_middleware.stages.chinese import load

Consistency = Literal["Strong", "Session", "Bounded", "Eventually"]
"""How soon a search sees what was written, see docs/knowledge.md."""

COLLECTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")

MAX_TIMEOUT_S = 3600

SETTLING_S = (0.1, 0.3, 1.0)
"""Waits between attempts: Milvus refuses to make what another process is making in the same moment."""

_opening = threading.Lock()
"""Two threads that open one Milvus Lite file at the same time would lock each other out of it."""


def open_knowledge(
    uri: str | os.PathLike[str],
    embeddings: Embeddings,
    *,
    collection: str = "knowledge",
    language: Language = "auto",
    token: str | None = None,
    database: str | None = None,
    connection_args: Mapping[str, Any] | None = None,
    embedding_name: str | None = None,
    consistency_level: Consistency = "Session",
    timeout_s: float | None = None,
) -> KnowledgeStore:
    """A hybrid, tenant-partitioned `langchain_milvus.Milvus` store, made if it is missing.

    Args:
        uri: A path that ends in `.db` for Milvus Lite, or the address of a server: Lite in another process, Milvus standalone or distributed, Zilliz Cloud.
        embeddings: Makes the dense vectors; embeds one word here, to learn the dimension.
        collection: The collection's name.
        language: `en` for English only, `zh` for Chinese with English in it, `auto` for what the collection has (`zh` for a new one).
        token: `user:password`, or an API key.
        database: The database within the server.
        connection_args: Anything else for `pymilvus.MilvusClient`: `secure`, `server_pem_path`, `client_key_path`, ...
        embedding_name: The name kept with the collection, by default the embeddings' model, else their class.
        consistency_level: How soon a search sees what was written; kept with a new collection.
        timeout_s: Deadline of each call of Milvus through this store, connecting included, in seconds: above 0, at most 3600. None for none.

    Raises:
        ConfigError: Nothing can be opened there, or the collection was made by another version, by other embeddings, for another language or not by us.
    """
    _check_timeout(timeout_s)
    connection = connection_arguments(uri, token, database, connection_args, timeout_s)
    _check_choices(collection, language, consistency_level)
    name = embedding_name or name_of(embeddings)
    dimension = _dimension(embeddings)

    def attempt(client: Any) -> KnowledgeStore:
        if not client.has_collection(collection):
            _create(client, collection, notes(name, dimension, "zh" if language == "auto" else language), consistency_level, timeout_s)
        kept = client.describe_collection(collection).get("properties") or {}
        _check_notes(collection, kept, notes(name, dimension, kept.get("crag.language", "") if language == "auto" else language))
        if kept["crag.language"] == "zh":
            load()  # jieba, which Lite cuts words with: now, and not in the first turn
        return KnowledgeStore(
            embeddings, connection, collection=collection, dimension=dimension, consistency_level=consistency_level, timeout_s=timeout_s
        )

    with _opening, redacted_logs():
        try:
            return _patiently(attempt, _connected(connection))
        except (MilvusException, RpcError) as error:
            reason, what = diagnosis(error)
            hint = "only one process at a time may hold a file" if _is_file(connection["uri"]) else "check address, token, database and TLS"
            msg = f"the knowledge could not be opened: {what}; {hint}"
            # The error may quote an address with a password in it.
            raise ConfigError(msg, reason=reason) from None


def connection_arguments(
    uri: str | os.PathLike[str], token: str | None, database: str | None, more: Mapping[str, Any] | None, timeout_s: float | None
) -> dict[str, Any]:
    """The arguments of `pymilvus.MilvusClient`.

    Raises:
        ConfigError: The address can't be one, or a value is given twice.
    """
    address = os.fspath(uri) if isinstance(uri, str | os.PathLike) else None
    if not isinstance(address, str) or not (_is_file(address) or re.match(r"(https?|tcp)://.|unix:.", address)):
        got = type(uri).__name__ if address is None else "something else"
        msg = f"`uri` must be a path that ends in `.db` or an address such as `http://localhost:19530`, got {got}"
        raise ConfigError(msg)
    folder = os.path.dirname(address) or "."
    if _is_file(address) and not os.path.isdir(folder):
        msg = f"the folder of the Milvus Lite file must exist, got {folder!r}; make it first"
        raise ConfigError(msg)
    named = {"uri": address, "token": token, "db_name": database, "timeout": timeout_s}
    if twice := sorted(named.keys() & (more or {}).keys()):
        msg = f"`connection_args` must not hold {', '.join(twice)}; pass them as `uri`, `token`, `database` and `timeout_s`"
        raise ConfigError(msg)
    return {**(more or {}), **{key: value for key, value in named.items() if value is not None}}


def name_of(embeddings: Embeddings) -> str:
    """The name of the embeddings' model, else of their class."""
    for attribute in ("model", "model_name", "model_id", "deployment", "deployment_name", "repo_id"):
        value = getattr(embeddings, attribute, None)
        if isinstance(value, str) and value.strip():
            return value
    return type(embeddings).__name__


def _is_file(address: str) -> bool:
    return address.endswith(".db")


def _check_choices(collection: str, language: str, consistency_level: str) -> None:
    if not isinstance(collection, str) or not COLLECTION_NAME.fullmatch(collection):
        msg = f"`collection` must be letters, digits and underscores, at most 255 and no digit first, got {collection!r}"
        raise ConfigError(msg)
    for name, value, known in (("language", language, Language), ("consistency_level", consistency_level, Consistency)):
        if value not in get_args(known):
            msg = f"`{name}` must be one of {', '.join(get_args(known))}, got {value!r}"
            raise ConfigError(msg)


def _check_timeout(timeout_s: object) -> None:
    if timeout_s is None:
        return
    if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool) or not 0 < timeout_s <= MAX_TIMEOUT_S:
        msg = f"`timeout_s` must be a number of seconds above 0, at most {MAX_TIMEOUT_S}, or None for none, got {timeout_s!r}"
        raise ConfigError(msg)


def _dimension(embeddings: Embeddings) -> int:
    try:
        dimension = len(embeddings.embed_query("knowledge"))
    except GraphBubbleUp:
        raise
    except Exception as error:
        msg = f"the embeddings could not embed a word ({type(error).__name__}); they are needed to open the knowledge"
        raise ConfigError(msg) from error
    if not dimension:
        msg = f"the embeddings ({type(embeddings).__name__}) must make vectors, got an empty one for a word"
        raise ConfigError(msg)
    return dimension


def _create(client: Any, collection: str, kept: dict[str, str], consistency_level: str, timeout_s: float | None) -> None:
    indexes = client.prepare_index_params()
    for field, index in INDEXES.items():
        indexes.add_index(field, **index)
    schema = collection_schema(int(kept["crag.embedding_dimension"]), kept["crag.language"])
    client.create_collection(collection, schema=schema, properties=kept, consistency_level=consistency_level, timeout=timeout_s)
    # Loading waits for the indexes; waiting here, too, would poll for half a second at each.
    client.create_index(collection, indexes, timeout=timeout_s, sync=False)


def _connected(connection: Mapping[str, Any]) -> MilvusClient:
    """A client; of a file, if need be, at the second attempt.

    Lite's server in this process breaks off a connection that was idle for a minute and a half, since it is sent more signs of life than it bears; pymilvus
    finds that out when it takes the connection up again, and then fails once.
    """
    try:
        return MilvusClient(**connection)
    except MilvusException:
        if not _is_file(connection["uri"]):
            raise
        return MilvusClient(**connection)


def _patiently(attempt: Callable[[Any], KnowledgeStore], client: Any) -> KnowledgeStore:
    """What the attempt returns in the end: an index it finds missing is made by the store, a half-made collection is waited for."""
    for wait_s in SETTLING_S:
        try:
            return attempt(client)
        except MilvusException:
            time.sleep(wait_s)
    return attempt(client)


def _check_notes(collection: str, kept: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """Passes if the collection was made by this version, for these embeddings and this language."""
    if "crag.schema_version" not in kept:
        msg = (
            f"the collection {collection!r} was not made by `open_knowledge`; use another name, "
            "or give a `langchain_milvus.Milvus` store over it to the middleware"
        )
        raise ConfigError(msg)
    mend = {
        "schema_version": f"this package reads version {SCHEMA_VERSION}; open a new collection and ingest again",
        "embedding_name": "open it with those embeddings, ingest into a new collection, or pass `embedding_name=` if the vectors are the same",
        "embedding_dimension": "open it with the embeddings that made it, or ingest into a new collection",
        "language": "leave `language` out, or ingest into a new collection",
    }
    for note, advice in mend.items():
        had, got = kept.get(f"crag.{note}"), wanted[f"crag.{note}"]
        if had != got:
            msg = f"the collection {collection!r} was made with {note} {had!r}, got {got!r}; {advice}"
            raise ConfigError(msg)
