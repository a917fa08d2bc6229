"""Questions whose relevant documents are known, with the documents they are searched among."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from crag_middleware.errors import ConfigError
from crag_middleware.evals.datasets import collect, digest, lines, load, parsed
from crag_middleware.evals.retrieval.schemas import (
    KNOWN,
    CranfieldQuestion,
    Document,
    FileLine,
    JudgedQuestion,
    Query,
    recognise,
    recognise_query,
)
from crag_middleware.stages.words import language

CRANFIELD_DOCUMENTS = "cranfield_corpus.jsonl"
"""The file beside Cranfield's questions that holds its documents."""

JUDGEMENTS = ("qrels/test.tsv", "qrels/dev.tsv", "qrels.tsv")
"""Where the judgements of a folder are looked for, the first that is there."""

_GRADE = re.compile(r" *-?[0-9]{1,9} *")


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents that are searched together.

    Attributes:
        texts: By id, in order; empty for a document without words, which can't be stored.
    """

    texts: Mapping[str, str]

    @cached_property
    def digest(self) -> str:
        """Sixteen hex digits that change with a document."""
        return digest(list(self.texts.items()))

    @cached_property
    def language(self) -> Literal["en", "zh"]:
        """How its words are to be read: `en` if no document is Chinese, else `zh`."""
        return "zh" if any(language(text) == "zh" for text in self.texts.values()) else "en"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalItem:
    """One question with what it is searched among and what is relevant there.

    Attributes:
        id: Unique among the questions of a run.
        lang: The data set's name for the language, such as `en` or `zh`.
        source: The data set's name.
        question: What is asked.
        corpus: The documents.
        grades: How relevant a document is, by id: above 0 is relevant, and higher is better; all others are not.
    """

    id: str
    lang: str
    source: str
    question: str
    corpus: Corpus
    grades: Mapping[str, int]

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with the question, a grade or a document."""
        return digest((self.question, sorted(self.grades.items()), self.corpus.digest))

    @property
    def answered(self) -> bool:
        """Whether a document is relevant."""
        return any(grade > 0 for grade in self.grades.values())


def load_retrieval(paths: Sequence[str | Path]) -> tuple[RetrievalItem, ...]:
    """The questions of all files and folders, in order.

    A folder is laid out as in BEIR. A file holds documents and judged questions, or Cranfield's questions with the documents beside it, or what `datasets.load`
    reads, questions with labelled passages; of these all passages of one data set and language, of whatever file, are the documents.

    Raises:
        ConfigError: Something can't be read, fits no schema or has an id twice, a judged document is missing, or there is no question at all.
    """
    labelled = [path for path in map(Path, paths) if not _is_judged(path)]

    def read(path: Path) -> Iterable[tuple[str, RetrievalItem]]:
        if path not in labelled:
            return _folder(path) if path.is_dir() else _file(path)
        return _pooled(labelled) if path == labelled[0] else ()

    return collect(paths, read)


def _is_judged(path: Path) -> bool:
    """Whether this is a folder, or a file whose first line is one of ours or of Cranfield, and not a question with its passages."""
    if path.is_dir():
        return True
    _, first = next(lines(path), (0, None))
    return recognise(first) is not None


def _file(path: Path) -> Iterator[tuple[str, RetrievalItem]]:
    read: list[tuple[int, FileLine]] = list(parsed(path, recognise, KNOWN))
    documents = [(f"{path}, line {number}", line) for number, line in read if isinstance(line, Document)]
    own = _corpus(documents)
    beside: Corpus | None = None
    for number, line in read:
        where = f"{path}, line {number}"
        match line:
            case JudgedQuestion():
                corpus = own
            case CranfieldQuestion():
                corpus = beside = beside or _documents(path.parent / CRANFIELD_DOCUMENTS)
            case Document():
                continue
        name, source = line.id or f"{path.stem}-{number}", line.source or path.stem
        yield where, _item(line.question, line.grades, corpus, name=name, source=source, lang=line.lang, where=where)


