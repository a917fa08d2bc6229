"""Grading without a chat model: similarity of meaning says what is off topic, words and names must agree before a passage is called relevant."""

import math
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from operator import mul
from statistics import fmean
from typing import Any

from langchain_core.embeddings import Embeddings
from langgraph.errors import GraphBubbleUp

from crag_middleware.errors import ConfigError, GradingError
from crag_middleware.settings import EMBEDDING_THRESHOLDS
from crag_middleware.stages.agreement import agree, has_names
from crag_middleware.stages.prompting import clip
from crag_middleware.stages.sentences import split
from crag_middleware.stages.words import language
from crag_middleware.types import Grade, Language, Passage, Thresholds

Vector = Sequence[float]

PROBES: dict[Language, tuple[tuple[str, str], ...]] = {
    "en": (
        ("How long does delivery take?", "Parcels arrive within three to five working days after the order was placed."),
        ("Who wrote the novel?", "The book was written by a schoolteacher from Lisbon and published in 1962."),
        ("How do I install the printer driver?", "Download the setup file for your printer, run it and follow the steps of the installer."),
        ("What is the boiling point of water?", "At sea level, water boils at 100 degrees Celsius."),
        ("When was the bridge built?", "Construction of the bridge began in 1931 and was finished four years later."),
        ("Can I cancel my subscription?", "You may end your subscription at any time from the billing page of your account."),
        (
            "Why do leaves change colour in autumn?",
            "In autumn trees break down chlorophyll, so that yellow and red pigments of the leaves show.",
        ),
        ("Which vitamins are in carrots?", "Carrots are rich in beta-carotene, which the body turns into vitamin A."),
    ),
    "zh": (
        ("送货需要多长时间？", "包裹在下单后三到五个工作日内送达。"),
        ("这部小说是谁写的？", "这本书由里斯本的一位教师写成，一九六二年出版。"),
        ("怎么安装打印机驱动？", "下载打印机的安装文件，运行后按照安装程序的提示操作。"),
        ("水的沸点是多少？", "在海平面上，水在一百摄氏度沸腾。"),
        ("这座桥是什么时候建的？", "大桥于一九三一年动工，四年后建成。"),
        ("可以取消订阅吗？", "您可以随时在账户的账单页面终止订阅。"),
        ("为什么树叶在秋天变色？", "秋天树木分解叶绿素，叶子里的黄色和红色色素便显现出来。"),
        ("胡萝卜含有哪些维生素？", "胡萝卜富含β-胡萝卜素，在体内可转化为维生素A。"),
    ),
}
"""Questions with their answers. Every model has its own scale, and one for each pair of languages: on ours, an answer to another question lies at 0 and
the answer to the question at 1.
"""

OFF_TOPIC = 0.3
"""Below this nearness a passage is `incorrect`. Measured with two models on hand-made pairs: all of the off-topic ones, 6 % of the relevant ones."""

NEAR = 0.6
NEAR_ACROSS_LANGUAGES = 1.1
"""From this nearness on a passage may be `relevant`; without common words, between a Chinese question and an English passage, more is asked."""

WORDS = 0.7
WORDS_WITHOUT_CAPITALS = 0.8
"""Share of the question's words that a relevant passage has; more where names can't be told from other words."""

FOREIGN = 0.65
"""What is left of the nearness of a passage that lacks a name or a number of the question."""

MIN_SCALE = 0.05
"""Least distance between 0 and 1 of our scale, for models that don't understand a language at all."""

CLIP_CHARS = 4000
WHOLE_CHARS = 1000
"""Longer passages are clipped before they are cut into sentences; shorter ones are also compared as a whole."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A sentence of a passage, and the text around it in which its answer may stand."""

    text: str
    window: str


