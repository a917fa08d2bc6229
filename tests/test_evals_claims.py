"""Claim checkers on labelled claims: data, baselines, runs, report, page, and `crag eval claims`."""

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from crag_middleware import ClaimCheckError, ConfigError, WordClaimChecker, cli
from crag_middleware.evals.claims import ClaimReport, measure_claims
from crag_middleware.evals.claims.baselines import BASELINES
from crag_middleware.evals.claims.items import ClaimItem, load_claims
from crag_middleware.evals.claims.page import render
from crag_middleware.evals.claims.report import CHECKER, claim_numbers, make_claim_report
from crag_middleware.evals.claims.rows import CLAIMS, CheckerRun, ClaimRow
from crag_middleware.evals.claims.run import check_each
from crag_middleware.types import Checked, Claim, Ground
from tests.support.chat_server import serve_chat
from tests.support.claims import checks_each, says_yes
from tests.test_cli import crag
from tests.test_evals_datasets import PRIVATE, write
from tests.test_evals_report import Page

ROOT = Path(__file__).resolve().parent.parent
FIXTURE = ROOT / "examples" / "eval" / "claims.jsonl"
RUN = CheckerRun("Own", "", "", 0.5)
SCORES = {baseline.name: 0.5 for baseline in BASELINES}


def item(claim: str = "The fee is 30 USD.", *grounds: str, name: str = "c1", **keys: Any) -> ClaimItem:
    facts: dict[str, Any] = {"id": name, "lang": "en", "source": "set", "question": "", "claim": claim, "label": "supported"}
    return ClaimItem(**facts | {"grounds": grounds or ("The fee is 30 USD.",)} | keys)


def row(name: str, label: str, probability: float | None, **keys: Any) -> ClaimRow:
    facts: dict[str, Any] = {"id": name, "digest": "d", "source": "set", "lang": "en", "evidence": name, "label": label, "seconds": 0.5}
    return ClaimRow(**facts | {"said": "not_mentioned", "probability": probability, "baselines": SCORES} | keys)


# The command


def test_the_command_prints_a_table_and_writes_the_run(tmp_path: Path) -> None:
    result = crag("eval", "claims", FIXTURE, "--checker", "words", "--out", tmp_path / "run")

    assert result.exit_code == 0, result.output
    found = dict(re.findall(r"^(handmade \(\w\w\)) +(\d+) +0\.\d\d \[0\.\d\d, 0\.\d\d\](?: +0\.\d\d){7}$", result.stdout, re.MULTILINE))
    assert found == {"handmade (en)": "48", "handmade (zh)": "42"}
    assert max(map(len, result.stdout.splitlines())) <= cli.WIDTH
    assert "WordClaimChecker with the threshold 0.5" in result.stdout
    assert "partially_supported and generic count as not supported" in " ".join(result.stdout.split())
    assert result.stderr.splitlines()[-1] == "checked 90 of 90"
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["report.html", "report.json", "rows.jsonl"]


OWN = """
class Own:
    def check(self, claims, grounds):
        return WordClaimChecker().check(claims, grounds)

class Stopped(Own):
    asked = 0
    def check(self, claims, grounds):
        Stopped.asked += 1
        if Stopped.asked > 1: raise KeyboardInterrupt
        return super().check(claims, grounds)

nothing = 5
from crag_middleware import WordClaimChecker
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, with checkers of one's own in `own_checker.py`."""
    (tmp_path / "own_checker.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_checker", raising=False)
    return tmp_path


def test_a_checker_of_ones_own_is_measured_where_nothing_else_is_said(here: Path) -> None:
    result = crag("eval", "claims", FIXTURE, "-c", "own_checker:Own", "--limit", 3)

    assert result.exit_code == 0, result.output
    told = json.loads((here / "crag-eval" / "claims-own_checker-Own" / "report.json").read_text())
    assert (told["checker"], told["threshold"], [s["questions"] for s in told["sets"]]) == ("Own", 0.5, [3, 3])


