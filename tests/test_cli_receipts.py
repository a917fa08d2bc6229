"""`crag explain` and `crag replay`: saved receipts told, asked what would have changed their verdict, and tried against today's settings."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from crag_middleware import CRAGSettings, LocalEmbeddings, cli, open_knowledge
from crag_middleware.calibration import Calibration, PlattMap, SetMap
from crag_middleware.errors import ConfigError
from crag_middleware.findings import Evidence, Trouble
from crag_middleware.receipt import record, shadowed
from crag_middleware.replay import because, own_texts, read_receipts, replay, told
from crag_middleware.stages.decide import decide, label
from crag_middleware.tenancy import digest
from crag_middleware.testing import ScriptedEvaluator
from crag_middleware.types import Grade, Graded, Passage, Question, Thresholds

ROOT = Path(__file__).resolve().parent.parent
QUESTION = "Within how many days are refunds possible?"
TEXTS = ["Refunds are possible within 30 days of delivery.", "The frame has a warranty of 5 years."]
CUTS = Thresholds(0.3, 0.7)


def receipt(*probabilities: float | None, cuts: Thresholds = CUTS, detail: Any = "injected", **more: Any) -> dict[str, Any]:
    """That of a turn with passages of these probabilities."""
    grades = [label(Grade(f"p{n}", p, "ungraded"), cuts) for n, p in enumerate(probabilities)]
    passages = [Passage(id=g.passage_id, text=f"Text {g.passage_id}.", title=f"Title {g.passage_id}") for g in grades]
    evidence = Evidence(
        question=Question(text="q"),
        query="q",
        status="grounded",
        verdict=decide(grades),
        rule="paper",
        graded=tuple(Graded(passage=p, grade=g) for p, g in zip(passages, grades, strict=True)),
    )
    return record(replace(evidence, **more), name="CRAGMiddleware", detail=detail)


def saved(value: Mapping[str, Any]) -> Any:
    (one,) = read_receipts(json.dumps(value), origin="a test")
    return one


def crag(*arguments: object, lines: str | None = None) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments], input=lines)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the knowledge of two tenants, and a receipt of the first."""
    folder = tmp_path_factory.mktemp("base")
    knowledge = open_knowledge(folder / "knowledge.db", LocalEmbeddings())
    knowledge.add_texts(TEXTS, [{"title": "Refunds"}, {"title": "Warranty"}], ids=["r", "w"], agent_id="support")
    knowledge.add_texts(["Of the other tenant: 4711."], ids=["x"], agent_id="other")
    (folder / "grader.py").write_text(
        "from crag_middleware.testing import ScriptedEvaluator\nlow = ScriptedEvaluator({'r': 0.1}, otherwise=0.05)\n"
    )
    return folder


