"""What a user may pass for recall, turned into ports and rules: the main store, further routes, a reranker, what the rewriter can do."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, cast

from langchain_core.cross_encoders import BaseCrossEncoder
from langchain_core.documents import BaseDocumentCompressor
from langchain_core.retrievers import BaseRetriever
from langchain_milvus import Milvus

from crag_middleware.adapters.langchain_retriever import as_retriever_port
from crag_middleware.adapters.passage_embedder import PassageEmbedder
from crag_middleware.adapters.reranker import ModelReranker
from crag_middleware.adapters.routes import MAIN_ROUTE, Route, check_routes, route_ports
from crag_middleware.adapters.tenant_retriever import TenantPlaces
from crag_middleware.errors import ConfigError
from crag_middleware.ledger import RouteRule
from crag_middleware.ports import AsyncReranker, AsyncRetriever, AsyncRewriter, Bound, Reranker, Retriever, Rewriter, bind
from crag_middleware.settings import CRAGSettings
from crag_middleware.steps import MAIN, PortName

AnyReranker = Reranker | AsyncReranker | BaseCrossEncoder | BaseDocumentCompressor
"""A reranker, or one of LangChain's."""


def as_knowledge(
    store: Milvus | TenantPlaces | BaseRetriever | Retriever | AsyncRetriever,
    routes: Route | Sequence[Route],
    *,
    tenant_field: str | None,
    settings: CRAGSettings,
) -> tuple[dict[PortName, Bound], tuple[RouteRule, ...]]:
    """The ports of all that is searched for knowledge, and the rule of each route, the main store's first.

    Raises:
        ConfigError: Something of it can't be searched, or not by tenant.
    """
    compares = settings.near_duplicate is not None or settings.mmr_lambda < 1
    main = as_retriever_port(store, tenant_field=tenant_field, settings=settings, with_vectors=compares)
    further = check_routes(routes)
    ports = {MAIN: bind(main, "retrieve")}
    if _has(main, "neighbours"):
        ports["neighbours"] = bind(main, "neighbours")
    elif settings.neighbours:
        msg = f"`neighbours` needs a retriever that finds them, such as a langchain_milvus.Milvus store, got {type(store).__name__}; leave it at 0"
        raise ConfigError(msg)
    embeddings = getattr(store, "embeddings", None) if isinstance(store, Milvus | TenantPlaces) else None
    if further and embeddings is not None:
        ports["embedder"] = bind(PassageEmbedder(embeddings), "embed")
    for route in further:
        port = bind(route_ports(route, settings), "retrieve")
        sync = port.sync or (None if port.async_ is None else _in_a_loop_of_its_own(port.async_))
        ports[f"route:{route.name}"] = replace(port, label=f"route {route.name!r}", sync=sync)
    return ports, (_main_rule(settings), *(_rule(route, settings) for route in further))


def as_reranker(given: AnyReranker | None) -> Reranker | AsyncReranker | None:
    """The reranker: itself, or one on LangChain's; None if none is given.

    Raises:
        ConfigError: The object can't rerank.
    """
    if given is None or _has(given, "rerank"):
        return cast("Reranker | AsyncReranker | None", given)  # told apart by its methods, which is what the protocols say
    return ModelReranker(cast("BaseCrossEncoder | BaseDocumentCompressor", given))


def floor_of(reranker: object) -> float | None:
    """The reranker's own floor; None if it has none.

    Raises:
        ConfigError: It is no number.
    """
    floor = getattr(reranker, "floor", None)
    if floor is None or (isinstance(floor, int | float) and not isinstance(floor, bool)):
        return floor
    msg = f"a reranker's `floor` must be a number on its own scale, or None, got {type(floor).__name__}"
    raise ConfigError(msg)


def rewriter_ports(rewriter: Rewriter | AsyncRewriter | None, settings: CRAGSettings) -> dict[PortName, Bound]:
    """A port for each thing that the rewriter can do.

    Raises:
        ConfigError: A setting needs what it can't.
    """
    methods = {"rewriter": "rewrite", "keywords": "keywords", "decompose": "decompose", "hypothetical": "hypothetical"}
    can = {port: bind(rewriter, method) for port, method in methods.items() if rewriter is not None and _has(rewriter, method)}
    wanted: list[PortName] = [*(["decompose"] if settings.decompose else []), *settings.query_variants]
    if missing := [f"`{port}`" for port in wanted if port not in can]:
        has = f"{type(rewriter).__name__} has none" if rewriter is not None else "there is no rewriter"
        msg = f"the settings ask for {' and '.join(missing)}, which a rewriter writes, and {has}; give a chat model as `rewriter=`"
        raise ConfigError(msg)
    return can


def _has(port: object, method: str) -> bool:
    return callable(getattr(port, method, None)) or callable(getattr(port, f"a{method}", None))


def _in_a_loop_of_its_own(search: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """The sync form of an async route: `invoke` runs it in a thread, where no loop is. It is cancelled at its deadline there, too."""

    def run(*arguments: Any, **keywords: Any) -> Any:
        async def once() -> Any:
            async with asyncio.timeout(keywords.get("timeout_s")):
                return await search(*arguments, **keywords)

        return asyncio.run(once())

    return run


def _main_rule(settings: CRAGSettings) -> RouteRule:
    return RouteRule(
        name=MAIN_ROUTE,
        port=MAIN,
        k=max(settings.recall_k, settings.top_k),
        timeout_s=settings.retrieve_timeout_s,
        half_life_days=settings.half_life_days,
    )


def _rule(route: Route, settings: CRAGSettings) -> RouteRule:
    return RouteRule(
        name=route.name,
        port=f"route:{route.name}",
        k=route.k or max(settings.recall_k, settings.top_k),
        timeout_s=route.timeout_s or settings.retrieve_timeout_s,
        weight=route.weight,
        half_life_days=route.half_life_days,
        trust=route.trust,
    )
