"""What is seen from outside: runs in LangChain's traces, spans and metrics of OpenTelemetry, one log record a turn. Codes and numbers, no private text."""

import asyncio
import json
import logging
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler, UsageMetadataCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.tracers import BaseTracer, LangChainTracer
from langchain_core.tracers.schemas import Run
from langsmith import Client
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from crag_middleware.adapters.chat_model import ChatModelEvaluator, ChatModelRewriter
from crag_middleware.adapters.claim_checkers import WordClaimChecker
from crag_middleware.adapters.routes import Route
from crag_middleware.errors import TenantError
from crag_middleware.runs import NAMES
from crag_middleware.settings import CRAGSettings
from crag_middleware.telemetry import OpenTelemetry
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever, ScriptedWebSearch
from tests.support.agents import agent_with, ask, both, crag, passage

ROOT = Path(__file__).parents[1]
SECRET = "zanzibar"
PORT = passage(f"The {SECRET} exporter listens on port 9100.", f"{SECRET}-id", title=f"{SECRET} title", source=f"{SECRET}.md")
QUESTION = f"Which port does the {SECRET} exporter use?"
ANSWER = f"The {SECRET} exporter listens on port 9100 [1]."
TENANT = f"tenant-{SECRET}"
USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
GRADED = AIMessage(
    '{"grades": [{"passage": 1, "label": "relevant", "confidence": 0.97}]}', usage_metadata=USAGE, response_metadata={"model_name": "inner"}
)


def busy(**more: Any) -> Any:
    """An instance that asks many ports for a private question of a private tenant."""
    more.setdefault("evaluator", ScriptedEvaluator({PORT.id: 0.5}))
    more.setdefault("web_search", ScriptedWebSearch([passage("Its port is 9100.", "page", origin="web", url="https://x.example")]))
    more.setdefault("claim_checker", WordClaimChecker())
    return crag([PORT], agent_id=TENANT, tenant=TENANT, **more)


class Runs(BaseTracer):
    """Keeps the runs of the whole trace by their path of names."""

    def __init__(self) -> None:
        super().__init__()
        self.roots: list[Run] = []

    def _persist_run(self, run: Run) -> None:
        self.roots.append(run)

    def all(self) -> list[tuple[str, Run]]:
        def below(run: Run, path: str) -> Any:
            yield f"{path}/{run.name}", run
            for child in run.child_runs:
                yield from below(child, f"{path}/{run.name}")

        return [found for root in self.roots for found in below(root, "")]

    def ours(self) -> dict[str, Run]:
        return {path.rpartition("/")[2]: run for path, run in self.all() if "/crag." in path and run.run_type == "chain"}


