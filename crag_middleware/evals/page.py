"""The report as one HTML page that needs nothing else: no script, no font, no address."""

from collections.abc import Iterable, Sequence
from html import escape

from crag_middleware.evals import plots
from crag_middleware.evals.measures import MEASURES
from crag_middleware.evals.report import Report, SetReport
from crag_middleware.evals.statistics import BINS, Estimate

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2024; --soft: #5c6570; --line: #d9dde2; --ground: #ffffff; --note: #fff6e0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #a0a9b3; --line: #39424c; --ground: #14181c; --note: #33290f; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .25rem; border-top: 1px solid var(--line); padding-top: 1.25rem; }
p { margin: .3rem 0; } .soft { color: var(--soft); } .warning { background: var(--note); padding: .4rem .7rem; border-radius: .3rem; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: right; padding: .25rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; } th:first-child, td:first-child, .words { text-align: left; }
td { white-space: nowrap; } td.words { color: var(--soft); white-space: normal; min-width: 18rem; }
.scroll { overflow-x: auto; } .plots { display: flex; flex-wrap: wrap; gap: 1rem 2rem; align-items: flex-start; }
figure { margin: 0; max-width: 100%; } figure svg { max-width: 100%; height: auto; } figcaption { font-size: .85rem; color: var(--soft); max-width: 18rem; }
"""

_SUMMARY = (
    "passage_auc",
    "passage_relevant_accuracy",
    "passage_incorrect_accuracy",
    "passage_ece",
    "turn_relevant_accuracy",
    "turn_largest_share",
)


def render(report: Report) -> str:
    """The page."""
    key, calibration = report.evaluator, report.scale.calibration
    facts = [key.evaluator, f"model {key.model}" if key.model else "", f"prompt {key.prompt}" if key.prompt else ""]
    cuts = report.scale.thresholds
    fitted = f"a calibration fitted on {calibration.fitted_on}" if calibration else "no calibration: the evaluator's own numbers"
    parts = [
        _p("Relevance report", tag="h1"),
        _p(", ".join(filter(None, facts))),
        _p(
            f"Probabilities went through {fitted}. A passage is relevant above {cuts.upper:g}, incorrect below {cuts.lower:g}, else ambiguous."
        ),
        _p("Only passages that don't answer were shown to the evaluator.", "warning") if report.negatives_only else "",
        _p(
            f"In brackets: {report.level:.0%} bootstrap intervals over questions, {report.resamples} resamples. "
            "Sets and languages are never pooled. A dash: undefined, as it needs both kinds of cases.",
            "soft",
        ),
        _summary(report) if len(report.sets) > 1 else "",
        *(_set(one, report) for one in report.sets),
    ]
    body = "\n".join(filter(None, parts))
    title = escape(f"Relevance report: {key.evaluator}")
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title><style>{_STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body><main>\n{body}\n</main></body></html>\n'


def brief(value: Estimate | None) -> str:
    """An estimate with its interval, for a table."""
    if value is None:
        return "–"
    return f"{value.value:.2f}" if value.low is None else f"{value.value:.2f} [{value.low:.2f}, {value.high:.2f}]"


def _summary(report: Report) -> str:
    titles = {measure.name: measure.title for measure in MEASURES}
    rows = ([f"{one.source} ({one.lang})", str(one.questions), *(brief(one.measures[name]) for name in _SUMMARY)] for one in report.sets)
    return _table("All sets", ["Set", "Questions", *(titles[name] for name in _SUMMARY)], rows)


def _set(one: SetReport, report: Report) -> str:
    failed = ", ".join(f"{n} with {reason}" for reason, n in one.failed.items())
    passages = {"relevant": one.relevant, "incorrect": one.incorrect, "without a label": one.unlabelled, "not graded": one.ungraded}
    about = (
        f"{one.questions} questions: {one.answerable} answerable, {one.unanswerable} unanswerable, "
        f"{one.questions - one.answerable - one.unanswerable} unknown. Passages: {', '.join(f'{n} {kind}' for kind, n in passages.items() if n)}."
    )
    each = max(one.questions, 1)
    cost = (
        f"Cost: {one.seconds:.1f} s ({one.seconds / each:.2f} s a question), {one.calls} model calls ({one.calls / each:.1f} a question), "
        f"{one.input_tokens} tokens read, {one.output_tokens} written."
    )
    drawn = (
        (
            plots.reliability(one),
            f"Reliability: on the dotted line a probability means what it says. {BINS} bins; larger dots hold more passages.",
        ),
        (plots.histogram(one, report.scale.thresholds), "Probabilities by label. Dashed: the thresholds."),
        (
            plots.verdicts(one),
            "Verdicts: all passages, and only those known not to answer (negatives); by the paper's rule and, where fitted, by the set's.",
        ),
    )
    figures = "".join(f"<figure>{svg}<figcaption>{escape(caption)}</figcaption></figure>" for svg, caption in drawn)
    better = {"higher": "↑", "lower": "↓"}
    rows = [[f"{m.title} {better[m.better]}", brief(one.measures[m.name]), m.meaning] for m in MEASURES if _shown(m.name, one)]
    return "\n".join(
        (
            _p(f"{one.source} ({one.lang})", tag="h2"),
            _p(about),
            _p(f"{sum(one.failed.values())} questions failed and are left out: {failed}.", "warning") if one.failed else "",
            *(_p(warning, "warning") for warning in one.warnings),
            f'<div class="plots">{figures}</div>',
            _table("Measures; the arrow shows which way is better", ["Measure", "Value", "What it is"], rows, words=2),
            _p(cost, "soft"),
        )
    )


def _shown(name: str, one: SetReport) -> bool:
    """The measures of the set rule only where there is one."""
    return not name.startswith("set_") or "set" in one.verdicts


def _p(text: str, kind: str = "", *, tag: str = "p") -> str:
    return f"<{tag}{f' class={kind!r}' if kind else ''}>{escape(text)}</{tag}>"


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, words: int = -1) -> str:
    """A table whose first column names the row; the column `words` holds sentences."""
    top = "".join(f'<th scope="col"{_words(n == words)}>{escape(cell)}</th>' for n, cell in enumerate(head))
    lines = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td{_words(n == words)}>{escape(cell)}</td>" for n, cell in enumerate(row[1:], 1))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll"><table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'
    )


def _words(yes: bool) -> str:
    return ' class="words"' if yes else ""
