"""Answers of whole agents: citations mended, claims checked, what follows, and what a user sees of it while it is written."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelFallbackMiddleware, ModelRetryMiddleware
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from pydantic import BaseModel

from crag_middleware import Checked, ConfigError, CRAGSettings, WordClaimChecker, explain
from crag_middleware.stages.grounding import GENERAL_LABEL, REFUSAL
from crag_middleware.testing import ScriptedChatModel
from tests.support.agents import agent_with, ask, both, crag, passage

REFUND = passage(
    "Refunds are possible within 30 days of delivery.",
    "refund",
    title="Refunds",
    url="https://a.example/r",
    metadata={"page": 3, "section": "Terms"},
)
SHIPPING = passage("Shipping costs 5 euros inside the country.", "shipping", title="Shipping")
QUESTION = "What are the terms for refunds and shipping?"
GOOD = "Refunds are possible within 30 days of delivery [1]."
BAD = "Refunds are possible within 90 days of delivery [1]."
FINE = "Shipping costs 5 euros inside the country [2]."


@tool
def get_stock(x: str) -> str:
    """Stock of an article."""
    return "Stock of the blue chair: 17 pieces."


class Says:
    """A checker by a function of the claim's text: what it returns is P(supported)."""

    def __init__(self, says, *, error=None):
        self.says, self.error, self.calls = says, error, []

    def check(self, claims, grounds, *, question):
        self.calls.append([claim.text for claim in claims])
        if self.error:
            raise self.error
        return [Checked("supported" if (p := self.says(c.text)) >= 0.5 else "not_mentioned", p, 0) for c in claims]


def agent(*replies, settings=None, passages=(REFUND, SHIPPING), checker=None, tools=(), **more):
    middleware = crag(passages, claim_checker=checker, settings=CRAGSettings(**(settings or {})))
    return agent_with(middleware, replies=replies, tools=list(tools), **more)


def streamed(built, how, question=QUESTION):
    """The text of each token that the user sees, and the last state."""
    given = {"messages": [("user", question)]}
    modes = ["messages", "values"]

    def sort(parts):
        tokens = [part[0].text for mode, part in parts if mode == "messages" and isinstance(part[0], AIMessage)]
        return [t for t in tokens if t], [part for mode, part in parts if mode == "values"][-1]

    async def collect():
        return [part async for part in built.astream(given, stream_mode=modes)]

    return sort(list(built.stream(given, stream_mode=modes)) if how == "invoke" else asyncio.run(collect()))


# Citations


@both
def test_a_citation_that_no_source_has_is_removed_from_stream_state_and_told(how):
    """C105, C026."""
    built, _ = agent(f"{GOOD} And [7] more[9]... [1][2] [999]", "x")
    tokens, state = streamed(built, how)

    assert "".join(tokens) == state["messages"][-1].text == f"{GOOD} And more... [1][2]"
    answer = state["crag"]["answer"]
    assert answer["unknown_citations"] == ["[7]", "[9]", "[999]"]
    assert answer["action"] == "mended"
    assert answer["checked"] == "off"
    assert state["messages"][-1].response_metadata["crag"] == answer


@both
def test_the_answer_lists_its_sources_with_places_pages_and_strips(how):
    """C107: for footnotes of a user interface."""
    built, _ = agent("甲【1】乙[1-2]。")
    answer = ask(built, QUESTION, how)["crag"]["answer"]

    first, second = answer["citations"]
    assert {k: first[k] for k in ("number", "id", "title", "url", "section", "page", "origin")} == {
        "number": 1,
        "id": "refund",
        "title": "Refunds",
        "url": "https://a.example/r",
        "section": "Terms",
        "page": 3,
        "origin": "knowledge",
    }
    assert first["places"] == [[1, 4], [5, 10]]
    assert [strip["text"] for strip in first["strips"]] == [REFUND.text]
    assert second["places"] == [[5, 10]]


@both
def test_flagging_leaves_the_wording_alone(how):
    built, _ = agent("A [9].", settings={"unknown_citations": "flag"})
    result = ask(built, QUESTION, how)
    assert result["messages"][-1].text == "A [9]."
    assert result["crag"]["answer"]["unknown_citations"] == ["[9]"]


@both
def test_without_verify_the_answer_is_the_models_to_the_last_byte(how):
    built, _ = agent("A [9].", settings={"verify": False})
    bare = create_agent(ScriptedChatModel(replies=["A [9]."]))
    ours, theirs = ask(built, QUESTION, how), ask(bare, QUESTION, how)
    assert ours["messages"][-1].model_dump(exclude={"id"}) == theirs["messages"][-1].model_dump(exclude={"id"})
    assert ours["crag"]["answer"] is None


