"""A few passages out of many: relevant, unlike each other, fair to the parts of a question."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.stages.selection import select
from crag_middleware.types import Hit, Passage


def passage(id_, fused=None, *, text="", queries=(), vector=None, rerank=None):
    hits = tuple(Hit("r", q, rank, id_) for q, rank in queries)
    return Passage(id=id_, text=text or id_, fused_score=fused, rerank_score=rerank, hits=hits, vector=vector)


def ids(passages):
    return [p.id for p in passages]


FIVE_COPIES = [
    *(passage(f"copy{i}", 1 - i / 100, text=f"The library is open on weekends, from nine to five. {i}") for i in range(5)),
    passage("other", 0.9, text="Books may be kept for thirty days."),
    passage("far", 0.0, text="Nothing to do with it."),
]


def test_five_copies_of_one_fact_leave_room_for_another():
    assert "other" not in ids(select(FIVE_COPIES, 3, mmr_lambda=1, fair=False))
    assert ids(select(FIVE_COPIES, 2, mmr_lambda=0.7, fair=False)) == ["copy0", "other"]


def test_vectors_tell_likeness_where_both_have_one():
    first, same, other = passage("a", 1.0, vector=(1, 0)), passage("b", 0.9, vector=(1, 0)), passage("c", 0.8, vector=(0, 1))

    assert ids(select([first, same, other, passage("d", 0.0)], 2, mmr_lambda=0.5, fair=False)) == ["a", "c"]


@pytest.mark.parametrize("vector", [(1, 0, 0), (float("nan"), 0), (0, 0), ()])
def test_vectors_of_unlike_length_or_without_direction_are_never_compared(vector):
    pool = [passage("a", 1.0, vector=(1, 0), text="one text"), passage("b", 0.5, vector=vector, text="quite another"), passage("c", 0.0)]

    assert ids(select(pool, 2, mmr_lambda=0.5, fair=False)) == ["a", "b"]


def test_the_rerankers_scores_count_where_there_are_any_and_those_without_come_last():
    pool = [passage("a", 0.9, rerank=0.1), passage("b", 0.5, rerank=0.9), passage("c", 0.1, rerank=0.5)]

    assert ids(select(pool, 3, mmr_lambda=0.99, fair=False)) == ["b", "c", "a"]
    for unscored in (None, float("nan")):
        partly = [passage("d", 0.9, rerank=0.6), replace(pool[0], rerank_score=unscored), *pool[1:]]
        assert ids(select(partly, 4, mmr_lambda=0.99, fair=False))[:2] == ["b", "d"]


def test_the_best_passage_of_every_part_of_a_question_has_a_place():
    whole = [passage(f"w{i}", 1 - i / 10, queries=[(0, i + 1)]) for i in range(4)]
    parts = [passage("p1", 0.2, queries=[(1, 1), (0, 9)]), passage("p1b", 0.15, queries=[(1, 2)]), passage("p2", 0.1, queries=[(2, 1)])]

    assert ids(select([*whole, *parts], 4, mmr_lambda=1, fair=True)) == ["w0", "w1", "p1", "p2"]
    assert ids(select([*whole, *parts], 2, mmr_lambda=1, fair=True)) == ["w0", "p1"]
    assert ids(select([*whole, *parts], 4, mmr_lambda=1, fair=False)) == ["w0", "w1", "w2", "w3"]


score = st.none() | st.sampled_from([0.0, 0.1, 0.5, 1.0, float("nan"), float("inf")])
pool = st.lists(
    st.builds(
        passage,
        st.uuids().map(str),
        score,
        text=st.sampled_from(["", "one text", "one text more", "quite another"]),
        queries=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5)), max_size=3),
        vector=st.none() | st.sampled_from([(1.0, 0.0), (0.0, 1.0), (0.6, 0.8), (float("nan"), 1.0), (1.0,), ()]),
        rerank=score,
    ),
    max_size=10,
)


@settings(deadline=None)
@given(pool, st.integers(-1, 12), st.floats(0, 1), st.booleans())
def test_a_selection_is_a_part_of_what_was_given_as_large_as_allowed(passages, limit, mmr_lambda, fair):
    chosen = select(passages, limit, mmr_lambda=mmr_lambda, fair=fair)

    assert len(chosen) == len(set(ids(chosen))) == min(max(limit, 0), len(passages))
    assert set(ids(chosen)) <= set(ids(passages))
    assert ids(select(passages, limit, mmr_lambda=mmr_lambda, fair=fair)) == ids(chosen)


@settings(deadline=None)
@given(pool, st.integers(0, 12))
def test_without_variety_the_given_order_decides(passages, limit):
    assert ids(select(passages, limit, mmr_lambda=1, fair=False)) == ids(passages)[:limit]


@settings(deadline=None)
@given(pool, st.integers(1, 12), st.floats(0, 1))
def test_a_fair_selection_has_something_for_every_query_if_there_is_room(passages, limit, mmr_lambda):
    queries = {h.query for p in passages for h in p.hits}

    chosen = select(passages, limit, mmr_lambda=mmr_lambda, fair=True)

    assert limit < len(queries) or queries == {h.query for p in chosen for h in p.hits}
