"""Files into a tenant's knowledge: once, again, changed, stopped, gone."""

import os
import random
import subprocess
import sys
import textwrap
import unicodedata
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crag_middleware.errors import ConfigError, IngestError, TenantError
from crag_middleware.knowledge.file_rows import FILLED
from crag_middleware.knowledge.open import open_knowledge
from tests.support.milvus import WordEmbeddings, lite_uri  # noqa: F401, a fixture
from tests.test_knowledge_ingest import file_store, stored  # noqa: F401, a fixture

ROOT = Path(__file__).resolve().parent.parent

HANDBOOK = """# Handbook

Welcome to the library, please read on.

## Hours

The library is open on weekends. 图书馆周末照常开放，欢迎读者前来借阅。

## Refunds

Refunds take 30 days. They are paid in full.
"""


@pytest.fixture
def docs(tmp_path):
    return write(tmp_path / "docs", {"handbook.md": HANDBOOK, "sub/rules.txt": lines(12)})


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def lines(count, word="rule"):
    """Paragraphs that each fill a chunk of 100 characters."""
    return "\n\n".join(
        f"{word} number {n} says that nobody may run in hall {n}, not even in a hurry or when it rains." for n in range(count)
    )


def facts(store, *, without=("created_at",)):
    """Everything stored, by id, but for vectors."""
    return {key: {name: value for name, value in row.items() if name not in without} for key, row in stored(store).items()}


def texts(store, source):
    rows = [row for row in stored(store).values() if row["source"] == source]
    return [row["text"] for row in sorted(rows, key=lambda row: row["chunk_index"])]


def test_the_files_of_a_folder_become_chunks_that_say_where_they_are_from(file_store, docs):  # noqa: F811
    os.utime(docs / "handbook.md", (1_700_000_000, 1_700_000_000))

    done = file_store.ingest(docs, agent_id="a", metadata={"version": "2", "team": "front desk"}, size=100, overlap=0)

    rows = stored(file_store)
    assert (done.files, done.chunks, done.embedded, done.failed) == (2, len(rows), len(rows), ())
    (hours,) = [row for row in rows.values() if "weekends" in row["text"]]
    assert (hours["source"], hours["title"], hours["agent_id"], hours["version"]) == ("handbook.md", "Handbook", "a", "2")
    assert hours["section"].endswith("Hours")
    assert hours["created_at"] == 1_700_000_000_000
    assert hours["metadata"] == {"team": "front desk", "ingested_from": "docs"}
    assert {row["source"] for row in rows.values()} == {"handbook.md", "sub/rules.txt"}
    rules = sorted((row for row in rows.values() if row["source"] == "sub/rules.txt"), key=lambda row: row["chunk_index"])
    assert [row["chunk_index"] for row in rules] == list(range(len(rules)))
    assert all(lines(12)[row["start"] : row["end"]] == row["text"] for row in rules)
    assert "weekends" in file_store.similarity_search("图书馆周末开放吗", k=1, expr='agent_id == "a"')[0].page_content


def test_again_writes_and_embeds_nothing_even_where_files_were_touched(file_store, docs):  # noqa: F811
    file_store.ingest(docs, agent_id="a")
    before, file_store.embeddings.batches = stored(file_store), []
    os.utime(docs / "handbook.md", (5, 5))

    again = file_store.ingest(docs, agent_id="a")

    assert (again.files, again.unchanged, again.chunks) == (2, 2, len(before))
    assert (again.embedded, again.updated, again.removed) == (0, 0, 0)
    assert file_store.embeddings.batches == []
    assert stored(file_store) == before