def _folder(path: Path) -> Iterator[tuple[str, RetrievalItem]]:
    """As in BEIR: `corpus.jsonl`, `queries.jsonl`, and judgements; questions without any are left out.

    Source: Thakur et al., "BEIR", NeurIPS 2021 Datasets and Benchmarks, arXiv 2104.08663.
    """
    corpus = _documents(path / "corpus.jsonl")
    grades, source = _judgements(path), path.resolve().name
    asked: Iterator[tuple[int, Query]] = parsed(path / "queries.jsonl", recognise_query, "an `_id` and a `text`")
    for number, query in asked:
        if query.id in grades:
            where = f"{path / 'queries.jsonl'}, line {number}"
            # Many such folders number their questions, and several may be measured in one run.
            yield where, _item(query.text, grades[query.id], corpus, name=f"{source}-{query.id}", source=source, lang="", where=where)


def _judgements(path: Path) -> dict[str, dict[str, int]]:
    """By question, the grade of each judged document."""
    found = next((place for name in JUDGEMENTS if (place := path / name).is_file()), None)
    if found is None:
        msg = f"{str(path)!r} must hold `corpus.jsonl`, `queries.jsonl` and the judgements in one of {', '.join(JUDGEMENTS)}"
        raise ConfigError(msg, reason="bad_data")
    try:
        rows = found.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"the judgements {str(found)!r} can't be read: {error.strerror if isinstance(error, OSError) else 'they are not UTF-8'}"
        raise ConfigError(msg, reason="bad_data") from error
    grades: dict[str, dict[str, int]] = {}
    for number, row in enumerate(rows, 1):
        match row.split("\t"):
            case [question, document, grade] if _GRADE.fullmatch(grade):
                grades.setdefault(question, {})[document] = int(grade)
            case _ if row.strip() and number > 1:  # the first line may be a header
                msg = f"{found}, line {number}: a question's id, a document's id and a whole number are needed, with tabs between them"
                raise ConfigError(msg, reason="bad_data")
    return grades


def _documents(path: Path) -> Corpus:
    read: Iterator[tuple[int, Document]] = parsed(
        path, lambda value: Document if recognise(value) is Document else None, "a document's `id` and `text`"
    )
    return _corpus((f"{path}, line {number}", document) for number, document in read)


def _corpus(documents: Iterable[tuple[str, Document]]) -> Corpus:
    texts: dict[str, str] = {}
    for where, document in documents:
        if document.id in texts:
            msg = f"{where}: the document id {document.id!r} occurs twice"
            raise ConfigError(msg, reason="bad_data")
        texts[document.id] = document.whole
    return Corpus(texts)


def _item(question: str, grades: Mapping[str, int], corpus: Corpus, *, name: str, source: str, lang: str, where: str) -> RetrievalItem:
    """The question, if all its judged documents are there; in the language of its script if `lang` is empty."""
    if missing := [document for document in grades if document not in corpus.texts]:
        msg = f"{where}: {len(missing)} of its judged documents are not among the {len(corpus.texts)} documents, such as {missing[0]!r}"
        raise ConfigError(msg, reason="bad_data")
    return RetrievalItem(id=name, lang=lang or language(question), source=source, question=question, corpus=corpus, grades=dict(grades))


def _pooled(paths: Sequence[Path]) -> list[tuple[str, RetrievalItem]]:
    """Questions with labelled passages, searched among the passages of all questions of their data set and language."""
    items = load(paths)
    texts: dict[tuple[str, str], dict[str, str]] = {}
    judged: list[dict[str, int]] = []
    for item in items:
        pool = texts.setdefault((item.source, item.lang), {})
        grades: dict[str, int] = {}
        for passage, label in zip(item.passages, item.labels, strict=True):
            whole = Document(id="-", title=passage.title, text=passage.text).whole
            name = digest(whole)
            pool[name] = whole
            grades[name] = max(int(label is True), grades.get(name, 0))
        judged.append(grades)
    corpora = {name: Corpus(pool) for name, pool in texts.items()}
    return [
        (one.id, _item(one.question, grades, corpora[one.source, one.lang], name=one.id, source=one.source, lang=one.lang, where=one.id))
        for one, grades in zip(items, judged, strict=True)
    ]
