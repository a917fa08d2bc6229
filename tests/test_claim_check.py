"""The offline claim checker."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.adapters.claim_checkers import WordClaimChecker
from crag_middleware.ports import ClaimChecker, bind
from crag_middleware.stages.claim_check import THRESHOLD, check
from crag_middleware.stages.claims import claims
from crag_middleware.types import Checked, Claim, Ground

EN = """Milvus 2.4.1 supports sparse vectors and needs Python 3.10 or newer. Refunds are paid within 14 days of the return, and shipping to Norway costs 12 EUR.
Version 2.3.4 cannot read collections that were written by v2.5.0. The default timeout is 30 seconds, and a request may retry 3 times.
On March 31, 2025 the board of Globex elected Maria Lindgren as chair. Files larger than 25 MB are not accepted by the Acme portal on Sunday."""
ZH = """Milvus 2.4.1 支持稀疏向量，客户端需要 Python 3.10 及以上版本。退款在退货后 14 天内到账，寄往杭州的运费为 12 元。
请在 2025年3月31日前完成升级，旧版本不再提供安全更新。默认超时时间为 30 秒，失败的请求最多重试 3 次。
董事会选举李明担任主席，任期为三年。超过 25 MB 的文件不能上传。"""


def one(text: str, *grounds: str | Ground, cited: tuple[int, ...] = ()) -> Checked:
    listed = [ground if isinstance(ground, Ground) else Ground(ground, "source", number) for number, ground in enumerate(grounds, 1)]
    return check([Claim(text, 0, len(text), cited)], listed)[0]


@pytest.mark.parametrize("text", [claim.text for passage in (EN, ZH) for claim in claims(passage)])
def test_a_copied_sentence_is_supported(text):
    found = one(text, "Something else about cats.", EN, ZH)

    assert (found.label, found.reason) == ("supported", "copied")
    assert found.decided_by in (1, 2)
    assert found.probability is not None
    assert found.probability >= THRESHOLD


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("14 days", "15 days"),
        ("3 times", "5 times"),
        ("12 EUR", "21 EUR"),
        ("14 days", "14 hours"),
        ("12 EUR", "12 USD"),
        ("25 MB", "25 GB"),
        ("30 seconds", "30 minutes"),
        ("March 31, 2025", "March 30, 2025"),
        ("March 31, 2025", "March 31, 2024"),
        ("on Sunday", "on Monday"),
        ("2.4.1", "2.4.2"),
        ("3.10", "3.1"),
        ("v2.5.0", "v2.4.1"),
        ("Norway", "Sweden"),
        ("Globex", "Initech"),
        ("Maria Lindgren", "Maria Okafor"),
        ("supports", "does not support"),
        ("cannot read", "can read"),
        ("are not accepted", "are accepted"),
        ("may retry", "may not retry"),
        ("14 天", "15 天"),
        ("重试 3 次", "重试 5 次"),
        ("14 天", "14 小时"),
        ("12 元", "12 美元"),
        ("2025年", "2026年"),
        ("3月31日", "4月30日"),
        ("2.4.1 支持", "2.4.2 支持"),
        ("3.10 及", "3.1 及"),
        ("三年", "五年"),
        ("杭州", "苏州"),
        ("李明", "王芳"),
        ("支持", "不支持"),
        ("不能上传", "可以上传"),
        ("不再提供", "提供"),
        ("最多重试", "至少重试"),
    ],
)
def test_one_thing_changed_in_a_copied_sentence_is_caught(before, after):
    """C111: the source is cited, exists and says something else."""
    changed = 0
    for passage in (EN, ZH):
        for claim in claims(passage):
            if before in claim.text:
                changed += 1
                found = one(claim.text.replace(before, after), passage, cited=(1,))
                assert found.label != "supported", found
                assert found.probability is not None
                assert found.probability < THRESHOLD
    assert changed


@pytest.mark.parametrize(
    ("claim", "ground", "label", "reason"),
    [
        ("Supports 100 users [1].", "Max 10 users.", "not_mentioned", "number"),
        ("Up to 100 users are supported.", "Up to 10 users are supported.", "contradicted", "number"),
        (
            "The drug reduced the rate of stroke.",
            "The drug lowered the pressure by 9 mmHg, but did not reduce the rate of stroke.",
            "contradicted",
            "negation",
        ),
        ("药物降低了中风的发生率。", "药物平均使收缩压下降，但没有降低中风的发生率。", "contradicted", "negation"),
        ("Revenue of the group rose in spring.", "Revenue of the group fell in spring.", "contradicted", "opposite"),
        ("The chair is Maria Okafor of Globex.", "The chair is Maria Lindgren of Globex.", "contradicted", "name"),
        ("Cats sleep in the kitchen.", "The invoice is due on Friday.", "not_mentioned", "coverage"),
    ],
)
def test_the_reason_tells_what_speaks_against_a_claim(claim, ground, label, reason):
    found = one(claim, ground)

    assert (found.label, found.reason) == (label, reason)


@pytest.mark.parametrize(
    ("claim", "ground"),
    [
        ("Refunds are paid within thirty days.", "Refunds are paid within 30 days."),
        ("退款在三十天内到账。", "退款在 30 天内到账。"),
        ("The fee is $1,200.", "The fee is 1.2k USD."),
        ("The timeout is 1 hour.", "The timeout is 60 minutes."),
        ("Attachments must be at most 25 MB.", "Attachments may not exceed 25 MB."),
        ("Canberra was founded in 1913.", "Canberra, founded in 1913 as a compromise, is the seat of the federal government."),
        ("Yes, refunds are not possible.", "Refunds are not possible."),
    ],
)
def test_the_same_in_other_words_is_no_conflict(claim, ground):
    [made] = claims(claim)

    assert one(made.text, ground).label == "supported"


def test_a_number_told_of_something_else_does_not_count():
    found = one("山东省在6县设置监控设备。", "山东省建设6个市级平台，并且在16县设置监控设备。")

    assert found.label != "supported"


@pytest.mark.parametrize(
    ("claim", "ground"),
    [
        ("The fee is 3", "The fee is 30 USD."),
        ("提供退款服务", "公司不提供退款服务。"),
        ("Refunds are possible", "Refunds are never possible."),
    ],
)
def test_a_stretch_of_a_sentence_is_no_copy(claim, ground):
    assert one(claim, ground).label != "supported"


def test_cited_sources_come_first_and_others_count_too():
    grounds = (Ground("Cats sleep all day.", "source", 1), Ground("The fee is 30 USD.", "user"), Ground("The fee is 30 USD.", "source", 2))

    assert one("The fee is 30 USD [2].", *grounds, cited=(2,)).decided_by == 2
    wrong = one("The fee is 30 USD [1].", *grounds, cited=(1,))
    assert (wrong.label, wrong.reason) == ("supported", "other_source")
    assert wrong.decided_by in (1, 2)


def test_a_claim_that_nothing_bears_out_tells_the_best_place():
    assert one("The fee is 40 USD.", "Cats sleep.", "The fee is 30 USD.").decided_by == 1


def test_without_anything_to_rest_on_nothing_is_supported():
    assert one("The fee is 30 USD.") == Checked("not_mentioned", 0.0, None, "no_grounds")


@pytest.mark.parametrize(
    ("claim", "ground"), [("年费包含技术支持。", "The fee includes support."), ("The fee includes support.", "https://acme.test/fees")]
)
def test_what_cannot_be_compared_speaks_neither_for_nor_against(claim, ground):
    found = one(claim, ground)

    assert (found.label, found.reason) == ("not_mentioned", "unread")
    assert found.probability is not None
    assert found.probability >= THRESHOLD


def test_a_value_is_compared_across_languages():
    assert one("年费为 40 美元。", "The fee is 30 USD.").reason == "number"


def test_no_claims_give_nothing():
    assert check([], [Ground("text")]) == ()


WORDS = st.sampled_from(
    [
        "the",
        "fee",
        "is",
        "not",
        "30",
        "USD",
        "三十",
        "天",
        "内",
        "退款",
        "不",
        "支持",
        "v2.1",
        "Acme",
        "2024-01-05",
        "。",
        ".",
        "[1]",
        "?",
        "(",
        "\n",
        "https://a.test",
    ]
)
TEXT = st.lists(WORDS, max_size=14).map(" ".join)


@given(st.lists(TEXT, max_size=4), st.lists(TEXT, max_size=4))
@settings(max_examples=150, deadline=None)
def test_every_claim_has_one_finding_in_order(texts, grounds):
    listed = [Ground(text, "source", number) for number, text in enumerate(grounds, 1)]
    asked = [Claim(text, 0, len(text), (1,)) for text in texts]

    found = check(asked, listed)

    assert [check([claim], listed)[0] for claim in asked] == list(found)
    assert all(one.probability is not None and 0 <= one.probability <= 1 for one in found)
    assert all(one.decided_by is None or 0 <= one.decided_by < len(grounds) for one in found)
    assert all(one.probability >= THRESHOLD for one in found if one.label == "supported")
    assert all(one.probability < THRESHOLD for one in found if one.label == "contradicted")


@given(TEXT.filter(str.strip))
@settings(max_examples=150, deadline=None)
def test_no_copy_of_a_ground_is_doubted(text):
    found = one(text, f"Before it.\n\n{text}\n\nAnd after.")

    assert found.probability is not None
    assert found.probability >= THRESHOLD


def test_the_checker_is_an_instant_port():
    checker = WordClaimChecker()

    bound = bind(checker, "check")

    assert isinstance(checker, ClaimChecker)
    assert bound.instant
    assert bound.sync is not None
    found = bound.sync([Claim("The fee is 30 USD.", 0, 18)], [Ground("The fee is 30 USD.")], question="?", agent_id="a", timeout_s=1.0)
    assert found[0].label == "supported"
    assert checker.threshold == THRESHOLD


@pytest.mark.parametrize("text", ["a " * 5_000, "不" * 5_000, "不得不" * 3_000, "9" * 5_000, "[" * 5_000, "一" * 5_000, "no not " * 3_000])
def test_hostile_texts_are_checked(text):
    one(text, text[1:], text[::-1])
