"""A chat model around the agent's: what it writes is checked before anybody sees it.

It is one run for callbacks and traces, under the inner model's name: the inner model's `_stream` and `_generate` are called, not its `stream` and `invoke`, so
that no token shows up twice and none before it was let go.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, closing
from typing import Any, cast

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.globals import get_llm_cache
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.runnables.base import RunnableBindingBase
from pydantic import Field

from crag_middleware.adapters.answer_drafts import Answer as Answer
from crag_middleware.adapters.answer_drafts import Drafts, Generated, checked_again
from crag_middleware.drive import hidden_config, running_under
from crag_middleware.errors import ConfigError
from crag_middleware.steps import Plan

COPIED = ("name", "rate_limiter", "disable_streaming", "callbacks", "tags", "metadata", "verbose", "output_version", "profile")
"""Fields of every chat model that its public methods go by, and so have to be the inner model's."""


class VerifiedChatModel(BaseChatModel):
    """The agent's model, checked. What is bound to write data, such as JSON, is not: that holds no prose to check, and must not be changed.

    Attributes:
        inner: The agent's model.
        begin: A new `Answer` for each call.
        perform: Runs a plan.
        aperform: Runs a plan on the running event loop.
    """

    inner: BaseChatModel
    begin: Callable[[], Answer] = Field(exclude=True, repr=False)
    perform: Callable[[Plan[Any]], Any] = Field(exclude=True, repr=False)
    aperform: Callable[[Plan[Any]], Coroutine[Any, Any, Any]] = Field(exclude=True, repr=False)

    @classmethod
    def around(
        cls,
        inner: BaseChatModel,
        begin: Callable[[], Answer],
        perform: Callable[[Plan[Any]], Any],
        aperform: Callable[[Plan[Any]], Coroutine[Any, Any, Any]],
    ) -> "VerifiedChatModel":
        """The inner model, checked, with its own cache, rate limit, callbacks, tags and profile."""
        copied = {name: getattr(inner, name) for name in COPIED}
        model = cls(inner=inner, begin=begin, perform=perform, aperform=aperform, **copied)
        kept = inner.cache if isinstance(inner.cache, BaseCache) else None if inner.cache is False else get_llm_cache()
        model.cache = _CheckedCache(kept, model) if kept is not None else inner.cache
        return model

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> "VerifiedChatModel":
        """A copy around a copy of the inner model, which has the changes."""
        inner = self.inner.model_copy(update=update, deep=deep)
        return VerifiedChatModel.around(inner, self.begin, self.perform, self.aperform)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc]  # pydantic has one, and hides it from type checkers
        except AttributeError:
            if name.startswith("_") or "inner" not in self.__dict__:
                raise
            return getattr(self.inner, name)  # its name, its temperature, whatever a middleware reads

    @property
    def _llm_type(self) -> str:
        return self.inner._llm_type

    @property
    def _identifying_params(self) -> Any:
        return self.inner._identifying_params

    @property
    def _serialized(self) -> dict[str, Any]:
        return self.inner._serialized

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> Any:
        return self.inner._get_ls_params(stop=stop, **kwargs)

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        return self.inner._get_invocation_params(stop=stop, **kwargs)

    def _combine_llm_outputs(self, llm_outputs: list[dict[str, Any] | None], /) -> dict[str, Any]:
        return self.inner._combine_llm_outputs(llm_outputs)

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        """The inner model's and a mark: its own users must not find our answers in a cache, nor we theirs."""
        return f"{self.inner._get_llm_string(stop=stop, **kwargs)}---verified"

    def _should_stream(self, **kwargs: Any) -> bool:
        return self.inner._should_stream(**kwargs)

    def _should_use_protocol_streaming(self, *, async_api: bool, **kwargs: Any) -> bool:
        kind = type(self.inner)  # one with events of its own and no chunks answers in one piece
        has_chunks = kind._stream is not BaseChatModel._stream or (async_api and kind._astream is not BaseChatModel._astream)
        return has_chunks and self.inner._should_use_protocol_streaming(async_api=async_api, **kwargs)

    def get_num_tokens(self, text: str) -> int:
        """As the inner model counts them."""
        return self.inner.get_num_tokens(text)

    def get_num_tokens_from_messages(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> int:
        """As the inner model counts them."""
        return self.inner.get_num_tokens_from_messages(messages, *args, **kwargs)

    def get_token_ids(self, text: str) -> list[int]:
        """As the inner model has them."""
        return self.inner.get_token_ids(text)

    def bind(self, **kwargs: Any) -> Any:
        """The model with options, checked unless they make it write data."""
        return self.inner.bind(**kwargs) if _writes_data(kwargs) else super().bind(**kwargs)

    def with_structured_output(self, schema: Any, **kwargs: Any) -> Runnable[LanguageModelInput, Any]:
        """The inner model's, which writes data."""
        return self.inner.with_structured_output(schema, **kwargs)

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[LanguageModelInput, AIMessage]:
        """The inner model with tools, checked.

        Raises:
            ConfigError: The inner model makes of itself what can't be checked.
        """
        if not _writes_data(kwargs):
            return cast("Runnable[LanguageModelInput, AIMessage]", self._instead(self.inner.bind_tools(tools, **kwargs)))
        if _speaks_openai(self.inner) and not getattr(self.inner, "use_responses_api", False):
            kwargs.setdefault("strict", True)  # as the agent does for such a model, whose class it can't see through this one
        return self.inner.bind_tools(tools, **kwargs)

    def _instead(self, model: Any) -> Any:
        """The model checked, under what is bound around it."""
        if isinstance(model, BaseChatModel):
            return self if model is self.inner else VerifiedChatModel.around(model, self.begin, self.perform, self.aperform)
        if isinstance(model, RunnableBindingBase):
            return model.model_copy(update={"bound": self._instead(model.bound)})
        msg = (
            f"the answers of {type(self.inner).__name__} can't be checked: its `bind_tools` returns a {type(model).__name__}, neither a chat model "
            "nor one with something bound to it; use another model, or switch the checks off: CRAGSettings(verify=False)"
        )
        raise ConfigError(msg)

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> ChatResult:
        results: list[ChatResult] = []

        def write(asked: list[BaseMessage]) -> Iterator[ChatGeneration]:
            results.append(self.inner._generate(asked, stop=stop, **kwargs))
            yield from results[-1].generations[:1]

        return _with_generation(results, list(self._written(messages, write)))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        results: list[ChatResult] = []

        async def write(asked: list[BaseMessage]) -> AsyncIterator[ChatGeneration]:
            results.append(await self.inner._agenerate(asked, stop=stop, **kwargs))
            for generation in results[-1].generations[:1]:
                yield generation

        return _with_generation(results, [shown async for shown in self._awritten(messages, write)])

    def _stream(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        def write(asked: list[BaseMessage]) -> Iterable[ChatGenerationChunk]:
            return self.inner._stream(asked, stop=stop, **kwargs)

        with closing(self._written(messages, write)) as chunks:
            for chunk in chunks:
                if run_manager:  # v3 events only; every other caller tells of new tokens itself
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        def write(asked: list[BaseMessage]) -> AsyncIterator[ChatGenerationChunk]:
            return self.inner._astream(asked, stop=stop, **kwargs)

        async with aclosing(self._awritten(messages, write)) as chunks:
            async for chunk in chunks:
                if run_manager:
                    await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    def _written(
        self, messages: list[BaseMessage], write: Callable[[list[BaseMessage]], Iterable[Generated]]
    ) -> Generator[Generated, None, None]:
        """What the model writes, as it can be shown."""
        drafts = Drafts(self.begin(), messages)
        while (asked := drafts.messages) is not None:
            if asked is not messages and self.rate_limiter:  # for the first draft the caller has waited
                self.rate_limiter.acquire(blocking=True)
            with closing(_pieces(drafts, asked, write)) as pieces:
                for piece in pieces:
                    yield from self.perform(drafts.take(piece))

    async def _awritten(
        self, messages: list[BaseMessage], write: Callable[[list[BaseMessage]], AsyncIterator[Generated]]
    ) -> AsyncGenerator[Generated, None]:
        """What the model writes, as it can be shown."""
        drafts = Drafts(self.begin(), messages)
        while (asked := drafts.messages) is not None:
            if asked is not messages and self.rate_limiter:
                await self.rate_limiter.aacquire(blocking=True)
            async with aclosing(_apieces(drafts, asked, write)) as pieces:
                async for piece in pieces:
                    for shown in await self.aperform(drafts.take(piece)):
                        yield shown


class _CheckedCache(BaseCache):
    """The inner model's cache. It holds what went out, and what it holds is checked again; if that wants another draft, it is as if it held nothing."""

    def __init__(self, cache: BaseCache, model: VerifiedChatModel) -> None:
        self._cache = cache
        self._model = model

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        match self._cache.lookup(prompt, llm_string):
            case [ChatGeneration() as kept]:
                shown = self._model.perform(checked_again(self._model.begin(), kept))
                return None if shown is None else [shown]
        return None

    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        match await self._cache.alookup(prompt, llm_string):
            case [ChatGeneration() as kept]:
                shown = await self._model.aperform(checked_again(self._model.begin(), kept))
                return None if shown is None else [shown]
        return None

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        self._cache.update(prompt, llm_string, return_val)

    async def aupdate(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        await self._cache.aupdate(prompt, llm_string, return_val)

    def clear(self, **kwargs: Any) -> None:
        self._cache.clear(**kwargs)

    async def aclear(self, **kwargs: Any) -> None:
        await self._cache.aclear(**kwargs)


def _pieces(
    drafts: Drafts, asked: list[BaseMessage], write: Callable[[list[BaseMessage]], Iterable[Generated]]
) -> Generator[Generated | Exception | None, None, None]:
    """What the model writes, then None, or the error that it broke off with if there is an earlier draft to fall back on."""
    hidden, end = hidden_config(), None
    try:
        with running_under(hidden):
            written = iter(write(asked))
        try:
            while True:
                with running_under(hidden):
                    piece = next(written, None)
                if piece is None:
                    break
                yield piece
        finally:
            if close := getattr(written, "close", None):
                close()
    except Exception as error:
        if not drafts.survives(error):
            raise
        end = error
    yield end


async def _apieces(
    drafts: Drafts, asked: list[BaseMessage], write: Callable[[list[BaseMessage]], AsyncIterator[Generated]]
) -> AsyncGenerator[Generated | Exception | None, None]:
    """What the model writes, then None, or the error that it broke off with if there is an earlier draft to fall back on."""
    hidden, end = hidden_config(), None
    try:
        written = write(asked)
        try:
            while True:
                with running_under(hidden):
                    piece = await anext(written, None)
                if piece is None:
                    break
                yield piece
        finally:
            if aclose := getattr(written, "aclose", None):
                await aclose()
    except Exception as error:
        if not drafts.survives(error):
            raise
        end = error
    yield end


def _with_generation(results: Sequence[ChatResult], shown: Sequence[ChatGeneration]) -> ChatResult:
    """The last result with what is shown of it; of several generations the first is what models return."""
    result = results[-1]
    return result.model_copy(update={"generations": [*shown, *result.generations[1:]]})


def _speaks_openai(model: BaseChatModel) -> bool:
    return any(base.__name__ == "BaseChatOpenAI" for base in type(model).__mro__)


def _writes_data(options: Mapping[str, Any]) -> bool:
    """Whether a model that is bound to these options writes data, such as JSON by a schema, in place of text."""
    wanted = options.get("response_format")
    return wanted is not None and wanted != {"type": "text"}
