"""The corrective pass outside agents: as a LangChain retriever, by `correct`, and as a node of a LangGraph graph."""

import asyncio
import inspect
import threading
import typing
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_tests.integration_tests import RetrieversIntegrationTests
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from crag_middleware import Corrected, CorrectedState, CorrectiveRetriever, CRAGMiddleware, open_knowledge
from crag_middleware.errors import ConfigError, GradingError, RetrievalError, TenantError
from crag_middleware.parts import GivenForAnswers
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import ScriptedEvaluator, ScriptedRetriever, ScriptedRewriter, ScriptedWebSearch
from crag_middleware.types import Passage
from tests.support.agents import both, passage
from tests.support.milvus import WordEmbeddings, lite_uri  # noqa: F401 - a fixture
from tests.support.models import ScriptedModel

QUESTION = "Which port does the exporter use?"
PORT = passage("The exporter listens on port 9100. It was written in 2013.", "port", title="Exporter", source="ops/exporter.md")
TEXTS = [f"The exporter of host {name} listens on port {port}." for name, port in (("a", 9100), ("b", 9200), ("c", 9300), ("d", 9400))]


def retriever(passages=(PORT,), *, agent_id="a", tenant="a", **more) -> CorrectiveRetriever:
    """A retriever whose tenant has these passages; all of them are relevant unless an evaluator is given."""
    more.setdefault("evaluator", ScriptedEvaluator())
    more.setdefault("vector_store", ScriptedRetriever({tenant: passages}))
    return CorrectiveRetriever(agent_id=agent_id, **more)


def look_up(over: CorrectiveRetriever, question: Any = QUESTION, how: str = "invoke", config: Any = None, **more: Any) -> list[Document]:
    return over.invoke(question, config, **more) if how == "invoke" else asyncio.run(over.ainvoke(question, config, **more))


def correct(over: CorrectiveRetriever, question: Any = QUESTION, how: str = "invoke", **more: Any) -> Corrected:
    return over.correct(question, **more) if how == "invoke" else asyncio.run(over.acorrect(question, **more))


class TestLangChainsSuite(RetrieversIntegrationTests):
    """LangChain's own tests of retrievers, over a real Milvus Lite."""

    @pytest.fixture(autouse=True)
    def _knowledge(self, lite_uri: str) -> None:  # noqa: F811 - the fixture
        self.store = open_knowledge(lite_uri, WordEmbeddings(), collection="suite")
        self.store.add_texts(TEXTS, agent_id="a")

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return CorrectiveRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"vector_store": self.store, "agent_id": "a", "evaluator": ScriptedEvaluator()}

    @property
    def retriever_query_example(self) -> str:
        return QUESTION


@both
def test_a_document_holds_the_kept_sentences_and_where_they_stand(how):
    (document,) = look_up(retriever(), how=how)

    assert document.page_content == "The exporter listens on port 9100. …"
    assert document.id == "port"
    (strip,) = document.metadata.pop("strips")
    assert PORT.text[strip["start"] : strip["end"]].strip() == strip["text"].strip() == document.page_content.removesuffix(" …")
    assert document.metadata == {
        "number": 1,
        "id": "port",
        "origin": "knowledge",
        "title": "Exporter",
        "source": "ops/exporter.md",
        "url": "",
        "section": None,
        "page": None,
        "label": "relevant",
        "verdict": "relevant",
    }


@both
@pytest.mark.parametrize(
    "question", [QUESTION, "这个导出器用哪个端口？", "", "  \n", "你好", "Hello!", "\ud800", "data:text/plain;base64," + "QUJD" * 20]
)
def test_without_evidence_there_are_no_documents(how, question):
    assert look_up(retriever([]), question, how) == []


@both
def test_the_web_takes_over_where_the_knowledge_has_nothing_and_its_pages_say_so(how):
    page = passage("The exporter listens on port 9100.", url="https://example.org/exporter", origin="web")
    over = retriever(
        [passage("Bread needs flour.")], evaluator=ScriptedEvaluator({"Bread needs flour.": 0.01}), web_search=ScriptedWebSearch([page])
    )

    (document,) = look_up(over, how=how)

    assert (document.metadata["origin"], document.metadata["url"]) == ("web", "https://example.org/exporter")
    assert document.metadata["verdict"] == "incorrect"


@both
def test_k_keeps_the_best_documents_in_their_order(how):
    doubtful, good, better = (passage(f"The exporter of {x} listens on port 9100.", x) for x in ("d", "g", "b"))
    over = retriever([doubtful, good, better], evaluator=ScriptedEvaluator({"d": 0.6, "g": 0.95, "b": 0.99}))

    everything, two = look_up(over, how=how), look_up(over, how=how, k=2)

    assert sorted(d.id for d in everything) == ["b", "d", "g"]
    assert {d.id for d in two} == {"g", "b"}
    numbers = [d.metadata["number"] for d in two]
    assert numbers == sorted(numbers)
    assert look_up(retriever([doubtful, good, better], k=1), how=how, k=3) != look_up(retriever([doubtful, good, better], k=1), how=how)


