"""The report as one HTML page."""

from crag_middleware.evals import plots
from crag_middleware.evals.html import brief, document, figures, paragraph, table
from crag_middleware.evals.measures import MEASURES
from crag_middleware.evals.report import Report, SetReport
from crag_middleware.evals.statistics import BINS

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
        paragraph("Relevance report", tag="h1"),
        paragraph(", ".join(filter(None, facts))),
        paragraph(
            f"Probabilities went through {fitted}. A passage is relevant above {cuts.upper:g}, incorrect below {cuts.lower:g}, else ambiguous."
        ),
        paragraph("Only passages that don't answer were shown to the evaluator.", "warning") if report.negatives_only else "",
        paragraph(
            f"In brackets: {report.level:.0%} bootstrap intervals over questions, {report.resamples} resamples. "
            "Sets and languages are never pooled. A dash: undefined, as it needs both kinds of cases.",
            "soft",
        ),
        _summary(report) if len(report.sets) > 1 else "",
        *(_set(one, report) for one in report.sets),
    ]
    return document(f"Relevance report: {key.evaluator}", parts)


def _summary(report: Report) -> str:
    titles = {measure.name: measure.title for measure in MEASURES}
    rows = ([one.name, str(one.questions), *(brief(one.measures[measure]) for measure in _SUMMARY)] for one in report.sets)
    return table("All sets", ["Set", "Questions", *(titles[measure] for measure in _SUMMARY)], rows)


def _set(one: SetReport, report: Report) -> str:
    passages = {"relevant": one.relevant, "incorrect": one.incorrect, "without a label": one.unlabelled, "not graded": one.ungraded}
    about = (
        f"{one.questions} questions: {one.answerable} answerable, {one.unanswerable} unanswerable, "
        f"{one.questions - one.answerable - one.unanswerable} unknown. Passages: {', '.join(f'{n} {kind}' for kind, n in passages.items() if n)}."
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
    better = {"higher": "↑", "lower": "↓"}
    rows = [[f"{m.title} {better[m.better]}", brief(one.measures[m.name]), m.meaning] for m in MEASURES if _shown(m.name, one)]
    return "\n".join(
        (
            paragraph(one.name, tag="h2"),
            paragraph(about),
            paragraph(one.left_out, "warning") if one.failed else "",
            *(paragraph(warning, "warning") for warning in one.warnings),
            figures(drawn),
            table("Measures; the arrow shows which way is better", ["Measure", "Value", "What it is"], rows, words=2),
            paragraph(one.cost, "soft"),
        )
    )


def _shown(name: str, one: SetReport) -> bool:
    """The measures of the set rule only where there is one."""
    return not name.startswith("set_") or "set" in one.verdicts
