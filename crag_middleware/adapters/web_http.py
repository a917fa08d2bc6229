"""HTTP to a search service: one request within its time, and every failure as a `WebSearchError` with its reason.

Both forms are one: the sync form runs the async one on an event loop of its own, since only there a deadline ends whatever is under way. A client
lives for one request, so nothing is held across threads and event loops. Redirects are not followed, a .netrc is not read, and nothing is repeated.
"""

import asyncio
import contextvars
import hashlib
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from functools import cache
from ssl import SSLContext
from typing import Any
from urllib.parse import urlsplit

import httpx
from pydantic import SecretStr

from crag_middleware.adapters.web_pages import Hosts
from crag_middleware.errors import ConfigError, WebSearchError
from crag_middleware.stages.urls import host

MAX_REPLY_BYTES = 32_000_000
"""Larger replies, after unpacking, are given up."""

REASONS: Mapping[int, str] = {401: "unauthorized", 402: "quota", 403: "unauthorized", 408: "timeout", 429: "rate_limited"}
"""Reason codes by HTTP status; from 500 on it is `unavailable`, else `failed`."""

_SAYS_WHEN = (429, 503)
_COMPLAINS = (400, 422)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A service that takes a POST with a key and answers in JSON.

    Attributes:
        name: What errors call it.
        key_variable: The environment variable with its key.
        url_variable: The environment variable with another address.
        url: Its own address.
        reasons: Reason codes by status, `REASONS` and the service's own.
    """

    name: str
    key_variable: str
    url_variable: str
    url: str
    reasons: Mapping[int, str]

    def key(self, given: str | SecretStr | None) -> SecretStr:
        """The given key, else that of the environment.

        Raises:
            ConfigError: There is none, or it can't stand in a header.
        """
        key = given.get_secret_value() if isinstance(given, SecretStr) else given
        key = (os.environ.get(self.key_variable, "") if key is None else key).strip()
        if not key:
            msg = f"no key for {self.name}: set the environment variable {self.key_variable} or pass `api_key`"
            raise ConfigError(msg)
        if not (key.isascii() and key.isprintable() and " " not in key):
            msg = (
                f"the key for {self.name} ({self.key_variable} or `api_key`) has a space, a control character or a character outside ASCII"
            )
            raise ConfigError(msg)
        return SecretStr(key)

    def base_url(self, given: str | None) -> str:
        """The given address, else that of the environment, else the service's own; without a slash at its end.

        Raises:
            ConfigError: It is no web address, or has a user or a query.
        """
        url = (given or os.environ.get(self.url_variable) or self.url).strip().rstrip("/")
        if not host(url) or any((urlsplit(url).username, urlsplit(url).query, urlsplit(url).fragment)):
            msg = (
                f"{self.name}'s address (`api_base_url` or {self.url_variable}) must look like https://host or https://host:port/path, "
                "without user and query"
            )
            raise ConfigError(msg)
        return url

    def post(self, url: str, body: Mapping[str, Any], **keywords: Any) -> Any:
        """The sync form of `apost`. A request that has not ended within its time is left to a thread, which closes the connection."""
        timeout_s: float = keywords["timeout_s"]
        try:
            return _alone(lambda: self.apost(url, body, **keywords)).result(timeout_s)
        except TimeoutError:
            raise self._late(timeout_s) from None

    async def apost(
        self,
        url: str,
        body: Mapping[str, Any],
        *,
        key: SecretStr,
        timeout_s: float,
        hosts: Hosts,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """The reply to a request, decoded.

        Args:
            url: Where it goes.
            body: What it says, as JSON.
            key: Goes along as bearer token.
            timeout_s: Seconds for all of it, from finding the host to the last byte.
            hosts: What the body asks for, in case the service refuses it.
            headers: Further headers.

        Raises:
            WebSearchError: There was none.
        """
        given = {
            "Authorization": f"Bearer {key.get_secret_value()}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
        }
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._client() as client,
                client.stream("POST", url, content=json.dumps(body), headers={**given, **(headers or {})}) as response,
            ):
                if response.status_code != 200:
                    said = bytes(await self._read(response)).decode(errors="replace") if response.status_code in _COMPLAINS else ""
                    raise self.refusal(response.status_code, wait=response.headers.get("Retry-After"), said=said, hosts=hosts)
                reply = await self._read(response)
        except TimeoutError:
            raise self._late(timeout_s) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            msg = f"no answer from {self.name}: {type(error).__name__}"
            raise WebSearchError(msg, reason="unavailable") from None
        return self._decode(reply)

    def refusal(self, status: int, *, wait: str | None = None, said: str = "", hosts: Hosts | None = None) -> WebSearchError:
        """The error for an answer with another status than 200.

        Args:
            status: An HTTP status, or the service's own code in the same sense.
            wait: The header `Retry-After`.
            said: What the service says is wrong; never shown, since it may quote the query.
            hosts: What was asked for.
        """
        if hosts and (setting := _refused(said, hosts)):
            msg = f"{self.name} refused the domains of {setting} (status {status}); correct them; they were not left out instead"
            return WebSearchError(msg, reason="domains_refused")
        reason = self.reasons.get(status) or ("unavailable" if status >= 500 else "failed")
        hint = {"unauthorized": f"; check {self.key_variable}", "quota": "; the key's plan is used up"}.get(reason, "")
        msg = f"{self.name} answered with status {status}{hint}"
        return WebSearchError(msg, reason=reason, retry_after_s=_seconds(wait, time.time()) if status in _SAYS_WHEN else None)

    def invalid(self, what: str) -> WebSearchError:
        """The error for a reply that is not what it should be."""
        return WebSearchError(f"{self.name}'s reply {what}", reason="invalid_reply")

    def _client(self) -> httpx.AsyncClient:
        try:
            return httpx.AsyncClient(verify=_certificates(), timeout=None)
        except (ValueError, ImportError, OSError, httpx.InvalidURL) as error:
            # Not `from` it: it may quote the proxy's password.
            msg = f"the proxy or the certificates that the environment names can't be used for {self.name}: {type(error).__name__}"
            raise WebSearchError(msg, reason="unavailable", sent=False) from None

    async def _read(self, response: httpx.Response) -> bytearray:
        """The body. It is unpacked here, a bounded piece at a time: httpx unpacks all of what has come, and packings within packings too."""
        packing = response.headers.get("Content-Encoding", "identity").strip().lower()
        if packing not in ("", "identity", "gzip", "x-gzip"):
            raise self.invalid("is packed in a way that was not asked for")
        unpacker = zlib.decompressobj(wbits=31) if "gzip" in packing else None
        body = bytearray()
        async for chunk in response.aiter_raw():
            try:
                body += unpacker.decompress(chunk, MAX_REPLY_BYTES + 1 - len(body)) if unpacker else chunk
            except zlib.error:
                raise self.invalid("can't be unpacked") from None
            if len(body) > MAX_REPLY_BYTES:
                raise self.invalid(f"is larger than {MAX_REPLY_BYTES} bytes")
        return body

    def _decode(self, body: bytearray) -> Any:
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            # The decoder's error carries the whole reply with it.
            raise self.invalid("is no JSON") from None

    def _late(self, timeout_s: float) -> WebSearchError:
        return WebSearchError(f"{self.name} did not answer within {timeout_s:g} s", reason="timeout")


@cache
def _certificates() -> SSLContext:
    """Read once: it takes longer than many a request."""
    return httpx.create_ssl_context()


def digest(key: SecretStr) -> str:
    """What tells one key from another and nothing else about it."""
    return hashlib.sha256(key.get_secret_value().encode()).hexdigest()[:16]


def _alone(work: Callable[[], Any]) -> "Future[Any]":
    """Async work under way on an event loop and in a thread of its own, with the caller's context variables."""
    future: Future[Any] = Future()
    future.set_running_or_notify_cancel()

    def body() -> None:
        try:
            future.set_result(asyncio.run(work()))
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits for the future
            future.set_exception(error)

    threading.Thread(target=contextvars.copy_context().run, args=(body,), name="crag-web", daemon=True).start()
    return future


def _refused(said: str, hosts: Hosts) -> str:
    """The settings whose domains the service complains about; empty if it is about something else."""
    if hosts.exclude and re.search("exclude", said, re.IGNORECASE):
        return "`deny_domains` or `exclude_domains`"
    if hosts.include and re.search("include|domain|域名", said, re.IGNORECASE):
        return "`allow_domains` or `include_domains`"
    return ""


def _seconds(wait: str | None, now: float) -> float | None:
    """A `Retry-After` in seconds from now, at least 0; None if it says nothing.

    Source: RFC 9110, section 10.2.3: seconds, or a date.
    """
    if wait is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", wait.strip()):
        return float(wait)
    try:
        moment = parsedate_to_datetime(wait)
    except (TypeError, ValueError, OverflowError):
        return None
    return max(0.0, (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now)
