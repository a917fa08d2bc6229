"""A chat model used inside the middleware: how it is found, how it is called, and what its failures mean."""

import asyncio
import os
import re
import weakref
from collections.abc import Mapping
from json import JSONDecodeError
from typing import Any, TypeVar

from langchain.chat_models import init_chat_model
from langchain_core.messages import BaseMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import RunnableBindingBase

from crag_middleware.drive import hidden_config
from crag_middleware.errors import ConfigError, CRAGError
from crag_middleware.settings import DEFAULT_MODEL

MODEL_VARIABLE = "CRAG_MODEL"
"""The environment variable that names another model than `DEFAULT_MODEL`."""

E = TypeVar("E", bound=CRAGError)
ChatModel = Runnable[Any, Any]
"""A LangChain chat model, bare or bound (`with_retry`, `with_fallbacks`, `bind`)."""

_REASONS = {401: "unauthorized", 402: "quota", 403: "unauthorized", 408: "timeout", 429: "rate_limited"}
_TOO_LONG = re.compile(
    r"context[ _-](?:length|window|size)|(?:prompt|input) is too long|too many tokens|token count exceeds", re.IGNORECASE
)
_REFUSALS = frozenset({400, 404, 405, 415, 422, 501})
_UNREADABLE = (JSONDecodeError, UnicodeDecodeError)
"""A reply that is no JSON is no refusal, though both classes are `ValueError`s."""


def resolve_model(model: str | ChatModel | None) -> ChatModel:
    """The chat model itself, the one of that name, or the default one.

    Raises:
        ConfigError: It can't be built, most often because its key or its package is missing; or it is no chat model.
    """
    if isinstance(model, Runnable):
        return model
    if model is not None and not isinstance(model, str):
        msg = f"`model` must be a chat model or its name such as {DEFAULT_MODEL!r}, got {type(model).__name__}"
        raise ConfigError(msg)
    name = model or os.environ.get(MODEL_VARIABLE, "").strip() or DEFAULT_MODEL
    try:
        return init_chat_model(name)
    except Exception as error:
        cause = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}, most often a missing API key"
        msg = (
            f"the chat model {name!r} can't be built ({cause}). Either set its key (DEEPSEEK_API_KEY for the default model) "
            f"or name another model in {MODEL_VARIABLE}; or grade without a chat model, offline: evaluator=EmbeddingEvaluator(LocalEmbeddings())"
        )
        raise ConfigError(msg, reason="no_model") from error


def internal_config(task: str) -> RunnableConfig:
    """The config of an inner call, named `crag.<task>`: hidden from the user's streams, visible to the callbacks and traces of the run around it."""
    return {**hidden_config(), "run_name": f"crag.{task}"}


def protocol_options(model: ChatModel, *, timeout_s: float) -> dict[str, Any]:
    """What models that speak OpenAI's protocol understand: a deadline for the request, and no streaming. Nothing for others."""
    return {"timeout": timeout_s, "stream": False} if _is_a(model, "BaseChatOpenAI") else {}


def provider_options(model: ChatModel, *, max_tokens: int) -> dict[str, Any]:
    """What the model's own provider understands, passed with a call so that the model itself stays untouched.

    DeepSeek: no thinking, and a limit, since its JSON mode may write blanks without end. Nothing for others.
    """
    if not _is_a(model, "ChatDeepSeek"):
        return {}
    own: Mapping[str, Any] = getattr(_bare(model), "extra_body", None) or {}
    return {"extra_body": {**own, "thinking": {"type": "disabled"}}, "max_tokens": max_tokens}


async def ainvoke(model: ChatModel, messages: list[BaseMessage], config: RunnableConfig, options: Mapping[str, Any]) -> Any:
    """The model's reply, whatever event loop is running.

    The connections of OpenAI's async client belong to the loop that first used them and fail in any other; there the sync client is called in a thread.
    """
    if _is_at_home(model):
        try:
            return await model.ainvoke(messages, config, **options)
        except RuntimeError as error:
            if "event loop" not in str(error).lower():
                raise
    return await asyncio.to_thread(model.invoke, messages, config, **options)


def profile(model: ChatModel) -> Mapping[str, Any]:
    """What LangChain knows about the model; empty if nothing."""
    return getattr(_bare(model), "profile", None) or {}


def model_name(model: Any) -> str:
    """What the provider calls a model, a chat model or any other; empty if it does not say."""
    names = (getattr(_bare(model), name, None) for name in ("model_name", "model", "model_id"))
    return next((name for name in names if isinstance(name, str) and name), "")


def is_refusal(error: Exception) -> bool:
    """Whether a failure says that the request's form is not supported, so that another form may work; outages, keys and limits don't."""
    if _is_too_long(error):
        return False
    status = _status(error)
    if status is not None:
        return status in _REFUSALS
    if isinstance(error, _UNREADABLE):
        return False
    return isinstance(error, NotImplementedError | TypeError | ValueError)


def failed(kind: type[E], task: str, error: Exception, *, who: str = "chat model") -> E:
    """Our error for a failed call. Providers quote the prompt in theirs, so only the class and the status are told."""
    status, name = _status(error), type(error).__name__
    if _is_too_long(error):
        reason = "too_long"
    elif isinstance(error, _UNREADABLE):
        reason = "invalid_reply"
    elif is_refusal(error):
        reason = "refused"
    elif status is not None:
        reason = _REASONS.get(status, "unavailable" if status >= 500 else "failed")
    elif isinstance(error, TimeoutError) or "Timeout" in name:
        reason = "timeout"
    elif any("Connect" in base.__name__ or base.__name__ == "TransportError" for base in type(error).__mro__):
        reason = "unavailable"
    else:
        reason = "failed"
    shown = name if status is None else f"{name}, status {status}"
    return kind(f"the {who} could not {task}: {shown}", reason=reason)


def _is_too_long(error: Exception) -> bool:
    """Whether the request did not fit the model's context: LangChain's own class for it, or the words that servers use."""
    if any(base.__name__ == "ContextOverflowError" for base in type(error).__mro__):
        return True
    return _status(error) in (400, 413, 422) and _TOO_LONG.search(str(error)[:1000]) is not None


def _status(error: Exception) -> int | None:
    """The HTTP status, where the provider's client kept it."""
    for holder in (error, getattr(error, "response", None)):
        status = getattr(holder, "status_code", None)
        if isinstance(status, int):
            return status
    return None


_homes: dict[int, "weakref.ref[asyncio.AbstractEventLoop]"] = {}


def _is_at_home(model: ChatModel) -> bool:
    """Whether the running loop is the first one that called this model, or the model does not care."""
    if not _is_a(model, "BaseChatOpenAI"):
        return True
    bare, loop = _bare(model), asyncio.get_running_loop()
    if id(bare) not in _homes:
        weakref.finalize(bare, _homes.pop, id(bare), None)
    return _homes.setdefault(id(bare), weakref.ref(loop))() is loop


def _is_a(model: ChatModel, family: str) -> bool:
    """Whether the model is of a class of that name, so that no provider's package need be imported to ask."""
    return any(base.__name__ == family for base in type(_bare(model)).__mro__)


def _bare(model: Any) -> Any:
    """The model inside what was bound around it."""
    while isinstance(model, RunnableBindingBase):
        model = model.bound
    return model
