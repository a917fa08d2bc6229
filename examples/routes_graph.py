"""A graph as a route: facts about things, found by the things that a question names, in English and Chinese.

`ladybug` keeps the graph in this process; with `NEO4J_URI` LangChain's Neo4j retriever searches a graph of yours instead.
"""

import os
import re

import ladybug
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever

from crag_middleware import Passage

THINGS = {
    "Aurora City": "极光城市",
    "Aurora Trail": "极光越野",
    "PowerPack 504": "504电池组",
    "Nordzelle": "北芯",
    "Zhenhai Motors": "镇海电机",
}
FACTS = [
    ("Aurora City", "PowerPack 504", "The Aurora City bike uses the battery PowerPack 504.", "极光城市电动车使用504电池组。"),
    ("Aurora Trail", "PowerPack 504", "The Aurora Trail bike uses the battery PowerPack 504.", "极光越野电动车使用504电池组。"),
    ("Nordzelle", "PowerPack 504", "The company Nordzelle in Kiel supplies the battery PowerPack 504.", "504电池组由基尔的北芯公司供应。"),
    (
        "Zhenhai Motors",
        "Aurora Trail",
        "Zhenhai Motors in Ningbo supplies the motor of the Aurora Trail.",
        "极光越野电动车的电机供应商是宁波的镇海电机公司。",
    ),
]
NEAR = """
    MATCH (named:Thing) WHERE lower($question) CONTAINS lower(named.name) OR $question CONTAINS named.zh
    MATCH way = (named)-[:Fact*0..1]-(near:Thing) MATCH (near)-[fact:Fact]-(:Thing)
    RETURN named.name, fact.en, fact.zh, min(length(way)) AS steps ORDER BY named.name, steps, fact.en
"""
"""The facts about each thing that the question names, then those about its neighbours. The question is a parameter: nothing in it is taken for Cypher."""


class Graph:
    """The facts in an embedded graph store, in memory."""

    def __init__(self) -> None:
        self._database = ladybug.Database(":memory:", buffer_pool_size=2**26, max_db_size=2**30)
        with ladybug.Connection(self._database) as graph:
            graph.execute("CREATE NODE TABLE Thing(name STRING PRIMARY KEY, zh STRING)")
            graph.execute("CREATE REL TABLE Fact(FROM Thing TO Thing, en STRING, zh STRING)")
            for name, zh in THINGS.items():
                graph.execute("CREATE (:Thing {name: $name, zh: $zh})", {"name": name, "zh": zh})
            for one, other, en, zh in FACTS:
                graph.execute(
                    "MATCH (a:Thing {name: $one}), (b:Thing {name: $other}) CREATE (a)-[:Fact {en: $en, zh: $zh}]->(b)",
                    {"one": one, "other": other, "en": en, "zh": zh},
                )

    def search(self, question: str, *, limit: int, timeout_s: float) -> list[Passage]:
        """One passage for each thing that the question names: what is known around it, in the question's language."""
        chinese = re.search(r"[\u4e00-\u9fff]", question)
        with ladybug.Connection(self._database) as graph:
            graph.set_query_timeout(int(timeout_s * 1000))
            found: dict[str, list[str]] = {}
            for row in graph.execute(NEAR, {"question": question}):
                name, en, zh, _ = map(str, row)
                found.setdefault(name, []).append(zh if chinese else en)
        texts = {name: ("" if chinese else " ").join(facts) for name, facts in found.items()}
        return [Passage(id=name, text=text, title=name, source="parts graph") for name, text in texts.items()][:limit]


def neo4j_retriever(embeddings: Embeddings) -> BaseRetriever:
    """LangChain's retriever over a vector index of a Neo4j database; user and password come from `NEO4J_USERNAME` and `NEO4J_PASSWORD`."""
    from langchain_neo4j import Neo4jVector

    index = os.environ.get("NEO4J_INDEX", "vector")
    store = Neo4jVector.from_existing_index(embeddings, index_name=index, url=os.environ["NEO4J_URI"])
    return store.as_retriever(search_kwargs={"k": 10})


def choose_graph(embeddings: Embeddings) -> BaseRetriever | Graph:
    """Neo4j where its address is given, else the small graph here."""
    return neo4j_retriever(embeddings) if os.environ.get("NEO4J_URI") else Graph()
