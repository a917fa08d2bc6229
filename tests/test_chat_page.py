"""The chat page in a real browser, against the service on a real socket.

Needs Playwright and a Chromium; `CHROMIUM` names another one than /usr/bin/chromium.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crag_middleware import LocalEmbeddings, TavilyWebSearch
from tests.support.chat_service import AURORA, BOREALIS, TALE, Served, serving

# isort: split
from demo import open_documents
from web_server import start_web_server

pytestmark = pytest.mark.slow
sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
Page, expect = sync_api.Page, sync_api.expect
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
REFUND = "How many days do I have to return an order for a refund?"
HOSTILE = "<img src=x onerror=\"window.hit='{0}'\"><script>window.hit='{0}'</script><svg onload=\"window.hit='{0}'\">"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder, embeddings = tmp_path_factory.mktemp("page"), LocalEmbeddings()
    knowledge, _ = open_documents(embeddings, folder)
    knowledge.add_texts(
        [f"The gate code of the east yard is 4711. {HOSTILE.format('text')} Ask the porter for the gate code of the east yard."],
        [
            {
                "title": f"Yard {HOSTILE.format('title')}",
                "source": f"yard/{HOSTILE.format('source')[:60]}",
                "url": "javascript:window.hit='url'",
            }
        ],
        agent_id="aurora",
    )
    with start_web_server() as web:
        search = TavilyWebSearch(max_results=3, api_key="page", api_base_url=web)
        with serving(knowledge, embeddings, folder, web=search) as running:
            yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if not Path(CHROMIUM).exists():
        pytest.skip(f"no Chromium at {CHROMIUM}")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(served: Served, browser: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page, signed in as both tenants; nothing may be requested from elsewhere, raise an error or break the policy."""
    options = getattr(request, "param", {})
    context = browser.new_context(**{"locale": "en-GB", "viewport": {"width": 1280, "height": 820}} | options)
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(f"{error}"))
    page.on(
        "console",
        lambda message: wrong.append(message.text) if message.type == "error" and not message.text.startswith("Failed to load") else None,
    )
    page.on("request", lambda asked: wrong.append(asked.url) if not asked.url.startswith(served.url) else None)
    page.goto(f"{served.url}/#token={AURORA}&token={BOREALIS}")
    page.locator(".welcome h2").wait_for()
    expect(page.locator("#tenant option:checked")).to_have_text("Aurora Bikes")
    yield page
    context.close()
    assert not wrong


def ask(page: Any, question: str) -> Any:
    """Asks, and gives the turn once it is complete."""
    turns = page.locator(".turn").count()
    page.locator("#question").fill(question)
    page.locator("#question").press("Enter")
    turn = page.locator(".turn").nth(turns)
    expect(turn.locator(".badge")).to_be_visible(timeout=30_000)
    return turn


def test_an_answer_streams_and_its_citation_opens_the_cited_sentence_in_its_passage(page: Any) -> None:
    turn = ask(page, REFUND)

    expect(turn.locator(".text")).to_contain_text("You have 30 days to return an order for a full refund")
    expect(turn.locator(".badge")).to_contain_text("From your documents")
    expect(turn.locator(".badge")).to_contain_text("3 of 3 statements supported")
    citation = turn.locator(".text .cite")
    assert citation.get_attribute("aria-label") == "Source 1: Returns and refunds"
    citation.click()
    expect(page.locator("#panel-title")).to_be_focused()
    expect(page.locator("#panel")).to_contain_text("aurora/returns.md")
    assert "You have 30 days to return an order" in " ".join(page.locator("blockquote .cited").all_inner_texts())
    expect(page.locator("blockquote .given").first).to_contain_text("Refunds go to the original payment method")
    page.keyboard.press("Escape")
    expect(citation).to_be_focused()
    expect(page.locator("#panel")).to_be_hidden()


def test_tokens_are_shown_as_they_come_and_a_turn_can_be_stopped(page: Any, served: Served) -> None:
    page.locator("#question").fill(f"With patience: {REFUND}")
    page.locator("#question").press("Enter")
    expect(page.locator(".turn .text")).to_contain_text("well well well")
    expect(page.locator(".turn .answer")).to_have_attribute("aria-busy", "true")
    page.locator("#stop").click()

    expect(page.locator(".turn .error")).to_have_text("Stopped.")
    expect(page.locator("#ask")).to_be_visible()
    expect(ask(page, REFUND).locator(".text")).to_contain_text("30 days")


