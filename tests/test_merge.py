"""The laws of the merge, and what counts as a copy."""

from dataclasses import replace
from itertools import permutations
from math import cos, radians, sin

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.stages.merge import MergeRules, marked, merge
from crag_middleware.types import Hit, Passage
from tests.test_repeats import DIFFERENT

DAY = 86_400_000
NOW = 1_000 * DAY


def rules(**given):
    return MergeRules(**{"weights": {}, "half_life_days": {}, "by_type": {}, "now_ms": NOW} | given)


def listed(*passages, route="r", query=0):
    return marked(passages, route, query)


def texts(passages):
    return [p.text for p in passages]


def test_a_passage_knows_where_it_was_found():
    one, two = marked([Passage(id="a", text="x", score=0.5), Passage(id="b", text="y", score=float("nan"))], "graph", 2)

    assert one.hits == (Hit("graph", 2, 1, "a", 0.5),)
    assert two.hits == (Hit("graph", 2, 2, "b", None),)


# What is a copy


@pytest.mark.parametrize("other", ["port 9100 is used", "**Port** 9100 is used.", "Port 9100\n  is   used"])
def test_copies_become_the_best_found_with_the_hits_of_all(other):
    first, second = Passage(id="a", text="Port 9100 is used."), Passage(id="b", text=other)

    (left,) = merge([*listed(Passage(id="x", text="Port 9100 is used."), first)[1:], *listed(second, route="s")], rules())

    assert (left.id, left.rank) == ("b", 1)
    assert left.hits == (Hit("s", 0, 1, "b"), Hit("r", 0, 2, "a"))[::-1]
    assert left.fused_score == pytest.approx(1 / 62 + 1 / 61)


def test_one_route_means_one_passage_by_an_id_and_two_routes_may_mean_two():
    old, new, other = (Passage(id="1", text=text) for text in ("Bread is baked daily.", "We bake every day.", "Cats sleep a lot."))

    in_one = merge([*listed(old), *listed(new, query=1)], rules())
    in_two = merge([*listed(old), *listed(other, route="s")], rules())

    assert texts(in_one) == [old.text]
    assert sorted(texts(in_two)) == sorted([old.text, other.text])
    assert [p.id.partition("~")[0] for p in in_two] == ["1", "1"]
    assert len({p.id for p in in_two}) == 2
    assert merge(in_two, rules()) == in_two


def test_knowledge_and_web_are_no_copies_of_each_other():
    own, web = Passage(id="1", text="One text"), Passage(id="1", text="One text", origin="web")

    assert len(merge([*listed(own), *listed(web, route="web")], rules())) == 2


def unit(degrees):
    return (cos(radians(degrees)), sin(radians(degrees)))


@pytest.mark.parametrize(("degrees", "left"), [(0, 1), (18, 1), (19, 2), (90, 2)])
def test_texts_near_in_meaning_are_copies_from_the_threshold_on(degrees, left):
    """The cosine of 18 degrees is 0.951, of 19 degrees 0.946."""
    one = Passage(id="a", text="dogs that bark a lot", vector=unit(0))
    other = Passage(id="b", text="hounds that bark a great deal", vector=unit(degrees))

    assert len(merge(listed(one, other), rules())) == left
    assert len(merge(listed(one, other), rules(near=None))) == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [*DIFFERENT, *((f"{v1} supports X", f"{v2} X") for v1, v2 in [("v2.1", "v2.1 does not support"), ("v2.1", "v2.2 supports")])],
)
def test_texts_that_tell_different_facts_stay_however_near(one, other):
    both = listed(*(Passage(id=t, text=t, vector=(1.0, 0.0)) for t in (one, other)))

    assert set(texts(merge(both, rules()))) == {one, other}
    assert set(texts(merge([replace(p, vector=None) for p in both], rules()))) == {one, other}


def test_near_copies_make_no_chain():
    """The second is near the first and the third, which are not near each other."""
    words = ["dogs bark", "hounds bark", "hounds howl"]
    chain = listed(*(Passage(id=w, text=w, vector=unit(15 * i)) for i, w in enumerate(words)))

    assert texts(merge(chain, rules())) == ["dogs bark", "hounds howl"]


