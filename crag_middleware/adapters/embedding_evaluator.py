"""Grading without a chat model: embeddings measure nearness in meaning, `stages/relevance.py` makes a probability of it."""

import threading
from collections.abc import Sequence
from statistics import fmean

from langchain_core.embeddings import Embeddings

from crag_middleware.adapters.inner_model import model_name
from crag_middleware.adapters.vectors import Vector, Vectors
from crag_middleware.calibration import Calibration, shipped
from crag_middleware.errors import GradingError
from crag_middleware.settings import EMBEDDING_THRESHOLDS
from crag_middleware.stages.decide import label
from crag_middleware.stages.prompting import clip
from crag_middleware.stages.relevance import VERSION, Features, Read, features, probability
from crag_middleware.stages.sentences import split
from crag_middleware.stages.words import language
from crag_middleware.types import EvaluatorKey, Grade, Language, Passage, Thresholds

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
"""Questions with their answers. Every model has its own scale of similarity, and one for each pair of languages; nearness is put on one of ours: an answer
to another question lies at 0 and the answer to the question at 1.
"""

MIN_SCALE = 0.05
"""Least distance between 0 and 1 of our scale, for models that don't understand a language at all."""

CLIP_CHARS = 4000
"""Longer passages are clipped before they are cut into sentences."""

WINDOW = 400
"""Sentences are embedded together up to this width, in which a Chinese character counts two: alone they lack what they speak of, too many dilute each other."""

HEAD = ("section", "version")
"""What of a passage's metadata names its matter, besides its title."""


class EmbeddingEvaluator:
    """Grades passages by embeddings, words, names and what they say together: offline, without any model call.

    It tells off-topic passages well, and of passages that share the topic it prefers those whose answer others of the set give, too. What it can't
    do is read: a lone passage that has the question's words and names and still no answer (a near-miss) looks much like one that answers.

    Args:
        embeddings: Any LangChain embeddings; their scale is measured once, at the first grading in a language.

    Raises:
        ConfigError: These are no embeddings.
    """

    def __init__(self, embeddings: Embeddings) -> None:
        self._vectors = Vectors(embeddings, GradingError)
        self._model = model_name(embeddings) or type(embeddings).__name__
        self._answers: dict[Language, tuple[Vector, ...]] = {}
        self._widths: dict[tuple[Language, Language], float] = {}
        self._lock = threading.Lock()

    @property
    def thresholds(self) -> Thresholds:
        """Where the probabilities are cut, for embeddings without a calibration of their own."""
        return EMBEDDING_THRESHOLDS

    @property
    def key(self) -> EvaluatorKey:
        """Whose probabilities these are."""
        return EvaluatorKey(type(self).__name__, self._model, VERSION)

    @property
    def calibration(self) -> Calibration | None:
        """The calibration that comes with these embeddings; None for others than ours."""
        return shipped(self.key)

    def grade(self, question: str, passages: Sequence[Passage]) -> tuple[Grade, ...]:
        """One grade for each passage, in their order; each also depends on the other passages.

        Raises:
            GradingError: The embeddings failed, or returned what are no vectors of one size.
        """
        graded = {passage.id: _graded(passage, found, self._model) for passage, found in self.features(question, passages)}
        return tuple(graded.get(passage.id) or _empty(passage) for passage in passages)

    def features(self, question: str, passages: Sequence[Passage], *, same_counts: bool = False) -> list[tuple[Passage, Features]]:
        """Each passage that has text, with the numbers that its grade is made of; `same_counts` as in `relevance.features`.

        Raises:
            GradingError: As for `grade`.
        """
        parted = [(p, parts) for p in passages if (parts := tuple(s.text for s in split(clip(p.text, question, CLIP_CHARS))))]
        if not parted:
            return []
        windows = [_windows(parts) for _, parts in parted]
        texts = [f"{p.title}. {window}" if p.title else window for (p, _), some in zip(parted, windows, strict=True) for window, _ in some]
        asked, vectors = self._vectors.query(question), iter(self._vectors.documents(texts))
        written = [language(passage.text) for passage, _ in parted]
        scales = {used: self._scale(asked, language(question), used) for used in set(written)}
        reads = []
        for (passage, parts), some, used in zip(parted, windows, written, strict=True):
            zero, width = scales[used]
            near = tuple(n for _, count in some for n in count * ((self._vectors.similarity(asked, next(vectors)) - zero) / width,))
            reads.append(Read("\n".join((passage.title, *(str(passage.metadata.get(key) or "") for key in HEAD))), parts, near))
        return list(zip((passage for passage, _ in parted), features(question, reads, same_counts=same_counts), strict=True))

    def _scale(self, asked: Vector, asked_in: Language, written_in: Language) -> tuple[float, float]:
        """The similarity at 0 of our scale for this question, and how much of it makes 1."""
        with self._lock:
            if written_in not in self._answers:
                self._answers[written_in] = self._vectors.documents([answer for _, answer in PROBES[written_in]])
            answers = self._answers[written_in]
            if (asked_in, written_in) not in self._widths:
                questions = [self._vectors.query(question) for question, _ in PROBES[asked_in]]
                matched = fmean(self._vectors.similarity(q, a) for q, a in zip(questions, answers, strict=True))
                others = fmean(self._vectors.similarity(q, a) for i, q in enumerate(questions) for j, a in enumerate(answers) if i != j)
                self._widths[asked_in, written_in] = max(matched - others, MIN_SCALE)
            width = self._widths[asked_in, written_in]
        return fmean(self._vectors.similarity(asked, answer) for answer in answers), width


def _windows(parts: Sequence[str]) -> list[tuple[str, int]]:
    """The sentences joined up to `WINDOW`, in order, and how many each window holds."""
    windows: list[tuple[list[str], int]] = []
    for part in parts:
        size = sum(1 if c < "\u3000" else 2 for c in part)
        if windows and windows[-1][1] + size <= WINDOW:
            windows[-1] = ([*windows[-1][0], part], windows[-1][1] + size)
        else:
            windows.append(([part], size))
    return [(" ".join(some), len(some)) for some, _ in windows]


def _graded(passage: Passage, found: Features, model: str) -> Grade:
    p = round(probability(found, model), 6)
    reason = f"nearness {found.near:.2f}, words {found.words:.0%}, names {found.names:.0%}, said by others {found.said:.0%}"
    return label(Grade(passage_id=passage.id, probability=p, label="ungraded", reason=reason), EMBEDDING_THRESHOLDS)


def _empty(passage: Passage) -> Grade:
    return Grade(passage_id=passage.id, probability=0.0, label="incorrect", reason="empty")
