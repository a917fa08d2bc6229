"""What the middleware does, as OpenTelemetry has it: a span for each corrective pass and each call of a port, and metrics of turns.

OpenTelemetry is imported when `OpenTelemetry(...)` is built, not before. Attributes are codes and numbers: no question, no passage, no message of an error; the
tenant stands in spans as a digest, and in metrics not at all. docs/observability.md lists them.
"""

import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from crag_middleware.errors import ConfigError, CRAGError
from crag_middleware.steps import MAIN, Call

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
    from opentelemetry.trace import TracerProvider

SCOPE = "crag_middleware"
"""The instrumentation scope of all spans and metrics."""

RETRIEVAL = "retrieval"
"""`gen_ai.operation.name`, and the span's name, of a search of the knowledge.

Source: OpenTelemetry semantic conventions for generative AI 0.1.0 (in development), "Semantic conventions for generative AI retrieval",
https://github.com/open-telemetry/semantic-conventions-genai/blob/v0.1.0/docs/gen-ai/retrieval.md
"""

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Borders of the histograms of durations."""


def reason_of(outcome: object) -> str:
    """The short code of a failure: ours, or the exception's class; empty for a result."""
    if not isinstance(outcome, BaseException):
        return ""
    return outcome.reason if isinstance(outcome, CRAGError) else type(outcome).__name__


