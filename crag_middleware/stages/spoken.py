"""A text without the passwords that its sentences tell: `my password is dragon`, `密码是 dragon`.

The word in the place of the password is taken for one unless it can only say something about it: `the password is wrong`.
"""

from crag_middleware.stages.clearing import clear, rule
from crag_middleware.stages.secrets import QUOTED, STRONG, TECH

_PASSWORD = r"(?<![a-z])(?:passwor[dt]s?|passwd|passphrase|passcode|pwd|pw)(?![\w-])"
_ABOUT = (
    r"(?:(?:a|an|the|in|on|at|to|for|from|of|by|with|without|as|if|than|that|this|these|those|it|its|he|she|they|we|you|i|my|your|our|his|her|their|and|or"
    r"|but|because|so|when|where|while|what|why|how|which|who|whose|until|before|after|since|per|via|inside|about|above|below|over|under|into|onto|out|up"
    r"|off|not|never|no|still|always|also|already|now|then|here|there|too|very|just|even|only|more|less|most|quite|rather|almost|again|once|currently"
    r"|actually|really|probably|automatically|correctly|incorrectly|publicly|only|simply|usually|apparently|properly|accidentally|definitely|supposedly"
    r"|right|wrong|correct(?! horse)|incorrect|invalid|valid|bad|good|ok|okay|fine|weak|strong|short|long|longer|shorter|empty|blank|null|none|nil|undefined"
    r"|unset|secure|insecure|safe|unsafe|new|old|same|different|similar|identical|equal|unique|random|required|mandatory|optional|needed|necessary|unknown"
    r"|known|visible|hidden|plain|plaintext|clear|cleartext|public|private|secret|case|numeric|alphanumeric|ascii|utf|hex|binary|text|string|integer|number"
    r"|stale|obsolete|default|unavailable|available|missing|gone|lost|stuck|set|sent|kept|shown|put|read|written|given|taken|stolen|forgotten|broken"
    r"|unreadable|sensitive|important|easy|hard|simple|complex|common|guessable|due|unable|able|subject|likely|prone|part|one|two|some|any|something|anything"
    r"|nothing|everything|enough|true|false|yes|high|low|big|small|md5|base64|bcrypt|fails|works|failing|working|being|expiring|coming|showing|changing|getting|going"
    r"|asking|causing|leaking|appearing|expires?|be|have|match|meet|include|comply|contain|work|avoid|prevent|protect|someone|everyone|please|help|thanks"
    r"|is|are|was|were|does|do|did|can|could|should|would|will|must|may|has|had|won't|can't|doesn't|don't|isn't|didn't|\w{4,}ed)(?![\w@#$%&*]))"
)
"""Words that say something about a password, or begin another clause."""
_THING = (
    r"(?:(?:authentication|auth|login|log-?in|hash(?:es|ing)?|polic(?:y|ies)|protection|reset|manager|fields?|prompt|change|expiry|expiration|column|file|rules?"
    r"|generator|vault|store|storage|encryption|recovery|prompt|input|box|form|length|strength|combination|pairs?)(?![\w-]))"
)
"""Words that make a compound with `password`."""

_WORD = r"[a-z0-9@#$%^&*](?:[!-~]{0,60}[\w@#$%^&*])?"
_TOLD = rf"(?:{QUOTED}|(?!{_ABOUT}|{_THING}){_WORD}(?:(?:[ \t]+(?!{_ABOUT}){_WORD}){{1,3}}(?=\s*(?:[.,;!?，。；！？]|\Z)))?)"
"""The password: a word, or up to four to the end of the clause."""
_OWNER = r"(?:\s+(?:for|of|to|on|in|at|from)(?:\s+(?!is\s)[\w.@'-]{1,40}){1,5}?)?"
_IS = (
    r"(?:(?:['’]s|\s+(?:is|was|remains|equals|will be|should be|has been))(?:\s+(?:now|still|just|simply|currently|actually|changed to|set to|reset to))?"
    r"\s*[:：]?\s+|\s+(?:now|changed to|set to|reset to)\s+)"
)
_CHANGE = r"(?:set|sets|change|changed|reset|update|updated|choose|chose|made|make|switch|switched)"
_CODED = rf"(?!{TECH}|[/<$])(?:(?=[!-~]{{0,64}}\d)(?=[!-~]{{0,64}}[a-z])(?!\d+\.\d)[!-~]{{5,}}|\d{{6,}})"
_ZH = r"(?:密[码碼]|口令)"
_ZH_ABOUT = (
    r"(?:加密|明文|密文|哈希|散列|格式|编码|類型|类型|算法|存储|还是|吗|或|的)",
    r"(?:null|none|nil|empty|undefined|true|false|string|hash|hashed|md5|sha|bcrypt|base64|utf|ascii|hex|int)(?![\w@#$%&*])",
    r"的错對对空什麼么多少怎哪谁否正确確无無效过過期必须需加明默认認一样樣相同不没沒几幾如何随隨机機数數字母位初始原来旧新吗呢要能可已被在由通以",
)
"""What is said about a password: after a Latin word, as a Latin word, and characters of Chinese ones."""

