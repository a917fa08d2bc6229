"""Foreign text inside our prompts: fenced as data, and cut to a size."""

import re
from datetime import UTC, datetime

from crag_middleware.stages.fences import seen, tag_pattern
from crag_middleware.stages.words import finder, terms
from crag_middleware.types import Passage

CUT = "\n[...]\n"
"""Stands where text was left out."""

_TAGS = ("question", "passage", "conversation", "queries")
_TAG = tag_pattern(*_TAGS)


def fenced(tag: str, text: str, attributes: str = "") -> str:
    """The text between an opening and a closing tag, of which it can write none itself."""
    return f"<{tag}{attributes}>\n{_TAG.sub('(tag)', seen(text))}\n</{tag}>"


def fenced_passage(passage: Passage, question: str, max_chars: int, *, number: str = "") -> str:
    """A passage as data, clipped, with its number and what tells an old page from a new one as attributes."""
    return fenced("passage", clip(passage.text, question, max_chars), f"{number}{_facts(passage)}")


def clip(text: str, question: str, limit: int) -> str:
    """At most about `limit` characters of a text: its head, the window that shares most words with the question, and its tail."""
    if len(text) <= limit:
        return text
    head, tail = limit * 2 // 5, limit // 5
    window = limit - head - tail
    find = finder(frozenset(terms(question)))
    starts = range(head, len(text) - tail, max(1, window // 2))
    best = max(starts, key=lambda start: (len(find(text[start : start + window])), -start))
    end = min(best + window, len(text) - tail)
    joint = "" if best == head else CUT
    return f"{text[:head]}{joint}{text[best:end]}{'' if end == len(text) - tail else CUT}{text[len(text) - tail :]}"


def _facts(passage: Passage) -> str:
    """What is known of the document and tells an old page from a new one, as attributes."""
    known = {"title": passage.title, "version": passage.metadata.get("version"), "date": _day(passage.created_at)}
    shown = {name: " ".join(re.sub(r'[<>"＜＞]', " ", str(value)).split())[:120] for name, value in known.items() if value}
    return "".join(f' {name}="{value}"' for name, value in shown.items() if value)


def _day(created_at: int | None) -> str:
    if created_at is None:
        return ""
    try:
        return datetime.fromtimestamp(created_at / 1000, UTC).date().isoformat()
    except (OverflowError, ValueError, OSError):  # a stored number that is no time
        return ""
