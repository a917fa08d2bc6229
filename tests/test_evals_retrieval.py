"""What each way to retrieve finds: data, scores, runs on real collections, report and page."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from crag_middleware import ConfigError, CRAGSettings, Passage, RetrievalError
from crag_middleware.evals.retrieval import RetrievalReport, measure_retrieval
from crag_middleware.evals.retrieval.page import render
from crag_middleware.evals.retrieval.questions import Corpus, RetrievalItem, load_retrieval
from crag_middleware.evals.retrieval.report import DEPTHS, make_retrieval_report
from crag_middleware.evals.retrieval.rows import RETRIEVALS, RetrievalRow, RetrievalRun
from crag_middleware.evals.retrieval.run import retrieve_each
from crag_middleware.evals.retrieval.scores import ndcg, recall, reciprocal_rank, redundancy
from crag_middleware.evals.retrieval.ways import BM25, DENSE, MMR, RERANK, RRF
from tests.support.milvus import WordEmbeddings
from tests.support.rerankers import WordEncoder
from tests.test_evals_datasets import PRIVATE, write
from tests.test_evals_report import Page

FIXTURE = Path(__file__).resolve().parent.parent / "examples" / "eval" / "retrieval.jsonl"
RUN = RetrievalRun("words", "", 20, 60, 0.95)
DOCUMENTS = (
    {"id": "d1", "title": "Ports", "text": "The exporter listens on port 9100."},
    {"id": "d2", "text": "Settings are read when the service starts."},
    {"id": "d3", "text": " "},
)
GRADES = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-1, 4)).filter(lambda g: any(v > 0 for v in g.values()))
RANKING = st.permutations("abcdefghij")


def question(**keys: Any) -> dict[str, Any]:
    return {"question": "Which port?", "relevant": {"d1": 2}} | keys


def item(texts: Mapping[str, str], grades: Mapping[str, int], asked: str = "port of the exporter", name: str = "q1") -> RetrievalItem:
    return RetrievalItem(id=name, lang="en", source="set", question=asked, corpus=Corpus(texts), grades=grades)


# The scores


def test_the_scores_are_those_of_the_textbook() -> None:
    """Worked by hand: gains 3 at rank 2 and 1 at rank 3, of an ideal 3, 2, 1."""
    ranked, grades = ["x", "a", "c", "y"], {"a": 3, "b": 2, "c": 1, "y": 0}

    assert ndcg(ranked, grades) == pytest.approx((3 / 1.5849625 + 1 / 2) / (3 + 2 / 1.5849625 + 1 / 2))
    assert [recall(ranked, grades, k) for k in (1, 2, 3, 20)] == pytest.approx([0, 1 / 3, 2 / 3, 2 / 3])
    assert reciprocal_rank(ranked, grades) == 0.5
    assert reciprocal_rank(ranked, grades, k=1) == 0.0


@given(RANKING, GRADES)
def test_ndcg_is_that_of_scikit_learn(ranked: list[str], grades: dict[str, int]) -> None:
    truth = np.array([[max(grades.get(name, 0), 0) for name in ranked]])

    assert ndcg(ranked, grades, 5) == pytest.approx(ndcg_score(truth, np.array([range(len(ranked), 0, -1)]), k=5))


@given(RANKING, GRADES, st.integers(1, 10))
def test_scores_stay_between_0_and_1_and_the_best_order_has_them_all(ranked: list[str], grades: dict[str, int], k: int) -> None:
    best = sorted(ranked, key=lambda name: -grades.get(name, 0))

    assert 0 <= ndcg(ranked, grades, k) <= ndcg(best, grades, k) == pytest.approx(1)
    assert reciprocal_rank(ranked, grades, k) <= reciprocal_rank(best, grades, k) == 1
    assert recall(ranked, grades, k) <= recall(ranked, grades, k + 1) <= recall(ranked, grades, 10) == 1


@given(RANKING, GRADES, st.integers(1, 10))
def test_what_stands_below_the_cut_changes_nothing(ranked: list[str], grades: dict[str, int], k: int) -> None:
    other = [*ranked[:k], *reversed(ranked[k:])]

    assert ndcg(other, grades, k) == ndcg(ranked, grades, k)
    assert recall(other, grades, k) == recall(ranked, grades, k)


def test_redundancy_is_the_mean_over_pairs() -> None:
    assert redundancy([(1.0, 0.0), (1.0, 0.0), (0.0, 1.0)]) == pytest.approx(1 / 3)
    assert redundancy([(1.0, 0.0)]) is None


# The data


def test_a_file_holds_documents_and_questions(tmp_path: Path) -> None:
    first, second = load_retrieval([write(tmp_path / "own.jsonl", *DOCUMENTS, question(), question(id="q", lang="de", source="help"))])

    assert (first.id, first.lang, first.source, first.grades) == ("own-4", "en", "own", {"d1": 2})
    assert (second.id, second.lang, second.source) == ("q", "de", "help")
    assert first.corpus is second.corpus
    assert list(first.corpus.texts.values()) == ["Ports\nThe exporter listens on port 9100.", DOCUMENTS[1]["text"], ""]


def test_a_title_that_the_text_begins_with_is_not_said_twice(tmp_path: Path) -> None:
    document = {"id": "d1", "title": "Ports", "text": "Ports. The exporter listens on 9100."}
    (found,) = load_retrieval([write(tmp_path / "own.jsonl", document, question())])

    assert found.corpus.texts["d1"] == document["text"]


def test_cranfields_codes_are_turned_round(tmp_path: Path) -> None:
    """There 1 is a complete answer and 4 of minimum interest; -1 was not judged."""
    names = ["d1", "d2", "d3", "d4", "d5"]
    write(tmp_path / "cranfield_corpus.jsonl", *({"id": name, "title": "", "text": name} for name in names))
    path = write(tmp_path / "queries.jsonl", {"id": "1", "question": "q", "qrels": dict(zip(names, (1, 2, 3, 4, -1), strict=True))})

    (found,) = load_retrieval([path])

    assert found.grades == {"d1": 4, "d2": 3, "d3": 2, "d4": 1, "d5": 0}
    assert list(found.corpus.texts) == names


def beir(folder: Path, *qrels: str, at: str = "qrels/test.tsv") -> Path:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    write(folder / "corpus.jsonl", {"_id": "d1", "title": "T", "text": "a", "metadata": {}}, {"_id": "d2", "title": None, "text": "b"})
    write(
        folder / "queries.jsonl", {"_id": "q1", "text": "first"}, {"_id": "q2", "text": "第二个问题"}, {"_id": "q3", "text": "not judged"}
    )
    write(folder / at, *qrels)
    return folder


@pytest.mark.parametrize("at", ["qrels/test.tsv", "qrels/dev.tsv", "qrels.tsv"])
def test_a_folder_is_read_as_beir_lays_it_out(tmp_path: Path, at: str) -> None:
    folder = beir(tmp_path / "scifact", "query-id\tcorpus-id\tscore", "q1\td1\t2", "q1\td2\t0", "q2\td2\t1", at=at)

    first, second = load_retrieval([folder])

    assert (first.id, first.question, first.lang, first.grades) == ("scifact-q1", "first", "en", {"d1": 2, "d2": 0})
    assert (second.id, second.source, second.lang, second.grades) == ("scifact-q2", "scifact", "zh", {"d2": 1})
    assert first.corpus.texts == {"d1": "T\na", "d2": "b"}


def test_questions_with_labelled_passages_are_searched_among_all_passages_of_their_set(tmp_path: Path) -> None:
    asked = {"source": "help", "passages": [{"text": "a", "label": "relevant"}, {"text": "shared", "label": "incorrect"}]}
    one = write(tmp_path / "one.jsonl", {"id": "1", "question": "q", **asked})
    other = {"id": "2", "question": "r", "source": "help", "passages": [{"text": "shared", "label": "relevant"}, {"text": "b"}]}
    two = write(tmp_path / "two.jsonl", other, {"id": "3", "question": "s", "source": "other", "passages": [{"text": "c", "label": True}]})

    first, second, third = load_retrieval([one, two])

    assert first.corpus is second.corpus
    assert list(first.corpus.texts.values()) == ["a", "shared", "b"]
    names = {text: name for name, text in first.corpus.texts.items()}
    assert first.grades == {names["a"]: 1, names["shared"]: 0}
    assert second.grades == {names["shared"]: 1, names["b"]: 0}
    assert list(third.corpus.texts.values()) == ["c"]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            (*DOCUMENTS, question(relevant={"d9": 1, "d1": 1})),
            "line 4: 1 of its judged documents are not among the 3 documents, such as 'd9'",
        ),
        ((*DOCUMENTS, {"id": "d1", "text": PRIVATE}), "line 4: the document id 'd1' occurs twice"),
        ((*DOCUMENTS, question(id="q"), question(id="q")), "'q' occurs twice"),
        (DOCUMENTS, "there is no question"),
        ((*DOCUMENTS, question(relevant={"d1": "yes"})), "line 4: `relevant.d1`"),
        ((*DOCUMENTS, question(relevant={"d1": 1.5})), "`relevant.d1`"),
        ((*DOCUMENTS, question(relevant=["d1"])), "`relevant`"),
        ((*DOCUMENTS, question(question=" ")), "`question`"),
        ((*DOCUMENTS, {"id": " ", "text": PRIVATE}), "line 4: `id`"),
        ((*DOCUMENTS, {"id": "d\u0007", "text": PRIVATE}), "`id`"),
        ((*DOCUMENTS, {"id": "d5", "text": None}), "`text`"),
        ((*DOCUMENTS, {"id": "d5", "text": "\ud800"}), "`text`"),
        ((*DOCUMENTS, {"question": PRIVATE, "passages": []}), "no known kind of question, got an object with 'passages', 'question'"),
        ((*DOCUMENTS, [PRIVATE]), "got a list"),
        (({"id": "1", "question": "q", "qrels": {"1": 1}},), "can't be read"),
    ],
)
def test_data_that_is_not_in_order_is_one_error_that_says_where(tmp_path: Path, lines: Sequence[Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_retrieval([write(tmp_path / "own.jsonl", *map(json.dumps, lines))])

    message = str(caught.value)
    assert said in message
    assert PRIVATE not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("qrels", "said"),
    [
        (["q1\td1\tmany"] * 2, "line 2: a question's id"),
        (["q1\td1\t1", "q1 d2 1"], "line 2: a question's id"),
        (["q1\td1\t" + "9" * 5000] * 2, "line 2: a question's id"),
        (["q1\td9\t1"], "such as 'd9'"),
        ([], "there is no question"),
    ],
)
def test_judgements_of_a_folder_that_are_not_in_order_are_one_error(tmp_path: Path, qrels: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_retrieval([beir(tmp_path / "own", *qrels)])


def test_judgements_that_are_no_text_are_one_error(tmp_path: Path) -> None:
    folder = beir(tmp_path / "own")
    (folder / "qrels" / "test.tsv").write_bytes(b"q1\t\xff\t1\n")

    with pytest.raises(ConfigError, match="not UTF-8"):
        load_retrieval([folder])


def test_a_folder_without_judgements_says_what_is_missing(tmp_path: Path) -> None:
    folder = beir(tmp_path / "own", at="corpus.jsonl")

    with pytest.raises(ConfigError, match=r"qrels/test\.tsv"):
        load_retrieval([folder])


def test_the_digest_of_a_question_changes_with_all_that_its_row_depends_on() -> None:
    one = item({"a": "x"}, {"a": 1})

    changed = [replace(one, question="other"), replace(one, grades={"a": 2}), replace(one, corpus=Corpus({"a": "y"}))]
    assert len({one.digest, *(other.digest for other in changed)}) == 4


# The runs


class Counting(WordEmbeddings):
    """Counts the documents embedded, and fails on questions that say so."""

    model = "words"

    def __init__(self) -> None:
        super().__init__()
        self.documents = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        self.documents += len(texts)
        return super().embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        if "BREAK" in text:
            raise ValueError(PRIVATE)
        return super().embed_query(text)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[RetrievalReport, Path, list[Any]]:
    """The hand-made set, measured once, with its directory and what was told of progress."""
    folder, told = tmp_path_factory.mktemp("run"), []
    report = measure_retrieval([FIXTURE], Counting(), folder=folder, reranker=WordEncoder(), progress=told.append)
    return report, folder, told


def rows_of(folder: Path) -> list[RetrievalRow]:
    return list(RETRIEVALS.read(folder / "rows.jsonl")[1].values())


def test_every_way_is_measured_on_every_question(run: tuple[RetrievalReport, Path, list[Any]]) -> None:
    report, folder, told = run

    assert [(one.name, one.questions, one.documents) for one in report.sets] == [("handmade (en)", 20, 44), ("handmade (zh)", 20, 44)]
    for one in report.sets:
        assert list(one.ways) == [DENSE, BM25, RRF, RERANK, *MMR]
        for found in one.ways.values():
            assert list(found.recall) == list(DEPTHS)
            assert 0.2 < found.mrr.value <= 1
            assert 0.6 < found.recall[20].value <= 1
            assert found.ndcg.low <= found.ndcg.value <= found.ndcg.high
    assert (told[-1].done, told[-1].total, told[-1].failed) == (84, 84, 0)
    assert all(len(row.ranked[way]) == 20 for row in rows_of(folder) for way in (DENSE, RRF, RERANK))


def test_the_fusion_is_that_of_the_two_legs_alone(run: tuple[RetrievalReport, Path, list[Any]]) -> None:
    """So a leg alone is what goes into the fusion: its order follows from theirs, give or take places that a leg's ties leave open."""
    for row in rows_of(run[1]):
        ranks = [{name: rank for rank, name in enumerate(row.ranked[way], 1)} for way in (DENSE, BM25)]
        worth = {name: sum(1 / (60 + at[name]) for at in ranks if name in at) for name in ranks[0] | ranks[1]}
        best = sorted(worth.values(), reverse=True)[: len(row.ranked[RRF])]
        assert row.ranked[DENSE] != row.ranked[BM25]
        assert [worth[name] for name in row.ranked[RRF]] == pytest.approx(best, abs=1e-3)


