"""Web pages into a tenant's knowledge, after an answer that rests on them was checked: kept, listed, and deleted again.

They stand apart from what the tenant put in: `origin` is `web`, the free key `written_back` says from which turn, the ids are of a kind of their own, and
each row ends (`expires_at`). A page has one row, that of its newest fetch.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from langchain_core.runnables.config import run_in_executor

from crag_middleware.errors import ConfigError, IngestError, RetrievalError
from crag_middleware.knowledge.admin import TEXTS_AT_ONCE
from crag_middleware.knowledge.knowledge import Knowledge
from crag_middleware.knowledge.rows import Row, prepare_rows
from crag_middleware.knowledge.schema import CONFIDENCE, CONTENT_HASH, CREATED_AT, ID, METADATA, TEXT
from crag_middleware.knowledge.tenant_rows import BATCH, one_of, pages, remove
from crag_middleware.receipt import SCHEMA_VERSION
from crag_middleware.stages.injection import FLAGGED
from crag_middleware.stages.urls import canonical_url
from crag_middleware.stages.write_back import Excerpt, worth_keeping
from crag_middleware.tenancy import Scope, check_agent_id, digest

logger = logging.getLogger(__name__)

ORIGIN = "web"
"""The `origin` of every row that is written back."""

WRITTEN_BACK = "written_back"
"""The free metadata key that tells such a row from one that the tenant put in: the digest of its turn, and the page's grade there."""

MARKS = ("origin", "url", "fetched_at", "expires_at", METADATA)
"""Fields that every such row has."""

MAX_DAYS = 36_500
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class WrittenBack:
    """A web page in a tenant's knowledge.

    Attributes:
        id: The row's id.
        url: The page's address.
        title: Its title; empty if it has none.
        source: Its host.
        text: What was kept of it.
        confidence: Stored trust in it, in [0, 1].
        fetched_at: When it was kept, in milliseconds since the epoch.
        expires_at: From when on no search of the middleware finds it, in milliseconds since the epoch.
    """

    id: str
    url: str
    title: str
    source: str
    text: str
    confidence: float
    fetched_at: int
    expires_at: int


