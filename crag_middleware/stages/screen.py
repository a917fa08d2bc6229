"""From what a web search gave to what is worth grading: visible text only, no page twice."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import replace

from crag_middleware.stages.fences import seen
from crag_middleware.stages.merge import fold
from crag_middleware.stages.question import has_words
from crag_middleware.stages.urls import canonical_url
from crag_middleware.types import Passage

_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)


def screen(passages: Sequence[Passage], known: Sequence[Passage]) -> tuple[Passage, ...]:
    """Web passages that a reader could see and has not seen yet, in their order, ranked anew from 1.

    Characters and HTML comments that a browser would not show are removed from text and title; a passage without words is dropped, and so is one whose
    address or text is that of an earlier one or of a `known` one. Which spelling of an address is meant does not matter, see `canonical_url`.
    """
    urls = {canonical_url(p.url) for p in known} - {""}
    texts = {_key(visible(p.text)) for p in known}
    kept: list[Passage] = []
    for passage in passages:
        text = visible(passage.text).strip()
        url, key = canonical_url(passage.url), _key(text)
        if not has_words(text) or url in urls or key in texts:
            continue
        urls |= {url} - {""}
        texts.add(key)
        kept.append(replace(passage, text=text, title=" ".join(visible(passage.title).split()), rank=len(kept) + 1))
    return tuple(kept)


def _key(text: str) -> str:
    """What texts are compared by: pages of different sites spell one text in full and half width."""
    return fold(unicodedata.normalize("NFKC", text))


def visible(text: str) -> str:
    """The text as a reader sees it: line breaks in one form, without control, zero-width and bidirectional characters and HTML comments."""
    # A space takes a comment's place, so that what stood around it can't form another one.
    return _COMMENT.sub(" ", seen(_BREAKS.sub("\n", text)))
