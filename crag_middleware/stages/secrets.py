"""A text without what opens a door: keys, tokens, and passwords where a form or a program would look for them.

What looks like a secret is removed rather than recognised: better a word too few. The name of what was told stays, since a question is often about it.
"""

import re
from itertools import groupby

from crag_middleware.stages.clearing import clear, rule

STRONG = (
    r"(?:passwor[dt](?!less)|pass(?:wd|phrase|code)|pwd|(?<![a-z])pw(?![a-z])|contraseña|secret[_ -]?key|secrets?(?-i:(?![a-z]))|credentials?"
    r"|(?:api|access|private|account|signing|encryption|auth|wi-?fi|wpa2?|network|product|licen[cs]e)[_ -]?(?:key|token)"
    r"|密[码碼钥鑰]|口令|私[钥鑰]|金[钥鑰]|令牌)[\w.-]{0,20}"
)
"""How secrets are called that are never told for any other reason."""

QUOTED = r"""(?:\\"[^"\n]*"|"(?:\\[^\n]|[^"\\\n])*+"|'[^'\n]*'|`[^`\n]*`|“[^“”\n]*”|「[^「」\n]*」)"""

TECH = r"(?:windows|win|ubuntu|debian|python|php|mysql|oauth|sha|md|aes|rsa|pbkdf|base|utf|ipv|http|office|ora|iphone|android|spring|redis|vue|argon|k|0x)-?\d"
"""How a word begins that holds digits and is no password."""

_WEAK = r"(?<![a-z])(?:key|token|auth|pass|pin|cookie|session|signature|sig)"
_CODE = r"(?<=key=)(?:lambda\b|[a-z_]{0,20}[({]|(?:[a-z]{1,5}|[a-z_]{1,20}\.[a-z_]{1,20})(?=[(),\s]|\Z))"
"""How the function or the short name begins that program text passes as `key=`."""
_VALUE = rf"(?:{QUOTED}|[!-~]+)"
_ASSIGNED = r"""(?:\\?["'`\]])?\s*+(?:(?:=>|:=|[=:：])\s*+|>(?=\S))"""
_QUESTION = (
    r"(?:(?<=\s)(?:how|where|what|when|why|which|who|can|could|is|are|do|does|did|should)\s+\S"
    r"|怎|如何|为[何什]|什么|哪|谁|是否|能|可以|多少|请|忘|丢|错误|失效|过期|重置|修改|无法|不)"
)
"""How a sentence goes on after `password: ` that asks about passwords instead of telling one."""
_NOTHING = r"(?:(?:yes|no|null|nil|none|true|false|undefined|required|optional|str(?:ing)?)(?![\w@#$%&*-]))"
"""What stands for a password in messages and programs, as in `using password: YES`."""

