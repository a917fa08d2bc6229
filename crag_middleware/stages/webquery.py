"""The words that leave for a web search: the question's own, without secrets, short enough.

Nothing else goes in, neither passages nor system text. What looks like a secret is removed rather than recognised: better a word too few.
Kept are versions, error codes, ports and years, since they make a technical question findable.
"""

import re
from itertools import groupby, pairwise

import jieba

from crag_middleware.stages.chinese import load
from crag_middleware.stages.question import has_words
from crag_middleware.stages.screen import visible

_NARROW = {0x3000: " ", 0xA0: " "} | {
    wide: chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F) if chr(wide - 0xFEE0).isalnum() or chr(wide - 0xFEE0) in "@=+-_"
}
"""Full-width letters, digits and signs of identifiers in their plain form; punctuation stays."""

# ASCII classes, so that a word or a token ends where Chinese begins.
_OPERATOR = re.compile(
    r"\b(site|(?:all)?in(?:url|title|text|anchor)|filetype|ext|related|cache|link|info|before|after|source|loc|location)[:：]",
    re.IGNORECASE | re.ASCII,
)

_STRONG = (
    r"(?:passwor[dt](?!less)|pass(?:wd|phrase|code)|pwd|(?<![a-z])pw(?![a-z])|contraseña|secret[_ -]?key|secrets?(?-i:(?![a-z]))|credentials?"
    r"|(?:api|access|private|account|signing|encryption|auth)[_ -]?(?:key|token)|密[码碼钥鑰]|口令|私[钥鑰]|金[钥鑰]|令牌)[\w.-]{0,20}"
)
_WEAK = r"(?<![a-z])(?:key|token|auth|pass|pin|cookie|session|signature|sig)"
_QUOTED = r"""(?:\\"[^"\n]*"|"(?:\\[^\n]|[^"\\\n])*+"|'[^'\n]*'|`[^`\n]*`|“[^“”\n]*”|「[^「」\n]*」)"""
_CODE = r"(?<=key=)(?:lambda\b|[a-z_]{0,20}[({]|(?:[a-z]{1,5}|[a-z_]{1,20}\.[a-z_]{1,20})(?=[(),\s]|\Z))"
"""How the function or the short name begins that program text passes as `key=`."""
_VALUE = rf"(?:{_QUOTED}|[!-~]+)"
_ASSIGNED = r"""(?:\\?["'`\]])?\s*+(?:(?:=>|:=|[=:：])\s*+|>(?=\S))"""
_QUESTION = (
    r"(?:(?<=\s)(?:how|where|what|when|why|which|who|can|could|is|are|do|does|did|should)\s+\S"
    r"|怎|如何|为[何什]|什么|哪|谁|是否|能|可以|多少|请|忘|丢|错误|失效|过期|重置|修改|无法|不)"
)
"""How a sentence goes on after `password: ` that asks about passwords instead of telling one."""
_TECH = r"(?:windows|win|ubuntu|debian|python|php|mysql|oauth|sha|md|aes|rsa|pbkdf|base|utf|ipv|http|office|ora|iphone|android|spring|redis|vue|k|0x)-?\d"
"""How a word begins that holds digits and is no password."""
_CODED = rf"(?!{_TECH}|[/<$])(?:(?=[!-~]{{0,64}}\d)(?=[!-~]{{0,64}}[a-z])(?!\d+\.\d)[!-~]{{5,}}|\d{{6,}})"
_ACCOUNT = (
    r"(?:(?<![a-z])(?:account|acct|id|phone|telephone|tel|mobile|cell|fax|call|dial|ssn|card|customer|member|qq)"
    r"|[账帐][号户]|卡号?|手机|电话|座机|身份证|号码|微信)"
)
_SECRETS = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL | re.ASCII)
    for pattern in (
        # Armoured keys, whole or cut off.
        r"-----BEGIN [^-\n]{1,60}-----(?:.{0,8000}?-----END [^-\n]{1,60}-----|(?:\s*[a-z0-9+/=]{16,})*(?:\s*[a-z0-9+/]+={1,2})?)",
        # Addresses: user and password, also with signs that should have been escaped; parameters; hooks that need no other secret.
        r"(?<=://)(?:[^\s/@:]{1,64}:(?!\d{1,5}/)[^\s\"'<>]{1,256}|[^\s/@]{1,256})@",
        r"(?P<name>[?&][\w-]{0,20}(?:code|token|key|sig|signature|auth|session|ticket)=)(?!\d{1,5}(?:[&\s]|\Z))[!-%'-~]+",
        r"(?P<name>hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/)[!-~]+",
        # Command lines.
        r"(?P<name>\bcurl\b[^\n|]{0,200}?\s(?:-u|--user|--proxy-user))[ =]*[\"']?[^\s:]{1,64}:[!-~]+",
        rf"(?P<name>\bsshpass\s+-p|\bredis-cli\s(?:[^\n|]{{0,200}}?\s)??-a)\s*{_VALUE}",
        rf"(?P<name>\b(?:mysql|mariadb)(?:\w|-){{0,10}}\s(?:[^\n|]{{0,200}}?\s)??(?-i:-p))(?!\d+:\d){_VALUE}",
        rf"\b(?P<name>authorization){_ASSIGNED}[\"']?(?:(?:bearer|basic|digest|token)\s+)?[!-~]+",
        r"\b(?P<name>bearer|basic)\s+(?=[!-~]{0,200}(?:\d|(?-i:[a-z][A-Z])|={1,2}(?:\s|$)))[a-z0-9._~+/=-]{8,}",
        # Tokens that name their maker, and JSON web tokens.
        r"(?<![a-z0-9])(?:sk|pk|rk|tvly|hf|npm|pypi|gh[pousr]|github_pat|xox[abeoprs])[-_](?=[\w-]*\d|[\w-]{20})[\w-]{8,}",
        r"(?<![a-z0-9])(?:gl(?:pat|dt|rt)-|do[opr]_v1_|whsec_|ya29\.)[\w+/=-]{8,}",
        r"(?<![a-z0-9])(?-i:SG)\.[\w-]{8,64}\.[\w-]{8,}",
        r"(?<![a-z0-9])(?-i:AKIA|ASIA|AKID|LTAI|AIza)[\w-]{10,}",
        r"(?<![a-z0-9])(?-i:eyJ)[\w-]{8,2000}+(?:\.[\w-]*){1,2}",
        # name = value, also as JSON, YAML, XML, table, or in a sentence; an unquoted value may be two words if the second holds a digit.
        rf"<(?P<name>[\w:.-]{{0,40}}?{_STRONG})(?:\s[^<>]{{0,200}})?>[^<]{{0,200}}(?=</)",
        rf"(?P<name>{_STRONG})\\?[\"']?[,\s]\s*+\\?[\"']?value{_ASSIGNED}{_VALUE}",
        rf"\|\s*+(?P<name>{_STRONG})\s*+\|[^|\n]{{1,200}}(?=\|)",
        rf"(?P<name>{_STRONG}){_ASSIGNED}[|>][+-]?[ \t]*+\n[^\n]*",
        rf"(?P<name>{_STRONG}){_ASSIGNED}(?!{_QUESTION})(?:!\w{{1,20}}\s+)?(?:{_QUOTED}|[!-~]+(?:[ \t]+[a-z]{{1,20}}\d[^\s:=]*)?"
        r"|[\u3400-\u9fff][\u3400-\u9fff!-~]{0,15})",
        rf"(?P<name>{_WEAK}){_ASSIGNED}(?!{_CODE})"
        rf"(?:(?<==){_VALUE}|(?=[!-~]{{0,64}}\d){_VALUE}|[!-~]{{16,}})",
        rf"(?<!\S)(?P<name>--?(?:{_STRONG}|{_WEAK}))\s+{_VALUE}",
        rf"(?P<name>{_STRONG})\s*+(?:is|was|should be|(?:is |was )?(?:now|changed to|set to|reset to)|是|[为為])\s*+[:：]?\s*+"
        rf"(?:{_QUOTED}|(?=[!-~]{{0,64}}(?:[\d@#$%^&*_]|!\S))[!-~]{{4,}})",
        rf"(?P<name>{_STRONG})\s++{_QUOTED}",
        rf"(?P<name>密[码碼]|口令)\s*+(?:[已被]?(?:修?改|更改|重置|重设|[设設][置定]?|[换換]))?[成为為是]?了?\s*+{_CODED}",
        rf"(?P<name>(?<![a-z])(?:password|passwd|pwd|pw)\s++){_CODED}",
        # Codes for one use, and for cards.
        r"(?P<name>(?<![a-z])(?:pin|otp|passcode|(?:verification|security|login) code)|验证码|驗證碼|校验码|动态码)"
        r"(?: ?code| ?码)?\s*+(?:is|[=:：是为])?\s*+\d{4,8}(?!\w|\.\d)",
        # Mail addresses, but for the user that all repositories share.
        r"(?P<keep>(?<![a-z0-9._%+-])git@(?=[\w.-]{1,100}[:/]))|(?<![a-z0-9._%+-])[a-z0-9._%+-]{1,64}@(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}",
        # Identifiers of people, accounts and machines; a commit is public or worthless.
        r"(?<![a-z0-9])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![a-z0-9])",
        r"(?P<keep>\b(?:commit|revision|rev|sha-?1|revert|checkout|cherry-pick|git show)(?: hash| id)?[ :]{1,2}[0-9a-f]{40}(?![a-z0-9]))"
        r"|(?<![a-z0-9])(?:0x)?[0-9a-f]{24,}+(?![a-z0-9])",
        r"(?P<name>护照|護照|通行证|passport)(?:号码?|\s?(?:no\.?|number))?\s*+(?:is\s|[:：是])?\s*+[a-z]{0,2}\d{6,9}(?!\d)",
        # Cards, phone numbers, social security numbers: grouped digits.
        r"(?<![\d.-])(?:[3-6]\d{3}([-. ])\d{4}\1\d{4}\1\d{1,7}(?:\1\d{1,4})?|3[47]\d\d([-. ])\d{6}\2\d{5})(?![\d-])",
        r"(?<![\w+.])\+\d[\d ().-]{6,18}\d(?!\d)",
        r"(?<![\d.])(?:86[- ]?)?1[3-9]\d[-. ]?\d{4}[-. ]?\d{4}(?!\d)",
        r"(?<![\d.-])(?:0\d{2,3}[- ]\d{7,8}|0\d{2,4}([- ])\d{3,4}\1\d{3,4}|0\d{4} \d{6}|(?:1[-. ])?\(\d{3}\) ?\d{3}[-. ]\d{4}"
        r"|(?:1[-. ])?\d{3}([-. ])\d{3}\2\d{4}|\d{3}-\d{2}-\d{4})(?![\d-])",
        r"(?<![\d.-])\d{6}[- ]?(?:19|20)\d{2}[- ]?\d{4}[- ]?\d{3}[\dx](?![\da-z])",
        # Long numbers: from 11 digits on but limits of integers, addresses in memory and books; of 9 or 10 digits those that a word tells.
        rf"(?P<name>{_ACCOUNT}(?:[ _-]?(?:number|no\.?|id)|号码?)?(?:\sis|[=:：#是为]){{0,2}})\s*\d{{9,10}}x?(?!\d)",
        r"(?P<keep>(?<!\d)-?(?:922337203685477580[78]|1844674407370955161[56])(?!\d)|(?<![a-z0-9])0x[0-9a-f]{1,16}(?![a-z0-9])"
        r"|\bISBN(?:-13)?[: ]{1,2}97[89]\d{10}(?!\d))|(?<![\d.,])(?<!-)\d{11,}x?(?!\d)|(?<![\d.,])-\d{11,}(?!\d)",
    )
]
_DENSE = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_NAMED = re.compile(r"_{1,2}Z[A-Z]{0,4}[a-z]?\d{1,3}[A-Za-z_]|[0-9a-f]{40}\Z")
"""Names that C++ compilers and Git write; a commit here has passed the patterns above."""

