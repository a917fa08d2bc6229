"""Rows into the collection: new ones embedded, those whose text is stored already with the vector that it has."""

import logging
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from grpc import RpcError
from pymilvus import MilvusException

from crag_middleware.adapters.milvus_errors import diagnosis, guarded
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.knowledge.rows import Row, batched
from crag_middleware.knowledge.schema import DENSE, ID
from crag_middleware.knowledge.tenant_rows import one_of

if TYPE_CHECKING:
    from crag_middleware.knowledge.store import KnowledgeStore

logger = logging.getLogger(__name__)


def write(store: "KnowledgeStore", fresh: Sequence[Row], known: Sequence[tuple[Row, str]], batch_size: int) -> Iterator[dict[str, int]]:
    """Writes batch by batch, and says after each how many rows were `embedded` and how many `updated`, that is with a stored vector.

    Args:
        store: The collection.
        fresh: Rows that bring their vectors, or are embedded.
        known: Rows with the id of a stored row of the same text.
        batch_size: Rows at once.

    Raises:
        TenantError: An id exists under another tenant.
        IngestError: The embeddings or Milvus failed.
        RetrievalError: The stored vectors could not be read.
    """
    for batch in batched(fresh, batch_size):
        store._add(batch, batch_size, None)
        yield {"embedded": len(batch)}
    for part in batched(known, batch_size):
        vectors = _vectors(store, {key for _, key in part})
        store._add([row | {DENSE: vectors[key]} for row, key in part if key in vectors], batch_size, None)
        lost = [row for row, key in part if key not in vectors]  # somebody else deleted them meanwhile
        store._add(lost, batch_size, None)
        yield {"updated": len(part) - len(lost), "embedded": len(lost)}


def settle(store: "KnowledgeStore") -> None:
    """Has Milvus flush what was written. Milvus Lite indexes on flush: until then each search reads every row anew, ten to twenty times as slow."""
    try:
        with redacted_logs():
            store.client.flush(store.collection_name, timeout=store.timeout)
    except (MilvusException, RpcError) as error:
        logger.warning(
            "what was written is stored, but Milvus did not flush it (%s); searches may be slow until it does", diagnosis(error)[0]
        )


def _vectors(store: "KnowledgeStore", ids: Collection[str]) -> dict[str, list[float]]:
    """The stored vectors of these ids, as far as they are there."""
    with guarded(store.collection_name):
        found = store._call("query", None, filter=one_of(ID, ids), output_fields=[ID, DENSE], consistency_level="Strong")
    return {hit[ID]: list(hit[DENSE]) for hit in found}
