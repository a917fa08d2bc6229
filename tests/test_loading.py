"""Files of every format become text with its title, sections and pages; what can't be read is refused with what to do."""

import io
import logging
import os
import re
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import docx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pypdf import PdfReader, PdfWriter

from crag_middleware.errors import ConfigError, IngestError
from crag_middleware.knowledge.loaders import docx as docx_loader
from crag_middleware.knowledge.loaders import draft
from crag_middleware.knowledge.loading import MAX_FILE_BYTES, SUFFIXES, Loaded, Mark, load
from crag_middleware.knowledge.schema import OPTIONAL_TEXT
from tests.support.pdf import make_pdf

CHINESE = "客户可以在七天内申请退款，定制商品除外。"


@pytest.fixture
def loaded(tmp_path):
    def write_and_load(name, content, **options):
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return load(path, **options)

    return write_and_load


def refusal(loaded, name, content, **options):
    """The reason and the message that a file is refused with."""
    with pytest.raises(IngestError) as refused:
        loaded(name, content, **options)
    assert str(refused.value).startswith(f"{name!r} can't be loaded: ")
    assert refused.value.__suppress_context__
    return refused.value.reason, str(refused.value)


def sections(document):
    return [(document.text[mark.start :].splitlines()[0], mark.section) for mark in document.marks]


def packed(document):
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


def docx_with(body, *, archive=None):
    """A DOCX file with a body of one's own."""
    old = zipfile.ZipFile(io.BytesIO(archive or packed(docx.Document())))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, body if name == "word/document.xml" else old.read(name))
    return stream.getvalue()


def document_xml(body, doctype=""):
    return f'<?xml version="1.0" encoding="UTF-8"?>{doctype}<w:document {nsdecls("w")}><w:body>{body}</w:body></w:document>'


# Text and Markdown


def test_markdown_gives_title_sections_and_when_it_was_written(tmp_path):
    path = tmp_path / "refunds.md"
    path.write_text(f"Intro.\n\n# Refunds #\n\n{CHINESE}\n\n## **Abroad**\n\nNo.\n\n```\n# no heading\n```\n\nFees\n----\nNone.\n\n# End\n")
    os.utime(path, ns=(0, 1_700_000_000_123_000_000))

    document = load(path)

    assert document.title == "Refunds"
    assert sections(document) == [
        ("Intro.", ""),
        ("# Refunds #", "Refunds"),
        ("## **Abroad**", "Refunds > Abroad"),
        ("Fees", "Refunds > Fees"),
        ("# End", "End"),
    ]
    assert (document.media_type, document.modified_ms) == ("text/markdown", 1_700_000_000_123)


def test_front_matter_gives_the_title_and_is_no_text(loaded):
    document = loaded("a.md", "---\ntitle: 'Refund: rules'\ntags:\n  - a\n\n- b\n# note\n---\n# Refunds\ntext")

    assert (document.title, document.text) == ("Refund: rules", "# Refunds\ntext")
    assert loaded("a.md", "---\n\nA rule above, no front matter.\n\n---\n").text.startswith("---")


def test_plain_text_has_chapters(loaded):
    document = loaded("rules.txt", "第一章 总则\n\n第一节 范围\n适用于全体客户。\n\n第二章 退款\n七天之内。")

    assert [mark.section for mark in document.marks] == ["第一章 总则", "第一章 总则 > 第一节 范围", "第二章 退款"]
    assert (document.media_type, loaded("notes.LOG", "no heading").title) == ("text/plain", "notes")


def test_restructured_text_has_headings_by_the_order_of_their_signs(loaded):
    document = loaded(
        "a.rst",
        "=====\nGuide\n=====\n\nSetup\n~~~~~\n\ntext\n\nAPI\n~~~\n\nCall\n^^^^\ntext\n\nUse\n~~~\n\n====  ====\nA     B\n====  ====\n\n..\n",
    )

    assert [mark.section for mark in document.marks] == ["Guide", "Guide > Setup", "Guide > API", "Guide > API > Call", "Guide > Use"]
    assert "====  ====\nA     B\n====  ====" in document.text


