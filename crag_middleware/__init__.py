"""Corrective RAG as a LangChain middleware: `create_agent(..., middleware=[CRAGMiddleware(...)])`."""

from crag_middleware.adapters.chat_model import ChatModelEvaluator, ChatModelRewriter
from crag_middleware.adapters.embedding_evaluator import EmbeddingEvaluator
from crag_middleware.adapters.langchain_retriever import LangChainRetriever
from crag_middleware.adapters.local_embeddings import LocalEmbeddings
from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.adapters.tavily import TavilyWebSearch
from crag_middleware.errors import (
    ConfigError,
    CRAGError,
    GradingError,
    IngestError,
    RefineError,
    RetrievalError,
    RewriteError,
    TenantError,
    WebSearchError,
)
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.knowledge.store import KnowledgeStore
from crag_middleware.middleware import CRAGMiddleware
from crag_middleware.receipt import explain
from crag_middleware.settings import DEFAULT_MODEL, CRAGSettings
from crag_middleware.stages.refine import WordRefiner
from crag_middleware.types import Exchange, Grade, Passage, Strip, Thresholds

__all__ = [
    "DEFAULT_MODEL",
    "CRAGError",
    "CRAGMiddleware",
    "CRAGSettings",
    "ChatModelEvaluator",
    "ChatModelRewriter",
    "ConfigError",
    "EmbeddingEvaluator",
    "Exchange",
    "Grade",
    "GradingError",
    "IngestError",
    "KnowledgeStore",
    "LangChainRetriever",
    "LocalEmbeddings",
    "MilvusRetriever",
    "Passage",
    "RefineError",
    "RetrievalError",
    "RewriteError",
    "Strip",
    "TavilyWebSearch",
    "TenantError",
    "Thresholds",
    "WebSearchError",
    "WordRefiner",
    "explain",
    "open_knowledge",
]
