"""What the documents say about the code is true."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import crag_middleware
from crag_middleware import CRAGSettings
from tests.support.chat_server import serve_chat

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


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


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_a_link_to_a_file_leads_to_one(document: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text())

    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_settings_page_lists_every_setting_with_its_default() -> None:
    listed = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))

    defaults = CRAGSettings().model_dump()
    assert listed == {name: repr(value) for name, value in defaults.items()}


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
