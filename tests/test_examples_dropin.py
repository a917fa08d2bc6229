"""The small examples: what each is there to show, on real parts, in this process; and the loop as a graph."""

import asyncio
import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.types import Command

from crag_middleware import CRAGMiddleware, TenantError
from crag_middleware.testing import ScriptedChatModel
from tests.support.agents import both
from tests.support.milvus import lite_server_uri  # noqa: F401 - a fixture

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
sys.path.append(str(EXAMPLES))  # as for a reader who runs one of them
sys.path.append(str(EXAMPLES / "milvus"))

import closed_loop  # noqa: E402
import middleware_order  # noqa: E402
import one_line  # noqa: E402
import open_anywhere  # noqa: E402
import search_tool  # noqa: E402
import shop  # noqa: E402
import subgraph  # noqa: E402
import supervisor  # noqa: E402
import two_knowledge_bases  # noqa: E402

RETURN = "How many days do I have to return a bike for a refund?"
MACHINE = "How many days do I have to return a coffee machine for a refund?"


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("shop") / "shop.db")


@pytest.fixture(scope="module")
def knowledge(uri: str) -> Any:
    return shop.fill(uri)


def ask(agent: Any, question: Any, how: str = "ainvoke", **keywords: Any) -> dict[str, Any]:
    given = {"messages": [("user", question)]} if isinstance(question, str) else question
    return agent.invoke(given, **keywords) if how == "invoke" else asyncio.run(agent.ainvoke(given, **keywords))


@both
def test_an_agent_gets_its_sources_by_one_more_line_and_nothing_else_of_it_changes(knowledge, how):
    before, after = ask(one_line.before(), one_line.QUESTION, how), ask(one_line.after(knowledge), one_line.QUESTION, how)

    lines = [inspect.getsource(it).split('"""')[2].splitlines() for it in (one_line.before, one_line.after)]
    assert [line for line in lines[1] if line not in lines[0]] == [
        '        middleware=[CRAGMiddleware(knowledge, agent_id="aurora", evaluator=evaluator())],'
    ]
    assert "30 days" not in shop.say(before)
    assert re.search(r"30 days.*\[1\]", shop.say(after))
    kept = [[(m.type, m.text, getattr(m, "tool_calls", None)) for m in result["messages"][:-1]] for result in (before, after)]
    assert kept[0] == kept[1]
    assert after.keys() - before.keys() == {"crag"}


@both
def test_a_subgraph_gets_the_tenant_from_the_graphs_context_and_gives_its_receipt(knowledge, how):
    graph = subgraph.build(knowledge)

    for agent_id, days in (("aurora", "30 days"), ("borealis", "14 days")):
        result = ask(graph, "How many days do I have to return it for a refund?", how, context=shop.Caller(agent_id))
        assert days in shop.say(result)
        assert result["crag"]["verdict"] == "relevant"
    assert "crag" not in ask(graph, "What is your phone number?", how, context=shop.Caller("aurora"))


def test_each_subagent_of_a_supervisor_sees_its_own_tenants_rows(knowledge):
    agent = supervisor.build(knowledge)

    assert ("30 days" in shop.say(ask(agent, RETURN)), "14 days" in shop.say(ask(agent, MACHINE))) == (True, True)
    assert "days" not in shop.say(ask(agent, "How many days has a week?"))


@both
def test_a_subagent_without_a_tenant_searches_nothing_and_ends_the_run(knowledge, how):
    """C018"""
    inner = create_agent(shop.QuotingChatModel(), middleware=[CRAGMiddleware(knowledge, evaluator=shop.evaluator())])

    @tool
    def ask_desk(question: str) -> str:
        """Ask the desk."""
        return shop.say(inner.invoke({"messages": [("user", question)]}))

    outer = create_agent(shop.ToolCallingModel(calls={"bike": ("ask_desk", {"question": "$question"})}), tools=[ask_desk])

    with pytest.raises(TenantError, match="there is no tenant"):
        ask(outer, RETURN, how)


def test_a_deep_agent_and_its_subagent_each_answer_from_their_own_tenant(knowledge):
    pytest.importorskip("deepagents")
    import deep_agent

    agent = deep_agent.build(knowledge)

    assert "30 days" in shop.say(ask(agent, RETURN))
    handed_on = ask(agent, "Ask the coffee shop how long I can return a machine.")
    (report,) = [m for m in handed_on["messages"] if isinstance(m, ToolMessage)]
    assert "14 days" in report.text
    assert "14 days" not in str(handed_on["crag"])
    assert [key for key in handed_on if "crag" in key] == ["crag"]


def test_subagents_of_a_deep_agent_that_run_at_once_leave_its_receipt_alone(knowledge):
    pytest.importorskip("deepagents")
    import deep_agent

    tasks = [{"name": "task", "args": {"description": MACHINE, "subagent_type": "coffee"}, "id": str(n)} for n in range(2)]
    model = ScriptedChatModel(replies=[AIMessage("", tool_calls=tasks), "14 days [1].", "14 days [1].", "30 days [1]."])

    result = ask(deep_agent.build(knowledge, model), RETURN, "invoke")

    assert [m.text for m in result["messages"][2:]] == ["14 days [1].", "14 days [1].", "30 days [1]."]
    assert "30 days to return a bike" in str(result["crag"]["sources"])
    assert "coffee" not in str(result["crag"])


