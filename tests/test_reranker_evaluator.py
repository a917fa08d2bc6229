"""Grading by rerankers: real subclasses of LangChain's cross-encoder and document compressor, of every shape that is found in the wild."""

import asyncio
import math
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from langchain_core.documents import BaseDocumentCompressor, Document
from langgraph.errors import GraphBubbleUp, GraphInterrupt

from crag_middleware.adapters.given import calibration_of
from crag_middleware.adapters.reranker_evaluator import PROBE, RERANKER_THRESHOLDS, RerankerEvaluator
from crag_middleware.adapters.scorer import VERSION
from crag_middleware.errors import ConfigError, GradingError
from crag_middleware.types import EvaluatorKey, Grade, Passage
from tests.support.rerankers import WordEncoder, WordReranker, overlap

QUESTION = "Which port does Milvus listen on?"
PASSAGES = (
    Passage(id="p1", text="Milvus does listen on port 19530, which is its default."),
    Passage(id="p2", text="Bread needs salt."),
    Passage(id="p3", text="Milvus is a database."),
)
Grader = Callable[..., Awaitable[Sequence[Grade]]]


class EncoderReranker(BaseDocumentCompressor):
    """LangChain's own `CrossEncoderReranker`: orders documents by a cross-encoder and tells no scores."""

    model: Any
    top_n: int = 3

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Sequence[Document]:
        raise AssertionError("its scores would be lost")


@pytest.fixture(params=["sync", "async"])
def grade(request: pytest.FixtureRequest) -> Grader:
    """Grades with either form of an evaluator."""

    async def call(evaluator: RerankerEvaluator, passages: Sequence[Passage] = PASSAGES) -> Sequence[Grade]:
        if request.param == "async":
            return await evaluator.agrade(QUESTION, passages)
        return await asyncio.to_thread(evaluator.grade, QUESTION, passages)

    return call


def probabilities(grades: Sequence[Grade]) -> list[float | None]:
    return [None if g.probability is None else round(g.probability, 3) for g in grades]


SHARES = [1.0, 0.0, 0.167]


@pytest.mark.parametrize("reranker", [WordEncoder(), WordReranker(top_n=None), EncoderReranker(model=WordEncoder())])
async def test_each_passage_has_the_rerankers_probability_in_the_passages_order(grade: Grader, reranker: Any) -> None:
    grades = await grade(RerankerEvaluator(reranker))

    assert [g.passage_id for g in grades] == ["p1", "p2", "p3"]
    assert probabilities(grades) == pytest.approx(SHARES, abs=0.001)
    assert [g.label for g in grades] == ["relevant", "incorrect", "incorrect"]


async def test_log_odds_become_probabilities_by_the_logistic_function(grade: Grader) -> None:
    grades = await grade(RerankerEvaluator(WordEncoder(logits=True)))

    assert [g.probability for g in grades] == pytest.approx([1 / (1 + math.exp(-(20 * share - 8))) for share in (1, 0, 1 / 6)])


async def test_what_the_scores_are_is_asked_once_and_never_changes(grade: Grader) -> None:
    reranker = WordEncoder(logits=True)
    evaluator = RerankerEvaluator(reranker)
    inside = Passage(id="inside", text="Which port does")  # its log odds lie in [0, 1] by chance

    alone, among = await grade(evaluator, [inside]), await grade(evaluator, [*PASSAGES, inside])

    assert alone[0].probability == among[-1].probability
    assert 0 < 20 * overlap(QUESTION, inside.text) - 8 < 2.1
    assert [asked[0][0] == PROBE[0] for asked in reranker.asked] == [True, False, False]


@pytest.mark.parametrize(("scores", "expected"), [("probability", 1.0), ("logit", 1 / (1 + math.exp(-1)))])
async def test_what_the_scores_are_can_be_said_and_is_then_not_asked(grade: Grader, scores: Any, expected: float) -> None:
    reranker = WordEncoder()

    grades = await grade(RerankerEvaluator(reranker, scores=scores))

    assert grades[0].probability == pytest.approx(expected)
    assert len(reranker.asked) == 1


async def test_a_probability_out_of_range_is_a_failure_that_names_the_way_out(grade: Grader) -> None:
    evaluator = RerankerEvaluator(WordEncoder(logits=True), scores="probability")

    with pytest.raises(GradingError, match='scores="logit"') as caught:
        await grade(evaluator)

    assert caught.value.reason == "invalid_reply"


async def test_a_probability_that_is_out_of_range_by_rounding_only_is_held(grade: Grader) -> None:
    encoder = WordEncoder(read=lambda shares: [share * 1.0000002 - 1e-9 for share in shares])

    grades = await grade(RerankerEvaluator(encoder))

    assert all(0 <= (g.probability or 0) <= 1 for g in grades)


async def test_a_cap_of_the_reranker_is_lifted_in_a_copy(grade: Grader) -> None:
    reranker = WordReranker(top_n=1)

    grades = await grade(RerankerEvaluator(reranker))

    assert probabilities(grades) == pytest.approx(SHARES, abs=0.001)
    assert reranker.top_n == 1


async def test_what_the_reranker_leaves_out_is_incorrect_and_the_reason_says_so(grade: Grader) -> None:
    grades = await grade(RerankerEvaluator(WordReranker(floor=0.5)))

    assert [(g.probability, g.label, g.reason) for g in grades[1:]] == [(0.0, "incorrect", "left out")] * 2
    assert grades[0].label == "relevant"


