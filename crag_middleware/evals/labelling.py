"""Labels by a judge: a stronger evaluator says of unlabelled passages whether they are relevant, where it is sure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from crag_middleware.adapters.given import thresholds_of
from crag_middleware.evals.datasets import Item, is_negative
from crag_middleware.evals.rows import Row
from crag_middleware.evals.runner import evaluate
from crag_middleware.ports import AsyncEvaluator, Evaluator
from crag_middleware.types import Thresholds


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelling:
    """Questions with the labels that a judge added.

    Attributes:
        items: All questions, in order.
        relevant: Passages that it called relevant.
        incorrect: Passages that it called incorrect.
        dropped: Passages that it was not sure of, or could not grade; they stay unlabelled.
    """

    items: tuple[Item, ...]
    relevant: int
    incorrect: int
    dropped: int


def judge_pairs(items: Sequence[Item], judge: Evaluator | AsyncEvaluator, **run: Any) -> Labelling:
    """The questions with labels for their unlabelled passages, where the judge is sure.

    Its own probability at or above its upper threshold makes a passage relevant, below its lower one incorrect. Labels that people gave stay, and so does
    what they said of the whole; where nobody said, a question with a relevant passage is answerable, one with incorrect passages only is not.

    Args:
        items: The questions; those without an unlabelled passage are not shown to the judge.
        judge: The stronger evaluator.
        **run: As for `runner.evaluate`: where its grades are kept, whether to go on with them, and who is told of the progress.

    Raises:
        ConfigError: As `runner.evaluate`.
    """
    cuts = thresholds_of(judge)
    rows = {row.id: row for row in evaluate([_unlabelled(item) for item in items if _open(item)], judge, **run)}
    said = {item.id: _said(rows[item.id], cuts) for item in items if item.id in rows}
    every = [label for labels in said.values() for label in labels]
    return Labelling(
        items=tuple(_filled(item, said[item.id]) if item.id in said else item for item in items),
        relevant=every.count(True),
        incorrect=every.count(False),
        dropped=every.count(None),
    )


def _open(item: Item) -> list[int]:
    """Places of the passages of which nobody said anything."""
    return [i for i, label in enumerate(item.labels) if label is None and not is_negative(label, item.answerable)]


def _unlabelled(item: Item) -> Item:
    places = _open(item)
    return replace(item, passages=tuple(item.passages[i] for i in places), labels=tuple(item.labels[i] for i in places))


def _said(row: Row, cuts: Thresholds) -> list[bool | None]:
    if row.error:
        return [None] * len(row.labels)
    return [None if p is None else True if p >= cuts.upper else False if p < cuts.lower else None for p in row.probabilities]


def _filled(item: Item, said: Sequence[bool | None]) -> Item:
    labels = list(item.labels)
    for place, label in zip(_open(item), said, strict=True):
        labels[place] = label
    answerable = item.answerable
    if answerable is None and (any(labels) or None not in labels):
        answerable = any(labels)
    return replace(item, labels=tuple(labels), answerable=answerable)