def test_mmr_chooses_among_what_was_fused_and_never_less_varied_than_the_order(run: tuple[RetrievalReport, Path, list[Any]]) -> None:
    report, folder, _ = run

    for row in rows_of(folder):
        assert row.ranked["mmr_1"] == row.ranked[RRF]
        assert all(sorted(row.ranked[way]) == sorted(row.ranked[RRF]) for way in (RERANK, *MMR))
    for one in report.sets:
        alike = [one.ways[way].redundancy.value for way in MMR]
        assert alike[0] < alike[-1]
        assert alike == sorted(alike)


def test_a_reranker_puts_first_what_it_scores_highest(run: tuple[RetrievalReport, Path, list[Any]]) -> None:
    _, folder, _ = run
    items = {one.id: one for one in load_retrieval([FIXTURE])}

    for row in rows_of(folder):
        pairs = [(items[row.id].question, items[row.id].corpus.texts[name]) for name in row.ranked[RERANK]]
        scores = WordEncoder().score(pairs)
        assert scores == sorted(scores, reverse=True)


def test_a_run_holds_no_word_of_the_data_and_its_page_needs_nothing_from_elsewhere(run: tuple[RetrievalReport, Path, list[Any]]) -> None:
    _, folder, _ = run
    page = (folder / "report.html").read_text()
    held = (folder / "rows.jsonl").read_text() + page + (folder / "report.json").read_text()

    read = Page(page)
    assert read.open == []
    assert not any(tag in ("script", "link", "img") for tag, _ in read.tags)
    assert sum(tag == "svg" for tag, _ in read.tags) == 6
    assert "RRF + MMR 0.7" in read.text
    for one in load_retrieval([FIXTURE]):
        assert one.question not in held
        assert all(text not in held for text in one.corpus.texts.values())