def test_the_timeline_tells_what_was_found_left_out_sent_and_checked(page: Any) -> None:
    ask(page, "Which planet has the most moons?").locator(".badge").click()

    timeline = page.locator(".timeline")
    expect(timeline).to_contain_text("5 passages looked at")
    expect(timeline).to_contain_text("Left out: does not answer")
    expect(timeline).to_contain_text("Sent: “Which planet has the most moons?”")
    expect(timeline).to_contain_text("TavilyWebSearch: 1 results")
    expect(timeline).to_contain_text("supported by [1]")
    assert page.locator(".timeline .bar").count() >= 3
    page.locator("#close").click()
    page.locator(".turn .note").click()
    assert page.locator("#panel a").get_attribute("href") == "https://skywatch.example/moons"
    assert page.locator("#panel a").get_attribute("rel") == "noopener noreferrer"


def test_what_no_source_supports_is_marked_in_the_answer_and_told_in_the_timeline(page: Any) -> None:
    turn = ask(page, f"Tell a tale: {REFUND}")

    expect(turn.locator(".doubt")).to_contain_text(TALE)
    expect(turn.locator(".doubt")).to_contain_text("(Not supported by the sources)")
    expect(turn.locator(".badge")).to_contain_text("3 of 4 statements supported")
    turn.locator(".badge").click()
    expect(page.locator(".timeline li", has_text=TALE).last).to_contain_text("not in the sources")


def test_a_document_can_be_uploaded_asked_about_and_deleted(page: Any) -> None:
    page.locator("#documents").click()
    page.locator("#files").set_input_files(
        {"name": "头盔 helmets.md", "mimeType": "text/markdown", "buffer": b"# Helmets\n\nThe Zephyr helmet weighs 260 grams."}
    )
    expect(page.locator(".told")).to_have_text("头盔 helmets.md is ready (chunks: 1).", timeout=30_000)
    expect(page.locator(".documents")).to_contain_text("头盔 helmets.md")
    page.locator("#close").click()

    expect(ask(page, "How much does the Zephyr helmet weigh?").locator(".text")).to_contain_text("260 grams")

    page.on("dialog", lambda dialog: dialog.accept())
    page.locator("#documents").click()
    page.get_by_role("button", name="Delete 头盔 helmets.md").click()
    expect(page.locator(".told")).to_have_text("头盔 helmets.md was deleted.")
    expect(page.locator(".documents")).not_to_contain_text("helmets.md")


def test_what_can_not_be_uploaded_is_told_in_words(page: Any) -> None:
    page.locator("#documents").click()
    for name, content, words in (
        ("tool.exe", b"MZ", "Files of this type can't be read"),
        ("empty.md", b"", "This file is empty."),
        ("broken.pdf", b"%PDF nothing", "broken.pdf: "),
        ("big.txt", b"a" * (5 * 2**20 + 1), "larger than 5 MB"),
    ):
        page.locator("#files").set_input_files({"name": name, "mimeType": "text/plain", "buffer": content})
        expect(page.locator(".told.bad")).to_contain_text(words, timeout=30_000)


def test_after_a_switch_nothing_of_the_first_tenant_is_left(page: Any) -> None:
    ask(page, REFUND).locator(".text .cite").click()
    page.locator("#question").fill("half a question about Aurora's secrets")
    page.locator("#tenant").select_option(label="Borealis Coffee")

    expect(page.locator("#panel")).to_be_hidden()
    expect(page.locator(".welcome")).to_contain_text("Borealis Coffee")
    assert "30 days" not in page.content()
    assert page.locator("#question").input_value() == ""
    expect(ask(page, REFUND).locator(".text")).to_contain_text("14 days")
    page.locator("#documents").click()
    expect(page.locator(".documents")).to_contain_text("borealis/refunds.md")
    assert "aurora/" not in page.content()


def test_a_switch_in_the_middle_of_an_answer_stops_it_and_shows_nothing_of_it(page: Any, served: Served) -> None:
    page.locator("#question").fill(f"With patience: {REFUND}")
    page.locator("#question").press("Enter")
    expect(page.locator(".turn .text")).to_contain_text("well well")
    page.locator("#tenant").select_option(label="Borealis Coffee")

    expect(page.locator(".welcome")).to_contain_text("Borealis Coffee")
    page.wait_for_timeout(400)
    assert page.locator(".turn").count() == 0
    expect(ask(page, REFUND).locator(".text")).to_contain_text("14 days")
    assert page.locator(".turn").count() == 1


