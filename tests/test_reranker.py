"""Reranking by LangChain's own rerankers, real subclasses of their bases, and real embeddings."""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_classic.retrievers.document_compressors import (
    CohereRerank,
    CrossEncoderReranker,
    DocumentCompressorPipeline,
    LLMListwiseRerank,
)
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.runnables import RunnableLambda
from langchain_text_splitters import CharacterTextSplitter
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from crag_middleware.adapters.embedding_reranker import EmbeddingReranker
from crag_middleware.adapters.local_embeddings import LocalEmbeddings
from crag_middleware.adapters.reranker import ModelReranker
from crag_middleware.adapters.scorer import VERSION
from crag_middleware.errors import ConfigError, RerankError
from crag_middleware.ports import AsyncReranker, Reranker
from crag_middleware.types import EvaluatorKey, Passage
from tests.support.rerankers import WordEncoder, WordReranker, overlap

QUESTION = "Which port does Milvus listen on?"
PASSAGES = (
    Passage(id="p1", text="Milvus is a database."),
    Passage(id="p2", text="Bread needs salt."),
    Passage(id="p3", text="Milvus does listen on port 19530, which is its default."),
)
SHARES = [overlap(QUESTION, p.text) for p in PASSAGES]
Rerank = Callable[..., Awaitable[Sequence[float | None]]]


class Cohere:
    """Cohere's client, as far as `CohereRerank` knows it."""

    def rerank(self, *, query: str, documents: list[str], top_n: int, **options: Any) -> Any:
        scores = sorted(((overlap(query, text), place) for place, text in enumerate(documents)), reverse=True)
        return SimpleNamespace(results=[SimpleNamespace(index=place, relevance_score=score) for score, place in scores[:top_n]])


class Ordered(BaseDocumentCompressor):
    """Orders documents by common words, leaves out those without any, and tells no score."""

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Sequence[Document]:
        return sorted((d for d in documents if overlap(query, d.page_content)), key=lambda d: -overlap(query, d.page_content))


def listwise(asked: dict[str, Any]) -> list[Document]:
    return list(Ordered().compress_documents(asked["documents"], asked["query"]))


@pytest.fixture(params=["sync", "async"])
def rerank(request: pytest.FixtureRequest) -> Rerank:
    """Reranks with either form of a reranker."""

    async def call(reranker: ModelReranker, passages: Sequence[Passage] = PASSAGES, **keywords: Any) -> Sequence[float | None]:
        if request.param == "async":
            return await reranker.arerank(QUESTION, passages, **keywords)
        return await asyncio.to_thread(reranker.rerank, QUESTION, passages, **keywords)

    return call


def test_it_is_a_reranker_in_both_forms() -> None:
    assert isinstance(ModelReranker(WordEncoder()), Reranker)
    assert isinstance(ModelReranker(WordEncoder()), AsyncReranker)
    assert isinstance(EmbeddingReranker(DeterministicFakeEmbedding(size=4)), Reranker)


@pytest.mark.filterwarnings("ignore:The class `CohereRerank`")
@pytest.mark.parametrize(
    "build",
    [
        WordEncoder,
        lambda: CrossEncoderReranker(model=WordEncoder(), top_n=1),
        lambda: WordReranker(top_n=1),
        lambda: CohereRerank(client=Cohere(), model="rerank-test", top_n=1),
    ],
    ids=["cross-encoder", "langchain-classic", "compressor", "cohere"],
)
async def test_each_passage_has_the_rerankers_own_score_in_the_passages_order(rerank: Rerank, build: Callable[[], Any]) -> None:
    assert list(await rerank(ModelReranker(build()))) == pytest.approx(SHARES)


async def test_log_odds_stay_log_odds(rerank: Rerank) -> None:
    assert list(await rerank(ModelReranker(WordEncoder(logits=True)))) == pytest.approx([20 * share - 8 for share in SHARES])


@pytest.mark.parametrize("reranker", [Ordered(), LLMListwiseRerank(reranker=RunnableLambda(listwise), top_n=1)])
async def test_a_compressor_that_tells_an_order_only_scores_by_place_and_what_it_leaves_out_has_none(rerank: Rerank, reranker: Any) -> None:
    assert list(await rerank(ModelReranker(reranker))) == [0.5, None, 1.0]


async def test_an_order_has_nothing_to_compare_a_floor_with(rerank: Rerank) -> None:
    with pytest.raises(RerankError, match="finite number") as caught:
        await rerank(ModelReranker(Ordered(), floor=0.5))

    assert caught.value.reason == "invalid_reply"