def test_the_json_has_every_number_with_its_interval(run: tuple[RetrievalReport, Path, list[Any]]) -> None:
    report, folder, _ = run

    held = json.loads((folder / "report.json").read_text())
    assert (held["version"], held["embeddings"], held["candidates"], held["rrf_k"]) == (1, "words", 20, 60)
    ways = held["sets"][0]["ways"]
    assert ways["bm25"]["ndcg"]["value"] == report.sets[0].ways[BM25].ndcg.value
    assert ways["bm25"]["recall"].keys() == {"1", "3", "5", "10", "20"}
    assert ways["rrf"]["over_rrf"] is None
    over = ways["dense"]["over_rrf"]
    assert over["value"] == pytest.approx(ways["dense"]["ndcg"]["value"] - ways["rrf"]["ndcg"]["value"])
    assert over["low"] <= over["value"] <= over["high"]


def test_a_finished_run_that_is_resumed_stores_nothing_again(run: tuple[RetrievalReport, Path, list[Any]]) -> None:
    report, folder, _ = run
    embeddings = Counting()

    again = measure_retrieval([FIXTURE], embeddings, folder=folder, reranker=WordEncoder(), resume=True)

    assert (again.sets, embeddings.documents) == (report.sets, 0)


@pytest.mark.parametrize("other", [{"reranker": None}, {"settings": CRAGSettings(rrf_k=10)}, {"settings": CRAGSettings(candidates=5)}])
def test_a_run_of_something_else_is_not_gone_on_with(run: tuple[RetrievalReport, Path, list[Any]], other: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="name another place"):
        measure_retrieval([FIXTURE], Counting(), folder=run[1], resume=True, **{"reranker": WordEncoder(), **other})


