"""What a model's reply says of numbered things: entries of JSON in any dress, what is left of broken JSON, or numbered lines of prose."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crag_middleware.stages.replies import json_values, without_reasoning

MAX_LINE_CHARS = 300

_STATED = re.compile(r"(?<![\w.])(?:0?\.\d+|1\.0+|\d{1,3}\s*[%％])(?![\d.]*\d)")

Entry = Mapping[str, Any]
"""What is said of one thing, under our own keys."""


@dataclass(frozen=True, slots=True)
class Form:
    """What entries look like.

    Attributes:
        keys: Our keys, each with the names that models give it, the first one first: `number` (of the thing), `label`, `confidence`, and any others.
        word: What the thing is called before its number, as a regular expression.
    """

    keys: Mapping[str, tuple[str, ...]]
    word: str


def read_entries(reply: str, count: int, form: Form) -> dict[int, Entry]:
    """What is said of each of `count` things, by number from 1; what the reply doesn't mention is missing.

    The last complete JSON that fits is read; of JSON that breaks off, the entries that are complete; of prose, the words and the fraction in each numbered
    line, as `label` and `confidence`; of prose about a single thing, those anywhere. Numbers of things that don't exist are left out.
    """
    text = without_reasoning(reply)
    found = _numbered(_group(text, count, form), count, form) or _prose(text, count, form)
    return {number: entry for number, entry in found.items() if 1 <= number <= count}


def number(value: object, word: str) -> int | None:
    """The number of a thing: `2`, `2.0`, `"2"`, `"[2]"`, or after its `word`; None for anything else."""
    if isinstance(value, str):
        found = re.fullmatch(rf"\W{{0,8}}(?:{word})?\W{{0,8}}(\d{{1,6}})\W{{0,8}}", value.strip()[:MAX_LINE_CHARS], re.IGNORECASE)
        return int(found[1]) if found else None
    if isinstance(value, float):
        return int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _group(text: str, count: int, form: Form) -> list[Entry]:
    """The entries of the last JSON in the text that fits; entries that stand alone one after the other belong together."""
    group: list[Entry] = []
    open_group = False
    for value in json_values(text):
        lone = _entry(value, form)
        if lone is None:
            if entries := _listed(value, form):
                group, open_group = entries, False
        elif "number" in lone or count == 1:
            group = [*group, lone] if open_group else [lone]
            open_group = True
    return group


def _numbered(group: list[Entry], count: int, form: Form) -> dict[int, Entry]:
    """The entries by number; as many as there are things and none with a number: in order."""
    numbers = [number(entry.get("number"), form.word) for entry in group]
    if len(group) == count and all(one is None for one in numbers):
        return dict(enumerate(group, 1))
    found = {one: entry for one, entry in zip(numbers, group, strict=True) if one is not None}
    if set(found) == set(range(count)):  # counted from 0
        found = {one + 1: entry for one, entry in found.items()}
    return found


def _entry(value: Any, form: Form) -> Entry | None:
    """The value as an entry with our own keys, if it states a label or a confidence."""
    if not isinstance(value, dict):
        return None
    given = {str(key).strip().casefold(): item for key, item in value.items()}
    entry = {ours: given[alias] for ours, aliases in form.keys.items() for alias in reversed(aliases) if alias in given}
    return entry if any(key in entry and not _holds_entries(entry[key]) for key in ("label", "confidence")) else None


def _holds_entries(value: Any) -> bool:
    """Whether a value is no answer but holds some: an object, or a list of objects."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(item, dict) for item in value))


def _listed(value: Any, form: Form, depth: int = 3) -> list[Entry]:
    """The entries in a list, in an object that holds such a list, or in an object whose keys are the numbers."""
    if isinstance(value, list):
        return [entry for item in value if (entry := _entry(item, form)) is not None]
    if not isinstance(value, dict) or not depth:
        return []
    keyed = {key: entry for key, item in value.items() if number(key, form.word) is not None and (entry := _entry(item, form)) is not None}
    if keyed:
        return [{**entry, "number": key} for key, entry in keyed.items()]
    return next((entries for item in value.values() if (entries := _listed(item, form, depth - 1))), [])


def _prose(text: str, count: int, form: Form) -> dict[int, Entry]:
    """Labels, and numbers beside them, that stand in numbered lines; for a single thing, anywhere in the text."""
    said = {1: text}
    if count > 1:
        line = re.compile(rf"\W{{0,8}}(?:{form.word}|第)?\s{{0,3}}[\[(（【]?\s{{0,3}}(\d{{1,3}})(?!\d|\.\d)(.*)", re.IGNORECASE)
        said = {int(found[1]): found[2] for one in text.splitlines() if (found := line.match(one.strip()[:MAX_LINE_CHARS]))}
    return {one: {"label": words, "confidence": _stated(words)} for one, words in said.items()}


def _stated(words: str) -> str | None:
    found = _STATED.search(words)
    return found.group() if found else None
