"""The amounts, dates, times and versions of a text as values: `1,200`, `1.2k` and `一千二百` are one, and so are `30 天` and `thirty days`."""

import re
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from crag_middleware.stages.clock import date_at, time_at
from crag_middleware.stages.numbers import NUMERALS, han_value
from crag_middleware.stages.units import PREFIX, currency, unit_after

ValueKind = Literal["amount", "date", "time", "version"]
"""`amount`: a number with or without a unit; `version`: dotted digits, compared as they stand; `date`: year, month, day and weekday as far as told."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value, and where it stands in the text after `unicodedata.normalize("NFKC", text)`.

    Attributes:
        kind: What it is.
        parts: What it says, comparable with values of its kind only: `(number,)`, in the base of the unit; `(year, month, day, weekday)`, 0 for what is not
            told; `(minutes, told)`, told being 1 where morning and afternoon are told apart; nothing for a version.
        unit: The dimension of an amount, such as `second` for all lengths of time; empty if it has none.
        written: The number as it stands, without grouping commas.
        start: Where it begins.
        end: Where it ends, its unit included.
        each: What one of its unit is, in the base.
    """

    kind: ValueKind
    parts: tuple[Fraction, ...]
    unit: str
    written: str
    start: int
    end: int
    each: Fraction = Fraction(1)


_WORD = "|".join(sorted(NUMERALS, key=len, reverse=True))
_BIG = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SCALES = _BIG | {"k": 10**3, "m": 10**6, "mn": 10**6, "bn": 10**9, "十": 10, "百": 100, "千": 10**3, "万": 10**4, "亿": 10**8}
_HAN = "零〇一二两三四五六七八九"
_STARTER = re.compile(
    rf"(?:(?<![A-Za-z]){PREFIX}\s?|(?<![\w.%)])[-−+])?(?<![A-Za-z0-9_.])v?\d|第?[{_HAN}十]|百分之|(?:近|数|上|几)[十百千万亿]"
    r"|[周星礼](?=[一二三四五六日天期拜])|(?:上午|下午|早上|晚上|凌晨|清晨|傍晚|中午)"
    rf"|\b(?:(?:{_WORD}|a|half|{'|'.join(_BIG)})(?![a-z])|(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mon|tue|wed|thu|fri|sat|sun))",
    re.IGNORECASE | re.ASCII,
)

_VERSION = re.compile(r"v(?P<v>\d+(?:\.\d+)*)(?![\w])|(?P<n>\d+(?:\.\d+){2,})(?!\d|[A-Za-z]\w)", re.IGNORECASE | re.ASCII)
_DIGITS = re.compile(
    rf"(?P<sign>[-−+])?(?:{PREFIX}\s?)?(?P<n>\d{{1,3}}(?:,\d{{2,3}}){{1,6}}(?:\.\d{{1,12}})?(?![,.]?\d)|\d{{1,24}}(?:\.\d{{1,12}})?(?!\d))[多余]?"
    r"(?:[\s-]?(?P<scale>(?:hundred|thousand|million|billion|trillion|bn|mn|(?-i:[kKM]|(?(prefix)m|(?!))))(?![A-Za-z])|[十百千万亿]{1,2}(?![瓦克米]|字节)))?[多余]?",
    re.IGNORECASE | re.ASCII,
)
_ORDINAL = re.compile(r"(?:st|nd|rd|th)\b", re.IGNORECASE)
_DECADE = re.compile(r"(\d{2,3}0)(?:['’]?s\b|\s?年代)")
_OF_NAME = re.compile(r"[A-Za-z_]|[-_/][A-Za-z]{2}|%[0-9A-F]", re.ASCII)
"""What follows digits that are part of a name, such as `4090D`."""

