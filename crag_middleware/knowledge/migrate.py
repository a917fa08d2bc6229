"""A collection of another make into ours: its fields renamed, its texts embedded anew or their vectors kept, and what came counted."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from typing import TYPE_CHECKING, Any

from pymilvus import MilvusClient, MilvusException
from pymilvus.client.types import LoadState

from crag_middleware.adapters.milvus_errors import guarded
from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.knowledge.file_rows import DETAILS, Kept, kept
from crag_middleware.knowledge.origin import Incoming, Origin, incoming, read_origin, row_id
from crag_middleware.knowledge.rows import Row, batched, prepare_rows, with_vectors
from crag_middleware.knowledge.schema import CONTENT_HASH, CREATED_AT, DENSE, ID, MAX_VARCHAR_BYTES, TENANT, TEXT
from crag_middleware.knowledge.tenant_rows import BATCH, one_of, pages
from crag_middleware.knowledge.writing import settle, write
from crag_middleware.tenancy import Scope, check_agent_id

if TYPE_CHECKING:
    from crag_middleware.knowledge.knowledge import Knowledge

ROWS_AT_ONCE = 1000
"""Rows read at once."""

SAME_MODEL = 0.5
"""Cosine between a kept vector and the one that the embeddings make of its text, on average of the first ones. Vectors of different models have nothing in
common, so theirs is about 0; of one model it is near 1, and well above this even where a title was embedded together with the text."""

SAMPLE = 8
"""Rows of the first batch that are looked at."""


@dataclass(frozen=True, slots=True)
class MigrateProgress:
    """How far a migration is.

    Attributes:
        done: Rows that were read.
        total: Rows that there were at the start.
    """

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Rows that did not come along.

    Attributes:
        reason: Why.
        rows: How many.
        first: The primary key of the first one.
    """

    reason: str
    rows: int
    first: str