def test_documents_are_indexed_before_the_first_question_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Milvus Lite has data files, and an index over them, only of rows that were flushed."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    files: list[bool] = []

    retrieve_each(
        [item({"a": "the exporter"}, {"a": 1})], WordEmbeddings(), progress=lambda _: files.append(any(place.rglob("data_*.parquet")))
    )

    assert files[-1]
    assert list(place.iterdir()) == []


def test_documents_without_words_are_left_out_and_copies_count_as_one_document() -> None:
    """Whoever was shown one of two copies has the other."""
    texts = {"a": "The exporter listens on port 9100.", "blank": "", "b": "the exporter  listens on port 9100.", "c": "Lunch is at noon."}

    (row,) = retrieve_each([item(texts, {"a": 1, "b": 1, "blank": 1})], WordEmbeddings())

    for way, ranked in row.ranked.items():
        assert set(ranked[:2]) == {"a", "b"}, way
        assert "blank" not in ranked
    assert recall(row.ranked[RRF], row.grades, 20) == pytest.approx(2 / 3)


def test_each_set_is_searched_among_its_own_documents() -> None:
    one = item({"a": "port of the exporter"}, {"a": 1})
    other = item({"b": "port of the exporter"}, {"b": 1}, name="q2")

    rows = retrieve_each([one, other], WordEmbeddings())

    assert [row.ranked[DENSE] for row in rows] == [("a",), ("b",)]


