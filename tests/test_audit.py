"""`audit` and `crag audit`: the boundary holds, what leaks is found, and nothing of the audit stays."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired

import pytest
from langchain.agents.middleware import AgentState
from langchain_core.messages import HumanMessage
from langgraph.config import get_config
from pymilvus import MilvusClient
from typer.testing import CliRunner, Result

from crag_middleware import cli
from crag_middleware.adapters.messages import inject
from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.audit import ATTACKS, audit
from crag_middleware.audit.run import Attack
from crag_middleware.errors import ConfigError, IngestError
from crag_middleware.findings import Found
from crag_middleware.knowledge.open import open_knowledge
from crag_middleware.knowledge.store import KnowledgeStore
from crag_middleware.middleware import CRAGMiddleware
from tests.support.milvus import WordEmbeddings, lite_server_uri, lite_uri  # noqa: F401, fixtures

ROOT = Path(__file__).resolve().parent.parent
NAMES = [attack.__name__ for attack in ATTACKS]
LIVE = {
    "a": ["The audit lamp shines at night in the library.", "图书馆的灯晚上亮着。"],
    'b" or agent_id != "': ["The audit lamp is broken."],
}


@pytest.fixture
def store(lite_uri: str) -> KnowledgeStore:  # noqa: F811
    return filled(lite_uri)


def filled(uri: str) -> KnowledgeStore:
    """A store with rows of two tenants who have nothing to do with the audit."""
    opened = open_knowledge(uri, WordEmbeddings())
    for agent_id, texts in LIVE.items():
        opened.add_texts(texts, [{"source": "crag-audit.md"}] * len(texts), agent_id=agent_id)
    return opened


def everything(store: Any) -> dict[str, Any]:
    """All rows with all their fields."""
    fields = [
        field["name"] for field in store.client.describe_collection(store.collection_name)["fields"] if field["name"] != "sparse_embedding"
    ]
    rows = store.client.query(store.collection_name, filter='id != ""', output_fields=fields, limit=1000, consistency_level="Strong")
    return {row["id"]: str(sorted(row.items())) for row in rows}


def attack(name: str) -> Attack:
    return next(one for one in ATTACKS if one.__name__ == name)


class TestTheBoundaryHolds:
    def test_every_attack_is_held_in_a_file_and_no_other_row_changes(self, store: KnowledgeStore) -> None:
        """C055, C117, C119, C121, C123, C126. On a server: `test_beside_live_rows_of_a_server_every_attack_is_held_and_they_stay`."""
        before = everything(store)

        outcomes = audit(store)

        assert [(one.attack.replace(" ", "_"), one.outcome, one.detail) for one in outcomes] == [(name, "held", "") for name in NAMES]
        assert all(one.tried for one in outcomes)
        assert everything(store) == before

    @pytest.mark.slow
    @pytest.mark.parametrize("isolation", ["collection", "database"])
    def test_every_attack_is_held_where_each_tenant_has_a_place_of_its_own(self, lite_server_uri: str, isolation: Any) -> None:  # noqa: F811
        knowledge = open_knowledge(lite_server_uri, WordEmbeddings(), collection=f"own_{isolation}", isolation=isolation)
        knowledge.add_texts(LIVE["a"], agent_id="a")
        client = MilvusClient(lite_server_uri)
        before = (everything(knowledge.place("a")), sorted(client.list_collections()), sorted(client.list_databases()))

        outcomes = audit(knowledge)

        assert [(one.attack.replace(" ", "_"), one.outcome, one.detail) for one in outcomes] == [(name, "held", "") for name in NAMES]
        assert (everything(knowledge.place("a")), sorted(client.list_collections()), sorted(client.list_databases())) == before

    async def test_it_may_be_called_where_an_event_loop_runs(self, store: KnowledgeStore) -> None:
        outcomes = audit(store, attacks=[attack("same_question"), attack("resumed_run")])

        assert [one.outcome for one in outcomes] == ["held", "held"]


# Parts that leak, each as it is built by mistake.


class Unchecked(MilvusRetriever):
    """Trusts the store: no row is checked."""

    def _found(self, asked: Any, expression: str, limit: int, scope: Any, deadline: float) -> Any:
        (hits,) = yield from self._ask(*self._request(asked, expression, limit), deadline)
        return [self._passage(hit, rank, None) for rank, hit in enumerate(hits, 1)]


class Unfiltered(Unchecked):
    """Searches all tenants."""

    def _expression(self, scope: Any) -> str:
        return 'agent_id != ""'

    def neighbours(self, passages: Sequence[Any], *, agent_id: str, reach: int, timeout_s: float) -> list[Any]:
        found = self.retrieve("audit lamp", agent_id=agent_id, limit=20, timeout_s=timeout_s)
        return [[*found] for _ in passages]


class Unescaped(Unchecked):
    """Puts ids into the filter as they are."""

    def _expression(self, scope: Any) -> str:
        return f'agent_id == "{scope.agent_id}"'


class Normalising(MilvusRetriever):
    """Takes ids for the same that look the same."""

    def retrieve(self, question: str, *, agent_id: str, **more: Any) -> Found:
        return super().retrieve(question, agent_id=unicodedata.normalize("NFC", agent_id.strip()), **more)


class FailingOpen(MilvusRetriever):
    """Takes an empty id for a tenant without rows."""

    def retrieve(self, question: str, *, agent_id: Any, **more: Any) -> Found:
        return super().retrieve(question, agent_id=agent_id, **more) if agent_id else Found(())


class JoiningFilters(Unchecked):
    """Joins the user's filter without parentheses, and unescaped."""

    def _expression(self, scope: Any) -> str:
        terms = [f'{name} == "{value}"' for name, value in (self._settings.filter or {}).items() if isinstance(value, str)]
        return " and ".join([f'agent_id == "{scope.agent_id}"', *terms])


