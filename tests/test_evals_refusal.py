"""Refusals and citations of given answers: data, citations, runs, report, page, and `crag eval refusal`."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware import ClaimCheckError, ConfigError, WordClaimChecker, cli
from crag_middleware.evals.claims.rows import CheckerRun
from crag_middleware.evals.refusal import measure_refusal
from crag_middleware.evals.refusal.citations import MAX_CITED, MAX_STATEMENTS, Cited, judge
from crag_middleware.evals.refusal.items import load_answers
from crag_middleware.evals.refusal.page import render
from crag_middleware.evals.refusal.report import NUMBERS, make_refusal_report
from crag_middleware.evals.refusal.rows import REFUSALS, RefusalRow
from crag_middleware.evals.refusal.run import judge_each
from crag_middleware.types import Checked, Claim, Ground
from tests.test_cli import crag
from tests.test_evals_datasets import PRIVATE, write
from tests.test_evals_report import Page

ROOT = Path(__file__).resolve().parent.parent
RUN = CheckerRun("Own", "", "", 0.5)

FEES = {"title": "Fees", "text": "The annual fee is 30 USD. It is paid in January."}
TRIAL = {"text": "The trial period lasts 14 days."}
HANDMADE: Sequence[Mapping[str, Any]] = (
    {"question": "What is the fee?", "answerable": True, "answer": "The annual fee is 30 USD [1].", "passages": [FEES, TRIAL]},
    {"question": "What is the fee?", "answerable": True, "answer": "The annual fee is 50 USD [1].", "passages": [FEES, TRIAL]},
    {"question": "How long is the trial?", "answerable": True, "answer": "I don't know.", "passages": [TRIAL]},
    {"question": "Who is the CEO?", "answerable": False, "answer": "The provided documents do not contain this information."},
    {"question": "Who is the CFO?", "answerable": False, "answer": "The CFO is Maria Lindgren."},
    {"question": "Who is the CTO?", "answerable": False, "answer": ""},
    {"question": "年费是多少？", "answerable": True, "answer": "年费为30美元[1]。", "passages": [{"text": "会员年费为30美元。"}]},
    {"question": "谁是总裁？", "answerable": False, "answer": "抱歉，资料中没有相关信息。"},
    {"question": "总部在哪里？", "answerable": False, "answer": "抱歉，我无法回答这个问题。"},
)
"""Answers to questions in English, in Chinese, of both kinds."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "answers.jsonl", *HANDMADE)


# The command


