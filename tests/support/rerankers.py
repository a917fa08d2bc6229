"""Rerankers by common words: real subclasses of LangChain's cross-encoder and document compressor."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor, Document

from tests.support.milvus import words


def overlap(query: str, text: str) -> float:
    """The share of the query's words that the text has."""
    asked = set(words(query))
    return len(asked & set(words(text))) / max(1, len(asked))


class WordEncoder(BaseCrossEncoder):
    """Scores pairs by common words: as probabilities, or as log odds as a model without an activation does."""

    model_name = "word-encoder"

    def __init__(self, *, logits: bool = False, read: Callable[[list[float]], Any] = list) -> None:
        self.logits, self.read = logits, read
        self.asked: list[list[tuple[str, str]]] = []

    def score(self, text_pairs: list[tuple[str, str]]) -> list[float]:
        self.asked.append(text_pairs)
        shares = [overlap(query, text) for query, text in text_pairs]
        return self.read([20 * share - 8 for share in shares] if self.logits else shares)


class WordReranker(BaseDocumentCompressor):
    """Keeps the best documents with their scores, best first, as hosted rerankers do."""

    model: str = "word-reranker"
    top_n: int | None = 2
    floor: float = -1.0
    key: str = "relevance_score"
    loses_metadata: bool = False

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Sequence[Document]:
        ranked = sorted(((overlap(query, d.page_content), d) for d in documents), key=lambda pair: -pair[0])
        kept = [(score, d) for score, d in ranked if score >= self.floor][: self.top_n]
        return [
            Document(d.page_content, metadata={**({} if self.loses_metadata else deepcopy(d.metadata)), self.key: score})
            for score, d in kept
        ]