async def test_what_a_compressor_leaves_out_has_no_score(rerank: Rerank) -> None:
    assert list(await rerank(ModelReranker(WordReranker(floor=0.5)))) == [None, None, pytest.approx(SHARES[2])]
    assert list(await rerank(ModelReranker(WordReranker(floor=2.0)))) == [None, None, None]


async def test_of_a_text_that_a_pipeline_split_the_best_part_counts(rerank: Rerank) -> None:
    splitter = CharacterTextSplitter(separator="\n", chunk_size=40, chunk_overlap=0)
    parts = Passage(id="long", text="Milvus is a database.\nMilvus does listen on the port 19530.\nBread needs salt.")

    scores = await rerank(ModelReranker(DocumentCompressorPipeline(transformers=[splitter, WordReranker(top_n=None)])), [*PASSAGES, parts])

    assert list(scores) == pytest.approx([*SHARES, overlap(QUESTION, parts.text.splitlines()[1])])


async def test_blank_passages_are_not_asked_about_and_have_no_score(rerank: Rerank) -> None:
    reranker = WordEncoder()
    blank = [Passage(id="blank", text=" \n"), Passage(id="unseen", text="\u200b", title="a title alone says nothing")]

    scores = await rerank(ModelReranker(reranker), [blank[0], *PASSAGES, blank[1]])

    assert list(scores) == [None, *map(pytest.approx, SHARES), None]
    assert list(await rerank(ModelReranker(reranker), blank)) == [None, None]
    assert list(await rerank(ModelReranker(reranker), ())) == []
    assert [len(asked) for asked in reranker.asked] == [3]


async def test_title_and_clipped_text_are_scored(rerank: Rerank) -> None:
    reranker = WordEncoder()
    long = Passage(id="long", text="x " * 30_000 + "Milvus port", title="Manual")

    await rerank(ModelReranker(reranker, max_passage_chars=500), [long])

    ((query, text),) = reranker.asked[0]
    assert query == QUESTION
    assert text.startswith("Manual\nx x")
    assert text.endswith("Milvus port")
    assert len(text) < 600


async def test_two_passages_of_one_id_have_a_score_each(rerank: Rerank) -> None:
    twins = [Passage(id="a", text="Milvus port"), Passage(id="a", text="Bread needs salt.")]

    assert list(await rerank(ModelReranker(WordReranker(top_n=None)), twins)) == [pytest.approx(2 / 6), 0.0]


# --- Batches and deadline


async def test_a_cross_encoder_is_given_batches_and_a_compressor_all_at_once(rerank: Rerank) -> None:
    encoder, seen = WordEncoder(), []

    class Counted(WordReranker):
        def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Sequence[Document]:
            seen.append(len(documents))
            return super().compress_documents(documents, query)

    scores = await rerank(ModelReranker(encoder, batch_size=2))
    await rerank(ModelReranker(Counted(), batch_size=2))

    assert list(scores) == pytest.approx(SHARES)
    assert [len(asked) for asked in encoder.asked] == [2, 1]
    assert seen == [3]


@given(st.lists(st.sampled_from(["Milvus port", "", " ", "Which port", "面包要放盐。", "listen"]), max_size=12), st.integers(1, 13))
def test_the_size_of_batches_changes_no_score(texts: list[str], batch_size: int) -> None:
    passages = [Passage(id=str(n), text=text) for n, text in enumerate(texts)]

    assert ModelReranker(WordEncoder(), batch_size=batch_size).rerank(QUESTION, passages) == ModelReranker(WordEncoder()).rerank(
        QUESTION, passages
    )


async def test_batches_that_there_is_no_time_for_are_not_begun_and_told(rerank: Rerank, caplog: pytest.LogCaptureFixture) -> None:
    encoder = WordEncoder()

    with caplog.at_level(logging.WARNING):
        scores = await rerank(ModelReranker(encoder, batch_size=1), timeout_s=1e-9)

    assert list(scores) == [pytest.approx(SHARES[0]), None, None]
    assert len(encoder.asked) == 1
    assert caplog.messages == ["2 of 3 passages were not reranked for want of time"]


async def test_a_batch_that_would_end_too_late_is_not_begun(rerank: Rerank) -> None:
    def slow(scores: list[float]) -> list[float]:
        time.sleep(0.05)
        return scores

    scores = await rerank(ModelReranker(WordEncoder(read=slow), batch_size=1), timeout_s=0.09)

    assert list(scores) == [pytest.approx(SHARES[0]), None, None]


