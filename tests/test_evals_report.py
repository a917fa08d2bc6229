"""Reports: the numbers by data set, the page that shows them, and the comparison of two runs."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from crag_middleware import ConfigError, EmbeddingEvaluator, GradingError, LocalEmbeddings, Thresholds
from crag_middleware.calibration import Calibration, PlattMap, Scale, SetMap
from crag_middleware.evals.compare import compare, read_run
from crag_middleware.evals.datasets import load
from crag_middleware.evals.judge import judge, scale_of
from crag_middleware.evals.measures import MEASURES
from crag_middleware.evals.page import render
from crag_middleware.evals.report import Report, make_report, read_scale
from crag_middleware.evals.rows import Row
from crag_middleware.evals.session import measure
from crag_middleware.testing import ScriptedEvaluator
from crag_middleware.types import EvaluatorKey
from tests.test_evals_datasets import FIXTURE

KEY = EvaluatorKey("ScriptedEvaluator")
SCALE = Scale(Thresholds(0.5, 0.9))
HOSTILE = "<script>alert(1)</script> & \"quoted\" 'set'"


def row(name: str, answerable: bool | None, *cases: tuple[bool | None, float | None], **more: Any) -> Row:
    stated = tuple("ungraded" if p is None else "ambiguous" for _, p in cases)
    facts: dict[str, Any] = {"source": "set", "lang": "en", "weak": False, "seconds": 0.5, "digest": name} | more
    return Row(
        id=name, answerable=answerable, labels=tuple(c[0] for c in cases), probabilities=tuple(c[1] for c in cases), stated=stated, **facts
    )


ROWS = (
    row("a", True, (True, 0.95), (False, 0.3), calls=1, input_tokens=100, output_tokens=7),
    row("b", True, (True, 0.6), (False, 0.92), (None, 0.1)),
    row("c", False, (False, 0.7), (False, 0.2), (False, None)),
    row("d", False, (False, 0.4)),
)


def report_of(rows: Sequence[Row], scale: Scale = SCALE, **more: Any) -> Report:
    return make_report(rows, KEY, scale, **{"resamples": 100, **more})


def calibration(key: EvaluatorKey = KEY, *, sets: bool = True) -> Calibration:
    """Log odds halved, cut at 0.4 and 0.6; a set answers about as well as its best passage."""
    return Calibration(
        evaluator=key.evaluator,
        model=key.model,
        prompt=key.prompt,
        map=PlattMap(slope=0.5, offset=0),
        thresholds=(0.4, 0.6),
        sets=SetMap(offset=0, weights=(1, 0, 0), thresholds=(0.45, 0.55)) if sets else None,
        fitted_on="two made-up pairs",
        pairs=2,
        questions=2,
    )


def test_the_numbers_of_a_small_set_by_hand() -> None:
    """AUC: 0.95 beats all five negatives and 0.6 three of them. Upper cut: one of two found, four of five left out; lower: both found, three left out.
    Verdicts: relevant, relevant, ambiguous (one passage is ungraded), incorrect.
    """
    (one,) = report_of(ROWS).sets

    found = {name: estimate.value for name, estimate in one.measures.items() if estimate is not None}
    assert found["passage_auc"] == pytest.approx((5 + 3) / 10)
    assert found["passage_relevant_accuracy"] == pytest.approx((1 / 2 + 4 / 5) / 2)
    assert found["passage_incorrect_accuracy"] == pytest.approx((2 / 2 + 3 / 5) / 2)
    assert found["passage_relevant_f1"] == pytest.approx((2 / 4 + 8 / 10) / 2)
    assert found["passage_incorrect_f1"] == pytest.approx((4 / 6 + 6 / 8) / 2)
    assert found["passage_ece"] == pytest.approx((abs(0.05 - 0.92) + 0.4 + 0.3 + 0.7 + 0.2 + 0.4) / 7)
    assert found["false_passages"] == pytest.approx(1 / 6)
    assert found["turn_auc"] == pytest.approx(1)
    assert found["turn_relevant_accuracy"] == pytest.approx(1)
    assert found["turn_incorrect_accuracy"] == pytest.approx(3 / 4)
    assert found["turn_largest_share"] == pytest.approx(1 / 2)
    assert found["false_turns"] == pytest.approx(1 / 4)
    assert not any(name.startswith("set_") for name in found)
    assert one.verdicts == {
        "paper": {"relevant": 2, "ambiguous": 1, "incorrect": 1},
        "paper_negatives": {"relevant": 1, "ambiguous": 1, "incorrect": 2},
    }
    assert (one.questions, one.answerable, one.unanswerable) == (4, 2, 2)
    assert (one.relevant, one.incorrect, one.unlabelled, one.ungraded) == (2, 6, 1, 1)
    assert (one.calls, one.input_tokens, one.output_tokens, one.seconds) == (1, 100, 7, 2.0)
    assert sum(point.passages for point in one.reliability) == 7
    assert (sum(one.histogram["relevant"]), sum(one.histogram["incorrect"])) == (2, 5)


def test_a_calibration_maps_the_numbers_first_and_brings_its_own_cuts() -> None:
    """0.95 becomes 0.81, 0.6 becomes 0.55 and so ambiguous; the set's upper cut at 0.55 leaves that out, too."""
    scale = scale_of(ScriptedEvaluator(), calibration())

    judged = judge(row("x", True, (True, 0.95), (False, 0.6)), scale)
    (one,) = report_of(ROWS, scale).sets

    assert [g.probability for g in judged.grades] == pytest.approx([0.8134, 0.5505], abs=1e-4)
    assert [g.label for g in judged.grades] == ["relevant", "ambiguous"]
    assert (judged.ruling.verdict, judged.ruling.by_set) == ("relevant", "relevant")
    assert judged.ruling.together == pytest.approx(0.8134, abs=1e-4)
    assert all(one.measures[measure.name] is not None for measure in MEASURES)
    assert one.verdicts.keys() == {"paper", "paper_negatives", "set", "set_negatives"}
    with pytest.raises(ConfigError, match="fitted to Other"):
        scale_of(ScriptedEvaluator(), calibration(EvaluatorKey("Other")))


