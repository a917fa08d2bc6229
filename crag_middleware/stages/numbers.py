"""The numbers, versions, times and dates that stand in a text, each in one spelling, so that two texts can be compared."""

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_M_NAME = r"(?P<m>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
_Y, _M, _D = r"(?P<y>[12]\d{3})", r"(?P<m>0?[1-9]|1[0-2])", r"(?P<d>0?[1-9]|[12]\d|3[01])"
_TH = r"(?:st|nd|rd|th)?"
DATES = tuple(
    re.compile(rf"(?<![\w.]){date}(?!\d)", re.ASCII | re.IGNORECASE)
    for date in (
        rf"{_Y}(?P<sep>[-/.]){_M}(?P=sep){_D}",
        rf"{_Y}\s?年\s?{_M}\s?月(?:\s?{_D}\s?[日号])?",
        rf"{_M}\s?月\s?{_D}\s?[日号]",
        rf"{_M_NAME}\s{_D}{_TH}\b(?:,?\s{_Y})?",
        rf"{_D}{_TH}\s(?:of\s)?{_M_NAME}(?:,?\s{_Y})?",
        rf"{_M_NAME},?\s{_Y}",
    )
)
"""Dates, each with what it has of the groups `y`, `m`, a number or a name, and `d`."""

_DIGITS = re.compile(r"(?<![\w.])v?(?P<n>\d+(?:,\d{3})*(?:[.:]\d+)*)(?:\s?(?P<scale>[千万亿]|thousand|million|billion|k\b))?", re.ASCII)
_PLAIN = re.compile(r"\d{1,18}(?:\.\d{1,9})?$")
_SCALES = {"千": 10**3, "万": 10**4, "亿": 10**8, "k": 10**3, "thousand": 10**3, "million": 10**6, "billion": 10**9}

NUMERALS = {
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
    "thirteen": 13,
    "fourteen": 14,
    "fifteen": 15,
    "sixteen": 16,
    "seventeen": 17,
    "eighteen": 18,
    "nineteen": 19,
} | {"twenty": 20, "thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90}
"""English numerals of one word, below a hundred."""

_WORDED = re.compile(
    rf"\b(?P<n>{'|'.join(NUMERALS)})(?=[\s-](?:business\s|working\s|calendar\s)?(?:second|minute|hour|day|week|month|year|percent|time|people|person|user|dollar))"
)
_HAN_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000}
_HAN_NUMBER = re.compile(
    r"百分之(?P<percent>[零〇一二两三四五六七八九十百]{1,16})|"
    r"(?<!\d)(?P<n>[零〇一二两三四五六七八九十百千][零〇一二两三四五六七八九十百千万亿]{0,15})(?=个?(?:秒|分钟|小时|天|日|周|星期|月|年|工作日)|[次倍元人名台岁条项章节位种份件米])"
)


def numbers(text: str) -> frozenset[str]:
    """The numbers of a text.

    `1,000` and `1000`, `3万` and `30000`, `七天` and `seven days` and `7 days`, `v4.0.7` and `4.0.7` agree. A date counts as `2024-01-05` and also as each
    coarser form of it: `2024-01`, `2024`, `01-05`. Trailing zeros stay, for version 3.10 is not version 3.1; digits inside a name (`sha256`) are no number.
    """
    rest = unicodedata.normalize("NFKC", text).casefold()
    found: set[str] = set()
    for pattern in (*DATES, _HAN_NUMBER, _WORDED, _DIGITS):
        for match in pattern.finditer(rest):
            found.update(_spellings(match.groupdict()))
        rest = pattern.sub(" ", rest)
    return frozenset(found)


def _spellings(parts: dict[str, str | None]) -> Iterator[str]:
    """The normal forms of one match, by the named parts it has."""
    year, month, day = parts.get("y"), parts.get("m"), parts.get("d")
    if month:
        number = f"{month_of(month):02}"
        if year:
            yield from (year, f"{year}-{number}")
        if day:
            yield f"{number}-{int(day):02}"
        if year and day:
            yield f"{year}-{number}-{int(day):02}"
        return
    written = parts.get("n") or parts.get("percent") or ""
    if written in NUMERALS:
        yield str(NUMERALS[written])
    elif written.isascii():
        plain, scale = written.replace(",", ""), parts.get("scale")
        yield f"{(Decimal(plain) * _SCALES[scale]).normalize():f}" if scale and _PLAIN.match(plain) else plain
    else:
        yield str(han_value(written))


def month_of(written: str) -> int:
    """The number of a month, from 1, given as a number or by its English name or its beginning."""
    return int(written) if written.isdigit() else _MONTHS.index(written[:3].casefold()) + 1


def han_value(written: str) -> int:
    """The value of a Chinese numeral, positional (`二〇二四`) or with units (`三百二十`)."""
    if all(c in _HAN_DIGITS for c in written):
        return int("".join(str(_HAN_DIGITS[c]) for c in written))
    total = section = digit = 0
    for c in written:
        if c in _HAN_DIGITS:
            digit = _HAN_DIGITS[c]
        elif c in _HAN_UNITS:
            section += (digit or 1) * _HAN_UNITS[c]
            digit = 0
        else:
            total = (total + section + digit or 1) * _SCALES[c]
            section = digit = 0
    return total + section + digit
