"""Measuring claim checkers: how well they tell claims that their evidence supports from all others."""

from crag_middleware.evals.claims.report import ClaimReport
from crag_middleware.evals.claims.session import measure_claims

__all__ = ["ClaimReport", "measure_claims"]