class FilterFirst(Unchecked):
    """Lets a filter on the tenant's column take the place of the tenant's own."""

    def _expression(self, scope: Any) -> str:
        return self._rows if self._rows and "agent_id" in self._rows else super()._expression(scope)


class KeepingOnSelf(MilvusRetriever):
    """Keeps the tenant of a search on the instance."""

    def retrieve(self, question: str, *, agent_id: str, **more: Any) -> Found:
        self.tenant = agent_id
        time.sleep(0.01)
        return super().retrieve(question, agent_id=self.tenant, **more)


class CachingByQuestion(MilvusRetriever):
    """Remembers what a question found, for whomever."""

    def retrieve(self, question: str, *, agent_id: str, **more: Any) -> Found:
        self.__dict__.setdefault("cache", {})
        if question not in self.cache:  # type: ignore[attr-defined]  # made above
            self.cache[question] = super().retrieve(question, agent_id=agent_id, **more)  # type: ignore[attr-defined]
        return self.cache[question]  # type: ignore[attr-defined, no-any-return]


class MetadataFirst(KnowledgeStore):
    """Merges the caller's metadata last."""

    def add_texts(self, texts: Any, metadatas: Any = None, *args: Any, agent_id: Any = None, **more: Any) -> list[str]:
        named = any("agent_id" in metadata for metadata in metadatas or [])
        return super().add_texts(texts, metadatas, *args, agent_id=None if named else agent_id, **more)


class OverwritingIds(KnowledgeStore):
    """Replaces rows by their id, whoever has them."""

    def _refuse_foreign_ids(self, rows: Any, timeout_s: Any) -> None:
        pass


class DeletingBySource(KnowledgeStore):
    """Deletes documents by name, whoever has them."""

    def delete_source(self, agent_id: str, source: str) -> int:
        canaries = [id_ for id_, row in everything(self).items() if "crag-audit" in row and agent_id[:20] in row]
        self.delete(ids=canaries)
        return len(canaries)


class SharingWebPages(KnowledgeStore):
    """Keeps web pages for everybody."""

    def _add(self, rows: Any, batch_size: int, timeout_s: Any) -> list[str]:
        known = {
            row["agent_id"]
            for row in self.client.query(self.collection_name, filter='agent_id like "crag-audit%"', output_fields=["agent_id"], limit=500)
        }
        copies = [
            {**row, "id": f"{row['id']}-{n}", "agent_id": other} for row in rows if row["origin"] for n, other in enumerate(sorted(known))
        ]
        return super()._add([*rows, *copies], batch_size, timeout_s)


def trusting_config(knowledge: Any, agent_id: Any = None, **options: Any) -> CRAGMiddleware:
    """Takes the tenant from `config`, where the client writes it."""
    return CRAGMiddleware(knowledge, lambda runtime: get_config()["configurable"].get("agent_id") or runtime.context["agent_id"], **options)


