"""Who may see which rows: where the tenant comes from, what its filter matches, what a settings filter can do."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from langgraph.errors import GraphBubbleUp, GraphInterrupt
from langgraph.runtime import Runtime
from milvus_lite.server_manager import server_manager_instance
from pymilvus import DataType, MilvusClient

from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.tenancy import (
    Fields,
    Scope,
    check_agent_id,
    check_owners,
    combine,
    json_path,
    misread_by_server,
    quote,
    resolve,
    row_expression,
    tenant_expression,
)
from tests.support.milvus import JSON, TENANT, insert, make_collection, text_column

HOSTILE = [
    'a" or agent_id != "',
    "a' or agent_id != '",
    'a\\" or 1 == 1 or agent_id == \\"',
    "C:\\team\\a",
    "trailing\\",
    'o"neil',
    "o'neil",
    "line1\nline2",
    "line1\r\nline2",
    "tab\tbed",
    "\x00nul",
    "bell\x07 \x1b[31m \x7f \x85",
    "团队-一",
    "𠮷野家",
    "🧑‍🚀",
    "a%_b",
    "{x}",
    "a] or [",
    "/* a */ -- b",
    "\u2028line",
    "\ufeffbom",
    " a",
    "a ",
    "A",
    "a",
    "é",
    "e\u0301",
    "True",
    "null",
    "1",
]
IDS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60).filter(lambda s: bool(s.strip()) and len(s.encode()) <= 256)


class TestCheckAgentId:
    @pytest.mark.parametrize("value", [*HOSTILE, "a" * 256, "界" * 85])
    def test_an_id_is_kept_exactly(self, value: str) -> None:
        assert check_agent_id(value) == value

    @pytest.mark.parametrize(
        "value", [None, "", "  ", "\n\t", "\u3000\u2003", [], 0, 1, True, False, 1.5, b"a", ("a",), {"agent_id": "a"}, object()]
    )
    def test_an_empty_scope_is_refused(self, value: object) -> None:
        """C119."""
        with pytest.raises(TenantError, match="agent_id"):
            check_agent_id(value)

    @pytest.mark.parametrize("value", ["SECRET" * 43, "SECRET" + "界" * 84, "SECRET\ud800", "\udfffSECRET"])
    def test_an_id_that_is_too_long_or_no_unicode_is_refused_without_being_told(self, value: str) -> None:
        with pytest.raises(TenantError) as caught:
            check_agent_id(value)

        assert "SECRET" not in str(caught.value)
        assert caught.value.__cause__ is None

    def test_an_enum_of_strings_counts_by_its_value(self) -> None:
        class Team(StrEnum):
            ONE = "one"

        assert type(check_agent_id(Team.ONE)) is str
        assert check_agent_id(Team.ONE) == "one"

    def test_the_text_form_of_a_scope_hides_the_id(self) -> None:
        assert "SECRET" not in repr(Scope("SECRET")) + str(Scope("SECRET"))


@dataclass
class Context:
    agent_id: Any = None
    other: str = "x"


class TestResolve:
    @pytest.mark.parametrize("context", [Context("a"), {"agent_id": "a"}, SimpleNamespace(agent_id="a")])
    def test_the_context_names_the_tenant(self, context: object) -> None:
        assert resolve(None, Runtime(context=context)) == Scope("a")
        assert resolve("a", Runtime(context=context)) == Scope("a")

    @pytest.mark.parametrize("context", [None, Context(None), {}, {"agent_id": None}, object()])
    def test_without_a_context_the_configured_id_counts(self, context: object) -> None:
        assert resolve("a", Runtime(context=context)) == Scope("a")

    @pytest.mark.parametrize("context", [None, Context(None), {}, {"configurable": {"agent_id": "a"}}, object()])
    def test_no_tenant_at_all_is_an_error_that_says_what_to_do(self, context: object) -> None:
        """C119, C121: nothing but the constructor and the context is a source."""
        with pytest.raises(TenantError, match=r"agent_id=.*context="):
            resolve(None, Runtime(context=context))

    @pytest.mark.parametrize("other", ["A", "a ", "b", "e\u0301"])
    def test_two_sources_that_differ_are_an_error_that_names_neither(self, other: str) -> None:
        """C121."""
        configured = "é" if other == "e\u0301" else "a"

        with pytest.raises(TenantError, match="must agree") as caught:
            resolve(configured, Runtime(context={"agent_id": other}))

        assert caught.value.reason == "tenant_conflict"

    @pytest.mark.parametrize("bad", ["", " ", 0, False, [], 7, "x" * 300])
    def test_a_malformed_context_is_an_error_even_if_an_id_is_configured(self, bad: object) -> None:
        """C119: a value that is there but empty must not fall back."""
        for configured in (None, "a"):
            with pytest.raises(TenantError):
                resolve(configured, Runtime(context={"agent_id": bad}))

    def test_a_function_is_the_only_source(self) -> None:
        runtime = Runtime(context={"agent_id": "other", "user": "a"})

        assert resolve(lambda r: r.context["user"], runtime) == Scope("a")

    def test_a_failing_function_is_a_tenant_error_without_its_text(self) -> None:
        def fail(runtime: Runtime[Any]) -> str:
            raise KeyError("SECRET")

        with pytest.raises(TenantError) as caught:
            resolve(fail, Runtime())

        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__, "no traceback shows it"
        assert "SECRET" not in str(caught.value)

    def test_the_framework_s_control_flow_passes_through_a_function(self) -> None:
        def interrupt(runtime: Runtime[Any]) -> str:
            raise GraphInterrupt

        with pytest.raises(GraphInterrupt):
            resolve(interrupt, Runtime())

    @pytest.mark.filterwarnings("error")
    def test_an_async_function_is_refused(self) -> None:
        async def later(runtime: Runtime[Any]) -> str:
            return "a"

        with pytest.raises(TenantError, match="coroutine"):
            resolve(later, Runtime())  # type: ignore[arg-type]


class TestCheckOwners:
    def test_own_rows_pass(self) -> None:
        check_owners([], Scope("a"))
        check_owners(["a", "a"], Scope("a"))

    @pytest.mark.parametrize("owner", ["b", "A", "a ", "", None, 1, ["a"], {"a": 1}])
    def test_a_row_of_nobody_or_somebody_else_is_fatal(self, owner: object) -> None:
        with pytest.raises(TenantError) as caught:
            check_owners(["SECRET", owner], Scope("SECRET"))

        assert isinstance(caught.value, GraphBubbleUp)
        assert "SECRET" not in str(caught.value)


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MilvusClient]:
    """One row for each hostile id, and one of a victim."""
    uri = str(tmp_path_factory.mktemp("tenants") / "knowledge.db")
    columns = {"agent_id": TENANT, "metadata": JSON, "team": text_column(), "score": (DataType.DOUBLE, {"nullable": True})}
    client = make_collection(uri, "k", columns | {"draft": (DataType.BOOL, {"nullable": True})}, bm25=False, dynamic=True)
    rows = [{"id": str(i), "text": "t", "agent_id": x, "metadata": {"agent_id": x}, "team": x} for i, x in enumerate([*HOSTILE, "victim"])]
    insert(client, "k", [{"score": 0.5, "draft": i % 2 == 0, "dyn": row["agent_id"], **row} for i, row in enumerate(rows)])
    yield client
    server_manager_instance.release_server(uri)


def owners(client: MilvusClient, expression: str) -> list[str]:
    return [row["agent_id"] for row in client.query("k", filter=expression, output_fields=["agent_id"], limit=1000)]


PATHS = ["agent_id", "team", json_path("metadata", "agent_id"), json_path("$meta", "dyn")]


class TestTenantExpression:
    @pytest.mark.parametrize("path", PATHS)
    @pytest.mark.parametrize("agent_id", HOSTILE)
    def test_it_finds_the_tenant_s_rows_and_no_others(self, tenants: MilvusClient, path: str, agent_id: str) -> None:
        """C055, C056."""
        assert owners(tenants, tenant_expression(path, Scope(agent_id))) == [agent_id]

    @given(agent_id=IDS)
    @example(agent_id='" or agent_id == "victim')
    @example(agent_id="victim\x00")
    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_id_finds_its_own_rows_only(self, tenants: MilvusClient, agent_id: str) -> None:
        """C055."""
        for path in PATHS:
            assert set(owners(tenants, tenant_expression(path, Scope(agent_id)))) <= {agent_id}

    @given(agent_id=IDS)
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_id_round_trips(self, tenants: MilvusClient, agent_id: str) -> None:
        """C056."""
        insert(tenants, "k", [{"id": "probe", "text": "t", "agent_id": agent_id, "metadata": {"agent_id": agent_id}, "dyn": agent_id}])
        try:
            for path in (PATHS[0], *PATHS[2:]):
                assert owners(tenants, f'({tenant_expression(path, Scope(agent_id))}) and (id == "probe")') == [agent_id]
        finally:
            tenants.delete("k", ids=["probe"])

    def test_what_a_server_would_misread_is_known(self) -> None:
        assert misread_by_server(quote("𠮷野家"))
        assert not any(misread_by_server(quote(x)) for x in HOSTILE if x != "𠮷野家")


FIELDS = Fields({"agent_id": "text", "team": "text", "score": "number", "draft": "flag"}, "metadata")
VALUES = st.one_of(
    IDS, st.sampled_from(HOSTILE), st.integers(-(2**63) + 1, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.booleans()
)
OPS = st.sampled_from(["eq", "ne", "gt", "gte", "lt", "lte", "in", "not_in", "or", "", "=="])
NAMES = st.one_of(st.sampled_from(["agent_id", "team", "score", "draft", "key", "x or agent_id", *HOSTILE]), st.text(max_size=20))


class TestRowExpression:
    @pytest.mark.parametrize(
        ("conditions", "expression"),
        [
            (None, None),
            ({}, None),
            ({"team": "a"}, '(team == "a")'),
            ({"score": {"gte": 1, "lt": 2.5}}, "(score >= 1) and (score < 2.5)"),
            ({"draft": False}, "(draft == false)"),
            ({"draft": {"in": [True]}}, "(draft in [true])"),
            ({"team": {"in": ["a", "b"]}}, '(team in ["a", "b"])'),
            ({"team": {"not_in": ("a",)}}, '(team not in ["a"])'),
            ({"lang": {"in": ["zh", 1]}}, '(metadata["lang"] == "zh" or metadata["lang"] == 1)'),
            ({"lang": {"not_in": ["zh", "en"]}}, '(metadata["lang"] != "zh" and metadata["lang"] != "en")'),
            ({"语言": "中文"}, '(metadata["语言"] == "中文")'),
            ({"team": {"ne": 'x" or "'}}, r'(team != "x\" or \"")'),
        ],
    )
    def test_conditions_become_an_expression(self, conditions: dict[str, Any], expression: str | None) -> None:
        assert row_expression(conditions, None, FIELDS) == expression

    @pytest.mark.parametrize(
        "conditions",
        [
            'agent_id != "a"',
            ["agent_id"],
            {"team": None},
            {"team": {"eq": None}},
            {"team": {}},
            {"team": {"in": []}},
            {"team": {"in": "abc"}},
            {"team": {"in": {"a": 1}}},
            {"team": {"in": ["a", None]}},
            {"team": {"like": "a%"}},
            {"team": {"or": "a"}},
            {"team": ["a"]},
            {"team": 1},
            {"team": True},
            {"team": "\ud800"},
            {"score": "1"},
            {"score": True},
            {"score": float("nan")},
            {"score": float("inf")},
            {"score": 2**63},
            {"draft": 1},
            {"draft": {"gt": True}},
            {"": 1},
            {" ": 1},
            {1: 1},
            {None: 1},
            {'x"] != 1 or metadata["y': 1},
            {"x\\": 1},
            {"x[0]": 1},
            {"x\ny": 1},
            {'metadata["x"]': 1},
        ],
    )
    def test_what_cannot_be_used_is_refused_with_a_reason(self, conditions: Any) -> None:
        with pytest.raises(ConfigError, match=r"filter"):
            row_expression(conditions, None, FIELDS)

    @pytest.mark.parametrize(
        "conditions",
        [
            {"score": "SECRET"},
            {"team": {"in": "SECRET"}},
            {"score": {"in": ["SECRET"]}},
            {"team": ["SECRET"]},
            {("SECRET",): 1},
            ["SECRET"],
        ],
    )
    def test_no_message_quotes_a_value(self, conditions: Any) -> None:
        with pytest.raises(ConfigError, match=r"got (a |an )?\w+") as caught:
            row_expression(conditions, None, FIELDS)

        assert "SECRET" not in str(caught.value)

    def test_a_column_that_cannot_be_compared_is_not_taken_for_a_json_key(self) -> None:
        fields = Fields(FIELDS.columns, "metadata", frozenset({"metadata", "tags", "dense"}))

        for name in ("tags", "dense"):
            with pytest.raises(ConfigError, match=f"column '{name}'"):
                row_expression({name: "x"}, None, fields)
        with pytest.raises(ConfigError, match="name one of its keys without the column"):
            row_expression({"metadata": "x"}, None, fields)

    def test_an_unknown_field_names_the_known_ones(self) -> None:
        with pytest.raises(ConfigError, match="agent_id, draft, score, team"):
            row_expression({"nope": 1}, None, Fields(FIELDS.columns))

    def test_the_confidence_floor_needs_a_place(self) -> None:
        assert row_expression(None, 0.9, Fields({"confidence": "number"}, "metadata")) == "(confidence > 0.9)"
        assert row_expression({"x": 1}, 0, FIELDS) == '(metadata["x"] == 1) and (metadata["confidence"] > 0.0)'
        with pytest.raises(ConfigError, match="confidence"):
            row_expression(None, 0.9, Fields({"team": "text"}))

    @given(
        conditions=st.dictionaries(
            NAMES, st.one_of(VALUES, st.dictionaries(OPS, st.one_of(VALUES, st.lists(VALUES, max_size=3)), max_size=2)), max_size=3
        )
    )
    @settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_no_filter_can_widen_the_tenant_s_rows(self, tenants: MilvusClient, conditions: dict[str, Any]) -> None:
        """C055: whatever is accepted either parses and narrows, or fails."""
        try:
            rows = row_expression(conditions, None, FIELDS)
        except ConfigError:
            return

        assert set(owners(tenants, combine(tenant_expression("agent_id", Scope("a")), rows))) <= {"a"}
