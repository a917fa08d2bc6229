"""Picking strips by meaning and words: on real embeddings, on embeddings that misbehave, and inside whole agents."""

import asyncio
import json
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langgraph.errors import GraphInterrupt

from crag_middleware import EmbeddingEvaluator, EmbeddingRefiner, LocalEmbeddings, WordRefiner
from crag_middleware.errors import ConfigError, RefineError
from crag_middleware.ports import Refiner
from crag_middleware.stages.sentences import split
from crag_middleware.stages.worth import VERSION
from crag_middleware.testing import RefinerSuite, ScriptedEvaluator, ScriptedWebSearch
from crag_middleware.types import EvaluatorKey, Passage, Strip
from tests.support.agents import agent_with, ask, both, crag, passage

SHOP = "Our shop was founded in Lima. It sells shoes. You can return an item within 30 days of delivery. The canteen serves soup. Parking is free."
MILVUS = "Milvus is a vector database. Its logo shows a bird. The default port of the server is 19530. Data lives in object storage. Bread needs salt."
PASSAGES = (Passage(id="shop", text=SHOP), Passage(id="milvus", text=MILVUS))
VECTORS: dict[Any, Any] = {}
"""Of the passages, so that they are embedded once for several tests."""


class Counted(Embeddings):
    """The real ones, and what they were asked for."""

    def __init__(self) -> None:
        self.inner = LocalEmbeddings()
        self.batches: list[list[str]] = []
        self.queries: list[str] = []

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.batches.append(texts)
        return self.inner.embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        self.queries.append(text)
        return self.inner.embed_query(text)


class Replies(Embeddings):
    """Answers questions and texts each in its own way; raises what is an exception."""

    def __init__(self, question: object, documents: object) -> None:
        self.question, self.documents = question, documents

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return _said(self.documents(texts) if callable(self.documents) else self.documents)

    def embed_query(self, text: str) -> list[float]:
        return _said(self.question)


def _said(reply: Any) -> Any:
    if isinstance(reply, BaseException):
        raise reply
    return reply


@pytest.fixture(scope="module")
def refiner() -> EmbeddingRefiner:
    return EmbeddingRefiner(LocalEmbeddings())


def texts(kept: Sequence[Sequence[Strip]]) -> list[list[str]]:
    return [[strip.text for strip in strips] for strips in kept]


class TestEmbeddingRefiner(RefinerSuite):
    """The suite of the port."""

    @pytest.fixture
    def refiner(self) -> EmbeddingRefiner:
        return EmbeddingRefiner(LocalEmbeddings())


class TestWordRefiner(RefinerSuite):
    """The suite of the port."""

    @pytest.fixture
    def refiner(self) -> WordRefiner:
        return WordRefiner()


# --- What a user builds


def test_it_is_a_refiner_that_waits_with_a_key_for_each_model(refiner: EmbeddingRefiner) -> None:
    assert isinstance(refiner, Refiner)
    assert not getattr(refiner, "instant", False), "embeddings take time: it is called in a thread"
    assert refiner.key == EvaluatorKey("EmbeddingRefiner", "use-multilingual-v3", VERSION)
    assert EmbeddingRefiner(DeterministicFakeEmbedding(size=4)).key.model == "DeterministicFakeEmbedding"


@pytest.mark.parametrize("embeddings", ["all-MiniLM", None, object(), LocalEmbeddings])
def test_something_else_than_embeddings_is_refused_when_built(embeddings: Any) -> None:
    with pytest.raises(ConfigError, match="embed_query"):
        EmbeddingRefiner(embeddings)


@pytest.mark.parametrize("max_strips", [0, -1, 2.5, "3", None, math.nan])
@pytest.mark.parametrize("build", [WordRefiner, lambda max_strips: EmbeddingRefiner(LocalEmbeddings(), max_strips=max_strips)])
def test_a_number_of_strips_that_can_not_work_is_refused_when_built(build: Callable[..., object], max_strips: Any) -> None:
    with pytest.raises(ConfigError, match="`max_strips` must be a whole number from 1 on, got"):
        build(max_strips=max_strips)


