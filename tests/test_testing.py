"""The suites that `crag_middleware.testing` offers: every adapter of ours passes them, and every check of them can fail."""

import asyncio
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import crag_middleware.testing
from crag_middleware.adapters.cascade import CascadeEvaluator
from crag_middleware.adapters.chat_model import ChatModelEvaluator, ChatModelRewriter
from crag_middleware.adapters.embedding_evaluator import EmbeddingEvaluator
from crag_middleware.adapters.embedding_reranker import EmbeddingReranker
from crag_middleware.adapters.local_embeddings import LocalEmbeddings
from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.adapters.reranker import ModelReranker
from crag_middleware.adapters.reranker_evaluator import RerankerEvaluator
from crag_middleware.adapters.tavily import TavilyWebSearch
from crag_middleware.adapters.token_probability import TokenProbabilityEvaluator
from crag_middleware.calibration import Calibration, PlattMap
from crag_middleware.errors import CRAGError, TenantError
from crag_middleware.stages.refine import WordRefiner
from crag_middleware.testing import (
    EvaluatorSuite,
    RefinerSuite,
    RerankerSuite,
    RetrieverSuite,
    RewriterSuite,
    ScriptedEvaluator,
    ScriptedRetriever,
    ScriptedRewriter,
    ScriptedWebSearch,
    WebSearchSuite,
)
from crag_middleware.types import EvaluatorKey, Exchange, Grade, Passage, Strip
from tests.support import milvus as support
from tests.support.chat_server import ChatServer, serve_chat, wants_answer
from tests.support.milvus import TENANT, insert, make_collection, open_store
from tests.support.rerankers import WordEncoder, WordReranker
from tests.support.web_server import WebServer, page, results

lite_uri = support.lite_uri


# --- Every evaluator of ours


def about_the_port(text: str) -> bool:
    return "19530" in text


def grades_each(asked: Mapping[str, Any]) -> str:
    """A grader that looks for the port in each passage."""
    shown = asked["messages"][-1]["content"].split("<passage ")[1:]
    grades = [{"passage": n, "label": "relevant", "confidence": 0.97} for n, text in enumerate(shown, 1) if about_the_port(text)]
    grades += [{"passage": n, "label": "incorrect", "confidence": 0.02} for n, text in enumerate(shown, 1) if not about_the_port(text)]
    return json.dumps({"grades": grades})


def finds_the_port(asked: Mapping[str, Any]) -> Sequence[tuple[str, float]]:
    """The first tokens of a model that reads the port off a passage, and says whether it is there."""
    there, not_there = ("19530", "None") if wants_answer(asked) else ("Yes", "No")
    found = about_the_port(asked["messages"][-1]["content"])
    return [(there, -0.1), (not_there, -2.4)] if found else [(not_there, -0.01), (there, -4.6)]


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with serve_chat(replies=[grades_each], tokens=finds_the_port) as running:
        yield running


@pytest.fixture(scope="module")
def offline() -> EmbeddingEvaluator:
    return EmbeddingEvaluator(LocalEmbeddings())


class TestScriptedEvaluator(EvaluatorSuite):
    @pytest.fixture
    def evaluator(self) -> Any:
        return ScriptedEvaluator({"p3": 0.1, "odd-1": None})


class TestEmbeddingEvaluator(EvaluatorSuite):
    @pytest.fixture
    def evaluator(self, offline: EmbeddingEvaluator) -> Any:
        return offline


class TestChatModelEvaluator(EvaluatorSuite):
    @pytest.fixture
    def evaluator(self, server: ChatServer) -> Any:
        return ChatModelEvaluator(server.model())


class TestTokenProbabilityEvaluator(EvaluatorSuite):
    @pytest.fixture
    def evaluator(self, server: ChatServer) -> Any:
        return TokenProbabilityEvaluator(server.model())


class TestRerankerEvaluatorOnACrossEncoder(EvaluatorSuite):
    @pytest.fixture
    def evaluator(self) -> Any:
        return RerankerEvaluator(WordEncoder(logits=True))


