"""Sentences with one thing changed: a number, a unit, a date, a version, a name or a negation, English and Chinese.

What is changed is found here by means of its own, not by those of the checker that it measures.
"""

import random
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

KINDS = ("number", "unit", "date", "version", "name", "negation")


class Edit(NamedTuple):
    """A sentence that no longer says what it said, and what was changed."""

    kind: str
    text: str


_MONTHS = "January February March April May June July August September October November December".split()  # noqa: SIM905, a list of words reads better as text
_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()  # noqa: SIM905, the same
_UNITS = {
    "days": "hours weeks months", "day": "hour week month", "hours": "days minutes", "hour": "day minute", "minutes": "seconds hours", "seconds": "minutes",
    "weeks": "days months", "months": "weeks years", "years": "months days", "year": "month", "percent": "dollars", "%": " points",
    "MB": "GB KB", "GB": "MB TB", "KB": "MB", "TB": "GB", "km": "m miles", "kg": "g pounds", "USD": "EUR", "EUR": "USD", "dollars": "euros", "euros": "dollars",
    "miles": "kilometers feet", "feet": "miles inches", "meters": "feet", "kilometers": "miles",
    "million": "billion thousand", "billion": "million",
    "天": "小时 周 个月", "小时": "分钟 天", "分钟": "小时 秒", "周": "天 个月", "个月": "天 周 年", "元": "美元 欧元",
    "万元": "亿元 元", "亿元": "万元", "美元": "元 欧元",
    "公里": "米", "千米": "米", "米": "公里 厘米", "公斤": "克 吨", "吨": "公斤",
    "个工作日": "个月", "岁": "个月", "万": "亿", "亿": "万", "平方公里": "平方米",
}  # fmt: skip
_NAMES_EN = ("Lindqvist", "Okafor", "Tanaka", "Barcelona", "Nairobi", "Kowalski", "Veracruz", "Delacroix", "Oslo", "Brightwell")
_NAMES_ZH = ("陈立群", "吴晓东", "苏州", "兰州", "周海燕", "贵阳", "孙建国", "厦门", "海蓝科技", "哈尔滨")
_HAN = "零一二三四五六七八九"
_NUMBER = re.compile(r"(?<![\w.$-])\d{1,3}(?:,\d{3})+(?![\d.])|(?<![\w./:,-])\d+(?:\.\d+)?(?![\w./:-]*\d|[A-Za-z])")
_YEAR = re.compile(r"(?<![\d.,])(?:1[5-9]|20)\d\d(?![\d.,]\d|\d|[A-Za-z])")
_VERSION = re.compile(r"(?<![\w.])(v?\d+\.)(\d+)((?:\.\d+)*)(?![\w%]|\.\d)")
_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{3,}\b")
_AUX = re.compile(r"\b(is|are|was|were|can|will|may|must|should|could|has been|have been)\b(?! not|n't| no)(?= [a-z]{3,})")
_AUX_ZH = re.compile(r"(?<![不没未])(可以|可|能够|支持|允许|需要|应当|应该|包含|包括|提供|参加|接受)(?![不没])")
_NOT_ZH = re.compile(r"不(?=支持|允许|需要|可以|能|会|得|应|接受|提供)|没有(?=[\u4e00-\u9fff]{2})|未(?=能|经|获|被)")


def edits(sentence: str, chance: random.Random, *, names: tuple[str, ...] = ()) -> Iterator[Edit]:
    """One edit of each kind that the sentence allows.

    Args:
        sentence: The sentence.
        chance: Where and to what.
        names: Chinese names in it, for lack of capitals.
    """
    for kind in KINDS:
        made = _EDITORS[kind](sentence, chance, names)
        if made and made != sentence:
            yield Edit(kind, made)


def _put(text: str, match: re.Match[str], new: str) -> str:
    return text[: match.start()] + new + text[match.end() :]


