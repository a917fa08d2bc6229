"""How much of a request a provider can have in its prompt cache: the common beginning of consecutive requests, with and without evidence.

    python benchmarks/prompt_cache.py [--turns 8] [--json]

A conversation of several turns, each a tool loop of two steps and an answer, over passages that differ from turn to turn. Shown for the bare agent, for this
middleware with the evidence in the human message and in the system prompt, and for retrieval before every model call: the characters that a request has in
common with the one before it, those that are new, and the share of the common ones; medians, within turns and from turn to turn. Providers cache the
beginning of a request only, most of them in steps of 64 to 1024 tokens.
"""

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Literal

from langchain.agents import create_agent
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage
from rivals import RetrieveAlways
from simulated import Costs, SleepingModel, Store, Tally, answers_after
from texts import by_language
from turns import BARE, TOOL_CALLS, look

from crag_middleware import CRAGMiddleware, CRAGSettings, Passage
from crag_middleware.testing import ScriptedEvaluator

SYSTEM = "You are the assistant of a company's support desk. Answer briefly, in the user's language, and say so when you don't know. " * 8
"""A prompt of about 1,000 characters."""

AT_ONCE = Costs(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Shared:
    """What a request has in common with the one before it: characters, those that are new, and the share of the common ones; medians of several requests."""

    common: float
    new: float
    share: float


@dataclass(frozen=True)
class Measured:
    """Within turns, and from the last request of a turn to the first of the next."""

    within: Shared
    between: Shared


class Changing(Store):
    """A store that finds other passages in each turn."""

    def __init__(self) -> None:
        texts = by_language()["en"]
        super().__init__([], AT_ONCE, Tally())
        self._texts = [Passage(str(n), text) for n, text in enumerate(texts)]

    def _found(self, question: str, limit: int, begin: float) -> list[Passage]:
        first = sum(question.encode()) % len(self._texts)
        return [*self._texts[first:], *self._texts[:first]][: min(5, limit)]


def crag(position: Literal["human", "system"]) -> list[Any]:
    """This middleware; nothing of a conversation is rewritten."""
    settings = CRAGSettings(position=position, standalone_questions=False)
    return [CRAGMiddleware(Changing(), "a", evaluator=ScriptedEvaluator(), settings=settings)]


WAYS: dict[str, Callable[[], list[Any]]] = {
    BARE: list,
    "evidence in the human message": lambda: crag("human"),
    "evidence in the system prompt": lambda: crag("system"),
    "retrieval before every model call": lambda: [RetrieveAlways(Changing())],
}


def requests(middleware: list[Any], turns: int) -> list[list[str]]:
    """The requests of each turn as text, in the order in which providers read them: the system prompt, then the messages."""
    seen: list[str] = []
    model = SleepingModel(say=answers_after(TOOL_CALLS), seconds=0.0, tally=Tally(), sees=lambda messages: seen.append(_rendered(messages)))
    agent: Any = create_agent(model, tools=[look], system_prompt=SYSTEM, middleware=middleware)
    history: list[AnyMessage] = []
    found = []
    for turn in range(turns):
        seen.clear()
        asked = HumanMessage(f"Which port does the exporter of build {turn} listen on?")
        history = agent.invoke({"messages": [*history, asked]})["messages"]
        found.append([*seen])
    return found


def _rendered(messages: Sequence[BaseMessage]) -> str:
    return "\n".join(f"<{message.type}>{message.text}{json.dumps(getattr(message, 'tool_calls', []))}" for message in messages)


def measured(middleware: list[Any], turns: int) -> Measured:
    """What the requests of a conversation have in common."""
    found = requests(middleware, turns)
    within = [pair for each in found for pair in pairwise(each)]
    between = [(before[-1], after[0]) for before, after in pairwise(found)]
    return Measured(_shared(within), _shared(between))


def _shared(pairs: Sequence[tuple[str, str]]) -> Shared:
    lengths = [(_common(before, after), len(after)) for before, after in pairs]
    return Shared(
        statistics.median(common for common, _ in lengths),
        statistics.median(whole - common for common, whole in lengths),
        round(statistics.median(common / whole for common, whole in lengths), 3),
    )


def _common(before: str, after: str) -> int:
    """How many characters two texts begin with alike."""
    return next((place for place, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=8)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    given = parser.parse_args()
    found = {name: measured(build(), given.turns) for name, build in WAYS.items()}
    if given.json:
        print(json.dumps({name: asdict(each) for name, each in found.items()}, indent=1))
        return
    print(
        "| characters | within a turn: common | new | share in common | from turn to turn: common | new | share in common |\n"
        + "| --- " * 7
        + "|"
    )
    for name, each in found.items():
        cells = [f"{shared.common:,.0f} | {shared.new:,.0f} | {shared.share:.0%}" for shared in (each.within, each.between)]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