class TestRerankerEvaluatorOnACompressor(EvaluatorSuite):
    @pytest.fixture
    def evaluator(self) -> Any:
        return RerankerEvaluator(WordReranker())


class TestCascadeEvaluator(EvaluatorSuite):
    @pytest.fixture
    def evaluator(self, server: ChatServer) -> Any:
        return CascadeEvaluator(RerankerEvaluator(WordEncoder()), server.model())


# --- Every other port


class TestScriptedRetriever(RetrieverSuite):
    @pytest.fixture
    def retriever(self) -> Any:
        own = [Passage(id="a1", text="one"), Passage(id="a2", text="two")]
        return ScriptedRetriever({self.agent_id: own, self.other_agent_id: [Passage(id="b1", text="three")]})


class TestMilvusRetriever(RetrieverSuite):
    @pytest.fixture
    def retriever(self, lite_uri: str) -> Any:
        client = make_collection(lite_uri, "suite", {"agent_id": TENANT})
        texts = {"a1": "Milvus listens on port 19530.", "a2": "The port can be changed.", "b1": "Our Milvus listens on port 1."}
        rows = [{"id": i, "text": text, "agent_id": self.other_agent_id if i == "b1" else self.agent_id} for i, text in texts.items()]
        insert(client, "suite", rows)
        return MilvusRetriever(open_store(lite_uri, "suite"))


class TestScriptedWebSearch(WebSearchSuite):
    @pytest.fixture
    def web_search(self) -> Any:
        return ScriptedWebSearch([Passage(id="w1", text="one"), Passage(id="w2", text="two")])


class TestTavilyWebSearch(WebSearchSuite):
    @pytest.fixture
    def web_search(self) -> Any:
        with WebServer(results(page(path="/1"), page(path="/2"))) as running:
            yield TavilyWebSearch(api_key="tvly-test", api_base_url=running.url)


class TestScriptedRewriter(RewriterSuite):
    @pytest.fixture
    def rewriter(self) -> Any:
        return ScriptedRewriter("price of plan B")


def rewrites(asked: Mapping[str, Any]) -> str:
    """What a rewriter's model replies to each of its prompts."""
    system = asked["messages"][0]["content"]
    if "make it up" in system:
        return '["What does plan A cost?", "When did plan B begin?"]'
    return "Plan A costs 5 a month. Plan B began in May." if "sentences" in system else "What does plan B cost?"


class TestChatModelRewriter(RewriterSuite):
    @pytest.fixture
    def rewriter(self) -> Any:
        with serve_chat(replies=[rewrites]) as running:
            yield ChatModelRewriter(running.model())

    def test_its_model_is_asked_for_what_it_may_have_besides(self, rewriter: Any) -> None:
        assert len(rewriter.decompose(self.compound)) == 2
        assert rewriter.hypothetical(self.compound).startswith("Plan A costs")


class TestModelRerankerOnACrossEncoder(RerankerSuite):
    @pytest.fixture
    def reranker(self) -> Any:
        return ModelReranker(WordEncoder(logits=True), floor=-4.0, batch_size=2)


class TestModelRerankerOnACompressor(RerankerSuite):
    @pytest.fixture
    def reranker(self) -> Any:
        return ModelReranker(WordReranker(floor=0.1))


class TestEmbeddingReranker(RerankerSuite):
    tolerance = 1e-4

    @pytest.fixture
    def reranker(self) -> Any:
        return EmbeddingReranker(LocalEmbeddings())


class TestWordRefiner(RefinerSuite):
    @pytest.fixture
    def refiner(self) -> Any:
        return WordRefiner()


# --- Every check can fail


class Good:
    """An evaluator without a fault; the others below have one each."""

    def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        return [Grade(passage_id=p.id, probability=self.probability(p), label="ambiguous") for p in passages]

    def probability(self, passage: Passage) -> float | None:
        return 0.5


def bad(**faults: Any) -> Any:
    """A good evaluator but for these attributes."""
    return type("Bad", (Good,), faults)()


