"""What a collection looks like: its columns, its search legs, and where it keeps the tenant."""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpc import RpcError
from langchain_core.embeddings import Embeddings
from langchain_milvus import Milvus
from langchain_milvus.utils.sparse import BaseSparseEmbedding
from pymilvus import DataType, MilvusException

from crag_middleware.errors import ConfigError
from crag_middleware.tenancy import Fields, Kind, json_path

logger = logging.getLogger(__name__)

DYNAMIC = "$meta"
"""The hidden column of a collection's dynamic fields."""

NUMBERS = (DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64, DataType.FLOAT, DataType.DOUBLE)
KINDS: Mapping[DataType, Kind] = {DataType.VARCHAR: "text", DataType.BOOL: "flag", **dict.fromkeys(NUMBERS, "number")}
VECTORS = frozenset(t for t in DataType if t.name.endswith("_VECTOR") or t.name in ("_ARRAY_OF_VECTOR",))


@dataclass(frozen=True, slots=True)
class Leg:
    """One way to search.

    Attributes:
        field: The vector field.
        metric: Its index's metric.
        params: Index-specific search parameters of the store.
        embedder: Makes the vector; None where Milvus takes the question's text itself.
        dimension: Length of the field's dense vectors; None for sparse ones.
    """

    field: str
    metric: str
    params: Mapping[str, Any]
    embedder: Embeddings | BaseSparseEmbedding | None
    dimension: int | None


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
        legs: The ways to search, dense ones first.
        output: The columns that a search returns: all but vectors.
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


def read_layout(store: Milvus, tenant_field: str | None = None) -> Layout:
    """The layout of the store's collection.

    Args:
        store: Any LangChain store; its collection must exist.
        tenant_field: A VARCHAR column, or a key such as `metadata["agent_id"]` (JSON column) or `$meta["agent_id"]` (dynamic fields).
            None for the column `agent_id`.

    Raises:
        ConfigError: The collection is missing, can't be searched by this store, or its rows can't be told apart by tenant.
    """
    name = store.collection_name
    described = _describe(store)
    columns, dynamic = described.columns, described.dynamic
    for role, column in (("primary key", store._primary_field), ("text", store._text_field)):
        if column not in columns:
            msg = f"the store's {role} field `{column}` is not in collection `{name}`, which has: {', '.join(columns)}"
            raise ConfigError(msg)
    json_field = next((n for n in (store._metadata_field, "metadata") if n and _type(columns.get(n)) is DataType.JSON), None)
    scalars = {n: _type(c) for n, c in columns.items() if _type(c) not in VECTORS}
    return Layout(
        collection=name,
        primary=store._primary_field,
        text=store._text_field,
        tenant=_tenant(tenant_field, name, columns, dynamic=dynamic),
        legs=_legs(store, described),
        output=(*scalars, *([DYNAMIC] if dynamic else [])),
        json_field=json_field,
        fields=Fields(
            columns={n: KINDS[t] for n, t in scalars.items() if t in KINDS},
            json_field=json_field or (DYNAMIC if dynamic else None),
            others=frozenset(n for n, c in columns.items() if _type(c) not in KINDS),
        ),
        lite=described.lite,
    )


@dataclass(frozen=True, slots=True)
class _Described:
    """What Milvus says: columns by name, those it fills itself, metrics of the indexed ones, whether keys are free, whether it is Milvus Lite."""

    columns: Mapping[str, Mapping[str, Any]]
    made: frozenset[str]
    metrics: Mapping[str, str]
    dynamic: bool
    lite: bool


def _describe(store: Milvus) -> _Described:
    """Asks Milvus."""
    client, name = store.client, store.collection_name
    try:
        if not client.has_collection(name):
            msg = f"there is no collection `{name}`; check the name and the database, or make it first, for example with `open_knowledge`"
            raise ConfigError(msg)
        described = client.describe_collection(name)
        indexes = [client.describe_index(name, index) for index in client.list_indexes(name)]
        version = str(client.get_server_version())
    except (MilvusException, RpcError) as error:
        msg = f"collection `{name}` could not be read ({type(error).__name__}); check that the server is up and that this user may read it"
        raise ConfigError(msg) from error
    columns = {c["name"]: c for c in described["fields"]}
    made = {n for n, c in columns.items() if c.get("is_function_output")}
    for function in described.get("functions", ()):
        made.update(function["output_field_names"])
    metrics = {i["field_name"]: i["metric_type"] for i in indexes if i and i.get("metric_type")}
    dynamic, lite = bool(described.get("enable_dynamic_field")), version.startswith("milvus_lite")
    return _Described(columns, frozenset(made), metrics, dynamic, lite)


def _type(column: Mapping[str, Any] | None) -> DataType | None:
    return DataType(column["type"]) if column else None


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
        if _type(columns.get(column)) is DataType.JSON:
            return Tenant(column, key)
        if column in (DYNAMIC, "metadata") and dynamic and column not in columns and key not in columns:
            return Tenant(DYNAMIC, key)
        msg = (
            f"`tenant_field` {name!r} names no JSON column of collection `{collection}`"
            + (f"; `{key}` is a column there, use `tenant_field={key!r}`" if key in columns else f", which has: {', '.join(columns)}")
        )  # fmt: skip
        raise ConfigError(msg)
    kind = _type(columns.get(name))
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


def _legs(store: Milvus, described: _Described) -> tuple[Leg, ...]:
    """A leg for each vector field that the store can embed for, or that takes text."""
    name, columns = store.collection_name, described.columns
    embedders = dict(zip(store._vector_fields_from_embedding, _listed(store.embedding_func), strict=False))
    for field in embedders:
        if _type(columns.get(field)) not in VECTORS:
            msg = f"the store's vector field `{field}` is no vector field of collection `{name}`, which has: {', '.join(columns)}"
            raise ConfigError(msg)
    tuned = _tuned(store)
    legs = []
    for field, column in columns.items():
        embedder = None if field in described.made else embedders.get(field)
        if _type(column) not in VECTORS or (field not in described.made and embedder is None):
            continue
        if field not in described.metrics:
            msg = f"vector field `{field}` of collection `{name}` has no index; create one, then load the collection"
            raise ConfigError(msg)
        dimension = column["params"].get("dim") if embedder else None
        legs.append(Leg(field, described.metrics[field], tuned.get(field, {}), embedder, int(dimension) if dimension else None))
    if not legs:
        msg = f"collection `{name}` has no vector field that this store can search; give the store an embedding function"
        raise ConfigError(msg)
    return tuple(sorted(legs, key=lambda leg: leg.embedder is None))


def _tuned(store: Milvus) -> dict[str, Mapping[str, Any]]:
    """Search parameters that the user gave the store, by vector field.

    The store fills in defaults of its own that fit neither our number of candidates (`ef=10`) nor Milvus Lite (`drop_ratio_build`).
    """
    fields = [*store._vector_fields_from_embedding, *store._vector_fields_from_function]
    given = [p.get("params", {}) for p in _listed(store.search_params)]
    defaults = [p["params"] for p in store.default_search_params.values()]
    return {f: p for f, p in zip(fields, given, strict=False) if p not in defaults} if len(fields) == len(given) else {}


def _listed(value: Any) -> list[Any]:
    """LangChain keeps one of a kind bare, several as a list."""
    return value if isinstance(value, list) else [value] * (value is not None)
