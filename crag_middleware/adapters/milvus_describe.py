"""What Milvus says about a collection."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpc import RpcError
from langchain_milvus import Milvus
from pymilvus import DataType, MilvusException

from crag_middleware.errors import ConfigError

VECTORS = frozenset(t for t in DataType if t.name.endswith("_VECTOR") or t.name in ("_ARRAY_OF_VECTOR",))


@dataclass(frozen=True, slots=True)
class Described:
    """A collection in Milvus' words.

    Attributes:
        name: Its name.
        columns: Its columns by name, in their order.
        made: The vector fields that Milvus fills itself, each with the column that it makes them of; empty if it does not say.
        metrics: Metrics of the indexed fields.
        dynamic: Whether keys are free.
        lite: Whether it is Milvus Lite, and not a server.
    """

    name: str
    columns: Mapping[str, Mapping[str, Any]]
    made: Mapping[str, str]
    metrics: Mapping[str, str]
    dynamic: bool
    lite: bool

    @property
    def vectors(self) -> dict[str, DataType]:
        """The types of the vector fields, by name."""
        return {name: DataType(column["type"]) for name, column in self.columns.items() if column["type"] in VECTORS}

    def splits_chinese(self, column: str) -> bool:
        """Whether the column's analyzer finds words in Chinese, as far as can be told: Milvus' own default takes a run of it for one word."""
        given = self.columns.get(column, {}).get("params", {})
        if "multi_analyzer_params" in given:
            return True
        analyzer = given.get("analyzer_params") or {}
        if isinstance(analyzer, str):
            analyzer = json.loads(analyzer)
        tokenizer = analyzer.get("tokenizer", analyzer.get("type", "standard"))
        kind = tokenizer.get("type") if isinstance(tokenizer, Mapping) else tokenizer
        return kind not in ("standard", "english", "whitespace")


def describe(store: Milvus) -> Described:
    """Asks Milvus.

    Raises:
        ConfigError: The collection is missing or can't be read.
    """
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
    made = {n: "" for n, c in columns.items() if c.get("is_function_output")}
    for function in described.get("functions", ()):
        made |= dict.fromkeys(function["output_field_names"], next(iter(function["input_field_names"]), ""))
    metrics = {i["field_name"]: i["metric_type"] for i in indexes if i and i.get("metric_type")}
    dynamic, lite = bool(described.get("enable_dynamic_field")), version.startswith("milvus_lite")
    return Described(name, columns, made, metrics, dynamic, lite)


def type_of(column: Mapping[str, Any] | None) -> DataType | None:
    """The type of a column; None if there is none."""
    return DataType(column["type"]) if column else None


def vectors_inside(column: Mapping[str, Any]) -> tuple[str, ...]:
    """The vector fields of an array of structs; empty for every other column."""
    return tuple(str(f["name"]) for f in column.get("struct_fields", ()) if type_of(f) in VECTORS)
