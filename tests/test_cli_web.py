"""`crag web`: what it shows of a web search, and how it exits."""

from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from crag_middleware import cli
from tests.support.web_server import WebServer, page, results, status

QUESTION = "Which port does the exporter use?"


def crag(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["web", *arguments])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WebServer]:
    with WebServer() as server:
        for name in ("TAVILY", "BOCHA"):
            monkeypatch.setenv(f"{name}_API_KEY", "key-test")
            monkeypatch.setenv(f"{name}_API_BASE_URL", server.url)
        yield server


def test_without_a_provider_it_shows_what_would_be_sent_and_sends_nothing(server: WebServer) -> None:
    shown = crag(f"{QUESTION} My mail is ana@acme.test, password=hunter22. Falcon! site:docs.example", "--protect", "falcon")

    assert shown.exit_code == 0
    assert "would be sent: Which port does the exporter use?" in shown.output
    assert "only from: docs.example" in shown.output
    assert not server.requests
    for private in ("ana@", "hunter22", "Falcon"):
        assert private not in shown.output


def test_with_one_it_shows_what_came_and_what_was_dropped_and_why(server: WebServer) -> None:
    server.answer = results(
        page("docs.example", content="The exporter uses port 9100.", title="Ports"),
        page("cats.example", content="Cats sleep all day.", title="Cats"),
        page("www.scribd.com", content="The exporter port.", title="Dump"),
    )

    shown = crag(QUESTION, "--provider", "tavily")

    assert shown.exit_code == 0
    assert f"sent: {QUESTION}" in shown.output
    assert "TavilyWebSearch: " in shown.output
    for told in ("https://docs.example/page", "0.58", "dropped: irrelevant", "dropped: domain"):
        assert told in shown.output
    assert [request["body"]["query"] for request in server.requests] == [QUESTION]


def test_providers_are_asked_in_order_and_each_is_told(server: WebServer) -> None:
    server.answer = lambda handler: (results(page(content="The exporter uses port 9100.")) if not handler.bocha else status(401))(handler)

    shown = crag(QUESTION, "-p", "bocha", "-p", "tavily")

    assert shown.exit_code == 0
    assert "BochaWebSearch: unauthorized, 1 requests" in shown.output
    assert "TavilyWebSearch: 1 results" in shown.output


def test_a_search_that_fails_is_exit_code_1_with_the_reason(server: WebServer) -> None:
    server.answer = status(401)

    shown = crag(QUESTION, "--provider", "tavily")

    assert shown.exit_code == 1
    assert "no results: unauthorized" in shown.output


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--provider", "nope"], "there is no web search 'nope'; there are tavily, bocha"),
        (["--provider", "json:dumps"], "must be callable without arguments"),
        (["--freshness", "old"], "`freshness`"),
    ],
)
def test_input_that_can_not_be_used_is_one_line(arguments: list[str], told: str) -> None:
    shown = crag(QUESTION, *arguments)

    assert shown.exit_code == 2
    assert told in shown.output


def test_a_question_of_nothing_but_secrets_is_not_sent(server: WebServer) -> None:
    shown = crag("password=hunter22", "--provider", "tavily")

    assert shown.exit_code == 0
    assert "hunter22" not in shown.output + str(server.requests)