@both
def test_by_default_an_answer_differs_by_metadata_only(how):
    built, _ = agent(GOOD)
    bare = create_agent(ScriptedChatModel(replies=[GOOD]))
    ours, theirs = ask(built, QUESTION, how)["messages"][-1], ask(bare, QUESTION, how)["messages"][-1]
    assert ours.response_metadata.pop("crag")
    assert ours.model_dump(exclude={"id"}) == theirs.model_dump(exclude={"id"})


@both
def test_a_greeting_is_left_alone(how):
    built, _ = agent("Hello [9]!")
    assert ask(built, "Hi!", how)["messages"][-1].text == "Hello [9]!"


@both
def test_numbers_that_a_tool_cites_by_are_left_to_it(how):
    """C109: a search tool's own list."""

    @tool
    def search(x: str) -> str:
        """Searches."""
        return "[8] Chairs are blue. [9] Tables are red."

    step = AIMessage("", tool_calls=[{"name": "search", "args": {"x": "1"}, "id": "c"}])
    built, _ = agent(step, "Chairs are blue [8]. Refunds [1] [7].", tools=[search])
    result = ask(built, QUESTION, how)
    assert result["messages"][-1].text == "Chairs are blue [8]. Refunds [1]."
    assert [c["number"] for c in result["crag"]["answer"]["citations"]] == [1]


@both
def test_two_knowledge_bases_know_each_others_numbers(how):
    first, second = crag([REFUND], name="first"), crag([SHIPPING], name="second")
    built, _ = agent_with([first, second], replies=[f"{GOOD} {FINE} [3]"])
    result = ask(built, QUESTION, how)
    message = result["messages"][-1]
    assert message.text == f"{GOOD} {FINE}"
    for key in ("crag_first", "crag_second"):
        assert message.response_metadata[key] == result[key]["answer"]
        assert [c["number"] for c in result[key]["answer"]["citations"]] == [1, 2]


@both
def test_a_step_that_calls_tools_is_mended_and_tells_nothing(how):
    """C116."""
    step = AIMessage("Let me look that up [9].", tool_calls=[{"name": "get_stock", "args": {"x": "1"}, "id": "c"}])
    checker = Says(lambda text: 0.0)
    built, model = agent(step, GOOD, tools=[get_stock], checker=checker, settings={"on_unsupported": "repair", "max_repairs": 0})
    messages = ask(built, QUESTION, how)["messages"]
    assert messages[1].text == "Let me look that up."
    assert messages[1].tool_calls == step.tool_calls
    assert "crag" not in messages[1].response_metadata
    assert isinstance(messages[2], ToolMessage)
    assert checker.calls == [[GOOD]]
    assert len(model.requests) == 2


@both
@pytest.mark.parametrize("other", ["retry", "fallback"])
def test_an_answer_of_a_model_that_another_middleware_put_in_place_is_checked_too(how, other):
    broken, spare = ScriptedChatModel(replies=[RuntimeError("down")]), ScriptedChatModel(replies=["B [9]."])
    if other == "fallback":
        model, stack = broken, [crag([REFUND]), ModelFallbackMiddleware(spare)]
    else:
        model, stack = (
            ScriptedChatModel(replies=[RuntimeError("down"), "B [9]."]),
            [
                ModelRetryMiddleware(max_retries=1, initial_delay=0),
                crag([REFUND]),
            ],
        )
    result = ask(create_agent(model, middleware=stack), QUESTION, how)
    assert result["messages"][-1].text == "B."
    assert result["crag"]["answer"]["unknown_citations"] == ["[9]"]


class Refund(BaseModel):
    """Terms."""

    days: list[int]


@both
def test_data_that_a_provider_writes_is_left_alone(how):
    built, _ = agent('{"days": [9]}', response_format=ProviderStrategy(Refund))
    result = ask(built, QUESTION, how)
    assert result["structured_response"] == Refund(days=[9])
    assert result["messages"][-1].text == '{"days": [9]}'


@both
def test_structured_output_by_a_tool_is_kept(how):
    reply = AIMessage("", tool_calls=[{"name": "Refund", "args": {"days": [9]}, "id": "c"}])
    built, _ = agent(reply, response_format=ToolStrategy(Refund))
    assert ask(built, QUESTION, how)["structured_response"] == Refund(days=[9])


# Claims


