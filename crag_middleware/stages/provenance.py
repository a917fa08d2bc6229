"""Where a passage comes from and what that is worth: the tenant's own, an authority, known media, anybody."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from crag_middleware.stages.urls import domain, host, within
from crag_middleware.types import Passage
from crag_middleware.web_policy import EvidenceScores

Standing = Literal["own", "official", "media", "other", "incomplete"]
"""The kinds of sources, by the names of their `EvidenceScores`."""

_GOV = """
ae af ag al am ao ar au aw az ba bb bd bf bh bm bn br bs bt bw by bz cd cn co cv cy dm do dz eg et fj fk gd ge gh gi gm gn gr gu gy hk hr hu ie il in iq
ir it je jm jo kg kh ki km kn kw ky kz la lb lc lk lr ls lt lv ly ma md me mg mk mm mn mo mr mt mu mv mw my mz na ng np om pg ph pk pl ps pt qa ro rs ru rw
sa sb sc sd si sk sl so ss st sx sy sz tc tj tl tm tn to tr tt tw ua uk uz vc ve vn vu ws ye za zm zw
"""
_EDU = """
af al ar au az ba bb bd bh bn bo br bt by cn co cu dm do ec eg et ge gh gr gt hk hn in iq jm jo kg kh ki kw kz lb lk ly me mk mm mn mo mt mv mx my mz na ng
ni np om pa pe ph pk pl ps pt py qa rs ru sa sd sg sl sv sy tr tt tw ua uy ve vn ye
"""
_ACADEMIC = "ae at bd be bw cn cr cy fj id il in ir ke kr jp lk ma mu mw mz nz rs rw th tz ug uk za zm zw"
_GO, _GOB = "cr id jp ke kr th tz ug", "ar bo cl do ec es gt hn mx ni pa pe sv ve"
_GOUV = "bf bj cd ci dj fr ga ht mc ml ne rw sn tg"

_OTHERS = """
admin.ch bund.de bundestag.de bayern.de nrw.de gv.at govt.nz gc.ca canada.ca gouv.qc.ca overheid.nl rijksoverheid.nl belgium.be regjeringen.no regeringen.se
government.se borger.dk valtioneuvosto.fi gov.scot gov.wales parliament.uk nhs.uk police.uk mod.uk mil.cn
europa.eu un.org unesco.org unicef.org imf.org worldbank.org oecd.org wto.org iaea.org icrc.org
cas.cn cass.cn mpg.de tum.de lmu.de ethz.ch epfl.ch cern.ch cnrs.fr sorbonne-universite.fr utoronto.ca mcgill.ca kuleuven.be
"""
"""Authorities of countries without a zone of that kind, of parts of countries and of several, academies and universities elsewhere."""

OFFICIAL_DOMAINS = frozenset(
    ["gov", "mil", "int", "edu", *_OTHERS.split()]
    + [
        f"{kind}.{zone}"
        for kind, zones in {"gov": _GOV, "edu": _EDU, "ac": _ACADEMIC, "go": _GO, "gob": _GOB, "gouv": _GOUV}.items()
        for zone in zones.split()
    ]
)
"""Domains of authorities and universities, with all below them. Of zones only those where not anybody can register such a name: not `gov.de`, say."""

_NOT_OFFICIAL = ("academia.edu",)
"""Companies in a domain of universities."""

MEDIA_DOMAINS = frozenset(
    """
    xinhuanet.com news.cn people.com.cn people.cn cctv.com cctv.cn cgtn.com chinanews.com.cn chinanews.com china.com.cn chinadaily.com.cn gmw.cn ce.cn
    huanqiu.com globaltimes.cn thepaper.cn caixin.com yicai.com jiemian.com 21jingji.com stcn.com cs.com.cn cnstock.com bjnews.com.cn infzm.com southcn.com
    guancha.cn lifeweek.com.cn ifeng.com scmp.com hk01.com cna.com.tw zaobao.com zaobao.com.sg
    reuters.com apnews.com afp.com bbc.com bbc.co.uk theguardian.com ft.com economist.com thetimes.co.uk telegraph.co.uk independent.co.uk nytimes.com
    washingtonpost.com wsj.com bloomberg.com cnn.com cnbc.com nbcnews.com cbsnews.com abcnews.go.com npr.org pbs.org usatoday.com latimes.com politico.com
    politico.eu theatlantic.com newyorker.com time.com aljazeera.com dw.com spiegel.de zeit.de faz.net sueddeutsche.de tagesschau.de lemonde.fr lefigaro.fr
    france24.com elpais.com corriere.it nhk.or.jp asahi.com nikkei.com japantimes.co.jp yna.co.kr straitstimes.com channelnewsasia.com abc.net.au cbc.ca
    nature.com science.org scientificamerican.com
    """.split()  # noqa: SIM905, a list of names reads better as text
)
"""Domains of known media, Chinese and others, with all below them."""

_BRACKETS = re.compile(r"[\s\[\]【】()（）]")


def standing(passage: Passage, scores: EvidenceScores) -> Standing:
    """What kind of source a passage comes from.

    Knowledge is the tenant's own, unless it was kept from the web. The rest is told by the host of the address: equal to a domain of the kind or below it,
    the tenant's own lists first. Without a web address or a title a source is incomplete.
    """
    if passage.origin == "knowledge" and passage.metadata.get("origin") != "web":
        return "own"
    name = host(passage.url)
    if not name or not passage.title.strip():
        return "incomplete"
    if within(name, map(domain, scores.official_domains)):
        return "official"
    if within(name, map(domain, scores.media_domains)) or within(name, MEDIA_DOMAINS):
        return "media"
    return "official" if within(name, OFFICIAL_DOMAINS) and not within(name, _NOT_OFFICIAL) else "other"


def evidence_score(passage: Passage, scores: EvidenceScores, *, trust: float | None = None) -> float:
    """How far a passage is to be trusted, in [0, 1]: the score of its kind of source, lowered by the share `injection_score`, as which it reads like orders.

    `trust` is what somebody said its source is worth, instead of its kind's score.

    A stored `confidence` is the tenant's own word on a text and stands beside it; it changes nothing here.
    """
    base: float = getattr(scores, standing(passage, scores)) if trust is None else trust
    return base * (1 - passage.injection_score)


def restore(entries: Sequence[Any], record: Mapping[Any, Passage]) -> list[dict[str, Any]]:
    """What a model wrote about its evidence, set right by what is on record: entries whose `id` exists, with the passage's `url`, `title` and `domain`.

    Args:
        entries: As the model wrote them; what is no mapping, and what names no id of the record, is left out. An id may be written as text or in brackets.
        record: The passages by id or by citation number.

    Returns:
        In order, with all other keys as they were. The record's words replace the model's; where it has none, the model's go too: nobody can vouch for them.
    """
    known = {str(key): key for key in record}
    restored = []
    for entry in entries:
        key = known.get(_BRACKETS.sub("", str(entry.get("id", "")))) if isinstance(entry, Mapping) else None
        if key is not None:
            passage = record[key]
            restored.append({**entry, "id": key, "url": passage.url, "title": passage.title, "domain": host(passage.url)})
    return restored
