"""Measuring retrieval: what each leg, their fusion, a reranker and the choice for variety bring up, on questions whose relevant documents are known."""

from crag_middleware.evals.retrieval.report import RetrievalReport
from crag_middleware.evals.retrieval.session import measure_retrieval

__all__ = ["RetrievalReport", "measure_retrieval"]
