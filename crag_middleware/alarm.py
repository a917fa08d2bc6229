"""The collapse alarm: grades that have stopped telling good passages from bad ones still look like grades; only many turns of one tenant show it.

docs/monitoring.md tells an operator what it says and when.
"""

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import sqrt
from struct import Struct
from typing import Any, Literal, get_args

from crag_middleware.findings import Evidence
from crag_middleware.stages.decide import could_not_grade
from crag_middleware.types import Verdict

AlarmKind = Literal["verdict_share", "grade_spread"]
"""`verdict_share`: one verdict takes nearly every turn. `grade_spread`: the probabilities lie much closer together than before."""

WINDOW = 200
"""Turns that are looked at; the spread is compared with that of as many turns before them."""

SHARE = 0.8
CALM_SHARE = 0.7
"""One verdict on more than that share of a whole window begins the alarm; no more than the other ends it."""

SHRUNK = 0.5
CALM_SHRUNK = 0.75
"""A spread of no more than that part of the earlier one begins the alarm; at least the other ends it."""

MIN_GRADED = 100
"""Turns with grades that both windows must have before spreads are compared: the ratio is then known to about a tenth."""

MAX_TENANTS = 1000
"""Tenants whose turns are kept, 25 kB each; beyond, the one that was longest without a turn is forgotten."""

MAX_KNOWN = 5000
"""Latest turns that are known by name, so that one that runs again is not counted again."""

_STEPS = 10_000
"""Probabilities are counted in whole steps, so that sums stay exact however long they run."""

_VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
_TURN = Struct("<BHIQ")
"""A turn as it is kept: number of its verdict, how many grades, their sum and the sum of their squares, in steps."""


@dataclass(frozen=True, slots=True)
class Health:
    """What the latest turns of one tenant look like.

    Attributes:
        turns: How many are looked at, at most `WINDOW`.
        shares: Each verdict's share of them, in [0, 1]; all 0 without turns.
        spread: Standard deviation of their passages' probabilities; None without any.
        spread_before: The same of the turns before them, at most `WINDOW`; during a `grade_spread` alarm, of those before it began.
        alarms: What is wrong now.
    """

    turns: int
    shares: Mapping[Verdict, float]
    spread: float | None
    spread_before: float | None
    alarms: tuple[AlarmKind, ...]

    def told(self) -> list[dict[str, Any]]:
        """What is wrong, with the numbers, as plain JSON."""
        return [{"alarm": alarm, **self.numbers(alarm)} for alarm in self.alarms]

    def numbers(self, alarm: AlarmKind) -> dict[str, Any]:
        """The numbers that an alarm looks at, as plain JSON."""
        if alarm == "grade_spread":
            return {"turns": self.turns, "spread": self.spread, "spread_before": self.spread_before}
        verdict, share = max(self.shares.items(), key=lambda item: item[1])
        return {"turns": self.turns, "verdict": verdict, "share": share}


@dataclass(frozen=True, slots=True)
class Change:
    """An alarm that began or ended with a turn, and the numbers that made it."""

    alarm: AlarmKind
    began: bool
    health: Health

    def event(self) -> dict[str, Any]:
        """The change as plain JSON."""
        return {"alarm": self.alarm, "change": "began" if self.began else "ended", **self.health.numbers(self.alarm)}

    def __str__(self) -> str:
        """One line for a log: numbers only, and no tenant."""
        numbers = ", ".join(f"{name} {number}" for name, number in self.health.numbers(self.alarm).items())
        return f"{self.alarm} {'began' if self.began else 'ended'} for a tenant: {numbers}"


@dataclass(slots=True)
class _Window:
    """The latest turns, at most `WINDOW`, and their sums."""

    turns: deque[bytes] = field(default_factory=deque)
    verdicts: Counter[Verdict] = field(default_factory=Counter)
    graded: int = 0
    grades: int = 0
    total: int = 0
    squares: int = 0

    def push(self, turn: bytes) -> bytes | None:
        """Adds a turn; the one that has no more room, if any."""
        self.turns.append(turn)
        self._add(turn, 1)
        if len(self.turns) <= WINDOW:
            return None
        oldest = self.turns.popleft()
        self._add(oldest, -1)
        return oldest

    def _add(self, turn: bytes, sign: int) -> None:
        verdict, grades, total, squares = _TURN.unpack(turn)
        self.verdicts[_VERDICTS[verdict]] += sign
        self.graded += sign * bool(grades)
        self.grades += sign * grades
        self.total += sign * total
        self.squares += sign * squares

    @property
    def spread(self) -> float | None:
        """Standard deviation of the probabilities."""
        return sqrt(self.grades * self.squares - self.total**2) / self.grades / _STEPS if self.grades else None


