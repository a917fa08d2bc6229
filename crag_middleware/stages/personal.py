"""A text without what names a person, an account or a machine: addresses, phone and card numbers, identity documents.

Numbers with a check digit are told by it where their form alone is not enough. Versions, error codes, years, commits and book numbers stay.
"""

import re

from crag_middleware.stages.clearing import clear, rule

_ACCOUNT = (
    r"(?:(?<![a-z])(?:account|acct|id|phone|telephone|tel|mobile|cell|fax|call|dial|ssn|card|customer|member|qq)"
    r"|[账帐][号户]|卡号?|手机|电话|座机|身份证|号码|微信)"
)
_PHONE = r"(?:(?<![a-z])(?:phone|telephone|tel|mobile|cell|fax|call|dial|hotline)|手机|电话|座机|传真|致电|拨打)"
_DOCUMENT = (
    r"(?:护照|護照|通行证|台胞证|回乡证|居留证|驾驶证|驾照|社保|工号|学号|(?<![a-z])(?:passport|visa|driver'?s licen[cs]e|residence permit|hkid|tax id|ssn|ein"
    r"|employee id|student id))"
)
_NUMBERED = r"(?:号码?|\s?(?:no\.?|number|card))?\s*+(?:is\s|[:=：#是为]){0,2}\s*+"
_DIGIT = "[零〇一二三四五六七八九幺壹贰叁肆伍陆柒捌玖]"
_SPELT = r"(?:zero|oh|one|two|three|four|five|six|seven|eight|nine)"
_KNOWN_NUMBERS = frozenset(str(2**bits - less) for bits in range(34, 65) for less in (0, 1))
"""Limits of integers, and sizes in bytes; at most 20 digits."""
_IBAN_LETTERS = {letter: str(value) for value, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ", start=10)}


def luhn(number: str) -> bool:
    """Whether the digits of a number have the check digit of payment cards; other signs do not count.

    Source: ISO/IEC 7812-1, annex B.
    """
    digits = [int(c) for c in number if c.isdecimal()]
    return not sum(digits[-1::-2] + [d * 2 - 9 * (d > 4) for d in digits[-2::-2]]) % 10


def iban(number: str) -> bool:
    """Whether a number has the check digits of a bank account, white space aside.

    Source: ISO 13616-1, with ISO/IEC 7064 (mod 97-10).
    """
    signs = re.sub(r"\s", "", number).upper()
    return 15 <= len(signs) <= 34 and int("".join(_IBAN_LETTERS.get(c, c) for c in signs[4:] + signs[:4])) % 97 == 1


def taiwan_id(number: str) -> bool:
    """Whether a letter and nine digits have the check digit of a Taiwanese identity card."""
    first = "ABCDEFGHJKLMNPQRSTUVXYWZIO".index(number[0].upper()) + 10
    digits = [first // 10, first % 10, *map(int, number[1:])]
    return not sum(d * w for d, w in zip(digits, (1, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1), strict=True)) % 10


def _number_of_somebody(found: str) -> bool:
    """Whether a long number may be somebody's: it is no limit of integers, no round number, no book and no point in time."""
    digits = found.strip("-")
    return not (
        digits in _KNOWN_NUMBERS
        or digits in {"9223372036854775808", "9223372036854775807"}
        or _PLAIN_NUMBER.fullmatch(digits)
        or _book(digits)
    )


_PLAIN_NUMBER = re.compile(r"\d0{10,}|(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])(?:[01]\d|2[0-3])[0-5]\d(?:[0-5]\d)?", re.ASCII)


def _book(digits: str) -> bool:
    """Whether 13 digits are an ISBN. Source: ISO 2108, annex A."""
    weighed = (int(d) * (3 if i % 2 else 1) for i, d in enumerate(digits))
    return len(digits) == 13 and digits.startswith(("978", "979")) and not sum(weighed) % 10


_RULES = (
    # What follows an account's number may look like one more group of it.
    rule(
        r"(?<![a-z0-9])(?-i:[A-Z]{2})\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?(?![a-z0-9])",
        holds=lambda found: any(iban(found[:end]) for end in range(15, len(found) + 1)),
    ),
    rule(
        r"(?<![\d.-])[3-6]\d{1,7}(?:[ -]\d{1,7}){1,7}(?![\d-])",
        holds=lambda found: 13 <= sum(map(str.isdigit, found)) <= 19 and luhn(found),
    ),
    rule(r"(?<![a-z0-9])(?-i:[A-Z])[1289]\d{8}(?![a-z0-9])", holds=taiwan_id),
    rule(
        r"[^\s@!-/:-@，。；：！？、（）“”]{1,8}@(?:[^\s@!-,/:-@，。；：！？、（）“”.]{1,63}\.){1,8}(?:[a-z]{2,24}|公司|中国|网络|网址)",
        holds=lambda found: not found.isascii(),
    ),
    *(
        rule(pattern)
        for pattern in (
            # Mail addresses, but for the user that all repositories share, for files and for services.
            r"(?P<keep>(?<![a-z0-9._%+-])git@(?=[\w.-]{1,100}[:/])"
            r"|(?<![a-z0-9._%+-])[\w.-]{1,64}@(?:[\w.-]{0,63}\.)?(?:[23]x\.(?:png|jpe?g|svg|gif|webp)|service|socket|timer|mount|target)(?!\w))"
            r"|(?<![a-z0-9._%+-])[a-z0-9._%+-]{1,64}@(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}",
            r"(?<![\w.+-])[\w.+-]{1,64} ?[\[({](?:at|@)[\])}] ?[\w.-]{1,64} ?(?:[\[({](?:dot|\.)[\])}]|\.) ?[a-z]{2,24}(?!\w)",
            r"(?<![\w.+-])[\w.+-]{1,64} at (?:[\w-]{1,64} dot ){1,3}(?:com|org|net|edu|gov|io|co|ai|dev|app|me|cn|uk|de|fr|jp)(?!\w)",
            r"(?P<name>(?:微信号|wechat id|whats ?app|telegram|skype|钉钉号)\s*(?:是|为|is|[:：])?\s*)@?(?=[\w-]*[\d_-])[a-z][\w-]{5,30}",
            r"(?P<name>(?:qq号?|微信号?)(?:\s?(?:number|号码))?\s*(?:是|为|is|[:：])?\s*)[1-9]\d{4,10}(?![\w.])",
            # Accounts and machines; a commit is public or worthless.
            r"(?<![a-z0-9])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![a-z0-9])",
            r"(?P<keep>\b(?:commit|revision|rev|sha-?1|revert|checkout|cherry-pick|git show)(?: hash| id)?[ :]{1,2}[0-9a-f]{40}(?![a-z0-9]))"
            r"|(?<![a-z0-9])(?:0x)?[0-9a-f]{24,}+(?![a-z0-9])",
            r"(?<![\w:-])(?!(?:ff[:-]){5}ff|(?:00[:-]){5}00)[0-9a-f]{2}(?P<colon>[:-])(?:[0-9a-f]{2}(?P=colon)){4}[0-9a-f]{2}(?![\w:-])",
            # Documents.
            rf"(?P<name>{_DOCUMENT}){_NUMBERED}[a-z]{{0,3}}\d{{5,12}}[a-z]?(?![\w])",
            r"(?<![\w.-])\d{6}[- ]?(?:18|19|20)\d{2}[- ]?\d{4}[- ]?\d{3}[\dx](?![\da-z])",
            r"(?<![\w.-])\d{6}-[1-8]\d{6}(?![\w-])",
            r"(?<![a-z0-9])[a-z]{1,2}\d{6}[(（][\da][)）]",
            r"(?P<name>(?:香港|澳门)?身份证)(?:号码?)?\s*+[:：是为]?\s*+[a-z]{1,2}\d{6,9}(?![\w])",
            r"(?<![a-z0-9])(?-i:[A-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D])(?![a-z0-9])",
            r"(?<![a-z0-9])(?-i:9[1-3]\d{6}[0-9A-HJ-NPQRTUWXY]{10})(?![a-z0-9])",
            r"[京津沪渝冀豫云辽黑湘皖鲁新苏浙赣鄂桂甘晋蒙陕吉闽贵粤青藏川宁琼](?-i:[A-HJ-NP-Z])[·•. ]?(?-i:(?=[A-Z0-9]{0,5}\d)[A-HJ-NP-Z0-9]{5,6})(?![a-z0-9])",
            # Cards.
            r"(?<![\d.-])(?:[3-6]\d{3}([-. ])\d{4}\1\d{4}\1\d{1,7}(?:\1\d{1,4})?|3[47]\d\d([-. ])\d{6}\2\d{5})(?![\d-])",
            # Phone numbers, social security numbers: grouped digits.
            r"(?<![\w+.])\+\d[\d ().-]{6,18}\d(?!\d)",
            r"(?<![\w.:-])00[1-9]\d[ -]?(?:\(0\) ?)?(?:\d[ -]?){7,12}(?![\w.])",
            r"(?<![\d.])(?:86[- ]?)?1[3-9]\d[-. ]?\d{4}[-. ]?\d{4}(?!\d)",
            r"(?<![\d.-])(?:0\d{2,3}[- ]\d{7,8}|0\d{2,4}([- ])\d{3,4}\1\d{3,4}|0\d{4} \d{6}|(?:1[-. ])?\(\d{3}\) ?\d{3}[-. ]\d{4}"
            r"|(?:1[-. ])?\d{3}([-. ])\d{3}\2\d{4}|\d{3}-\d{2}-\d{4})(?![\d-])",
            r"(?P<name>(?<![a-z])(?:ssn|social security)(?: number| no\.?)?(?: is|[:：])?\s*)\d{3}[- .]?\d{2}[- .]?\d{4}(?!\d)",
            rf"(?P<name>{_PHONE}{_NUMBERED})(?:\d{{3,4}}[- ]\d{{4}}|[2-9]\d{{6,7}})(?![\w.-])",
            rf"{_DIGIT}{{8,}}",
            rf"(?<![a-z]){_SPELT}(?:[ ,-]{{1,2}}{_SPELT}){{6,}}(?![a-z])",
            # Of 9 or 10 digits, the numbers that a word tells.
            rf"(?P<name>{_ACCOUNT}(?:[ _-]?(?:number|no\.?|id)|号码?)?(?:\sis|[=:：#是为]){{0,2}})\s*\d{{9,10}}x?(?!\d)",
        )
    ),
    rule(
        r"(?P<keep>(?<![a-z0-9])0x[0-9a-f]{1,16}(?![a-z0-9])|(?:\b(?:time ?stamp|epoch|unix time|milliseconds)|时间戳|毫秒)\D{0,3}1\d{12}(?!\d))"
        r"|(?<![\d.,])(?<!-)\d{11,}x?(?!\d)|(?<![\d.,])-\d{11,}(?!\d)",
        holds=_number_of_somebody,
    ),
)


def without_personal(text: str) -> str:
    """The text without mail addresses, phone numbers, numbers of documents, cards and accounts, and ids of machines."""
    return clear(text, _RULES)
