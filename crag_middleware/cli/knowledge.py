"""`crag ingest`, `sources`, `delete`, `purge`, `export`, `migrate`: a tenant's documents, seen by the operator."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from crag_middleware.cli.collections import (
    DEFAULT_COLLECTION,
    DEFAULT_URI,
    AgentId,
    Collection,
    Database,
    EmbeddingsName,
    IsolationName,
    Token,
    Uri,
    client,
    existing,
    opened,
)
from crag_middleware.cli.progress import bar
from crag_middleware.cli.shared import AsJson, complain, console, print_json, stoppable
from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.files import Left
from crag_middleware.knowledge.migrate import LeftBehind
from crag_middleware.knowledge.splitting import DEFAULT_OVERLAP, DEFAULT_SIZE

MOST_NAMED = 10
"""Files named one by one; of the others the number is told."""

NUMBERS = ("confidence", "fetched_at", "expires_at")
"""Fields given on the command line that hold no text."""


def ingest(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A file or a folder.", show_default=False)],
    agent_id: AgentId,
    uri: Uri = DEFAULT_URI,
    token: Token = None,
    database: Database = None,
    collection: Collection = DEFAULT_COLLECTION,
    isolation: IsolationName = None,
    embeddings: EmbeddingsName = None,
    metadata: Annotated[
        list[str] | None,
        typer.Option("--metadata", "-m", metavar="KEY=VALUE", help="Added to each chunk; more than once for several.", show_default=False),
    ] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder that sources are relative to.", show_default="PATH, or a file's folder")
    ] = None,
    size: Annotated[int, typer.Option(metavar="N", help="Characters of a chunk at most.")] = DEFAULT_SIZE,
    overlap: Annotated[int, typer.Option(metavar="N", help="Characters that neighbouring chunks share at most.")] = DEFAULT_OVERLAP,
    prune: Annotated[bool, typer.Option("--prune", help="Also delete what was ingested under PATH and whose file is gone.")] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a file or a folder into a tenant's knowledge; once more brings what changed, or the rest of a run that was stopped."""
    knowledge = opened(uri, token, database, collection, embeddings, isolation)
    with stoppable("the same command goes on"), bar("files") as tell:
        done = knowledge.ingest(
            path,
            agent_id=agent_id,
            metadata={key: _value(key, value) for key, value in _pairs("--metadata", metadata or [])},
            root=root,
            size=size,
            overlap=overlap,
            prune=prune,
            progress=lambda state: tell(state.done, state.total, f"{state.embedded} chunks embedded, {state.source}"),
        )
    if as_json:
        print_json(asdict(done))
    else:
        console().print(f"{done.files} files with {done.chunks} chunks are in, {done.unchanged} of them unchanged", soft_wrap=True)
        console().print(f"chunks: {done.embedded} embedded, {done.updated} updated, {done.removed} removed", soft_wrap=True)
        _print_each("gone", done.pruned)
        _print_each("skipped", _reasons(done.skipped))
    if done.failed:
        _print_each("crag: failed", _reasons(done.failed), stderr=True)
        raise typer.Exit(1)


def sources(
    agent_id: AgentId,
    uri: Uri = DEFAULT_URI,
    token: Token = None,
    database: Database = None,
    collection: Collection = DEFAULT_COLLECTION,
    isolation: IsolationName = None,
    as_json: AsJson = False,
) -> None:
    """List a tenant's documents."""
    found = existing(uri, token, database, collection, isolation).sources(agent_id)
    if as_json:
        print_json([asdict(source) for source in found])
        return
    table = Table("source", "title", "chunks", "newest", "from", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.columns[2].justify = "right"
    for column in (0, 1):
        table.columns[column].overflow = "fold"
    for source in found:
        table.add_row(source.source or "(none)", source.title or "", str(source.chunks), _day(source.created_at), source.root or "")
    console().print(table)
    console().print(f"{len(found)} sources, {sum(source.chunks for source in found)} chunks")


def delete(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="As `crag sources` lists it.", show_default=False)],
    agent_id: AgentId,
    uri: Uri = DEFAULT_URI,
    token: Token = None,
    database: Database = None,
    collection: Collection = DEFAULT_COLLECTION,
    isolation: IsolationName = None,
    as_json: AsJson = False,
) -> None:
    """Delete one document of a tenant. Exit code 1 if there is none of that name."""
    deleted = existing(uri, token, database, collection, isolation).delete_source(agent_id, source)
    if as_json:
        print_json({"deleted": deleted})
    if not deleted:
        complain(f"the tenant has no source {source!r}; `crag sources` lists those that it has")
        raise typer.Exit(1)
    if not as_json:
        console().print(f"{deleted} chunks deleted")


