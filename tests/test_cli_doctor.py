"""`crag doctor`: what is wrong is found, told with how to mend it, and makes exit code 1; nothing is changed."""

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from pymilvus import MilvusClient
from typer.testing import CliRunner, Result

from crag_middleware import cli
from crag_middleware.knowledge.open import open_knowledge
from tests.support.milvus import TENANT, WordEmbeddings, insert, make_collection, text_column

ROOT = Path(__file__).resolve().parent.parent

OWN = """
from tests.support.milvus import WordEmbeddings

class Own(WordEmbeddings):
    model = "own-words"

class Other(WordEmbeddings):
    model = "other-words"

class Longer(Own):
    def __init__(self):
        super().__init__(65)

class Broken(Own):
    def embed_query(self, text):
        raise RuntimeError("key-4711")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_words.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_words", raising=False)
    for name in ("CRAG_URI", "CRAG_TOKEN", "CRAG_MODEL", "DEEPSEEK_API_KEY", "TAVILY_API_KEY", "BOCHA_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def crag(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, ["doctor", *map(str, arguments)])


def make(language: str = "zh", text: str = "Refunds are possible within 30 days.") -> MilvusClient:
    knowledge = open_knowledge("knowledge.db", WordEmbeddings(), language=language, embedding_name="own-words")  # type: ignore[arg-type]
    knowledge.add_texts([text], agent_id="support")
    return knowledge.client


def wrong(result: Result) -> dict[str, str]:
    """What is wrong, by check."""
    return {one["check"]: one["found"] for one in json.loads(result.stdout) if one["state"] == "wrong"}


def test_a_sound_collection_is_exit_code_0_and_every_check_is_told() -> None:
    make()

    looked = crag("-a", "support", "-e", "own_words:Own", "--json")

    found = {one["check"]: one["state"] for one in json.loads(looked.stdout)}
    assert looked.exit_code == 0, looked.output
    sound = {"packages", "knowledge", "collection", "tenant field", "indexes", "embeddings", "analyzer", "search", "event loops"}
    assert sound <= {check for check, state in found.items() if state == "ok"}
    assert found["chat model"] == "note"
    assert crag("-e", "own_words:Own").stdout.splitlines()[-1] == "nothing is wrong"


def test_everything_wrong_says_how_to_mend_it_and_changes_nothing(here: Path) -> None:
    client = make()
    client.release_collection("knowledge")
    client.drop_index("knowledge", "dense_embedding")

    looked = crag("-e", "own_words:Other")

    assert looked.exit_code == 1
    lines = looked.stdout.splitlines()
    for line, after in pairwise(lines):
        if line.startswith("WRONG"):
            assert after.startswith("      -> "), line
    assert "WRONG indexes: `dense_embedding` has no index; `sparse_embedding` has no index" in lines
    assert "WRONG embeddings: the collection was made with 'own-words', these are 'other-words'" in lines
    assert client.list_indexes("knowledge") == []


@pytest.mark.parametrize(
    ("embeddings", "found"),
    [
        (["-e", "own_words:Longer"], "these make 65 dimensions, the collection says 64 and holds 64"),
        (["-e", "own_words:Broken"], "they could not embed a word (RuntimeError)"),
        ([], "was made with the embeddings 'own-words'; name them with --embeddings"),
    ],
)
def test_embeddings_that_did_not_make_the_collection_are_wrong(embeddings: list[str], found: str) -> None:
    make()

    looked = crag(*embeddings, "--json")

    assert looked.exit_code == 1
    assert found in wrong(looked)["embeddings"]
    assert "key-4711" not in looked.output


def test_chinese_documents_behind_an_english_analyzer_are_wrong() -> None:
    """As the tenant's own documents say; those of another one are not looked at."""
    make("en", "退款须在三十天内提出。")
    open_knowledge("knowledge.db", WordEmbeddings(), embedding_name="own-words").add_texts(["English."], agent_id="other")

    theirs, others = (wrong(crag("-a", tenant, "-e", "own_words:Own", "--json")) for tenant in ("support", "other"))

    assert theirs == {
        "analyzer": "100% of the tenant's chunks looked at hold Chinese, and the analyzer takes a run of Chinese for one word"
    }
    assert others == {}


def test_a_collection_of_ones_own_is_looked_at_too() -> None:
    client = make_collection("knowledge.db", "mine", {"team": text_column()})
    insert(client, "mine", [{"id": "1", "team": "x", "text": "x"}])
    make_collection("knowledge.db", "plain", {"agent_id": TENANT}, bm25=False)

    mine, plain = crag("--collection", "mine", "--json"), crag("--collection", "plain", "--json")

    assert set(wrong(mine)) == {"collection", "tenant field"}
    assert set(wrong(plain)) == {"collection"}
    assert [one["state"] for one in json.loads(plain.stdout) if one["check"] == "analyzer"] == ["note"]


@pytest.mark.parametrize(
    ("arguments", "check", "found"),
    [
        ([], "knowledge", "there is no file './knowledge.db'"),
        (["--uri", "knowledge"], "knowledge", "`uri` must be a path that ends in `.db`"),
        (["--evaluator", "chat"], "chat model", "can't be built"),
        (["--model", "nope:nope"], "chat model", "can't be built"),
        (["--evaluator", "nope"], "evaluator", "there is no evaluator 'nope'"),
        (["--provider", "tavily"], "web search tavily", "no key for Tavily"),
    ],
)
def test_what_was_asked_for_and_can_not_work_is_wrong(arguments: list[str], check: str, found: str) -> None:
    looked = crag(*arguments, "--json")

    assert looked.exit_code == 1
    assert found in wrong(looked)[check]


def test_a_collection_that_is_missing_is_wrong() -> None:
    make()

    assert "there is no collection `gone`" in wrong(crag("--collection", "gone", "--json"))["collection"]


def test_a_tenant_without_documents_is_noted() -> None:
    make()

    looked = crag("-a", "nobody", "-e", "own_words:Own")

    assert looked.exit_code == 0
    assert "note  search: it works, and the tenant has no documents" in looked.stdout


def test_what_is_no_tenant_is_one_line_and_exit_code_2() -> None:
    make()

    looked = crag("-a", " ")

    assert (looked.exit_code, looked.stdout) == (2, "")
    assert len(looked.stderr.splitlines()) == 1


def test_a_file_that_another_process_holds_is_told(here: Path) -> None:
    """This process holds it; a real second one looks."""
    make()
    command = [sys.executable, "-m", "crag_middleware.cli", "doctor", "--json"]

    looked = subprocess.run(
        command, cwd=here, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=100
    )

    (one,) = [one for one in json.loads(looked.stdout) if one["check"] == "knowledge"]
    assert (looked.returncode, one["state"], looked.stderr) == (1, "wrong", "")
    assert "another process holds the file" in one["mend"]