_PERCENT_ZH = re.compile(rf"百分之(?P<n>[{_HAN}十百]{{1,8}}|\d+(?:\.\d+)?)(?:点(?P<rest>[{_HAN}]{{1,6}}))?")
_SHARE_ZH = re.compile(rf"(?P<below>[{_HAN}十百千]{{1,4}})分之(?P<n>[{_HAN}十]{{1,4}})")
_NUMERAL_ZH = re.compile(
    rf"(?P<nth>第)?(?<![几数好])(?P<n>[{_HAN}十][{_HAN}十百千万亿]{{0,15}})(?:点(?P<rest>[{_HAN}]{{1,6}})(?![钟整半]))?[多余]?"
)
_ROUGH_ZH = re.compile(r"(?:近|数|上|好几|几)(?P<n>[十百千万亿]{1,2})(?![万千百]分)(?=[余多]?[\u3400-\u9fff])")
_COUNTED = re.compile(
    r"个?[名人位座层根条章集届家所支枚台间套首项节种份件块张只头辆艘架门本期轮场类款步遍页行例处户度卷段倍次元万亿大点局篇字]|个(?!人)|[、，]|成(?![为功立员年长就了])"
)
_ARTICLES = "一"
"""`一个` is `a`."""
_LONG_ZH = re.compile(rf"[{_HAN}十]?[{_HAN}十百千万亿]*[十百千万亿][{_HAN}十百千万亿]*")
_SHARE = re.compile(
    r"(?P<n>a|one|two|three)[\s-](?P<below>half|third|quarter|fifth)s?\b|(?<!first )(?<!second )(?<!latter )(?<!other )half\b(?=\s(?:of|the)\b)",
    re.IGNORECASE,
)
_BELOW = {"half": 2, "third": 3, "quarter": 4, "fifth": 5}
_WORDS = re.compile(
    rf"(?:(?:{_WORD}|a|hundred|thousand|million|billion|trillion)(?![a-z])(?:[\s-]and[\s-](?=(?:{_WORD})(?![a-z])))?[\s-]?){{1,12}}",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"(?:[\s-]*(?<![a-z])(?:a|and))*[\s-]*\Z", re.IGNORECASE)
_PAIR = re.compile(r"\s?(?:-|–|—|~|to|and|or|至|到|和|或|与)\s?", re.IGNORECASE)
"""What stands between the ends of a range, which share the unit behind the last."""


def values(text: str) -> tuple[Value, ...]:
    """The values of a text in order; none overlap.

    Digits inside a name (`sha256`) are no value, nor is a numeral that only sounds like one (`no one`, `一个`). In a range both ends have the unit of the last.
    """
    normal = unicodedata.normalize("NFKC", text)
    found: list[Value] = []
    position = 0
    while start := _STARTER.search(normal, position):
        value = _read(normal, start.start())
        if value:
            if found and (shared := _shared(normal, found[-1], value)):
                found[-1] = shared
            found.append(value)
        position = value.end if value else start.end()
    return tuple(found)


def same(first: Value, second: Value) -> bool:
    """Whether two values agree as far as both tell: a number without a unit agrees with that number of anything, a year with each of its days."""
    if first.kind == second.kind == "date":
        pairs = [(a, b) for a, b in zip(first.parts, second.parts, strict=True) if a and b]
        return bool(pairs) and all(a == b for a, b in pairs)
    if first.kind == second.kind == "time":
        (a, a_told), (b, b_told) = first.parts, second.parts
        return a == b or (not (a_told and b_told) and (a - b) % 720 == 0)
    if first.kind == second.kind == "amount":
        if first.unit and second.unit:
            return first.unit == second.unit and _is_equal(first.parts[0], second.parts[0])
        if "share" in (first.unit, second.unit):
            return False
        # Neither says what it counts: 3.10 may be a version, and that is not 3.1.
        dotted = not first.unit and not second.unit and "." in first.written and "." in second.written
        return first.written == second.written or (not dotted and _is_equal(first.parts[0], second.parts[0]))
    if "date" in (first.kind, second.kind):
        dated, other = (first, second) if first.kind == "date" else (second, first)
        return other.kind == "amount" and not other.unit and other.parts[0] == dated.parts[0]
    return first.written == second.written


def _is_equal(one: Fraction, other: Fraction) -> bool:
    """Whether two numbers are one; a quarter of the time that `==` takes, which asks what kinds of numbers they are."""
    return one.numerator == other.numerator and one.denominator == other.denominator


def told_by(value: Value, others: Iterable[Value]) -> bool:
    """Whether the other values say all of it: a year is told by each date in it, a date by a year and a day that stand apart, but not by the year alone."""
    near = [other for other in others if same(value, other)]
    if value.kind != "date":
        return bool(near)
    parts = [other.parts if other.kind == "date" else (other.parts[0], 0, 0, 0) for other in near]
    return all(any(one[place] == part for one in parts) for place, part in enumerate(value.parts) if part)


def rivals(value: Value, others: Iterable[Value]) -> list[Value]:
    """The other values that could stand in its place: of the same kind and, as far as told, of the same dimension, or the same number of something else."""
    return [other for other in others if other.kind == value.kind and (other.unit == value.unit or other.written == value.written)]


def _read(text: str, at: int) -> Value | None:
    """The value that begins at a place."""
    if match := _VERSION.match(text, at):
        return Value("version", (), "", match["v"] or match["n"], at, match.end())
    if dated := date_at(text, at):
        return Value("date", tuple(map(Fraction, dated.parts)), "", text[at : dated.end], at, dated.end)
    if timed := time_at(text, at):
        return Value("time", tuple(map(Fraction, timed.parts)), "", text[at : timed.end], at, timed.end)
    return _share_at(text, at) or _digits_at(text, at) or _han_at(text, at) or _words_at(text, at)


