"""Changes to an answer that is written: sentences that nothing supports go, citations that are missing come."""

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from crag_middleware.stages.gate import Gate
from crag_middleware.types import Checked, Claim, Ground

CLEARLY = 0.8
"""P(supported) from which a source clearly supports a statement."""

_MARKS = re.compile(r"\A(?:[ \t]*[\[【［〔][\d\s,，、;；\-–—~至到KWkw]{1,40}[\]】］〕])+")
_BULLET = re.compile(r"\s*+(?:[-*+•]|\d{1,3}[.)、])?\s*\Z")
_SHUT = ".。!！?？…"


def without(text: str, claims: Sequence[Claim]) -> str:
    """The answer without the sentences, list items and lines in which these claims stand, nor the citations that follow them. Code always stays.

    Empty if nothing but bullets and blanks would be left.
    """
    starts = sorted(claim.start for claim in claims)
    reach = [*accumulate((claim.end for claim in sorted(claims, key=lambda claim: claim.start)), max)]
    gate, kept, place, dropped = Gate(), "", 0, ""
    for sentence in [*gate.feed(text), *gate.end()]:
        start, place = place, place + len(sentence.text)
        before = bisect_left(starts, place)
        if not sentence.is_code and before and reach[before - 1] > start:
            dropped += sentence.text
        else:
            kept += after_dropped(sentence.text, dropped, kept)
            dropped = ""
    return "" if all(_BULLET.fullmatch(line) for line in kept.splitlines()) else kept.lstrip() if text[:1].strip() else kept


def after_dropped(text: str, dropped: str, before: str) -> str:
    """The next piece of an answer after one that was dropped.

    It loses citations at its beginning, which stand after the dropped one's full stop, and stands on a line of its own if it did before.

    Args:
        text: The piece.
        dropped: What was left out before it; empty for nothing.
        before: What stands before that.
    """
    if not dropped:
        return text
    text = _MARKS.sub("", text)
    lines = dropped[: len(dropped) - len(dropped.lstrip())].count("\n") or dropped[len(dropped.rstrip()) :].count("\n")
    if not lines or text.startswith("\n") or not before or before.endswith("\n"):
        return text
    return "\n" * min(lines, 2) + text.lstrip(" ")


def with_citations(text: str, checked: Sequence[tuple[Claim, Checked]], grounds: Sequence[Ground]) -> str:
    """The answer with a citation after each claim that cites nothing and that one source clearly supports."""
    for claim, said in sorted(checked, key=lambda pair: -pair[0].end):
        number = grounds[said.decided_by].number if said.decided_by is not None and said.label == "supported" else None
        if (
            claim.cited
            or number is None
            or said.probability is None
            or said.probability < CLEARLY
            or text[claim.start : claim.end] != claim.text
        ):
            continue
        end = claim.start + len(claim.text.rstrip(_SHUT))
        space = " " if text[end - 1 : end].isascii() else ""
        text = f"{text[:end]}{space}[{number}]{text[end:]}"
    return text
