"""One turn of a conversation as events: what the page shows, in the order in which it becomes known."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from chat_service.access import Tenant
from fastapi.sse import ServerSentEvent
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage

from crag_middleware import CRAGError

logger = logging.getLogger(__name__)
Item = TypeVar("Item")

CLEANUP_S = 5
"""Seconds that a turn has to come to its end after nobody listens any more."""


@dataclass(frozen=True)
class Caller:
    """Who is asking: the trusted runtime context, filled from the bearer token and from nothing else."""

    agent_id: str


async def turn(agent: Any, tenant: Tenant, thread: str, question: str) -> AsyncIterator[ServerSentEvent]:
    """The events of a turn: `stage` as each begins, `evidence` with the receipt so far, `token` by token the answer, and at the end `answer` or `error`.

    Args:
        agent: With `CRAGMiddleware`, a checkpointer and the context `Caller`.
        tenant: Whose knowledge is asked.
        thread: The conversation, which must be the tenant's.
        question: What is asked.
    """
    try:
        async for name, data in apart(_parts(agent, tenant, thread, question)):
            yield ServerSentEvent(event=name, data=data)
    except CRAGError as error:
        logger.error("a turn failed: %s, %s", type(error).__name__, error.reason)
        yield failure("unavailable", "The question could not be answered. Try again later.")
    except Exception as error:  # noqa: BLE001 - the answer has begun: the page is told, and the log gets no text of a service's error
        logger.error("a turn failed: %s", type(error).__name__)
        yield failure("failed", "The question could not be answered. Try again.")


async def _parts(agent: Any, tenant: Tenant, thread: str, question: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Name and data of each event."""
    began, asked = time.perf_counter(), HumanMessage(question, id=uuid.uuid4().hex)
    receipt: dict[str, Any] = {}
    answer = ""
    parts = agent.astream(
        {"messages": [asked]},
        {"configurable": {"thread_id": thread}},
        context=Caller(tenant.agent_id),
        stream_mode=["custom", "messages", "values"],
    )
    async for mode, part in parts:
        match mode:
            case "custom" if part.get("type") == "crag":
                yield "stage", {"stage": part["stage"], "ms": round((time.perf_counter() - began) * 1000)}
            case "messages" if isinstance(part[0], AIMessageChunk) and part[0].text:
                yield "token", {"text": part[0].text}
            case "values":
                known = part.get("crag") or {}
                if known.get("message_id") == asked.id and known["skipped"] != "not_reached":  # else it is the last turn's, or no one's yet
                    if not receipt:
                        yield "evidence", {"receipt": known}
                    receipt = known
                if isinstance(last := part["messages"][-1], AIMessage):
                    answer = str(last.text)
    yield "answer", {"text": answer, "receipt": receipt, "ms": round((time.perf_counter() - began) * 1000)}


async def apart(items: AsyncIterator[Item]) -> AsyncIterator[Item]:
    """The same items, made by a task of its own, which ends when nobody listens any more.

    Starlette cancels a request through anyio, again at each `await`; what LangGraph does when it is cancelled takes several, and its model would go on.
    """
    made = asyncio.Queue[Item | None]()

    async def work() -> None:
        async for item in items:
            made.put_nowait(item)

    task = asyncio.create_task(work())
    task.add_done_callback(lambda _: made.put_nowait(None))
    try:
        while (item := await made.get()) is not None:
            yield item
        await task
    finally:
        task.cancel()
        with anyio.move_on_after(CLEANUP_S, shield=True):
            await asyncio.gather(task, return_exceptions=True)


async def conversation(agent: Any, thread: str) -> dict[str, Any]:
    """What was said so far, oldest first, and the receipt of the last turn."""
    values = (await agent.aget_state({"configurable": {"thread_id": thread}})).values
    said = [
        {"role": "user", "text": m.text}
        if isinstance(m, HumanMessage)
        else {"role": "assistant", "text": m.text, "checked": m.response_metadata.get("crag")}
        for m in values.get("messages", ())
        if isinstance(m, HumanMessage | AIMessage) and m.text
    ]
    return {"messages": said, "receipt": values.get("crag")}


def failure(code: str, message: str) -> ServerSentEvent:
    """An error after the answer has begun, told as those before it."""
    return ServerSentEvent(event="error", data={"code": code, "message": message})
