"""The examples run as their reader would run them: without keys, each in a process of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(name: str, *arguments: str) -> str:
    """What the example prints."""
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples" / name), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=100).stdout


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the demo prints, by part: the head and the four turns, first and second run."""
    folder = str(tmp_path_factory.mktemp("demo") / "kept")
    return [part for _ in range(2) for part in re.split(r"\n── ", run("demo.py", folder))]


def test_the_demo_shows_each_verdict_and_makes_its_knowledge_once(demo: list[str]) -> None:
    first, second = demo[:5], demo[5:]

    for turns in (first, second):
        assert [re.findall(r"^  verdict +(\w+)", turn, re.MULTILINE) for turn in turns[1:]] == [
            ["relevant"],
            ["relevant"],
            ["ambiguous"],
            ["incorrect"],
        ]
    assert ("made in" in first[0], "opened in" in second[0]) == (True, True)


def test_the_demo_answers_the_same_question_from_each_tenants_own_documents(demo: list[str]) -> None:
    aurora, borealis = demo[1], demo[2]

    assert ("30 days" in aurora, "14 days" in aurora) == (True, False)
    assert ("14 days" in borealis, "30 days" in borealis) == (True, False)


def test_the_demo_sends_to_the_web_what_the_knowledge_does_not_answer_and_nothing_else(demo: list[str]) -> None:
    sent = [re.findall(r"^  to the web +(.*)$", turn, re.MULTILINE) for turn in demo[1:5]]

    assert sent == [["nothing"], ["nothing"], ['"电池可以带上飞机吗？"'], ['"Which planet has the most moons?"']]
    assert "Saturn" in demo[4]


def test_the_quickstart_answers_from_its_documents() -> None:
    assert "30 days of delivery.” [1]" in run("quickstart.py")


def test_own_parts_serve_as_retriever_evaluator_and_web_search() -> None:
    printed = run("own_parts.py")

    assert "The documents say: “The museum is closed on Mondays.” [1]" in printed
    assert "The web says: “The tram to the museum runs every 10 minutes.” [1]" in printed
