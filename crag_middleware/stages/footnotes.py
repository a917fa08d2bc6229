"""What is known of an answer's citations and claims, as plain JSON that a user interface can show as footnotes."""

from collections.abc import Mapping, Sequence
from typing import Any

from crag_middleware.stages.citations import Citation
from crag_middleware.types import Checked, Claim, Ground

_KEYS = ("id", "origin", "title", "source", "url", "section", "page")


def footnotes(citations: Sequence[Citation], sources: Mapping[int, Mapping[str, Any]], *, quoted: bool) -> list[dict[str, Any]]:
    """The cited sources, in the order of their first citation.

    Args:
        citations: Where the answer cites.
        sources: The turn's sources by citation number, as the receipt has them.
        quoted: Whether the strips have their text; without, they have their place in the passage only.

    Returns:
        For each: its `number`, what the receipt says of it (`id`, `origin`, `title`, `source`, `url`, `section`, `page`, the `strips` with their offsets), and
        the `places` where it is cited, as pairs of character offsets into the answer's text.
    """
    places: dict[int, list[list[int]]] = {}
    for citation in citations:
        for number in citation.numbers:
            places.setdefault(number, []).append([citation.start, citation.end])
    return [
        {
            "number": number,
            **{key: sources[number].get(key) for key in _KEYS},
            "strips": _strips(sources[number], quoted=quoted),
            "places": found,
        }
        for number, found in places.items()
        if number in sources
    ]


def _strips(source: Mapping[str, Any], *, quoted: bool) -> list[dict[str, Any]]:
    return [{key: value for key, value in strip.items() if quoted or key != "text"} for strip in source["strips"]]


def told_claims(checked: Sequence[tuple[Claim, Checked]], grounds: Sequence[Ground], *, quoted: bool) -> list[dict[str, Any]]:
    """The claims of an answer and what was thought of each: where it stands, its label, P(supported), the reason, and what decided.

    With `quoted` the source that decides has its text.
    """
    return [
        {
            "text": claim.text,
            "start": claim.start,
            "end": claim.end,
            "cited": list(claim.cited),
            "label": said.label,
            "probability": None if said.probability is None else round(float(said.probability), 4),
            "reason": said.reason,
            "decided_by": _ground(said, grounds, quoted=quoted),
        }
        for claim, said in checked
    ]


def _ground(said: Checked, grounds: Sequence[Ground], *, quoted: bool) -> dict[str, Any] | None:
    """The ground that decides: its kind and number, and, of a source, the text."""
    if said.decided_by is None or not 0 <= said.decided_by < len(grounds):
        return None
    ground = grounds[said.decided_by]
    return {"kind": ground.kind, "number": ground.number, "text": ground.text if quoted and ground.kind == "source" else None}
