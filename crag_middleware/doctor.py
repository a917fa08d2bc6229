"""What keeps answers from being right here, found before the first turn: packages, models, the collection, its documents, a search. Nothing is changed."""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from itertools import islice
from typing import Any, Literal, cast

from grpc import RpcError
from langchain_core.embeddings import Embeddings
from langchain_milvus import Milvus
from packaging.requirements import Requirement
from pymilvus import MilvusClient, MilvusException

from crag_middleware.adapters.milvus import CHINESE, MilvusRetriever
from crag_middleware.adapters.milvus_describe import Described, describe, type_of
from crag_middleware.adapters.milvus_errors import diagnosis
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.errors import ConfigError, CRAGError
from crag_middleware.knowledge.knowledge import Knowledge
from crag_middleware.knowledge.open import connection_arguments, name_of, open_knowledge
from crag_middleware.knowledge.schema import INDEXES, SCHEMA_VERSION, SHARED, TENANT, TEXT
from crag_middleware.knowledge.tenant_rows import pages
from crag_middleware.tenancy import Scope, check_agent_id

DISTRIBUTION = "crag-middleware"

SAMPLE = 200
"""Chunks of the tenant that are looked at for their language."""

MUCH = 0.05
"""The share of chunks with Chinese in them from which a collection needs an analyzer for it."""

NOBODY = "crag-doctor"
"""The tenant that a search is tried for when none is named; it has no rows."""

TIMEOUT_S = 15.0
"""Deadline of each call of Milvus, in seconds."""

