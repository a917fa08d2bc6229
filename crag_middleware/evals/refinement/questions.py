"""Questions whose gold sentences, those that bear on the answer, have a place in their passages; read from several schemas."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from crag_middleware.errors import ConfigError
from crag_middleware.evals.datasets import CONTEXTS, beside, collect, digest, parsed
from crag_middleware.evals.schemas import KNOWN_EVIDENCE, Evidence, EvidenceLine, PointedEvidence, ReferencedEvidence, recognise_evidence
from crag_middleware.stages.words import language
from crag_middleware.types import Passage

DOCUMENTS = "dragonball_docs.jsonl"
"""The file beside a data set that holds the documents its `doc_id` points to."""

CHUNK_CHARS = 800
"""Documents are cut into passages of at most this many characters, at line ends; a longer line is a passage of its own."""

T = TypeVar("T")


class Gold(NamedTuple):
    """A gold sentence: `passages[passage].text[start:end]`; never blank."""

    passage: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceItem:
    """One question with its passages and the place of what bears on its answer.

    Attributes:
        id: Unique among the questions of a run.
        lang: The data set's name for the language, such as `en` or `zh`.
        source: The data set's name.
        question: What is asked.
        passages: Best first; their ids are unique within the question.
        gold: The gold sentences in document order; empty if none is known.
    """

    id: str
    lang: str
    source: str
    question: str
    passages: tuple[Passage, ...]
    gold: tuple[Gold, ...]

    @property
    def characters(self) -> int:
        """Of all passages together."""
        return sum(len(passage.text) for passage in self.passages)

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with the question, a passage or a gold sentence."""
        return digest((self.question, [(p.title, p.text) for p in self.passages], self.gold))


def load_evidence(paths: Sequence[str | Path]) -> tuple[EvidenceItem, ...]:
    """The questions of JSONL files, in order, those without gold sentences among them; `evals/schemas.py` has the schemas.

    Sentences are joined to a passage by a space, unless one brings its own white space or the passage is Chinese.

    Raises:
        ConfigError: A file can't be read, a line fits no schema, a question's id occurs twice, or there is no question at all.
    """
    return collect(paths, _items)


def _items(path: Path) -> Iterator[tuple[str, EvidenceItem]]:
    """Each question with the line it stands on."""
    contexts = cache(lambda: beside(path.parent / CONTEXTS, _context, "the text `ctx` and the list of texts `sentences`"))
    documents = cache(lambda: beside(path.parent / DOCUMENTS, _document, "a `doc_id` and the text `content`"))
    read: Iterator[tuple[int, EvidenceLine]] = parsed(path, recognise_evidence, KNOWN_EVIDENCE)
    for number, line in read:
        where = f"{path}, line {number}"
        match line:
            case Evidence():
                parts = [(part.title, part.sentences, part.gold) for part in line.passages]
                passages, gold = _joined(parts, where)
            case PointedEvidence():
                sentences = _found(contexts(), line.ctx, f"{where}: its `ctx` is not in {path.parent / CONTEXTS}")
                passages, gold = _joined([("", sentences, line.gold)], where)
            case ReferencedEvidence():
                content = _found(documents(), str(line.doc_id), f"{where}: its `doc_id` is not in {path.parent / DOCUMENTS}")
                passages, gold = _cut(content, line.refs)
        yield (
            where,
            EvidenceItem(
                id=line.id or f"{path.stem}-{number}",
                lang=line.lang or language(line.question),
                source=line.source or path.stem,
                question=line.question,
                passages=tuple(Passage(id=str(n), text=text, title=title, rank=n) for n, (title, text) in enumerate(passages, 1)),
                gold=tuple(gold) if line.question.strip() else (),
            ),
        )


def _joined(parts: Sequence[tuple[str, Sequence[str], Sequence[int]]], where: str) -> tuple[list[tuple[str, str]], list[Gold]]:
    """Titles and texts of passages given as sentences, and the places of the sentences with these numbers."""
    passages, gold = [], []
    for passage, (title, sentences, numbers) in enumerate(parts):
        if wrong := [n for n in numbers if not 0 <= n < len(sentences)]:
            msg = f"{where}: `gold` must hold numbers from 0 to {len(sentences) - 1} for {len(sentences)} sentences, got {wrong[0]}"
            raise ConfigError(msg, reason="bad_data")
        space = "" if language("".join(sentences)) == "zh" else " "
        text, starts = "", []
        for sentence in sentences:
            if text and sentence and not (text[-1].isspace() or sentence[0].isspace()):
                text += space
            starts.append(len(text))
            text += sentence
        passages.append((title, text))
        gold += [Gold(passage, starts[n], starts[n] + len(sentences[n])) for n in sorted(set(numbers)) if sentences[n].strip()]
    return passages, gold


def _cut(document: str, references: Sequence[str]) -> tuple[list[tuple[str, str]], list[Gold]]:
    """A document as passages, and the first place of each reference in them; one that is not there word for word is no gold sentence."""
    chunks = [""]
    for line in document.splitlines(keepends=True):
        if chunks[-1] and len(chunks[-1]) + len(line.rstrip()) > CHUNK_CHARS:
            chunks.append("")
        chunks[-1] += line
    places = {_place(chunks, reference) for reference in references if reference.strip()}
    return [("", chunk.rstrip()) for chunk in chunks], sorted(place for place in places if place)


def _place(chunks: Sequence[str], reference: str) -> Gold | None:
    for n, chunk in enumerate(chunks):
        if (start := chunk.find(reference)) >= 0:
            return Gold(n, start, start + len(reference))
    return None


def _found(texts: Mapping[str, T], name: str, problem: str) -> T:
    if name in texts:
        return texts[name]
    raise ConfigError(problem, reason="bad_data")


def _context(value: Any) -> tuple[str, list[str]] | None:
    match value:
        case {"ctx": str(name), "sentences": [*sentences]} if all(isinstance(sentence, str) for sentence in sentences):
            return name, sentences
    return None


def _document(value: Any) -> tuple[str, str] | None:
    match value:
        case {"doc_id": int() | str() as name, "content": str(content)}:
            return str(name), content
    return None