def test_a_document_without_headings_is_called_as_its_file_and_has_no_marks(loaded):
    document = loaded("FAQ 2.txt", "just text")

    assert (document.title, document.marks) == ("FAQ 2", ())


def test_line_breaks_are_one_kind_and_what_nobody_sees_is_gone(loaded):
    document = loaded("a.txt", "\ufeffa\r\nb\rc\x0cd\u2028e\x07f\u200bg\xadh 👨\u200d👩 i")

    assert document.text == "a\nb\nc\nd\nefgh 👨\u200d👩 i"


def test_paths_of_sections_and_titles_fit_into_their_fields(loaded):
    document = loaded("a.md", "\n\n".join(f"{'#' * level} {'😀' * 900}" for level in range(1, 7)))

    assert max(len(mark.section.encode()) for mark in document.marks) <= OPTIONAL_TEXT["section"]
    assert len(document.title.encode()) <= OPTIONAL_TEXT["title"]


# Encodings


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32", "gb18030", "gbk"])
def test_chinese_text_is_read_without_being_told_how_it_is_written(loaded, encoding):
    assert loaded("a.txt", CHINESE.encode(encoding)).text == CHINESE


@pytest.mark.parametrize(
    "content",
    [
        pytest.param("Für die Tür, déjà vu".encode("latin-1"), id="latin-1"),
        pytest.param("Привет, это обычный текст".encode("cp1251"), id="cp1251"),
        pytest.param("お客様は七日以内に返金を申請できます。".encode("shift-jis"), id="shift-jis"),
        pytest.param(b"plain \xff\xfe", id="broken"),
    ],
)
def test_text_in_an_unknown_encoding_is_refused_and_not_garbled(loaded, content):
    reason, message = refusal(loaded, "a.txt", content)

    assert reason == "encoding"
    assert "encoding=" in message


def test_a_named_encoding_is_used_and_few_broken_characters_are_replaced(loaded):
    assert loaded("a.txt", "déjà vu".encode("cp1252"), encoding="cp1252").text == "déjà vu"
    assert loaded("a.txt", "客户".encode("utf-16-le"), encoding="utf-16-le").text == "客户"
    assert loaded("a.txt", (CHINESE * 9).encode() + b"\xff", encoding="utf-8").text == CHINESE * 9 + "\ufffd"
    assert refusal(loaded, "a.txt", CHINESE.encode("gbk"), encoding="utf-8")[0] == "encoding"


@pytest.mark.parametrize("encoding", ["klingon", "hex", "utf\0-8", 8])
def test_an_unknown_name_of_an_encoding_is_refused(loaded, encoding):
    with pytest.raises(ConfigError, match="`encoding`"):
        loaded("a.txt", "text", encoding=encoding)


# HTML


PAGE = """<!doctype html><html><head><meta charset="{charset}"><title>退款 &amp;
 Refunds</title><style>p {{}}</style></head><body>
<nav><ul><li>Home</ul></nav><script>alert("private")</script><!-- private -->
<h1>退款规则<a href="#r">¶</a></h1><p>客户可以在七天
内申请<b>退款</b>。<br>New   line</p>loose <i>text</i>
<h2>Abroad</h2><ul><li>One<ul><li>Deep<li>Deeper</ul><li><p>Two</p></ul><ol start=3><li>three<li>four</ol>
<table><caption>Prices</caption><tr><th>Plan<th>Price|USD<tr><td rowspan=2>Basic<td>10<tr><td>20<tr><td colspan=2>all<tr hidden><td>private</table>
<table><tr><td><h3>Layout</h3><p>left<td>right</table>
<pre>  x = 1

  # no heading</pre><p hidden>private</p><div style="display: none">private</div></body></html>"""


