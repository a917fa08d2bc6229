"""Documents that are stored more than once: each text has one place, the same as if it were stored once."""

import asyncio
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymilvus import DataType, MilvusClient

from crag_middleware.adapters.milvus import MilvusRetriever
from crag_middleware.adapters.milvus_copies import MAX_DEPTH, depth, most_copies, ordered, places
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.merge import MergeRules, marked, merge
from crag_middleware.stages.sameness import Looks, normal
from crag_middleware.types import Passage
from tests.support import milvus as support
from tests.support.milvus import TENANT, insert, make_collection, open_store, text_column

lite_uri = support.lite_uri

COLUMNS = {"agent_id": TENANT, "source": text_column()}
EVAL = Path(__file__).parents[1] / "examples" / "eval"
RULES = MergeRules(weights={}, half_life_days={}, by_type={}, now_ms=0, rrf_k=60, near=0.95)

FULL_WIDTH = {i: i + 0xFEE0 for i in range(0x21, 0x7F)} | {0x20: 0x3000}
HALF_WIDTH = {"，": ", ", "。": ". ", "；": "; ", "：": ": "}
FORMATS: Sequence[Callable[[str], str]] = (
    lambda text: "  " + re.sub(r"(?<=[。！？])|(?<=[a-z]\.) ", "\n\n", text) + " \n",
    str.upper,
    lambda text: "- " + re.sub(r"^(\w+)", r"**\1**", text),
    lambda text: text.translate(FULL_WIDTH),
    lambda text: (
        re.sub(r"[，。；：](?![\dA-Za-z])", lambda sign: HALF_WIDTH[sign.group()], text)
        if "。" in text
        else re.sub(r"\.(?=\s|$)", "。", text)
    ),
    lambda text: "# " + text.replace(" ", "  "),
    str.lower,
)


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EVAL / name).read_text().splitlines()]


def ask(retriever: MilvusRetriever, question: str, **options: Any) -> tuple[Passage, ...]:
    return tuple(retriever.retrieve(question, **({"agent_id": "a", "limit": 20, "timeout_s": 20} | options)))


def final(retriever: MilvusRetriever, question: str) -> list[str]:
    """What the first five passages after the merge say."""
    return [normal(p.text) for p in merge(marked(ask(retriever, question), "knowledge", 0), RULES)[:5]]


class Normalizing(support.WordEmbeddings):
    """Takes full-width letters for what they are, as the tokenizers of embedding models do."""

    def embed_query(self, text: str) -> list[float]:
        return super().embed_query(unicodedata.normalize("NFKC", text))


def stored(texts: Sequence[str], copies: int, *, formats: Sequence[Callable[[str], str]] = FORMATS) -> list[dict[str, Any]]:
    """Each text so many times under ids of their own, every other row in another format."""
    turn = cycle(formats)
    rows = [(i, j, text) for i, text in enumerate(texts) for j in range(copies)]
    return [
        {"id": f"{i}-{j}", "text": next(turn)(text) if n % 2 else text, "agent_id": "a", "source": f"{i}.md"}
        for n, (i, j, text) in enumerate(rows)
    ]


def retriever_of(uri: str, name: str, rows: Sequence[dict[str, Any]], *, bm25: bool = True, **options: Any) -> MilvusRetriever:
    client, embeddings = make_collection(uri, name, COLUMNS, bm25=bm25), Normalizing()
    client.insert(name, [{**row, "dense": embeddings.embed_query(row["text"])} for row in rows])
    return MilvusRetriever(open_store(uri, name, bm25=bm25, embedding_function=[embeddings]), **options)


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """English and Chinese passages, no two the same."""
    return [*{normal(p["text"]): p["text"] for item in read("relevance.jsonl") for p in item["passages"]}.values()]


@pytest.fixture(scope="module")
def items() -> list[dict[str, Any]]:
    """Questions in English and Chinese, each with passages of which some are labelled `relevant`."""
    answered = [i for i in read("relevance.jsonl") if any(p["label"] == "relevant" for p in i["passages"])]
    return [item for language in ("en", "zh") for item in [i for i in answered if i["lang"] == language][::4]]


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("duplicates") / "knowledge.db")


def test_the_dense_leg_finds_in_copies_what_it_finds_in_the_clean_collection(
    uri: str, texts: list[str], items: list[dict[str, Any]]
) -> None:
    clean = retriever_of(uri, "clean_dense", [{"id": str(i), "text": t, "agent_id": "a"} for i, t in enumerate(texts)], bm25=False)
    copied = retriever_of(uri, "copied_dense", stored(texts, 3), bm25=False)

    for item in items:
        assert final(copied, item["question"]) == final(clean, item["question"])


