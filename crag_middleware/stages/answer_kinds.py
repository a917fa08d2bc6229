"""Which kind of answer a question asks for, and whether a sentence looks like one: a date for `when`, a reason for `why`."""

import re
from collections.abc import Callable
from typing import NamedTuple


class _Kind(NamedTuple):
    """How a question asks for it, and what an answer shows."""

    asked: re.Pattern[str]
    shown: re.Pattern[str]


def _kind(asked: str, shown: str, flags: re.RegexFlag = re.IGNORECASE) -> _Kind:
    return _Kind(re.compile(asked, re.IGNORECASE), re.compile(shown, flags))


_TIME = (
    r"\b(?:1\d|20)\d\d\b|\b(?:january|february|(?-i:March|May)|april|june|july|august|september|october|november|december|monday|tuesday|wednesday|thursday|friday"
    r"|saturday|sunday|century|today|tomorrow|bc)\b|\d\s*[年月]|年代|世纪|时期|星期|周[一二三四五六日末]"
)
_COUNT = (
    r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|million|billion|half|twice|once|several)\b"
    r"|(?<![一二三四五六七八九十百千万两半])[一二三四五六七八九十百千万两半]++\s*+(?:多|余)?[个种名人次位座层年天日部条章集米里岁只届家所支枚台间套首元吨克分秒周月成倍]"
)

_KINDS = (
    _kind(
        r"\bwhen\b|\b(?:what|which) (?:year|date|day|month|century|decade)\b|[哪几][一个]?[年月天日]|时候|何时|时间|年份|哪个(?:年代|时期|世纪|朝代)",
        _TIME,
    ),
    _kind(
        r"\bhow (?:many|much|often|long|tall|high|big|large|deep|wide|far|old|heavy|fast)\b|\bnumber of\b|\bpopulation\b"
        r"|多少|几(?![乎何])|多[长高大深宽远重久快厚]|人口|面积|价格|费用|期限",
        f"{_COUNT}|{_TIME}",
    ),
    _kind(
        r"\bwhy\b|\breasons?\b|\bcaused?\b|为什么|为何|原因|何以|为啥",
        r"because|\bsince\b|due to|as a result|\breason|caused? by|in order to|so that|\bto (?:avoid|protect|prevent|allow|make)\b"
        r"|因[为此而]|由于|为了|所以|原因|缘于|起因|鉴于|以便|导致",
    ),
    _kind(
        r"\bwhere\b|哪里|哪儿|何处|何地|在哪|哪个?(?:国家|城市|地方|省|地区|州|县|市)|什么地方|位于|分布",
        r"\b(?:[Ii]n|[Aa]t|[Ff]rom|[Nn]ear|[Tt]o|[Oo]n) (?:the )?(?:[A-Z]|north|south|east|west)|\b[Ll]ocat|\bsituated"
        r"|[位居]于|地处|坐落|分布|产于|[省市县区镇村国洲岛]",
        re.NOFLAG,
    ),
    _kind(
        r"\bwho(?:m|se)?\b|谁|哪位|什么人|何人|哪些人|哪个(?:人|演员|导演|歌手|作家|皇帝)",
        r"[A-Z][a-z]+ (?:[A-Z]\.? )?[A-Z][a-z]+|\b(?:he|she|his|her|king|queen|president|director)\b|·|[他她]",
        re.NOFLAG,
    ),
    _kind(
        r"\bhow (?:do|does|did|is|are|was|were|can|could|should|to)\b|如何|怎么|怎样|方式|方法|步骤",
        r"\bby\b|\bthrough\b|\busing\b|\buse\b|\bvia\b|\bclick|\bselect\b|通过|利用|使用|采用|方式|方法|点击|选择|[用经]",
    ),
    _kind(
        r"\bwhich .{0,40}\bare\b|\bwhat are\b|\blist\b|\b(?:types|kinds|examples) of\b|哪些|哪几|包括|有什么",
        r", .*,|\binclud|such as|:|、|等|包括|分别|：",
    ),
)
"""Kinds of answers, English and Chinese. A question may ask for several; one that asks for none of them is judged by its words alone."""


def answer_kind(question: str) -> Callable[[str], float]:
    """A function that tells, of a sentence, the share of the asked kinds of answer that it shows, in [0, 1]; always 0.5 if the question asks for none."""
    shown = [kind.shown.search for kind in _KINDS if kind.asked.search(question)]
    if not shown:
        return lambda _: 0.5
    return lambda sentence: sum(search(sentence) is not None for search in shown) / len(shown)
