"""The command line: arguments and exit codes, and nothing else.

Exit codes: 0; 1 for input that can't be used, with one line on standard error; 2 for a wrong command line.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from crag_middleware.calibration import load_calibration
from crag_middleware.errors import CRAGError

if TYPE_CHECKING:  # at run time `evals` is imported by its commands only: it needs an extra
    from crag_middleware.evals.runner import Progress

WIDTH = 140
"""Columns where standard output is no terminal."""


class _Commands(TyperGroup):
    """Commands whose errors of ours are one line and exit code 1."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except CRAGError as error:
            _console(stderr=True).print(f"crag: {error}", soft_wrap=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    name="crag",
    cls=_Commands,
    help="Corrective RAG for LangChain agents over Milvus: measure and calibrate its parts, look at its web search.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
evals = typer.Typer(name="eval", help="Measure evaluators and refiners on labelled questions, and compare runs.", no_args_is_help=True)
app.add_typer(evals)


Data = Annotated[list[Path], typer.Argument(metavar="DATA...", help="JSONL files of questions with labelled passages.", show_default=False)]
Evidence = Annotated[
    list[Path], typer.Argument(metavar="DATA...", help="JSONL files of questions with gold sentences.", show_default=False)
]
EvaluatorName = Annotated[
    str,
    typer.Option(
        "--evaluator",
        "-e",
        metavar="NAME",
        help="embedding, e5, chat, token, reranker, cascade, or one's own as package.module:attribute.",
        show_default=False,
    ),
]
RefinerName = Annotated[
    str,
    typer.Option(
        "--refiner",
        "-r",
        metavar="NAME",
        help="words, embedding, e5, chat, or one's own as package.module:attribute.",
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        metavar="PROVIDER:NAME", help="The chat model of those that ask one: chat, token, cascade.", show_default="as CRAG_MODEL says"
    ),
]
BaseUrl = Annotated[str | None, typer.Option(metavar="URL", help="Where that model's server is.", show_default=False)]
RerankerName = Annotated[
    str | None, typer.Option(metavar="NAME", help="The reranker of reranker as package.module:attribute.", show_default=False)
]
Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="Questions of each data set and language at most.", show_default=False)]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="For rows.jsonl, report.json, report.html.", show_default="crag-eval/NAME")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR; what failed is tried again.")]
Languages = Annotated[str, typer.Option(metavar="LIST", help="Only questions in these, such as en,zh.", show_default="all")]


def _show_version(wanted: bool) -> None:
    if wanted:
        _console().print(f"crag-middleware {version('crag-middleware')}")
        raise typer.Exit


@app.callback()
def _root(
    _version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)] = False,
) -> None:
    """Nothing of its own: the commands are below it."""


@evals.command()
def relevance(
    data: Data,
    evaluator: EvaluatorName,
    model: Model = None,
    base_url: BaseUrl = None,
    reranker: RerankerName = None,
    calibration: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What the grades go through.", show_default="the evaluator's own, if any")
    ] = None,
    limit: Limit = None,
    languages: Languages = "",
    negatives_only: Annotated[bool, typer.Option("--negatives-only", help="Show only passages that are known not to answer.")] = False,
    out: Out = None,
    resume: Resume = False,
) -> None:
    """Measure how well an evaluator tells passages that answer a question from those that don't."""
    from crag_middleware.evals.session import measure
    from crag_middleware.evals.show import show_report
    from crag_middleware.named import named_evaluator

    folder = _folder(out, evaluator)
    with _told("graded") as tell:
        report = measure(
            data,
            named_evaluator(evaluator, model=model, base_url=base_url, reranker=reranker),
            folder=folder,
            calibration=load_calibration(calibration) if calibration else None,
            languages=_names(languages),
            limit=limit,
            negatives_only=negatives_only,
            resume=resume,
            progress=tell,
        )
    show_report(report, _console())
    _console().print(f"more in {folder / 'report.html'} and report.json", soft_wrap=True)


@evals.command()
def refinement(
    data: Evidence,
    refiner: RefinerName,
    model: Model = None,
    base_url: BaseUrl = None,
    limit: Limit = None,
    languages: Languages = "",
    baselines: Annotated[bool, typer.Option(help="Measure the baselines on the same questions.")] = True,
    out: Out = None,
    resume: Resume = False,
) -> None:
    """Measure how many of the sentences that bear on the answer a refiner finds, against how much of the text it keeps."""
    from crag_middleware.evals.refinement import measure_refinement
    from crag_middleware.evals.refinement.show import show_refinement
    from crag_middleware.named import named_refiner

    folder = _folder(out, refiner)
    with _told("refined") as tell:
        report = measure_refinement(
            data,
            named_refiner(refiner, model=model, base_url=base_url),
            folder=folder,
            baselines=baselines,
            languages=_names(languages),
            limit=limit,
            resume=resume,
            progress=tell,
        )
    show_refinement(report, _console())
    _console().print(f"more in {folder / 'report.html'} and report.json", soft_wrap=True)


