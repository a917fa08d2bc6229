"""Chunks hold all of a document, in order, within their size, and are cut where it hurts least."""

import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from langchain_text_splitters import CharacterTextSplitter, RecursiveCharacterTextSplitter

from crag_middleware.errors import ConfigError
from crag_middleware.knowledge.loading import Loaded, Mark, load
from crag_middleware.knowledge.splitting import MAX_SIZE, split, split_with
from crag_middleware.stages import sentences

ENGLISH = "Dr. Lee paid 2.13 USD on Jan. 5, e.g. by card. It was late! Was it refunded? Yes, in v2.1 it is. "
CHINESE = "客户可以在收到商品后七天内申请退款。定制商品除外！退款多久到账？一般在三个工作日内到账。"
TABLE = "| plan | price |\n| --- | --- |\n" + "\n".join(f"| plan {i} | {i}0 USD |" for i in range(40))
CODE = "```python\nx = 1. \n\n# Not a heading. Not a sentence.\ny = 2\n```"
MIXED = f"# 手册\n\n{CHINESE * 9}\n\n## Abroad\n\n{ENGLISH * 9}\n\nPrices:\n\n{TABLE}\n\n### Code\n\n{CODE}\n\n- one\n- two: 二\n\n{'字' * 900}\n\n{'é' * 700}"

PARTS = st.sampled_from(
    [
        ENGLISH,
        CHINESE,
        TABLE,
        CODE,
        "# Heading\n",
        "## 小节\n\n",
        "- item\n",
        "Lead-in:\n\n",
        "\n\n",
        "\n",
        " ",
        "\t",
        "\r\n",
        "a" * 99,
        "字" * 99,
        "；",
        "，",
        "e\u0301" * 40,
        "👨‍👩‍👧" * 9,
        "🇩🇪" * 40,
        "👍🏽",
        "\u200b",
        "\u3000",
        "```\n",
        "<p>",
        "</p><h2>x</h2>",
        "a | b\n",
        "x: y\n",
        "\u0301",
        "\x1c",
        "。\u0301",
    ]
)
TEXTS = st.lists(PARTS, max_size=25).map("".join) | st.text(
    alphabet='aB1 .。!?；,，、:\n\r\t\u3000"”()[]*_`~|#->🙂é的\u0301\u200d', max_size=400
)
SIZES = st.integers(50, 600).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, (size - 1) // 2)))
TYPES = st.sampled_from(["text/markdown", "text/csv"])


def texts(text, **options):
    return [chunk.text for chunk in split(Loaded(text), **options)]


@given(TEXTS, SIZES, TYPES)
@example(MIXED, (500, 50), "text/markdown")
@example(MIXED, (50, 24), "text/csv")
@settings(deadline=None, max_examples=150)
def test_chunks_hold_all_but_white_space_in_order_and_within_their_size(text, sizes, media_type):
    size, overlap = sizes

    chunks = split(Loaded(text, media_type=media_type), size=size, overlap=overlap)

    end = 0
    for index, chunk in enumerate(chunks):
        assert chunk.chunk_index == index
        assert text[chunk.start : chunk.end] == chunk.text == chunk.text.strip()
        assert 0 < len(chunk.text) <= size
        assert end - overlap <= chunk.start
        assert not text[end : chunk.start].strip()
        assert chunk.end > end
        if index:
            assert chunk.start > chunks[index - 1].start
        end = chunk.end
    assert not text[end:].strip()
    assert chunks == split(Loaded(text, media_type=media_type), size=size, overlap=overlap)


@given(TEXTS, SIZES)
@settings(deadline=None, max_examples=100)
def test_a_repeated_beginning_is_the_beginning_of_a_sentence(text, sizes):
    size, overlap = sizes
    begins = {strip.start for strip in sentences.split(text)}

    chunks = split(Loaded(text), size=size, overlap=overlap)

    assert {chunk.start for before, chunk in pairwise(chunks) if chunk.start < before.end} <= begins


@given(st.lists(st.sampled_from(["e\u0301", "👨‍👩‍👧", "🇩🇪", "👍🏽", "☀️", "각", "n", "。\u0301"]), max_size=80), st.integers(50, 90))
@settings(deadline=None)
def test_no_chunk_begins_inside_a_sign_of_several_characters(signs, size):
    for chunk in split(Loaded("".join(signs)), size=size, overlap=0):
        assert unicodedata.category(chunk.text[0])[0] != "M"
        assert chunk.text[0] not in "\u200d🏽"
        assert chunk.text[-1] != "\u200d"
        assert chunk.text.count("🇩") == chunk.text.count("🇪")


