"""What chat models wrap around a text that was asked for alone: reasoning, a code fence, announcements, bullets, quotes."""

import re
from collections.abc import Sequence

from crag_middleware.stages.replies import json_values, without_reasoning

_CODE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
OPENING = re.compile(r"(?:sure|certainly|of course|okay|ok|好的|当然|没问题)(?:[,，.。!！:：]+\s*|\Z)", re.IGNORECASE)
"""What a model says before it does as it was told."""

_PREFIX = re.compile(
    r"\*{0,2}(?:(?:here(?:'s| is| are)|this is)[^:：]{0,60}"
    r"|(?:the )?(?:rewritten|stand-?alone|new|other|another|alternative|improved|better|final|search)?[ -]*"
    r"(?:question|query|rewritten|rewrite|search query|keywords?)"
    r"|(?:改写|重写|新|独立|检索|搜索)?(?:后)?(?:的)?(?:问题|查询|查询词|检索词|搜索词|关键词|关键字)|改写后?|重写后?)\s*\*{0,2}[:：]\*{0,2}\s*",
    re.IGNORECASE,
)
_BULLET = re.compile(r"(?:[-*•>]|1[.)、])\s+")
_QUOTES = ('""', "''", "“”", "‘’", "「」", "『』", "《》", "``", "**", "****")
"""An opening and a closing half each."""


def unfenced(reply: str) -> str:
    """The reply without reasoning; of one with a code fence, what is in it."""
    text = without_reasoning(reply)
    fence = _CODE.search(text)
    return fence[1] if fence else text


def out_of_json(text: str) -> str:
    """The one text in a JSON object; anything else as it is."""
    if text.lstrip().startswith("{"):
        for value in json_values(text):
            texts = [item for item in value.values() if isinstance(item, str)] if isinstance(value, dict) else []
            if len(texts) == 1:
                return texts[0]
    return text


def said(text: str) -> Sequence[str]:
    """The lines that say something, without those at the beginning that only announce the others."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    while len(lines) > 1 and (OPENING.fullmatch(lines[0]) or lines[0].endswith((":", "："))):
        lines.pop(0)
    return lines


def bare(line: str) -> str:
    """The line without announcement, bullet and quotes around all of it, in whatever order they come; white space is single blanks."""
    before = ""
    while line != before:
        before = line
        for pattern in (OPENING, _BULLET, _PREFIX):
            found = pattern.match(line)
            rest = line[found.end() :].strip() if found else ""
            line = rest or line
        line = unquoted(line)
    return " ".join(line.split())


def unquoted(line: str) -> str:
    """The line without quotes around all of it."""
    for quote in _QUOTES:
        half = len(quote) // 2
        inside = line[half:-half]
        if inside and line.startswith(quote[:half]) and line.endswith(quote[half:]) and not set(quote) & set(inside):
            line = inside.strip()
    return line


def folded(text: str) -> str:
    """The text's letters and digits, for telling whether another one says the same."""
    return re.sub(r"[\W_]+", " ", text).strip().casefold()
