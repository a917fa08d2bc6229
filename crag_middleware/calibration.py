"""What an evaluator's probabilities mean: maps fitted on labelled data, the thresholds that go with them, and the file they live in.

A calibration belongs to what it was fitted to: one evaluator on one model with one prompt, and, if it says so, one collection and one tenant.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from crag_middleware.errors import ConfigError
from crag_middleware.types import EvaluatorKey, Thresholds

VERSION = 1
"""Of the file; a file of another version is refused."""

EDGE = 1e-4
"""How near a mapped probability comes to 0 and to 1: no finite data tells more, and the log odds stay finite."""

Probability = Annotated[float, Field(ge=0, le=1)]
Coefficient = Annotated[float, Field(ge=-1e6, le=1e6)]
Weight = Annotated[float, Field(ge=0, le=1e6)]


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PlattMap(_Part):
    """`sigmoid(slope * logit(p) + offset)`: two numbers, for little data.

    Source: Platt, "Probabilistic Outputs for Support Vector Machines", 1999; on the logit, as the model's own scale is a probability.
    """

    kind: Literal["platt"] = "platt"
    slope: float = Field(gt=0, le=1e6)
    offset: Coefficient

    def __call__(self, probability: float) -> float:
        """The calibrated probability."""
        return _held(sigmoid(self.slope * logit(probability) + self.offset))


class IsotonicMap(_Part):
    """A rising line through fitted points, flat beyond its ends.

    Source: Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability estimates", KDD 2002.
    """

    kind: Literal["isotonic"] = "isotonic"
    at: tuple[Probability, ...] = Field(min_length=1)
    value: tuple[Probability, ...]

    @model_validator(mode="after")
    def _rising(self) -> "IsotonicMap":
        pairs = zip(self.at, self.at[1:], strict=False), zip(self.value, self.value[1:], strict=False)
        if len(self.at) != len(self.value) or any(b <= a for a, b in pairs[0]) or any(b < a for a, b in pairs[1]):
            msg = "an isotonic map needs as many values as points, both rising"
            raise ValueError(msg)
        return self

    def __call__(self, probability: float) -> float:
        """The calibrated probability."""
        right = bisect_right(self.at, probability)
        if right in (0, len(self.at)):
            return _held(self.value[max(right - 1, 0)])
        (x0, x1), (y0, y1) = self.at[right - 1 : right + 1], self.value[right - 1 : right + 1]
        return _held(min(y1, y0 + (y1 - y0) * ((probability - x0) / (x1 - x0))))


class SetMap(_Part):
    """P(the passages together answer the question), a logistic function of their calibrated probabilities.

    No weight is negative, so that one more passage at least as good as the best never lowers it.

    Attributes:
        offset: The constant.
        weights: One for each of `set_features`.
        thresholds: Where it is cut into a verdict: (lower, upper).
        prior: The share of answerable questions it was fitted on, which it takes for granted; None if unknown.
    """

    offset: Coefficient
    weights: tuple[Weight, ...]
    thresholds: tuple[Probability, Probability]
    prior: Probability | None = None

    @model_validator(mode="after")
    def _sound(self) -> "SetMap":
        if len(self.weights) != len(set_features([])) or self.thresholds[0] > self.thresholds[1]:
            msg = f"a set map needs {len(set_features([]))} weights, and thresholds in order"
            raise ValueError(msg)
        return self

    def __call__(self, probabilities: Sequence[float]) -> float:
        """The probability for passages with these calibrated probabilities, in any order; 0 for none."""
        if not probabilities:
            return 0.0
        return _held(sigmoid(self.offset + sum(w * x for w, x in zip(self.weights, set_features(probabilities), strict=True))))


def set_features(probabilities: Sequence[float]) -> tuple[float, ...]:
    """What of a set's grades bears on whether it answers, in no order: the best one, how far the second and third agree, the mean of all.

    All on the logit scale; a set of fewer than three passages repeats its last one.
    """
    ranked = sorted(map(logit, probabilities), reverse=True) or [logit(0.0)]
    second, third = (ranked[min(i, len(ranked) - 1)] for i in (1, 2))
    return ranked[0], (second + third) / 2, math.fsum(ranked) / len(ranked)


class Calibration(_Part):
    """One evaluator's map, thresholds, and what they were fitted on.

    Attributes:
        version: Of the file.
        evaluator: The evaluator's class name.
        model: The model behind it.
        prompt: The version of its prompt or features.
        collection: The collection it was fitted for; empty for any.
        tenant: The tenant it was fitted for; None for any.
        map: From the evaluator's own probability to P(the passage answers the question).
        thresholds: Where the mapped probability is cut into grades: (lower, upper).
        sets: P(the passages together answer the question), where it was fitted.
        prior: The share of relevant passages it was fitted on, which its probabilities take for granted; None if unknown.
        aims: What the thresholds were chosen for, and how far that was reached on questions held out, in words.
        fitted_on: On what data it was fitted, with its licence.
        pairs: Labelled passages it was fitted on.
        questions: Questions it was fitted on.
    """

    version: Literal[1] = 1
    evaluator: str
    model: str = ""
    prompt: str = ""
    collection: str = ""
    tenant: str | None = Field(default=None, min_length=1)
    map: PlattMap | IsotonicMap = Field(discriminator="kind")
    thresholds: tuple[Probability, Probability]
    sets: SetMap | None = None
    prior: Probability | None = None
    aims: tuple[str, ...] = ()
    fitted_on: str
    pairs: int = Field(ge=0)
    questions: int = Field(ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> "Calibration":
        if self.thresholds[0] > self.thresholds[1]:
            msg = f"`thresholds` must be in order, got {self.thresholds}"
            raise ValueError(msg)
        return self

    @property
    def key(self) -> EvaluatorKey:
        """Whose probabilities it maps."""
        return EvaluatorKey(self.evaluator, self.model, self.prompt)

    @property
    def cuts(self) -> Thresholds:
        """Where mapped probabilities are cut into grades."""
        return Thresholds(*self.thresholds)

    @property
    def described(self) -> str:
        """What it belongs to and how much it was fitted on, in a few words; a tenant is not named."""
        whose = [f"collection {self.collection!r}" if self.collection else "", "one tenant" if self.tenant else ""]
        facts = [_shown(self.key), *whose, f"{self.pairs} passages of {self.questions} questions"]
        return ", ".join(filter(None, facts))

    def save(self, path: str | Path) -> None:
        """Writes the file; what was there is replaced.

        Raises:
            ConfigError: It can't be written.
        """
        try:
            Path(path).write_text(self.model_dump_json(indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            msg = f"the calibration can't be written to {str(path)!r}: {error.strerror}"
            raise ConfigError(msg, reason="bad_calibration") from error


def load_calibration(path: str | Path) -> Calibration:
    """The calibration in a file that `crag calibrate` wrote.

    Raises:
        ConfigError: There is no such file, or it is no calibration, or of another version.
    """
    try:
        found: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        msg = f"the calibration {str(path)!r} can't be read ({type(error).__name__}); `crag calibrate` writes one"
        raise ConfigError(msg, reason="bad_calibration") from error
    return parse_calibration(found, origin=str(path))


def parse_calibration(found: Any, *, origin: str) -> Calibration:
    """The calibration that a JSON value holds; `origin` says where it came from.

    Raises:
        ConfigError: It is none, or of another version.
    """
    version = found.get("version") if isinstance(found, dict) else None
    if version != VERSION:
        msg = f"{origin!r} is no calibration of version {VERSION}, got version {version!r}; write it anew with `crag calibrate`"
        raise ConfigError(msg, reason="bad_calibration")
    try:
        return Calibration.model_validate(found)
    except ValidationError as error:
        wrong = "; ".join(f"`{'.'.join(map(str, e['loc']))}`: {e['msg']}" for e in error.errors(include_input=False)[:3])
        msg = f"{origin!r} is no calibration: {wrong}; write it anew with `crag calibrate`"
        raise ConfigError(msg, reason="bad_calibration") from error


def check_fits(calibration: Calibration, key: EvaluatorKey, *, collection: str) -> None:
    """Passes if a calibration was fitted to this evaluator and, where it names one, this collection.

    Raises:
        ConfigError: It was fitted to another; its numbers mean nothing here.
    """
    if calibration.key != key:
        msg = f"the calibration was fitted to {_shown(calibration.key)}, and this evaluator is {_shown(key)}; fit one to it with `crag calibrate`"
        raise ConfigError(msg, reason="foreign_calibration")
    if calibration.collection and calibration.collection != collection:
        here = f"this one is {collection!r}" if collection else "this knowledge has no collection"
        msg = f"the calibration was fitted for the collection {calibration.collection!r}, and {here}; fit one to it with `crag calibrate`"
        raise ConfigError(msg, reason="foreign_calibration")


def sets_of(calibration: Calibration | None) -> SetMap:
    """The map that the verdict rule `set` needs.

    Raises:
        ConfigError: There is none.
    """
    if calibration is not None and calibration.sets is not None:
        return calibration.sets
    what = "there is no calibration" if calibration is None else f"that for {calibration.described} does not tell it"
    msg = (
        f'`verdict_rule="set"` needs a calibration that tells P(the passages together answer), and {what}; '
        'fit one with `crag calibrate` on answerable and unanswerable questions and pass it as `calibration`, or use `verdict_rule="paper"`'
    )
    raise ConfigError(msg, reason="no_set_calibration")


@dataclass(frozen=True, slots=True)
class Scale:
    """What an evaluator's numbers go through in a turn: a calibration, or none, then the cuts into grades."""

    thresholds: Thresholds
    calibration: Calibration | None = None


