"""Known attacks on the boundary between tenants, tried against canary rows: see `crag audit` and docs/audit.md."""

from crag_middleware.audit.outcome import Outcome, Verdict
from crag_middleware.audit.run import ATTACKS, audit

__all__ = ["ATTACKS", "Outcome", "Verdict", "audit"]
