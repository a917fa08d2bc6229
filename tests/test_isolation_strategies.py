"""A key, a collection or a database for each tenant: the same methods, the same passages, and never another tenant's."""

import asyncio
import gc
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langchain_core.documents import Document
from pymilvus import MilvusClient
from pymilvus.client.connection_manager import AsyncConnectionManager
from typer.testing import CliRunner

from crag_middleware import cli
from crag_middleware.adapters import tenant_retriever
from crag_middleware.adapters.claim_checkers import WordClaimChecker
from crag_middleware.adapters.langchain_retriever import as_retriever_port
from crag_middleware.adapters.routes import Route
from crag_middleware.errors import ConfigError, IngestError, RetrievalError, TenantError
from crag_middleware.knowledge import isolation
from crag_middleware.knowledge.isolation import MAX_BASE, TenantStores
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.knowledge.store import KnowledgeStore
from crag_middleware.knowledge.write_back import WriteBack, forget, written_back
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import ScriptedEvaluator, ScriptedWebSearch
from crag_middleware.types import Passage
from tests.support.agents import agent_with, ask, both, crag
from tests.support.milvus import WordEmbeddings, lite_server, lite_server_uri, lite_uri  # noqa: F401, fixtures

STRATEGIES = ("partition_key", "collection", "database")
OWN = STRATEGIES[1:]
HOSTILE = [
    'a"',
    "a' or 1 == 1",
    '" or agent_id != "',
    "\\",
    "a\nb",
    "租户，一",
    "é",
    "e\u0301",
    "🦊" * 64,
    "../a",
    "a" * 256,
    "A",
    "a",
    " a",
]

owned = pytest.mark.parametrize("strategy", OWN)
every = pytest.mark.parametrize("strategy", STRATEGIES)


@pytest.fixture(params=["file", "server"])
def uri(request: pytest.FixtureRequest) -> str:
    """A Milvus Lite file, and a Milvus Lite server in another process."""
    found: str = request.getfixturevalue("lite_uri" if request.param == "file" else "lite_server_uri")
    return found


def opened(uri: str, strategy: str, base: str | None = None, **more: Any) -> Any:
    return open_knowledge(uri, WordEmbeddings(), collection=base or f"k{uuid4().hex}", isolation=strategy, **more)  # type: ignore[call-overload]


def search(knowledge: Any, agent_id: str, question: str = "lamp", how: str = "invoke", **more: Any) -> list[Passage]:
    port: Any = as_retriever_port(knowledge, settings=CRAGSettings(**more))
    asked = {"agent_id": agent_id, "limit": 20, "timeout_s": 20.0}
    return [*(port.retrieve(question, **asked) if how == "invoke" else asyncio.run(port.aretrieve(question, **asked)))]


def texts(passages: Any) -> list[str]:
    return sorted(p.text for p in passages)


def everything(uri: str) -> dict[str, list[str]]:
    """The collections of each database."""
    client = MilvusClient(uri)
    return {name: sorted(MilvusClient(uri, db_name=name).list_collections()) for name in client.list_databases()}


def rows(knowledge: Any, agent_id: str) -> list[dict[str, Any]]:
    """All that is stored of a tenant, vectors too."""
    store = knowledge.place(agent_id)
    found = store.client.query(store.collection_name, filter='id != ""', output_fields=["*"], consistency_level="Strong")
    return sorted((dict(row) for row in found if row["agent_id"] == agent_id), key=lambda row: row["id"])