class TestRuns:
    """LangChain's callbacks, and so LangSmith."""

    @both
    def test_each_call_of_a_port_is_a_run_with_a_name_below_the_agents(self, how: str) -> None:
        runs = Runs()
        agent, _ = agent_with(busy(), replies=[ANSWER])

        ask(agent, QUESTION, how, config={"callbacks": [runs]})

        assert [root.name for root in runs.roots] == ["LangGraph"] or len(runs.roots) == 1
        paths = {path.rpartition("/")[2]: path for path, run in runs.all() if run.name.startswith("crag.")}
        assert {"crag.retrieve", "crag.grade", "crag.search_web", "crag.refine", "crag.check_claims"} <= paths.keys()
        assert all("before_model" in paths[name] for name in ("crag.retrieve", "crag.grade", "crag.refine"))
        assert all(run.end_time is not None for _, run in runs.all())

    @both
    def test_a_run_holds_counts_and_no_text(self, how: str) -> None:
        """C086"""
        runs = Runs()
        agent, _ = agent_with(busy(), replies=[ANSWER])

        ask(agent, QUESTION, how, config={"callbacks": [runs]})

        ours = runs.ours()
        assert ours["crag.retrieve"].outputs == {"passages": 1}
        assert ours["crag.search_web"].outputs == {"passages": 1, "requests": 0}
        assert ours["crag.grade"].outputs == {"items": 1}
        for run in ours.values():
            told = json.dumps([run.name, run.inputs, run.outputs, run.error, run.events, run.serialized], default=str)
            assert SECRET not in told
            assert "nostream" in (run.tags or [])

    @both
    @pytest.mark.parametrize("error", [RuntimeError(SECRET), TimeoutError(SECRET)])
    def test_a_run_that_fails_says_why_in_a_code(self, how: str, error: Exception) -> None:
        runs = Runs()
        agent, _ = agent_with(busy(evaluator=ScriptedEvaluator(error=error)), replies=[ANSWER])

        ask(agent, QUESTION, how, config={"callbacks": [runs]})

        failed = runs.ours()["crag.grade"]
        assert "timeout" in str(failed.error) if isinstance(error, TimeoutError) else "RuntimeError" in str(failed.error)
        assert SECRET not in str(failed.error)

    @both
    def test_a_broken_tenant_boundary_ends_its_run_too(self, how: str) -> None:
        runs = Runs()
        store = ScriptedRetriever({TENANT: [passage("x", metadata={"agent_id": f"{SECRET}-b"})]})
        agent, _ = agent_with(busy(vector_store=store))

        with pytest.raises(TenantError):
            ask(agent, QUESTION, how, config={"callbacks": [runs]})

        failed = runs.ours()["crag.retrieve"]
        assert failed.error is not None
        assert SECRET not in failed.error

    @both
    def test_models_inside_stand_below_their_stage_and_name_the_middleware_as_their_source(self, how: str) -> None:
        """C025"""
        runs = Runs()
        agent, _ = agent_with(busy(evaluator=ChatModelEvaluator(ScriptedChatModel(replies=[GRADED]))), replies=[ANSWER])

        ask(agent, QUESTION, how, config={"callbacks": [runs]})

        models = [(path, run) for path, run in runs.all() if run.run_type in ("chat_model", "llm")]
        inner = [(path, run) for path, run in models if "crag.grade/crag.grade" in path]
        assert len(inner) >= 1
        assert {run.metadata.get("lc_source") for _, run in inner} == {"crag"}
        assert [run.metadata.get("lc_source") for path, run in models if "/crag." not in path] == [None]

    @both
    def test_a_usage_callback_counts_what_the_receipt_says_was_spent(self, how: str) -> None:
        """C025"""
        usage = UsageMetadataCallbackHandler()
        model = ScriptedChatModel(replies=[GRADED])
        agent, _ = agent_with(busy(evaluator=ChatModelEvaluator(model), web_search=None), replies=[ANSWER])

        receipt = ask(agent, QUESTION, how, config={"callbacks": [usage]})["crag"]

        assert receipt["spent"]["model_calls"] == len(model.requests) > 0
        assert usage.usage_metadata["inner"]["total_tokens"] == receipt["spent"]["tokens"] == 15 * len(model.requests)

    @both
    def test_routes_are_told_apart(self, how: str) -> None:
        runs = Runs()
        route = Route("orders", ScriptedRetriever({TENANT: [passage("y", "y")]}))
        agent, _ = agent_with(busy(routes=route), replies=[ANSWER])

        ask(agent, QUESTION, how, config={"callbacks": [runs]})

        assert {"crag.retrieve", "crag.retrieve:orders"} <= runs.ours().keys()

    @both
    def test_without_listeners_no_run_is_made(self, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
        for variable in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2", "LANGSMITH_TRACING_V2"):
            monkeypatch.delenv(variable, raising=False)
        heard: list[Any] = []

        class Listening(ScriptedRetriever):
            def retrieve(self, question: str, *, agent_id: str, limit: int) -> Any:
                from langchain_core.runnables.config import ensure_config

                manager: Any = ensure_config()["callbacks"]
                heard.append([type(handler).__name__ for handler in manager.handlers])
                return super().retrieve(question, agent_id=agent_id, limit=limit)

        agent, _ = agent_with(busy(vector_store=Listening({TENANT: [PORT]})), replies=[ANSWER])

        ask(agent, QUESTION, how)

        assert heard == [["Meter"]]

    @both
    def test_in_shadow_mode_a_langsmith_tracer_hears_and_nothing_else(self, how: str) -> None:
        class Heard(BaseCallbackHandler):
            def __init__(self) -> None:
                self.names: list[str] = []

            def on_chain_start(self, serialized: Any, inputs: Any, **more: Any) -> None:
                self.names.append(str(more.get("name")))

        heard = Heard()
        agent, _ = agent_with(busy(mode="shadow"), replies=[ANSWER])

        with langsmith_server() as (client, posted):
            ask(agent, QUESTION, how, config={"callbacks": [heard, LangChainTracer(client=client)]})
            client.flush()

        ours = [run for run in posted if run.get("name", "").startswith("crag.")]
        assert {"crag.retrieve", "crag.grade", "crag.check_claims"} <= {run["name"] for run in ours}
        assert SECRET not in json.dumps(ours)
        assert not [name for name in heard.names if name.startswith("crag.")]


@contextmanager
def langsmith_server() -> Iterator[tuple[Client, list[dict[str, Any]]]]:
    """LangSmith's own client, and what it sends to a server on loopback."""
    posted: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(202)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        do_PATCH = do_POST

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Client(f"http://127.0.0.1:{server.server_port}", api_key="none", auto_batch_tracing=False), posted
    finally:
        server.shutdown()
        server.server_close()


class Seen:
    """The spans and metrics of an SDK that keeps them in memory."""

    def __init__(self) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.telemetry = OpenTelemetry(tracer_provider=tracers, meter_provider=MeterProvider([self._reader]))

    def spans(self, count: int = 0) -> list[Any]:
        for _ in range(500):
            if len(self._exporter.get_finished_spans()) >= count:
                break
            time.sleep(0.01)
        return list(self._exporter.get_finished_spans())

    def metrics(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        """Attributes and value, or sum and count, of each point, by metric."""
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        found = [metric for resource in data.resource_metrics for scope in resource.scope_metrics for metric in scope.metrics]
        return {
            metric.name: [
                (dict(point.attributes or {}), point.value if hasattr(point, "value") else (point.sum, point.count))
                for point in metric.data.data_points
            ]
            for metric in found
        }


class TestOpenTelemetry:
    """Spans and metrics."""

    @both
    def test_each_pass_and_each_call_is_a_span(self, how: str) -> None:
        seen = Seen()
        agent, _ = agent_with(busy(telemetry=seen.telemetry), replies=[ANSWER])

        ask(agent, QUESTION, how)

        spans = {span.name: span for span in seen.spans()}
        assert {"crag.correct", "retrieval", "crag.grade", "crag.search_web", "crag.refine", "crag.check_claims"} <= spans.keys()
        correct = spans["crag.correct"]
        assert all(spans[name].parent.span_id == correct.context.span_id for name in ("retrieval", "crag.grade", "crag.search_web"))
        assert dict(correct.attributes) | {"crag.tenant": "", "crag.tokens": 0} == {
            "crag.instance": "CRAGMiddleware",
            "crag.tenant": "",
            "crag.tokens": 0,
            "crag.mode": "live",
            "crag.status": "grounded",
            "crag.verdict": "ambiguous",
        }
        found = dict(spans["retrieval"].attributes)
        assert (found["gen_ai.operation.name"], found["gen_ai.retrieval.top_k"] > 0, found["crag.passages"]) == ("retrieval", True, 1)

    @both
    def test_what_a_port_does_stands_below_its_span(self, how: str) -> None:
        from opentelemetry import trace

        under: list[str] = []

        class Looking(ScriptedRetriever):
            def retrieve(self, question: str, *, agent_id: str, limit: int) -> Any:
                under.append(getattr(trace.get_current_span(), "name", ""))
                return super().retrieve(question, agent_id=agent_id, limit=limit)

        agent, _ = agent_with(busy(vector_store=Looking({TENANT: [PORT]}), telemetry=Seen().telemetry), replies=[ANSWER])

        ask(agent, QUESTION, how)

        assert under == ["retrieval"]

    @both
    def test_metrics_count_turns_stages_calls_tokens_rungs_and_failures(self, how: str) -> None:
        seen = Seen()
        evaluator = ChatModelEvaluator(ScriptedChatModel(replies=[GRADED]))
        live = {"crag.mode": "live", "crag.instance": "CRAGMiddleware"}
        failing = ScriptedWebSearch(error=RuntimeError(SECRET))
        for more in ({"evaluator": evaluator, "web_search": None}, {"web_search": failing}):
            agent, _ = agent_with(busy(telemetry=seen.telemetry, **more), replies=[ANSWER])
            ask(agent, QUESTION, how)

        metrics = seen.metrics()

        turns = {(point["crag.status"], point["crag.verdict"]): count for point, count in metrics["crag.turns"]}
        assert turns == {("grounded", "relevant"): 1, ("grounded", "ambiguous"): 1}
        assert {point["crag.stage"] for point, _ in metrics["crag.stage.duration"]} >= {"retrieving", "grading", "refining"}
        assert metrics["crag.model.calls"] == [(live, 1)]
        assert metrics["crag.model.tokens"] == [(live, 15)]
        assert [(p["crag.step"], p["error.type"], n) for p, n in metrics["crag.degraded"]] == [("search_web", "RuntimeError", 1)]
        assert {point["crag.action"] for point, _ in metrics["crag.answers"]} == {"none"}
        ((point, (_, count)),) = metrics["gen_ai.retrieval.duration"]
        assert (point, count) == ({"gen_ai.operation.name": "retrieval"}, 2)
        assert metrics["crag.turn.duration"][0][1][1] == 2

    @both
    def test_nothing_private_is_in_spans_or_metrics_and_no_tenant_in_metrics(self, how: str) -> None:
        seen = Seen()
        for more in ({}, {"evaluator": ScriptedEvaluator(error=RuntimeError(SECRET))}, {"mode": "shadow"}):
            agent, _ = agent_with(busy(telemetry=seen.telemetry, **more), replies=[ANSWER])
            ask(agent, QUESTION, how)
        broken, _ = agent_with(
            busy(telemetry=seen.telemetry, vector_store=ScriptedRetriever({TENANT: [passage("x", metadata={"agent_id": SECRET})]}))
        )
        with pytest.raises(TenantError):
            ask(broken, QUESTION, how)

        spans = "".join(span.to_json() for span in seen.spans())

        assert len(seen.spans()) > 10
        assert SECRET not in spans + json.dumps(seen.metrics())
        assert "tenant" not in json.dumps(seen.metrics())
        failed = [span for span in seen.spans() if not span.status.is_ok and span.status.status_code.name == "ERROR"]
        assert {span.name: span.attributes["error.type"] for span in failed} == {
            "crag.grade": "RuntimeError",
            "retrieval": "foreign_row",
            "crag.correct": "foreign_row",
        }

    @both
    def test_a_shadow_turn_is_counted_as_one(self, how: str) -> None:
        seen, told = Seen(), threading.Event()
        agent, _ = agent_with(busy(mode="shadow", telemetry=seen.telemetry, receipt_sink=lambda receipt: told.set()), replies=[ANSWER])

        async def turn() -> None:
            await agent.ainvoke({"messages": [("user", QUESTION)]})
            await asyncio.to_thread(told.wait, 10)

        asyncio.run(turn()) if how == "ainvoke" else agent.invoke({"messages": [("user", QUESTION)]})
        assert told.wait(10)

        assert [(point["crag.mode"], count) for point, count in seen.metrics()["crag.turns"]] == [("shadow", 1)]

    @both
    def test_calls_left_behind_are_gauged_by_port(self, how: str) -> None:
        let = threading.Event()

        class Hanging(ScriptedEvaluator):
            agrade = None  # type: ignore[assignment]  # blocking only

            def grade(self, question: str, passages: Any) -> Any:
                let.wait(20)
                return super().grade(question, passages)

        seen = Seen()
        middleware = busy(telemetry=seen.telemetry, evaluator=Hanging(), web_search=None, settings=CRAGSettings(grade_timeout_s=0.1))
        agent, _ = agent_with(middleware, replies=[ANSWER])

        ask(agent, QUESTION, how)

        assert seen.metrics()["crag.calls.left_behind"] == [({"crag.port": "evaluator"}, 1)]
        let.set()

    def test_without_an_sdk_all_of_it_does_nothing(self) -> None:
        agent, _ = agent_with(busy(telemetry=OpenTelemetry()), replies=[ANSWER])

        assert ask(agent, QUESTION)["crag"]["status"] == "grounded"

    def test_it_is_needed_by_those_who_use_it_alone_and_a_missing_one_is_one_clear_line(self) -> None:
        code = (
            "import sys; sys.modules['opentelemetry'] = None\n"
            "from crag_middleware.middleware import CRAGMiddleware; from crag_middleware.telemetry import OpenTelemetry\n"
            "try: OpenTelemetry()\n"
            "except Exception as error: print(type(error).__name__, error)"
        )
        printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

        assert printed.startswith("ConfigError OpenTelemetry is not installed: pip install 'crag-middleware[otel]'")
        assert len(printed.splitlines()) == 1


class TestLog:
    """One record a turn."""

    @both
    def test_each_turn_is_one_record_of_codes_and_numbers(self, how: str, caplog: pytest.LogCaptureFixture) -> None:
        """C086"""
        caplog.set_level(logging.INFO, "crag_middleware.turn")
        agent, _ = agent_with(busy(), replies=[ANSWER])

        receipt = ask(agent, QUESTION, how)["crag"]

        (record,) = [record for record in caplog.records if record.name == "crag_middleware.turn"]
        told: dict[str, Any] = record.crag  # type: ignore[attr-defined]  # from `extra`
        assert (told["mode"], told["status"], told["verdict"], told["checked"]) == ("live", "grounded", "ambiguous", "checked")
        assert (told["tokens"], told["ms"], told["calls"]) == (receipt["spent"]["tokens"], receipt["spent"]["ms"], receipt["calls"])
        assert sum(told["claims"].values()) == len(receipt["answer"]["claims"]) > 0
        assert SECRET not in json.dumps(told)

    @both
    @pytest.mark.parametrize("more", [{}, {"mode": "shadow"}, {"enabled": False}])
    def test_every_kind_of_turn_is_told(self, how: str, more: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "crag_middleware.turn")
        agent, _ = agent_with(busy(**more), replies=[ANSWER])

        ask(agent, QUESTION, how)

        records = [record for record in caplog.records if record.name == "crag_middleware.turn"]
        assert [r.crag["status"] for r in records] == ["skipped" if "enabled" in more else "grounded"]  # type: ignore[attr-defined]

    def test_a_receipt_of_an_earlier_version_is_told_too(self, caplog: pytest.LogCaptureFixture) -> None:
        from crag_middleware.telling import Outlets

        caplog.set_level(logging.INFO, "crag_middleware.turn")
        agent, _ = agent_with(busy(rewriter=ChatModelRewriter(ScriptedChatModel(replies=["x"]))), replies=[ANSWER])
        receipt = ask(agent, QUESTION)["crag"]
        old = {key: value for key, value in receipt.items() if key not in ("shadow", "tenant")}

        Outlets(telemetry=Seen().telemetry).tell(old)

        assert caplog.records[-1].crag["mode"] == "live"  # type: ignore[attr-defined]


class TestDocuments:
    """The page and the example say what there is."""

    def test_the_page_lists_every_metric_and_every_run(self) -> None:
        page = (ROOT / "docs" / "observability.md").read_text()
        seen, runs = Seen(), Runs()
        agent, _ = agent_with(busy(telemetry=seen.telemetry, routes=Route("x", ScriptedRetriever({TENANT: [PORT]}))), replies=[ANSWER])
        ask(agent, QUESTION, config={"callbacks": [runs]})

        for name in seen.metrics().keys() | {f"crag.{name}" for name in NAMES.values()} | (runs.ours().keys() - {"crag.retrieve:x"}):
            assert f"`{name}`" in page, name

    def test_the_formatter_of_the_page_writes_a_turn_as_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        page = (ROOT / "docs" / "observability.md").read_text()
        (code,) = [block for block in re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL) if "class Json" in block]
        logger = logging.getLogger("crag_middleware.turn")
        try:
            exec(code, {})
            ask(agent_with(busy(), replies=[ANSWER])[0], QUESTION)
        finally:
            logger.handlers.clear()
            logger.setLevel(logging.NOTSET)

        told = json.loads(capsys.readouterr().err.splitlines()[-1])
        assert (told["message"], told["status"]) == ("crag turn", "grounded")

    def test_the_example_serves_metrics_to_prometheus(self) -> None:
        printed = subprocess.run(
            [sys.executable, str(ROOT / "examples" / "prometheus.py")], capture_output=True, text=True, check=True, timeout=100
        )

        assert re.search(r"^crag_turns_total\{.*grounded.*\} 1.0$", printed.stdout, re.MULTILINE)
        assert "crag_stage_duration_seconds_count" in printed.stdout
        assert "support" not in printed.stdout