@dataclass(frozen=True, slots=True)
class Migrated:
    """What a migration did, counted on both sides.

    Attributes:
        total: Rows of the collection, counted at the end.
        read: Rows that were read.
        written: Rows that were embedded, or came with their vectors.
        updated: Rows that were here with the same text and got other details.
        unchanged: Rows that were here already.
        found: Rows of these that are here, looked up after they were written.
        skipped: Rows that were not wanted: blank ones and those of other tenants.
        refused: Rows that can't be stored as they are.
    """

    total: int
    read: int
    written: int
    updated: int
    unchanged: int
    found: int
    skipped: tuple[LeftBehind, ...] = ()
    refused: tuple[LeftBehind, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether every row was read, and is here or was not wanted."""
        return not self.refused and self.total == self.read == self.found + sum(left.rows for left in self.skipped)


def migrate_from(
    knowledge: "Knowledge",
    client: MilvusClient,
    collection: str,
    *,
    agent_id: str | None = None,
    fields: Mapping[str, str] | None = None,
    keep_vectors: bool = False,
    batch_size: int = BATCH,
    progress: Callable[[MigrateProgress], None] | None = None,
) -> Migrated:
    """Bring the rows of another collection into this one, and get both sides' counts. The other one is only read.

    Its text field is found by name (`text`, `page_content`, `content`, ...), and fields that are called as ours become ours; others, dynamic ones too,
    become free keys. Ids are made from the primary keys, so that a run that was stopped goes on where it was, and one more writes nothing.

    Args:
        knowledge: This one.
        client: Connected to where the other one is.
        collection: The other one's name.
        agent_id: The tenant of all rows; of rows that name one, only those of this tenant come. None: each row names its own.
        fields: Other names: from those there to those here, as in `{"body": "text", "team": "agent_id", "junk": ""}`; empty to leave a field out.
        keep_vectors: Keep the vectors and embed nothing. The same model must have made them, which is checked on the first rows.
        batch_size: Chunks embedded and rows written at once.
        progress: Told after each batch.

    Raises:
        TenantError: `agent_id` is no tenant id.
        ConfigError: The collection is missing, lacks a field that is needed, or has vectors of another model.
        IngestError: The embeddings or Milvus failed; the same call again goes on.
        RetrievalError: One of the collections could not be read.
    """
    tenant = None if agent_id is None else check_agent_id(agent_id)
    batched((), batch_size)
    origin = read_origin(client, collection, fields or {}, knowledge._dimension if keep_vectors else None, tenant=tenant is None)
    _load(client, collection)
    total = _count(client, collection)
    counts: Counter[str] = Counter()
    skipped, refused = _Heap(), _Heap()
    owners: set[str] = set()
    for page in _read(client, collection):
        for batch in batched(page, batch_size):
            ready = [row for row in (_ready(incoming(row, origin), origin, tenant, skipped, refused) for row in batch) if row]
            if keep_vectors and ready and not counts["read"]:
                _check_model(knowledge, ready[:SAMPLE])
            counts.update(_bring(knowledge, ready, keep_vectors, batch_size))
            owners.update(item.row[TENANT] for item in ready)
            counts.update(read=len(batch))
            if progress:
                progress(MigrateProgress(counts["read"], total))
    if counts["embedded"] or counts["updated"]:
        settle(knowledge, owners)
    return Migrated(
        total=_count(client, collection),
        read=counts["read"],
        written=counts["embedded"],
        updated=counts["updated"],
        unchanged=counts["unchanged"],
        found=counts["found"],
        skipped=skipped.left(),
        refused=refused.left(),
    )


class _Heap:
    """Rows that are left behind, by reason."""

    def __init__(self) -> None:
        self._rows: Counter[str] = Counter()
        self._first: dict[str, str] = {}

    def add(self, reason: str, key: object) -> None:
        self._rows[reason] += 1
        self._first.setdefault(reason, str(key))

    def left(self) -> tuple[LeftBehind, ...]:
        return tuple(LeftBehind(reason, rows, self._first[reason]) for reason, rows in self._rows.most_common())


@dataclass(frozen=True, slots=True)
class _Ready:
    """A row as ours, whether its time is its own, and the vector that it had."""

    row: Row
    dated: bool
    vector: Any


def _ready(item: Incoming, origin: Origin, tenant: str | None, skipped: _Heap, refused: _Heap) -> _Ready | None:
    """The row as ours; None, and on one of the heaps, if it stays behind."""
    if item.text is None:
        refused.add(f"it has no text under {' or '.join(origin.texts)}; say which field holds it", item.key)
        return None
    if not item.text.strip():
        skipped.add("its text is blank", item.key)
        return None
    if tenant is not None and item.tenant not in (None, tenant):
        skipped.add("it is another tenant's", item.key)
        return None
    if len(item.text.encode("utf-8", "replace")) > MAX_VARCHAR_BYTES:
        refused.add(f"its text has more than {MAX_VARCHAR_BYTES} bytes in UTF-8; split it there first", item.key)
        return None
    try:
        owner = check_agent_id(item.tenant if tenant is None else tenant)
        ids = [row_id(origin, item.key, owner)]
        (row,) = prepare_rows([item.text], [item.metadata], ids, agent_id=owner, now_ms=time.time_ns() // 1_000_000)
    except (ConfigError, TenantError) as error:
        refused.add(str(error).removeprefix("documents[0]: "), item.key)
        return None
    return _Ready(row, CREATED_AT in item.metadata, item.vector)


def _bring(knowledge: "Knowledge", ready: Sequence[_Ready], keep_vectors: bool, batch_size: int) -> Counter[str]:
    """Writes the rows that are not here, or differ; counts what was done and what is here in the end."""
    there = _there(knowledge, ready)
    fresh, known = [], []
    for item in ready:
        new, old = kept(item.row), there.get(item.row[ID])
        if old is None or old.content != new.content:
            fresh.append(item)
        elif old.details != new.details or (item.dated and old.created_at != new.created_at):
            known.append((item.row, item.row[ID]))
    counts = Counter(unchanged=len(ready) - len(fresh) - len(known))
    rows = [item.row for item in fresh]
    if keep_vectors:
        rows = with_vectors(rows, [item.vector for item in fresh], knowledge._dimension)
    for done in write(knowledge, rows, known, batch_size):
        counts.update(done)
    counts.update(found=len(_there(knowledge, ready)))
    return counts


def _there(knowledge: "Knowledge", ready: Sequence[_Ready]) -> dict[str, Kept]:
    """Those of the rows that are in the collection, under their tenants."""
    ids: defaultdict[str, list[str]] = defaultdict(list)
    for item in ready:
        ids[item.row[TENANT]].append(item.row[ID])
    fields = (CONTENT_HASH, CREATED_AT, *DETAILS)
    found = (page for owner, own in ids.items() for page in pages(knowledge, Scope(owner), fields, rows=one_of(ID, own)))
    return {row[ID]: kept(row) for page in found for row in page}


def _check_model(knowledge: "Knowledge", ready: Sequence[_Ready]) -> None:
    """Refuses vectors that the collection's embeddings have not made."""
    rows = [item.row for item in ready]
    given = with_vectors(rows, [item.vector for item in ready], knowledge._dimension)
    own = with_vectors(rows, knowledge._embedder.embed_documents([row[TEXT] for row in rows]), knowledge._dimension)
    near = sum(_cosine(one[DENSE], other[DENSE]) for one, other in zip(given, own, strict=True)) / len(rows)
    if near < SAME_MODEL:
        msg = (
            f"the vectors there are not those of these embeddings: their cosine is {near:.2f} on average of the first {len(rows)}, "
            f"at least {SAME_MODEL} is expected; leave `keep_vectors` out to embed the texts anew"
        )
        raise ConfigError(msg)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = hypot(*one) * hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


def _count(client: MilvusClient, collection: str) -> int:
    with guarded(collection):
        (found,) = client.query(collection, filter="", output_fields=["count(*)"], consistency_level="Strong")
    return int(found["count(*)"])


def _load(client: MilvusClient, collection: str) -> None:
    """Loads the other collection if it is not, as after a restart: it could not be read."""
    with guarded(collection):
        if client.get_load_state(collection)["state"] == LoadState.Loaded:
            return
        try:
            client.load_collection(collection)
        except MilvusException as error:
            msg = f"the collection {collection!r} can't be loaded (code {error.code}); its vector fields need an index there first"
            raise ConfigError(msg) from None


def _read(client: MilvusClient, collection: str) -> Iterator[list[Mapping[str, Any]]]:
    with guarded(collection):
        iterator = client.query_iterator(collection, batch_size=ROWS_AT_ONCE, output_fields=["*"], consistency_level="Strong")
    while True:
        with guarded(collection):
            page = list(iterator.next())
        if not page:
            return
        yield page