def purge(
    agent_id: AgentId,
    uri: Uri = DEFAULT_URI,
    token: Token = None,
    database: Database = None,
    collection: Collection = DEFAULT_COLLECTION,
    isolation: IsolationName = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete everything that a collection holds of a tenant."""
    knowledge = existing(uri, token, database, collection, isolation)
    if not yes:
        typer.confirm(
            f"Delete all {knowledge.count(agent_id)} chunks of this tenant from the collection {collection!r}?", abort=True, err=as_json
        )
    deleted = knowledge.purge(agent_id)
    if as_json:
        print_json({"deleted": deleted})
        return
    console().print(f"{deleted} chunks deleted")
    console().print(
        "Checkpoints and receipts of the agent, exports, logs and traces keep their copies; delete those where they are.", soft_wrap=True
    )


def export(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, JSON Lines.", show_default=False)],
    agent_id: AgentId,
    uri: Uri = DEFAULT_URI,
    token: Token = None,
    database: Database = None,
    collection: Collection = DEFAULT_COLLECTION,
    isolation: IsolationName = None,
    as_json: AsJson = False,
) -> None:
    """Write a tenant's texts and metadata to a file, one chunk a line."""
    written = existing(uri, token, database, collection, isolation).export(agent_id, path)
    if as_json:
        print_json({"written": written, "path": str(path)})
    else:
        console().print(f"{written} chunks written to {path}", soft_wrap=True)


def migrate(
    origin: Annotated[
        str, typer.Argument(metavar="SRC", help="Where the other collection is: a file that ends in .db or an address.", show_default=False)
    ],
    agent_id: Annotated[
        str | None,
        typer.Option("--agent-id", "-a", metavar="ID", help="The tenant of all rows.", show_default="each row names its own"),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="The other collection.", show_default="the only one there")
    ] = None,
    uri: Uri = DEFAULT_URI,
    token: Token = None,
    database: Database = None,
    collection: Collection = DEFAULT_COLLECTION,
    isolation: IsolationName = None,
    embeddings: EmbeddingsName = None,
    fields: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="OLD=NEW",
            help="A field's name there and here, or OLD= to leave it out; more than once for several.",
            show_default=False,
        ),
    ] = None,
    keep_vectors: Annotated[bool, typer.Option("--keep-vectors", help="Keep the vectors; the same model must have made them.")] = False,
    source_token: Annotated[
        str | None,
        typer.Option(metavar="TOKEN", envvar="CRAG_SOURCE_TOKEN", help="user:password or API key of the server SRC.", show_default=False),
    ] = None,
    source_database: Annotated[
        str | None, typer.Option(metavar="NAME", help="The database within the server SRC.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bring another collection into this one, which only reads the other; once more brings what is missing."""
    there = client(origin, source_token, source_database)
    names = there.list_collections()
    if name is None and len(names) != 1:
        msg = f"name the collection with --from; there are: {', '.join(sorted(names)) or 'none'}"
        raise ConfigError(msg)
    knowledge = opened(uri, token, database, collection, embeddings, isolation)
    with stoppable("the same command goes on"), bar("rows") as tell:
        done = knowledge.migrate_from(
            there,
            name or names[0],
            agent_id=agent_id,
            fields=dict(_pairs("--map", fields or [])),
            keep_vectors=keep_vectors,
            progress=lambda state: tell(state.done, state.total, ""),
        )
    if as_json:
        print_json(asdict(done) | {"complete": done.complete})
    else:
        console().print(f"{done.read} of {done.total} rows read, {done.found} of them are here now", soft_wrap=True)
        console().print(f"rows: {done.written} written, {done.updated} updated, {done.unchanged} unchanged", soft_wrap=True)
        _print_each("skipped", _behind(done.skipped))
    if not done.complete:
        _print_each("crag: refused", _behind(done.refused), stderr=True)
        complain("the counts don't match: not every row of the other collection is here")
        raise typer.Exit(1)


def _pairs(option: str, given: Iterable[str]) -> list[tuple[str, str]]:
    pairs = [text.partition("=") for text in given]
    if wrong := next((key for key, sign, _ in pairs if not key or not sign), None):
        msg = f"{option} must be two words with = between them, got {wrong!r}"
        raise ConfigError(msg)
    return [(key, value) for key, _, value in pairs]


def _value(key: str, value: str) -> Any:
    if key not in NUMBERS:
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _reasons(files: Iterable[Left]) -> list[str]:
    return [f"{left.source}: {left.reason}" for left in files]


def _behind(rows: Iterable[LeftBehind]) -> list[str]:
    return [f"{left.rows} rows: {left.reason} (the first is {left.first})" for left in rows]


def _print_each(what: str, lines: Sequence[str], *, stderr: bool = False) -> None:
    out = console(stderr=stderr)
    for line in lines[:MOST_NAMED]:
        out.print(f"{what}: {line}", soft_wrap=True)
    if len(lines) > MOST_NAMED:
        out.print(f"{what}: {len(lines) - MOST_NAMED} more", soft_wrap=True)


def _day(created_at_ms: int) -> str:
    """The day of a time; what no calendar has, as it is."""
    try:
        return datetime.fromtimestamp(created_at_ms / 1000, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return str(created_at_ms)
