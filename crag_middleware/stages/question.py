"""From the user's text to what is searched: what is skipped, what is cut."""

import re
import unicodedata
from typing import Literal

from crag_middleware.stages.fences import seen, tag_pattern
from crag_middleware.stages.sentences import split
from crag_middleware.types import Language

FENCE = "crag_sources"
"""Name of the tag that encloses injected evidence."""

FENCE_TAG = tag_pattern(FENCE)
"""Anything that a model could read as the opening or closing tag of our fence."""

LEAD_IN: dict[Language, str] = {"en": "The user's message, answer it:", "zh": "用户的消息，请回答："}
"""Stands between the block and the message. Without it a small model took a question under a list of sources for one more of them, and answered "[1]"."""

_FENCED = re.compile(rf"<{FENCE}>(?:(?!<{FENCE}>).)*?</{FENCE}>(?:\s{{0,4}}(?:{'|'.join(map(re.escape, LEAD_IN.values()))}))?", re.DOTALL)
_DATA_URI = re.compile(r"data:[\w.+-]{1,40}/[\w.+-]{1,80}(?:;[\w.+=-]{1,80}){0,5},[\w+/=%-]{32,}", re.IGNORECASE)
_AFTER_MARK = "\"'”’)）]」』*_!！ \t"
_SEPARATOR = re.compile(r"[,.!?~，。！？～、\n]")

MAX_GREETING_CHARS = 200
"""A longer text says more than hello."""

_GREETING = re.compile(
    r"(?:hi+|hello|hey|hiya|yo|good (?:morning|afternoon|evening|night|day)|greetings|thanks?|thank you|thx|cheers|bye|goodbye|see you|ok|okay"
    r"|great|cool|got it|bonjour|hola|ciao"
    r"|你好|您好|你们好|大家好|嗨|哈喽|哈啰|早上好|上午好|中午好|下午好|晚上好|早安|晚安|早|谢谢|多谢|感谢|谢了|再见|拜拜|好的|好|嗯|收到|明白|明白了|知道了|在吗|在么)"
    r"(?: (?:there|all|everyone|team|so much|very much|a lot|again|you|then)|你们?|您|大家|啦|了|呀|啊|哦|吧|非常)*"
)


def classify(text: str) -> Literal["empty", "greeting"] | None:
    """Why nothing should be retrieved for a text: it is blank, or nothing but greetings, thanks and the like; None if it should."""
    text = seen(text).strip()
    if not text:
        return "empty"
    if len(text) > MAX_GREETING_CHARS:
        return None
    parts = [" ".join(part.split()) for part in _SEPARATOR.split(text.casefold())]
    words = [re.sub(r"[^\w ]", "", unicodedata.normalize("NFKC", part)).strip() for part in parts]
    spoken = [w for w in words if w]
    return "greeting" if spoken and all(_GREETING.fullmatch(w) for w in spoken) else None


def unicode(text: str) -> str:
    """The text with a question mark for each lone surrogate, which no store, no model and no wire takes."""
    return text.encode(errors="replace").decode()


def without_fence(text: str) -> str:
    """The text without blocks and tags of our own fence, should a client have sent one back."""
    return FENCE_TAG.sub("", _FENCED.sub("", text)).strip()


def without_files(text: str) -> str:
    """The text without the content of files written into it as `data:` addresses, which no search can use."""
    return _DATA_URI.sub("", text)


def without_lead_in(block: str) -> str:
    """An injected block up to the end of its fence."""
    return block[: block.rindex(f"</{FENCE}>") + len(f"</{FENCE}>")]


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters that keep the question: its last question sentences, then the end and the beginning of the text.

    Two texts with one preamble and different questions give different results, wherever the question stands.
    """
    text = text.strip()
    if len(text) <= limit:
        return text
    asked = ""
    for question in reversed(_questions(text)[-5:]):
        if len(asked) + len(question) + 1 > limit // 2:
            break
        asked = f"{question} {asked}".strip()
    rest = limit - len(asked) - 2
    head, tail = text[: rest // 3], text[-(rest - rest // 3) :]
    if asked and asked in tail:
        return f"{text[: limit - len(tail) - 1]} {tail}"
    return " ".join(part for part in (asked, head, tail) if part)


def _questions(text: str) -> list[str]:
    """The sentences that end with a question mark; one inside an address is none."""
    lines = (line for line in text.splitlines() if "?" in line or "？" in line)
    return [s.text for line in lines for s in split(line) if s.text.rstrip(_AFTER_MARK).endswith(("?", "？"))]


def has_words(text: str) -> bool:
    """Whether the text has a letter or a digit, without which a web search makes no sense."""
    return any(character.isalnum() for character in text)
