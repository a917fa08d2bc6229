"""A fresh machine gets what the project says: the lock, the virtual environment, the entry points."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#"))

WITHOUT_VENV = f"""#!/bin/sh
case "$*" in
    *ensurepip*|"-m venv"*|"-m virtualenv"*) echo "The virtual environment was not created"; exit 1 ;;
    *) exec "{sys.executable}" "$@" ;;
esac
"""
TOO_OLD = """#!/bin/sh
case "$*" in
    *platform*) echo 3.9.2 ;;
    *) exit 1 ;;
esac
"""


def make_venv(folder: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run the script with a stand-in for the machine's `python3` and nothing else of Python on the path."""
    script = folder / "bin" / "python3"
    script.parent.mkdir()
    script.write_text(python)
    script.chmod(0o755)
    environment = {"PATH": f"{script.parent}:/usr/bin:/bin"}
    command = ["sh", str(ROOT / "tools" / "make_venv.sh"), "python3", "env"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_lock_holds_exact_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()[1:]

    assert lines == sorted(lines, key=lambda line: line.split("==")[0])
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.+]*", line) for line in lines)


def test_the_lock_pins_every_dependency_within_its_declared_range() -> None:
    project = PROJECT["project"]
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    declared = [*project["dependencies"], *extras, *PROJECT["dependency-groups"]["dev"], *PROJECT["build-system"]["requires"]]

    for requirement in map(Requirement, declared):
        assert PINS[requirement.name] in requirement.specifier, requirement.name


@pytest.mark.skipif(os.path.exists("/usr/bin/virtualenv"), reason="this machine has a virtualenv to fall back on")
def test_a_machine_without_venv_is_told_in_one_line_which_package_is_missing(tmp_path: Path) -> None:
    result = make_venv(tmp_path, WITHOUT_VENV)

    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "python3-venv" in result.stderr
    assert not (tmp_path / "env").exists()


def test_a_python_out_of_range_is_refused_in_one_line(tmp_path: Path) -> None:
    result = make_venv(tmp_path, TOO_OLD)

    assert result.returncode == 1
    assert result.stderr == "error: Python 3.11 to 3.13 is needed, python3 is 3.9.2; name another: make PYTHON=python3.12\n"


def test_an_environment_that_works_is_kept(tmp_path: Path) -> None:
    python = tmp_path / "env" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/true")

    result = make_venv(tmp_path, f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')

    assert (result.returncode, result.stdout, python.is_symlink()) == (0, "", True)


def test_the_ci_entry_point_can_be_executed() -> None:
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


def test_users_of_the_package_get_its_types() -> None:
    assert (ROOT / "crag_middleware" / "py.typed").is_file()
