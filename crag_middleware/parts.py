"""What one middleware instance is built of: its ports, and the policy that they are used by, for all tenants and for each."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

from langchain_core.retrievers import BaseRetriever
from langchain_milvus import Milvus
from langgraph.errors import GraphBubbleUp

from crag_middleware.adapters.given import CalibrationLike, as_evaluator, as_rewriter, as_scales, as_token_counter, fallback_scale, rescaled
from crag_middleware.adapters.given_answers import AnyClaimChecker, as_claim_checker, threshold_of
from crag_middleware.adapters.given_recall import AnyReranker, as_knowledge, as_reranker, floor_of, rewriter_ports
from crag_middleware.adapters.given_settings import AnyTenantSettings, TenantSettings
from crag_middleware.adapters.given_web import AnyWebPolicy, AnyWebSearch, Approval, Approver, as_web_policy, as_web_search
from crag_middleware.adapters.inner_model import ChatModel
from crag_middleware.adapters.routes import Route
from crag_middleware.adapters.tenant_retriever import TenantPlaces
from crag_middleware.alarm import Alarm, Change
from crag_middleware.breaker import Breaker
from crag_middleware.errors import ConfigError
from crag_middleware.findings import Evidence, Spent, Trouble
from crag_middleware.ledger import Policy
from crag_middleware.meter import Meter
from crag_middleware.pool import Pools
from crag_middleware.ports import (
    AsyncEvaluator,
    AsyncEvidenceKeeper,
    AsyncRefiner,
    AsyncRetriever,
    AsyncRewriter,
    Bound,
    Evaluator,
    EvidenceKeeper,
    Refiner,
    Retriever,
    Rewriter,
    bind,
)
from crag_middleware.receipt import record
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.refine import WordRefiner
from crag_middleware.steps import PortName
from crag_middleware.tenancy import Scope, digest
from crag_middleware.world import World

logger = logging.getLogger(__name__)

AnyKnowledge = Milvus | TenantPlaces | BaseRetriever | Retriever | AsyncRetriever
"""What can be searched: see `CRAGMiddleware`."""

AnyEvaluator = Evaluator | AsyncEvaluator | ChatModel | str
"""What can grade: see `CRAGMiddleware`."""


class Given(TypedDict, total=False):
    """What a corrective pass may be given beside its knowledge and its tenant, by name; `CRAGMiddleware` says what each is for."""

    evaluator: AnyEvaluator | None
    fallback_evaluator: AnyEvaluator | None
    calibration: CalibrationLike | Sequence[CalibrationLike] | None
    web_search: AnyWebSearch | Sequence[AnyWebSearch] | None
    web_policy: AnyWebPolicy | None
    approve_web_query: Approval | None
    rewriter: Rewriter | AsyncRewriter | ChatModel | str | None
    refiner: Refiner | AsyncRefiner | None
    routes: Route | Sequence[Route]
    reranker: AnyReranker | None
    settings: CRAGSettings | None
    tenant_settings: AnyTenantSettings | None
    tenant_field: str | None
    token_counter: Callable[[Any], int] | None


class GivenForAnswers(Given, total=False):
    """The same, and what looks at the answer."""

    claim_checker: AnyClaimChecker | None
    write_back: EvidenceKeeper | AsyncEvidenceKeeper | None


class Parts:
    """The parts of one instance, and what it remembers of their failures and its turns.

    Args:
        vector_store: The knowledge.
        agent_id: The tenant, if it is the same for every turn.
        given: The other arguments of `CRAGMiddleware`.

    Attributes:
        ports: The ports by name.
        threshold: Claims whose P(supported) lies below it are unsupported; None without a claim checker.
        alarm: What the latest turns looked like.
        breaker: The circuits of the ports, by tenant.
        pools: The threads of blocking ports.

    Raises:
        ConfigError: Something of this can't work; the message says what to do.
    """

    def __init__(self, vector_store: AnyKnowledge, *, agent_id: str | None, **given: Unpack[GivenForAnswers]) -> None:
        _check_given({"vector_store": vector_store, **given})
        settings = given.get("settings") or CRAGSettings()
        evaluator, fallback_evaluator = given.get("evaluator"), given.get("fallback_evaluator")
        write_back, approve_web_query = given.get("write_back"), given.get("approve_web_query")
        self._settings = settings
        self._grader = as_evaluator(evaluator)
        second = None if fallback_evaluator is None else as_evaluator(fallback_evaluator)
        rewriting = as_rewriter(given.get("rewriter"), self._grader)
        searching = as_web_search(given.get("web_search"))
        if searching is not None:
            searching.check_options(settings.web_options)
        self._web_policy = as_web_policy(given.get("web_policy"))
        self._checker, self._keeper = as_claim_checker(given.get("claim_checker")), write_back
        ranking = as_reranker(given.get("reranker"))
        collection = str(getattr(vector_store, "collection_name", ""))
        knowledge, rules = as_knowledge(vector_store, given.get("routes", ()), tenant_field=given.get("tenant_field"), settings=settings)
        self.ports: Mapping[PortName, Bound] = {
            **knowledge,
            **rewriter_ports(rewriting, settings),
            **{
                port: bind(it, method)
                for port, it, method in (
                    ("evaluator", self._grader, "grade"),
                    ("fallback_evaluator", second, "grade"),
                    ("refiner", given.get("refiner") or WordRefiner(max_strips=settings.max_strips), "refine"),
                    ("reranker", ranking, "rerank"),
                    ("claim_checker", self._checker, "check"),
                    ("write_back", write_back, "keep"),
                    ("approver", approve_web_query and Approver(approve_web_query), "approve"),
                    ("web_search", searching, "search"),
                )
                if it is not None
            },
        }
        self._policy = Policy(
            settings=settings,
            scales=as_scales(given.get("calibration"), self._grader, collection=collection, agent_id=agent_id, settings=settings),
            fallback=None if second is None else fallback_scale(second),
            ports=frozenset(self.ports),
            routes=rules,
            floor=floor_of(ranking),
            web=None,
            now_ms=0,
            count_tokens=as_token_counter(given.get("token_counter")),
        )
        self.threshold = threshold_of(self._checker, settings)
        self._check(settings)
        self._tenant_settings = TenantSettings(settings, given.get("tenant_settings"), self._check)
        self.alarm, self.breaker, self.pools = Alarm(), Breaker(), Pools()
        self._shown = (repr(settings), repr(self._tenant_settings), collection, repr(rules), repr(self._policy.scales))

    @property
    def shown(self) -> tuple[str, ...]:
        """What is told apart from another instance's by, in texts."""
        return self._shown

    @property
    def saves_evidence(self) -> bool:
        """Whether evidence is saved in checkpoints."""
        return self._settings.save_evidence

    def settings_of(self, scope: Scope) -> CRAGSettings:
        """The settings of a tenant; the instance's if the function that says so fails."""
        return self._tenant_settings.of(scope.agent_id) or self._settings

    def policy_of(self, scope: Scope) -> Policy:
        """The policy of a tenant's turn that begins now. Where a function that a part of it comes from fails, the turn is told."""
        settings = self._tenant_settings.of(scope.agent_id)
        policy = replace(
            self._policy,
            now_ms=time.time_ns() // 1_000_000,
            troubles=() if settings is not None else (Trouble("tenant_settings", "failed"),),
        )
        if settings is not None and settings is not self._settings:
            scale = policy.scales.get(scope.agent_id) or policy.scales[None]
            policy = replace(policy, settings=settings, scales={None: rescaled(scale, self._grader, settings)})
        try:
            return replace(policy, web=self._web_policy(scope.agent_id))
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - a user's function may fail in any way
            logger.warning("crag: `web_policy` failed with %s; no web search in this turn", type(error).__name__)
            return policy

    def world(self, scope: Scope, settings: CRAGSettings, report: Callable[[str], None], spent: Spent | None = None) -> World:
        """What the drivers work with in a tenant's turn that has cost something already, or begins.

        Args:
            scope: The tenant.
            settings: The tenant's.
            report: Where progress is told.
            spent: What the turn has cost so far.
        """
        return World(
            self.ports,
            report,
            timeout_s=settings.turn_timeout_s,
            tenant=digest(scope.agent_id),
            breaker=self.breaker,
            pools=self.pools,
            meter=Meter(spent),
        )

    def recorded(
        self, evidence: Evidence, scope: Scope, settings: CRAGSettings, *, name: str, turn: str = ""
    ) -> tuple[dict[str, Any], tuple[Change, ...]]:
        """The receipt of a turn, which is counted and whose troubles are logged, and the alarms that begin or end with it.

        Args:
            evidence: What the corrective pass found out.
            scope: The tenant.
            settings: The tenant's.
            name: The instance's name.
            turn: The same text for a turn that runs again; empty if that can't be told.
        """
        health, changes = self.alarm.count(digest(scope.agent_id), evidence, turn=turn)
        for change in changes:
            logger.log(logging.WARNING if change.began else logging.INFO, "crag alarm: %s", change)
        if evidence.troubles:
            logger.warning("crag turn degraded: %s", ", ".join(f"{t.step} ({t.reason})" for t in evidence.troubles))
        return record(evidence, name=name, detail=settings.receipt_detail, alarms=health.told()), changes

    def _check(self, settings: CRAGSettings) -> None:
        """Passes if the parts can do what the settings ask for."""
        threshold_of(self._checker, settings)
        for scale in self._policy.scales.values():
            rescaled(scale, self._grader, settings)
        if self._keeper is not None and (self._checker is None or not settings.verify):
            msg = "`write_back` keeps evidence of answers whose claims were checked; pass `claim_checker=` too, and leave `verify` on"
            raise ConfigError(msg)


_INSTANCES = ("vector_store", "evaluator", "fallback_evaluator", "web_search", "rewriter", "reranker", "claim_checker", "write_back")


def _check_given(given: Mapping[str, object]) -> None:
    """Passes if every argument is known, and an instance where one is needed."""
    if unknown := sorted(given.keys() - GivenForAnswers.__annotations__.keys() - {"vector_store"}):
        msg = f"`{unknown[0]}` is no argument; the arguments are: {', '.join(sorted(GivenForAnswers.__annotations__))}"
        raise ConfigError(msg)
    settings = given.get("settings")
    if settings is not None and not isinstance(settings, CRAGSettings):
        msg = f"`settings` must be `CRAGSettings(...)`, got {type(settings).__name__}"
        raise ConfigError(msg)
    for argument in _INSTANCES:
        value = given.get(argument)
        if isinstance(value, type):
            msg = f"`{argument}` must be an instance, got the class {value.__name__}; write {value.__name__}(...)"
            raise ConfigError(msg)
