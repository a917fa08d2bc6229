"""Whether two statements of different sources contradict each other: the same words with another value, or with a negation or an opposite.

It reads nothing. Two statements are laid side by side with their values masked, and one thing alone may differ: whatever else is another on each side, be it
a name, a year or an ordinary word, may be what the statement is about, and then both may be true.
"""

import re
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import cached_property
from typing import NamedTuple

from crag_middleware.stages.claim_check_tokens import AT_LEAST, AT_MOST, NOT, Token, is_han, plain, term_list, tokens, width
from crag_middleware.stages.claim_check_words import OPPOSITES, charged, opposed
from crag_middleware.stages.values import Value, same, told_by

MAX_CHARS = 600
"""Longer statements are not compared: they are pages of code or tables."""

SHARED = 0.75
"""From what share of the words of both on two statements say much the same."""

SHARED_DENIED = 0.85
"""The same for a negation, which may belong to any of a statement's words."""

FEWEST = 1.5
"""Words that both must share at least, two Chinese characters counting as one, so two of English and three characters: `Price: 10` is about anything."""

ANCHORED = 5.0
"""With so many words in common a statement says itself what it is about; one with fewer needs titles and sections that agree."""

DATED = 4.0
"""Words in common from which on two dates compete though nothing says that it happened once."""

ROUNDING = 0.02
"""Amounts this near, as a share of the larger, may be the same in other units, or rounded."""

_MARK = re.compile(r"(?:\s|[-*•+>#|])*(?:[(（]?\d{1,3}[.)）、．](?!\d)|[(（][a-z][)）])?\s*")
"""What leads a line of a list, which is no value."""

_PAIR = re.compile(r"\s?(?:-|–|—|~|～|to|and|or|through|至|到|和|或|与)\s?", re.IGNORECASE)
_ROUGH = re.compile(
    r"(?:\b(?:about|around|approximately|approx\.?|roughly|nearly|almost|over|above|under|below|beyond|some|(?:more|less|fewer|greater|higher|lower) than"
    r"|up to|at (?:least|most)|between|from|exceeds?|exceed(?:ed|ing)|estimated)|[~≈<>≤≥]"
    r"|约|近|超过?|逾|多达|高达|至少|最少|至多|最多|不足|不到|大约|将近|接近|少于|多于|大于|小于|低于|高于|从|自)有?\s?$",
    re.IGNORECASE,
)
"""What stands before a value that is a bound, a rounded one, or one end of a range."""

_NUMBERED = re.compile(r"中全会|会议|全会|号")
"""Behind a number it makes an ordinal or a name of it."""

_ROUGH_AFTER = re.compile(r"\s?(?:多|余|左右|上下|以上|以下|以内|\+|or (?:more|less|fewer|so|above|below|later|earlier|higher)\b|起\b)")
_EXAMPLE = re.compile(
    r"\b(?:e\.g|for example|for instance|such as|example|suppose|assum(?:e|ing)|say,)|例如|比如|譬如|举例|示例|假设|假如", re.IGNORECASE
)
_IF = re.compile(
    r"\b(?:if|when|whenever|unless|until|while|whether|once|except|but|although)\b|如果|若|当.*时|除非|只要|一旦|是否|但|然而",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"(?:\A\W*|(?<=[^\W\d_]\s)|(?<=[(（,，。]))[A-Z][\w+#.]*[\s-]?$|(?:[第#]|版本|[\u3400-\u9fff]\s?[A-Za-z][\w+#.-]*)\s?$"
    r"|\b(?i:chapter|section|step|page|version|no\.?|part|level|phase|tier|type|class|grade|figure|fig\.?|table|rule|item|season|episode|line|rev\.?)\s?[-#:]?$"
)
"""What stands before a number that is part of a name: `Windows 10`, `step 3`."""

_DEMANDS = frozenset("requir need requirement minimum latest current newest recommend".split())  # noqa: SIM905, reads better as text
_DEMANDS_ZH = re.compile("需要|要求|最新|当前|最低|至少|推荐")
"""Where they stand, a version is what a statement tells, and not what it is about."""

_ONCE = frozenset(
    "releas found born die launch establish premier sign elect open inaugurat ratifi effect begin start end expir due deadlin".split()  # noqa: SIM905
)
_ONCE_ZH = re.compile(
    "成立|出生|生于|去世|逝世|发布|上映|创立|创办|建于|建成|开业|上市|首播|发行|发售|生效|截止|到期|签署|当选|开馆|开幕|播出|推出"
)
"""What happens once, so that two dates of it compete."""

