"""LangChain's document compressors as refiners, and our refiners as document compressors."""

import logging
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from typing import Any

from langchain_core.callbacks import Callbacks
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.runnables.config import ensure_config, var_child_runnable_config
from langgraph.errors import GraphBubbleUp
from pydantic import Field, PrivateAttr

from crag_middleware.adapters.inner_model import failed
from crag_middleware.adapters.rows import OWNER, from_document
from crag_middleware.drive import arun, run
from crag_middleware.errors import ConfigError, RefineError, let_pass
from crag_middleware.ports import AsyncRefiner, Bound, Refiner, bind
from crag_middleware.stages.assemble import approximate_tokens, excerpt
from crag_middleware.stages.company import Page
from crag_middleware.stages.fences import seen
from crag_middleware.stages.refine import select
from crag_middleware.stages.sentences import split
from crag_middleware.steps import Call, ask, refine
from crag_middleware.tenancy import Scope, check_agent_id, check_owners
from crag_middleware.types import Passage, Strip
from crag_middleware.world import World

logger = logging.getLogger(__name__)

PLACE = "crag_place"
"""The metadata key by which a document is known again."""

STRIPS = "crag_strips"
"""The metadata key of what a document was made of: `[start, end]` of each strip in the text before."""

TELLING_TOKENS = 2
"""About how many tokens a returned text must have to be looked for inside of longer ones: a `Yes.` would be found anywhere."""

_PARTS = re.compile(r"[\n\r\u2028\u2029]+|(?:…|\.{3,}|\[\.\.\.\])+\s*")
_DRESS = " \t-*•>`\"'“”‘’「」"

Kept = tuple[tuple[Strip, ...], ...]
"""The strips of each passage."""


class CompressorRefiner:
    """Picks strips by any LangChain document compressor: an extractor, a filter, a reranker that keeps its best, or a pipeline of them.

    What a compressor returns is never shown. It is looked for in the passage, up to white space, and the passage's own strips that it touches are kept whole,
    with what they need beside them:

    - A document that comes back as it was: the passage is kept whole.
    - Parts of it, such as sentences or the chunks of a splitter: the strips they touch.
    - A text of which nothing stands in the passage, since the compressor rewrote it: the passage is kept whole.
    - A document that does not come back: the strip that shares most words with the question.
    - A document that was never given: nothing.

    Args:
        compressor: The compressor. A mere transformer, such as `EmbeddingsRedundantFilter`, goes into a `DocumentCompressorPipeline` first.

    Raises:
        ConfigError: This is no document compressor.
    """

    def __init__(self, compressor: BaseDocumentCompressor) -> None:
        if not isinstance(compressor, BaseDocumentCompressor):
            msg = (
                "`compressor` must be a LangChain document compressor (a transformer goes into a DocumentCompressorPipeline), "
                f"got {type(compressor).__name__}"
            )
            raise ConfigError(msg)
        self._compressor = compressor

    def refine(self, question: str, passages: Sequence[Passage]) -> Kept:
        """The strips that the compressor left.

        Args:
            question: The compressor's query.
            passages: One document each, all in one call; blank ones are left out. The documents have the passage's id, title and source.

        Returns:
            One tuple a passage, in document order; empty where the compressor left nothing and no word agrees with the question.

        Raises:
            RefineError: The compressor failed, or returned what are no documents.
        """
        given = _documents(passages)
        with _ours():
            found = self._compressor.compress_documents(given, question) if given else ()
        return _read(question, passages, found)

    async def arefine(self, question: str, passages: Sequence[Passage]) -> Kept:
        """The async form of `refine`."""
        given = _documents(passages)
        with _ours():
            found = await self._compressor.acompress_documents(given, question) if given else ()
        return _read(question, passages, found)


def _documents(passages: Sequence[Passage]) -> list[Document]:
    return [
        Document(id=p.id, page_content=p.text, metadata={"title": p.title, "source": p.source, PLACE: place})
        for place, p in enumerate(passages)
        if p.text.strip()
    ]


@contextmanager
def _ours() -> Iterator[None]:
    """The compressor's failures as our error; they may quote passages, so only their class and status are told."""
    try:
        yield
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001 - raised on as ours
        let_pass(error)
        raise failed(RefineError, "refine", error, who="compressor") from None


def _read(question: str, passages: Sequence[Passage], found: Any) -> Kept:
    """The strips of each passage that what came back stands for."""
    if not isinstance(found, Sequence) or not all(isinstance(d, Document) and isinstance(d.page_content, str) for d in found):
        msg = f"the compressor must return a list of documents, got {type(found).__name__}"
        raise RefineError(msg, reason="invalid_reply")
    grounds = [_Ground(passage.text) for passage in passages]
    touched: dict[int, set[int]] = {}
    foreign = 0
    for document in found:
        text, place = document.page_content, document.metadata.get(PLACE)
        if isinstance(place, int) and 0 <= place < len(grounds):
            spots = {place: grounds[place].touched(text) or grounds[place].all} if text.strip() else {}
        else:  # It lost its metadata.
            spots = {place: some for place, ground in enumerate(grounds) if (some := ground.touched(text))}
            foreign += not spots
        for home, some in spots.items():
            touched.setdefault(home, set()).update(some)
    if foreign:
        logger.info("%d of %d documents of the compressor are none that it was given", foreign, len(found))
    return tuple(
        ground.kept(touched[place]) if place in touched else select(question, [ground.page.text], max_strips=1)[0]
        for place, ground in enumerate(grounds)
    )


