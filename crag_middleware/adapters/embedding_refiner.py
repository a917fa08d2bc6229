"""Picking strips by meaning and words together, without a chat model."""

from collections.abc import Sequence

from langchain_core.embeddings import Embeddings

from crag_middleware.adapters.inner_model import model_name
from crag_middleware.adapters.vectors import Vectors
from crag_middleware.errors import RefineError
from crag_middleware.settings import MAX_STRIPS
from crag_middleware.stages.refine import Turn, checked_max_strips
from crag_middleware.stages.worth import VERSION
from crag_middleware.types import EvaluatorKey, Memo, Passage, Strip


class EmbeddingRefiner:
    """A refiner that picks strips by their nearness to the question in meaning and by the words they share with it; works across languages.

    The question is embedded as a query, all strips of a turn in one batch, each text once.

    Args:
        embeddings: Any LangChain embeddings; their similarities are compared within a turn only, so that the scale does not matter.
        max_strips: How many strips are picked of one passage, at least 1; neighbours that must come along are not counted.

    Raises:
        ConfigError: These are no embeddings, or `max_strips` is below 1.
    """

    def __init__(self, embeddings: Embeddings, *, max_strips: int = MAX_STRIPS) -> None:
        self._vectors = Vectors(embeddings, RefineError)
        self._model = model_name(embeddings) or type(embeddings).__name__
        self._max_strips = checked_max_strips(max_strips)

    @property
    def key(self) -> EvaluatorKey:
        """Who picks: a run of `crag eval refinement` belongs to it."""
        return EvaluatorKey(type(self).__name__, self._model, VERSION)

    def refine(self, question: str, passages: Sequence[Passage], *, memo: Memo | None = None) -> tuple[tuple[Strip, ...], ...]:
        """One tuple of strips a passage, in document order.

        Args:
            question: The user's words.
            passages: The passages of one turn.
            memo: Where vectors are kept for the rest of the turn.

        Raises:
            RefineError: The embeddings failed, or returned what are no vectors of one size.
        """
        turn = Turn.of(passages)
        return turn.select(question, near=self._near(question, turn, memo), max_strips=self._max_strips)

    def rank(self, question: str, passages: Sequence[Passage], *, memo: Memo | None = None) -> tuple[tuple[Strip, ...], ...]:
        """Every strip of each passage, in document order, with its worth. Fails as `refine` does."""
        turn = Turn.of(passages)
        return turn.rank(question, near=self._near(question, turn, memo))

    def _near(self, question: str, turn: Turn, memo: Memo | None) -> list[list[float]]:
        texts = [strip for page in turn.pages for strip in page.strips]
        if not texts:
            return [[] for _ in turn.pages]
        asked, vectors = self._vectors.query(question, memo), iter(self._vectors.documents(texts, memo))
        return [[self._vectors.similarity(asked, next(vectors)) for _ in page.strips] for page in turn.pages]
