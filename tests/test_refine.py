import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.errors import ConfigError
from crag_middleware.ports import Refiner, bind
from crag_middleware.stages.refine import WordRefiner, select
from crag_middleware.stages.sentences import split
from crag_middleware.types import Passage


def kept(question: str, text: str, max_strips: int = 3) -> list[str]:
    return [strip.text for strip in select(question, [text], max_strips=max_strips)[0]]


def test_chinese_strips_are_told_apart():
    """C085"""
    assert kept("退款需要几天？", "退款在七天内到账。客服电话见官网。") == ["退款在七天内到账。"]


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("退款需要几天？", "Refunds arrive within 7 days."),
        ("xyzzy?", "A text. 一段话。"),
        ("", "A text."),
        ("the?", "The text."),
        ("refund", " \n"),
    ],
)
def test_no_shared_word_picks_nothing(question, text):
    """C085: an all-zero score is unknown, not irrelevant; the caller keeps the passage whole."""
    assert kept(question, text) == []


@pytest.mark.parametrize(
    ("question", "rule", "exception"),
    [
        ("Refund for a gift card?", "Refunds are available.", "This does not apply to gift cards unless damaged."),
        ("Are there refunds?", "Refunds are available.", "Except for software."),
        ("Are there refunds?", "Refunds are available.", "Custom goods are exempt."),
        ("Are there refunds?", "Refunds are available.", "It's not so in Peru."),
        ("Are there refunds?", "Refunds are available.", "However, software is sold as it is."),
        ("Are there refunds?", "Refunds are available.", "Only if the seal is intact."),
        ("支持退货吗？", "支持七天退货。", "定制商品除外。"),
        ("支持退货吗？", "支持七天退货。", "仅限会员。"),
        ("支持退货吗？", "支持七天退货。", "但软件按现状出售。"),
        ("支持退货吗？", "支持七天退货。", "这不包括定制商品。"),
    ],
)
def test_exception_comes_along_with_its_rule(question, rule, exception):
    """C086"""
    assert kept(question, f"{rule} {exception} Nothing else matters. 别的无所谓。", max_strips=1) == [rule, exception]


def test_exception_is_found_behind_sentences_that_refer_to_the_rule():
    text = "Refunds are available. They take 7 days. This does not apply to gift cards. Cats are nice."

    assert kept("Any refunds?", text) == ["Refunds are available.", "They take 7 days.", "This does not apply to gift cards."]


def test_excepted_items_come_along_with_the_exception():
    text = "Refunds are available. The following are excluded:\n- gift cards\n- software\n\nCats are nice."

    assert kept("Any refunds?", text) == ["Refunds are available.", "The following are excluded:", "- gift cards", "- software"]
    assert kept("gift cards?", text) == ["The following are excluded:", "- gift cards"]


def test_condition_on_the_same_matter_comes_along():
    text = "Refunds are free. A refund costs 5 USD if the card is foreign. If it rains, stay in."

    assert kept("Refunds?", text, max_strips=1) == ["Refunds are free.", "A refund costs 5 USD if the card is foreign."]


@pytest.mark.parametrize(
    ("question", "text", "strips"),
    [
        (
            "How many staff in Lima?",
            "The Lima office opened in 2019. It has 40 staff.",
            ["The Lima office opened in 2019.", "It has 40 staff."],
        ),
        ("How many staff?", "Cats are nice. The Lima office opened. It has 40 staff.", ["The Lima office opened.", "It has 40 staff."]),
        ("员工多少人？", "利马分部成立。该分部有员工40名。猫很好。", ["利马分部成立。", "该分部有员工40名。"]),
        ("有员工吗", "其他部门很小。其他员工不多。", ["其他员工不多。"]),
    ],
)
def test_referring_sentence_brings_what_it_refers_to(question, text, strips):
    """C087"""
    assert kept(question, text, max_strips=1) == strips


def test_chain_of_referring_sentences_is_followed_a_few_steps_only():
    text = "The office opened. " + "It grew. " * 20 + "It has 40 staff."

    assert kept("staff?", text) == ["It grew.", "It grew.", "It grew.", "It has 40 staff."]


def test_page_of_continuations_is_not_kept_whole():
    text = "The office is in Lima. " + "It has staff. " * 20

    assert kept("Lima staff?", text, max_strips=1) == ["The office is in Lima.", "It has staff."]


def test_list_item_brings_its_lead_in_line():
    """C083"""
    text = "Hello there.\nLimits:\n- free: 5 calls\n- pro: 500 calls\n1. Sign in\n2. Pay"

    assert kept("How many calls with pro?", text, max_strips=1) == ["Limits:", "- pro: 500 calls"]


def test_nested_item_brings_the_items_above_it():
    text = "Plans:\n- Free:\n  - 5 calls\n- Pro:\n  - 500 calls\n  - mail support"

    assert kept("support?", text) == ["Plans:", "- Pro:", "  - mail support".strip()]


def test_lead_in_line_brings_its_list_but_not_beside_a_better_item():
    text = "The limits are:\n- free: 5 calls\n- pro: 500 calls\n\nBye."

    assert kept("What are the limits?", text) == ["The limits are:", "- free: 5 calls", "- pro: 500 calls"]
    assert kept("limits of pro", text) == ["The limits are:", "- pro: 500 calls"]