def grading(grade: Any) -> Any:
    """A faulty `grade(question, passages)`."""
    return bad(grade=lambda self, question, passages: grade(question, passages))


def plain(passages: Sequence[Passage]) -> list[Grade]:
    return list(Good().grade("", passages))


class Counter(Good):
    """Gives every call another probability."""

    calls = 0

    def probability(self, passage: Passage) -> float | None:
        self.calls += 1
        return 1 / (1 + self.calls)


class ByPlace(Good):
    def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        return [Grade(passage_id=p.id, probability=1 / n, label="ambiguous") for n, p in enumerate(passages, 1)]


class Writes(Good):
    def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        if isinstance(passages, list):
            passages.sort(key=lambda p: p.text)
        return super().grade(question, passages)


class WritesMetadata(Good):
    def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        for p in passages:
            p.metadata["seen"] = True  # type: ignore[index]  # wrong on purpose
        return super().grade(question, passages)


class DiffersAsync(Good):
    async def agrade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        return [replace(g, probability=0.6) for g in self.grade(question, passages)]


class OneLoopOnly(Good):
    """Its async form keeps the event loop that it first ran on."""

    def __init__(self) -> None:
        self.loop: Any = None

    async def agrade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        self.loop = self.loop or asyncio.get_running_loop()
        assert self.loop is asyncio.get_running_loop(), "Event loop is closed"
        return self.grade(question, passages)


class WantsMore(Good):
    def grade(self, question: str, passages: Sequence[Passage], *, collection: str) -> Sequence[Grade]:  # type: ignore[override]
        return super().grade(question, passages)


class ChangingKey(Good):
    asked = 0

    @property
    def key(self) -> EvaluatorKey:
        return EvaluatorKey("ChangingKey", str(self.asked))

    def grade(self, question: str, passages: Sequence[Passage]) -> Sequence[Grade]:
        self.asked += 1
        return super().grade(question, passages)


FOREIGN = Calibration(
    evaluator="Another", map=PlattMap(slope=1, offset=0), thresholds=(0.1, 0.9), fitted_on="nothing", pairs=0, questions=0
)

EVERY = "test_every_passage_gets_one_grade"
NONE = "test_no_passages_get_no_grades"
SINGLE = "test_a_single_passage_is_graded"
ODD = "test_odd_passages_are_graded"
ODD_QUESTION = "test_odd_questions_are_graded"
ORDER = "test_the_order_of_passages_does_not_matter"
EVERYWHERE = "test_it_gives_the_same_sync_and_async_from_threads_and_event_loops"
UNTOUCHED = "test_what_it_is_given_stays_as_it_was"
SIGNATURE = "test_it_can_be_called_with_what_is_offered"
THRESHOLDS = "test_its_thresholds_are_sound"
KEY = "test_its_key_says_whose_probabilities_they_are"


def no_empty(question: str, passages: Sequence[Passage]) -> list[Grade]:
    return [Grade(passages[0].id, 0.5, "ambiguous"), *plain(passages[1:])]


