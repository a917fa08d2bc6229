"""Opening a knowledge collection: made if it is missing, checked if it is there."""

import os
import re
import threading
from collections.abc import Mapping
from typing import Any, Literal, get_args, overload

from grpc import RpcError
from langchain_core.embeddings import Embeddings
from langgraph.errors import GraphBubbleUp
from pymilvus import MilvusClient, MilvusException

from crag_middleware.adapters.milvus_errors import diagnosis
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.isolation import MAX_BASE, TenantStores
from crag_middleware.knowledge.making import Making, patiently
from crag_middleware.knowledge.schema import SHARED, Isolation, Language
from crag_middleware.knowledge.store import KnowledgeStore

Consistency = Literal["Strong", "Session", "Bounded", "Eventually"]
"""How soon a search sees what was written, see docs/knowledge.md."""

COLLECTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")

MAX_TIMEOUT_S = 3600

_opening = threading.Lock()
"""Two threads that open one Milvus Lite file at the same time would lock each other out of it."""


@overload
def open_knowledge(
    uri: str | os.PathLike[str],
    embeddings: Embeddings,
    *,
    collection: str = ...,
    isolation: Literal["partition_key"] = ...,
    language: Language = ...,
    token: str | None = ...,
    database: str | None = ...,
    connection_args: Mapping[str, Any] | None = ...,
    embedding_name: str | None = ...,
    consistency_level: Consistency = ...,
    timeout_s: float | None = ...,
) -> KnowledgeStore: ...


@overload
def open_knowledge(
    uri: str | os.PathLike[str],
    embeddings: Embeddings,
    *,
    collection: str = ...,
    isolation: Literal["collection", "database"],
    language: Language = ...,
    token: str | None = ...,
    database: str | None = ...,
    connection_args: Mapping[str, Any] | None = ...,
    embedding_name: str | None = ...,
    consistency_level: Consistency = ...,
    timeout_s: float | None = ...,
) -> TenantStores: ...


@overload
def open_knowledge(
    uri: str | os.PathLike[str],
    embeddings: Embeddings,
    *,
    collection: str = ...,
    isolation: Isolation,
    language: Language = ...,
    token: str | None = ...,
    database: str | None = ...,
    connection_args: Mapping[str, Any] | None = ...,
    embedding_name: str | None = ...,
    consistency_level: Consistency = ...,
    timeout_s: float | None = ...,
) -> KnowledgeStore | TenantStores: ...


def open_knowledge(
    uri: str | os.PathLike[str],
    embeddings: Embeddings,
    *,
    collection: str = "knowledge",
    isolation: Isolation = SHARED,
    language: Language = "auto",
    token: str | None = None,
    database: str | None = None,
    connection_args: Mapping[str, Any] | None = None,
    embedding_name: str | None = None,
    consistency_level: Consistency = "Session",
    timeout_s: float | None = None,
) -> KnowledgeStore | TenantStores:
    """A hybrid store in which tenants are kept apart, made if it is missing.

    Args:
        uri: A path that ends in `.db` for Milvus Lite, or the address of a server: Lite in another process, Milvus standalone or distributed, Zilliz Cloud.
        embeddings: Makes the dense vectors; embeds one word here, to learn the dimension.
        collection: The collection's name; with another isolation than `partition_key` that of a collection without rows, which keeps what all have in
            common, and what the names of the tenants' own collections or databases begin with.
        isolation: What each tenant has of its own: a key in one shared collection, a collection, or a database (docs/tenants.md).
        language: `en` for English only, `zh` for Chinese with English in it, `auto` for what the collection has (`zh` for a new one).
        token: `user:password`, or an API key.
        database: The database within the server. Not with the isolation `database`.
        connection_args: Anything else for `pymilvus.MilvusClient`: `secure`, `server_pem_path`, `client_key_path`, ...
        embedding_name: The name kept with the collection, by default the embeddings' model, else their class.
        consistency_level: How soon a search sees what was written; kept with a new collection.
        timeout_s: Deadline of each call of Milvus through this store, connecting included, in seconds: above 0, at most 3600. None for none.

    Returns:
        A `langchain_milvus.Milvus` store for `partition_key`; else a `TenantStores`, which has the same methods for one tenant and no searches over all.

    Raises:
        ConfigError: Nothing can be opened there, or the collection was made by another version, with another isolation, by other embeddings, for another
            language or not by us.
    """
    _check_timeout(timeout_s)
    connection = connection_arguments(uri, token, database, connection_args, timeout_s)
    _check_choices(collection, isolation, language, consistency_level)
    _check_isolation(collection, isolation, database)
    name = embedding_name or name_of(embeddings)
    making = Making(embeddings, name, _dimension(embeddings), language, isolation, consistency_level, timeout_s)

    def attempt() -> KnowledgeStore | TenantStores:
        found = making.ensure(client, collection)
        store = found.store(connection, collection)
        return store if isolation == SHARED else TenantStores(found, connection, store)

    with _opening, redacted_logs():
        try:
            client = _connected(connection)
            return patiently(attempt)
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


def _check_choices(collection: str, isolation: str, language: str, consistency_level: str) -> None:
    if not isinstance(collection, str) or not COLLECTION_NAME.fullmatch(collection):
        msg = f"`collection` must be letters, digits and underscores, at most 255 and no digit first, got {collection!r}"
        raise ConfigError(msg)
    choices = (("isolation", isolation, Isolation), ("language", language, Language), ("consistency_level", consistency_level, Consistency))
    for name, value, known in choices:
        if value not in get_args(known):
            msg = f"`{name}` must be one of {', '.join(get_args(known))}, got {value!r}"
            raise ConfigError(msg)


def _check_isolation(collection: str, isolation: Isolation, database: str | None) -> None:
    if isolation == SHARED:
        return
    if len(collection) > MAX_BASE:
        msg = f"`collection` must have at most {MAX_BASE} characters, since a digest follows it in the names of the tenants' own places, got {len(collection)}"
        raise ConfigError(msg)
    if isolation == "database" and database is not None:
        msg = "`database` can't be chosen where each tenant has one of its own; leave it out, and tell several bases apart by `collection`"
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
    except Exception as error:  # noqa: BLE001 - raised on as ours
        msg = f"the embeddings could not embed a word ({type(error).__name__}); they are needed to open the knowledge"
        # Not `from error`: it may quote a key.
        raise ConfigError(msg) from None
    if not dimension:
        msg = f"the embeddings ({type(embeddings).__name__}) must make vectors, got an empty one for a word"
        raise ConfigError(msg)
    return dimension


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