class TrustingMessages(CRAGMiddleware):
    """Takes the tenant from the last message's `additional_kwargs`."""

    def _claimed(self, messages: Any, runtime: Any) -> Any:
        claims = [m.additional_kwargs["agent_id"] for m in messages if isinstance(m, HumanMessage) and "agent_id" in m.additional_kwargs]
        return replace(runtime, context={"agent_id": claims[-1]}) if claims else runtime

    def before_model(self, state: Any, runtime: Any) -> Any:
        return super().before_model(state, self._claimed(state["messages"], runtime))

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        return super().wrap_model_call(request.override(runtime=self._claimed(request.messages, request.runtime)), handler)


def context_wins(knowledge: Any, agent_id: Any = None, **options: Any) -> CRAGMiddleware:
    """Lets the context overrule what the middleware was built with."""
    return CRAGMiddleware(knowledge, lambda runtime: runtime.context["agent_id"], **options)


class OpenState(CRAGMiddleware):
    """Lets callers set what it remembers."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)

        class State(AgentState[Any]):
            crag: NotRequired[dict[str, Any]]
            _crag: NotRequired[dict[str, Any]]

        self.state_schema = State


def default_tenant() -> Callable[..., CRAGMiddleware]:
    """Falls back to the first tenant that it served where a call names none."""
    served: list[str] = []

    def tenant(runtime: Any) -> str:
        named = (runtime.context or {}).get("agent_id")
        served.extend([named] if named else [])
        return named or served[0]

    return lambda knowledge, agent_id=None, **options: CRAGMiddleware(knowledge, tenant, **options)


class InjectingWhatIsThere(CRAGMiddleware):
    """Does not look whose evidence it is that waits for a model call."""

    def _with_evidence(self, request: Any) -> Any:
        memo = self._memo(request.state)
        messages, _ = inject(memo["block"], request.messages, None, message_id=memo["message_id"], into_system=False)
        return request.override(messages=messages)

    def _watch(self, request: Any) -> None:
        return None


class SharedWeb:
    """A web search that remembers by query alone, failures too."""

    def __init__(self, web: Any) -> None:
        self.web = web
        self.known: dict[str, Any] = {}
        self.failed: Exception | None = None

    def search(self, query: str, *, agent_id: str) -> Any:
        if self.failed:
            raise self.failed
        try:
            if query not in self.known:
                self.known[query] = self.web.search(query, agent_id=agent_id)
            return self.known[query]
        except Exception as error:
            self.failed = error
            raise


def shared_web(knowledge: Any, agent_id: Any = None, *, web_search: Any = None, **options: Any) -> CRAGMiddleware:
    """Puts one memory before all tenants' web searches."""
    return CRAGMiddleware(knowledge, agent_id, web_search=web_search and SharedWeb(web_search), **options)


class SharedCircuit:
    """Leaves a retriever alone once it failed, for whomever."""

    def __init__(self, knowledge: Any) -> None:
        self.knowledge = knowledge
        self.failed: Exception | None = None

    def retrieve(self, question: str, *, agent_id: str) -> Any:
        if self.failed:
            raise self.failed
        try:
            return self.knowledge.retrieve(question, agent_id=agent_id)
        except Exception as error:
            self.failed = error
            raise


def shared_circuit(knowledge: Any, agent_id: Any = None, **options: Any) -> CRAGMiddleware:
    """Puts one circuit before all tenants' knowledge."""
    return CRAGMiddleware(SharedCircuit(knowledge), agent_id, **options)


