"""The whole loop as a LangGraph graph that can be seen: every stage is a node, built from the package's parts.

`python examples/closed_loop.py` asks four questions, offline and without a key; with `--mermaid` it prints the graph's picture (docs/outside.md shows it).
To change a stage, change its node; `CRAGMiddleware` and `CorrectiveRetriever` run the same stages with deadlines, circuits and fallbacks that are not here.
"""

import asyncio
import logging
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

from demo import open_documents
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from routes_orders import Orders, start_order_service
from web_server import start_web_server

from crag_middleware import (
    CRAGSettings,
    EmbeddingEvaluator,
    EmbeddingReranker,
    Ground,
    LocalEmbeddings,
    MilvusRetriever,
    Passage,
    TavilyWebSearch,
    Thresholds,
    WebPolicy,
    WordClaimChecker,
    WordRefiner,
)
from crag_middleware.stages.assemble import Kept, approximate_tokens, assemble
from crag_middleware.stages.citations import mend
from crag_middleware.stages.claims import claims
from crag_middleware.stages.decide import calibrated, decide, label
from crag_middleware.stages.merge import MergeRules, arrange, marked, merge
from crag_middleware.stages.screen import screen
from crag_middleware.stages.webquery import compose
from crag_middleware.stages.words import language
from crag_middleware.testing import QuotingChatModel
from crag_middleware.types import Graded, Source, Verdict

QUESTIONS = [
    "How many days do I have to return an order for a refund?",
    "When does order A-1042 arrive?",
    "How heavy is the juice box of the AC-1?",
    "哪颗行星的卫星最多？",
    "How many moons does Saturn have?",
]
GLOSSARY = {"juice box": "battery", "AC-1": "Aurora bike"}
LIMIT, GRADED, WEB_RESULTS, TOKENS, TIMEOUT_S = 20, 5, 3, 2000, 10.0


@dataclass(frozen=True)
class Caller:
    """Who is asking: the trusted runtime context, set by the application and never by a message."""

    agent_id: str


class State(TypedDict, total=False):
    """What travels through the graph. Each node returns the keys that it has something new for."""

    question: str
    queries: list[str]
    knowledge: Sequence[Passage]
    orders: Sequence[Passage]
    found: Sequence[Passage]
    graded: Sequence[Graded]
    verdict: Verdict
    web: Sequence[Graded]
    sources: Sequence[Source]
    block: str
    answer: str
    drafts: int
    unsupported: list[str]


@dataclass(frozen=True)
class Loop:
    """The nodes, over these parts."""

    retriever: MilvusRetriever
    orders: Orders
    web: TavilyWebSearch
    evaluator: EmbeddingEvaluator
    reranker: EmbeddingReranker
    model: BaseChatModel = field(default_factory=QuotingChatModel)
    refiner: WordRefiner = field(default_factory=WordRefiner)
    checker: WordClaimChecker = field(default_factory=WordClaimChecker)
    policy: WebPolicy = field(default_factory=WebPolicy)

    async def ask_knowledge(self, state: State, runtime: Runtime[Caller]) -> State:
        """The first route: Milvus, dense and BM25, the tenant's rows only."""
        found = await self.retriever.aretrieve(_query(state), agent_id=runtime.context.agent_id, limit=LIMIT, timeout_s=TIMEOUT_S)
        return {"knowledge": marked(found, "knowledge", len(state.get("queries", ())))}

    async def ask_orders(self, state: State, runtime: Runtime[Caller]) -> State:
        """The second route: an HTTP service that knows where orders are."""
        found = await self.orders.search(_query(state), agent_id=runtime.context.agent_id, limit=LIMIT, timeout_s=TIMEOUT_S)
        return {"orders": marked(found, "orders", len(state.get("queries", ())))}

    async def merge(self, state: State) -> State:
        """One list of what both routes found, in this round and the ones before: copies become one, ranks fuse."""
        rules = MergeRules(weights={"orders": 2.0}, half_life_days={}, by_type={}, now_ms=0, near=CRAGSettings().near_duplicate)
        return {"found": merge([*state.get("found", ()), *state["knowledge"], *state["orders"]], rules)}

    async def rerank(self, state: State) -> State:
        """The few passages worth grading."""
        found = state["found"]
        scores = await asyncio.to_thread(self.reranker.rerank, _query(state), found)
        scored = [replace(p, rerank_score=s) for p, s in zip(found, scores, strict=True)]
        return {"found": sorted(scored, key=lambda p: -(p.rerank_score or 0.0))[:GRADED]}

    async def grade(self, state: State) -> State:
        """P(it answers the question) for each passage, and what follows from all of them."""
        graded = await self._graded(_query(state), state["found"])
        return {"graded": graded, "verdict": decide([g.grade for g in graded])}

    async def rewrite(self, state: State) -> State:
        """The question in the documents' own words; a chat model would do it better (`ChatModelRewriter`)."""
        query = state["question"]
        for theirs, ours in GLOSSARY.items():
            query = query.replace(theirs, ours)
        return {"queries": [*state.get("queries", ()), query]}

    async def search_web(self, state: State, runtime: Runtime[Caller]) -> State:
        """Web pages, screened and graded like the rest. Only the question leaves, cleaned; never a passage."""
        query = compose(state["question"], protected=self.policy.protected_terms)
        if not query.text:
            return {"web": ()}
        found = await self.web.asearch(query.text, limit=WEB_RESULTS, timeout_s=TIMEOUT_S, policy=self.policy)
        kept, _ = screen(found, state["found"], query=query.text, policy=self.policy)
        return {"web": await self._graded(_query(state), kept)}

    async def refine(self, state: State) -> State:
        """The sentences that bear on the question, numbered and fenced within the token budget."""
        known = () if state["verdict"] == "incorrect" else state["graded"]
        graded = [g for g in (*known, *state.get("web", ())) if g.grade.label != "incorrect"]
        picked = self.refiner.refine(_query(state), [g.passage for g in graded])
        kept = [Kept(g, strips) for g, strips in zip(graded, picked, strict=True) if strips]
        spoken = language(state["question"])
        block = assemble(kept, status="no_evidence", language=spoken, first=1, budget=TOKENS, count_tokens=approximate_tokens)
        return {"sources": block.sources, "block": block.text}

    async def generate(self, state: State) -> State:
        """The model's answer to the question with its evidence, and, after a check that failed, with what had no support."""
        wrong = state.get("unsupported")
        correction = f"\n\nNo source supports this, leave it out: {' '.join(wrong)}" if wrong else ""
        reply = await self.model.ainvoke([HumanMessage(f"{state['block']}\n\n{state['question']}{correction}")])
        return {"answer": str(reply.text), "drafts": state.get("drafts", 0) + 1}

    async def check(self, state: State) -> State:
        """The answer without citations that no source has, and its statements that no source supports."""
        answer = mend(state["answer"], {s.number: s.graded.passage.origin for s in state["sources"]}).text
        stated = claims(answer)
        grounds = [Ground(strip.text, "source", s.number) for s in state["sources"] for strip in s.strips]
        checked = self.checker.check(stated, grounds)
        pairs = zip(stated, checked, strict=True)
        failing = [claim.text for claim, said in pairs if said.probability is not None and said.probability < self.checker.threshold]
        return {"answer": answer, "unsupported": failing}

    async def _graded(self, query: str, passages: Sequence[Passage]) -> tuple[Graded, ...]:
        """Best first, labelled by what the evaluator's numbers mean."""
        grades = await asyncio.to_thread(self.evaluator.grade, query, passages)
        known = self.evaluator.calibration
        thresholds = Thresholds(*known.thresholds) if known else self.evaluator.thresholds
        labelled = [label(calibrated(grade, known), thresholds) for grade in grades]
        return arrange([Graded(passage=p, grade=g) for p, g in zip(passages, labelled, strict=True)])


