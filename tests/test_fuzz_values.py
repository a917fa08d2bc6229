"""Structured values from outside: conditions of filters, replies of search services, calibrations."""

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crag_middleware.adapters.bocha import BochaWebSearch
from crag_middleware.adapters.tavily import TavilyWebSearch
from crag_middleware.adapters.web_http import MAX_REPLY_BYTES
from crag_middleware.calibration import parse_calibration
from crag_middleware.errors import ConfigError, WebSearchError
from crag_middleware.stages.token_grading import first_tokens, p_answer, p_yes, probability
from crag_middleware.tenancy import Fields, Scope, combine, row_expression, tenant_expression
from crag_middleware.types import Passage
from tests.support.web_server import WebServer, bocha_page, json_reply, page, results

quickly = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])

FIELDS = Fields(
    {"source": "text", "version": "number", "draft": "flag", "agent_id": "text"}, json_field="metadata", others=frozenset({"dense"})
)
HOSTILE = (
    '"',
    "\\",
    '\\"',
    '" or "" == "',
    '" or 1 == 1 or agent_id != "',
    "\n",
    "\r",
    "\t",
    "\x00",
    "\u2028",
    "租户",
    "𠀀",
    "'",
    ")",
    "))",
    "//",
    "}}",
    "{x}",
)

names = st.one_of(st.sampled_from([*FIELDS.columns, "dense", "team", 'a"] == 1 or metadata["b']), st.text(max_size=12))
strings = st.lists(st.one_of(st.sampled_from(HOSTILE), st.text(max_size=4)), max_size=5).map("".join)
scalars = st.one_of(strings, st.integers(), st.floats(), st.booleans(), st.none())
operations = st.dictionaries(
    st.one_of(st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte", "in", "not_in"]), st.text(max_size=3)),
    st.one_of(scalars, st.lists(scalars, max_size=3)),
    max_size=2,
)
conditions = st.dictionaries(names, st.one_of(scalars, operations), max_size=3)

STRING = re.compile(r'"((?:[^"\\\n\r\t]|\\["\\nrt])*)"')
"""A string of a Milvus expression: no bare quote, backslash or line break."""

ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n", "\\r": "\r", "\\t": "\t"}
TERM = r"(?:\w+|metadata\[\$\]) (?:[=!<>]=|[<>]|in|not in) (?:\$|-?[\d.e+-]+|true|false|\[(?:\$|[\d.e+-]+|true|false)(?:, (?:\$|[\d.e+-]+|true|false))*\])"
JOINED = rf"\({TERM}(?: (?:and|or) {TERM})*\)"


def strings_in(expression: str) -> list[str]:
    """The strings of an expression, read as Milvus reads them."""
    return [re.sub(r"\\.", lambda found: ESCAPED[found.group()], one[1]) for one in STRING.finditer(expression)]


def texts_of(value: Any) -> Iterator[str]:
    """All strings of a condition's value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts_of(one)


@settings(quickly, max_examples=400)
@given(wanted=conditions)
def test_c055_a_filter_says_what_it_was_given_and_nothing_else(wanted: dict[str, Any]) -> None:
    try:
        expression = row_expression(wanted, None, FIELDS)
    except ConfigError:
        return
    if expression is None:
        assert not wanted
        return
    keys = {name for name in wanted if name not in FIELDS.columns}

    assert set(strings_in(expression)) <= {*texts_of(wanted), *keys}
    assert set(texts_of(wanted)) <= set(strings_in(expression))
    assert re.fullmatch(rf"{JOINED}(?: and {JOINED})*", STRING.sub("$", expression))


@quickly
@given(tenant=strings, wanted=strings)
def test_c055_no_text_gets_out_of_the_parentheses_of_its_condition(tenant: str, wanted: str) -> None:
    rows = row_expression({"source": wanted}, None, FIELDS)

    whole = combine(tenant_expression("agent_id", Scope(tenant)), rows)

    assert STRING.sub("$", whole) == "(agent_id == $) and ((source == $))"
    assert strings_in(whole) == [tenant, wanted]


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)),
    max_leaves=8,
)


def spoilt(whole: Any) -> st.SearchStrategy[Any]:
    """A reply with one of its values, at any depth, replaced by any other."""
    places = list(places_in(whole, ()))
    return st.tuples(st.sampled_from(places), json_values).map(lambda pair: replaced(whole, *pair))


def places_in(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    yield path
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places_in(one, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], other: Any) -> Any:
    if not path:
        return other
    if isinstance(value, dict):
        return {key: replaced(one, path[1:], other) if key == path[0] else one for key, one in value.items()}
    return [replaced(one, path[1:], other) if place == path[0] else one for place, one in enumerate(value)]


TAVILY = {"query": "q", "answer": None, "images": [], "results": [page(), page(path="/other")], "response_time": 0.1}
BOCHA = {"code": 200, "log_id": "x", "msg": None, "data": {"webPages": {"value": [bocha_page(), bocha_page(path="/other")]}}}


@pytest.fixture(scope="module")
def server() -> Iterator[WebServer]:
    with WebServer(results()) as server:
        yield server


@settings(quickly, max_examples=40)
@given(data=st.data())
@pytest.mark.parametrize("provider", ["tavily", "bocha"])
def test_no_reply_of_a_search_service_breaks_the_search(server: WebServer, provider: str, data: st.DataObject) -> None:
    server.answer = json_reply(data.draw(st.one_of(json_values, spoilt(TAVILY if provider == "tavily" else BOCHA))))
    port = {"tavily": TavilyWebSearch, "bocha": BochaWebSearch}[provider](api_key="key", api_base_url=server.url)

    with suppress(WebSearchError):
        found = port.search("q", limit=2, timeout_s=10)
        assert len(found) <= 2
        assert all(isinstance(one, Passage) and one.text for one in found)


def test_a_reply_that_unpacks_to_more_than_allowed_is_given_up(server: WebServer) -> None:
    bomb = gzip.compress(b"[" * (MAX_REPLY_BYTES + 10))
    server.answer = lambda handler: handler.reply(200, bomb, Content_Encoding="gzip")

    with pytest.raises(WebSearchError, match="larger than"):
        TavilyWebSearch(api_key="key", api_base_url=server.url).search("q", limit=2, timeout_s=10)


CALIBRATION = {
    "version": 1,
    "evaluator": "e",
    "model": "",
    "prompt": "",
    "map": {"kind": "platt", "slope": 1.0, "offset": 0.0},
    "thresholds": [0.2, 0.8],
    "fitted_on": "x",
    "pairs": 1,
    "questions": 1,
}


def test_the_calibration_that_is_spoilt_below_is_one() -> None:
    assert parse_calibration(CALIBRATION, origin="x.json").pairs == 1


@quickly
@given(found=st.one_of(json_values, spoilt(CALIBRATION)))
def test_no_json_breaks_the_reading_of_a_calibration(found: Any) -> None:
    try:
        calibration = parse_calibration(json.loads(json.dumps(found)), origin="x.json")
    except ConfigError:
        return
    assert 0 <= calibration.cuts.lower <= calibration.cuts.upper <= 1


@quickly
@given(told=st.one_of(json_values, spoilt({"content": [{"token": "a", "top_logprobs": [{"token": "yes", "logprob": -0.1}]}]})))
def test_no_log_probabilities_break_the_reading_of_tokens(told: Any) -> None:
    found = first_tokens(told)

    assert 0 <= p_answer(found) <= 1
    for one in (p_yes(found), probability(found, found)):
        assert one is None or 0 <= one <= 1
