"""Where a sentence ends: what the sign at the end of a strip is, and whether a dot is a full stop or part of an abbreviation."""

import re

HAN = "\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f"
"""Scripts written without spaces between words, as the inside of a character class."""

HAN_OPENERS = "“‘（【《「『〈"
OPENERS = "\"'«([{" + HAN_OPENERS
CLOSERS = "\"'”’»)]}）】》」』〉*_`~"
HAN_STOPS = "。！？｡"

TAIL_CHARS = 80
"""How far back from its end a strip is looked at for its last sign."""

_SHUT_END = re.compile(rf"(?:[{re.escape(CLOSERS)}]|\[\d{{1,3}}\]|</?[a-zA-Z][^<>]*>|\s)+\Z")
_TAIL = re.compile(r"[\w.'’-]*+\Z", re.ASCII)
_LABEL = re.compile(r"[(（]?(?:\d{1,3}|[a-z]|[ivx]{1,4})")
_CAPITALISED = re.compile(r"[A-Z][a-z]*(?![\w.])")
_BEFORE_WORD = re.compile(rf"[\s\"'(\[*_{HAN}{HAN_OPENERS}，、：；]")

_NEVER, _BEFORE_NUMBER, _RARELY = "never", "before a number", "rarely"
_ABBREVIATIONS = {
    name: when
    for when, names in {
        # A stop after these ends no sentence.
        _NEVER: "dr mr mrs ms prof st mt gen sen gov col rep hon capt lt sgt mme mlle v vs cf viz e.g i.e eg ie incl excl resp",
        # These take a number or a letter: `No. 5`, `Jan. 5`, `Rev. B`, `c. 1900`.
        _BEFORE_NUMBER: "no nos fig figs sec sect art ch chap vol p pp eq eqn ref refs tab ver rev para approx ca max min tel ext ed est op cl app "
        "b c d l n s jan feb mar apr jun jul aug sep sept oct nov dec",
        # These end a sentence only where the next word starts one.
        _RARELY: "inc ltd corp co llc plc etc jr sr dept univ assn bros al a.m p.m ph.d misc",
    }.items()
    for name in names.split()
}
_STARTERS = frozenset(
    """
    A After All Also An And Any As At Before Both But By Can Do Does Each Every For From He Her Here His How However I If In Is It Its Later No Not Now
    On One Only Or Our Please See She Since So Some That The Their Then There These They This Those Thus To Today Under Unless Until We What When Where
    Which While Who Why With You Your
    """.split()  # noqa: SIM905, a list of words reads better as text
)


def last_sign(strip: str) -> str:
    """The sign a strip ends with, closing quotes, brackets, tags and footnote marks aside; a space if there is nothing else."""
    sign = strip[-1:]
    if sign in CLOSERS or sign == ">":
        sign = _SHUT_END.sub("", strip[-TAIL_CHARS:])[-1:]
    return sign or " "


def ends(text: str, start: int, dot: int, following: int) -> bool:
    """Whether the dot at `dot` ends the sentence begun at `start`, with the next one at `following`."""
    first = text[following]
    if first.isupper() and dot - start >= 5 and (word := text[dot - 5 : dot]).islower() and word.isalpha() and word.isascii():
        return True  # The usual case, first because it is the quickest to tell: no abbreviation before a capital is that long.
    tail = _TAIL.search(text, max(start, dot - 12), dot)
    written = tail.group() if tail else ""
    name = written.lower()
    if len(name) == 1 and name.isalpha() and dot - 1 > start and not _BEFORE_WORD.match(text, dot - 2):
        return not first.islower()  # The end of an address or a term, such as `?e=f`, is no initial.
    when = _ABBREVIATIONS.get(name)
    if (len(name) == 1 and written.isupper()) or (when is None and len(name) == 2 * name.count(".") + 1 > 1 and name[-1].isalpha()):
        when = _RARELY  # An initial or a dotted one: `J.`, `U.S.`
    if len(name) == 1 and written.islower() and not first.isupper():
        return False
    if when == _NEVER or (dot - start < 6 and _LABEL.fullmatch(text, start, dot)) or dot == start:
        return False
    if when == _BEFORE_NUMBER:
        return not (
            first.isdigit() or first.islower() or first in "(#" or (first.isupper() and not text[following + 1 : following + 2].isalnum())
        )
    if when == _RARELY:
        word_after = _CAPITALISED.match(text, following)
        return word_after is not None and word_after.group() in _STARTERS
    if following == dot + 1 and name.isdigit() and len(name) < 3:
        return False  # A number in a running list: `1.安装 2.启动`.
    if first.islower():
        # A name such as `iPad`, or a version, begins a sentence as a capital does.
        inner = text[following + 1 : following + 2]
        return len(name) > 4 or not name.isalpha() or inner.isupper() or inner.isdigit()
    return True


def stands_free(text: str, start: int, stop: int, following: int) -> bool:
    """Whether a stop between words has white space on both sides, as in tokenised text, where small letters begin sentences: `... the end . it begins`."""
    if stop - 1 <= start or following <= stop + 1 or not text[stop - 1].isspace() or not text[following].isalnum():
        return False
    word = _TAIL.search(text, max(start, stop - 13), stop - 1)
    return word is not None and bool(word.group()) and word.group().lower() not in _ABBREVIATIONS
