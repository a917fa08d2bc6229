"""Receipts that were saved: read again, asked what would have changed the verdict, and tried against today's settings and evaluator."""

from crag_middleware.replay.because import Because, because
from crag_middleware.replay.fetch import fetched, own_texts
from crag_middleware.replay.regrade import Difference, Replayed, replay
from crag_middleware.replay.saved import Saved, read_receipts, told

__all__ = ["Because", "Difference", "Replayed", "Saved", "because", "fetched", "own_texts", "read_receipts", "replay", "told"]