@pytest.mark.parametrize(("charset", "encoding"), [("utf-8", "utf-8"), ("gb2312", "gb18030"), ("utf-8", "gb18030"), ("latin-1", "utf-8")])
def test_html_is_what_a_reader_sees(loaded, charset, encoding):
    document = loaded("a.html", PAGE.format(charset=charset).encode(encoding))

    assert document.title == "退款 & Refunds"
    assert document.text.split("\n\n") == [
        "# 退款规则",
        "客户可以在七天内申请退款。\nNew line",
        "loose text",
        "## Abroad",
        "- One\n  - Deep\n  - Deeper\n- Two\n3. three\n4. four",
        "Prices",
        "| Plan | Price\\|USD |\n| --- | --- |\n| Basic | 10 |\n| Basic | 20 |\n| all |  |",
        "### Layout",
        "left",
        "right",
        "```\n  x = 1",
        "  # no heading\n```",
    ]
    assert [mark.section for mark in document.marks] == ["退款规则", "退款规则 > Abroad", "退款规则 > Abroad > Layout"]


def test_html_in_an_old_western_encoding_is_believed_what_it_says(loaded):
    page = '<meta http-equiv="Content-Type" content="text/html; charset=iso-8859-1"><p>“déjà vu”</p>'

    assert loaded("a.htm", page.encode("cp1252")).text == "“déjà vu”"
    assert (
        loaded("a.xhtml", f'<?xml version="1.0" encoding="gbk"?><html><body><p>{CHINESE}</p></body></html>'.encode("gbk")).text == CHINESE
    )


@pytest.mark.parametrize(
    "page",
    [
        pytest.param("<div>" * 10_000 + "end", id="deep"),
        pytest.param("<table><tr><td>" * 4_000 + "end", id="tables"),
        pytest.param("<ul><li>" * 4_000 + "end", id="lists"),
        pytest.param("<b>" * 10_000 + "</i>" * 10_000 + "end", id="unclosed"),
        pytest.param("<!-- x -->" * 20_000 + "<" * 50_000 + " end", id="signs"),
    ],
)
def test_hostile_html_is_read_in_time_and_without_recursion(loaded, page):
    assert loaded("a.html", page).text.endswith("end")


def test_a_table_that_would_grow_without_bound_is_refused(loaded):
    page = "<table><tr>" + f"<td rowspan=65000>{'x' * 500}" * 500 + "<tr><td>y" * 60

    assert refusal(loaded, "a.html", page)[0] == "too_large"


# CSV


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030"])
def test_csv_is_one_record_a_row(loaded, delimiter, encoding):
    rows = ["品名,价格,", '"茶, ""绿"";|\t","10,5\n元",x', ",,", "咖啡,,有货,多", "水,1"]
    content = "\r\n".join(rows).replace(",", "\0").replace("茶\0", "茶,").replace("10\0", "10,").replace("\0", delimiter)

    document = loaded("prices.csv", content.encode(encoding))

    assert document.text.split("\n\n") == [
        '品名: 茶, "绿";|\n价格: 10,5 元\ncolumn 3: x',
        "品名: 咖啡\ncolumn 3: 有货\ncolumn 4: 多",
        "品名: 水\n价格: 1",
    ]
    assert (document.title, document.marks, document.media_type) == ("prices", (), "text/csv")


def test_a_single_column_is_not_cut_at_its_commas(loaded):
    assert loaded("a.csv", "note\nHello, world\nOne, two, three\nFour\nFive\nSix").text.startswith(
        "note: Hello, world\n\nnote: One, two, three"
    )


def test_csv_headings_are_none(loaded):
    document = loaded("a.tsv", "# no\tname\n1\t# x\n")

    assert (document.text, document.marks, document.title) == ("# no: 1\nname: # x", (), "a")


def test_csv_with_a_quote_that_never_ends_is_refused(loaded):
    assert refusal(loaded, "a.csv", 'a,b\n"' + "x\n" * 100_000)[0] == "unreadable"


# DOCX