def test_a_changed_file_replaces_its_chunks_and_only_new_texts_are_embedded(file_store, docs):  # noqa: F811
    file_store.ingest(docs, agent_id="a", size=100, overlap=0)
    file_store.embeddings.batches = []
    (docs / "sub/rules.txt").write_text("A new rule comes first, and it moves all of the others one place further down.\n\n" + lines(11))
    os.utime(docs / "sub/rules.txt", (9, 9))

    done = file_store.ingest(docs, agent_id="a", size=100, overlap=0)

    assert (done.embedded, done.updated, done.unchanged) == (1, 11, 1)
    assert sum(file_store.embeddings.batches) == 1
    assert [text.split()[2] for text in texts(file_store, "sub/rules.txt")] == ["rule", *map(str, range(11))]
    assert {row["created_at"] for row in stored(file_store).values() if row["source"] == "sub/rules.txt"} == {9000}
    moved = file_store.similarity_search("rule number 7 hall 7", k=1)[0]
    assert (moved.page_content.split()[2], moved.metadata["chunk_index"]) == ("7", 8)


def test_many_files_are_looked_up_like_few(file_store, tmp_path):  # noqa: F811
    docs = write(tmp_path / "docs", {f"{n}.txt": f"Text number {n}." for n in range(150)})
    file_store.ingest(docs, agent_id="a")
    before = facts(file_store)
    write(docs, {"7.txt": "Something else.", "149.txt": "Something new.", "new.txt": "New."})

    done = file_store.ingest(docs, agent_id="a")

    assert (done.files, done.unchanged, done.embedded, done.removed) == (151, 148, 3, 2)
    after = facts(file_store)
    assert {row["source"] for key, row in before.items() if key not in after} == {"7.txt", "149.txt"}
    assert len(after) == 151


def test_other_metadata_is_written_without_embedding(file_store, docs):  # noqa: F811
    file_store.ingest(docs, agent_id="a", metadata={"version": "1"})
    before, file_store.embeddings.batches = stored(file_store), []

    done = file_store.ingest(docs, agent_id="a", metadata={"version": "2"})

    assert (done.embedded, done.updated, file_store.embeddings.batches) == (0, len(before), [])
    assert stored(file_store) == {key: row | {"version": "2"} for key, row in before.items()}
    assert file_store.similarity_search("library weekends", k=1)[0].metadata["version"] == "2"


def test_a_file_that_lost_its_text_loses_its_chunks_and_is_told(file_store, docs):  # noqa: F811
    file_store.ingest(docs, agent_id="a")
    (docs / "sub/rules.txt").write_text(" \n")

    done = file_store.ingest(docs, agent_id="a")

    assert [left.source for left in done.skipped] == ["sub/rules.txt"]
    assert texts(file_store, "sub/rules.txt") == []


@pytest.mark.parametrize(
    "metadata", [{"agent_id": "b"}, {"agent_id": "b", "tenant": "b"}, {"agent_id": None}, {"agent_id": ["a"]}], ids=str
)
def test_metadata_that_names_another_tenant_is_refused_c123(file_store, docs, metadata):  # noqa: F811
    with pytest.raises(TenantError, match="`agent_id` in the metadata must be that of the argument"):
        file_store.ingest(docs, agent_id="a", metadata=metadata)

    assert (stored(file_store), file_store.embeddings.batches) == ({}, [])


def test_the_argument_is_the_tenant_whatever_else_the_metadata_says_c123(file_store, docs):  # noqa: F811
    file_store.ingest(docs, agent_id="a", metadata={"agent_id": "a", "tenant": "b", "user": {"agent_id": "b"}})

    assert {row["agent_id"] for row in stored(file_store).values()} == {"a"}
    assert file_store.similarity_search("library", expr='agent_id == "b"') == []


@pytest.mark.parametrize("key", ["id", "pk", "text", "vector", "dense", "dense_embedding", "sparse", "content_hash"])
def test_metadata_can_not_set_id_text_or_vector_c069(file_store, docs, key):  # noqa: F811
    with pytest.raises(ConfigError, match=f"reserved keys .`{key}`"):
        file_store.ingest(docs, agent_id="a", metadata={key: "x"})

    assert (stored(file_store), file_store.embeddings.batches) == ({}, [])


