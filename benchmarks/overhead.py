"""The CPU time that the middleware itself takes of a turn, and where it goes: 20 passages of 800 characters, model, store and evaluator answer at once.

    python benchmarks/overhead.py [--rounds 60] [--json] [--before DIRECTORY]

A turn is one of an agent, less the same agent's without the middleware; all threads count. Then each stage alone, on the values that it has in such a turn with
all 20 passages graded and kept. What stands under `not in a warm turn` is done once for a passage (reading it for embedded orders), or only where answers are
checked. All in milliseconds of CPU time, the median of turns and the least of stages. With --before the same is measured of another copy of the package as
well, three times in turn in processes of their own, and the least of each is shown.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.tools import tool
from texts import QUESTIONS, by_language

from crag_middleware import CRAGMiddleware, CRAGSettings, Passage, WordClaimChecker, WordRefiner
from crag_middleware.adapters.messages import read_question
from crag_middleware.findings import Evidence
from crag_middleware.receipt import record
from crag_middleware.stages.assemble import Kept, approximate_tokens, assemble
from crag_middleware.stages.citations import mend
from crag_middleware.stages.claims import claims
from crag_middleware.stages.conflicts import conflicts
from crag_middleware.stages.injection import injection
from crag_middleware.stages.merge import MergeRules, arrange, marked, merge
from crag_middleware.stages.selection import select
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever
from crag_middleware.types import Grade, Graded, Ground, Question

Row = dict[str, float]
NOT_IN_A_WARM_TURN = "not in a warm turn: "
ONE, FIVE, FURTHER = "a turn, one passage of a sentence", "a turn, 5 of 20 graded", "each further model call of a turn"
RULES = MergeRules(weights={}, half_life_days={}, by_type={}, now_ms=0)
ANSWER_CHARS = 2000


@tool
def look(x: str) -> str:
    """Looks something up."""
    return "17"


def agent(calls: int, middleware: list[CRAGMiddleware]) -> Any:
    """An agent whose model answers at once, after so many tool calls."""
    loop = [AIMessage("", tool_calls=[{"name": "look", "args": {"x": "1"}, "id": str(i)}]) for i in range(calls)]

    class Model(ScriptedChatModel):
        def _next(self, messages: list[BaseMessage]) -> AIMessage:
            done = sum(m.type == "tool" for m in messages)
            return loop[done] if done < calls else AIMessage("ok")

    return create_agent(Model(replies=[]), tools=[look], middleware=middleware)


def cpu_ms(run: Callable[[], object]) -> float:
    """CPU milliseconds of all threads."""
    begun = time.process_time()
    run()
    return (time.process_time() - begun) * 1000


def turns(texts: list[str], question: str, rounds: int) -> Row:
    """What the middleware adds to a turn, interleaved with turns without it."""
    found = [Passage(str(n), text) for n, text in enumerate(texts)]
    row: Row = {}
    for name, some, top_k, calls in (
        (ONE, [Passage("0", texts[0][:60])], 5, 0),
        (FIVE, found, 5, 0),
        ("a turn, 20 of 20 graded", found, 20, 0),
        (FURTHER, found, 5, 4),
    ):
        settings = CRAGSettings(top_k=top_k, max_context_tokens=20_000)
        crag = CRAGMiddleware(ScriptedRetriever({"a": some}), "a", evaluator=ScriptedEvaluator(), settings=settings)
        agents = (agent(calls, []), agent(calls, [crag]))
        times = [[cpu_ms(partial(it.invoke, {"messages": [("user", question)]})) for it in agents] for _ in range(rounds + 5)][5:]
        plain, whole = map(statistics.median, zip(*times, strict=True))
        row[name] = whole - plain
    row[FURTHER] = (row[FURTHER] - row[FIVE]) / 4
    return row


def stages(texts: list[str], question: str, rounds: int) -> Row:
    """What each stage takes alone."""
    found = [Passage(str(n), text) for n, text in enumerate(texts)]
    pool = merge(marked(found, "milvus", 0), RULES)
    chosen = select(pool, 20, mmr_lambda=1.0, fair=False)
    graded = [Graded(passage=passage, grade=Grade(passage.id, 0.95, "relevant")) for passage in chosen]
    kept = [Kept(g, strips) for g, strips in zip(graded, WordRefiner().refine(question, chosen), strict=True)]

    def assembled(some: list[Kept], query: str) -> Any:
        return assemble(
            some, status="grounded", language="en", first=1, budget=20_000, count_tokens=approximate_tokens, order="rank", query=query
        )

    sources = assembled(kept, question).sources
    evidence = Evidence(
        question=Question(text=question, message_id="q"),
        status="grounded",
        verdict="relevant",
        graded=tuple(graded),
        sources=sources,
        block="x",
    )
    answer = " ".join(strip.text + f" [{source.number}]" for source in sources for strip in source.strips)
    answer = (answer * (ANSWER_CHARS // len(answer) + 1))[:ANSWER_CHARS]
    grounds = [Ground(strip.text, number=source.number) for source in sources for strip in source.strips]
    said = claims(answer)
    runs: dict[str, Callable[[], object]] = {
        "reading the question": lambda: read_question([HumanMessage(question, id="q")], history=6),
        "merging": lambda: merge(marked(found, "milvus", 0), RULES),
        "choosing": lambda: select(pool, 20, mmr_lambda=1.0, fair=False),
        "refining": lambda: WordRefiner().refine(question, chosen),
        "looking for conflicts": lambda: conflicts(sources, query=question),
        "assembling, without that": lambda: [assembled([one], question) for one in kept],
        "ordering": lambda: arrange(graded),
        "writing the receipt": lambda: record(evidence, name="crag", detail="injected"),
        f"{NOT_IN_A_WARM_TURN}reading 20 passages for orders": lambda: [injection(text) for text in texts],
        f"{NOT_IN_A_WARM_TURN}choosing 5 by variety, no vectors": lambda: select(pool, 5, mmr_lambda=0.5, fair=False),
        f"{NOT_IN_A_WARM_TURN}citations of {ANSWER_CHARS} characters": lambda: mend(answer, {s.number: "knowledge" for s in sources}),
        f"{NOT_IN_A_WARM_TURN}claims of {ANSWER_CHARS} characters": lambda: claims(answer),
        f"{NOT_IN_A_WARM_TURN}checking them by words": lambda: WordClaimChecker().check(said, grounds),
    }
    return {name: min(cpu_ms(run) for _ in range(max(3, rounds // 4))) for name, run in runs.items()}


def measured(rounds: int) -> dict[str, Row]:
    """All numbers, by language."""
    return {
        language: {**turns(texts, QUESTIONS[language], rounds), **stages(texts, QUESTIONS[language], rounds)}
        for language, texts in by_language().items()
    }


def of_copy(directory: str, rounds: int) -> dict[str, Row]:
    """All numbers of a copy of the package, measured in a process of its own."""
    command = [sys.executable, __file__, "--json", "--rounds", str(rounds)]
    said = subprocess.run(command, env={**os.environ, "PYTHONPATH": directory}, check=True, capture_output=True, text=True)
    found: dict[str, Row] = json.loads(said.stdout)
    return found


def least(runs: list[dict[str, Row]]) -> dict[str, Row]:
    """The least of each number."""
    return {language: {name: min(run[language][name] for run in runs) for name in row} for language, row in runs[0].items()}


def table(columns: Mapping[str, dict[str, Row]]) -> str:
    """The numbers as a Markdown table, a column for each language of each copy."""
    shown = [(f"{language} {copy}".strip(), row) for copy, rows in columns.items() for language, row in rows.items()]
    lines = [f"| CPU ms | {' | '.join(head for head, _ in shown)} |", "| --- " * (len(shown) + 1) + "|"]
    lines += [f"| {name} | {' | '.join(f'{row[name]:.2f}' for _, row in shown)} |" for name in shown[0][1]]
    return "\n".join(lines)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--before", metavar="DIRECTORY", help="where another copy of the package lies")
    given = parser.parse_args()
    if given.before:
        here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        pairs = [(of_copy(given.before, given.rounds), of_copy(here, given.rounds)) for _ in range(3)]
        print(table(dict(zip(("before", "after"), map(least, map(list, zip(*pairs, strict=True))), strict=True))))
    else:
        found = measured(given.rounds)
        print(json.dumps(found) if given.json else table({"": found}))


if __name__ == "__main__":
    main()
