import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crag_middleware.stages.sentences import MAX_CHARS, MAX_SENTENCE, pieces, split

CODE = "```python\nx = 1. \n\n# Not a heading. Not a sentence.\ny = 2\n```"


def cut(text: str) -> list[str]:
    return [strip.text for strip in split(text)]


@pytest.mark.parametrize(
    "sentences",
    [
        pytest.param(["Dr. Lee paid 2.13 USD on Jan. 5.", "It was late."], id="C076"),
        pytest.param(["Use 10.0.0.1 with v4.0.7.", "Then restart."], id="C078"),
        pytest.param(["He moved from the U.S. to the U.K. in Sept. 2019, i.e. later.", "She stayed."], id="initials of countries"),
        pytest.param(
            ["See Fig. 3, Sec. 4.2, No. 5 and pp. 3-5, e.g. Rev. B, vs. the old one, etc. as said.", "Done."], id="numbered things"
        ),
        pytest.param(["J. K. Rowling wrote it.", "Plan B.", "Then C."], id="initials of people"),
        pytest.param(["Max. 5 users, approx. 3 kg, incl. VAT, at 5 p.m. on Monday.", "OK."], id="measures"),
        pytest.param(["Acme Inc. was founded in 1990.", "It is not Acme Ltd. of London."], id="companies"),
        pytest.param(["The answer is No.", "No. I won't.", "No. 5 is mine."], id="no and No."),
        pytest.param(["It ended at 5 p.m.", "The shop closed."], id="abbreviation before a new sentence"),
        pytest.param(["It costs .5 or 1,000.50 USD.", "Version 3.10 is not 3.1.", "Windows 10.", "It runs."], id="decimals"),
        pytest.param(
            ["Edit pkg.settings.yaml and C:\\a.b\\c.txt.", "Run node.js on acme.test!", "See https://a.test/b.c?d=1.2&e=f."], id="files"
        ),
        pytest.param(
            ['He said "Stop." and left.', '"Why?" she asked.', "(It was late.)", "He said 'no.'", "**Bold.**", "End."], id="closers"
        ),
        pytest.param(["Wait... what?", "OK… fine.", "Well...", "Then go."], id="ellipses"),
        pytest.param(["Really?!", "Yes!!", "It is so.[1][2]", "Next."], id="runs of marks and footnotes"),
        pytest.param(["J. R. R. Tolkien met C. S. Lewis.", "They talked."], id="initials in a row"),
        pytest.param(["See Roe v. Wade, c. 1973, s. 5 and n. 3.", "It was overturned."], id="short abbreviations"),
        pytest.param(
            ["Go to https://a.test/b.c?d=1.2&e=f.", "Mail ana@acme.test.", "Take vitamin C.", "Now add 5 g.", "Stir."], id="last letters"
        ),
        pytest.param(
            ["iPhone sales fell.", "iPad sales rose.", "v2.1 has no maps.", "v2.2 does."], id="small letters that begin a sentence"
        ),
        pytest.param(["It <b>is so.</b>", "<i>Not there.</i>", "Next."], id="tags inside a paragraph"),
        pytest.param(["Great!", "Thanks! 😀"], id="signs after the last stop"),
        pytest.param(["Read [Note. this](http://a.test/b.c) first.", "More."], id="markdown link"),
    ],
)
def test_english_sentences_are_cut_only_between_them(sentences):
    assert cut(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        pytest.param(["支持七天退货。", "定制商品除外！", "要多久？", "三天。", "好。"], id="C081"),
        pytest.param(["他说：“走吧！”", "然后离开。", "“A。”", "“B。”", "（见附录。）", "完。"], id="closing quotes"),
        pytest.param(["他说“好！”，然后走了。", "真的吗？！", "是的。"], id="a quote inside a sentence"),
        pytest.param(["等等……然后他走了。", "价格是3.5元，版本v2.1不变。"], id="ellipsis and decimals"),
        pytest.param(['他说："走吧。"', '然后说："好。"', "完。"], id="straight quotes"),
        pytest.param(["《你好，李焕英！》是一部电影。", "它很卖座。", "他看了《去哪儿？》。"], id="stops inside titles"),
        pytest.param(
            ["本条适用于U.S.A.的客户。", "他来自St. Louis，现居北京。", "用Node.js写成。", "v2.1不支持。", "v2.2支持。"], id="Latin names"
        ),
        pytest.param(["<b>不可退。</b>", "可换。</b>"], id="tags"),
        pytest.param(["重要。", "**注意：不可退。**", "完。"], id="bold"),
        pytest.param(["步骤:1.安装 2.启动", "\n3.完成"], id="inline numbering"),
    ],
)
def test_chinese_sentences_are_cut_only_between_them(sentences):
    assert cut("".join(sentences)) == [sentence.strip() for sentence in sentences]


