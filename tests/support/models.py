"""Chat models that answer from a script: for graders and rewriters, in process."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import PrivateAttr

Reply = str | list[Any] | Exception | Callable[[str], str]
"""What to answer: a text, content blocks, an exception to raise, or a function of the prompt's user text."""


class ScriptedModel(BaseChatModel):
    """Answers the script's replies one after the other, the last one again and again, and keeps what it was asked.

    Args:
        script: The replies.
        refuses: Options that it refuses with a `ValueError`, as a model without them would.
    """

    script: Sequence[Any]
    refuses: frozenset[str] = frozenset()
    _asked: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _options: list[dict[str, Any]] = PrivateAttr(default_factory=list)
    _lock: Any = PrivateAttr(default_factory=threading.Lock)
    _answered: int = PrivateAttr(default=0)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    @property
    def asked(self) -> list[list[BaseMessage]]:
        return self._asked

    @property
    def options(self) -> list[dict[str, Any]]:
        return self._options

    @property
    def prompts(self) -> list[str]:
        """The user text of each call."""
        return [str(messages[-1].text) for messages in self._asked]

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        with self._lock:
            self._asked.append(messages)
            self._options.append(kwargs)
            if refused := self.refuses & kwargs.keys():
                msg = f"unsupported: {sorted(refused)}"
                raise ValueError(msg)
            reply = self.script[min(self._answered, len(self.script) - 1)]
            self._answered += 1
        if isinstance(reply, Exception):
            raise reply
        content = reply(str(messages[-1].text)) if callable(reply) else reply
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        return ChatResult(generations=[ChatGeneration(message=AIMessage(content=content, usage_metadata=usage))])


class NarrowModel(ScriptedModel):
    """A model whose `_generate` takes no options at all."""

    def _generate(  # type: ignore[override]  # narrower on purpose
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None
    ) -> ChatResult:
        return super()._generate(messages, stop, run_manager)