def test_data_sets_and_languages_are_never_pooled_and_weak_labels_stay_apart() -> None:
    rows = [replace(r, lang=lang, weak=weak) for r in ROWS for lang, weak in (("en", False), ("zh", False), ("en", True))]

    sets = report_of(rows).sets

    assert [(s.lang, s.weak, s.questions) for s in sets] == [("en", False, 4), ("zh", False, 4), ("en", True, 4)]
    assert sets[0].measures == sets[1].measures
    assert any("weak" in warning for warning in sets[2].warnings)


def test_a_set_with_less_than_a_fifth_unanswerable_is_warned_about() -> None:
    few, enough = ([row(f"y{n}", True, (True, 0.9)) for n in range(yes)] + [row("n", False, (False, 0.1))] for yes in (5, 4))

    assert "Only 17% of its questions are unanswerable" in report_of(few).sets[0].warnings[0]
    assert report_of(enough).sets[0].warnings == ()
    assert "None of its questions" in report_of(ROWS[:2]).sets[0].warnings[0]
    assert report_of([row("u", None, (None, 0.5))]).sets[0].warnings == ("Nobody said which of its questions are answerable.",)
    assert report_of(few, negatives_only=True).sets[0].warnings == ()


def test_failed_questions_are_counted_and_left_out_of_the_numbers() -> None:
    failed = replace(row("f", True, (True, 0.1)), probabilities=(), stated=(), error="timeout")

    (one,) = report_of([*ROWS, failed]).sets

    assert (one.questions, one.failed) == (5, {"timeout": 1})
    assert one.measures["passage_auc"] == report_of(ROWS).sets[0].measures["passage_auc"]


@pytest.mark.parametrize(
    "rows",
    [
        [replace(ROWS[0], probabilities=(), stated=(), error="timeout")],
        [row("u", None, (None, 0.5))],
        [row("n", False, (False, None))],
        [row("y", True, (True, 1.0))],
        [row("n", False, (False, 0.0), (False, 1.0))],
    ],
    ids=["all-failed", "unlabelled", "ungraded", "relevant-only", "incorrect-only"],
)
def test_what_can_not_be_told_is_a_dash_and_no_error(rows: list[Row]) -> None:
    report = report_of(rows)

    assert report.sets[0].measures["passage_auc"] is None
    assert "–" in render(report)
    json.loads(report.to_json(), parse_constant=lambda name: pytest.fail(name))


