"""Evaluators, refiners, claim checkers and web searches by name, for the command line."""

import importlib
import inspect
from collections.abc import Sequence
from typing import Any

from langchain.chat_models import init_chat_model
from langchain_core.embeddings import Embeddings

from crag_middleware.adapters.bocha import BochaWebSearch
from crag_middleware.adapters.cascade import CascadeEvaluator
from crag_middleware.adapters.chat_claim_checker import ChatModelClaimChecker
from crag_middleware.adapters.chat_model import ChatModelEvaluator
from crag_middleware.adapters.chat_refiner import ChatModelRefiner
from crag_middleware.adapters.claim_checkers import WordClaimChecker
from crag_middleware.adapters.embedding_evaluator import EmbeddingEvaluator
from crag_middleware.adapters.embedding_refiner import EmbeddingRefiner
from crag_middleware.adapters.embedding_reranker import EmbeddingReranker
from crag_middleware.adapters.given import as_evaluator
from crag_middleware.adapters.given_recall import AnyReranker, as_reranker
from crag_middleware.adapters.inner_model import ChatModel
from crag_middleware.adapters.local_embeddings import E5Embeddings, LocalEmbeddings
from crag_middleware.adapters.reranker_evaluator import RerankerEvaluator
from crag_middleware.adapters.tavily import TavilyWebSearch
from crag_middleware.adapters.token_claim_checker import TokenProbabilityClaimChecker
from crag_middleware.adapters.token_probability import TokenProbabilityEvaluator
from crag_middleware.adapters.web_chain import WebSearchChain
from crag_middleware.errors import ConfigError
from crag_middleware.ports import (
    AsyncClaimChecker,
    AsyncEvaluator,
    AsyncRefiner,
    AsyncWebSearch,
    ClaimChecker,
    Evaluator,
    Refiner,
    WebSearch,
    bind,
)
from crag_middleware.stages.refine import WordRefiner

NAMES = ("embedding", "e5", "chat", "token", "reranker", "cascade")
WEB_SEARCHES = ("tavily", "bocha")
REFINERS = ("words", "embedding", "e5", "chat")
CHECKERS = ("words", "chat", "token")
EMBEDDINGS = ("local", "e5")
"""Besides these, `package.module:attribute` names one's own."""

_ON_A_MODEL = ("chat", "token", "cascade")


def named_evaluator(
    name: str, *, model: str | None = None, base_url: str | None = None, reranker: str | None = None
) -> Evaluator | AsyncEvaluator:
    """The evaluator of that name.

    Args:
        name: One of `NAMES`, or `package.module:attribute` for an evaluator, a class of one or a function that returns one, without arguments.
        model: The chat model as `provider:name`, for those that ask one; None for the default.
        base_url: Where the model's server is; needs `model`.
        reranker: The reranker as `package.module:attribute`, for the evaluator `reranker`.

    Raises:
        ConfigError: There is none of that name, it can't be built, or it has no use for an argument.
    """
    _check_model("evaluator", name, model or base_url, _ON_A_MODEL)
    if bool(reranker) != (name == "reranker"):
        msg = "the evaluator 'reranker', and no other, needs a reranker as package.module:attribute"
        raise ConfigError(msg)
    match name:
        case "embedding":
            return EmbeddingEvaluator(LocalEmbeddings())
        case "e5":
            return EmbeddingEvaluator(E5Embeddings())
        case "chat":
            return ChatModelEvaluator(_chat_model(model, base_url))
        case "token":
            return TokenProbabilityEvaluator(_chat_model(model, base_url))
        case "reranker":
            return RerankerEvaluator(_imported(reranker or ""))
        case "cascade":
            return CascadeEvaluator(EmbeddingEvaluator(LocalEmbeddings()), _chat_model(model, base_url))
    return as_evaluator(_own("evaluator", name, NAMES))


def named_refiner(name: str, *, model: str | None = None, base_url: str | None = None) -> Refiner | AsyncRefiner:
    """The refiner of that name.

    Args:
        name: One of `REFINERS`, or `package.module:attribute` for a refiner, a class of one or a function that returns one, without arguments.
        model: The chat model as `provider:name`, for the one that asks one; None for the default.
        base_url: Where the model's server is; needs `model`.

    Raises:
        ConfigError: There is none of that name, it can't be built, or it has no use for an argument.
    """
    _check_model("refiner", name, model or base_url, ("chat",))
    match name:
        case "words":
            return WordRefiner()
        case "embedding":
            return EmbeddingRefiner(LocalEmbeddings())
        case "e5":
            return EmbeddingRefiner(E5Embeddings())
        case "chat":
            return ChatModelRefiner(_chat_model(model, base_url))
    found: Refiner | AsyncRefiner = _own("refiner", name, REFINERS)
    bind(found, "refine")
    return found