_SENTENCE_END = re.compile(r"[。！？；]+[”’」』）]*\s*|[.!?;][\"')\]]{0,3}\s+|\n\s*|\Z")
_ASKS = re.compile(
    r"\b(?:how|what|why|which|when|where|who|whose)\b|怎么|怎样|如何|为什么|为何|什么|哪|谁|是否|能否|可否|多少|几时|吗|呢", re.IGNORECASE
)
_CLAUSE_END = re.compile(r"[。！？；，、：…]|[.!?,;:](?=\s)|\n")
_CJK = re.compile(r"[\u3400-\u9fff]")


def compose(question: str, *, limit: int = 400) -> str:
    """The query for a web search: at most `limit` characters, or empty if nothing is left worth searching.

    Values of passwords and keys, mail addresses and numbers of people, phones and cards are removed, search operators lose their force
    (`site:x` becomes `site x`), white space is folded. If the rest is too long, question sentences are kept first, then others from the
    start, in their order and whole where possible.
    """
    text = _without_secrets(visible(question).translate(_NARROW))
    text = _pick(_OPERATOR.sub(r"\1 ", text), limit)
    return text if has_words(text) else ""


def cut(text: str, limit: int) -> str:
    """The beginning of a text, at most `limit` characters: to the last end of a sentence or clause in its second half, else to the last whole word."""
    if len(text) <= limit:
        return text
    # One character more than fits shows whether the last one that fits ends a word.
    window = text[: limit + 1]
    ends = [m.end() for m in _CLAUSE_END.finditer(window) if limit // 2 <= m.end() <= limit]
    return text[: ends[-1] if ends else _word_end(text, limit)].rstrip()


def _word_end(text: str, limit: int) -> int:
    """Where the last word ends that fits; `limit` itself if one word fills the second half."""
    start = max(limit // 2, limit - 60)
    gap = max(text.rfind(" ", start, limit + 1), text.rfind("\n", start, limit + 1))
    if not _CJK.search(text, max(gap, start), limit):
        return gap if gap > 0 else limit
    load()
    ends = [end + start for _, _, end in jieba.tokenize(text[start : limit + 20]) if end + start <= limit]
    return ends[-1] if ends else limit


def _without_secrets(text: str) -> str:
    for pattern in _SECRETS:
        text = pattern.sub(_cleared, text)
    return _DENSE.sub(lambda match: " " if _looks_random(match.group()) else match.group(), text)


def _cleared(match: re.Match[str]) -> str:
    """What stays of a match: all of it if it is known to be harmless, else only the name of what was told."""
    groups = match.groupdict()
    return match.group() if groups.get("keep") else (groups.get("name") or "") + " "


def _looks_random(token: str) -> bool:
    """Whether a long token is a key rather than a name or a path: its letters and digits change their kind every other character."""
    if _NAMED.match(token):
        return False
    signs = [c for c in token if c.isalnum()]
    runs = sum(1 for _ in groupby(signs, key=lambda c: (c.isdigit(), c.isupper())))
    return any(c.isdigit() for c in signs) and len(signs) < 2.6 * runs


def _pick(text: str, limit: int) -> str:
    """The sentences that fit, questions first, in their order; white space folded."""
    ends = [m.end() for m in _SENTENCE_END.finditer(text)]
    pieces = (text[start:end] for start, end in pairwise([0, *ends]))
    sentences = [" ".join(piece.split()) + " " * piece[-1].isspace() for piece in pieces if piece.strip()]
    whole = "".join(sentences).strip()
    if len(whole) <= limit:
        return whole
    wanted = sorted(
        range(len(sentences)), key=lambda i: ("?" not in sentences[i] and "？" not in sentences[i], not _ASKS.search(sentences[i]))
    )
    if len(sentences[wanted[0]]) > limit:
        return cut(sentences[wanted[0]], limit)
    chosen: set[int] = set()
    room = limit
    for i in wanted:
        if len(sentences[i]) <= room:
            chosen.add(i)
            room -= len(sentences[i])
    return "".join(sentences[i] for i in sorted(chosen)).strip()
