"""From a search's results to passages: from allowed hosts only, each with a text, within the size limits."""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from crag_middleware.errors import ConfigError, WebSearchError
from crag_middleware.findings import Dropped, WebFound
from crag_middleware.stages.question import unicode
from crag_middleware.stages.urls import canonical_url, domain, host, within
from crag_middleware.stages.webquery import cut
from crag_middleware.types import Passage
from crag_middleware.web_policy import WebPolicy

MAX_RESULT_CHARS = 8_000
"""Text kept of one result, where no policy says otherwise."""

MAX_TOTAL_CHARS = 24_000
"""Text kept of one search, shared evenly by the results asked for, where no policy says otherwise."""

_HOST = re.compile(r"[a-z0-9._-]+")
"""No sign by which a service could take one domain for several."""

MAX_TITLE_CHARS = 300
MAX_URL_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Page:
    """One result.

    Attributes:
        url: Its address; may be anything.
        title: Its title.
        text: Its text; if blank, the title stands in for it.
        score: The service's own score.
        created_at: When it was published, in milliseconds since the epoch.
        metadata: Anything else.
    """

    url: str
    title: str
    text: str
    score: float | None = None
    created_at: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hosts:
    """Where results may come from: these domains and all below them, as `stages.urls.domain` spells them.

    Attributes:
        include: Only these; empty for any.
        exclude: Never these.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return (not self.include or within(name, self.include)) and not within(name, self.exclude)


def hosts_of(own: Mapping[str, Any], options: Mapping[str, Any], policy: WebPolicy | None) -> Hosts:
    """The hosts that all settings allow together.

    Args:
        own: A port's own `include_domains` and `exclude_domains`, where it has such.
        options: Those of one search. They may hold what the user asked for, so `include_domains` can only narrow; `exclude_domains` replaces.
        policy: Its `allow_domains` and `deny_domains` hold besides.

    Raises:
        ConfigError: One holds something else than host names.
        WebSearchError: They leave no host; nothing is to be sent.
    """
    exclude = _domains({**own, **options}.get("exclude_domains"), "exclude_domains")
    include = [_domains(given.get("include_domains"), "include_domains") for given in (own, options)]
    if policy is not None:
        exclude += _domains(policy.deny_domains, "deny_domains")
        include.append(_domains(policy.allow_domains, "allow_domains"))
    kept: tuple[str, ...] = ()
    for listed in filter(None, include):
        kept = tuple(one for one in (_both(kept, listed) if kept else listed) if not within(one, exclude))
        if not kept:
            msg = (
                "no host is in all of `include_domains`, the user's `site:` and `allow_domains` and not in `deny_domains`; nothing was sent"
            )
            raise WebSearchError(msg, reason="no_allowed_domain", sent=False)
    return Hosts(kept, tuple(dict.fromkeys(exclude)))


def check_names(options: Mapping[str, Any], known: Iterable[str]) -> None:
    """Passes if all options have known names.

    Raises:
        ConfigError: One has not.
    """
    if unknown := sorted(set(options) - set(known)):
        msg = f"unknown web search option {', '.join(unknown)}; known are: {', '.join(sorted(known))}"
        raise ConfigError(msg, reason="invalid_option")


def passages(pages: Iterable[Page], most: int, hosts: Hosts, policy: WebPolicy | None) -> WebFound:
    """At most `most` of the pages, in their order: those from the hosts that have a text or a title, cut to size; and the others before the last of them.

    A page has one id, however its address is spelt and whoever found it; one without address has that of its text.
    """
    each, total = (policy.max_result_chars, policy.max_total_chars) if policy else (MAX_RESULT_CHARS, MAX_TOTAL_CHARS)
    room = min(each, total // max(most, 1))
    found: list[Passage] = []
    dropped: list[Dropped] = []
    for page in pages:
        if len(found) == most:
            break
        name = host(page.url) if len(page.url) <= MAX_URL_CHARS else ""
        text = cut(unicode(page.text.strip() or page.title.strip()), room)
        if name not in hosts or not text:
            dropped.append(Dropped(page.url[:MAX_URL_CHARS], page.title[:MAX_TITLE_CHARS], "domain" if text else "empty"))
            continue
        digest = hashlib.sha256(((name and canonical_url(page.url)) or text).encode(errors="replace")).hexdigest()
        found.append(
            Passage(
                id=f"web-{digest[:16]}",
                text=text,
                source=name,
                title=cut(unicode(page.title.strip()), MAX_TITLE_CHARS),
                url=unicode(page.url) if name else "",
                origin="web",
                score=page.score,
                rank=len(found) + 1,
                created_at=page.created_at,
                metadata={"domain": name, **page.metadata},
            )
        )
    return WebFound(found, dropped=tuple(dropped))


def text_of(item: Mapping[Any, Any], *fields: str) -> str:
    """The first of the fields that holds a text which is not blank, without white space around it; empty if none does."""
    return next((value.strip() for name in fields if isinstance(value := item.get(name), str) and value.strip()), "")


def score_of(value: object) -> float | None:
    """A finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # JSON has whole numbers of any length.
        return None


def _domains(given: object, name: str) -> tuple[str, ...]:
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Iterable):
        msg = f"`{name}` must be a list of host names, got {type(given).__name__}"
        raise ConfigError(msg, reason="invalid_option")
    return tuple(dict.fromkeys(_domain(one, name) for one in given))


def _domain(given: object, name: str) -> str:
    found = domain(given) if isinstance(given, str) else ""
    if not _HOST.fullmatch(found):
        msg = f"`{name}` must hold host names such as example.org, got {given!r}"
        raise ConfigError(msg, reason="invalid_option")
    return found


def _both(some: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """What lies in both: of two domains where one lies below the other, the lower one."""
    return tuple(dict.fromkeys([*(one for one in some if within(one, others)), *(one for one in others if within(one, some))]))
