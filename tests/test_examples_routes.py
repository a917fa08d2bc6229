"""The example of routes: a real embedded graph, a real HTTP service, and the agent over both."""

import asyncio
import re
import threading

import pytest

from crag_middleware.adapters.routes import Route, route_ports
from crag_middleware.errors import RetrievalError
from crag_middleware.settings import CRAGSettings
from crag_middleware.types import Passage
from examples.routes_graph import Graph, choose_graph
from examples.routes_orders import Orders, start_order_service
from tests.support.milvus import WordEmbeddings
from tests.test_examples import run


@pytest.fixture(scope="module")
def graph() -> Graph:
    return Graph()


def texts(graph: Graph, question: str, **options: float) -> list[str]:
    port = route_ports(Route("graph", graph.search, public=True), CRAGSettings())
    assert port.retrieve is not None
    found = port.retrieve(question, agent_id="aurora", **{"limit": 5, "timeout_s": 5.0} | options)
    return [passage.text for passage in found]


def test_the_graph_knows_who_supplies_the_part_of_a_product_which_no_single_fact_says(graph: Graph) -> None:
    (english,) = texts(graph, "Which company supplies the battery of the aurora CITY?")
    (chinese,) = texts(graph, "极光城市的电池是哪家公司供应的？")

    assert english.startswith("The Aurora City bike uses the battery PowerPack 504.")
    assert "Nordzelle in Kiel supplies the battery PowerPack 504." in english
    assert chinese.startswith("极光城市电动车使用504电池组。")
    assert "504电池组由基尔的北芯公司供应。" in chinese


def test_the_graph_gives_a_passage_for_each_thing_that_is_named_and_none_where_none_is(graph: Graph) -> None:
    both = "Compare the Aurora City and the Aurora Trail"

    assert len(texts(graph, both)) == 2
    assert len(texts(graph, both, limit=1)) == 1
    assert texts(graph, "How long is the warranty?") == texts(graph, "") == []


def test_a_question_is_no_cypher(graph: Graph) -> None:
    before = texts(graph, "Nordzelle")

    for hostile in ("Nordzelle'}) MATCH (n) DETACH DELETE n //", '"}) RETURN 1; //', "$question", "a\x00b", "Nordzelle \\ \" ' {{}}"):
        texts(graph, hostile)
    assert texts(graph, "Nordzelle") == before != []


def test_the_graph_can_be_searched_from_several_threads_at_once(graph: Graph) -> None:
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(texts(graph, "极光越野"))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [texts(graph, "极光越野")] * 6


def test_an_order_is_told_to_its_own_company_only() -> None:
    with start_order_service() as url:
        port = route_ports(Route("orders", Orders(url).search), CRAGSettings())

        def ask(question: str, company: str) -> list[Passage]:
            assert port.aretrieve is not None
            return [*asyncio.run(port.aretrieve(question, agent_id=company, limit=5, timeout_s=5.0))]  # type: ignore[arg-type]

        (english,), (chinese,) = ask("When does order A-1042 arrive?", "aurora"), ask("订单A-1042什么时候送达？", "aurora")
        assert english.id == "A-1042"
        assert english.text == "Order A-1042 (Aurora City) is with the carrier and arrives on 2031-05-14."
        assert chinese.text == "订单A-1042（Aurora City）运输中，预计2031-05-14送达。"
        assert ask("Where is A-1042?", "borealis") == ask("Where is A-9999?", "aurora") == ask("Refunds?", "aurora") == []
        assert [p.id for p in ask("A-1042, B-2001 and XA-10425", "borealis")] == ["B-2001"]


def test_an_order_service_that_is_gone_is_named() -> None:
    with start_order_service() as url:
        pass
    port = route_ports(Route("orders", Orders(url).search), CRAGSettings())
    assert port.aretrieve is not None

    with pytest.raises(RetrievalError, match="route 'orders' failed with ConnectError"):
        asyncio.run(port.aretrieve("Where is A-1042?", agent_id="aurora", limit=5, timeout_s=5.0))  # type: ignore[arg-type]


def test_an_address_of_neo4j_puts_its_retriever_in_the_graphs_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as it can be told without one: LangChain's store goes to that address, with that user."""
    assert isinstance(choose_graph(WordEmbeddings()), Graph)

    for name, value in {"NEO4J_URI": "bolt://127.0.0.1:1", "NEO4J_USERNAME": "neo4j", "NEO4J_PASSWORD": "secret"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="Could not connect to Neo4j"):
        choose_graph(WordEmbeddings())


def test_each_question_is_answered_from_the_place_that_knows() -> None:
    _, refund, battery, bikes, order = re.split(r"\n\n?(?=How many|Which company|哪些极光|When does)", "\n" + run("routes.py"))

    assert "30 days to return an order" in refund
    assert "[1] from knowledge" in refund
    assert "Nordzelle in Kiel supplies the battery" in battery
    assert re.search(r"\[1\] from graph \(rank 1\)", battery)
    assert "极光城市电动车使用504电池组。极光越野电动车使用504电池组。" in bikes
    assert "arrives on 2031-05-14" in order
    assert re.search(r"\[1\] from orders \(rank 1\)", order)
    for turn in (refund, battery, bikes, order):
        assert re.findall(r"^  (knowledge|graph|orders) +\d+ found$", turn, re.MULTILINE) == ["knowledge", "graph", "orders"]
