"""Every error this package raises.

    CRAGError
    ├── ConfigError      wrong arguments or settings, found when something is built
    ├── TenantError      no usable tenant, or a row of another one: always fatal
    ├── RetrievalError   the knowledge could not be searched
    ├── GradingError     the evaluator gave no usable grades
    ├── WebSearchError   the web could not be searched
    ├── RewriteError     the rewriter gave no usable query
    ├── RerankError      the reranker gave no usable scores
    ├── ClaimCheckError  the claims of an answer could not be checked
    ├── RefineError      the refiner gave no usable strips
    └── IngestError      documents could not be embedded or written

Only `ConfigError` and `TenantError` leave a running agent. The others of a turn are caught by the plan, named in the receipt and answered with what
is left; `IngestError` goes to whoever fills a collection.
No message here may hold a tenant id, a passage or a question.
"""

from typing import Any

from langgraph.errors import GraphBubbleUp


class CRAGError(Exception):
    """Base of all errors of this package.

    Args:
        message: What was wrong, what was got and what to do; never private text.
        reason: A short code for the receipt, such as `"timeout"`.
    """

    def __init__(self, message: str, *, reason: str = "failed") -> None:
        super().__init__(message)
        self.reason = reason


def let_pass(error: Exception) -> None:
    """Raises the framework's control flow, or the tenant error, that a group of exceptions holds; does nothing for any other error.

    Task groups wrap what their tasks raise, and whoever looks for these classes does not look into groups.
    """
    found: BaseException | None = error.subgroup(GraphBubbleUp) if isinstance(error, ExceptionGroup) else None
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    if found is not None:
        raise found from None


class ConfigError(CRAGError, ValueError):
    """Something was built with arguments that cannot work."""


class TenantError(CRAGError, GraphBubbleUp):
    """The tenant is missing, malformed or contradictory, or a row of another tenant came back.

    It is a `GraphBubbleUp` because the framework's retry, fallback and tool-error middlewares let that class pass and turn any other exception into text,
    which would hide a broken tenant boundary inside an answer; this holds for a subagent that runs inside a tool, too.
    """


class RetrievalError(CRAGError):
    """The knowledge could not be searched."""


class GradingError(CRAGError):
    """The evaluator failed as a whole."""


class WebSearchError(CRAGError):
    """The web search failed as a whole.

    Args:
        message: As for every error of ours; never the query or a key.
        reason: A short code for the receipt.
        retry_after_s: Seconds after which the provider says it may be asked again; None if it said nothing.
        attempts: Who was asked, in order (`WebAttempt`).
        sent: Whether a request left.
    """

    def __init__(
        self, message: str, *, reason: str = "failed", retry_after_s: float | None = None, attempts: tuple[Any, ...] = (), sent: bool = True
    ) -> None:
        super().__init__(message, reason=reason)
        self.retry_after_s = retry_after_s
        self.attempts = attempts
        self.sent = sent


class RewriteError(CRAGError):
    """The rewriter failed or returned nothing."""


class RerankError(CRAGError):
    """The reranker failed or returned what are no scores."""


class ClaimCheckError(CRAGError):
    """The claim checker failed or returned what are no results."""


class RefineError(CRAGError):
    """The refiner failed or returned strips that are not in the passage."""


class IngestError(CRAGError):
    """Documents could not be embedded or written."""
