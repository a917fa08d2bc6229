"""Whatever comes in from outside, what reads it ends as it documents, keeps its promises and takes time in proportion to its length."""

import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crag_middleware.stages.citations import Mender, mend
from crag_middleware.stages.gate import Gate
from fuzz.readers import READERS, SOURCES

UNITS = (
    *(
        "a",
        "1",
        " ",
        "\n",
        "\t",
        "\u3000",
        "\u200b",
        ".",
        "，",
        "。",
        "?",
        "-",
        "(",
        ")",
        "'",
        '"',
        "\\",
        "#",
        "=",
        "*",
        "_",
        "|",
        "`",
        "[",
        "{",
        "<",
    ),
    *(
        "</",
        "&lt;",
        "<p>",
        "<td>",
        "<!--",
        "[1]",
        "[9] ",
        "【2†",
        '{"a":',
        "[[",
        "```\n",
        "- ",
        "1. ",
        "| a |\n",
        "a b. ",
        "Dr. ",
        "a@b.",
        "x=",
        'title: "',
    ),
    *(
        "中\n",
        "大中",
        "第一",
        "《",
        "“",
        "一千",
        "密码是",
        "password is ",
        "not ",
        "I don't know, but ",
        "yes, ",
        "1,000 ",
        "2024-01-01 ",
        "v1.2.",
        "5 % ",
    ),
    *("é", "ﷺ", "𠀀", "①", "\ud800", "\x00", "port 19530 is "),
)
"""What long texts are made of: signs that open something, repeat something or almost match."""

WORDS = (
    *(
        '{"grades": [',
        '{"passage": 1, "label": "relevant", "confidence": 0.9}',
        "]}",
        "```json\n",
        "<think>",
        "</think>",
        "NaN",
        "1e999",
        "-1",
        "9" * 30,
    ),
    *(
        "1. relevant",
        "2: no",
        "不相关",
        "Lines: 1-3",
        "none",
        "Query:",
        "sure, ",
        "[1, 2]",
        "[K1]",
        "[1-99]",
        "(",
        "items[0]",
        "supported",
        "passage 1",
    ),
    *(
        "Milvus 2.4 uses port 19530.",
        "默认端口是 19530。",
        "site:example.org",
        "https://a.example/?key=1",
        "http://[::1",
        "sk-abc123def456ghi789",
        "\r\n",
    ),
    *(
        "%PDF-1.4\n",
        "PK\x03\x04",
        "---\ntitle: x\n---\n",
        "<table><tr><td rowspan=99999>",
        "<h1>",
        "a,b\n",
        '"',
        "=====\n",
        "\ufeff",
        "\udcff",
        "| --- |\n",
    ),
    *('{"question": "q", "passages": []}', '{"version": 1', '{"top_k": 5}', '{"deny_domains": "x"}', 'metadata["a"]', "\\u0000"),
)

texts = st.one_of(st.text(), st.lists(st.one_of(st.sampled_from(WORDS + UNITS), st.text(max_size=5)), max_size=30).map("".join))
quickly = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
thoroughly = settings(quickly, max_examples=1000)


@pytest.mark.parametrize("name", READERS)
@quickly
@given(text=texts)
def test_no_text_breaks_a_reader(name: str, text: str) -> None:
    READERS[name](text)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", READERS)
@thoroughly
@given(text=texts)
def test_no_text_of_many_breaks_a_reader(name: str, text: str) -> None:
    READERS[name](text)


def pieces(text: str, cuts: list[int]) -> list[str]:
    """The text cut at these places."""
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


@settings(quickly, max_examples=150)
@given(text=texts, cuts=st.lists(st.integers(0, 10_000)))
def test_an_answer_is_cut_and_mended_alike_in_whatever_pieces_it_comes(text: str, cuts: list[int]) -> None:
    gate, mender, whole = Gate(), Mender(SOURCES, "remove"), Gate()

    shown = [sentence for piece in pieces(text, cuts) for sentence in gate.feed(piece)] + gate.end()
    mended = "".join(mender.feed(piece) for piece in pieces(text, cuts)) + mender.end()

    assert shown == whole.feed(text) + whole.end()
    assert mended == mend(text, SOURCES).text
    assert tuple(mender.citations) == mend(text, SOURCES).citations


def test_a_sentence_without_end_is_let_go_in_parts() -> None:
    gate = Gate()

    shown = gate.feed("word " * 20_000)

    assert max(len(sentence.text) for sentence in shown) < 4001
    assert len("".join(sentence.text for sentence in shown)) > 95_000


def seconds(read: Callable[[str], object], text: str) -> float:
    """Processor time, the less of two tries."""

    def once() -> float:
        begun = time.thread_time()
        read(text)
        return time.thread_time() - begun

    return min(once(), once())


def assert_linear(read: Callable[[str], object], make: Callable[[int], str], size: int) -> None:
    """Eight times the text may take eight times the time; in quadratic time it would be sixty-four. What is too quick to measure passes."""
    if (longer := seconds(read, make(8 * size))) > 0.1:
        assert longer < 28 * seconds(read, make(size)), f"{size} to {8 * size} characters of {make(8)!r}"


def long_text(unit: str, frame: str = "{}") -> Callable[[int], str]:
    """Texts of about so many characters."""
    return lambda size: frame.replace("{}", unit * (size // len(unit)))


LIMITS = {"web_query": 1000}
"""Readers whose text is bounded before: a question has at most 8,000 characters."""


@pytest.mark.parametrize("name", READERS)
def test_no_long_text_takes_long_to_read(name: str) -> None:
    READERS[name]("warm")
    for unit in UNITS[::2]:
        assert_linear(READERS[name], long_text(unit), 500)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", READERS)
def test_no_very_long_text_takes_long_to_read(name: str) -> None:
    READERS[name]("warm")
    for unit in UNITS:
        for frame in ("{}", "x{}x"):
            assert_linear(READERS[name], long_text(unit, frame), LIMITS.get(name, 5_000))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("unit", [" ", ".", "a", "中\n", "[", "<", "1,", "`"])
@pytest.mark.parametrize("name", sorted(READERS.keys() - LIMITS.keys()))
def test_a_megabyte_is_read_in_time(name: str, unit: str) -> None:
    READERS[name]("warm")
    assert_linear(READERS[name], long_text(unit), 125_000)
