"""Measuring evaluators on labelled questions: data sets, runs, metrics, reports, and the paired comparison of two runs.

It needs the extra `evals`, and nothing outside this package imports it except the command line.
"""

from importlib.util import find_spec

from crag_middleware.errors import ConfigError

if any(find_spec(name) is None for name in ("matplotlib", "numpy", "scipy", "sklearn")):
    _MISSING = 'measuring and calibrating need the extra `evals`: pip install "crag-middleware[evals]"'
    raise ConfigError(_MISSING, reason="no_evals")