def _number(text: str, chance: random.Random, _: tuple[str, ...]) -> str | None:
    found = [m for m in _NUMBER.finditer(text) if not _YEAR.fullmatch(m.group()) and text[m.end() : m.end() + 1] not in tuple("年月日号")]
    han = list(re.finditer(r"(?<![第之统唯万])[二三四五六七八九](?=[个种名人位座层天年条项次倍家])", text))
    if not found and not han:
        return None
    match = chance.choice(found or han)
    old = match.group()
    if old in _HAN:
        return _put(text, match, chance.choice([c for c in "二三四五六七八九" if c != old]))
    place = chance.choice([i for i, c in enumerate(old) if c.isdigit()])
    digits = [c for c in "123456789" if c != old[place]]
    return _put(text, match, old[:place] + chance.choice(digits) + old[place + 1 :])


def _unit(text: str, chance: random.Random, _: tuple[str, ...]) -> str | None:
    names = "|".join(sorted(map(re.escape, _UNITS), key=len, reverse=True))
    found = list(re.finditer(rf"(?<=\d)( ?)({names})(?![A-Za-z级代度])", text))
    if not found:
        return None
    match = chance.choice(found)
    return _put(text, match, match[1] + chance.choice(_UNITS[match[2]].split(" ") if match[2] != "%" else [" points"]))


def _date(text: str, chance: random.Random, _: tuple[str, ...]) -> str | None:
    made: list[str] = [
        _put(text, m, str(int(m.group()) + chance.choice((-11, -2, -1, 1, 2, 10))))
        for m in _YEAR.finditer(text)
        if text[m.end() : m.end() + 1] == "年" or text[: m.start()].endswith(("in ", "In ", "since ", ", "))
    ]
    for names, more in ((_MONTHS, r"(?= \d)"), (_DAYS, "")):
        made += [
            _put(text, m, chance.choice([n for n in names if n != m.group()]))
            for m in re.finditer(rf"\b(?:{'|'.join(names)})\b{more}", text)
        ]
    made += [_put(text, m, str(int(m.group()) % 12 + 1)) for m in re.finditer(r"(?<!\d)(?:[1-9]|1[0-2])(?=月)", text)]
    made += [_put(text, m, str(int(m.group()) % 28 + 1)) for m in re.finditer(r"(?<=月)\d{1,2}(?=日)", text)]
    return chance.choice(made) if made else None


def _version(text: str, chance: random.Random, _: tuple[str, ...]) -> str | None:
    found = [
        m
        for m in _VERSION.finditer(text)
        if m[3] or m[1].startswith("v") or re.search(r"(?:version|版本|Python|Milvus|PHP)\s?\Z", text[: m.start()])
    ]
    if not found:
        return None
    match = chance.choice(found)
    return _put(text, match, match[1] + str(int(match[2]) + chance.choice((1, 2, 10))) + match[3])


def _name(text: str, chance: random.Random, names: tuple[str, ...]) -> str | None:
    if names:
        old = chance.choice(names)
        return text.replace(old, chance.choice([n for n in _NAMES_ZH if n != old]), 1)
    found = [m for m in _NAME.finditer(text) if m.group() not in (*_MONTHS, *_DAYS)]
    return _put(text, chance.choice(found), chance.choice(_NAMES_EN)) if found else None


def _negation(text: str, chance: random.Random, _: tuple[str, ...]) -> str | None:
    made: list[str] = [_put(text, m, f"{m[1]} not" if " " not in m[1] else m[1].replace(" ", " not ", 1)) for m in _AUX.finditer(text)]
    made += [
        _put(text, m, m.group().replace(" not", "").replace("cannot", "can"))
        for m in re.finditer(r"\b(?:is|are|was|were|will|may|must|should|does|did) not\b|\bcannot\b", text)
    ]
    made += [_put(text, m, f"不{m[1]}") for m in _AUX_ZH.finditer(text)]
    made += [_put(text, m, "" if m.group() != "没有" else "有") for m in _NOT_ZH.finditer(text)]
    return chance.choice(made) if made else None


_EDITORS: dict[str, Callable[[str, random.Random, tuple[str, ...]], str | None]] = {
    "number": _number,
    "unit": _unit,
    "date": _date,
    "version": _version,
    "name": _name,
    "negation": _negation,
}
