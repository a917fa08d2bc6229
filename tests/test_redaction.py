"""Nothing private reaches a log while our calls run."""

import asyncio
import contextvars
import importlib.util
import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.documents import Document
from pymilvus import MilvusException

from crag_middleware.adapters.redaction import redacted_logs
from tests.support import milvus as support
from tests.support.milvus import TENANT, insert, make_collection, open_store

lite_uri = support.lite_uri

MARKER = "MARKER-Zürich-机密"


@pytest.fixture
def records() -> Iterator[list[logging.LogRecord]]:
    """Every record of the process, as handlers get it."""
    seen: list[logging.LogRecord] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            seen.append(record)

    collector = Collector(logging.DEBUG)
    loggers = [logging.getLogger(name) for name in (None, "pymilvus", "pymilvus.milvus_client")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        logger.addHandler(collector)
    yield seen
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)
        logger.removeHandler(collector)


def everything(record: logging.LogRecord) -> str:
    return repr(vars(record)) + logging.Formatter().format(record)


def errors(records: list[logging.LogRecord]) -> list[logging.LogRecord]:
    return [r for r in records if r.levelno >= logging.ERROR]


def test_a_failing_insert_logs_no_row_text(lite_uri: str, records: list[logging.LogRecord]) -> None:
    make_collection(lite_uri, "k", {"agent_id": TENANT})
    store = open_store(lite_uri, "k")
    document = Document(f"{MARKER} text", metadata={"agent_id": f"{MARKER}" * 60})

    with redacted_logs(), pytest.raises(MilvusException):
        store.add_documents([document], ids=["1"])

    assert {r.name for r in errors(records)} >= {"pymilvus.decorators", "langchain_milvus.vectorstores.milvus"}
    assert not [r for r in records if MARKER in everything(r)]
    assert all("(MilvusException)" in r.getMessage() for r in errors(records) if r.name.startswith(("pymilvus", "langchain_milvus")))


@pytest.mark.parametrize("expression", [f'agent_id == "{MARKER}', f'"{MARKER}" == 1', f'agent_id == "{MARKER}"'])
def test_a_failing_search_logs_no_filter(lite_uri: str, records: list[logging.LogRecord], expression: str) -> None:
    client = make_collection(lite_uri, "k", {"agent_id": TENANT})
    insert(client, "k", [{"id": "1", "text": MARKER, "agent_id": MARKER}])

    with redacted_logs(), pytest.raises(MilvusException):
        client.search("k", data=[[1.0, 0.0]], anns_field="dense", filter=expression)

    assert errors(records)
    assert not [r for r in records if MARKER in everything(r)]


def test_without_it_the_libraries_do_leak(lite_uri: str, records: list[logging.LogRecord]) -> None:
    """If this fails, the redaction has become needless."""
    client = make_collection(lite_uri, "k", {"agent_id": TENANT})

    with redacted_logs():
        pass
    with pytest.raises(MilvusException):
        client.search("k", data=[[1.0, 0.0]], anns_field="dense", filter=f'"{MARKER}" == 1')

    assert [r for r in records if MARKER in everything(r)]


@pytest.mark.parametrize("package", ["pymilvus", "langchain_milvus", "milvus_lite"])
def test_every_logger_of_the_packages_is_covered(package: str, records: list[logging.LogRecord]) -> None:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    emitting = [p for p in root.rglob("*.py") if re.search(r"getLogger\(__name__\)", p.read_text()) and "bulk_writer" not in p.parts]
    names = [".".join(p.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__") for p in emitting]
    assert names

    with redacted_logs():
        for name in names:
            logging.getLogger(name).error("%s", MARKER)

    assert {r.name for r in records} == set(names)
    assert not [r.name for r in records if MARKER in everything(r)]


def test_it_holds_for_threads_with_a_copied_context_and_for_tasks_and_for_no_others(records: list[logging.LogRecord]) -> None:
    logger = logging.getLogger("pymilvus.decorators")

    async def later(ready: asyncio.Event) -> None:
        await ready.wait()
        logger.error("inner %s", MARKER)

    async def turn() -> None:
        ready = asyncio.Event()
        with redacted_logs():
            task = asyncio.create_task(later(ready))
            await asyncio.to_thread(logger.error, "inner %s", MARKER)
        ready.set()
        await task

    async def both() -> None:
        await asyncio.gather(turn(), asyncio.to_thread(logger.error, "outer"))

    asyncio.run(both())
    with redacted_logs():
        context = contextvars.copy_context()
        for target in (lambda: context.run(logger.error, "inner %s", MARKER), lambda: logger.error("outer")):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    logger.error("outer")

    assert not [r for r in records if MARKER in everything(r)]
    assert sum(r.getMessage() == "outer" for r in records) == 3


def test_an_error_class_in_the_arguments_is_named_and_its_text_is_not(records: list[logging.LogRecord]) -> None:
    with redacted_logs():
        logging.getLogger("langchain_milvus.vectorstores.milvus").error("failed: %s", ValueError(MARKER))

    assert "(ValueError)" in records[0].getMessage()
    assert records[0].levelno == logging.ERROR
    assert records[0].name == "langchain_milvus.vectorstores.milvus"
