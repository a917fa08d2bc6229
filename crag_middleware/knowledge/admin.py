"""What an operator asks of one tenant's rows: which sources, how many, delete one, delete all, take them out."""

import json
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.file_rows import DETAILS, ROOT
from crag_middleware.knowledge.schema import CREATED_AT, ID, METADATA, TENANT, TEXT
from crag_middleware.knowledge.tenant_rows import metadata_of, one_of, pages, remove
from crag_middleware.tenancy import Scope, check_agent_id

if TYPE_CHECKING:
    from crag_middleware.knowledge.knowledge import Knowledge

TEXTS_AT_ONCE = 1000
"""Rows with their texts in one answer: at the largest texts still near a server's message limit of 64 MB."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """A tenant's document.

    Attributes:
        source: Its name; None stands for all rows without one.
        title: What it is called, if any of its rows says.
        chunks: Its rows.
        created_at: The newest time of its rows, in milliseconds since the epoch.
        root: The name of the folder that it was ingested from; None if it came in another way.
    """

    source: str | None
    title: str | None
    chunks: int
    created_at: int
    root: str | None


def sources(knowledge: "Knowledge", agent_id: str) -> list[SourceInfo]:
    """The tenant's documents by name, those without one first.

    Raises:
        TenantError: `agent_id` is no tenant id.
        RetrievalError: Milvus failed.
    """
    chunks: Counter[str | None] = Counter()
    newest: dict[str | None, int] = {}
    titles: dict[str | None, str] = {}
    roots: dict[str | None, str] = {}
    for page in pages(knowledge, _scope(agent_id), ("source", "title", CREATED_AT, METADATA)):
        for row in page:
            source = row["source"]
            chunks[source] += 1
            newest[source] = max(newest.get(source, row[CREATED_AT]), row[CREATED_AT])
            if row["title"]:
                titles[source] = row["title"]
            if root := (row[METADATA] or {}).get(ROOT):
                roots[source] = str(root)
    return [
        SourceInfo(source, titles.get(source), chunks[source], newest[source], roots.get(source))
        for source in sorted(chunks, key=lambda source: (source is not None, source or ""))
    ]


def count(knowledge: "Knowledge", agent_id: str) -> int:
    """How many rows the tenant has.

    Raises:
        TenantError: `agent_id` is no tenant id.
        RetrievalError: Milvus failed.
    """
    return sum(map(len, pages(knowledge, _scope(agent_id), ())))


def delete_source(knowledge: "Knowledge", agent_id: str, source: str) -> int:
    """Deletes a document of the tenant, and says how many rows that were.

    Raises:
        TenantError: `agent_id` is no tenant id.
        ConfigError: The source is no text.
        IngestError: Milvus failed; the same call again goes on.
        RetrievalError: What is there could not be read.
    """
    if not isinstance(source, str) or not source:
        msg = f"`source` must be the name of a document, got {type(source).__name__ if source != '' else 'an empty one'}"
        raise ConfigError(msg)
    return _delete(knowledge, agent_id, one_of("source", [source]))


def purge(knowledge: "Knowledge", agent_id: str) -> int:
    """Deletes all rows of the tenant, and says how many that were.

    What the agent remembers elsewhere keeps its copies: checkpoints and receipts, exports, the logs and traces of others.

    Raises:
        TenantError: `agent_id` is no tenant id.
        IngestError: Milvus failed; the same call again goes on.
        RetrievalError: What is there could not be read.
    """
    return _delete(knowledge, agent_id, None)


def export(knowledge: "Knowledge", agent_id: str, path: str | os.PathLike[str]) -> int:
    """Writes all rows of the tenant to a new file that only this user may read, and says how many: a JSON object a line with `id`, `text`, `metadata`.

    The metadata is what `add_texts` takes, without the tenant; vectors are made anew there. The file appears when it is whole.

    Raises:
        TenantError: `agent_id` is no tenant id.
        ConfigError: There is a file already, or none can be made.
        RetrievalError: Milvus failed.
    """
    scope, target = _scope(agent_id), Path(path)
    if target.exists():
        msg = f"{str(target)!r} exists already; name another file, or move it away"
        raise ConfigError(msg)
    written = 0
    try:
        with tempfile.NamedTemporaryFile("w", dir=target.parent, prefix=f".{target.name}.", encoding="utf-8", delete=False) as file:
            try:
                for page in pages(knowledge, scope, (TEXT, CREATED_AT, *DETAILS), size=TEXTS_AT_ONCE):
                    for row in page:
                        metadata = {key: value for key, value in metadata_of(row).items() if key != TENANT}
                        line = {"id": row[ID], "text": row[TEXT], "metadata": metadata}
                        file.write(json.dumps(line, ensure_ascii=False) + "\n")
                        written += 1
                file.flush()
                os.fsync(file.fileno())
                os.replace(file.name, target)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        msg = f"{str(target)!r} could not be written: {error.strerror}"
        raise ConfigError(msg) from error
    return written


def _scope(agent_id: str) -> Scope:
    return Scope(check_agent_id(agent_id))


def _delete(knowledge: "Knowledge", agent_id: str, rows: str | None) -> int:
    scope = _scope(agent_id)
    return sum(remove(knowledge, scope, [row[ID] for row in page]) for page in pages(knowledge, scope, (), rows=rows))