BAD_EVALUATORS = [
    (EVERY, grading(lambda q, ps: plain(ps[1:]))),
    (EVERY, grading(lambda q, ps: plain([*ps, *ps]))),
    (EVERY, grading(lambda q, ps: [replace(g, passage_id=f"{g.passage_id}!") for g in plain(ps)])),
    (EVERY, grading(lambda q, ps: [replace(g, probability=1.2) for g in plain(ps)])),
    (EVERY, grading(lambda q, ps: [replace(g, probability=float("nan")) for g in plain(ps)])),
    (EVERY, grading(lambda q, ps: [replace(g, probability="0.5") for g in plain(ps)])),
    (EVERY, grading(lambda q, ps: [replace(g, label="good") for g in plain(ps)])),
    (EVERY, grading(lambda q, ps: [0.5 for _ in ps])),
    (EVERY, grading(lambda q, ps: None)),
    (EVERY, grading(lambda q, ps: iter(plain(ps)))),
    (NONE, grading(no_empty)),
    (SINGLE, grading(lambda q, ps: plain(ps) if len(ps) != 1 else [])),
    (ODD, grading(lambda q, ps: plain([p for p in ps if p.text.strip()]))),
    (ODD, grading(lambda q, ps: list({p.text: g for p, g in zip(ps, plain(ps), strict=True)}.values()))),
    (ODD, grading(lambda q, ps: [p.text.encode("ascii") for p in ps] and plain(ps))),
    (ODD_QUESTION, grading(lambda q, ps: plain(ps) if q else [])),
    (ODD_QUESTION, grading(lambda q, ps: q.encode("ascii") and plain(ps))),
    (ORDER, ByPlace()),
    (EVERYWHERE, Counter()),
    (EVERYWHERE, DiffersAsync()),
    (EVERYWHERE, OneLoopOnly()),
    (UNTOUCHED, Writes()),
    (UNTOUCHED, WritesMetadata()),
    (SIGNATURE, WantsMore()),
    (THRESHOLDS, bad(thresholds=(0.9, 0.1))),
    (THRESHOLDS, bad(thresholds=0.5)),
    (KEY, bad(key="mine")),
    (KEY, bad(key=EvaluatorKey(""))),
    (KEY, bad(key=EvaluatorKey("Mine", model=None))),  # type: ignore[arg-type]  # wrong on purpose
    (KEY, bad(calibration=FOREIGN)),
    (KEY, ChangingKey()),
]


def checks(suite: type) -> set[str]:
    return {name for name in dir(suite) if name.startswith("test_")}


@pytest.mark.parametrize(("check", "evaluator"), BAD_EVALUATORS)
def test_a_bad_evaluator_is_caught(check: str, evaluator: Any) -> None:
    with pytest.raises((AssertionError, CRAGError, UnicodeEncodeError, IndexError)):
        getattr(EvaluatorSuite(), check)(evaluator)


def test_each_check_of_evaluators_is_shown_to_fail_and_passes_a_good_one() -> None:
    assert {check for check, _ in BAD_EVALUATORS} == checks(EvaluatorSuite)
    for check in checks(EvaluatorSuite):
        getattr(EvaluatorSuite(), check)(Good())


def test_what_an_evaluator_does_not_claim_is_not_asked_of_it() -> None:
    class Lenient(EvaluatorSuite):
        order_free = False
        deterministic = False

    getattr(Lenient(), ORDER)(ByPlace())
    getattr(Lenient(), EVERYWHERE)(Counter())


ONE, TWO, OTHER = Passage(id="1", text="one"), Passage(id="2", text="two"), Passage(id="3", text="three")


def retrieving(found: Any) -> Any:
    """A retriever that finds `found(agent_id, question)`."""
    return type("Bad", (), {"retrieve": lambda self, question, *, agent_id: found(agent_id, question)})()


def known(agent_id: str, question: str = "") -> list[Passage]:
    return {"suite": [ONE, TWO], "suite-other": [OTHER]}.get(agent_id, [])


SOUND, LIMIT, TENANTS = "test_it_finds_sound_passages_best_first", "test_it_keeps_to_the_limit", "test_tenants_see_their_own_passages_only"
ODD_SEARCH = "test_odd_questions_find_something_or_nothing"
shuffled = iter([[ONE, TWO], [TWO, ONE]] * 20)

BAD_RETRIEVERS = [
    (SOUND, retrieving(lambda a, q: [])),
    (SOUND, retrieving(lambda a, q: [ONE, ONE])),
    (SOUND, retrieving(lambda a, q: [replace(ONE, score="high"), TWO])),
    (SOUND, retrieving(lambda a, q: ["one", "two"])),
    (LIMIT, retrieving(known)),
    (TENANTS, retrieving(lambda a, q: [ONE, TWO])),
    (TENANTS, retrieving(lambda a, q: known(a) or [OTHER])),
    (TENANTS, retrieving(lambda a, q: [ONE, TWO] if a == "suite" else [])),
    (TENANTS, retrieving(lambda a, q: [replace(p, metadata={"agent_id": "x"}) for p in known(a)])),
    (ODD_SEARCH, retrieving(lambda a, q: known(a) if q.strip() else None)),
    (EVERYWHERE, retrieving(lambda a, q: next(shuffled))),
    (SIGNATURE, type("Bad", (), {"retrieve": lambda self, question, k: []})()),
]


