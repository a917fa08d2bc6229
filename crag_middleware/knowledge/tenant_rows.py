"""The rows of one tenant: read page by page with every owner checked, removed by their ids.

A filter that a server ignores would show, count or delete the rows of every tenant, so what an operator's command does never rests on the filter alone.
"""

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pymilvus.client.iterator import QueryIterator

from crag_middleware.adapters.milvus_errors import diagnosis, guarded
from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.errors import ConfigError, IngestError, TenantError
from crag_middleware.knowledge.rows import Row, batched
from crag_middleware.knowledge.schema import CONTENT_HASH, ID, INDEXES, METADATA, TENANT, TEXT
from crag_middleware.tenancy import Scope, check_owners, combine, misread_by_server, quote, tenant_expression

if TYPE_CHECKING:
    from crag_middleware.knowledge.knowledge import Knowledge
    from crag_middleware.knowledge.store import KnowledgeStore

WINDOW = 16_384
"""The most rows that Milvus gives for one query."""

BATCH = 256
"""Texts embedded and rows written at once: at the largest texts still well below a server's message limit of 64 MB."""

IDS_AT_ONCE = 1000
"""Ids looked up or deleted with one expression."""

# Lite keeps no time stamps, of which pymilvus warns at each iterator.
logging.getLogger(QueryIterator.__module__).addFilter(lambda record: record.funcName != "__setup_ts_by_request")


def pages(
    knowledge: "Knowledge", scope: Scope, fields: Collection[str], *, rows: str | None = None, size: int = WINDOW
) -> Iterator[list[Row]]:
    """The tenant's rows, at most `size` at a time, in no particular order; more than Milvus' window of 16,384, too.

    Args:
        knowledge: Where they lie.
        scope: The tenant; one that has nothing has no rows.
        fields: What to read, besides the id and the tenant.
        rows: A condition that narrows them, as a Milvus expression.
        size: From 1 to 16,384; smaller for long fields.

    Raises:
        TenantError: A row of another tenant came back; no row of its page is given.
        ConfigError: A server would read the condition as a different one.
        RetrievalError: Milvus failed.
    """
    store = knowledge.place(scope.agent_id)
    if store is None:
        return
    expression = _expression(store, scope, rows)
    wanted = {"filter": expression, "output_fields": sorted({ID, TENANT, *fields}), "consistency_level": "Strong"}
    with guarded(store.collection_name):
        found = _owned(store._call("query", None, limit=size, **wanted), scope)
    if len(found) < size:  # all of them: an iterator would take three calls more
        yield from [found] if found else []
        return
    with guarded(store.collection_name):
        iterator = store._call("query_iterator", None, batch_size=size, **wanted)
    while True:
        with guarded(store.collection_name):
            found = _owned(iterator.next(), scope)
        if not found:
            return
        yield found


def remove(knowledge: "Knowledge", scope: Scope, ids: Collection[str]) -> int:
    """Deletes rows of the tenant that `pages` gave, and says how many.

    Raises:
        IngestError: Milvus failed; the same call again goes on.
    """
    store = knowledge.place(scope.agent_id) if ids else None
    if store is None:
        return 0
    for part in batched(sorted(ids), IDS_AT_ONCE):
        with redacted_logs():
            try:
                # By the primary key alone, which Milvus does exactly; any other condition would be a search first, of what is visible by then.
                store._call("delete", None, filter=one_of(ID, part))
            except Exception as error:  # noqa: BLE001 - raised on as ours
                reason, what = diagnosis(error)
                msg = f"rows could not be deleted: {what}; the same command again goes on"
                # Not `from error`: it quotes ids.
                raise IngestError(msg, reason=reason) from None
    return len(ids)


def metadata_of(row: Row) -> dict[str, Any]:
    """A stored row's metadata as it was given: free keys beside the known ones, nothing that is None."""
    known = {key: value for key, value in row.items() if key not in (ID, TEXT, CONTENT_HASH, METADATA, *INDEXES) and value is not None}
    return {**(row.get(METADATA) or {}), **known}


def one_of(field: str, values: Iterable[str]) -> str:
    """The condition that a column holds one of the values."""
    return f"{field} in [{', '.join(map(quote, values))}]"


def _expression(store: "KnowledgeStore", scope: Scope, rows: str | None) -> str:
    expression = combine(tenant_expression(TENANT, scope), rows)
    if misread_by_server(expression):
        with guarded(store.collection_name):
            lite = str(store.client.get_server_version()).startswith("milvus_lite")
        if not lite and misread_by_server(scope.agent_id):
            msg = "`agent_id` must not hold Chinese characters beyond U+FFFF: a Milvus server would look for another id"
            raise TenantError(msg, reason="no_tenant")
        if not lite:
            msg = "a source must not hold Chinese characters beyond U+FFFF: a Milvus server would look for another one; rename it"
            raise ConfigError(msg)
    return expression


def _owned(found: Sequence[Any], scope: Scope) -> list[Row]:
    rows = [dict(row) for row in found]
    check_owners((row.get(TENANT) for row in rows), scope)
    return rows
