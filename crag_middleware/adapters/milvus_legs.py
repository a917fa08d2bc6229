"""The ways to search a collection, a leg for each of its vector fields."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.embeddings import Embeddings
from langchain_milvus import Milvus
from langchain_milvus.utils.sparse import BaseSparseEmbedding
from pymilvus import DataType

from crag_middleware.adapters.milvus_describe import Described, vectors_inside
from crag_middleware.errors import ConfigError

logger = logging.getLogger(__name__)

Embedder = Embeddings | BaseSparseEmbedding
"""Makes the vectors of a field: dense ones, or sparse ones."""

SPARSE = DataType.SPARSE_FLOAT_VECTOR
DENSE = frozenset({DataType.FLOAT_VECTOR, DataType.FLOAT16_VECTOR, DataType.BFLOAT16_VECTOR})
SEARCHABLE = DENSE | {SPARSE}


@dataclass(frozen=True, slots=True)
class Leg:
    """One way to search.

    Attributes:
        field: The vector field.
        kind: Its type: sparse, or one of the dense ones.
        metric: Its index's metric.
        params: Index-specific search parameters of the store.
        embedder: Makes the vector; None where Milvus takes the question's text itself.
        dimension: Length of the vectors that the embedder must make; None for sparse ones and where there is no embedder.
        splits_chinese: Whether Milvus, where it takes the text itself, finds words in Chinese.
    """

    field: str
    kind: DataType
    metric: str
    params: Mapping[str, Any]
    embedder: Embedder | None
    dimension: int | None
    splits_chinese: bool = True


def read_legs(store: Milvus, described: Described, embedders: Mapping[str, Embedder] | None = None) -> tuple[Leg, ...]:
    """A leg for each vector field that is embedded for, by the store or here, or that takes text; embedded ones first, dense before sparse.

    What is left out is told once, in a warning.

    Args:
        store: Brings embedders and search parameters.
        described: What its collection looks like.
        embedders: Embedders by vector field, over the store's own.

    Raises:
        ConfigError: An embedder fits no vector field, a field can't be searched for want of an index, or no leg is left.
    """
    name, columns = described.name, described.columns
    own = dict(zip(store._vector_fields_from_embedding, listed(store.embedding_func), strict=False))
    _check_own(own, described)
    _check_given(embedders, described)
    known = {field: embedder for field, embedder in own.items() if field not in described.made} | dict(embedders or {})
    fields = {field: kind for field, kind in described.vectors.items() if kind in SEARCHABLE}
    searched = {field: kind for field, kind in fields.items() if field in known or field in described.made}
    _tell_left_out(described, [field for field in fields if field not in searched])
    tuned, legs = _tuned(store), []
    for field, kind in searched.items():
        if field not in described.metrics:
            msg = f"vector field `{field}` of collection `{name}` has no index; create one, then load the collection"
            raise ConfigError(msg)
        embedder = known.get(field)
        if isinstance(embedder, Embeddings if kind is SPARSE else BaseSparseEmbedding):
            wanted = "`BaseSparseEmbedding`" if kind is SPARSE else "`Embeddings`"
            msg = f"vector field `{field}` of collection `{name}` is {kind.name} and needs {wanted}, got {type(embedder).__name__}"
            raise ConfigError(msg)
        dimension = columns[field]["params"].get("dim") if embedder else None
        size = int(dimension) if dimension else None
        splits = described.metrics[field] != "BM25" or described.splits_chinese(described.made.get(field, ""))
        legs.append(Leg(field, kind, described.metrics[field], tuned.get(field, {}), embedder, size, splits))
    if not legs:
        msg = f"collection `{name}` has no vector field that this store can search; give the store an embedding function"
        raise ConfigError(msg)
    return tuple(sorted(legs, key=lambda leg: (leg.embedder is None, leg.kind not in DENSE)))


def listed(value: Any) -> list[Any]:
    """LangChain keeps one of a kind bare, several as a list."""
    return value if isinstance(value, list) else [value] * (value is not None)


def _check_own(own: Mapping[str, Embedder], described: Described) -> None:
    """Passes if what the store embeds for are vector fields."""
    for field in own:
        if field not in described.vectors:
            msg = f"the store's vector field `{field}` is no vector field of collection `{described.name}`, which has: {', '.join(described.columns)}"
            raise ConfigError(msg)


def _check_given(embedders: object, described: Described) -> None:
    """Passes if each of the given embedders makes what its field holds."""
    if embedders is None:
        return
    if not isinstance(embedders, Mapping):
        msg = f"`embedders` must be a mapping from vector fields to what embeds for them, got {type(embedders).__name__}"
        raise ConfigError(msg)
    for field, embedder in embedders.items():
        if described.vectors.get(field) not in SEARCHABLE:
            fields = ", ".join(f"`{name}`" for name, kind in described.vectors.items() if kind in SEARCHABLE)
            msg = (
                f"`embedders` names {field!r}, which is no dense or sparse vector field of collection `{described.name}`; it has: {fields}"
            )
            raise ConfigError(msg)
        if field in described.made:
            msg = f"`embedders` must leave out `{field}` of collection `{described.name}`: Milvus makes its vectors from the text itself"
            raise ConfigError(msg)
        if isinstance(embedder, type) or not callable(getattr(embedder, "embed_query", None)):
            msg = f"`embedders` must hold an embedder with `embed_query` for the field `{field}`, got {type(embedder).__name__}"
            raise ConfigError(msg)


def _tell_left_out(described: Described, unknown: list[str]) -> None:
    """Warns of the vector fields that no search goes to."""
    if unknown:
        logger.warning(
            "collection %r: nothing embeds for the vector fields %s, so searches leave them out; give "
            "`MilvusRetriever(store, embedders={%r: ...})` what their vectors were made with",
            described.name,
            ", ".join(unknown),
            unknown[0],
        )
    other = [f"{field} ({kind.name})" for field, kind in described.vectors.items() if kind not in SEARCHABLE]
    inside = [f"{name}[{field}]" for name, column in described.columns.items() for field in vectors_inside(column)]
    if inside or other:
        logger.warning(
            "collection %r: vector fields of these types can't be searched with a question, so searches leave them out: %s",
            described.name,
            ", ".join(other + inside),
        )


def _tuned(store: Milvus) -> dict[str, Mapping[str, Any]]:
    """Search parameters that the user gave the store, by vector field.

    The store fills in defaults of its own that fit neither our number of candidates (`ef=10`) nor Milvus Lite (`drop_ratio_build`).
    """
    fields = [*store._vector_fields_from_embedding, *store._vector_fields_from_function]
    given = [p.get("params", {}) for p in listed(store.search_params)]
    defaults = [p["params"] for p in store.default_search_params.values()]
    return {f: p for f, p in zip(fields, given, strict=False) if p not in defaults} if len(fields) == len(given) else {}