def test_docx_gives_headings_lists_and_tables(loaded):
    document = docx.Document()
    document.core_properties.title = "Template"
    document.add_heading("退款手册", 0)
    document.add_heading("Refunds", 1)
    document.add_paragraph(CHINESE)
    document.add_heading("Abroad", 2)
    for style, text in [("List Bullet", "a"), ("List Bullet", "b"), ("List Number", "first"), ("List Number", "second")]:
        document.add_paragraph(text, style=style)
    table = document.add_table(3, 3)
    for row in range(3):
        for column in range(3):
            table.cell(row, column).text = f"r{row}c{column}"
    table.cell(1, 0).merge(table.cell(2, 0)).text = "both"
    table.cell(0, 1).merge(table.cell(0, 2)).text = "wide|er"
    document.add_table(1, 1).cell(0, 0).text = "A box."
    paragraph = document.add_paragraph("Line\twith")
    paragraph.add_run("private").font.hidden = True
    paragraph.add_run().add_break()
    paragraph.add_run("break")

    found = loaded("manual.docx", packed(document))

    assert found.text.split("\n\n") == [
        "# 退款手册",
        "# Refunds",
        CHINESE,
        "## Abroad",
        "- a\n- b\n1. first\n2. second",
        "| r0c0 | wide\\|er |  |\n| --- | --- | --- |\n| both | r1c1 | r1c2 |\n| both | r2c1 | r2c2 |",
        "A box.",
        "Line\twith\nbreak",
    ]
    assert found.title == "退款手册"
    assert [mark.section for mark in found.marks] == ["退款手册", "Refunds", "Refunds > Abroad"]


def test_docx_keeps_what_was_inserted_and_drops_what_was_deleted(loaded):
    body = (
        "<w:p><w:r><w:t>kept </w:t></w:r><w:ins><w:r><w:t>new</w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText></w:r></w:del>"
        "<w:moveFrom><w:r><w:t>old</w:t></w:r></w:moveFrom><w:hyperlink><w:r><w:t> link</w:t></w:r></w:hyperlink></w:p>"
        "<w:sdt><w:sdtPr/><w:sdtContent><w:p><w:r><w:t>in a form</w:t></w:r></w:p></w:sdtContent></w:sdt>"
    )

    assert loaded("a.docx", docx_with(document_xml(body))).text == "kept new link\n\nin a form"


def test_docx_headings_are_told_by_their_style_in_any_language_or_their_level(loaded):
    document = docx.Document()
    own = document.styles.add_style("标题样式", 1)
    own.base_style = document.styles["Heading 2"]
    document.add_paragraph("By base", style=own)
    document.add_paragraph("By level")._p.get_or_add_pPr().append(parse_xml(f'<w:outlineLvl {nsdecls("w")} w:val="2"/>'))
    document.add_paragraph("Body")._p.get_or_add_pPr().append(parse_xml(f'<w:outlineLvl {nsdecls("w")} w:val="9"/>'))

    assert loaded("a.docx", packed(document)).text == "## By base\n\n### By level\n\nBody"


def test_docx_is_called_by_its_properties_where_it_has_no_heading(loaded):
    document = docx.Document()
    document.core_properties.title = "Rules"
    document.add_paragraph("text")

    assert loaded("a.docx", packed(document)).title == "Rules"


def test_docx_reads_no_other_file_and_unfolds_no_bomb(loaded, tmp_path):
    (tmp_path / "secret").write_text("private")
    own = f'<!DOCTYPE d [<!ENTITY x SYSTEM "file://{tmp_path}/secret">]>'
    bomb = f'<!DOCTYPE d [<!ENTITY a "{"x" * 99}"><!ENTITY b "{"&a;" * 99}"><!ENTITY c "{"&b;" * 9999}"><!ENTITY d "{"&c;" * 9999}">]>'
    body = "<w:p><w:r><w:t>a&{};b</w:t></w:r></w:p>"

    assert "private" not in loaded("a.docx", docx_with(document_xml(body.format("x"), own))).text
    assert refusal(loaded, "a.docx", docx_with(document_xml(body.format("d"), bomb)))[0] == "unreadable"


def test_docx_that_would_not_fit_into_memory_is_refused_before_it_is_unpacked(loaded):
    bomb = docx_with(document_xml(" " * (docx_loader.MAX_XML_BYTES + 1)))

    reason, message = refusal(loaded, "a.docx", bomb)

    assert len(bomb) < 200_000
    assert reason == "too_large"
    assert f"{docx_loader.MAX_XML_BYTES:,}" in message


