"""Which web pages of a turn may be kept in the tenant's knowledge: relevant, without orders in them, and cited for what was checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crag_middleware.stages.injection import injection_score
from crag_middleware.stages.question import unicode
from crag_middleware.stages.urls import canonical_url, host

PASSED = ("", "mended", "repaired")
"""What may have been done to an answer (`action`) whose claims all hold."""

WHITE = 2
"""Characters between two strips that are taken for the white space between them, and not for a text that was left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """What may be kept of a web page.

    Attributes:
        url: The page's address, as it was found.
        host: Its host.
        title: Its title; may be empty.
        text: The strips that the model was shown, and the answer's claims were checked against; nothing else of the page.
        probability: P(the page answers the question), in [0, 1].
        trust: How far the page is to be trusted (`evidence_score`), in [0, 1]; None if nobody said.
    """

    url: str
    host: str
    title: str
    text: str
    probability: float
    trust: float | None


def worth_keeping(receipt: Mapping[str, Any], *, min_probability: float, orders_from: float, most: int) -> tuple[Excerpt, ...]:
    """The web pages of a turn that may be kept, the most relevant first; one for each address, in whatever spelling.

    None, unless the knowledge could be searched and the answer passed: its claims were checked, there is at least one, and each of them is supported.
    Then those that decided a claim which cites them, were graded `relevant`, contradict no other source as far as was found, and have a web address.

    Args:
        receipt: Of the turn, with its `answer`.
        min_probability: The probability must lie above it.
        orders_from: From this `injection_score` on a page, or what would be kept of it, is left out; so is one without a score.
        most: Pages at most.
    """
    answer = receipt.get("answer") or {}
    if receipt.get("status") != "grounded" or not _passed(answer):
        return ()
    disputed = {number for conflict in receipt.get("conflicts", ()) for side in conflict["sides"] for number in side["numbers"]}
    proving = _proving(answer["claims"]) & {citation["number"] for citation in answer["citations"]} - disputed
    passages = {passage["number"]: passage for passage in receipt["passages"] if passage["number"] in proving}
    found: dict[str, Excerpt] = {}
    for source in receipt["sources"]:
        passage = passages.get(source["number"])
        if passage is None or not _is_good(source, passage, min_probability, orders_from):
            continue
        excerpt = _excerpt(source, passage)
        if excerpt.text.strip() and injection_score(f"{excerpt.title}\n{excerpt.text}") < orders_from:
            found.setdefault(canonical_url(excerpt.url), excerpt)
    return tuple(sorted(found.values(), key=lambda excerpt: -excerpt.probability)[:most])


def _passed(answer: Mapping[str, Any]) -> bool:
    claims = answer.get("claims")
    if answer.get("checked") != "checked" or answer.get("action") not in PASSED or not claims:
        return False
    return all(claim["label"] == "supported" and claim["probability"] is not None for claim in claims)


def _proving(claims: Sequence[Mapping[str, Any]]) -> set[int]:
    """The numbers of the sources that decided a claim which cites them: a claim may cite one source and rest on another."""
    decided = ((claim["cited"], claim["decided_by"] or {}) for claim in claims)
    return {by["number"] for cited, by in decided if by.get("kind") == "source" and by["number"] in cited}


def _is_good(source: Mapping[str, Any], passage: Mapping[str, Any], min_probability: float, orders_from: float) -> bool:
    probability, orders = passage["probability"], passage["injection_score"]
    return (
        (source["origin"], passage["origin"]) == ("web", "web")
        and passage["label"] == "relevant"
        and not passage["inconsistent"]
        and probability is not None
        and probability > min_probability
        and orders is not None
        and orders < orders_from
        and bool(canonical_url(source["url"]))
    )


def _excerpt(source: Mapping[str, Any], passage: Mapping[str, Any]) -> Excerpt:
    return Excerpt(
        url=unicode(source["url"]),
        host=host(source["url"]),
        title=unicode(source["title"]),
        text=unicode(_joined(source["strips"])),
        probability=passage["probability"],
        trust=passage["evidence_score"],
    )


def _joined(strips: Sequence[Mapping[str, Any]]) -> str:
    """The strips in the page's order: neighbours on lines of their own, or as close as they stood; apart where text between them was left out."""
    text, end = "", 0
    for strip in strips:
        gap = strip["start"] - end
        text += ("" if not text or gap == 0 else "\n" if gap <= WHITE else "\n\n") + strip["text"]
        end = strip["end"]
    return text