LEAKS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "no filter and no check": (
        {"retriever": Unfiltered},
        {
            "hostile_ids", "look_alike_ids", "user_filters", "filters_on_the_tenant", "store_without_filters", "neighbours", "forged_metadata",
            "foreign_ids", "operators_commands", "forged_fields", "resumed_run", "shared_instance", "same_question", "web_cache",
        },
    ),
    "no check": ({"retriever": Unchecked}, {"store_without_filters"}),
    "ids unescaped": ({"retriever": Unescaped}, {"hostile_ids"}),
    "ids normalised": ({"retriever": Normalising}, {"look_alike_ids"}),
    "empty ids served": ({"retriever": FailingOpen}, {"empty_scopes"}),
    "filters joined": ({"retriever": JoiningFilters}, {"user_filters"}),
    "filters first": ({"retriever": FilterFirst}, {"filters_on_the_tenant"}),
    "tenant kept on the instance": ({"retriever": KeepingOnSelf}, {"shared_instance"}),
    "cache without tenant": ({"retriever": CachingByQuestion}, {"same_question"}),
    "metadata first": ({"store": MetadataFirst}, {"forged_metadata"}),
    "ids overwritten": ({"store": OverwritingIds}, {"foreign_ids"}),
    "documents deleted by name": ({"store": DeletingBySource}, {"operators_commands"}),
    "web pages for everybody": ({"store": SharingWebPages}, {"kept_web_pages"}),
    "config trusted": ({"middleware": trusting_config}, {"forged_fields"}),
    "messages trusted": ({"middleware": TrustingMessages}, {"forged_fields"}),
    "context over constructor": ({"middleware": context_wins}, {"conflicting_context"}),
    "state from callers": ({"middleware": OpenState}, {"forged_state"}),
    "default tenant": ({"middleware": default_tenant}, {"subagent_without_context"}),
    "whatever evidence": ({"middleware": InjectingWhatIsThere}, {"resumed_run"}),
    "one web memory": ({"middleware": shared_web}, {"web_cache", "web_trouble"}),
    "one circuit for all": ({"middleware": shared_circuit}, {"knowledge_trouble"}),
}  # fmt: skip


class TestWhatLeaksIsFound:
    @pytest.mark.parametrize("leak", LEAKS)
    def test_a_part_that_leaks_is_found_by_the_attacks_on_it(self, store: KnowledgeStore, leak: str) -> None:
        parts, expected = LEAKS[leak]
        parts = dict(parts)
        before = everything(store)
        store.__class__ = parts.pop("store", KnowledgeStore)
        if parts.get("middleware") is default_tenant:
            parts["middleware"] = default_tenant()

        outcomes = audit(store, attacks=[attack(name) for name in NAMES if name in expected], **parts)

        found = {one.attack.replace(" ", "_"): one.outcome for one in outcomes}
        assert found == dict.fromkeys(found, "leaked"), [one.detail for one in outcomes if one.outcome != "leaked"]
        assert set(found) == expected
        assert not re.search("canary[0-9a-f]{8}|crag-audit-", str(outcomes)), "no outcome quotes anything"
        store.__class__ = KnowledgeStore
        assert everything(store) == before

    def test_every_attack_can_fail(self) -> None:
        assert set.union(*(expected for _, expected in LEAKS.values())) == set(NAMES)


class Deaf(MilvusRetriever):
    """Finds nothing."""

    def retrieve(self, question: str, **more: Any) -> Found:
        return Found(())


