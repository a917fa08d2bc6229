"""Web search by Tavily, over langchain-tavily."""

import hashlib
import json
import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import requests
import urllib3
from langchain_tavily import TavilySearch
from langchain_tavily._utilities import TAVILY_API_URL, TavilySearchAPIWrapper
from pydantic import SecretStr, ValidationError

from crag_middleware.errors import ConfigError, WebSearchError
from crag_middleware.stages.urls import canonical_url, domain, host, within
from crag_middleware.stages.webquery import cut
from crag_middleware.types import Passage

MAX_QUERY_CHARS = 400
"""Longer queries are refused by Tavily."""

MAX_RESULT_CHARS = 8_000
"""Text kept of one result."""

MAX_TOTAL_CHARS = 24_000
"""Text kept of one search, shared evenly by the results asked for."""

MAX_REPLY_BYTES = 32_000_000
"""Larger replies are given up."""

_DATES = ("start_date", "end_date")
_DOMAINS = ("include_domains", "exclude_domains")
_OPTIONS = frozenset({"search_depth", "topic", "time_range", "country", "include_raw_content", *_DOMAINS, *_DATES})
_REASONS = {401: "unauthorized", 403: "unauthorized", 402: "quota", 432: "quota", 433: "quota", 429: "rate_limited", 408: "timeout"}


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
        self._key = _key(api_key)
        self._base_url = _base_url(api_base_url)
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

    def search(self, query: str, *, limit: int, timeout_s: float, options: Mapping[str, Any] | None = None) -> tuple[Passage, ...]:
        """Web passages for a query, best first.

        Args:
            query: Cut to 400 characters if it is longer.
            limit: At most so many passages.
            timeout_s: The request ends within this time. A server that sends part of its reply and then falls silent can hold up the sync form
                for as long again.
            options: Replace the instance's own for this search: `search_depth`, `topic`, `time_range`, `country`, `include_domains`, `exclude_domains`,
                `include_raw_content`; besides `start_date` and `end_date` (YYYY-MM-DD).

        Raises:
            WebSearchError: With the reason `timeout`, `unauthorized`, `quota`, `rate_limited`, `unavailable`, `invalid_reply` or `failed`.
            ConfigError: An option is unknown or can't work.
        """
        tool, arguments = self._prepare(limit, timeout_s, options or {})
        return _read(tool, tool.invoke({"query": cut(query, MAX_QUERY_CHARS), **arguments}, {"tags": ["nostream"]}))

    async def asearch(self, query: str, *, limit: int, timeout_s: float, options: Mapping[str, Any] | None = None) -> tuple[Passage, ...]:
        """The async form of `search`."""
        tool, arguments = self._prepare(limit, timeout_s, options or {})
        return _read(tool, await tool.ainvoke({"query": cut(query, MAX_QUERY_CHARS), **arguments}, {"tags": ["nostream"]}))

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Passes if a search can be made with these options; sends nothing.

        Raises:
            ConfigError: An option is unknown or can't work.
        """
        self._prepare(1, 1.0, options)

    def _prepare(self, limit: int, timeout_s: float, options: Mapping[str, Any]) -> tuple[TavilySearch, dict[str, Any]]:
        """A tool made for one search, since most parameters are refused when it is called, and what it takes when called."""
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            msg = f"unknown web search option {', '.join(unknown)}; known are: {', '.join(sorted(_OPTIONS))}"
            raise ConfigError(msg, reason="invalid_option")
        chosen = {**self._options, **options}
        chosen |= {name: [_domain(d, name) for d in _listed(chosen[name], name)] for name in _DOMAINS}
        arguments = {name: _date(chosen.pop(name), name) for name in _DATES if name in chosen}
        # The key goes in as plain text: the base class would turn a `SecretStr` into asterisks.
        key = self._key.get_secret_value()
        wrapper = _Wrapper.model_validate({"tavily_api_key": key, "api_base_url": self._base_url, "timeout_s": timeout_s})
        try:
            return TavilySearch(api_wrapper=wrapper, max_results=min(limit, self._max_results), **chosen), arguments
        except ValidationError as error:
            problem = error.errors(include_input=False)[0]
            msg = f"web search option `{problem['loc'][0]}` is not possible: {problem['msg']}"
            raise ConfigError(msg, reason="invalid_option") from None


class _Wrapper(TavilySearchAPIWrapper):
    """langchain-tavily's requests, with a deadline: its own have none. Every failure is a `WebSearchError`."""

    timeout_s: float

    def raw_results(self, *_: Any, **parameters: Any) -> dict[str, Any]:
        deadline = time.monotonic() + self.timeout_s
        request = self._request(parameters)
        try:
            # An `auth` that does nothing keeps a .netrc from replacing the key.
            with requests.post(**request, auth=lambda prepared: prepared, timeout=self.timeout_s, stream=True) as response:
                _check_status(response.status_code)
                # `read1` returns what has come; `read`, of urllib3 before 2, waits until the chunk is full.
                read = getattr(response.raw, "read1", response.raw.read)
                body = bytearray()
                while chunk := read(65_536, decode_content=True):
                    if time.monotonic() > deadline:
                        raise _late(self.timeout_s)
                    body += chunk
                    _check_size(body)
        except (requests.Timeout, urllib3.exceptions.TimeoutError) as error:
            raise _late(self.timeout_s) from error
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            raise _unreachable(error) from error
        return _decode(body)

    async def raw_results_async(self, *_: Any, **parameters: Any) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=self.timeout_s, ceil_threshold=math.inf)
        try:
            # A session serves one event loop only. `trust_env` would bring a .netrc along with the proxies.
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.post(**self._request(parameters), proxy=_proxy(self.api_base_url or "")) as response,
            ):
                _check_status(response.status)
                body = bytearray()
                async for chunk in response.content.iter_any():
                    body += chunk
                    _check_size(body)
        except TimeoutError as error:
            raise _late(self.timeout_s) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _unreachable(error) from error
        return _decode(body)

    def _request(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "url": f"{self.api_base_url}/search",
            "json": {name: value for name, value in parameters.items() if value not in (None, [])},
            "headers": {"Authorization": f"Bearer {self.tavily_api_key.get_secret_value()}", "X-Client-Source": "langchain-tavily"},
            "allow_redirects": False,
        }