@pytest.mark.parametrize("vector", [None, (), (1.0,), (0.0, 0.0), (float("nan"), 1.0), (float("inf"), 1.0)])
def test_without_two_comparable_vectors_the_text_decides(vector):
    long = "The library in the old town is open on weekdays, and the reading room with it. " * 3
    one, near, far = (
        Passage(id="a", text=long, vector=(1.0, 0.0)),
        Passage(id="b", text=f"{long} again", vector=vector),
        Passage(id="c", text="x", vector=vector),
    )

    assert texts(merge(listed(one, near, far), rules())) == [long, "x"]


def test_the_vector_of_a_copy_serves_where_the_best_has_none():
    copies = [*listed(Passage(id="a", text="One text")), *listed(Passage(id="b", text="one text", vector=(1.0, 0.0)), query=1)]

    (left,) = merge(copies, rules())

    assert (left.id, left.vector) == ("a", (1.0, 0.0))


# What a place is worth


def test_ranks_fuse_by_their_reciprocals_and_weights_count():
    a, b = Passage(id="a", text="Dogs bark."), Passage(id="b", text="Cats sleep.")
    found = [*listed(a, b), *listed(b, a, route="s"), *listed(b, route="s", query=1)]

    even, weighed = merge(found, rules()), merge(found, rules(weights={"r": 200.0, "unknown": 900.0}))

    assert [(p.id, p.rank, pytest.approx(p.fused_score)) for p in even] == [("b", 1, 1 / 62 + 2 / 61), ("a", 2, 1 / 61 + 1 / 62)]
    assert [(p.id, pytest.approx(p.fused_score)) for p in weighed] == [("a", 200 / 61 + 1 / 62), ("b", 200 / 62 + 2 / 61)]


@pytest.mark.parametrize(
    ("age_days", "fields", "factor"),
    [
        (0, {}, 1),
        (10, {}, 0.5),
        (20, {}, 0.25),
        (-5, {}, 1),
        (None, {}, 1),
        (10, {"metadata": {"doc_type": "news"}}, 0.25),
        (10, {"metadata": {"doc_type": "law"}}, 0.5),
        (10, {"metadata": {"doc_type": ["news"]}}, 0.5),
    ],
)
def test_a_passage_counts_half_with_every_half_life(age_days, fields, factor):
    created = None if age_days is None else NOW - age_days * DAY
    ages = rules(half_life_days={"r": 10.0}, by_type={"news": 5.0})

    (one,) = merge(listed(Passage(id="a", text="Dogs bark.", created_at=created, **fields)), ages)
    (other,) = merge(listed(Passage(id="a", text="Dogs bark.", created_at=created), route="s"), ages)

    assert one.fused_score == pytest.approx(factor / 61)
    assert other.fused_score == pytest.approx(1 / 61)


def test_a_date_that_is_no_number_is_none():
    odd = [Passage(id=str(i), text=f"text {i}", created_at=float("nan"), evidence_score=float("nan")) for i in range(3)]

    assert [p.fused_score for p in merge(listed(*odd), rules(half_life_days={"r": 1.0}))] == [1 / 61, 1 / 62, 1 / 63]


def test_copies_in_a_list_push_nobody_down():
    """A corpus with every chunk three times gives the passages and scores of the clean one."""
    clean = [Passage(id=f"c{i}", text=f"Animal {name} sleeps.") for i, name in enumerate(["ant", "bee", "cat", "dog", "elk"])]
    copies = [replace(p, id=f"{p.id}/{n}", text=t) for p in clean for n, t in enumerate([p.text, p.text.upper(), f"- **{p.text[:-1]}**\n"])]
    orders = [clean, clean[::-1], clean[2:] + clean[:2]]

    plain = merge([p for q, order in enumerate(orders) for p in listed(*order, query=q)], rules())
    crowded = merge(
        [p for q, order in enumerate(orders) for p in listed(*(c for o in order for c in copies if c.id.startswith(o.id)), query=q)],
        rules(),
    )

    assert [(p.text.lower().strip("- *\n."), p.fused_score) for p in crowded] == [(p.text.lower().strip("."), p.fused_score) for p in plain]


