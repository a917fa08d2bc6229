"""Taking out of a text what patterns find in it."""

import re
from collections.abc import Callable, Iterable
from functools import partial

Rule = Callable[[str], str]
"""A text without what one pattern finds in it."""


def rule(pattern: str, *, holds: Callable[[str], bool] = bool, instead: str = " ") -> Rule:
    """A rule that puts `instead` in the place of every match.

    Of a match with a group `name`, that group stays before it; one with a group `keep` stays as it is, and so does one whose text does not hold. Case
    does not count, and a word ends where Chinese begins.
    """

    def cleared(match: re.Match[str]) -> str:
        groups = match.groupdict()
        if groups.get("keep") or not holds(match.group()):
            return match.group()
        return (groups.get("name") or "") + instead

    return partial(re.compile(pattern, re.IGNORECASE | re.DOTALL | re.ASCII).sub, cleared)


def clear(text: str, rules: Iterable[Rule]) -> str:
    """The text after each rule in turn."""
    for each in rules:
        text = each(text)
    return text
