"""Reranking by nearness in meaning: offline, without a reranking model."""

from collections.abc import Sequence

from langchain_core.embeddings import Embeddings

from crag_middleware.adapters.inner_model import model_name
from crag_middleware.adapters.reranker import MAX_PASSAGE_CHARS, PassageScores, checked_floor
from crag_middleware.adapters.scorer import VERSION, checked_max_chars, scored_text
from crag_middleware.adapters.vectors import Vectors
from crag_middleware.errors import RerankError
from crag_middleware.types import EvaluatorKey, Passage


class EmbeddingReranker:
    """Orders passages by the cosine similarity of question and passage: for where the knowledge is searched with weaker embeddings than can be had for a few.

    Args:
        embeddings: Any LangChain embeddings. Those that the knowledge is searched with already bring nothing but the dense order.
        floor: Passages that score below it are left out of the turn; in [-1, 1], on the scale of these embeddings. None to leave out nothing.
        max_passage_chars: Longer passages are clipped for scoring to head, best-matching window and tail.

    Raises:
        ConfigError: These are no embeddings, or an argument is out of range.
    """

    def __init__(self, embeddings: Embeddings, *, floor: float | None = None, max_passage_chars: int = MAX_PASSAGE_CHARS) -> None:
        self.floor: float | None = checked_floor(floor)
        self._vectors = Vectors(embeddings, RerankError)
        self._model = model_name(embeddings) or type(embeddings).__name__
        self._max_chars = checked_max_chars(max_passage_chars)

    @property
    def key(self) -> EvaluatorKey:
        """Whose scores these are."""
        return EvaluatorKey(type(self).__name__, self._model, VERSION)

    def rerank(self, question: str, passages: Sequence[Passage]) -> PassageScores:
        """The similarity of each passage to the question, in [-1, 1] and in the passages' order; None for a blank one.

        Raises:
            RerankError: The embeddings failed, or returned what are no vectors of one size.
        """
        texts = {place: text for place, p in enumerate(passages) if (text := scored_text(p, question, self._max_chars))}
        if not texts:
            return (None,) * len(passages)
        asked, vectors = self._vectors.query(question), self._vectors.documents(tuple(texts.values()))
        found = {place: self._vectors.similarity(asked, vector) for place, vector in zip(texts, vectors, strict=True)}
        return tuple(found.get(place) for place in range(len(passages)))