def test_the_command_prints_a_table_and_writes_the_run(data: Path, tmp_path: Path) -> None:
    result = crag("eval", "refusal", data, "--out", tmp_path / "run")

    assert result.exit_code == 0, result.output
    assert [" ".join(row.split()) for row in re.findall(r"^answers \(.*", result.stdout, re.MULTILINE)] == [
        "answers (en) 6 3 0.50 [0.00, 1.00] 0.33 [0.00, 1.00] 0.33 [0.00, 1.00] 0.50 [0.00, 1.00] 0.50 [0.00, 1.00]",
        "answers (zh) 3 2 1.00 [1.00, 1.00] 1.00 [1.00, 1.00] 0.00 [0.00, 0.00] 1.00 [1.00, 1.00] 1.00 [1.00, 1.00]",
    ]
    assert max(map(len, result.stdout.splitlines())) <= cli.WIDTH
    assert result.stderr.splitlines()[-1] == "checked 9 of 9"
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == ["report.html", "report.json", "rows.jsonl"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.jsonl"], "the data 'missing.jsonl' can't be read"),
        ([ROOT / "examples" / "eval" / "relevance.jsonl"], "known are `question` with `answerable` and `answer`"),
        (["answers.jsonl", "-c", "none"], "there is no claim checker 'none'"),
        (["answers.jsonl", "--resume"], "there is no run at"),
    ],
)
def test_input_that_can_not_be_used_is_one_line_and_exit_code_2(
    data: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[object], said: str
) -> None:
    monkeypatch.chdir(data.parent)

    result = crag("eval", "refusal", *arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    (told,) = result.stderr.splitlines()
    assert said in told


# The data


def test_an_answer_is_read_with_its_passages_and_what_is_left_out(tmp_path: Path) -> None:
    extra = {"id": "x", "lang": "en", "source": "s", "sources": 2}
    path = write(tmp_path / "own.jsonl", HANDMADE[0], {**HANDMADE[7], **extra})

    first, second = load_answers([path])

    assert (first.id, first.lang, first.source, first.answerable) == ("own-1", "en", "own", True)
    assert first.passages == ("Fees\nThe annual fee is 30 USD. It is paid in January.", "The trial period lasts 14 days.")
    assert (second.id, second.source, second.passages) == ("x", "s", ())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"answerable": "yes"}, "`answerable`"),
        ({"answer": None}, "`answer`"),
        ({"question": " "}, "`question`"),
        ({"passages": ["x"]}, "`passages.0`"),
        ({"passages": [{"title": "x"}]}, "`passages.0.text`"),
    ],
)
def test_a_line_that_can_not_be_used_is_one_error_without_its_text(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    value = {"question": PRIVATE, "answerable": True, "answer": PRIVATE} | change
    with pytest.raises(ConfigError, match=r"a\.jsonl, line 1: ") as error:
        load_answers([write(tmp_path / "a.jsonl", value)])

    assert said in str(error.value)
    assert PRIVATE not in str(error.value)


# The citations

SAID = {"Iron rusts": [{1}], "Gold shines": [{2}, {3}], "Lead and tin melt": [{1, 2}], "Zinc burns": []}
"""Which sources support each statement, alone or together."""


class Known:
    """Supports a statement where the sources hold all of one of the sets in `SAID`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], tuple[int, ...]]] = []

    def __call__(self, claims: Sequence[Claim], numbers: tuple[int, ...]) -> list[bool]:
        self.asked.append((tuple(claim.text for claim in claims), numbers))
        assert numbers
        return [
            any(needed <= set(numbers) for start, sets in SAID.items() if claim.text.startswith(start) for needed in sets)
            for claim in claims
        ]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("Iron rusts in water [1].", Cited(1, 1, 1, 1)),
        ("Iron rusts in water [2].", Cited(1, 0, 1, 0)),
        ("Iron rusts in water.", Cited(1, 0, 0, 0)),
        ("Iron rusts in water [1][2].", Cited(1, 1, 2, 1)),
        ("Gold shines in the sun [2][3].", Cited(1, 1, 2, 2)),
        ("Lead and tin melt in fire [1, 2].", Cited(1, 1, 2, 2)),
        ("Lead and tin melt in fire [1-3].", Cited(1, 1, 3, 2)),
        ("Zinc burns in air [1][2][3].", Cited(1, 0, 3, 0)),
        ("Iron rusts in water [1]. Zinc burns in air [2]. Gold shines in the sun.", Cited(3, 1, 2, 1)),
        ("Iron rusts in water [1][9].", Cited(1, 1, 2, 1)),
        ("Iron rusts in water [9].", Cited(1, 0, 1, 0)),
        ("I don't know.", Cited()),
        ("", Cited()),
    ],
)
def test_recall_and_precision_of_citations_are_those_of_alce(answer: str, found: Cited) -> None:
    """A statement counts if all that it cites supports it; a citation of it counts unless it does not support it alone and is not missed."""
    assert judge(answer, 3, Known()) == found


def test_statements_about_the_same_sources_are_asked_together() -> None:
    known = Known()

    judge("Iron rusts in water [1]. Zinc burns in air [1]. Gold shines in the sun [2].", 3, known)

    assert known.asked == [(("Iron rusts in water [1].", "Zinc burns in air [1]."), (1,)), (("Gold shines in the sun [2].",), (2,))]


def test_a_long_answer_and_many_citations_are_bounded() -> None:
    answer = " ".join(f"Iron rusts in water of {n} degrees [2][3][1][4]." for n in range(2 * MAX_STATEMENTS))
    known = Known()

    found = judge(answer, 4, known)

    assert found == Cited(MAX_STATEMENTS, MAX_STATEMENTS, MAX_STATEMENTS * MAX_CITED, MAX_STATEMENTS)
    assert len(known.asked) <= 1 + 2 * MAX_CITED
    assert all(4 not in numbers for _, numbers in known.asked)


PARTS = st.sampled_from([f"{start} here " for start in SAID])


@given(st.lists(st.tuples(PARTS, st.lists(st.integers(1, 5), max_size=4)), max_size=6))
def test_no_more_is_supported_or_contributes_than_there_is(parts: list[tuple[str, list[int]]]) -> None:
    answer = " ".join(text + "".join(f"[{n}]" for n in numbers) + "." for text, numbers in parts)

    found = judge(answer, 3, Known())

    assert found.statements == len(parts)
    assert found.supported <= found.statements
    assert found.supported <= found.contributing <= found.citations


# The run


def test_a_row_tells_refusals_and_counts_and_no_text(data: Path, tmp_path: Path) -> None:
    items = load_answers([data])

    rows = judge_each(items, WordClaimChecker(), path=tmp_path / "rows.jsonl")

    assert [row.refused for row in rows] == [False, False, True, True, False, False, False, True, True]
    assert [(row.statements, row.supported, row.citations, row.contributing) for row in rows[:4]] == [
        (1, 1, 1, 1),
        (1, 0, 1, 0),
        (0, 0, 0, 0),
        (0, 0, 0, 0),
    ]
    assert REFUSALS.read(tmp_path / "rows.jsonl") == (CheckerRun("WordClaimChecker", "", "", 0.5), {r.id: r for r in rows})
    assert not [word for word in ("fee", "CEO", "Maria", "年费") if word in (tmp_path / "rows.jsonl").read_text()]


def test_only_what_is_cited_is_shown_to_the_checker(data: Path) -> None:
    class Watching:
        seen: list[tuple[str, tuple[tuple[str, int | None], ...], str, str]] = []  # noqa: RUF012, of the only object

        def check(self, claims: Sequence[Claim], grounds: Sequence[Ground], *, question: str, agent_id: str) -> list[Checked]:
            self.seen.append((claims[0].text, tuple((g.text, g.number) for g in grounds), question, agent_id))
            return [Checked("supported", 0.9) for _ in claims]

    answer = replace(load_answers([data])[0], answer="The trial lasts 14 days [2].")
    judge_each([answer], Watching())

    assert Watching.seen == [("The trial lasts 14 days [2].", ((TRIAL["text"], 2),), "What is the fee?", "crag-eval")]


class Failing:
    """Fails so many times, then supports everything."""

    def __init__(self, times: int, error: BaseException) -> None:
        self.times, self.error = times, error

    def check(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> list[Checked]:
        self.times -= 1
        if self.times >= 0:
            raise self.error
        return [Checked("supported", 0.9) for _ in claims]


def test_an_answer_whose_check_failed_is_left_out_and_tried_again(data: Path, tmp_path: Path) -> None:
    error = ClaimCheckError("no", reason="timeout")

    report = measure_refusal([data], Failing(1, error), folder=tmp_path / "run")
    again = measure_refusal([data], Failing(0, error), folder=tmp_path / "run", resume=True)

    assert report.sets[0].left_out == "1 answers failed and are left out: 1 with timeout."
    assert (report.sets[0].answerable, again.sets[0].answerable, dict(again.sets[0].failed)) == (2, 3, {})


def test_a_run_in_which_every_check_fails_is_an_error(tmp_path: Path) -> None:
    data = write(tmp_path / "a.jsonl", *HANDMADE[:2])

    with pytest.raises(ClaimCheckError, match="2 times timeout"):
        measure_refusal([data], Failing(9, ClaimCheckError("no", reason="timeout")), folder=tmp_path / "run")


@pytest.mark.parametrize("change", [{"supported": 2}, {"contributing": 2}, {"statements": 0, "supported": 0}, {"refused": "perhaps"}])
def test_a_row_that_can_not_be_is_refused(data: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    path, items = tmp_path / "rows.jsonl", load_answers([data])[:1]
    judge_each(items, WordClaimChecker(), path=path)
    head, kept = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps(json.loads(kept) | change)}\n")

    with pytest.raises(ConfigError, match="line 2: no row of a run"):
        judge_each(items, WordClaimChecker(), path=path, resume=True)


# The report


def row(name: str, answerable: bool, refused: bool, *counts: int, **keys: Any) -> RefusalRow:
    facts: dict[str, Any] = {"id": name, "digest": "d", "source": "set", "lang": "en", "seconds": 0.5}
    named = dict(zip(("statements", "supported", "citations", "contributing"), counts, strict=False))
    return RefusalRow(**facts | named | keys, answerable=answerable, refused=refused)


ROWS = (
    row("a", True, False, 4, 3, 5, 4),
    row("b", True, False, 1, 0, 0, 0),
    row("c", True, True),
    row("d", False, True),
    row("e", False, True),
    row("f", False, False, 2, 1, 1, 1),
)


def test_the_numbers_of_a_small_set_by_hand() -> None:
    """Citation numbers are means over answers, of precision over those that cite."""
    (one,) = make_refusal_report(ROWS, RUN, resamples=50).sets

    assert {name: found and found.value for name, found in one.numbers.items()} == {
        "refusal_precision": pytest.approx(2 / 3),
        "refusal_recall": pytest.approx(2 / 3),
        "false_refusals": pytest.approx(1 / 3),
        "citation_recall": pytest.approx((3 / 4 + 0 + 1 / 2) / 3),
        "citation_precision": pytest.approx((4 / 5 + 1) / 2),
    }
    assert (one.answerable, one.unanswerable, one.refused, one.statements, one.citations) == (
        3,
        3,
        {"answerable": 1, "unanswerable": 2},
        7,
        6,
    )


def test_a_set_without_refusals_or_citations_has_no_such_numbers() -> None:
    (one,) = make_refusal_report([row("a", True, False), row("b", True, False)], RUN, resamples=50).sets

    assert {name for name, found in one.numbers.items() if found is None} == {number.name for number in NUMBERS} - {"false_refusals"}


def test_sets_and_languages_are_apart() -> None:
    rows = [*ROWS, *(replace(r, lang="zh") for r in ROWS), *(replace(r, source="other", answerable=False) for r in ROWS)]

    first, second, third = make_refusal_report(rows, RUN, resamples=50).sets

    assert first.numbers == second.numbers
    assert third.numbers["false_refusals"] is None


def test_the_report_is_json_and_the_page_is_sound_needs_nothing_and_escapes_names() -> None:
    failed = row("x", True, False, error="timeout")
    report = make_refusal_report([*ROWS, failed, *(replace(r, source="<b>&") for r in ROWS)], RUN, resamples=50)

    html = render(report)
    page = Page(html)

    assert page.open == []
    assert "<b>&" in page.text
    assert not {"script", "link", "img", "b"} & {tag for tag, _ in page.tags}
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert sum(tag == "svg" for tag, _ in page.tags) == 4
    assert "1 answers failed" in page.text
    assert all(number.meaning in page.text for number in NUMBERS)
    assert json.loads(report.to_json())["sets"][0]["refused"] == {"answerable": 1, "unanswerable": 2}


def test_every_number_of_a_report_is_in_the_docs() -> None:
    page = (ROOT / "docs" / "measuring.md").read_text().split("\n## Refusal\n")[1].split("\n## ")[0]

    assert [number.name for number in NUMBERS if f"`{number.name}`" not in page] == []
