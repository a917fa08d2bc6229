"""From texts and metadata to complete rows: checked, identified and hashed before anything is embedded or written. Pure."""

import json
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from math import hypot
from numbers import Real
from typing import Any, TypeVar

from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.knowledge.schema import (
    CONFIDENCE,
    CONTENT_HASH,
    CREATED_AT,
    DENSE,
    ID,
    MAX_ID_BYTES,
    MAX_JSON_BYTES,
    MAX_VARCHAR_BYTES,
    METADATA,
    OPTIONAL_INTEGERS,
    OPTIONAL_TEXT,
    RESERVED,
    TENANT,
    TEXT,
)
from crag_middleware.settings import DEFAULT_CONFIDENCE
from crag_middleware.tenancy import check_agent_id, misread_by_server

Row = dict[str, Any]
"""One row by field name, every field but the sparse vector present; nullable ones may be None. The dense vector may come later."""

FIELDS = frozenset({TENANT, CONFIDENCE, CREATED_AT, METADATA, *OPTIONAL_TEXT, *OPTIONAL_INTEGERS})
"""Metadata keys that have a field of their own; the others are folded into the JSON field."""

MAX_LENGTH = 1e19
"""Of a vector: its square must be a number in 32 bits, which similarity is computed in."""

_T = TypeVar("_T")

_COUNTS = frozenset({"chunk_index", "start", "end", "page"})


def prepare_rows(
    texts: Iterable[str],
    metadatas: Iterable[Mapping[str, Any]] | None,
    ids: Iterable[str | None] | None,
    *,
    agent_id: str | None,
    now_ms: int,
) -> list[Row]:
    """One row a text, in order.

    The id is the caller's or the SHA-256 over tenant, document (`doc_id`, else `source`), chunk position and text, each with its length before it.
    The position is `chunk_index`, else how often the same text of the same document came before in this call: repeating an ingest repeats its ids.

    Args:
        texts: What is to be found; none may be blank.
        metadatas: One mapping a text, or None.
        ids: One id a text, or None; None inside means "compute it".
        agent_id: The tenant of all texts, over whatever the metadata says. None: each metadata names its own.
        now_ms: Milliseconds since the epoch, for rows that bring no `created_at`.

    Raises:
        TenantError: A text has no usable tenant, or two texts of different tenants have one id.
        ConfigError: Anything else that can't be stored; it names the text's place in the call, counted from 0, and never quotes it.
    """
    texts = listed("texts", texts)
    tenant = None if agent_id is None else check_agent_id(agent_id)
    repeats: Counter[tuple[str, ...]] = Counter()
    rows: list[Row] = []
    own_ids = _aligned("ids", ids, len(texts))
    items = zip(texts, _aligned("metadatas", metadatas, len(texts)), own_ids, strict=True)
    for position, (text, metadata, own_id) in enumerate(items):
        try:
            row = _row(text, {} if metadata is None else metadata, tenant, now_ms)
            row[ID] = _computed_id(row, repeats) if own_id is None else _own_id(own_id)
        except (ConfigError, TenantError) as error:
            msg = f"documents[{position}]: {error}"
            raise type(error)(msg, reason=error.reason) from None
        rows.append(row)
    _check_unique(rows, own_ids)
    return rows


def with_vectors(rows: Sequence[Row], vectors: Iterable[Sequence[float]], dimension: int) -> list[Row]:
    """The rows, each with its dense vector.

    Raises:
        ConfigError: The vectors are not as many as the rows, not as long as the collection's, or hold what is no number or too large.
    """
    vectors = listed("embeddings", vectors)
    if len(vectors) != len(rows):
        msg = f"one vector a text is needed, got {len(vectors)} for {len(rows)} texts"
        raise ConfigError(msg)
    return [row | {DENSE: _vector(vector, dimension)} for row, vector in zip(rows, vectors, strict=True)]


