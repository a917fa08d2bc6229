"""What one run of the corrective pass may do, and what it did so far."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from crag_middleware.calibration import Calibration, Scale
from crag_middleware.errors import CRAGError
from crag_middleware.findings import Dropped, Routed, Rung, Trouble, WebAttempt, WebFound
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.budget import has_room
from crag_middleware.stages.decide import decide
from crag_middleware.stages.merge import MergeRules
from crag_middleware.steps import MAIN, Plan, PortName, spending
from crag_middleware.tenancy import Scope
from crag_middleware.types import Graded, Memo, Passage, Verdict, VerdictRule
from crag_middleware.web_policy import OFF, WebPolicy

MODEL_PORTS = frozenset({"evaluator", "rewriter", "keywords", "decompose", "hypothetical"})
"""Ports whose calls are counted against `max_model_calls`, whether or not a chat model is behind them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRule:
    """How one route is asked, and what becomes of its passages.

    Attributes:
        name: The route's name; `knowledge` is the main store.
        port: The port's name.
        k: Passages it brings at most.
        timeout_s: Its deadline, in seconds.
        weight: Its weight in the fusion of ranks.
        half_life_days: After how many days a passage of it counts half; None for never.
        trust: What its source is worth, in [0, 1]; None for what the web policy says of the tenant's own.
    """

    name: str
    port: PortName
    k: int
    timeout_s: float
    weight: float = 1.0
    half_life_days: float | None = None
    trust: float | None = None

    @property
    def step(self) -> str:
        """What a failure of it is told as."""
        return "retrieve" if self.port == MAIN else self.port


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What one middleware instance is set to and what it has at hand.

    Attributes:
        settings: Every number and choice.
        scales: What the evaluator's numbers go through, by tenant; under None for every tenant without its own.
        fallback: What the fallback evaluator's numbers go through; None if there is none.
        ports: The names of the ports that there are.
        routes: The routes, the main store first.
        floor: Reranker scores below it leave a passage out; None for none.
        web: What the turn's tenant allows the web search; None if that could not be found out.
        now_ms: When the turn began, in milliseconds since the epoch: what the age of a passage is counted from.
        count_tokens: Counts a text's tokens.
        troubles: What went wrong before the turn began.
    """

    settings: CRAGSettings
    scales: Mapping[str | None, Scale]
    fallback: Scale | None
    ports: frozenset[PortName]
    routes: tuple[RouteRule, ...]
    floor: float | None
    web: WebPolicy | None
    now_ms: int
    count_tokens: Callable[[str], int]
    troubles: tuple[Trouble, ...] = ()


@dataclass(slots=True)
class Run:
    """One run of the plan: for whom, under which policy, and what it did so far."""

    scope: Scope
    policy: Policy
    asked: str
    """The user's own words."""

    queries: list[str] = field(default_factory=list)
    web_queries: list[str] = field(default_factory=list)
    web_attempts: list[WebAttempt] = field(default_factory=list)
    web_dropped: list[Dropped] = field(default_factory=list)
    routed: list[Routed] = field(default_factory=list)
    early: WebFound | CRAGError | None = None
    """What a search that began before the verdict gave."""

    drafted: str | CRAGError | None = None
    """The web query that was drafted while the knowledge was graded."""

    fell_back: bool = False
    """Whether knowledge was graded by the fallback evaluator, whose numbers no set map of the other one fits."""

    rungs: list[Rung] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    memo: Memo = field(default_factory=dict)

    @property
    def settings(self) -> CRAGSettings:
        """Every number and choice."""
        return self.policy.settings

    @property
    def scale(self) -> Scale:
        """What the evaluator's numbers go through for this tenant."""
        return self.policy.scales.get(self.scope.agent_id) or self.policy.scales[None]

    @property
    def web(self) -> WebPolicy:
        """What the tenant allows the web search."""
        return self.policy.web or OFF

    @property
    def merging(self) -> MergeRules:
        """What the fusion of this turn's lists goes by."""
        settings, routes = self.settings, self.policy.routes
        return MergeRules(
            weights={route.name: route.weight for route in routes},
            half_life_days={route.name: route.half_life_days for route in routes if route.half_life_days},
            by_type=settings.half_lives_days,
            now_ms=self.policy.now_ms,
            rrf_k=settings.rrf_k,
            near=settings.near_duplicate,
        )

    def trust(self, passage: Passage) -> float | None:
        """What the most trusted of the routes that found the passage is worth; None if none of them says."""
        named = {hit.route for hit in passage.hits}
        return max((r.trust for r in self.policy.routes if r.name in named and r.trust is not None), default=None)

    def has(self, port: PortName) -> bool:
        """Whether there is such a port."""
        return port in self.policy.ports

    def may_ask(self, *, sparing: int = 0) -> Plan[bool]:
        """Whether another model call fits into the turn's budget and leaves `sparing` for what must come after it; told in the notes if not."""
        asked = sum(n for port, n in self.calls.items() if port in MODEL_PORTS)
        fits = has_room((yield from spending()), self.settings, asked=asked, sparing=sparing)
        if not fits and "budget_spent" not in self.notes:
            self.notes.append("budget_spent")
        return fits

    @property
    def calibration(self) -> Calibration | None:
        """The calibration that the verdict comes from."""
        scale = self.policy.fallback if self.fell_back else self.scale
        return scale.calibration if scale else None

    def decide(self, graded: Sequence[Graded]) -> Verdict:
        """The verdict on what was graded; by the paper's rule where the fallback evaluator graded, whose numbers no set map fits."""
        rule: VerdictRule = "paper" if self.fell_back else self.settings.verdict_rule
        return decide([g.grade for g in graded], rule=rule, calibration=self.calibration)

    def without(self, rung: Rung) -> None:
        """Remember what was done without since time or budget ran short."""
        if rung not in self.rungs:
            self.rungs.append(rung)

    def count(self, port: str) -> None:
        """Count a call of a port."""
        self.calls[port] = self.calls.get(port, 0) + 1

    def trouble(self, step: str, error: CRAGError) -> None:
        """Remember a step that failed; the same failure of the same step once."""
        self.missed(Trouble(step, error.reason))

    def missed(self, *troubles: Trouble) -> None:
        """Remember what had to be done without."""
        self.troubles += [trouble for trouble in troubles if trouble not in self.troubles]

    def attempted(self, outcome: WebFound | CRAGError) -> None:
        """Remember who was asked in a web search, whatever came of it."""
        self.web_attempts += getattr(outcome, "attempts", ())
