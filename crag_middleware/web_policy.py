"""What a tenant's web search may do: when, where, how often, and what it is worth."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from crag_middleware.errors import ConfigError
from crag_middleware.settings import Fraction

DENIED_DOMAINS = (
    # Document dumps: uploads of anybody, most of them behind a wall.
    "docin.com", "doc88.com", "wenku.baidu.com", "book118.com", "renrendoc.com", "taodocs.com", "360doc.com", "docsou.com", "doc.mbalib.com",
    "wenku.so.com", "ishare.iask.sina.com.cn",
    "scribd.com", "slideshare.net", "coursehero.com", "chegg.com", "dokumen.tips", "vdocuments.net", "pdfcoffee.com", "studocu.com", "docplayer.net",
    # Download sites.
    "downcc.com", "crsky.com", "onlinedown.net", "pc6.com", "xitongzhijia.net", "softonic.com", "uptodown.com", "filehippo.com", "4shared.com",
    "download.csdn.net", "skycn.com",
)  # fmt: skip
"""Hosts whose pages are copies of others' documents, or software to download; the default of `deny_domains`."""


class EvidenceScores(BaseModel):
    """How far sources are trusted, by where they come from, in [0, 1]. Frozen.

    Attributes:
        own: The tenant's own knowledge.
        official: Authorities and universities.
        media: Known media.
        other: Other sites.
        incomplete: Sources without title or address.
        official_domains: Hosts that count as official beside the built-in ones, with all below them.
        media_domains: Hosts that count as media beside the built-in ones.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    own: Fraction = 0.92
    official: Fraction = 0.88
    media: Fraction = 0.72
    other: Fraction = 0.58
    incomplete: Fraction = 0.45
    official_domains: tuple[str, ...] = ()
    media_domains: tuple[str, ...] = ()


class WebPolicy(BaseModel):
    """What the web search of one tenant, or of all, may do. Frozen; unknown names and values out of range are refused with a `ConfigError`.

    Attributes:
        mode: `off`; `on`, after an `ambiguous` or `incorrect` verdict; `incorrect`, only after that; `speculative`, as `on`, but the search begins while the
            knowledge is graded, and is dropped if the verdict does not need it.
        allow_domains: Results come from these hosts and those below them only; empty for any.
        deny_domains: Results never come from these.
        requests_per_turn: Requests to all providers together in one turn, repetitions included.
        requests_per_day: The same for one tenant in a day (UTC), as far as this process knows; None for no limit.
        freshness: How old pages may be, as far as the provider can tell.
        language: Only results in this language.
        protected_terms: Never leave for the web, in whatever case: names of customers, projects, products to come.
        min_coverage: Results that hold less than this share of the query's words are dropped before a model sees them.
        max_result_chars: Text kept of one result.
        max_total_chars: Text kept of all results of a search.
        scores: What sources are worth.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    mode: Literal["off", "on", "incorrect", "speculative"] = "on"
    allow_domains: tuple[str, ...] = ()
    deny_domains: tuple[str, ...] = DENIED_DOMAINS
    requests_per_turn: Annotated[int, Field(ge=1, le=20)] = 4
    requests_per_day: Annotated[int, Field(ge=0)] | None = None
    freshness: Literal["any", "day", "week", "month", "year"] = "any"
    language: Literal["any", "en", "zh"] = "any"
    protected_terms: tuple[str, ...] = ()
    min_coverage: Fraction = 0.2
    max_result_chars: Annotated[int, Field(ge=200, le=100_000)] = 8_000
    max_total_chars: Annotated[int, Field(ge=200, le=400_000)] = 24_000
    scores: EvidenceScores = EvidenceScores()

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            problems = error.errors(include_input=False, include_url=False)
            told = "; ".join(f"`{'.'.join(map(str, problem['loc']))}`: {problem['msg']}" for problem in problems)
            raise ConfigError(f"WebPolicy: {told}") from None


OFF = WebPolicy(mode="off")
"""For tenants that nobody gave a policy."""

WebPolicies = WebPolicy | Mapping[str, WebPolicy]
"""One policy for all tenants, or one for each, by `agent_id`; a tenant that is not named has no web search."""
