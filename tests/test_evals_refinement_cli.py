"""`crag eval refinement`: what it prints, what it writes, and how it exits."""

import json
import sys
from pathlib import Path

import pytest

from crag_middleware import cli
from tests.support.chat_server import serve_chat
from tests.test_cli import crag
from tests.test_evals_refinement import FIXTURE

OWN = """
from crag_middleware import CompressorRefiner, WordRefiner
from langchain_core.documents import BaseDocumentCompressor

class Plain:
    def refine(self, question, passages):
        return WordRefiner().refine(question, passages)

class Stopped(Plain):
    asked = 0
    def refine(self, question, passages):
        Stopped.asked += 1
        if Stopped.asked > 1: raise KeyboardInterrupt
        return super().refine(question, passages)

class Filter(BaseDocumentCompressor):
    def compress_documents(self, documents, query, callbacks=None):
        return documents[:1]

def filter():
    return CompressorRefiner(Filter())

nothing = 5
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, with refiners of one's own in `own_refiner.py`."""
    (tmp_path / "own_refiner.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_refiner", raising=False)
    return tmp_path


def test_measuring_prints_a_table_and_writes_the_run(here: Path) -> None:
    result = crag("eval", "refinement", FIXTURE, "-r", "words", "--out", here / "run", "--limit", 2, "--languages", "en, zh")

    assert result.exit_code == 0, result.output
    for name in ("handmade (en), 2", "handmade (zh), 2", "CLAPnq (en), 2", "CMRC 2018 (zh), 2", "refiner, ranked", "idf word overlap"):
        assert name in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= cli.WIDTH
    assert result.stderr.splitlines()[-1] == "refined 8 of 8"
    assert sorted(p.name for p in (here / "run").iterdir()) == ["report.html", "report.json", "rows.jsonl"]


def test_a_refiner_of_ones_own_and_a_compressor_have_a_point_and_no_curve(here: Path) -> None:
    for name in ("Plain", "filter"):
        result = crag("eval", "refinement", FIXTURE, "-r", f"own_refiner:{name}", "--limit", 2, "--no-baselines")

        assert result.exit_code == 0, result.output
        sets = json.loads((here / "crag-eval" / f"own_refiner-{name}" / "report.json").read_text())["sets"]
        assert [s["rankings"] for s in sets] == [{}] * 4
        assert all(0 < s["point"]["kept"]["value"] <= 1 for s in sets)


def test_a_run_is_not_overwritten_and_goes_on_with_more(here: Path) -> None:
    command = ("eval", "refinement", FIXTURE, "-r", "words", "--no-baselines", "--languages", "zh")
    assert crag(*command, "--limit", 2).exit_code == 0

    again = crag(*command, "--limit", 2)
    more = crag(*command, "--limit", 4, "--resume")

    assert (again.exit_code, again.stderr.count("is there already")) == (2, 1)
    assert more.exit_code == 0
    assert "refined 4 of 8" in more.stderr.splitlines()[0]


def test_a_chat_model_on_ones_own_server_is_measured_with_its_calls_and_tokens(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "none")
    options = ("-r", "chat", "--model", "deepseek:deepseek-flash", "--limit", 1, "--languages", "en", "--no-baselines", "--out", "run")

    with serve_chat(replies=['{"lines": [1]}']) as server:
        result = crag("eval", "refinement", FIXTURE, "--base-url", server.url, *options)

    assert result.exit_code == 0, result.output
    sets = json.loads((here / "run" / "report.json").read_text())["sets"]
    assert [(s["calls"], s["input_tokens"], s["output_tokens"]) for s in sets] == [(1, 100, 20)] * 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["missing.jsonl", "-r", "words"], "the data 'missing.jsonl' can't be read"),
        ([FIXTURE, "-r", "word"], "there is no refiner 'word'; there are words, embedding, e5, chat"),
        ([FIXTURE, "-r", "no_such_module:x"], "can't be imported"),
        ([FIXTURE, "-r", "own_refiner:nothing"], "a port needs a method `refine` or `arefine`, got an object of type int"),
        ([FIXTURE, "-r", "words", "--model", "openai:x"], "means nothing to the refiner 'words'"),
        ([FIXTURE, "-r", "chat", "--base-url", "http://127.0.0.1:9"], "a base URL needs a model"),
        ([FIXTURE, "-r", "words", "--languages", "fr"], "no question is in the language 'fr'"),
        ([FIXTURE.parent / "relevance.jsonl", "-r", "words"], "no known kind of question"),
        ([FIXTURE, "-r", "words", "--resume"], "there is no run at"),
    ],
)
def test_input_that_can_not_be_used_is_one_line_and_exit_code_2(arguments: list[object], said: str) -> None:
    result = crag("eval", "refinement", *arguments)

    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("crag: ")
    assert said in line


def test_a_run_of_a_refiner_is_none_to_compare(here: Path) -> None:
    assert crag("eval", "refinement", FIXTURE, "-r", "words", "--no-baselines", "--limit", 1, "--out", "run").exit_code == 0

    result = crag("eval", "compare", "run", "run")

    assert result.exit_code == 2
    assert "is no run of version 1; `crag eval relevance` writes one" in result.stderr


def test_a_stopped_run_says_how_to_go_on(here: Path) -> None:
    result = crag("eval", "refinement", FIXTURE, "-r", "own_refiner:Stopped", "--no-baselines", "--out", "run")

    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "crag: stopped; the same command with --resume goes on"
    assert len((here / "run" / "rows.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize("arguments", [["x"], ["-r", "words"], ["x", "-r", "words", "--limit", "0"]])
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    assert crag("eval", "refinement", *arguments).exit_code == 2
