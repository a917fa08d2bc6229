"""`crag ask` and `crag chat`: what an agent over a tenant's knowledge answers in the terminal, and how it ends."""

import json
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crag_middleware import cli
from crag_middleware.adapters.local_embeddings import LocalEmbeddings
from crag_middleware.knowledge.open import open_knowledge
from tests.support.chat_server import serve_chat

ROOT = Path(__file__).resolve().parent.parent
REFUNDS = "Refunds are possible within 30 days of delivery."
FOREIGN = "The secret of the other tenant is 4711, and refunds are possible within 99 days."
QUESTION = "Within how many days are refunds possible?"

SLOW = """
import time

class Slow:
    def grade(self, question, passages):
        time.sleep(60)
        return ()
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the knowledge of two tenants."""
    folder = tmp_path_factory.mktemp("base")
    knowledge = open_knowledge(folder / "knowledge.db", LocalEmbeddings())
    knowledge.add_texts([REFUNDS, "退款须在三十天内提出。"], [{"title": "Refunds"}, {"title": "退款"}], agent_id="support")
    knowledge.add_texts([FOREIGN], agent_id="other")
    return folder


@pytest.fixture(autouse=True)
def here(base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(base)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("CRAG_URI", "CRAG_TOKEN", "CRAG_MODEL", "DEEPSEEK_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    yield base
    for path in base.glob("*.jsonl"):
        path.unlink()


def crag(*arguments: object, lines: str | None = None) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments], input=lines)


def test_an_answer_is_quoted_without_a_key_and_the_receipt_follows() -> None:
    asked = crag("ask", QUESTION, "-a", "support")

    assert asked.exit_code == 0, asked.output
    answer, receipt = asked.stdout.split("\n\n")
    assert REFUNDS in answer
    assert answer.endswith("[1]")
    assert receipt.startswith("verdict    relevant: evidence from the knowledge\n")
    assert asked.stderr == "crag: no chat model can be had (set DEEPSEEK_API_KEY, or name one with --model), so answers are quotations\n"
    assert "4711" not in asked.output


def test_the_quoting_model_can_be_asked_for_and_speaks_chinese() -> None:
    asked = crag("ask", "退款须在几天内提出？", "-a", "support", "--model", "quoting")

    assert (asked.exit_code, asked.stderr) == (0, "")
    assert "退款须在三十天内提出。”[" in asked.stdout


def test_nothing_found_is_exit_code_1_and_no_other_tenants_text() -> None:
    asked = crag("ask", QUESTION, "-a", "nobody", "--model", "quoting")

    assert asked.exit_code == 1
    assert asked.stdout.startswith("I found no source that answers this.\n")
    assert "99 days" not in asked.output


def test_json_is_the_question_the_answer_and_the_receipt() -> None:
    asked = crag("ask", "-", "-a", "support", "--model", "quoting", "--json", lines=QUESTION)

    said = json.loads(asked.stdout)
    assert list(said) == ["question", "answer", "receipt"]
    assert (said["question"], said["receipt"]["verdict"]) == (QUESTION, "relevant")


def test_receipts_are_added_to_a_file_that_only_this_user_may_read(here: Path) -> None:
    for _ in range(2):
        crag("ask", QUESTION, "-a", "support", "--model", "quoting", "--receipts", "kept.jsonl")

    assert [json.loads(line)["schema"] for line in (here / "kept.jsonl").read_text().splitlines()] == [1, 1]
    assert stat.S_IMODE((here / "kept.jsonl").stat().st_mode) == 0o600


def test_settings_and_evaluator_are_taken(here: Path) -> None:
    (here / "settings.json").write_text('{"upper": 1.0, "receipt_detail": "full"}')

    asked = crag(
        "ask", QUESTION, "-a", "support", "--model", "quoting", "--evaluator", "embedding", "--settings", "settings.json", "--json"
    )

    receipt = json.loads(asked.stdout)["receipt"]
    assert (receipt["verdict"], receipt["passages"][0]["text"]) == ("ambiguous", REFUNDS)


def test_a_chat_model_answers_and_grades(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPSEEK_API_KEY", "none")
    grades = json.dumps({"grades": [{"passage": n, "label": "relevant", "confidence": 95, "reason": "x"} for n in (1, 2)]})

    with serve_chat(replies=[grades, "Within 30 days [1]."]) as server:
        asked = crag("ask", QUESTION, "-a", "support", "--model", "deepseek:deepseek-flash", "--base-url", server.url, "--checker", "words")

    assert asked.exit_code == 0, asked.output
    assert asked.stdout.startswith("Within 30 days [1].\n\nverdict    relevant")


def test_a_chat_model_that_fails_is_one_line_and_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "none")

    asked = crag(
        "ask", QUESTION, "-a", "support", "--evaluator", "embedding", "--model", "deepseek:x", "--base-url", "http://127.0.0.1:9"
    )  # fmt: skip

    assert asked.exit_code == 1
    (line,) = asked.stderr.splitlines()
    assert line.startswith("crag: the chat model failed (")
    assert "refunds" not in line


def test_a_chat_keeps_its_thread_shows_receipts_and_ends_with_quit() -> None:
    talked = crag("chat", "-a", "support", "--model", "quoting", lines=f"/receipt\n{QUESTION}\n\n/receipt\n/quit\nnever asked\n")

    assert talked.exit_code == 0, talked.output
    assert talked.stdout.startswith("there is no receipt yet\n")
    assert "(relevant, " in talked.stdout
    assert talked.stdout.count("verdict    relevant") == 1
    assert "never asked" not in talked.output