def test_the_default_is_500_characters_with_50_repeated():
    chunks = split(Loaded(CHINESE * 30))

    assert 400 < max(len(chunk.text) for chunk in chunks) <= 500
    assert all(0 < before.end - chunk.start <= 50 for before, chunk in pairwise(chunks))


@pytest.mark.parametrize("text", [ENGLISH * 40, CHINESE * 40], ids=["en", "zh"])
def test_no_sentence_is_cut_that_fits(text):
    whole = {strip.text for strip in sentences.split(text)}

    chunks = texts(text, size=200, overlap=0)

    assert {strip.text for chunk in chunks for strip in sentences.split(chunk)} == whole


def test_no_paragraph_is_cut_that_fits():
    paragraphs = [ENGLISH.strip()[: 40 * i] + "." for i in range(1, 5)] * 5

    chunks = texts("\n\n".join(paragraphs), size=170, overlap=0)

    assert [part for chunk in chunks for part in chunk.split("\n\n")] == paragraphs


def test_c067_chinese_text_is_cut_at_sentence_ends_and_never_too_large_for_a_server():
    text = CHINESE * (30_000 // len(CHINESE))

    chunks = texts(text, size=MAX_SIZE, overlap=0)

    assert all(chunk[-1] in "。！？" for chunk in chunks)
    assert all(len(chunk.encode()) <= 65_535 for chunk in (*chunks, *texts("😀" * 40_000, size=MAX_SIZE)))


def test_a_long_sentence_is_cut_between_clauses_then_words():
    clauses = "客户可以在收到商品后的七天之内提出退款申请，" * 10
    words = "退款申请需要客户服务中心审核批准" * 20
    english = "refund requests need approval by customer service " * 12

    assert all(chunk.endswith("，") for chunk in texts(clauses, size=100, overlap=0))
    assert not any(chunk.endswith(("退", "申", "需", "客", "服", "中", "审", "批")) for chunk in texts(words, size=101, overlap=0)[:-1])
    assert all(word in english.split() for chunk in texts(english, size=101, overlap=0) for word in chunk.split())


def test_a_long_word_is_cut_into_full_chunks():
    assert [len(chunk) for chunk in texts("a" * 1234)] == [500, 500, 234]


def test_headings_stay_with_what_follows():
    text = "# Manual\n\n## Refunds\n\n" + ENGLISH * 8 + "\n\n## Abroad\n" + ENGLISH * 8

    chunks = texts(text)

    assert chunks[0].startswith("# Manual\n\n## Refunds\n\nDr. Lee")
    assert next(chunk for chunk in chunks if "## Abroad" in chunk).startswith("## Abroad\nDr. Lee")


def test_a_lead_in_stays_with_its_list():
    text = ENGLISH * 3 + "\n\nThese are never taken back:\n\n" + "\n".join(f"- goods of kind {i}, made to order" for i in range(9))

    assert next(chunk for chunk in texts(text, size=330, overlap=0) if "taken back" in chunk).startswith(
        "These are never taken back:\n\n- goods"
    )


def test_short_sections_share_a_chunk_and_others_do_not():
    short = "\n\n".join(f"## 问题{i}\n\n七天之内。" for i in range(12))
    long = "\n\n".join(f"## Part {i}\n\n{ENGLISH}" for i in range(3))

    assert 1 < len(texts(short)) < 12
    assert [chunk.count("## ") for chunk in texts(long, size=400)] == [1, 1, 1]


def test_rows_of_a_table_are_not_cut_nor_repeated():
    chunks = texts(TABLE, size=100, overlap=0)

    assert [row for chunk in chunks for row in chunk.split("\n")] == TABLE.split("\n")


def test_a_table_that_fits_is_not_cut():
    table = "\n".join(TABLE.split("\n")[:12])

    assert any(table in chunk for chunk in texts(f"{ENGLISH}{ENGLISH}\n\n{table}\n\n{ENGLISH}", size=330))


def test_code_that_fits_is_kept_whole_and_other_code_is_cut_between_lines():
    long = "```\n" + "\n".join(f"value_{i} = compute({i}). And more" for i in range(40)) + "\n```"

    assert any(CODE in chunk for chunk in texts(f"{ENGLISH * 2}\n{CODE}\n{ENGLISH * 2}", size=250))
    assert [line for chunk in texts(long, size=120) for line in chunk.split("\n")] == long.split("\n")


def test_records_are_not_cut_nor_repeated(tmp_path):
    rows = [(f"plan {i}", "# 1. Cheap. Simple: " * (i % 4 + 1)) for i in range(30)]
    (tmp_path / "plans.csv").write_text("name,note\n" + "\n".join(",".join(row) for row in rows))

    chunks = [chunk.text for chunk in split(load(tmp_path / "plans.csv"), size=200, overlap=90)]

    records = [record for chunk in chunks for record in chunk.split("\n\n")]
    assert records == [f"name: {name}\nnote: {note.strip()}" for name, note in rows]
    assert len(chunks) < len(records)


def test_a_record_that_is_too_long_is_cut_between_its_lines_then_sentences():
    text = "name: A\nnote: " + ENGLISH * 3 + "\nprice: 3"

    chunks = [chunk.text for chunk in split(Loaded(text, media_type="text/csv"), size=150)]

    assert all(chunk.endswith((".", "!", "?", "3")) for chunk in chunks)
    assert all("Dr. Lee paid 2.13 USD on Jan. 5, e.g. by card." in chunk for chunk in chunks if "Dr." in chunk)


def test_chunks_know_their_section_and_page():
    text = f"# Manual\n## Refunds\n{ENGLISH}\n## Abroad\n{ENGLISH}"
    abroad = text.index("## Abroad")
    marks = (Mark(0, "Manual", 1), Mark(9, "Manual > Refunds", 1), Mark(60, "Manual > Refunds", 2), Mark(abroad, "Manual > Abroad", 2))

    small = split(Loaded(text, marks=marks), size=150, overlap=0)
    large = split(Loaded(text, marks=marks), size=1500)

    assert [(chunk.section, chunk.page) for chunk in small] == [("Manual > Refunds", 1), ("Manual > Abroad", 2)]
    assert [(chunk.section, chunk.page) for chunk in large] == [("Manual", 1)]
    assert {(chunk.section, chunk.page) for chunk in split(Loaded(text))} == {("", None)}


@pytest.mark.parametrize("text", ["", " \n\t\u3000\r\n\x1c "])
def test_a_blank_document_has_no_chunks(text):
    assert split(Loaded(text)) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"size": 49}, "`size`"),
        ({"size": 16_001}, "16,000"),
        ({"size": 500.0}, "500.0"),
        ({"size": True}, "True"),
        ({"overlap": -1}, "`overlap`"),
        ({"overlap": 250}, "249"),
        ({"size": 51, "overlap": 26}, "from 0 to 25"),
        ({"overlap": None}, "None"),
    ],
)
def test_sizes_out_of_range_are_refused_by_name(options, named):
    with pytest.raises(ConfigError, match=named):
        split(Loaded("text"), **options)