@both
def test_flagging_shows_tokens_at_once_and_tells_which_claims_fail(how):
    """C111."""
    built, _ = agent(f"{GOOD} {BAD} {FINE}", checker=WordClaimChecker())
    tokens, state = streamed(built, how)
    assert "".join(tokens) == state["messages"][-1].text == f"{GOOD} {BAD} {FINE}"
    assert len(tokens) > 10
    answer = state["crag"]["answer"]
    assert [c["label"] for c in answer["claims"]] == ["supported", "contradicted", "supported"]
    assert [state["messages"][-1].text[c["start"] : c["end"]] for c in answer["claims"]] == [GOOD, BAD, FINE]
    assert answer["claims"][1]["decided_by"] == {"kind": "source", "number": 1, "text": REFUND.text}
    assert answer["action"] == "flagged"


@both
def test_dropping_lets_only_sentences_pass_that_are_supported(how):
    built, _ = agent(f"{GOOD} {BAD} [2] {FINE}\n\n- {BAD}\n- {FINE}", checker=WordClaimChecker(), settings={"on_unsupported": "drop"})
    tokens, state = streamed(built, how)
    text = state["messages"][-1].text
    assert "".join(tokens) == text
    assert "90" not in text
    assert text == f"{GOOD} {FINE}\n\n- {FINE}"
    answer = state["crag"]["answer"]
    assert answer["action"] == "dropped"
    kept = [c for c in answer["claims"] if c["label"] == "supported"]
    assert all(text[c["start"] : c["end"]] == c["text"] for c in kept)


@both
def test_dropping_by_a_checker_that_waits_shows_nothing_before_the_whole_was_judged(how):
    checker = Says(lambda text: 0.0 if "90" in text else 1.0)
    built, _ = agent(f"{GOOD} {BAD} {FINE}", checker=checker, settings={"on_unsupported": "drop"})
    tokens, state = streamed(built, how)
    assert "".join(tokens) == state["messages"][-1].text == f"{GOOD} {FINE}"
    assert len(checker.calls) == 1  # all claims of an answer in one call


@both
def test_nothing_left_is_a_refusal(how):
    built, _ = agent(BAD, checker=WordClaimChecker(), settings={"on_unsupported": "drop"})
    assert ask(built, QUESTION, how)["messages"][-1].text == REFUSAL["en"]


@both
def test_repair_asks_once_more_with_the_failing_statements_and_shows_no_draft(how):
    built, model = agent(f"{BAD} {FINE}", f"{GOOD} {FINE}", checker=WordClaimChecker(), settings={"on_unsupported": "repair"})
    tokens, state = streamed(built, how)
    assert "".join(tokens) == state["messages"][-1].text == f"{GOOD} {FINE}"
    assert len(state["messages"]) == 2
    *_, draft, correction = model.requests[1]
    assert draft.text == f"{BAD} {FINE}"
    assert BAD in correction.text
    assert FINE not in correction.text
    assert REFUND.text in correction.text
    assert state["crag"]["answer"]["action"] == "repaired"
    assert state["crag"]["answer"]["repairs"] == 1


@both
@pytest.mark.parametrize(("after", "last", "action"), [("flag", BAD, "flagged"), ("refuse", REFUSAL["en"], "refused")])
def test_repair_is_bounded_by_the_turn_and_ends_in_a_flag_or_a_refusal(how, after, last, action):
    """C114."""
    built, model = agent(BAD, checker=WordClaimChecker(), settings={"on_unsupported": "repair", "max_repairs": 2, "after_repair": after})
    for turn in (1, 2):
        result = ask(built, QUESTION, how)
        assert len(model.requests) == 3 * turn
        assert result["messages"][-1].text == last
        assert result["crag"]["answer"]["action"] == action
        assert result["crag"]["answer"]["repairs"] == 2


@both
def test_a_repair_that_calls_tools_runs_them_and_its_answer_has_the_repairs_that_are_left(how):
    step = AIMessage("", tool_calls=[{"name": "get_stock", "args": {"x": "1"}, "id": "c"}])
    built, model = agent(BAD, step, BAD, tools=[get_stock], checker=WordClaimChecker(), settings={"on_unsupported": "repair"})
    result = ask(built, QUESTION, how)
    assert [type(m).__name__ for m in result["messages"]] == ["HumanMessage", "AIMessage", "ToolMessage", "AIMessage"]
    assert len(model.requests) == 3
    assert result["crag"]["answer"]["action"] == "flagged"


