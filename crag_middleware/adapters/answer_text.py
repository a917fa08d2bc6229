"""The text in a message's content, whatever its shape: taken out to be checked, and put back where it was."""

from collections.abc import Callable
from typing import Any

from crag_middleware.steps import Plan


class Texts:
    """Puts checked text back into the content it came from, one piece of a message after the other: strings stay strings, blocks stay blocks."""

    def __init__(self) -> None:
        self._index: dict[str, Any] | None = None

    def checked(self, content: Any, feed: Callable[[str], Plan[str]], end: Callable[[], Plan[str]] | None = None) -> Plan[Any]:
        """The content with each text as `feed` gives it, and what `end` gives after the last of it.

        Blocks without text, such as reasoning and tool calls, stay as they are. A block whose text was held back or dropped goes, if it said nothing else.
        """
        if isinstance(content, str):
            shown = (yield from feed(content)) if content else ""
            rest = (yield from end()) if end else ""
            return [self._block(rest)] if rest and not content and self._index is not None else shown + rest
        parts = list(content)
        places = [place for place, part in enumerate(parts) if _text(part) is not None]
        for place in places:
            part = parts[place]
            if isinstance(part, dict):
                self._index = {"index": part["index"]} if "index" in part else {}
            if text := _text(part):
                parts[place] = _with_text(part, (yield from feed(text)))
        rest = (yield from end()) if end else ""
        if rest and places:
            parts[places[-1]] = _with_text(parts[places[-1]], (_text(parts[places[-1]]) or "") + rest)
        kept = [part for part, before in zip(parts, content, strict=True) if _text(part) or not _text(before) or _says_more(part)]
        return kept if places or not rest else [*kept, self._block(rest)]

    def _block(self, text: str) -> dict[str, Any]:
        """The text in the last block of text that came."""
        return {"type": "text", "text": text, **(self._index or {})}


def _text(part: Any) -> str | None:
    """What a part of a content gives a reader; None for one that is no text."""
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") == "text":
        return str(part.get("text") or "")
    return None


def _with_text(part: Any, text: str) -> Any:
    return text if isinstance(part, str) else {**part, "text": text}


def _says_more(part: Any) -> bool:
    """Whether a block of text says something beside its text."""
    return isinstance(part, dict) and bool(part.keys() - {"type", "text", "index"})
