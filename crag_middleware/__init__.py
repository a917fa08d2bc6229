"""Corrective RAG as a LangChain middleware: `create_agent(..., middleware=[CRAGMiddleware(...)])`."""

from crag_middleware.adapters.bocha import BochaWebSearch
from crag_middleware.adapters.cascade import CascadeEvaluator
from crag_middleware.adapters.chat_claim_checker import ChatModelClaimChecker
from crag_middleware.adapters.chat_model import ChatModelEvaluator, ChatModelRewriter
from crag_middleware.adapters.chat_refiner import ChatModelRefiner
from crag_middleware.adapters.claim_checkers import WordClaimChecker
from crag_middleware.adapters.compressors import CompressorRefiner, RefinerCompressor
from crag_middleware.adapters.embedding_evaluator import EmbeddingEvaluator
from crag_middleware.adapters.embedding_refiner import EmbeddingRefiner
from crag_middleware.adapters.embedding_reranker import EmbeddingReranker
from crag_middleware.adapters.langchain_retriever import LangChainRetriever
from crag_middleware.adapters.langchain_search import LangChainWebSearch
from crag_middleware.adapters.local_embeddings import E5Embeddings, LocalEmbeddings
from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.adapters.reranker import ModelReranker
from crag_middleware.adapters.reranker_evaluator import RerankerEvaluator
from crag_middleware.adapters.routes import Route
from crag_middleware.adapters.tavily import TavilyWebSearch
from crag_middleware.adapters.token_claim_checker import TokenProbabilityClaimChecker
from crag_middleware.adapters.token_probability import TokenProbabilityEvaluator
from crag_middleware.adapters.web_chain import WebSearchChain
from crag_middleware.alarm import Health
from crag_middleware.calibration import Calibration, load_calibration
from crag_middleware.errors import (
    ClaimCheckError,
    ConfigError,
    CRAGError,
    GradingError,
    IngestError,
    RefineError,
    RerankError,
    RetrievalError,
    RewriteError,
    TenantError,
    WebSearchError,
)
from crag_middleware.knowledge.isolation import TenantStores
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.knowledge.store import KnowledgeStore
from crag_middleware.knowledge.write_back import WriteBack, forget, written_back
from crag_middleware.middleware import CRAGMiddleware
from crag_middleware.receipt import explain
from crag_middleware.settings import DEFAULT_MODEL, CRAGSettings
from crag_middleware.stages.refine import WordRefiner
from crag_middleware.types import Checked, Claim, EvaluatorKey, Exchange, Grade, Ground, Passage, Strip, Thresholds
from crag_middleware.web_policy import EvidenceScores, WebPolicy

__all__ = [
    "DEFAULT_MODEL",
    "BochaWebSearch",
    "CRAGError",
    "CRAGMiddleware",
    "CRAGSettings",
    "Calibration",
    "CascadeEvaluator",
    "ChatModelClaimChecker",
    "ChatModelEvaluator",
    "ChatModelRefiner",
    "ChatModelRewriter",
    "Checked",
    "Claim",
    "ClaimCheckError",
    "CompressorRefiner",
    "ConfigError",
    "E5Embeddings",
    "EmbeddingEvaluator",
    "EmbeddingRefiner",
    "EmbeddingReranker",
    "EvaluatorKey",
    "EvidenceScores",
    "Exchange",
    "Grade",
    "GradingError",
    "Ground",
    "Health",
    "IngestError",
    "KnowledgeStore",
    "LangChainRetriever",
    "LangChainWebSearch",
    "LocalEmbeddings",
    "MilvusRetriever",
    "ModelReranker",
    "Passage",
    "RefineError",
    "RefinerCompressor",
    "RerankError",
    "RerankerEvaluator",
    "RetrievalError",
    "RewriteError",
    "Route",
    "Strip",
    "TavilyWebSearch",
    "TenantError",
    "TenantStores",
    "Thresholds",
    "TokenProbabilityClaimChecker",
    "TokenProbabilityEvaluator",
    "WebPolicy",
    "WebSearchChain",
    "WebSearchError",
    "WordClaimChecker",
    "WordRefiner",
    "WriteBack",
    "explain",
    "forget",
    "load_calibration",
    "open_knowledge",
    "written_back",
]
