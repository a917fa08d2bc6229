"""Text that hides what it says from a filter, and not from a model: encoded, reversed, spelled with signs that look alike."""

import base64
import codecs
import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from urllib.parse import unquote

from crag_middleware.stages.fences import seen

_ALIKE = str.maketrans(
    "асеорхуіјѕԁһԛԝӏнкмтвгпαβεικνορτυχγωɑɡıΑΒΕΖΗΙΚΜΝΟΡΤΥΧАВЕКМНОРСТУХІЈЅ’‘“”‐‑‒–—",
    "aceopxyijsdhqwlhkmtbrnabeiknoptuxywagiABEZHIKMNOPTYXABEKMHOPCTYXIJS''\"\"-----",
)
"""Letters of other alphabets, quotes and dashes, to what they look like."""

_SPACED = re.compile(r"(?<![^\W_])[^\W\d_](?:[ ._*|-]{1,3}[^\W\d_](?![^\W_])){5,}")
"""At least six letters that stand alone."""

_GAP = re.compile(r"[ ._*|-]+")
_LEET = str.maketrans("013457@$", "oieastas")
_BITS = re.compile(r"[01]{8}")

_MORSE_CODES = (
    ".- -... -.-. -.. . ..-. --. .... .. .--- -.- .-.. -- -. --- .--. --.- .-. ... - ..- ...- .-- -..- -.-- --.. "
    "----- .---- ..--- ...-- ....- ..... -.... --... ---.. ----."
)
_MORSE = dict(zip(_MORSE_CODES.split(), "abcdefghijklmnopqrstuvwxyz0123456789", strict=True))

_TELLTALES = ("ignor", "instruct", "prompt", "disregard", "system", "password", "forward", "delete", "reveal")
"""Words of orders: what brings forth more of them was written to be read that way."""

MIN_CHARS = 8
"""Shorter texts hide no order."""


def plain(text: str) -> str:
    """The text in one spelling.

    Invisible characters are left out, escapes of HTML and addresses resolved, full width and letters of other alphabets that look like Latin ones replaced by
    these, letters that stand alone joined.
    """
    text = seen(unquote(html.unescape(text))).replace("\ufdfa", " ")  # one sign that NFKC makes 18 of
    text = unicodedata.normalize("NFKC", text).translate(_ALIKE)
    return _SPACED.sub(lambda run: _joined(run.group()), text)


def hidden(text: str) -> Iterator[str]:
    """What a text also says, to a reader who decodes it.

    That is all it holds in binary, hexadecimal, base32, base64, ASCII85, Morse code or escapes, one text for each code; and the whole backwards, by ROT13, or
    with digits as letters, if that brings forth words of orders. Takes time in proportion to the text's length.

    Args:
        text: In one spelling, see `plain`.
    """
    for pattern, decode in _CODES:
        said = "\n".join(filter(None, (_decoded(code.group(), decode) for code in pattern.finditer(text))))
        if said:
            yield said
    folded = text.lower()
    known = _telltales(folded)
    backwards = folded[::-1]
    for other in (backwards, " ".join(reversed(backwards.split())), codecs.encode(folded, "rot13"), folded.translate(_LEET)):
        if _telltales(other) > known:
            yield other


def _decoded(code: str, decode: Callable[[str], bytes]) -> str:
    """The text that a code stands for; empty if it stands for none."""
    try:
        said = decode(code).decode()
    except ValueError:
        return ""
    return said if len(said) >= MIN_CHARS and all(map(str.isprintable, said.split())) else ""


def _telltales(text: str) -> int:
    return sum(map(text.count, _TELLTALES))


def _joined(run: str) -> str:
    """Spaced letters as words, which wider gaps keep apart."""
    return _GAP.sub(lambda gap: " " if len(gap.group()) > 1 else "", run)


def _base32(code: str) -> bytes:
    code = code.rstrip("=")
    return base64.b32decode(code + "=" * (-len(code) % 8))


def _base64(code: str) -> bytes:
    code = code.rstrip("=").translate({ord("-"): "+", ord("_"): "/"})
    return base64.b64decode(code + "=" * (-len(code) % 4))


def _binary(code: str) -> bytes:
    return bytes(int(bits, 2) for bits in _BITS.findall(code))


def _morse(code: str) -> bytes:
    return " ".join("".join(_MORSE.get(letter, "") for letter in word.split()) for word in re.split(r"\s*[/|]\s*|\s{2,}", code)).encode()


def _hex(code: str) -> bytes:
    return bytes.fromhex(re.sub(r"[\\0]x|[\s:,]", "", code))


_CODES: tuple[tuple[re.Pattern[str], Callable[[str], bytes]], ...] = (
    (re.compile(r"(?<![\w+/])(?:[01]{8}[\s,]{0,2}){6,}"), _binary),
    (re.compile(r"(?<![\w+/])(?:(?:\\x|0x)?[0-9a-fA-F]{2}[\s:,]?){10,}(?![\w+/])"), _hex),
    (re.compile(r"(?<![\w+/])[A-Z2-7]{16,}={0,6}(?![\w+/])"), _base32),
    (re.compile(r"(?<![\w+/-])[\w+/-]{16,}={0,2}", re.ASCII), _base64),
    (re.compile(r"<~[!-u\s]{10,}~>"), lambda code: base64.a85decode(code, adobe=True)),
    (re.compile(r"(?<!\S)(?:[.-]{1,6}(?:\s{1,3}|\s?[/|]\s?)){12,}"), _morse),
    (re.compile(r"(?:\\u[0-9a-fA-F]{4}){6,}"), lambda code: codecs.decode(code, "unicode_escape").encode(errors="replace")),
)
"""Encodings, and what each is decoded by, which raises a `ValueError` for what is none."""