class TestNothingStays:
    def test_canaries_that_are_not_found_prove_nothing(self, store: KnowledgeStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("crag_middleware.audit.site.SETTLING_S", 0.1)
        before = everything(store)

        outcomes = audit(store, retriever=Deaf)

        assert {(one.outcome, one.detail) for one in outcomes} == {("could_not_run", "the canary rows are not found by their own tenants")}
        assert [one.attack.replace(" ", "_") for one in outcomes] == NAMES
        assert everything(store) == before

    @pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
    def test_a_stop_in_the_middle_leaves_nothing(self, store: KnowledgeStore, stop: type[BaseException]) -> None:
        before = everything(store)

        def stopped(site: Any) -> None:
            """Stops."""
            assert len(everything(store)) > len(before)
            raise stop

        with pytest.raises(stop):
            audit(store, attacks=[attack("look_alike_ids"), stopped])

        assert everything(store) == before

    def test_an_error_of_an_attack_is_told_by_its_class_and_the_rest_goes_on(self, store: KnowledgeStore) -> None:
        def broken(site: Any) -> None:
            """Breaks."""
            raise ValueError("SECRET")

        outcomes = audit(store, attacks=[broken, attack("same_question")])

        assert [(one.outcome, one.detail) for one in outcomes] == [("could_not_run", "ValueError"), ("held", "")]

    def test_a_store_that_fails_at_the_end_is_told_with_the_tenants_to_purge(self, store: KnowledgeStore) -> None:
        def lost(site: Any) -> None:
            """Loses the collection."""
            store.client.drop_collection(store.collection_name)

        with pytest.raises(IngestError, match=r"purge them when the store answers again: 'crag-audit-\w+-Tenant"):
            audit(store, attacks=[lost])

    def test_only_a_store_of_open_knowledge_is_audited(self) -> None:
        with pytest.raises(ConfigError, match="open_knowledge"):
            audit("http://localhost:19530")  # type: ignore[arg-type]  # wrong on purpose


OWN = """
from tests.support.milvus import WordEmbeddings

class Own(WordEmbeddings):
    model = "own-words"

class Failing(Own):
    def embed_documents(self, texts):
        raise RuntimeError("SECRET")

class Slow(Own):
    def embed_documents(self, texts):
        import time
        if "number 1" in texts[0] and "canary" in texts[0] and hasattr(Slow, "again"):
            print("embedding", flush=True)
            time.sleep(60)
        Slow.again = True
        return super().embed_documents(texts)
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory to work in."""
    (tmp_path / "own_words.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_words", raising=False)
    for name in ("CRAG_URI", "CRAG_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def crag(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, list(arguments))


class TestTheCommand:
    def test_a_scratch_collection_is_made_audited_and_dropped(self, lite_uri: str, here: Path) -> None:  # noqa: F811
        store = filled(lite_uri)
        before = everything(store)

        done = crag("audit", lite_uri, "-e", "own_words:Own")

        assert done.exit_code == 0, done.output
        lines = done.stdout.splitlines()
        assert lines[0].split() == ["attack", "what", "was", "tried", "outcome"]
        assert lines[-1] == f"{len(ATTACKS)} of {len(ATTACKS)} attacks held"
        assert sum(line.rstrip().endswith(" held") for line in lines[1:-1]) == len(ATTACKS)
        assert MilvusClient(lite_uri).list_collections() == [store.collection_name]
        assert everything(store) == before

    def test_beside_live_rows_of_a_server_every_attack_is_held_and_they_stay(self, lite_server_uri: str, here: Path) -> None:  # noqa: F811
        store = open_knowledge(lite_server_uri, WordEmbeddings(), collection="beside", embedding_name="own-words")
        store.add_texts(LIVE["a"], agent_id="a")
        before = everything(store)

        done = crag("audit", lite_server_uri, "--collection", "beside", "-e", "own_words:Own", "--json")

        assert done.exit_code == 0, done.output
        told = json.loads(done.stdout)
        assert [(one["attack"].replace(" ", "_"), one["outcome"]) for one in told] == [(name, "held") for name in NAMES]
        assert [*told[0]] == ["attack", "tried", "outcome", "detail"]
        assert everything(store) == before

    def test_what_could_not_run_is_no_success(self, lite_uri: str, here: Path) -> None:  # noqa: F811
        done = crag("audit", lite_uri, "-e", "own_words:Failing")

        assert done.exit_code == 1
        assert "0 of" in done.stdout.splitlines()[-1]
        assert "could not run" in done.stdout
        assert "SECRET" not in done.output
        assert MilvusClient(lite_uri).list_collections() == []

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [(("missing.db",), "there is no file 'missing.db'"), (("{uri}", "--collection", "nothing"), "there is no collection 'nothing'")],
    )
    def test_nothing_is_made_where_nothing_is(self, lite_uri: str, here: Path, arguments: tuple[str, ...], told: str) -> None:  # noqa: F811
        done = crag("audit", *(argument.format(uri=lite_uri) for argument in arguments))

        assert done.exit_code == 2
        assert told in done.output
        assert not Path("missing.db").exists()
        assert MilvusClient(lite_uri).list_collections() == []

    def test_ctrl_c_leaves_no_row_and_no_collection(self, lite_server_uri: str, here: Path) -> None:  # noqa: F811
        collections = sorted(MilvusClient(lite_server_uri).list_collections())
        command = [sys.executable, "-m", "crag_middleware.cli", "audit", lite_server_uri, "-e", "own_words:Slow"]
        environment = {"PYTHONPATH": f"{here}:{ROOT}", "PATH": os.defpath}

        with subprocess.Popen(command, cwd=here, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "embedding\n"
            assert len(MilvusClient(lite_server_uri).list_collections()) == len(collections) + 1
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=60)

        assert process.returncode == 1
        assert "crag: stopped; the canary rows are deleted" in told
        assert sorted(MilvusClient(lite_server_uri).list_collections()) == collections
