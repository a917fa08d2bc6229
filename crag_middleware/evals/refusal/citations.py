"""Whether the statements of an answer are supported by what they cite, and whether each citation contributes to that.

Source: Gao et al., "Enabling Large Language Models to Generate Text with Citations" (ALCE), EMNLP 2023, arXiv 2305.14627, section 4; a claim checker stands in
the place of their NLI model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from crag_middleware.stages.citations import mend
from crag_middleware.stages.claims import claims
from crag_middleware.types import Claim, Origin

MAX_STATEMENTS = 30
"""The first so many statements of an answer are looked at."""

MAX_CITED = 3
"""The first so many citations of a statement are looked at, as ALCE's program does by default."""

Numbers = tuple[int, ...]
"""Sources, by citation number."""

Question = tuple[Claim, Numbers]
"""A statement, and the sources that may support it."""

Supported = Callable[[Sequence[Claim], Numbers], Sequence[bool]]
"""For each statement whether these sources together support it in full."""


@dataclass(frozen=True, slots=True)
class Cited:
    """What was found in one answer.

    Attributes:
        statements: How many there are.
        supported: How many of them what they cite supports in full; one that cites nothing is none of them.
        citations: How many there are.
        contributing: How many of them stand in a supported statement, and either support it alone or are missed when taken away.
    """

    statements: int = 0
    supported: int = 0
    citations: int = 0
    contributing: int = 0


def judge(answer: str, sources: int, supported: Supported) -> Cited:
    """What an answer's citations are worth.

    Args:
        answer: The answer. A citation of a source that there is not supports nothing, and contributes nothing.
        sources: How many there are; they are cited by the numbers from 1.
        supported: Asked at most once for each set of sources and each of three rounds: all that a statement cites, each alone, and all others.
    """
    origins: dict[int, Origin] = dict.fromkeys(range(1, sources + 1), "knowledge")

    def cited(text: str) -> Numbers:
        return tuple(dict.fromkeys(number for citation in mend(text, origins).citations for number in citation.numbers))

    found = claims(answer, cited)[:MAX_STATEMENTS]
    citing = [(claim, claim.cited[:MAX_CITED]) for claim in found if claim.cited]
    whole = [asked for asked, said in zip(citing, _ask(citing, supported), strict=True) if said]
    # The only citation of a supported statement contributes.
    several = [(claim, numbers, number) for claim, numbers in whole if len(numbers) > 1 for number in numbers]
    alone = _ask([(claim, (number,)) for claim, _, number in several], supported)
    doubtful = [asked for asked, said in zip(several, alone, strict=True) if not said]
    spared = _ask([(claim, tuple(n for n in numbers if n != number)) for claim, numbers, number in doubtful], supported)
    total = sum(len(numbers) for _, numbers in whole)
    made_up = sum(len(mend(claim.text, origins).unknown) for claim in found)
    return Cited(len(found), len(whole), sum(len(numbers) for _, numbers in citing) + made_up, total - sum(spared))


def _ask(questions: Sequence[Question], supported: Supported) -> list[bool]:
    """The reply to each question, those about the same sources asked together."""
    said: dict[int, bool] = {}
    for numbers in dict.fromkeys(numbers for _, numbers in questions):
        places = [place for place, (_, among) in enumerate(questions) if among == numbers]
        said |= zip(places, supported([questions[place][0] for place in places], numbers), strict=True)
    return [said[place] for place in range(len(questions))]
