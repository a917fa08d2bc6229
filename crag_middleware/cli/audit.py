"""`crag audit`: known attacks on the boundary between tenants, tried against canary rows."""

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from crag_middleware.adapters.milvus_errors import guarded
from crag_middleware.cli.collections import DEFAULT_URI, Database, EmbeddingsName, Token, Uri, client, existing, opened
from crag_middleware.cli.shared import AsJson, console, print_json, stoppable
from crag_middleware.knowledge.knowledge import Knowledge


def audit(
    place: Annotated[str | None, typer.Argument(metavar="[URI]", help="The same as --uri.", show_default=False)] = None,
    uri: Uri = DEFAULT_URI,
    collection: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Plant the canaries in this collection, beside its rows.", show_default="a new one, dropped in the end"
        ),
    ] = None,
    token: Token = None,
    database: Database = None,
    embeddings: EmbeddingsName = None,
    as_json: AsJson = False,
) -> None:
    """Attack the boundary between two made-up tenants; exit code 0 only if all of it held. Nothing stays, and no other row is changed."""
    from crag_middleware.audit import audit as attacked

    logging.getLogger("crag_middleware").addHandler(logging.NullHandler())  # warnings that the attacks provoke are no news beside the table
    with stoppable("the canary rows are deleted"), _store(place or uri, token, database, collection, embeddings) as store:
        outcomes = attacked(store)
    if as_json:
        print_json([asdict(outcome) for outcome in outcomes])
    else:
        table = Table("attack", "what was tried", "outcome", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for one in outcomes:
            table.add_row(one.attack, one.tried, one.outcome.replace("_", " ") + (f": {one.detail}" if one.detail else ""))
        console().print(table)
        held = sum(one.outcome == "held" for one in outcomes)
        console().print(f"{held} of {len(outcomes)} attacks held")
    if any(one.outcome != "held" for one in outcomes):
        raise typer.Exit(1)


@contextmanager
def _store(uri: str, token: str | None, database: str | None, collection: str | None, embeddings: str | None) -> Iterator[Knowledge]:
    """The collection, which must be there; without one a new one, which is dropped in the end."""
    if collection is not None:
        existing(uri, token, database, collection)
        yield opened(uri, token, database, collection, embeddings)
        return
    there, name = client(uri, token, database), f"crag_audit_{secrets.token_hex(6)}"
    try:
        yield opened(uri, token, database, name, embeddings)
    finally:
        with guarded(name):
            there.drop_collection(name)
