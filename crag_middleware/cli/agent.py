"""The agent behind `crag ask` and `crag chat`: a chat model over one tenant's knowledge, streamed to the terminal."""

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphBubbleUp

from crag_middleware.adapters.inner_model import MODEL_VARIABLE
from crag_middleware.cli.shared import complain, console, read_text
from crag_middleware.errors import ConfigError, CRAGError
from crag_middleware.knowledge.knowledge import Knowledge
from crag_middleware.middleware import CRAGMiddleware
from crag_middleware.named import named_checker, named_evaluator, named_web_search
from crag_middleware.settings import CRAGSettings
from crag_middleware.testing import QuotingChatModel

QUOTING = "quoting"
"""The name of the model that quotes."""

THREAD: Any = {"configurable": {"thread_id": "crag"}}


@dataclass(frozen=True, slots=True)
class Turn:
    """What came of a question: the answer's text, and the receipt."""

    answer: str
    receipt: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the options choose; None for what suits what is there."""

    model: str | None = None
    base_url: str | None = None
    evaluator: str | None = None
    checker: str | None = None
    providers: Sequence[str] = ()
    calibration: Path | None = None
    settings: Path | None = None

    def chat_model(self) -> BaseChatModel | None:
        """The chat model that answers; None if it quotes.

        Raises:
            ConfigError: The one that is named can't be built.
        """
        if self.model == QUOTING:
            return None
        try:
            found: Any = named_evaluator("chat", model=self.model, base_url=self.base_url)
        except ConfigError as error:
            if self.model or self.base_url or os.environ.get(MODEL_VARIABLE, "").strip() or error.reason != "no_model":
                raise
            complain("no chat model can be had (set DEEPSEEK_API_KEY, or name one with --model), so answers are quotations")
            return None
        model: BaseChatModel = found.model
        return model

    def grading(self, *, answering: bool) -> dict[str, Any]:
        """Evaluator, calibration and settings, as `CRAGMiddleware` takes them.

        Args:
            answering: Whether a chat model answers, which then grades, too, unless another evaluator is named.

        Raises:
            ConfigError: One of them can't be built or read.
        """
        evaluator = self.evaluator or ("chat" if answering else "embedding")
        asks = evaluator in ("chat", "token", "cascade") and self.model != QUOTING
        return {
            "evaluator": named_evaluator(evaluator, model=self.model if asks else None, base_url=self.base_url if asks else None),
            "calibration": self.calibration,
            "settings": read_settings(self.settings),
        }

    def checking(self) -> dict[str, Any]:
        """Claim checker and web search, as `CRAGMiddleware` takes them.

        Raises:
            ConfigError: One of them can't be built.
        """
        asks = self.checker in ("chat", "token") and self.model != QUOTING
        checker = self.checker and named_checker(self.checker, model=self.model if asks else None, base_url=self.base_url if asks else None)
        return {"claim_checker": checker or None, "web_search": named_web_search(self.providers) if self.providers else None}


class Asking:
    """An agent with its thread and its event loop, which last as long as the `with` block that it is used in.

    A turn runs as a task, so that Ctrl-C ends it at once, whatever it waits for.

    Args:
        knowledge: What is searched.
        agent_id: The tenant.
        choices: Model, evaluator and so on.

    Raises:
        ConfigError: A part can't be built.
    """

    def __init__(self, knowledge: Knowledge, agent_id: str, choices: Choices) -> None:
        model = choices.chat_model()
        parts = {**choices.grading(answering=model is not None), **choices.checking()}
        store: Any = knowledge
        crag = CRAGMiddleware(store, agent_id, **parts)
        self._agent = create_agent(model or QuotingChatModel(), middleware=[crag], checkpointer=InMemorySaver())
        self._runner = asyncio.Runner()

    def __enter__(self) -> "Asking":
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()

    def ask(self, question: str, *, show: Callable[[str], None], stage: Callable[[str], None]) -> Turn:
        """Asks, and tells the answer as it is written.

        Args:
            question: In a user's words.
            show: Told each piece of the answer.
            stage: Told what goes on before it.

        Raises:
            CRAGError: The chat model failed.
            KeyboardInterrupt: The turn was stopped.
        """
        return self._runner.run(self._asked(question, show, stage))

    async def _asked(self, question: str, show: Callable[[str], None], stage: Callable[[str], None]) -> Turn:
        shown, state = "", dict[str, Any]()
        try:
            async for mode, value in self._agent.astream(
                {"messages": [{"role": "user", "content": question.encode("utf-8", "replace").decode()}]},
                THREAD,
                stream_mode=["messages", "custom", "values"],
            ):
                match mode, value:
                    case "messages", (AIMessageChunk() as chunk, _) if chunk.text:
                        shown += chunk.text
                        show(chunk.text)
                    case "custom", {"stage": str(name)}:
                        stage(name)
                    case "values", dict():
                        state = value
        except (CRAGError, GraphBubbleUp):
            raise
        except Exception as error:  # noqa: BLE001 - raised on as ours; its text may quote the prompt
            msg = f"the chat model failed ({type(error).__name__}); check its key, name and address, or use --model {QUOTING}"
            raise CRAGError(msg) from None
        answer = next((m.text for m in reversed(state.get("messages", ())) if isinstance(m, AIMessage)), "")
        if answer != shown:  # what was streamed was mended afterwards, or never streamed
            show(("\n\n" if shown else "") + answer)
        return Turn(answer, state.get("crag") or {})


@contextmanager
def told_stages() -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """What goes on, on standard error while nothing else is shown there: a function to tell it, and one to end it. Nothing where that is no terminal."""
    shown = console(stderr=True)
    status = shown.status("") if shown.is_terminal else None
    if status is None:
        yield (lambda _: None), (lambda: None)
        return

    def tell(stage: str) -> None:
        if stage != "done":
            status.update(f"{stage} ...")
            status.start()

    try:
        yield tell, status.stop
    finally:
        status.stop()


def read_settings(path: Path | None) -> CRAGSettings | None:
    """The settings in a JSON file, by name; None for none.

    Raises:
        ConfigError: It can't be read, or a setting is wrong.
    """
    if path is None:
        return None
    try:
        found = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, CRAGError):
            raise
        msg = f'{str(path)!r} must hold settings by name as a JSON object, such as {{"top_k": 8}}, and it is no JSON'
        raise ConfigError(msg) from None
    if not isinstance(found, dict):
        msg = f"{str(path)!r} must hold settings by name as a JSON object, got {type(found).__name__}"
        raise ConfigError(msg)
    return CRAGSettings(**found)


def keep_receipt(path: Path | None, receipt: Mapping[str, Any]) -> None:
    """Adds a receipt to a file of JSON Lines that only this user may read.

    Raises:
        ConfigError: It can't be written.
    """
    if path is None:
        return
    try:
        with open(path, "a", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(json.dumps(receipt, ensure_ascii=False) + "\n")
    except OSError as error:
        msg = f"the receipt can't be written to {str(path)!r}: {error.strerror}"
        raise ConfigError(msg) from None