@pytest.fixture(autouse=True)
def here(base: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(base)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "grader", raising=False)
    for name in ("CRAG_URI", "CRAG_TOKEN", "CRAG_MODEL", "DEEPSEEK_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    (base / "kept.jsonl").unlink(missing_ok=True)
    return base


_KEPT: list[str] = []


@pytest.fixture
def kept(here: Path) -> str:
    """The file of a real receipt, for which one turn serves all tests."""
    if not _KEPT:
        assert crag("ask", QUESTION, "-a", "support", "--model", "quoting", "--receipts", "kept.jsonl").exit_code == 0
        _KEPT.append((here / "kept.jsonl").read_text())
    (here / "kept.jsonl").write_text(_KEPT[0])
    return "kept.jsonl"


def test_a_saved_receipt_is_told_with_what_would_have_changed_it(kept: str) -> None:
    explained = crag("explain", kept)

    assert explained.exit_code == 0, explained.output
    lines = explained.stdout.splitlines()
    assert lines[0] == "verdict    relevant: evidence from the knowledge"
    for begin in (
        "because    1 passage above 0.693: Refunds (0.",
        "thresholds 0.188 and 0.693, by the calibration",
        "ambiguous  if Refunds (0.",
    ):
        assert [line for line in lines if line.startswith(begin)], begin


def test_what_ask_prints_as_json_can_be_piped_into_explain_and_replay() -> None:
    printed = crag("ask", QUESTION, "-a", "support", "--model", "quoting", "--json").stdout

    assert crag("explain", "-", lines=printed).stdout.startswith("verdict    relevant")
    assert crag("replay", "-a", "support", lines=printed).exit_code == 0


def test_explain_as_json_holds_the_thresholds_and_the_turnings(kept: str) -> None:
    (why,) = json.loads(crag("explain", kept, "--json").stdout)

    assert (why["verdict"], why["known_from"], why["upper"]["at_least"]) == ("relevant", "calibration", pytest.approx(0.693, abs=0.001))
    assert [turning["to"] for turning in why["turnings"]] == ["ambiguous", "incorrect"]
    assert why["told"][0].startswith("verdict")


@given(st.lists(st.floats(0, 1), max_size=6), st.floats(0, 1), st.floats(0, 1))
def test_doing_what_a_turning_says_gives_its_verdict(probabilities: list[float], one: float, other: float) -> None:
    cuts = Thresholds(min(one, other), max(one, other))
    value = receipt(*probabilities, cuts=cuts)

    found = because(saved(value), thresholds=cuts)

    assert (found.verdict, found.known_from) == (value["verdict"], "given")
    assert found.grounds != "the verdict does not follow from the labels: the receipt was changed, or it is not whole"
    known = {p["id"]: p["probability"] for p in value["passages"]}
    for turning in found.turnings:
        to = {"relevant": cuts.upper + 1e-9, "incorrect": cuts.lower - 1e-9}.get(turning.to)
        if to is None:
            to = cuts.upper if found.verdict == "relevant" else cuts.lower
        moved = known | dict.fromkeys(turning.passages, to)
        assert decide([label(Grade(id_, p, "ungraded"), cuts) for id_, p in moved.items()]) == turning.to


@given(st.lists(st.floats(0, 1), max_size=6))
def test_thresholds_that_nobody_tells_lie_within_what_the_labels_allow(probabilities: list[float]) -> None:
    found = because(saved(receipt(*probabilities)))

    assert found.known_from == "labels"
    assert found.lower is not None
    assert found.upper is not None
    assert found.lower.at_least <= CUTS.lower <= found.lower.at_most
    assert found.upper.at_least <= CUTS.upper <= found.upper.at_most


def test_thresholds_that_were_not_in_force_are_refused() -> None:
    with pytest.raises(ConfigError, match="were not in force"):
        because(saved(receipt(0.8)), thresholds=Thresholds(0.1, 0.9))


def test_a_fallback_a_rung_and_a_failed_step_say_what_they_did_to_the_verdict() -> None:
    troubles = (Trouble("grade", "timeout"), Trouble("retrieve:sparse", "timeout"))
    value = receipt(0.8, None, troubles=troubles, rungs=("cheap_evaluator", "no_web"), notes=("budget_spent",), rule="set", sufficiency=0.1)

    found = because(saved(value))

    assert (
        found.grounds == "1 passage above a threshold within 0.000..0.800: Title p0 (0.800)"
    )  # by the paper's rule, as the fallback decides
    assert [effect.split(": ")[0].split(",")[0] for effect in found.effects] == [
        "grade failed (timeout)",
        "retrieve:sparse failed (timeout)",
        "the fallback evaluator graded",
        "the web was left out",
        "the budget for model calls was spent",
    ]


def test_the_rule_set_is_told_with_the_thresholds_of_its_calibration() -> None:
    sets = SetMap(offset=0, weights=(1, 0, 0), thresholds=(0.2, 0.6))
    calibration = Calibration(
        evaluator="E", map=PlattMap(slope=1, offset=0), thresholds=(0.3, 0.7), sets=sets, fitted_on="x", pairs=1, questions=1
    )
    value = receipt(0.4, verdict="ambiguous", rule="set", sufficiency=0.4, calibration=calibration.described)

    found = because(saved(value), calibrations=[calibration])
    unknown = because(saved(value))

    assert found.grounds == "the passages together answer with probability 0.400; the thresholds are 0.200 and 0.600"
    assert [t.to for t in found.turnings] == ["relevant", "incorrect"]
    assert unknown.grounds.endswith("the thresholds of that calibration are not known here")


def test_a_skipped_turn_and_a_failed_search_have_no_verdict_to_explain() -> None:
    skipped = record(Evidence(question=Question(text="hi", skip="greeting"), status="skipped"), name="x", detail="injected")
    failed = receipt(verdict=None, status="retrieval_failed", troubles=(Trouble("retrieve", "timeout"),))

    assert because(saved(skipped)).grounds == "no verdict: nothing was looked up"
    assert because(saved(failed)).grounds == "no verdict: the knowledge could not be searched"
    with pytest.raises(ConfigError, match="nothing to replay"):
        replay(saved(failed), {}, agent_id="a", evaluator=ScriptedEvaluator({}))


def test_a_verdict_that_the_labels_do_not_give_is_told() -> None:
    assert because(saved(receipt(0.1) | {"verdict": "relevant"})).grounds.startswith("the verdict does not follow from the labels")


def test_the_same_settings_give_the_same_grades_and_exit_code_0(kept: str) -> None:
    replayed = crag("replay", kept, "-a", "support")

    assert replayed.exit_code == 0, replayed.output
    assert replayed.stdout.startswith("verdict: relevant, now the same\nthresholds now: 0.188 and 0.693\n")


def test_other_settings_or_another_evaluator_show_their_differences_and_exit_code_1(here: Path, kept: str) -> None:
    (here / "strict.json").write_text('{"upper": 0.99}')

    strict = crag("replay", kept, "-a", "support", "--settings", "strict.json")
    low = crag("replay", kept, "-a", "support", "--evaluator", "grader:low", "--json")

    assert (strict.exit_code, strict.stdout.splitlines()[0]) == (1, "verdict: relevant, now ambiguous")
    (found,) = json.loads(low.stdout)
    assert (low.exit_code, found["verdict_now"], found["thresholds_now"]) == (1, "incorrect", [0.5, 0.9])
    assert {p["id"]: p["probability_now"] for p in found["passages"]} == {"r": 0.1, "w": 0.05}


def test_another_tenant_sees_none_of_the_passages(kept: str) -> None:
    replayed = crag("replay", kept, "-a", "other", "--json")

    (found,) = json.loads(replayed.stdout)
    assert (replayed.exit_code, found["verdict_now"], {p["text"] for p in found["passages"]}) == (1, "incorrect", {"gone"})


def test_a_foreign_id_put_into_a_receipt_brings_nothing_of_the_other_tenant(here: Path, kept: str) -> None:
    value = json.loads((here / kept).read_text())
    value["passages"][0]["id"] = "x"
    (here / kept).write_text(json.dumps(value))

    replayed = crag("replay", kept, "-a", "support", "--json")

    assert json.loads(replayed.stdout)[0]["passages"][0]["text"] == "gone"
    assert "4711" not in replayed.output


def test_a_receipt_of_shadow_mode_is_replayed_as_its_own_tenant_only(here: Path, kept: str) -> None:
    (here / kept).write_text(json.dumps(shadowed(json.loads((here / kept).read_text()), tenant=digest("support"))))

    assert crag("replay", kept, "-a", "support").exit_code == 0
    refused = crag("replay", kept, "-a", "other")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "of another tenant" in refused.stderr


def test_a_changed_document_is_told(here: Path, kept: str) -> None:
    value = json.loads((here / kept).read_text())
    (source,) = [s for s in value["sources"] if s["id"] == "r"]
    source["strips"][0]["text"] = "Refunds were possible within 14 days of delivery"
    (here / kept).write_text(json.dumps(value))

    (found,) = json.loads(crag("replay", kept, "-a", "support", "--json").stdout)

    assert {p["id"]: p["text"] for p in found["passages"]} == {"r": "changed", "w": "same"}


def test_a_receipt_of_full_detail_needs_no_knowledge() -> None:
    full = receipt(0.8, 0.2, detail="full")

    found = replay(saved(full), own_texts(saved(full)), agent_id="a", evaluator=ScriptedEvaluator({"p0": 0.2}, otherwise=0.1))

    assert (found.verdict, found.verdict_now, found.differs) == ("relevant", "incorrect", True)
    assert [(p.text, p.label, p.label_now) for p in found.passages] == [
        ("same", "relevant", "incorrect"),
        ("same", "incorrect", "incorrect"),
    ]
    with pytest.raises(ConfigError, match="holds no texts"):
        own_texts(saved(receipt(0.8)))


def test_an_evaluator_that_fails_leaves_the_passages_ungraded_and_says_so() -> None:
    class Broken:
        def grade(self, question: str, passages: Any) -> Any:
            raise RuntimeError("private")

    full = receipt(0.8, detail="full")
    found = replay(saved(full), own_texts(saved(full)), agent_id="a", evaluator=Broken(), settings=CRAGSettings(neighbours=1))

    assert (found.verdict_now, [p.label_now for p in found.passages]) == ("ambiguous", ["ungraded"])
    assert [(t.step, t.reason) for t in found.troubles] == [("grade", "RuntimeError")]


def test_several_receipts_are_told_one_after_the_other() -> None:
    lines = "\n".join(json.dumps(receipt(p)) for p in (0.8, 0.5))

    explained = crag("explain", lines=lines)

    assert explained.stdout.count("\n\n") == 1
    assert [line for line in explained.stdout.splitlines() if line.startswith("because")][1].startswith("because    no passage is above")
    assert crag("explain", lines=json.dumps([receipt(0.8)])).exit_code == 0
    assert crag("explain", lines=json.dumps({"messages": [], "crag": receipt(0.8)})).exit_code == 0


@pytest.mark.parametrize(
    ("content", "told_"),
    [
        ("", "there is no receipt in standard input"),
        ("[]", "there is no receipt in standard input"),
        ("{", "standard input, line 1: no JSON"),
        ("[" * 100_000, "too deep"),
        ("5", "receipt 1: no receipt of schema 1, there is no `schema`"),
        ('{"schema": 2}', "no receipt of schema 1, got schema 2"),
        ('{"schema": true}', "no receipt of schema 1"),
        ('{"schema": 1}', "`status`: Field required"),
        ('{"schema": 1, "status": "grounded"}', "the receipt can't be told (KeyError)"),
        (
            '{"schema": 1, "status": "grounded", "passages": [{"id": "secret", "origin": "web", "label": "good"}]}',
            "`passages.0.label`: Input should be",
        ),
        ('{"schema": 1, "status": "grounded", "sufficiency": NaN}', "`sufficiency`"),
    ],
)
def test_what_is_no_receipt_is_one_line_and_exit_code_2(content: str, told_: str) -> None:
    for command in ("explain", "replay"):
        result = crag(command, lines=content)
        assert (result.exit_code, result.stdout) == (2, "")
        (line,) = result.stderr.splitlines()[-1:]
        assert told_ in line or (command == "replay" and "can't be told" in told_)
        assert "secret" not in line


@given(
    st.dictionaries(
        st.sampled_from([*receipt(0.8)]), st.none() | st.integers() | st.text(max_size=3) | st.lists(st.integers(), max_size=2), min_size=1
    )
)
def test_a_damaged_receipt_is_our_error_or_told(damage: dict[str, Any]) -> None:
    try:
        for one in read_receipts(json.dumps(receipt(0.8, 0.1) | damage), origin="a test"):
            told(one)
            because(one)
    except ConfigError:
        pass


def test_a_reader_that_goes_away_is_no_traceback(here: Path) -> None:
    """`crag explain FILE | head -1`, as real processes."""
    (here / "many.jsonl").write_text("\n".join(json.dumps(receipt(0.8)) for _ in range(2000)))
    command = f"{sys.executable} -m crag_middleware.cli explain many.jsonl | head -1"

    result = subprocess.run(
        command, shell=True, cwd=here, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=100
    )

    assert (result.stdout.count("\n"), result.stderr) == (1, "")
