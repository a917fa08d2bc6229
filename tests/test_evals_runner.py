"""Runs: rows as they come, going on after a stop, failures that stay rows, and what a question costs."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from crag_middleware import ChatModelEvaluator, ConfigError, Grade, GradingError, Passage
from crag_middleware.evals import rows as files
from crag_middleware.evals.datasets import Item
from crag_middleware.evals.rows import Row
from crag_middleware.evals.runner import Progress, evaluate, failures
from crag_middleware.testing import ScriptedEvaluator
from crag_middleware.types import EvaluatorKey
from tests.support.chat_server import serve_chat

KEY = EvaluatorKey("ScriptedEvaluator")


def item(name: str, *texts: str) -> Item:
    passages = tuple(Passage(id=str(n), text=text) for n, text in enumerate(texts or ("yes", "no"), 1))
    labels = (True, *(False for _ in passages[1:]))
    return Item(
        id=name, lang="en", source="set", question=f"secret question {name}", passages=passages, labels=labels, answerable=True, weak=False
    )


ITEMS = tuple(item(f"q{n}") for n in range(6))


def without_time(rows: Sequence[Row]) -> list[Row]:
    return [replace(row, seconds=0) for row in rows]


class Failing(ScriptedEvaluator):
    """Fails for some questions, by their last word, with that error; under the key of its base."""

    key = KEY

    def __init__(self, errors: dict[str, BaseException]) -> None:
        super().__init__({"1": 0.9, "2": 0.2})
        self.errors = errors

    def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        error = self.errors.get(question.split()[-1])
        if error:
            self.asked.append((question, ()))
            raise error
        return super().grade(question, passages)


def test_each_question_is_one_call_and_one_row_with_raw_numbers(tmp_path: Path) -> None:
    evaluator = ScriptedEvaluator({"1": 0.97, "2": None})
    told: list[Progress] = []

    rows = evaluate(ITEMS[:2], evaluator, path=tmp_path / "rows.jsonl", progress=told.append)

    assert [asked for asked, _ in evaluator.asked] == [i.question for i in ITEMS[:2]]
    assert [row.id for row in rows] == ["q0", "q1"]
    assert (rows[0].probabilities, rows[0].stated, rows[0].labels) == ((0.97, None), ("relevant", "ungraded"), (True, False))
    assert told == [Progress(0, 2, 0), Progress(1, 2, 0), Progress(2, 2, 0)]
    assert files.read(tmp_path / "rows.jsonl") == (KEY, {row.id: row for row in rows})


def test_rows_hold_no_question_and_no_passage(tmp_path: Path) -> None:
    secret = item("q", "secret passage", "other secret")

    evaluate([secret], ScriptedEvaluator(), path=tmp_path / "rows.jsonl")

    assert "secret" not in (tmp_path / "rows.jsonl").read_text()


def test_a_question_that_fails_is_a_row_with_its_reason_and_the_others_go_on(tmp_path: Path) -> None:
    evaluator = Failing({"q1": GradingError("no", reason="rate_limited"), "q3": RuntimeError("secret passage"), "q4": ValueError()})

    rows = evaluate(ITEMS, evaluator, path=tmp_path / "rows.jsonl")

    assert [row.error for row in rows] == ["", "rate_limited", "", "RuntimeError", "ValueError", ""]
    assert rows[1].probabilities == ()
    assert failures(rows) == {"rate_limited": 1, "RuntimeError": 1, "ValueError": 1}
    assert "secret" not in (tmp_path / "rows.jsonl").read_text()


def test_a_run_that_was_stopped_goes_on_where_it_was_and_tries_the_failed_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with pytest.raises(KeyboardInterrupt):
        evaluate(ITEMS, Failing({"q1": GradingError("no"), "q3": KeyboardInterrupt()}), path=path)
    told: list[Progress] = []
    again = Failing({})

    rows = evaluate(ITEMS, again, path=path, resume=True, progress=told.append)

    assert [asked.split()[-1] for asked, _ in again.asked] == ["q1", "q3", "q4", "q5"]
    assert told[0] == Progress(2, 6, 0)
    assert without_time(rows) == without_time(evaluate(ITEMS, Failing({})))
    assert without_time(list(files.read(path)[1].values())) == without_time([rows[0], rows[1], rows[2], *rows[3:]])


@pytest.mark.parametrize("cut", [1, 40])
def test_a_row_that_broke_off_is_graded_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rows.jsonl"
    whole = evaluate(ITEMS, ScriptedEvaluator(), path=path)
    path.write_bytes(path.read_bytes()[:-cut])
    evaluator = ScriptedEvaluator()

    rows = evaluate(ITEMS, evaluator, path=path, resume=True)

    assert len(evaluator.asked) == 1
    assert without_time(rows) == without_time(whole)
    assert files.read(path)[1].keys() == {i.id for i in ITEMS}


def test_more_questions_may_be_added_when_a_run_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    evaluate(ITEMS[:2], ScriptedEvaluator(), path=path)
    evaluator = ScriptedEvaluator()

    assert len(evaluate(ITEMS, evaluator, path=path, resume=True)) == 6
    assert len(evaluator.asked) == 4


def test_a_run_of_another_evaluator_or_on_other_questions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    evaluate(ITEMS, ScriptedEvaluator(), path=path)
    held = path.read_bytes()
    changed = (*ITEMS[:5], item("q5", "another text"))

    class Other(ScriptedEvaluator):
        key = EvaluatorKey("Other", "m", "p1")

    with pytest.raises(ConfigError, match=r"holds grades of ScriptedEvaluator, and this is Other 'm' \(prompt 'p1'\)"):
        evaluate(ITEMS, Other(), path=path, resume=True)
    with pytest.raises(ConfigError, match="1 of its 6 are not, or not the same, in this data, such as 'q5'"):
        evaluate(changed, ScriptedEvaluator(), path=path, resume=True)
    with pytest.raises(ConfigError, match="4 of its 6"):
        evaluate(ITEMS[:2], ScriptedEvaluator(), path=path, resume=True)
    with pytest.raises(ConfigError, match="there already"):
        evaluate(ITEMS, ScriptedEvaluator(), path=path)
    assert path.read_bytes() == held


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}\n",
        b"\xff\xfe\n",
        b'{"version": 1, "evaluator": "ScriptedEvaluator", "model": "", "prompt": ""}',
        b'{"version": 9, "evaluator": "x", "model": "", "prompt": ""}\n',
        b'{"version": 1, "evaluator": "x", "model": "", "prompt": ""}\n{"id": 1}\n',
        b'{"version": 1, "evaluator": "x", "model": "", "prompt": ""}\nno\n',
    ],
)
def test_a_file_that_is_no_run_is_one_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"rows\.jsonl"):
        evaluate(ITEMS, ScriptedEvaluator(), path=path, resume=True)
    assert path.read_bytes() == content


def test_a_run_that_is_not_there_can_not_go_on(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no run"):
        evaluate(ITEMS, ScriptedEvaluator(), path=tmp_path / "none" / "rows.jsonl", resume=True)


def test_rows_with_probabilities_out_of_range_or_of_unequal_length_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    evaluate(ITEMS[:1], ScriptedEvaluator(), path=path)
    head, row = path.read_text().splitlines()

    for change in ({"probabilities": [2, 0.5]}, {"probabilities": [0.5]}, {"stated": ["sure", "relevant"]}, {"seconds": -1}):
        path.write_text(f"{head}\n{json.dumps(json.loads(row) | change)}\n")
        with pytest.raises(ConfigError, match="line 2: no row of a run"):
            files.read(path)


def test_an_evaluator_with_only_an_async_form_keeps_one_event_loop() -> None:
    class Later:
        def __init__(self) -> None:
            self.loops: set[int] = set()

        async def agrade(self, question: str, passages: Sequence[Passage]) -> list[Grade]:
            import asyncio

            self.loops.add(id(asyncio.get_running_loop()))
            return [Grade(p.id, 0.5, "ambiguous") for p in passages]

    evaluator = Later()

    rows = evaluate(ITEMS, evaluator)

    assert {row.probabilities for row in rows} == {(0.5, 0.5)}
    assert len(evaluator.loops) == 1


def test_what_hangs_becomes_a_failed_row() -> None:
    class Hanging(ScriptedEvaluator):
        def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
            if question.endswith("q0"):
                time.sleep(2)
            return super().grade(question, passages)

    rows = evaluate(ITEMS[:2], Hanging(), timeout_s=0.2)

    assert [row.error for row in rows] == ["timeout", ""]


def test_model_calls_and_tokens_are_counted_by_question() -> None:
    def reply(asked: Any) -> str:
        return '{"grades": [{"passage": 1, "label": "relevant", "confidence": 95, "reason": "x"}]}'

    many = item("many", *(f"passage {n}" for n in range(25)))

    with serve_chat(replies=[reply]) as server:
        rows = evaluate([many, item("one")], ChatModelEvaluator(server.model()))

    assert [row.calls for row in rows] == [2, 1]
    assert [(row.input_tokens, row.output_tokens) for row in rows] == [(200, 40), (100, 20)]


def test_a_call_that_fails_counts_as_a_call() -> None:
    with serve_chat(status=401) as server:
        rows = evaluate([item("one")], ChatModelEvaluator(server.model()))

    assert (rows[0].calls, rows[0].error) == (1, "unauthorized")


def test_what_is_no_evaluator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has neither"):
        evaluate(ITEMS, object(), path=tmp_path / "rows.jsonl")  # type: ignore[arg-type]  # on purpose
    assert not (tmp_path / "rows.jsonl").exists()