_STAMPED = frozenset("publish post updat modifi revis retriev access print copyright photograph pictur".split())  # noqa: SIM905
_STAMPED_ZH = re.compile("更新|修改|修订|编辑|访问|发表于|来源|摄|截至")
"""What a document says of itself."""

_LIGHT = frozenset(
    "get can will now current currently today own also only still just take tak giv given set following per within we company hav us".split()  # noqa: SIM905
)
_LIGHT_ZH = frozenset("为是于共在有则均约现即及与和或按以由对并为止起至到内后前：")
"""Words that may differ without saying of what the statement is."""

_ALLOWS = frozenset("allow permit support need requir accept enabl possibl includ".split())  # noqa: SIM905
_ALLOWS_ZH = frozenset("允许可以准能够需要必须应当支持")
"""What a negation stands in the place of: `allowed` and `forbidden`, 可以 and 不得."""

_TELLING = frozenset(
    """
    allow allowed allows permit permitted permits accept accepted accepts forbid forbidden forbids prohibit prohibited prohibits deny denied refuse refused
    refuses reject rejected rejects enable enabled enables disable disabled disables included includes excluded excludes required requires mandatory
    compulsory optional voluntary unnecessary increased increases rose rises grew decreased decreases fell falls dropped declined
    supports supported opposes opposed true false legal illegal possible impossible approved rejected removed kept safe dangerous unsafe automatically manually
    允许 准许 禁止 严禁 拒绝 必须 需要 无需 不必 可选 开启 启用 关闭 禁用 停用 成功 失败 赞成 同意 反对 否决 合法 非法 违法 推荐 建议 避免
    增加 增长 上升 上涨 减少 下降 下跌 免费 收费 付费
    """.split()  # noqa: SIM905, a list of words reads better as text
)
"""Words with an opposite that tell something; `public`, `first` or `online` rather say of what."""


class Statement:
    """One statement of a source, taken apart once for all it is compared with.

    Attributes:
        text: It in its compatible form, without citations and without what leads a line of a list; empty if it is too long.
        tokens: Its tokens but for words that tell nothing.
        terms: Its topic words.
        topic: All of it but its values: what statements about one attribute have alike.
        weight: How many words it has.
        values: Its values, in order.
        denies: How many negations it has.
        charged: Its words that have an opposite.
    """

    def __init__(self, text: str) -> None:
        """Takes it apart.

        Args:
            text: The statement, word for word.
        """
        bare = plain(text)
        self.text = bare[_MARK.match(bare).end() :] if len(bare) <= MAX_CHARS else ""  # type: ignore[union-attr] # every part of it is optional
        self.tokens = tuple(token for token in tokens(self.text) if not _is_light(token))
        self.terms = frozenset(term_list(self.tokens))
        self.weight = sum(map(_width, self.tokens))
        self.values = tuple(token.value for token in self.tokens if token.value)
        self.denies = sum(token.key == NOT for token in self.tokens)
        self.charged = charged(self.text.casefold())
        self.topic = tuple(f"#{token.value.kind} {token.value.unit}" if token.value else token.key for token in self.tokens)

    @cached_property
    def counts(self) -> Counter[str]:
        """How often each of its words stands in it."""
        return Counter(token.key for token in self.tokens if _width(token))


class Difference(NamedTuple):
    """What two statements that say much the same differ in.

    Attributes:
        says: What each says, in the order of the statements.
        shared: The share of their words that both have, in [0, 1].
        values: The value of each; None if one denies what the other says.
    """

    says: tuple[str, str]
    shared: float
    values: tuple[Value, Value] | None = None


def differ(first: Statement, second: Statement, *, at_least: float = FEWEST) -> Difference | None:
    """In what two statements contradict each other; None if they don't, or if that is not clear. Which is first changes nothing but the order.

    Args:
        first: A statement of one source.
        second: A statement of another.
        at_least: How many words they must share.
    """
    if second.text < first.text:  # The comparison below is not symmetric.
        found = differ(second, first, at_least=at_least)
        return found and found._replace(says=found.says[::-1], values=found.values and found.values[::-1])
    if "?" in first.text or "?" in second.text or not (first.text and second.text):
        return None
    return _other_value(first, second, at_least) or _denial(first, second, at_least)