class WriteBack:
    """Keeps web pages that a checked answer rests on in the tenant's knowledge. What is kept, and when, is told in docs/write_back.md.

    Args:
        store: The knowledge of `open_knowledge`.
        min_probability: A page's graded probability must lie above it; at least 0, below 1.
        expires_after_days: How long a page is found, in days; above 0, at most 36,500.
        confidence: The `confidence` of the rows, in [0, 1]; None for what the page's source is worth, its `evidence_score`.
        max_per_turn: Pages kept of one turn at most, the most relevant ones.
        orders_from: Pages with this `injection_score` or a higher one are not kept; above 0, at most `FLAGGED`.

    Raises:
        ConfigError: An argument can't be used.
    """

    def __init__(
        self,
        store: Knowledge,
        *,
        min_probability: float = 0.9,
        expires_after_days: float = 30,
        confidence: float | None = None,
        max_per_turn: int = 3,
        orders_from: float = FLAGGED,
    ) -> None:
        if not isinstance(store, Knowledge):
            msg = f"`store` must be the knowledge of `open_knowledge(...)`, got {type(store).__name__}: only there do rows have an origin and an end"
            raise ConfigError(msg)
        _check("min_probability", min_probability, "a number from 0 on, below 1", is_right=lambda n: 0 <= n < 1)
        _check("expires_after_days", expires_after_days, f"a number above 0, at most {MAX_DAYS}", is_right=lambda n: 0 < n <= MAX_DAYS)
        _check("orders_from", orders_from, f"a number above 0, at most {FLAGGED}", is_right=lambda n: 0 < n <= FLAGGED)
        if confidence is not None:
            _check("confidence", confidence, "a number from 0 to 1, or None", is_right=lambda n: 0 <= n <= 1)
        if not isinstance(max_per_turn, int) or isinstance(max_per_turn, bool) or max_per_turn < 1:
            msg = f"`max_per_turn` must be a whole number from 1 on, got {max_per_turn!r}"
            raise ConfigError(msg)
        self._store = store
        self._min_probability = min_probability
        self._life_ms = math.ceil(expires_after_days * DAY_MS)
        self._confidence = confidence
        self._most = max_per_turn
        self._orders_from = orders_from

    def keep(self, receipt: Mapping[str, Any], *, agent_id: str) -> list[str]:
        """Writes the turn's web pages that may be kept, and gives their ids; empty if there is none, or all are there already.

        Call it right after the turn: a page counts as fetched now. Calling it again for the same turn changes nothing.

        Args:
            receipt: The turn's, with its `answer`: `result["crag"]`.
            agent_id: The tenant whose turn it was.

        Raises:
            TenantError: `agent_id` is no tenant id, or a row of another tenant came back.
            ConfigError: The receipt is none.
            IngestError: Embedding, reading or writing failed; the same call again is safe.
        """
        rows = self._rows(receipt, agent_id)
        with _told():
            fresh = self._fresh(rows, agent_id)
            return self._store._add(fresh, BATCH, None)

    async def akeep(self, receipt: Mapping[str, Any], *, agent_id: str) -> list[str]:
        """The async form of `keep`."""
        rows = self._rows(receipt, agent_id)
        with _told():
            fresh = await run_in_executor(None, self._fresh, rows, agent_id) if rows else []
            return await self._store._aadd(fresh, BATCH, None) if fresh else []

    def _rows(self, receipt: Mapping[str, Any], agent_id: str) -> list[Row]:
        """A row for each page that may be kept, without vectors."""
        check_agent_id(agent_id)
        if not isinstance(receipt, Mapping) or receipt.get("schema") != SCHEMA_VERSION:
            got = f"one of schema {receipt.get('schema')!r}" if isinstance(receipt, Mapping) else type(receipt).__name__
            msg = f"`receipt` must be a turn's receipt of schema {SCHEMA_VERSION}, such as `result['crag']`, got {got}"
            raise ConfigError(msg)
        found = worth_keeping(receipt, min_probability=self._min_probability, orders_from=self._orders_from, most=self._most)
        turn = digest(str(receipt["message_id"]), receipt["query"])[:16]
        now_ms = time.time_ns() // 1_000_000
        return [row for excerpt in found for row in self._row(excerpt, agent_id, turn, now_ms)]

    def _row(self, excerpt: Excerpt, agent_id: str, turn: str, now_ms: int) -> Sequence[Row]:
        """The row of a page; none if nobody said what it is worth, or if it does not fit."""
        confidence = excerpt.trust if self._confidence is None else self._confidence
        if confidence is None:
            return ()
        metadata = {
            "origin": ORIGIN,
            "url": excerpt.url,
            "title": excerpt.title or None,
            "source": excerpt.host,
            CONFIDENCE: confidence,
            CREATED_AT: now_ms,
            "fetched_at": now_ms,
            "expires_at": now_ms + self._life_ms,
            WRITTEN_BACK: {"turn": turn, "probability": round(excerpt.probability, 4)},
        }
        try:
            return prepare_rows([excerpt.text], [metadata], [_row_id(agent_id, excerpt.url)], agent_id=agent_id, now_ms=now_ms)
        except ConfigError as error:
            logger.warning("crag: a web page was not written back: %s", str(error).partition(": ")[2])
            return ()

    def _fresh(self, rows: Sequence[Row], agent_id: str) -> list[Row]:
        """The rows that say something new: neither the tenant's own id or text, nor what this turn or a later fetch has written already."""
        if not rows:
            return []
        there = f"{one_of(ID, [row[ID] for row in rows])} or {one_of(CONTENT_HASH, [row[CONTENT_HASH] for row in rows])}"
        found = [row for page in pages(self._store, Scope(agent_id), (CONTENT_HASH, *MARKS), rows=there) for row in page]
        own = [row for row in found if not _is_ours(row)]
        own_ids, own_texts = {row[ID] for row in own}, {row[CONTENT_HASH] for row in own}
        kept = {row[ID]: row for row in found if _is_ours(row)}
        return [
            row for row in rows if row[ID] not in own_ids and row[CONTENT_HASH] not in own_texts and not _is_told(row, kept.get(row[ID]))
        ]


