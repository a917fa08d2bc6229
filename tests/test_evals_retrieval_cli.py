"""`crag eval retrieval`: what it prints, what it writes, and how it exits."""

import json
import sys
from pathlib import Path

import pytest

from crag_middleware import cli
from tests.test_cli import crag
from tests.test_evals_retrieval import FIXTURE

OWN = """
from tests.support.milvus import WordEmbeddings
from tests.support.rerankers import WordEncoder

class Stopped(WordEmbeddings):
    asked = 0
    def embed_documents(self, texts):
        return WordEmbeddings().embed_documents(texts)
    def embed_query(self, text):
        Stopped.asked += 1
        if Stopped.asked > 6: raise KeyboardInterrupt
        return super().embed_query(text)

def nothing():
    return 5
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in, with embeddings and a reranker of one's own in `own_search.py`."""
    (tmp_path / "own_search.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_search", raising=False)
    return tmp_path


def test_measuring_prints_a_table_and_writes_the_run(here: Path) -> None:
    own = ("-e", "own_search:WordEmbeddings", "--reranker", "own_search:WordEncoder")
    result = crag("eval", "retrieval", FIXTURE, *own, "--limit", 2, "--out", here / "run")

    assert result.exit_code == 0, result.output
    for name in ("handmade (en), 2", "handmade (zh), 2", "dense", "BM25", "RRF + rerank", "RRF + MMR 0.7", "over RRF [95%]"):
        assert name in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= cli.WIDTH
    assert result.stderr.splitlines()[-1] == "stored or searched 48 of 48"
    assert sorted(p.name for p in (here / "run").iterdir()) == ["report.html", "report.json", "rows.jsonl"]


def test_a_stopped_run_goes_on_where_it_was(here: Path) -> None:
    command = ("eval", "retrieval", FIXTURE, "-e", "own_search:Stopped", "--limit", 2, "--languages", "zh,en")
    stopped = crag(*command)
    folder = here / "crag-eval" / "retrieval-own_search-Stopped"
    kept = (folder / "rows.jsonl").read_text().splitlines()

    sys.modules["own_search"].Stopped.asked = -100
    again = crag(*command)
    resumed = crag(*command, "--resume")

    assert (stopped.exit_code, stopped.stderr.splitlines()[-1]) == (1, "crag: stopped; the same command with --resume goes on")
    assert 1 < len(kept) < 5
    assert (again.exit_code, again.stderr.count("is there already")) == (2, 1)
    assert resumed.exit_code == 0, resumed.output
    assert (folder / "rows.jsonl").read_text().splitlines()[: len(kept)] == kept
    assert [one["questions"] for one in json.loads((folder / "report.json").read_text())["sets"]] == [2, 2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-e", "sparse"), "there is no embeddings 'sparse'"),
        (("-e", "own_search:nothing"), "must be LangChain embeddings"),
        (("-e", "own_search:WordEmbeddings", "--reranker", "best"), "there is no reranker 'best'; there are e5"),
        (("-e", "own_search:WordEmbeddings", "--reranker", "own_search:nothing"), "rerank"),
        (("-e", "own_search:WordEmbeddings", "--languages", "fr"), "no question is in the language 'fr'"),
    ],
)
def test_what_cannot_be_used_is_one_line_and_nothing_is_written(here: Path, options: tuple[str, ...], said: str) -> None:
    result = crag("eval", "retrieval", FIXTURE, *options)

    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr.splitlines()[-1]
    assert not (here / "crag-eval").exists()
