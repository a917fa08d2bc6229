"""What a passage is worth by where it comes from, and what a model may say about that."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware.stages.provenance import evidence_score, restore, standing
from crag_middleware.types import Passage
from crag_middleware.web_policy import EvidenceScores

SCORES = EvidenceScores()


def page(url: str, *, title: str = "A title", **fields: object) -> Passage:
    return Passage(id="1", text="A text.", url=url, title=title, origin="web", **fields)  # type: ignore[arg-type]  # fields of tests


OFFICIAL = [
    "https://www.cdc.gov/flu/",
    "https://www.gov.cn/zhengce/",
    "https://stats.gov.cn/",
    "https://www.tsinghua.edu.cn/",
    "https://mit.edu",
    "https://www.ox.ac.uk/about",
    "https://www.gov.uk/vat",
    "https://who.int/news",
    "https://www.army.mil/",
    "https://ec.europa.eu/eurostat",
    "https://news.un.org/en/",
    "https://www.mext.go.jp/",
    "https://www.gob.mx/salud",
    "https://www.service-public.gouv.fr/",
    "HTTPS://WWW.NASA.GOV:443/",
    "https://user@stats.gov.cn./x",
    "https://stats。gov。cn/",
]
MEDIA = [
    "http://www.xinhuanet.com/politics/",
    "https://www.thepaper.cn/newsDetail",
    "https://finance.caixin.com/a",
    "https://www.bbc.co.uk/news",
    "https://www.reuters.com/world/",
    "https://abcnews.go.com/US",
]
LOOKALIKES = [
    "https://gov.cn.evil.example/",
    "https://evil-gov.cn/",
    "https://notgov.uk/",
    "https://stats.gov.cn@evil.example/",
    "https://evil.example/stats.gov.cn",
    "https://evil.example?https://stats.gov.cn/",
    "https://stats.goѵ.cn/",
    "https://xn--gv-kka.cn/",
    "https://gov.evil/",
    "https://www.gov.de/",
    "https://edu.de/",
    "https://university.academia.edu/paper",
    "https://reuters.com.evil.example/",
    "https://bbc.com-news.example/",
    "https://go.com/",
]
INCOMPLETE = [
    "",
    "stats.gov.cn",
    "ftp://stats.gov.cn/x",
    "javascript:alert('stats.gov.cn')",
    "https://stats.gov.cn\\@evil.example/",
    "https://stats.\tgov.cn/",
]


@pytest.mark.parametrize("url", OFFICIAL)
def test_authorities_and_universities_are_official(url: str) -> None:
    assert evidence_score(page(url), SCORES) == 0.88


@pytest.mark.parametrize("url", MEDIA)
def test_known_media_are_media(url: str) -> None:
    assert evidence_score(page(url), SCORES) == 0.72


@pytest.mark.parametrize("url", ["https://blog.example/post", "https://zhuanlan.zhihu.com/p/1", "https://192.0.2.1/"])
def test_other_sites_are_others(url: str) -> None:
    assert evidence_score(page(url), SCORES) == 0.58


@pytest.mark.parametrize("url", LOOKALIKES)
def test_c094_what_only_looks_official_is_not(url: str) -> None:
    assert standing(page(url), SCORES) == "other"


@pytest.mark.parametrize("url", INCOMPLETE)
def test_a_source_without_a_web_address_is_incomplete(url: str) -> None:
    assert evidence_score(page(url), SCORES) == 0.45


@pytest.mark.parametrize("title", ["", "  \n"])
def test_a_source_without_a_title_is_incomplete(title: str) -> None:
    assert evidence_score(page("https://stats.gov.cn/", title=title), SCORES) == 0.45


def test_knowledge_is_the_tenants_own_whatever_its_address_and_its_confidence() -> None:
    bare = Passage(id="1", text="A text.")
    doubted = Passage(id="2", text="A text.", url="https://blog.example/", confidence=0.1)

    assert evidence_score(bare, SCORES) == evidence_score(doubted, SCORES) == 0.92


@pytest.mark.parametrize(("share", "left"), [(0.0, 0.88), (0.5, 0.44), (1.0, 0.0)])
def test_orders_lower_the_score_by_their_share(share: float, left: float) -> None:
    assert evidence_score(page("https://stats.gov.cn/", injection_score=share), SCORES) == pytest.approx(left)


def test_scores_and_lists_are_settable_and_the_tenants_lists_come_first() -> None:
    scores = EvidenceScores(official=0.9, media=0.3, official_domains=("Lab.Example", "*.academia.edu"), media_domains=("news.gov.cn",))

    assert evidence_score(page("https://data.lab.example/"), scores) == 0.9
    assert standing(page("https://x.academia.edu/"), scores) == "official"
    assert evidence_score(page("https://news.gov.cn/"), scores) == 0.3
    assert standing(page("https://lab.example.evil.example/"), scores) == "other"


@given(st.text(max_size=60), st.text(max_size=10), st.floats(0, 1))
def test_every_passage_has_a_score_between_0_and_1(url: str, title: str, share: float) -> None:
    assert 0 <= evidence_score(page(url, title=title, injection_score=share), SCORES) <= 1


RECORD = {
    1: page("https://www.gov.cn/a", title="Notice"),
    2: page("https://blog.example/b", title="Blog"),
    "k3": Passage(id="k3", text="Ours."),
}


def test_entries_with_an_id_on_record_get_what_is_missing_from_it() -> None:
    assert restore([{"id": 1, "claim": "It rains."}, {"id": "k3"}], RECORD) == [
        {"id": 1, "claim": "It rains.", "url": "https://www.gov.cn/a", "title": "Notice", "domain": "www.gov.cn"},
        {"id": "k3", "url": "", "title": "", "domain": ""},
    ]


@pytest.mark.parametrize(
    "entry",
    [{"id": 4}, {"id": "k33"}, {"id": None}, {"id": [1, 2]}, {"id": True}, {"id": ""}, {}, {"url": "https://www.gov.cn/a"}, "1", None, 1],
)
def test_entries_without_an_id_on_record_go(entry: object) -> None:
    assert restore([entry], RECORD) == []


@pytest.mark.parametrize("written", ["2", "[2]", " 【2】 ", 2])
def test_an_id_may_be_written_as_models_write_it(written: object) -> None:
    assert [entry["id"] for entry in restore([{"id": written}], RECORD)] == [2]


def test_the_record_is_believed_and_not_the_model() -> None:
    (entry,) = restore([{"id": 2, "url": "https://www.gov.cn/made-up", "title": "Official notice", "domain": "gov.cn"}], RECORD)

    assert (entry["url"], entry["title"], entry["domain"]) == ("https://blog.example/b", "Blog", "blog.example")


def test_restoring_keeps_order_and_repetitions_and_changes_no_input() -> None:
    entries = [{"id": 2, "quote": "x"}, {"id": 1}, {"id": 2, "quote": "y"}]

    restored = restore(entries, RECORD)

    assert [(entry["id"], entry.get("quote")) for entry in restored] == [(2, "x"), (1, None), (2, "y")]
    assert entries[1] == {"id": 1}
    assert restore(restored, RECORD) == restored