def test_a_stopped_run_says_how_to_go_on_and_goes_on(here: Path) -> None:
    command = ("eval", "claims", FIXTURE, "-c", "own_checker:Stopped", "--limit", 2, "--out", "run")

    stopped = crag(*command)
    again = crag("eval", "claims", FIXTURE, "-c", "own_checker:Own", "--limit", 2, "--out", "run", "--resume")

    assert stopped.stderr.splitlines()[-1] == "crag: stopped; the same command with --resume goes on"
    assert len((here / "run" / "rows.jsonl").read_text().splitlines()) == 2
    assert "holds rows of Stopped with the threshold 0.5, and this is Own with the threshold 0.5" in again.stderr


@pytest.mark.parametrize("checker", ["chat", "token"])
def test_a_chat_model_on_ones_own_server_is_measured_with_its_calls(here: Path, monkeypatch: pytest.MonkeyPatch, checker: str) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "none")
    data = write(here / "claims.jsonl", line("It is warm."), line("It is cold.", label="contradicted"))

    with serve_chat(replies=[checks_each], tokens=says_yes) as server:
        model = ("--model", "deepseek:deepseek-flash", "--base-url", server.url)
        result = crag("eval", "claims", data, "-c", checker, *model, "--out", "run")

    assert result.exit_code == 0, result.output
    (found,) = json.loads((here / "run" / "report.json").read_text())["sets"]
    assert (found["calls"], found["numbers"]["auc"]["value"]) == (2, 1)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.jsonl"], "the data 'missing.jsonl' can't be read"),
        ([FIXTURE, "-c", "word"], "there is no claim checker 'word'; there are words, chat, token"),
        ([FIXTURE, "-c", "own_checker:nothing"], "a port needs a method `check` or `acheck`, got an object of type int"),
        ([FIXTURE, "-c", "words", "--model", "openai:x"], "means nothing to the claim checker 'words'; it is for chat, token"),
        ([FIXTURE, "--languages", "fr"], "no question is in the language 'fr'"),
        ([FIXTURE.parent / "relevance.jsonl"], "no known kind of question, got an object with"),
        ([FIXTURE, "--resume"], "there is no run at"),
    ],
)
def test_input_that_can_not_be_used_is_one_line_and_exit_code_2(here: Path, arguments: list[object], said: str) -> None:
    result = crag("eval", "claims", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    (told,) = result.stderr.splitlines()
    assert told.startswith("crag: ")
    assert said in told


# The data


def line(claim: str = "It is warm.", **keys: Any) -> dict[str, Any]:
    return {"claim": claim, "context": "It is warm.", "label": "supported"} | keys


def test_every_shape_of_claim_is_read_and_pairs_become_two(tmp_path: Path) -> None:
    path = write(
        tmp_path / "own.jsonl",
        line(),
        {"id": "a", "lang": "en", "source": "s", "claim": "c [2].", "evidence": ["x", "y"], "label": "partially_supported"},
        {"claim": "退款需要七天。", "evidence": [], "label": "generic", "keywords": {"any": 1}},
        line(context=["x", "y"], label="contradicted"),
        {"id": "p", "question": "q?", "context": "x", "right": "Delhi", "hallucinated": "Mumbai", "label": "pair"},
    )

    found = load_claims([path])

    assert [(i.id, i.lang, i.source, i.label, i.grounds) for i in found] == [
        ("own-1", "en", "own", "supported", ("It is warm.",)),
        ("a", "en", "s", "partially_supported", ("x", "y")),
        ("own-3", "zh", "own", "generic", ()),
        ("own-4", "en", "own", "contradicted", ("x", "y")),
        ("p-right", "en", "own", "supported", ("x",)),
        ("p-hallucinated", "en", "own", "not_supported", ("x",)),
    ]
    assert [(i.question, i.claim) for i in found[4:]] == [("q?", "Delhi"), ("q?", "Mumbai")]
    assert found[4].evidence == found[5].evidence
    assert found[1].evidence == found[3].evidence != found[4].evidence


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (line(PRIVATE, label="true"), "`label`"),
        (line(" "), "`claim`"),
        (line(PRIVATE, context=None), "either `context` or `evidence`, a text or a list of texts, is needed"),
        (line(PRIVATE, evidence=["x"]), "either `context` or `evidence`"),
        ({"claim": PRIVATE, "label": "supported"}, "got an object with 'claim', 'label'"),
        ({"right": PRIVATE, "hallucinated": "", "context": "x"}, "`hallucinated`"),
        ({"premise": PRIVATE, "claim": "x", "label": "entailment"}, "no known kind of question"),
        ([PRIVATE], "got a list"),
    ],
)
def test_a_line_that_can_not_be_used_is_one_error_without_its_text(tmp_path: Path, value: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=r"a\.jsonl, line 1: ") as error:
        load_claims([write(tmp_path / "a.jsonl", value)])

    assert said in str(error.value)
    assert PRIVATE not in str(error.value)


