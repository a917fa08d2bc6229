"""Maps are monotone and bounded, a calibration's file is checked, and one that belongs to something else is refused."""

import json
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware.calibration import (
    Calibration,
    IsotonicMap,
    PlattMap,
    SetMap,
    check_fits,
    load_calibration,
    parse_calibration,
    read_calibrations,
    set_features,
    sets_of,
    shipped,
)
from crag_middleware.errors import ConfigError
from crag_middleware.types import EvaluatorKey, Thresholds

KEY = EvaluatorKey("Grader", "small-1", "2")
CALIBRATION = Calibration(
    evaluator="Grader",
    model="small-1",
    prompt="2",
    map=PlattMap(slope=2, offset=-1),
    thresholds=(0.2, 0.8),
    fitted_on="x",
    pairs=9,
    questions=3,
)

probabilities = st.floats(0, 1)
weights = st.floats(0, 20)
platt = st.builds(PlattMap, slope=st.floats(1e-3, 50), offset=st.floats(-20, 20))


@st.composite
def isotonic(draw):
    at = sorted(draw(st.sets(probabilities, min_size=1, max_size=8)))
    value = sorted(draw(st.lists(probabilities, min_size=len(at), max_size=len(at))))
    return IsotonicMap(at=tuple(at), value=tuple(value))


set_maps = st.builds(SetMap, offset=st.floats(-9, 9), weights=st.tuples(weights, weights, weights), thresholds=st.just((0.3, 0.7)))


@given(st.one_of(platt, isotonic()), probabilities, probabilities)
def test_a_map_never_turns_two_passages_round_and_stays_within_0_and_1(fitted, one, other):
    low, high = sorted((one, other))

    assert 0 < fitted(low) <= fitted(high) < 1


def test_an_isotonic_map_goes_through_its_points_and_is_flat_beyond_them():
    fitted = IsotonicMap(at=(0.2, 0.6), value=(0.1, 0.5))

    assert [fitted(x) for x in (0, 0.2, 0.4, 0.6, 1)] == pytest.approx([0.1, 0.1, 0.3, 0.5, 0.5])


@given(set_maps, st.lists(probabilities, max_size=12), st.randoms())
def test_a_set_counts_the_same_in_any_order_and_stays_within_0_and_1(together, some, chance):
    shuffled = list(some)
    chance.shuffle(shuffled)

    assert together(some) == together(shuffled)
    assert 0 <= together(some) < 1


@given(set_maps, st.lists(probabilities, min_size=1, max_size=12), probabilities)
def test_one_more_passage_as_good_as_the_best_never_lowers_a_set(together, some, one):
    assert together([*some, max(one, *some)]) >= together(some) - 1e-9


def test_no_passages_answer_nothing():
    assert SetMap(offset=5, weights=(1, 1, 1), thresholds=(0, 1))([]) == 0
    assert len(set_features([])) == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, r"no calibration of version 1, got version 2; write it anew with `crag calibrate`"),
        ({"thresholds": [0.8, 0.2]}, "`thresholds` must be in order"),
        ({"thresholds": [0.2, 1.2]}, r"`thresholds\.1`"),
        ({"map": {"kind": "platt", "slope": -1, "offset": 0}}, r"`map\.platt\.slope`"),
        ({"map": {"kind": "isotonic", "at": [0.5, 0.5], "value": [0.1, 0.2]}}, "both rising"),
        ({"map": {"kind": "isotonic", "at": [0.1, 0.5], "value": [0.3, 0.2]}}, "both rising"),
        ({"map": {"kind": "spline"}}, "`map`"),
        ({"sets": {"offset": 0, "weights": [1, 1], "thresholds": [0, 1]}}, "3 weights"),
        ({"sets": {"offset": 0, "weights": [1, 1, -1], "thresholds": [0, 1]}}, r"`sets\.weights\.2`"),
        ({"tenant": ""}, "`tenant`"),
        ({"fitted_in": "May"}, "`fitted_in`"),
    ],
)
def test_a_file_that_is_no_calibration_is_refused_with_what_is_wrong(tmp_path, change, message):
    path = tmp_path / "c.json"
    path.write_text(json.dumps(CALIBRATION.model_dump(mode="json") | change))

    with pytest.raises(ConfigError, match=message):
        load_calibration(path)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000, b"null", b'{"version": NaN}'])
