"""Web search by Bocha (博查), over its HTTP API."""

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from itertools import pairwise
from typing import Any

from pydantic import SecretStr

from crag_middleware.adapters.web_http import REASONS, Service, digest
from crag_middleware.adapters.web_pages import Hosts, Page, check_names, hosts_of, passages, text_of
from crag_middleware.errors import ConfigError, WebSearchError
from crag_middleware.stages.question import unicode
from crag_middleware.stages.webquery import cut
from crag_middleware.types import Passage
from crag_middleware.web_policy import WebPolicy

MAX_QUERY_CHARS = 400
"""Kept of a query; Bocha names no limit of its own."""

MAX_EXCLUDED = 20
"""Domains that are asked to be left out; what more there are is left out of the results. Bocha's documentation has named 20 and 100 as the limit."""

_SPANS = {"any": "noLimit", "day": "oneDay", "week": "oneWeek", "month": "oneMonth", "year": "oneYear"}
_DATES = re.compile(r"(\d{4}-\d\d-\d\d)(?:\.\.(\d{4}-\d\d-\d\d))?")
_OPTIONS = frozenset({"freshness", "summary", "include_domains", "exclude_domains"})
_BEIJING = timezone(timedelta(hours=8))
_BOCHA = Service(
    name="Bocha",
    key_variable="BOCHA_API_KEY",
    url_variable="BOCHA_API_BASE_URL",
    url="https://api.bochaai.com",
    # Its documentation has 403 for an account without credit only.
    reasons={**REASONS, 403: "quota"},
)