class _Ground:
    """A passage in which returned texts are looked for, whatever became of its white space."""

    def __init__(self, text: str) -> None:
        self.page = Page.of(text)
        self.all = frozenset(range(len(self.page.strips)))
        self._strips = list(map(_squeezed, self.page.strips))
        self._text = "".join(self._strips)
        self._ends = list(accumulate(map(len, self._strips)))

    def kept(self, touched: Set[int]) -> tuple[Strip, ...]:
        """These strips with what they need beside them. None has a worth: a compressor does not say."""
        if touched == self.all:
            return tuple(self.page.strip(i, why="whole") for i in sorted(self.all))
        strips = self.page.complete(sorted(touched), [float(i in touched) for i in range(len(self._strips))])
        return tuple(replace(strip, worth=None) for strip in strips)

    def touched(self, text: str) -> Set[int]:
        """The strips in which a returned text, or at least parts of it, stands; none if all of it is new."""
        return self._find(text) or {i for part in _parts(text) for i in self._find(part) or self._within(part)}

    def _find(self, part: str) -> Set[int]:
        """The strips from the one where the part begins to the one where it ends, wherever it stands."""
        wanted = _squeezed(part)
        if approximate_tokens(wanted) < TELLING_TOKENS:
            return {i for i, strip in enumerate(self._strips) if wanted and strip == wanted}
        found: set[int] = set()
        at = self._text.find(wanted)
        while at >= 0:
            end = at + len(wanted)
            found.update(range(bisect_right(self._ends, at), bisect_right(self._ends, end - 1) + 1))
            at = self._text.find(wanted, end)
        return found

    def _within(self, part: str) -> Set[int]:
        """The strips that stand in the part."""
        whole = _squeezed(part)
        return {i for i, strip in enumerate(self._strips) if strip in whole and approximate_tokens(strip) >= TELLING_TOKENS}


def _squeezed(text: str) -> str:
    """The text without white space and invisible signs."""
    return "".join(seen(text).split())


def _parts(text: str) -> Iterator[str]:
    """A returned text by lines and marks of omission, and those by sentences, without bullets and quotes."""
    for line in _PARTS.split(text):
        yield from (strip.text.strip(_DRESS) for strip in split(line))


class RefinerCompressor(BaseDocumentCompressor):
    """A document compressor on any of our refiners, such as for LangChain's `ContextualCompressionRetriever`.

    Each document comes back, in its place, with the strips that the refiner kept of it: the document's own white space between neighbours, and an ellipsis
    where text was left out. Its id and metadata stay; `crag_strips` is added, a list of `[start, end]` of each strip in the document as it was. As everywhere,
    a document of which the refiner picks nothing is kept whole. A blank one is left out.

    Args:
        refiner: Picks the strips: `WordRefiner()`, `ChatModelRefiner(model)`, or one of your own.
        agent_id: The tenant whose documents these are, for refiners that ask for it.
        timeout_s: The refiner's deadline, in seconds.

    Raises:
        ConfigError: This is no refiner, or `timeout_s` is not above 0.
        TenantError: `agent_id` is no tenant id.
    """

    refiner: Any
    agent_id: str = Field(repr=False)
    timeout_s: float
    _port: Bound = PrivateAttr()

    def __init__(self, refiner: Refiner | AsyncRefiner, *, agent_id: str, timeout_s: float = 10.0) -> None:
        port = bind(refiner, "refine")
        if not timeout_s > 0:
            msg = f"`timeout_s` must be above 0, got {timeout_s!r}"
            raise ConfigError(msg)
        fields: dict[str, Any] = {"refiner": refiner, "agent_id": check_agent_id(agent_id), "timeout_s": timeout_s}
        super().__init__(**fields)
        self._port = port

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None) -> Sequence[Document]:
        """The documents with what the refiner kept of each.

        Args:
            documents: In any order, which is kept.
            query: What the strips should bear on.
            callbacks: See the calls of a refiner's chat model.

        Raises:
            RefineError: The refiner failed, or was late.
            TenantError: A document names another tenant in `metadata["agent_id"]`.
            ConfigError: The refiner has only an async form.
        """
        with _seen_by(callbacks):
            return _compressed(documents, run(ask(self._call(documents, query)), self._world))

    async def acompress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Callbacks | None = None
    ) -> Sequence[Document]:
        """The async form of `compress_documents`; a refiner without one runs in a thread."""
        with _seen_by(callbacks):
            return _compressed(documents, await arun(ask(self._call(documents, query)), self._world))

    @property
    def _world(self) -> World:
        return World({"refiner": self._port}, report=lambda stage: None)

    def _call(self, documents: Sequence[Document], query: str) -> Call[Kept]:
        scope = Scope(self.agent_id)
        check_owners((d.metadata[OWNER] for d in documents if OWNER in d.metadata), scope)
        passages = (replace(from_document(d, rank=n, tenant_field=None), id=str(n)) for n, d in enumerate(documents, 1))
        return refine(query, tuple(passages), scope, timeout_s=self.timeout_s)


@contextmanager
def _seen_by(callbacks: Callbacks | None) -> Iterator[None]:
    """Lets these callbacks see the calls of models inside."""
    if callbacks is None:
        yield
        return
    token = var_child_runnable_config.set(ensure_config({"callbacks": callbacks}))
    try:
        yield
    finally:
        var_child_runnable_config.reset(token)


def _compressed(documents: Sequence[Document], kept: Kept) -> list[Document]:
    pairs = ((document, strips or split(document.page_content)) for document, strips in zip(documents, kept, strict=True))
    return [
        Document(
            id=document.id,
            page_content=excerpt(document.page_content, strips).strip(),
            metadata={**document.metadata, STRIPS: [[strip.start, strip.end] for strip in strips]},
        )
        for document, strips in pairs
        if strips
    ]