def test_long_chinese_sentence_is_cut_at_its_semicolons():
    """C081: the same for text with full-width semicolons when long."""
    clauses = [f"第{i}类客户在购买之后的第{i}天之内可以申请无理由退货；" for i in "一二三四五"]

    assert cut("".join(clauses)) == clauses
    assert cut("甲；乙；丙。") == ["甲；乙；丙。"]


def test_technical_tokens_survive_in_mixed_scripts():
    """C079"""
    text = "见 https://docs.acme.test/a.b?x=1。再改 pkg.settings.yaml！Mail ana@acme.test.好的"

    assert cut(text) == ["见 https://docs.acme.test/a.b?x=1。", "再改 pkg.settings.yaml！", "Mail ana@acme.test.", "好的"]


def test_list_items_are_strips_of_their_own():
    """C083"""
    text = "Limits:\n- free: 5 calls\n- pro: 500 calls\n1. Sign in\n2. Pay"

    assert cut(text) == ["Limits:", "- free: 5 calls", "- pro: 500 calls", "1. Sign in", "2. Pay"]
    assert [piece.kind for piece in pieces(text)] == ["prose", "item", "item", "item", "item"]


@pytest.mark.parametrize(
    "line", ["• 一", "（一）总则", "一、总则", "①登录", "3、付款", "第三条 总则", "(2) Pay. Then wait.", "* a. B. c", "b) Go. Now."]
)
def test_each_kind_of_list_mark_starts_a_strip(line):
    assert cut(f"A long line of ordinary prose without any stop at its end\n{line}\n{line}") == [
        "A long line of ordinary prose without any stop at its end",
        line,
        line,
    ]


def test_headings_tables_and_code_are_strips_of_their_own():
    text = f"# 1. Intro\n\nIt is so. And so.\n\n| a | b |\n|---|---|\n| 1. X | No. Yes |\nRun this:\n{CODE}\nDone."

    assert [(piece.kind, text[piece.start : piece.end]) for piece in pieces(text)] == [
        ("heading", "# 1. Intro"),
        ("prose", "It is so."),
        ("prose", "And so."),
        ("row", "| a | b |"),
        ("row", "|---|---|"),
        ("row", "| 1. X | No. Yes |"),
        ("prose", "Run this:"),
        ("code", CODE),
        ("prose", "Done."),
    ]


@pytest.mark.parametrize(
    ("text", "strips"),
    [
        ("Title\n=====\nIt is so.", ["heading: Title\n=====", "prose: It is so."]),
        ("不适用范围\n---\n定制。", ["heading: 不适用范围\n---", "prose: 定制。"]),
        ("It is so.\n---\nNot.", ["prose: It is so.", "rule: ---", "prose: Not."]),
        ("It is so\n\n---\nNot.", ["prose: It is so", "rule: ---", "prose: Not."]),
        ("a|b\n---|---\n1|2\n\nx|y", ["row: a|b", "row: ---|---", "row: 1|2", "prose: x|y"]),
        ("a | b\n--- | :-:\n1 | 2", ["row: a | b", "row: --- | :-:", "row: 1 | 2"]),
        ("第三章 退款\n第3条 不退", ["heading: 第三章 退款", "item: 第3条 不退"]),
    ],
)
def test_underlined_headings_and_tables_without_outer_bars_are_seen(text, strips):
    assert [f"{piece.kind}: {text[piece.start : piece.end]}" for piece in pieces(text)] == strips


