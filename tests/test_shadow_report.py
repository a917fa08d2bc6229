"""What receipts of shadow mode say together, and the command that shows it."""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from crag_middleware.adapters.claim_checkers import WordClaimChecker
from crag_middleware.cli import app
from crag_middleware.errors import ConfigError
from crag_middleware.shadow_report import quantile, read_receipts, shadow_report
from crag_middleware.testing import ScriptedEvaluator
from tests.support.agents import agent_with, ask, crag, passage

PORT = passage("The exporter listens on port 9100.", "port")
RIGHT, WRONG = "The exporter listens on port 9100.", "The exporter listens on port 4711."


def turn(tenant: str, answer: str, *, mode: str = "shadow", probability: float = 0.95, question: str = "Which port?") -> dict[str, Any]:
    """The receipt of a real turn."""
    middleware = crag(
        [PORT],
        agent_id=tenant,
        tenant=tenant,
        mode=mode,
        evaluator=ScriptedEvaluator(otherwise=probability),
        claim_checker=WordClaimChecker(),
    )
    receipt: dict[str, Any] = ask(agent_with(middleware, replies=[answer])[0], question)["crag"]
    return receipt


@pytest.fixture(scope="module")
def receipts() -> list[dict[str, Any]]:
    return [
        turn("a", RIGHT),
        turn("a", WRONG),
        turn("b", WRONG, probability=0.01),
        turn("b", "Hello!", question="hello"),
        turn("b", RIGHT, mode="live"),
    ]


def saved(receipts: list[dict[str, Any]], file: Path) -> str:
    file.write_text("\n".join(json.dumps(receipt, ensure_ascii=False) for receipt in receipts) + "\n\n", encoding="utf-8")
    return str(file)


def crag_command(*arguments: str, given: str | None = None) -> Result:
    return CliRunner().invoke(app, arguments, input=given)


def test_verdicts_costs_and_objections_are_added_up_by_tenant(receipts: list[dict[str, Any]]) -> None:
    report = shadow_report(receipts)

    everything = report.all.told()
    assert (everything["turns"], everything["verdicts"], everything["skipped"]) == (4, {"relevant": 2, "incorrect": 1}, {"greeting": 1})
    assert report.live == 1
    a, b = (report.tenants[receipts[i]["tenant"]].told() for i in (0, 2))
    assert (a["turns"], a["verdicts"], a["actions"]) == (2, {"relevant": 2}, {"flagged": 1})
    assert (b["turns"], b["verdicts"]) == (2, {"incorrect": 1})
    assert report.flagged[0] == {"message_id": receipts[1]["message_id"], "tenant": receipts[1]["tenant"], "action": "flagged"}
    assert everything["ms"]["p99"] == max(r["spent"]["ms"] for r in receipts[:3])
    assert everything["block_tokens"]["p50"] == sorted(r["tokens"] for r in receipts[:3])[1]


def test_the_order_of_receipts_changes_nothing(receipts: list[dict[str, Any]]) -> None:
    forward, backward = shadow_report(receipts).told(), shadow_report(reversed(receipts)).told()

    assert forward["all"] == backward["all"]
    assert forward["tenants"] == backward["tenants"]


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_quantile_is_one_of_the_values_that_enough_of_them_do_not_exceed(values: list[float], share: float) -> None:
    found = quantile(values, share)

    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9


def test_no_values_have_no_quantile() -> None:
    assert quantile([], 0.5) is None


JUNK = ["", "not JSON", "[]", "1", "null", "{}", '{"schema": 1}', "[" * 100_000, '{"a": NaN}']


@pytest.mark.parametrize("line", JUNK[1:])
def test_a_line_that_is_no_receipt_is_named_and_not_shown(line: str, tmp_path: Path) -> None:
    file = tmp_path / "receipts.jsonl"
    file.write_text(f"\n{line} ")

    done = crag_command("shadow", "report", str(file))

    assert done.exit_code != 0
    assert done.stdout == ""
    assert done.stderr.strip().endswith("each line must be the JSON of one, such as json.dumps(result['crag'])")
    assert "line 2, holds no receipt" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@given(st.data())
def test_a_receipt_with_a_part_of_another_kind_is_refused_or_added_up(data: st.DataObject) -> None:
    receipt = turn_of_both()
    key = data.draw(st.sampled_from(sorted(receipt)))
    odd = (
        st.none()
        | st.text(max_size=3)
        | st.integers()
        | st.floats()
        | st.lists(st.none(), max_size=2)
        | st.dictionaries(st.text(max_size=2), st.none())
    )
    changed = {**receipt, key: data.draw(odd)}

    with suppress(ConfigError):
        shadow_report(read_receipts([json.dumps(changed)], where="x"))


_ONE: list[dict[str, Any]] = []


def turn_of_both() -> dict[str, Any]:
    if not _ONE:
        _ONE.append(turn("a", WRONG))
    return _ONE[0]


class TestCommand:
    """`crag shadow report`."""

    def test_it_shows_all_tenants_and_each(self, receipts: list[dict[str, Any]], tmp_path: Path) -> None:
        done = crag_command("shadow", "report", saved(receipts[:2], tmp_path / "a.jsonl"), saved(receipts[2:], tmp_path / "b.jsonl"))

        assert (done.exit_code, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0] == "all tenants"
        assert "verdicts    relevant 2 (67%), incorrect 1 (33%)" in lines
        assert f"tenant {receipts[0]['tenant'][:12]}" in lines
        assert "objections  flagged 1 (100%)" in lines
        assert lines[-1] == "left out: 1 receipts of live turns"
        assert "4711" not in done.stdout

    def test_json_from_standard_input(self, receipts: list[dict[str, Any]]) -> None:
        done = crag_command("shadow", "report", "-", "--json", given="\n".join(map(json.dumps, receipts)))

        assert json.loads(done.stdout) == json.loads(json.dumps(shadow_report(receipts).told()))

    @pytest.mark.parametrize("given", ["missing", "folder", "bytes", "live"])
    def test_files_that_can_not_be_used_are_one_clear_line(self, given: str, receipts: list[dict[str, Any]], tmp_path: Path) -> None:
        file = tmp_path / "receipts.jsonl"
        if given == "bytes":
            file.write_bytes(b"\xff\xfe\x00")
        elif given == "live":
            saved(receipts[4:], file)

        done = crag_command("shadow", "report", str(tmp_path if given == "folder" else file))

        assert (done.exit_code != 0, done.stdout) == (True, "")
        assert len(done.stderr.strip().splitlines()) == 1
        assert done.stderr.startswith("crag: ")


def test_the_example_shows_the_same_answers_and_what_would_have_been_flagged() -> None:
    example = Path(__file__).parents[1] / "examples" / "shadow.py"

    printed = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, check=True, timeout=100).stdout

    assert printed.startswith("the same answers as without it: True\n")
    assert "objections  flagged 1 (100%)" in printed
    assert printed.endswith("would have been flagged: 1 of 3\n")