def test_a_file_that_is_no_json_object_is_refused(tmp_path, content):
    path = tmp_path / "c.json"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match="crag calibrate"):
        load_calibration(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"c\.json.*can't be read \(FileNotFoundError\)"):
        load_calibration(tmp_path / "c.json")


def test_what_is_wrong_with_a_file_is_told_without_the_tenant(tmp_path):
    with pytest.raises(ConfigError) as caught:
        parse_calibration(CALIBRATION.model_dump() | {"tenant": "secret-7", "pairs": -1}, origin="c")

    assert "secret-7" not in str(caught.value)


@given(st.one_of(platt, isotonic()), st.none() | set_maps, st.none() | st.text(min_size=1).filter(lambda t: t.isprintable()), probabilities)
def test_what_was_saved_is_loaded_to_the_last_digit(tmp_path_factory, fitted, together, tenant, probability):
    path = tmp_path_factory.getbasetemp() / "c.json"
    saved = CALIBRATION.model_copy(update={"map": fitted, "sets": together, "tenant": tenant})

    saved.save(path)

    assert load_calibration(path) == saved
    assert load_calibration(path).map(probability) == fitted(probability)
    assert saved.cuts == Thresholds(0.2, 0.8)


@pytest.mark.parametrize(
    "other", [EvaluatorKey("Other", "small-1", "2"), EvaluatorKey("Grader", "small-2", "2"), EvaluatorKey("Grader", "small-1", "3")]
)
def test_a_calibration_for_another_evaluator_model_or_prompt_is_refused(other):
    check_fits(CALIBRATION, KEY, collection="anything")

    with pytest.raises(ConfigError, match=r"fitted to Grader, model 'small-1', prompt '2', and this evaluator is") as caught:
        check_fits(CALIBRATION, other, collection="anything")
    assert caught.value.reason == "foreign_calibration"


def test_a_calibration_for_another_collection_is_refused():
    ours = CALIBRATION.model_copy(update={"collection": "docs"})

    check_fits(ours, KEY, collection="docs")
    with pytest.raises(ConfigError, match="fitted for the collection 'docs', and this one is 'mail'"):
        check_fits(ours, KEY, collection="mail")
    with pytest.raises(ConfigError, match="this knowledge has no collection"):
        check_fits(ours, KEY, collection="")


def test_the_rule_set_without_a_set_map_says_what_to_do():
    for without in (None, CALIBRATION):
        with pytest.raises(ConfigError, match=r"fit one with `crag calibrate` on answerable and unanswerable questions"):
            sets_of(without)


def test_a_description_names_what_it_belongs_to_and_no_tenant():
    theirs = CALIBRATION.model_copy(update={"tenant": "secret-7", "collection": "docs"})

    assert theirs.described == "Grader, model 'small-1', prompt '2', collection 'docs', one tenant, 9 passages of 3 questions"


def test_a_folder_of_calibrations_is_read_by_exact_key(tmp_path):
    CALIBRATION.save(tmp_path / "a.json")
    other = CALIBRATION.model_copy(update={"model": "small-2"})
    other.save(tmp_path / "b.json")
    (tmp_path / "notes.txt").write_text("not one")

    assert read_calibrations(tmp_path) == {KEY: CALIBRATION, other.key: other}
    assert read_calibrations(tmp_path / "nothing") == {}

    other.save(tmp_path / "c.json")
    with pytest.raises(ConfigError, match=r"'c\.json' is the second calibration for Grader"):
        read_calibrations(tmp_path)


def test_every_shipped_calibration_is_sound_for_any_tenant_and_says_on_what_it_was_fitted():
    for key, calibration in read_calibrations(files("crag_middleware") / "calibrations").items():
        assert shipped(key) == calibration
        assert calibration.tenant is None
        assert not calibration.collection
        assert calibration.fitted_on.strip()
        assert calibration.aims
    assert shipped(EvaluatorKey("Nobody")) is None