def written_back(store: Knowledge, agent_id: str) -> list[WrittenBack]:
    """The web pages in a tenant's knowledge, expired ones too, the newest first.

    Raises:
        TenantError: `agent_id` is no tenant id, or a row of another tenant came back.
        RetrievalError: Milvus failed.
    """
    found = [
        WrittenBack(
            id=row[ID],
            url=row["url"],
            title=row["title"] or "",
            source=row["source"] or "",
            text=row[TEXT],
            confidence=row[CONFIDENCE],
            fetched_at=row["fetched_at"],
            expires_at=row["expires_at"],
        )
        for row in _ours(store, agent_id, ("title", "source", TEXT, CONFIDENCE))
    ]
    return sorted(found, key=lambda page: (-page.fetched_at, page.url))


def forget(store: Knowledge, agent_id: str, *, url: str | None = None, before_ms: int | None = None) -> int:
    """Deletes web pages from a tenant's knowledge, and says how many; nothing that the tenant put in.

    Args:
        store: The knowledge.
        agent_id: The tenant.
        url: Only this page, in whatever spelling of its address.
        before_ms: Only pages fetched before this time, in milliseconds since the epoch.

    Raises:
        TenantError: `agent_id` is no tenant id, or a row of another tenant came back.
        ConfigError: `url` is no web address, or `before_ms` no whole number.
        IngestError: Milvus failed; the same call again goes on.
        RetrievalError: What is there could not be read.
    """
    page = canonical_url(url) if isinstance(url, str) else ""
    if url is not None and not page:
        msg = f"`url` must be a web address such as https://example.org/page, got {'another text' if isinstance(url, str) else type(url).__name__}"
        raise ConfigError(msg)
    if before_ms is not None and (not isinstance(before_ms, int) or isinstance(before_ms, bool)):
        msg = f"`before_ms` must be whole milliseconds since the epoch, got {type(before_ms).__name__}"
        raise ConfigError(msg)
    ids = [
        row[ID]
        for row in _ours(store, agent_id)
        if (url is None or canonical_url(row["url"]) == page) and (before_ms is None or row["fetched_at"] < before_ms)
    ]
    return remove(store, Scope(agent_id), ids)


def _ours(store: Knowledge, agent_id: str, fields: Sequence[str] = ()) -> list[Row]:
    """The tenant's rows that were written back."""
    scope, wanted = Scope(check_agent_id(agent_id)), one_of("origin", [ORIGIN])
    return [row for page in pages(store, scope, (*MARKS, *fields), rows=wanted, size=TEXTS_AT_ONCE) for row in page if _is_ours(row)]


def _is_ours(row: Row) -> bool:
    """Whether a row was written back: a tenant may say `web` of texts of its own."""
    told = (row[METADATA] or {}).get(WRITTEN_BACK)
    return row["origin"] == ORIGIN and isinstance(told, Mapping) and all(row[field] is not None for field in MARKS)


def _is_told(row: Row, there: Row | None) -> bool:
    """Whether the stored row of the page is of the same turn and text, or was fetched later."""
    if there is None:
        return False
    turns = [one[METADATA][WRITTEN_BACK].get("turn") for one in (there, row)]
    is_same = there[CONTENT_HASH] == row[CONTENT_HASH] and turns[0] == turns[1]
    return is_same or bool(there["fetched_at"] > row["fetched_at"])


def _row_id(agent_id: str, url: str) -> str:
    """One for each tenant and page, and like no other row's."""
    return f"written-back-{digest(agent_id, canonical_url(url))}"


def _check(name: str, value: object, wanted: str, *, is_right: Callable[[float], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_right(value):
        msg = f"`{name}` must be {wanted}, got {value!r}"
        raise ConfigError(msg)


@contextmanager
def _told() -> Iterator[None]:
    """One error for whoever keeps: what is there can't be read, or what is new can't be written."""
    try:
        yield
    except RetrievalError as error:
        raise IngestError(str(error), reason=error.reason) from None
