"""Where a turn is told when it is over: a record in the log, metrics, and whoever wants the receipts."""

import copy
import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from langgraph.errors import GraphBubbleUp

from crag_middleware.errors import ConfigError
from crag_middleware.telemetry import OpenTelemetry

logger = logging.getLogger(__name__)
turn_logger = logging.getLogger("crag_middleware.turn")

ReceiptSink = Callable[[dict[str, Any]], object]
"""Takes a receipt, plain JSON and its own copy, and returns soon: see `CRAGMiddleware`."""


@dataclass(frozen=True, slots=True)
class Outlets:
    """Who is told of turns.

    Attributes:
        sink: Takes each receipt.
        telemetry: Counts each turn.

    Raises:
        ConfigError: The sink is a coroutine function, which nobody here awaits.
    """

    sink: ReceiptSink | None = None
    telemetry: OpenTelemetry | None = None

    def __post_init__(self) -> None:
        """Refuses what can't be told."""
        if self.sink is not None and (not callable(self.sink) or inspect.iscoroutinefunction(self.sink)):
            msg = f"`receipt_sink` must be a plain function of a receipt that returns soon, got {type(self.sink).__name__}; put it into a queue there"
            raise ConfigError(msg)
        if self.telemetry is not None and not isinstance(self.telemetry, OpenTelemetry):
            msg = f"`telemetry` must be `OpenTelemetry(...)`, got {type(self.telemetry).__name__}"
            raise ConfigError(msg)

    def tell(self, receipt: Mapping[str, Any]) -> None:
        """Tells of a turn that is over. A sink that fails is told in the log, and to nobody else."""
        if turn_logger.isEnabledFor(logging.INFO):
            turn_logger.info("crag turn", extra={"crag": summary(receipt)})
        if self.telemetry is not None:
            self.telemetry.turn(receipt)
        if self.sink is None:
            return
        try:
            self.sink(copy.deepcopy(dict(receipt)))
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - a user's function may fail in any way, and the turn is over
            logger.warning("crag: `receipt_sink` failed with %s; the receipt of this turn is lost", type(error).__name__)


def summary(receipt: Mapping[str, Any]) -> dict[str, Any]:
    """The turn in codes and numbers: no text of anybody's, and no tenant."""
    answer = receipt["answer"] or {}
    labels = [claim["label"] for claim in answer.get("claims", ())]
    return {
        "instance": receipt["name"],
        "mode": "shadow" if receipt.get("shadow") else "live",
        "status": receipt["status"],
        "skipped": receipt["skipped"],
        "verdict": receipt["verdict"],
        "passages": len(receipt["passages"]),
        "sources": len(receipt["sources"]),
        "conflicts": len(receipt["conflicts"]),
        "block_tokens": receipt["tokens"],
        "rungs": receipt["rungs"],
        "degraded": [f"{failed['step']}:{failed['reason']}" for failed in receipt["degraded"]],
        "notes": receipt["notes"],
        "alarms": [alarm["alarm"] for alarm in receipt["alarms"]],
        "calls": receipt["calls"],
        **receipt["spent"],
        "stages_ms": receipt["timings_ms"],
        "checked": answer.get("checked"),
        "action": answer.get("action"),
        "claims": {label: labels.count(label) for label in dict.fromkeys(labels)},
    }