def named_checker(name: str, *, model: str | None = None, base_url: str | None = None) -> ClaimChecker | AsyncClaimChecker:
    """The claim checker of that name.

    Args:
        name: One of `CHECKERS`, or `package.module:attribute` for a claim checker, a class of one or a function that returns one, without arguments.
        model: The chat model as `provider:name`, for those that ask one; None for the default.
        base_url: Where the model's server is; needs `model`.

    Raises:
        ConfigError: There is none of that name, it can't be built, or it has no use for an argument.
    """
    _check_model("claim checker", name, model or base_url, ("chat", "token"))
    match name:
        case "words":
            return WordClaimChecker()
        case "chat":
            return ChatModelClaimChecker(_chat_model(model, base_url))
        case "token":
            return TokenProbabilityClaimChecker(_chat_model(model, base_url))
    found: ClaimChecker | AsyncClaimChecker = _own("claim checker", name, CHECKERS)
    bind(found, "check")
    return found


def named_embeddings(name: str) -> Embeddings:
    """The embeddings of that name.

    Args:
        name: Of `EMBEDDINGS`, or `package.module:attribute` for embeddings, a class of them or a function that returns them, without arguments.

    Raises:
        ConfigError: There are none, or they can't be built.
    """
    match name:
        case "local":
            return LocalEmbeddings()
        case "e5":
            return E5Embeddings()
    found = _own("embeddings", name, EMBEDDINGS)
    if not isinstance(found, Embeddings):
        msg = f"{name!r} must be LangChain embeddings, got {type(found).__name__}"
        raise ConfigError(msg)
    return found


def named_reranker(name: str) -> AnyReranker:
    """The reranker of that name.

    Args:
        name: `e5`, or `package.module:attribute` for a reranker, one of LangChain's, a class of one or a function that returns one, without arguments.

    Raises:
        ConfigError: There is none, or it can't be built or rerank.
    """
    if name == "e5":
        return EmbeddingReranker(E5Embeddings())
    found: AnyReranker = _own("reranker", name, ("e5",))
    as_reranker(found)
    return found


def named_web_search(names: Sequence[str]) -> WebSearchChain:
    """The web searches of these names, asked in this order; their keys come from the environment.

    Args:
        names: Of `WEB_SEARCHES`, or `package.module:attribute` for a web search, a class of one or a function that returns one, without arguments.

    Raises:
        ConfigError: There is none of a name, or it can't be built, such as without its key.
    """
    return WebSearchChain(*map(_named_web_search, names))


def _named_web_search(name: str) -> WebSearch | AsyncWebSearch:
    match name:
        case "tavily":
            return TavilyWebSearch()
        case "bocha":
            return BochaWebSearch()
    found: WebSearch | AsyncWebSearch = _own("web search", name, WEB_SEARCHES)
    bind(found, "search")
    return found


def _check_model(kind: str, name: str, given: str | None, served: Sequence[str]) -> None:
    """Passes if no model is given, or to one that asks one."""
    if given and name not in served:
        msg = f"a model or base URL means nothing to the {kind} {name!r}; it is for {', '.join(served)}"
        raise ConfigError(msg)


def _own(kind: str, name: str, known: Sequence[str]) -> Any:
    """One's own, by name."""
    if ":" not in name:
        msg = f"there is no {kind} {name!r}; there are {', '.join(known)}, and one's own as package.module:attribute"
        raise ConfigError(msg)
    return _imported(name)


def _chat_model(model: str | None, base_url: str | None) -> ChatModel | str | None:
    """What the evaluators take for a chat model."""
    if base_url is None:
        return model
    if model is None:
        msg = "a base URL needs a model as provider:name, such as openai:my-model for a server that speaks OpenAI's protocol"
        raise ConfigError(msg)
    try:
        return init_chat_model(model, base_url=base_url)
    except Exception as error:
        cause = str(error) if isinstance(error, ImportError) else type(error).__name__
        msg = (
            f"the chat model {model!r} can't be built ({cause}); a local server needs an API key to be set too, such as OPENAI_API_KEY=none"
        )
        raise ConfigError(msg, reason="no_model") from error


def _imported(name: str) -> Any:
    """What stands at `package.module:attribute`; a class or a function is called."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        msg = f"{name!r} can't be imported ({error}); it must be package.module:attribute"
        raise ConfigError(msg) from error
    if not inspect.isclass(found) and not inspect.isroutine(found):
        return found
    try:
        inspect.signature(found).bind()
    except TypeError as error:
        msg = f"{name!r} must be callable without arguments, and it is not: {error}"
        raise ConfigError(msg) from error
    return found()
