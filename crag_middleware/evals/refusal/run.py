"""Looking at answers: whether each refuses, and what its citations are worth."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from crag_middleware import steps
from crag_middleware.errors import ClaimCheckError
from crag_middleware.evals.claims.run import owner_of
from crag_middleware.evals.refusal.citations import Cited, Numbers, judge
from crag_middleware.evals.refusal.items import AnswerItem
from crag_middleware.evals.refusal.rows import REFUSALS, RefusalRow
from crag_middleware.evals.runner import TENANT, TIMEOUT_S, Caller, Meter, Progress, each
from crag_middleware.ports import AsyncClaimChecker, ClaimChecker, bind
from crag_middleware.stages.claims import is_refusal
from crag_middleware.tenancy import Scope
from crag_middleware.types import Claim, Ground


def judge_each(
    items: Sequence[AnswerItem],
    checker: ClaimChecker | AsyncClaimChecker,
    *,
    path: Path | None = None,
    resume: bool = False,
    progress: Callable[[Progress], object] = lambda _: None,
    timeout_s: float = TIMEOUT_S,
) -> tuple[RefusalRow, ...]:
    """Tells of each answer whether it refuses and, where there are passages to cite, what its citations are worth.

    It can't be called where an event loop is running if the checker has only an async form; call it in a thread there.

    Args:
        items: The answers.
        checker: Who says whether what a statement cites supports it.
        path: The file that each row is written to as it comes; None for none.
        resume: Whether that file holds the beginning of this run; its failed rows are tried again.
        progress: Told at the beginning and after each answer.
        timeout_s: Deadline for each call of the checker.

    Returns:
        A row for each answer, in order; one that failed has the reason in it.

    Raises:
        ConfigError: The object can't check; or the file exists, or, resuming, it doesn't, or belongs to another run.
    """
    check = bind(checker, "check")
    with closing(Caller()) as caller:

        def measured(item: AnswerItem) -> RefusalRow:
            meter = Meter()

            def supported(claims: Sequence[Claim], numbers: Numbers) -> list[bool]:
                grounds = tuple(Ground(item.passages[number - 1], number=number) for number in numbers)
                step = steps.check_claims(tuple(claims), grounds, item.question, Scope(TENANT), timeout_s=timeout_s)
                return [said.label == "supported" for said in caller.call(check, step, meter)]

            cited, reason = Cited(), ""
            try:
                if item.passages:
                    cited = judge(item.answer, len(item.passages), supported)
            except ClaimCheckError as error:
                reason = error.reason
            return RefusalRow(
                id=item.id,
                digest=item.digest,
                source=item.source,
                lang=item.lang,
                answerable=item.answerable,
                refused=is_refusal(item.answer),
                error=reason,
                **asdict(cited),
                **meter.spent(),
            )

        return each(items, measured, REFUSALS, owner_of(checker), path=path, resume=resume, progress=progress)