class EmbeddingEvaluator:
    """Grades passages by embeddings, words and numbers: offline, without any model call.

    It tells off-topic passages well and calls a passage `relevant` only if it is near the question in meaning, has its words, all its names and numbers, and
    the kind of thing that is asked for. A passage on the same topic that has all of these and still no answer (a near-miss) is beyond it.

    Args:
        embeddings: Any LangChain embeddings; their scale is measured once, at the first grading in a language.

    Raises:
        ConfigError: These are no embeddings.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        if not callable(getattr(embeddings, "embed_query", None)) or not callable(getattr(embeddings, "embed_documents", None)):
            msg = f"`embeddings` must be LangChain embeddings with `embed_query` and `embed_documents`, got {type(embeddings).__name__}"
            raise ConfigError(msg)
        self._embeddings = embeddings
        self._asked: dict[Language, tuple[Vector, ...]] = {}
        self._answers: dict[Language, tuple[Vector, ...]] = {}
        self._lock = threading.Lock()

    @property
    def thresholds(self) -> Thresholds:
        """Where the probabilities are cut."""
        return EMBEDDING_THRESHOLDS

    def grade(self, question: str, passages: Sequence[Passage]) -> tuple[Grade, ...]:
        """One grade for each passage, in their order.

        Raises:
            GradingError: The embeddings failed, or returned what are no vectors of one size.
        """
        if not passages:
            return ()
        parts = [_parts(passage.text, question) for passage in passages]
        asked = self._query(question)
        found = iter(self._documents([part.text for some in parts for part in some]))
        return tuple(
            self._grade(question, asked, passage, some, [next(found) for _ in some]) for passage, some in zip(passages, parts, strict=True)
        )

    def _grade(self, question: str, asked: Vector, passage: Passage, parts: Sequence[_Part], vectors: Sequence[Vector]) -> Grade:
        if not parts:
            return Grade(passage_id=passage.id, probability=0.0, label="incorrect", reason="empty")
        languages = language(question), language(passage.text)
        near, best = max(zip((_dot(asked, v) for v in vectors), range(len(parts)), strict=True))
        near = self._on_our_scale(near, asked, *languages)
        head = "\n".join((passage.title, *(str(passage.metadata.get(key) or "") for key in ("section", "version"))))
        agreement = agree(question, f"{head}\n{parts[best].window}")
        if near > 0 and not agreement.names and not has_names(question, f"{head}\n{passage.text}"):
            near *= FOREIGN
        across = languages[0] != languages[1]
        enough_words = across or agreement.words >= (WORDS_WITHOUT_CAPITALS if question.islower() else WORDS)
        enough_near = near >= (NEAR_ACROSS_LANGUAGES if across else NEAR)
        lacks = [what for what, there in (("a name or number", agreement.names), ("what is asked for", agreement.kind)) if not there]
        reason = f"nearness {near:.2f}, words {agreement.words:.0%}{', lacks ' + ' and '.join(lacks) if lacks else ''}"
        if near < OFF_TOPIC:
            return Grade(
                passage_id=passage.id, probability=_between(0, 0.499, near, -OFF_TOPIC, OFF_TOPIC), label="incorrect", reason=reason
            )
        if enough_near and enough_words and not lacks:
            return Grade(passage_id=passage.id, probability=_between(0.91, 0.99, near, NEAR, 1.5), label="relevant", reason=reason)
        return Grade(passage_id=passage.id, probability=_between(0.5, 0.9, near, OFF_TOPIC, 1.2), label="ambiguous", reason=reason)

    def _on_our_scale(self, similarity: float, asked: Vector, asked_in: Language, written_in: Language) -> float:
        """Nearness: 0 for an answer to another question, 1 for the answer."""
        questions, answers = self._probes(asked_in, written_in)
        matched = fmean(_dot(q, a) for q, a in zip(questions, answers, strict=True))
        others = fmean(_dot(q, a) for i, q in enumerate(questions) for j, a in enumerate(answers) if i != j)
        background = fmean(_dot(asked, answer) for answer in answers)
        return (similarity - background) / max(matched - others, MIN_SCALE)

    def _probes(self, asked_in: Language, written_in: Language) -> tuple[tuple[Vector, ...], tuple[Vector, ...]]:
        """The vectors of probe questions and answers, embedded once."""
        with self._lock:
            if asked_in not in self._asked:
                self._asked[asked_in] = tuple(self._query(question) for question, _ in PROBES[asked_in])
            if written_in not in self._answers:
                self._answers[written_in] = self._documents([answer for _, answer in PROBES[written_in]])
            return self._asked[asked_in], self._answers[written_in]

    def _query(self, text: str) -> Vector:
        return _unit(_embedded(lambda: self._embeddings.embed_query(text)))

    def _documents(self, texts: list[str]) -> tuple[Vector, ...]:
        vectors = _embedded(lambda: self._embeddings.embed_documents(texts)) if texts else []
        if not isinstance(vectors, Collection) or len(vectors) != len(texts):
            got = len(vectors) if isinstance(vectors, Collection) else type(vectors).__name__
            msg = f"the embeddings must return a list with one vector for each of {len(texts)} texts, got {got}"
            raise GradingError(msg, reason="invalid_reply")
        return tuple(map(_unit, vectors))


def _embedded(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except GraphBubbleUp:
        raise
    except Exception as error:  # noqa: BLE001 - raised on as ours
        msg = f"the embeddings failed: {type(error).__name__}"
        # Not `from error`: models quote passages in theirs, and causes are printed with every traceback.
        raise GradingError(msg) from None


def _parts(text: str, question: str) -> list[_Part]:
    """The sentences of a passage, and a short passage as a whole."""
    text = clip(text, question, CLIP_CHARS)
    strips = split(text)
    last = len(strips) - 1
    parts = [_Part(s.text, text[strips[max(i - 1, 0)].start : strips[min(i + 1, last)].end]) for i, s in enumerate(strips)]
    return [*parts, _Part(text, text)] if len(parts) > 1 and len(text) <= WHOLE_CHARS else parts


def _unit(vector: Any) -> Vector:
    """What the embeddings gave for one text, at length 1."""
    try:
        size, length = len(vector), math.hypot(*vector)
    except (TypeError, ValueError, OverflowError):
        size, length = 0, math.nan
    if not size or not math.isfinite(length):
        msg = f"the embeddings must return a list of finite numbers for each text, got {type(vector).__name__} that is none"
        raise GradingError(msg, reason="invalid_reply")
    return [x / length for x in vector] if length else list(vector)


def _dot(a: Vector, b: Vector) -> float:
    if len(a) != len(b):
        msg = f"the embeddings must return vectors of one size, got {len(a)} and {len(b)} numbers"
        raise GradingError(msg, reason="invalid_reply")
    return float(sum(map(mul, a, b)))


def _between(low: float, high: float, value: float, start: float, end: float) -> float:
    """A value in [start, end] laid over [low, high]; values outside are held at the ends."""
    share = min(1.0, max(0.0, (value - start) / (end - start)))
    return round(low + share * (high - low), 6)
