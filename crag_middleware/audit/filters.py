"""Attacks with conditions and rows: user filters, a store that ignores filters, the chunks beside a passage."""

import copy
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from pymilvus import AnnSearchRequest

from crag_middleware.audit.outcome import Blind, Leak, must_refuse
from crag_middleware.audit.site import HOWS, Site, ask
from crag_middleware.errors import ConfigError, RetrievalError, TenantError
from crag_middleware.knowledge.schema import TENANT
from crag_middleware.knowledge.tenant_rows import one_of
from crag_middleware.settings import CRAGSettings
from crag_middleware.types import Passage


def user_filters(site: Site) -> None:
    """Filters with `or`, with conditions that always hold, with expressions in names and values: refused, or the tenant's own rows only."""
    victim = site.victim.agent_id
    filters: tuple[Any, ...] = (
        'agent_id != ""',
        f'agent_id == "{victim}"',
        ["agent_id"],
        {"source": '" or agent_id != "'},
        {"source": f'x") or (agent_id == "{victim}'},
        {"source": {"in": ['x" or 1 == 1 or "', 'x"] or agent_id not in ["']}},
        {"source": {"ne": "nothing"}},
        {"source": {"or": "x"}},
        {"or": [{"source": "x"}, {"agent_id": victim}]},
        {"$or": [{"agent_id": victim}]},
        {'source" != "" or "x': "y"},
        {'x"] != "" or metadata["y': "z"},
        {"title) or (1 == 1": "x"},
        {"agent_id != '' or title": "x"},
        {"chunk_index": {"gte": -1}, "missing": {"not_in": ["x"]}},
    )
    _try(site, filters)


def filters_on_the_tenant(site: Site) -> None:
    """Filters on `agent_id` itself: the victim's, all but one's own, both, and the order of ids."""
    own, victim = site.attacker.agent_id, site.victim.agent_id
    filters = (
        {"agent_id": victim},
        {"agent_id": {"ne": own}},
        {"agent_id": {"in": [own, victim]}},
        {"agent_id": {"not_in": [own]}},
        {"agent_id": {"gte": ""}},
        {"agent_id": {"lt": own}},
    )
    _try(site, filters)


def store_without_filters(site: Site) -> None:
    """The store gives rows of every tenant whatever the filter, as a broken server does; a retriever of one's own gives rows that say whose they are."""
    place = site.store.place(site.attacker.agent_id)
    if place is None:
        msg = "the attacker's rows are nowhere"
        raise Blind(msg)
    broken = copy.copy(place)
    broken._milvus_client = Unfiltered(place.client, [site.attacker.agent_id, site.victim.agent_id])
    with suppress(TenantError):
        found = site.search(site.attacker.agent_id, retriever=site.retriever(broken))
        site.check_rows(site.attacker, found, "a search whose filter was ignored")
    with suppress(TenantError):
        if broken.count(site.attacker.agent_id) != site.store.count(site.attacker.agent_id):
            msg = "rows of another tenant were counted in a store that ignores filters"
            raise Leak(msg)
    rows = [
        Passage(id=tenant.word, text=f"For {tenant.word}", metadata={"agent_id": tenant.agent_id})
        for tenant in (site.attacker, site.victim)
    ]
    for how in HOWS:
        agent, model = site.agent(site.middleware(knowledge=Fixed(rows)))
        with must_refuse("a retriever's row of another tenant", TenantError):
            ask(agent, how, context={"agent_id": site.attacker.agent_id})
        site.check_none(model.requests, "the model")


def neighbours(site: Site) -> None:
    """The chunks beside the victim's passage are asked for as the attacker, and beside passages made up for any document."""
    retriever = site.retriever()
    if not hasattr(retriever, "neighbours"):
        msg = "the retriever has no `neighbours`"
        raise Blind(msg)
    theirs = [*site.search(site.victim.agent_id, retriever=retriever)]
    made_up = [
        Passage(
            id="x",
            text="x",
            source='" or agent_id != "',
            metadata={"doc_id": f'x" or agent_id == "{site.victim.agent_id}', "chunk_index": 1},
        )
    ]
    asked = {"agent_id": site.attacker.agent_id, "reach": 5, "timeout_s": 10.0}
    for found in retriever.neighbours([*theirs, *made_up], **asked):
        site.check_rows(site.attacker, found, "the chunks beside a passage")
    agent, model = site.agent(site.middleware(settings=CRAGSettings(neighbours=2, top_k=1)))
    site.check(site.attacker, [ask(agent, "sync", context={"agent_id": site.attacker.agent_id}), model.requests], "a turn with neighbours")


class Fixed:
    """A retriever that finds the same for everybody."""

    def __init__(self, found: Sequence[Passage]) -> None:
        self._found = found

    def retrieve(self, question: str) -> Sequence[Passage]:
        """What it was given."""
        return self._found


class Unfiltered:
    """A Milvus client as of a server that ignores filters; it reads no rows but those of the given tenants."""

    def __init__(self, client: Any, tenants: Sequence[str]) -> None:
        self._client = client
        self._canaries = one_of(TENANT, tenants)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def search(self, *arguments: Any, **keywords: Any) -> Any:
        """As the client's."""
        return self._client.search(*arguments, **{**keywords, "filter": self._canaries})

    def query(self, *arguments: Any, **keywords: Any) -> Any:
        """As the client's."""
        return self._client.query(*arguments, **{**keywords, "filter": self._canaries})

    def hybrid_search(self, *arguments: Any, reqs: Sequence[AnnSearchRequest], **keywords: Any) -> Any:
        """As the client's."""
        free = [AnnSearchRequest(r.data, r.anns_field, r.param, limit=r.limit, expr=self._canaries) for r in reqs]
        return self._client.hybrid_search(*arguments, reqs=free, **keywords)


def _try(site: Site, filters: Sequence[Any]) -> None:
    """Passes if a search and a turn under each filter show the attacker no row of another tenant."""
    for condition in filters:
        with suppress(ConfigError, TenantError, RetrievalError):
            retriever = site.retriever(filter=condition)
            for how in HOWS:
                site.check_rows(site.attacker, site.search(site.attacker.agent_id, how=how, retriever=retriever), "a search under a filter")
            agent, model = site.agent(site.middleware(settings=CRAGSettings(filter=condition)))
            ask(agent, "sync", context={"agent_id": site.attacker.agent_id})
            site.check_none(model.requests, "a turn under a filter", but=site.attacker)
    site.check_found(site.attacker)