def test_the_recommended_order_of_middlewares_is_the_one_in_the_recipes(knowledge, monkeypatch):
    built: list[Any] = []
    monkeypatch.setattr(middleware_order, "create_agent", lambda *_, middleware, **__: built.extend(middleware))
    quoting = shop.QuotingChatModel()

    middleware_order.build(knowledge, quoting, fallback=quoting, summarizer=quoting)

    page = (ROOT / "docs" / "recipes.md").read_text()
    table = page.partition("## Among other middlewares")[2].partition("\n## ")[0]
    assert re.findall(r"^\| \d \| `(\w+)`", table, re.MULTILINE) == [type(it).__name__ for it in built]


@both
def test_in_that_order_addresses_leave_before_the_search_and_retries_and_a_fallback_and_a_person_cost_no_second_one(knowledge, how):
    answering = ScriptedChatModel(
        replies=[AIMessage("", tool_calls=[{"name": "refund", "args": {"number": 17}, "id": "1"}]), "You have 30 days [1], not 40 [9]."]
    )
    failing = ScriptedChatModel(replies=[ConnectionError()])
    agent = middleware_order.build(knowledge, failing, fallback=answering, summarizer=shop.QuotingChatModel())
    config: Any = {"configurable": {"thread_id": how}}

    asked = ask(agent, f"I am jo@example.org. {RETURN}", how, config=config)
    result = ask(agent, Command(resume={"decisions": [{"type": "approve"}]}), how, config=config)

    assert asked["__interrupt__"][0].value["action_requests"][0]["name"] == "refund"
    assert result["crag"]["queries"] == [f"I am [REDACTED_EMAIL]. {RETURN}"]
    assert result["crag"] | {"answer": None, "spent": None} == asked["crag"] | {"answer": None, "spent": None}
    assert "jo@example.org" not in str([answering.requests, result])
    assert (len(failing.requests), len(answering.requests)) == (4, 2)
    assert len({request[0].text for request in failing.requests + answering.requests}) == 1
    assert "30 days" in answering.requests[0][0].text
    assert shop.say(result) == "You have 30 days [1], not 40."


def test_in_that_order_a_summary_shortens_the_history_and_the_question_keeps_its_evidence(knowledge):
    model = ScriptedChatModel(replies=["30 days [1]."])
    agent = middleware_order.build(knowledge, model, fallback=model, summarizer=ScriptedChatModel(replies=["They talked about bikes."]))
    history = [(HumanMessage, AIMessage)[n % 2](f"message {n}") for n in range(8)]

    result = ask(agent, {"messages": [*history, HumanMessage(RETURN)]}, config={"configurable": {"thread_id": "long"}})

    texts = [message.text for message in model.requests[-1]]
    assert any("They talked about bikes." in text for text in texts)
    assert not any(text == "message 0" for text in texts)
    assert "[1] knowledge" in texts[-1]
    assert texts[-1].endswith(RETURN)
    assert result["crag"]["verdict"] == "relevant"


def test_two_knowledge_bases_number_their_sources_on_and_keep_their_own_receipts(uri, knowledge):
    """L05"""
    law = shop.fill(uri, two_knowledge_bases.LAW, collection="law")

    result = ask(two_knowledge_bases.build(knowledge, law), "For how many years is a bike covered against defects?")

    handbook, book = ([s["number"] for s in result[f"crag_{name}"]["sources"]] for name in ("handbook", "law"))
    assert handbook + book == [*range(1, len(handbook) + len(book) + 1)]
    assert "By law" in shop.say(result)
    assert f"[{book[0]}]" in shop.say(result)


def test_a_search_tool_brings_what_the_turns_own_evidence_lacks_for_the_contexts_tenant(knowledge):
    """C022"""
    question = f"{RETURN} My battery is dead."
    agent = search_tool.build(knowledge)

    for agent_id, brought in (("aurora", "The frame of every bike carries a warranty"), ("borealis", "")):
        result = ask(agent, question, context=shop.Caller(agent_id))
        (found,) = [m.text for m in result["messages"] if isinstance(m, ToolMessage)]
        assert brought in found
        assert not any(strip["text"] in found for source in result["crag"]["sources"] for strip in source["strips"])
        assert ("bike" in found) == (agent_id == "aurora")


def test_the_address_alone_decides_which_milvus_is_asked(lite_server_uri):  # noqa: F811 - the fixture
    """As far as it can be told without a cluster: a file here, and a server that is spoken to over gRPC."""
    places = [{}, {"MILVUS_URI": lite_server_uri, "MILVUS_TOKEN": "root:Milvus"}]

    assert [open_anywhere.ask(place, shop.embeddings(), RETURN) for place in places] == [[open_anywhere.TEXT]] * 2


