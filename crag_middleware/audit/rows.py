"""Attacks on what is written, listed, taken out and deleted: ingest and the operator's commands."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from langchain_core.documents import Document

from crag_middleware.adapters.claim_checkers import WordClaimChecker
from crag_middleware.audit.outcome import Blind, Leak, must_refuse
from crag_middleware.audit.sharing import CanaryWeb, page_text
from crag_middleware.audit.site import CHUNKS, SOURCE, Site, Tenant, ask, awaited
from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.knowledge.schema import RESERVED
from crag_middleware.knowledge.write_back import WriteBack, written_back


def forged_metadata(site: Site) -> None:
    """Metadata that names the victim as `agent_id`, nested too, or that brings reserved keys: the caller's tenant keeps the row, or it is refused."""
    one, other = site.new_tenant(rows=False), site.new_tenant()
    text = f"The audit lamp shines at night for {one.word}."
    claims = dict.fromkeys(("agent_id", "tenant", "user_id", "namespace", "partition"), other.agent_id)
    forged: tuple[dict[str, Any], ...] = (claims, {"metadata": claims})
    for given in forged:
        with suppress(TenantError, ConfigError):
            site.write(one.agent_id, [text], [given])
    reserved: list[dict[str, Any]] = [{"metadata": {"id": "x"}}, *({key: "x"} for key in sorted(RESERVED))]
    for metadata in reserved:
        with must_refuse("metadata with a reserved key", ConfigError, TenantError):
            site.write(one.agent_id, [text], [metadata])
    site.check_rows(other, site.search(other.agent_id), "the search of a tenant that metadata named")
    _expect(site, other, "metadata moved a row to another tenant")


def foreign_ids(site: Site) -> None:
    """The ids of another tenant's rows are written with the attacker's texts, in each way of writing: refused, or that tenant's rows stay."""
    other = site.new_tenant()
    ids, store = site.plant(other), site.store
    texts = [f"The audit lamp shines at night for {site.attacker.word}."] * CHUNKS
    owned = [{"agent_id": site.attacker.agent_id}] * CHUNKS
    documents = [Document(text, id=id_, metadata=dict(owner)) for text, id_, owner in zip(texts, ids, owned, strict=True)]
    ways: dict[str, Callable[[], object]] = {
        "`add_texts`": lambda: store.add_texts(texts, ids=ids, agent_id=site.attacker.agent_id),
        "`add_documents`": lambda: store.add_documents(documents),
        "`upsert`": lambda: store.upsert(ids, documents),
        "`aadd_texts`": lambda: awaited(lambda: store.aadd_texts(texts, ids=ids, agent_id=site.attacker.agent_id)),
    }
    for way, write in ways.items():
        with suppress(TenantError, ConfigError):
            write()
        _expect(site, other, f"{way} replaced another tenant's rows")
    site.check_found(other)


def operators_commands(site: Site) -> None:
    """`sources`, `count`, `export`, `delete_source` and `purge` for one tenant, whose documents have the names of another one's."""
    one, other = site.new_tenant(), site.new_tenant()
    listed = [(source.source, source.chunks) for source in site.store.sources(one.agent_id)]
    if site.store.count(one.agent_id) != CHUNKS or listed != [(SOURCE, CHUNKS)]:
        msg = "a tenant's rows were counted or listed with others'"
        raise Leak(msg)
    with tempfile.TemporaryDirectory(prefix="crag-audit-") as folder:
        target = Path(folder, "export.jsonl")
        site.store.export(one.agent_id, target)
        site.check(one, target.read_text(encoding="utf-8"), "an export")
    site.store.delete_source(one.agent_id, SOURCE)
    _expect(site, other, "a document of another tenant was deleted with one of the same name")
    site.plant(one)
    site.store.purge(one.agent_id)
    _expect(site, other, "rows of another tenant were purged")
    site.check_rows(None, site.search(one.agent_id), "a search for a tenant that was purged")


def kept_web_pages(site: Site) -> None:
    """A web page that is kept after one tenant's answer is neither listed nor found for another one."""
    one, other = site.new_tenant(rows=False), site.new_tenant()
    middleware = site.middleware(web_search=CanaryWeb([one]), claim_checker=WordClaimChecker(), write_back=WriteBack(site.store))
    agent, _ = site.agent(middleware, reply=f"{page_text(one.word)} [1]")
    ask(agent, "sync", context={"agent_id": one.agent_id})
    if not written_back(site.store, one.agent_id):
        msg = "no web page was kept"
        raise Blind(msg)
    if written_back(site.store, other.agent_id):
        msg = "a web page that was kept for one tenant is listed for another one"
        raise Leak(msg)
    site.check_rows(other, site.search(other.agent_id), "the search of another tenant than the page was kept for")


def _expect(site: Site, tenant: Tenant, otherwise: str) -> None:
    """Passes if the tenant has the rows that it was given."""
    if site.store.count(tenant.agent_id) != CHUNKS:
        raise Leak(otherwise)
