"""What a word or a short sentence says of a claim: supported, contradicted or not mentioned, in English or Chinese."""

import re
import unicodedata

from crag_middleware.stages.fences import seen
from crag_middleware.types import ClaimLabel

_PLAIN: dict[str, ClaimLabel] = {
    **dict.fromkeys(("yes", "true", "是", "是的", "对"), "supported"),
    **dict.fromkeys(("no", "none", "null", "n a", "否", "无"), "not_mentioned"),
    **dict.fromkeys(("false", "不对", "不是"), "contradicted"),
}
_SIMPLIFIED = str.maketrans("證實據屬無沒確認說駁與關衝誤個對錯為斷驗達", "证实据属无没确认说驳与关冲误个对错为断验达")
_PARTLY = "(?:partial(?:ly)?|partly|somewhat|mostly|largely|weakly|half|insufficiently|in part)"
_BACKED = r"(?:support\w*|entail\w*|verif\w*|confirm\w*|substantiat\w*|corroborat\w*|ground(?:ed|s)?|faithful|attributable|backed|stated?|states|implied)"
_FITS = "(?:true|correct|accurate|consistent)"
_ZH_BACKED = "(?:支持|蕴含|证实|证明|印证|验证|核实|依据|根据|证据|提及|提到|涉及|说明|写明|体现|包含|包括|出现|表明|找到|推出)"
_ZH_FITS = "(?:一致|相符|符合|吻合|属实|正确)"
_ZH_AGAINST = "(?:矛盾|冲突|相反|相悖|相左|反驳|驳斥)"
_MEANINGS: dict[str, tuple[str, ...]] = {
    "unknown": (
        r"(?:not?|never|without|neither|isn t|doesn t)(?: \w+){0,2} (?:contradict\w*|refut\w*|conflict\w*|disprov\w*|unsupported|untrue|false|wrong)",
        f"(?:不|没有?|未|无|并非)(?:存在|被|构成|任何)?{_ZH_AGAINST}",
    ),
    "contradicted": (
        r"contradict\w*|refut\w*|conflict\w*|disprov\w*|inconsistent|inaccurate|disagree\w*|(?:the )?opposite|oppos(?:es|ed)|denie[sd]|negated",
        rf"false|untrue|incorrect|wrong|(?:not|isn t)(?: \w+)? {_FITS}",
        f"{_ZH_AGAINST}|不相?{_ZH_FITS}|不实|不符|有误|错误|并非如此|否定|否认",
    ),
    "not_mentioned": (
        f"{_PARTLY} {_BACKED}|not(?: \\w+)? {_PARTLY} {_BACKED}|not (?:fully|entirely|completely|wholly|directly|quite|really) {_BACKED}",
        r"unsupported|unverif\w+|unmentioned|unproven|unstated|ungrounded|unsubstantiated|unfaithful|neutral|unknown|unclear|uncertain|unsure|inconclusive",
        r"nei|not enough|insufficient|lacking|missing|absent|irrelevant|unrelated|hallucinat\w+|fabricat\w+|baseless|extrinsic|partial(?:ly)?|partly",
        rf"(?:not?|never|cannot|neither|nothing|nowhere|without|hardly|barely|fails to|\w+n t)(?: \w+){{0,3}}? (?:{_BACKED}|mention\w*|evidence|found|covered|"
        r"contain\w*|address\w*|discuss\w*|information|present|given|say|said|basis|tell|determine|sure|in the)",
        f"(?:不|没|未|无|缺乏|缺少)[^，。；\\s]{{0,4}}?{_ZH_BACKED}|(?:无法|不能|难以)(?:判断|判定|确定|得出)|部分(?:地|得到)?{_ZH_BACKED}|不完全{_ZH_BACKED}",
        "中立|不确定|不明确|不足|未知|无关|不相关|无从|捏造|编造",
    ),
    "supported": (rf"{_BACKED}|{_FITS}|consistent", f"{_ZH_BACKED}|{_ZH_FITS}"),
}
"""Patterns in folded text without punctuation; at one place the earlier one counts."""

_LATIN = r"(?<![a-z])"
_WORDS = re.compile("|".join(f"(?P<{meaning}>{'|'.join(f'{_LATIN}(?:{p})' for p in patterns)})" for meaning, patterns in _MEANINGS.items()))
_BETWEEN_HAN = re.compile(r"(?<=[\u3400-\u9fff])\s+(?=[\u3400-\u9fff])")


def read_claim_label(text: object) -> ClaimLabel | None:
    """The label that a word, a short sentence or a yes or no means; None if it means none or several.

    Negations count with what they negate: "unsupported", "not supported" and "未提及" are `not_mentioned`, as is what is supported in part only.
    """
    if isinstance(text, bool):
        return "supported" if text else "not_mentioned"
    if not isinstance(text, str):
        return None
    plain = _BETWEEN_HAN.sub("", unicodedata.normalize("NFKC", seen(text[:500])).casefold().translate(_SIMPLIFIED))
    words = " ".join(re.sub(r"[\W_]+", " ", plain).split())
    if words in _PLAIN:
        return _PLAIN[words]
    found = {match.lastgroup for match in _WORDS.finditer(words)}
    for name in ("supported", "contradicted", "not_mentioned"):
        if found == {name}:
            return name
    return None
