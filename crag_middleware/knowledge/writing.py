"""Rows into the collection: new ones embedded, those whose text is stored already with the vector that it has."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from grpc import RpcError
from pymilvus import MilvusException

from crag_middleware.adapters.milvus_errors import diagnosis
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.errors import RetrievalError
from crag_middleware.knowledge.rows import Row, batched
from crag_middleware.knowledge.schema import DENSE, ID, TENANT
from crag_middleware.knowledge.tenant_rows import one_of, pages
from crag_middleware.tenancy import Scope

if TYPE_CHECKING:
    from crag_middleware.knowledge.knowledge import Knowledge
    from crag_middleware.knowledge.store import KnowledgeStore

logger = logging.getLogger(__name__)


def write(knowledge: "Knowledge", fresh: Sequence[Row], known: Sequence[tuple[Row, str]], batch_size: int) -> Iterator[dict[str, int]]:
    """Writes batch by batch, and says after each how many rows were `embedded` and how many `updated`, that is with a stored vector.

    Args:
        knowledge: Where to; rows may be of several tenants.
        fresh: Rows that bring their vectors, or are embedded.
        known: Rows with the id of a stored row of the same text.
        batch_size: Rows at once.

    Raises:
        TenantError: An id exists under another tenant.
        IngestError: The embeddings or Milvus failed.
        RetrievalError: The stored vectors could not be read.
    """
    for batch in batched(fresh, batch_size):
        knowledge._add(batch, batch_size, None)
        yield {"embedded": len(batch)}
    for part in batched(known, batch_size):
        vectors = _vectors(knowledge, part)
        knowledge._add([row | {DENSE: vectors[key]} for row, key in part if key in vectors], batch_size, None)
        lost = [row for row, key in part if key not in vectors]  # somebody else deleted them meanwhile
        knowledge._add(lost, batch_size, None)
        yield {"updated": len(part) - len(lost), "embedded": len(lost)}


def settle(knowledge: "Knowledge", tenants: Iterable[str]) -> None:
    """Has Milvus flush what was written for these. Milvus Lite indexes on flush: until then each search reads every row anew, ten to twenty times as slow."""
    flushed: set[KnowledgeStore] = set()
    for tenant in tenants:
        try:
            store = knowledge.place(tenant)
            if store is None or store in flushed:
                continue
            flushed.add(store)
            with redacted_logs():
                store.client.flush(store.collection_name, timeout=store.timeout)
        except (MilvusException, RpcError, RetrievalError) as error:
            reason = error.reason if isinstance(error, RetrievalError) else diagnosis(error)[0]
            logger.warning("what was written is stored, but Milvus did not flush it (%s); searches may be slow until it does", reason)


def _vectors(knowledge: "Knowledge", rows: Iterable[tuple[Row, str]]) -> dict[str, list[float]]:
    """The vectors of the stored rows that the ids beside these rows name, as far as they are there."""
    ids: defaultdict[str, set[str]] = defaultdict(set)
    for row, key in rows:
        ids[row[TENANT]].add(key)
    found = (page for tenant, own in ids.items() for page in pages(knowledge, Scope(tenant), (DENSE,), rows=one_of(ID, own)))
    return {hit[ID]: list(hit[DENSE]) for page in found for hit in page}
