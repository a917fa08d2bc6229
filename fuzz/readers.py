"""What reads text from outside, each behind one call that also checks its promises: for the fuzzer, for Hypothesis and for measuring growth.

A reader takes any text. What it documents to raise is swallowed here; whatever else comes out of it is a bug.
"""

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.documents.compressor import BaseDocumentCompressor
from langchain_core.tools import StructuredTool

from crag_middleware.adapters.compressors import CompressorRefiner
from crag_middleware.adapters.langchain_search import LangChainWebSearch
from crag_middleware.adapters.milvus_schema import split_key
from crag_middleware.calibration import load_calibration
from crag_middleware.errors import ConfigError, IngestError, RefineError, RewriteError, WebSearchError
from crag_middleware.evals.claims.items import load_claims
from crag_middleware.evals.datasets import load as load_items
from crag_middleware.evals.refinement.questions import load_evidence
from crag_middleware.evals.refusal.items import load_answers
from crag_middleware.evals.retrieval.questions import load_retrieval
from crag_middleware.knowledge.loading import load
from crag_middleware.knowledge.splitting import split as chunks
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.assemble import neutralise
from crag_middleware.stages.citation_marks import MAX_SPAN, read_marks
from crag_middleware.stages.citations import MAX_CHARS, mend
from crag_middleware.stages.claim_check import check
from crag_middleware.stages.claim_grounds import Piece
from crag_middleware.stages.claim_labels import read_claim_label
from crag_middleware.stages.claim_prompt import Call, read_checks
from crag_middleware.stages.claims import claims, is_refusal
from crag_middleware.stages.conflicts import conflicts
from crag_middleware.stages.decomposing import MAX_PARTS, read_parts
from crag_middleware.stages.gate import Gate
from crag_middleware.stages.grading import read_grades
from crag_middleware.stages.hypothetical import MAX_CHARS as MAX_PASSAGE
from crag_middleware.stages.hypothetical import read_passage
from crag_middleware.stages.injection import injection
from crag_middleware.stages.keywords import MAX_CHARS as MAX_KEYWORDS
from crag_middleware.stages.keywords import read_keywords
from crag_middleware.stages.mending import without
from crag_middleware.stages.question import classify, shorten, without_fence
from crag_middleware.stages.refine import WordRefiner
from crag_middleware.stages.replies import fraction, json_values, read_label, without_reasoning
from crag_middleware.stages.rewriting import MAX_QUERY_CHARS, read_query
from crag_middleware.stages.sameness import normal
from crag_middleware.stages.screen import visible
from crag_middleware.stages.sentences import split
from crag_middleware.stages.strip_picking import read_choice
from crag_middleware.stages.token_grading import first_tokens, probability
from crag_middleware.stages.urls import canonical_url, domain, host
from crag_middleware.stages.values import values
from crag_middleware.stages.webquery import compose
from crag_middleware.stages.words import terms
from crag_middleware.types import Claim, Grade, Graded, Ground, Origin, Passage, Source, Strip, Thresholds
from crag_middleware.web_policy import WebPolicy

QUESTION = "Which port does Milvus 2.4 use? 默认端口是多少？"
PASSAGES = [Passage("1", "Milvus listens on port 19530."), Passage("2", "默认端口为 19530。")]
SOURCES: Mapping[int, Origin] = {1: "knowledge", 2: "knowledge", 3: "web"}
GROUNDS = [Ground(passage.text, number=n) for n, passage in enumerate(PASSAGES, 1)]

Reader = Callable[[str], None]


def in_unit(value: float | None) -> bool:
    """Whether a probability is one, or missing."""
    return value is None or 0 <= value <= 1