def after_grading(state: State) -> Literal["refine", "search_web", "rewrite"]:
    """The three actions of CRAG; `incorrect` is tried once more in other words before the web is asked."""
    if state["verdict"] == "relevant":
        return "refine"
    return "rewrite" if state["verdict"] == "incorrect" and not state.get("queries") else "search_web"


def after_checking(state: State) -> Literal["generate", "__end__"]:
    """One more draft for an answer that says what no source does."""
    return "generate" if state["unsupported"] and state["drafts"] < 2 else "__end__"


def build(loop: Loop) -> Any:
    """The graph."""
    graph = StateGraph(State, context_schema=Caller)
    routes = ["ask_knowledge", "ask_orders"]
    for node in (*routes, "merge", "rerank", "grade", "rewrite", "search_web", "refine", "generate", "check"):
        graph.add_node(node, getattr(loop, node))
    for route in routes:
        graph.add_edge(START, route)
        graph.add_edge("rewrite", route)
    graph.add_edge(routes, "merge")
    for one, other in (("merge", "rerank"), ("rerank", "grade"), ("search_web", "refine"), ("refine", "generate"), ("generate", "check")):
        graph.add_edge(one, other)
    graph.add_conditional_edges("grade", after_grading)
    graph.add_conditional_edges("check", after_checking)
    return graph.compile()


def _query(state: State) -> str:
    """What is searched and graded: the latest rewriting, else the question."""
    return (state.get("queries") or [state["question"]])[-1]


@contextmanager
def open_loop(folder: Path, **other: Any) -> Iterator[Loop]:
    """The loop over the demo's documents, and an order service and a web search on loopback."""
    embeddings = LocalEmbeddings()
    knowledge, _ = open_documents(embeddings, folder)
    with start_order_service() as orders, start_web_server() as web:
        yield Loop(
            retriever=MilvusRetriever(knowledge, with_vectors=True),
            orders=Orders(orders),
            web=TavilyWebSearch(max_results=WEB_RESULTS, api_key="demo", api_base_url=web),
            evaluator=EmbeddingEvaluator(embeddings),
            reranker=EmbeddingReranker(embeddings),
            **other,
        )


async def main() -> None:
    """Ask the questions and show the way that each took, or show the picture."""
    logging.getLogger("jieba").setLevel(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder, open_loop(Path(folder)) as loop:
        graph = build(loop)
        if "--mermaid" in sys.argv:
            print(graph.get_graph().draw_mermaid(), end="")
            return
        for question in QUESTIONS:
            way, state = [], State()
            async for mode, part in graph.astream({"question": question}, context=Caller("aurora"), stream_mode=["updates", "values"]):
                if mode == "updates":
                    way += part
                else:
                    state = part
            print(f"\n{question}\n  {' > '.join(way)}\n  verdict {state['verdict']}\n  {state['answer']}")


if __name__ == "__main__":
    asyncio.run(main())
