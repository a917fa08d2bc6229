"""What one run of the corrective pass may do, and what it did so far."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from crag_middleware.calibration import Scale
from crag_middleware.errors import CRAGError
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.decide import decide
from crag_middleware.tenancy import Scope
from crag_middleware.types import Dropped, Graded, Memo, Trouble, Verdict, WebAttempt, WebFound
from crag_middleware.web_policy import OFF, WebPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What one middleware instance is set to and what it has at hand.

    Attributes:
        settings: Every number and choice.
        scales: What the evaluator's numbers go through, by tenant; under None for every tenant without its own.
        has_rewriter: Whether there is a rewriter.
        has_web_search: Whether there is a web search.
        has_keywords: Whether the rewriter drafts web queries.
        has_approver: Whether somebody approves web queries.
        web: What the turn's tenant allows the web search; None if that could not be found out.
        count_tokens: Counts a text's tokens.
    """

    settings: CRAGSettings
    scales: Mapping[str | None, Scale]
    has_rewriter: bool
    has_web_search: bool
    has_keywords: bool
    has_approver: bool
    web: WebPolicy | None
    count_tokens: Callable[[str], int]


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
    early: WebFound | CRAGError | None = None
    """What a search that began before the verdict gave."""

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

    def decide(self, graded: Sequence[Graded]) -> Verdict:
        """The verdict on what was graded."""
        return decide([g.grade for g in graded], rule=self.settings.verdict_rule, calibration=self.scale.calibration)

    def count(self, port: str) -> None:
        """Count a call of a port."""
        self.calls[port] = self.calls.get(port, 0) + 1

    def trouble(self, step: str, error: CRAGError) -> None:
        """Remember a step that failed."""
        self.troubles.append(Trouble(step, error.reason))

    def attempted(self, outcome: WebFound | CRAGError) -> None:
        """Remember who was asked in a web search, whatever came of it."""
        self.web_attempts += getattr(outcome, "attempts", ())