@pytest.mark.parametrize("key", sorted(FILLED))
def test_metadata_can_not_set_what_comes_from_the_files_c069(file_store, docs, key):  # noqa: F811
    with pytest.raises(ConfigError, match=key):
        file_store.ingest(docs, agent_id="a", metadata={key: 1 if key in ("page", "chunk_index", "start", "end", "created_at") else "x"})

    assert stored(file_store) == {}


@pytest.mark.parametrize("agent_id", [None, "", "  ", 0, False, [], b"a", "x" * 257])
def test_without_a_tenant_nothing_is_read_or_written_l04(file_store, tmp_path, agent_id):  # noqa: F811
    with pytest.raises(TenantError):
        file_store.ingest(tmp_path / "is not even there", agent_id=agent_id)
    assert file_store.embeddings.batches == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"size": 0}, "size"),
        ({"overlap": -1}, "overlap"),
        ({"batch_size": 0}, "batch_size"),
        ({"metadata": ["x"]}, "must be a mapping"),
        ({"metadata": {"confidence": 2}}, "confidence"),
        ({"metadata": {"doc_id": "d"}}, "doc_id"),
        ({"root": "/nowhere"}, "root"),
        ({"path": "nowhere"}, "no file or folder 'nowhere'"),
    ],
    ids=str,
)
def test_an_argument_that_can_not_be_used_is_refused_before_anything_is_written(file_store, docs, arguments, told):  # noqa: F811
    with pytest.raises(ConfigError, match=told):
        file_store.ingest(**{"path": docs, "agent_id": "a"} | arguments)
    assert (stored(file_store), file_store.embeddings.batches) == ({}, [])


def test_chinese_chunks_fit_the_limit_in_bytes_and_no_character_is_cut_c067(file_store, tmp_path):  # noqa: F811
    text = "".join(f"第{n}条规定，图书馆周末照常开放，读者可以借阅图书。" for n in range(1250))
    write(tmp_path, {"long.txt": text})

    file_store.ingest(tmp_path / "long.txt", agent_id="a", size=16_000, overlap=0)

    chunks = texts(file_store, "long.txt")
    assert len(text) > 30_000
    assert "".join(chunks) == text
    assert all(len(chunk.encode()) <= 65_535 and chunk.endswith("。") for chunk in chunks)


def test_a_file_that_can_not_be_read_is_told_and_keeps_its_old_chunks(file_store, docs):  # noqa: F811
    file_store.ingest(docs, agent_id="a")
    before = texts(file_store, "handbook.md")
    (docs / "handbook.md").write_bytes(b"\x00\x01\x02\xff" * 50)
    write(docs, {"new.md": "Something new."})

    done = file_store.ingest(docs, agent_id="a")

    assert [left.source for left in done.failed] == ["handbook.md"]
    assert (done.files, texts(file_store, "new.md"), texts(file_store, "handbook.md")) == (2, ["Something new."], before)


def test_hidden_files_are_left_out_and_others_are_told_with_why(file_store, docs, tmp_path):  # noqa: F811
    write(tmp_path, {"secret.md": "not for them"})
    write(docs, {".hidden.md": "x", ".git/x.md": "x", "~$rules.md": "x", "logo.png": "x", "LICENSE": "x", "UPPER.MD": "upper"})
    (docs / "link.md").symlink_to(tmp_path / "secret.md")
    (docs / "folder").symlink_to(tmp_path)
    os.mkfifo(docs / "pipe.md")

    done = file_store.ingest(docs, agent_id="a")

    assert {left.source: left.reason.split(":")[0] for left in done.skipped} == {
        "LICENSE": "no known type",
        "logo.png": "no known type",
        "link.md": "a symbolic link, which might lead out of the folder",
        "folder": "a symbolic link, which might lead out of the folder",
        "pipe.md": "no regular file",
    }
    assert {row["source"] for row in stored(file_store).values()} == {"handbook.md", "sub/rules.txt", "UPPER.MD"}


