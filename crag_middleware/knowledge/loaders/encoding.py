"""From bytes to text: byte order marks, UTF-8, what a document says of itself, and GB18030, which older Chinese files are written in."""

import codecs
import re

from crag_middleware.errors import ConfigError, IngestError

_BOMS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32",  # Before UTF-16, whose mark it begins with.
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

_SUPERSETS = {"gb2312": "gb18030", "gbk": "gb18030", "iso8859-1": "cp1252", "ascii": "cp1252"}
"""What browsers read where a page names these. Source: WHATWG Encoding Standard, section 4.2, names and labels."""

MAX_BROKEN = 0.01
"""Where an encoding was named, this share of the characters may be broken: they become U+FFFD. More, and it was the wrong name."""

_SAMPLE_BYTES = 1 << 16
_DOUBLE_BYTES = re.compile(rb"([\xa1-\xa9\xb0-\xd7][\xa1-\xfe])|[\x81-\xfe][\x30-\xfe]")
"""A character of two bytes; the group holds those of GB 2312's signs and its 3,755 common characters."""


def check_encoding(encoding: str | None) -> None:
    """Refuses a name that Python does not know as an encoding of text.

    Raises:
        ConfigError: It is none.
    """
    try:
        " ".encode(encoding or "utf-8")
    except (LookupError, TypeError, ValueError):
        msg = f"`encoding` must be the name of a text encoding, such as 'utf-8' or 'gb18030', or None; got {encoding!r}"
        raise ConfigError(msg) from None


def decode(data: bytes, encoding: str | None = None, *, declared: str | None = None) -> str:
    """The text of a file.

    Args:
        data: Its bytes.
        encoding: What the caller says it is written in.
        declared: What the document itself says; believed after a byte order mark, and only if it can be true.

    Raises:
        IngestError: `binary`: it is no text; `encoding`: it is written in something else.
    """
    if encoding:
        text = _lenient(data, encoding)
        if text is None:
            msg = f"it is not written in {encoding!r}; pass the right `encoding=`, or none to have it found out"
            raise IngestError(msg, reason="encoding")
        return _checked(text)
    for bom, name in _BOMS.items():
        if data.startswith(bom):
            text = _lenient(data, name)
            if text is not None:
                return _checked(text)
    if b"\0" in data:
        raise _binary()
    text = _strict(data, "utf-8")
    if text is None and declared:
        text = _declared(data, declared)
    if text is None and _reads_as_chinese(data):
        text = _strict(data, "gb18030")
    if text is None:
        msg = "it is neither in UTF-8 nor in GB18030; pass its `encoding=`, such as 'cp1252' or 'big5' ('utf-8' replaces a few broken characters)"
        raise IngestError(msg, reason="encoding")
    return text


def _declared(data: bytes, name: str) -> str | None:
    try:
        plain = codecs.lookup(name).name
        return _lenient(data, _SUPERSETS.get(plain, plain))
    except (LookupError, ValueError):
        return None


def _strict(data: bytes, encoding: str) -> str | None:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError:
        return None


def _lenient(data: bytes, encoding: str) -> str | None:
    """The text with its broken characters replaced, unless they are too many."""
    try:
        text = data.decode(encoding, "replace")
    except UnicodeError:  # Encodings that can replace nothing, such as `idna`.
        return None
    return text if text.count("\ufffd") <= MAX_BROKEN * len(text) else None


def _reads_as_chinese(data: bytes) -> bool:
    """Whether at least half of the characters would be common ones; bytes of Western, Russian or Japanese text seldom are, though they can be decoded."""
    found = _DOUBLE_BYTES.findall(data, 0, _SAMPLE_BYTES)
    return 2 * sum(map(bool, found)) >= len(found)


def _checked(text: str) -> str:
    if "\0" in text:
        raise _binary()
    return text


def _binary() -> IngestError:
    msg = "it holds NUL characters and is no text; convert it, or pass `encoding=` if it is UTF-16 or UTF-32 without a byte order mark"
    return IngestError(msg, reason="binary")
