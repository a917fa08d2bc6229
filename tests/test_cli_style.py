"""All commands are of one style: one line for wrong input, the same options, JSON where something is printed, plain text in pipes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from crag_middleware import cli
from tests.test_cli_receipts import receipt

ROOT = Path(__file__).resolve().parent.parent


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command with the words that call it."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = dict(commands(get_command(cli.app)))
NAMES = ["-".join(path) for path in ALL]


def options(command: Any) -> dict[str, Any]:
    return {option: parameter for parameter in command.params for option in parameter.opts}


@pytest.mark.parametrize("path", ALL, ids=NAMES)
def test_an_unknown_option_is_one_line_and_exit_code_2(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(cli.app, [*path, "--nope"])

    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("crag: No such option: --nope")
    assert line.endswith(f"{' '.join(path)} --help` tells more")


@pytest.mark.parametrize("path", ALL, ids=NAMES)
def test_every_command_prints_json_if_asked(path: tuple[str, ...]) -> None:
    assert "--json" in options(ALL[path])


@pytest.mark.parametrize("path", ALL, ids=NAMES)
def test_every_command_and_option_is_described(path: tuple[str, ...]) -> None:
    assert ALL[path].help
    for parameter in ALL[path].params:
        assert getattr(parameter, "help", None), parameter.name


def test_the_same_thing_has_the_same_name_everywhere() -> None:
    for path, command in ALL.items():
        known = options(command)
        if "--tenant" in known:
            assert known["--tenant"] is known["--agent-id"], path
        if "--agent-id" in known:
            assert "-a" in known["--agent-id"].opts, path
        if "--uri" in known:
            assert {"--token", "--database", "--collection"} <= known.keys(), path
            assert known["--uri"].envvar == "CRAG_URI", path
        for one in ("--evaluator", "--embeddings", "--model", "--provider"):
            assert known[one].metavar in ("NAME", "PROVIDER:NAME") if one in known else True, path


@pytest.mark.parametrize("arguments", [["nope"], ["eval", "nope"], ["explain", "--lower", "x"], ["explain", "--lower", "2"], ["ask"]])
def test_a_wrong_command_line_is_one_line(arguments: list[str]) -> None:
    result = CliRunner().invoke(cli.app, arguments)

    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1)


def test_without_a_command_the_help_is_shown_and_the_exit_code_is_2() -> None:
    result = CliRunner().invoke(cli.app, [])

    assert result.exit_code == 2
    assert "Usage:" in result.output


@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1", "FORCE_COLOR": "1"}], ids=["pipe", "no-color"])
def test_nothing_is_coloured_in_a_pipe_or_with_no_color(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(json.dumps(receipt(0.8, detail="full")))
    command = [sys.executable, "-m", "crag_middleware.cli"]
    settings = os.environ | {"PYTHONPATH": str(ROOT)} | environment

    result = subprocess.run(
        [*command, "replay", "r.json"], cwd=tmp_path, env=settings, capture_output=True, text=True, check=False, timeout=100
    )

    assert "verdict" in result.stdout, result.stderr
    assert "\x1b[3" not in result.stdout


def test_bytes_that_are_no_text_are_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "wrong.json").write_bytes(b"\xff\xfe{")
    command = [sys.executable, "-m", "crag_middleware.cli", "explain"]
    settings = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}

    read = CliRunner().invoke(cli.app, ["explain", str(tmp_path / "wrong.json")])
    piped = subprocess.run(command, input=b"\xff\xfe{", env=settings, capture_output=True, check=False, timeout=100)

    assert (read.exit_code, read.stderr.split("/")[-1]) == (2, "wrong.json' can't be read: it is not UTF-8\n")
    assert (piped.returncode, len(piped.stderr.splitlines())) == (2, 1)


@pytest.mark.parametrize("shell", ["bash", *(pytest.param(one, marks=pytest.mark.slow) for one in ("zsh", "fish"))])
def test_the_shell_can_complete_commands_and_options(shell: str) -> None:
    """As the shell asks: through the environment."""
    asked = {"_CRAG_COMPLETE": f"complete_{shell}", "COMP_WORDS": "crag ex", "COMP_CWORD": "1", "_TYPER_COMPLETE_ARGS": "crag ex"}
    command = [sys.executable, "-c", "import sys; sys.argv[0] = 'crag'; from crag_middleware.cli import main; main()"]

    result = subprocess.run(
        command, env=os.environ | asked | {"PYTHONPATH": str(ROOT), "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip

    assert "explain" in result.stdout, result.stderr
    assert "export" in result.stdout