def test_the_same_text_in_two_files_is_two_sources_and_for_two_tenants_two_rows(file_store, tmp_path):  # noqa: F811
    write(tmp_path / "docs", {"a.md": HANDBOOK, "b.md": HANDBOOK})

    done = file_store.ingest(tmp_path / "docs", agent_id="a")
    file_store.ingest(tmp_path / "docs", agent_id="b")

    assert texts(file_store, "a.md") == texts(file_store, "b.md") != []
    assert len(stored(file_store)) == 2 * done.chunks


def test_a_source_has_one_name_on_every_system(file_store, tmp_path):  # noqa: F811
    """macOS takes accents apart; a byte that is no text can't be a name."""
    name = "Gebühren.md"
    write(tmp_path / "here", {name: "text"})
    write(tmp_path / "there/here", {unicodedata.normalize("NFD", name): "text"})
    Path(os.fsdecode(os.fsencode(tmp_path / "here") + b"/\xff.md")).write_text("text")
    write(tmp_path / "here", {"\U00020bb7野家.md": "text"})

    first = file_store.ingest(tmp_path / "here", agent_id="a")
    second = file_store.ingest(tmp_path / "there/here", agent_id="a")

    assert {left.source for left in first.failed} == {"\\udcff.md", "\U00020bb7野家.md"}
    assert (second.unchanged, next(iter(facts(file_store).values()))["source"]) == (1, name)


def test_one_file_of_a_folder_is_refreshed_in_its_place(file_store, docs):  # noqa: F811
    file_store.ingest(docs, agent_id="a")
    write(docs, {"sub/rules.txt": "No rules any more."})

    done = file_store.ingest(docs / "sub/rules.txt", agent_id="a", root=docs)

    assert (done.files, texts(file_store, "sub/rules.txt")) == (1, ["No rules any more."])
    assert texts(file_store, "handbook.md") != []


def test_versions_of_one_document_stand_side_by_side(file_store, tmp_path):  # noqa: F811
    write(tmp_path, {"v1.md": HANDBOOK, "v2.md": HANDBOOK})

    for version in ("1", "2", "1"):
        done = file_store.ingest(tmp_path / f"v{version}.md", agent_id="a", metadata={"doc_id": "handbook", "version": version})

    rows = stored(file_store).values()
    assert done.unchanged == 1
    assert {(row["doc_id"], row["source"], row["version"]) for row in rows} == {("handbook", "v1.md", "1"), ("handbook", "v2.md", "2")}


def test_a_source_from_elsewhere_is_not_replaced(file_store, docs, tmp_path):  # noqa: F811
    file_store.ingest(docs, agent_id="a")
    file_store.add_texts(["mine"], [{"source": "own.md"}], agent_id="a")
    before = stored(file_store)
    write(tmp_path / "wiki", {"handbook.md": "Other text.", "own.md": "Other text.", "wiki.md": "Wiki text."})

    done = file_store.ingest(tmp_path / "wiki", agent_id="a")

    assert [left.source for left in done.failed] == ["handbook.md", "own.md"]
    assert "not from this root" in done.failed[0].reason
    assert {key: row for key, row in stored(file_store).items() if row["source"] != "wiki.md"} == before
    file_store.ingest(tmp_path / "wiki", agent_id="a", root=tmp_path)
    assert texts(file_store, "wiki/handbook.md") == ["Other text."]


def test_what_is_gone_stays_unless_prune_is_asked_for(file_store, docs, tmp_path):  # noqa: F811
    write(docs, {"sub/more.md": "More of it.", "other/x.md": "Text x."})
    write(tmp_path / "wiki", {"gone.md": "Wiki text."})
    for agent_id in ("a", "b"):
        file_store.ingest(docs, agent_id=agent_id)
        file_store.ingest(tmp_path / "wiki", agent_id=agent_id)
    file_store.add_texts(["mine"], [{"source": "sub/mine.md"}], agent_id="a")
    file_store.add_texts(["without a source"], agent_id="a")
    for gone in (docs / "sub/more.md", docs / "other/x.md", tmp_path / "wiki/gone.md"):
        gone.unlink()

    kept = file_store.ingest(docs, agent_id="a")
    under = file_store.ingest(docs / "sub", agent_id="a", root=docs, prune=True)

    assert (kept.pruned, kept.removed) == ((), 0)
    assert (under.pruned, under.removed) == (("sub/more.md",), 1)
    assert file_store.ingest(docs, agent_id="a", prune=True).pruned == ("other/x.md",)
    left = {(row["agent_id"], row["source"]) for row in stored(file_store).values()}
    assert {source for agent_id, source in left if agent_id == "a"} == {"handbook.md", "sub/rules.txt", "sub/mine.md", "gone.md", None}
    assert {source for agent_id, source in left if agent_id == "b"} == {
        "handbook.md",
        "sub/rules.txt",
        "sub/more.md",
        "other/x.md",
        "gone.md",
    }


