"""Measuring answers: whether they refuse what nothing answers and nothing else, and whether what they cite bears them out."""

from crag_middleware.evals.refusal.report import RefusalReport
from crag_middleware.evals.refusal.session import measure_refusal

__all__ = ["RefusalReport", "measure_refusal"]
