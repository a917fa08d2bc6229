"""The command line: arguments and exit codes, and nothing else.

Exit codes: 0; 1 for input that can't be used, with one line on standard error; 2 for a wrong command line.
"""

from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from crag_middleware.cli import audit, knowledge, measuring, web
from crag_middleware.cli.shared import WIDTH, console
from crag_middleware.errors import CRAGError

__all__ = ["WIDTH", "app", "main"]


class _Commands(TyperGroup):
    """Commands whose errors of ours are one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CRAGError as error:
            console(stderr=True).print(f"crag: {error}", soft_wrap=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    name="crag",
    cls=_Commands,
    help="Corrective RAG for LangChain agents over Milvus: bring knowledge in, measure and calibrate the parts, look at the web search.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(measuring.evals)
for command in (
    knowledge.ingest,
    knowledge.sources,
    knowledge.delete,
    knowledge.purge,
    knowledge.export,
    knowledge.migrate,
    audit.audit,
    measuring.calibrate,
    web.web,
):
    app.command()(command)


def _show_version(wanted: bool) -> None:
    if wanted:
        console().print(f"crag-middleware {version('crag-middleware')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Nothing of its own: the commands are below it."""


def main() -> None:
    """The program `crag`."""
    app()