def batched(rows: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    """The rows in order, at most `size` at a time."""
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        msg = f"`batch_size` must be a whole number from 1 on, got {size if isinstance(size, int) else type(size).__name__}"
        raise ConfigError(msg)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def listed(name: str, values: Any) -> list[Any]:
    """The values of an argument, whatever iterable they come in.

    Raises:
        ConfigError: It is none, or a single text or mapping.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        msg = f"`{name}` must be a list, got a single {type(values).__name__}; wrap it in a list"
        raise ConfigError(msg)
    return list(values)


def _aligned(name: str, values: Iterable[Any] | None, count: int) -> Sequence[Any]:
    """One value a text."""
    if values is None:
        return [None] * count
    values = listed(name, values)
    if len(values) != count:
        msg = f"`{name}` must be as many as the texts, got {len(values)} for {count}"
        raise ConfigError(msg)
    return values


def _row(text: str, metadata: Mapping[str, Any], tenant: str | None, now_ms: int) -> Row:
    """The row of one text, but for its id and vector."""
    if not isinstance(metadata, Mapping):
        msg = f"the metadata must be a mapping, got {type(metadata).__name__}"
        raise ConfigError(msg)
    if reserved := sorted(RESERVED & metadata.keys()):
        msg = f"the metadata holds reserved keys ({_names(reserved)}); rename or remove them: text, id, hash and vectors are filled in here"
        raise ConfigError(msg)
    text = _utf8("the text", text, MAX_VARCHAR_BYTES, blank=False)
    created_at = metadata.get(CREATED_AT)
    return {
        TEXT: text,
        TENANT: check_agent_id(_tenant(metadata)) if tenant is None else tenant,
        CONTENT_HASH: sha256(text.encode()).hexdigest(),
        CONFIDENCE: _confidence(metadata.get(CONFIDENCE)),
        CREATED_AT: now_ms if created_at is None else _integer(CREATED_AT, created_at),
        METADATA: _free(metadata),
        **{name: _optional(metadata.get(name), name, limit) for name, limit in OPTIONAL_TEXT.items()},
        **{name: None if metadata.get(name) is None else _integer(name, metadata[name]) for name in OPTIONAL_INTEGERS},
    }


def _tenant(metadata: Mapping[str, Any]) -> Any:
    if metadata.get(TENANT) is None:
        msg = "no `agent_id`; put it into the metadata or pass it as the keyword `agent_id=`"
        raise TenantError(msg, reason="no_tenant")
    return metadata[TENANT]


def _own_id(value: object) -> str:
    """A caller's id, if it can be looked up again."""
    own_id = _utf8("the id", value, MAX_ID_BYTES, blank=False)
    if misread_by_server(own_id):
        msg = "the id holds characters that a Milvus server misreads when it looks the id up; use others, or none so that one is computed"
        raise ConfigError(msg)
    return own_id


def _computed_id(row: Row, repeats: Counter[tuple[str, ...]]) -> str:
    document = row["doc_id"] or row["source"] or ""
    position = row["chunk_index"]
    if position is None:
        key = (row[TENANT], document, row[CONTENT_HASH])
        position = repeats[key]
        repeats[key] += 1
    digest = sha256()
    for part in (row[TENANT], document, str(position), row[TEXT]):
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def _check_unique(rows: Sequence[Row], ids: Sequence[str | None]) -> None:
    """Refuses an id that the caller gave twice; computed ids repeat only where everything that makes them repeats."""
    first: dict[str, int] = {}
    for position, row in enumerate(rows):
        earlier = first.setdefault(row[ID], position)
        if rows[earlier][TENANT] != row[TENANT]:
            msg = f"documents[{position}] and documents[{earlier}] have one id and different tenants"
            raise TenantError(msg, reason="foreign_id")
        if earlier != position and (ids[position] is not None or ids[earlier] is not None):
            msg = f"documents[{position}] and documents[{earlier}] have one id; give each its own"
            raise ConfigError(msg)


def _utf8(what: str, value: object, max_bytes: int, *, blank: bool = True) -> str:
    """The value, if it is text that fits."""
    if not isinstance(value, str):
        msg = f"{what} must be a str, got {type(value).__name__}"
        raise ConfigError(msg)
    if not blank and not value.strip():
        msg = f"{what} is blank; leave such documents out"
        raise ConfigError(msg)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        msg = f"{what} holds a lone surrogate, which UTF-8 can't express; decode the source with `errors='replace'`"
        raise ConfigError(msg) from None
    if size > max_bytes:
        msg = f"{what} has {size} bytes in UTF-8, at most {max_bytes} fit; split or shorten it first"
        raise ConfigError(msg)
    return value


def _optional(value: object, name: str, max_bytes: int) -> str | None:
    return None if value is None else _utf8(f"`{name}`", value, max_bytes)


def _integer(name: str, value: Any) -> int:
    """The value as an INT64."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        unit = "a whole number" if name in _COUNTS else "whole milliseconds since the epoch"
        msg = f"`{name}` must be {unit} (int), got {type(value).__name__}"
        raise ConfigError(msg)
    lowest = 0 if name in _COUNTS else -(2**63)
    if not lowest <= number < 2**63:
        msg = f"`{name}` must lie between {lowest} and {2**63 - 1}, got an int outside"
        raise ConfigError(msg)
    return number


def _confidence(value: object) -> float:
    if value is None:
        return DEFAULT_CONFIDENCE
    number: Any = value if isinstance(value, Real) and not isinstance(value, bool) else None
    if number is None or not 0 <= number <= 1:
        msg = f"`{CONFIDENCE}` must be a number from 0 to 1, got {type(value).__name__}{'' if number is None else ' outside'}"
        raise ConfigError(msg)
    return float(number)


def _free(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Keys without a field of their own, as plain JSON; a mapping under `metadata` is merged in, a key beside it wins."""
    nested = metadata.get(METADATA) or {}
    if not isinstance(nested, Mapping):
        msg = f"`{METADATA}` must be a mapping, got {type(nested).__name__}; rename the key"
        raise ConfigError(msg)
    if hidden := sorted((RESERVED | FIELDS) & nested.keys()):
        msg = f"`{METADATA}` holds names of fields ({_names(hidden)}); put them beside it, or rename or remove them"
        raise ConfigError(msg)
    free = {**nested, **{key: value for key, value in metadata.items() if key not in FIELDS}}
    plain = {_utf8("a metadata key", key, MAX_JSON_BYTES): _plain(key, value) for key, value in free.items()}
    size = len(json.dumps(plain, ensure_ascii=False).encode())
    if size > MAX_JSON_BYTES:
        msg = f"the metadata without a field of its own has {size} bytes as JSON, at most {MAX_JSON_BYTES} fit; keep large values elsewhere"
        raise ConfigError(msg)
    return plain


def _plain(key: str, value: object) -> Any:
    try:
        encoded = json.dumps(value, ensure_ascii=False, allow_nan=False)
        encoded.encode()
        return json.loads(encoded, parse_int=lambda digits: _integer(key, int(digits)))
    except (TypeError, ValueError, RecursionError):
        msg = f"the metadata under {key!r} can't be kept as JSON, got {type(value).__name__}; use str, int (64 bits), float, bool, None, lists and dicts"
        raise ConfigError(msg) from None


def _vector(vector: Any, dimension: int) -> list[float]:
    try:
        values = list(vector)
        length = hypot(*values)
    except (TypeError, ValueError, OverflowError):
        msg = f"an embedding must be a list of numbers, got {type(vector).__name__} that is none"
        raise ConfigError(msg) from None
    if len(values) != dimension:
        msg = (
            f"the collection's vectors have {dimension} dimensions, got one with {len(values)}; use the embeddings that made the collection"
        )
        raise ConfigError(msg)
    if not length <= MAX_LENGTH:
        msg = "a vector holds a number that is not finite, or too large for the 32 bits that Milvus keeps of it; scale the vectors to length 1"
        raise ConfigError(msg)
    return [float(value) for value in values]


def _names(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in keys)