async def test_a_reranker_that_leaves_out_everything_calls_everything_incorrect(grade: Grader) -> None:
    grades = await grade(RerankerEvaluator(WordReranker(floor=2.0)))

    assert {g.label for g in grades} == {"incorrect"}


async def test_all_passages_are_scored_in_one_call_and_blank_ones_in_none(grade: Grader) -> None:
    reranker = WordEncoder()
    evaluator = RerankerEvaluator(reranker, scores="probability")
    blank = [Passage(id="blank", text=" \n"), Passage(id="unseen", text="\u200b", title="a title alone says nothing")]

    grades = await grade(evaluator, [*PASSAGES, *blank])
    only_blank = await grade(evaluator, blank)

    assert [len(asked) for asked in reranker.asked] == [3]
    assert [(g.probability, g.reason) for g in (*grades[3:], *only_blank)] == [(0.0, "empty")] * 4
    assert await grade(evaluator, ()) == ()


async def test_title_and_clipped_text_are_scored(grade: Grader) -> None:
    reranker = WordEncoder()
    long = Passage(id="long", text="x " * 30_000 + "Milvus port", title="Manual")

    await grade(RerankerEvaluator(reranker, scores="probability", max_passage_chars=500), [long])

    ((_, text),) = reranker.asked[0]
    assert text.startswith("Manual\nx x")
    assert text.endswith("Milvus port")
    assert len(text) < 600


async def test_one_text_under_two_ids_is_graded_twice(grade: Grader) -> None:
    twins = [Passage(id="a", text="Milvus port"), Passage(id="b", text="Milvus port")]

    first, second = await grade(RerankerEvaluator(WordReranker(top_n=None)), twins)

    assert (first.passage_id, second.passage_id) == ("a", "b")
    assert first.probability == second.probability


@pytest.mark.parametrize(
    "read",
    [
        lambda scores: scores[:-1],
        lambda scores: [],
        lambda scores: [math.nan] * len(scores),
        lambda scores: [math.inf] * len(scores),
        lambda scores: [None] * len(scores),
        lambda scores: ["high"] * len(scores),
        lambda scores: [[0.1, 0.9]] * len(scores),
        lambda scores: None,
    ],
)
async def test_scores_that_are_none_are_a_failure_c045(grade: Grader, read: Any) -> None:
    with pytest.raises(GradingError):
        await grade(RerankerEvaluator(WordEncoder(read=read)))


@pytest.mark.parametrize("reranker", [WordReranker(key="score"), WordReranker(loses_metadata=True)])
async def test_a_compressor_without_scores_or_metadata_is_a_failure(grade: Grader, reranker: Any) -> None:
    with pytest.raises(GradingError, match="the reranker must") as caught:
        await grade(RerankerEvaluator(reranker))

    assert caught.value.reason == "invalid_reply"


class StatusError(Exception):
    """What a hosted reranker's client raises."""

    status_code = 401


@pytest.mark.parametrize(
    ("error", "reason"),
    [(StatusError(), "unauthorized"), (TimeoutError(), "timeout"), (ConnectionError(), "unavailable"), (RuntimeError("secret"), "failed")],
)
async def test_a_failure_has_a_reason_and_no_private_text_c051(grade: Grader, error: Exception, reason: str) -> None:
    def fail(scores: object) -> None:
        raise error

    with pytest.raises(GradingError, match="the reranker could not grade") as caught:
        await grade(RerankerEvaluator(WordEncoder(read=fail)))

    assert caught.value.reason == reason
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


async def test_control_flow_of_the_framework_passes_through(grade: Grader) -> None:
    def interrupt(scores: object) -> None:
        raise GraphInterrupt(())

    with pytest.raises(GraphBubbleUp):
        await grade(RerankerEvaluator(WordEncoder(read=interrupt)))


async def test_the_async_form_leaves_the_event_loop_free() -> None:
    begun, free = threading.Event(), threading.Event()

    def slow(scores: list[float]) -> list[float]:
        begun.set()
        assert free.wait(5)
        return scores

    task = asyncio.create_task(RerankerEvaluator(WordEncoder(read=slow), scores="probability").agrade(QUESTION, PASSAGES))
    assert await asyncio.to_thread(begun.wait, 5)
    free.set()

    assert len(await task) == 3


@pytest.mark.parametrize(
    ("reranker", "model"),
    [(WordEncoder(), "word-encoder"), (WordReranker(), "word-reranker"), (EncoderReranker(model=WordEncoder()), "word-encoder")],
)
def test_its_key_names_the_rerankers_model_and_it_brings_its_own_thresholds(reranker: Any, model: str) -> None:
    evaluator = RerankerEvaluator(reranker)

    assert evaluator.key == EvaluatorKey("RerankerEvaluator", model, VERSION)
    assert evaluator.thresholds == RERANKER_THRESHOLDS
    calibration_of(evaluator)


@pytest.mark.parametrize(
    ("reranker", "options"), [("cohere", {}), (WordEncoder(), {"scores": "cosine"}), (WordEncoder(), {"max_passage_chars": 0})]
)
def test_arguments_that_can_not_work_are_refused_when_built(reranker: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be"):
        RerankerEvaluator(reranker, **options)
