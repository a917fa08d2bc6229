"""What must come along with a strip comes along, in its unit, and little else does."""

import time
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crag_middleware.stages.company import MAX_BACK, MAX_OPENED, Page
from crag_middleware.stages.refine import WordRefiner
from crag_middleware.types import Passage


def company(text, *chosen):
    """What is kept when these strips are picked, by the first words of each."""
    page = Page.of(text)
    picked = [next(i for i, strip in enumerate(page.strips) if start in strip) for start in chosen]
    return page.complete(picked, [0.0] * len(page.strips))


def texts(strips):
    return [strip.text for strip in strips]


def refined(question, text):
    return WordRefiner(max_strips=1).refine(question, [Passage(id="p", text=text)])[0]


SUBJECTS = {"en": ["The gateway", "v2.1", "Offline mode", "Plan B of Acme Inc."], "zh": ["网关", "v2.1 ", "离线模式", "企业版"]}
CLAIMS = {
    "en": [
        "does not support hot updates of offline maps",
        "never sends more than 1,000.5 kB",
        "must not exceed 38.5 °C",
        "ends on Jan. 5, 2024",
    ],
    "zh": ["不支持离线地图的热更新", "从不发送超过 1,000.5 kB 的数据", "不得超过 38.5 ℃", "于 2024 年 1 月 5 日到期"],
}
CONDITIONS = {
    "en": ["", " unless the card is foreign", ", except on No. 5 and pp. 3-5", " if it costs < 0.5 USD", " as of v4.0.7 on 10.0.0.1"],
    "zh": ["", "，除非为境外卡", "，定制商品除外", "，如果低于 0.5 元", "，自 v4.0.7 起（10.0.0.1 除外）"],
}
STOPS = {"en": [".", "!", ' ("No. 1").'], "zh": ["。", "！", "（见第3.1条）。"]}
FILLERS = {"en": ["Cats are nice.", "We met in Lima."], "zh": ["猫很可爱。", "我们在利马见过面。"]}
GLUE = {"en": " ", "zh": ""}


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_no_sentence_is_ever_kept_in_part(lang):
    """Negations, numbers, units, versions, dates, exceptions and conditions stay with the sentence they govern; hundreds of sentences."""
    sentences = [
        f"{subject}{GLUE[lang]}{claim}{condition}{stop}"
        for subject, claim, condition, stop in product(SUBJECTS[lang], CLAIMS[lang], CONDITIONS[lang], STOPS[lang])
    ]
    before, after = FILLERS[lang]

    for sentence in sentences:
        kept = refined(sentence, GLUE[lang].join((before, sentence, after)))

        assert texts(kept) == [sentence]
        assert kept[0].why == "chosen"


CHOSEN_WITH = [
    pytest.param(["If the seal is broken.", "Then no refund is paid."], "\n", id="condition on a line of its own"),
    pytest.param(["If the seal is broken,", "no refund is paid."], "\n\n", id="condition in a paragraph of its own"),
    pytest.param(["If the seal is broken:", "no refund is paid."], "\n\n", id="condition with a colon"),
    pytest.param(["如果封条破损。", "则不予退款。"], "\n", id="condition zh"),
    pytest.param(["如果封条破损，", "款项不予退还。"], "\n\n", id="condition in a paragraph of its own zh"),
    pytest.param(["Can I return gift cards?", "No."], "\n", id="question and answer"),
    pytest.param(["礼品卡可以退吗？", "不可以。"], "\n", id="question and answer zh"),
    pytest.param(["The following are excluded:", "Gift cards", "Software"], "\n", id="list without marks"),
]


@pytest.mark.parametrize(("strips", "glue"), CHOSEN_WITH)
def test_what_means_nothing_apart_comes_together(strips, glue):
    text = f"Cats are nice.\n\n{glue.join(strips)}\n\nDogs are nice."

    for strip in strips:
        kept = company(text, strip)
        assert {strips[0], strip} <= set(texts(kept)) <= set(strips)
        assert len({s.unit for s in kept}) == 1
    assert texts(company(text, strips[0]))[:2] == strips[:2]