@evals.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN_A", help="The directory of a run.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="RUN_B", help="The directory of a run on the same questions.", show_default=False)],
) -> None:
    """Compare two runs on the same questions, with confidence intervals and p-values."""
    from crag_middleware.evals.compare import compare as pair
    from crag_middleware.evals.compare import read_run
    from crag_middleware.evals.show import show_comparison

    show_comparison(pair(read_run(first), read_run(second)), str(first), str(second), _console())


@app.command()
def calibrate(
    data: Data,
    evaluator: EvaluatorName,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the calibration goes; its grades are kept beside it.", show_default=False)
    ],
    model: Model = None,
    base_url: BaseUrl = None,
    reranker: RerankerName = None,
    judge: Annotated[
        str | None, typer.Option(metavar="PROVIDER:NAME", help="A stronger chat model that labels unlabelled passages.", show_default=False)
    ] = None,
    aim_missed: Annotated[float, typer.Option(metavar="SHARE", help="Answerable questions called incorrect, at most.")] = 0.05,
    aim_false: Annotated[float, typer.Option(metavar="SHARE", help="Unanswerable questions called relevant, at most.")] = 0.1,
    collection: Annotated[str, typer.Option(metavar="NAME", help="The collection that it is for.", show_default="any")] = "",
    tenant: Annotated[str | None, typer.Option(metavar="ID", help="The agent_id that it is for.", show_default="any")] = None,
    limit: Limit = None,
    languages: Languages = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the grades beside FILE; what failed is tried again.")] = False,
) -> None:
    """Fit what an evaluator's numbers mean: a map to probabilities and the thresholds, for stated aims."""
    from crag_middleware.evals.aims import Aims
    from crag_middleware.evals.calibrate import calibrate as fit
    from crag_middleware.evals.calibrate import summary
    from crag_middleware.named import named_evaluator

    with _told("graded") as tell:
        fitted = fit(
            data,
            named_evaluator(evaluator, model=model, base_url=base_url, reranker=reranker),
            out=out,
            judge=named_evaluator("chat", model=judge) if judge else None,
            aims=Aims(aim_missed, aim_false),
            collection=collection,
            tenant=tenant,
            languages=_names(languages),
            limit=limit,
            resume=resume,
            progress=tell,
        )
    for line in summary(fitted):
        _console().print(line, soft_wrap=True)
    _console().print(f"written to {out}", soft_wrap=True)


@app.command()
def web(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="As a user would ask it.", show_default=False)],
    provider: Annotated[
        list[str] | None,
        typer.Option(
            "--provider",
            "-p",
            metavar="NAME",
            help="tavily, bocha, or one's own as package.module:attribute; several are asked in order. Without any nothing is sent.",
            show_default=False,
        ),
    ] = None,
    allow: Annotated[
        str, typer.Option(metavar="LIST", help="Only results from these domains, such as example.org,gov.uk.", show_default="any")
    ] = "",
    deny: Annotated[str | None, typer.Option(metavar="LIST", help="No results from these.", show_default="the policy's own list")] = None,
    protect: Annotated[str, typer.Option(metavar="LIST", help="Words that never leave.", show_default="none")] = "",
    freshness: Annotated[str, typer.Option(metavar="AGE", help="any, day, week, month or year.")] = "any",
    results: Annotated[int, typer.Option(metavar="N", min=1, max=20, help="Results asked for.")] = 3,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0.1, max=600, help="For all providers together.")] = 10.0,
    tenant: Annotated[str, typer.Option(metavar="ID", help="The agent_id for whom.")] = "crag-web",
) -> None:
    """Show what would be sent to the web for a question, and, with a provider, what comes, what is dropped and why."""
    from crag_middleware.named import named_web_search
    from crag_middleware.web_policy import WebPolicy
    from crag_middleware.web_probe import probe
    from crag_middleware.web_show import show_probe

    sys.path.insert(0, "")  # so that modules in the current directory can be named, as `python -m` allows
    chosen: dict[str, Any] = {"allow_domains": _names(allow), "protected_terms": _names(protect), "freshness": freshness}
    policy = WebPolicy(**chosen) if deny is None else WebPolicy(**chosen, deny_domains=_names(deny))
    search = named_web_search(provider) if provider else None
    found = probe(question, search, agent_id=tenant, policy=policy, limit=results, timeout_s=timeout)
    show_probe(found, _console(), sent=search is not None)
    if found.error:
        raise typer.Exit(1)


def main() -> None:
    """The program `crag`."""
    app()


@contextmanager
def _told(done: str) -> Iterator["Callable[[Progress], None]"]:
    """Where modules of the current directory can be named, as `python -m` allows, and a stopped run ends in one line: a function to be told of progress."""
    from crag_middleware.evals.show import progress

    sys.path.insert(0, "")
    try:
        with progress(_console(stderr=True), done) as tell:
            yield tell
    except KeyboardInterrupt:
        _console(stderr=True).print("crag: stopped; the same command with --resume goes on")
        raise typer.Exit(1) from None


def _folder(out: Path | None, name: str) -> Path:
    return out or Path("crag-eval") / name.replace(":", "-")


def _names(listed: str) -> list[str]:
    return [name.strip() for name in listed.split(",") if name.strip()]


def _console(*, stderr: bool = False) -> Console:
    """Texts are printed as they are: no markup, no colours by guess."""
    console = Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH
    return console


if __name__ == "__main__":
    main()