def test_the_hybrid_search_finds_the_same_answers_in_copies_and_nearly_the_same_beside_them(
    uri: str, texts: list[str], items: list[dict[str, Any]]
) -> None:
    """BM25 itself weighs words a little differently where texts are stored more often, and does not know full-width letters: what has little to do
    with the question may change places.
    """
    clean = retriever_of(uri, "clean", [{"id": str(i), "text": t, "agent_id": "a"} for i, t in enumerate(texts)])
    copied = retriever_of(uri, "copied", stored(texts, 3))

    shared = answers = 0
    for item in items:
        relevant = {normal(p["text"]) for p in item["passages"] if p["label"] == "relevant"}
        one, other = final(clean, item["question"]), final(copied, item["question"])
        assert {*one[:3]} & relevant <= {*other}
        assert len(one) == len({*other}) == 5
        shared, answers = shared + len({*one} & {*other}), answers + len({*one[:3]} & relevant)

    assert answers >= 5, "the questions are not too hard to tell"
    assert shared >= 0.95 * 5 * len(items)


@pytest.mark.parametrize("form", ["sync", "async"])
@pytest.mark.parametrize("legs", [{}, {"bm25": False}])
def test_rows_that_repeat_a_text_take_one_place_and_name_the_others(lite_uri: str, legs: dict[str, bool], form: str) -> None:
    rows = [{"id": f"x{i}", "text": f"{'  ' * i}The library opens at nine.", "agent_id": "a", "source": f"{i}.md"} for i in range(9)]
    rows += [{"id": f"y{i}", "text": f"The library lends item {i}.", "agent_id": "a", "source": "y.md"} for i in range(4)]
    rows += [{"id": "b", "text": "The library opens at nine.", "agent_id": "b", "source": "b.md"}]
    insert(make_collection(lite_uri, "k", COLUMNS, **legs), "k", rows)
    retriever = MilvusRetriever(open_store(lite_uri, "k", **legs), settings=CRAGSettings(candidates=5))
    arguments: dict[str, Any] = {"agent_id": "a", "limit": 5, "timeout_s": 10}
    question = "When does the library open, at nine?"

    found = retriever.retrieve(question, **arguments) if form == "sync" else asyncio.run(retriever.aretrieve(question, **arguments))

    assert [p.rank for p in found] == [1, 2, 3, 4, 5]
    assert sorted([found[0].id, *found[0].metadata["same_text"]]) == [f"x{i}" for i in range(9)]
    assert {p.id for p in found[1:]} == {f"y{i}" for i in range(4)}
    assert not any("same_text" in p.metadata for p in found[1:])


def test_explain_tells_the_place_of_the_text_and_not_of_the_row(lite_uri: str) -> None:
    rows = [{"id": f"{word}{i}", "text": f"The {word} opens at nine.", "agent_id": "a"} for word in ("library", "museum") for i in range(3)]
    insert(make_collection(lite_uri, "k", COLUMNS), "k", rows)

    found = ask(MilvusRetriever(open_store(lite_uri, "k"), settings=CRAGSettings(explain=True)), "When does the museum open?")

    assert [p.text for p in found] == ["The museum opens at nine.", "The library opens at nine."]
    assert [p.metadata["legs"]["dense"]["rank"] for p in found] == [1, 2]
    assert found[0].score == pytest.approx(sum(1 / (60 + leg["rank"]) for leg in found[0].metadata["legs"].values()))


def test_the_row_that_stands_for_its_text_is_set_like_most_and_the_newest_of_them(lite_uri: str) -> None:
    columns = COLUMNS | {"created_at": (DataType.INT64, {"nullable": True})}
    texts = [
        ("a", "The library opens.", 1),
        ("b", "The library opens.", 3),
        ("c", "THE LIBRARY OPENS.", 9),
        ("d", "The library opens.", None),
    ]
    rows = [{"id": key, "text": text, "agent_id": "a", "created_at": at} for key, text, at in texts]
    insert(make_collection(lite_uri, "k", columns), "k", rows)

    (passage,) = ask(MilvusRetriever(open_store(lite_uri, "k")), "library")

    assert (passage.id, passage.text, passage.metadata["same_text"]) == ("b", "The library opens.", ["a", "c", "d"])


def test_of_two_versions_with_one_text_the_later_speaks(lite_uri: str) -> None:
    columns = COLUMNS | {"doc_id": text_column(), "version": text_column(), "created_at": (DataType.INT64, {"nullable": True})}
    rows = [("a", "2.9", 7), ("b", "2.10", 5), ("c", "2.9", 6)]
    insert(
        make_collection(lite_uri, "k", columns),
        "k",
        [{"id": key, "text": "The library opens.", "agent_id": "a", "doc_id": "d", "version": v, "created_at": at} for key, v, at in rows],
    )

    (passage,) = ask(MilvusRetriever(open_store(lite_uri, "k")), "library")

    assert (passage.id, passage.metadata["version"]) == ("b", "2.10")


