"""Models that check claims by looking for their words in the passages, and what they are asked about."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from crag_middleware.types import Claim, Ground

_CLAIM = re.compile(r"<claim[^>]*>\n(.*?)\n</claim>", re.DOTALL)
_PASSAGE = re.compile(r"<passage[^>]*>\n(.*?)\n</passage>", re.DOTALL)


def claim(text: str, *cited: int) -> Claim:
    return Claim(text, 0, len(text), cited)


def source(text: str, number: int) -> Ground:
    return Ground(text, number=number)


def user_text(asked: Mapping[str, Any] | str) -> str:
    """What a request, or a prompt, says as the user."""
    return asked if isinstance(asked, str) else str(asked["messages"][-1]["content"])


def claims_in(asked: Mapping[str, Any] | str) -> list[str]:
    return _CLAIM.findall(user_text(asked))


def passages_in(asked: Mapping[str, Any] | str) -> list[str]:
    return _PASSAGE.findall(user_text(asked))


def checks_each(asked: Mapping[str, Any] | str) -> str:
    """The reply of a checker to whom a claim is supported by the passage that says it word for word."""
    passages = passages_in(asked)
    decided = [next((n for n, text in enumerate(passages, 1) if said.strip() and said in text), 0) for said in claims_in(asked)]
    entries = [
        {"claim": n, "passage": by, "label": "supported" if by else "not_mentioned", "confidence": 0.95 if by else 0.05}
        for n, by in enumerate(decided, 1)
    ]
    return json.dumps({"claims": entries})


def says_yes(asked: Mapping[str, Any]) -> Sequence[tuple[str, float]]:
    """The first tokens of the same checker, asked for a yes or a no."""
    there = any(said in text for said in claims_in(asked) for text in passages_in(asked))
    words = ("Yes", "No") if there else ("No", "Yes")
    return [(words[0], math.log(0.9)), (words[1], math.log(0.1))]