def _key(given: str | SecretStr | None) -> SecretStr:
    key = given.get_secret_value() if isinstance(given, SecretStr) else given
    key = (os.environ.get("TAVILY_API_KEY", "") if key is None else key).strip()
    if not key:
        msg = "no key for Tavily: set the environment variable TAVILY_API_KEY or pass `api_key`"
        raise ConfigError(msg)
    if not (key.isascii() and key.isprintable() and " " not in key):
        msg = "the key for Tavily (TAVILY_API_KEY or `api_key`) has a space, a control character or a character outside ASCII"
        raise ConfigError(msg)
    return SecretStr(key)


def _base_url(given: str | None) -> str:
    url = (given or os.environ.get("TAVILY_API_BASE_URL") or TAVILY_API_URL).strip().rstrip("/")
    if not host(url) or any((urlsplit(url).username, urlsplit(url).query, urlsplit(url).fragment)):
        msg = "Tavily's address (`api_base_url` or TAVILY_API_BASE_URL) must look like https://host or https://host:port/path, without user and query"
        raise ConfigError(msg)
    return url


def _proxy(url: str) -> str | None:
    """The proxy that the environment names for the address, as `requests` finds it."""
    proxies = requests.utils.get_environ_proxies(url)
    return proxies.get(urlsplit(url).scheme) or proxies.get("all")


def _listed(domains: object, name: str) -> Iterable[object]:
    if domains is None:
        return ()
    if isinstance(domains, str) or not isinstance(domains, Iterable):
        msg = f"`{name}` must be a list of host names, got {type(domains).__name__}"
        raise ConfigError(msg, reason="invalid_option")
    return domains