def test_a_question_that_fails_is_a_row_with_the_reason_and_in_no_number(tmp_path: Path) -> None:
    path = write(tmp_path / "own.jsonl", *DOCUMENTS, question(), question(question="BREAK: which port?"))

    report = measure_retrieval([path], Counting(), folder=tmp_path / "run")

    (one,) = report.sets
    assert (one.questions, one.failed, one.ways[DENSE].ndcg.value) == (2, {"embedding": 1}, 1.0)
    assert one.ways[DENSE].ndcg.low is None
    assert PRIVATE not in (tmp_path / "run" / "rows.jsonl").read_text()


class FailsOnce(WordEmbeddings):
    """Fails at the second question."""

    asked = 0

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return WordEmbeddings().embed_documents(texts)

    def embed_query(self, text: str) -> list[float]:
        self.asked += text != "knowledge"
        if self.asked == 2:
            raise ValueError(PRIVATE)
        return super().embed_query(text)


def test_a_fusion_that_a_leg_is_missing_from_counts_as_failed() -> None:
    """The dense search alone works; the fusion would be of BM25 alone, since its embedder failed."""
    (row,) = retrieve_each([item({"a": "the exporter", "b": "lunch"}, {"a": 1})], FailsOnce())

    assert (row.error, row.ranked) == ("embedding", {})


class Broken:
    def rerank(self, question: str, passages: Sequence[Passage]) -> list[float]:
        return [float("nan")] * len(passages)


class Async:
    floor = 0.5

    async def arerank(self, question: str, passages: Sequence[Passage]) -> list[float | None]:
        return [None if "lunch" in p.text else 0.9 if "dinner" in p.text else 0.1 for p in passages]


def test_a_reranker_that_fails_makes_the_question_fail() -> None:
    (row,) = retrieve_each([item({"a": "the exporter"}, {"a": 1})], WordEmbeddings(), reranker=Broken())

    assert row.error == "invalid_reply"


def test_a_rerankers_floor_leaves_passages_out_and_unscored_ones_stand_last() -> None:
    texts = {"a": "the exporter", "b": "lunch", "c": "dinner"}

    (row,) = retrieve_each([item(texts, {"a": 1})], WordEmbeddings(), reranker=Async())

    assert row.ranked[RERANK] == ("c", "b")


