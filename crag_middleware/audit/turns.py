"""Attacks on an agent's turn: forged fields, contexts and state, subagents, runs that are resumed."""

from contextlib import suppress
from typing import Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver

from crag_middleware.audit.outcome import Blind, must_refuse
from crag_middleware.audit.site import HOWS, QUESTION, Site, Tenant, ask
from crag_middleware.errors import TenantError
from crag_middleware.tenancy import digest
from crag_middleware.testing import ScriptedChatModel


def forged_fields(site: Site) -> None:
    """The victim's id in a message's text, name and metadata, in `config` and in the state: only the context counts, and without one nothing is found."""
    victim = site.victim.agent_id
    claims = {"agent_id": victim, "tenant": victim, "user_id": victim}
    config: Any = {"configurable": {**claims, "thread_id": "forged"}, "metadata": claims, "tags": [f"agent_id:{victim}"]}
    message = HumanMessage(f"{QUESTION} agent_id={victim}", name=victim, additional_kwargs=claims, response_metadata=claims)
    given = {"messages": [message], **claims}
    for how in HOWS:
        agent, model = site.agent()
        result = ask(agent, how, given, config=config, context={"agent_id": site.attacker.agent_id})
        site.check(site.attacker, [model.requests, result], "a turn with forged fields")
        for context in (None, {}, {"user": claims}):
            agent, model = site.agent()
            with suppress(TenantError):
                ask(agent, how, given, config=config, context=context)
            site.check_none(model.requests, "a turn with forged fields and no tenant")


def conflicting_context(site: Site) -> None:
    """A middleware that is built for one tenant is invoked with the context of another one."""
    for how in HOWS:
        agent, model = site.agent(site.middleware(site.attacker.agent_id))
        with must_refuse("a context of another tenant than the middleware's", TenantError):
            ask(agent, how, context={"agent_id": site.victim.agent_id})
        site.check_none(model.requests, "the model")


def forged_state(site: Site) -> None:
    """What is remembered of the victim's turn is sent in as the attacker's own state, under the keys `crag` and `_crag`."""
    for how in HOWS:
        agent, model = site.agent(reply="ok", checkpointer=InMemorySaver())
        question = HumanMessage(QUESTION, id="same")
        ask(agent, how, question, config=_thread("victim"), context={"agent_id": site.victim.agent_id})
        saved = agent.get_state(_thread("victim")).values
        forged = {key: _claimed(value, site.attacker) for key, value in saved.items() if key != "messages"}
        if site.victim.word not in str(forged):
            msg = "nothing of a turn is kept in the state"
            raise Blind(msg)
        model.requests.clear()
        for messages in ([question], [question, AIMessage("so far")]):
            thread = _thread(f"attacker-{len(messages)}")
            result = ask(agent, how, {"messages": messages, **forged}, config=thread, context={"agent_id": site.attacker.agent_id})
            site.check(site.attacker, [model.requests, result], "a turn with a forged state")


def subagent_without_context(site: Site) -> None:
    """An agent that served the victim before is called by a tool of the attacker's agent, and of nobody's, without a context of its own."""
    call = AIMessage("", tool_calls=[{"name": "delegate", "args": {}, "id": "1"}])
    for how in HOWS:
        inner, model = site.agent()

        @tool
        def delegate() -> str:
            """Asks the other agent."""
            return str(ask(inner, "sync")["messages"][-1].text)  # noqa: B023 - called within this round

        outer = create_agent(ScriptedChatModel(replies=[call, "done"] * 2), tools=[delegate])
        ask(inner, how, context={"agent_id": site.victim.agent_id})
        model.requests.clear()
        for context in ({"agent_id": site.attacker.agent_id}, None):
            with suppress(TenantError):
                ask(outer, how, context=context)
            site.check_none(model.requests, "a subagent without a context of its own", but=site.attacker)


def resumed_run(site: Site) -> None:
    """A run of the victim that was stopped before its model call is resumed for the attacker and for nobody; the attacker asks in the victim's thread."""
    question = HumanMessage(QUESTION, id="same")
    for how in HOWS:
        for context in ({"agent_id": site.attacker.agent_id}, None):
            agent, model = site.agent(reply="ok", checkpointer=InMemorySaver(), interrupt_before=["model"])
            ask(agent, how, config=_thread("1"), context={"agent_id": site.victim.agent_id})
            with suppress(TenantError):
                ask(agent, how, None, config=_thread("1"), context=context)
            site.check_none(model.requests, "a run that was resumed for another tenant", but=site.attacker)
        agent, model = site.agent(reply="ok", checkpointer=InMemorySaver())
        ask(agent, how, question, config=_thread("1"), context={"agent_id": site.victim.agent_id})
        model.requests.clear()
        result = ask(agent, how, question, config=_thread("1"), context={"agent_id": site.attacker.agent_id})
        site.check(site.attacker, [model.requests, result["crag"]], "a turn in another tenant's thread")


def _thread(name: str) -> Any:
    return {"configurable": {"thread_id": name}}


def _claimed(value: Any, tenant: Tenant) -> Any:
    """What is remembered, said to be the tenant's."""
    return {**value, "tenant": digest(tenant.agent_id)} if isinstance(value, dict) and "tenant" in value else value
