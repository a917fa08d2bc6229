"""What chat models write, read leniently: text without reasoning, JSON inside prose, numbers and labels in any dress."""

import json
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from crag_middleware.stages.fences import seen
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


_AMOUNT = re.compile(
    r"(?:about|around|approx(?:imately|\.)?|[~≈约]|大约|大概)?\s*+(?P<of_100>百分之)?\s*+(?P<number>\+?(?:\d+(?:[.,]\d*)?|[.,]\d+)(?:e[+-]?\d{1,3})?)"
    r"\s*+(?P<percent>%|per ?cent|pct)?(?:(?:/|out of|of)\s*+(?P<whole>\d+(?:\.\d+)?))?\s*+(?:\([^()\d]*\))?\.?",
    re.IGNORECASE,
)
_THOUSANDS = re.compile(r"\+?[1-9]\d*,\d{3}")


def fraction(value: object) -> float | None:
    """A stated confidence in [0, 1]: `0.92`, `92`, `"92%"`, `"0.92"`, `"0,92"`, `"9/10"`; 1 means 1.0. None outside 0 to 100 and for anything else."""
    if isinstance(value, bool):
        return None
    scale = None
    if isinstance(value, str):
        text = unicodedata.normalize("NFKC", seen(value)).strip()
        found = _AMOUNT.fullmatch(text)
        if found is None or _THOUSANDS.fullmatch(found["number"]):
            return None
        value = found["number"].replace(",", ".")
        scale = 100.0 if found["percent"] or found["of_100"] else float(found["whole"]) if found["whole"] else None
    try:
        number = float(value)  # type: ignore[arg-type]  # what float refuses is unknown
    except (TypeError, ValueError, OverflowError):
        return None
    scale = (100.0 if number > 1 else 1.0) if scale is None else scale
    return abs(number / scale) if scale and 0 <= number <= scale else None  # abs, since -0.0 is none


_PLAIN: dict[str, Label] = {
    **dict.fromkeys(("yes", "true", "是", "对"), "relevant"),
    **dict.fromkeys(("no", "false", "否", "不对"), "incorrect"),
    **dict.fromkeys(("maybe", "可能"), "ambiguous"),
}
_SIMPLIFIED = str.maketrans("關無聯沒確錯誤間較強離題對係偏當應該與", "关无联没确错误间较强离题对系偏当应该与")
_FIT = "(?:relev[ae]nt|related|correct)"
_ZH_FIT = "(?:相关|有关|正确)"
_ZH_RELEVANCE = "(?:相关|关联|关系)(?:性|度|程度)? ?"
_MEANINGS: dict[str, tuple[str, ...]] = {
    "unknown": (
        r"not (?:\w+ )?(?:ir|un|in)(?:relev[ae]nt|related|correct)|not (?:ambiguous|wrong)",
        "(?:并?[非不]|没有)是?(?:不相关|无关|不正确)",
    ),
    "ambiguous": (
        f"not (?:fully|entirely|completely|wholly|directly|very|quite|really|particularly) {_FIT}",
        f"(?:partial(?:ly)?|partly|somewhat|possibly|maybe|perhaps|potentially|weakly|marginally|slightly|loosely|indirectly|tangentially) {_FIT}",
        f"(?:moderately|borderline|semi|half|less|(?:may|might|could) be) {_FIT}",
        "(?:low|little|medium|moderate|limited|partial) relevance|relevance (?:is )?(?:low|medium|moderate|limited)",
        "ambiguous|uncertain|unclear|unsure|not sure|inconclusive|borderline|partial(?:ly)?",
        "(?:cannot|can t|hard to|unable to) (?:tell|judge|determine|decide)",
        f"不是?(?:完全|太|够|很|十分|特别|怎么|那么|非常){_ZH_FIT}",
        f"(?:部分|可能|或许|也许|略微|有些|有点|间接|中等|一般|勉强|[弱低]度?){_ZH_FIT}",
        f"{_ZH_RELEVANCE}(?:(?:较|比较|很|偏|略|太)?(?:低|弱|差|小|中|一般|有限)|并?不(?:太|够|是?很)?[高强大])",
        "不确定|不明确|模糊|存疑|歧义|(?:无法|不能|难以)(?:判断|判定|确定)|不好说|说不准",
    ),
    "incorrect": (
        r"irrelev[ae]nt|nonrelevant|incorrect|unrelated|wrong|off ?topic|relev[ae]nt (?:no|false)\Z",
        rf"(?:non|not|never|isn t|hardly|barely|far from|anything but|neither|no longer)(?: \w+){{0,2}} {_FIT}",
        r"(?:does not|doesn t|do not|don t|cannot|can t|fails to|without) (?:\w+ ){0,2}(?:answer\w*|contain|mention|address|state|provide)",
        r"no (?:\w+ )?(?:answer|relevance)",
        r"[不没未无][^，。；\s]{0,2}(?:相关|有关|关联|关系|正确|回答|提及|提到|包含|涉及)|非相关|无关|错误|答非所问|[跑离偏]题|不沾边",
    ),
    "relevant": (f"(?<![a-z]){_FIT}|high relevance|relevance (?:is )?high", _ZH_FIT),
}
"""Patterns in folded text without punctuation; at one place the earlier one counts."""

_WORDS = re.compile("|".join(f"(?P<{meaning}>{'|'.join(patterns)})" for meaning, patterns in _MEANINGS.items()))
_BETWEEN_HAN = re.compile(r"(?<=[\u3400-\u9fff])\s+(?=[\u3400-\u9fff])")


def read_label(text: object) -> Label | None:
    """The label that a word, a short sentence or a yes or no means, in English or Chinese; None if it means none or several.

    Negations count with what they negate: "not relevant" and "不相关" are `incorrect`, "partially relevant" and "部分相关" are `ambiguous`.
    """
    if isinstance(text, bool):
        return "relevant" if text else "incorrect"
    if not isinstance(text, str):
        return None
    plain = _BETWEEN_HAN.sub("", unicodedata.normalize("NFKC", seen(text[:500])).casefold().translate(_SIMPLIFIED))
    words = " ".join(re.sub(r"[\W_]+", " ", plain).split())
    if words in _PLAIN:
        return _PLAIN[words]
    found = {match.lastgroup for match in _WORDS.finditer(words)}
    for name in ("relevant", "ambiguous", "incorrect"):
        if found == {name}:
            return name
    return None