def test_the_newest_version_of_a_page_takes_the_better_place():
    page = {"source": "guide.md"}
    old = Passage(id="old", text="Dogs bark.", metadata={"version": "2.9"}, **page)
    new = Passage(id="new", text="Cats sleep.", metadata={"version": "2.10"}, **page)
    other = Passage(id="other", text="Birds sing.")

    found = merge(listed(old, other, new), rules())

    assert [(p.id, p.fused_score) for p in found] == [("new", 1 / 61), ("other", 1 / 62), ("old", 1 / 63)]


def test_a_near_copy_goes_into_the_newer_version():
    page = {"metadata": {"doc_id": "d"}, "vector": (1.0, 0.0)}
    old = Passage(id="old", text="big dogs bark a lot", created_at=1, **page)
    new = Passage(id="new", text="large dogs bark a lot", created_at=2, **page)

    assert [p.id for p in merge(listed(old, new), rules())] == ["new"]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"evidence_score": 0.9}, {"evidence_score": 0.4, "created_at": 9}),
        ({"created_at": 2}, {"created_at": 1}),
        ({"created_at": 1}, {}),
        ({"text": "a"}, {"text": "b"}),
    ],
)
def test_ties_are_broken_by_trust_then_age_then_text(better, worse):
    one, other = Passage(**{"id": "1", "text": "z"} | better), Passage(**{"id": "2", "text": "y"} | worse)

    assert [p.id for p in merge([*listed(other), *listed(one, route="s")], rules())] == ["1", "2"]


# Chunks


def test_overlapping_chunks_become_one_passage_with_the_hits_of_both():
    text = "One sentence stands here. Another one follows it. The third ends it."
    chunks = [Passage(id=f"c{a}", text=text[a:b], metadata={"doc_id": "d", "start": a, "end": b}) for a, b in ((0, 49), (26, len(text)))]
    found = [*listed(*chunks), *listed(chunks[1], Passage(id="x", text="Else."), query=1)]

    joined, other = merge(found, rules())

    assert (joined.id, joined.text, joined.metadata["joined"]) == ("c26", text, ["c0", "c26"])
    assert [h.id for h in joined.hits] == ["c0", "c26", "c26"]
    assert other.id == "x"
    assert merge([joined, other, *found], rules()) == (joined, other)


# Laws

TEXT = "Dogs bark at night in the yard. Cats sleep all day on the roof. Birds sing in the old tree."
WORDS = [
    "Dogs bark.",
    "dogs **bark**",
    "Cats sleep.",
    "cats sleep",
    "Dogs bark 5 times.",
    "Dogs bark 6 times.",
    "",
    "...",
    "hounds bark",
    "不支持",
    "支持",
]
vectors = st.none() | st.sampled_from([(1.0, 0.0), unit(10), unit(16), unit(30), (0.0, 0.0), (1.0,), (float("nan"), 1.0)])
odd = st.sampled_from([None, "3", True, -1, 0, 5, 40, 10**9, 2.5, "x", [1]])
whole_texts = st.builds(
    Passage,
    id=st.sampled_from("abcde"),
    text=st.sampled_from(WORDS),
    source=st.sampled_from(["", "s", "t"]),
    created_at=st.sampled_from([None, 1, 2 * DAY, NOW + DAY]),
    evidence_score=st.sampled_from([None, 0.4, 0.9]),
    origin=st.sampled_from(["knowledge", "web"]),
    vector=vectors,
    score=st.sampled_from([None, 0.5, float("nan")]),
    metadata=st.fixed_dictionaries(
        {}, optional={"version": st.sampled_from(["1", "2.9", "2.10", ""]), "start": odd, "end": odd, "page": odd, "doc_type": odd}
    ),
)
chunks = st.tuples(st.integers(0, 60), st.integers(1, 40)).map(
    lambda c: Passage(
        id=f"{c[0]}+{c[1]}", text=TEXT[c[0] : c[0] + c[1]], metadata={"doc_id": "d", "start": c[0], "end": min(len(TEXT), c[0] + c[1])}
    )
)
lists = st.lists(
    st.builds(
        marked,
        st.lists(whole_texts | chunks, max_size=6),
        st.sampled_from(["r", "s"]),
        st.integers(0, 2),
    ),
    max_size=4,
).map(lambda some: [p for one in some for p in one])
RULES = rules(weights={"s": 0.5}, half_life_days={"r": 3.0}, by_type={"x": 1.0})


