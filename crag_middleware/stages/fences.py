"""Foreign text kept from passing for our own: invisible characters, tags in any spelling."""

import re

INVISIBLE = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f"  # control characters
    "\xad\u034f\u061c\u180e\u200b-\u200f\u2060-\u206f\ufeff\ufff9-\ufffb"  # zero width, marks of direction
    "\u202a-\u202e"  # bidirectional embeddings and overrides
    "\ufe00-\ufe0f\U000e0000-\U000e0fff"  # variation selectors and tags, which can smuggle text
    "\ud800-\udfff]"  # lone surrogates, which no encoder takes
)
"""What a reader does not see and a model may."""

_ALIKE = {"a": "а", "c": "сϲ", "e": "е", "g": "ɡ", "i": "іı", "o": "о0", "q": "ԛ", "r": "г", "s": "ѕ", "u": "υ"}
"""Letters of other alphabets that look like ours."""


def tag_pattern(*names: str) -> re.Pattern[str]:
    """Anything that a model could read as an opening or closing tag of one of these names, up to its closing sign if that is near.

    Full width, look-alike letters, escaped signs, and white space or punctuation between the letters do not help; every repetition is bounded.
    """
    return re.compile(
        rf"(?:[<＜‹〈«]|&lt;?|&\#0*60;?)[\s/／\\⁄∕|!]{{0,20}}(?:{'|'.join(map(_spelled, names))})(?![a-z])[^<>＜＞›〉»&\n]{{0,60}}(?:[>＞›〉»]|&gt;?)?",
        re.IGNORECASE,
    )


def _spelled(name: str) -> str:
    return r"[\s_.\-]{0,3}".join(f"[{c}{chr(ord(c) + 0xFEE0)}{_ALIKE.get(c, '')}]" for c in name if c.isalpha())


def seen(text: str) -> str:
    """The text without invisible characters."""
    return INVISIBLE.sub("", text)