def test_the_public_claims_have_three_labels_in_both_languages_and_three_claims_on_each_evidence() -> None:
    found = load_claims([FIXTURE])

    labels = {"supported", "contradicted", "not_mentioned"}
    assert {(i.source, i.lang, i.label) for i in found} == set(product(["handmade"], ["en", "zh"], labels))
    assert 3 * len({i.evidence for i in found}) == len(found) == 90


# The baselines


@pytest.mark.parametrize(
    ("claim", "grounds", "coverage", "with_numbers"),
    [
        ("Cats sleep.", ["Cats sleep. Dogs bark."], 1, 1),
        ("Cats bark.", ["Cats sleep. Dogs bark."], 1, 0.75),
        ("Cats sleep 16 hours [1].", ["Cats sleep for many hours."], 0.75, 0),
        ("猫睡觉。", ["猫睡觉。狗叫。"], 1, 1),
        ("Cats sleep.", [], 0, 0),
        ("!?", ["Cats sleep."], 0, 0),
    ],
)
def test_the_baselines_count_words_and_the_second_wants_numbers(
    claim: str, grounds: list[str], coverage: float, with_numbers: float
) -> None:
    scores = {baseline.name: baseline.score(claim, grounds) for baseline in BASELINES}

    assert scores == {"coverage": pytest.approx(coverage), "with_numbers": pytest.approx(with_numbers)}


# The run


class Told:
    """Says what it is told to of each claim, and remembers what it was asked."""

    threshold = 0.4

    def __init__(self, *said: Checked | BaseException) -> None:
        self.said = list(said)
        self.asked: list[tuple[str, tuple[Ground, ...], str, str]] = []

    def check(self, claims: Sequence[Claim], grounds: Sequence[Ground], *, question: str, agent_id: str) -> list[Checked]:
        (claim,) = claims
        self.asked.append((claim.text, tuple(grounds), question, agent_id))
        said = self.said.pop(0)
        if isinstance(said, BaseException):
            raise said
        return [said]


def timeless(rows: Sequence[ClaimRow]) -> list[ClaimRow]:
    return [replace(one, seconds=0) for one in rows]


def test_claims_on_the_same_evidence_are_checked_one_by_one_and_rows_hold_no_text(tmp_path: Path) -> None:
    checker = Told(Checked("supported", 0.9), Checked("contradicted", 0.1))
    items = [item("secret one", "fact", name="a", question="why?"), item("secret two", "fact", name="b", label="contradicted")]

    rows = check_each(items, checker, path=tmp_path / "rows.jsonl")

    grounds = (Ground("fact", "source", 1),)
    assert checker.asked == [("secret one", grounds, "why?", "crag-eval"), ("secret two", grounds, "", "crag-eval")]
    assert [(r.said, r.probability, r.label) for r in rows] == [("supported", 0.9, "supported"), ("contradicted", 0.1, "contradicted")]
    assert CLAIMS.read(tmp_path / "rows.jsonl") == (CheckerRun("Told", "", "", 0.4), {r.id: r for r in rows})
    assert not [word for word in ("secret", "fact", "why") if word in (tmp_path / "rows.jsonl").read_text()]