# --- What is picked


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("退货期限是多少天？", "You can return an item within 30 days of delivery."),
        ("食堂供应什么？", "The canteen serves soup."),
        ("停车收费吗？", "Parking is free."),
        ("服务器默认端口是多少？", "The default port of the server is 19530."),
        ("数据存放在哪里？", "Data lives in object storage."),
        ("How long may I wait before I send goods back?", "You can return an item within 30 days of delivery."),
    ],
)
def test_a_strip_is_found_across_languages_and_in_other_words(refiner: EmbeddingRefiner, question: str, answer: str) -> None:
    """C085: where words share nothing, meaning does; of the strips that don't open their passage, the answer is worth most."""
    kept = texts(refiner.refine(question, PASSAGES, memo=VECTORS))
    ranked = sorted(
        (strip for strips in refiner.rank(question, PASSAGES, memo=VECTORS) for strip in strips[1:]), key=lambda strip: -(strip.worth or 0)
    )

    assert any(answer in strips for strips in kept)
    assert ranked[0].text == answer
    assert sum(map(len, kept)) < sum(len(split(p.text)) for p in PASSAGES), "some strips are left out"


def test_no_passage_and_no_text_are_nothing_to_pick_from() -> None:
    embeddings = Counted()
    refiner = EmbeddingRefiner(embeddings)

    assert refiner.refine("port?", ()) == ()
    assert refiner.refine("port?", [Passage(id="1", text=" \n")]) == refiner.rank("port?", [Passage(id="1", text="")]) == ((),)
    assert texts(refiner.refine("port?", [Passage(id="1", text=""), Passage(id="2", text="A port.")])) == [[], ["A port."]]
    assert [len(embeddings.batches), len(embeddings.queries)] == [1, 1]


