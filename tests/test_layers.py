"""Imports go down only: the contracts stand in pyproject.toml, here they are enforced and shown to bite."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "crag_middleware"
PURE = {"jieba", "pydantic", "snowballstemmer"}
"""What `stages/` may import besides the standard library and layers below it."""


def lint(root: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the package in `root`, with the contracts beside it."""
    environment = os.environ | {"PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()", "--no-cache"]
    return subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package and its contracts in a directory of their own, free to be broken."""
    shutil.copytree(ROOT / PACKAGE, tmp_path / PACKAGE, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_imports_go_down_only() -> None:
    result = lint(ROOT)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "2 kept, 0 broken" in result.stdout


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("types.py", "from crag_middleware import steps", "Imports go down only"),
        ("errors.py", "from crag_middleware.types import Passage", "Imports go down only"),
        ("stages/__init__.py", "from crag_middleware import adapters", "Imports go down only"),
        ("stages/__init__.py", "import pymilvus", "Stages reach no service and no model"),
        ("stages/__init__.py", "from langchain_core.messages import HumanMessage", "Stages reach no service and no model"),
        ("newcomer.py", "", "Imports go down only"),
    ],
)
def test_a_forbidden_import_or_a_module_without_a_layer_fails_the_check(copy: Path, module: str, line: str, contract: str) -> None:
    with (copy / PACKAGE / module).open("a") as file:
        file.write(f"\n{line}\n")

    result = lint(copy)

    assert result.returncode != 0
    assert f"{contract} BROKEN" in result.stdout


def test_stages_import_nothing_but_the_standard_library_and_pure_text_libraries() -> None:
    graph = grimp.build_graph(PACKAGE, include_external_packages=True, cache_dir=None)
    stages = {f"{PACKAGE}.stages"} | graph.find_descendants(f"{PACKAGE}.stages")

    imported = {target.partition(".")[0] for stage in stages for target in graph.find_modules_directly_imported_by(stage)}

    assert imported - set(sys.stdlib_module_names) - PURE == {PACKAGE}
