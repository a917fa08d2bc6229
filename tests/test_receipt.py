import json

import pytest

from crag_middleware.calibration import Calibration, PlattMap, SetMap
from crag_middleware.receipt import explain
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import ScriptedEvaluator, ScriptedWebSearch
from crag_middleware.types import Strip
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


LONG = passage(
    "Refunds take 7 days. Gift cards are excluded. Opening hours vary. Returns are free. It holds in May.", "long", title="Handbook"
)
SENTENCES = ((0, 20), (21, 45), (46, 65), (66, 84), (85, 100))


class Refiner:
    """Keeps the sentences it is told to, for the reasons, the worth and the units it is told."""

    def __init__(self, *kept):
        self.kept = kept

    def refine(self, question, passages):
        return [[Strip(p.text[slice(*SENTENCES[n])], *SENTENCES[n], **more) for n, more in self.kept] for p in passages]


def of_the_handbook(*kept, **more):
    agent, _ = agent_with(crag([LONG], refiner=Refiner(*kept), **more))
    return ask(agent, "How long do refunds take?")["crag"]


def test_each_strip_says_where_it_stands_why_it_was_kept_and_what_it_is_worth():
    """C089"""
    receipt = of_the_handbook(
        (0, {"worth": 2.345678}), (1, {"why": "limits", "worth": -0.0}), (4, {"why": "context", "worth": float("nan")})
    )

    (source,) = receipt["sources"]
    assert [(s["why"], s["worth"]) for s in source["strips"]] == [("chosen", 2.3457), ("limits", 0.0), ("context", None)]
    assert all(LONG.text[s["start"] : s["end"]] == s["text"] for s in source["strips"])
    assert json.loads(json.dumps(receipt, allow_nan=False)) == receipt


def test_a_passage_kept_whole_says_so():
    receipt = of_the_handbook()

    (source,) = receipt["sources"]
    assert [(s["why"], s["worth"]) for s in source["strips"]] == [("whole", None)] * 5
    assert "kept       [1] knowledge | Handbook: relevant, 5 sentences, kept whole" in explain(receipt).splitlines()


@pytest.mark.parametrize(
    ("reasons", "told"),
    [
        (["chosen"], "1 sentence"),
        (["chosen", "chosen"], "2 sentences"),
        (["chosen", "limits"], "1 sentence and 1 that belongs to it"),
        (["context", "chosen", "limits", "chosen"], "2 sentences and 2 that belong to them"),
        (["chosen", "chosen", "limits"], "2 sentences and 1 that belongs to them"),
        (["context", "context"], "2 sentences"),
    ],
)
def test_a_person_reads_how_many_sentences_were_chosen_and_how_many_came_along(reasons, told):
    receipt = of_the_handbook(*((n, {"why": why}) for n, why in enumerate(reasons)))

    assert f"kept       [1] knowledge | Handbook: relevant, {told}" in explain(receipt).splitlines()


def test_what_was_kept_and_did_not_fit_is_counted_and_told():
    """C021"""
    kept = [(n, {"worth": 5.0 - n}) for n in range(5)]

    def words(text):
        return 30 * len(text.split())

    whole = of_the_handbook(*kept, token_counter=words, settings=CRAGSettings(max_context_tokens=200_000))
    tight = of_the_handbook(*kept, token_counter=words, settings=CRAGSettings(max_context_tokens=whole["tokens"] - 100))

    assert (whole["cut_strips"], whole["notes"]) == (0, [])
    assert 0 < tight["cut_strips"] == 5 - len(tight["sources"][0]["strips"])
    assert "cut_to_budget" in tight["notes"]
    assert f"fits into the token budget: {tight['cut_strips']} sentence" in explain(tight)


def test_a_receipt_that_was_saved_before_these_keys_is_still_told():
    receipt = of_the_handbook((0, {}))
    old = {key: value for key, value in receipt.items() if key != "cut_strips"} | {"notes": ["cut_to_budget"]}
    old["sources"] = [{**s, "strips": [{k: strip[k] for k in ("start", "end", "text")} for strip in s["strips"]]} for s in old["sources"]]

    assert "relevant, 1 sentence\n" in explain(old)
    assert "note       not all that was kept fits into the token budget\n" in explain(old)


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
