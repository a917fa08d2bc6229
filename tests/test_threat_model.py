"""The threat model names tests that exist, for each of its threats."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "THREAT_MODEL.md").read_text()
NAMED = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
SECTIONS = dict(zip(re.findall(r"^## (.+)$", TEXT, re.MULTILINE), re.split(r"^## .+$", TEXT, flags=re.MULTILINE)[1:], strict=True))
DEFENDED = [section for section in SECTIONS if section != "Not defended"]


def defined_in(file: str) -> set[str]:
    """The tests that a file defines, in classes too."""
    tree = ast.parse((ROOT / "tests" / file).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(("file", "name"), sorted(set(NAMED.findall(TEXT))))
def test_every_test_that_is_named_exists(file: str, name: str) -> None:
    assert name in defined_in(file)


@pytest.mark.parametrize("section", DEFENDED)
def test_every_threat_has_a_test(section: str) -> None:
    rows = [line for line in SECTIONS[section].splitlines() if line.startswith("|")][2:]

    assert rows
    assert [row for row in rows if not NAMED.search(row.split("|")[-2])] == []


def test_everything_is_covered_that_has_to_be() -> None:
    assert {
        "Tenants",
        "Poisoned passages",
        "Injected instructions",
        "Web egress",
        "Logs",
        "Traces",
        "Checkpoints",
        "Supply chain",
    } <= SECTIONS.keys()
    assert "- " in SECTIONS["Not defended"]
