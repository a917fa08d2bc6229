"""What the middleware adds to a turn when model, store and evaluator answer at once: 20 passages of 800 characters.

    python benchmarks/overhead.py [--rounds 200]

Prints the median milliseconds of one agent turn without and with the middleware, interleaved in one run, and their difference for a turn of one
model call and for each further call of a tool loop; and what it costs once to read the passages for embedded orders.
"""

import argparse
import statistics
import time
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.tools import tool
from texts import QUESTIONS, by_language

from crag_middleware import CRAGMiddleware, CRAGSettings, Passage
from crag_middleware.stages.injection import injection
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever


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


def milliseconds(agent: Any, question: str) -> float:
    """One turn."""
    begun = time.perf_counter()
    agent.invoke({"messages": [("user", question)]})
    return (time.perf_counter() - begun) * 1000


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    for language, texts in by_language().items():
        question = QUESTIONS[language]
        found = [Passage(id=str(n), text=text) for n, text in enumerate(texts)]
        settings = CRAGSettings(top_k=20, max_context_tokens=20_000)
        crag = CRAGMiddleware(ScriptedRetriever({"a": found}), "a", evaluator=ScriptedEvaluator(), settings=settings)
        pairs = {calls: (agent(calls, []), agent(calls, [crag])) for calls in (0, 4)}
        added = {}
        for calls, (plain, with_crag) in pairs.items():
            times = [(milliseconds(plain, question), milliseconds(with_crag, question)) for _ in range(rounds)]
            added[calls] = statistics.median(b for _, b in times[5:]) - statistics.median(a for a, _ in times[5:])
            print(f"{language}: {calls} tool calls: plain {statistics.median(a for a, _ in times):.2f} ms, added {added[calls]:.2f} ms")
        begun = time.perf_counter()
        for text in texts:
            injection(text)
        print(f"{language}: passages read for embedded orders, which is remembered: {(time.perf_counter() - begun) * 1000:.2f} ms")
        print(f"{language}: added by each further model call of a turn: {(added[4] - added[0]) / 4:.2f} ms")


if __name__ == "__main__":
    main()