@pytest.mark.parametrize(
    ("text", "strips"),
    [
        ("<h2>Refunds</h2><p>It is so. And so.</p>Then", ["heading: <h2>Refunds</h2>", "prose: <p>It is so.", "prose: And so.</p>", "prose: Then"]),
        ("<div>\n<p>The gateway accepts\nfive calls</p>\n</div>\nand", ["prose: <div>\n<p>The gateway accepts\nfive calls</p>\n</div>", "prose: and"]),
        ("<P CLASS='a'>A.<br/>B<br>C</P>", ["prose: <P CLASS='a'>A.<br/>", "prose: B<br>", "prose: C</P>"]),
        ("<ul>\n<li>a. B.</li>\n<li>c</li>\n</ul>", ["item: <ul>\n<li>a. B.</li>", "item: <li>c</li>\n</ul>"]),
        ("<pre>a. B\n\n<p>c</p></pre><p>d</p>", ["code: <pre>a. B\n\n<p>c</p></pre>", "prose: <p>d</p>"]),
        ("<details><summary>More</summary>\n\n## H\n- a\n</details>", ["heading: <details><summary>More</summary>", "heading: ## H", "item: - a\n</details>"]),
        ("```html\n<p>a. B</p>\n```\n<p>c</p>", ["code: ```html\n<p>a. B</p>\n```", "prose: <p>c</p>"]),
        ("5</td></tr><tr><td>6", ["row: 5</td></tr>", "row: <tr><td>6"]),
        ("Use the `<table>` or \"</table>\" tag in a <p> of yours.", ["prose: Use the `<table>` or \"</table>\" tag in a <p> of yours."]),
        ("If a < b and c > d, stop. Go.", ["prose: If a < b and c > d, stop.", "prose: Go."]),
    ],
)  # fmt: skip
def test_tags_are_borders_and_stay_with_what_they_hold(text, strips):
    assert [f"{piece.kind}: {text[piece.start : piece.end]}" for piece in pieces(text)] == strips


def test_longer_fence_holds_a_shorter_one():
    text = "````md\n```\nA. B.\n```\n````"

    assert cut(f"{text}\nC.") == [text, "C."]


def test_unclosed_fence_runs_to_the_end():
    assert cut("Run:\n~~~\nx = 1. y\n\nz\n") == ["Run:", "~~~\nx = 1. y\n\nz"]


def test_wrapped_lines_are_one_sentence():
    wrapped = "The gateway accepts at most five hundred calls\na minute, as of v2.1, and the new limit set by Dr.\nLee is 7."

    assert cut(f"{wrapped}\nNext one.\r\n\r\nand a new paragraph") == [wrapped, "Next one.", "and a new paragraph"]


def test_wrapped_chinese_lines_are_one_sentence():
    assert cut("本网关自第二版起每分钟最多可以接受五百次\n调用，\n超出部分拒绝。\n另起一行") == [
        "本网关自第二版起每分钟最多可以接受五百次\n调用，\n超出部分拒绝。",
        "另起一行",
    ]


def test_short_lines_are_lines_of_their_own():
    assert cut("Name Ana Lee\nRole admin\ntimeout: 30\nretries: 5") == ["Name Ana Lee", "Role admin", "timeout: 30", "retries: 5"]


def test_text_without_stops_is_cut_at_spaces_and_commas():
    for text in ("word " * 500, "词语，" * 500, "1,000 " * 300):
        lengths = [len(strip) for strip in cut(text)]
        assert max(lengths) <= MAX_SENTENCE
        assert min(lengths) >= MAX_CHARS // 2
        assert "".join(cut(text)).replace(" ", "") == text.replace(" ", "")


def test_text_without_any_break_is_cut_hard():
    assert [len(strip) for strip in cut("x" * 1500)] == [400, 400, 400, 300]


def test_long_sentence_with_a_stop_stays_whole():
    sentence = "This does not apply, " + "and so on, " * 45 + "unless damaged."

    assert MAX_CHARS < len(sentence) <= MAX_SENTENCE
    assert cut(sentence) == [sentence]


@given(st.text() | st.text(alphabet="aB1 .。!?！？；,，、:\n\r\t\u3000\"'”“()（）[]*_`~|#->🙂é的"))
@example("\r\n😀\t。\u2028x\x1c.")
@example("```\n")
@example('。"，a." B')
@settings(max_examples=1000, deadline=None)
def test_nothing_is_lost_and_offsets_are_exact(text):
    """C089"""
    position = 0
    for strip in split(text):
        assert text[strip.start : strip.end] == strip.text
        assert strip.text == strip.text.strip() != ""
        assert not text[position : strip.start].strip()
        position = strip.end
    assert not text[position:].strip()