def test_a_chat_as_json_is_one_line_a_turn() -> None:
    talked = crag("chat", "-a", "support", "--model", "quoting", "--json", lines=f"{QUESTION}\n退款须在几天内提出？")

    turns = [json.loads(line) for line in talked.stdout.splitlines()]
    assert [turn["question"] for turn in turns] == [QUESTION, "退款须在几天内提出？"]
    assert len({turn["receipt"]["message_id"] for turn in turns}) == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["ask", " ", "-a", "support"], "the question must not be blank"),
        (["ask", "x", "-a", " "], "`agent_id` must hold 1 to 256 bytes"),
        (["ask", "x", "-a", "a", "--uri", "gone.db"], "there is no collection 'knowledge' at 'gone.db'"),
        (["ask", "x", "-a", "a", "--collection", "gone"], "there is no collection 'gone'"),
        (["ask", "x", "-a", "a", "--model", "quoting", "--evaluator", "nope"], "there is no evaluator 'nope'"),
        (["ask", "x", "-a", "a", "--model", "quoting", "--checker", "nope"], "there is no claim checker 'nope'"),
        (["ask", "x", "-a", "a", "--model", "nope:nope"], "the chat model 'nope:nope' can't be built"),
        (["ask", "x", "-a", "a", "--model", "quoting", "--settings", "gone.json"], "'gone.json' can't be read: No such file"),
        (["ask", "x", "-a", "a", "--model", "quoting", "--calibration", "gone.json"], "the calibration 'gone.json' can't be read"),
        (["ask", "x", "-a", "a", "--model", "quoting", "--embeddings", "e6"], "there is no embeddings 'e6'"),
        (["chat", "-a", "a", "--model", "quoting", "-p", "nope"], "there is no web search 'nope'"),
    ],
)
def test_input_that_can_not_be_used_is_one_line_and_exit_code_2(arguments: list[str], told: str) -> None:
    result = crag(*arguments)

    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr.splitlines()[-1]
    assert "Traceback" not in result.output


@pytest.mark.parametrize("content", ["[1]", "{", '{"top_kk": 3}', '{"lower": 2}', "\u0000"])
def test_settings_that_are_none_are_one_line(here: Path, content: str) -> None:
    (here / "wrong.json").write_text(content)

    result = crag("ask", "x", "-a", "a", "--model", "quoting", "--settings", "wrong.json")

    assert (result.exit_code, len(result.stderr.splitlines())) == (2, 1)


class Terminal:
    """A real process of the program on a terminal of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.end, inner = pty.openpty()
        environment = os.environ | {"PYTHONPATH": f"{ROOT}", "TERM": "xterm"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "crag_middleware.cli", *arguments],
            cwd=folder,
            env=environment,
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        self.text = ""

    def until(self, wanted: str, timeout_s: float = 60.0) -> str:
        """What it shows until the wanted text is there."""
        ends = time.monotonic() + timeout_s
        while wanted not in self.text:
            assert time.monotonic() < ends, self.text[-300:]
            if select.select([self.end], [], [], 0.2)[0]:
                try:
                    self.text += os.read(self.end, 4096).decode("utf-8", "replace")
                except OSError:  # the process ended
                    break
        assert wanted in self.text, self.text[-300:]
        seen, _, self.text = self.text.partition(wanted)
        return seen + wanted

    def type(self, text: bytes) -> None:
        os.write(self.end, text)

    def close(self) -> int:
        code = self.process.wait(timeout=60)
        os.close(self.end)
        return code


@pytest.fixture
def own_base(tmp_path: Path) -> Path:
    """A base that another process may open, with an evaluator that takes its time."""
    (tmp_path / "slow_grader.py").write_text(SLOW)
    (tmp_path / "docs.md").write_text(REFUNDS)
    command = [sys.executable, "-m", "crag_middleware.cli", "ingest", "docs.md", "-a", "support"]
    subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": f"{ROOT}"}, check=True, capture_output=True, timeout=60)
    return tmp_path


@pytest.mark.slow
def test_on_a_terminal_ctrl_c_stops_an_answer_and_ctrl_d_ends_the_chat(own_base: Path) -> None:
    chat = Terminal(own_base, "chat", "-a", "support", "--model", "quoting", "--evaluator", "slow_grader:Slow")
    try:
        chat.until("> ")
        chat.type(f"{QUESTION}\n".encode())
        chat.until("grading")
        chat.process.send_signal(signal.SIGINT)
        stopped = chat.until("ends the chat")
        chat.until("> ")
        chat.type(b"\x04")
        rest = chat.until("\n")
        assert "Traceback" not in stopped + rest
        assert chat.close() == 0
    finally:
        if chat.process.poll() is None:
            chat.process.kill()


@pytest.mark.slow
def test_on_a_terminal_ctrl_c_at_the_prompt_ends_the_chat(own_base: Path) -> None:
    chat = Terminal(own_base, "chat", "-a", "support", "--model", "quoting", "--evaluator", "embedding")
    try:
        chat.until("> ")
        chat.process.send_signal(signal.SIGINT)
        assert chat.close() == 0
    finally:
        if chat.process.poll() is None:
            chat.process.kill()
