"""What an operator sees of one tenant, takes out and deletes; never anything of another."""

import json
import stat
from uuid import uuid4

import pytest
from pymilvus import MilvusClient

from crag_middleware.errors import ConfigError, IngestError, RetrievalError, TenantError
from crag_middleware.knowledge.admin import SourceInfo
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.knowledge.tenant_rows import pages
from crag_middleware.tenancy import Scope
from tests.support.milvus import TENANT, WordEmbeddings, lite_server_uri, lite_uri, make_collection  # noqa: F401, fixtures
from tests.test_ingest import HANDBOOK, facts, write
from tests.test_knowledge_ingest import MARKER, file_store, stored  # noqa: F401, a fixture

HOSTILE = ["a' or '1'=='1", '" or agent_id != "', "\\", "a\nb", "租户，一", "🦊", "%", "a"]


@pytest.fixture
def filled(file_store):  # noqa: F811
    """Two tenants with sources of the same names."""
    for agent_id in ("a", "b"):
        file_store.add_texts(
            ["one", "two", "three", "four", "loose"],
            [
                {"source": "x.md", "title": "X", "created_at": 5},
                {"source": "x.md", "created_at": 7, "team": {"名": [1, None]}},
                {"source": 'y"\n或.md', "page": 2},
                {"source": "x.md.bak"},
                {},
            ],
            agent_id=agent_id,
        )
    return file_store


def test_sources_are_those_of_the_tenant_with_their_size_and_newest_time(filled):
    filled.add_texts(["theirs"], [{"source": "z.md"}], agent_id="b")

    found = filled.sources("a")

    assert [(info.source, info.chunks) for info in found] == [(None, 1), ("x.md", 2), ("x.md.bak", 1), ('y"\n或.md', 1)]
    assert found[1] == SourceInfo(source="x.md", title="X", chunks=2, created_at=7, root=None)
    assert (filled.count("a"), filled.count("b"), filled.count("nobody"), filled.sources("nobody")) == (5, 6, 0, [])


def test_more_rows_than_fit_into_one_answer_are_all_seen(filled):
    for size in (1, 2, 5, 6):
        seen = list(pages(filled, Scope("a"), ("text",), size=size))

        assert sorted(row["text"] for page in seen for row in page) == ["four", "loose", "one", "three", "two"]
        assert max(map(len, seen)) <= size


@pytest.mark.parametrize("source", ["x.md", 'y"\n或.md', "x.md.bak"])
def test_a_source_is_deleted_of_this_tenant_alone(filled, source):
    before = stored(filled)
    gone = {key for key, row in before.items() if (row["agent_id"], row["source"]) == ("a", source)}

    assert filled.delete_source("a", source) == len(gone) > 0

    assert stored(filled) == {key: row for key, row in before.items() if key not in gone}
    assert filled.delete_source("a", source) == 0


def test_a_purge_deletes_all_of_a_tenant_and_nothing_else(filled):
    before = stored(filled)

    assert filled.purge("a") == 5

    assert stored(filled) == {key: row for key, row in before.items() if row["agent_id"] == "b"}
    assert (filled.purge("a"), filled.count("a")) == (0, 0)


def test_hostile_tenants_and_sources_reach_their_own_rows_only(file_store):  # noqa: F811
    for agent_id in HOSTILE:
        file_store.add_texts([f"text of {source}" for source in HOSTILE], [{"source": source} for source in HOSTILE], agent_id=agent_id)

    left = len(HOSTILE) ** 2
    for agent_id in HOSTILE:
        assert [info.source for info in file_store.sources(agent_id)] == sorted(HOSTILE)
        for source in HOSTILE[:4]:
            assert file_store.delete_source(agent_id, source) == 1
        left -= 4
        assert len(stored(file_store)) == left
        assert file_store.purge(agent_id) == len(HOSTILE) - 4
        left -= len(HOSTILE) - 4
        assert len(stored(file_store)) == left


@pytest.mark.parametrize("agent_id", [None, "", " ", 0, [], True])
def test_without_a_tenant_nothing_is_seen_or_deleted_l04(filled, tmp_path, agent_id):
    before = stored(filled)

    for act in (filled.sources, filled.count, filled.purge):
        with pytest.raises(TenantError):
            act(agent_id)
    with pytest.raises(TenantError):
        filled.delete_source(agent_id, "x.md")
    with pytest.raises(TenantError):
        filled.export(agent_id, tmp_path / "out.jsonl")
    assert stored(filled) == before
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("source", [None, "", 5, ["x.md"]])
def test_a_source_that_is_no_name_deletes_nothing(filled, source):
    with pytest.raises(ConfigError, match="`source` must be the name of a document"):
        filled.delete_source("a", source)
    assert filled.count("a") == 5