class BochaWebSearch:
    """A `WebSearch` port, sync and async. It holds no connection, so one instance serves any number of threads and event loops.

    Requests end within their time and are never repeated or redirected. Errors name no query and no key.
    """

    def __init__(
        self,
        max_results: int = 4,
        *,
        api_key: str | SecretStr | None = None,
        api_base_url: str | None = None,
        summary: bool = True,
        freshness: str = "noLimit",
        include_domains: Sequence[str] = (),
        exclude_domains: Sequence[str] = (),
    ) -> None:
        """Checks the arguments; nothing is sent.

        Args:
            max_results: At most so many results a search, 1 to 50; a smaller `limit` of a search counts instead.
            api_key: By default the environment variable `BOCHA_API_KEY`.
            api_base_url: Another server that speaks Bocha's protocol; by default the environment variable `BOCHA_API_BASE_URL`, else Bocha's own.
            summary: Take Bocha's summary of each page where it has one, which is longer than the snippet.
            freshness: How old pages may be: `noLimit`, `oneDay`, `oneWeek`, `oneMonth`, `oneYear`, a day (`2026-01-31`) or a span of days
                (`2026-01-01..2026-01-31`). Bocha advises against limits, since it minds the time that a query speaks of.
            include_domains: Results come from these hosts and their subdomains only. Checked again on the results.
            exclude_domains: Results never come from these hosts and their subdomains. Checked again on the results.

        Raises:
            ConfigError: An argument can't work, or there is no key.
        """
        if isinstance(max_results, bool) or not isinstance(max_results, int) or not 1 <= max_results <= 50:
            msg = f"`max_results` must be a number from 1 to 50, got {max_results!r}"
            raise ConfigError(msg)
        self._max_results = max_results
        self._key = _BOCHA.key(api_key)
        # The address is often given with the path of its endpoint.
        self._url = _BOCHA.base_url(api_base_url).removesuffix("/web-search").removesuffix("/v1") + "/v1/web-search"
        self._options: Mapping[str, Any] = {
            "summary": summary,
            "freshness": freshness,
            "include_domains": include_domains,
            "exclude_domains": exclude_domains,
        }
        self.check_options({})

    def __repr__(self) -> str:
        return f"BochaWebSearch(max_results={self._max_results})"

    @property
    def credential(self) -> str:
        """A digest of the key, by which a `WebSearchChain` tells whether it is still the same."""
        return digest(self._key)

    def search(
        self, query: str, *, limit: int, timeout_s: float, options: Mapping[str, Any] | None = None, policy: WebPolicy | None = None
    ) -> tuple[Passage, ...]:
        """Web passages for a query, best first.

        Args:
            query: Cut to 400 characters if it is longer.
            limit: At most so many passages.
            timeout_s: The request ends within this time.
            options: Replace the instance's own for this search: `summary`, `freshness`, `exclude_domains`. `include_domains` can only narrow the
                instance's own.
            policy: Its `freshness` counts instead of others if it says one; its domains and size limits hold besides all others.

        Raises:
            WebSearchError: With the reason `timeout`, `unauthorized`, `quota`, `rate_limited`, `unavailable`, `invalid_reply`, `domains_refused`
                (by Bocha), `no_allowed_domain` (nothing was sent) or `failed`.
            ConfigError: An option is unknown or can't work.
        """
        body, hosts = self._prepare(query, limit, options or {}, policy)
        return self._passages(_BOCHA.post(self._url, body, key=self._key, timeout_s=timeout_s, hosts=hosts), body, hosts, policy)

    async def asearch(
        self, query: str, *, limit: int, timeout_s: float, options: Mapping[str, Any] | None = None, policy: WebPolicy | None = None
    ) -> tuple[Passage, ...]:
        """The async form of `search`."""
        body, hosts = self._prepare(query, limit, options or {}, policy)
        return self._passages(await _BOCHA.apost(self._url, body, key=self._key, timeout_s=timeout_s, hosts=hosts), body, hosts, policy)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Passes if a search can be made with these options; sends nothing.

        Raises:
            ConfigError: An option is unknown or can't work.
        """
        try:
            self._prepare("", 1, options, None)
        except WebSearchError as error:
            raise ConfigError(str(error), reason=error.reason) from None

    def _prepare(self, query: str, limit: int, options: Mapping[str, Any], policy: WebPolicy | None) -> tuple[dict[str, Any], Hosts]:
        """What is sent, and where results may come from."""
        check_names(options, _OPTIONS)
        chosen = {**self._options, **options}
        if not isinstance(chosen["summary"], bool):
            msg = f"web search option `summary` must be True or False, got {chosen['summary']!r}"
            raise ConfigError(msg, reason="invalid_option")
        hosts = hosts_of(self._options, options, policy)
        freshness = _freshness(chosen["freshness"])
        if policy is not None and policy.freshness != "any":
            freshness = _SPANS[policy.freshness]
        body = {
            "query": cut(unicode(query), MAX_QUERY_CHARS),
            "count": min(limit, self._max_results),
            "summary": chosen["summary"],
            "freshness": freshness,
            "include": "|".join(hosts.include),
            "exclude": "|".join(hosts.exclude[:MAX_EXCLUDED]),
        }
        return {name: value for name, value in body.items() if value != ""}, hosts

    def _passages(self, reply: object, body: Mapping[str, Any], hosts: Hosts, policy: WebPolicy | None) -> tuple[Passage, ...]:
        pages = (_page(item) for item in _items(reply, hosts) if isinstance(item, dict))
        return passages(pages, body["count"], hosts, policy)


def _items(reply: object, hosts: Hosts) -> Sequence[object]:
    """The results in a reply: `{"code": 200, "data": {"webPages": {"value": [...]}}}`. A refusal is `{"code": "401", "message": ...}`."""
    if not isinstance(reply, dict):
        raise _BOCHA.invalid("is no JSON object")
    code = str(reply.get("code") or 200)
    if code != "200":
        said = text_of(reply, "message", "msg")
        raise (
            _BOCHA.refusal(int(code), said=said, hosts=hosts)
            if re.fullmatch(r"[0-9]{3}", code)
            else _BOCHA.invalid("has an unknown `code`")
        )
    match reply.get("data"):
        case {"webPages": {"value": list(items)}}:
            return items
        case {"webPages": None | {"value": None}}:
            return ()
        case {} as data if "webPages" not in data:
            return ()
    raise _BOCHA.invalid("has no list `data.webPages.value`")


def _page(item: Mapping[Any, Any]) -> Page:
    site = text_of(item, "siteName")
    return Page(
        url=text_of(item, "url"),
        title=text_of(item, "name"),
        text=text_of(item, "summary", "snippet"),
        created_at=_published(item),
        metadata={"site": unicode(site)} if site else {},
    )


def _published(item: Mapping[Any, Any]) -> int | None:
    """When the page was published, in milliseconds since the epoch; None if that is unknown or before it.

    Both fields say so in Beijing's time. The `Z` at the end of `dateLastCrawled` is an error of which Bocha's documentation warns.
    """
    told = text_of(item, "datePublished") or text_of(item, "dateLastCrawled").removesuffix("Z")
    try:
        moment = datetime.fromisoformat(told)
        published = int((moment if moment.tzinfo else moment.replace(tzinfo=_BEIJING)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None
    return published if published >= 0 else None


def _freshness(given: object) -> str:
    """A freshness that Bocha knows.

    Raises:
        ConfigError: It is none.
    """
    if isinstance(given, str):
        if given in _SPANS.values():
            return given
        if dates := _DATES.fullmatch(given):
            days = [day for day in dates.groups() if day]
            if all(map(_is_day, days)) and all(first <= last for first, last in pairwise(days)):
                return given
    msg = f"web search option `freshness` must be one of {', '.join(_SPANS.values())}, a day 2026-01-31 or a span of days, got {given!r}"
    raise ConfigError(msg, reason="invalid_option")


def _is_day(given: str) -> bool:
    try:
        date.fromisoformat(given)
    except ValueError:
        return False
    return True
