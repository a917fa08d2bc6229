"""What a turn may still spend on models, and which failures mean that it ran short."""

from crag_middleware.findings import Spent
from crag_middleware.settings import CRAGSettings

SHORT = frozenset({"deadline", "budget"})
"""Reasons of steps that were cut short or left out since the turn's time, model calls or tokens ran short."""


def has_room(spent: Spent, settings: CRAGSettings, *, asked: int = 0, sparing: int = 0) -> bool:
    """Whether another model call fits into the turn's budget.

    Args:
        spent: What the turn has cost so far.
        settings: Its `max_model_calls` and `max_model_tokens`.
        asked: Calls that are known of otherwise, of ports that may have a model behind them; those under way are not in `spent` yet.
        sparing: Calls to be left for what must come after this one.
    """
    calls, tokens = settings.max_model_calls, settings.max_model_tokens
    return (calls is None or max(spent.model_calls, asked) + sparing < calls) and (tokens is None or spent.tokens < tokens)
