import json

from crag_middleware.calibration import Calibration, PlattMap, SetMap
from crag_middleware.receipt import explain
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import ScriptedEvaluator, ScriptedWebSearch
from tests.support.agents import agent_with, ask, crag, passage

PORT = passage("The exporter listens on port 9100.", "port", title="Exporter")
OTHER = passage("The canteen opens at noon.", "canteen", title="Canteen")
PAGE = passage("The exporter's default port is 9100.", "page", origin="web", title="Ports", url="https://ports.example/x")


def told(question="Which port does the exporter use?", passages=(PORT, OTHER), **more):
    more.setdefault("evaluator", ScriptedEvaluator({"port": 0.7, "canteen": 0.1}))
    agent, _ = agent_with(crag(passages, **more))
    return explain(ask(agent, question)["crag"])


def test_a_person_reads_verdict_kept_dropped_web_and_times():
    lines = told(web_search=ScriptedWebSearch([PAGE])).splitlines()

    assert lines[0] == "verdict    ambiguous: evidence from the knowledge and the web"
    assert "kept       [1] knowledge | Exporter: ambiguous, 1 sentence" in lines
    assert "kept       [2] web | Ports: relevant, 1 sentence" in lines
    assert "dropped    knowledge | Canteen: incorrect (0.10)" in lines
    assert 'to the web "Which port does the exporter use?"' in lines
    assert lines[-1].startswith("time")


def test_a_turn_that_stayed_at_home_says_so():
    assert told().startswith("verdict    ambiguous: evidence from the knowledge\n")
    assert "to the web nothing" in told()
    assert "note       no web search is configured" in told()


def test_failures_are_told():
    text = told(evaluator=ScriptedEvaluator(error=TimeoutError()), settings=CRAGSettings(grade_timeout_s=1))

    assert "without    grade failed: timeout" in text


def test_calibration_and_sufficiency_are_told():
    fitted = Calibration(
        evaluator="ScriptedEvaluator",
        map=PlattMap(slope=1, offset=0),
        thresholds=(0.5, 0.9),
        sets=SetMap(offset=0, weights=(1, 0, 0), thresholds=(0.2, 0.8)),
        fitted_on="nothing",
        pairs=12,
        questions=4,
    )

    lines = told(calibration=fitted).splitlines()
    by_set = told(calibration=fitted, settings=CRAGSettings(verdict_rule="set"))

    assert lines[1] == "together   the passages answer with probability 0.70"
    assert lines[2] == "calibrated ScriptedEvaluator, 12 passages of 4 questions"
    assert "probability 0.70, which decided" in by_set
    assert "calibrated no, the evaluator's numbers as they are" in told()


def test_a_receipt_of_a_skipped_turn_says_nothing_of_grades():
    agent, _ = agent_with(crag([PORT]))

    receipt = ask(agent, "Hello")["crag"]

    assert {receipt[key] for key in ("verdict", "verdict_rule", "sufficiency", "calibration")} == {None}
    json.dumps(receipt, allow_nan=False)


def test_a_skipped_turn_is_one_line():
    assert told("Hello") == "skipped    nothing to look up (greeting)"
