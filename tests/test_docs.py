"""What the documents say about the code is true."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

import crag_middleware
from crag_middleware import (
    CRAGSettings,
    GradingError,
    RefineError,
    RetrievalError,
    RewriteError,
    Thresholds,
    WebSearchError,
    ports,
    testing,
)
from crag_middleware.adapters import inner_model, tavily
from crag_middleware.adapters.given_settings import FIXED
from crag_middleware.adapters.reranker_evaluator import RERANKER_THRESHOLDS
from crag_middleware.adapters.token_probability import TOKEN_THRESHOLDS
from crag_middleware.cli import app
from crag_middleware.evals.datasets import load
from crag_middleware.evals.measures import MEASURES
from crag_middleware.findings import Evidence
from crag_middleware.receipt import record
from crag_middleware.settings import CHAT_THRESHOLDS, EMBEDDING_THRESHOLDS
from crag_middleware.types import Grade, Graded, Passage, Question
from tests.support.chat_server import serve_chat

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BESIDE = [path for path in sorted(ROOT.glob("*.md")) if path not in DOCUMENTS]


def examples() -> list[tuple[str, str]]:
    """Every Python block of every document, with where it stands."""
    found = []
    for document in DOCUMENTS:
        blocks = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
        found += [(f"{document.name}-{number}", block) for number, block in enumerate(blocks, 1)]
    return found


@pytest.mark.parametrize("code", [pytest.param(code, id=name) for name, code in examples()])
def test_an_example_in_the_documents_compiles_and_imports_public_names_only(code: str) -> None:
    imports = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom) and node.module == "crag_middleware"]

    for name in (alias.name for node in imports for alias in node.names):
        assert name in crag_middleware.__all__


@pytest.mark.parametrize("document", DOCUMENTS + BESIDE, ids=lambda document: str(document.relative_to(ROOT)))
def test_a_link_to_a_file_leads_to_one(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())

    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_settings_page_lists_every_setting_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))

    defaults = CRAGSettings().model_dump()
    assert listed == {name: repr(value) for name, value in defaults.items()}


def test_a_command_in_the_documents_exists_with_its_options() -> None:
    lines = [
        line.split("#")[0] for text in map(Path.read_text, DOCUMENTS) for line in re.findall(r"^(?:\$ )?crag ([a-z].+)", text, re.MULTILINE)
    ]

    assert len(lines) > 5
    for line in lines:
        command = get_command(app)
        words = line.split()
        while isinstance(command, TyperGroup):
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("-")} <= known, line


@pytest.mark.parametrize(
    ("document", "line"),
    [
        pytest.param(document.name, line, id=f"{document.stem}-{number}")
        for document in DOCUMENTS
        for number, line in enumerate(re.findall(r"^```json\n(\{\"(?:id|question).*)\n```", document.read_text(), re.MULTILINE), 1)
    ],
)
def test_a_line_of_data_in_the_documents_can_be_read(document: str, line: str, tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text(line)

    (item,) = load([path])
    assert item.answerable is True, document


def test_the_measuring_page_says_what_every_number_of_a_report_means() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", (ROOT / "docs" / "measuring.md").read_text(), re.MULTILINE)

    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert {measure.name for measure in MEASURES} <= described


def test_the_evaluators_page_has_the_thresholds_that_are_in_force_without_a_calibration() -> None:
    listed = re.findall(r"^\| `(\w+)` \| ([\d.]+) \| ([\d.]+) \|", (ROOT / "docs" / "evaluators.md").read_text(), re.MULTILINE)

    assert {name: Thresholds(float(lower), float(upper)) for name, lower, upper in listed} == {
        "ChatModelEvaluator": CHAT_THRESHOLDS,
        "EmbeddingEvaluator": EMBEDDING_THRESHOLDS,
        "TokenProbabilityEvaluator": TOKEN_THRESHOLDS,
        "RerankerEvaluator": RERANKER_THRESHOLDS,
    }


def test_the_receipt_page_names_every_key() -> None:
    graded = Graded(passage=Passage(id="p", text=""), grade=Grade("p", 0.5, "ambiguous"))
    evidence = Evidence(question=Question(text="q"), status="grounded", graded=(graded,))
    receipt = record(evidence, name="CRAGMiddleware", detail="full")

    page = (ROOT / "docs" / "receipt.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page.split("\n\n## ")[0], re.MULTILINE) == list(receipt)
    assert [key for key in receipt["passages"][0] if f"`{key}`" not in page] == []


def test_the_receipt_page_names_every_reason() -> None:
    """Every code that an error of a step is raised with, and those that are looked up."""
    steps = {error.__name__ for error in (GradingError, RefineError, RetrievalError, RewriteError, WebSearchError)}
    found = {*inner_model._REASONS.values(), *tavily._REASONS.values(), "failed"}
    for path in (ROOT / "crag_middleware").rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id in steps:
                found |= {k.value.value for k in call.keywords if k.arg == "reason" and isinstance(k.value, ast.Constant)}
    assert {"timeout", "invalid_reply", "no_logprobs"} <= found

    listed = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", (ROOT / "docs" / "receipt.md").read_text(), re.MULTILINE)
    assert found <= {name for row in listed for name in re.findall(r"`(\w+)`", row)}


def test_the_first_example_of_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    """With services on loopback in the places of the real ones."""
    _, code = examples()[0]
    grades = '{"grades": [{"passage": 1, "label": "relevant", "confidence": 97, "reason": "states the days"}]}'

    with serve_chat(replies=[grades, "You have 30 days [1]."]) as chat:
        services = {"DEEPSEEK_API_KEY": "test", "DEEPSEEK_API_BASE": chat.url, "TAVILY_API_KEY": "test", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-c", code]
        result = subprocess.run(command, cwd=tmp_path, env=os.environ | services, capture_output=True, text=True, check=False, timeout=100)

    assert result.stdout == "You have 30 days [1]. relevant\n", result.stderr
    assert "[1] knowledge" in str(chat.requests[-1]["messages"])


def test_the_tenants_page_lists_every_setting_that_is_the_same_for_all() -> None:
    section = (ROOT / "docs" / "tenants.md").read_text().partition("refused here:")[2].partition(". ")[0]

    assert set(re.findall(r"`(\w+)`", section)) == FIXED


def test_the_reference_has_every_public_name_once() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))

    assert sorted(re.findall(r"^::: crag_middleware\.(\w+)$", pages, re.MULTILINE)) == crag_middleware.__all__


def test_the_reference_has_every_suite_and_every_port() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "api").glob("*.md"))

    assert set(re.findall(r"^::: crag_middleware\.testing\.(\w+)$", pages, re.MULTILINE)) == set(testing.__all__)
    protocols = {
        name for name, value in vars(ports).items() if getattr(value, "_is_protocol", False) and value.__module__ == ports.__name__
    }
    assert set(re.findall(r"^::: crag_middleware\.ports\.(\w+)$", pages, re.MULTILINE)) == protocols


def test_every_place_that_the_architecture_names_is_there() -> None:
    table = (ROOT / "ARCHITECTURE.md").read_text().partition("## To change X")[2]

    places = [name for name in re.findall(r"`([\w./*-]+)`", table) if "/" in name or name.endswith((".py", ".yml"))]
    assert len(places) > 30
    assert [place for place in places if not any(any(base.glob(place)) for base in (ROOT / "crag_middleware", ROOT))] == []
