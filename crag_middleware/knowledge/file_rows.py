"""From a file to its rows, and how they differ from the rows that are there."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.knowledge.files import Found, named
from crag_middleware.knowledge.loading import load
from crag_middleware.knowledge.rows import Row, prepare_rows
from crag_middleware.knowledge.schema import CONFIDENCE, CONTENT_HASH, CREATED_AT, ID, METADATA, OPTIONAL_INTEGERS, OPTIONAL_TEXT, TENANT
from crag_middleware.knowledge.splitting import split
from crag_middleware.tenancy import Scope

ROOT = "ingested_from"
"""The free metadata key that names the folder a row's source is relative to: what may be pruned, and what another folder may not replace."""

FILLED = frozenset({"source", "title", "section", "page", "chunk_index", "start", "end", CREATED_AT, ROOT})
"""Metadata keys that come from the files."""

DETAILS = (CONFIDENCE, METADATA, *OPTIONAL_TEXT, *OPTIONAL_INTEGERS)
"""Fields that may change while the id stays."""


@dataclass(frozen=True, slots=True)
class Given:
    """What all chunks of an ingest have in common.

    Attributes:
        scope: The tenant.
        root: The name of the root.
        metadata: Of the caller, without `doc_id`.
        doc_id: The caller's, which ids are not made from: versions of one document are kept side by side.
        size: Characters of a chunk at most.
        overlap: Characters that neighbours share at most.
    """

    scope: Scope
    root: str
    metadata: Mapping[str, Any]
    doc_id: str | None
    size: int
    overlap: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What matters of a row that is there.

    Attributes:
        content: The digest of its text.
        details: A digest of everything that may change while the id stays, but for the time.
        created_at: The time.
        root: The root that it came from, None if from none.
    """

    content: str
    details: bytes
    created_at: int
    root: object


@dataclass(frozen=True, slots=True)
class Difference:
    """What it takes to make the rows that are there those of the file.

    Attributes:
        fresh: Rows to be embedded and written.
        known: Rows to be written, each with the id of a stored row that has the vector of its text.
        stale: Ids to be deleted.
    """

    fresh: tuple[Row, ...] = ()
    known: tuple[tuple[Row, str], ...] = ()
    stale: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.fresh or self.known or self.stale)


def check_metadata(metadata: Mapping[str, Any], scope: Scope, *, single: bool) -> str | None:
    """Refuses metadata that no chunk can have, and gives its `doc_id`.

    Args:
        metadata: Of the caller.
        scope: The tenant.
        single: Whether it is for one file.

    Raises:
        TenantError: It names another tenant.
        ConfigError: It is no mapping, sets what is filled in from the files, or can't be stored.
    """
    try:
        (row,) = prepare_rows(["a text"], [metadata], None, agent_id=scope.agent_id, now_ms=0)
    except ConfigError as error:
        raise ConfigError(str(error).partition(": ")[2]) from None
    if metadata.get(TENANT, scope.agent_id) != scope.agent_id:
        msg = "`agent_id` in the metadata must be that of the argument, got another one; leave it out of the metadata"
        raise TenantError(msg, reason="tenant_conflict")
    if filled := sorted(FILLED & metadata.keys()):
        msg = f"the metadata must not hold {', '.join(filled)}: they come from the files; rename or remove them"
        raise ConfigError(msg)
    if row["doc_id"] is not None and not single:
        msg = "`doc_id` names one document, and a folder may hold many; ingest the file by itself"
        raise ConfigError(msg)
    doc_id: str | None = row["doc_id"]
    return doc_id


def file_rows(found: Found, given: Given) -> list[Row]:
    """The rows of a file, without vectors.

    Raises:
        IngestError: It can't be read.
        ConfigError: A chunk of it can't be stored, or an extra is missing that reads it.
    """
    loaded = load(found.path)
    chunks = split(loaded, size=given.size, overlap=given.overlap)
    own = {**given.metadata, "source": found.source, "title": named(loaded.title) or None, ROOT: given.root}
    metadatas = [
        {
            **own,
            "section": chunk.section or None,
            "page": chunk.page,
            "chunk_index": chunk.chunk_index,
            "start": chunk.start,
            "end": chunk.end,
            CREATED_AT: loaded.modified_ms,
        }
        for chunk in chunks
    ]
    texts = [chunk.text for chunk in chunks]
    rows = prepare_rows(texts, metadatas, None, agent_id=given.scope.agent_id, now_ms=time.time_ns() // 1_000_000)
    return [row | {"doc_id": given.doc_id} for row in rows]


def kept(row: Mapping[str, Any]) -> Kept:
    """What matters of a stored row, or of one that would be."""
    details = json.dumps([row.get(name) for name in DETAILS], sort_keys=True)
    return Kept(row[CONTENT_HASH], sha256(details.encode()).digest(), row[CREATED_AT], (row.get(METADATA) or {}).get(ROOT))


def difference(rows: list[Row], there: Mapping[str, Kept]) -> Difference:
    """How the rows of a file differ from those that are there of the same source.

    A file that was only touched does not differ: what it says is no newer. Where anything else differs, all rows get the file's time, since parts of
    one document with several times would pass for versions of it.
    """
    stale = frozenset(there.keys() - {row[ID] for row in rows})
    new = {row[ID]: kept(row) for row in rows}
    same = all(key in there and there[key].details == row.details for key, row in new.items())
    if same and not stale and len({old.created_at for old in there.values()}) <= 1:
        return Difference()
    by_text = {old.content: key for key, old in there.items()}
    fresh, known = [], []
    for row in rows:
        if row[ID] in there:
            if new[row[ID]] != there[row[ID]]:
                known.append((row, row[ID]))
        elif row[CONTENT_HASH] in by_text:
            known.append((row, by_text[row[CONTENT_HASH]]))
        else:
            fresh.append(row)
    return Difference(tuple(fresh), tuple(known), stale)