def test_text_of_documents_titles_addresses_questions_and_answers_is_never_markup(page: Any) -> None:
    for question in ("What is the gate code of the east yard?", f"What is the gate code of the east yard? {HOSTILE.format('question')}"):
        turn = ask(page, question)
        expect(turn.locator(".text")).to_contain_text("4711")
        expect(turn.locator(".text")).to_contain_text("<script>")
        turn.locator(".note").first.click()
        expect(page.locator("#panel h3")).to_contain_text("<img src=x")
        expect(page.locator("#panel")).to_contain_text("javascript:window.hit")
        assert page.locator("#panel a").count() == 0
        turn.locator(".badge").click()
        expect(page.locator(".timeline")).to_contain_text("<img src=x")
        page.locator("#documents").click()
        expect(page.locator(".documents")).to_contain_text("<img src=x")

    assert page.evaluate(
        "[window.hit, document.querySelectorAll('main img, aside img, main script, aside script, main svg, aside svg').length]"
    ) == [None, 0]


def test_a_hostile_upload_is_text_wherever_it_shows(page: Any) -> None:
    page.locator("#documents").click()
    content = f"# Lamp {HOSTILE.format('heading')}\n\nThe lamp of pier nine blinks {HOSTILE.format('upload')} twice.\n".encode()
    page.locator("#files").set_input_files({"name": "lamp 'onerror=alert(1)'.md", "mimeType": "text/markdown", "buffer": content})
    expect(page.locator(".told")).to_contain_text("is ready", timeout=30_000)
    page.locator("#close").click()

    expect(ask(page, "How does the lamp of pier nine blink?").locator(".text")).to_contain_text("lamp of pier nine")

    assert page.evaluate("window.hit") is None


def test_the_browser_itself_refuses_markup_from_text_scripts_and_other_places(served: Served, browser: Any) -> None:
    page = browser.new_page()
    page.goto(served.url)

    refused = page.evaluate(
        """async () => {
          const directives = [];
          document.addEventListener("securitypolicyviolation", (event) => directives.push(event.effectiveDirective));
          try { document.body.innerHTML = "<b>x</b>"; } catch {}
          const button = document.body.appendChild(document.createElement("button"));
          try { button.setAttribute("onclick", "window.hit = 1"); button.click(); } catch {}
          document.body.appendChild(document.createElement("img")).src = "http://other.example/x.png";
          const style = document.body.appendChild(document.createElement("link"));
          Object.assign(style, { rel: "stylesheet", href: "http://other.example/x.css" });
          document.body.appendChild(document.createElement("iframe")).src = "/";
          await fetch("http://other.example/").catch(() => 0);
          await new Promise((done) => setTimeout(done, 200));
          return [window.hit ?? null, [...new Set(directives)].sort()];
        }"""
    )

    page.close()
    assert refused[0] is None
    assert {"require-trusted-types-for", "img-src", "style-src-elem", "connect-src", "frame-src"} <= set(refused[1])


def test_the_page_speaks_chinese_and_keeps_what_was_said(page: Any) -> None:
    ask(page, "电池可以带上飞机吗？")
    page.locator("#language").click()

    expect(page.locator("html")).to_have_attribute("lang", "zh-CN")
    expect(page.locator("#ask")).to_have_text("提问")
    expect(page.locator(".badge")).to_contain_text("你的文档只略有涉及")
    page.locator(".text .cite").last.click()
    expect(page.locator("#panel")).to_contain_text("网页")
    assert re.search("[\u4e00-\u9fff]", page.locator("blockquote .cited").first.inner_text())
    page.reload()
    expect(page.locator("#ask")).to_have_text("提问")


def test_a_reload_keeps_the_conversation_and_the_address_keeps_no_token(page: Any) -> None:
    ask(page, REFUND)
    assert "token" not in page.url
    page.reload()

    expect(page.locator(".turn .text")).to_contain_text("30 days")
    page.locator(".turn .text .cite").click()
    expect(page.locator("blockquote .cited").first).to_be_visible()


def test_offsets_count_characters_where_javascript_counts_halves_of_them(page: Any) -> None:
    page.locator("#documents").click()
    text = "# Emoji\n\n🚲🚲🚲 The mascot of depot six is called Rolf 🚲. 🚲 Rolf eats clover."
    page.locator("#files").set_input_files({"name": "mascot.md", "mimeType": "text/markdown", "buffer": text.encode()})
    expect(page.locator(".told")).to_contain_text("is ready", timeout=30_000)
    page.locator("#close").click()
    turn = ask(page, "What is the mascot of depot six called?")

    assert re.fullmatch(r".*”\s*1", turn.locator(".text").inner_text(), re.DOTALL)
    turn.locator(".text .cite").click()
    cited = page.locator("blockquote .cited").all_inner_texts()
    assert any("is called Rolf" in sentence for sentence in cited)
    assert "�" not in "".join(cited)