CONNECTIVES = [
    *(
        "It",
        "They",
        "This",
        "However,",
        "But",
        "In this case,",
        "Therefore,",
        "Moreover,",
        "Otherwise,",
        "Then",
        "In contrast,",
        "As a result,",
    ),
    *("该", "其", "它", "这", "此", "此外，", "但", "然而，", "因此，", "否则，", "同时，", "上述", "前者", "随后，", "次年，", "反之，"),
]


@pytest.mark.parametrize("start", CONNECTIVES)
@pytest.mark.parametrize("wrap", ["{}", "“{}”", "**{}**", "<p>{}</p>", "({})"])
def test_sentence_that_leans_brings_the_one_before(start, wrap):
    before, leaning = (
        ("The office opened in Lima.", f"{start} staff of 40.") if start.isascii() else ("利马分部成立。", f"{start}有员工40名。")
    )
    glue = "" if wrap.startswith("<") else " "

    kept = company(glue.join(wrap.format(s) for s in ("Cats are nice.", before, leaning)), leaning[-8:-1])

    assert [s.why for s in kept] == ["context", "chosen"]
    assert before in kept[0].text
    assert kept[0].unit == kept[1].unit


@pytest.mark.parametrize("start", ["Italy", "Others", "Butter", "Thus far no", "其他", "其它", "一般"])
def test_sentence_that_stands_alone_brings_nothing(start):
    text = f"Cats are nice. {start} staff." if start.isascii() else f"猫很可爱。{start}员工。"

    assert len(company(text, start)) == (2 if start.startswith("Thus") else 1)


CLAUSES = [
    "企业版客户在二〇二四年之内的全部订单享受九折优惠；",
    "配送费用一律由本公司承担且不限次数；",
    "安装服务自签收之日起七日之内完成；",
    "逾期未完成的，按日支付百分之一的违约金；",
]


def test_clause_of_a_long_sentence_brings_the_first_one_and_the_last_that_takes_back():
    text = "猫。" + "".join(CLAUSES) + "定制商品除外。狗。"

    kept = company(text, CLAUSES[2])

    assert [(s.text, s.why) for s in kept] == [(CLAUSES[0], "context"), (CLAUSES[2], "chosen"), ("定制商品除外。", "limits")]
    assert len({s.unit for s in kept}) == 1


def test_condition_and_consequence_of_a_long_sentence_stay_together():
    condition, consequence = "如果订单在二〇二四年一月五日之前已经由本公司的仓库发出并且客户已经签收；", "则不予退款；"
    text = f"{condition}{consequence}运费由客户承担，金额按照官网公布的标准计算；剩余部分另行结算，最迟于次月底之前支付。"

    for start in (condition, consequence):
        assert {condition, consequence} <= set(texts(company(text, start)))


TABLES = {
    "markdown": ["| plan | price |\n", "|---|---|\n", "| free | 0 |\n", "| pro | 5 |\n"],
    "without bars": ["plan | price\n", "--- | ---\n", "free | 0\n", "pro | 5\n"],
    "without bars and spaces": ["plan|price\n", "---|---\n", "free|0\n", "pro|5\n"],
    "psql": ["plan | price\n", "-----+------\n", "free | 0\n", "pro | 5\n"],
    "grid": ["+-----+\n", "| plan | price |\n", "+=====+\n", "| free | 0 |\n", "| pro | 5 |\n"],
    "tabs": ["plan\tprice\n", "free\t0\n", "pro\t5\n"],
    "html": [
        "<table><tr><th>plan</th><th>price</th></tr>",
        "<tr><td>free</td><td>0</td></tr>",
        "<tr><td>pro</td><td>5</td></tr></table>",
    ],
    "html over lines": [
        '<table class="x">\n <thead>\n  <tr>\n   <th>plan</th>\n   <th>price</th>\n  </tr>\n </thead>\n',
        "<tbody>\n  <tr>\n   <td>free</td>\n   <td>0. Always.</td>\n  </tr>\n",
        "<TR>\n   <TD>pro</TD>\n   <TD>5</TD>\n  </TR>\n </tbody>\n</table>\n",
    ],
    "html, cut off": ["<table><tr><td>plan</td><td>price</td></tr>", "<tr><td>free</td><td>0</td></tr>", "<tr><td>pro</td><td>5"],
}


