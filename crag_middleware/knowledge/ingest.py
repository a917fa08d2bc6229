"""Files into a collection: loaded, split, and written where they differ from what is there.

Nothing is remembered but the rows themselves: an id is made of tenant, source, place and text, so what is there says what is missing. New rows are
written before old ones are deleted; a stop in between leaves both, and the next run mends it.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crag_middleware.errors import ConfigError, IngestError
from crag_middleware.knowledge.file_rows import DETAILS, ROOT, Difference, Given, Kept, check_metadata, difference, file_rows, kept
from crag_middleware.knowledge.files import Found, Left, Tree, survey
from crag_middleware.knowledge.loading import Loaded
from crag_middleware.knowledge.rows import batched
from crag_middleware.knowledge.schema import CONTENT_HASH, CREATED_AT, ID, METADATA
from crag_middleware.knowledge.splitting import DEFAULT_OVERLAP, DEFAULT_SIZE, split
from crag_middleware.knowledge.tenant_rows import BATCH, one_of, pages, remove
from crag_middleware.knowledge.writing import settle, write
from crag_middleware.tenancy import Scope, check_agent_id

if TYPE_CHECKING:
    from crag_middleware.knowledge.knowledge import Knowledge

FILES_AT_ONCE, BYTES_AT_ONCE = 64, 8_000_000
"""Files whose rows are looked up with one query: Milvus Lite goes through all rows for each, and what is there of them is held in memory."""


@dataclass(frozen=True, slots=True)
class IngestProgress:
    """How far an ingest is.

    Attributes:
        source: The file that was read last.
        done: Files that are finished.
        total: Files in all.
        embedded: Chunks embedded and written so far.
    """

    source: str
    done: int
    total: int
    embedded: int


@dataclass(frozen=True, slots=True)
class Ingested:
    """What an ingest did.

    Attributes:
        files: Files that the collection has the chunks of now.
        unchanged: How many of them nothing had to be written for.
        chunks: The chunks of all of them.
        embedded: Chunks that were embedded and written.
        updated: Chunks that were written with the vectors that their texts had already: they moved, or their page, title or time changed.
        removed: Chunks that were deleted: their file no longer has them, or is gone.
        pruned: Sources whose file is gone.
        skipped: Files that are no documents, or empty ones.
        failed: Files that could not be read or stored; the chunks that were there of them stay.
    """

    files: int
    unchanged: int
    chunks: int
    embedded: int
    updated: int
    removed: int
    pruned: tuple[str, ...] = ()
    skipped: tuple[Left, ...] = ()
    failed: tuple[Left, ...] = ()


def ingest(
    knowledge: "Knowledge",
    path: str | os.PathLike[str],
    *,
    agent_id: str,
    metadata: Mapping[str, Any] | None = None,
    root: str | os.PathLike[str] | None = None,
    size: int = DEFAULT_SIZE,
    overlap: int = DEFAULT_OVERLAP,
    prune: bool = False,
    batch_size: int = BATCH,
    progress: Callable[[IngestProgress], None] | None = None,
) -> Ingested:
    """Bring a file, or all files of a folder, into the collection, and get what that took.

    Once more writes nothing where nothing changed, a changed file replaces its old chunks, and a run that was stopped goes on. A file that can't be
    read does not stop the others.

    Args:
        knowledge: Where to.
        path: A file or a folder. Hidden files are left out, links are not followed.
        agent_id: The tenant that all of it is for, written last.
        metadata: Added to each chunk: fields such as `version`, `url` or `confidence`, and keys of one's own; `doc_id` for a single file only.
        root: The folder that sources are relative to; by default the path itself, or a file's folder. Its name is kept with each chunk, and a file
            does not replace one of the same source from a root of another name.
        size: Characters of a chunk at most.
        overlap: Characters that neighbouring chunks share at most.
        prune: Also delete what was ingested under this path, from a root of this name, and whose file is gone; nothing while a folder can't be read.
        batch_size: Chunks embedded and rows written at once.
        progress: Told after each batch and each file.

    Raises:
        TenantError: `agent_id` is no tenant id, or the metadata names another one.
        ConfigError: An argument can't be used; nothing was written.
        IngestError: The embeddings or Milvus failed; the same call again goes on there.
        RetrievalError: What is there could not be read.
    """
    scope, folder, more = Scope(check_agent_id(agent_id)), Path(path), {} if metadata is None else metadata
    doc_id = check_metadata(more, scope, single=folder.is_file())
    split(Loaded(""), size=size, overlap=overlap)
    batched((), batch_size)
    tree = survey(folder, None if root is None else Path(root))
    if prune and (folder.is_file() or not tree.files):
        msg = "`prune` needs a folder with documents: after a single file or an empty folder everything else would be gone; delete or purge instead"
        raise ConfigError(msg)
    given = Given(scope, tree.root, {key: value for key, value in more.items() if key != "doc_id"}, doc_id, size, overlap)
    counts: Counter[str] = Counter()
    skipped, failed = list(tree.skipped), list(tree.failed)

    def tell(source: str) -> None:
        if progress:
            progress(IngestProgress(source, counts["files"] + len(failed) - len(tree.failed), len(tree.files), counts["embedded"]))

    for found, there in _with_rows(knowledge, scope, tree.files):
        try:
            _refuse_other_roots(there, tree.root)
            rows = file_rows(found, given)
        except (ConfigError, IngestError) as error:
            failed.append(Left(found.source, str(error)))
        else:
            todo = difference(rows, there)
            for done in _written(knowledge, scope, found.source, todo, batch_size):
                counts.update(done)
                tell(found.source)
            counts.update(files=1, chunks=len(rows), unchanged=int(not todo))
            if not rows:
                skipped.append(Left(found.source, "it holds no text"))
        tell(found.source)
    pruned = _prune(knowledge, scope, tree, counts) if prune else ()
    if counts["embedded"] or counts["updated"]:
        settle(knowledge, [scope.agent_id])
    return Ingested(
        files=counts["files"],
        unchanged=counts["unchanged"],
        chunks=counts["chunks"],
        embedded=counts["embedded"],
        updated=counts["updated"],
        removed=counts["removed"],
        pruned=pruned,
        skipped=tuple(skipped),
        failed=tuple(failed),
    )


def _with_rows(knowledge: "Knowledge", scope: Scope, files: Sequence[Found]) -> Iterator[tuple[Found, Mapping[str, Kept]]]:
    """Each file with the rows that are there of its source, by id.

    Many files are looked up only if their source was there at the start: in Milvus Lite each look-up costs time and memory in proportion to all rows.
    """
    groups = list(_groups(files))
    known = {row["source"] for page in pages(knowledge, scope, ("source",)) for row in page} if len(groups) > 1 else None
    for group in groups:
        there: defaultdict[str, dict[str, Kept]] = defaultdict(dict)
        wanted = [found.source for found in group if known is None or found.source in known]
        if wanted:
            for page in pages(knowledge, scope, ("source", CONTENT_HASH, CREATED_AT, *DETAILS), rows=one_of("source", wanted)):
                for row in page:
                    there[row["source"]][row[ID]] = kept(row)
        for found in group:
            yield found, there.pop(found.source, {})


def _groups(files: Sequence[Found]) -> Iterator[list[Found]]:
    """The files in order, so many at a time that their rows fit into memory."""
    group: list[Found] = []
    for found in files:
        if group and (len(group) == FILES_AT_ONCE or sum(f.size for f in group) + found.size > BYTES_AT_ONCE):
            yield group
            group = []
        group.append(found)
    if group:
        yield group


def _refuse_other_roots(there: Mapping[str, Kept], root: str) -> None:
    if any(row.root != root for row in there.values()):
        msg = "its source is in the collection already, and not from this root; delete that, or ingest under a `root` further up so that sources differ"
        raise ConfigError(msg)


def _written(knowledge: "Knowledge", scope: Scope, source: str, todo: Difference, batch_size: int) -> Iterator[dict[str, int]]:
    """Writes what is new, then what changed, then deletes what is left over; says after each batch what it did."""
    try:
        yield from write(knowledge, todo.fresh, todo.known, batch_size)
        if todo.stale:
            yield {"removed": remove(knowledge, scope, todo.stale)}
    except IngestError as error:
        raise IngestError(f"{source}: {error}", reason=error.reason) from None


def _prune(knowledge: "Knowledge", scope: Scope, tree: Tree, counts: Counter[str]) -> tuple[str, ...]:
    """Deletes the rows under the tree's path whose files are gone, and says of which sources."""
    present = {found.source for found in tree.files} | {left.source for left in tree.skipped}
    if tree.failed:  # a folder that can't be read is not gone
        return ()
    gone: set[str] = set()
    for page in pages(knowledge, scope, ("source", METADATA)):
        ids = {
            row[ID]: row["source"]
            for row in page
            if (row[METADATA] or {}).get(ROOT) == tree.root and row["source"].startswith(tree.under) and row["source"] not in present
        }
        counts.update(removed=remove(knowledge, scope, ids))
        gone.update(ids.values())
    return tuple(sorted(gone))