@dataclass(slots=True)
class _Tenant:
    """One tenant's turns, and its alarms: the verdict that takes nearly every turn, and the spread there was before it shrank."""

    latest: _Window = field(default_factory=_Window)
    earlier: _Window = field(default_factory=_Window)
    one: Verdict | None = None
    wide: float | None = None

    def push(self, turn: bytes) -> tuple[Change, ...]:
        """Adds a turn; the alarms that begin or end with it."""
        if passed := self.latest.push(turn):
            self.earlier.push(passed)
        before = self._alarms()
        self.one, self.wide = self._one(), self._wide()
        now = self._alarms()
        return tuple(Change(alarm, alarm in now, self.health()) for alarm in sorted({*before} ^ {*now}))

    def _one(self) -> Verdict | None:
        # Of a whole window, full or not: what 161 of fewer than 200 turns say, the turns still missing can't change.
        counts = self.latest.verdicts
        most = max(_VERDICTS, key=counts.__getitem__) if self.one is None else self.one
        return most if counts[most] > (SHARE if self.one is None else CALM_SHARE) * WINDOW else None

    def _wide(self) -> float | None:
        now, before = self.latest.spread, self.earlier.spread if self.wide is None else self.wide
        if self.wide is None and min(self.latest.graded, self.earlier.graded) < MIN_GRADED:
            return None
        if not before or now is None:
            return None
        shrunk = now < CALM_SHRUNK * before if self.wide else now <= SHRUNK * before
        return before if shrunk else None

    def _alarms(self) -> tuple[AlarmKind, ...]:
        return (*(("verdict_share",) if self.one else ()), *(("grade_spread",) if self.wide else ()))

    def health(self) -> Health:
        turns = len(self.latest.turns)
        return Health(
            turns=turns,
            shares={verdict: round(self.latest.verdicts[verdict] / max(1, turns), 4) for verdict in _VERDICTS},
            spread=_rounded(self.latest.spread),
            spread_before=_rounded(self.wide or self.earlier.spread),
            alarms=self._alarms(),
        )


class Alarm:
    """Counts the verdicts and grades of each tenant's turns.

    Safe to use from several threads and event loops: it waits for nothing but its own lock, which is held for microseconds.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tenants: OrderedDict[str, _Tenant] = OrderedDict()
        self._known: OrderedDict[str, None] = OrderedDict()

    def count(self, tenant: str, evidence: Evidence, *, turn: str = "") -> tuple[Health, tuple[Change, ...]]:
        """Counts a turn, unless it has no verdict, its evaluator could grade nothing, or it was counted before.

        Args:
            tenant: Tells tenants apart: a digest, so that no id is kept.
            evidence: What the turn found out.
            turn: Tells all turns apart; empty where that can't be told.

        Returns:
            The tenant's health with this turn, and the alarms that began or ended with it.
        """
        grades = [graded.grade for graded in evidence.graded if graded.passage.origin == "knowledge"]
        if evidence.verdict is None or could_not_grade(grades):
            return self.health(tenant), ()
        steps = [round(float(grade.probability) * _STEPS) for grade in grades if grade.probability is not None]
        packed = _TURN.pack(_VERDICTS.index(evidence.verdict), len(steps), sum(steps), sum(step * step for step in steps))
        with self._lock:
            state = self._tenants.setdefault(tenant, _Tenant())
            self._tenants.move_to_end(tenant)
            if len(self._tenants) > MAX_TENANTS:
                self._tenants.popitem(last=False)
            changes = () if turn and self._is_known(turn) else state.push(packed)
            return state.health(), changes

    def health(self, tenant: str) -> Health:
        """The health of a tenant; without turns if there were none, or they are forgotten."""
        with self._lock:
            return self._tenants.get(tenant, _Tenant()).health()

    def _is_known(self, turn: str) -> bool:
        """Whether the turn was seen; from now on it was."""
        known = turn in self._known
        self._known[turn] = None
        self._known.move_to_end(turn)
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return known


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 4)
