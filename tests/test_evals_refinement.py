"""Recall of gold sentences against kept share: data, curves, runs, report and page."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware import ConfigError, Passage, RefineError, Strip, WordRefiner
from crag_middleware.evals.refinement import RefinementReport, measure_refinement
from crag_middleware.evals.refinement.baselines import BASELINES, rank
from crag_middleware.evals.refinement.curve import STEPS, found_by_share, kept_and_found
from crag_middleware.evals.refinement.page import SHARES, render
from crag_middleware.evals.refinement.questions import CHUNK_CHARS, EvidenceItem, Gold, load_evidence
from crag_middleware.evals.refinement.report import make_refinement_report
from crag_middleware.evals.refinement.rows import REFINEMENTS, RefinementRow, RefinerRun
from crag_middleware.evals.refinement.run import refine_each
from crag_middleware.stages.sentences import split
from tests.test_evals_datasets import PRIVATE, write
from tests.test_evals_report import Page

FIXTURE = Path(__file__).resolve().parent.parent / "examples" / "eval" / "evidence.jsonl"
RUN = RefinerRun("Own", "", "", True)


def line(question: str = "q", **keys: Any) -> dict[str, Any]:
    return {"question": question, "passages": [{"sentences": ["One.", "Two."], "gold": [1]}]} | keys


def item(*texts: str, gold: Sequence[tuple[int, int, int]], question: str = "q", name: str = "q1") -> EvidenceItem:
    passages = tuple(Passage(id=str(n), text=text) for n, text in enumerate(texts, 1))
    return EvidenceItem(id=name, lang="en", source="set", question=question, passages=passages, gold=tuple(Gold(*g) for g in gold))


def strips(text: str, *worth: float) -> list[Strip]:
    """The words of a text as strips."""
    found, start = [], 0
    for word, value in zip(text.split(" "), worth, strict=True):
        found.append(Strip(word, start, start + len(word), worth=value))
        start += len(word) + 1
    return found


class Ranked:
    """Keeps the first strip of each passage, and ranks strips by their length."""

    def refine(self, question: str, passages: Sequence[Passage]) -> list[list[Strip]]:
        return [list(split(p.text)[:1]) for p in passages]

    def rank(self, question: str, passages: Sequence[Passage]) -> list[list[Strip]]:
        return [[replace(s, worth=float(len(s.text))) for s in split(p.text)] for p in passages]


# The data


@pytest.mark.parametrize(
    ("sentences", "text"),
    [
        (["One.", "Two."], "One. Two."),
        (["One.", " Two."], "One. Two."),
        (["| a |\n", "| b |"], "| a |\n| b |"),
        (["One.", "", "Two."], "One. Two."),
        (["第一句。", "第二句。"], "第一句。第二句。"),
        (["退款需要 7 天。", "See the FAQ."], "退款需要 7 天。See the FAQ."),
    ],
)
def test_sentences_are_joined_as_their_language_does_and_gold_keeps_its_place(tmp_path: Path, sentences: list[str], text: str) -> None:
    last = len(sentences) - 1
    (found,) = load_evidence([write(tmp_path / "a.jsonl", line(passages=[{"title": "T", "sentences": sentences, "gold": [last, last]}]))])

    (passage,) = found.passages
    ((number, start, end),) = found.gold
    assert (passage.title, passage.text, passage.rank) == ("T", text, 1)
    assert (number, passage.text[start:end]) == (0, sentences[last])
    assert found.characters == len(text)


def test_a_chinese_question_on_english_passages_gets_spaced_sentences(tmp_path: Path) -> None:
    (found,) = load_evidence([write(tmp_path / "a.jsonl", line("退款需要几天？", lang="zh-en"))])

    assert found.passages[0].text == "One. Two."


def test_a_passage_in_the_file_beside_is_found_by_its_name(tmp_path: Path) -> None:
    write(tmp_path / "cmrc_contexts.jsonl", {"ctx": "c", "context": "甲。乙。", "sentences": ["甲。", "乙。"]})
    path = write(tmp_path / "a.jsonl", {"question": "问？", "ctx": "c", "gold": [1]}, {"question": "问？", "ctx": "c", "gold": []})

    first, second = load_evidence([path])

    assert (first.lang, first.passages[0].text, first.gold) == ("zh", "甲。乙。", (Gold(0, 2, 4),))
    assert second.gold == ()


def test_references_have_their_place_in_the_chunks_of_their_document(tmp_path: Path) -> None:
    lines = ["a" * 500 + " One stands here.", "b" * 300, "Two. " + "c" * 900, "Three."]
    write(tmp_path / "dragonball_docs.jsonl", {"doc_id": 7, "content": "\n".join(lines)})
    refs = ["Three.", "One stands here.", "Two.", "Nowhere.", " ", "One stands here."]
    (found,) = load_evidence([write(tmp_path / "a.jsonl", {"question": "q", "doc_id": 7, "refs": refs})])

    texts = [p.text for p in found.passages]
    assert texts == lines
    assert len(lines[0]) + len(lines[1]) > CHUNK_CHARS
    assert [texts[n][start:end] for n, start, end in found.gold] == ["One stands here.", "Two.", "Three."]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (line(passages=[{"sentences": ["One."], "gold": [1]}]), "line 1: `gold` must hold numbers from 0 to 0 for 1 sentences, got 1"),
        (line(passages=[{"sentences": ["One."], "gold": [-1]}]), "got -1"),
        (line(passages=[{"text": PRIVATE}]), "no known kind of question"),
        ({"question": "q", "passages": []}, "no known kind of question"),
        ([PRIVATE], "got a list"),
        (line(passages=[{"sentences": [5], "gold": []}]), "`passages.0.sentences.0`"),
        ({"question": "q", "ctx": "absent", "gold": [0]}, "its `ctx` is not in"),
        ({"question": "q", "doc_id": 3, "refs": []}, "its `doc_id` is not in"),
    ],
)
def test_a_line_that_can_not_be_used_is_one_error_without_its_text(tmp_path: Path, value: Any, said: str) -> None:
    write(tmp_path / "cmrc_contexts.jsonl", {"ctx": "c", "sentences": ["甲。"]})
    write(tmp_path / "dragonball_docs.jsonl", {"doc_id": 1, "content": "x"})

    with pytest.raises(ConfigError) as error:
        load_evidence([write(tmp_path / "a.jsonl", value)])
    assert said in str(error.value)
    assert PRIVATE not in str(error.value)


@pytest.mark.parametrize("beside", [{"ctx": "c", "context": PRIVATE}, {"ctx": "c", "sentences": [PRIVATE, 5]}, "no"])
def test_a_file_beside_the_data_that_can_not_be_used_is_one_error(tmp_path: Path, beside: Any) -> None:
    write(tmp_path / "cmrc_contexts.jsonl", beside)

    with pytest.raises(ConfigError, match=r"cmrc_contexts\.jsonl, line 1") as error:
        load_evidence([write(tmp_path / "a.jsonl", {"question": "q", "ctx": "c", "gold": [0]})])
    assert PRIVATE not in str(error.value)


def test_the_public_questions_have_gold_in_every_one_and_both_languages() -> None:
    items = load_evidence([FIXTURE])

    assert {(i.source, i.lang) for i in items} == {("handmade", "en"), ("handmade", "zh"), ("CLAPnq", "en"), ("CMRC 2018", "zh")}
    assert len(items) >= 60
    assert all(i.gold for i in items)
    assert all(i.passages[n].text[start:end].strip() for i in items for n, start, end in i.gold)


# The curve


def test_a_share_is_a_strict_budget_that_skips_what_does_not_fit_and_goes_on() -> None:
    """Of 11 characters: the best strip has 6, so below 55 % the next two, of 1 and 2, are taken instead."""
    text = "longer a bb"
    one = item(text, gold=[(0, 0, 6), (0, 7, 8), (0, 9, 11)])

    curve = found_by_share(one, [strips(text, 3, 2, 1)])

    assert len(curve) == STEPS + 1
    assert (curve[0], curve[9], curve[10], curve[27], curve[28], curve[54], curve[55], curve[64], curve[82], curve[100]) == (
        0,
        0,
        1,
        1,
        2,
        2,
        1,
        2,
        3,
        3,
    )


def test_ties_go_to_the_earlier_strip_over_all_passages() -> None:
    one = item("aa bb", "cc dd", gold=[(0, 3, 5)])

    curve = found_by_share(one, [strips("aa bb", 0, 1), strips("cc dd", 1, 0)])

    assert curve.index(1) == 20


@pytest.mark.parametrize(("end", "found"), [(7, 0), (8, 1), (13, 1)])
def test_a_gold_sentence_is_found_with_four_fifths_of_its_signs(end: int, found: int) -> None:
    """Ten signs, and white space that counts for nothing."""
    text = "12345678   9a"

    assert kept_and_found(item(text, gold=[(0, 0, len(text))]), [[Strip(text[:end], 0, end)]]) == (end, found)


def test_what_stands_in_another_passage_at_the_same_place_is_not_found() -> None:
    one = item("same.", "same.", gold=[(1, 0, 5)])

    assert kept_and_found(one, [[Strip("same.", 0, 5)], [Strip("s", 0, 1)]]) == (6, 0)


def test_of_a_passage_with_an_empty_list_everything_is_kept() -> None:
    assert kept_and_found(item("abc def", "ghi", gold=[(0, 4, 7)]), [[], [Strip("g", 0, 1)]]) == (8, 1)


WORTH = st.lists(st.floats(-5, 5), min_size=6, max_size=6)


@given(WORTH, st.lists(st.integers(1, 30), min_size=6, max_size=6), st.sets(st.integers(0, 5), min_size=1))
def test_a_curve_begins_with_nothing_and_ends_with_everything_and_follows_the_order_alone(
    worth: list[float], sizes: list[int], gold: set[int]
) -> None:
    text = " ".join("x" * size for size in sizes)
    pages = strips(text, *worth)
    one = item(text, gold=[(0, pages[n].start, pages[n].end) for n in sorted(gold)])

    curve = found_by_share(one, [pages])
    places = np.argsort(np.argsort([-w for w in worth], kind="stable"), kind="stable")

    assert (curve[0], curve[-1]) == (0, len(gold))
    assert curve == found_by_share(one, [strips(text, *(-float(p) for p in places))])


# The baselines


def order(name: str, question: str, *texts: str) -> list[str]:
    (baseline,) = (b for b in BASELINES if b.name == name)
    ranked = rank(baseline, question, [Passage(id=str(n), text=text) for n, text in enumerate(texts)])
    return [s.text for s in sorted((s for page in ranked for s in page), key=lambda s: -(s.worth or 0))]


def test_each_baseline_ranks_as_it_says() -> None:
    texts = ("Dogs bark. The cat sleeps.", "A cat. Nothing else here.")

    assert order("whole", "cat", *texts) == list(texts)
    assert order("first", "cat", *texts) == ["Dogs bark.", "A cat.", "The cat sleeps.", "Nothing else here."]
    assert order("keywords", "cat sleeps", *texts)[0] == "The cat sleeps."
    assert order("overlap", "Who SLEEPS, a cat?", *texts)[:2] == ["The cat sleeps.", "A cat."]
    assert order("embedding", "Which animal is asleep?", *texts)[0] == "The cat sleeps."


def test_words_cut_at_white_space_tell_nothing_in_chinese_and_characters_do() -> None:
    """C085: what a tutorial does finds nothing there, so document order is left."""
    text = "客服电话见官网。退款在七天内到账。"

    assert order("keywords", "退款需要几天？", text)[0] == "客服电话见官网。"
    assert order("overlap", "退款需要几天？", text)[0] == "退款在七天内到账。"


@pytest.mark.parametrize("baseline", BASELINES, ids=lambda b: b.name)
def test_a_baseline_ranks_every_strip_of_odd_texts(baseline: Any) -> None:
    texts = ["", "  \n ", "!?", "one", "一二三。" * 50]
    passages = [Passage(id=str(n), text=text) for n, text in enumerate(texts)]

    ranked = rank(baseline, "", passages)

    assert [sum(len(s.text) for s in page) >= len("".join(p.text.split())) for page, p in zip(ranked, passages, strict=True)] == [True] * 5
    assert rank(baseline, "q", []) == []


# The run

ITEMS = tuple(
    item("Dogs bark. The cat sleeps.", "Nothing.", gold=[(0, 11, 26)], question=f"secret cat q{n}", name=f"q{n}") for n in range(4)
)


def timeless(rows: Sequence[RefinementRow]) -> list[RefinementRow]:
    return [replace(row, seconds=0) for row in rows]


def test_a_row_has_what_was_kept_and_found_and_all_curves_and_no_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"

    rows = refine_each(ITEMS[:2], Ranked(), path=path)

    assert (rows[0].kept, rows[0].found, rows[0].gold, rows[0].characters) == (len("Dogs bark.Nothing."), 0, 1, 34)
    assert len(rows[0].curve) == STEPS + 1
    assert set(rows[0].baselines) == {b.name for b in BASELINES}
    assert REFINEMENTS.read(path) == (RefinerRun("Ranked", "", "", True), {row.id: row for row in rows})
    assert not [word for word in ("secret", "cat", "Dogs") if word in path.read_text()]


def test_both_calls_of_a_question_share_a_memo_and_no_two_questions_do() -> None:
    class Remembering(Ranked):
        def __init__(self) -> None:
            self.seen: list[tuple[str, int]] = []

        def refine(self, question: str, passages: Sequence[Passage], *, memo: dict[Any, Any], agent_id: str) -> list[list[Strip]]:  # type: ignore[override]
            self.seen.append((agent_id, len(memo)))
            memo["refined"] = True
            return super().refine(question, passages)

        def rank(self, question: str, passages: Sequence[Passage], *, memo: dict[Any, Any]) -> list[list[Strip]]:  # type: ignore[override]
            assert memo == {"refined": True}
            return super().rank(question, passages)

    refiner = Remembering()
    rows = refine_each(ITEMS[:2], refiner, baselines=False)

    assert refiner.seen == [("crag-eval", 0)] * 2
    assert [row.error for row in rows] == ["", ""]
    assert rows[0].baselines == {}


def test_a_refiner_without_a_ranking_has_only_its_point() -> None:
    class Plain:
        def refine(self, question: str, passages: Sequence[Passage]) -> list[list[Strip]]:
            return [[] for _ in passages]

    rows = refine_each(ITEMS[:2], Plain(), baselines=False)
    (one,) = make_refinement_report(rows, RUN, resamples=50).sets

    assert (rows[0].curve, rows[0].kept, rows[0].found) == ((), 34, 1)
    assert one.rankings == {}
    assert one.point is not None
    assert (one.point.kept.value, one.point.recall.value) == (1, 1)


def test_a_refiner_with_only_async_forms_keeps_one_event_loop() -> None:
    class Later:
        def __init__(self) -> None:
            self.loops: set[int] = set()

        async def arefine(self, question: str, passages: Sequence[Passage]) -> list[list[Strip]]:
            self.loops.add(id(asyncio.get_running_loop()))
            return Ranked().refine(question, passages)

        async def arank(self, question: str, passages: Sequence[Passage]) -> list[list[Strip]]:
            self.loops.add(id(asyncio.get_running_loop()))
            return Ranked().rank(question, passages)

    refiner = Later()

    assert timeless(refine_each(ITEMS, refiner, baselines=False)) == timeless(refine_each(ITEMS, Ranked(), baselines=False))
    assert len(refiner.loops) == 1


class Failing(Ranked):
    """Fails for some questions, by their last word."""

    def __init__(self, **errors: BaseException) -> None:
        self.errors = errors
        self.asked: list[str] = []

    def refine(self, question: str, passages: Sequence[Passage]) -> list[list[Strip]]:
        self.asked.append(question.split()[-1])
        if error := self.errors.get(self.asked[-1]):
            raise error
        return super().refine(question, passages)


@pytest.mark.parametrize("worth", [None, float("nan"), float("inf"), "high"])
def test_what_a_refiner_may_not_return_is_a_failed_row(worth: Any) -> None:
    class Worthless(Ranked):
        def rank(self, question: str, passages: Sequence[Passage]) -> list[list[Strip]]:
            return [[replace(s, worth=worth) for s in page] for page in super().rank(question, passages)]

    class Writing(Ranked):
        def refine(self, question: str, passages: Sequence[Passage]) -> list[list[Strip]]:
            return [[Strip("made up", 0, 7)] for _ in passages]

    for refiner in (Worthless(), Writing()):
        (row,) = refine_each(ITEMS[:1], refiner)
        assert (row.error, row.kept, row.found, row.curve, row.baselines) == ("invalid_reply", 0, 0, (), {})


def test_a_run_that_was_stopped_goes_on_where_it_was_and_tries_the_failed_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    stopped = Failing(q1=RefineError("no", reason="timeout"), q2=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        refine_each(ITEMS, stopped, baselines=False, path=path)
    again = Failing()

    rows = refine_each(ITEMS, again, baselines=False, path=path, resume=True)

    assert again.asked == ["q1", "q2", "q3"]
    assert timeless(rows) == timeless(refine_each(ITEMS, Ranked(), baselines=False))


def test_a_run_of_another_refiner_or_other_data_or_without_baselines_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    refine_each(ITEMS, Ranked(), baselines=False, path=path)

    with pytest.raises(ConfigError, match="holds rows of Ranked without baselines, and this is Ranked with baselines"):
        refine_each(ITEMS, Ranked(), path=path, resume=True)
    with pytest.raises(ConfigError, match="this is Failing"):
        refine_each(ITEMS, Failing(), baselines=False, path=path, resume=True)
    with pytest.raises(ConfigError, match="1 of its 4 are not, or not the same"):
        refine_each([*ITEMS[:3], replace(ITEMS[3], gold=(Gold(1, 0, 8),))], Ranked(), baselines=False, path=path, resume=True)


@pytest.mark.parametrize(
    "change", [{"curve": [1, 2]}, {"found": 2}, {"kept": 35}, {"curve": [2] * 101}, {"baselines": {"first": [0]}}, {"gold": 0}]
)
def test_a_row_that_can_not_be_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "rows.jsonl"
    refine_each(ITEMS[:1], Ranked(), path=path)
    head, row = path.read_text().splitlines()
    path.write_text(f"{head}\n{json.dumps(json.loads(row) | change)}\n")

    with pytest.raises(ConfigError, match="line 2: no row of a run"):
        refine_each(ITEMS[:1], Ranked(), path=path, resume=True)


# The report


def row(name: str, found: Sequence[int], *, gold: int = 2, kept: int = 50, **keys: Any) -> RefinementRow:
    """A row whose curve rises to each count at 0, 25, 50, 75 and 100 %."""
    curve = tuple(found[n * (len(found) - 1) // STEPS] for n in range(STEPS + 1))
    facts: dict[str, Any] = {"id": name, "digest": "d", "source": "set", "lang": "en", "gold": gold, "characters": 100, "seconds": 0.5}
    return RefinementRow(**facts | {"kept": kept, "found": found[2], "curve": curve, "baselines": {"first": (0,) * STEPS + (gold,)}} | keys)


ROWS = [row("a", [0, 1, 2, 2, 2], kept=20), row("b", [0, 0, 1, 1, 1], gold=1, kept=40, calls=2, input_tokens=9)]


def report_of(rows: Sequence[RefinementRow] = ROWS, **keys: Any) -> RefinementReport:
    return make_refinement_report(rows, RUN, resamples=100, **keys)


def test_the_numbers_of_a_small_set_by_hand() -> None:
    """Means of 0 below 25 %, of 1/4 (one of two gold sentences, none of one) below 50 %, and of 1 from there."""
    (one,) = report_of().sets

    own = one.rankings["refiner"]
    assert (own.at(24).value, own.at(25).value, own.at(49).value, own.at(50).value, own.at(100).value) == (0, 0.25, 0.25, 1, 1)
    assert own.area.value == pytest.approx((0.125 + 24 * 0.25 + 0.625 + 50) / 100)
    assert own.enough is not None
    assert own.enough.value == 0.5
    assert one.rankings["first"].area.value == pytest.approx(0.005)
    assert one.point is not None
    assert (one.point.kept.value, one.point.recall.value) == (pytest.approx(0.3), 1)
    assert (one.questions, one.gold, one.characters, one.calls, one.input_tokens, one.seconds) == (2, 3, 200, 2, 9, 1.0)


def test_the_mean_is_over_questions_and_intervals_hold_it() -> None:
    rows = [row(str(n), [0, n % 2, 1 + n % 2, 2, 2]) for n in range(30)]

    own = report_of(rows).sets[0].rankings["refiner"]

    for share in SHARES:
        at = own.at(share)
        assert at.low is not None
        assert at.high is not None
        assert at.low <= at.value <= at.high
    assert own.at(25).value == 0.25
    assert 0.1 < own.high[25] - own.low[25] < 0.4


def test_sets_and_languages_are_apart_and_failed_questions_are_left_out_of_every_number() -> None:
    failed = row("f", [0] * 5, error="timeout", curve=(), baselines={})
    rows = [*ROWS, failed, *(replace(r, lang="zh", id=r.id + "z") for r in ROWS)]

    first, second = report_of(rows).sets

    assert (first.lang, first.questions, dict(first.failed)) == ("en", 3, {"timeout": 1})
    assert first.rankings == second.rankings
    assert first.point == second.point


def test_one_question_has_no_interval_and_nothing_but_failures_no_number() -> None:
    failed = row("f", [0] * 5, error="timeout", curve=(), baselines={})
    one, none = report_of([ROWS[0], replace(failed, source="other")]).sets

    assert one.rankings["refiner"].at(25).low is None
    assert (none.point, none.rankings) == (None, {})
    page = Page(render(report_of([replace(failed, source="other")])))
    assert "1 questions failed and are left out: 1 with timeout" in page.text


def test_a_curve_that_never_finds_enough_has_no_share_for_it() -> None:
    (one,) = report_of([row(n, [0, 1, 1, 1, 1]) for n in "ab"]).sets

    assert one.rankings["refiner"].enough is None
    assert "–" in render(report_of([row(n, [0, 1, 1, 1, 1]) for n in "ab"]))


def test_the_page_escapes_every_name_and_needs_nothing_from_elsewhere() -> None:
    hostile = "<script>alert(1)</script>&\"'"
    rows = [replace(r, source=hostile, lang="<b>") for r in ROWS]
    run = RefinerRun("<img src=x>", "<u>", "<i>", True)

    html = render(make_refinement_report(rows, run, without_gold={(hostile, "en"): 3}, resamples=50))

    page = Page(html)
    assert not {"script", "img", "b", "i", "u", "link", "iframe"} & {tag for tag, _ in page.tags}
    assert page.open == []
    assert f"3 of {hostile} (en)" in page.text
    assert not [value for _, attributes in page.tags for name, value in attributes.items() if name in ("src", "srcset", "action")]
    assert "http://" not in html.replace("http://www.w3.org/", "")


def test_the_plot_says_in_words_what_it_shows() -> None:
    page = Page(render(report_of()))

    (drawn,) = (attributes for tag, attributes in page.tags if tag == "svg")
    assert "refiner, ranked: area 0.57, recall 0.25 at 25%" in (drawn["aria-label"] or "")
    assert "keeps: 30% of the characters with 100% of the gold sentences" in (drawn["aria-label"] or "")
    assert page.text.count("recall at 33%") == 1


def test_a_measurement_on_the_public_questions_by_words(tmp_path: Path) -> None:
    report = measure_refinement([FIXTURE], WordRefiner(), folder=tmp_path / "run", limit=3)

    assert {p.name for p in (tmp_path / "run").iterdir()} == {"rows.jsonl", "report.json", "report.html"}
    found = json.loads((tmp_path / "run" / "report.json").read_text())
    assert (found["refiner"], found["baselines"], len(found["shares"])) == ("WordRefiner", True, STEPS + 1)
    assert [s["questions"] for s in found["sets"]] == [3] * 4
    assert [list(s["rankings"]) for s in found["sets"]] == [["refiner", *(b.name for b in BASELINES)]] * 4
    assert found["sets"][0]["rankings"]["refiner"]["recall"][33] == report.sets[0].rankings["refiner"].at(33).value
    assert all(s.rankings["refiner"].at(100).value == 1 for s in report.sets)


def test_questions_without_gold_are_left_out_and_counted_by_language(tmp_path: Path) -> None:
    bare = [{"sentences": ["One."], "gold": []}]
    path = write(tmp_path / "a.jsonl", line(), line(passages=bare), line("问？", lang="zh"), line("问？", lang="zh", passages=bare))

    report = measure_refinement([path], Ranked(), folder=tmp_path / "run", languages=["zh"], baselines=False)

    assert report.without_gold == {("a", "zh"): 1}
    assert [s.questions for s in report.sets] == [1]
    with pytest.raises(ConfigError, match="none of 1 questions has a gold sentence"):
        measure_refinement([write(tmp_path / "b.jsonl", line(passages=bare))], Ranked(), folder=tmp_path / "other")


def test_a_run_in_which_everything_failed_is_an_error_and_can_go_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", line("about q1"))

    with pytest.raises(RefineError, match="not one of 1 questions could be refined: 1 times unauthorized"):
        measure_refinement([path], Failing(q1=RefineError("no", reason="unauthorized")), folder=tmp_path / "run")
    assert not (tmp_path / "run" / "report.json").exists()
    assert measure_refinement([path], Failing(), folder=tmp_path / "run", resume=True).sets[0].failed == {}