class TestTheSamePassages:
    @settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        script=st.lists(
            st.tuples(
                st.sampled_from(["add", "add with id", "delete", "purge"]),
                st.sampled_from(["a", "b", '" or agent_id != "']),
                st.sampled_from(["red lamp", "green lamp", "台灯 lamp"]),
            ),
            min_size=1,
            max_size=6,
        )
    )
    def test_one_script_of_operations_gives_the_same_under_every_strategy(self, lite_uri: str, script: list[tuple[str, ...]]) -> None:  # noqa: F811
        told = []
        for strategy in STRATEGIES:
            knowledge = opened(lite_uri, strategy)
            answers: list[Any] = []
            for number, (act, agent_id, text) in enumerate(script):
                match act:
                    case "add":
                        answers.append(knowledge.add_texts([text, f"{text} {number}"], [{"source": text}] * 2, agent_id=agent_id))
                    case "add with id":
                        document = Document(page_content=text, metadata={"agent_id": agent_id, "source": text}, id=f"{agent_id}-{text}")
                        answers.append(knowledge.add_documents([document]))
                    case "delete":
                        answers.append(knowledge.delete_source(agent_id, text))
                    case "purge":
                        answers.append(knowledge.purge(agent_id))
            for agent_id in ("a", "b", '" or agent_id != "', "c"):
                found = search(knowledge, agent_id)
                answers.append((texts(found), {p.id for p in found}, {p.source for p in found}, knowledge.count(agent_id)))
                answers.append([(info.source, info.chunks) for info in knowledge.sources(agent_id)])
            told.append(answers)

        assert told[0] == told[1] == told[2]

    @every
    @both
    def test_an_agent_is_grounded_in_its_tenants_own_rows(self, lite_uri: str, strategy: str, how: str) -> None:  # noqa: F811
        knowledge, second = opened(lite_uri, strategy), opened(lite_uri, strategy)
        for agent_id in ("a", "b"):
            metadata = [{"doc_id": "d", "chunk_index": n} for n in range(3)]
            knowledge.add_texts([f"The lamp {n} of {agent_id} shines." for n in range(3)], metadata, agent_id=agent_id)
            second.add_texts([f"A second lamp of {agent_id}."], agent_id=agent_id)
        middleware = crag(
            agent_id=None,
            vector_store=knowledge,
            routes=Route("second", second),
            settings=CRAGSettings(neighbours=1, top_k=2, near_duplicate=0.99),
        )

        for agent_id, other in (("a", "b"), ("b", "a")):
            agent, model = agent_with(middleware, replies=["ok"])
            ask(agent, "Which lamp shines?", how, context={"agent_id": agent_id})
            (request,) = model.requests
            assert f"of {agent_id} shines" in str(request)
            assert f"second lamp of {agent_id}" in str(request)
            assert f"of {other}" not in str(request)
        before = everything(lite_uri)
        agent, model = agent_with(middleware, replies=["ok"])
        receipt = ask(agent, "Which lamp shines?", how, context={"agent_id": "nobody"})["crag"]
        assert "lamp of" not in str(model.requests)
        assert receipt["degraded"] == []
        assert everything(lite_uri) == before

    @every
    def test_the_whole_life_on_a_server(self, lite_server_uri: str, strategy: str, tmp_path: Path) -> None:  # noqa: F811
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "lamp.md").write_text("# Lamp\n\nIt shines.")
        (tmp_path / "docs" / "规定.md").write_text("不许奔跑。")
        knowledge = opened(lite_server_uri, strategy)

        first = knowledge.ingest(tmp_path / "docs", agent_id="a")
        knowledge.ingest(tmp_path / "docs", agent_id="b")
        kept = rows(knowledge, "b")
        (tmp_path / "docs" / "lamp.md").write_text("# Light\n\nIt shines.")
        (tmp_path / "docs" / "规定.md").unlink()
        again = knowledge.ingest(tmp_path / "docs", agent_id="a", prune=True)
        assert (first.files, again.pruned, again.removed) == (2, ("规定.md",), 2)
        assert [info.source for info in knowledge.sources("a")] == ["lamp.md"]
        assert knowledge.export("a", tmp_path / "a.jsonl") == knowledge.count("a") == 1
        for target in STRATEGIES:
            other = opened(lite_server_uri, target)
            for agent_id in ("a", "b"):
                place = knowledge.place(agent_id)
                moved = other.migrate_from(place.client, place.collection_name, agent_id=agent_id, keep_vectors=True)
                assert moved.complete
                assert rows(other, agent_id) == rows(knowledge, agent_id)
        assert (knowledge.delete_source("a", "lamp.md"), knowledge.purge("a"), knowledge.purge("b")) == (1, 0, 2)
        assert rows(other, "b") == kept

    def test_one_collection_is_taken_apart_by_a_migration(self, lite_uri: str) -> None:  # noqa: F811
        shared = opened(lite_uri, "partition_key")
        shared.add_texts(["lamp of a", "lamp of b"], [{"agent_id": "a"}, {"agent_id": "b"}], ids=["1", "2"])
        for strategy in OWN:
            apart = opened(lite_uri, strategy)

            moved = apart.migrate_from(MilvusClient(lite_uri), shared.collection_name)

            assert (moved.complete, moved.found) == (True, 2)
            assert [rows(apart, agent_id) for agent_id in "ab"] == [rows(shared, agent_id) for agent_id in "ab"]

    @owned
    def test_web_pages_are_written_back_listed_and_forgotten(self, lite_uri: str, strategy: str) -> None:  # noqa: F811
        knowledge = opened(lite_uri, strategy)
        page = Passage(id="w", text="The server listens on port 9100.", title="Ports", url="https://docs.example.org/ports")
        middleware = crag(
            vector_store=knowledge,
            web_search=ScriptedWebSearch([page]),
            claim_checker=WordClaimChecker(),
            write_back=WriteBack(knowledge),
            evaluator=ScriptedEvaluator(),
        )
        agent, _ = agent_with(middleware, replies=["The server listens on port 9100 [1]."])

        ask(agent, "Which port does the server listen on?")

        (kept,) = written_back(knowledge, "a")
        assert (kept.url, written_back(knowledge, "b")) == (page.url, [])
        assert texts(search(knowledge, "a", "server port")) == [page.text]
        assert (forget(knowledge, "b"), forget(knowledge, "a"), knowledge.count("a")) == (0, 1, 0)


