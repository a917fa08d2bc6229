"""What checking adds to a stream: milliseconds from the model's token to the user's. Run it with `make bench`.

The model writes a sentence of the evidence word by word with a pause between words, so that a token is seen before the next one comes. Bare and checked agents
take turns in one run; the median of all runs is shown.
"""

import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from langchain.agents import create_agent
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from pydantic import Field

from crag_middleware import CRAGMiddleware, CRAGSettings, Passage, WordClaimChecker
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever

EVIDENCE = "Refunds are possible within thirty days of delivery. Shipping costs five euros inside the country."
ANSWER = "Refunds are possible within thirty days of delivery [1]. Shipping costs five euros inside the country [1]."
END_OF_SENTENCE = 8
"""The word of the answer that ends its first sentence, counted from 0."""

PAUSE_S = 0.01
RUNS = 30


class Typist(ScriptedChatModel):
    """Writes word by word, and notes when it wrote each."""

    written: list[float] = Field(default_factory=list)

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        for place, word in enumerate(ANSWER.split(" ")):
            self.written.append(time.perf_counter())
            yield ChatGenerationChunk(message=AIMessageChunk(content=f" {word}" if place else word))
            time.sleep(PAUSE_S)


def delays(middleware: list[Any], waits_for: int) -> tuple[float, float]:
    """Milliseconds from the word that is waited for to the first text that the user sees, and from the model's last word to the end of the stream."""
    model = Typist(replies=["unused"], written=[])
    agent: Any = create_agent(model, middleware=middleware)
    seen = 0.0
    for chunk, _ in agent.stream({"messages": [("user", "What are the terms?")]}, stream_mode="messages"):
        seen = seen or (time.perf_counter() if getattr(chunk, "text", "") else 0.0)
    end = time.perf_counter()
    return 1000 * (seen - model.written[waits_for]), 1000 * (end - model.written[-1] - PAUSE_S)


def crag(**more: Any) -> list[Any]:
    """The middleware over one relevant passage."""
    retriever = ScriptedRetriever({"a": [Passage(id="p", text=EVIDENCE)]})
    return [CRAGMiddleware(retriever, "a", evaluator=ScriptedEvaluator(), **more)]


def main() -> None:
    """Measure and print."""
    ways = {
        "bare agent": ([], 0),
        "verify=False": (crag(settings=CRAGSettings(verify=False)), 0),
        "citations": (crag(), 0),
        "claims, flagged": (crag(claim_checker=WordClaimChecker()), 0),
        "claims, dropped": (crag(claim_checker=WordClaimChecker(), settings=CRAGSettings(on_unsupported="drop")), END_OF_SENTENCE),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(RUNS):
        for name, (middleware, waits_for) in ways.items():
            found[name].append(delays(middleware, waits_for))
    print(f"{'checked':<18}{'to the first text':>20}{'after the last word':>22}   (ms, median of {RUNS})")
    for name, pairs in found.items():
        first, last = (median(pair[i] for pair in pairs) for i in (0, 1))
        print(f"{name:<18}{first:>20.2f}{last:>22.2f}")


if __name__ == "__main__":
    main()
