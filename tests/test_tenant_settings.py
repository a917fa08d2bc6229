"""Settings of single tenants over the instance's own."""

import pytest

from crag_middleware import CRAGSettings, WordClaimChecker
from crag_middleware.errors import ConfigError, TenantError
from crag_middleware.testing import ScriptedEvaluator, ScriptedRetriever
from tests.support.agents import agent_with, ask, both, crag, passage

QUESTION = "Which port does the exporter use?"
PORT = passage("The exporter listens on port 9100.", "port")


def agent_of(tenant_settings, **more):
    middleware = crag(
        vector_store=ScriptedRetriever({"a": [PORT], "b": [PORT]}),
        evaluator=ScriptedEvaluator({"port": 0.7}),
        agent_id=lambda runtime: runtime.context["agent_id"],
        tenant_settings=tenant_settings,
        **more,
    )
    return agent_with(middleware, replies=["It is 9100 [7]."] * 10)[0]


def result_of(agent, how, tenant):
    return ask(agent, QUESTION, how, context={"agent_id": tenant})


@both
@pytest.mark.parametrize("form", ["mapping", "function"])
def test_a_tenants_thresholds_and_checks_are_its_own(how, form):
    own = {"a": {"upper": 0.6, "verify": False}}
    agent = agent_of(own if form == "mapping" else own.get)

    a, b = result_of(agent, how, "a"), result_of(agent, how, "b")

    assert (a["crag"]["verdict"], b["crag"]["verdict"]) == ("relevant", "ambiguous")
    assert a["messages"][-1].text == "It is 9100 [7]."
    assert "[7]" not in b["messages"][-1].text


@both
@pytest.mark.parametrize("broken", [lambda tenant: 1 / 0, lambda tenant: {"nonsense": 1}, lambda tenant: 7, lambda tenant: {"filter": {}}])
def test_a_function_that_fails_leaves_the_instances_settings_and_is_told(how, broken, caplog):
    result = result_of(agent_of(broken), how, "secret-tenant")
    assert {"step": "tenant_settings", "reason": "failed"} in result["crag"]["degraded"]
    assert "secret-tenant" not in caplog.text


@both
def test_a_budget_of_one_tenant_leaves_the_others_alone(how):
    agent = agent_of({"a": {"max_model_calls": 1, "max_context_tokens": 256, "position": "system"}})
    assert result_of(agent, how, "a")["crag"]["status"] == result_of(agent, how, "b")["crag"]["status"] == "grounded"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"a": {"nonsense": 1}}, "`nonsense` is no setting"),
        ({"a": {"top_k": 0}}, "top_k"),
        ({"a": {"filter": {"x": 1}}}, "must not hold filter"),
        ({"a": {"save_evidence": False, "rrf_k": 3}}, "must not hold rrf_k, save_evidence"),
        ({"a": {"lower": 0.95}}, "in order"),
        ({"a": {"on_unsupported": "drop"}}, "need a claim checker"),
        ({"a": 3}, "by name"),
        ({"a": CRAGSettings()}, "by name"),
        (7, "must be a mapping"),
    ],
)
def test_what_cannot_work_is_refused_when_built(given, said):
    with pytest.raises(ConfigError, match=said):
        agent_of(given)


@pytest.mark.parametrize("key", ["", " ", None, 7])
def test_a_key_that_is_no_tenant_is_refused(key):
    with pytest.raises(TenantError):
        agent_of({key: {}})


def test_settings_that_need_a_checker_are_fine_with_one():
    agent_of({"a": {"on_unsupported": "drop"}}, claim_checker=WordClaimChecker())