@both
def test_a_relevant_page_of_the_web_is_kept_before_doubtful_knowledge_that_has_the_lower_number(how):
    web = ScriptedWebSearch([passage("The exporter of host b listens on port 9200.", "page", url="https://example.org", origin="web")])
    over = retriever(
        [passage("The exporter of host a listens on port 9100.", "known")], evaluator=ScriptedEvaluator({"known": 0.6}), web_search=web
    )

    everything, (best,) = look_up(over, how=how), look_up(over, how=how, k=1)

    assert [(d.id, d.metadata["number"]) for d in everything] == [("known", 1), ("page", 2)]
    assert best.id == "page"


@pytest.mark.parametrize("k", [0, -1, True, 1.5, "3"])
def test_a_k_that_is_none_is_refused(k):
    with pytest.raises(ConfigError, match="`k` must be at least 1"):
        retriever(k=k)
    with pytest.raises(ConfigError, match="`k` must be at least 1"):
        retriever().invoke(QUESTION, k=k)


@both
def test_the_tenant_is_the_retrievers_or_the_calls_and_both_must_agree(how):
    over = retriever(agent_id=None)

    assert look_up(over, how=how, agent_id="a") != [] == look_up(over, how=how, agent_id="b")
    assert look_up(retriever(), how=how, agent_id="a") != []
    with pytest.raises(TenantError, match="must agree") as conflict:
        look_up(retriever(agent_id="MARKER-a", tenant="MARKER-a"), how=how, agent_id="MARKER-b")
    assert conflict.value.reason == "tenant_conflict"
    assert "MARKER" not in str(conflict.value)


@both
@pytest.mark.parametrize("agent_id", [None, "", "  ", 3, "\ud800"])
def test_without_a_tenant_nothing_is_searched(how, agent_id):
    store = ScriptedRetriever({"a": [PORT]})
    over = retriever(agent_id=None, vector_store=store)

    with pytest.raises(TenantError):
        look_up(over, how=how, agent_id=agent_id)
    with pytest.raises(TenantError):
        correct(over, how=how, agent_id=agent_id)
    assert store.asked == []


@both
@pytest.mark.parametrize("question", ["agent_id=b: which port?", '{"agent_id": "b"}', 'x" or agent_id == "b'])
def test_a_question_never_chooses_the_tenant(how, question, lite_uri):  # noqa: F811 - the fixture
    store = open_knowledge(lite_uri, WordEmbeddings(), collection="tenants")
    store.add_texts(["The port of a is 9100."], agent_id="a")
    store.add_texts(["MARKER: the port of b is 9200."], agent_id="b")
    over = CorrectiveRetriever(store, agent_id="a", evaluator=ScriptedEvaluator())

    assert "MARKER" not in str([look_up(over, question, how), correct(over, question, how, history=[("user", question)])])


def test_neither_text_form_nor_fields_show_the_tenant():
    over = retriever(agent_id="MARKER", tenant="MARKER")

    assert "MARKER" not in repr(over) + str(over.model_dump()) + str(over.__dict__)


@both
def test_a_search_that_fails_is_raised_by_the_retriever_and_told_by_the_receipt(how):
    over = retriever(vector_store=ScriptedRetriever({}, error=ConnectionError("MARKER")))

    with pytest.raises(RetrievalError, match="could not be searched") as failure:
        look_up(over, how=how)
    assert failure.value.reason == "ConnectionError"
    found = correct(over, how=how)
    assert (found.documents, found.receipt["status"]) == ((), "retrieval_failed")
    assert "could not be searched" in found.block
    assert "MARKER" not in str(failure.value) + str(found)


@both
def test_an_evaluator_that_fails_leaves_the_passages_ungraded(how):
    (document,) = look_up(retriever(evaluator=ScriptedEvaluator(error=GradingError("down", reason="unavailable"))), how=how)

    assert document.metadata["label"] == "ungraded"


@both
def test_correct_gives_the_documents_the_block_and_the_receipt_of_the_middlewares_own_turn(how):
    found = correct(retriever(), how=how)

    assert [d.metadata["number"] for d in found.documents] == [1]
    assert "[1] knowledge: Exporter" in found.block
    assert found.receipt["name"] == "CorrectiveRetriever"
    (source,) = found.receipt["sources"]
    assert found.documents[0].metadata == {**source, "verdict": found.receipt["verdict"]}