def searching(found: Any) -> Any:
    return type("Bad", (), {"search": lambda self, query, **keywords: found(query)})()


BAD_WEB_SEARCHES = [
    ("test_it_finds_sound_pages", searching(lambda q: [])),
    ("test_it_finds_sound_pages", searching(lambda q: [ONE, ONE])),
    (LIMIT, searching(lambda q: [ONE, TWO])),
    ("test_odd_queries_find_something_or_nothing", searching(lambda q: [ONE, TWO] if q.isascii() else None)),
    (EVERYWHERE, searching(lambda q: next(shuffled))),
    (SIGNATURE, type("Bad", (), {"search": lambda self, query, k: []})()),
]


def rewriting(written: Any) -> Any:
    def rewrite(self: object, question: str, *, history: Sequence[Exchange], tried: Sequence[str]) -> Any:
        return written(question)

    return type("Bad", (), {"rewrite": rewrite})()


def also(**methods: Any) -> Any:
    """A good rewriter but for what it has besides."""
    return type("Bad", (ScriptedRewriter,), methods)("price of plan B")


numbers = iter(range(1000))
FEW_PARTS = "test_the_parts_of_a_question_are_few_and_differ_from_it"
A_PASSAGE = "test_a_hypothetical_passage_is_text_other_than_the_question"

BAD_REWRITERS = [
    ("test_a_follow_up_becomes_text", rewriting(lambda q: " ")),
    ("test_a_follow_up_becomes_text", rewriting(lambda q: None)),
    ("test_another_query_differs_from_those_tried", rewriting(lambda q: q)),
    (EVERYWHERE, rewriting(lambda q: f"{q} {next(numbers)}")),
    (SIGNATURE, type("Bad", (), {"rewrite": lambda self, question, language: "q"})()),
    (FEW_PARTS, also(decompose=lambda self, question: [question])),
    (FEW_PARTS, also(decompose=lambda self, question: ["a", "a"])),
    (FEW_PARTS, also(decompose=lambda self, question: ["a", "b", "c", "d"])),
    (FEW_PARTS, also(decompose=lambda self, question: ["a", " "])),
    (FEW_PARTS, also(decompose=lambda self, question: "ab")),
    (FEW_PARTS, also(decompose=lambda self, question, language: [])),
    (A_PASSAGE, also(hypothetical=lambda self, question: question)),
    (A_PASSAGE, also(hypothetical=lambda self, question: " ")),
    (A_PASSAGE, also(hypothetical=lambda self, question: None)),
]


def scoring(scored: Any, **faults: Any) -> Any:
    """A reranker whose scores are `scored(passages)`."""
    return type("Bad", (), {"rerank": lambda self, question, passages: scored(passages), **faults})()


def lengths(passages: Sequence[Passage]) -> list[float | None]:
    return [float(len(p.text)) for p in passages]


class Reverses:
    def rerank(self, question: str, passages: Any) -> Sequence[float | None]:
        if isinstance(passages, list):
            passages.reverse()
        return lengths(passages)


