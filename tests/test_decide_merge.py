import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware.stages.decide import could_not_grade, decide, label
from crag_middleware.stages.merge import arrange, unseen
from crag_middleware.types import Grade, Graded, Passage, Thresholds

CUTS = Thresholds(0.5, 0.9)
LABELS = ("relevant", "ambiguous", "incorrect", "ungraded")


def grade(label_, probability=None, id_="p"):
    return Grade(passage_id=id_, probability=probability, label=label_)


def graded(label_="relevant", **passage):
    text = passage.pop("text", "text")
    return Graded(passage=Passage(text=text, **passage), grade=grade(label_, id_=passage["id"]))


@pytest.mark.parametrize(
    ("probability", "expected"),
    [(0.0, "incorrect"), (0.499, "incorrect"), (0.5, "ambiguous"), (0.9, "ambiguous"), (0.901, "relevant"), (1.0, "relevant")],
)
def test_a_probability_on_a_threshold_is_ambiguous(probability, expected):
    assert label(grade("ungraded", probability), CUTS).label == expected


def test_without_a_probability_the_label_stays():
    assert label(grade("ungraded"), CUTS).label == "ungraded"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_verdict_follows_the_documented_rule_for_every_mix_of_labels(size):
    for labels in itertools.product(LABELS, repeat=size):
        verdict = decide([grade(x) for x in labels])

        if "relevant" in labels:
            assert verdict == "relevant"
        elif set(labels) == {"incorrect"}:
            assert verdict == "incorrect"
        else:
            assert verdict == "ambiguous"


def test_nothing_found_is_incorrect():
    assert decide([]) == "incorrect"


def test_a_failed_evaluator_is_not_a_relevance_verdict():
    """C051"""
    ungraded = [grade("ungraded"), grade("ungraded")]

    assert decide(ungraded) == "ambiguous"
    assert could_not_grade(ungraded)
    assert not could_not_grade([grade("ungraded"), grade("incorrect", 0.1)])
    assert not could_not_grade([])


def test_a_text_is_taken_once_whatever_its_case_or_white_space():
    one = Passage(id="a", text="Port  9100 is used")
    same_text = Passage(id="b", text="port 9100 is\nUSED")
    same_id = Passage(id="a", text="other")

    assert unseen([one, same_text, same_id], []) == (one,)
    assert unseen([same_text], [one]) == ()


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "X", "y", " y"]))))
def test_merging_is_idempotent_and_never_adds(pairs):
    passages = [Passage(id=i, text=t) for i, t in pairs]

    once = unseen(passages, [])

    assert unseen(once, []) == once
    assert unseen(once, once) == ()
    assert len(once) <= len(passages)


def test_relevant_passages_come_before_ambiguous_ungraded_and_incorrect_ones():
    mixed = [graded(x, id=x) for x in ("incorrect", "ungraded", "ambiguous", "relevant")]

    assert [g.passage.id for g in arrange(mixed)] == ["relevant", "ambiguous", "ungraded", "incorrect"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"version": "2.9"}, {"version": "2.10"}),
        ({"version": "v1"}, {"version": "v2"}),
    ],
)
@pytest.mark.parametrize("page", [{"source": "guide.md"}, {"url": "https://docs.example/guide"}, {"title": "Guide"}])
def test_of_an_old_and_a_new_version_of_one_page_the_new_one_leads(page, old, new):
    first = graded(id="old", metadata=old, **page)
    other = graded(id="other", source="else.md")
    last = graded(id="new", metadata=new, **page)

    assert [g.passage.id for g in arrange([first, other, last])] == ["new", "other", "old"]
    assert [g.passage.id for g in arrange([last, other, first])] == ["new", "other", "old"]


def test_without_versions_the_later_of_two_nearly_equal_texts_leads():
    page = {"source": "limits.md"}
    old = graded(id="old", text="The free plan allows 5 calls a minute for every user.", created_at=1_000, **page)
    new = graded(id="new", text="The free plan allows 9 calls a minute for every user.", created_at=2_000, **page)

    assert [g.passage.id for g in arrange([old, new])] == ["new", "old"]


def test_two_chunks_of_one_document_keep_their_order():
    page = {"source": "limits.md"}
    first = graded(id="1", text="The free plan allows 5 calls a minute.", created_at=1_000, **page)
    second = graded(id="2", text="Support answers within two working days.", created_at=2_000, **page)

    assert [g.passage.id for g in arrange([first, second])] == ["1", "2"]


def test_an_old_relevant_version_does_not_hide_behind_a_new_incorrect_one():
    old = graded("relevant", id="old", source="a.md", metadata={"version": "1"})
    new = graded("incorrect", id="new", source="a.md", metadata={"version": "2"})

    assert [g.passage.id for g in arrange([new, old])] == ["old", "new"]
