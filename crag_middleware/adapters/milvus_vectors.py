"""Vectors on their way to Milvus and back: checked, in the bytes of their field's type, and at length 1."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from pymilvus import DataType

from crag_middleware.adapters.milvus_legs import DENSE, SPARSE, Leg
from crag_middleware.errors import RetrievalError


def checked(value: Any, leg: Leg) -> Any:
    """What an embedder made of the question, as the client takes it for the leg's field; empty if it found nothing in it.

    Raises:
        ValueError: It is no vector, or holds what is no finite number of the field's type.
        RetrievalError: It is not of the field's dimension.
    """
    if leg.kind is SPARSE:
        return _sparse(value)
    numbers = np.asarray(value, dtype=np.float32)
    if numbers.ndim != 1:
        msg = "a dense vector is needed"
        raise ValueError(msg)
    if leg.dimension is not None and len(numbers) != leg.dimension:
        msg = (
            f"the embedding model makes vectors of {len(numbers)} numbers, but field `{leg.field}` holds vectors of {leg.dimension}: "
            "open the collection with the embeddings it was made with"
        )
        raise RetrievalError(msg, reason="embedding_dimension")
    stored = _narrowed(numbers, leg.kind)
    if not np.isfinite(decoded(stored, leg.kind)).all():
        msg = "a dense vector of finite numbers is needed"
        raise ValueError(msg)
    return stored


def _sparse(value: Any) -> dict[int, float]:
    """A sparse vector: finite numbers by place, counted from 0."""
    if not isinstance(value, Mapping) or not all(isinstance(k, Integral) and int(k) >= 0 and _finite(x) for k, x in value.items()):
        msg = "a sparse vector is needed: a mapping from places to finite numbers"
        raise ValueError(msg)
    return {int(place): float(x) for place, x in value.items()}


def _finite(number: object) -> bool:
    return isinstance(number, Real) and math.isfinite(number)


def _narrowed(numbers: "np.ndarray[Any, np.dtype[np.float32]]", kind: DataType) -> list[float] | bytes:
    """The numbers in the field's precision: bytes where pymilvus has no other form for them."""
    match kind:
        case DataType.FLOAT16_VECTOR:
            with np.errstate(over="ignore"):
                return numbers.astype("<f2").tobytes()
        case DataType.BFLOAT16_VECTOR:  # the upper half of a float32, rounded to even
            bits = numbers.astype("<f4").view("<u4").astype(np.uint64)
            return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes()
        case _:
            floats: list[float] = numbers.tolist()
            return floats


def decoded(stored: Any, kind: DataType) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """The numbers of a dense vector as the client gives it."""
    data = b"".join(stored) if isinstance(stored, list) and stored and isinstance(stored[0], bytes) else stored
    match kind:
        case DataType.FLOAT16_VECTOR if isinstance(data, bytes):
            return np.frombuffer(data, "<f2").astype(np.float64)
        case DataType.BFLOAT16_VECTOR if isinstance(data, bytes):
            return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype(np.float64)
        case _:
            return np.asarray(data, dtype=np.float64)


def unit(stored: Any, kind: DataType) -> tuple[float, ...] | None:
    """A row's dense vector at length 1; None if it has none, or one without direction."""
    if stored is None or kind not in DENSE:
        return None
    numbers = decoded(stored, kind)
    length = float(np.linalg.norm(numbers))
    return tuple((numbers / length).tolist()) if length and math.isfinite(length) else None