SCORED, ODD_SCORED = "test_every_passage_gets_a_score_or_none", "test_odd_passages_and_questions_are_scored"
BAD_RERANKERS = [
    (SCORED, scoring(lambda ps: lengths(ps[1:]))),
    (SCORED, scoring(lambda ps: [None for _ in ps])),
    (SCORED, scoring(lambda ps: [float("nan") for _ in ps])),
    (SCORED, scoring(lambda ps: ["0.5" for _ in ps])),
    (SCORED, scoring(lambda ps: "123")),
    ("test_no_passages_get_no_scores", scoring(lambda ps: lengths(ps) or [0.0])),
    (ODD_SCORED, scoring(lambda ps: [len(p.text) for p in ps if p.text.strip()])),
    ("test_scores_stand_in_the_passages_order", scoring(lambda ps: sorted(lengths(ps), reverse=True))),
    (EVERYWHERE, scoring(lambda ps: [next(numbers) for _ in ps])),
    (UNTOUCHED, Reverses()),
    (SIGNATURE, type("Bad", (), {"rerank": lambda self, question, passages, k: lengths(passages)})()),
    ("test_its_floor_is_a_number_or_none", scoring(lengths, floor="high")),
    ("test_its_floor_is_a_number_or_none", scoring(lengths, floor=float("nan"))),
]


def test_each_check_of_rerankers_passes_a_good_one() -> None:
    for check in checks(RerankerSuite):
        getattr(RerankerSuite(), check)(scoring(lengths))


def refining(picked: Any) -> Any:
    """A refiner that picks `picked(passage)` of each passage."""
    return type("Bad", (), {"refine": lambda self, question, passages: [picked(p) for p in passages]})()


class Sorts:
    def refine(self, question: str, passages: Any) -> Sequence[Sequence[Strip]]:
        if isinstance(passages, list):
            passages.reverse()
        return [[] for _ in passages]


WORD_FOR_WORD, ODD_REFINE = "test_strips_stand_in_their_passage_word_for_word", "test_odd_passages_and_questions_are_refined"
BAD_REFINERS = [
    (WORD_FOR_WORD, refining(lambda p: [Strip("other words", 0, 11)])),
    (WORD_FOR_WORD, refining(lambda p: [Strip("", 0, 0)])),
    (WORD_FOR_WORD, refining(lambda p: [Strip(p.text[:5], 0, 5), Strip(p.text[3:8], 3, 8)])),
    (WORD_FOR_WORD, type("Bad", (), {"refine": lambda self, q, ps: []})()),
    ("test_no_passages_give_no_strips", type("Bad", (), {"refine": lambda self, q, ps: [[] for _ in ps] or [[]]})()),
    (ODD_REFINE, refining(lambda p: [Strip(p.text[:1], 0, 1)])),
    (EVERYWHERE, refining(lambda p: [Strip(p.text[(n := next(numbers) % 9) : n + 1], n, n + 1)])),
    (UNTOUCHED, Sorts()),
    (SIGNATURE, type("Bad", (), {"refine": lambda self, question: []})()),
]


@pytest.mark.parametrize(
    ("suite", "check", "port"),
    [
        (suite, check, port)
        for suite, cases in (
            (RetrieverSuite, BAD_RETRIEVERS),
            (WebSearchSuite, BAD_WEB_SEARCHES),
            (RewriterSuite, BAD_REWRITERS),
            (RerankerSuite, BAD_RERANKERS),
            (RefinerSuite, BAD_REFINERS),
        )
        for check, port in cases
    ],
)
def test_a_bad_port_of_another_kind_is_caught(suite: Any, check: str, port: Any) -> None:
    with pytest.raises((AssertionError, CRAGError, TenantError)):
        getattr(suite(), check)(port)


@pytest.mark.parametrize(
    ("suite", "cases"),
    [
        (RetrieverSuite, BAD_RETRIEVERS),
        (WebSearchSuite, BAD_WEB_SEARCHES),
        (RewriterSuite, BAD_REWRITERS),
        (RerankerSuite, BAD_RERANKERS),
        (RefinerSuite, BAD_REFINERS),
    ],
)
def test_each_check_of_the_other_ports_is_shown_to_fail(suite: type, cases: Sequence[tuple[str, Any]]) -> None:
    assert {check for check, _ in cases} == checks(suite)


def test_the_scripted_models_need_no_pytest() -> None:
    sources = [path.read_text(encoding="utf-8") for path in Path(crag_middleware.testing.__path__[0]).glob("*.py")]

    assert sources
    assert not any(re.search(r"^\s*(import|from) pytest", source, re.MULTILINE) for source in sources)
