"""The collections that are searched: in Milvus Lite, in a temporary folder, one for each set of documents."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_core.embeddings import Embeddings
from milvus_lite.server_manager import server_manager_instance  # type: ignore[import-untyped]  # it has no types

from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.evals.retrieval.questions import Corpus
from crag_middleware.evals.retrieval.ways import BM25, DENSE, RRF
from crag_middleware.evals.runner import TENANT
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.knowledge.rows import batched
from crag_middleware.knowledge.schema import DENSE as DENSE_FIELD
from crag_middleware.knowledge.schema import SPARSE as BM25_FIELD
from crag_middleware.settings import CRAGSettings

AT_ONCE = 256
"""Documents stored before progress is told."""

Retrievers = Mapping[str, MilvusRetriever]
"""By way: the two legs alone, and their fusion."""


class Shelves:
    """Documents as `open_knowledge` stores them, one collection for each corpus, made when it is first asked for. To be closed at the end.

    Args:
        embeddings: Makes the dense vectors.
        settings: For the retrievers.
        told: Called with how many documents there are, when a corpus is asked for first, and with how many were stored since it was called last.
    """

    def __init__(self, embeddings: Embeddings, settings: CRAGSettings, told: Callable[[int, int], object]) -> None:
        self._embeddings = embeddings
        self._settings = settings
        self._told = told
        self._folder = TemporaryDirectory(prefix="crag-eval-")
        self._file = str(Path(self._folder.name) / "documents.db")
        self._retrievers: dict[str, Retrievers] = {}

    def retrievers(self, corpus: Corpus) -> Retrievers:
        """The ways to search these documents.

        Raises:
            ConfigError: A document can't be stored.
            IngestError: Embedding or storing failed.
        """
        if corpus.digest not in self._retrievers:
            self._retrievers[corpus.digest] = self._stored(corpus)
        return self._retrievers[corpus.digest]

    def close(self) -> None:
        """Removes all of it."""
        server_manager_instance.release_server(self._file)
        self._folder.cleanup()

    def _stored(self, corpus: Corpus) -> Retrievers:
        store = open_knowledge(
            self._file,
            self._embeddings,
            collection=f"corpus_{len(self._retrievers)}",
            language=corpus.language,
            # pymilvus shares other connections by address, and would take a later file on the same port for this one.
            connection_args={"dedicated": True},
        )
        documents = [(name, text) for name, text in corpus.texts.items() if text]
        self._told(len(documents), 0)
        for batch in batched(documents, AT_ONCE):
            store.add_texts([text for _, text in batch], ids=[name for name, _ in batch], agent_id=TENANT)
            self._told(0, len(batch))
        # Lite indexes on flush: until then each search reads every row anew, ten to twenty times as slow.
        store.client.flush(store.collection_name)
        fused = MilvusRetriever(store, settings=self._settings, with_vectors=True)
        return {DENSE: _only(fused, DENSE_FIELD), BM25: _only(fused, BM25_FIELD), RRF: fused}


def _only(retriever: MilvusRetriever, field: str) -> MilvusRetriever:
    """The same with one of its legs."""
    alone = copy(retriever)
    alone._layout = replace(retriever._layout, legs=tuple(leg for leg in retriever._layout.legs if leg.field == field))
    return alone