State = Literal["ok", "note", "wrong"]
"""`note`: something is missing that may not be needed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: What was looked at.
        state: What came of it.
        found: What was found, in words; no text of a document, no key and no tenant's id.
        mend: What to do about it; empty where nothing is to be done.
    """

    check: str
    state: State
    found: str
    mend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the knowledge is.

    Attributes:
        uri: A file of Milvus Lite that ends in `.db`, or a server's address.
        collection: The collection.
        token: `user:password` or an API key, or None.
        database: The database within the server, or None.
    """

    uri: str
    collection: str
    token: str | None = None
    database: str | None = None


def packages() -> Iterator[Finding]:
    """Whether every package that this one needs is there, in a version that it works with, and which extras are complete."""
    needed = [Requirement(line) for line in requires(DISTRIBUTION) or ()]
    plain = [one for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]
    bad = [one for one in plain if not _is_there(one)]
    for one in bad:
        yield Finding(
            "packages", "wrong", f"{one.name} must be {one.specifier or 'there'}, got {_version(one.name)}", f'pip install "{_pip(one)}"'
        )
    if not bad:
        told = ", ".join(f"{one.name} {_version(one.name)}" for one in plain)
        yield Finding("packages", "ok", f"{DISTRIBUTION} {version(DISTRIBUTION)}, {told}")
    extras = sorted({name for one in needed if one.marker for name in _extras(str(one.marker))})
    for extra in extras:
        of_it = [one for one in needed if one.marker and f'extra == "{extra}"' in str(one.marker) and one.marker.evaluate({"extra": extra})]
        if missing := [one.name for one in of_it if not _is_there(one)]:
            yield Finding(
                f"extra {extra}", "note", f"not there: {', '.join(missing)}", f'pip install "{DISTRIBUTION}[{extra}]", if you need it'
            )


def built(check: str, make: Callable[[], object], *, wanted: bool, mend: str) -> Finding:
    """Whether a part can be built, most often whether its key is there. Nothing is sent.

    Args:
        check: The part.
        make: Builds it.
        wanted: Whether it was asked for: then it is wrong if it can't be built, else only noted.
        mend: What to do.
    """
    try:
        make()
    except ConfigError as error:
        return Finding(check, "wrong" if wanted else "note", str(error), mend)
    return Finding(check, "ok", "can be built; whether its key is accepted shows in the first turn")


def collection(place: Place, embeddings: Callable[[str], Embeddings], *, agent_id: str | None = None) -> Iterator[Finding]:
    """What can be wrong with a collection: whether it can be opened, how it was made, its tenant field, analyzer, indexes, embeddings, a search.

    Args:
        place: Where it is.
        embeddings: The embeddings for the name that the collection remembers; may raise `ConfigError`.
        agent_id: The tenant whose documents are looked at for their language, and who searches; None for nobody's.

    Raises:
        TenantError: `agent_id` is no tenant id.
    """
    if agent_id is not None:
        check_agent_id(agent_id)
    client, opened = _opened(place)
    yield opened
    if client is None:
        return
    with redacted_logs():
        try:
            seen = describe(cast("Milvus", _Seen(client, place.collection)))
            kept = client.describe_collection(place.collection, timeout=TIMEOUT_S).get("properties") or {}
            indexes = {
                str(i["field_name"]): i
                for i in (client.describe_index(place.collection, n) for n in client.list_indexes(place.collection))
                if i
            }
        except ConfigError as error:
            yield Finding("collection", "wrong", str(error), "bring documents in with `crag ingest`, or name another one with --collection")
            return
        except (MilvusException, RpcError) as error:
            yield Finding(
                "collection", "wrong", f"it can't be read: {diagnosis(error)[1]}", "check the server's log and this user's rights"
            )
            return
    yield _made(kept)
    yield _tenant(seen)
    yield from _indexed(seen, indexes)
    made = "crag.schema_version" in kept
    found, model = _embedded(kept, seen, embeddings) if made else (None, None)
    if found is not None:
        yield found
    if model is None:
        yield _read(seen, None)
        return
    try:
        knowledge: Knowledge = open_knowledge(
            place.uri,
            model,
            collection=place.collection,
            isolation=cast("Any", kept.get("crag.isolation", SHARED)),
            token=place.token,
            database=place.database,
            embedding_name=kept["crag.embedding_name"],
            timeout_s=TIMEOUT_S,
        )
        yield _read(seen, None if agent_id is None else _chinese_share(knowledge, agent_id))
        yield from _searched(knowledge, agent_id or NOBODY)
    except CRAGError as error:
        yield Finding("search", "wrong", str(error), "see the reason; `crag sources` shows whether the documents are there")


@dataclass(frozen=True, slots=True)
class _Seen:
    """What `describe` asks of a store; a store itself would make indexes that are missing."""

    client: MilvusClient
    collection_name: str


def _opened(place: Place) -> tuple[MilvusClient | None, Finding]:
    is_file = place.uri.endswith(".db")
    try:
        arguments = connection_arguments(place.uri, place.token, place.database, None, TIMEOUT_S)
    except ConfigError as error:
        return None, Finding("knowledge", "wrong", str(error), "give --uri, or set CRAG_URI")
    if is_file and not os.path.exists(place.uri):
        return None, Finding(
            "knowledge", "wrong", f"there is no file {place.uri!r}", "bring documents in with `crag ingest`, or name another one with --uri"
        )
    with redacted_logs():
        try:
            client = MilvusClient(**arguments)
            kind = str(client.get_server_version())
        except (MilvusException, RpcError, OSError) as error:
            what = diagnosis(error)[1]
            mend = (
                "another process holds the file, or it is damaged: only one process at a time may open a Milvus Lite file; stop the other one, or put the "
                "file behind a server (`milvus-lite server`)"
                if is_file
                else "check address, token, database and TLS, and that the server is up"
            )
            return None, Finding("knowledge", "wrong", f"it can't be opened: {what}", mend)
    lite = kind.startswith("milvus_lite")
    told = "Milvus Lite, one process at a time" if is_file else "a Milvus Lite server" if lite else f"Milvus {kind}"
    return client, Finding("knowledge", "ok", f"opened: {told}")


def _made(kept: Mapping[str, Any]) -> Finding:
    if "crag.schema_version" not in kept:
        mend = "bring it into one of ours with `crag migrate`, or give a `langchain_milvus.Milvus` store over it to the middleware"
        return Finding("collection", "wrong", "it was not made by `crag ingest` or `open_knowledge`", mend)
    if kept["crag.schema_version"] != str(SCHEMA_VERSION):
        found = f"its schema is of version {kept['crag.schema_version']}, this package reads version {SCHEMA_VERSION}"
        return Finding("collection", "wrong", found, "ingest into a new collection with this version, or install the version that made it")
    return Finding("collection", "ok", f"made by this schema version, for the language {kept.get('crag.language')!r}")


def _tenant(seen: Described) -> Finding:
    column = seen.columns.get(TENANT)
    kind = type_of(column)
    mend = "make the collection with `crag ingest`; one of your own needs a VARCHAR column, named by `tenant_field=`"
    if column is None or kind is None:
        return Finding("tenant field", "wrong", f"there is no column `{TENANT}`: rows can't be told apart by tenant", mend)
    if kind.name != "VARCHAR":
        return Finding("tenant field", "wrong", f"the column `{TENANT}` is {kind.name}", mend)
    if not column.get("is_partition_key"):
        return Finding(
            "tenant field", "note", f"`{TENANT}` is no partition key: each search scans every tenant's rows", "see docs/tenants.md"
        )
    return Finding("tenant field", "ok", f"`{TENANT}` is a partition key")


def _indexed(seen: Described, indexes: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Whether every vector field has an index, and, for ours, the right metric."""
    wrong = []
    for field in seen.vectors:
        index, ours = indexes.get(field), INDEXES.get(field)
        if index is None:
            wrong.append(f"`{field}` has no index")
        elif ours and index.get("metric_type") != ours["metric_type"]:
            wrong.append(f"`{field}` has the metric {index.get('metric_type')!r}, searches use {ours['metric_type']!r}")
        elif seen.lite and float(index.get("drop_ratio_build") or 0):
            wrong.append(f"`{field}` has a drop_ratio_build, which Milvus Lite refuses")
    if not seen.vectors:
        wrong.append("there is no vector field")
    mend = "open the collection once with `open_knowledge`, which makes an index that is missing, or ingest into a new one"
    if wrong:
        yield Finding("indexes", "wrong", "; ".join(wrong), mend)
    else:
        told = ", ".join(f"`{field}` {indexes[field].get('index_type')} {indexes[field].get('metric_type')}" for field in seen.vectors)
        yield Finding("indexes", "ok", f"{told}; search parameters as these need them")


