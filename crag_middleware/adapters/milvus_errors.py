"""What went wrong in Milvus, said without private text."""

from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from langgraph.errors import GraphBubbleUp
from pymilvus import MilvusException

from crag_middleware.adapters.redaction import redacted_logs
from crag_middleware.errors import CRAGError, RetrievalError

CONNECT_FAILED, RATE_LIMITED, COLLECTION_MISSING, NOT_LOADED = 2, 8, 100, 101
"""Milvus' error codes."""

_UNAUTHORIZED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


@contextmanager
def guarded(collection: str) -> Iterator[None]:
    """Keeps private text out of the logs, and turns foreign errors into ours."""
    with redacted_logs():
        try:
            yield
        except (CRAGError, GraphBubbleUp):
            raise
        except Exception as error:  # noqa: BLE001 - raised on as ours
            reason, what = diagnosis(error)
            msg = f"collection `{collection}` could not be searched: {what}"
            # Not `from error`: its text holds the filter and with it the tenant's id, and causes are printed with every traceback.
            raise RetrievalError(msg, reason=reason) from None


def diagnosis(error: Exception) -> tuple[str, str]:
    """A reason code and what to tell people; nothing of the error's own text, which may hold rows and filters."""
    code = error.code() if isinstance(error, grpc.RpcError) and callable(getattr(error, "code", None)) else getattr(error, "code", None)
    if isinstance(error, TimeoutError) or code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return "timeout", "it took too long"
    if code in (grpc.StatusCode.UNAVAILABLE, CONNECT_FAILED):
        return "unavailable", "Milvus can't be reached"
    if code in _UNAUTHORIZED:
        return "unauthorized", "Milvus refuses the user or token; check `connection_args`"
    if code in (grpc.StatusCode.RESOURCE_EXHAUSTED, RATE_LIMITED):
        return "rate_limited", "Milvus is asked too often, or for too much"
    if code == COLLECTION_MISSING:
        return "collection_missing", "it does not exist any more"
    if code == NOT_LOADED:
        return "not_loaded", "it is not loaded, and loading it did not help"
    if isinstance(error, MilvusException) and "Retry timeout" in str(error):
        return "timeout", "it took too long"
    return "failed", f"{type(error).__name__}{f', code {code}' if isinstance(code, int) else ''}"