def test_a_row_of_another_tenant_stops_everything_even_if_the_store_let_it_through(filled):
    """A condition that breaks out of its parentheses stands for a server that ignores filters."""
    broken_out = 'text == "one") or (agent_id == "b"'

    with pytest.raises(TenantError, match="not the tenant's") as caught:
        list(pages(filled, Scope("a"), (), rows=broken_out))

    assert caught.value.reason == "foreign_row"


def test_an_export_is_what_was_put_in_and_can_be_put_in_again(filled, tmp_path):
    out = tmp_path / "a.jsonl"
    before = {key: row for key, row in stored(filled).items() if row["agent_id"] == "a"}

    assert filled.export("a", out) == 5

    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert {line["id"]: line["text"] for line in lines} == {key: row["text"] for key, row in before.items()}
    assert "agent_id" not in {key for line in lines for key in line["metadata"]}
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    filled.purge("a")
    parts = [[line[part] for line in lines] for part in ("text", "metadata", "id")]
    filled.add_texts(parts[0], parts[1], ids=parts[2], agent_id="a")
    assert {key: row for key, row in stored(filled).items() if row["agent_id"] == "a"} == before
    filled.add_texts(parts[0], parts[1], agent_id="c")
    assert [(info.source, info.chunks) for info in filled.sources("c")] == [(info.source, info.chunks) for info in filled.sources("a")]


def test_an_export_overwrites_no_file_and_leaves_no_half_one(filled, tmp_path):
    (tmp_path / "mine.md").write_text("mine")

    with pytest.raises(ConfigError, match="exists already"):
        filled.export("a", tmp_path / "mine.md")
    with pytest.raises(ConfigError, match="could not be written"):
        filled.export("a", tmp_path / "no folder" / "out.jsonl")
    filled.client.drop_collection(filled.collection_name)
    with pytest.raises(RetrievalError):
        filled.export("a", tmp_path / "out.jsonl")

    assert [path.name for path in tmp_path.iterdir()] == ["mine.md"]
    assert (tmp_path / "mine.md").read_text() == "mine"


def test_a_failure_of_milvus_shows_no_tenant_and_no_source(file_store, caplog, capfd):  # noqa: F811
    file_store.client.drop_collection(file_store.collection_name)

    for act in (file_store.sources, file_store.count, file_store.purge, lambda a: file_store.delete_source(a, MARKER)):
        with pytest.raises((RetrievalError, IngestError)) as caught:
            act(MARKER)
        assert caught.value.__cause__ is None
        assert caught.value.reason == "collection_missing"
        assert MARKER not in str(caught.value)
    captured = capfd.readouterr()
    assert MARKER not in f"{caplog.text}{captured.out}{captured.err}"


def test_a_released_collection_is_loaded(filled):
    filled.client.release_collection(filled.collection_name)

    assert (filled.count("a"), filled.delete_source("a", "x.md")) == (5, 2)


def test_the_whole_life_on_a_server(lite_server_uri, tmp_path):  # noqa: F811
    """The same code against Milvus Lite in a process of its own."""
    docs = write(tmp_path / "docs", {"handbook.md": HANDBOOK, "rules.md": "No running.", "规定.md": "不得奔跑。"})
    knowledge = open_knowledge(lite_server_uri, WordEmbeddings(), collection=f"k{uuid4().hex}")

    first = knowledge.ingest(docs, agent_id="a")
    knowledge.ingest(docs, agent_id="b")
    before = stored(knowledge)
    again = knowledge.ingest(docs, agent_id="a")
    assert (again.unchanged, again.chunks, stored(knowledge)) == (3, first.chunks, before)
    write(docs, {"rules.md": "Running is fine."})
    (docs / "规定.md").unlink()
    changed = knowledge.ingest(docs, agent_id="a", metadata={"version": "2"}, prune=True)
    assert (changed.embedded, changed.updated, changed.pruned) == (1, first.chunks - 2, ("规定.md",))
    assert [info.source for info in knowledge.sources("a")] == ["handbook.md", "rules.md"]
    assert knowledge.export("a", tmp_path / "a.jsonl") == knowledge.count("a") == first.chunks - 1
    assert [len(page) for page in pages(knowledge, Scope("b"), (), size=1)] == [1] * first.chunks
    other = open_knowledge(tmp_path / "other.db", WordEmbeddings(), collection="other")
    moved = other.migrate_from(MilvusClient(lite_server_uri), knowledge.collection_name)
    assert (moved.complete, facts(other, without=())) == (True, stored(knowledge))
    assert knowledge.delete_source("a", "rules.md") == 1
    assert knowledge.purge("a") == knowledge.count("b") - 2
    assert stored(knowledge) == {key: row for key, row in before.items() if row["agent_id"] == "b"}


def test_rows_written_in_other_ways_count_too(file_store, tmp_path):  # noqa: F811
    write(tmp_path / "docs", {"a.md": "One."})
    file_store.ingest(tmp_path / "docs", agent_id="a")
    file_store.add_texts(["two"], [{"source": "a.md"}], agent_id="a")

    (info,) = file_store.sources("a")

    assert (info.chunks, info.root) == (2, "docs")
