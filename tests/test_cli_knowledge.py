"""`crag ingest`, `sources`, `delete`, `purge`, `export`, `migrate`: what they print, and how they exit."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from crag_middleware import cli
from crag_middleware.knowledge.open import open_knowledge
from tests.support.milvus import WordEmbeddings
from tests.test_ingest import HANDBOOK, write
from tests.test_knowledge_ingest import stored

ROOT = Path(__file__).resolve().parent.parent

OWN = """
from tests.support.milvus import WordEmbeddings

class Own(WordEmbeddings):
    model = "own-words"

class Slow(Own):
    def embed_documents(self, texts):
        import time
        print("embedding", flush=True)
        time.sleep(60)

nothing = 5
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with documents to work in."""
    (tmp_path / "own_words.py").write_text(OWN)
    write(tmp_path / "docs", {"handbook.md": HANDBOOK, "logo.png": "x"})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_words", raising=False)
    for name in ("CRAG_URI", "CRAG_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def crag(*arguments: object, answer: str | None = None) -> Result:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments], input=answer)


def ingest(*more: object) -> Result:
    return crag("ingest", "docs", "-a", "support", "-e", "own_words:Own", *more)


def test_a_folder_is_ingested_listed_exported_and_purged(here: Path) -> None:
    first, again, listed = (
        ingest(),
        crag("ingest", "docs", "-a", "support", "-e", "own_words:Own", "--json"),
        crag("sources", "-a", "support"),
    )
    exported = crag("export", "support.jsonl", "-a", "support")
    purged = crag("purge", "-a", "support", "--yes")

    assert first.exit_code == 0, first.output
    chunks = json.loads(again.stdout)["chunks"]
    assert first.stdout.splitlines() == [
        f"1 files with {chunks} chunks are in, 0 of them unchanged",
        f"chunks: {chunks} embedded, 0 updated, 0 removed",
        "skipped: logo.png: no known type: .png",
    ]
    assert (json.loads(again.stdout)["unchanged"], json.loads(again.stdout)["skipped"][0]["source"]) == (1, "logo.png")
    assert listed.stdout.splitlines()[1].split()[:3] == ["handbook.md", "Handbook", str(chunks)]
    assert listed.stdout.splitlines()[-1] == f"1 sources, {chunks} chunks"
    assert exported.stdout == f"{chunks} chunks written to support.jsonl\n"
    assert len((here / "support.jsonl").read_text().splitlines()) == chunks
    assert purged.stdout.splitlines()[0] == f"{chunks} chunks deleted"
    assert "Checkpoints and receipts" in purged.stdout
    assert json.loads(crag("sources", "-a", "support", "--json").stdout) == []


def test_metadata_and_sizes_reach_the_chunks(here: Path) -> None:
    result = ingest("-m", "version=2", "-m", "confidence=0.5", "--metadata", "team=front=desk", "--size", 60, "--overlap", 0, "--root", ".")

    rows = list(stored(open_knowledge(here / "knowledge.db", WordEmbeddings(), embedding_name="own-words")).values())
    assert result.exit_code == 0, result.output
    assert {(row["version"], row["confidence"], row["source"]) for row in rows} == {("2", 0.5, "docs/handbook.md")}
    assert {row["metadata"]["team"] for row in rows} == {"front=desk"}
    assert max(len(row["text"]) for row in rows) <= 60


def test_a_source_is_deleted_and_pruned_ones_are_told(here: Path) -> None:
    write(here / "docs", {"a.md": "One.", "b.md": "Two."})
    ingest()
    (here / "docs/a.md").unlink()

    pruned, deleted, missing = ingest("--prune"), crag("delete", "b.md", "-a", "support"), crag("delete", "b.md", "-a", "support")

    assert "gone: a.md" in pruned.stdout
    assert (deleted.exit_code, deleted.stdout) == (0, "1 chunks deleted\n")
    assert (missing.exit_code, missing.stderr) == (1, "crag: the tenant has no source 'b.md'; `crag sources` lists those that it has\n")


def test_a_purge_asks_and_deletes_nothing_without_a_yes(here: Path) -> None:
    ingest()

    refused, agreed = crag("purge", "-a", "support", answer="n\n"), crag("purge", "-a", "support", answer="y\n")

    assert refused.exit_code == 1
    assert "Delete all" in refused.stdout
    assert "chunks deleted" not in refused.stdout
    assert "chunks deleted" in agreed.stdout


def test_a_file_that_fails_is_exit_code_1_and_the_others_are_in(here: Path) -> None:
    (here / "docs/broken.md").write_bytes(b"\x00\x01\xff" * 50)
    write(here / "docs", {f"{n:02}.bin": "x" for n in range(12)})

    result = ingest()

    assert result.exit_code == 1
    assert "1 files with" in result.stdout
    assert "skipped: 3 more" in result.stdout
    assert result.stderr.startswith("crag: failed: broken.md: ")
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["ingest", "nope", "-a", "a", "-e", "own_words:Own"], "no file or folder 'nope'"),
        (["ingest", "docs", "-a", " ", "-e", "own_words:Own"], "`agent_id` must hold 1 to 256 bytes"),
        (
            ["ingest", "docs", "-a", "a", "-e", "own_words:Own", "-m", "version"],
            "--metadata must be two words with = between them, got 'version'",
        ),
        (["ingest", "docs", "-a", "a", "-e", "own_words:Own", "-m", "agent_id=b"], "must be that of the argument"),
        (["ingest", "docs", "-a", "a", "-e", "own_words:Own", "-m", "text=b"], "reserved keys (`text`)"),
        (["ingest", "docs", "-a", "a", "-e", "own_words:Own", "--uri", "knowledge"], "`uri` must be a path that ends in `.db`"),
        (["ingest", "docs", "-a", "a", "-e", "nope"], "there is no embeddings 'nope'; there are local, e5"),
        (["ingest", "docs", "-a", "a", "-e", "own_words:nothing"], "must be LangChain embeddings, got int"),
        (["sources", "-a", "a"], "there is no collection 'knowledge' at './knowledge.db'"),
        (["purge", "-a", "a", "--yes", "--uri", "typo.db"], "there is no collection 'knowledge' at 'typo.db'"),
        (["export", "x.jsonl", "-a", "a"], "there is no collection"),
        (["migrate", "typo.db", "-a", "a"], "there is no file 'typo.db'"),
    ],
    ids=str,
)
def test_input_that_can_not_be_used_is_one_line_and_makes_no_file(here: Path, arguments: list[str], told: str) -> None:
    result = crag(*arguments)

    assert (result.exit_code, told in result.stderr) == (2, True), result.output
    assert len(result.stderr.splitlines()) == 1
    assert not (here / "typo.db").exists()


@pytest.mark.parametrize("arguments", [["ingest", "docs"], ["ingest", "-a", "a"], ["purge"], ["delete", "-a", "a"], ["export", "-a", "a"]])
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    assert crag(*arguments).exit_code == 2


def test_a_collection_of_other_embeddings_says_which(here: Path) -> None:
    ingest()

    result = crag("ingest", "docs", "-a", "support")

    assert result.exit_code == 2
    assert "made with the embeddings 'own-words'; name them with --embeddings" in result.stderr


def test_the_address_comes_from_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRAG_URI", "elsewhere.db")

    ingest("--collection", "other")

    assert (here / "elsewhere.db").exists()
    assert "1 sources" in crag("sources", "-a", "support", "--collection", "other").stdout
    assert not (here / "knowledge.db").exists()


def test_a_migration_prints_both_counts_and_fails_if_they_differ(here: Path) -> None:
    old = open_knowledge(here / "old.db", WordEmbeddings(), collection="old")
    old.add_texts(["One.", "Two.", "Three."], [{"team": "x"}, {"team": "y"}, {}], agent_id="support")

    done = crag("migrate", "old.db", "-a", "support", "-e", "own_words:Own", "--keep-vectors")
    again = crag("migrate", "old.db", "-a", "support", "-e", "own_words:Own", "--json")
    short = crag(
        "migrate", "old.db", "--from", "old", "-e", "own_words:Own", "--map", "agent_id=was", "--map", "team=agent_id", "--collection", "x"
    )

    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == ["3 of 3 rows read, 3 of them are here now", "rows: 3 written, 0 updated, 0 unchanged"]
    assert {key: json.loads(again.stdout)[key] for key in ("unchanged", "complete")} == {"unchanged": 3, "complete": True}
    assert (short.exit_code, short.stdout.splitlines()[0]) == (1, "3 of 3 rows read, 2 of them are here now")
    assert "crag: refused: 1 rows: " in short.stderr
    assert short.stderr.splitlines()[-1] == "crag: the counts don't match: not every row of the other collection is here"


def test_which_collection_to_migrate_must_be_clear(here: Path) -> None:
    for collection in ("one", "two"):
        open_knowledge(here / "old.db", WordEmbeddings(), collection=collection)

    result = crag("migrate", "old.db", "-a", "a", "-e", "own_words:Own")

    assert (result.exit_code, result.stderr) == (2, "crag: name the collection with --from; there are: one, two\n")


def test_as_a_program_it_says_one_line_when_stopped_and_goes_on(here: Path) -> None:
    """A real process, Ctrl-C while it embeds, then a look at what another process wrote."""
    command = [sys.executable, "-m", "crag_middleware.cli", "ingest", "docs", "-a", "support", "-e"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    with subprocess.Popen(
        [*command, "own_words:Slow"], cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as slow:
        assert slow.stdout is not None
        assert slow.stdout.readline() == "embedding\n"
        slow.send_signal(signal.SIGINT)
        _, stderr = slow.communicate(timeout=60)
    done = ingest()

    assert (slow.returncode, stderr) == (1, "crag: stopped; the same command goes on\n")
    assert (done.exit_code, done.stderr) == (0, "")