class OpenTelemetry:
    """Sends spans and metrics of an instance, or of several, to OpenTelemetry: `CRAGMiddleware(..., telemetry=OpenTelemetry())`.

    Without an SDK behind the API, all of it does nothing.

    Args:
        tracer_provider: Where spans go; by default the process's own.
        meter_provider: Where metrics go; by default the process's own.

    Raises:
        ConfigError: OpenTelemetry's API is not installed.
    """

    def __init__(self, *, tracer_provider: "TracerProvider | None" = None, meter_provider: "MeterProvider | None" = None) -> None:
        try:
            from opentelemetry import metrics, trace
        except ImportError as error:
            msg = "OpenTelemetry is not installed: pip install 'crag-middleware[otel]', and an SDK with an exporter to see anything"
            raise ConfigError(msg) from error
        self._trace = trace
        self._observation = metrics.Observation
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._turns = meter.create_counter("crag.turns", "{turn}", "Turns, by how they ended")
        self._turn_s = meter.create_histogram(
            "crag.turn.duration", "s", "What the middleware itself took of a turn", explicit_bucket_boundaries_advisory=SECONDS
        )
        self._stage_s = meter.create_histogram(
            "crag.stage.duration", "s", "What a stage of the corrective pass took", explicit_bucket_boundaries_advisory=SECONDS
        )
        self._retrieval_s = meter.create_histogram(
            "gen_ai.retrieval.duration", "s", "What a search of the knowledge took", explicit_bucket_boundaries_advisory=SECONDS
        )
        self._calls = meter.create_counter("crag.model.calls", "{call}", "Calls of chat models inside the middleware")
        self._tokens = meter.create_counter("crag.model.tokens", "{token}", "Tokens of those calls, prompt and reply together")
        self._web = meter.create_counter("crag.web.requests", "{request}", "Requests that left for the web")
        self._block = meter.create_histogram("crag.block.tokens", "{token}", "Size of the injected block")
        self._rungs = meter.create_counter(
            "crag.rungs", "{turn}", "Turns in which something was done without, since time or budget ran short"
        )
        self._degraded = meter.create_counter("crag.degraded", "{step}", "Steps that failed and were done without")
        self._answers = meter.create_counter("crag.answers", "{answer}", "Answers, by what their check found out and did")
        self._left: weakref.WeakSet[Any] = weakref.WeakSet()
        meter.create_observable_gauge("crag.calls.left_behind", [self._left_behind], "{call}", "Late calls that still run in a thread")

    def watch(self, instance: object) -> None:
        """Reports the instance's `left_behind` from now on, for as long as it lives."""
        self._left.add(instance)

    @contextmanager
    def correcting(self, name: str, tenant: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        """A span around a corrective pass; what it is given is told its receipt.

        Args:
            name: The instance's.
            tenant: A digest.
        """
        attributes = {"crag.instance": name, "crag.tenant": tenant}
        span = self._tracer.start_span("crag.correct", attributes=attributes)

        def tell(receipt: Mapping[str, Any]) -> None:
            span.set_attributes({"crag.tokens": receipt["tokens"], **_outcome(receipt)})

        try:
            with self.current(span):
                yield tell
        except BaseException as error:
            span.set_attribute("error.type", reason_of(error))
            span.set_status(self._trace.StatusCode.ERROR)
            raise
        finally:
            span.end()

    def call(self, call: Call[Any], name: str, tenant: str) -> "Span":
        """A span for a call of a port, which begins now."""
        is_retrieval = call.port == MAIN or call.port.startswith("route:")
        attributes: dict[str, Any] = {"crag.port": call.port, "crag.tenant": tenant}
        if is_retrieval:
            attributes |= {"gen_ai.operation.name": RETRIEVAL, "gen_ai.retrieval.top_k": call.keywords["limit"]}
        return Span(self, self._tracer.start_span(RETRIEVAL if is_retrieval else name, attributes=attributes), is_retrieval=is_retrieval)

    def ended(self, span: Any, seconds: float, counts: Mapping[str, int], reason: str, *, is_retrieval: bool) -> None:
        """A call is over: see `Span.end`."""
        failure = {"error.type": reason} if reason else {}
        span.set_attributes({**{f"crag.{name}": count for name, count in counts.items()}, **failure})
        if reason:
            span.set_status(self._trace.StatusCode.ERROR)
        span.end()
        if is_retrieval:
            self._retrieval_s.record(seconds, {"gen_ai.operation.name": RETRIEVAL, **failure})

    def current(self, span: Any) -> Any:
        """A context in which the span is the current one."""
        return self._trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    def turn(self, receipt: Mapping[str, Any]) -> None:
        """Counts a turn that is over.

        Args:
            receipt: Its record.
        """
        outcome, spent = _outcome(receipt), receipt["spent"]
        mode = {"crag.mode": outcome["crag.mode"], "crag.instance": receipt["name"]}
        self._turns.add(1, {**outcome, "crag.instance": receipt["name"]})
        for reason in receipt["degraded"]:
            self._degraded.add(1, {"crag.step": reason["step"], "error.type": reason["reason"], **mode})
        if receipt["status"] == "skipped":
            return
        self._turn_s.record(spent["ms"] / 1000, mode)
        for stage, ms in receipt["timings_ms"].items():
            self._stage_s.record(ms / 1000, {"crag.stage": stage, **mode})
        self._calls.add(spent["model_calls"], mode)
        self._tokens.add(spent["tokens"], mode)
        self._web.add(spent["web_requests"], mode)
        self._block.record(receipt["tokens"], mode)
        for rung in receipt["rungs"]:
            self._rungs.add(1, {"crag.rung": rung, **mode})
        if answer := receipt["answer"]:
            self._answers.add(1, {"crag.checked": answer["checked"], "crag.action": answer["action"] or "none", **mode})

    def _left_behind(self, _: "CallbackOptions") -> "Iterable[Observation]":
        """The gauge's values now: of all instances together, by port."""
        counts: dict[str, int] = {}
        for instance in list(self._left):
            for port, count in instance.left_behind.items():
                counts[port] = counts.get(port, 0) + count
        return [self._observation(count, {"crag.port": port}) for port, count in counts.items()]


class Span:
    """A span of one call, under way."""

    __slots__ = ("_is_retrieval", "_since", "_span", "_telemetry")

    def __init__(self, telemetry: OpenTelemetry, span: Any, *, is_retrieval: bool) -> None:
        self._telemetry = telemetry
        self._span = span
        self._is_retrieval = is_retrieval
        self._since = time.perf_counter()

    def current(self) -> Any:
        """A context in which this span is the current one."""
        return self._telemetry.current(self._span)

    def end(self, counts: Mapping[str, int], reason: str) -> None:
        """The call is over.

        Args:
            counts: What it brought.
            reason: Why it failed, as a short code; empty if it did not.
        """
        self._telemetry.ended(self._span, time.perf_counter() - self._since, counts, reason, is_retrieval=self._is_retrieval)


def _outcome(receipt: Mapping[str, Any]) -> dict[str, str]:
    """How a turn ended, as attributes."""
    return {
        "crag.mode": "shadow" if receipt.get("shadow") else "live",
        "crag.status": receipt["status"],
        "crag.verdict": receipt["verdict"] or "none",
        **({"crag.skipped": receipt["skipped"]} if receipt["skipped"] else {}),
    }