def _embedded(kept: Mapping[str, Any], seen: Described, embeddings: Callable[[str], Embeddings]) -> tuple[Finding, Embeddings | None]:
    """Whether the embeddings are those that made the collection."""
    name, size = str(kept.get("crag.embedding_name")), str(kept.get("crag.embedding_dimension"))
    try:
        model = embeddings(name)
    except ConfigError as error:
        return Finding("embeddings", "wrong", str(error), "name those that made the collection with --embeddings"), None
    stored = {str(seen.columns[f].get("params", {}).get("dim")) for f, kind in seen.vectors.items() if "SPARSE" not in kind.name}
    try:
        got = len(model.embed_query("knowledge"))
    except Exception as error:  # noqa: BLE001 - told; anybody's embeddings may fail in any way
        return Finding(
            "embeddings", "wrong", f"they could not embed a word ({type(error).__name__})", "check their key, address and package"
        ), None
    if name_of(model) != name:
        found, mend = (
            f"the collection was made with {name!r}, these are {name_of(model)!r}",
            "name those that made it with --embeddings, or ingest anew",
        )
        return Finding("embeddings", "wrong", found, mend), None
    if {str(got), size} != stored:
        found = f"these make {got} dimensions, the collection says {size} and holds {', '.join(sorted(stored))}"
        return Finding("embeddings", "wrong", found, "use the model that made it, or ingest into a new collection"), None
    return Finding("embeddings", "ok", f"{name}, {got} dimensions"), model


def _read(seen: Described, chinese: float | None) -> Finding:
    """Whether the keyword leg finds words in the documents' language."""
    column = next((made_of for made_of in seen.made.values() if made_of), TEXT)
    splits = seen.splits_chinese(column)
    if not seen.made:
        return Finding(
            "analyzer", "note", "there is no keyword leg (BM25): only meaning is searched", "`crag ingest` makes collections with both"
        )
    if chinese is None:
        reads = "Chinese and English" if splits else "English only: a run of Chinese counts as one word"
        return Finding(
            "analyzer",
            "ok" if splits else "note",
            f"it reads {reads}",
            "" if splits else "name a tenant with --agent-id to compare its documents",
        )
    told = f"{chinese:.0%} of the tenant's chunks looked at hold Chinese"
    if chinese >= MUCH and not splits:
        mend = "make a collection with language='zh' and bring the rows over with `crag migrate --keep-vectors`"
        return Finding("analyzer", "wrong", f"{told}, and the analyzer takes a run of Chinese for one word", mend)
    return Finding("analyzer", "ok", f"{told}; the analyzer reads {'Chinese and English' if splits else 'English'}")


def _chinese_share(knowledge: Knowledge, agent_id: str) -> float | None:
    """Of the tenant's first chunks; None if there are none."""
    rows = [row for page in islice(pages(knowledge, Scope(agent_id), (TEXT,), size=SAMPLE), 1) for row in page]
    return sum(bool(CHINESE.search(row[TEXT])) for row in rows) / len(rows) if rows else None


def _searched(knowledge: Knowledge, agent_id: str) -> Iterator[Finding]:
    """A search, and the same from two event loops, one after the other: a client that belongs to the first fails in the second."""
    store = knowledge.place(agent_id)
    if store is None:
        yield Finding("search", "note", "the tenant has no documents yet", "bring some in with `crag ingest`")
        return
    retriever = MilvusRetriever(store)
    found = retriever.retrieve("knowledge", agent_id=agent_id, limit=3, timeout_s=TIMEOUT_S)
    number = len(found)
    if agent_id != NOBODY and not number:
        yield Finding("search", "note", "it works, and the tenant has no documents", "bring some in with `crag ingest`")
    else:
        yield Finding("search", "ok", "it works")

    async def ask() -> None:
        await retriever.aretrieve("knowledge", agent_id=agent_id, limit=3, timeout_s=TIMEOUT_S)

    try:
        for _ in range(2):
            asyncio.run(ask())
    except CRAGError as error:
        yield Finding(
            "event loops", "wrong", str(error), "use the middleware's own search, and no async client of yours, across event loops"
        )
    else:
        yield Finding("event loops", "ok", "two event loops searched, one after the other")


def _is_there(one: Requirement) -> bool:
    try:
        return one.specifier.contains(version(one.name), prereleases=True)
    except PackageNotFoundError:
        return False


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "none"


def _pip(one: Requirement) -> str:
    extras = f"[{','.join(sorted(one.extras))}]" if one.extras else ""
    return f"{one.name}{extras}{one.specifier}"


def _extras(marker: str) -> Sequence[str]:
    return [part.split('"')[1] for part in marker.split("extra == ")[1:]]