class TestTenantsNeverMix:
    @owned
    def test_hostile_and_look_alike_ids_have_places_of_their_own_whose_names_hold_none_of_them_c055_c056(
        self, uri: str, strategy: str
    ) -> None:
        knowledge = opened(uri, strategy)
        for number, agent_id in enumerate(HOSTILE):
            knowledge.add_texts([f"lamp {number}"], ids=["one"], agent_id=agent_id)

        for number, agent_id in enumerate(HOSTILE):
            assert texts(search(knowledge, agent_id)) == [f"lamp {number}"]
            assert texts(search(knowledge, agent_id, how="ainvoke")) == [f"lamp {number}"]
            assert (knowledge.count(agent_id), rows(knowledge, agent_id)[0]["agent_id"]) == (1, agent_id)
        base = knowledge.collection_name
        found = [name for database, names in everything(uri).items() for name in (database, *names) if name.startswith(f"{base}_")]
        assert sorted(found) == sorted(f"{base}_{sha256(agent_id.encode()).hexdigest()}" for agent_id in HOSTILE)

    @owned
    def test_the_purge_of_one_leaves_the_other_byte_for_byte(self, uri: str, strategy: str) -> None:
        knowledge = opened(uri, strategy)
        empty = everything(uri)
        for agent_id in ("a", "b"):
            knowledge.add_texts(["red lamp", "台灯"], [{"source": "x", "mine": {"of": agent_id}}, {}], agent_id=agent_id)
        kept = rows(knowledge, "b")

        assert (knowledge.purge("a"), knowledge.purge("a"), knowledge.count("a")) == (2, 0, 0)

        assert rows(knowledge, "b") == kept
        assert (texts(search(knowledge, "a")), len(search(knowledge, "b"))) == ([], 2)
        assert knowledge.purge("b") == 2
        assert everything(uri) == empty

    @owned
    def test_a_strangers_row_in_a_tenants_place_is_shown_to_nobody(self, lite_uri: str, strategy: str) -> None:  # noqa: F811
        knowledge = opened(lite_uri, strategy)
        knowledge.add_texts(["lamp of a"], agent_id="a")
        knowledge.place("a").add_texts(["lamp of b"], agent_id="b")

        assert texts(search(knowledge, "a")) == ["lamp of a"]
        assert (knowledge.count("a"), knowledge.count("b"), search(knowledge, "b")) == (1, 0, [])

    @owned
    def test_two_base_names_never_lead_to_one_place(self, lite_uri: str, strategy: str) -> None:  # noqa: F811
        base = f"k{uuid4().hex}"
        one = opened(lite_uri, strategy, base)
        other = opened(lite_uri, strategy, f"{base}_")
        one.add_texts(["lamp one"], agent_id="a")
        other.add_texts(["lamp other"], agent_id="a")

        assert (texts(search(one, "a")), texts(search(other, "a"))) == (["lamp one"], ["lamp other"])
        assert one.purge("a") == 1
        assert texts(search(other, "a")) == ["lamp other"]

    @owned
    def test_rows_of_several_tenants_in_one_call_go_each_to_its_own_place(self, lite_uri: str, strategy: str) -> None:  # noqa: F811
        knowledge = opened(lite_uri, strategy)

        ids = asyncio.run(knowledge.aadd_texts(["lamp 1", "lamp 2", "lamp 3"], [{"agent_id": agent_id} for agent_id in "aba"]))

        assert [row["id"] for row in rows(knowledge, "b")] == [ids[1]]
        assert {row["id"] for row in rows(knowledge, "a")} == {ids[0], ids[2]}
        before = everything(lite_uri)
        for wrong in ({}, {"agent_id": " "}):
            with pytest.raises(TenantError):
                knowledge.add_texts(["lamp", "lamp"], [{"agent_id": "new"}, wrong])
        with pytest.raises(ConfigError):
            knowledge.add_texts(["lamp"], agent_id="new", batch_size=0)
        assert everything(lite_uri) == before