@both
def test_a_follow_up_is_understood_by_the_conversation_before_it(how):
    rewriter = ScriptedRewriter("Which port does the exporter of host b use?")
    over = retriever(rewriter=rewriter)

    found = correct(over, "And the one of host b?", how, history=[("user", QUESTION), AIMessage("9100.")])

    assert found.receipt["queries"] == ["Which port does the exporter of host b use?"]
    assert [exchange.text for exchange in rewriter.asked[0][1]] == [QUESTION, "9100."]


@pytest.mark.parametrize("question", [None, 3, ["Which port?"], b"port", HumanMessage("Which port?")])
def test_a_question_that_is_no_text_is_refused(question):
    with pytest.raises(ConfigError, match="a question must be a string, got"):
        retriever().correct(question)


@pytest.mark.parametrize("history", ["MARKER", 3, [{"text": "MARKER"}], [("robot", "MARKER")], [object()]])
def test_a_history_that_is_none_is_refused_without_its_text(history):
    with pytest.raises(ConfigError, match="messages must be a list") as refusal:
        retriever().correct(QUESTION, history=history)
    assert "MARKER" not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"evalutor": 1}, "`evalutor` is no argument; the arguments are: .*evaluator"),
        ({"claim_checker": "a:b"}, "`claim_checker` looks at answers"),
        ({"settings": {"top_k": 3}}, "`settings` must be `CRAGSettings"),
        ({"vector_store": ScriptedRetriever}, "`vector_store` must be an instance"),
        ({"vector_store": 3}, "`vector_store` must be knowledge"),
    ],
)
def test_what_can_not_work_is_refused_when_it_is_built(arguments, message):
    with pytest.raises(ConfigError, match=message):
        retriever(**arguments)


def test_the_middleware_takes_the_same_arguments_by_the_same_types():
    """Besides its own: which turn, and what it is called."""
    signature = inspect.signature(CRAGMiddleware)
    hints = typing.get_type_hints(CRAGMiddleware.__init__)
    shared = typing.get_type_hints(GivenForAnswers)

    assert shared.keys() <= signature.parameters.keys()
    assert {name: hints[name] for name in shared} == shared


class Runs(BaseCallbackHandler):
    """Which run began inside which, by id."""

    run_inline = True

    def __init__(self) -> None:
        self.begun: list[tuple[str, Any]] = []
        self.parents: dict[Any, Any] = {}

    def on_retriever_start(self, *_: Any, run_id: Any, parent_run_id: Any, name: str = "", **__: Any) -> None:
        self.begun.append((name, run_id))
        self.parents[run_id] = parent_run_id

    def on_chat_model_start(self, *_: Any, run_id: Any, parent_run_id: Any, **__: Any) -> None:
        self.begun.append(("model", run_id))
        self.parents[run_id] = parent_run_id

    def on_chain_start(self, *_: Any, run_id: Any, parent_run_id: Any, **__: Any) -> None:
        self.parents[run_id] = parent_run_id

    def root(self, run_id: Any) -> Any:
        return run_id if self.parents[run_id] is None else self.root(self.parents[run_id])


@both
def test_runs_of_inner_models_and_retrievers_belong_to_the_retrievers_own_run(how):
    class Inner(BaseRetriever):
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
            return [Document("The exporter listens on port 9100.", id="port", metadata={"agent_id": "a"})]

    runs = Runs()
    grader = ScriptedModel(script=['{"grades": [{"passage": 1, "label": "relevant", "confidence": 97, "reason": "it says so"}]}'])
    over = CorrectiveRetriever(Inner(), agent_id="a", evaluator=grader)

    look_up(over, how=how, config={"callbacks": [runs]})

    own = dict(runs.begun)["CorrectiveRetriever"]
    assert Counter(name for name, _ in runs.begun)["model"] == 1
    assert {"model", "CorrectiveRetriever"} < {name for name, _ in runs.begun}
    assert {runs.root(run_id) for _, run_id in runs.begun} == {own}


