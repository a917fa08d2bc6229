"""Embeds passages that came without a vector, as those of the main store were embedded, so that all can be compared."""

from collections.abc import Sequence

from langchain_core.embeddings import Embeddings

from crag_middleware.adapters.vectors import Vector, Vectors
from crag_middleware.errors import RetrievalError
from crag_middleware.types import Memo


class PassageEmbedder:
    """The port `embedder`.

    Args:
        embeddings: The main store's.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self._vectors = Vectors(embeddings, RetrievalError)

    def embed(self, texts: Sequence[str], *, memo: Memo) -> tuple[Vector, ...]:
        """A vector of length 1 for each text.

        Raises:
            RetrievalError: The embeddings failed, or returned what are no vectors.
        """
        return self._vectors.documents(texts, memo)