@pytest.mark.parametrize("name", TABLES)
def test_table_is_split_by_row_and_a_row_brings_the_header(name):
    rows = TABLES[name]
    text = "Cats are nice.\n\n" + "".join(rows)
    header = [row.strip() for row in rows if "plan" in row or set(row) <= set("|-+= \n")][name == "grid" :]

    kept = company(text, "pro")

    assert texts(Page.of(text).complete(range(len(rows) + 1), [0.0] * (len(rows) + 1)))[1:] == [row.strip() for row in rows]
    assert texts(kept) == [*header, rows[-1].strip()]
    assert [s.why for s in kept] == [*["context"] * len(header), "chosen"]
    assert len({s.unit for s in kept}) == 1


def test_each_row_brings_the_header_of_its_own_table():
    text = "| plan | price |\n|---|---|\n| pro | 5 |\n\n| city | staff |\n|---|---|\n| Lima | 40 |\n"
    html = "<table><tr><th>plan</th></tr><tr><td>pro</td></tr></table><table><tr><th>city</th></tr><tr><td>Lima</td></tr></table>"

    assert texts(company(text, "Lima")) == ["| city | staff |", "|---|---|", "| Lima | 40 |"]
    assert texts(company(html, "Lima")) == ["<table><tr><th>city</th></tr>", "<tr><td>Lima</td></tr></table>"]


def test_row_brings_caption_header_rows_and_the_header_in_mid_table():
    rows = [
        "<table><caption>Prices outside the EU</caption>",
        "<tr><th>plan</th><th>price</th></tr>",
        "<tr><th></th><th>USD</th></tr>",
        "<tr><th>free</th><td>0</td></tr>",
        "<tr><th>From 2024 on</th></tr>",
        "<tr><th>pro</th><td>5</td></tr></table>",
    ]

    assert texts(company("".join(rows), "pro")) == [*rows[:3], *rows[4:]]
    assert texts(company("".join(rows), "free")) == rows[:4]


def test_long_row_cut_into_parts_keeps_its_head_and_header():
    row = "| pro | " + "It has all there is to have. " * 20 + "It costs 5 USD. |"

    kept = texts(company(f"| plan | text |\n|---|---|\n{row}\n", "5 USD"))

    assert kept[:2] == ["| plan | text |", "|---|---|"]
    assert kept[2].startswith("| pro |")
    assert kept[-1] == "It costs 5 USD. |"


@pytest.mark.parametrize("note", ["Except in Peru.", "Note: this does not include VAT.", "*Not available in Peru.", "注：以上价格不含税。"])
@pytest.mark.parametrize("group", ["| plan | price |\n|---|---|\n| pro | 5 |\n| max | 9 |", "Plans:\n- pro: 5\n- mid: 7\n- max: 9"])
def test_note_under_a_table_or_list_comes_with_each_of_its_rows(group, note):
    kept = company(f"{group}\n\n{note}\n", "pro")

    assert (kept[-1].text, kept[-1].why) == (note, "limits")
    assert len({s.unit for s in kept}) == 1
    assert not any("max" in s.text for s in kept)


LISTS = {
    "markdown": (["Not refundable:", "- gift cards", "- software", "- food"], "\n"),
    "after an empty line": (["The following are excluded.", "\n- gift cards", "- software", "- food"], "\n"),
    "under a heading": (["## Not refundable", "\n- gift cards", "- software", "- food"], "\n"),
    "numbered": (["不支持退货的商品：", "1. 定制", "2. 软件", "3. food"], "\n"),
    "html": (["<p>Not refundable:</p>", "<ul><li>gift cards</li>", "<li>software</li>", "<li>food</li></ul>"], ""),
    "html over lines": (["<h2>Not refundable</h2>", "<ol>\n <li>gift cards</li>", "<li>software</li>", "<li>\nfood</li>\n</ol>"], "\n"),
}


