"""Claim checkers that need no chat model."""

from collections.abc import Sequence

from crag_middleware.stages.claim_check import THRESHOLD, check
from crag_middleware.types import Checked, Claim, Ground


class WordClaimChecker:
    """Checks claims by words, their order, values, names and negations: offline, at once, without any model.

    A heuristic. It sees a number, a unit, a date, a version, a name or a negation that differs from what a source says in much the same words; it does not
    see what follows from a source, and takes a claim in quite other words for unsupported. docs/claims.md tells how far it gets on which data.
    """

    instant = True
    threshold: float = THRESHOLD

    def check(self, claims: Sequence[Claim], grounds: Sequence[Ground]) -> Sequence[Checked]:
        """What the grounds say of each claim, in the claims' order; see `stages.claim_check.check` for labels and reasons."""
        return check(claims, grounds)
