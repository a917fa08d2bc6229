"""Tests that every evaluator passes."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar, get_args

from crag_middleware.adapters.given import calibration_of, evaluator_key, thresholds_of
from crag_middleware.ports import AsyncEvaluator, Evaluator
from crag_middleware.steps import Call, grade
from crag_middleware.testing.suite import ODD_PASSAGES, ODD_QUESTIONS, PortSuite
from crag_middleware.types import Grade, Label, Passage

AnyEvaluator = Evaluator | AsyncEvaluator


class EvaluatorSuite(PortSuite):
    """Tests of an evaluator: inherit it and define the fixture `evaluator`, which returns a working one.

    Attributes:
        order_free: Whether a passage's probability does not depend on its place among the others. Say False where a model sees all at once.
        tolerance: How far two probabilities that should be equal may differ.
        question: What the passages are graded against.
        passages: What is graded; at least two.
    """

    order_free: ClassVar[bool] = True
    tolerance: ClassVar[float] = 1e-6
    question: ClassVar[str] = "Which port does Milvus listen on?"
    passages: ClassVar[tuple[Passage, ...]] = (
        Passage(id="p1", text="Milvus listens on port 19530.", title="Ports", metadata={"version": "2.6"}),
        Passage(id="p2", text="Milvus 默认监听 19530 端口。"),
        Passage(id="p3", text="Bread needs flour, water, salt and yeast."),
    )
    _method = "grade"

    def test_every_passage_gets_one_grade(self, evaluator: AnyEvaluator) -> None:
        """Each passage's id once, and no other; a passage that can't be graded gets the label `ungraded`."""
        for grades in self._ask(evaluator, self._call(self.passages)):
            self._check(grades, self.passages)

    def test_no_passages_get_no_grades(self, evaluator: AnyEvaluator) -> None:
        """An empty list is no error."""
        for grades in self._ask(evaluator, self._call(())):
            self._check(grades, ())

    def test_a_single_passage_is_graded(self, evaluator: AnyEvaluator) -> None:
        """One passage needs no company."""
        for grades in self._ask(evaluator, self._call(self.passages[:1])):
            self._check(grades, self.passages[:1])

    def test_odd_passages_are_graded(self, evaluator: AnyEvaluator) -> None:
        """Blank, long, Chinese and hostile texts, emoji, and one text twice get a grade each, be it `ungraded`."""
        for grades in self._ask(evaluator, self._call(ODD_PASSAGES)):
            self._check(grades, ODD_PASSAGES)

    def test_odd_questions_are_graded(self, evaluator: AnyEvaluator) -> None:
        """Whatever is asked, the passages get their grades."""
        for question in ODD_QUESTIONS:
            for grades in self._ask(evaluator, self._call(self.passages, question)):
                self._check(grades, self.passages)

    def test_the_order_of_passages_does_not_matter(self, evaluator: AnyEvaluator) -> None:
        """A passage has the same probability wherever it stands, if the evaluator claims that."""
        if not self.order_free or not self.deterministic:
            return
        forward, backward = self._call(self.passages), self._call(self.passages[::-1])
        for one, other in zip(self._ask(evaluator, forward), self._ask(evaluator, backward), strict=True):
            assert self._same(one, other), f"the order of the passages changes their grades: {one!r}, and reversed {other!r}"

    def test_it_gives_the_same_sync_and_async_from_threads_and_event_loops(self, evaluator: AnyEvaluator) -> None:
        """Both forms, asked again, by several at once, on one event loop after the other."""
        self._check_everywhere(evaluator, self._call(self.passages), self._same)

    def test_what_it_is_given_stays_as_it_was(self, evaluator: AnyEvaluator) -> None:
        """Passages are read and never written."""
        given = list(deepcopy(self.passages))
        self._ask(evaluator, grade(self.question, given, self._scope, timeout_s=self.timeout_s))  # type: ignore[arg-type]  # a list shows changes
        assert given == list(self.passages), f"the evaluator changed its passages: {given!r}"

    def test_it_can_be_called_with_what_is_offered(self, evaluator: AnyEvaluator) -> None:
        """`grade(question, passages, *, agent_id, timeout_s)`, or fewer keywords."""
        self._check_signature(evaluator, self._call(self.passages))

    def test_its_thresholds_are_sound(self, evaluator: AnyEvaluator) -> None:
        """In order and in [0, 1], or none of its own."""
        thresholds_of(evaluator)

    def test_its_key_says_whose_probabilities_they_are(self, evaluator: AnyEvaluator) -> None:
        """The key names the evaluator, stays the same, and its calibration belongs to it."""
        key = evaluator_key(evaluator)
        assert key.evaluator, "a key must name the evaluator"
        assert all(isinstance(part, str) for part in (key.evaluator, key.model, key.prompt)), f"a key must hold texts, got {key!r}"
        calibration_of(evaluator)
        self._ask(evaluator, self._call(self.passages))
        assert evaluator_key(evaluator) == key, f"the key changed with use from {key} to {evaluator_key(evaluator)}"

    def _call(self, passages: tuple[Passage, ...], question: str | None = None) -> Call[tuple[Grade, ...]]:
        return grade(self.question if question is None else question, passages, self._scope, timeout_s=self.timeout_s)

    def _check(self, grades: Any, passages: Sequence[Passage]) -> None:
        """Sound grades, one for each passage."""
        assert isinstance(grades, Sequence), f"`grade` must return a list or tuple, got {type(grades).__name__}"
        for one in grades:
            assert isinstance(one, Grade), f"`grade` must return grades, got {type(one).__name__}"
            assert one.label in get_args(Label), f"a label must be one of {get_args(Label)}, got {one.label!r}"
            p = one.probability
            assert p is None or (isinstance(p, int | float) and 0 <= p <= 1), f"a probability must be None or lie in [0, 1], got {p!r}"
        expected, found = sorted(p.id for p in passages), sorted(one.passage_id for one in grades)
        assert found == expected, f"each passage needs one grade: expected {expected}, got {found}"

    def _same(self, one: Sequence[Grade], other: Sequence[Grade]) -> bool:
        """Whether two replies grade the same passages, and alike if the evaluator is deterministic."""
        a, b = ({g.passage_id: g.probability for g in grades} for grades in (one, other))
        return a.keys() == b.keys() and (not self.deterministic or all(self._near(a[id_], b[id_]) for id_ in a))

    def _near(self, a: float | None, b: float | None) -> bool:
        return a == b if a is None or b is None else abs(a - b) <= self.tolerance