def test_a_collection_without_copies_is_searched_once(lite_uri: str) -> None:
    calls: list[str] = []

    class Counting(MilvusClient):
        def search(self, *arguments: Any, **keywords: Any) -> Any:
            calls.append("search")
            return super().search(*arguments, **keywords)

        def hybrid_search(self, *arguments: Any, **keywords: Any) -> Any:
            calls.append("hybrid_search")
            return super().hybrid_search(*arguments, **keywords)

    insert(make_collection(lite_uri, "k", COLUMNS), "k", [{"id": str(i), "text": f"library {i}", "agent_id": "a"} for i in range(9)])
    store = open_store(lite_uri, "k")
    store._milvus_client = Counting(**store._connection_args)
    retriever = MilvusRetriever(store)

    ask(retriever, "library")
    assert calls == ["hybrid_search"]
    insert(store.client, "k", [{"id": "copy", "text": "Library  3", "agent_id": "a"}])
    ask(retriever, "library")
    assert calls == ["hybrid_search", "hybrid_search", "search", "search"]


def test_equal_scores_stand_in_the_order_of_their_texts_whatever_their_ids(lite_uri: str) -> None:
    client = make_collection(lite_uri, "k", COLUMNS, bm25=False)
    orders = []
    for ids in (range(6), range(5, -1, -1)):
        insert(client, "k", [{"id": str(i), "text": f"library {'abcdef'[n]}", "agent_id": str(ids)} for n, i in enumerate(ids)])
        found = ask(MilvusRetriever(open_store(lite_uri, "k", bm25=False)), "museum", agent_id=str(ids))
        orders.append([p.text for p in found])
        client.delete("k", filter='id != ""')

    assert orders[0] == orders[1]


words = st.sampled_from(["a", "A ", "b", "**b**", "c", "d"])


@given(
    legs=st.lists(st.lists(st.tuples(st.integers(0, 5), words), unique_by=lambda row: row[0]), min_size=1, max_size=3), n=st.integers(1, 4)
)
def test_places_are_ranks_of_distinct_texts_and_never_more_than_candidates(legs: list[list[tuple[int, str]]], n: int) -> None:
    found = {
        str(i): [Passage(f"{key}{text}", text, score=1.0 - at / 10) for at, (key, text) in enumerate(leg)] for i, leg in enumerate(legs)
    }

    standing = places(found, n, Looks())

    for leg, passages in found.items():
        said = {normal(p.text) for p in passages}
        assert standing[leg].keys() <= said
        assert sorted(p.rank for p in standing[leg].values()) == list(range(1, min(n, len(said)) + 1))


@given(order=st.permutations(list(range(6))), copies=st.integers(1, 5))
def test_whole_copies_of_a_leg_leave_its_places_as_they_are(order: list[int], copies: int) -> None:
    plain = {"dense": [Passage(str(i), f"text {i}") for i in order]}
    copied = {"dense": [Passage(f"{i}-{j}", f"Text  {i}") for i in order for j in range(copies)]}

    assert places(copied, 6, Looks()) == places(plain, 6, Looks())


@given(order=st.permutations(list(range(6))), odd=st.dictionaries(st.integers(0, 5), st.sampled_from(["above", "below", "missing"])))
def test_one_odd_row_of_three_does_not_move_its_text(order: list[int], odd: dict[int, str]) -> None:
    rows = [Passage(f"{i}-{j}", f"text {i}") for i in order for j in range(3 if i not in odd else 2)]
    strays = {i: Passage(f"{i}-2", f"TEXT {i}") for i in odd}
    leg = [*(strays[i] for i in odd if odd[i] == "above"), *rows, *(strays[i] for i in odd if odd[i] == "below")]

    standing = places({"sparse": leg, "dense": [*rows, *strays.values()]}, 6, Looks())

    assert standing["sparse"] == places({"sparse": [Passage(str(i), f"text {i}") for i in order]}, 6, Looks())["sparse"]


@given(candidates=st.integers(1, 1000), copies=st.integers(1, 1000))
def test_a_leg_is_asked_for_no_less_than_its_candidates_and_never_beyond_the_bound(candidates: int, copies: int) -> None:
    rows = depth(candidates, copies)

    assert candidates <= rows <= max(candidates, MAX_DEPTH)
    assert depth(candidates, 1) == candidates


scores = st.one_of(st.none(), st.sampled_from([0.5, 0.5 + 1e-9, 0.25, 0.0, -1.0]))


@given(rows=st.lists(st.tuples(words, scores), max_size=8))
def test_rows_stand_by_score_and_those_of_one_score_by_text(rows: list[tuple[str, float | None]]) -> None:
    found = [Passage(str(i), text, score=score) for i, (text, score) in enumerate(rows)]
    slowly = sorted(found, key=lambda p: (-float(f"{p.score or 0.0:.6g}"), normal(p.text)))

    assert [p.id for p in ordered(found, Looks())] == [p.id for p in slowly]
    assert most_copies(found, Looks()) == max(Counter(normal(p.text) for p in found).values(), default=1)
