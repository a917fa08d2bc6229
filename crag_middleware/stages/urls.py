"""Web addresses: their host, one spelling for all addresses of a page, and whether a host belongs to a domain."""

import re
from collections.abc import Iterable
from urllib.parse import parse_qsl, urlencode, urlsplit

_ODD_IN_URL = re.compile(r"[\s\\\x00-\x1f\x7f]")
_TRACKING = re.compile(
    r"utm_\w+|gclid|dclid|fbclid|msclkid|yclid|twclid|ttclid|igshid?|gclsrc|gbraid|wbraid|mc_[ce]id|_hsenc|_hsmi|_ga|_gl|spm|ref_src",
    re.IGNORECASE,
)
_DEFAULT_PORTS = {"http": 80, "https": 443}


def host(url: str) -> str:
    """The host of a web address in lower case and ASCII (IDNA), without port and user; empty if it is no web address.

    What parsers read differently (backslashes, white space, control characters) is no web address, so that nobody can be led to another host.
    """
    if _ODD_IN_URL.search(url):
        return ""
    try:
        parts = urlsplit(url)
        name = (parts.hostname or "").rstrip(".")
        return name.encode("idna").decode("ascii").lower() if parts.scheme in _DEFAULT_PORTS else ""
    except ValueError:
        return ""


def canonical_url(url: str) -> str:
    """One spelling for all addresses of a page; empty if it is no web address.

    Scheme, letter case of the host, user, default port, trailing slash, fragment, tracking parameters and the order of the others do not count.
    """
    name = host(url)
    if not name:
        return ""
    parts = urlsplit(url)
    try:
        port = "" if parts.port in (None, _DEFAULT_PORTS[parts.scheme]) else f":{parts.port}"
    except ValueError:
        return ""
    pairs = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not _TRACKING.fullmatch(pair[0])]
    query = f"?{urlencode(sorted(pairs))}" if pairs else ""
    return f"{name}{port}{parts.path.rstrip('/')}{query}"


def domain(given: str) -> str:
    """A domain as it is compared: lower case, ASCII (IDNA), without dots around it or a leading `*.`; empty if it is no host name."""
    bare = given.strip().removeprefix("*.").strip(".")
    return "" if set(bare) & set("/@:?#|,") else host(f"https://{bare}")


def within(name: str, domains: Iterable[str]) -> bool:
    """Whether a host is one of the domains or lies below one."""
    return any(name == one or name.endswith(f".{one}") for one in domains)
