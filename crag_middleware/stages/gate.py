"""Holds back an answer that is being written until its current sentence is complete.

Where a sentence ends is decided by the text up to there alone, never by the pieces it comes in.
"""

import re
from dataclasses import dataclass

from crag_middleware.stages.sentences import split
from crag_middleware.stages.stops import HAN_STOPS

_FENCE = re.compile(r"[ \t]{0,12}(?:[-*>] )?(`{3,}|~{3,})")
_SURE = re.compile(r"(?:(?:^|[\s(\"“‘*_])[a-z]{4,}|[\]】])[)\"'”’*_]*\.\Z")
"""What stands before a full stop that is no abbreviation, number, initial or address: a long word, a citation. The rest is seen when a space follows."""

MAX_HELD = 2000
"""A longer sentence is let go in parts, after a word or at twice the length: what is held is looked at again and again."""

MAX_LINE_START = 200
"""Of a line's beginning, which tells whether it is the fence of a block of code."""

_NEXT = {True: "这", False: " The"}
"""What a next sentence might begin with, after a Chinese stop or another one."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A complete piece of an answer: a sentence, a line, or a line of code, with the white space around it.

    Attributes:
        text: The piece; all pieces together are the answer.
        is_code: Whether it stands in a fenced code block.
    """

    text: str
    is_code: bool = False


@dataclass(slots=True)
class Gate:
    """Cuts one answer into sentences as it arrives."""

    _held: str = ""
    _line: str = ""
    _fence: str = ""

    def feed(self, text: str) -> list[Sentence]:
        """The sentences that are complete now."""
        done = []
        for character in text:
            self._held += character
            if len(self._line) < MAX_LINE_START:
                self._line += character
            if character == "\n":
                done += self._end_of_line()
            elif self._is_full() or (not self._fence and self._ends()):
                done.append(self._let_go(is_code=bool(self._fence)))
        return done

    def end(self) -> list[Sentence]:
        """What is left, when nothing more comes."""
        return [self._let_go(is_code=bool(self._fence))] if self._held else []

    def _end_of_line(self) -> list[Sentence]:
        found, was_code = _FENCE.match(self._line), bool(self._fence)
        self._line = ""
        if found and not self._fence:
            self._fence = found[1]
        elif found and found[1].startswith(self._fence):
            self._fence = ""
        return [self._let_go(is_code=was_code or bool(self._fence))] if self._held.strip() or self._is_full() else []

    def _let_go(self, *, is_code: bool) -> Sentence:
        sentence, self._held = Sentence(self._held, is_code), ""
        return sentence

    def _is_full(self) -> bool:
        return len(self._held) >= MAX_HELD and (self._held[-1].isspace() or len(self._held) >= 2 * MAX_HELD)

    def _ends(self) -> bool:
        """Whether what is held is a complete sentence."""
        last = self._held[-1]
        if last.isspace():
            if self._held[-2:-1].isspace():
                return False  # It was no end at the first of them.
            before = self._held.rstrip().rstrip("\"'”’*_)]")
            return before.endswith((".", "!", "?", "…")) and self._is_cut(self._held.rstrip())
        if last in HAN_STOPS:
            return self._is_cut(self._held)
        if last in "!?":
            return False
        return last == "." and _SURE.search(self._held[-24:]) is not None and self._held.count("`") % 2 == 0 and self._is_cut(self._held)

    def _is_cut(self, text: str) -> bool:
        """Whether another sentence could begin after the text."""
        strips = split(text + _NEXT[text.rstrip("”’\"')]）】」』")[-1:] in tuple(HAN_STOPS)])
        return len(strips) > 1 and strips[-1].start >= len(text)