@pytest.mark.parametrize(
    "unit", [CHINESE, ENGLISH, "字", "a", "a ", "# a\n", "a:\n\n", "| a | b |\n", "\u0301", "\n", "```\n", "- a\n", "。", "🇩"]
)
def test_time_grows_with_the_length_of_the_text_only(unit):
    def seconds(chars):
        text = unit * (chars // len(unit))
        start = time.process_time()
        split(Loaded(text))
        return time.process_time() - start

    seconds(2000)  # Loads jieba's dictionary.
    # Quadratic time would take 100 times as long for ten times the text.
    assert min(seconds(200_000), seconds(200_000)) < 50 * max(seconds(20_000), 0.005)


def test_a_splitter_of_langchain_gets_its_places():
    splitter = RecursiveCharacterTextSplitter(chunk_size=120, chunk_overlap=30, separators=["\n\n", "\n", "。", " ", ""])
    loaded = Loaded(MIXED, marks=(Mark(0, "手册", 3),))

    chunks = split_with(splitter, loaded)

    assert [chunk.text for chunk in chunks] == [part.strip() for part in splitter.split_text(MIXED) if part.strip()]
    assert all(loaded.text[chunk.start : chunk.end] == chunk.text for chunk in chunks)
    assert all(before.end < chunk.end for before, chunk in pairwise(chunks))
    assert [chunk.chunk_index for chunk in chunks] == [*range(len(chunks))]
    assert {(chunk.section, chunk.page) for chunk in chunks} == {("手册", 3)}


def test_parts_that_repeat_word_for_word_get_places_of_their_own():
    chunks = split_with(
        CharacterTextSplitter(separator="\n\n", chunk_size=10, chunk_overlap=0), Loaded("same text\n\nsame text\n\nsame text")
    )

    assert [chunk.start for chunk in chunks] == [0, 11, 22]


def test_a_splitter_that_changes_the_text_is_refused_without_quoting_it():
    class Shouting:
        def split_text(self, text):
            return [text[:4], text.upper()]

    with pytest.raises(ConfigError, match=r"part 1 of `Shouting`") as refused:
        split_with(Shouting(), Loaded("a private text"))
    assert "private" not in str(refused.value).lower()