def test_a_checker_with_only_an_async_form_keeps_one_event_loop() -> None:
    class Later:
        loops: set[int] = set()  # noqa: RUF012, of the only object

        async def acheck(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> Sequence[Checked]:
            self.loops.add(id(asyncio.get_running_loop()))
            return WordClaimChecker().check(claims, grounds)

    items = [item(name=name) for name in "abc"]

    assert timeless(check_each(items, Later())) == timeless(check_each(items, WordClaimChecker()))
    assert len(Later.loops) == 1


def test_a_run_that_was_stopped_goes_on_where_it_was_and_tries_the_failed_again(tmp_path: Path) -> None:
    path, yes = tmp_path / "rows.jsonl", Checked("supported", 0.9)
    items = [item(f"claim {name}", name=name) for name in "abcd"]
    with pytest.raises(KeyboardInterrupt):
        check_each(items, Told(yes, ClaimCheckError("no", reason="timeout"), KeyboardInterrupt()), path=path)
    again = Told(yes, yes, yes)

    rows = check_each(items, again, path=path, resume=True)

    assert [text for text, *_ in again.asked] == ["claim b", "claim c", "claim d"]
    assert [(r.id, r.error, r.said) for r in rows] == [(name, "", "supported") for name in "abcd"]


@pytest.mark.parametrize("said", [Checked("supported", 1.5), "yes"])
def test_what_a_checker_may_not_return_is_a_failed_row(said: Any) -> None:
    (found,) = check_each([item()], Told(said))

    assert (found.error, found.said, found.probability) == ("invalid_reply", None, None)


def test_a_run_in_which_every_claim_fails_is_an_error(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl", line(), line())

    with pytest.raises(ClaimCheckError, match="not one of 2 questions could be checked: 2 times timeout"):
        measure_claims([data], Told(*[ClaimCheckError("no", reason="timeout")] * 2), folder=tmp_path / "run")


@pytest.mark.parametrize("threshold", [2, "half"])
def test_a_threshold_that_is_no_probability_is_an_error(threshold: Any) -> None:
    checker = Told(Checked("supported", 0.9))
    checker.threshold = threshold

    with pytest.raises(ConfigError, match="`threshold` must be a number in"):
        check_each([item()], checker)


@pytest.mark.parametrize("change", [{"said": None}, {"probability": 2}, {"label": "true"}, {"baselines": {}}])
def test_a_row_that_can_not_be_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "rows.jsonl"
    check_each([item()], WordClaimChecker(), path=path)
    head, kept = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps(json.loads(kept) | change)}\n")

    with pytest.raises(ConfigError, match="line 2: no row of a run"):
        check_each([item()], WordClaimChecker(), path=path, resume=True)


# The report


def report_of(*rows: ClaimRow, run: CheckerRun = RUN) -> ClaimReport:
    return make_claim_report(rows, run, resamples=200)


def values(report: ClaimReport) -> dict[str, float | None]:
    return {name: None if found is None else found.value for name, found in report.sets[0].numbers.items()}


def test_the_numbers_of_a_small_set_by_hand() -> None:
    """Of 3 supported claims one is flagged; of 5 others three are, and one has no probability and passes."""
    report = report_of(
        row("a", "supported", 0.9),
        row("b", "supported", 0.5),
        row("c", "supported", 0.3, said="contradicted"),
        row("d", "contradicted", 0.1, said="contradicted"),
        row("e", "contradicted", 0.6, said="supported"),
        row("f", "partially_supported", 0.2),
        row("g", "generic", 0.49),
        row("h", "not_mentioned", None),
    )

    assert values(report) == {
        "auc": pytest.approx((4 + 3 + 2) / 12),
        "accuracy": pytest.approx((2 / 3 + 3 / 5) / 2),
        "false_alarms": pytest.approx(1 / 3),
        "caught": pytest.approx(3 / 5),
        "contradicted_recall": 0.5,
    }
    (one,) = report.sets
    assert (one.undecided, one.questions, one.labels["supported"]) == (1, 8, 3)
    assert (sum(one.histogram["supported"]), sum(one.histogram["other"])) == (3, 4)


@given(st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.2, 0.5, 0.7, 1.0])), min_size=2, max_size=30))
def test_auc_and_accuracy_are_those_of_scikit_learn(cases: list[tuple[bool, float]]) -> None:
    cases = [(True, 0.5), (False, 0.5), *cases]
    rows = [row(str(n), "supported" if truth else "not_supported", p) for n, (truth, p) in enumerate(cases)]
    truths, scores = [truth for truth, _ in cases], [p for _, p in cases]

    found = values(make_claim_report(rows, RUN, resamples=50))

    assert found["auc"] == pytest.approx(roc_auc_score(truths, scores))
    assert found["accuracy"] == pytest.approx(balanced_accuracy_score(truths, [p >= 0.5 for p in scores]))
    assert found["contradicted_recall"] is None


