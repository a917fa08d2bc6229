"""Foreign text inside our prompts: fenced as data, and cut to a size."""

from crag_middleware.stages.fences import seen, tag_pattern
from crag_middleware.stages.words import finder, terms

CUT = "\n[...]\n"
"""Stands where text was left out."""

_TAGS = ("question", "passage", "conversation", "queries")
_TAG = tag_pattern(*_TAGS)


def fenced(tag: str, text: str, attributes: str = "") -> str:
    """The text between an opening and a closing tag, of which it can write none itself."""
    return f"<{tag}{attributes}>\n{_TAG.sub('(tag)', seen(text))}\n</{tag}>"


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
