"""The texts of a saved receipt's passages: fetched again as the same tenant, or the receipt's own."""

from collections.abc import Collection, Mapping

from langchain_core.documents import Document

from crag_middleware.adapters.rows import from_document
from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.knowledge import Knowledge
from crag_middleware.knowledge.rows import batched
from crag_middleware.knowledge.schema import CONFIDENCE, CREATED_AT, ID, METADATA, OPTIONAL_INTEGERS, OPTIONAL_TEXT, TENANT, TEXT
from crag_middleware.knowledge.tenant_rows import IDS_AT_ONCE, metadata_of, one_of, pages
from crag_middleware.replay.saved import Saved
from crag_middleware.tenancy import Scope, check_agent_id, digest
from crag_middleware.types import Passage

FIELDS = (TEXT, METADATA, CONFIDENCE, CREATED_AT, *OPTIONAL_TEXT, *OPTIONAL_INTEGERS)


def fetched(saved: Saved, knowledge: Knowledge, *, agent_id: str) -> dict[str, Passage]:
    """The receipt's passages of the knowledge as they are today, by id; those that are gone, or another tenant's, are missing.

    Raises:
        TenantError: `agent_id` is no tenant id, or a row of another tenant came back.
        ConfigError: The receipt says that it is another tenant's.
        RetrievalError: Milvus failed.
    """
    scope = Scope(check_agent_id(agent_id))
    if saved.facts.tenant and saved.facts.tenant != digest(agent_id):
        msg = "the receipt is of another tenant than `agent_id`; replay it as the same one"
        raise ConfigError(msg)
    return _found(knowledge, scope, sorted({p.id for p in saved.known}))


def own_texts(saved: Saved) -> Mapping[str, Passage]:
    """The receipt's passages of the knowledge with the texts that it holds, by id.

    Raises:
        ConfigError: It holds none.
    """
    found = {p.id: Passage(p.id, p.text, p.source, p.title, p.url, confidence=p.confidence) for p in saved.known if p.text is not None}
    if saved.known and not found:
        msg = (
            "the receipt holds no texts of passages: name the tenant with `agent_id`, so that they are fetched again, "
            'or save receipts with `receipt_detail="full"`'
        )
        raise ConfigError(msg)
    return found


def _found(knowledge: Knowledge, scope: Scope, ids: Collection[str]) -> dict[str, Passage]:
    rows = (
        row for part in batched(list(ids), IDS_AT_ONCE) for page in pages(knowledge, scope, FIELDS, rows=one_of(ID, part)) for row in page
    )
    documents = (Document(page_content=row[TEXT], metadata=metadata_of(row), id=row[ID]) for row in rows)
    return {p.id: p for p in (from_document(document, rank=0, tenant_field=TENANT) for document in documents)}
