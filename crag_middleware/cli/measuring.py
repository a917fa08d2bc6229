"""`crag eval` and `crag calibrate`: measure the parts on labelled data, and fit what an evaluator's numbers mean."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer
from rich.console import Console

from crag_middleware.calibration import load_calibration
from crag_middleware.cli.shared import AsJson, console, name_own_modules, names, print_json, stoppable

if TYPE_CHECKING:  # at run time `evals` is imported by its commands only: it needs an extra
    from crag_middleware.evals.runner import Progress


class _Report(Protocol):
    def to_json(self) -> str: ...


ReportT = TypeVar("ReportT", bound=_Report)

evals = typer.Typer(
    name="eval",
    help="Measure evaluators, refiners, retrieval, claim checkers and answers on labelled data, and compare runs.",
    no_args_is_help=True,
)

Data = Annotated[list[Path], typer.Argument(metavar="DATA...", help="JSONL files of questions with labelled passages.", show_default=False)]
Evidence = Annotated[
    list[Path], typer.Argument(metavar="DATA...", help="JSONL files of questions with gold sentences.", show_default=False)
]
Judged = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA...", help="JSONL files of documents and questions with what is relevant, or folders as in BEIR.", show_default=False
    ),
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
Claimed = Annotated[
    list[Path], typer.Argument(metavar="DATA...", help="JSONL files of labelled claims with their evidence.", show_default=False)
]
Answers = Annotated[
    list[Path],
    typer.Argument(
        metavar="DATA...", help="JSONL files of answers to questions of which it is known whether they can be answered.", show_default=False
    ),
]
CheckerName = Annotated[
    str, typer.Option("--checker", "-c", metavar="NAME", help="words, chat, token, or one's own as package.module:attribute.")
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
    as_json: AsJson = False,
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
            languages=names(languages),
            limit=limit,
            negatives_only=negatives_only,
            resume=resume,
            progress=tell,
        )
    _print(report, show_report, folder, as_json=as_json)


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
    as_json: AsJson = False,
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
            languages=names(languages),
            limit=limit,
            resume=resume,
            progress=tell,
        )
    _print(report, show_refinement, folder, as_json=as_json)


@evals.command()
def retrieval(
    data: Judged,
    embeddings: Annotated[
        str, typer.Option("--embeddings", "-e", metavar="NAME", help="local, e5, or one's own as package.module:attribute.")
    ] = "local",
    reranker: Annotated[
        str | None, typer.Option(metavar="NAME", help="e5, or one's own as package.module:attribute.", show_default="none")
    ] = None,
    limit: Limit = None,
    languages: Languages = "",
    out: Out = None,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Measure what dense search, BM25, their fusion, a reranker and MMR find, on documents stored for it in a temporary folder."""
    from crag_middleware.evals.retrieval import measure_retrieval
    from crag_middleware.evals.retrieval.show import show_retrieval
    from crag_middleware.named import named_embeddings, named_reranker

    folder = _folder(out, f"retrieval-{embeddings}")
    with _told("stored or searched") as tell:
        report = measure_retrieval(
            data,
            named_embeddings(embeddings),
            folder=folder,
            reranker=named_reranker(reranker) if reranker else None,
            languages=names(languages),
            limit=limit,
            resume=resume,
            progress=tell,
        )
    _print(report, show_retrieval, folder, as_json=as_json)


@evals.command()
def claims(
    data: Claimed,
    checker: CheckerName = "words",
    model: Model = None,
    base_url: BaseUrl = None,
    limit: Limit = None,
    languages: Languages = "",
    out: Out = None,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Measure how well a claim checker tells claims that their evidence supports from all others."""
    from crag_middleware.evals.claims import measure_claims
    from crag_middleware.evals.claims.show import show_claims
    from crag_middleware.named import named_checker

    folder = _folder(out, f"claims-{checker}")
    with _told("checked") as tell:
        report = measure_claims(
            data,
            named_checker(checker, model=model, base_url=base_url),
            folder=folder,
            languages=names(languages),
            limit=limit,
            resume=resume,
            progress=tell,
        )
    _print(report, show_claims, folder, as_json=as_json)


@evals.command()
def refusal(
    data: Answers,
    checker: CheckerName = "words",
    model: Model = None,
    base_url: BaseUrl = None,
    limit: Limit = None,
    languages: Languages = "",
    out: Out = None,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Measure, of answers that were written already, whether they refuse what nothing answers, and whether what they cite bears them out."""
    from crag_middleware.evals.refusal import measure_refusal
    from crag_middleware.evals.refusal.show import show_refusal
    from crag_middleware.named import named_checker

    folder = _folder(out, f"refusal-{checker}")
    with _told("checked") as tell:
        report = measure_refusal(
            data,
            named_checker(checker, model=model, base_url=base_url),
            folder=folder,
            languages=names(languages),
            limit=limit,
            resume=resume,
            progress=tell,
        )
    _print(report, show_refusal, folder, as_json=as_json)


@evals.command()
def compare(
    first: Annotated[Path, typer.Argument(metavar="RUN_A", help="The directory of a run.", show_default=False)],
    second: Annotated[Path, typer.Argument(metavar="RUN_B", help="The directory of a run on the same questions.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Compare two runs on the same questions, with confidence intervals and p-values."""
    from crag_middleware.evals.compare import compare as pair
    from crag_middleware.evals.compare import read_run
    from crag_middleware.evals.show import show_comparison

    compared = pair(read_run(first), read_run(second))
    if as_json:
        print_json([asdict(one) for one in compared])
    else:
        show_comparison(compared, str(first), str(second), console())


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
    agent_id: Annotated[
        str | None, typer.Option("--agent-id", "-a", "--tenant", metavar="ID", help="The tenant that it is for.", show_default="any")
    ] = None,
    limit: Limit = None,
    languages: Languages = "",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the grades beside FILE; what failed is tried again.")] = False,
    as_json: AsJson = False,
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
            tenant=agent_id,
            languages=names(languages),
            limit=limit,
            resume=resume,
            progress=tell,
        )
    if as_json:
        reached = [asdict(one) for one in fitted.reached]
        print_json(
            {"calibration": fitted.calibration.model_dump(mode="json"), "reached": reached, "notes": fitted.notes, "written_to": str(out)}
        )
        return
    for line in summary(fitted):
        console().print(line, soft_wrap=True)
    console().print(f"written to {out}", soft_wrap=True)


@contextmanager
def _told(done: str) -> Iterator["Callable[[Progress], None]"]:
    """Where modules of the current directory can be named, and a stopped run says how to go on: a function to be told of progress."""
    from crag_middleware.evals.show import progress

    name_own_modules()
    with stoppable("the same command with --resume goes on"), progress(console(stderr=True), done) as tell:
        yield tell


def _print(report: "ReportT", show: "Callable[[ReportT, Console], None]", folder: Path, *, as_json: bool) -> None:
    """The report of a run, and where the rest of it is."""
    if as_json:
        typer.echo(report.to_json(), nl=False)
        return
    show(report, console())
    console().print(f"more in {folder / 'report.html'} and report.json", soft_wrap=True)


def _folder(out: Path | None, name: str) -> Path:
    return out or Path("crag-eval") / name.replace(":", "-")
