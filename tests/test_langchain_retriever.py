"""What a user may give as knowledge."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.errors import GraphInterrupt

from crag_middleware.adapters.langchain_retriever import LangChainRetriever, as_retriever_port
from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.errors import ConfigError, RetrievalError, TenantError
from crag_middleware.settings import CRAGSettings
from crag_middleware.types import Passage
from tests.support import milvus as support
from tests.support.milvus import TENANT, WordEmbeddings, insert, make_collection, open_store, text_column

lite_uri = support.lite_uri

OWN = [Document("one", id="1", metadata={"agent_id": "a", "source": "s.md"}), Document("two", metadata={"agent_id": "a", "pk": 2})]


class Fixed(BaseRetriever):
    """Returns what it was given."""

    found: Any

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> Any:
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


Search = Callable[..., list[Passage]]


@pytest.fixture(params=["sync", "async"])
def search(request: pytest.FixtureRequest) -> Search:
    def call(retriever: Any, *, agent_id: Any = "a", limit: int = 5, timeout_s: float = 5) -> Any:
        arguments = {"agent_id": agent_id, "limit": limit, "timeout_s": timeout_s}
        if request.param == "sync":
            return retriever.retrieve("question", **arguments)
        return asyncio.run(retriever.aretrieve("question", **arguments))

    return call


class TestLangChainRetriever:
    def test_documents_become_passages_in_their_order(self, search: Search) -> None:
        document = Document("three", metadata={"agent_id": "a", "title": "T", "page": 3, "confidence": 0.5, "created_at": 7})

        passages = search(LangChainRetriever(Fixed(found=[*OWN, document])))

        assert [p.rank for p in passages] == [1, 2, 3]
        assert [p.id for p in passages[:2]] == ["1", "2"]
        assert len(passages[2].id) == 64
        assert passages[0] == Passage(id="1", text="one", source="s.md", rank=1)
        assert (passages[2].title, passages[2].confidence, passages[2].created_at) == ("T", 0.5, 7)
        assert passages[2].metadata == {"page": 3}

    def test_at_most_the_limit(self, search: Search) -> None:
        assert len(search(LangChainRetriever(Fixed(found=OWN * 9)), limit=3)) == 3
        assert search(LangChainRetriever(Fixed(found=[]))) == []

    @pytest.mark.parametrize("metadata", [{}, {"agent_id": None}, {"agent_id": "b"}, {"agent_id": "A"}, {"team": "a"}, {"agent_id": ["a"]}])
    def test_a_document_of_nobody_or_somebody_else_is_fatal(self, search: Search, metadata: dict[str, Any]) -> None:
        """C058: also one beyond the limit."""
        with pytest.raises(TenantError) as caught:
            search(LangChainRetriever(Fixed(found=[*OWN, Document("SECRET", metadata=metadata)])), limit=1)

        assert "SECRET" not in str(caught.value)

    @pytest.mark.parametrize("field", ["team", 'metadata["team"]'])
    def test_the_tenant_field_is_settable_and_no_fact_of_the_passage(self, search: Search, field: str) -> None:
        retriever = LangChainRetriever(
            Fixed(found=[Document("x", metadata={"team": "a", "agent_id": "bot", "topic": "kept"})]), tenant_field=field
        )

        assert search(retriever)[0].metadata == {"topic": "kept"}

    def test_without_a_tenant_field_every_tenant_sees_everything(self, search: Search) -> None:
        retriever = LangChainRetriever(Fixed(found=[Document("x")]), tenant_field=None)

        assert [p.text for p in search(retriever, agent_id="anybody")] == ["x"]
        with pytest.raises(TenantError):
            search(retriever, agent_id="")

    @pytest.mark.parametrize("has_async_form", [False, True])
    def test_tenant_and_limit_are_passed_to_a_retriever_that_names_them(self, search: Search, has_async_form: bool) -> None:
        class Knowing(BaseRetriever):
            def _get_relevant_documents(self, query: str, *, run_manager: Any, agent_id: str, limit: int) -> list[Document]:
                return [Document(f"{query} {limit}", metadata={"agent_id": agent_id})]

        class AlsoAsync(Knowing):
            async def _aget_relevant_documents(self, query: str, *, run_manager: Any, agent_id: str, limit: int) -> list[Document]:
                return [Document(f"{query} {limit}", metadata={"agent_id": agent_id})]

        assert [p.text for p in search(LangChainRetriever((AlsoAsync if has_async_form else Knowing)()))] == ["question 5"]

    def test_a_retriever_with_free_keywords_is_passed_nothing(self, search: Search) -> None:
        store = InMemoryVectorStore(WordEmbeddings())
        store.add_documents(OWN)

        assert len(search(LangChainRetriever(store.as_retriever()))) == 2

    def test_an_old_retriever_without_run_manager_serves(self, search: Search) -> None:
        class Old(BaseRetriever):
            def _get_relevant_documents(self, query: str) -> list[Document]:  # type: ignore[override]  # still allowed by LangChain
                return OWN

        assert len(search(LangChainRetriever(Old()))) == 2

    def test_a_failing_retriever_is_an_error_without_its_text(self, search: Search) -> None:
        with pytest.raises(RetrievalError, match="ValueError") as caught:
            search(LangChainRetriever(Fixed(found=ValueError("SECRET"))))

        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__, "no traceback shows it"

    def test_lone_surrogates_of_a_question_are_replaced(self) -> None:
        seen: list[str] = []

        class Notes(BaseRetriever):
            def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
                seen.append(query)
                return []

        LangChainRetriever(Notes()).retrieve("a\ud800b 图", agent_id="a", limit=1, timeout_s=1)
        asyncio.run(LangChainRetriever(Notes()).aretrieve("a\ud800b 图", agent_id="a", limit=1, timeout_s=1))

        assert seen == ["a?b 图"] * 2

    def test_a_document_s_own_legs_do_not_pass_for_those_of_explain(self, search: Search) -> None:
        (passage,) = search(LangChainRetriever(Fixed(found=[Document("x", metadata={"agent_id": "a", "legs": "mine", "page": 1})])))

        assert passage.metadata == {"page": 1}

    def test_control_flow_passes(self, search: Search) -> None:
        with pytest.raises(GraphInterrupt):
            search(LangChainRetriever(Fixed(found=GraphInterrupt())))

    @pytest.mark.parametrize("found", [None, "text", ["text"], [None], (Document("x"),)])
    def test_a_reply_that_is_no_list_of_documents_is_an_error(self, search: Search, found: object) -> None:
        with pytest.raises(RetrievalError) as caught:
            search(LangChainRetriever(Fixed(found=found)))

        assert caught.value.reason == "invalid_reply"

    async def test_the_async_form_keeps_its_deadline(self) -> None:
        class Waiting(Fixed):
            async def _aget_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
                await asyncio.Event().wait()
                return []

        with pytest.raises(RetrievalError) as caught:
            await LangChainRetriever(Waiting(found=[])).aretrieve("x", agent_id="a", limit=5, timeout_s=0.05)

        assert caught.value.reason == "timeout"

    @pytest.mark.parametrize("form", ["sync", "async"])
    def test_traces_show_the_call_by_name_under_the_ambient_config(self, form: str) -> None:
        seen: list[tuple[Any, Any]] = []

        class Tracer(BaseCallbackHandler):
            def on_retriever_start(self, serialized: Any, query: str, **keywords: Any) -> None:
                seen.append((keywords["name"], keywords["tags"]))

        retriever = LangChainRetriever(Fixed(found=OWN))
        arguments = {"agent_id": "a", "limit": 5, "timeout_s": 5.0}
        config: Any = {"callbacks": [Tracer()], "tags": ["outer"]}

        if form == "sync":
            RunnableLambda(lambda q: retriever.retrieve(q, **arguments)).invoke("q", config)  # type: ignore[arg-type]
        else:

            async def call(question: str) -> list[Passage]:
                return await retriever.aretrieve(question, **arguments)  # type: ignore[arg-type]

            asyncio.run(RunnableLambda(call).ainvoke("q", config))

        assert [name for name, _ in seen] == ["crag.retrieve"]


class TestAsRetrieverPort:
    def test_a_milvus_store_is_searched_by_us(self, lite_uri: str, search: Search) -> None:
        insert(
            make_collection(lite_uri, "k", {"team": text_column(nullable=False)}),
            "k",
            [{"id": x, "text": "question", "team": x} for x in "ab"],
        )

        for given in (open_store(lite_uri, "k"), open_store(lite_uri, "k").as_retriever()):
            port = as_retriever_port(given, tenant_field="team", settings=CRAGSettings(filter={"id": {"in": ["a", "b"]}}))
            assert isinstance(port, MilvusRetriever)
            assert [p.id for p in search(port)] == ["a"]

    @pytest.mark.parametrize("option", ["filter", "expr"])
    def test_a_store_s_retriever_with_a_filter_is_refused(self, lite_uri: str, option: str) -> None:
        """C058."""
        make_collection(lite_uri, "k", {"agent_id": TENANT})
        given = open_store(lite_uri, "k").as_retriever(search_kwargs={option: 'agent_id == "SECRET"'})

        with pytest.raises(ConfigError, match=rf"`{option}`.*CRAGSettings\(filter") as caught:
            as_retriever_port(given)

        assert "SECRET" not in str(caught.value)

    def test_other_options_of_a_store_s_retriever_are_named_as_unused(self, lite_uri: str, caplog: pytest.LogCaptureFixture) -> None:
        make_collection(lite_uri, "k", {"agent_id": TENANT})

        as_retriever_port(open_store(lite_uri, "k").as_retriever(search_kwargs={"k": 9}))

        assert "['k'] are not used" in caplog.text

    def test_another_retriever_is_wrapped_and_checked_on_agent_id(self, search: Search) -> None:
        port = as_retriever_port(Fixed(found=OWN))

        assert isinstance(port, LangChainRetriever)
        assert len(search(port)) == 2
        with pytest.raises(TenantError):
            search(port, agent_id="b")

    def test_an_object_with_either_method_is_itself(self) -> None:
        class Sync:
            def retrieve(self, question: str) -> list[Passage]:
                return []

        class Async:
            async def aretrieve(self, question: str) -> list[Passage]:
                return []

        for given in (Sync(), Async(), LangChainRetriever(Fixed(found=[]))):
            assert as_retriever_port(given) is given

    @pytest.mark.parametrize("option", [{"filter": {"team": "SECRET"}}, {"min_confidence": 0.5}, {"explain": True}])
    def test_settings_that_only_milvus_obeys_are_refused_elsewhere(self, option: dict[str, Any]) -> None:
        for given in (Fixed(found=OWN), LangChainRetriever(Fixed(found=OWN))):
            with pytest.raises(ConfigError, match=rf"`{next(iter(option))}`.*leave them out") as caught:
                as_retriever_port(given, settings=CRAGSettings(**option))
            assert "SECRET" not in str(caught.value)
            as_retriever_port(given, settings=CRAGSettings(filter={}))

    def test_a_tenant_field_that_would_do_nothing_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"`tenant_field` does nothing for LangChainRetriever.*leave it out"):
            as_retriever_port(LangChainRetriever(Fixed(found=OWN)), tenant_field="team")

    @pytest.mark.parametrize("name", ["", " ", 5])
    def test_a_tenant_field_without_a_name_is_refused(self, lite_uri: str, name: Any) -> None:
        make_collection(lite_uri, "k", {"agent_id": TENANT})

        for given in (open_store(lite_uri, "k"), Fixed(found=OWN)):
            with pytest.raises(ConfigError, match=r"`tenant_field` must name.*leave it out"):
                as_retriever_port(given, tenant_field=name)

    @pytest.mark.parametrize("given", [None, "store", 1, [], object(), InMemoryVectorStore(WordEmbeddings())])
    def test_anything_else_is_refused_with_what_is_accepted(self, given: object) -> None:
        with pytest.raises(ConfigError, match=r"langchain_milvus\.Milvus.*retriever.*`aretrieve`.*got " + type(given).__name__):
            as_retriever_port(given)