@both
def test_a_refusal_has_no_claims_and_passes_and_what_it_asserts_is_checked(how):
    """C112."""
    checker = Says(lambda text: 0.0)
    for reply in ("I couldn't find this in the documents.", "抱歉，资料中没有相关信息。", "Bonjour!"):
        built, model = agent(reply, checker=checker, settings={"on_unsupported": "repair"})
        result = ask(built, QUESTION, how)
        assert result["messages"][-1].text == reply
        assert result["crag"]["answer"]["checked"] == "nothing_to_check"
        assert len(model.requests) == 1
    assert checker.calls == []
    built, _ = agent("I don't know, but the fee is 30 USD.", checker=checker)
    assert [c["label"] for c in ask(built, QUESTION, how)["crag"]["answer"]["claims"]] == ["not_mentioned"]


@both
def test_tools_and_the_users_own_words_are_grounds_too(how):
    step = AIMessage("", tool_calls=[{"name": "get_stock", "args": {"x": "1"}, "id": "c"}])
    reply = "The stock of the blue chair is 17 pieces. Your order number is 4711."
    built, _ = agent(step, reply, tools=[get_stock], checker=WordClaimChecker())
    answer = ask(built, "My order number is 4711. What is the stock of the blue chair?", how)["crag"]["answer"]
    assert [(c["label"], c["decided_by"]["kind"]) for c in answer["claims"]] == [("supported", "tool"), ("supported", "user")]


@both
def test_a_checker_that_fails_leaves_the_answer_and_is_told(how):
    for what in ("flag", "repair", "drop", "refuse"):
        built, _ = agent(f"{BAD} [9]", checker=Says(None, error=RuntimeError("private")), settings={"on_unsupported": what})
        result = ask(built, QUESTION, how)
        assert result["messages"][-1].text == BAD
        answer = result["crag"]["answer"]
        assert answer["checked"] == "failed"
        assert answer["degraded"] == [{"step": "check_claims", "reason": "RuntimeError"}]
        assert "private" not in str(answer)


@both
def test_a_statement_without_a_citation_gets_the_one_that_clearly_supports_it(how):
    plain = (
        "Refunds are possible within 30 days of delivery. The moon is made of green cheese. Shipping costs 5 euros inside the country [2]."
    )
    built, _ = agent(plain, checker=WordClaimChecker(), settings={"add_citations": True})
    tokens, state = streamed(built, how)
    expected = "Refunds are possible within 30 days of delivery [1]. The moon is made of green cheese. Shipping costs 5 euros inside the country [2]."
    assert "".join(tokens) == state["messages"][-1].text == expected
    assert [c["number"] for c in state["crag"]["answer"]["citations"]] == [1, 2]


# Without evidence


@both
def test_without_evidence_the_agent_may_be_kept_from_answering(how):
    built, _ = agent("The moon [1].", passages=[], settings={"when_no_evidence": "refuse"})
    tokens, state = streamed(built, how)
    assert "".join(tokens) == state["messages"][-1].text == REFUSAL["en"]
    assert state["crag"]["answer"]["action"] == "refused"
    built, _ = agent("月亮。", passages=[], settings={"when_no_evidence": "refuse", "refusal_text": "没有资料。"})
    assert ask(built, "月亮有多远？", how)["messages"][-1].text == "没有资料。"


@both
def test_what_a_tool_brought_may_be_answered_from(how):
    step = AIMessage("", tool_calls=[{"name": "get_stock", "args": {"x": "1"}, "id": "c"}])
    built, _ = agent(step, "It is 17.", passages=[], tools=[get_stock], settings={"when_no_evidence": "refuse"})
    assert ask(built, QUESTION, how)["messages"][-1].text == "It is 17."


@both
def test_general_knowledge_carries_a_label(how):
    built, model = agent("The moon is far.", passages=[], settings={"when_no_evidence": "general"})
    tokens, state = streamed(built, how)
    assert "".join(tokens) == state["messages"][-1].text == f"The moon is far.\n\n{GENERAL_LABEL['en']}"
    assert "general knowledge" in model.requests[0][-1].text
    built, _ = agent(GOOD, settings={"when_no_evidence": "general"})
    assert ask(built, QUESTION, how)["messages"][-1].text == GOOD


# Rules and settings


@both
def test_rules_may_be_replaced_and_the_receipt_says_which_stood(how):
    built, model = agent(GOOD, settings={"rules": "Answer like a pirate, cite [n]."})
    result = ask(built, QUESTION, how)
    assert "like a pirate" in model.requests[0][-1].text
    assert "Facts come from" not in model.requests[0][-1].text
    assert result["crag"]["rules"] == "own"
    built, _ = agent(GOOD)
    assert ask(built, QUESTION, how)["crag"]["rules"].isdigit()