class Letters(Embeddings):
    """Cheap vectors that depend on a text alone: how often it has some letters."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [float(text.count(letter)) for letter in "aeft7退天"]


PIECES = [
    "Refunds take 7 days.",
    "They are free.",
    "退款在七天内到账。",
    "但不含运费。",
    "- item",
    "# v2.1",
    "Which:",
    "A fat cat.",
    "| a | b |",
    "\x00 🚀",
    "x" * 500,
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=5).map("\n".join)


@given(st.sampled_from(["When are refunds free?", "退款几天到账？", ""]), st.lists(TEXTS, max_size=4), st.integers(1, 3))
@settings(max_examples=100, deadline=None)
def test_every_strip_is_ranked_and_those_picked_are_no_more_than_asked(question: str, given_: list[str], most: int) -> None:
    passages = [Passage(id=str(n), text=text) for n, text in enumerate(given_)]
    refiner = EmbeddingRefiner(Letters(), max_strips=most)

    picked, ranked = refiner.refine(question, passages), refiner.rank(question, passages)

    assert [list(strips) for strips in ranked] == [list(split(p.text)) for p in passages]
    assert all(0 <= (strip.worth or 0) < 1 for strips in ranked for strip in strips)
    for strips, of_all in zip(picked, ranked, strict=True):
        chosen = [strip for strip in strips if strip.why == "chosen"]
        assert set(strips) <= set(of_all)
        assert bool(of_all) <= len(chosen) <= most
        assert [s.start for s in strips] == sorted(s.start for s in strips)
    assert refiner.refine(question, passages) == picked


# --- What is embedded


def test_all_strips_are_embedded_in_one_batch_each_text_once() -> None:
    embeddings = Counted()

    EmbeddingRefiner(embeddings).refine("port?", [*PASSAGES, Passage(id="again", text="Parking is free. Parking is free. The port is 1.")])

    (batch,) = embeddings.batches
    assert batch == [strip.text for p in PASSAGES for strip in split(p.text)] + ["The port is 1."]
    assert embeddings.queries == ["port?"]


def test_with_the_same_memo_nothing_is_embedded_twice() -> None:
    embeddings, memo = Counted(), dict[Any, Any]()
    refiner = EmbeddingRefiner(embeddings)

    first = refiner.refine("port?", PASSAGES, memo=memo)
    assert refiner.refine("port?", PASSAGES, memo=memo) == first
    refiner.rank("port?", PASSAGES[:1], memo=memo)
    assert [len(embeddings.batches), len(embeddings.queries)] == [1, 1]

    refiner.refine("port?", [*PASSAGES, Passage(id="new", text="Parking is free. A new port.")], memo=memo)
    refiner.refine("ports?", PASSAGES, memo=memo)

    assert embeddings.batches[1:] == [["A new port."]]
    assert embeddings.queries == ["port?", "ports?"]


@pytest.mark.parametrize("memo", [None, {}])
def test_without_the_same_memo_everything_is_embedded_anew_and_comes_out_the_same(memo: Any) -> None:
    embeddings = Counted()
    refiner = EmbeddingRefiner(embeddings)

    found = [refiner.refine("port?", PASSAGES, memo=None if memo is None else {}) for _ in range(2)]

    assert found[0] == found[1]
    assert [len(embeddings.batches), len(embeddings.queries)] == [2, 2]


def test_two_embeddings_never_share_a_vector_of_one_memo() -> None:
    memo: dict[Any, Any] = {}
    for embeddings in (LocalEmbeddings(), DeterministicFakeEmbedding(size=4)):
        alone = EmbeddingRefiner(embeddings).rank("port?", PASSAGES)
        shared = EmbeddingRefiner(embeddings).rank("port?", PASSAGES, memo=memo)

        assert [[s.worth for s in strips] for strips in shared] == [[s.worth for s in strips] for strips in alone]


def test_vectors_of_any_length_and_kind_of_number_give_the_same() -> None:
    numpy = pytest.importorskip("numpy")

    def of(kind: Callable[[list[float]], Any]) -> list[float | None]:
        inner = Letters()
        refiner = EmbeddingRefiner(
            Replies(kind(inner.embed_query("refunds at once")), lambda some: [kind(inner.embed_query(t)) for t in some])
        )
        return [strip.worth for strips in refiner.rank("refunds at once", PASSAGES) for strip in strips]

    plain = of(list)

    for kind in (
        tuple,
        lambda v: [3 * x for x in v],
        lambda v: numpy.array(v, dtype="float32"),
        lambda v: numpy.array(v, dtype="float16"),
        lambda v: [numpy.float64(x) for x in v],
    ):
        assert of(kind) == pytest.approx(plain, abs=1e-6)
    assert all(type(worth) is float for worth in of(lambda v: numpy.array(v, dtype="float32")))


# --- Failures


SOUND = [1.0, 0.0]


@pytest.mark.parametrize(
    ("question", "documents"),
    [
        *((question, lambda some: [SOUND] * len(some)) for question in (None, [], "abc", ["a", "b"], [None, 1.0], [1.0], [1.0, math.nan], [10**400, 1], 7)),
        *(
            (SOUND, documents)
            for documents in (
                None,
                [],
                "ab",
                7,
                {},
                lambda some: [SOUND] * (len(some) - 1),
                lambda some: [SOUND] * (len(some) + 1),
                lambda some: [[]] * len(some),
                lambda some: [None] * len(some),
                lambda some: [["secret"]] * len(some),
                lambda some: [[math.inf, 0.0]] * len(some),
                lambda some: [[math.nan, 0.0]] * len(some),
                lambda some: [[1.7e308, 1.7e308]] * len(some),
                lambda some: [SOUND, *[[1.0, 0.0, 0.0]] * (len(some) - 1)],
                lambda some: (SOUND for _ in some),
            )
        ),
    ],
)  # fmt: skip
def test_what_are_no_vectors_of_one_size_is_an_error(question: object, documents: object) -> None:
    for method in ("refine", "rank"):
        with pytest.raises(RefineError) as caught:
            getattr(EmbeddingRefiner(Replies(question, documents)), method)("secret question", PASSAGES)

        assert caught.value.reason == "invalid_reply"
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize(("question", "documents"), [(RuntimeError("secret"), []), (SOUND, ValueError("secret passage"))])
def test_embeddings_that_raise_are_an_error_without_private_text(question: object, documents: object) -> None:
    with pytest.raises(RefineError, match=r"the embeddings failed: (Runtime|Value)Error") as caught:
        EmbeddingRefiner(Replies(question, documents)).refine("secret question", PASSAGES)

    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__, "no traceback shows it"


@pytest.mark.parametrize("error", [GraphInterrupt(), KeyboardInterrupt(), asyncio.CancelledError()], ids=lambda e: type(e).__name__)
def test_control_flow_passes(error: BaseException) -> None:
    for embeddings in (Replies(error, []), Replies(SOUND, error)):
        with pytest.raises(type(error)):
            EmbeddingRefiner(embeddings).refine("q", PASSAGES)


def test_what_failed_is_not_remembered() -> None:
    memo: dict[Any, Any] = {}
    embeddings = Replies(SOUND, RuntimeError("down"))
    refiner = EmbeddingRefiner(embeddings)

    with pytest.raises(RefineError):
        refiner.refine("q", PASSAGES, memo=memo)
    embeddings.documents = lambda some: [SOUND] * len(some)

    assert all(refiner.refine("q", PASSAGES, memo=memo))


def test_vectors_of_zeros_and_embeddings_that_mean_nothing_raise_nothing() -> None:
    zeros = EmbeddingRefiner(Replies([0.0, 0.0], lambda some: [[0.0, 0.0]] * len(some)))

    assert "The default port of the server is 19530." in texts(zeros.refine("Which port?", PASSAGES))[1]
    assert all(EmbeddingRefiner(DeterministicFakeEmbedding(size=8)).refine("Which port?", PASSAGES))


# --- Threads, event loops, agents


def test_threads_and_event_loops_share_one_refiner_and_one_memo(refiner: EmbeddingRefiner) -> None:
    memo: dict[Any, Any] = {}
    expected = refiner.refine("Which port?", PASSAGES)
    barrier = threading.Barrier(4)

    def at_once(_: int) -> Any:
        barrier.wait(10)
        return refiner.refine("Which port?", PASSAGES, memo=memo)

    async def together() -> list[Any]:
        return await asyncio.gather(*(asyncio.to_thread(refiner.refine, "Which port?", PASSAGES, memo=memo) for _ in range(3)))

    with ThreadPoolExecutor(4) as pool:
        found = [*pool.map(at_once, range(4)), *asyncio.run(together()), *asyncio.run(together())]

    assert found == [expected] * 10


@both
def test_an_agent_s_model_sees_the_strips_near_in_meaning_and_the_receipt_tells_their_worth(how: str) -> None:
    agent, model = agent_with(crag([passage(SHOP, "shop")], refiner=EmbeddingRefiner(LocalEmbeddings(), max_strips=2)))

    receipt = ask(agent, "退货期限是多少天？", how)["crag"]

    seen = model.requests[0][-1].text
    assert "You can return an item within 30 days of delivery." in seen
    assert "Parking is free." not in seen
    strips = receipt["sources"][0]["strips"]
    assert all(0 < strip["worth"] < 1 and strip["why"] == "chosen" for strip in strips if "return" in strip["text"])
    assert receipt["calls"]["refiner"] == 1


@both
def test_knowledge_and_web_of_one_turn_share_vectors_and_two_turns_don_t(how: str) -> None:
    embeddings = Counted()
    page = Passage(
        id="page", text="Parking is free. The port of the web is 80.", origin="web", title="Ports", url="https://ports.example/x"
    )
    agent, _ = agent_with(
        crag(
            [passage(SHOP, "shop")],
            refiner=EmbeddingRefiner(embeddings),
            evaluator=ScriptedEvaluator(otherwise=0.7),
            web_search=ScriptedWebSearch([page]),
        ),
        replies=["ok", "ok"],
    )

    ask(agent, "Which port?", how)
    assert embeddings.batches[1:] == [["The port of the web is 80."]]
    assert len(embeddings.queries) == 1
    ask(agent, "Which port?", how)

    assert len(embeddings.queries) == 2
    assert embeddings.batches[2] == embeddings.batches[0]


@both
def test_embeddings_that_fail_leave_the_passages_whole_and_the_receipt_says_so(how: str, caplog: pytest.LogCaptureFixture) -> None:
    agent, model = agent_with(crag([passage(SHOP, "shop")], refiner=EmbeddingRefiner(Replies(SOUND, RuntimeError("secret")))))

    result = ask(agent, "Which port?", how)

    assert SHOP in model.requests[0][-1].text
    assert [trouble["step"] for trouble in result["crag"]["degraded"]] == ["refine"]
    assert "secret" not in json.dumps(result["crag"]) + caplog.text


def test_evaluator_and_refiner_on_the_same_embeddings_work_in_one_agent() -> None:
    embeddings = LocalEmbeddings()
    agent, model = agent_with(
        crag([passage(MILVUS, "milvus")], evaluator=EmbeddingEvaluator(embeddings), refiner=EmbeddingRefiner(embeddings)), replies=["ok"]
    )

    receipt = ask(agent, "What is the default port of the server?")["crag"]

    assert "The default port of the server is 19530." in model.requests[0][-1].text
    assert receipt["degraded"] == []
