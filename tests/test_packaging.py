"""A fresh machine gets what the project says: the lock, the virtual environment, the entry points."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

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

PROBE = """
reveal_type(crag)
reveal_type(knowledge)
"""
TYPED = """
from crag_middleware import CRAGMiddleware, CRAGSettings, EmbeddingEvaluator, Grade, LocalEmbeddings, Passage, Route, WebPolicy, explain, open_knowledge


def search(question: str, *, limit: int) -> list[Passage]:
    return [Passage(id="1", text=question)][:limit]


def grades(passages: list[Passage]) -> list[Grade]:
    return [Grade(passage_id=passage.id, probability=0.5, label="ambiguous") for passage in passages]


knowledge = open_knowledge("knowledge.db", LocalEmbeddings())
done = knowledge.ingest("docs/", agent_id="support")
crag = CRAGMiddleware(
    knowledge,
    agent_id="support",
    evaluator=EmbeddingEvaluator(LocalEmbeddings()),
    routes=[Route("search", search, public=True)],
    web_policy=WebPolicy(mode="incorrect"),
    settings=CRAGSettings(top_k=3),
)
print(done.embedded, explain({}), crag.health("support").turns)
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
        if requirement.name == project["name"]:  # an extra made of others
            continue
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


def test_every_target_that_a_workflow_or_a_document_makes_is_there() -> None:
    there = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    asked = "".join(path.read_text() for path in [*ROOT.glob(".github/workflows/*"), *ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])

    commands = re.findall(r"^(?:.*run: |    )?make ((?:[a-z-]+ ?)+)", asked, re.MULTILINE)
    assert len(commands) > 5
    assert {target for command in commands for target in command.split()} <= there


def test_an_extra_that_an_error_names_is_one_and_all_holds_every_other() -> None:
    """An error says `pip install "crag-middleware[files]"` where something is missing; that each one does is tested with what needs it."""
    extras = PROJECT["project"]["optional-dependencies"]
    sources = "".join(path.read_text() for path in (ROOT / "crag_middleware").rglob("*.py"))

    named = set(re.findall(r"crag-middleware\[(\w+(?:-\w+)*)\]", sources))
    assert {"local", "e5", "files", "evals"} <= named <= set(extras)
    assert set(Requirement(extras["all"][0]).extras) == set(extras) - {"all"}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source archive, as they would be published."""
    return build(ROOT, tmp_path_factory.mktemp("dist"), ["wheel", "sdist"])


def build(source: Path, folder: Path, targets: Sequence[str]) -> tuple[Path, Path]:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    command += [word for target in targets for word in ("--target", target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=100)
    (wheel,) = folder.glob("*.whl")
    return wheel, next(folder.glob("*.tar.gz"), wheel)


def packaged(names: Sequence[str]) -> set[str]:
    return {name for name in names if name.startswith("crag_middleware/")}


def test_the_wheel_holds_the_package_its_types_and_its_data_and_nothing_else(built: tuple[Path, Path]) -> None:
    with ZipFile(built[0]) as wheel:
        names = wheel.namelist()

    here = {str(path.relative_to(ROOT)) for path in (ROOT / "crag_middleware").rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert packaged(names) == here
    assert {"crag_middleware/py.typed", "crag_middleware/__init__.pyi"} <= here
    assert any(name.startswith("crag_middleware/calibrations/") for name in here)
    assert {name.partition("/")[0].rpartition(".")[2] for name in set(names) - here} == {"dist-info"}


def test_the_metadata_says_what_an_index_shows(built: tuple[Path, Path]) -> None:
    with ZipFile(built[0]) as wheel:
        (path,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
        metadata = Parser().parsestr(wheel.read(path).decode())

    project = PROJECT["project"]
    assert (metadata["Name"], metadata["Version"], metadata["License-Expression"]) == (project["name"], project["version"], "MIT")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")
    assert set(metadata.get_all("Provides-Extra", [])) == set(project["optional-dependencies"])
    assert {line.partition(",")[0] for line in metadata.get_all("Project-URL", [])} == set(project.get("urls", {}))
    assert {"Typing :: Typed", "Framework :: AsyncIO", "Topic :: Scientific/Engineering :: Artificial Intelligence"} <= set(
        metadata.get_all("Classifier", [])
    )


def test_the_source_archive_builds_the_same_wheel_and_holds_tests_and_documents(built: tuple[Path, Path], tmp_path: Path) -> None:
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()

    again, _ = build(source, tmp_path / "dist", ["wheel"])

    with ZipFile(built[0]) as wheel, ZipFile(again) as rebuilt:
        assert [(one.filename, one.CRC) for one in rebuilt.infolist()] == [(one.filename, one.CRC) for one in wheel.infolist()]
    beside = {
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "README.zh.md",
        "SECURITY.md",
        "THREAT_MODEL.md",
    }
    assert beside | {"constraints.txt", "docs", "examples", "mkdocs.yml", "tests", "tools"} <= {path.name for path in source.iterdir()}


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts of an environment that has the built wheel, and the dependencies of this one: without the checkout, which a nested .pth would bring."""
    home = tmp_path_factory.mktemp("home") / "env"
    venv.create(home, with_pip=False)
    scripts = home / "bin"
    site = next((home / "lib").glob("python*")) / "site-packages"
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(scripts / "python"),
        "install",
        "--no-deps",
        "--no-index",
        "--force-reinstall",
        str(built[0]),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return scripts


def run_installed(scripts: Path, folder: Path, *command: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = [str(scripts / command[0]), *command[1:]]
    result = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_the_installed_wheel_answers_without_the_checkout(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "quickstart.py").write_text((ROOT / "examples" / "quickstart.py").read_text())

    assert run_installed(installed, tmp_path, "python", "-c", "import crag_middleware as c; print(c.__file__)").startswith(
        str(installed.parent)
    )
    assert "30 days" in run_installed(installed, tmp_path, "python", "quickstart.py")
    assert "ingest" in run_installed(installed, tmp_path, "crag", "--help")


@pytest.mark.slow
def test_a_typed_program_over_the_installed_wheel_passes_strict_mypy(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text((ROOT / "examples" / "quickstart.py").read_text() + PROBE)

    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--python-executable",
        str(installed / "python"),
        "--follow-imports=silent",
        "program.py",
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110)

    assert re.findall(r'Revealed type is "([\w.]+)"', result.stdout) == [
        "crag_middleware.middleware.CRAGMiddleware",
        "crag_middleware.knowledge.store.KnowledgeStore",
    ], result.stdout + result.stderr
    assert "Success" in result.stdout


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="pyright runs on node")
def test_a_typed_program_over_the_installed_wheel_passes_strict_pyright(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TYPED)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}')

    command = [sys.executable, "-m", "pyright", "--pythonpath", str(installed / "python"), "program.py"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=110)

    assert "0 errors, 0 warnings" in result.stdout, result.stdout + result.stderr