@pytest.mark.parametrize("name", LISTS)
def test_list_item_brings_its_lead_in_and_the_lead_in_its_items(name):
    lines, glue = LISTS[name]
    strips = [line.strip() for line in lines]
    text = f"Cats are nice.\n\n{glue.join(lines)}\n\nDogs."

    assert texts(company(text, "food")) == [strips[0], strips[-1]]
    assert texts(company(text, strips[0])) == strips


@pytest.mark.parametrize(
    ("text", "chosen", "strips"),
    [
        ("<ul><li>Free:<ul><li>5</li></ul></li><li>Pro:<ul><li>9</li><li>mail</li></ul></li></ul>", "mail", ["<li>Pro:", "<li>mail</li></ul></li></ul>"]),
        ("<dl><dt>Excluded</dt><dd>food</dd><dt>Included</dt><dd>mail</dd></dl>", "mail", ["<dt>Included</dt>", "<dd>mail</dd></dl>"]),
        ("三、不予退货的情形\n（一）食品\n（二）软件\n四、其他\n（一）邮件", "软件", ["三、不予退货的情形", "（二）软件"]),
        ("1. Excluded\n- food\n- software\n2. Included\n- mail", "mail", ["2. Included", "- mail"]),
        ("Steps:\n1. Stop.\n```\nx\n```\n2. Start.", "Start", ["Steps:", "2. Start."]),
        ("A:\n- b:\n  - c:\n    - d:\n      - e", "e", ["A:", "- b:", "- c:", "- d:", "- e"]),
    ],
)  # fmt: skip
def test_item_brings_the_items_it_is_nested_in(text, chosen, strips):
    assert texts(company(text, chosen)) == strips


@pytest.mark.parametrize("heading", ["## Not covered", "Until v2.1\n==========", "<h2>Exclusions</h2>", "## 不适用范围", "第三章 例外"])
def test_heading_that_changes_what_is_said_comes_with_each_sentence_under_it(heading):
    text = f"# Guide\n\nCats are nice.\n\n{heading}\n\nHot updates. Offline maps. Mail support.\n\n# Covered\n\nPhone support."

    assert texts(company(text, "Mail")) == [heading, "Mail support."]
    assert texts(company(text, "Phone")) == ["# Covered", "Phone support."]


def test_plain_heading_comes_with_what_stands_right_under_it():
    text = "## 3. Refunds\n\nThey take 7 days. Cats are nice. Dogs are nice."

    assert texts(company(text, "7 days")) == ["## 3. Refunds", "They take 7 days."]
    assert texts(company(text, "Dogs")) == ["Dogs are nice."]


@pytest.mark.parametrize("last", ["Gift cards are excluded.", "But gift cards are not.", "礼品卡除外。"])
def test_limit_shares_the_unit_of_its_rule_even_if_it_was_chosen_itself(last):
    kept = company(f"Refunds are available. {last} Cats are nice.", "Refunds", last)

    assert [s.why for s in kept] == ["chosen", "chosen"]
    assert kept[0].unit == kept[1].unit


def test_strips_that_need_nothing_of_each_other_are_units_of_their_own():
    kept = company("Refunds take 7 days. Cats are nice. Dogs bark.", "Refunds", "Dogs")

    assert len({s.unit for s in kept}) == 2


PARTS = st.sampled_from(
    [
        *(
            "Refunds take 7 days. ",
            "It is so. ",
            "However, not in Peru. ",
            "Gift cards are excluded. ",
            "If so. ",
            "Then it ends. ",
            "Really? ",
            "No. ",
        ),
        *("支持退货。", "该规定有效。", "定制商品除外。", "如果破损，", "则不退。", "但软件不退。", "Which:\n", "如下：\n", "\n\n", "\n"),
        *(
            "- item one\n",
            "  - not two\n",
            "1. first\n",
            "（一）甲\n",
            "一、乙\n",
            "# Not H\n",
            "## H\n",
            "Title\n===\n",
            "| a | b |\n",
            "|---|---|\n",
        ),
        *(
            "<table>",
            "<tr><th>h</th></tr>",
            "<tr><td>1</td></tr>",
            "</table>",
            "<ul>",
            "<li>x</li>",
            "</ul>",
            "<p>Unless y.</p>",
            "```\nx\n```\n",
        ),
        "甲乙丙丁戊己庚辛壬癸甲乙丙丁戊己庚辛；" * 5 + "。",
    ]
)