def shipped(key: EvaluatorKey) -> Calibration | None:
    """The calibration that comes with this package for exactly this evaluator, model and prompt; None if there is none."""
    return _shipped().get(key)


@cache
def _shipped() -> dict[EvaluatorKey, Calibration]:
    return read_calibrations(files("crag_middleware") / "calibrations")


def read_calibrations(folder: Traversable) -> dict[EvaluatorKey, Calibration]:
    """The calibrations in a folder's `*.json`, by what they belong to; none if there is no such folder.

    Raises:
        ConfigError: One of them is none, or two belong to the same.
    """
    found: dict[EvaluatorKey, Calibration] = {}
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json")) if folder.is_dir() else []
    for name in names:
        calibration = parse_calibration(json.loads((folder / name).read_text(encoding="utf-8")), origin=name)
        if calibration.key in found:
            msg = f"{name!r} is the second calibration for {_shown(calibration.key)}; keep one"
            raise ConfigError(msg, reason="bad_calibration")
        found[calibration.key] = calibration
    return found


def _shown(key: EvaluatorKey) -> str:
    facts = [f"model {key.model!r}" if key.model else "", f"prompt {key.prompt!r}" if key.prompt else ""]
    return ", ".join(filter(None, (key.evaluator, *facts)))


def logit(probability: float) -> float:
    """The log odds of a probability, which is held at 0.0001 and 0.9999."""
    held = _held(probability)
    return math.log(held / (1 - held))


def _held(probability: float) -> float:
    return min(1 - EDGE, max(EDGE, probability))


def sigmoid(value: float) -> float:
    """The probability with these log odds."""
    if value < -700:
        return 0.0
    return 1 / (1 + math.exp(-value))