def reply(text: str) -> None:
    """What a chat model wrote, as every stage that asks one reads it."""
    assert len(without_reasoning(text)) <= len(text)
    list(json_values(text))
    grades = read_grades(text, PASSAGES, Thresholds(0.5, 0.9))
    assert [grade.passage_id for grade in grades] == ["1", "2"]
    assert all(in_unit(grade.probability) for grade in grades)
    assert in_unit(fraction(text))
    read_label(text)
    read_claim_label(text)
    call = Call(((0, Claim("Milvus uses port 19530.", 0, 23)),), tuple(Piece(ground.text, n, ground) for n, ground in enumerate(GROUNDS)))
    checked = read_checks(text, call)
    assert set(checked) == {0}
    assert in_unit(checked[0].probability)
    choice = read_choice(text, 3)
    assert choice is None or set(choice.numbers) <= {1, 2, 3}


def rewriter(text: str) -> None:
    """What a rewriter wrote."""
    with contextlib.suppress(RewriteError):
        assert 0 < len(read_query(text, QUESTION)) <= MAX_QUERY_CHARS
    with contextlib.suppress(RewriteError):
        assert 0 < len(read_keywords(text, QUESTION)) <= MAX_KEYWORDS
    with contextlib.suppress(RewriteError):
        assert 0 < len(read_passage(text, QUESTION)) <= MAX_PASSAGE
    with contextlib.suppress(RewriteError):
        parts = read_parts(text, QUESTION)
        assert len(parts) in (0, *range(2, MAX_PARTS + 1))


def log_probabilities(text: str) -> None:
    """What a provider tells of its first tokens: any JSON."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = {"content": [{"top_logprobs": [{"token": text, "logprob": -0.1}, {"token": "yes", "logprob": -3}]}]}
    found = first_tokens(told)
    assert in_unit(probability(found, found))


def citations(text: str) -> None:
    """An answer's citations, all at once."""
    mended = mend(text, SOURCES)
    assert all(set(citation.numbers) <= set(SOURCES) for citation in mended.citations)
    assert all(0 <= citation.start < citation.end <= len(mended.text) for citation in mended.citations)
    kept = mend(text, SOURCES, when_unknown="flag")
    assert kept.text == text
    assert all(len(mark.numbers(SOURCES)) <= MAX_SPAN for mark in read_marks(text[:MAX_CHARS]))


def sentences_of_answer(text: str) -> None:
    """An answer, sentence by sentence as it is shown."""
    gate = Gate()
    assert "".join(sentence.text for sentence in [*gate.feed(text), *gate.end()]) == text


def statements(text: str) -> None:
    """An answer's claims."""
    found = claims(text)
    assert all(text[claim.start : claim.end] == claim.text for claim in found)
    is_refusal(text)
    without(text, found[::2])


def claim_check(text: str) -> None:
    """A claim and what it rests on, checked by words."""
    for claim, ground in (("Milvus 2.4 uses port 19530.", text), (text, PASSAGES[0].text)):
        assert all(in_unit(checked.probability) for checked in check([Claim(claim, 0, len(claim))], [Ground(ground, number=1)]))


def strips(text: str) -> None:
    """A passage's strips."""
    found = split(text)
    assert all(strip.text == text[strip.start : strip.end] for strip in found)
    assert all(one.end <= other.start for one, other in pairwise(found))
    assert "".join("".join(strip.text for strip in found).split()) == "".join(text.split())


def passage(text: str) -> None:
    """A passage: refined, compared, looked through for orders and numbers."""
    WordRefiner().refine(QUESTION, [Passage("1", text)])
    normal(text)
    assert 0 <= injection(text).score <= 1
    values(text)
    terms(text)
    neutralise(text)


def disagreement(text: str) -> None:
    """Passages that may contradict each other."""
    conflicts([_source(1, text), _source(2, f"{PASSAGES[0].text} {text}")], query=QUESTION)


def question(text: str) -> None:
    """What a user wrote."""
    classify(text)
    without_fence(text)
    assert len(shorten(text, 1000)) <= 1000


def web_query(text: str) -> None:
    """What may leave for the web of what a user wrote."""
    assert len(compose(text, protected=["Project Blue Sky", "龙腾科技"]).text) <= 400


