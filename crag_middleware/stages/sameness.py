"""When two texts say the same: in what is left of them without their formatting, and in what must not differ between copies."""

import html
import re
import unicodedata
from functools import cached_property

from crag_middleware.stages.chinese import proper_names
from crag_middleware.stages.fences import seen
from crag_middleware.stages.stops import HAN
from crag_middleware.stages.words import terms

_TAGS = (
    "p|br|hr|div|span|b|i|u|em|strong|small|mark|code|pre|kbd|ul|ol|li|dl|dt|dd|h[1-6]|table|caption|thead|tbody|tfoot|tr|td|th|blockquote|section|article"
    "|font|center"
)
_TAG = re.compile(rf"</?(?:{_TAGS})(?:\s[^<>]{{0,300}})?/?>", re.IGNORECASE)
_LINE_MARKS = re.compile(
    r"""
      ^[^\S\n]*(?:`{3,}|~{3,})[^\n`]*$              # the fence of a block of code
    | ^[^\S\n]*[-=*_+:|][-=*_+:|\ \t]{2,}$          # a rule, the underline of a heading, the line under a table's header
    | ^(?:[^\S\n]*(?:(?:\#{1,6}|[*+-]|>(?!\s*\d))(?=\s|\Z)|[•‣◦▪●○■□◆]))+
    """,
    re.MULTILINE | re.VERBOSE,
)
_ROW = re.compile(r"^[^\S\n]*\|[^\n]*\|[^\S\n]*$|(?<!\S)\|(?!\S)", re.MULTILINE)
_STARS = re.compile(rf"(?<![\w)\]])\*++(?=\S)|(?<=\S)\*++(?![\w(\[])|(?<=[{HAN}])\*{{2,3}}(?=\S)|(?<=\S)\*{{2,3}}(?=[{HAN}])")
_UNDERSCORES = re.compile(r"(?<!\w)(_{1,3})(?=[^\s_])([^\n_]+)(?<=\S)\1(?!\w)")
_IDENTIFIER = re.compile(r"\w+")
_SMALLER = re.compile(r"(?<=\d)\s?(?:[KMGT]b(?=ps|it|/s|\b)|m(?:W|Pa|V|Hz|J)h?\b)")
"""Units that a capital would make another: megabits, milliwatts."""

_NOT_PLAIN = re.compile(rf"[^\x00-\x7f{HAN}\u3001-\u301f\uff01-\uff5e\u2010-\u2027]")
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–−", "-") | dict.fromkeys("’‘", "'") | {"⁄": "/"})
_UNUSUAL = re.compile(r"[^\x00-\x7f\u2010-\u2027\u3000-\u301f\u3400-\u4dbf\u4e00-\u9fff\uff01-\uff5e]")
"""What ordinary Chinese and English is written without; a text without it has the compatible forms of its single signs."""

_TO_FOLD = re.compile(r"[\u2010-\u2027\u3000\uff01-\uff5e]")
_COMPATIBLE = {
    sign: unicodedata.normalize("NFKC", sign).translate(_DASHES)
    for sign in map(chr, (*range(0x2010, 0x2028), 0x3000, *range(0xFF01, 0xFF5F)))
}
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NOTHING = r"\s.,;:!\"'“”«»「」『』【】〔〕《》〈〉。、，；：！…·•—―`"
"""Signs that say nothing where they do not stand inside a word or a number, as the inside of a character class."""

_TOKEN = re.compile(
    rf"[{HAN}]+|[^\W\d{HAN}][^\W{HAN}]*(?:(?:[.']|::)[^\W{HAN}]+)*|\d+(?:[.,:]\d+)*|(?<![^\W{HAN}.])\.(?=[^\W{HAN}])|!(?=[a-z_=])|[^\w{_NOTHING}]"
)
_ASCII_TOKEN = re.compile(
    rf"[a-z_][a-z_0-9]*(?:(?:[.']|::)[a-z_0-9]+)*|[0-9]+(?:[.,:][0-9]+)*|(?<![a-z_0-9])\.(?=[a-z_0-9])|!(?=[a-z_=])|[^a-z_0-9{_NOTHING}]"
)
"""The same for a text of small ASCII letters, in half the time."""

_HAN_RUN = re.compile(f"[{HAN}]+")

