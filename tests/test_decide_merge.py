import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware.calibration import Calibration, PlattMap, SetMap
from crag_middleware.errors import ConfigError
from crag_middleware.stages.decide import calibrated, could_not_grade, decide, label, sufficiency
from crag_middleware.stages.merge import arrange
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


SETS = SetMap(offset=0, weights=(0.5, 0.3, 0.2), thresholds=(0.3, 0.7))
CALIBRATION = Calibration(
    evaluator="E", map=PlattMap(slope=2, offset=-1), thresholds=(0.2, 0.8), sets=SETS, fitted_on="nothing", pairs=0, questions=0
)


def cut(*probabilities):
    """Grades with these calibrated probabilities."""
    return [label(grade("ungraded", p), CALIBRATION.cuts) for p in probabilities]


def by_set(grades):
    return decide(grades, rule="set", calibration=CALIBRATION)


ORDER = ("incorrect", "ambiguous", "relevant")
odds = st.floats(0, 1)
some_odds = st.lists(st.none() | odds, max_size=8)


def test_a_calibrated_grade_keeps_the_evaluators_own_number():
    mapped = calibrated(grade("relevant", 0.5), CALIBRATION)

    assert (mapped.raw, mapped.probability) == (0.5, pytest.approx(0.269, abs=1e-3))
    assert calibrated(grade("relevant", 0.5), None).raw == calibrated(grade("relevant", 0.5), None).probability == 0.5
    assert calibrated(grade("ungraded"), CALIBRATION) == grade("ungraded")


@given(odds, odds)
def test_calibration_never_turns_two_passages_round(one, other):
    low, high = (calibrated(grade("ungraded", p), CALIBRATION).probability for p in sorted((one, other)))

    assert low <= high


@given(some_odds, st.randoms())
def test_a_verdict_is_the_same_in_any_order(some, chance):
    shuffled = list(some)
    chance.shuffle(shuffled)

    for rule in ("paper", "set"):
        verdicts = {decide(cut(*ps), rule=rule, calibration=CALIBRATION) for ps in (some, shuffled)}
        assert len(verdicts) == 1
    assert sufficiency(cut(*some), CALIBRATION) == sufficiency(cut(*shuffled), CALIBRATION)


@given(some_odds, odds)
def test_one_more_passage_as_good_as_the_best_never_lowers_a_verdict(some, one):
    """One that is relevant never does under the paper's rule, the best one never under either."""
    best = max([one, *(p for p in some if p is not None)])

    for rule, more in (("paper", 1.0), ("paper", best), ("set", best)):
        before, after = (decide(cut(*ps), rule=rule, calibration=CALIBRATION) for ps in (some, [*some, more]))
        assert ORDER.index(after) >= ORDER.index(before)


def test_several_fair_passages_that_agree_are_relevant_together_and_a_lone_one_is_not():
    assert by_set(cut(0.75, 0.75, 0.75)) == "relevant"
    assert by_set(cut(0.75, 0.1, 0.1)) == "ambiguous"
    assert decide(cut(0.75, 0.75, 0.75)) == "ambiguous", "the paper's rule needs one above its threshold"


def test_a_set_without_a_passage_worth_keeping_is_at_most_ambiguous():
    many = [label(g, Thresholds(0.9, 0.95)) for g in cut(0.8, 0.8, 0.8)]

    assert sufficiency(many, CALIBRATION) > SETS.thresholds[1]
    assert by_set(many) == "ambiguous"


@given(some_odds, st.integers(1, 3))
def test_ungraded_passages_alone_never_make_a_set_incorrect_nor_relevant(some, more):
    """C051"""
    graded = [p for p in some if p is not None]
    without, with_ungraded = by_set(cut(*graded)), by_set(cut(*graded, *[None] * more))

    assert with_ungraded != "incorrect"
    assert with_ungraded == without or (without, with_ungraded) == ("incorrect", "ambiguous")


def test_sufficiency_is_unknown_without_a_set_map_or_without_any_grade():
    """C051"""
    assert sufficiency(cut(0.9), None) is None
    assert sufficiency(cut(0.9), CALIBRATION.model_copy(update={"sets": None})) is None
    assert sufficiency(cut(None, None), CALIBRATION) is None
    assert sufficiency([], CALIBRATION) == 0
    assert by_set([]) == "incorrect"


def test_the_rule_set_needs_a_set_map():
    with pytest.raises(ConfigError, match="needs a calibration"):
        decide(cut(0.9), rule="set")


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


def test_the_evidence_score_breaks_ties_and_nothing_else():
    def one(id_, probability, score):
        return Graded(passage=Passage(id=id_, text=id_, evidence_score=score), grade=grade("relevant", probability, id_))

    weak, strong, other = one("weak", 0.95, 0.45), one("strong", 0.95, 0.88), one("other", 0.96, 0.92)

    assert [g.passage.id for g in arrange([weak, strong])] == ["strong", "weak"]
    assert [g.passage.id for g in arrange([strong, weak])] == ["strong", "weak"]
    assert [g.passage.id for g in arrange([weak, other, strong])] == ["weak", "other", "strong"]
