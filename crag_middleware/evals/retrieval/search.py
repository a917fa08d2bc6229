"""One question, asked in every way."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from crag_middleware.adapters.milvus_copies import SAME_TEXT
from crag_middleware.errors import RetrievalError
from crag_middleware.evals.retrieval.scores import redundancy
from crag_middleware.evals.retrieval.shelves import Retrievers
from crag_middleware.evals.retrieval.ways import MMR, RERANK, RRF
from crag_middleware.evals.runner import TENANT, TIMEOUT_S
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.merge import MergeRules, marked, merge
from crag_middleware.stages.selection import select
from crag_middleware.types import Passage

DEPTH = 20
"""How many passages each way brings."""

SHOWN = 5
"""Of how many the redundancy is told: about what a model is given."""

Scores = Sequence[float | None]
Found = Mapping[str, Sequence[Passage]]
"""By way, the passages, best first."""


def ask(
    question: str,
    retrievers: Retrievers,
    settings: CRAGSettings,
    *,
    score: Callable[[tuple[Passage, ...]], Scores] | None = None,
    floor: float | None = None,
) -> Found:
    """What every way finds for a question.

    Args:
        question: As a user asks it.
        retrievers: The ways that search.
        settings: For the merge.
        score: The reranker, if there is one.
        floor: Passages that it scores below are left out; None for none.

    Raises:
        RetrievalError: A search failed, or a leg of it did.
        RerankError: The reranker failed.
    """
    found: dict[str, Sequence[Passage]] = {}
    for way, retriever in retrievers.items():
        passages = retriever.retrieve(question, agent_id=TENANT, limit=DEPTH, timeout_s=TIMEOUT_S)
        if passages.troubles:
            msg = f"a leg of the search failed: {passages.troubles[0].step}"
            raise RetrievalError(msg, reason=passages.troubles[0].reason)
        found[way] = passages
    merged = _merged(found[RRF], settings)
    if score is not None:
        found[RERANK] = _by_score(merged, score(merged), floor)
    return found | {way: select(merged, DEPTH, mmr_lambda=mmr_lambda, fair=False) for way, mmr_lambda in MMR.items()}


def names(passages: Sequence[Passage]) -> tuple[str, ...]:
    """The ids of the documents; those of copies stand beside the one that stays, since whoever has one has them all."""
    return tuple(dict.fromkeys(chain.from_iterable(map(_ids, passages))))


def _ids(passage: Passage) -> Iterator[str]:
    yield passage.id
    yield from passage.metadata.get(SAME_TEXT, ())
    yield from (hit.id for hit in passage.hits)


def alike(passages: Sequence[Passage]) -> float | None:
    """How alike the first `SHOWN` are, from 0 on; None for fewer than two, or without vectors."""
    return redundancy([passage.vector for passage in passages[:SHOWN] if passage.vector is not None])


def _merged(passages: Sequence[Passage], settings: CRAGSettings) -> tuple[Passage, ...]:
    """As in a turn with one route that asks one query."""
    rules = MergeRules(weights={}, half_life_days={}, by_type={}, now_ms=0, rrf_k=settings.rrf_k, near=settings.near_duplicate)
    return merge(marked(passages, RRF, 0), rules)


def _by_score(passages: Sequence[Passage], scores: Scores, floor: float | None) -> list[Passage]:
    """As in a turn: best first, none below the floor; those without a score stand last, in their order."""
    scored = [(score, p) for score, p in zip(scores, passages, strict=True) if score is not None and (floor is None or score >= floor)]
    unscored = [p for score, p in zip(scores, passages, strict=True) if score is None]
    return [*(p for _, p in sorted(scored, key=lambda pair: -pair[0])), *unscored]
