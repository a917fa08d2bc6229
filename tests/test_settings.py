import pytest
from pydantic import ValidationError

from crag_middleware.errors import ConfigError, CRAGError
from crag_middleware.settings import CRAGSettings
from crag_middleware.types import Thresholds

OWN = Thresholds(0.4, 0.8)


def test_an_unknown_setting_is_refused_and_the_known_ones_are_named():
    with pytest.raises(ConfigError, match=r"`topk` is no setting; the settings are: .*top_k"):
        CRAGSettings(topk=3)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"top_k": 0}, r"`top_k`.*greater than or equal to 1, got 0"),
        ({"upper": 1.2}, r"`upper`.*less than or equal to 1, got 1.2"),
        ({"lower": float("nan")}, "`lower`"),
        ({"max_rewrites": 4}, "`max_rewrites`.*got 4"),
        ({"order": "best"}, "`order`.*'rank' or 'ends', got 'best'"),
        ({"position": "middle"}, "`position`.*got 'middle'"),
        ({"verdict_rule": "vote"}, "`verdict_rule`.*'paper' or 'set', got 'vote'"),
        ({"filter": "a == 1"}, "`filter`.*got str$"),
        ({"grade_timeout_s": 0}, "`grade_timeout_s`"),
        ({"lower": 0.9, "upper": 0.5}, "`lower` must not be above `upper`, got 0.9 and 0.5"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_what_was_got(values, message):
    with pytest.raises(ConfigError, match=message):
        CRAGSettings(**values)


def test_settings_are_frozen():
    with pytest.raises(ValidationError):
        CRAGSettings().top_k = 3


def test_overrides_win_over_the_evaluators_own_thresholds():
    assert CRAGSettings().thresholds(OWN) == OWN
    assert CRAGSettings(lower=0.1).thresholds(OWN) == Thresholds(0.1, 0.8)
    assert CRAGSettings(upper=0.95).thresholds(OWN) == Thresholds(0.4, 0.95)


def test_an_override_that_crosses_the_evaluators_other_threshold_is_refused():
    with pytest.raises(ConfigError, match=r"lower 0\.9 above upper 0\.8"):
        CRAGSettings(lower=0.9).thresholds(OWN)


def test_every_error_of_ours_is_a_crag_error():
    assert issubclass(ConfigError, CRAGError)
    assert issubclass(ConfigError, ValueError)