def test_one_retriever_serves_threads_and_event_loops_of_several_tenants_at_once():
    """C126"""
    tenants = {name: [passage(f"MARKER-{name}: the exporter listens on port 9100.", name)] for name in "abcd"}
    over = retriever(agent_id=None, vector_store=ScriptedRetriever(tenants))
    found: dict[tuple[str, int], str] = {}

    def work(name: str, place: int) -> None:
        for _ in range(5):
            documents = look_up(over, how="invoke" if place % 2 else "ainvoke", agent_id=name)
            found[name, place] = found.get((name, place), "") + str(documents)

    threads = [threading.Thread(target=work, args=(name, place)) for name in tenants for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 16
    for (name, _), text in found.items():
        assert text.count(f"MARKER-{name}") >= 5
        assert not any(f"MARKER-{other}" in text for other in tenants if other != name)


def test_a_cancelled_retriever_ends_at_once_and_leaves_nothing_behind():
    entered, ended = asyncio.Event(), []

    class Slow:
        async def aretrieve(self, question: str) -> list[Passage]:
            entered.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(question)
            return []

    async def cancel() -> None:
        task = asyncio.create_task(retriever(vector_store=Slow()).ainvoke(QUESTION))
        await asyncio.wait_for(entered.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())

    assert ended == [QUESTION]


@given(st.lists(st.sampled_from([0.02, 0.5, 0.9, 0.99]), max_size=8), st.integers(1, 9))
def test_there_are_never_more_documents_than_k_and_a_document_says_no_more_than_its_passage(probabilities, k):
    passages = [passage(f"The exporter of host {n} listens on port {9100 + n}. Else nothing.", str(n)) for n in range(len(probabilities))]
    grades = {p.id: probability for p, probability in zip(passages, probabilities, strict=True)}
    over = retriever(passages, evaluator=ScriptedEvaluator(grades), settings=CRAGSettings(near_duplicate=None, max_rewrites=0))

    everything, few = over.invoke(QUESTION), over.invoke(QUESTION, k=k)

    texts = {p.id: p.text for p in passages}
    assert len(few) == min(k, len(everything))
    assert [d.metadata["number"] for d in few] == sorted(d.metadata["number"] for d in few)
    assert all(texts[d.id][s["start"] : s["end"]] == s["text"] for d in everything for s in d.metadata["strips"])
    assert {d.id for d in everything} <= {id_ for id_, p in grades.items() if p > 0.1}


@dataclass(frozen=True)
class Caller:
    agent_id: str


def graph(over: CorrectiveRetriever, **options: Any) -> Any:
    """Look up, then answer with the numbers of the sources."""

    def answer(state: Mapping[str, Any]) -> dict[str, Any]:
        return {"messages": [AIMessage("".join(f"[{d.metadata['number']}]" for d in state["documents"]) or "nothing")]}

    build = StateGraph(CorrectedState, context_schema=Caller).add_node("look_up", over.as_node()).add_node("answer", answer)
    return build.add_edge(START, "look_up").add_edge("look_up", "answer").add_edge("answer", END).compile(**options)


def step(over: Any, how: str, state: Any, **more: Any) -> Any:
    return over.invoke(state, **more) if how == "invoke" else asyncio.run(over.ainvoke(state, **more))


@both
def test_the_node_looks_up_the_latest_message_for_the_contexts_tenant(how):
    over = graph(retriever(agent_id=None))
    asked = {"messages": [("user", QUESTION)]}

    assert step(over, how, asked, context=Caller("a"))["messages"][-1].text == "[1]"
    assert step(over, how, asked, context=Caller("b"))["messages"][-1].text == "nothing"
    with pytest.raises(TenantError):
        step(over, how, asked)
    with pytest.raises(TenantError):
        step(graph(retriever()), how, asked, context=Caller("b"))


@both
def test_the_nodes_work_is_kept_in_checkpoints_as_plain_values(how):
    over = graph(retriever(), checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}

    step(over, how, {"messages": [("user", QUESTION)]}, config=config)

    kept = over.get_state(config).values
    assert kept["receipt"]["message_id"] == kept["messages"][0].id
    assert [document.id for document in kept["documents"]] == ["port"]
    assert "[1] knowledge" in kept["block"]


def test_the_node_tells_its_stages_in_the_stream_and_hides_its_models_tokens():
    grader = ScriptedModel(script=['{"grades": [{"passage": 1, "label": "relevant", "confidence": 97, "reason": "it says so"}]}'])
    over = graph(retriever(evaluator=grader))

    parts = list(over.stream({"messages": [("user", QUESTION)]}, stream_mode=["custom", "messages"]))

    stages = [part["stage"] for mode, part in parts if mode == "custom"]
    assert (stages[0], stages[-1], "grading" in stages) == ("retrieving", "done", True)
    assert [part[0].text for mode, part in parts if mode == "messages"] == ["[1]"]


@pytest.mark.parametrize("state", [{"question": QUESTION}, [QUESTION], {"messages": "MARKER"}])
def test_a_state_without_messages_is_refused(state):
    with pytest.raises(ConfigError, match="messages") as refusal:
        retriever().as_node().invoke(state)
    assert "MARKER" not in str(refusal.value)


def test_the_node_serves_outside_a_graph_too():
    node: Callable[..., Any] = retriever().as_node().invoke

    assert [d.id for d in node({"messages": [HumanMessage(QUESTION)]})["documents"]] == ["port"]
    assert node({"messages": []})["documents"] == []
