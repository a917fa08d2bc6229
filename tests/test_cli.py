"""The program `crag`: what it prints, what it writes, and how it exits."""

import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crag_middleware import cli
from tests.support.chat_server import serve_chat
from tests.test_evals_datasets import FIXTURE, PRIVATE, write

ROOT = Path(__file__).resolve().parent.parent

OWN = """
from crag_middleware.testing import ScriptedEvaluator

scripted = ScriptedEvaluator({"1": 0.95}, otherwise=0.3)

class Scripted(ScriptedEvaluator):
    pass

def make(needed):
    return scripted

nothing = 5
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, with evaluators of one's own in `own_grader.py`."""
    (tmp_path / "own_grader.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_grader", raising=False)
    return tmp_path


def crag(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_the_package_declares_the_program() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]

    assert scripts == {"crag": f"{cli.main.__module__}:{cli.main.__name__}"}


def test_help_and_version_are_there() -> None:
    assert crag("--version").stdout == f"crag-middleware {version('crag-middleware')}\n"
    helped = crag("--help")
    assert (helped.exit_code, "eval" in helped.stdout) == (0, True)
    for command in ("relevance", "compare"):
        assert command in crag("eval", "--help").stdout
        assert crag("eval", command, "--help").exit_code == 0


def test_measuring_prints_a_table_and_writes_the_run(here: Path) -> None:
    result = crag("eval", "relevance", FIXTURE, "-e", "own_grader:scripted", "--out", here / "run", "--limit", 8, "--languages", "en, zh")

    assert result.exit_code == 0, result.output
    assert "ScriptedEvaluator, not calibrated, thresholds 0.5 and 0.9" in result.stdout
    for name in ("handmade (en)", "handmade (zh)", "CLAPnq (en)", "CMRC 2018 (zh)"):
        assert name in result.stdout
    assert "zh-en" not in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= cli.WIDTH
    assert "graded 32 of 32" in result.stderr
    assert sorted(p.name for p in (here / "run").iterdir()) == ["report.html", "report.json", "rows.jsonl"]


def test_the_same_run_is_not_overwritten_and_can_be_extended(here: Path) -> None:
    command = ("eval", "relevance", FIXTURE, "-e", "own_grader:Scripted", "--languages", "zh")
    assert crag(*command, "--limit", 2).exit_code == 0
    assert (here / "crag-eval" / "own_grader-Scripted" / "report.html").exists()

    again = crag(*command, "--limit", 2)
    more = crag(*command, "--limit", 4, "--resume")

    assert (again.exit_code, again.stderr.count("is there already")) == (2, 1)
    assert more.exit_code == 0
    assert "graded 4 of 8" in more.stderr.splitlines()[0]


def test_two_runs_are_compared(here: Path) -> None:
    for name in ("scripted", "Scripted"):
        assert (
            crag("eval", "relevance", FIXTURE, "-e", f"own_grader:{name}", "--out", name, "--limit", 6, "--languages", "en").exit_code == 0
        )

    result = crag("eval", "compare", "scripted", "Scripted")

    assert result.exit_code == 0, result.output
    assert "A: scripted\nB: Scripted\n" in result.stdout
    assert "Passage AUC" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= cli.WIDTH