@given(st.lists(PARTS, min_size=1, max_size=25).map("".join), st.data())
@settings(max_examples=300, deadline=None)
def test_units_hold_together_all_that_came_along(text, data):
    page = Page.of(text)
    numbers = range(len(page.strips))
    picked = data.draw(st.lists(st.sampled_from(numbers), unique=True)) if page.strips else []
    akin = data.draw(st.frozensets(st.sampled_from(numbers))) if page.strips else ()

    kept = page.complete(picked, [0.0] * len(page.strips), akin=akin)

    units = {
        page.strips.index(s.text) if page.strips.count(s.text) == 1 else [p.start for p in page.pieces].index(s.start): s for s in kept
    }
    assert list(units) == sorted(units)
    assert {i for i, s in units.items() if s.why == "chosen"} == set(picked)
    for i in picked:
        assert all(units[j].unit == units[i].unit for j in page.leaned_on(i))
    for unit in {s.unit for s in kept}:
        whys = [s.why for s in kept if s.unit == unit]
        assert "chosen" in whys
        assert unit == min(i for i, s in units.items() if s.unit == unit)
    for i, s in units.items():
        if s.why == "limits":
            assert any(j < i and other.unit == s.unit for j, other in units.items())


@pytest.mark.parametrize(
    ("unit", "most"),
    [
        ("It is so. ", MAX_BACK + 1),
        ("This does not apply. ", MAX_BACK + 1 + MAX_OPENED),
        ("Really? ", MAX_BACK + 2),
        ("a:\n", 40),
        ("<ul><li>a", 40),
        ("# Not this\n", MAX_OPENED + 12),
        ("Cats are nice. ", 1),
        ("word " * 200 + "\n\n", MAX_BACK + 3),
        ("如果甲；则乙乙乙乙；", 4),
    ],
)
def test_company_stays_small_whatever_the_page(unit, most):
    page = Page.of(unit * 500)
    middle = len(page.strips) // 2

    assert len(page.complete([middle], [0.0] * len(page.strips))) <= most


LONG = 20_000
PAGES = {
    "markdown table": "| plan | price |\n|---|---|\n" + "| p | 1 |\n" * LONG,
    "html table": "<table><tr><th>a</th></tr>" + "<tr><td>1</td></tr>" * LONG,
    "header rows": "<table>" + "<tr><th>1</th></tr>" * LONG,
    "list": "Limits:\n" + "- item\n" * LONG,
    "list with old line ends": "Limits:\r" + "- item\r" * LONG,
    "nested list": "<ul><li>a" * LONG,
    "styles": "".join(f"第{'一' * (n % 6 + 1)}条 a\n{chr(97 + n % 26)}) b\n" for n in range(LONG // 2)),
    "headings": "".join(f"{'#' * (n % 6 + 1)} Not v{n}.1\n" for n in range(LONG)),
    "clauses": "如果甲；则乙乙乙乙；" * (LONG // 2),
    "exceptions": "Not for x unless y. " * LONG,
    "colons": "a:\n" * LONG,
    "pronouns": "It is so. " * LONG,
}


@pytest.mark.parametrize("name", PAGES)
def test_long_page_with_hundreds_of_picks_takes_linear_time(name):
    """Well under half a second each; anything quadratic takes minutes."""
    started = time.process_time()
    page = Page.of(PAGES[name])
    page.complete(range(0, len(page.strips), max(1, len(page.strips) // 400)), [1.0] * len(page.strips))

    assert time.process_time() - started < 3
