"""What an answer may rest on, read from the agent's messages and receipts, and whether it can be checked while it is written."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from langchain.agents.middleware import ModelRequest, ModelResponse
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.outputs import ChatGeneration

from crag_middleware.adapters.answer_drafts import checked_again
from crag_middleware.adapters.messages import is_question, text_of
from crag_middleware.adapters.verified_model import VerifiedChatModel
from crag_middleware.drive import arun, run
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.words import language
from crag_middleware.steps import Plan
from crag_middleware.tenancy import Scope
from crag_middleware.types import Ground
from crag_middleware.verification import Basis, Verification
from crag_middleware.world import World

T = TypeVar("T")

MAX_GROUND_CHARS = 20_000
"""Of tool results, and of the user's messages, each: the latest count."""

_NUMBERED = re.compile(r"[\[【［〔]\s?(\d{1,3})\s?[\]】］〕]")
"""How a tool's result numbers its entries, or cites."""


class Watch:
    """The check of one model call's answer: while it is written, or afterwards where another middleware put its own model in place.

    Args:
        basis: What the answer is checked against.
        world: What checks it.
    """

    def __init__(self, basis: Basis, world: World) -> None:
        self.world = world
        self._basis = basis
        self._begun: list[Verification] = []

    def over(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """The request with its model checked; as it is if that is none of LangChain's chat models, whose answers are checked when they are there."""
        if not isinstance(request.model, BaseChatModel):
            return request
        model = VerifiedChatModel.around(request.model, self._begin, self._perform, self._aperform)
        return request.override(model=model)

    def unchecked(self, response: ModelResponse[Any]) -> Plan[ChatGeneration | None] | None:
        """The check of an answer that no model of ours wrote; None if there is nothing left to check."""
        message = _answer(response)
        if response.structured_response is not None:  # data that a provider wrote, and left alone
            return None
        if message is None or any(answer.shown == message.text for answer in self._begun):
            return None
        last_word = replace(self._basis, repairs_left=0)  # nobody is there to write another draft
        return checked_again(Verification(last_word), ChatGeneration(message=message))

    def replaced(self, response: ModelResponse[Any], checked: ChatGeneration | None) -> ModelResponse[Any]:
        """The response with the checked answer in its place."""
        message = _answer(response)
        if checked is None or message is None:
            return response
        return replace(response, result=[checked.message if m is message else m for m in response.result])

    def _begin(self) -> Verification:
        self._begun.append(Verification(self._basis))
        return self._begun[-1]

    def _perform(self, plan: Plan[T]) -> T:
        return run(plan, self.world)

    async def _aperform(self, plan: Plan[T]) -> T:
        return await arun(plan, self.world)


def _answer(response: ModelResponse[Any]) -> AIMessage | None:
    return next((m for m in reversed(response.result) if isinstance(m, AIMessage)), None)


def capped(request: ModelRequest[Any], temperature: float | None) -> dict[str, Any]:
    """The request's model settings with a temperature of at most this; unchanged without a cap, or where the model's own lies below it."""
    given = request.model_settings.get("temperature", getattr(request.model, "temperature", None))
    if temperature is None or (isinstance(given, int | float) and given <= temperature):
        return request.model_settings
    return {**request.model_settings, "temperature": temperature}


def basis_of(
    request: ModelRequest[Any],
    receipts: Iterable[Mapping[str, Any]],
    *,
    key: str,
    question: str,
    block: str,
    scope: Scope,
    settings: CRAGSettings,
    threshold: float | None,
    is_instant: bool,
) -> Basis:
    """What the answer to a request is checked against.

    Args:
        request: The model call, before the evidence was put into its messages.
        receipts: Those of this turn, of all instances on the agent.
        key: Where an answer's `response_metadata` holds what is known of it.
        question: What the user asked.
        block: The injected evidence.
        scope: The tenant.
        settings: Every number and choice.
        threshold: The claim checker's; None without one.
        is_instant: Whether the checker never waits.
    """
    sources = {source["number"]: source for receipt in receipts for source in receipt.get("sources", ())}
    turn = _since_question(request.messages)
    tools = _latest([text_of(m.content) for m in request.messages if isinstance(m, ToolMessage)])
    users = _latest([text_of(m.content) for m in request.messages if is_question(m)])
    repairs = sum(m.response_metadata.get(key, {}).get("repairs", 0) for m in turn if isinstance(m, AIMessage))
    return Basis(
        scope=scope,
        question=question,
        sources=sources,
        foreign=frozenset(int(number) for text in tools for number in _NUMBERED.findall(text)) - sources.keys(),
        grounds=(
            *(Ground(strip["text"], "source", number) for number, source in sources.items() for strip in source["strips"]),
            *(Ground(text, "tool") for text in tools),
            *(Ground(text, "user") for text in users),
        ),
        block=block,
        settings=settings,
        language=language(question) if settings.language == "auto" else settings.language,
        threshold=threshold,
        is_instant=is_instant,
        is_bare=not sources and not any(isinstance(m, ToolMessage) for m in turn),
        repairs_left=max(0, settings.max_repairs - repairs),
        key=key,
    )


def _since_question(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """The messages of the turn."""
    place = next((i for i in range(len(messages) - 1, -1, -1) if is_question(messages[i])), -1)
    return messages[place + 1 :]


def _latest(texts: Sequence[str]) -> list[str]:
    """The last of the texts, as far as there is room."""
    room, kept = MAX_GROUND_CHARS, []
    for text in reversed(texts):
        if room <= 0:
            break
        kept.append(text[:room])
        room -= len(text)
    return [text for text in reversed(kept) if text.strip()]
