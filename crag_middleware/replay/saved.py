"""A receipt from a file: outside data, so checked before anything is made of it."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crag_middleware.errors import ConfigError
from crag_middleware.receipt import SCHEMA_VERSION, explain
from crag_middleware.types import Label, Origin, Verdict, VerdictRule

WRAPPINGS = ("receipt", "crag")
"""Keys under which a receipt lies in what `crag ask --json` prints, and in an agent's result."""

Probability = Annotated[float, Field(ge=0, le=1)]


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False, hide_input_in_errors=True)


class SavedPassage(_Part):
    """A passage as the receipt has it; `text` only with `receipt_detail="full"`."""

    id: str
    origin: Origin
    title: str = ""
    source: str = ""
    url: str = ""
    label: Label
    probability: Probability | None = None
    number: int | None = None
    confidence: float | None = None
    text: str | None = None

    @property
    def named(self) -> str:
        """What a person knows it by."""
        return self.title or self.url or self.source or self.id[:12]


class SavedStrip(_Part):
    """An injected strip: `text` stood at `start` to `end` in its passage."""

    start: int = Field(ge=0)
    end: int = Field(ge=0)
    text: str


class SavedSource(_Part):
    """An injected source."""

    id: str
    origin: Origin
    strips: tuple[SavedStrip, ...] = ()


class SavedTrouble(_Part):
    """A step that failed."""

    step: str
    reason: str


class _Receipt(_Part):
    status: Literal["grounded", "no_evidence", "retrieval_failed", "skipped"]
    verdict: Verdict | None = None
    verdict_rule: VerdictRule | None = None
    sufficiency: Probability | None = None
    calibration: str | None = None
    query: str = ""
    tenant: str = ""
    passages: tuple[SavedPassage, ...] = ()
    sources: tuple[SavedSource, ...] = ()
    notes: tuple[str, ...] = ()
    rungs: tuple[str, ...] = ()
    degraded: tuple[SavedTrouble, ...] = ()


@dataclass(frozen=True, slots=True)
class Saved:
    """A receipt that was read.

    Attributes:
        value: All of it, as it was saved.
        facts: What is made something of, checked.
    """

    value: Mapping[str, Any]
    facts: _Receipt

    @property
    def known(self) -> tuple[SavedPassage, ...]:
        """The passages of the knowledge: the verdict is on these alone."""
        return tuple(p for p in self.facts.passages if p.origin == "knowledge")

    @property
    def fell_back(self) -> bool:
        """Whether the fallback evaluator graded the knowledge: then the verdict goes by the rule `paper`."""
        return "cheap_evaluator" in self.facts.rungs and any(t.step == "grade" for t in self.facts.degraded)

    @property
    def rule(self) -> VerdictRule:
        """What the verdict was cut from."""
        return "paper" if self.fell_back or self.facts.verdict_rule is None else self.facts.verdict_rule


def read_receipts(text: str, *, origin: str) -> tuple[Saved, ...]:
    """The receipts in a text: one as JSON, a list of them, or JSON Lines; each may lie inside what `crag ask --json` prints, or an agent's result.

    Args:
        text: What was saved.
        origin: Where it comes from, for messages.

    Raises:
        ConfigError: There is none, or one can't be read.
    """
    values = [*_values(text, origin)]
    if not values:
        msg = f"there is no receipt in {origin}: save `result['crag']` as JSON there, or use `crag ask --receipts FILE`"
        raise ConfigError(msg)
    return tuple(_saved(value, origin, place) for place, value in enumerate(values, 1))


def told(saved: Saved) -> str:
    """The receipt in a few lines for a person: `explain`, for one that may have been damaged.

    Raises:
        ConfigError: It was.
    """
    try:
        return explain(saved.value)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        msg = f"the receipt can't be told ({type(error).__name__}): a key is missing or holds something else; save it as the agent gave it"
        raise ConfigError(msg) from None


def _values(text: str, origin: str) -> Iterator[Any]:
    try:
        whole = json.loads(text)
    except RecursionError:
        msg = f"{origin} is nested too deep for a receipt"
        raise ConfigError(msg) from None
    except ValueError:
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip():
                yield _line(line, origin, number)
        return
    yield from whole if isinstance(whole, list) else [whole]


def _line(line: str, origin: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        msg = f"{origin}, line {number}: no JSON; a file holds one receipt as JSON, or one on each line"
        raise ConfigError(msg) from None


def _saved(value: Any, origin: str, place: int) -> Saved:
    inner = value
    if isinstance(value, dict) and "schema" not in value:
        inner = next((value[key] for key in WRAPPINGS if isinstance(value.get(key), dict)), value)
    version = inner.get("schema") if isinstance(inner, dict) else None
    if version != SCHEMA_VERSION or isinstance(version, bool):
        told = f"got schema {version!r}" if isinstance(version, int | float) else "there is no `schema`"
        msg = f"{origin}, receipt {place}: no receipt of schema {SCHEMA_VERSION}, {told}"
        raise ConfigError(msg)
    try:
        return Saved(inner, _Receipt.model_validate(inner))
    except ValidationError as error:
        msg = f"{origin}, receipt {place}: {_wrong(error.errors(include_input=False))}"
        raise ConfigError(msg) from None


def _wrong(problems: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(f"`{'.'.join(map(str, p['loc']))}`: {p['msg']}" for p in problems[:3])