def test_prune_is_refused_where_everything_else_would_be_gone(file_store, docs, tmp_path):  # noqa: F811
    file_store.ingest(docs, agent_id="a")
    before = stored(file_store)
    (tmp_path / "empty/docs").mkdir(parents=True)

    for path in (tmp_path / "empty/docs", docs / "handbook.md"):
        with pytest.raises(ConfigError, match="prune"):
            file_store.ingest(path, agent_id="a", prune=True)
    assert stored(file_store) == before


def test_progress_is_told_after_each_batch_and_file(file_store, docs):  # noqa: F811
    heard = []

    done = file_store.ingest(docs, agent_id="a", size=100, overlap=0, batch_size=5, progress=heard.append)

    assert [state.embedded for state in heard] == sorted(state.embedded for state in heard)
    assert len(heard) > done.chunks / 5
    assert (heard[-1].done, heard[-1].total, heard[-1].embedded) == (2, 2, done.chunks)


def test_embeddings_that_fail_name_the_document_and_again_goes_on(file_store, docs):  # noqa: F811
    file_store.embeddings.fail_at = lines(12).split("\n\n")[7]

    with pytest.raises(IngestError, match=r"^sub/rules.txt: .*OSError") as caught:
        file_store.ingest(docs, agent_id="a", size=100, overlap=0, batch_size=3)

    assert "hall" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert len(texts(file_store, "sub/rules.txt")) == 6
    file_store.embeddings.fail_at, file_store.embeddings.batches = "", []
    file_store.ingest(docs, agent_id="a", size=100, overlap=0, batch_size=3)
    assert len(texts(file_store, "sub/rules.txt")) == 12
    assert sum(file_store.embeddings.batches) == 6


def test_old_chunks_stay_until_the_new_ones_are_written(file_store, docs):  # noqa: F811
    file_store.ingest(docs, agent_id="a", size=100, overlap=0)
    before = set(stored(file_store))
    write(docs, {"sub/rules.txt": lines(12, "law")})
    file_store.embeddings.fail_at = lines(12, "law").split("\n\n")[7]

    with pytest.raises(IngestError):
        file_store.ingest(docs, agent_id="a", size=100, overlap=0, batch_size=3)

    assert before < set(stored(file_store))


class Stop(BaseException):
    """What a signal would do."""


PARAGRAPHS = st.lists(st.integers(0, 8), max_size=8)
VERSION = st.dictionaries(st.sampled_from(["a.txt", "b.txt", "c/d.txt"]), PARAGRAPHS, min_size=1)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(first=VERSION, second=VERSION, stop_at=st.integers(1, 12), batch_size=st.integers(1, 4))
def test_a_run_that_stops_anywhere_and_goes_on_is_a_clean_run(lite_uri, tmp_path, first, second, stop_at, batch_size):  # noqa: F811
    folder = tmp_path / uuid4().hex / "docs"
    told, clean = (open_knowledge(lite_uri, WordEmbeddings(), collection=f"k{uuid4().hex}") for _ in range(2))
    options = {"agent_id": "a", "size": 60, "overlap": 0, "batch_size": batch_size}

    def put(version):
        for old in folder.rglob("*.txt") if folder.exists() else ():
            old.unlink()
        write(
            folder, {name: "\n\n".join(f"Paragraph {n} says something about the number {n}." for n in ns) for name, ns in version.items()}
        )

    def stop(_):
        nonlocal stop_at
        stop_at -= 1
        if not stop_at:
            raise Stop

    put(first)
    told.ingest(folder, **options)
    put(second)
    with suppress(Stop):
        told.ingest(folder, **options, progress=stop)
    told.ingest(folder, **options, prune=True)
    clean.ingest(folder, **options)

    assert facts(told) == facts(clean)
    again = told.ingest(folder, **options, prune=True)
    assert (again.embedded, again.updated, again.removed) == (0, 0, 0)
    for store in (told, clean):
        store.client.drop_collection(store.collection_name)


