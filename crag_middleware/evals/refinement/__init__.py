"""Measuring refiners: how many of the sentences that bear on the answer they find, against how much of the text they keep."""

from crag_middleware.evals.refinement.report import RefinementReport
from crag_middleware.evals.refinement.session import measure_refinement

__all__ = ["RefinementReport", "measure_refinement"]