def test_when_every_question_fails_the_run_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "own.jsonl", *DOCUMENTS, question(question="BREAK"))

    with pytest.raises(RetrievalError, match="not one of 1 questions could be searched for"):
        measure_retrieval([path], Counting(), folder=tmp_path / "run")


def test_questions_without_a_relevant_document_are_left_out_and_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "own.jsonl", *DOCUMENTS, question(), question(relevant={"d1": 0}), question(relevant={}))

    report = measure_retrieval([path], WordEmbeddings(), folder=tmp_path / "run")

    assert (report.sets[0].questions, report.without_relevant) == (1, {("own", "en"): 2})
    assert "2 of own (en)" in Page(render(report)).text
    with pytest.raises(ConfigError, match="none of 1 questions has a relevant document"):
        measure_retrieval([write(tmp_path / "none.jsonl", *DOCUMENTS, question(relevant={}))], WordEmbeddings(), folder=tmp_path / "other")


def test_a_limit_and_languages_choose_questions_and_leave_the_documents(tmp_path: Path) -> None:
    report = measure_retrieval([FIXTURE], WordEmbeddings(), folder=tmp_path / "run", languages=["zh"], limit=2)

    assert [(one.name, one.questions, one.documents) for one in report.sets] == [("handmade (zh)", 2, 44)]


# The report


def row(name: str, *, lang: str = "en", ranked: Mapping[str, tuple[str, ...]] | None = None, **keys: Any) -> RetrievalRow:
    found = ranked or {DENSE: ("b", "a"), RRF: ("a", "b")}
    return RetrievalRow(id=name, digest="d", source="set", lang=lang, seconds=0.1, grades={"a": 1}, ranked=found, **keys)


def test_a_mean_is_over_the_questions_that_have_the_number() -> None:
    rows = [row("1", redundancy={RRF: 0.4}), row("2")]

    (one,) = make_retrieval_report(rows, RUN, documents={("set", "en"): 2}).sets

    assert one.ways[RRF].redundancy is not None
    assert one.ways[RRF].redundancy.value == pytest.approx(0.4)
    assert one.ways[DENSE].redundancy is None
    assert one.ways[DENSE].over_rrf.value == pytest.approx(ndcg(("b", "a"), {"a": 1}) - 1)
    assert (one.documents, one.relevant) == (2, 2)


def test_sets_and_languages_are_never_pooled() -> None:
    rows = [row("1"), row("2", lang="zh", ranked={DENSE: (), RRF: ()})]

    report = make_retrieval_report(rows, RUN, documents={("set", "en"): 2, ("set", "zh"): 3})

    assert [(one.lang, one.documents, one.ways[RRF].ndcg.value) for one in report.sets] == [("en", 2, 1.0), ("zh", 3, 0.0)]


def test_the_page_escapes_every_name_and_draws_what_there_is() -> None:
    hostile = "<script>alert(1)</script>"
    rows = [replace(row("1"), source=hostile), replace(row("2", error="x", ranked={DENSE: ()}), source=hostile, ranked={})]
    report = make_retrieval_report(rows, replace(RUN, embeddings=hostile), documents={(hostile, "en"): 2})

    page = Page(render(report))

    assert page.open == []
    assert "script" not in [tag for tag, _ in page.tags]
    assert page.text.lower().count(hostile) >= 2
    assert "1 questions failed" in page.text


def test_the_page_of_a_set_in_which_all_failed_can_be_drawn() -> None:
    report = make_retrieval_report([replace(row("1"), ranked={}, error="timeout")], RUN, documents={("set", "en"): 2})

    assert report.sets[0].ways == {}
    assert "1 with timeout" in Page(render(report)).text
    json.loads(report.to_json())


@pytest.mark.parametrize(
    ("broken", "said"),
    [({"grades": {"a": 0}}, "above 0"), ({"ranked": {"own": ["a"]}}, "'own'"), ({"redundancy": {"rrf": 3.0}}, "redundancy")],
)
def test_a_row_that_is_none_is_refused(tmp_path: Path, broken: dict[str, Any], said: str) -> None:
    path = tmp_path / "rows.jsonl"
    RETRIEVALS.start(path, RUN)
    RETRIEVALS.append(path, row("1"))
    first, second = path.read_text().splitlines()
    path.write_text(f"{first}\n{json.dumps(json.loads(second) | broken)}\n")

    with pytest.raises(ConfigError, match=said):
        RETRIEVALS.read(path)
