"""What a collection looks like: its columns, its search legs, and where it keeps the tenant."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_milvus import Milvus
from pymilvus import DataType

from crag_middleware.adapters.milvus_describe import VECTORS, describe, type_of, vectors_inside
from crag_middleware.adapters.milvus_legs import DENSE, Embedder, Leg, read_legs
from crag_middleware.errors import ConfigError
from crag_middleware.tenancy import Fields, Kind, json_path

logger = logging.getLogger(__name__)

DYNAMIC = "$meta"
"""The hidden column of a collection's dynamic fields."""

NUMBERS = (DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE)
KINDS: Mapping[DataType, Kind] = {DataType.VARCHAR: "text", DataType.BOOL: "flag", **dict.fromkeys(NUMBERS, "number")}


@dataclass(frozen=True, slots=True)
class Tenant:
    """Where a row names its tenant: a column, or a key in a JSON column or among the dynamic fields."""

    column: str
    key: str | None = None

    @property
    def path(self) -> str:
        """The place as a Milvus expression names it."""
        return self.column if self.key is None else json_path(self.column, self.key)

    def owner(self, entity: Mapping[str, Any]) -> object:
        """What the row says; None if nothing."""
        if self.key is None:
            return entity.get(self.column)
        if self.column == DYNAMIC:
            return entity.get(self.key)
        keys = entity.get(self.column)
        return keys.get(self.key) if isinstance(keys, Mapping) else None


@dataclass(frozen=True, slots=True)
class Layout:
    """A collection as the search sees it.

    Attributes:
        collection: Its name.
        primary: The primary key.
        text: The column with the passage.
        tenant: Where a row names its tenant.
        legs: The ways to search; see `read_legs` for their order.
        output: The columns that a search returns: all but those that hold vectors.
        json_field: The JSON column with free keys, or None.
        fields: What a filter may name.
        lite: Whether Milvus Lite holds it, and not a server.
    """

    collection: str
    primary: str
    text: str
    tenant: Tenant
    legs: tuple[Leg, ...]
    output: tuple[str, ...]
    json_field: str | None
    fields: Fields
    lite: bool

    @property
    def dense(self) -> Leg | None:
        """The first dense leg, or None."""
        return next((leg for leg in self.legs if leg.kind in DENSE), None)


def read_layout(store: Milvus, tenant_field: str | None = None, embedders: Mapping[str, Embedder] | None = None) -> Layout:
    """The layout of the store's collection.

    Args:
        store: Any LangChain store; its collection must exist.
        tenant_field: A VARCHAR column, or a key such as `metadata["agent_id"]` (JSON column) or `$meta["agent_id"]` (dynamic fields).
            None for the column `agent_id`.
        embedders: What embeds for vector fields that the store has no embedder for.

    Raises:
        ConfigError: The collection is missing, can't be searched by this store, or its rows can't be told apart by tenant.
    """
    name = store.collection_name
    described = describe(store)
    columns, dynamic = described.columns, described.dynamic
    for role, column in (("primary key", store._primary_field), ("text", store._text_field)):
        if column not in columns:
            msg = f"the store's {role} field `{column}` is not in collection `{name}`, which has: {', '.join(columns)}"
            raise ConfigError(msg)
    json_field = next((n for n in (store._metadata_field, "metadata") if n and type_of(columns.get(n)) is DataType.JSON), None)
    scalars = {n: type_of(c) for n, c in columns.items() if type_of(c) not in VECTORS}
    return Layout(
        collection=name,
        primary=store._primary_field,
        text=store._text_field,
        tenant=_tenant(tenant_field, name, columns, dynamic=dynamic),
        legs=read_legs(store, described, embedders),
        output=(*(n for n in scalars if not vectors_inside(columns[n])), *([DYNAMIC] if dynamic else [])),
        json_field=json_field,
        fields=Fields(
            columns={n: KINDS[t] for n, t in scalars.items() if t in KINDS},
            json_field=json_field or (DYNAMIC if dynamic else None),
            others=frozenset(n for n, c in columns.items() if type_of(c) not in KINDS),
        ),
        lite=described.lite,
    )


def split_key(name: str) -> tuple[str, str] | None:
    """Column and key of a `tenant_field` such as `metadata["agent_id"]`; None for a plain name.

    Raises:
        ConfigError: It is no name, or the key can't be used in a filter.
    """
    if not isinstance(name, str) or not name.strip():
        got = "a blank string" if isinstance(name, str) else type(name).__name__
        msg = f"`tenant_field` must name a column or a key, got {got}; leave it out for `agent_id`"
        raise ConfigError(msg)
    keyed = re.fullmatch(r"""(\$?\w+)\[(["'])(.+)\2\]""", name)
    if keyed is None:
        return None
    json_path(keyed[1], keyed[3])
    return keyed[1], keyed[3]


def _tenant(wanted: str | None, collection: str, columns: Mapping[str, Mapping[str, Any]], *, dynamic: bool) -> Tenant:
    """Where rows name their tenant, if that isolates them."""
    name = "agent_id" if wanted is None else wanted
    if keyed := split_key(name):
        column, key = keyed
        if type_of(columns.get(column)) is DataType.JSON:
            return Tenant(column, key)
        if column in (DYNAMIC, "metadata") and dynamic and column not in columns and key not in columns:
            return Tenant(DYNAMIC, key)
        msg = (
            f"`tenant_field` {name!r} names no JSON column of collection `{collection}`"
            + (f"; `{key}` is a column there, use `tenant_field={key!r}`" if key in columns else f", which has: {', '.join(columns)}")
        )  # fmt: skip
        raise ConfigError(msg)
    kind = type_of(columns.get(name))
    if kind is None:
        msg = (
            f"the rows of collection `{collection}` can't be told apart by tenant: it has no column `{name}`. Make it with "
            f"`open_knowledge`, or name a VARCHAR column with `tenant_field=...`, or a key with `tenant_field='metadata[\"agent_id\"]'` "
            f"(`'$meta[\"agent_id\"]'` for a dynamic field). It has: {', '.join(columns)}{' and dynamic fields' if dynamic else ''}"
        )
        raise ConfigError(msg)
    if kind is not DataType.VARCHAR:
        msg = f"the tenant column `{name}` of collection `{collection}` must be VARCHAR, got {kind.name}; name another with `tenant_field=...`"
        raise ConfigError(msg)
    if not columns[name].get("is_partition_key"):
        logger.warning(
            "tenant column %r of collection %r is no partition key: searches stay isolated, but scan every tenant's rows", name, collection
        )
    return Tenant(name)
