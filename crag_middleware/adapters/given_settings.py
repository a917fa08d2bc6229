"""What a user may pass as settings of single tenants, turned into what we work with."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from langgraph.errors import GraphBubbleUp

from crag_middleware.errors import ConfigError
from crag_middleware.settings import CRAGSettings
from crag_middleware.tenancy import check_agent_id

logger = logging.getLogger(__name__)

Overrides = Mapping[str, Any]
"""Settings by name that replace the instance's."""

AnyTenantSettings = Mapping[str, Overrides] | Callable[[str], Overrides | None]
"""Overrides by `agent_id`, or a function of it; None for no overrides."""

FIXED = frozenset(
    {
        "candidates", "decompose", "explain", "filter", "max_strips", "min_confidence", "mmr_lambda", "near_duplicate", "neighbours", "query_variants",
        "recall_k", "retrieve_timeout_s", "rrf_k", "save_evidence", "verdict_rule", "web_options",
    }
)  # fmt: skip
"""Settings that ports, routes or the agent's state are built with, and so are the same for all tenants."""


class TenantSettings:
    """The settings of each tenant.

    Args:
        base: The instance's, which hold unless overridden.
        given: The overrides.
        check: Raises a `ConfigError` on settings that can't work with the instance's parts.

    Raises:
        ConfigError: Overrides that are known now can't work.
        TenantError: A key is no tenant id.
    """

    def __init__(self, base: CRAGSettings, given: AnyTenantSettings | None, check: Callable[[CRAGSettings], object]) -> None:
        self._base = base
        self._check = check
        self._ask: Callable[[str], Overrides | None] | None = None
        self._known: dict[str, CRAGSettings] = {}
        if isinstance(given, Mapping):
            self._known = {check_agent_id(tenant): self._with(overrides) for tenant, overrides in given.items()}
        elif callable(given):
            self._ask = given
        elif given is not None:
            msg = (
                f"`tenant_settings` must be a mapping from agent_id to settings, or a function of the agent_id, got {type(given).__name__}"
            )
            raise ConfigError(msg)

    def __repr__(self) -> str:
        return "TenantSettings()" if self._ask is None and not self._known else f"TenantSettings({sorted(map(repr, self._known.values()))})"

    def of(self, agent_id: str) -> CRAGSettings | None:
        """The tenant's settings; None, and logged, if the function that says so failed or said what can't work."""
        if self._ask is None:
            return self._known.get(agent_id, self._base)
        try:
            return self._with(self._ask(agent_id) or {})
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - a user's function may fail in any way
            logger.warning("crag: `tenant_settings` failed with %s; the instance's own settings hold in this turn", type(error).__name__)
            return None

    def _with(self, overrides: Overrides) -> CRAGSettings:
        if not isinstance(overrides, Mapping):
            msg = f"`tenant_settings` must hold settings by name for each tenant, such as {{'top_k': 3}}, got {type(overrides).__name__}"
            raise ConfigError(msg)
        if fixed := sorted(FIXED & overrides.keys()):
            msg = f"`tenant_settings` must not hold {', '.join(fixed)}: the instance is built with them; give such tenants an instance of their own"
            raise ConfigError(msg)
        if not overrides:
            return self._base
        settings = CRAGSettings(**{**dict(self._base), **overrides})
        self._check(settings)
        return settings
