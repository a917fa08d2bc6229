"""The audit: canaries are planted, every attack is tried, and nothing of it stays."""

from collections.abc import Callable, Sequence
from inspect import getdoc

from crag_middleware.audit import filters, ids, rows, sharing, turns
from crag_middleware.audit.outcome import Blind, Leak, Outcome, Verdict
from crag_middleware.audit.site import MakeMiddleware, MakeRetriever, Site
from crag_middleware.errors import ConfigError, CRAGError
from crag_middleware.knowledge.knowledge import Knowledge
from crag_middleware.middleware import CRAGMiddleware

Attack = Callable[[Site], None]
"""Tries one thing and returns if the boundary held; its docstring says what it tries."""

ATTACKS: tuple[Attack, ...] = (
    ids.hostile_ids,
    ids.look_alike_ids,
    ids.empty_scopes,
    filters.user_filters,
    filters.filters_on_the_tenant,
    filters.store_without_filters,
    filters.neighbours,
    rows.forged_metadata,
    rows.foreign_ids,
    rows.operators_commands,
    rows.kept_web_pages,
    turns.forged_fields,
    turns.conflicting_context,
    turns.forged_state,
    turns.subagent_without_context,
    turns.resumed_run,
    sharing.shared_instance,
    sharing.same_question,
    sharing.web_cache,
    sharing.web_trouble,
    sharing.knowledge_trouble,
)
"""Every attack, in the order of the table."""


def audit(
    store: Knowledge,
    *,
    retriever: MakeRetriever | None = None,
    middleware: MakeMiddleware = CRAGMiddleware,
    attacks: Sequence[Attack] = ATTACKS,
) -> list[Outcome]:
    """What comes of known attacks on the boundary between tenants, one outcome for each.

    It writes a few dozen rows of made-up tenants into the store, goes through the entrances that everybody uses (`MilvusRetriever`, agents with
    `CRAGMiddleware` and a scripted model, the store's own methods), and purges those tenants in the end, even after an error or Ctrl-C. No other row is
    changed. Nothing is sent anywhere but to the store and its embeddings. It blocks; in an event loop, call it in a thread.

    Args:
        store: The knowledge, opened by `open_knowledge` with whatever isolation.
        retriever: Builds a retriever of your own, called with the store and `settings=`. By default what the middleware makes of the store.
        middleware: Builds the middleware as you do, called as `CRAGMiddleware` is; for instance with your function for `agent_id` where that is None.
        attacks: Which of `ATTACKS`.

    Returns:
        The outcomes in the order of the attacks. Where the canaries could not be planted, or are not found, none could run.

    Raises:
        ConfigError: `store` is no knowledge of `open_knowledge`.
        IngestError: The canaries could not be purged; the message says which tenants to purge.
    """
    if not isinstance(store, Knowledge):
        msg = f"`store` must be the knowledge of `open_knowledge(...)`, got {type(store).__name__}"
        raise ConfigError(msg)
    site = Site(store, retriever, middleware)
    try:
        unready = _came_of(Site.open, site)
        outcomes = [Outcome(*_described(attack), *(_came_of(attack, site) if unready[0] == "held" else unready)) for attack in attacks]
    finally:
        site.close()
    return outcomes


def _described(attack: Attack) -> tuple[str, str]:
    """The attack's name, and what it tries."""
    return attack.__name__.replace("_", " "), (getdoc(attack) or "").partition("\n")[0].rstrip(".")


def _came_of(attack: Attack, site: Site) -> tuple[Verdict, str]:
    """The outcome and its detail, whatever the attack raises but a stop."""
    try:
        attack(site)
    except Leak as leak:
        return "leaked", str(leak)
    except Blind as blind:
        return "could_not_run", str(blind)
    except CRAGError as error:
        return "could_not_run", f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - told; its text may hold anything
        return "could_not_run", type(error).__name__
    return "held", ""