KILLED = """
    import os, signal, sys
    from crag_middleware import open_knowledge
    from tests.support.milvus import WordEmbeddings

    uri, folder, left = sys.argv[1], sys.argv[2], int(sys.argv[3])

    def count(*_):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    class Killing(WordEmbeddings):
        def embed_documents(self, texts):
            count()
            return super().embed_documents(texts)

    open_knowledge(uri, Killing(), embedding_name="w").ingest(folder, agent_id="a", size=100, overlap=0, batch_size=4, progress=count)
"""


def test_a_run_that_is_killed_loses_and_doubles_nothing(lite_uri, tmp_path):  # noqa: F811
    """SIGKILL at a random batch, before or after it is written, first of new files and then of changed ones."""
    files = {f"{name}.txt": lines(12, name) for name in "abc"}
    changed = {
        name: text.replace("number 5 says", "number 5 has it") + "\n\nAnd one more paragraph at the end of it all."
        for name, text in files.items()
    }
    uri, options = str(tmp_path / "killed.db"), {"agent_id": "a", "size": 100, "overlap": 0}

    for version, last in ((files, 20), (changed, 6)):
        folder, at = write(tmp_path / "docs", version), random.randint(1, last)
        command = [sys.executable, "-c", textwrap.dedent(KILLED), uri, str(folder), str(at)]
        killed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
        assert killed.returncode == -9, f"not killed at event {at}: {killed.stderr}"
    told = open_knowledge(uri, WordEmbeddings(), embedding_name="w")
    clean = open_knowledge(lite_uri, WordEmbeddings(), collection=f"k{uuid4().hex}")
    told.ingest(folder, **options)
    clean.ingest(folder, **options)

    assert facts(told) == facts(clean), f"killed at event {at}"
    assert len(facts(told)) == 39


MEASURED = """
    import sys
    from pathlib import Path
    from langchain_core.embeddings import Embeddings
    from crag_middleware import open_knowledge

    class Quick(Embeddings):
        def embed_documents(self, texts):
            return [[0.05] * 384 for _ in texts]

        def embed_query(self, text):
            return [0.05] * 384

    folder = Path(sys.argv[1])
    for part in range(200):
        rules = (f"Rule {n} of part {part}: nobody may run in hall {n}, not even in a hurry, or when it rains." for n in range(50))
        (folder / f"{part}.txt").write_text("\\n\\n".join(rules))
    done = open_knowledge(folder / "k.db", Quick(), language="en").ingest(folder, agent_id="a", size=100, overlap=0)
    # Not `ru_maxrss`, which a child has from its parent.
    most = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(done.chunks, int(most.split()[1]) // 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the kernel tells no peak memory of a process")
def test_ten_thousand_chunks_are_ingested_in_bounded_memory(tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(MEASURED), str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=110)

    assert result.returncode == 0, result.stderr
    chunks, megabytes = map(int, result.stdout.split())
    assert chunks == 10_000
    assert megabytes < 600


def test_what_was_ingested_is_indexed(tmp_path):
    """Milvus Lite indexes on flush, and searches every row anew until then."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("The exporter listens on port 9100.")
    knowledge = open_knowledge(tmp_path / "k.db", WordEmbeddings())
    knowledge.ingest(tmp_path / "docs", agent_id="a")
    assert any((tmp_path / "k.db").rglob("data_*.parquet"))
