"""Citations in an answer: read, checked against the turn's sources, and mended, all at once or as the text arrives.

What is decided depends on the text alone, never on the pieces it comes in: nothing is let go before what follows can't change it any more.
"""

import re
import unicodedata
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Literal

from crag_middleware.stages.citation_marks import read_marks, surviving
from crag_middleware.types import Origin

WhenUnknown = Literal["remove", "flag"]
"""What becomes of a citation that no source of the turn has: it goes, with its spacing mended, or it stays and is told."""

MAX_CHARS = 60
"""Of what stands between the brackets of a citation."""

_BLANKS = " \t\u3000\u00a0"
_OPENING, _CLOSING = "[【［〔", "]】］〕"
_ROUND = {"(": ")", "（": "）"}
_STOPS = frozenset(f"\n`{_BLANKS}{_OPENING}(（")
_LEAD = re.compile(rf"[{_BLANKS}]*[(（]?[{_BLANKS}]*")
_FENCE = re.compile(r"[ \t]{0,12}(?:[-*>] )?(`{3,}|~{3,})")
_MAYBE_FENCE = re.compile(r"[ \t]{0,12}(?:[-*>] ?)?(?:`*|~*)")
_BEGINS = re.compile(r"[^\S\n]*(?P<letters>[^\W\d_]*)(?P<rest>.?)", re.DOTALL)
_WORDS = ("k", "w", "source", "sources", "ref", "refs", "reference", "references", "来源", "资料", "文献", "参考", "参考资料")
_INSIDE = re.compile(r"[^\S\n]*(?:[\w,，、;；:：#&†^.~～‐‑–—−-]|[^\S\n])*")
_CLOSES_UP = frozenset(f"{_BLANKS}\n.,;:!?)]}}。，；：！？、）】」』”’\"'…")
"""What no space stands before."""

_NAME = re.compile(r"(?:[A-Za-z_$][\w$.]*|[)}])\Z", re.ASCII)
_CODE_NAME = re.compile(r"[_$.\d)}]|[a-z][A-Z]|^.{1,2}\Z")
_CODE_NOUNS = frozenset(
    """
    arr array args argv batch buf buffer byte bytes cell cells code col cols column columns dict elem elems element elements entries field fields frame grid idx
    index indices item items key keys list lists map mat matrix node nodes nums obj params parts payload point points pos record records res response result
    results row rows seq str string strings table tensor token tokens tuple val vals value values vec vector
    """.split()  # noqa: SIM905, a list of names reads better as text
)
_INTERVAL = re.compile(
    r"(?:range|interval|between|within|values? in|∈|区间|范围|介于)\s?(?:of|from|is|为|是|在)?[\s:：]{0,2}\Z", re.IGNORECASE
)
_TAIL = 40
"""Characters of what was let go that still matter."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A place where sources are cited.

    Attributes:
        numbers: The sources' numbers, in the order they are cited.
        start: Where it begins in the mended text.
        end: Where it ends.
    """

    numbers: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Mended:
    """An answer whose citations were checked.

    Attributes:
        text: The answer; the very same where nothing was wrong.
        citations: Where sources are cited, in order.
        unknown: Citations of what does not exist, as they were written.
    """

    text: str
    citations: tuple[Citation, ...]
    unknown: tuple[str, ...]


def mend(
    text: str, sources: Mapping[int, Origin], *, when_unknown: WhenUnknown = "remove", foreign: Collection[int] = frozenset()
) -> Mended:
    """The answer with its citations checked.

    Args:
        text: The answer.
        sources: Where each source of the turn comes from, by citation number.
        when_unknown: What becomes of citations that no source has.
        foreign: Numbers that mean something else in this conversation, such as the results of a tool: left alone.
    """
    mender = Mender(sources, when_unknown, foreign)
    whole = mender.feed(text) + mender.end()
    return Mended(whole, tuple(mender.citations), tuple(mender.unknown))