def _domain(given: object, name: str) -> str:
    found = domain(given) if isinstance(given, str) else ""
    if not found:
        msg = f"`{name}` must hold host names such as example.org, got {given!r}"
        raise ConfigError(msg, reason="invalid_option")
    return found


def _date(given: object, name: str) -> str:
    try:
        return date.fromisoformat(str(given)).isoformat()
    except ValueError:
        msg = f"`{name}` must be a date such as 2026-01-31, got {given!r}"
        raise ConfigError(msg, reason="invalid_option") from None


def _check_status(status: int) -> None:
    if status == 200:
        return
    reason = _REASONS.get(status) or ("unavailable" if status >= 500 else "failed")
    hint = {"unauthorized": "; check TAVILY_API_KEY", "quota": "; the key's plan is used up"}.get(reason, "")
    msg = f"Tavily answered with HTTP status {status}{hint}"
    raise WebSearchError(msg, reason=reason)


def _check_size(body: bytearray) -> None:
    if len(body) > MAX_REPLY_BYTES:
        msg = f"Tavily's reply is larger than {MAX_REPLY_BYTES} bytes"
        raise WebSearchError(msg, reason="invalid_reply")


def _late(timeout_s: float) -> WebSearchError:
    return WebSearchError(f"Tavily did not answer within {timeout_s:g} s", reason="timeout")


def _unreachable(error: Exception) -> WebSearchError:
    return WebSearchError(f"no answer from Tavily: {type(error).__name__}", reason="unavailable")


def _decode(body: bytearray) -> dict[str, Any]:
    """The reply, if it is an object with a list of results."""
    try:
        reply = json.loads(body)
    except (ValueError, RecursionError):
        reply = None
    if isinstance(reply, dict) and isinstance(reply.get("results"), list):
        return reply
    msg = "Tavily's reply is no JSON object with a list `results`"
    # The decoder's error carries the whole reply with it.
    raise WebSearchError(msg, reason="invalid_reply") from None


def _read(tool: TavilySearch, reply: object) -> tuple[Passage, ...]:
    """Passages from what the tool returned: a dict with results, a dict with an error, or a sentence when there are no results."""
    match reply:
        case {"error": WebSearchError() as error}:
            raise error
        case {"error": Exception() as error}:
            msg = f"the Tavily tool failed with {type(error).__name__}"
            raise WebSearchError(msg) from error
        case {"results": list(items)}:
            return _passages(tool, items)
        case str():
            return ()
        case _:
            msg = f"the Tavily tool returned {type(reply).__name__}"
            raise WebSearchError(msg, reason="invalid_reply")


def _passages(tool: TavilySearch, items: Sequence[object]) -> tuple[Passage, ...]:
    """The results from allowed hosts that have a text, in their order and within the size limits."""
    passages: list[Passage] = []
    most = tool.max_results or 1
    for item in items:
        if not isinstance(item, dict) or len(passages) == most:
            continue
        url, title = _text(item, "url"), _text(item, "title")
        name = host(url)
        if (tool.include_domains and not within(name, tool.include_domains)) or within(name, tool.exclude_domains or ()):
            continue
        whole = _text(item, "raw_content") if tool.include_raw_content else ""
        text = cut(whole or _text(item, "content") or title, min(MAX_RESULT_CHARS, MAX_TOTAL_CHARS // most))
        if not text:
            continue
        digest = hashlib.sha256((canonical_url(url) or text).encode(errors="replace")).hexdigest()
        passages.append(
            Passage(
                id=f"web-{digest[:16]}",
                text=text,
                source=name,
                title=title,
                url=url if name else "",
                origin="web",
                score=_score(item.get("score")),
                rank=len(passages) + 1,
                metadata={"domain": name},
            )
        )
    return tuple(passages)


def _text(item: Mapping[object, object], field: str) -> str:
    value = item.get(field)
    return value.strip() if isinstance(value, str) else ""


def _score(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)
