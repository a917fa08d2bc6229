"""Attacks with ids: hostile ones, those that look alike, and none at all."""

import unicodedata
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from crag_middleware.audit.outcome import Leak, must_refuse
from crag_middleware.audit.site import HOWS, Site, Tenant, ask
from crag_middleware.errors import ConfigError, RetrievalError, TenantError
from crag_middleware.knowledge.store import KnowledgeStore

EMPTY: tuple[object, ...] = (None, "", "  ", "\u3000", [], (), {}, 0, 1, False, True, 1.5, b"a", "\ud800")
"""What is no tenant id."""


def hostile(victim: str) -> tuple[str, ...]:
    """Ids of nobody, made to be read as conditions, patterns, lists or shorter forms of the victim's."""
    return (
        f'{victim}" or agent_id != "',
        f"{victim}' or agent_id != '",
        f'x" or agent_id == "{victim}',
        f"x' or agent_id == '{victim}",
        f'x\\" or agent_id == "{victim}',
        f'x\\\\" or agent_id == "{victim}',
        f'x") or (agent_id == "{victim}',
        f'x"] or agent_id in ["{victim}',
        f'x" or agent_id like "{victim[:-1]}%',
        f'x" or 1 == 1 or agent_id == "{victim}',
        f'x"\n or agent_id == "{victim}',
        f'x" /* "*/ or agent_id == "{victim}" -- ',
        f'{victim}", "{victim}',
        f"{victim}\\",
        f"{victim}\\u0000",
        f"{victim}\x00",
        f"{victim}\n",
        f"{victim}\r\n{victim}",
        f"\x1b[2K{victim}",
        f"\u202e{victim}",
        f"{victim}%",
        f"{victim[:-1]}%",
        f"{victim[:-1]}_",
        victim[:-1],
        f"{victim}{'x' * 300}",
    )


def look_alike(victim: str) -> tuple[str, ...]:
    """Other tenants' ids that a store or a filter may take for the victim's."""
    made = (
        victim.upper(),
        victim.lower(),
        f"{victim} ",
        f" {victim}",
        f"{victim}\t",
        f"{victim}\u200b",
        f"\ufeff{victim}",
        unicodedata.normalize("NFD", victim),
        victim.replace("\u00e9", "e"),
        victim.replace("e", "\u0435"),  # Cyrillic
        victim.replace("T", "\uff34"),  # full width
    )
    return tuple(dict.fromkeys(made))


def hostile_ids(site: Site) -> None:
    """Ids with quotes, backslashes, newlines, `or`, wildcards or control characters, beginnings of ids and very long ones find, count and list nothing."""
    retriever = site.retriever()
    for agent_id in hostile(site.victim.agent_id):
        for how in HOWS:
            with suppress(TenantError, RetrievalError):
                site.check_rows(None, site.search(agent_id, how=how, retriever=retriever), "a search with a hostile id")
        with suppress(TenantError, ConfigError, RetrievalError):
            if site.store.count(agent_id) or site.store.sources(agent_id):
                msg = "rows of others were counted or listed for a hostile id"
                raise Leak(msg)
    site.check_found(site.victim)


def look_alike_ids(site: Site) -> None:
    """Tenants whose ids differ in case, white space, normalisation or letters that look alike find their own rows and nobody else's."""
    others = [Tenant(agent_id, site.new_word()) for agent_id in look_alike(site.victim.agent_id)]
    for other in others:
        site.plant(other)
    for tenant in (site.victim, *others):
        site.check_found(tenant)


def empty_scopes(site: Site) -> None:
    """None, blank texts, numbers, lists, bytes and invalid Unicode as `agent_id` of a search, an agent, an ingest and an operator's command are refused."""
    retriever = site.retriever()
    agent, model = site.agent()
    entrances: dict[str, Callable[[Any], object]] = {
        "a search": lambda bad: site.search(bad, retriever=retriever),
        "an async search": lambda bad: site.search(bad, how="async", retriever=retriever),
        "a turn": lambda bad: ask(agent, "sync", context={"agent_id": bad}),
        "an async turn": lambda bad: ask(agent, "async", context={"agent_id": bad}),
        "`count`": site.store.count,
        "`sources`": site.store.sources,
        "an ingest": lambda bad: _write_and_delete(site, bad),
    }
    for bad in EMPTY:
        for entrance, enter in entrances.items():
            with must_refuse(f"{entrance} for {type(bad).__name__} as a tenant id", TenantError):
                enter(bad)
    site.check_none(model.requests, "the model of an agent without a tenant")


def _write_and_delete(site: Site, bad: object) -> None:
    """Writes a row for what is no tenant, and deletes it by its id, since `purge` refuses such tenants."""
    ids = site.store.add_texts(["An audit lamp of nobody."], [{"agent_id": bad}])
    if isinstance(site.store, KnowledgeStore):
        site.store.delete(ids=ids)