_RULES = tuple(
    rule(pattern)
    for pattern in (
        # Armoured keys, whole or cut off.
        r"-----BEGIN [^-\n]{1,60}-----(?:.{0,8000}?-----END [^-\n]{1,60}-----|(?:\s*[a-z0-9+/=]{16,})*(?:\s*[a-z0-9+/]+={1,2})?)",
        # Addresses: user and password, also with signs that should have been escaped; parameters; hooks that need no other secret.
        r"(?<=://)(?:[^\s/@:]{1,64}:(?!\d{1,5}/)[^\s\"'<>]{1,256}|[^\s/@]{1,256})@",
        r"(?P<name>[?&#;][\w.-]{0,30}(?:code|token|key|sig|signature|auth|session|ticket|secret|pass(?:wor[dt]|wd|code)?|pwd|pin|otp|jwt|sid|credential"
        r"|saml(?:response|request)|hash|user|username|login|e-?mail|phone|mobile|open_?id|union_?id)=)(?!\d{1,5}(?:[&\s]|\Z))[!-%'-~]+",
        r"(?P<name>hooks\.slack\.com/(?:services|workflows|triggers)/|discord(?:app)?\.com/api/webhooks/)[!-~]+",
        # Command lines and programs.
        r"(?P<name>\bcurl\b[^\n|]{0,200}?\s(?:-u|--user|--proxy-user))[ =]*[\"']?[^\s:]{1,64}:[!-~]+",
        rf"(?P<name>\bsshpass\s+-p|\bredis-cli\s(?:[^\n|]{{0,200}}?\s)??-a|\brequirepass)\s*{_VALUE}",
        rf"(?P<name>\b(?:mysql|mariadb)(?:\w|-){{0,10}}\s(?:[^\n|]{{0,200}}?\s)??(?-i:-p))(?!\d+:\d){_VALUE}",
        rf"(?P<name>\bidentified (?:with \w{{1,40}} )?(?:by|as))\s+{QUOTED}",
        r"(?P<name>\bauth\s?=\s?)\([^()\n]{1,200}\)",
        rf"\b(?P<name>authorization){_ASSIGNED}[\"']?(?:(?:bearer|basic|digest|token)\s+)?[!-~]+",
        r"\b(?P<name>bearer|basic)\s+(?=[!-~]{0,200}(?:\d|(?-i:[a-z][A-Z])|={1,2}(?:\s|$)))[a-z0-9._~+/=-]{8,}",
        # Tokens that name their maker, and JSON web tokens.
        r"(?<![a-z0-9])(?:sk|pk|rk|tvly|hf|npm|pypi|gh[pousr]|github_pat|dckr_pat|shp(?:at|ca|pa|ss)|lin_api|glsa|nvapi|xox[abeoprs])[-_]"
        r"(?=[\w-]*\d|[\w-]{20})[\w-]{8,}",
        r"(?<![a-z0-9])(?:gl(?:pat|dt|rt)-|do[opr]_v1_|whsec_|ya29\.)[\w+/=-]{8,}",
        r"(?<![a-z0-9])(?-i:SG)\.[\w-]{8,64}\.[\w-]{8,}",
        r"(?<![a-z0-9])(?-i:AKIA|ASIA|AKID|LTAI|AIza)[\w-]{10,}",
        r"(?<![a-z0-9])(?-i:eyJ)[\w-]{8,2000}+(?:\.[\w-]*){1,2}",
        r"(?<![a-z0-9-])(?-i:(?=[A-Z0-9-]{0,28}\d)[A-Z0-9]{5}(?:-[A-Z0-9]{5}){4})(?![a-z0-9-])",
        # name = value, also as JSON, YAML, XML, table; an unquoted value may be two words if the second holds a digit.
        rf"<(?P<name>[\w:.-]{{0,40}}?{STRONG})(?:\s[^<>]{{0,200}})?>[^<]{{0,200}}(?=</)",
        rf"(?P<name>{STRONG})\\?[\"']?[,\s]\s*+\\?[\"']?value{_ASSIGNED}{_VALUE}",
        rf"\|\s*+(?P<name>{STRONG})\s*+\|[^|\n]{{1,200}}(?=\|)",
        rf"(?P<name>{STRONG}){_ASSIGNED}[|>][+-]?[ \t]*+\n[^\n]*",
        rf"(?P<name>{STRONG}){_ASSIGNED}(?!{_QUESTION}|{_NOTHING})(?:!\w{{1,20}}\s+)?(?:{QUOTED}|[!-~]+(?:[ \t]+[a-z]{{1,20}}\d[^\s:=]*)?"
        r"|[\u3400-\u9fff][\u3400-\u9fff!-~]{0,15})",
        rf"(?P<name>{_WEAK}){_ASSIGNED}(?!{_CODE})"
        rf"(?:(?<==){_VALUE}|(?=[!-~]{{0,64}}\d){_VALUE}|[!-~]{{16,}})",
        rf"(?<!\S)(?P<name>--?(?:{STRONG}|{_WEAK}))\s+{_VALUE}",
        rf"(?P<name>{STRONG})\s++{QUOTED}",
        rf"(?P<name>(?:{STRONG}|{_WEAK})(?: id)?\s++)(?!{TECH})(?=[a-z]{{0,40}}\d)[a-z0-9]{{16,}}(?![\w.(])",
        rf"(?P<name>{_WEAK}\s*+(?:is\s|was\s|是|[为為])\s*+)(?!{TECH})(?=[\w-]{{0,64}}\d)(?=[\w-]{{0,64}}[a-z])[\w-]{{6,}}(?![\w.(])",
        # Codes for one use, and for cards.
        r"(?P<name>(?<![a-z])(?:pin|otp|passcode|(?:verification|security|login) code)|验证码|驗證碼|校验码|动态码)"
        r"(?: ?code| ?码)?\s*+(?:is|[=:：是为])?\s*+\d{4,8}(?!\w|\.\d)",
    )
)
_DENSE = re.compile(r"[A-Za-z0-9+/_-]{20,}={0,2}")
_NAMED = re.compile(r"_{1,2}Z[A-Z]{0,4}[a-z]?\d{1,3}[A-Za-z_]|[0-9a-f]{40}\Z")
"""Names that C++ compilers and Git write; a commit is public or worthless, and other hex numbers of that length go with the identifiers."""


def without_secrets(text: str) -> str:
    """The text without the values of passwords, keys and tokens."""
    return _DENSE.sub(lambda match: " " if _looks_random(match.group()) else match.group(), clear(text, _RULES))


def _looks_random(token: str) -> bool:
    """Whether a long token is a key rather than a name or a path: its letters and digits change their kind every other character."""
    if _NAMED.match(token):
        return False
    signs = [c for c in token if c.isalnum()]
    runs = sum(1 for _ in groupby(signs, key=lambda c: (c.isdigit(), c.isupper())))
    return any(c.isdigit() for c in signs) and len(signs) < 2.6 * runs
