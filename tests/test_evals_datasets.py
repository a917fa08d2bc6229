"""Labelled questions: every schema, one's own files, and what is wrong with them."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from crag_middleware.errors import ConfigError
from crag_middleware.evals.datasets import Item, is_negative, load, only_negatives, select

FIXTURE = Path(__file__).resolve().parent.parent / "examples" / "eval" / "relevance.jsonl"
PRIVATE = "the vault opens with 4711"


def write(path: Path, *lines: Any) -> Path:
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n" for line in lines), "utf-8")
    return path


def one(path: Path, line: Any) -> Item:
    (item,) = load([write(path / "data.jsonl", line)])
    return item


def test_a_question_and_the_texts_of_its_passages_are_enough(tmp_path: Path) -> None:
    item = one(tmp_path, {"question": "苹果多少钱一斤？", "passages": [{"text": "五元"}, {"text": ""}]})

    assert (item.id, item.lang, item.source, item.weak) == ("data-1", "zh", "data", False)
    assert [p.id for p in item.passages] == ["1", "2"]
    assert (item.labels, item.answerable) == ((None, None), None)


@pytest.mark.parametrize(
    ("labels", "given", "answerable"),
    [
        (["relevant", "incorrect"], None, True),
        (["incorrect", False], None, False),
        ([True, None], None, True),
        (["incorrect", "unselected"], None, None),
        (["relevant"], False, False),
        ([None, None], True, True),
    ],
)
def test_answerable_follows_from_the_labels_unless_it_is_said(
    tmp_path: Path, labels: list[Any], given: bool | None, answerable: bool | None
) -> None:
    line = {"question": "q", "answerable": given, "passages": [{"text": "t", "label": label} for label in labels]}

    assert one(tmp_path, line).answerable is answerable


def test_counterfactual_passages_are_left_out_and_the_others_keep_their_numbers(tmp_path: Path) -> None:
    labels = ["counterfactual", "relevant", "unselected"]
    item = one(tmp_path, {"question": "q", "weak": True, "passages": [{"text": str(n), "label": x} for n, x in enumerate(labels)]})

    assert [p.id for p in item.passages] == ["2", "3"]
    assert (item.labels, item.weak) == ((True, None), True)


def test_sentences_become_passages_and_gold_ones_make_them_relevant(tmp_path: Path) -> None:
    passages = [{"title": "T", "sentences": ["One .", " Two ."], "gold": [1]}, {"sentences": ["Three."], "gold": []}]
    item = one(tmp_path, {"id": "e", "lang": "en", "source": "S", "question": "q", "answers": [], "passages": passages})

    assert [(p.title, p.text) for p in item.passages] == [("T", "One . Two ."), ("", "Three.")]
    assert item.labels == (True, False)


def test_a_passage_beside_the_data_is_found_and_what_has_no_gold_sentence_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "cmrc_contexts.jsonl", {"ctx": "c1", "context": "上下文"})
    lines = [
        {"id": name, "lang": "zh", "source": "CMRC", "question": question, "ctx": "c1", "gold": gold}
        for name, question, gold in (("a", "问", [0]), ("b", "问", []), ("c", " ", [0]))
    ]

    items = load([write(tmp_path / "evidence.jsonl", *lines)])

    assert [(i.id, i.passages[0].text, i.labels) for i in items] == [("a", "上下文", (True,))]


def test_both_halves_of_a_data_set_are_one_set(tmp_path: Path) -> None:
    yes = {
        "id": "a",
        "lang": "en",
        "source": "CLAPnq dev answerable",
        "question": "q",
        "passages": [{"title": "T", "sentences": ["s"], "gold": [0]}],
    }
    no = {
        "id": "b",
        "lang": "en",
        "source": "CLAPnq dev unanswerable",
        "question": "q",
        "title": "T",
        "sentences": ["s"],
        "answerable": False,
    }

    items = load([write(tmp_path / "one.jsonl", yes), write(tmp_path / "two.jsonl", no)])

    assert [(i.source, i.answerable, i.labels) for i in items] == [("CLAPnq dev", True, (True,)), ("CLAPnq dev", False, (False,))]


def test_an_article_gives_a_question_with_its_paragraph_each(tmp_path: Path) -> None:
    asked = [{"id": "q1", "q": "Who?", "answerable": True, "answers": ["x"]}, {"q": "When?", "answerable": False}]
    path = write(tmp_path / "squad.jsonl", {"id": "art", "source": "S", "title": "T", "paragraphs": [{"context": "c", "qas": asked}]})

    assert [(i.id, i.answerable, i.passages[0].text) for i in load([path])] == [("q1", True, "c"), ("art-1-2", False, "c")]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{broken", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "got a list"),
        ('"text"', "got a str"),
        ({"claim": PRIVATE, "label": "x"}, "got an object with 'claim', 'label'"),
        ({"question": PRIVATE, "passages": []}, "`passages` must hold one"),
        ({"question": " ", "passages": [{"text": PRIVATE}]}, "`question`"),
        ({"question": 5, "passages": [{"text": PRIVATE}]}, "`question`"),
        ({"question": "q", "passages": [{"text": PRIVATE, "label": "sure"}]}, "`passages.0.label"),
        ({"question": "q", "passages": [{"text": PRIVATE, "label": 1}]}, "`passages.0.label"),
        ({"question": "q", "passages": [{"text": PRIVATE, "label": "counterfactual"}]}, "not counterfactual"),
        ({"question": "q", "passages": [{"id": "2", "text": PRIVATE}, {"text": "t"}]}, "must differ"),
        ({"question": "q", "passages": [{"text": None}]}, "`passages.0.text`"),
        ({"question": "q", "passages": [{"text": "\ud800"}]}, "`passages.0.text`"),
        ({"question": "q", "source": "a\x1b[31m", "passages": [{"text": PRIVATE}]}, "`source`"),
        ({"question": "q", "ctx": "c", "gold": [0]}, "can't be read"),
    ],
)
def test_a_line_that_is_no_question_is_one_error_with_file_and_line_and_without_the_text(tmp_path: Path, line: Any, said: str) -> None:
    text = line if isinstance(line, str) else json.dumps(line)
    path = write(tmp_path / "data.jsonl", {"question": "fine", "passages": [{"text": "t"}]}, "", text)

    with pytest.raises(ConfigError) as caught:
        load([path])

    message = str(caught.value)
    assert said in message
    assert "line 3" in message or "cmrc_contexts.jsonl" in message
    assert PRIVATE not in message
    assert "\n" not in message


@pytest.mark.parametrize("content", [None, b"", b"\n \n", b"\xff\xfe{\x00", "directory"])
def test_a_file_that_holds_no_questions_is_one_error(tmp_path: Path, content: bytes | str | None) -> None:
    path = tmp_path / "data.jsonl"
    if content == "directory":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"data\.jsonl"):
        load([path])


def test_a_mark_at_the_beginning_and_line_ends_of_windows_do_no_harm(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"question": "q", "passages": [{"text": "a\xe2\x80\xa8b"}]}\r\n')

    assert load([path])[0].passages[0].text == "a\u2028b"


def test_an_id_may_occur_once_in_all_files(tmp_path: Path) -> None:
    line = {"id": "same", "question": "q", "passages": [{"text": "t"}]}

    with pytest.raises(ConfigError, match="'same' occurs twice"):
        load([write(tmp_path / "a.jsonl", line), write(tmp_path / "b.jsonl", line)])


def test_a_higher_limit_keeps_what_a_lower_one_chose() -> None:
    items = load([FIXTURE])

    few, more = (select(items, limit=n) for n in (3, 9))

    assert {i.id for i in few} < {i.id for i in more}
    assert set(Counter((i.source, i.lang) for i in few).values()) == {3}
    assert select(items) == items


def test_a_language_that_no_question_has_is_an_error() -> None:
    items = load([FIXTURE])

    assert {i.lang for i in select(items, languages=["zh", "zh-en"])} == {"zh", "zh-en"}
    with pytest.raises(ConfigError, match=r"'fr'; the data has 'en', 'zh', 'zh-en'"):
        select(items, languages=["en", "fr"])


def test_only_negatives_keeps_what_is_known_not_to_answer(tmp_path: Path) -> None:
    def line(name: str, answerable: bool | None, *labels: str | None) -> dict[str, Any]:
        return {"id": name, "question": "q", "answerable": answerable, "passages": [{"text": "t", "label": label} for label in labels]}

    lines = [line("a", None, "relevant", "incorrect"), line("b", False, None, None), line("c", True, None), line("d", None, "relevant")]

    found = only_negatives(load([write(tmp_path / "data.jsonl", *lines)]))

    assert [(i.id, [p.id for p in i.passages], i.answerable) for i in found] == [("a", ["2"], False), ("b", ["1", "2"], False)]
    assert all(is_negative(label, i.answerable) for i in found for label in i.labels)


def test_a_digest_changes_with_question_passage_and_label(tmp_path: Path) -> None:
    base: dict[str, Any] = {"question": "q", "passages": [{"text": "t", "label": "relevant"}]}
    others = [{**base, "question": "Q"}, {**base, "passages": [{"text": "T", "label": "relevant"}]}, {**base, "passages": [{"text": "t"}]}]

    digests = [one(tmp_path, line).digest for line in (base, {**base, "id": "other", "lang": "fr"}, *others)]

    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


def test_of_each_public_set_a_fifth_is_unanswerable() -> None:
    answers = Counter((i.source, i.lang, i.answerable) for i in load([FIXTURE, FIXTURE.with_name("near_misses.jsonl")]))
    sets = {(source, lang) for source, lang, _ in answers}

    assert {source for source, _ in sets} == {"handmade", "near misses", "CLAPnq", "CMRC 2018"}
    for source, lang in sets:
        yes, no = answers[source, lang, True], answers[source, lang, False]
        assert no >= 0.2 * (yes + no), (source, lang)