class Options(ScriptedChatModel):
    """Keeps the options of each call."""

    temperature: float | None = None
    seen: list = []  # noqa: RUF012

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.seen.append(kwargs.get("temperature"))
        return super()._generate(messages, stop, run_manager, **kwargs)

    def bind_tools(self, tools, **kwargs):
        return self.bind(**kwargs)


@both
@pytest.mark.parametrize(("own", "passages", "seen"), [(None, [REFUND], 0.2), (1.0, [REFUND], 0.2), (0.1, [REFUND], None), (1.0, [], None)])
def test_the_temperature_is_capped_where_there_is_evidence(how, own, passages, seen):
    model = Options(replies=[GOOD], temperature=own, seen=[])
    built = create_agent(model, middleware=[crag(passages, settings=CRAGSettings(max_temperature=0.2))])
    ask(built, QUESTION, how)
    assert model.seen == [seen]
    assert model.temperature == own


@pytest.mark.parametrize("settings", [{"on_unsupported": "repair"}, {"on_unsupported": "drop"}, {"add_citations": True}])
def test_settings_that_need_a_checker_say_so(settings):
    with pytest.raises(ConfigError, match="claim checker"):
        crag([REFUND], settings=CRAGSettings(**settings))


@pytest.mark.parametrize("checker", [object(), WordClaimChecker, 3])
def test_what_is_no_checker_is_refused(checker):
    with pytest.raises(ConfigError):
        crag([REFUND], claim_checker=checker)


CHINESE = passage("退款申请应在收货后30天内提出。运费为每单10元。", "tk", title="退款")


@both
@pytest.mark.parametrize("what", ["drop", "repair", "refuse", "flag"])
def test_chinese_answers_are_checked_in_chinese(how, what):
    good, bad = "退款申请应在收货后30天内提出【1】。", "运费为每单90元【1】。"
    built, model = agent(good + bad, good, passages=[CHINESE], checker=WordClaimChecker(), settings={"on_unsupported": what})
    tokens, state = streamed(built, how, "退款有什么规定？")
    expected = {"drop": good, "repair": good, "refuse": REFUSAL["zh"], "flag": good + bad}[what]
    assert "".join(tokens) == state["messages"][-1].text == expected
    if what == "repair":
        assert "草稿" in model.requests[1][-1].text


def test_the_answer_is_explained_in_a_line():
    built, _ = agent(f"{GOOD} {BAD} [9]", checker=WordClaimChecker())
    told = explain(ask(built, QUESTION)["crag"])
    assert "answer     cites 1; 1 claim supported; 1 claim contradicted; shown all the same" in told
    built, _ = agent(GOOD)
    assert "answer     cites 1\n" in explain(ask(built, QUESTION)["crag"])


@both
def test_a_step_whose_text_fails_is_no_refusal(how):
    step = AIMessage(BAD, tool_calls=[{"name": "get_stock", "args": {"x": "1"}, "id": "c"}])
    built, _ = agent(step, GOOD, tools=[get_stock], checker=WordClaimChecker(), settings={"on_unsupported": "drop"})
    messages = ask(built, QUESTION, how)["messages"]
    assert REFUSAL["en"] not in [m.text for m in messages]
    assert messages[1].tool_calls
    assert messages[-1].text == GOOD


@both
@pytest.mark.parametrize("reply", [f"{GOOD} [9]", f"{BAD} [9]"])
@pytest.mark.parametrize("what", ["flag", "drop", "repair", "refuse"])
def test_what_does_not_exist_is_told_once_however_the_answer_is_checked(how, what, reply):
    built, _ = agent(reply, checker=WordClaimChecker(), settings={"on_unsupported": what, "max_repairs": 0})
    answer = ask(built, QUESTION, how)["crag"]["answer"]
    assert answer["unknown_citations"] == ([] if answer["action"] == "refused" else ["[9]"])


@both
def test_unsaved_evidence_leaves_no_text_of_a_passage_in_the_saved_messages(how):
    built, _ = agent("Thirty days it is [1].", checker=WordClaimChecker(), settings={"save_evidence": False})
    message = ask(built, QUESTION, how)["messages"][-1]
    (cited,) = message.response_metadata["crag"]["citations"]
    assert cited["strips"][0]["start"] == 0
    assert REFUND.text not in str(message.model_dump())
