"""Dates and times of day, where one begins at a place of a text."""

import re
from typing import NamedTuple

from crag_middleware.stages.numbers import DATES, han_value, month_of


class Told(NamedTuple):
    """What a date or a time says, 0 for what it leaves out, and where it ends."""

    parts: tuple[int, ...]
    end: int


_HAN = "零〇一二两三四五六七八九"
_YEAR = re.compile(
    rf"(?P<n>(?:1[4-9]|20)\d\d)(?:\s?年(?![代级])|(?![\w.,:%°]*\d|\s?-?\s?[\u3400-\u9fff%°$€]|[A-Za-z]|-[A-Za-z]|\s(?!was|is|his|as|has|this|its)[a-z]+s\b)(?!\s(?:USD|EUR|[kKMG]B)\b))"
    rf"|(?P<zh>[一二][{_HAN}]{{3}})年(?![代级])",
    re.ASCII,
)
_MONTH = re.compile(
    r"(?P<n>(?-i:March|May)|january|february|april|june|july|august|september|october|november|december)(?![A-Za-z])"
    r"|(?P<zh>1[0-2]|0?[1-9]|十[一二]?|[一二三四五六七八九])\s?月(?!球|光|亮|份?之)份?",
    re.IGNORECASE | re.ASCII,
)
_DAY = re.compile(r"(?P<n>3[01]|[12]\d|0?[1-9])\s?[日号](?![线楼门店院馆元本常用志报程])(?![以之]?[内后前])", re.ASCII)
_WEEKDAY = re.compile(
    r"(?P<en>mon|tues|wednes|thurs|fri|satur|sun)days?\b|(?:周|星期|礼拜)(?P<zh>[一二三四五六日天])(?![年岁个])", re.IGNORECASE
)
_WEEKDAYS = (
    {"mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6, "sun": 7} | {c: i for i, c in enumerate("一二三四五六日", 1)} | {"天": 7}
)

_CLOCK = re.compile(r"(?P<h>2[0-4]|[01]?\d):(?P<m>[0-5]\d)(?::[0-5]\d)?(?![\d:])(?:\s?(?P<half>[ap]\.?m)\b\.?)?", re.IGNORECASE | re.ASCII)
_HOUR = re.compile(r"(?P<h>1[0-2]|0?[1-9])\s?(?P<half>[ap]\.?m)\b\.?", re.IGNORECASE | re.ASCII)
_CLOCK_ZH = re.compile(
    rf"(?P<half>上午|下午|早上|晚上|凌晨|清晨|傍晚|中午)?\s?(?P<h>2[0-4]|[01]?\d|二?十[{_HAN}]|[{_HAN}十])"
    rf"(?:\s?[点時时](?![间候期代尚装刻常建意要原好理疑共内注事不经])(?:(?P<thirty>半)|(?P<m>[0-5]?\d|[二三四五]?十?[{_HAN}十])\s?分(?!之)|[整钟]|(?!\d*[%万亿倍]))"
    rf"|(?<=[午上晨晚].):(?P<sharp>[0-5]\d))"
)


def date_at(text: str, at: int) -> Told | None:
    """The date that begins at a place, as year, month, day and weekday, of which some may be left out."""
    for pattern in DATES:
        if match := pattern.match(text, at):
            given = match.groupdict()
            month = given.get("m")
            return Told((int(given.get("y") or 0), month_of(month) if month else 0, int(given.get("d") or 0), 0), match.end())
    if match := _YEAR.match(text, at):
        return Told((int(match["n"]) if match["n"] else han_value(match["zh"]), 0, 0, 0), match.end())
    if match := _MONTH.match(text, at):
        month = match["n"] or match["zh"]
        return Told((0, month_of(month) if month.isascii() else han_value(month), 0, 0), match.end())
    if match := _DAY.match(text, at):
        return Told((0, 0, int(match["n"]), 0), match.end())
    if match := _WEEKDAY.match(text, at):
        return Told((0, 0, 0, _WEEKDAYS[(match["en"] or match["zh"])[:3].casefold()]), match.end())
    return None


def time_at(text: str, at: int) -> Told | None:
    """The time of day that begins at a place, as minutes from midnight, and 1 if it tells morning from afternoon."""
    match = _CLOCK.match(text, at) or _HOUR.match(text, at) or _CLOCK_ZH.match(text, at)
    if not match:
        return None
    given = match.groupdict()
    hour = _whole(given["h"])
    minute = 30 if given.get("thirty") else _whole(given.get("m") or given.get("sharp") or "0")
    half = (given.get("half") or "").casefold().replace(".", "")
    if hour > 24 or minute > 59:
        return None
    if half in ("pm", "下午", "晚上", "傍晚") and hour < 12:
        hour += 12
    elif half in ("am", "凌晨") and hour == 12:
        hour = 0
    return Told((60 * hour + minute, int(bool(half) or hour > 12)), match.end())


def _whole(written: str) -> int:
    return int(written) if written.isascii() else han_value(written)