VERSIONS = st.sampled_from(
    ["v2.1", "v4.0.7", "10.0.0.1", "3.10", "release 2024.1", "pkg.settings.yaml", "No. 5", "Dr. Lee", "Jan. 5", "U.S. accounts"]
)
ENGLISH = st.builds(
    "{} {} {} {}{}{}".format,
    st.sampled_from(["The gateway", "Plan B", "Offline mode", "A refund", "Each node", "Acme Inc. in the U.S."]),
    st.sampled_from(["does not support", "never needs", "supports", "is only valid for", "can't replace", "must not exceed"]),
    VERSIONS,
    st.sampled_from(
        ["hot updates of offline maps", "2.5 GB, i.e. 3 %", "approx. 7.5 days", "files such as a.b.txt", "more than 1,000.50 USD"]
    ),
    st.sampled_from(["", " unless damaged", " (see Fig. 3)", ", except on Jan. 5, 2024", " if it costs < 0.5 USD", ' as "No. 1"']),
    st.sampled_from([".", "!", "?", "?!", '."', ".)"]),
)
CHINESE = st.builds(
    "{}{}{}{}{}".format,
    st.sampled_from(["网关", "离线地图", "企业版 v2.1 ", "该订单", "见 https://a.test/b.c?d=1 ，它", "文件 pkg.settings.yaml "]),
    st.sampled_from(["不支持", "从不需要", "仅限", "支持", "不得超过"]),
    st.sampled_from(
        ["v4.0.7 的热更新", "3.5 元", "10.0.0.1 以外的地址", "七天，即 2024-01-05 之前", "1,000.50 美元", "（见图 3.2）的情况"]
    ),
    st.sampled_from(["", "，除非已损坏", "，定制商品除外", "，如“第3.1条”所述"]),
    st.sampled_from(["。", "！", "？", "？！", "。）", "。”"]),
)


@given(st.lists(ENGLISH, min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_generated_english_sentences_are_never_cut(sentences):
    assert cut(" ".join(sentences)) == sentences


@given(st.lists(CHINESE, min_size=1, max_size=6))
@settings(max_examples=300, deadline=None)
def test_generated_chinese_sentences_are_never_cut(sentences):
    assert cut("".join(sentences)) == sentences


@given(st.lists(st.tuples(ENGLISH, CHINESE), min_size=1, max_size=4))
@settings(max_examples=200, deadline=None)
def test_generated_mixed_sentences_are_never_cut(pairs):
    assert cut("".join(f"{english} {chinese}\n" for english, chinese in pairs)) == [sentence for pair in pairs for sentence in pair]


@pytest.mark.parametrize(
    "unit",
    [
        ".",
        ". ",
        "[",
        '"',
        "“a. ",
        '"a。"，',
        "a",
        "a\n",
        "|\n",
        "- \n",
        "```\n",
        "；",
        "a；",
        "。",
        "[1]",
        ".[1]",
        "Dr. ",
        "*",
        " ",
        "\n",
        "~",
        "1,000",
        *("<", "<td>", "<tr>", "<tr>a", "<tr\n", "<p ", "<p>a.</p>", "</p>", "</tr>a", "<pre>", "<ul><li>a", "a<br>", "</", "a。</b>"),
        *(
            "a | b\n",
            "a|b\n",
            "|",
            "a|",
            "--- | ---\n",
            "---\n",
            "Title\n===\n",
            "# a\n",
            "a:\n",
            "x,\n",
            "`",
            "```a`\n",
            "~~~\n",
            "《a！》",
            "?!",
        ),
    ],
)
def test_no_input_takes_more_than_linear_time(unit):
    """100,000 characters of anything take well under a second; anything quadratic takes minutes."""
    text = "x" + unit * (100_000 // len(unit)) + "x"

    started = time.perf_counter()
    split(text)

    assert time.perf_counter() - started < 5


@pytest.mark.parametrize(
    "unit",
    [
        "The exporter of build 7 listens on port 9100 unless Dr. Lee says otherwise, e.g. in v2.1. ",
        "第7版导出器默认监听9100端口，除非启动参数另有规定；运行它不需要权限。",
        "| The exporter of build 7 | 9100 | unless Dr. Lee says otherwise |\n",
        "<tr><td class='a'>The exporter of build 7</td><td>9100</td></tr>\n",
        "- The exporter of build 7 listens on port 9100\n",
    ],
)
def test_a_million_characters_take_less_than_a_second(unit):
    text = unit * (1_000_000 // len(unit))

    started = time.process_time()
    split(text)

    assert time.process_time() - started < 1
