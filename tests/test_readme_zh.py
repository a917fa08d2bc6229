"""The Chinese README says the same as the English one: section by section, the same code, names, numbers and links."""

import re
from collections import Counter
from itertools import zip_longest
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"\s+# .*$", re.MULTILINE)
NOTE = re.compile(r"^\*\*(?:中文简介|English|中文).*?(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)
"""The paragraph for readers of the other language."""


def sections(name: str) -> list[tuple[str, str]]:
    """Each heading's level and what stands under it, the first of them with what stands above all others."""
    text = NOTE.sub("", (ROOT / name).read_text(encoding="utf-8"))
    parts = re.split(r"^(#+) .*\n", BLOCK.sub(lambda block: block[0].replace("\n#", "\n\u0000"), text), flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


PAIRS = list(zip_longest(sections("README.md"), sections("README.zh.md"), fillvalue=("", "")))
each_section = pytest.mark.parametrize(("english", "chinese"), [(a[1], b[1]) for a, b in PAIRS], ids=[str(n) for n in range(len(PAIRS))])


def code(text: str) -> list[tuple[str, str]]:
    """The blocks in a language, without their comments; the drawing is in neither."""
    return [(language, COMMENT.sub("", body)) for language, body in BLOCK.findall(text) if language]


def names(text: str) -> Counter[str]:
    """What stands in backquotes in the running text."""
    return Counter(re.findall(r"`([^`\n]+)`", BLOCK.sub("", text)))


def numbers(text: str) -> Counter[str]:
    return Counter(re.findall(r"\d+(?:[.,]\d+)*", text))


def links(text: str) -> Counter[str]:
    return Counter(re.findall(r"\]\(([^)]+)\)", text))


def rows(text: str) -> list[int]:
    """How many cells each row of the tables has."""
    return [line.count("|") for line in text.splitlines() if line.startswith("|")]


def test_both_have_the_same_sections() -> None:
    assert [a[0] for a, _ in PAIRS] == [b[0] for _, b in PAIRS]


@each_section
def test_a_section_has_the_same_code(english: str, chinese: str) -> None:
    assert code(chinese) == code(english)


@each_section
def test_a_section_has_the_same_names_numbers_and_links(english: str, chinese: str) -> None:
    assert names(chinese) == names(english)
    assert numbers(chinese) == numbers(english)
    assert links(chinese) == links(english)


@each_section
def test_a_section_has_the_same_tables_and_as_many_points(english: str, chinese: str) -> None:
    assert rows(chinese) == rows(english)
    assert len(re.findall(r"^- ", chinese, re.MULTILINE)) == len(re.findall(r"^- ", english, re.MULTILINE))


def test_every_line_of_the_chinese_one_is_chinese() -> None:
    """But for lines of names and links."""
    for _, text in sections("README.zh.md"):
        for line in BLOCK.sub("", text).splitlines():
            said = re.sub(r"`[^`]*`|\[[^]]*\]\([^)]*\)", "", line)
            assert re.search(r"[\u4e00-\u9fff]", said) or not re.search(r"[a-z]{3,}", said), line