def test_an_old_or_protected_word_file_is_told_apart(loaded):
    assert refusal(loaded, "a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\0" * 999)[0] == "encrypted"


# PDF


def test_pdf_gives_pages_title_and_running_text(loaded):
    pages = [
        [
            "Customers may ask for a refund within seven days after they have re-",
            "ceived the goods. A well-known exception are goods made to order, as well-",
            "known brands \ufb01nd. They are never taken back, whatever was said before,",
            "by whom.",
            "Plan Price Days",
            "Basic 10 30",
            "Pro 25 90",
        ],
        [
            "客户可以在收到商品后七天内申请退款，定制商品除外。退款会在三个工作日内到",
            "账。第二\u2f08的说法不算，请联系客服中心，电话见官网，服务时间为每天的早上九",
            "点到晚上六点。",
            "第二章 运费",
            "Shipping is paid by the customer in all cases where the goods were sent",
        ],
        ["back without a reason."],
    ]

    document = loaded("manual.pdf", make_pdf(pages, title="Acme 手册"))

    assert document.text.split("\n") == [
        "Customers may ask for a refund within seven days after they have received the goods. A well-known exception are goods made to order, "
        "as well-known brands find. They are never taken back, whatever was said before, by whom.",
        "Plan Price Days",
        "Basic 10 30",
        "Pro 25 90",
        "客户可以在收到商品后七天内申请退款，定制商品除外。退款会在三个工作日内到账。第二人的说法不算，请联系客服中心，电话见官网，服务时间为每天的早上九点到晚上六点。",
        "第二章 运费",
        "Shipping is paid by the customer in all cases where the goods were sent back without a reason.",
    ]
    assert document.title == "Acme 手册"
    assert [(document.text[mark.start :][:4], mark.section, mark.page) for mark in document.marks] == [
        ("Cust", "", 1),
        ("客户可以", "", 2),
        ("第二章 ", "第二章 运费", 2),
        ("back", "第二章 运费", 3),
    ]


def test_pdf_running_heads_and_page_numbers_are_left_out(loaded):
    pages = [["Acme Handbook", f"Part {i}.", "One.", "Two.", f"Three {7 * i}.", f"Page {i} of 4"] for i in range(1, 5)]

    text = loaded("a.pdf", make_pdf(pages)).text

    assert text.count("Acme Handbook") == 1
    assert "Page" not in text
    assert all(text.count(f"Three {7 * i}.") == 1 for i in range(1, 5))


@pytest.mark.parametrize("title", ["", "untitled", "Microsoft Word - a.doc", "a.indd"])
def test_pdf_without_a_real_title_is_called_as_its_file(loaded, title):
    assert loaded("manual.pdf", make_pdf([["text"]], title=title)).title == "manual"


def test_pdf_of_pictures_only_is_refused(loaded):
    reason, message = refusal(loaded, "scan.pdf", make_pdf([[], []]))

    assert reason == "no_text"
    assert "OCR" in message


def test_pdf_opens_if_it_needs_no_password_and_is_refused_otherwise(loaded):
    def encrypted(password):
        writer = PdfWriter(clone_from=PdfReader(io.BytesIO(make_pdf([["some text"]]))))
        writer.encrypt(password, "owner", algorithm="RC4-128")
        return packed_pdf(writer)

    def packed_pdf(writer):
        stream = io.BytesIO()
        writer.write(stream)
        return stream.getvalue()

    assert loaded("a.pdf", encrypted("")).text == "some text"
    assert refusal(loaded, "a.pdf", encrypted("secret"))[0] == "encrypted"


# What can't be loaded


def test_a_file_that_is_not_there_or_no_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "folder.md").mkdir()

    for name in ("none.md", "folder.md", "pipe.txt", "nul\0.md"):
        with pytest.raises(IngestError) as refused:
            load(tmp_path / name)
        assert refused.value.reason == "missing"
        assert str(tmp_path) not in str(refused.value)