def bare(passages):
    """All that can be compared: NaN equals nothing, and vectors are left out of a passage's equality."""
    return [(replace(p, score=None), repr(p.vector)) for p in passages]


@settings(deadline=None)
@given(lists, st.randoms())
def test_the_order_of_the_input_changes_nothing(passages, chance):
    assert bare(merge(chance.sample(passages, len(passages)), RULES)) == bare(merge(passages, RULES))


@settings(deadline=None)
@given(lists)
def test_merging_twice_changes_nothing_and_neither_does_a_passage_given_twice(passages):
    once = merge(passages, RULES)

    assert bare(merge(once, RULES)) == bare(once)
    assert bare(merge([*passages, *passages], RULES)) == bare(once)


@settings(deadline=None)
@given(lists)
def test_a_merge_never_adds_nor_loses_a_hit_and_tells_its_passages_apart(passages):
    merged = merge(passages, RULES)

    assert bool(passages) <= len(merged) <= len(passages)
    assert {h for p in merged for h in p.hits} == {h for p in passages for h in p.hits}
    assert len({(p.origin, p.id) for p in merged}) == len(merged)
    assert [p.rank for p in merged] == [*range(1, len(merged) + 1)]
    assert [p.fused_score for p in merged] == sorted((p.fused_score for p in merged), reverse=True)
    # Of all passages together: an older version and the newest change places, scores and all.
    most = max((sum(0.5 if route == "s" else 1.0 for route, _ in {(h.route, h.query) for h in p.hits}) for p in merged), default=0)
    assert all(0 <= passage.fused_score <= most / 61 + 1e-12 for passage in merged)


def animals(queries):
    """Lists of passages that are copies of each other or quite unlike, each with an id of its own, for some queries."""
    passages = [
        Passage(id=f"{kind}{n}", text=text, created_at=[None, 1, NOW - DAY][n])
        for kind in ("Ant", "Bee", "Cat", "Dog")
        for n, text in enumerate([f"{kind} sleeps", f"{kind} sleeps".upper(), f"**{kind}** sleeps."])
    ]
    found = st.lists(st.sampled_from(passages), max_size=6, unique_by=lambda p: p.id)
    return st.dictionaries(st.tuples(st.sampled_from("rs"), st.sampled_from(queries)), found, max_size=4).map(
        lambda some: [p for (route, query), one in some.items() for p in marked(one, route, query)]
    )


@settings(deadline=None)
@given(animals([0, 1]), animals([2, 3]))
def test_lists_may_come_one_after_the_other(first, second):
    assert merge([*merge(first, RULES), *second], RULES) == merge([*first, *second], RULES)


def test_every_order_of_a_chain_of_near_copies_gives_the_same():
    words = ["dogs bark", "hounds bark", "hounds howl", "big dogs bark"]
    chain = [p for i, w in enumerate(words) for p in listed(Passage(id=w, text=w, vector=unit(15 * i)), query=i)]

    assert len({tuple(texts(merge(order, rules()))) for order in permutations(chain)}) == 1


# Hostile input


def test_a_thousand_copies_and_a_thousand_of_one_id_become_one():
    copies = [Passage(id=str(i), text="Dogs bark." + " " * i, created_at=i, source="s") for i in range(1000)]
    same_id = [p for i in range(1000) for p in listed(Passage(id="", text=f"text {i}"), query=i)]

    assert len(merge(listed(*copies), rules())) == len(merge(same_id, rules())) == 1


def test_passages_that_were_not_marked_stay_and_come_last():
    unmarked = Passage(id="b", text="Cats sleep.", evidence_score=1.0)

    assert [(p.id, p.fused_score) for p in merge([unmarked, *listed(Passage(id="a", text="Dogs bark."))], rules())] == [
        ("a", 1 / 61),
        ("b", 0),
    ]
    assert merge([], rules()) == ()


def test_a_place_counts_no_more_than_the_first_where_lists_of_one_name_overlap():
    twice = [
        Passage(i, f"text {i}", hits=tuple(Hit("r", 0, rank, i, None) for rank in ranks))
        for i, ranks in (("a", (1, 2, 3)), ("b", (2, 3)), ("d", (2, 3)), ("c", (4,)))
    ]

    assert max(p.fused_score for p in merge(twice, rules())) <= 1 / 61