def test_table_row_brings_its_header():
    text = "| plan | price |\n|---|---|\n| free | 0 |\n| pro | 5 |\n| max | 9 |"

    assert kept("pro?", text) == ["| plan | price |", "|---|---|", "| pro | 5 |"]
    assert kept("price", text) == text.split("\n")


def test_heading_and_text_come_together():
    text = "# Plans\n\n## Refunds\n\nThey take 7 days. Cats are nice."

    assert kept("refunds", text) == ["# Plans", "## Refunds", "They take 7 days."]
    assert kept("How many days?", text) == ["# Plans", "## Refunds", "They take 7 days."]


def test_question_in_the_text_brings_its_answer():
    assert kept("How do I get a refund?", "Q: How do I get a refund?\nA: Write to us.\n\nQ: Cats?\nA: No.") == [
        "Q: How do I get a refund?",
        "A: Write to us.",
    ]


def test_code_brings_the_line_that_announces_it():
    text = "Cats are nice.\nTo update the firmware, run this:\n```\nflashctl --force\n```\nDone."

    assert kept("firmware", text) == kept("flashctl", text) == ["To update the firmware, run this:", "```\nflashctl --force\n```"]


def test_parts_of_a_sentence_too_long_for_a_strip_stay_together():
    text = "The refund is paid, " + "and so on and so forth, " * 30 + "unless the seal was broken. Cats."

    assert "".join(kept("refund", text, max_strips=1)).endswith("unless the seal was broken.")


def test_numbers_and_names_outweigh_other_words():
    text = "The release is stable and fast. The release v2.1 was late. The release of Acme was sold."

    assert kept("Is the stable release v2.1?", text, max_strips=1) == ["The release v2.1 was late."]
    assert kept("sold release by Acme", text, max_strips=1) == ["The release of Acme was sold."]


def test_never_more_picks_than_asked_and_ties_go_to_the_first():
    text = "\n\n".join(f"Refund {word}." for word in ("alpha", "beta", "gamma", "delta"))

    assert kept("refund", text, max_strips=2) == ["Refund alpha.", "Refund beta."]


def test_rare_words_of_the_turn_decide():
    texts = ["Refunds for cats. Refunds for dogs.", "Refunds for birds. Refunds for fish."]

    assert [[s.text for s in strips] for strips in select("refunds dogs", texts, max_strips=1)] == [
        ["Refunds for dogs."],
        ["Refunds for birds."],
    ]


TEXTS = st.text(alphabet="ab refund退款。. !?：:\n-|#*1", max_size=120) | st.lists(
    st.sampled_from(
        [
            "Refunds exist. ",
            "It is so. ",
            "退款到账。",
            "Not for cats unless sick. ",
            "除外。",
            "\n- item\n",
            "\n| a | b |\n",
            "\n# H\n",
            "Which:\n",
            "\n\n",
        ]
    )
).map("".join)


@given(TEXTS, st.lists(TEXTS, max_size=4), st.integers(1, 4))
@settings(max_examples=500, deadline=None)
def test_what_is_kept_are_strips_of_the_text_in_order(question, texts, max_strips):
    result = select(question, texts, max_strips=max_strips)

    assert len(result) == len(texts)
    for text, strips in zip(texts, result, strict=True):
        places = [split(text).index(strip) for strip in strips]
        assert places == sorted(set(places))
    assert select(question, texts, max_strips=max_strips) == result


RULES = st.sampled_from([("Refunds are available in v2.1.", "Refunds?"), ("支持退货，最长 7 天。", "退货")])
EXCEPTIONS = st.builds(
    "{}{}".format,
    st.sampled_from(
        [
            "This does not apply to ",
            "Unless it is about ",
            "Except for ",
            "Only if you bought ",
            "But never with ",
            "不适用于",
            "仅限",
            "除非是",
            "但不含",
        ]
    ),
    st.sampled_from(["gift cards.", "v2.1 on 10.0.0.1.", "offline maps since Jan. 5, 2024.", "定制商品。", "3.5 元以下的订单。"]),
)
OTHERS = st.sampled_from(["Cats are nice.", "The shop opened in 2019.", "客服电话见官网。"])


@given(
    RULES,
    st.lists(EXCEPTIONS, min_size=1, max_size=3),
    st.lists(OTHERS, max_size=3),
    st.lists(OTHERS, max_size=3),
    st.sampled_from([" ", "\n", "\n\n"]),
)
@settings(max_examples=400, deadline=None)
def test_exceptions_are_never_separated_from_a_kept_rule(rule, exceptions, before, after, between):
    """C086"""
    text, question = rule

    assert kept(question, between.join([*before, text, *exceptions, *after]), max_strips=1) == [text, *exceptions]


def test_word_refiner_is_a_refiner_that_takes_passages():
    passages = [Passage(id="a", text="退款在七天内到账。客服电话见官网。"), Passage(id="b", text="Cats.")]
    refine = bind(WordRefiner(max_strips=1), "refine").sync

    assert refine is not None
    assert [[s.text for s in strips] for strips in refine("退款？", passages, agent_id="a", timeout_s=1)] == [["退款在七天内到账。"], []]
    assert isinstance(WordRefiner(), Refiner)


def test_word_refiner_needs_at_least_one_strip():
    with pytest.raises(ConfigError, match="`max_strips` must be at least 1, got 0"):
        WordRefiner(max_strips=0)
