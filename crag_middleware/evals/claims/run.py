"""Running a claim checker and the baselines over labelled claims."""

from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from crag_middleware import steps
from crag_middleware.adapters.given import evaluator_key
from crag_middleware.adapters.given_answers import threshold_of
from crag_middleware.errors import ClaimCheckError
from crag_middleware.evals.claims.baselines import BASELINES
from crag_middleware.evals.claims.items import ClaimItem
from crag_middleware.evals.claims.rows import CLAIMS, CheckerRun, ClaimRow
from crag_middleware.evals.runner import TENANT, TIMEOUT_S, Caller, Meter, Progress, each
from crag_middleware.ports import AsyncClaimChecker, ClaimChecker, bind
from crag_middleware.settings import CRAGSettings
from crag_middleware.tenancy import Scope
from crag_middleware.types import Claim, Ground


def check_each(
    items: Sequence[ClaimItem],
    checker: ClaimChecker | AsyncClaimChecker,
    *,
    path: Path | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[ClaimRow, ...]:
    """Checks each claim in a call of its own, against all of its evidence.

    Claims are not checked together, even on the same evidence: two that exclude each other would tell a model which one is wrong. It can't be called where an
    event loop is running if the checker has only an async form; call it in a thread there.

    Args:
        items: The claims.
        checker: Who checks.
        path: The file that each row is written to as it comes; None for none.
        resume: Whether that file holds the beginning of this run; its failed rows are tried again.
        progress: Told at the beginning and after each claim.
        timeout_s: Deadline for each call.

    Returns:
        A row for each claim, in order; one that failed has the reason in it.

    Raises:
        ConfigError: The object can't check; or the file exists, or, resuming, it doesn't, or belongs to another run.
    """
    check = bind(checker, "check")
    with closing(Caller()) as caller:

        def measured(item: ClaimItem) -> ClaimRow:
            grounds = tuple(Ground(text, number=number) for number, text in enumerate(item.grounds, 1))
            step = steps.check_claims((Claim(item.claim, 0, len(item.claim)),), grounds, item.question, Scope(TENANT), timeout_s=timeout_s)
            meter = Meter()
            said, probability, reason = None, None, ""
            try:
                (found,) = caller.call(check, step, meter)
                said, probability = found.label, found.probability
            except ClaimCheckError as error:
                reason = error.reason
            return ClaimRow(
                id=item.id,
                digest=item.digest,
                source=item.source,
                lang=item.lang,
                evidence=item.evidence,
                label=item.label,
                said=said,
                probability=probability,
                baselines={baseline.name: baseline.score(item.claim, item.grounds) for baseline in BASELINES},
                error=reason,
                **meter.spent(),
            )

        return each(items, measured, CLAIMS, owner_of(checker), path=path, resume=resume, progress=progress)


def owner_of(checker: object) -> CheckerRun:
    """Whose run it is: the checker's own `key`, an `EvaluatorKey`, or its class name if it exposes none, with its threshold.

    Raises:
        ConfigError: Its `key` or `threshold` is something else.
    """
    key, threshold = evaluator_key(checker), threshold_of(checker, CRAGSettings())
    assert threshold is not None
    return CheckerRun(key.evaluator, key.model, key.prompt, threshold)
