"""Web search by Tavily, over langchain-tavily."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

from langchain_tavily import TavilySearch
from langchain_tavily._utilities import TAVILY_API_URL, TavilySearchAPIWrapper
from pydantic import SecretStr, ValidationError

from crag_middleware.adapters.web_http import REASONS, Service, digest
from crag_middleware.adapters.web_pages import Hosts, Page, check_names, hosts_of, passages, score_of, text_of
from crag_middleware.errors import ConfigError, WebSearchError
from crag_middleware.stages.question import unicode
from crag_middleware.stages.webquery import cut
from crag_middleware.types import Passage
from crag_middleware.web_policy import WebPolicy

MAX_QUERY_CHARS = 400
"""Longer queries are refused by Tavily."""

_DATES = ("start_date", "end_date")
_DOMAINS = ("include_domains", "exclude_domains")
_OPTIONS = frozenset({"search_depth", "topic", "time_range", "country", "include_raw_content", *_DOMAINS, *_DATES})
_REASONS = {**REASONS, 432: "quota", 433: "quota"}
_TAVILY = Service(name="Tavily", key_variable="TAVILY_API_KEY", url_variable="TAVILY_API_BASE_URL", url=TAVILY_API_URL, reasons=_REASONS)


class TavilyWebSearch:
    """A `WebSearch` port, sync and async. It holds no connection, so one instance serves any number of threads and event loops.

    Requests end within their time and are never repeated or redirected. Errors name no query and no key.
    """

    def __init__(
        self,
        max_results: int = 3,
        *,
        api_key: str | SecretStr | None = None,
        api_base_url: str | None = None,
        search_depth: Literal["basic", "advanced", "fast", "ultra-fast"] = "basic",
        topic: Literal["general", "news", "finance"] = "general",
        time_range: Literal["day", "week", "month", "year"] | None = None,
        country: str | None = None,
        include_domains: Sequence[str] = (),
        exclude_domains: Sequence[str] = (),
        include_raw_content: bool = False,
    ) -> None:
        """Checks the arguments; nothing is sent.

        Args:
            max_results: At most so many results a search, 1 to 20; a smaller `limit` of a search counts instead.
            api_key: By default the environment variable `TAVILY_API_KEY`.
            api_base_url: Another server that speaks Tavily's protocol; by default the environment variable `TAVILY_API_BASE_URL`, else Tavily's own.
            search_depth: How thorough the search is; more than `basic` may cost more.
            topic: The kind of pages.
            time_range: How old pages may be.
            country: A country whose pages come first, by its English name; for the topic `general` only.
            include_domains: Results come from these hosts and their subdomains only. Checked again on the results.
            exclude_domains: Results never come from these hosts and their subdomains. Checked again on the results.
            include_raw_content: Take the whole pages' text where Tavily has it, instead of extracts.

        Raises:
            ConfigError: An argument can't work, or there is no key.
        """
        if isinstance(max_results, bool) or not isinstance(max_results, int) or not 1 <= max_results <= 20:
            msg = f"`max_results` must be a number from 1 to 20, got {max_results!r}"
            raise ConfigError(msg)
        self._max_results = max_results
        self._key = _TAVILY.key(api_key)
        self._base_url = _TAVILY.base_url(api_base_url)
        self._options: Mapping[str, Any] = {
            "search_depth": search_depth,
            "topic": topic,
            "time_range": time_range,
            "country": country,
            "include_domains": include_domains,
            "exclude_domains": exclude_domains,
            "include_raw_content": include_raw_content,
        }
        self.check_options({})

    def __repr__(self) -> str:
        return f"TavilyWebSearch(max_results={self._max_results})"

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
            options: Replace the instance's own for this search: `search_depth`, `topic`, `time_range`, `country`, `exclude_domains`,
                `include_raw_content`; besides `start_date` and `end_date` (YYYY-MM-DD). `include_domains` can only narrow the instance's own.
            policy: Its `freshness` counts instead of `time_range` if it says one; its domains and size limits hold besides all others.

        Raises:
            WebSearchError: With the reason `timeout`, `unauthorized`, `quota`, `rate_limited`, `unavailable`, `invalid_reply`, `domains_refused`
                (by Tavily), `no_allowed_domain` (nothing was sent) or `failed`.
            ConfigError: An option is unknown or can't work.
        """
        search = self._prepare(limit, timeout_s, options or {}, policy)
        return search.read(search.tool.invoke(search.asked(query), {"tags": ["nostream"]}))

    async def asearch(
        self, query: str, *, limit: int, timeout_s: float, options: Mapping[str, Any] | None = None, policy: WebPolicy | None = None
    ) -> tuple[Passage, ...]:
        """The async form of `search`."""
        search = self._prepare(limit, timeout_s, options or {}, policy)
        return search.read(await search.tool.ainvoke(search.asked(query), {"tags": ["nostream"]}))

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Passes if a search can be made with these options; sends nothing.

        Raises:
            ConfigError: An option is unknown or can't work.
        """
        try:
            self._prepare(1, 1.0, options, None)
        except WebSearchError as error:
            raise ConfigError(str(error), reason=error.reason) from None

    def _prepare(self, limit: int, timeout_s: float, options: Mapping[str, Any], policy: WebPolicy | None) -> "_Search":
        """A tool made for one search, since most parameters are refused when it is called."""
        check_names(options, _OPTIONS)
        chosen = {**self._options, **options}
        hosts = hosts_of(self._options, options, policy)
        chosen |= {"include_domains": list(hosts.include), "exclude_domains": list(hosts.exclude)}
        if policy is not None and policy.freshness != "any":
            chosen["time_range"] = policy.freshness
        dates = {name: _date(chosen.pop(name), name) for name in _DATES if name in chosen}
        # The key goes in as plain text: the base class would turn a `SecretStr` into asterisks.
        key = self._key.get_secret_value()
        wrapper = _Wrapper.model_validate({"tavily_api_key": key, "api_base_url": self._base_url, "timeout_s": timeout_s, "hosts": hosts})
        try:
            return _Search(TavilySearch(api_wrapper=wrapper, max_results=min(limit, self._max_results), **chosen), dates, hosts, policy)
        except ValidationError as error:
            problem = error.errors(include_input=False)[0]
            msg = f"web search option `{problem['loc'][0]}` is not possible: {problem['msg']}"
            raise ConfigError(msg, reason="invalid_option") from None


@dataclass(frozen=True, slots=True)
class _Search:
    """One search: the tool, what it takes when called, and what its results must keep to."""

    tool: TavilySearch
    dates: Mapping[str, str]
    hosts: Hosts
    policy: WebPolicy | None

    def asked(self, query: str) -> dict[str, Any]:
        return {"query": cut(unicode(query), MAX_QUERY_CHARS), **self.dates}

    def read(self, reply: object) -> tuple[Passage, ...]:
        """Passages from what the tool returned: a dict with results, a dict with an error, or a sentence when there are no results."""
        match reply:
            case {"error": WebSearchError() as error}:
                raise error
            case {"error": Exception() as error}:
                msg = f"the Tavily tool failed with {type(error).__name__}"
                raise WebSearchError(msg) from None
            case {"results": list(items)}:
                pages = (self._page(item) for item in items if isinstance(item, dict))
                return passages(pages, self.tool.max_results or 1, self.hosts, self.policy)
            case str():
                return ()
            case _:
                raise _TAVILY.invalid(f"came out of its tool as {type(reply).__name__}")

    def _page(self, item: Mapping[Any, Any]) -> Page:
        fields = ("raw_content", "content") if self.tool.include_raw_content else ("content",)
        return Page(text_of(item, "url"), text_of(item, "title"), text_of(item, *fields), score_of(item.get("score")))


class _Wrapper(TavilySearchAPIWrapper):
    """langchain-tavily's requests, with a deadline: its own have none. Every failure is a `WebSearchError`."""

    timeout_s: float
    hosts: Hosts

    def raw_results(self, *_: Any, **parameters: Any) -> dict[str, Any]:
        return _checked(_TAVILY.post(**self._request(parameters)))

    async def raw_results_async(self, *_: Any, **parameters: Any) -> dict[str, Any]:
        return _checked(await _TAVILY.apost(**self._request(parameters)))

    def _request(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "url": f"{self.api_base_url}/search",
            "body": {name: value for name, value in parameters.items() if value not in (None, [])},
            "key": self.tavily_api_key,
            "timeout_s": self.timeout_s,
            "hosts": self.hosts,
            "headers": {"X-Client-Source": "langchain-tavily"},
        }


def _checked(reply: object) -> dict[str, Any]:
    """The reply, if it is an object with a list of results."""
    if isinstance(reply, dict) and isinstance(reply.get("results"), list):
        return reply
    raise _TAVILY.invalid("is no JSON object with a list `results`")


def _date(given: object, name: str) -> str:
    try:
        return date.fromisoformat(str(given)).isoformat()
    except ValueError:
        msg = f"`{name}` must be a date such as 2026-01-31, got {given!r}"
        raise ConfigError(msg, reason="invalid_option") from None
