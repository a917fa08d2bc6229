"""What tests of whole agents share: a way to ask, and a middleware over scripted ports."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from langchain.agents import create_agent

from crag_middleware.middleware import CRAGMiddleware
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever
from crag_middleware.types import Passage

both = pytest.mark.parametrize("how", ["invoke", "ainvoke"])


def ask(agent: Any, question: Any, how: str = "invoke", **keywords: Any) -> dict[str, Any]:
    """The agent's result for a question, a list of messages, a Command, or None to go on; sync or async."""
    given = {"messages": [("user", question)]} if isinstance(question, str) else question
    if isinstance(given, list):
        given = {"messages": given}
    return agent.invoke(given, **keywords) if how == "invoke" else asyncio.run(agent.ainvoke(given, **keywords))


def passage(text: str, id_: str | None = None, **more: Any) -> Passage:
    return Passage(id=id_ or text, text=text, **more)


def crag(passages: Sequence[Passage] = (), *, agent_id: Any = "a", tenant: str = "a", **more: Any) -> CRAGMiddleware:
    """A middleware whose tenant has these passages; all of them are relevant unless an evaluator is given."""
    more.setdefault("evaluator", ScriptedEvaluator())
    more.setdefault("vector_store", ScriptedRetriever({tenant: passages}))
    return CRAGMiddleware(agent_id=agent_id, **more)


def agent_with(middleware: Any, *, replies: Sequence[Any] = ("ok",), **more: Any) -> tuple[Any, ScriptedChatModel]:
    """An agent and its model."""
    model = ScriptedChatModel(replies=list(replies))
    stack = middleware if isinstance(middleware, list) else [middleware]
    return create_agent(model, middleware=stack, **more), model