@pytest.mark.parametrize("name", ["a.doc", "a.xlsx", "README", ".md"])
def test_an_unknown_suffix_is_refused_with_those_that_are_known(loaded, name):
    reason, message = refusal(loaded, name, "text")

    assert reason == "unknown_type"
    assert all(suffix in message for suffix in SUFFIXES)


def test_a_binary_file_is_refused_as_text(loaded):
    assert refusal(loaded, "a.txt", b"\x7fELF\x02\0\0")[0] == "binary"
    assert refusal(loaded, "a.csv", "a,b".encode("utf-16-le"))[0] == "binary"


def test_too_large_a_file_or_text_is_refused_with_the_limit(loaded, tmp_path, monkeypatch):
    with (tmp_path / "big.txt").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)

    with pytest.raises(IngestError, match=f"{MAX_FILE_BYTES:,} bytes"):
        load(tmp_path / "big.txt")
    monkeypatch.setattr(draft, "MAX_TEXT_CHARS", 100)
    for name, content in (
        ("a.txt", "x" * 101),
        ("a.html", f"<p>{'x' * 101}"),
        ("a.csv", f"a\n{'x' * 101}"),
        ("a.pdf", make_pdf([["x" * 101]])),
    ):
        assert refusal(loaded, name, content)[0] == "too_large"


@pytest.mark.parametrize(("suffix", "package"), [("html", "bs4"), ("html", "lxml"), ("pdf", "pypdf"), ("docx", "docx")])
def test_a_missing_extra_is_named(loaded, monkeypatch, suffix, package):
    monkeypatch.delitem(sys.modules, f"crag_middleware.knowledge.loaders.{suffix}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(ConfigError, match=r'pip install "crag-middleware\[files\]"') as refused:
        loaded(f"a.{suffix}", "text")
    assert refused.value.reason == "no_files"


VALID = {
    ".pdf": make_pdf([["Some cucumber text", CHINESE], ["Page two"]], title="T"),
    ".docx": docx_with(document_xml("<w:p><w:r><w:t>Some cucumber text</w:t></w:r></w:p>")),
    ".html": PAGE.format(charset="utf-8").encode(),
    ".csv": b'a,"b"\n1,"cucumber\n2"',
    ".rst": b"Title\n~~~~~\ncucumber",
}


@pytest.mark.parametrize("suffix", VALID)
@given(data=st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_file_is_read_or_refused_and_never_quoted(loaded, suffix, data, caplog):
    content = bytearray(VALID[suffix])
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.integers(0, len(content)))
        content[place : place + data.draw(st.integers(0, 40))] = data.draw(st.binary(max_size=8))
    caplog.set_level(logging.DEBUG)

    try:
        document, error = loaded(f"a{suffix}", bytes(content)), None
    except IngestError as refused:
        document, error = Loaded(""), refused

    assert "cucumber" not in f"{error} {caplog.text}"
    assert error is None or error.__cause__ is None
    assert all(before.start < after.start for before, after in pairwise(document.marks))
    assert all(0 <= mark.start <= len(document.text) for mark in document.marks)


def test_marks_begin_with_the_text(loaded):
    assert loaded("a.md", "intro\n# A\n").marks == (Mark(0), Mark(6, "A"))


def test_the_documents_name_every_suffix_reason_and_limit():
    page = (Path(__file__).parent.parent / "docs" / "loading.md").read_text()

    assert all(f"`{suffix}`" in page for suffix in SUFFIXES)
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(re.findall(r"`(\w+)`", load.__doc__.partition("says why:")[2]))
    assert f"{MAX_FILE_BYTES >> 20} MiB, or {draft.MAX_TEXT_CHARS // 10**6} million characters" in page
    assert f"{docx_loader.MAX_XML_BYTES >> 20} MiB of XML or {docx_loader.MAX_UNPACKED_BYTES >> 20} MiB in all" in page


def test_pypdf_logs_nothing_of_a_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broken = tmp_path / "broken.pdf"
    broken.write_bytes(b"hello cucumber words")
    with pytest.raises(IngestError):
        load(broken)
    assert "hello" not in caplog.text