_RULES = tuple(
    rule(pattern)
    for pattern in (
        rf"(?P<name>{STRONG})\s*+(?:is|was|are|should be|(?:is |was )?(?:now|changed to|set to|reset to)|是|[为為])\s*+[:：]?\s*+(?!{TECH})"
        rf"(?:{QUOTED}|(?=[!-~]{{0,64}}(?:[\d@#$%^&*_]|!\S))[!-~]{{4,}})",
        rf"(?P<name>(?:(?:seed|recovery|backup|mnemonic) (?:phrase|words?)|pass ?phrase|mnemonic|助记词)\s*+(?:is|are|was|[=:：是为])\s*+)(?!{_ABOUT})"
        r"[a-z]{2,20}(?:[ ,]{1,2}[a-z]{2,20}){2,24}",
        rf"(?P<name>{_PASSWORD}{_OWNER}{_IS}){_TOLD}",
        rf"(?P<name>\b{_CHANGE}\s+(?:[\w'-]{{1,20}}\s+){{0,4}}?{_PASSWORD}{_OWNER}\s+(?:to|as|into)\s+){_TOLD}",
        rf"(?P<name>\b(?:user ?name|user|login|account|credentials?)\s*(?:is\s|[:=：])?\s*[!-~]{{1,64}}?(?:\s*,)?\s+(?:and\s+|with\s+|/\s*)?(?:the\s+)?"
        rf"(?:{_PASSWORD}\s+|pass\s*[:=：]\s*)){_TOLD}",
        r"(?P<name>\bcredentials?\s+(?:are|is|were|was)\s+)[\w.@-]{1,64}\s?/\s?[!-~]{1,64}",
        rf"(?:(?<=\s)|\A)(?!{_ABOUT}|{_THING}){_WORD}(?=\s+(?:is|was)\s+(?:my|our|the|his|her|their)\s+(?:[\w'-]{{1,20}}\s+){{0,2}}?{_PASSWORD}"
        rf"(?!\s+{_THING}))",
        rf"(?P<name>\b(?:use|used|using|enter|entered|typed?|with)\s+)(?!{_ABOUT}|\S{{0,20}}(?:token|key|mail|name|number|code|phrase|id)s?\s){_WORD}"
        rf"(?=\s+as\s+(?:(?:a|my|our|the)\s+)?(?:[\w'-]{{1,20}}\s+)?{_PASSWORD})",
        # Chinese: a Latin word, then words of Chinese that can be nothing else.
        rf"(?P<name>{_ZH}\s*(?:就|设|設|现在|目前)?(?:是|为|為|叫|用的是?|设成|改成|改为|换成|置为)\s*[:：]?\s*)(?!{_ZH_ABOUT[1]}|{TECH})[a-z@#$%^&*][!-~]{{1,60}}"
        rf"(?!\s*{_ZH_ABOUT[0]})(?![!-~])",
        rf"(?P<name>{_ZH}\s*(?:就|设|設)?(?:是|为|為|叫)\s*)(?![\u3400-\u9fff]{{0,12}}[{_ZH_ABOUT[2]}])[\u3400-\u9fff]{{2,12}}(?=[，。；！？、,.;!?\s]|\Z)",
        rf"(?P<name>(?:账号|帐号|账户|用户名?)\s*(?:是|为|[:：])?\s*[!-~]{{1,64}}\s*[,，、和]?\s*{_ZH}\s*)[a-z@#$%^&*][!-~]{{1,60}}",
        rf"(?P<name>{_ZH}\s*)(?!{_ZH_ABOUT[1]}|{TECH}|{_THING})[a-z@#$%^&*][!-~]{{1,60}}(?=\s*(?:登[录录陆入]|无法登|不对|不正确|被拒))",
        rf"(?P<name>[用以拿把]\s*)[!-~]{{2,60}}(?=\s*(?:当作?|作为?|做|为|设为|设成)\s*(?:登录|我的)?{_ZH})",
        rf"(?P<name>{_ZH}\s*+(?:[已被]?(?:修?改|更改|重置|重设|[设設][置定]?|[换換]))?[成为為是]?了?\s*+){_CODED}",
        rf"(?P<name>(?<![a-z])(?:password|passwd|pwd|pw)\s++){_CODED}",
    )
)


def without_spoken(text: str) -> str:
    """The text without passwords that a sentence tells, where its grammar is clear."""
    return clear(text, _RULES)
