"""Further places to search beside the main store: what a user may give as a route, and the retriever port that is made of it."""

import math
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from numbers import Integral, Real

from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import VectorStoreRetriever
from langchain_milvus import Milvus

from crag_middleware.adapters.langchain_retriever import as_retriever_port
from crag_middleware.adapters.milvus_schema import split_key
from crag_middleware.adapters.route_search import RoutePort, of_methods, of_retriever
from crag_middleware.adapters.rows import OWNER
from crag_middleware.adapters.tenant_retriever import TenantPlaces
from crag_middleware.errors import ConfigError
from crag_middleware.ports import AsyncRetriever, Retriever
from crag_middleware.settings import CRAGSettings
from crag_middleware.types import Passage

MAIN_ROUTE = "knowledge"
"""The name of the main store's own route."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

Listed = Sequence[Passage | Document]
Searchable = Milvus | TenantPlaces | BaseRetriever | Retriever | AsyncRetriever | Callable[..., Listed] | Callable[..., Awaitable[Listed]]
"""What a route may search: a store, one for each tenant, a LangChain retriever, an object with `retrieve` or `aretrieve`, a function, sync or async."""


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """A place that is searched beside the main store, at the same time (docs/routes.md).

    Attributes:
        name: What receipts call it: a letter followed by at most 63 letters, digits, `_` or `-`. `knowledge` is the main store's.
        retriever: Knowledge of `open_knowledge`, or another `langchain_milvus.Milvus` store; a LangChain retriever; an object with `retrieve` or `aretrieve`;
            or a function `search(question, *, agent_id, limit, timeout_s)`, sync or async. Methods and functions are passed only the keywords that they
            name, and return passages or LangChain documents, best first.
        weight: How much its ranks count in the fusion, beside 1 of the main store; above 0, at most 100.
        timeout_s: Deadline of one search in it, in seconds, above 0, at most 600; None for the settings' `retrieve_timeout_s`.
        k: How many passages it brings at most, 1 to 200; None for the settings' `recall_k`.
        trust: What its source is worth, in [0, 1]: the `evidence_score` of its passages; None for what the tenant's own knowledge is worth.
        public: Whether all that it can find is everybody's. It is then never told whose question it is, and every tenant sees what it returns.
        half_life_days: After how many days one of its passages counts half, above 0, at most 36500; None for never.
        tenant_field: Where a row of a store, or a document of a LangChain retriever, names its tenant; None for `agent_id`.

    Raises:
        ConfigError: Something of this can't work, or the route can neither be told whose question it is nor is declared public.
    """

    name: str
    retriever: Searchable = field(repr=False)
    _: KW_ONLY
    weight: float = 1.0
    timeout_s: float | None = None
    k: int | None = None
    trust: float | None = None
    public: bool = False
    half_life_days: float | None = None
    tenant_field: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name) or self.name == MAIN_ROUTE:
            msg = (
                "a route's `name` must be a letter followed by at most 63 letters, digits, `_` or `-`, and other than the main store's "
                f"{MAIN_ROUTE!r}, got {self.name!r}"
            )
            raise ConfigError(msg)
        try:
            self._check()
        except ConfigError as error:
            raise self.refused(error) from None

    def refused(self, error: ConfigError) -> ConfigError:
        """The error, said of this route."""
        return ConfigError(f"route {self.name!r}: {error}")

    def _check(self) -> None:
        """Passes if a port can be made of it, as far as that can be told without asking a store."""
        if wrong := [*_wrong_numbers(self)]:
            raise ConfigError("; ".join(wrong))
        if not isinstance(self.public, bool):
            msg = f"`public` must be True or False, got {type(self.public).__name__}"
            raise ConfigError(msg)
        if isinstance(self.retriever, type):
            msg = f"`retriever` must be an instance, got the class {self.retriever.__name__}; write {self.retriever.__name__}(...)"
            raise ConfigError(msg)
        if self.tenant_field is not None:
            split_key(self.tenant_field)
            if self.public or not isinstance(self.retriever, Milvus | BaseRetriever):
                who = (
                    "public route"
                    if self.public
                    else f"{type(self.retriever).__name__}, which is passed `agent_id` and finds the tenant's rows itself"
                )
                msg = f"`tenant_field` does nothing for a {who}; leave it out"
                raise ConfigError(msg)
        store = _milvus(self.retriever)
        if store is not None:
            if self.public:
                _check_shared(store, by_langchain=store is not self.retriever)
        else:
            _port(self)


def _wrong_numbers(route: Route) -> Iterator[str]:
    """What is wrong with its numbers."""
    for name, low, high in (("weight", 0, 100), ("timeout_s", 0, 600), ("k", 1, 200), ("trust", 0, 1), ("half_life_days", 0, 36_500)):
        value = getattr(route, name)
        is_open, kind = name not in ("k", "trust"), Integral if name == "k" else Real
        if value is None and name != "weight":
            continue
        is_number = isinstance(value, kind) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or not low <= value <= high or (is_open and value == low):
            what = "a whole number" if name == "k" else "a number"
            yield f"`{name}` must be {what} {f'above {low} and at most {high}' if is_open else f'from {low} to {high}'}, got {value!r}"


def _check_shared(store: Milvus | TenantPlaces, *, by_langchain: bool) -> None:
    """Passes if a Milvus store can be everybody's: our search keeps to one tenant's rows, LangChain's to nobody's."""
    if by_langchain and isinstance(store, Milvus) and OWNER not in store.fields:
        return
    msg = (
        "a Milvus store can't be public as it is: its search keeps to one tenant's rows. Where everybody's rows stand under an id of their own, search as that "
        "one: `functools.partial(MilvusRetriever(store).retrieve, agent_id='...')`; the rows of a collection without a column "
        f"`{OWNER}` can be found by LangChain's own search, `store.as_retriever(search_kwargs={{'k': 20}})`"
    )
    raise ConfigError(msg)


def check_routes(routes: Route | Sequence[Route] | None) -> tuple[Route, ...]:
    """The routes as a tuple: a single one may stand for itself, and None for none.

    Raises:
        ConfigError: Something else is among them, or two have one name.
    """
    given = (routes,) if isinstance(routes, Route) else () if routes is None else routes
    listed = isinstance(given, list | tuple)
    if wrong := [type(r).__name__ for r in given if not isinstance(r, Route)] if listed else [type(given).__name__]:
        msg = f"`routes` must be a list of `Route(name, retriever, ...)`, got {', '.join(wrong)}"
        raise ConfigError(msg)
    names = [route.name for route in given]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        msg = f"routes must have names of their own, got {', '.join(map(repr, repeated))} more than once"
        raise ConfigError(msg)
    return tuple(given)


def route_ports(route: Route, settings: CRAGSettings) -> Retriever | AsyncRetriever | RoutePort:
    """The retriever port of a route, ready for `ports.bind`. Its weight, trust and limits are for whoever asks it.

    Args:
        route: The route.
        settings: `candidates`, `rrf_k`, `min_confidence`, `filter` and `explain` count for a Milvus store, and for nothing else. One with other conditions
            than the main store's is given as a `MilvusRetriever` with settings of its own.

    Raises:
        ConfigError: A Milvus store's collection is missing, its rows can't be told apart by tenant, or a filter names what it does not have.
    """
    if _milvus(route.retriever) is None or route.public:
        return _port(route)
    try:
        return as_retriever_port(route.retriever, tenant_field=route.tenant_field, settings=settings)
    except ConfigError as error:
        raise route.refused(error) from None


def _port(route: Route) -> RoutePort:
    """The port of anything but a tenant's rows in Milvus."""
    if isinstance(route.retriever, BaseRetriever):
        return of_retriever(route.retriever, public=route.public, tenant_field=route.tenant_field)
    return of_methods(route.retriever, name=route.name, public=route.public)


def _milvus(given: object) -> Milvus | TenantPlaces | None:
    """The Milvus store that is given, or one for each tenant, or that a given retriever searches."""
    store = given.vectorstore if isinstance(given, VectorStoreRetriever) else given
    return store if isinstance(store, Milvus | TenantPlaces) else None