def _other_value(first: Statement, second: Statement, at_least: float) -> Difference | None:
    if first.denies != second.denies or opposed(first.charged, second.charged):
        return None
    # What a table or a template makes hundreds of, and is the quickest to tell.
    if first.topic == second.topic and sum(not same(*pair) for pair in zip(first.values, second.values, strict=True)) != 1:
        return None
    if not _may_compete(first.values, second.values) or not _may_share(first, second, SHARED, at_least):
        return None
    laid = _Laid(first, second)
    if laid.shared < SHARED or laid.weight < at_least or laid.strange:
        return None
    pairs = [(one, other) for one, other in laid.values if not same(one, other)]
    if len(pairs) != 1 or laid.alone or _bounds(first) != _bounds(second):
        return None
    one, other = pairs[0]
    if not (_tells(first, one, laid.weight) and _tells(second, other, laid.weight)) or _near(one, other):
        return None
    return Difference((_written(first, one), _written(second, other)), laid.shared, (one, other))


def _denial(first: Statement, second: Statement, at_least: float) -> Difference | None:
    if first.denies == second.denies and first.charged == second.charged:
        return None
    if _IF.search(first.text) or _IF.search(second.text) or opposed(first.charged - _TELLING, second.charged - _TELLING):
        return None
    if not _may_share(first, second, SHARED_DENIED, at_least, turned=_TURNED):
        return None
    laid = _Laid(first, second, turning=True)
    if laid.shared < SHARED_DENIED or laid.weight < at_least or laid.strange or laid.alone or not all(same(a, b) for a, b in laid.values):
        return None
    return Difference(laid.turned, laid.shared) if laid.turned else None


_ROUNDED = 1e-9
_TURNED = 2.0
"""At most so many words of a statement are those that deny the other (see `_turn`)."""


def _may_share(first: Statement, second: Statement, share: float, at_least: float, *, turned: float = 0.0) -> bool:
    """Whether the words that two statements have in common, in any order, may be such a share of all, and so many; laid side by side they are never more."""
    few, many = sorted((first.counts, second.counts), key=len)
    common = sum(min(count, many[key]) * width(key) for key, count in few.items() if key in many)
    return common >= at_least and common >= (share - _ROUNDED) * (max(first.weight, second.weight) - turned)


class _Laid:
    """Two statements side by side.

    Attributes:
        weight: The words that both have, in order.
        shared: Their share of the one that has more.
        values: The values that stand in the same place.
        alone: Whether one tells a value in a place where the other tells none.
        strange: Whether they may be about different things.
        turned: The words of each with which one denies the other; None if they don't, or more than once.
    """

    def __init__(self, first: Statement, second: Statement, *, turning: bool = False) -> None:
        one, other = first.tokens, second.tokens
        steps = _steps(first.topic, second.topic)
        equal = [(one[a + i], other[c + i]) for step, a, b, c, _ in steps if step == "equal" for i in range(b - a)]
        self.weight = sum(_width(token) for token, _ in equal)
        self.values = [(a.value, b.value) for a, b in equal if a.value and b.value]
        self.alone = self.strange = False
        self.turned: tuple[str, str] | None = None
        dropped = [0.0, 0.0]
        turns = 0
        last = max((a for step, a, *_ in steps if step == "equal"), default=0)
        seen = False
        for step, a, b, c, d in steps:
            if step == "equal":
                pairs = zip(one[a:b], other[c:d], strict=True)
                seen |= any(mine.value and theirs.value and not same(mine.value, theirs.value) for mine, theirs in pairs)
                continue
            here, there = one[a:b], other[c:d]
            turned = _turn(one, a, b, other, c, d) if turning else None
            if turned:
                turns, self.turned = turns + 1, turned
                dropped = [dropped[0] + sum(map(_width, here)), dropped[1] + sum(map(_width, there))]
                continue
            self.alone |= any(token.value for token in (*here, *there))
            self.strange |= any(token.key in (NOT, AT_LEAST, AT_MOST) for token in (*here, *there))
            self.strange |= bool(here and there) or any(map(_may_name, (*here, *there)))
            # Before the value it says of what: `refunds for members`; so it does before the end of what both say.
            self.strange |= not seen and (a <= last) and not turning
        self.turned = self.turned if turns == 1 else None
        most = max(first.weight - dropped[0], second.weight - dropped[1])
        self.shared = self.weight / most if most > 0 else 0.0


def _steps(one: Sequence[str], other: Sequence[str]) -> Sequence[tuple[str, int, int, int, int]]:
    """How one becomes the other, as `SequenceMatcher.get_opcodes` tells it."""
    if one == other:
        return [("equal", 0, len(one), 0, len(other))] if one else []
    return SequenceMatcher(None, one, other, autojunk=False).get_opcodes()


