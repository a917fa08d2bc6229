"""Asking questions in every way, over collections that are made for it."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from langchain_core.embeddings import Embeddings

from crag_middleware import steps
from crag_middleware.adapters.given import evaluator_key
from crag_middleware.adapters.given_recall import AnyReranker, as_reranker, floor_of
from crag_middleware.errors import RerankError, RetrievalError
from crag_middleware.evals.retrieval.questions import RetrievalItem
from crag_middleware.evals.retrieval.rows import RETRIEVALS, RetrievalRow, RetrievalRun
from crag_middleware.evals.retrieval.search import alike, ask, names
from crag_middleware.evals.retrieval.shelves import Shelves
from crag_middleware.evals.rows import shown
from crag_middleware.evals.runner import TENANT, TIMEOUT_S, Caller, Meter, Progress, each
from crag_middleware.knowledge.open import name_of
from crag_middleware.ports import Bound, bind
from crag_middleware.settings import CRAGSettings
from crag_middleware.tenancy import Scope
from crag_middleware.types import Passage


def retrieve_each(
    items: Sequence[RetrievalItem],
    embeddings: Embeddings,
    *,
    reranker: AnyReranker | None = None,
    settings: CRAGSettings | None = None,
    path: Path | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
) -> tuple[RetrievalRow, ...]:
    """Searches for each question in every way. A set's documents are stored, in Milvus Lite in a temporary folder, when its first question is asked.

    It can't be called where an event loop is running if the reranker has only an async form; call it in a thread there.

    Args:
        items: The questions; each has a relevant document.
        embeddings: Makes the dense vectors.
        reranker: Who reranks the fused passages; None to leave that way out.
        settings: `candidates`, `rrf_k` and `near_duplicate` count here.
        path: The file that each row is written to as it comes; None for none.
        resume: Whether that file holds the beginning of this run; its failed rows are tried again.
        progress: Told of documents stored and questions asked, together.

    Returns:
        A row for each question, in order; one that failed has the reason in it.

    Raises:
        ConfigError: The reranker can't rerank, a document can't be stored; or the file exists, or, resuming, it doesn't, or belongs to another run.
        IngestError: The embeddings or Milvus failed while documents were stored.
    """
    settings = settings or CRAGSettings()
    told = _Told(progress)
    scorer = as_reranker(reranker)
    rerank, floor = None if scorer is None else bind(scorer, "rerank"), floor_of(scorer)
    with closing(Caller()) as caller, closing(Shelves(embeddings, settings, told.documents)) as shelves:

        def asked(item: RetrievalItem) -> RetrievalRow:
            retrievers = shelves.retrievers(item.corpus)
            meter, begun, reason = Meter(), time.perf_counter(), ""
            score = None if rerank is None else _scoring(item.question, rerank, caller, meter)
            try:
                found = ask(item.question, retrievers, settings, score=score, floor=floor)
            except (RetrievalError, RerankError) as error:
                found, reason = {}, error.reason
            likeness = {way: alike(passages) for way, passages in found.items()}
            return RetrievalRow(
                id=item.id,
                digest=item.digest,
                source=item.source,
                lang=item.lang,
                grades=item.grades,
                ranked={way: names(passages) for way, passages in found.items()},
                redundancy={way: value for way, value in likeness.items() if value is not None},
                error=reason,
                **meter.spent() | {"seconds": round(time.perf_counter() - begun, 4)},
            )

        owner = owner_of(embeddings, reranker, settings)
        return each(items, asked, RETRIEVALS, owner, path=path, resume=resume, progress=told.questions)


def _scoring(question: str, port: Bound, caller: Caller, meter: Meter) -> Callable[[tuple[Passage, ...]], Sequence[float | None]]:
    """The reranker, asked about a question's passages."""
    return lambda passages: caller.call(port, steps.rerank(question, passages, Scope(TENANT), timeout_s=TIMEOUT_S), meter)


def owner_of(embeddings: Embeddings, reranker: AnyReranker | None, settings: CRAGSettings) -> RetrievalRun:
    """Whose run it is; the reranker's part is its own `key`, an `EvaluatorKey`, or its class name if it exposes none.

    Raises:
        ConfigError: It can't rerank, or its `key` is something else.
    """
    scorer = as_reranker(reranker)
    return RetrievalRun(
        name_of(embeddings),
        "" if scorer is None else shown(evaluator_key(scorer)),
        settings.candidates,
        settings.rrf_k,
        settings.near_duplicate,
    )


class _Told:
    """Adds up documents and questions, so that there is one progress of both."""

    def __init__(self, progress: Callable[[Progress], object]) -> None:
        self._progress = progress
        self._asked = Progress(0, 0, 0)
        self._all, self._stored = 0, 0

    def documents(self, more: int, stored: int) -> None:
        """So many more there are, and so many more were stored."""
        self._all += more
        self._stored += stored
        self.questions(self._asked)

    def questions(self, asked: Progress) -> None:
        """How far the questions are."""
        self._asked = asked
        self._progress(Progress(asked.done + self._stored, asked.total + self._all, asked.failed))
