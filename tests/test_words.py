import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crag_middleware.stages.numbers import numbers
from crag_middleware.stages.words import finder, language, part_finder, terms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Refunds for the gift cards?", ("refund", "gift", "card")),
        ("v4.0.7 of pkg.settings.yaml on 10.0.0.1 by ana@acme.test", ("4.0.7", "pkg.settings.yaml", "10.0.0.1", "ana@acme.test")),
        ("max_strips, C++ and C#; 1,000.50 on 2024-01-05 at 10:30", ("max_strips", "c++", "c#", "1000.50", "2024-01-05", "10:30")),
        ("It doesn't, can't, cannot; NOT without never", ("not", "not", "not", "not", "without", "never")),
        ("Ａcmo ｖ４．０．７ CAFÉ ﬁlms", ("acmo", "4.0.7", "café", "film")),
        ("they're Ana's, we’ll see", ("ana", "see")),
        ("wait...what (in stock)?", ("wait", "stock")),
        ("the of and", ()),
        ("...!?", ()),
        ("", ()),
    ],
)
def test_latin_terms_are_folded_stemmed_and_rid_of_stop_words(text, expected):
    assert terms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("退款需要几天？", ("退款", "几天")),
        ("退款在七天内到账。", ("退款", "款在", "在七", "七天", "天内", "内到", "到账")),
        ("请问怎么退货呢", ("退货",)),
        ("我的猫", ("猫",)),
        ("不支持v2.1的热更新", ("2.1", "不支", "支持", "热更", "更新")),
    ],
)
def test_chinese_terms_are_pairs_of_characters(text, expected):
    """C085: single characters only where one stands alone."""
    assert terms(text) == expected


@pytest.mark.parametrize(
    "forms",
    [
        "apply applies applied applying",
        "policy policies",
        "charge charges charged charging",
        "run runs running",
        "class classes",
        "size sizes",
    ],
)
def test_inflected_forms_share_a_term(forms):
    assert len(set(terms(forms))) == 1


@pytest.mark.parametrize("pair", ["string strong", "need ned", "3.10 3.1", "status statue", "v2 2.0", "class clas"])
def test_different_words_keep_different_terms(pair):
    assert len(set(terms(pair))) == 2


WORDS = st.text(alphabet="abNo'’tiesdng ._@v147,:-/+#的不款退ＡｖéßİŉK ﬁ３", max_size=40)


@given(WORDS, WORDS)
@example("don't", "I cannot")
@example("1,000", "v1000 1000")
@example("O’Brien's", "o'brien")
@example("ß ﬁ", "SS fi")
@settings(max_examples=1000, deadline=None)
def test_finder_finds_just_the_shared_latin_terms(question, text):
    wanted = terms(question)

    found = finder(wanted)(text)

    latin = {term for term in wanted if not "\u3400" <= term[0] <= "\u9fff"}
    assert found & latin == latin & set(terms(text))
    assert found <= set(wanted)


def test_finder_finds_chinese_pairs_anywhere():
    find = finder(terms("退款需要几天？"))

    assert find("申请退款后") == {"退款"}
    assert find("客服电话见官网。") == set()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("退款需要几天？", "zh"),
        ("请问 CRAGMiddleware 怎么配置 max_strips？", "zh"),
        ("How long does a refund take?", "en"),
        ("What does 退款 mean in the refund policy of this shop?", "en"),
        ("12 + 3", "en"),
        ("", "en"),
    ],
)
def test_language_is_chinese_from_a_fifth_of_the_letters_on(text, expected):
    assert language(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,000 USD, 50 %, v4.0.7, 10.0.0.1, 3.10", {"1000", "50", "4.0.7", "10.0.0.1", "3.10"}),
        ("Jan. 5, 2024", {"2024-01-05", "2024-01", "2024", "01-05"}),
        ("5th of January 2024", {"2024-01-05", "2024-01", "2024", "01-05"}),
        ("2024年1月5日", {"2024-01-05", "2024-01", "2024", "01-05"}),
        ("2024-01-05 at 10:30", {"2024-01-05", "2024-01", "2024", "01-05", "10:30"}),
        ("1月5号", {"01-05"}),
        ("May 2023", {"2023-05", "2023"}),
        ("二〇二四年", {"2024"}),
        ("七天、三百二十个月、一万两千元、百分之五十", {"7", "320", "12000", "50"}),
        ("3.5万人 and 1.2 million people, 5k users", {"35000", "1200000", "5000"}),
        ("within seven business days", {"7"}),
        ("２０２４ 年", {"2024"}),
        ("sha256, x86_64, one of them, 一些, 统一, 十分", set()),
        ("", set()),
    ],
)
def test_numbers_have_one_spelling(text, expected):
    assert numbers(text) == expected


@given(st.text() | st.text(alphabet="0123456789,.:-/ 年月日万亿百十一二 kjanmay"))
@settings(max_examples=1000, deadline=None)
def test_any_text_has_terms_numbers_and_a_language(text):
    assert all(terms(text))
    assert all(numbers(text))
    assert language(text) in ("en", "zh")


@pytest.mark.parametrize("unit", ["a", ".", "a.", "1,", "1,111", "9", "_", "一", "万", "may 5 ", "1:", "a'"])
def test_no_input_takes_more_than_linear_time(unit):
    text = "1" + unit * (300_000 // len(unit)) + "万"

    started = time.perf_counter()
    terms(text), numbers(text), language(text), finder(["a", "1"])(text)

    assert time.perf_counter() - started < 5


@given(
    st.lists(st.sampled_from(["Port 9100 is used.", "端口是九千。", "NOT here", "v2.1 不支持", "ßtraße", "", "ｐｏｒｔ"]), max_size=8),
    st.text(max_size=20),
)
def test_the_parts_of_a_text_are_searched_as_each_on_its_own(parts: list[str], extra: str) -> None:
    wanted = frozenset(terms("Which port is not supported by v2.1? 端口 支持"))
    parts = [*parts, extra]

    found = part_finder(wanted)(" ".join(parts), parts)

    assert [found.get(i, frozenset()) for i in range(len(parts))] == [finder(wanted)(part) for part in parts]