def _turn(one: Sequence[Token], a: int, b: int, other: Sequence[Token], c: int, d: int) -> tuple[str, str] | None:
    """What each says where one denies the other; None if neither does."""
    here, there = one[a:b], other[c:d]
    if (_denies(here) and _allows(there)) or (_denies(there) and _allows(here)):
        return _phrase(one, a, b), _phrase(other, c, d)
    mine, theirs = (_joined(some).casefold() for some in (here, there))
    if mine in _TELLING and theirs in _TELLING and theirs in OPPOSITES.get(mine, ()):
        return mine, theirs
    return None


def _denies(some: Sequence[Token]) -> bool:
    return len(some) == 1 and some[0].key == NOT


def _allows(some: Sequence[Token]) -> bool:
    return all(token.key in _ALLOWS or token.key in _ALLOWS_ZH for token in some) and len(some) <= 2


def _phrase(found: Sequence[Token], start: int, end: int) -> str:
    """Some tokens, with the word behind them if they are but a negation or nothing."""
    stop = end
    if all(token.key == NOT for token in found[start:end]):
        stop = min(len(found), end + 1)
        while stop < len(found) and found[stop].glued and stop < end + 2:
            stop += 1
    return _joined(found[start:stop])


def _joined(some: Sequence[Token]) -> str:
    text = ""
    for token in some:
        wide = is_han(token.written) and (not text or is_han(text[-1]))
        text += token.written if wide or not text else f" {token.written}"
    return text[:40]


def _is_light(token: Token) -> bool:
    return not token.value and (token.key in _LIGHT or token.key in _LIGHT_ZH)


def _width(token: Token) -> float:
    return 0.0 if token.value or token.key in (NOT, AT_LEAST, AT_MOST) else width(token.key)


def _may_name(token: Token) -> bool:
    """Whether a token looks like a name or an identifier."""
    return not token.value and not is_han(token.key) and (token.written[:1].isupper() or any(map(str.isdigit, token.written)))


def _may_compete(first: Sequence[Value], second: Sequence[Value]) -> bool:
    """Whether one has a value of which the other tells another."""
    lone = [value for value in first if not told_by(value, second)]
    return any(one.kind == other.kind and one.unit == other.unit and not told_by(other, first) for one in lone for other in second)


def _bounds(statement: Statement) -> list[str]:
    return [token.key for token in statement.tokens if token.key in (AT_LEAST, AT_MOST)]


def _tells(statement: Statement, value: Value, shared: float) -> bool:
    """Whether a value is what a statement tells: no end of a range, no example, no bound, no part of a name, and no date that says when it holds."""
    text = statement.text
    before, after = text[: value.start], text[value.end :]
    if _EXAMPLE.search(before) or value.unit == "ordinal" or _NUMBERED.match(after):
        return False
    words = {token.key for token in statement.tokens}
    if value.kind == "version" or (not value.unit and value.kind == "amount" and _LABEL.search(before)):
        return bool(words & _DEMANDS or _DEMANDS_ZH.search(text))
    bounded = any(key in (AT_LEAST, AT_MOST) for key in _bounds(statement))
    if _ROUGH_AFTER.match(after) or (_ROUGH.search(before) and not bounded):
        return False
    ends = (
        (v.end, value.start) if v.end <= value.start else (value.end, v.start)
        for v in statement.values
        if v != value and v.kind == value.kind
    )
    if any(_PAIR.fullmatch(text, end, start) for end, start in ends):
        return False
    leads = not any(token.value is None for token in tokens(before))
    if value.kind == "date":
        if leads or {token.key for token in tokens(before)[-2:]} & _STAMPED or _STAMPED_ZH.search(text):
            return False
        return bool(words & _ONCE or _ONCE_ZH.search(text)) or shared >= DATED
    return bool(value.unit) or not leads


def _near(one: Value, other: Value) -> bool:
    """Whether two amounts may be one, in other units or rounded."""
    if one.kind != "amount":
        return False
    a, b = one.parts[0], other.parts[0]
    rough = one.each != other.each or abs(len(_digits(one.written)) - len(_digits(other.written))) > 1
    return rough and abs(a - b) <= ROUNDING * max(abs(a), abs(b))


def _digits(written: str) -> str:
    return "".join(filter(str.isdigit, written)).strip("0")


def _written(statement: Statement, value: Value) -> str:
    """The value as it stands, with the word that it counts."""
    return " ".join(statement.text[value.start : value.end].split())