class Page(HTMLParser):
    """What a browser would make of a page: tags, attributes, text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_escapes_every_name_and_needs_nothing_from_elsewhere() -> None:
    rows = [replace(r, source=HOSTILE, lang="<b>") for r in ROWS]
    failed = replace(rows[0], id="f", error="<i>x</i>", probabilities=(), stated=())
    key = EvaluatorKey(HOSTILE, "<img src=x>", "<u>")
    fitted = calibration(key).model_copy(update={"fitted_on": "<em>data</em>"})

    html = render(make_report([*rows, failed], key, Scale(fitted.cuts, fitted), resamples=50))

    page = Page(html)
    assert not {"script", "img", "b", "i", "u", "em", "link", "iframe"} & {tag for tag, _ in page.tags}
    assert page.open == []
    assert f"{HOSTILE} (<b>)" in page.text
    assert "<em>data</em>" in page.text
    assert "1 with <i>x</i>" in page.text
    outside = set(re.findall(r"(?:https?:)?//[^\s\"'<>]+", html))
    assert outside <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "srcset", "action")]


def test_every_plot_says_in_words_what_it_shows() -> None:
    page = Page(render(report_of(ROWS, scale_of(ScriptedEvaluator(), calibration()))))

    drawn = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert [attributes["role"] for attributes in drawn] == ["img"] * 3
    texts = [attributes["aria-label"] or "" for attributes in drawn]
    assert "Reliability diagram of set (en)" in texts[0]
    assert "thresholds at 0.4 and 0.6" in texts[1]
    assert "negatives: 2 relevant, 1 ambiguous, 1 incorrect" in texts[2]


def test_the_report_of_a_real_run_on_the_public_questions(tmp_path: Path) -> None:
    report = measure([FIXTURE], EmbeddingEvaluator(LocalEmbeddings()), folder=tmp_path / "run", limit=2)

    assert {p.name for p in (tmp_path / "run").iterdir()} == {"rows.jsonl", "report.json", "report.html"}
    assert {(s.source, s.lang) for s in report.sets} == {(i.source, i.lang) for i in load([FIXTURE])}
    found = json.loads((tmp_path / "run" / "report.json").read_text())
    assert found["evaluator"]["evaluator"] == "EmbeddingEvaluator"
    assert [s["questions"] for s in found["sets"]] == [2] * 5
    assert all(s["calls"] == 0 for s in found["sets"])
    assert read_scale(tmp_path / "run" / "report.json") == report.scale


def test_a_run_on_negatives_shows_the_evaluator_nothing_else(tmp_path: Path) -> None:
    evaluator = ScriptedEvaluator(otherwise=0.95)

    report = measure([FIXTURE], evaluator, folder=tmp_path, limit=5, languages=["zh"], negatives_only=True)

    assert {s.relevant for s in report.sets} == {0}
    assert {s.measures["false_turns"].value for s in report.sets if s.measures["false_turns"]} == {1.0}
    assert report.negatives_only
    assert "Only passages that don" in (tmp_path / "report.html").read_text()


def test_a_run_in_which_everything_failed_is_an_error_and_can_go_on(tmp_path: Path) -> None:
    failing = ScriptedEvaluator(error=GradingError("no", reason="unauthorized"))

    with pytest.raises(GradingError, match="not one of 2 questions could be graded: 2 times unauthorized"):
        measure([FIXTURE], failing, folder=tmp_path, limit=1, languages=["en"])
    assert not (tmp_path / "report.json").exists()
    report = measure([FIXTURE], ScriptedEvaluator(), folder=tmp_path, limit=1, languages=["en"], resume=True)
    assert [s.failed for s in report.sets] == [{}] * 2


def finished(folder: Path, evaluator: ScriptedEvaluator, **more: Any) -> Path:
    measure([FIXTURE], evaluator, folder=folder, limit=12, languages=["en"], **more)
    return folder


def test_two_runs_are_compared_question_by_question(tmp_path: Path) -> None:
    """The first knows nothing; the second ranks the first passage, which is most often the right one, above the rest."""
    blind = finished(tmp_path / "a", ScriptedEvaluator(otherwise=0.7))
    better = finished(tmp_path / "b", ScriptedEvaluator({"1": 0.95}, otherwise=0.2))

    sets = compare(read_run(blind), read_run(better), resamples=300)

    assert {(s.source, s.lang, s.questions) for s in sets} == {("handmade", "en", 12), ("CLAPnq", "en", 12)}
    hand = {c.measure: c for c in sets[0].comparisons}
    assert hand["passage_auc"].first.value == 0.5
    assert hand["passage_auc"].difference.value == pytest.approx(hand["passage_auc"].second.value - 0.5)
    assert hand["passage_auc"].difference.p < 0.05
    assert not any(name.startswith("set_") for name in hand)
    assert all(c.difference.value == 0 and c.difference.p == 1 for s in compare(read_run(blind), read_run(blind)) for c in s.comparisons)


def test_each_run_is_compared_on_its_own_scale(tmp_path: Path) -> None:
    plain = finished(tmp_path / "a", ScriptedEvaluator({"1": 0.95}, otherwise=0.2))
    fitted = finished(tmp_path / "b", ScriptedEvaluator({"1": 0.95}, otherwise=0.2), calibration=calibration())

    first, second = read_run(plain), read_run(fitted)

    assert (first.scale.calibration, second.scale.calibration) == (None, calibration())
    assert compare(first, second, resamples=50)[0].comparisons[0].difference.value == 0


def test_questions_of_one_run_only_are_left_out_and_changed_ones_are_refused(tmp_path: Path) -> None:
    first = read_run(finished(tmp_path / "a", ScriptedEvaluator(otherwise=0.7)))
    names = list(first.rows)
    failed = replace(first.rows[names[0]], probabilities=(), stated=(), error="timeout")
    fewer = replace(first, rows={name: first.rows[name] for name in names[1:]} | {names[0]: failed})
    changed = replace(first, rows=dict(first.rows) | {names[3]: replace(first.rows[names[3]], digest="0")})

    assert compare(first, fewer, resamples=10)[0].questions == 11
    with pytest.raises(ConfigError, match="1 questions differ"):
        compare(first, changed)
    with pytest.raises(ConfigError, match="they share 0"):
        compare(first, replace(first, rows={}))


def test_a_run_without_a_report_is_not_finished(tmp_path: Path) -> None:
    folder = finished(tmp_path / "a", ScriptedEvaluator())
    (folder / "report.json").unlink()

    with pytest.raises(ConfigError, match="finish the run"):
        read_run(folder)
    (folder / "report.json").write_text('{"version": 7}')
    with pytest.raises(ConfigError, match="no report of version 1"):
        read_run(folder)
    with pytest.raises(ConfigError, match="there is no run"):
        read_run(tmp_path / "nowhere")
