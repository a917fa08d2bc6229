"""`crag calibrate`: from a file of questions to a calibration that a middleware takes."""

import json
import random

import pytest
from typer.testing import CliRunner

from crag_middleware.calibration import load_calibration
from crag_middleware.cli import app
from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.evals.aims import Aims
from crag_middleware.evals.calibrate import calibrate, summary
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import ScriptedEvaluator
from crag_middleware.types import Grade
from tests.support.agents import agent_with, ask, crag, passage
from tests.support.chat_server import serve_chat

OVERLAP = '''
from crag_middleware import Grade

class Overlap:
    """Grades by the share of the question's words that a passage has."""

    def grade(self, question, passages):
        words = set(question.lower().split())
        shares = [len(words & set(p.text.lower().split())) / len(words) for p in passages]
        return [Grade(passage_id=p.id, probability=share, label="ungraded") for p, share in zip(passages, shares)]
'''


class Overlap:
    """The same as in the file."""

    def grade(self, question, passages):
        words = set(question.lower().split())
        shares = [len(words & set(p.text.lower().split())) / len(words) for p in passages]
        return [Grade(passage_id=p.id, probability=share, label="ungraded") for p, share in zip(passages, shares, strict=True)]


def written(path, questions=80, *, labelled=1.0):
    """Questions of ten words; a relevant passage has most of them and the word `indeed`, another one has some."""
    chance = random.Random(4)
    lines = []
    for number in range(questions):
        words = [f"w{number}x{i}" for i in range(10)]
        passages = []
        for n in range(3):
            relevant = n == 0 and number % 2 == 0
            shared = chance.sample(words, chance.randint(5, 10) if relevant else chance.randint(0, 6))
            text = " ".join([*shared, "indeed" if relevant else "no"])
            passages.append({"text": text, "label": ("incorrect", "relevant")[relevant] if chance.random() < labelled else None})
        lines.append({"id": f"q{number}", "lang": "en", "question": " ".join(words), "passages": passages})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_file_of_questions_becomes_a_calibration_that_the_middleware_takes(tmp_path):
    data, out, heard = written(tmp_path / "mine.jsonl"), tmp_path / "c.json", []

    found = calibrate([data], Overlap(), out=out, progress=heard.append)

    assert load_calibration(out) == found.calibration
    assert found.calibration.fitted_on == "mine (en, 80)"
    assert found.calibration.pairs == 240
    assert (heard[0].done, heard[-1].done, heard[-1].total) == (0, 80, 80)
    settings = CRAGSettings(verdict_rule="set")
    agent, _ = agent_with(crag([passage("the port is 9100", "p")], evaluator=Overlap(), calibration=out, settings=settings))
    receipt = ask(agent, "the port is ?")["crag"]
    assert receipt["passages"][0]["raw"] == 0.75
    assert receipt["sufficiency"] > found.calibration.sets.thresholds[1]
    assert receipt["verdict"] == "relevant"


@pytest.fixture
def crag_calibrate(tmp_path, monkeypatch):
    """The command in a directory with an evaluator of one's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "overlap.py").write_text(OVERLAP)
    return lambda *more: CliRunner().invoke(app, ["calibrate", "mine.jsonl", "-e", "overlap:Overlap", "--out", "c.json", *more])


def graded(request):
    """A chat model's grades of all passages that it is shown, by a word in them."""
    shown = request["messages"][-1]["content"].split("<passage")[1:]
    said = [("relevant", 97) if "indeed" in text else ("incorrect", 3) for text in shown]
    return json.dumps({"grades": [{"passage": n, "label": label, "confidence": c} for n, (label, c) in enumerate(said, 1)]})


def test_the_command_calibrates_with_a_judge_and_tells_what_was_reached(tmp_path, monkeypatch, crag_calibrate):
    written(tmp_path / "mine.jsonl", labelled=0.5)

    with serve_chat(replies=[graded]) as chat:
        monkeypatch.setenv("DEEPSEEK_API_KEY", "test")
        monkeypatch.setenv("DEEPSEEK_API_BASE", chat.url)
        result = crag_calibrate("--judge", "deepseek:deepseek-flash", "--aim-false", "0.2", "--tenant", "t-1")

    assert result.exit_code == 0, result.output
    made = load_calibration(tmp_path / "c.json")
    assert (made.evaluator, made.tenant, made.pairs) == ("Overlap", "t-1", 240)
    assert "passages labelled by ChatModelEvaluator deepseek-flash" in made.fitted_on
    assert "aim: at most 20.0% of unanswerable questions called relevant" in result.stdout
    assert "the judge labelled" in result.stdout
    assert result.stdout.endswith("written to c.json\n")
    assert "t-1" not in result.output


def test_a_run_that_broke_off_goes_on_where_it_was(tmp_path):
    """The judge was through, and the evaluator half."""
    data, out = written(tmp_path / "mine.jsonl", labelled=0.5), tmp_path / "c.json"
    judge = ScriptedEvaluator({str(n): p for n, p in ((1, 0.95), (2, 0.1), (3, 0.1))})
    first = calibrate([data], Overlap(), out=out, judge=judge)
    rows = tmp_path / "c.json.rows.jsonl"
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:40]))
    asked = len(judge.asked)

    again = calibrate([data], Overlap(), out=out, judge=judge, resume=True)

    assert again == first
    assert len(judge.asked) == asked
    with pytest.raises(ConfigError, match="is there already; resume that run"):
        calibrate([data], Overlap(), out=out)


def test_a_warning_says_which_aim_is_not_met(tmp_path):
    found = calibrate([written(tmp_path / "mine.jsonl")], Overlap(), out=tmp_path / "c.json", aims=Aims(missed=0.001))

    lines = list(summary(found))

    assert any(line.startswith("warning: at most 0.1% of answerable questions called incorrect") for line in lines)
    assert "right where 17% of the passages are relevant, 50% of the questions answerable" in lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--aim-missed", "1.5"], "the aim `missed` must be a share above 0 and below 1, got 1.5"),
        (["--out", "."], "is a directory"),
        (["--tenant", " "], "`agent_id` must hold"),
        (["--limit", "10"], "a calibration needs 30 graded questions"),
        (["--languages", "zh"], "no question is in the language 'zh'"),
    ],
)
def test_what_can_not_be_calibrated_is_one_line_and_exit_code_2(tmp_path, crag_calibrate, arguments, message):
    written(tmp_path / "mine.jsonl")

    result = crag_calibrate(*arguments)

    assert result.exit_code == 2
    last = result.stderr.strip().splitlines()[-1]
    assert last.startswith("crag: ")
    assert message in last
    assert not (tmp_path / "c.json").exists()


def test_a_tenant_is_checked_before_anything_is_graded(tmp_path):
    evaluator = ScriptedEvaluator()

    with pytest.raises(TenantError):
        calibrate([written(tmp_path / "mine.jsonl")], evaluator, out=tmp_path / "c.json", tenant="")
    assert evaluator.asked == []
