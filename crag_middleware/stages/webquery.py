"""The words that leave for a web search: the question's own, without secrets, short enough.

Nothing else goes in, neither passages nor system text. What looks like a secret is removed rather than recognised: better a word too few.
Kept are versions, error codes, ports and years, since they make a technical question findable.
"""

import re
from itertools import groupby, pairwise

import jieba

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
    r"(?:pass(?:word|wd|phrase|code)|pwd|secret|credentials?|(?:api|access|private|account|signing|encryption|auth)[_ -]?(?:key|token)"
    r"|密码|口令|密钥|私钥|令牌)[\w.-]{0,20}"
)
_WEAK = r"(?<![a-z])(?:key|token|auth|pass|pin|cookie|session|signature|sig)"
_VALUE = r"""(?:"[^"\n]*"|'[^'\n]*'|`[^`\n]*`|[!-~]+)"""
_ASSIGNED = r"""["'`\]]?\s*(?:=>|:=|[=:：>])\s*"""
_SECRETS = [
    re.compile(pattern, re.IGNORECASE | re.DOTALL | re.ASCII)
    for pattern in (
        # Armoured keys, whole or cut off.
        r"-----BEGIN [^-\n]{1,60}-----(?:.{0,8000}?-----END [^-\n]{1,60}-----|(?:\s*[a-z0-9+/=]{16,})*(?:\s*[a-z0-9+/]+={1,2})?)",
        # User and password in an address.
        r"(?<=://)[^\s/@]{1,256}@",
        rf"\b(?P<name>authorization){_ASSIGNED}[\"']?(?:(?:bearer|basic|digest|token)\s+)?[!-~]+",
        r"\b(?P<name>bearer|basic)\s+(?=[!-~]*(?:\d|(?-i:[a-z][A-Z])|={1,2}(?:\s|$)))[a-z0-9._~+/=-]{8,}",
        # Tokens that name their maker, and JSON web tokens.
        r"(?<![a-z0-9])(?:sk|pk|rk|tvly|hf|npm|pypi|glpat|gh[pousr]|github_pat|xox[abeoprs])[-_](?=[\w-]*\d|[\w-]{20})[\w-]{8,}",
        r"(?<![a-z0-9])(?-i:AKIA|ASIA|AKID|LTAI|AIza)[\w-]{12,}",
        r"(?<![a-z0-9])(?-i:eyJ)[\w-]{8,}(?:\.[\w-]*){1,2}",
        # name = value, also as JSON, YAML, XML, command-line flag, or in a sentence.
        rf"(?P<name>{_STRONG}){_ASSIGNED}{_VALUE}",
        rf"(?P<name>{_WEAK}){_ASSIGNED}(?:(?<==){_VALUE}|(?=[!-~]*\d){_VALUE}|[!-~]{{16,}})",
        rf"(?<!\S)(?P<name>--?(?:{_STRONG}|{_WEAK}))\s+{_VALUE}",
        rf"(?P<name>{_STRONG})\s*(?:is|was|是|为)\s*[:：]?\s*(?=[!-~]*[\d!@#$%^&*_])[!-~]{{4,}}",
        # Mail addresses.
        r"(?<![a-z0-9._%+-])[a-z0-9._%+-]{1,64}@(?:[a-z0-9-]{1,63}\.){1,8}[a-z]{2,24}",
        # Identifiers of people, accounts and machines.
        r"(?<![a-z0-9])[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?![a-z0-9])",
        r"(?<![a-z0-9])[0-9a-f]{24,}(?![a-z0-9])",
        # Phone numbers, social security numbers, cards: grouped digits; then any long number but limits of integers and negative error codes.
        r"(?<![\w+.])\+\d[\d ().-]{6,18}\d(?!\d)",
        r"(?<![\d.])(?:86[- ]?)?1[3-9]\d[- ]?\d{4}[- ]?\d{4}(?!\d)",
        r"(?<![\d.-])(?:0\d{2,3}[- ]\d{7,8}|\(\d{3}\) ?\d{3}[-. ]\d{4}|\d{3}([-. ])\d{3}\1\d{4}|\d{3}-\d{2}-\d{4})(?![\d-])",
        r"(?<![\d.-])[3-6]\d{3}([- ])\d{4}\1\d{4}\1\d{1,7}(?![\d-])",
        r"(?<![\d.-])\d{6}[- ]?(?:19|20)\d{2}[- ]?\d{4}[- ]?\d{3}[\dx](?![\da-z])",
        r"(?<![\d.,])(?!21474836\d\d(?!\d)|429496729\d(?!\d))(?<!-)\d{9,}x?(?!\d)|(?<![\d.,])-\d{11,}(?!\d)",
    )
]
_DENSE = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")

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
    ends = [end + start for _, _, end in jieba.tokenize(text[start : limit + 20]) if end + start <= limit]
    return ends[-1] if ends else limit


def _without_secrets(text: str) -> str:
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: match.groupdict().get("name", "") + " ", text)
    return _DENSE.sub(lambda match: " " if _looks_random(match.group()) else match.group(), text)


def _looks_random(token: str) -> bool:
    """Whether a long token is a key rather than a name or a path: its letters and digits change their kind every other character."""
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