async def test_the_async_form_leaves_the_event_loop_free_and_ends_when_cancelled() -> None:
    begun, free = threading.Event(), threading.Event()

    def slow(scores: list[float]) -> list[float]:
        begun.set()
        assert free.wait(5)
        return scores

    encoder = WordEncoder(read=slow)
    task = asyncio.create_task(ModelReranker(encoder, batch_size=1).arerank(QUESTION, PASSAGES))
    assert await asyncio.to_thread(begun.wait, 5)
    task.cancel()
    free.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(encoder.asked) == 1


# --- Failures


@pytest.mark.parametrize(
    "read",
    [
        lambda scores: scores[:-1],
        lambda scores: [*scores, 0.5],
        lambda scores: [math.nan] * len(scores),
        lambda scores: [None] * len(scores),
        lambda scores: ["high"] * len(scores),
        lambda scores: None,
    ],
)
async def test_scores_that_are_none_are_a_failure_c045(rerank: Rerank, read: Any) -> None:
    with pytest.raises(RerankError):
        await rerank(ModelReranker(WordEncoder(read=read)))


class HalfScored(Ordered):
    """Tells a score for its best document only."""

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Sequence[Document]:
        best, *others = super().compress_documents(documents, query)
        return [Document(best.page_content, metadata={**best.metadata, "relevance_score": 0.9}), *others]


@pytest.mark.parametrize("reranker", [HalfScored(), WordReranker(loses_metadata=True)])
async def test_a_compressor_that_scores_some_only_or_loses_metadata_is_a_failure(rerank: Rerank, reranker: Any) -> None:
    with pytest.raises(RerankError, match="the reranker must") as caught:
        await rerank(ModelReranker(reranker))

    assert caught.value.reason == "invalid_reply"


class StatusError(Exception):
    """What a hosted reranker's client raises."""

    status_code = 429


@pytest.mark.parametrize(
    ("error", "reason"),
    [(StatusError(), "rate_limited"), (TimeoutError(), "timeout"), (ConnectionError(), "unavailable"), (RuntimeError("secret"), "failed")],
)
async def test_a_failure_has_a_reason_and_no_private_text_c051(rerank: Rerank, error: Exception, reason: str) -> None:
    def fail(scores: object) -> None:
        raise error

    with pytest.raises(RerankError, match="the reranker could not rerank") as caught:
        await rerank(ModelReranker(WordEncoder(read=fail)))

    assert caught.value.reason == reason
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_control_flow_of_the_framework_passes_through(rerank: Rerank) -> None:
    def interrupt(scores: object) -> None:
        raise GraphInterrupt(())

    with pytest.raises(GraphBubbleUp):
        await rerank(ModelReranker(WordEncoder(read=interrupt)))


@pytest.mark.parametrize(
    ("reranker", "options"),
    [
        ("cohere", {}),
        (WordEncoder(), {"batch_size": 0}),
        (WordEncoder(), {"max_passage_chars": 0}),
        (WordEncoder(), {"floor": math.nan}),
        (WordEncoder(), {"floor": "0.5"}),
    ],
)
def test_arguments_that_can_not_work_are_refused_when_built(reranker: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        ModelReranker(reranker, **options)


def test_its_floor_is_the_one_it_was_given_and_its_key_names_the_model() -> None:
    assert ModelReranker(WordEncoder()).floor is None
    assert ModelReranker(WordEncoder(), floor=-2.5).floor == -2.5
    assert ModelReranker(WordEncoder()).key == EvaluatorKey("ModelReranker", "word-encoder", VERSION)


# --- By embeddings


def test_embeddings_put_the_passage_that_answers_first_in_either_language() -> None:
    reranker = EmbeddingReranker(LocalEmbeddings())
    passages = [
        Passage(id="0", text="Bread needs salt."),
        Passage(id="1", text=" "),
        Passage(id="2", text="Parcels arrive within five days."),
    ]

    for question in ("How long does delivery take?", "送货需要多长时间？"):
        bread, blank, parcels = reranker.rerank(question, passages)

        assert blank is None
        assert bread is not None
        assert parcels is not None
        assert -1 <= bread < parcels <= 1
    assert reranker.rerank("How long?", passages[1:2]) == (None,)
    assert reranker.key.model == LocalEmbeddings.model


class Broken(Embeddings):
    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise RuntimeError(texts[0])

    def embed_query(self, text: str) -> list[float]:
        return [1.0]


def test_embeddings_that_fail_are_an_error_without_private_text() -> None:
    with pytest.raises(RerankError) as caught:
        EmbeddingReranker(Broken()).rerank(QUESTION, PASSAGES)

    assert "Milvus" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("options", [{"floor": math.inf}, {"max_passage_chars": 10}])
def test_a_reranker_by_embeddings_refuses_what_can_not_work(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        EmbeddingReranker(Broken(), **options)