_TURNING = frozenset(
    """
    not no never neither nor none nothing nobody nowhere without cannot hardly rarely seldom except unless only solely exclusively but if when until while
    before after since prior following previously formerly currently deprecated obsolete
    above below over under more less fewer greater smaller larger higher lower longer shorter earlier later faster slower most least maximum minimum max min
    up down from to by between at within inside outside internal external left right top bottom north south east west front back
    all every each any some few many several both either or and first second third fourth fifth last next previous current old new former latter
    must shall should may might can could will would need needs required optional mandatory always sometimes often usually
    allow allows allowed deny denies denied permit permits permitted forbid forbids forbidden prohibit prohibits prohibited
    enable enables enabled disable disables disabled increase increases increased decrease decreases decreased raise raises reduce reduces reduced
    add adds added remove removes removed include includes included exclude excludes excluded accept accepts accepted reject rejects rejected refuse refuses
    start starts started stop stops stopped open opens opened close closes closed buy buys bought sell sells sold gain gains loss losses rise rises fall falls
    pass passes passed fail fails failed win wins won lose loses lost true false yes on off active inactive public private read write input output
    safe unsafe valid invalid legal illegal possible impossible supported unsupported available unavailable known unknown male female
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty
    fifty sixty seventy eighty ninety hundred thousand million billion half quarter double twice once triple dozen percent
    second seconds minute minutes hour hours day days week weeks month months year years monday tuesday wednesday thursday friday saturday sunday
    january february march april may june july august september october november december
    usd eur gbp cny rmb dollar dollars euro euros pound pounds yuan kb mb gb tb km cm mm kg mg ms
    """.split()  # noqa: SIM905, a list of words reads better as text
)
_TURNING_HAN = frozenset(
    "不没无未非勿莫别否仅只除必须应需可能都全各每任部半前后上下内外高低大小多少增减升降涨跌允许禁准拒开关启停买卖借贷东南西北男女甲乙丙丁先早晚正负新旧首末始止快慢长短"
    "强弱优劣真假和或若如当则但已曾将零〇一二两三四五六七八九十百千万亿双倍年月日时天周分秒元美欧英港"
)
_LETTERS = re.compile(r"[^\W\d_]+")

_REWRITTEN = re.compile(
    r"[<&]|```|~~~|[^\x00-\x7f\u2010-\u2027\u3000-\u301f\u3400-\u4dbf\u4e00-\u9fff\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff5e]"
)
"""Without any of these, a text has the ASCII letters and digits of its normal form, the word `small` of small units aside."""

_DIGITS = b"0123456789"
_SMALL_LETTERS = bytes(range(ord("a"), ord("z") + 1))
_TO_SMALL = bytes(range(256)).lower()
_NO_LETTERS = bytes(set(range(256)) - set(_DIGITS + _SMALL_LETTERS + _SMALL_LETTERS.upper()))


def normal(text: str) -> str:
    """What a text says, without how it is set: equal for two texts that differ in formatting alone.

    Case, width, white space, marks of Markdown and HTML, quotes, and punctuation between words do not count. Signs inside numbers and words do, and so do signs
    with a meaning of their own: `-5`, `C++`, `1.25`, `x < 3`, `v2.1`, `10²`, `5 Mb` differ from `5`, `C`, `125`, `x > 3`, `v21`, `102`, `5 MB`. Where it is
    unclear whether a sign means anything, it counts; but a `-` or `+` with a blank after it is a bullet where it begins a line.

    Returns:
        Words, signs and single Chinese characters with a blank between each two; a text that has none of them, as it is.
    """
    plain = html.unescape(_TAG.sub(" ", text)) if "<" in text or "&" in text else text
    plain = _LINE_MARKS.sub(" ", plain)
    # Most texts have none of these signs, and a search for a sign takes a hundredth of the time of one for a pattern.
    if "|" in plain:
        plain = _ROW.sub(lambda row: row.group().replace("|", " "), plain)
    if "*" in plain:
        plain = _STARS.sub("", plain)
    if "_" in plain:
        plain = _UNDERSCORES.sub(_without_emphasis, plain)
    plain = _SMALLER.sub(lambda unit: f" small_{unit.group().strip()}", plain)
    if not plain.isascii():
        plain = _compatible(seen(plain))
    plain = plain.casefold()
    if "," in plain:
        plain = _THOUSANDS.sub("", plain)
    return " ".join(_tokens(plain)) or " ".join(text.split())


def _compatible(text: str) -> str:
    """The text in its compatible form, with one kind of dash and apostrophe."""
    if _UNUSUAL.search(text):
        return unicodedata.normalize("NFKC", _NOT_PLAIN.sub(_apart, text)).translate(_DASHES)
    return _TO_FOLD.sub(lambda sign: _COMPATIBLE[sign.group()], text)


