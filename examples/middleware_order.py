"""The middleware among others, in the order that docs/recipes.md recommends: `python examples/middleware_order.py`."""

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    ModelFallbackMiddleware,
    ModelRetryMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from shop import ToolCallingModel, evaluator, open_shop, say

from crag_middleware import CRAGMiddleware, KnowledgeStore
from crag_middleware.testing import QuotingChatModel


@tool
def refund(number: int) -> str:
    """Pays an order back."""
    return f"Order {number} is paid back."


class FailingModel(QuotingChatModel):
    """A provider that is down."""

    def _generate(self, *_: Any, **__: Any) -> Any:
        raise ConnectionError

    def _stream(self, *_: Any, **__: Any) -> Any:
        raise ConnectionError


def build(knowledge: KnowledgeStore, model: BaseChatModel, *, fallback: BaseChatModel, summarizer: BaseChatModel) -> Any:
    """The agent: who changes messages comes before the middleware, who repeats the model around it, who asks a person after it."""
    return create_agent(
        model,
        tools=[refund],
        checkpointer=InMemorySaver(),
        middleware=[
            PIIMiddleware("email", strategy="redact"),
            SummarizationMiddleware(summarizer, trigger=("messages", 6), keep=("messages", 2)),
            ModelFallbackMiddleware(fallback),
            ModelRetryMiddleware(max_retries=1, initial_delay=0, on_failure="error"),
            CRAGMiddleware(knowledge, agent_id="aurora", evaluator=evaluator()),
            HumanInTheLoopMiddleware(interrupt_on={"refund": True}),
        ],
    )


def main() -> None:
    """Ask, with an address in the question and the first provider down; a person lets the refund pass."""
    answering = ToolCallingModel(calls={"pay back": ("refund", {"number": 17})})
    config: Any = {"configurable": {"thread_id": "1"}}
    with open_shop() as knowledge:
        agent = build(knowledge, FailingModel(), fallback=answering, summarizer=QuotingChatModel())
        question = "I am jo@example.org. Please pay back order 17. How many days do I have to return a bike for a refund?"
        asked = agent.invoke({"messages": [{"role": "user", "content": question}]}, config)
        print("a person is asked:", asked["__interrupt__"][0].value["action_requests"][0]["name"])
        result = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
        print(say(result))
        print("searched:", result["crag"]["queries"])


if __name__ == "__main__":
    main()