def _amount(number: Fraction, written: str, text: str, start: int, end: int, prefix: str | None = None) -> Value:
    """An amount with the unit behind it, or the currency before it."""
    unit = unit_after(text, end)
    if unit is None and not prefix:
        return Value("amount", (number,), "", written, start, end)
    (dimension, factor), end = unit or (("", Fraction(1)), end)
    if prefix:
        dimension, factor = currency(prefix) if dimension in ("", "metre") else (dimension, factor)
    return Value("amount", (number * factor,), dimension, written, start, end, factor)


def _share_at(text: str, at: int) -> Value | None:
    if match := _PERCENT_ZH.match(text, at):
        number = _decimal(match["n"], match["rest"]) / 100
    elif match := _SHARE_ZH.match(text, at):
        below = han_value(match["below"])
        number = Fraction(han_value(match["n"]), below) if below else Fraction(0)
    elif match := _SHARE.match(text, at):
        below = _BELOW[(match["below"] or "half").casefold()]
        number = Fraction(NUMERALS.get((match["n"] or "one").casefold(), 1), below)
    else:
        return None
    return Value("amount", (number,), "share", match.group(), at, match.end())


def _digits_at(text: str, at: int) -> Value | None:
    match = _DIGITS.match(text, at)
    if not match:
        return None
    written, end = match["n"].replace(",", ""), match.end()
    if not match["scale"]:
        if decade := _DECADE.match(text, at):
            return Value("amount", (Fraction(decade[1]),), "decade", written, at, decade.end())
        if ordinal := _ORDINAL.match(text, end):
            return Value("amount", (Fraction(written),), "ordinal", written, at, ordinal.end())
        if _OF_NAME.match(text, end) and not unit_after(text, end):
            return None
    number = Fraction(written) * _scale(match["scale"]) * (-1 if match["sign"] in ("-", "−") else 1)
    return _amount(number, written + (match["scale"] or "").casefold(), text, at, end, match["prefix"])


def _scale(written: str | None) -> int:
    if not written:
        return 1
    name = written.casefold()
    if name in _SCALES:
        return _SCALES[name]
    product = 1
    for sign in name:
        product *= _SCALES[sign]
    return product


def _han_at(text: str, at: int) -> Value | None:
    if rough := _ROUGH_ZH.match(text, at):
        return _amount(Fraction(_scale(rough["n"])), rough.group(), text, at, rough.end())
    match = _NUMERAL_ZH.match(text, at)
    if not match:
        return None
    number = _decimal(match["n"], match["rest"])
    if match["nth"]:
        return Value("amount", (number,), "ordinal", match["n"], at, match.end())
    value = _amount(number, match["n"], text, at, match.end())
    if value.unit and not (value.unit in ("round", "metre", "time") and match["n"] == _ARTICLES):
        return value
    plain = len(match["n"]) > 1 and _LONG_ZH.fullmatch(match["n"]) and (match["n"][0] != "十" or len(match["n"]) > 2)
    counted = match["n"] != _ARTICLES and _COUNTED.match(text, match.end())
    return value if plain or counted else None


def _words_at(text: str, at: int) -> Value | None:
    match = _WORDS.match(text, at)
    if not match:
        return None
    said = _TRAILING.sub("", match.group())
    words = re.split(r"[\s-]+", said.casefold())
    if words[0] in _BIG or not said:
        return None
    end = at + len(said)
    number = _spoken(words)
    value = _amount(Fraction(number), " ".join(words), text, at, end)
    return value if value.unit or number > 1 else None


def _spoken(words: Collection[str]) -> int:
    """The number that English numerals say."""
    total = section = 0
    for word in words:
        if word == "hundred":
            section = max(section, 1) * 100
        elif word in _BIG:
            total, section = total + max(section, 1) * _BIG[word], 0
        elif word != "and":
            section += NUMERALS.get(word, 1)
    return total + section


def _decimal(whole: str, rest: str | None) -> Fraction:
    number = Fraction(whole) if whole.isascii() else Fraction(han_value(whole))
    return number + Fraction(int("".join(str(han_value(sign)) for sign in rest)), 10 ** len(rest)) if rest else number


def _shared(text: str, first: Value, last: Value) -> Value | None:
    """The first end of a range with the unit of its last; None if the two are none."""
    if first.kind != "amount" or last.kind != "amount" or first.unit or not last.unit or not _PAIR.fullmatch(text, first.end, last.start):
        return None
    return replace(first, unit=last.unit, parts=(first.parts[0] * last.each,), each=last.each)
