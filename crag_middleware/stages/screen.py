"""From what a web search gave to what is worth grading: from sites that may be used, readable, new, about the query, of bounded size; and its scores."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from crag_middleware.findings import Dropped
from crag_middleware.stages.fences import seen
from crag_middleware.stages.injection import injection_score
from crag_middleware.stages.merge import fold
from crag_middleware.stages.names import named
from crag_middleware.stages.provenance import evidence_score
from crag_middleware.stages.question import has_words
from crag_middleware.stages.sentences import split
from crag_middleware.stages.urls import canonical_url, domain, host, within
from crag_middleware.stages.words import finder, language, terms
from crag_middleware.types import Passage
from crag_middleware.web_policy import WebPolicy

_BREAKS = re.compile("\r\n?|[\x0b\x0c\x85\u2028\u2029]")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_WEB = re.compile(r"[\W_]{0,9}https?:", re.IGNORECASE)
_LATIN = re.compile(r"[A-Za-z]")
_HAN = re.compile(r"[\u3400-\u9fff]")

MAX_TITLE_CHARS = 200
"""A longer title is cut, for it goes to models too, and so is the address of a page that was dropped."""

MIN_REST_CHARS = 200
"""A result is dropped rather than cut to less than this."""

Language = Literal["en", "zh", "other"]


def screen(
    found: Sequence[Passage], known: Sequence[Passage], *, query: str, policy: WebPolicy
) -> tuple[tuple[Passage, ...], tuple[Dropped, ...]]:
    """The web passages that may and need be graded, in their order and ranked anew from 1, and the others with the reason why they are not.

    Characters and HTML comments that a browser would not show are removed from text and title first. Then a passage is dropped for the first of these that is
    true of it:

    - `domain`: its host is not among `policy.allow_domains`, if there are any, or among `policy.deny_domains`, or below one of them; or its address is one
      that browsers and parsers read differently, so that nobody can tell.
    - `empty`: it has no words.
    - `duplicate`: its address or text is that of an earlier or a known passage, in whatever spelling, see `canonical_url`.
    - `language`: it is in another language than `policy.language`.
    - `irrelevant`: its `coverage` of the query is below `policy.min_coverage`.
    - `too_large`: too little is left of `policy.max_total_chars`.

    A text is cut at `policy.max_result_chars`, and to what is left of the total, at the end of a sentence where it has one in the second half. A kept passage
    has an `evidence_score` and an `injection_score`; low scores drop nothing here.

    Args:
        found: What the search gave, best first.
        known: What is known already, such as the tenant's own passages.
        query: What was searched for.
        policy: The tenant's.
    """
    allowed = _allowed(policy)
    covered = coverage(query)
    urls = {canonical_url(p.url) for p in known} - {""}
    texts = {_key(visible(p.text)) for p in known}
    room = policy.max_total_chars
    kept: list[Passage] = []
    dropped: list[Dropped] = []
    for passage in found:
        title = " ".join(visible(passage.title).split())[:MAX_TITLE_CHARS]
        whole = visible(passage.text).strip()
        text = shortened(whole, policy.max_result_chars)
        url, key = canonical_url(passage.url), _key(whole)
        reason = (
            "domain" if not allowed(passage.url)
            else "empty" if not has_words(text)
            else "duplicate" if url in urls or key in texts
            else "language" if policy.language not in ("any", spoken(text))
            else "irrelevant" if covered(f"{title}\n{text}") < policy.min_coverage
            else "too_large" if len(text) > room and room < MIN_REST_CHARS
            else ""
        )  # fmt: skip
        if reason:
            dropped.append(Dropped(visible(passage.url)[:MAX_TITLE_CHARS], title, reason))
            continue
        urls |= {url} - {""}
        texts.add(key)
        text = shortened(text, room)
        room -= len(text)
        shown = replace(passage, text=text, title=title, rank=len(kept) + 1, injection_score=injection_score(f"{title}\n{text}"))
        kept.append(replace(shown, evidence_score=evidence_score(shown, policy.scores)))
    return tuple(kept), tuple(dropped)


def visible(text: str) -> str:
    """The text as a reader sees it: line breaks in one form, without control, zero-width and bidirectional characters and HTML comments."""
    # A space takes a comment's place, so that what stood around it can't form another one.
    return _COMMENT.sub(" ", seen(_BREAKS.sub("\n", text)))


def coverage(query: str) -> Callable[[str], float]:
    """A function that tells the share of the query's words that a text has, in [0, 1]; a pair of Chinese characters counts as half a word.

    A text in another language can't have the query's words. There the names and numbers of a Chinese query are looked for, which Chinese writes as others do;
    without any, and for a query in another language, the share is unknown and taken to be 1, as it is for a query without words.
    """
    wanted = {term: 0.5 if _HAN.match(term) else 1.0 for term in terms(query)}
    asked, find, total = spoken(query), finder(wanted), sum(wanted.values())

    def share(text: str) -> float:
        if not wanted:
            return 1.0
        here = sum(wanted[term] for term in find(text)) / total
        if spoken(text) == asked:
            return here
        return max(here, named(query, text) if asked == "zh" else 1.0)

    return share


def spoken(text: str) -> Language:
    """The language of a text as far as its letters tell: `other` if they are mostly neither Latin nor Chinese, or if Japanese."""
    letters = sum(map(str.isalpha, text))
    han, latin = (len(pattern.findall(text)) for pattern in (_HAN, _LATIN))
    if language(text) == "zh":
        return "zh" if 2 * han >= letters - latin else "other"
    return "en" if 2 * latin >= letters else "other"


def shortened(text: str, limit: int) -> str:
    """At most `limit` characters of a text from its beginning: up to the last end of a sentence in the second half, else of a word, else to the limit."""
    if len(text) <= limit:
        return text
    window = text[: limit + 1]
    # The last one is cut off, unless a sentence happens to end there.
    ends = [strip.end for strip in split(window)][:-1]
    if ends and ends[-1] >= limit // 2:
        return text[: ends[-1]]
    gap = max(window.rfind(space, limit // 2) for space in " \n")
    return text[: gap if gap > 0 else limit].rstrip()


def _allowed(policy: WebPolicy) -> Callable[[str], bool]:
    """A function that tells whether results from an address may be used."""
    allow, deny = _hosts(policy.allow_domains), _hosts(policy.deny_domains)

    def allowed(url: str) -> bool:
        name = host(url)
        if not name and _WEB.match(url):
            return False
        return (not policy.allow_domains or within(name, allow)) and not within(name, deny)

    return allowed


def _hosts(domains: Iterable[str]) -> frozenset[str]:
    """Domains as they are compared; one written as an address is its host."""
    return frozenset(domain(one) or host(one) for one in domains) - {""}


def _key(text: str) -> str:
    """What texts are compared by: pages of different sites spell one text in full and half width."""
    return fold(unicodedata.normalize("NFKC", text))