class TestPlacesAreMadeByWritingAlone:
    @owned
    def test_looking_at_an_unknown_tenant_gives_nothing_and_makes_nothing(self, uri: str, strategy: str, tmp_path: Path) -> None:
        knowledge = opened(uri, strategy)
        port: Any = as_retriever_port(knowledge)
        before = everything(uri)

        assert [*port.retrieve("lamp", agent_id="a", limit=3, timeout_s=9)] == []
        assert [*asyncio.run(port.aretrieve("lamp", agent_id="a", limit=3, timeout_s=9))] == []
        beside = {"agent_id": "a", "reach": 1, "timeout_s": 9}
        assert port.neighbours([Passage(id="p", text="t")], **beside) == [[]]
        assert asyncio.run(port.aneighbours([Passage(id="p", text="t")], **beside)) == [[]]
        assert (knowledge.place("a"), knowledge.count("a"), knowledge.sources("a"), knowledge.purge("a")) == (None, 0, [], 0)
        assert (knowledge.delete_source("a", "x"), knowledge.export("a", tmp_path / "a"), written_back(knowledge, "a")) == (0, 0, [])
        assert knowledge.add_texts([], agent_id="a") == []
        assert everything(uri) == before

    @owned
    @pytest.mark.parametrize("agent_id", [None, "", " ", 0, [], "\ud800"])
    def test_without_a_tenant_nothing_is_found_written_or_made(self, lite_uri: str, strategy: str, agent_id: Any) -> None:  # noqa: F811
        knowledge = opened(lite_uri, strategy)
        port: Any = as_retriever_port(knowledge)
        asked = {"agent_id": agent_id, "limit": 1, "timeout_s": 9.0}

        for act in (knowledge.place, knowledge.count, knowledge.sources, knowledge.purge, lambda a: knowledge.add_texts(["x"], agent_id=a)):
            with pytest.raises(TenantError):
                act(agent_id)
        with pytest.raises(TenantError):
            port.retrieve("lamp", **asked)
        with pytest.raises(TenantError):
            asyncio.run(port.aretrieve("lamp", **asked))

    @owned
    def test_threads_that_first_write_for_one_tenant_share_its_place(self, uri: str, strategy: str) -> None:
        stores = [opened(uri, strategy, base) for base in [f"k{uuid4().hex}"] * 2]
        together = Barrier(8)

        def add(number: int) -> None:
            together.wait(timeout=20)
            stores[number % 2].add_texts([f"lamp {number}"], agent_id="a")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(add, range(8)))

        assert texts(search(stores[0], "a")) == [f"lamp {number}" for number in range(8)]
        assert [stores[n].count("a") for n in (0, 1)] == [8, 8]

    @owned
    def test_what_another_process_dropped_is_gone_here_and_made_again_by_the_next_write(self, uri: str, strategy: str) -> None:
        base = f"k{uuid4().hex}"
        here, there = opened(uri, strategy, base), opened(uri, strategy, base)
        port: Any = as_retriever_port(here)
        asked = {"agent_id": "a", "limit": 5, "timeout_s": 20.0}
        here.add_texts(["lamp one"], agent_id="a")
        assert texts(port.retrieve("lamp", **asked)) == ["lamp one"]
        assert there.purge("a") == 1

        assert [*port.retrieve("lamp", **asked)] == []
        assert [*asyncio.run(port.aretrieve("lamp", **asked))] == []
        assert here.count("a") == 0
        here.add_texts(["lamp two"], agent_id="a")

        assert texts(port.retrieve("lamp", **asked)) == texts(asyncio.run(port.aretrieve("lamp", **asked))) == ["lamp two"]

    def test_what_somebody_else_keeps_in_a_tenants_database_outlives_its_purge(self, lite_uri: str) -> None:  # noqa: F811
        knowledge = opened(lite_uri, "database")
        knowledge.add_texts(["lamp"], agent_id="a")
        (database,) = (name for name in everything(lite_uri) if name.startswith(knowledge.collection_name))
        client = MilvusClient(lite_uri, db_name=database)
        client.create_collection("theirs", dimension=4)

        assert knowledge.purge("a") == 1

        assert everything(lite_uri)[database] == ["theirs"]
        client.drop_collection("theirs")
        client.drop_database(database)


