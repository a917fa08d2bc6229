"""From the user's text to what is searched: what is skipped, what is cut."""

import re
import unicodedata
from typing import Literal

from crag_middleware.types import Language

FENCE = "crag_sources"
"""Name of the tag that encloses injected evidence."""

_INVISIBLE = "[\u200b-\u200f\u2060-\u2064\ufeff\u00ad]*"
FENCE_TAG = re.compile(rf"[<＜]\s*/?\s*{_INVISIBLE.join(FENCE)}[^<>＜＞]{{0,40}}[>＞]?", re.IGNORECASE)
"""Anything that a model could read as the opening or closing tag of our fence."""

LEAD_IN: dict[Language, str] = {"en": "The user's message, answer it:", "zh": "用户的消息，请回答："}
"""Stands between the block and the message. Without it a small model took a question under a list of sources for one more of them, and answered "[1]"."""

_FENCED = re.compile(rf"<{FENCE}>.*?</{FENCE}>(?:\s*(?:{'|'.join(map(re.escape, LEAD_IN.values()))}))?", re.DOTALL)
_QUESTION = re.compile(r"[^.!?。！？\n]*[?？]+")
_GREETING = re.compile(
    r"(?:hi+|hello|hey|hiya|yo|good (?:morning|afternoon|evening|night|day)|greetings|thanks?|thank you|thx|cheers|bye|goodbye|see you|ok|okay"
    r"|great|cool|got it|bonjour|hola|ciao"
    r"|你好|您好|你们好|大家好|嗨|哈喽|哈啰|早上好|上午好|中午好|下午好|晚上好|早安|晚安|早|谢谢|多谢|感谢|谢了|再见|拜拜|好的|好|嗯|收到|明白|明白了|知道了|在吗|在么)"
    r"(?: (?:there|all|everyone|team|so much|very much|a lot|again|you|then)|你们?|您|大家|啦|了|呀|啊|哦|吧|非常)*"
)


def classify(text: str) -> Literal["empty", "greeting"] | None:
    """Why nothing should be retrieved for a text: it is blank, or nothing but greetings, thanks and the like; None if it should."""
    if not text.strip():
        return "empty"
    parts = [p for p in re.split(r"[\s]*[,.!?~，。！？～、\n]+[\s]*", " ".join(text.casefold().split(" "))) if p]
    words = [re.sub(r"[^\w ]", "", unicodedata.normalize("NFKC", part)).strip() for part in parts]
    spoken = [w for w in words if w]
    return "greeting" if spoken and all(_GREETING.fullmatch(w) for w in spoken) else None


def without_fence(text: str) -> str:
    """The text without blocks and tags of our own fence, should a client have sent one back."""
    return FENCE_TAG.sub("", _FENCED.sub("", text)).strip()


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters that keep the question: its last question sentences, then the end and the beginning of the text.

    Two texts with one preamble and different questions give different results, wherever the question stands.
    """
    text = text.strip()
    if len(text) <= limit:
        return text
    asked = ""
    for match in reversed([m.group().strip() for m in _QUESTION.finditer(text)][-5:]):
        if len(asked) + len(match) + 1 > limit // 2:
            break
        asked = f"{match} {asked}".strip()
    rest = limit - len(asked) - 2
    head, tail = text[: rest // 3], text[-(rest - rest // 3) :]
    if asked and asked in tail:
        return f"{text[: limit - len(tail) - 1]} {tail}"
    return " ".join(part for part in (asked, head, tail) if part)


def has_words(text: str) -> bool:
    """Whether the text has a letter or a digit, without which a web search makes no sense."""
    return any(character.isalnum() for character in text)