def test_claims_on_the_same_evidence_are_drawn_together() -> None:
    """Twenty copies of each of ten claims tell no more than the ten do."""
    labels = ["supported", "not_supported"] * 5
    few = [row(f"{n}", label, n / 10, evidence=str(n)) for n, label in enumerate(labels)]
    many = [replace(one, id=f"{one.id}-{copy}") for one in few for copy in range(20)]

    first, second = (report_of(*rows).sets[0].numbers["auc"] for rows in (few, many))

    assert first == second
    assert first is not None
    assert first.low is not None


def test_a_set_of_one_kind_has_no_auc_and_no_curve() -> None:
    (one,) = report_of(row("a", "not_supported", 0.9), row("b", "generic", 0.1)).sets

    assert (one.numbers["auc"], one.numbers["accuracy"], one.numbers["false_alarms"], one.roc) == (None, None, None, {})
    assert one.numbers["caught"] is not None
    assert one.numbers["caught"].value == 0.5


def test_sets_and_languages_are_apart_and_failed_claims_are_left_out_of_every_number() -> None:
    rows = [row("a", "supported", 0.9), row("b", "contradicted", 0.1)]
    failed = row("f", "supported", None, said=None, error="timeout")

    first, second = report_of(*rows, failed, *(replace(r, lang="zh") for r in rows)).sets

    assert (first.questions, first.left_out) == (3, "1 claims failed and are left out: 1 with timeout.")
    assert first.numbers == second.numbers
    assert first.roc == second.roc


def test_the_curve_goes_from_the_highest_cut_to_the_lowest() -> None:
    (one,) = report_of(row("a", "supported", 0.9), row("b", "contradicted", 0.6), row("c", "supported", 0.3)).sets

    assert one.roc[CHECKER] == ((0, 0), (0, 0.5), (1, 0.5), (1, 1))


def test_the_report_is_json_and_the_page_is_sound_needs_nothing_and_escapes_names() -> None:
    rows = [row("a", "supported", 0.9), row("b", "contradicted", None), row("c", "supported", None, said=None, error="timeout")]
    odd = [replace(r, source="<b>&\"'") for r in rows]
    report = report_of(*rows, *odd)

    html = render(report)
    page = Page(html)

    assert page.open == []
    assert "<b>&\"'" in page.text
    assert not {"script", "link", "img", "b"} & {tag for tag, _ in page.tags}
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert sum(tag == "svg" for tag, _ in page.tags) == 4
    assert "1 claims failed" in page.text
    assert all(number.meaning in page.text for number in claim_numbers(0.5))
    told = json.loads(report.to_json())
    assert (told["threshold"], told["sets"][0]["numbers"]["auc"]) == (0.5, None)


def test_every_number_and_baseline_of_a_report_is_in_the_docs() -> None:
    page = (ROOT / "docs" / "measuring.md").read_text().split("\n## Claims\n")[1].split("\n## ")[0]

    named = {*(number.name for number in claim_numbers(0.5)), *(baseline.name for baseline in BASELINES)}
    assert [name for name in sorted(named) if f"`{name}`" not in page] == []