def test_everything_can_be_done_with_the_keyboard(page: Any) -> None:
    page.bring_to_front()
    reached = []
    for _ in range(10):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert reached[:9] == ["skip", "tenant", "new", "documents", "language", "conversation", "example", "question", "ask"]
    page.locator(".example").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".badge")).to_be_visible(timeout=30_000)
    expect(page.locator("#status")).to_contain_text("The answer is complete. The documents say: “Aurora Bikes")
    page.locator(".badge").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#panel-title")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#close")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator(".badge")).to_be_focused()


def test_every_control_has_a_name_and_every_part_a_landmark(page: Any) -> None:
    ask(page, REFUND)
    page.locator("#documents").click()
    page.locator(".documents li").first.wait_for()

    nameless = page.evaluate(
        """[...document.querySelectorAll("button, input, select, textarea, progress, aside, nav, form")]
          .filter((e) => e.checkVisibility() && !(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.labels?.length || e.innerText?.trim()))
          .map((e) => e.outerHTML)"""
    )
    assert nameless == []
    assert page.evaluate("['header', 'main', 'aside', 'h1', '[role=region]', '[role=status]'].every((s) => document.querySelector(s))")


CONTRAST = """(pairs) => pairs.map(([front, back]) => {
  const color = (name) => { const e = document.body.appendChild(document.createElement("i")); e.style.color = `var(--${name})`;
    const rgb = getComputedStyle(e).color.match(/[\\d.]+/g).map(Number); e.remove(); return rgb; };
  const light = (name) => color(name).slice(0, 3).map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
})"""


@pytest.mark.parametrize("page", [{"color_scheme": "light"}, {"color_scheme": "dark"}], indirect=True, ids=["light", "dark"])
def test_text_stands_out_from_what_it_stands_on(page: Any) -> None:
    """At least 4.5 to 1, WCAG 2.2 success criterion 1.4.3."""
    grounds = ["page", "card", "asked", "cited", "given"]
    pairs = [("text", ground) for ground in grounds] + [
        ("soft", "page"),
        ("soft", "card"),
        ("accent", "card"),
        ("accent", "page"),
        ("on-accent", "accent"),
    ]
    pairs += [(kind, f"{kind}-back") for kind in ("good", "fair", "far", "bad")] + [("good", "card"), ("bad", "card")]

    measured = dict(zip(pairs, page.evaluate(CONTRAST, pairs), strict=True))

    assert {pair: round(ratio, 2) for pair, ratio in measured.items() if ratio < 4.5} == {}


@pytest.mark.parametrize(
    "page", [{"viewport": {"width": 360, "height": 740}}, {"viewport": {"width": 320, "height": 560}}], indirect=True, ids=["360", "320"]
)
def test_on_a_phone_nothing_is_wider_than_the_screen_and_the_panel_covers_the_rest(page: Any) -> None:
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) == 0
    turn = ask(page, f"{REFUND} {'x' * 300}")
    assert page.evaluate(wide) == 0
    turn.locator(".text .cite").first.click()

    assert page.evaluate("[document.querySelector('main').inert, document.querySelector('header').inert]") == [True, True]
    assert page.evaluate(wide) == 0
    page.locator("#close").click()
    assert page.evaluate("document.querySelector('main').inert") is False


def test_without_a_token_the_page_asks_for_one(served: Served, browser: Any) -> None:
    context = browser.new_context(locale="en-GB")
    page = context.new_page()
    page.goto(f"{served.url}/#token=wrong-token-0123456789")
    expect(page.locator("#signin-error")).to_contain_text("This token is not known")
    page.locator("#token").fill("another-wrong-token")
    page.locator("#token").press("Enter")
    expect(page.locator("#signin-error")).to_contain_text("This token is not known")
    page.locator("#token").fill(BOREALIS)
    page.locator("#token").press("Enter")
    expect(page.locator(".welcome")).to_contain_text("Borealis Coffee")
    context.close()


def test_a_server_that_is_gone_and_a_model_that_fails_are_told_in_words(page: Any) -> None:
    page.locator("#question").fill("Make trouble, please")
    page.locator("#question").press("Enter")
    expect(page.locator(".turn .error")).to_have_text("That did not work. Try again.", timeout=30_000)
    page.route("**/api/**", lambda route: route.abort())
    page.locator("#question").fill(REFUND)
    page.locator("#question").press("Enter")

    expect(page.locator(".turn .error").last).to_contain_text("The server can't be reached")
