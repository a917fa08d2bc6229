"""Keeps row text, filters and error text of our Milvus calls out of the logs.

On failure pymilvus logs the filter with the tenant's id, langchain-milvus the text of the row, both at ERROR.
A logging filter is not inherited by child loggers, so each logger that emits needs its own.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock

CLIENTS = ("pymilvus", "langchain_milvus", "pypdf")
"""Packages that log in the thread and context of the caller."""

EMBEDDED = "milvus_lite"
"""Logs in threads of its own, where the caller's context is not visible."""

_redacting: ContextVar[bool] = ContextVar("crag_redacting", default=False)


class _Redactor(logging.Filter):
    """Replaces what a record says, and keeps its level, logger, place in the code and error class."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._running = 0

    def filter(self, record: logging.LogRecord) -> bool:
        active = self._running > 0 if record.name.startswith(EMBEDDED) else _redacting.get()
        if active:
            error = next((type(a).__name__ for a in _values(record) if isinstance(a, BaseException)), None)
            record.msg = "details withheld, they may be private" + (f" ({error})" if error else "")
            record.args = None
            record.exc_info = record.exc_text = record.stack_info = None
        return True

    def count(self, change: int) -> None:
        """Notes that a redacted call begins (1) or ends (-1) somewhere in this process."""
        with self._lock:
            self._running += change


def _values(record: logging.LogRecord) -> Iterator[object]:
    """Where a record may hold its error: attached, among the arguments, or being handled while it is logged."""
    if record.exc_info:
        yield record.exc_info[1]
    if isinstance(record.args, tuple):
        yield from record.args
    yield sys.exc_info()[1]


_redactor = _Redactor()


@cache
def _attach() -> None:
    """Puts the filter on the logger of every module of the packages, imported yet or not."""
    for package in (*CLIENTS, EMBEDDED):
        spec = find_spec(package)
        for root in (spec and spec.submodule_search_locations) or ():
            for path in Path(root).rglob("*.py"):
                module = (package, *path.relative_to(root).with_suffix("").parts)
                logging.getLogger(".".join(module).removesuffix(".__init__")).addFilter(_redactor)


@contextmanager
def redacted_logs() -> Iterator[None]:
    """While it is open, pymilvus, langchain-milvus and Milvus Lite log no row text, filter or error text for calls made in this context.

    It holds in the current context: the thread or task that entered it, and threads and tasks started from there with a copied context.
    Milvus Lite's own threads are redacted while any such call runs in the process.
    """
    _attach()
    _redactor.count(1)
    token = _redacting.set(True)
    try:
        yield
    finally:
        _redacting.reset(token)
        _redactor.count(-1)