@dataclass(slots=True)
class Mender:
    """Checks the citations of one answer as it arrives: what `feed` and at last `end` return is the mended text.

    Code spans, fences, links and their definitions, footnotes (`[^1]`), array indexes (`items[0]`) and intervals are left alone. A range counts with all that
    lies within it; reversed ones, and those longer than there could be sources, cite nothing. `[K2]` and `[W1]` name the source with that number if it is of
    that origin, knowledge or web, else the second or first of it.

    Attributes:
        sources: Where each source of the turn comes from, by citation number.
        when_unknown: What becomes of citations that no source has.
        foreign: Numbers that mean something else in this conversation: left alone.
        citations: Where sources are cited in what was let go so far.
        unknown: Citations of what does not exist, as they were written.
    """

    sources: Mapping[int, Origin]
    when_unknown: WhenUnknown = "remove"
    foreign: Collection[int] = frozenset()
    citations: list[Citation] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    _held: str = ""
    _tail: str = ""
    _length: int = 0
    _line_known: bool = False
    _fence: str = ""
    _code: str = ""
    _after_citation: bool = False
    _swallows: bool = False
    _ended: bool = False

    def feed(self, text: str) -> str:
        """What can be shown after this piece of the answer has come."""
        self._held += text
        return self._let_go()

    def end(self) -> str:
        """What is left, when nothing more comes."""
        self._ended = True
        return self._let_go()

    def _let_go(self) -> str:
        out: list[str] = []
        while self._held and (step := self._step()) is not None:
            shown, self._held = step
            self._tail = (self._tail + shown)[-_TAIL:]
            self._length += len(shown)
            out.append(shown)
        return "".join(out)

    def _step(self) -> tuple[str, str] | None:
        """What of the next piece is shown, and what is held after it; None until more has come."""
        held = self._held
        if self._swallows:
            self._swallows = False
            rest = held.lstrip(_BLANKS)
            self._swallows = not rest
            return "", rest
        if not self._line_known:
            if not self._ended and _MAYBE_FENCE.fullmatch(held):
                return None
            self._line_known = True
            if (found := _FENCE.match(held)) and (not self._fence or found[1].startswith(self._fence)):
                opening = "" if self._fence else found[1]
                self._fence = found[1]  # Also while the closing line is passed on.
                shown = self._pass(found.end())
                self._fence = opening
                return shown
        if self._fence:
            return self._pass(self._line_end(held) or len(held))
        if held[0] == "`":
            return self._ticks()
        if held[0] in _OPENING:
            return self._bracket("", held)
        if held[0] in _BLANKS or held[0] in _ROUND:
            lead = _lead(held)
            if len(lead) == len(held) and not self._ended:
                return None
            return self._bracket(lead, held[len(lead) :]) if held[len(lead) : len(lead) + 1] in tuple(_OPENING) else self._pass(len(lead))
        return self._pass(1 if held[0] == "\n" else next((i for i, c in enumerate(held) if c in _STOPS), len(held)))

    def _pass(self, count: int) -> tuple[str, str]:
        """So many characters as they are."""
        shown, self._after_citation = self._held[:count], False
        if shown.endswith("\n"):
            self._line_known, self._code = False, ""
        return shown, self._held[count:]

    def _line_end(self, text: str) -> int:
        """Where the first line ends, line break included; 0 if it doesn't yet."""
        return text.find("\n") + 1

    def _ticks(self) -> tuple[str, str] | None:
        """Backticks open a code span, as many close it; a line break ends it, too."""
        run = len(self._held) - len(self._held.lstrip("`"))
        if run == len(self._held) and not self._ended:
            return None
        if not self._code:
            self._code = "`" * run
        elif len(self._code) == run:
            self._code = ""
        return self._pass(run)

    def _bracket(self, lead: str, rest: str) -> tuple[str, str] | None:
        """A bracket, with what stands before it that would have to go with it."""
        if self._code:
            line = rest[: self._line_end(rest) or len(rest)]
            closing = re.search(rf"(?<!`){self._code}(?!`)", line)
            if not self._ended and not line.endswith("\n") and (closing is None or closing.end() == len(rest)):
                return None
            if closing:
                return self._pass(len(lead) + closing.start())
            self._code = ""
        end = self._closing(rest)
        if end is None or (end and end + 1 == len(rest) and not self._ended):
            return None
        marks = read_marks(rest[1:end]) if end else ()
        after = rest[end + 1 : end + 2]
        is_foreign = any(mark.first in self.foreign and mark.first not in self.sources for mark in marks)
        if not marks or is_foreign or self._is_other(lead, after, several=len(marks) > 1 or marks[0].last != marks[0].first):
            return self._pass(len(lead) + (end + 1 if marks else 1))
        kept = surviving(marks, self.sources)
        is_whole = all(mark.exists(self.sources) for mark in marks)
        written = rest[: end + 1]
        if not is_whole:
            self.unknown.append(written)
        if not is_whole and self.when_unknown == "remove":
            if not kept:
                return self._without(lead, after, rest[end + 1 :])
            written = f"{rest[0]}{kept}{rest[end]}"
        if numbers := tuple(dict.fromkeys(number for mark in marks for number in mark.numbers(self.sources))):
            start = self._length + len(lead)
            self.citations.append(Citation(numbers, start, start + len(written)))
        self._after_citation = True
        return lead + written, rest[end + 1 :]

    def _closing(self, rest: str) -> int | None:
        """Where the bracket closes; 0 if it is no citation's, None as long as that is open."""
        inside = _INSIDE.match(rest, 1)
        end = inside.end() if inside else 1
        if end > MAX_CHARS or not _may_cite(rest[1:end]):
            return 0
        if end == len(rest):
            return 0 if self._ended else None
        return end if rest[end] in _CLOSING else 0

    def _is_other(self, lead: str, after: str, *, several: bool) -> bool:
        """Whether a bracket with numbers is something else than a citation: a link, its definition, an index, an interval."""
        before = self._tail + lead
        at_line_begin = before.rstrip(_BLANKS)[-1:] in ("", "\n")
        if after == "(" or (after in (":", "：") and at_line_begin) or (several and _INTERVAL.search(before)):
            return True
        if lead:
            return False
        if before.endswith("]"):
            return not self._after_citation
        name = _NAME.search(before)
        return name is not None and (_CODE_NAME.search(name[0]) is not None or name[0].lower() in _CODE_NOUNS)

    def _without(self, lead: str, after: str, rest: str) -> tuple[str, str] | None:
        """The text without a citation, the spaces and parentheses around it mended."""
        blanks = lead.rstrip(_BLANKS)
        parenthesis = blanks[-1:] if blanks[-1:] in _ROUND else ""
        if parenthesis and after == _ROUND[parenthesis]:
            if len(rest) == 1 and not self._ended:
                self.unknown.pop()  # It will be read again.
                return None
            lead, rest = blanks[:-1], rest[1:]
            after = rest[:1]
        elif parenthesis:
            return "", lead + (rest.lstrip(f"{_BLANKS},，;；、") if after in tuple(",，;；、") else rest)
        if after in tuple(_OPENING):
            return "", lead + rest
        at_line_begin = self._tail[-1:] in ("", "\n")
        self._swallows = at_line_begin
        return ("" if after in _CLOSES_UP or not after or at_line_begin else lead), rest


def _may_cite(inside: str) -> bool:
    """Whether what has come of a bracket may yet be a citation's: it begins with a number, or with one of the words before one."""
    found = _BEGINS.match(inside)
    letters, rest = (unicodedata.normalize("NFKC", found["letters"]).lower(), found["rest"]) if found else ("", "")
    return letters in _WORDS if letters and rest else any(word.startswith(letters) for word in _WORDS)


def _lead(text: str) -> str:
    found = _LEAD.match(text)
    return found[0] if found else ""
