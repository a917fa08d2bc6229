"""A collection that somebody else made: which of its fields say what, and what its rows are as ours. Reads, and never writes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from pymilvus import DataType, MilvusClient

from crag_middleware.adapters.milvus_errors import guarded
from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.schema import CONTENT_HASH, DENSE, METADATA, OPTIONAL_TEXT, TENANT, TEXT

TEXT_NAMES = (TEXT, "page_content", "content", "chunk", "chunk_text", "passage", "document", "body")
"""What collections call their text, the likeliest first."""

_VECTORS = {kind for name, kind in DataType.__members__.items() if name.endswith("_VECTOR")}


@dataclass(frozen=True, slots=True)
class Origin:
    """How to read a collection.

    Attributes:
        collection: Its name.
        primary: The name of its primary key.
        own_ids: Whether its ids are ours already, since `open_knowledge` made it.
        vectors: The names of its vector fields.
        vector: The one that is kept, None if texts are embedded anew.
        texts: Where a row's text is: the first of these that it has.
        renamed: From the names there to the names here; empty for fields that are left out.
    """

    collection: str
    primary: str
    own_ids: bool
    vectors: frozenset[str]
    vector: str | None
    texts: tuple[str, ...]
    renamed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A row on its way.

    Attributes:
        key: Its primary key there.
        text: Its text, None if it has no field of that kind.
        tenant: The tenant that it names, None if it names none.
        metadata: The rest.
        vector: The vector that is kept, if one is.
    """

    key: Any
    text: str | None
    tenant: Any
    metadata: dict[str, Any]
    vector: Any


def read_origin(client: MilvusClient, collection: str, renamed: Mapping[str, str], dimension: int | None, *, tenant: bool) -> Origin:
    """How to read the collection.

    Args:
        client: Connected to where it is.
        collection: Its name.
        renamed: From the names there to the names here; empty for fields that are to be left out.
        dimension: Of the vectors to be kept; None to keep none.
        tenant: Whether rows must name their tenant.

    Raises:
        ConfigError: It is missing, or has no field of a kind that is needed.
        RetrievalError: Milvus failed.
    """
    with guarded(collection):
        if not client.has_collection(collection):
            msg = f"there is no collection {collection!r}; there are: {', '.join(sorted(client.list_collections())) or 'none'}"
            raise ConfigError(msg)
        described = client.describe_collection(collection)
    columns = {column["name"]: column for column in described["fields"]}
    primary = next(name for name, column in columns.items() if column.get("is_primary"))
    vectors = frozenset(name for name, column in columns.items() if column["type"] in _VECTORS)
    free = bool(described.get("enable_dynamic_field")) or columns.get(METADATA, {}).get("type") == DataType.JSON
    listed = ", ".join(columns)
    if not free and (unknown := sorted(renamed.keys() - columns.keys())):
        msg = f"the collection {collection!r} has no field {unknown[0]!r}; it has: {listed}"
        raise ConfigError(msg)
    names = tuple(name for name, new in renamed.items() if new == TEXT) or tuple(name for name in TEXT_NAMES if name not in renamed)
    texts = tuple(name for name in names if columns.get(name, {}).get("type") == DataType.VARCHAR and name != primary)
    if not texts and not free:
        msg = f"the collection {collection!r} has no field that is known to hold its text; name one, as in `field=text`; it has: {listed}"
        raise ConfigError(msg)
    if tenant and not free and TENANT not in {renamed.get(name, name) for name in columns}:
        msg = f"the collection {collection!r} names no tenant; give `agent_id`, or name the field that does, as in `field={TENANT}`; it has: {listed}"
        raise ConfigError(msg)
    return Origin(
        collection=collection,
        primary=primary,
        own_ids="crag.schema_version" in (described.get("properties") or {}),
        vectors=vectors,
        vector=None if dimension is None else _vector(columns, renamed, dimension),
        texts=texts[:1] or names,
        renamed=dict(renamed),
    )


def incoming(row: Mapping[str, Any], origin: Origin) -> Incoming:
    """A row of the collection, its fields under the names they have here; keys of a JSON field `metadata` stand beside the others, which win."""
    nested = row.get(METADATA)
    flat = {**nested, **{key: value for key, value in row.items() if key != METADATA}} if isinstance(nested, Mapping) else dict(row)
    text = next((name for name in origin.texts if isinstance(flat.get(name), str)), None)
    hidden = {*origin.vectors, text, *(name for name in (origin.primary, CONTENT_HASH) if name not in origin.renamed)}
    fields = {name: value for name, value in flat.items() if name not in hidden and value is not None}
    kept = {name: value for name, value in fields.items() if name not in origin.renamed}
    kept |= {origin.renamed[name]: value for name, value in fields.items() if origin.renamed.get(name)}
    for name in (TENANT, *OPTIONAL_TEXT):
        if isinstance(kept.get(name), int | float) and not isinstance(kept[name], bool):
            kept[name] = str(kept[name])  # versions and ids are often numbers elsewhere
    vector = row.get(origin.vector) if origin.vector else None
    return Incoming(row[origin.primary], flat[text] if text else None, kept.pop(TENANT, None), kept, vector)


def row_id(origin: Origin, key: Any, agent_id: str) -> str:
    """The id that a row has here, the same at each run."""
    return str(key) if origin.own_ids else sha256(json.dumps([agent_id, origin.collection, key]).encode()).hexdigest()


def _vector(columns: Mapping[str, Mapping[str, Any]], renamed: Mapping[str, str], dimension: int) -> str:
    fit = [name for name, c in columns.items() if c["type"] == DataType.FLOAT_VECTOR and int(c["params"]["dim"]) == dimension]
    named = [name for name in fit if renamed.get(name, name) == DENSE] or fit
    if len(named) != 1:
        got = f"it has {len(named)}: {', '.join(named)}; name one, as in `field={DENSE}`" if named else "it has none; embed the texts anew"
        msg = f"to keep vectors the collection needs one FLOAT_VECTOR field of {dimension} dimensions; {got}"
        raise ConfigError(msg)
    return named[0]
