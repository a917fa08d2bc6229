"""Labelled questions: what a line of a data set means, whatever its schema."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from crag_middleware.errors import ConfigError
from crag_middleware.evals.schemas import KNOWN, Contexts, Labelled, Line, PointedEvidence, recognise
from crag_middleware.stages.words import language
from crag_middleware.types import Passage

CONTEXTS = "cmrc_contexts.jsonl"
"""The file beside a data set that holds the passages its `ctx` points to."""

_SAID = {"relevant": True, "incorrect": False, True: True, False: False}
_HALVES = re.compile(r" (un)?answerable$")
"""Of one data set, kept in two files: neither half alone says how well its questions are told apart."""


class Asked(Protocol):
    """What every question of a run has, whatever is measured with it."""

    @property
    def id(self) -> str:
        """Unique among the questions of a run."""
        ...

    @property
    def lang(self) -> str:
        """The data set's name for the language."""
        ...

    @property
    def source(self) -> str:
        """The data set's name."""
        ...

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with all that the run depends on."""
        ...


Q = TypeVar("Q", bound=Asked)
S = TypeVar("S", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One question with its passages and what people said about them.

    Attributes:
        id: Unique among the questions of a run.
        lang: The data set's name for the language, such as `en`, `zh` or `zh-en`.
        source: The data set's name.
        question: What the passages should answer.
        passages: At least one; their ids are unique within the question.
        labels: For each passage whether it is relevant; None where nobody said.
        answerable: Whether the passages together answer the question; None where nobody said.
        weak: The labels were not made by people who judged each passage.
    """

    id: str
    lang: str
    source: str
    question: str
    passages: tuple[Passage, ...]
    labels: tuple[bool | None, ...]
    answerable: bool | None
    weak: bool = False

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with the question, a passage or a label."""
        return digest((self.question, [(p.id, p.title, p.text) for p in self.passages], self.labels, self.answerable))


def load(paths: Sequence[str | Path]) -> tuple[Item, ...]:
    """The questions of JSONL files, in order; `schemas.py` says which schemas are understood and how.

    Raises:
        ConfigError: A file can't be read, a line fits no schema, a question's id occurs twice, or there is no question at all.
    """
    return collect(paths, _items)


def collect(paths: Sequence[str | Path], read: Callable[[Path], Iterable[tuple[str, Q]]]) -> tuple[Q, ...]:
    """The questions that `read` finds in files, each with the line it stands on.

    Raises:
        ConfigError: A question's id occurs twice, or there is no question at all.
    """
    items: dict[str, Q] = {}
    for path in map(Path, paths):
        for where, item in read(path):
            if item.id in items:
                msg = f"{where}: the question id {item.id!r} occurs twice; ids must be unique in all files of a run"
                raise ConfigError(msg, reason="bad_data")
            items[item.id] = item
    if not items:
        msg = f"there is no question in {', '.join(map(str, paths)) or 'no file'}"
        raise ConfigError(msg, reason="bad_data")
    return tuple(items.values())


def digest(held: Any) -> str:
    """Sixteen hex digits that change with a value, JSON-like."""
    return hashlib.sha256(json.dumps(held, ensure_ascii=False).encode()).hexdigest()[:16]


def select(items: Sequence[Q], *, languages: Sequence[str] = (), limit: int | None = None) -> tuple[Q, ...]:
    """The questions in some languages, at most `limit` of each data set and language, in order.

    Which ones is decided by a hash of their ids: the choice doesn't follow the file's order, stays the same, and a higher limit keeps it.

    Raises:
        ConfigError: No question is in one of the languages.
    """
    found = sorted({item.lang for item in items})
    if unknown := sorted(set(languages) - set(found)):
        msg = f"no question is in the language {', '.join(map(repr, unknown))}; the data has {', '.join(map(repr, found))}"
        raise ConfigError(msg, reason="bad_data")
    wanted = [item for item in items if not languages or item.lang in languages]
    if limit is None:
        return tuple(wanted)
    taken: Counter[tuple[str, str]] = Counter()
    kept = set()
    for item in sorted(wanted, key=lambda item: hashlib.sha256(item.id.encode()).digest()):
        taken[item.source, item.lang] += 1
        if taken[item.source, item.lang] <= limit:
            kept.add(item.id)
    return tuple(item for item in wanted if item.id in kept)


def only_negatives(items: Sequence[Item]) -> tuple[Item, ...]:
    """The same questions with only those passages that are known not to answer them; questions that have none are left out."""
    return tuple(item for item in map(_without_relevant, items) if item.passages)


def is_negative(label: bool | None, answerable: bool | None) -> bool:
    """Whether a passage is known not to answer its question: labelled so, or not labelled and in a set that has no answer."""
    return label is False or (label is None and answerable is False)


def _without_relevant(item: Item) -> Item:
    kept = [i for i, label in enumerate(item.labels) if is_negative(label, item.answerable)]
    return replace(item, passages=tuple(item.passages[i] for i in kept), labels=tuple(item.labels[i] for i in kept), answerable=False)


def parsed(path: Path, recognise: Callable[[Any], type[S] | None], known: str) -> Iterator[tuple[int, S]]:
    """The lines of a file as values of their schemas, with their numbers, counted from 1.

    Args:
        path: The file, of JSON lines.
        recognise: Tells the schema; None for none.
        known: What it knows, for people.

    Raises:
        ConfigError: The file can't be read, or a line fits no schema.
    """
    for number, value in lines(path):
        schema = recognise(value)
        if schema is None:
            got = (
                f"an object with {', '.join(map(repr, sorted(value)[:12])) or 'no key'}"
                if isinstance(value, dict)
                else f"a {type(value).__name__}"
            )
            msg = f"{path}, line {number}: no known kind of question, got {got}; known are {known}"
            raise ConfigError(msg, reason="bad_data")
        with said_of(f"{path}, line {number}"):
            line = schema.model_validate(value)
        yield number, line


@contextmanager
def said_of(where: str) -> Iterator[None]:
    """Turns what is wrong with a line into our error, without what the line says."""
    try:
        yield
    except ValidationError as error:
        problems = error.errors(include_input=False, include_url=False)[:3]
        said = (p["msg"].removeprefix("Value error, ") for p in problems)
        wrong = (f"`{'.'.join(map(str, p['loc']))}`: {text}" if p["loc"] else text for p, text in zip(problems, said, strict=True))
        msg = f"{where}: {'; '.join(wrong)}"
        raise ConfigError(msg, reason="bad_data") from None


def beside(path: Path, read: Callable[[Any], tuple[str, T] | None], needed: str) -> dict[str, T]:
    """What lies in a file beside the data, by name.

    Args:
        path: The file, of JSON lines.
        read: A line's name and value; None if it is not in order.
        needed: What an object must have, for people.

    Raises:
        ConfigError: The file can't be read, or a line is not in order.
    """
    found = {}
    for number, value in lines(path):
        entry = read(value)
        if entry is None:
            msg = f"{path}, line {number}: an object with {needed} is needed"
            raise ConfigError(msg, reason="bad_data")
        found[entry[0]] = entry[1]
    return found


def _items(path: Path) -> Iterator[tuple[str, Item]]:
    """Each question with the line it stands on."""
    contexts: Contexts | None = None
    read: Iterator[tuple[int, Line]] = parsed(path, recognise, KNOWN)
    for number, line in read:
        where = f"{path}, line {number}"
        if contexts is None and isinstance(line, PointedEvidence):
            contexts = beside(path.parent / CONTEXTS, _context, "the texts `ctx` and `context`")
        try:
            with said_of(where):
                found = list(line.questions(contexts or {}))
        except KeyError:
            msg = f"{where}: its `ctx` is not in {path.parent / CONTEXTS}"
            raise ConfigError(msg, reason="bad_data") from None
        for n, labelled in enumerate(found, 1):
            suffix = f"-{n}" if len(found) > 1 else ""
            yield where, _item(labelled, name=f"{path.stem}-{number}{suffix}", source=path.stem)


def _item(labelled: Labelled, *, name: str, source: str) -> Item:
    """The question, with `name` as its id and `source` as its data set where it has none."""
    kept = [(number, p) for number, p in enumerate(labelled.passages, 1) if p.label != "counterfactual"]
    labels = tuple(_SAID.get(p.label) for _, p in kept)
    answerable = labelled.answerable
    if answerable is None and (any(labels) or None not in labels):
        answerable = any(labels)
    return Item(
        id=labelled.id or name,
        lang=labelled.lang or language(labelled.question),
        source=_HALVES.sub("", labelled.source) or source,
        question=labelled.question,
        passages=tuple(Passage(id=p.id or str(number), text=p.text, title=p.title) for number, p in kept),
        labels=labels,
        answerable=answerable,
        weak=labelled.weak,
    )


def _context(value: Any) -> tuple[str, str] | None:
    match value:
        case {"ctx": str(name), "context": str(text)}:
            return name, text
    return None


def lines(path: Path) -> Iterator[tuple[int, Any]]:
    """The JSON values of a file with the lines they stand on, counted from 1; blank lines are skipped.

    Raises:
        ConfigError: The file can't be read, or a line is no JSON.
    """
    try:
        held = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        msg = f"the data {str(path)!r} can't be read: {why}"
        raise ConfigError(msg, reason="bad_data") from error
    for number, line in enumerate(held, 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError) as error:
                why = (
                    f"{error.msg} at character {error.colno}"
                    if isinstance(error, json.JSONDecodeError)
                    else "nested too deeply or out of range"
                )
                msg = f"{path}, line {number}: no JSON ({why}); each line must hold one object"
                raise ConfigError(msg, reason="bad_data") from None
