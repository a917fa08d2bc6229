"""Answers that were written already, by whatever system, to questions of which it is known whether they can be answered."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, StrictBool

from crag_middleware.evals.datasets import collect, digest, parsed
from crag_middleware.evals.schemas import Name, Text, Words
from crag_middleware.stages.words import language

KNOWN = "`question` with `answerable` and `answer`"
"""What `recognise` looks for, for people."""


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, hide_input_in_errors=True)


class _Passage(_Part):
    title: Text = ""
    text: Text


class GivenAnswer(_Part):
    """An answer. Keys that are not named here are ignored.

    Attributes:
        id: Unique in a run; made of the file's name and the line's number if not given.
        lang: The language, under any name; told by the question's script if not given.
        source: The data set; the file's name if not given.
        question: What was asked.
        answerable: Whether what the system was shown answers it.
        answer: What it answered; an empty one is no refusal.
        passages: What it was shown, in the order of the numbers that it cites by, from 1; none if citations are not to be measured.
    """

    id: Name = ""
    lang: Name = ""
    source: Name = ""
    question: Words
    answerable: StrictBool
    answer: Text
    passages: tuple[_Passage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerItem:
    """One answer.

    Attributes:
        id: Unique among the answers of a run.
        lang: The data set's name for the language, such as `en` or `zh`.
        source: The data set's name.
        question: What was asked.
        answerable: Whether it can be answered.
        answer: What was answered.
        passages: Titles and texts of what it may cite, [1] first.
    """

    id: str
    lang: str
    source: str
    question: str
    answerable: bool
    answer: str
    passages: tuple[str, ...]

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with the question, whether it can be answered, the answer, or a passage."""
        return digest((self.question, self.answerable, self.answer, self.passages))


def load_answers(paths: Sequence[str | Path]) -> tuple[AnswerItem, ...]:
    """The answers of JSONL files, in order.

    Raises:
        ConfigError: A file can't be read, a line fits no schema, an id occurs twice, or there is no answer at all.
    """
    return collect(paths, _items)


def recognise(value: Any) -> type[GivenAnswer] | None:
    """The schema that a line's keys point to, whether or not the rest is in order; None for none."""
    match value:
        case {"question": _, "answerable": _, "answer": _}:
            return GivenAnswer
    return None


def _items(path: Path) -> Iterator[tuple[str, AnswerItem]]:
    """Each answer with the line it stands on."""
    for number, line in parsed(path, recognise, KNOWN):
        yield (
            f"{path}, line {number}",
            AnswerItem(
                id=line.id or f"{path.stem}-{number}",
                lang=line.lang or language(line.question),
                source=line.source or path.stem,
                question=line.question,
                answerable=line.answerable,
                answer=line.answer,
                passages=tuple(f"{passage.title}\n{passage.text}".strip() for passage in line.passages),
            ),
        )
