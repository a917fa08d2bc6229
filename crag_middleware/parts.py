"""What one middleware instance is built of: its ports, and the policy that they are used by, for all tenants and for each."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

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
from crag_middleware.errors import ConfigError
from crag_middleware.ledger import Policy
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
from crag_middleware.settings import CRAGSettings
from crag_middleware.stages.refine import WordRefiner
from crag_middleware.steps import PortName
from crag_middleware.tenancy import Scope
from crag_middleware.types import Trouble

logger = logging.getLogger(__name__)

AnyKnowledge = Milvus | TenantPlaces | BaseRetriever | Retriever | AsyncRetriever
"""What can be searched: see `CRAGMiddleware`."""

AnyEvaluator = Evaluator | AsyncEvaluator | ChatModel | str
"""What can grade: see `CRAGMiddleware`."""


class Parts:
    """The parts of one instance; the arguments are those of `CRAGMiddleware`.

    Attributes:
        ports: The ports by name.
        threshold: Claims whose P(supported) lies below it are unsupported; None without a claim checker.

    Raises:
        ConfigError: Something of this can't work; the message says what to do.
    """

    def __init__(
        self,
        vector_store: AnyKnowledge,
        *,
        agent_id: str | None,
        evaluator: AnyEvaluator | None,
        fallback_evaluator: AnyEvaluator | None,
        calibration: CalibrationLike | Sequence[CalibrationLike] | None,
        web_search: AnyWebSearch | Sequence[AnyWebSearch] | None,
        web_policy: AnyWebPolicy | None,
        approve_web_query: Approval | None,
        rewriter: Rewriter | AsyncRewriter | ChatModel | str | None,
        refiner: Refiner | AsyncRefiner | None,
        claim_checker: AnyClaimChecker | None,
        write_back: EvidenceKeeper | AsyncEvidenceKeeper | None,
        routes: Route | Sequence[Route],
        reranker: AnyReranker | None,
        settings: CRAGSettings,
        tenant_settings: AnyTenantSettings | None,
        tenant_field: str | None,
        token_counter: Callable[[Any], int] | None,
    ) -> None:
        self._settings = settings
        self._grader = as_evaluator(evaluator)
        second = None if fallback_evaluator is None else as_evaluator(fallback_evaluator)
        rewriting = as_rewriter(rewriter, self._grader)
        searching = as_web_search(web_search)
        if searching is not None:
            searching.check_options(settings.web_options)
        self._web_policy = as_web_policy(web_policy)
        self._checker, self._keeper = as_claim_checker(claim_checker), write_back
        ranking = as_reranker(reranker)
        collection = str(getattr(vector_store, "collection_name", ""))
        knowledge, rules = as_knowledge(vector_store, routes, tenant_field=tenant_field, settings=settings)
        self.ports: Mapping[PortName, Bound] = {
            **knowledge,
            **rewriter_ports(rewriting, settings),
            **{
                port: bind(it, method)
                for port, it, method in (
                    ("evaluator", self._grader, "grade"),
                    ("fallback_evaluator", second, "grade"),
                    ("refiner", refiner or WordRefiner(max_strips=settings.max_strips), "refine"),
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
            scales=as_scales(calibration, self._grader, collection=collection, agent_id=agent_id, settings=settings),
            fallback=None if second is None else fallback_scale(second),
            ports=frozenset(self.ports),
            routes=rules,
            floor=floor_of(ranking),
            web=None,
            now_ms=0,
            count_tokens=as_token_counter(token_counter),
        )
        self.threshold = threshold_of(self._checker, settings)
        self._check(settings)
        self._tenant_settings = TenantSettings(settings, tenant_settings, self._check)
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

    def _check(self, settings: CRAGSettings) -> None:
        """Passes if the parts can do what the settings ask for."""
        threshold_of(self._checker, settings)
        for scale in self._policy.scales.values():
            rescaled(scale, self._grader, settings)
        if self._keeper is not None and (self._checker is None or not settings.verify):
            msg = "`write_back` keeps evidence of answers whose claims were checked; pass `claim_checker=` too, and leave `verify` on"
            raise ConfigError(msg)