class TestManyTenants:
    @owned
    def test_only_so_many_places_stay_open_and_the_others_are_opened_again(
        self,
        lite_server_uri: str,  # noqa: F811
        strategy: str,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(isolation, "MAX_OPEN", 2)
        monkeypatch.setattr(tenant_retriever, "MAX_OPEN", 2)
        knowledge = opened(lite_server_uri, strategy)
        port: Any = as_retriever_port(knowledge)
        tenants = [f"t{number}" for number in range(6)]
        for agent_id in tenants:
            knowledge.add_texts([f"lamp of {agent_id}"], agent_id=agent_id)

        async def channels() -> int:
            gc.collect()
            before, gc_was_on = len(AsyncConnectionManager.get_instance()._dedicated), gc.isenabled()
            gc.disable()  # a channel that only the collector closes is left open for too long
            try:
                for _ in range(2):
                    for agent_id in tenants:
                        found = await port.aretrieve("lamp", agent_id=agent_id, limit=3, timeout_s=20)
                        assert texts(found) == [f"lamp of {agent_id}"]
                await asyncio.sleep(0.2)
                return len(AsyncConnectionManager.get_instance()._dedicated) - before
            finally:
                if gc_was_on:
                    gc.enable()

        assert asyncio.run(channels()) <= 2
        for agent_id in tenants:
            assert texts(port.retrieve("lamp", agent_id=agent_id, limit=3, timeout_s=20)) == [f"lamp of {agent_id}"]

    @owned
    def test_threads_and_event_loops_at_once_find_each_its_own(self, lite_server_uri: str, strategy: str) -> None:  # noqa: F811
        knowledge = opened(lite_server_uri, strategy)
        port: Any = as_retriever_port(knowledge)
        tenants = [f"t{number}" for number in range(4)]
        for agent_id in tenants:
            knowledge.add_texts([f"lamp of {agent_id}"], agent_id=agent_id)

        async def searches() -> list[bool]:
            found = [(t, port.aretrieve("lamp", agent_id=t, limit=3, timeout_s=30)) for t in tenants * 3]
            answers = await asyncio.gather(*(it for _, it in found))
            return [texts(answer) == [f"lamp of {t}"] for (t, _), answer in zip(found, answers, strict=True)]

        def worker(number: int) -> list[bool]:
            if number % 2:
                return asyncio.run(searches())
            return [texts(port.retrieve("lamp", agent_id=t, limit=3, timeout_s=30)) == [f"lamp of {t}"] for t in tenants * 3]

        with ThreadPoolExecutor(6) as pool:
            assert all(all(answers) for answers in pool.map(worker, range(6)))

    @owned
    def test_a_search_that_is_given_no_time_ends_and_says_so(self, lite_uri: str, strategy: str) -> None:  # noqa: F811
        knowledge = opened(lite_uri, strategy)
        knowledge.add_texts(["lamp"], agent_id="a")
        port: Any = as_retriever_port(knowledge)

        with pytest.raises(RetrievalError, match=r"too long|did not answer|not asked"):
            asyncio.run(port.aretrieve("lamp", agent_id="a", limit=3, timeout_s=0.0))


class TestWhatIsRefused:
    @pytest.mark.parametrize("made", STRATEGIES)
    @pytest.mark.parametrize("wanted", STRATEGIES)
    def test_knowledge_is_opened_with_the_isolation_that_it_was_made_with(self, lite_uri: str, made: str, wanted: str) -> None:  # noqa: F811
        base = opened(lite_uri, made).collection_name
        before = everything(lite_uri)

        if made == wanted:
            assert type(opened(lite_uri, wanted, base)) is (KnowledgeStore if made == "partition_key" else TenantStores)
        else:
            with pytest.raises(ConfigError, match=f"made with isolation '{made}', got '{wanted}'"):
                opened(lite_uri, wanted, base)
        assert everything(lite_uri) == before

    @owned
    def test_a_tenants_own_place_is_no_base_of_others(self, lite_uri: str, strategy: str) -> None:  # noqa: F811
        knowledge = opened(lite_uri, strategy)
        knowledge.add_texts(["lamp"], agent_id="a")
        place = knowledge.place("a")
        database = place._connection_args.get("db_name")

        for wanted in STRATEGIES:
            with pytest.raises(ConfigError, match=f"isolation '{strategy} of a tenant'|`database` can't be chosen"):
                opened(lite_uri, wanted, place.collection_name, database=database)

    def test_names_that_would_not_fit_and_contradictions_are_refused(self, lite_uri: str) -> None:  # noqa: F811
        with pytest.raises(ConfigError, match="`isolation` must be one of partition_key, collection, database, got 'tenant'"):
            opened(lite_uri, "tenant")
        with pytest.raises(ConfigError, match=f"at most {MAX_BASE} characters"):
            opened(lite_uri, "collection", "k" * (MAX_BASE + 1))
        with pytest.raises(ConfigError, match="`database` can't be chosen"):
            opened(lite_uri, "database", database="default")
        for strategy in OWN:
            knowledge = opened(lite_uri, strategy, f"{'k' * (MAX_BASE - 32)}{uuid4().hex}")
            knowledge.add_texts(["lamp"], agent_id="a")
            assert texts(search(knowledge, "a")) == ["lamp"]

    @owned
    def test_searches_over_all_tenants_are_refused_with_a_way_to_search_one(self, lite_uri: str, strategy: str) -> None:  # noqa: F811
        knowledge = opened(lite_uri, strategy)
        knowledge.add_texts(["lamp"], agent_id="a")

        for name in ("similarity_search", "as_retriever", "delete", "get_by_ids", "client"):
            with pytest.raises(AttributeError, match=rf"`{name}`.*lie in a {strategy} of its own; use `place\(agent_id\)\.{name}`"):
                getattr(knowledge, name)
        with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
            _ = knowledge.nonsense
        assert [d.page_content for d in knowledge.place("a").similarity_search("lamp")] == ["lamp"]

    @owned
    def test_what_can_be_told_when_the_middleware_is_built_is_told_then(self, lite_uri: str, strategy: str) -> None:  # noqa: F811
        knowledge = opened(lite_uri, strategy)

        with pytest.raises(ConfigError, match="`filter`"):
            crag(vector_store=knowledge, settings=CRAGSettings(filter={"chunk_index": {"gte": "x"}}))
        with pytest.raises(ConfigError, match="`tenant_field` does nothing for TenantStores"):
            crag(vector_store=knowledge, tenant_field="team")
        with pytest.raises(ConfigError, match="public"):
            Route("second", knowledge, public=True)

    @owned
    def test_other_embeddings_are_refused_before_anything_is_found_or_written_c072(self, lite_uri: str, strategy: str) -> None:  # noqa: F811
        base = opened(lite_uri, strategy).collection_name

        with pytest.raises(ConfigError, match="embedding_dimension '64', got '8'"):
            open_knowledge(lite_uri, WordEmbeddings(8), collection=base, isolation=strategy)  # type: ignore[call-overload]

    @owned
    def test_failures_say_what_failed_and_name_no_tenant(self, tmp_path: Path, strategy: str, caplog: Any, capfd: Any) -> None:
        marker = "SECRET-MARKER"
        with lite_server(tmp_path) as uri:
            knowledge = opened(uri, strategy, timeout_s=0.5)
            port: Any = as_retriever_port(knowledge)

        def search_(agent_id: str) -> object:
            return port.retrieve("lamp", agent_id=agent_id, limit=1, timeout_s=0.5)

        for act in (knowledge.count, lambda a: knowledge.add_texts(["x"], agent_id=a), search_):
            with pytest.raises((RetrievalError, IngestError)) as caught:
                act(marker)
            assert caught.value.reason in ("unavailable", "timeout")
            assert (caught.value.__cause__, marker in str(caught.value)) == (None, False)
        captured = capfd.readouterr()
        assert marker not in f"{caplog.text}{captured.out}{captured.err}"


class TestTheCommandLine:
    @owned
    def test_the_isolation_is_said_once_and_known_from_then_on(
        self, strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "lamp.md").write_text("It shines.")
        (tmp_path / "own_words.py").write_text(
            "from tests.support.milvus import WordEmbeddings\nclass Own(WordEmbeddings):\n    model = 'own'\n"
        )
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.delitem(sys.modules, "own_words", raising=False)

        def run(*arguments: str) -> tuple[int, str]:
            result = CliRunner().invoke(cli.app, [*arguments, "--uri", "k.db"])
            return result.exit_code, result.output

        embeddings = ("-e", "own_words:Own")
        code, said = run("ingest", "docs", "-a", "a", *embeddings, "--isolation", strategy)
        assert (code, said.splitlines()[0]) == (0, "1 files with 1 chunks are in, 0 of them unchanged")
        assert run("ingest", "docs", "-a", "b", *embeddings)[0] == 0
        assert "lamp.md" in run("sources", "-a", "a")[1]
        assert run("sources", "-a", "nobody") == (0, "source  title  chunks  newest  from\n0 sources, 0 chunks\n")
        assert "made with isolation" in run("sources", "-a", "a", "--isolation", "partition_key")[1]
        assert run("export", "a.jsonl", "-a", "a")[0] == 0
        assert run("purge", "-a", "a", "--yes")[1].startswith("1 chunks deleted")
        assert "1 sources, 1 chunks" in run("sources", "-a", "b", "--isolation", strategy)[1]
        apart = everything(str(tmp_path / "k.db"))
        assert sum(len(names) for names in apart.values()) == 2, "the base collection, and the other tenant's"
