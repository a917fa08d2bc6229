"""The command line: arguments and exit codes, and nothing else.

Exit codes: 0; 1 for an outcome that is not as wished, such as a search that failed or checks that did not hold; 2 for a wrong command line or input that
can't be used. Either way one line on standard error says why.
"""

import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from io import TextIOWrapper
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from crag_middleware.cli import answering, audit, doctor, knowledge, measuring, receipts, shadow, web
from crag_middleware.cli.shared import WIDTH, complain, console
from crag_middleware.errors import ConfigError, CRAGError, TenantError

__all__ = ["WIDTH", "app", "main"]

_ClickException: Any = typer.BadParameter.__mro__[2]
"""What a wrong command line is raised as: typer brings its own copy of click since 0.22, and has no public name for it."""


class _Commands(TyperGroup):
    """Commands that end in an exit code, and in one line if something is wrong."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Runs the command line."""
        try:
            code = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
        except _ClickException as error:
            if not standalone_mode:
                raise
            code = _refused(error)
        except CRAGError as error:
            complain(str(error))
            code = 2 if isinstance(error, ConfigError | TenantError) else 1
        except typer.Abort:
            complain("stopped; nothing was done")
            code = 1
        except OSError as error:
            complain(f"{error.strerror or type(error).__name__}{f': {error.filename}' if error.filename else ''}")
            code = 2
        if not standalone_mode:
            return code
        sys.exit(code if isinstance(code, int) else 0)


def _refused(error: Any) -> int:
    """Says what is wrong with the command line."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help, which rich has printed already
        typer.echo(error.format_message(), err=True, nl=False)
        return 2
    path = context.command_path if context is not None else "crag"
    complain(f"{error.format_message().strip().rstrip('.')}; `{path} --help` tells more")
    return 2


app = typer.Typer(
    name="crag",
    cls=_Commands,
    help="Corrective RAG for LangChain agents over Milvus: bring knowledge in, ask it, look into answers, measure and calibrate the parts.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(measuring.evals)
app.add_typer(shadow.shadow)
for command in (
    knowledge.ingest,
    knowledge.sources,
    answering.ask,
    answering.chat,
    receipts.explain,
    receipts.replay,
    web.web,
    doctor.doctor,
    audit.audit,
    measuring.calibrate,
    knowledge.delete,
    knowledge.purge,
    knowledge.export,
    knowledge.migrate,
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
    logging.getLogger().addHandler(
        logging.NullHandler()
    )  # what a library warns of is no line beside ours; receipts and `crag doctor` tell it
    for stream, errors in ((sys.stdin, "replace"), (sys.stdout, "backslashreplace"), (sys.stderr, "backslashreplace")):
        if isinstance(stream, TextIOWrapper):  # text that is no Unicode, or that the terminal has no letters for, must not end a command
            stream.reconfigure(errors=errors)
    app()
