"""What chat models write, read leniently: text without reasoning, JSON inside prose, numbers and labels in any dress."""

import json
import math
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from crag_middleware.types import Label

MAX_REPLY_CHARS = 100_000
"""A longer reply is cut before it is read; no grading comes near it."""

MAX_BROKEN = 200
"""Brackets that begin no JSON; after so many there is none, and each costs a look at the rest of the text."""

_REASONING = re.compile(r"<(think|thinking|thought|reasoning)\b[^<>]{0,200}>.*?(?:</\1\s{0,8}>|\Z)", re.DOTALL | re.IGNORECASE)
_REASONING_END = re.compile(r"\A.*</(?:think|thinking|thought|reasoning)\s{0,8}>", re.DOTALL | re.IGNORECASE)
_BRACKET = re.compile(r"[{\[]")
_DECODER = json.JSONDecoder()


def without_reasoning(reply: str) -> str:
    """The reply without reasoning in tags, also where only the opening or only the closing tag is left."""
    return _REASONING_END.sub("", _REASONING.sub("", reply[:MAX_REPLY_CHARS])).strip()


def json_values(text: str) -> Iterator[Any]:
    """Every complete JSON object or array in a text, outermost first, in order; broken ones give their complete parts."""
    at = broken = 0
    while broken < MAX_BROKEN and (start := _BRACKET.search(text, at)):
        try:
            value, at = _DECODER.raw_decode(text, start.start())
        except ValueError:  # broken JSON, or an integer of thousands of digits
            at = start.end()
            broken += 1
        except RecursionError:  # thousands of brackets in a row: nothing worth reading
            return
        else:
            yield value


def fraction(value: object) -> float | None:
    """A stated confidence in [0, 1]: `0.92`, `92`, `"92%"`, `"0.92"`; 1 means 1.0. None outside 0 to 100 and for anything else."""
    if isinstance(value, bool):
        return None
    try:
        text = unicodedata.normalize("NFKC", value).strip() if isinstance(value, str) else ""
        number = float(text.removesuffix("%") if text else value)  # type: ignore[arg-type]  # what float refuses is unknown
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number) or not 0 <= number <= 100:
        return None
    return number / 100 if number > 1 or text.endswith("%") else number


_PLAIN: dict[str, Label] = {
    "yes": "relevant",
    "no": "incorrect",
    "maybe": "ambiguous",
    "是": "relevant",
    "否": "incorrect",
    "可能": "ambiguous",
}
_WORDS = re.compile(
    r"(?P<unknown>not (?:\w+ )?(?:irrelevant|incorrect|unrelated|ambiguous|wrong)|并?[非不]是?(?:不相关|无关|不正确))"
    r"|(?P<ambiguous>(?:not (?:fully|entirely|completely|wholly|directly|very|quite) |partial(?:ly)? |partly |somewhat |possibly |maybe |perhaps "
    r"|potentially |weakly |marginally |slightly |may be |might be |could be )(?:relevant|related|correct)"
    r"|ambiguous|uncertain|unclear|unsure|partial(?:ly)?|不(?:完全|太|够|很)(?:相关|正确)|部分(?:相关|正确)|(?:可能|或许|也许|弱|略微|有些|有点)(?:相关|有关)|不确定|不明确|模糊|存疑|歧义)"
    r"|(?P<incorrect>irrelevant|nonrelevant|incorrect|unrelated|wrong|(?:non|not|never|isn t|hardly|barely)(?: \w+){0,2} (?:relevant|related|correct)"
    r"|(?:does not|doesn t|do not|don t|cannot|can t|fails to|without) (?:\w+ ){0,2}(?:answer\w*|contain|mention|address|state|provide)"
    r"|no (?:\w+ )?(?:answer|relevance)|[不没未无][^，。；\s]{0,2}(?:相关|有关|关联|正确|回答|提及|提到|包含|涉及)|无关|错误)"
    r"|(?P<relevant>(?<![a-z])(?:relevant|related|correct)|相关|有关|正确)"
)


def read_label(text: object) -> Label | None:
    """The label that a word or a short sentence means, in English or Chinese; None if it means none or several.

    Negations count with what they negate: "not relevant" and "不相关" are `incorrect`, "partially relevant" and "部分相关" are `ambiguous`.
    """
    if not isinstance(text, str):
        return None
    words = " ".join(re.sub(r"[\W_]+", " ", unicodedata.normalize("NFKC", text[:500]).casefold()).split())
    if words in _PLAIN:
        return _PLAIN[words]
    found = {match.lastgroup for match in _WORDS.finditer(words)}
    for name in ("relevant", "ambiguous", "incorrect"):
        if found == {name}:
            return name
    return None