def _tokens(text: str) -> list[str]:
    """Words, signs, and runs of Chinese characters with a blank between each two."""
    if text.isascii():
        return _ASCII_TOKEN.findall(text)
    return [" ".join(token) if _HAN_RUN.match(token) else token for token in _TOKEN.findall(text)]


def _without_emphasis(match: re.Match[str]) -> str:
    """The words between underscores; `__init__` keeps them."""
    return match.group() if match[1] == "__" and _IDENTIFIER.fullmatch(match[2]) else match[2]


def _apart(match: re.Match[str]) -> str:
    """A sign that its plain form would make a digit of the number before it, such as in `10²`, `1½` and `5①`, away from it; others as they are."""
    sign = match.group()
    return f" ^ {sign} " if unicodedata.category(sign) == "No" else sign


class Look:
    """A text as it is compared with others; every part is made when it is first asked for.

    Args:
        text: The text.
        told: What texts that are compared remember together: see `proper_names`.
    """

    def __init__(self, text: str, told: dict[str, tuple[str, ...]] | None = None) -> None:
        self.text = text
        self._told = told

    @cached_property
    def normal(self) -> str:
        """See `normal`."""
        return normal(self.text)

    @cached_property
    def letters(self) -> bytes:
        """ASCII letters and digits, small: the same in texts of one normal form, and told in a tenth of the time that it takes."""
        text = self.normal if _REWRITTEN.search(self.text) else self.text
        return text.encode(errors="replace").translate(_TO_SMALL, _NO_LETTERS).replace(b"small", b"")

    @cached_property
    def digits(self) -> bytes:
        """The digits: the same in texts of the same `marks`."""
        return self.letters.translate(None, _SMALL_LETTERS)

    @cached_property
    def trigrams(self) -> frozenset[str]:
        """All runs of three characters of the normal form."""
        words = self.normal
        return frozenset(words[i : i + 3] for i in range(max(1, len(words) - 2)))

    @cached_property
    def marks(self) -> tuple[str, ...]:
        """What must agree, in order: numbers, versions, dates, identifiers, signs, negations, and words that turn a statement round or bound it."""
        words = self.normal.split(" ")
        telling = {t for t in set(words) if t in _TURNING or t in _TURNING_HAN or not t.isalpha() or t.endswith("n't")}
        return tuple(filter(telling.__contains__, words))

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(_LETTERS.findall(self.text.casefold()))

    @cached_property
    def _names(self) -> frozenset[str]:
        """The words with a capital, small; those that say nothing about the topic are no names though they begin a sentence."""
        return frozenset(w.casefold() for w in _LETTERS.findall(self.text) if w != w.casefold() and terms(w))

    @cached_property
    def _han_names(self) -> frozenset[str]:
        return frozenset(proper_names(self.text, told=self._told))

    def says_other(self, other: "Look") -> bool:
        """Whether the two differ in what makes another fact of a like text: in `marks`, or in a name.

        Errs towards yes: two copies cost a place among the passages, one fact taken for another costs the answer. What it can't see is a common word in the
        place of another, such as `apples` for `pears`.
        """
        if self.marks != other.marks or not (self._names <= other._words and other._names <= self._words):
            return True
        if self.normal == other.normal or (self.normal.isascii() and other.normal.isascii()):
            return False
        return self._han_names != other._han_names

    def share(self, other: "Look") -> float:
        """The share of trigrams that two texts have in common, in [0, 1] (Jaccard, of the normal forms); 1 for two without any."""
        both = len(self.trigrams & other.trigrams)
        return both / (len(self.trigrams) + len(other.trigrams) - both)


class Looks(dict[str, Look]):
    """Looks at texts that are compared more than once, by text."""

    def __init__(self) -> None:
        super().__init__()
        self._first: dict[bytes, str] = {}
        self._other: dict[str, str] = {}
        self._told: dict[str, tuple[str, ...]] = {}

    def __missing__(self, text: str) -> Look:
        look = self[text] = Look(text, self._told)
        return look

    def same(self, text: str) -> str:
        """One of the texts asked for that has the normal form of this one, always the same; normal forms are made only where they may be equal."""
        first = self._first.setdefault(self[text].letters, text)
        if first == text or self[first].normal == self[text].normal:
            return first
        return self._other.setdefault(self[text].normal, text)
