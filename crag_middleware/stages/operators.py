"""A text without the force of search operators: `site:` becomes a setting, the others words."""

import re

from crag_middleware.stages.urls import domain

MAX_DOMAINS = 10
"""Hosts that one query is held to; more are left out."""

_LABEL = r"[a-z0-9\u00c0-\u024f](?:[a-z0-9\u00c0-\u024f-]{0,61}[a-z0-9\u00c0-\u024f])?"
_HOST = rf"(?:\*\.)?(?:(?:{_LABEL}\.){{1,8}}[a-z][a-z0-9-]{{1,61}}|[\u3400-\u9fff]{{1,20}}\.(?:中国|公司|网络|com|cn|net))"
_SITE = re.compile(
    rf"(?P<minus>-)?(?<![a-z0-9_])site[:：](?:https?://)?(?P<hosts>{_HOST}(?:,{_HOST}){{0,50}})(?![a-z0-9_.@-]*@)\.?(?::\d+)?(?:/[!-~]*)?(?:\s+OR(?=\s+site[:：]))?",
    re.IGNORECASE | re.ASCII,
)
_NAMES = r"(?:site|(?:all)?in(?:url|title|text|anchor|body)|filetype|ext|related|cache|link|info|before|after|source|loc|location|contains|(?:has)?feed|define)"
_OPERATOR = re.compile(rf"(?:(?<!\S)-)?\b({_NAMES})[:：]", re.IGNORECASE | re.ASCII)
_MINUS = re.compile(r"(?<!\S)-(?=[\"“]|(?:(?=[a-zA-Z]{0,20}[aeiouy])[A-Za-z][a-z]{2,}|[\u3400-\u9fff]+)(?![\w=.:/-]))", re.ASCII)
"""Before a word, which has three letters and a vowel; `-la` and `-xzf` are options of programs."""
_OR = re.compile(r"(?<=\s)OR(?=\s)")
_QUOTES = '"＂“”„‟'
_BETWEEN = re.compile(rf"(?<=\w)[{_QUOTES}]+(?=\w)")
_QUOTE = re.compile(rf"[{_QUOTES}]")


def without_operators(text: str) -> tuple[str, tuple[str, ...]]:
    """The text with its operators as plain words, and the hosts that `site:` names, in lower case and ASCII, each once.

    A host that is excluded by `-site:` goes without becoming anything; so does the minus of `-word`. Options of programs that are no plain words stay: `-p`,
    `--name`, `-Xmx512m`.
    """
    hosts: dict[str, None] = {}

    def take(match: re.Match[str]) -> str:
        if not match["minus"]:
            hosts.update(dict.fromkeys(filter(None, map(domain, match["hosts"].split(",")))))
        return " "

    text = _OPERATOR.sub(r"\1 ", _SITE.sub(take, text))
    text = _QUOTE.sub("", _BETWEEN.sub(" ", _MINUS.sub("", text)))
    return _OR.sub("or", text), tuple(hosts)[:MAX_DOMAINS]
