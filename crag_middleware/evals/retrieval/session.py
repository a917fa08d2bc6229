"""A whole measurement of retrieval: from documents and questions to a directory with rows, report and page."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from langchain_core.embeddings import Embeddings

from crag_middleware.adapters.given_recall import AnyReranker
from crag_middleware.errors import ConfigError, RetrievalError
from crag_middleware.evals.compare import ROWS_FILE
from crag_middleware.evals.datasets import select
from crag_middleware.evals.retrieval.page import render
from crag_middleware.evals.retrieval.questions import load_retrieval
from crag_middleware.evals.retrieval.report import RetrievalReport, make_retrieval_report
from crag_middleware.evals.retrieval.run import owner_of, retrieve_each
from crag_middleware.evals.runner import Progress, check_any_done
from crag_middleware.evals.session import write
from crag_middleware.settings import CRAGSettings


def measure_retrieval(
    data: Sequence[str | Path],
    embeddings: Embeddings,
    *,
    folder: Path,
    reranker: AnyReranker | None = None,
    settings: CRAGSettings | None = None,
    languages: Sequence[str] = (),
    limit: int | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
) -> RetrievalReport:
    """Stores the documents, searches for the questions in every way, and writes the run into a directory.

    Args:
        data: Folders as in BEIR, and JSONL files, see `questions.load_retrieval`; questions without a relevant document are left out and counted.
        embeddings: Makes the dense vectors.
        folder: Gets `rows.jsonl` while it runs, and `report.json` and `report.html` at the end.
        reranker: Who reranks the fused passages, one of ours or of LangChain's; None to leave that way out.
        settings: `candidates`, `rrf_k` and `near_duplicate` count here.
        languages: Only questions in these; empty for all. All documents are searched.
        limit: Questions of each data set and language at most. All documents are searched.
        resume: Goes on with the run in that directory.
        progress: Told of documents stored and questions asked, together.

    Raises:
        ConfigError: The data, the reranker or the directory can't be used.
        IngestError: The documents could not be stored.
        RetrievalError: Not one question could be searched for.
    """
    items = load_retrieval(data)
    answered = [item for item in items if item.answered]
    if not answered:
        msg = f"none of {len(items)} questions has a relevant document"
        raise ConfigError(msg, reason="bad_data")
    asked = select(answered, languages=languages, limit=limit)
    rows = retrieve_each(asked, embeddings, reranker=reranker, settings=settings, path=folder / ROWS_FILE, resume=resume, progress=progress)
    check_any_done(rows, RetrievalError, "searched for")
    report = make_retrieval_report(
        rows,
        owner_of(embeddings, reranker, settings or CRAGSettings()),
        documents={(item.source, item.lang): sum(map(bool, item.corpus.texts.values())) for item in asked},
        without_relevant=Counter((i.source, i.lang) for i in items if not i.answered and (not languages or i.lang in languages)),
    )
    write(folder, report.to_json(), render(report))
    return report