def test_a_chat_model_on_ones_own_server_is_measured_with_its_calls_and_tokens(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "none")
    grades = json.dumps({"grades": [{"passage": n, "label": "relevant", "confidence": 95, "reason": "x"} for n in (1, 2, 3)]})

    with serve_chat(replies=[grades]) as server:
        options = (
            "-e",
            "chat",
            "--model",
            "deepseek:deepseek-flash",
            "--base-url",
            server.url,
            "--limit",
            1,
            "--languages",
            "zh-en",
            "--out",
            "run",
        )
        result = crag("eval", "relevance", FIXTURE, *options)

    assert result.exit_code == 0, result.output
    sets = json.loads((here / "run" / "report.json").read_text())["sets"]
    assert [(s["calls"], s["input_tokens"], s["output_tokens"]) for s in sets] == [(1, 100, 20)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.jsonl", "-e", "embedding"], "the data 'missing.jsonl' can't be read"),
        ([FIXTURE, "-e", "embeding"], "there is no evaluator 'embeding'; there are embedding, e5, chat"),
        ([FIXTURE, "-e", "no_such_module:x"], "can't be imported"),
        ([FIXTURE, "-e", "own_grader:absent"], "can't be imported"),
        ([FIXTURE, "-e", ":x"], "can't be imported"),
        ([FIXTURE, "-e", "own_grader:nothing"], "got int"),
        ([FIXTURE, "-e", "own_grader:make"], "must be callable without arguments"),
        ([FIXTURE, "-e", "embedding", "--model", "openai:x"], "means nothing to the evaluator 'embedding'"),
        ([FIXTURE, "-e", "chat", "--base-url", "http://127.0.0.1:9"], "a base URL needs a model"),
        ([FIXTURE, "-e", "reranker"], "needs a reranker"),
        ([FIXTURE, "-e", "own_grader:scripted", "--languages", "fr"], "no question is in the language 'fr'"),
        ([FIXTURE, "-e", "own_grader:scripted", "--calibration", "none.json"], "the calibration 'none.json' can't be read"),
        ([FIXTURE, "-e", "own_grader:scripted", "--resume"], "there is no run at"),
    ],
)
def test_input_that_can_not_be_used_is_one_line_and_exit_code_2(arguments: list[object], said: str) -> None:
    result = crag("eval", "relevance", *arguments)

    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("crag: ")
    assert said in line


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["eval"],
        ["nothing"],
        ["eval", "relevance"],
        ["eval", "relevance", "x", "-e", "chat", "--limit", "0"],
        ["eval", "compare", "one"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    assert crag(*arguments).exit_code == 2


def test_the_program_itself_exits_with_one_line_and_no_private_text(here: Path) -> None:
    """As a real process: bad data, then a run, then a comparison of things that are no runs."""
    bad = write(here / "bad.jsonl", {"question": PRIVATE, "passages": [{"text": 5}]})

    def program(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "crag_middleware.cli", *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        return subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False, timeout=100)

    refused = program("eval", "relevance", bad, "-e", "own_grader:scripted")
    done = program("eval", "relevance", FIXTURE, "-e", "own_grader:scripted", "--limit", 2, "--languages", "zh")

    assert refused.returncode == 2
    assert refused.stderr == f"crag: {bad}, line 1: `passages.0.text`: Input should be a valid string\n"
    assert (done.returncode, "CMRC 2018 (zh)" in done.stdout) == (0, True), done.stderr
    assert done.stderr.splitlines()[-1] == "graded 4 of 4"


def test_without_the_extra_one_line_says_what_to_install(here: Path) -> None:
    code = "import sys; sys.modules['sklearn'] = None; from crag_middleware.cli import main; main()"
    command = [sys.executable, "-c", code, "eval", "compare", "a", "b"]

    result = subprocess.run(
        command, cwd=here, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=100
    )

    assert result.returncode == 2
    assert result.stderr == 'crag: measuring and calibrating need the extra `evals`: pip install "crag-middleware[evals]"\n'


def test_a_stopped_run_says_how_to_go_on(here: Path) -> None:
    """Ctrl-C in the middle: the second question raises what that raises."""
    (here / "own_grader.py").write_text(
        "from crag_middleware.testing import ScriptedEvaluator\n"
        "class Stopped(ScriptedEvaluator):\n"
        "    def grade(self, question, passages):\n"
        "        if self.asked: raise KeyboardInterrupt\n"
        "        return super().grade(question, passages)\n"
    )

    result = crag("eval", "relevance", FIXTURE, "-e", "own_grader:Stopped", "--out", "run")

    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "crag: stopped; the same command with --resume goes on"
    assert len((here / "run" / "rows.jsonl").read_text().splitlines()) == 2