def web_page(text: str) -> None:
    """A page of the web, as a search tool returns it: as text, as JSON, as a document."""
    visible(text)
    policy = WebPolicy(max_result_chars=200, max_total_chars=400)
    for told in (text, [{"url": text, "title": text, "content": text}], [Document(text, metadata={"source": text, "score": text})]):
        tool = StructuredTool.from_function(func=lambda query, told=told: told, name="search", description="Searches.")
        with contextlib.suppress(WebSearchError):
            found = LangChainWebSearch(tool).search("q", limit=2, policy=policy)
            assert len(found) <= 2
            assert all(0 < len(one.text) <= 200 for one in found)


def address(text: str) -> None:
    """A web address, a host or a domain that somebody wrote."""
    assert host(canonical_url(text)) in ("", host(text))
    domain(text)


class _Returning(BaseDocumentCompressor):
    """Returns a text for each document."""

    said: str

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> Sequence[Document]:
        return [Document(self.said, metadata=document.metadata) for document in documents]


def compressor(text: str) -> None:
    """What a document compressor returned of a passage."""
    with contextlib.suppress(RefineError):
        (kept,) = CompressorRefiner(_Returning(said=text)).refine(QUESTION, PASSAGES[:1])
        assert all(strip.text == PASSAGES[0].text[strip.start : strip.end] for strip in kept)


def tenant_field(text: str) -> None:
    """The name of a tenant's column or key."""
    with contextlib.suppress(ConfigError):
        split_key(text)
        split_key(f'metadata["{text}"]')


def settings(text: str) -> None:
    """Settings and a web policy read from JSON, or with this text for each value."""
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        given = text
    told = [given] if isinstance(given, dict) else [{name: given} for name in (*CRAGSettings.model_fields, *WebPolicy.model_fields)]
    for one in told:
        for build in (CRAGSettings, WebPolicy):
            with contextlib.suppress(ConfigError):
                build(**{str(name): value for name, value in one.items()})


def _source(number: int, text: str) -> Source:
    graded = Graded(passage=Passage(str(number), text), grade=Grade(str(number), 0.9, "relevant"))
    return Source(number=number, graded=graded, strips=(Strip(text, 0, len(text)),))


@contextlib.contextmanager
def _file(suffix: str, text: str) -> Iterator[Path]:
    """A file of that text, whose lone surrogates are the bytes they stand for."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"file{suffix}")
        path.write_bytes(text.encode(errors="surrogateescape") if all(not _odd(c) for c in text) else text.encode(errors="surrogatepass"))
        yield path


def _odd(character: str) -> bool:
    """Whether it is a surrogate that stands for no byte."""
    return "\ud800" <= character <= "\udfff" and not "\udc80" <= character <= "\udcff"


def loader(suffix: str) -> Reader:
    """A file with that ending, brought in and cut into chunks."""

    def read(text: str) -> None:
        with _file(suffix, text) as path, contextlib.suppress(IngestError):
            loaded = load(path)
            assert all(mark.start <= len(loaded.text) for mark in loaded.marks)
            chunks(loaded)

    return read


def files_of_ours(text: str) -> None:
    """Calibrations and labelled questions."""
    with _file(".jsonl", text) as path:
        for load_file in (load_items, load_claims, load_answers, load_evidence, load_retrieval):
            with contextlib.suppress(ConfigError):
                load_file([path])
        with contextlib.suppress(ConfigError):
            load_calibration(path)


READERS: Mapping[str, Reader] = {
    "address": address,
    "citations": citations,
    "claim_check": claim_check,
    "compressor": compressor,
    "disagreement": disagreement,
    "files_of_ours": files_of_ours,
    "log_probabilities": log_probabilities,
    "passage": passage,
    "question": question,
    "reply": reply,
    "rewriter": rewriter,
    "sentences_of_answer": sentences_of_answer,
    "settings": settings,
    "statements": statements,
    "strips": strips,
    "tenant_field": tenant_field,
    "web_page": web_page,
    "web_query": web_query,
    **{f"file{suffix}": loader(suffix) for suffix in (".txt", ".md", ".rst", ".html", ".csv", ".pdf", ".docx")},
}