def test_the_compose_file_pins_its_images_and_opens_milvus_to_this_machine_only():
    services = yaml.safe_load((EXAMPLES / "milvus" / "compose.yaml").read_text())["services"]

    assert set(services["milvus"]["depends_on"]) == services.keys() - {"milvus"}
    assert [service.get("ports") for service in services.values()] == [None, None, ["127.0.0.1:19530:19530"]]
    for service in services.values():
        assert re.search(r":(v\d|RELEASE\.)", service["image"])
        assert service["healthcheck"]["test"]


def test_the_graph_that_studio_serves_loads_and_answers_as_its_configuration_says():
    folder = EXAMPLES / "studio"
    configuration = json.loads((folder / "langgraph.json").read_text())
    path, _, name = configuration["graphs"]["agent"].partition(":")
    assert [folder.joinpath(dependency).resolve() for dependency in configuration["dependencies"]] == [EXAMPLES]

    specification = importlib.util.spec_from_file_location("studio_agent", folder / path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    graph = getattr(module, name)

    assert "30 days" in shop.say(ask(graph, RETURN, context={"agent_id": "aurora"}))


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[closed_loop.Loop]:
    with closed_loop.open_loop(tmp_path_factory.mktemp("loop")) as opened:
        yield opened


async def travel(loop: closed_loop.Loop, question: str, agent_id: str = "aurora") -> tuple[list[str], Any]:
    """The nodes that a question passes, routes in order, and the last state."""
    way: list[str] = []
    state: Any = {}
    context = closed_loop.Caller(agent_id)
    async for mode, part in closed_loop.build(loop).astream({"question": question}, context=context, stream_mode=["updates", "values"]):
        way += part if mode == "updates" else ()
        state = part if mode == "values" else state
    return [node for node in way if not node.startswith("ask_")], state


LOOKED_UP = ["merge", "rerank", "grade"]
ANSWERED = ["refine", "generate", "check"]


@pytest.mark.parametrize(
    ("question", "way", "said"),
    [
        (closed_loop.QUESTIONS[0], [*LOOKED_UP, *ANSWERED], "30 days"),
        (closed_loop.QUESTIONS[1], [*LOOKED_UP, *ANSWERED], "arrives on 2031-05-14"),
        (closed_loop.QUESTIONS[2], [*LOOKED_UP, "rewrite", *LOOKED_UP, *ANSWERED], "weighs 2.6 kg"),
        (closed_loop.QUESTIONS[3], [*LOOKED_UP, "search_web", *ANSWERED], "土星"),
        (closed_loop.QUESTIONS[4], [*LOOKED_UP, "rewrite", *LOOKED_UP, "search_web", *ANSWERED], "Saturn"),
    ],
)
def test_in_the_graph_a_question_takes_the_way_that_its_verdict_says(loop, question, way, said):
    passed, state = asyncio.run(travel(loop, question))

    assert passed == way
    assert said in state["answer"]
    assert state["unsupported"] == []


def test_in_the_graph_the_routes_see_the_contexts_tenant_only(loop):
    for question in closed_loop.QUESTIONS[:2]:
        _, state = asyncio.run(travel(loop, question, "borealis"))
        assert "aurora" not in str(state).lower()
        assert "2031-05-14" not in str(state)


def test_in_the_graph_an_answer_without_support_is_written_anew_once(loop):
    drafts = ScriptedChatModel(replies=["You have 90 days [1].", "You have 30 days to return an order for a full refund [1][8]."])
    stubborn = ScriptedChatModel(replies=["You have 90 days [1]."])

    way, state = asyncio.run(travel(closed_loop.replace(loop, model=drafts), closed_loop.QUESTIONS[0]))
    _, kept = asyncio.run(travel(closed_loop.replace(loop, model=stubborn), closed_loop.QUESTIONS[0]))

    assert way[-4:] == ["generate", "check", "generate", "check"]
    assert state["answer"] == "You have 30 days to return an order for a full refund [1]."
    assert "You have 90 days" in drafts.requests[1][0].text
    assert (kept["drafts"], kept["unsupported"]) == (2, ["You have 90 days [1]."])


def test_the_picture_in_the_documents_is_the_graphs_own(loop):
    shown = re.findall(r"^```mermaid\n(.*?)^```", (ROOT / "docs" / "outside.md").read_text(), re.MULTILINE | re.DOTALL)

    assert closed_loop.build(loop).get_graph().draw_mermaid() in shown


OTHERS = [subgraph, supervisor, middleware_order, two_knowledge_bases, search_tool]


@pytest.mark.parametrize("example", [one_line, *(pytest.param(it, marks=pytest.mark.slow) for it in OTHERS)], ids=lambda it: it.__name__)
def test_an_example_runs_as_a_whole(example, capsys):
    made = example.main()
    if made is not None:
        asyncio.run(made)

    assert re.search(r"\[\d\]", capsys.readouterr().out)
