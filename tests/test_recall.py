"""Wide recall inside an agent: what is asked of whom, what of it is graded, and what happens when time or calls run short."""

import asyncio
import threading
import time
from collections.abc import Sequence

import pytest

from crag_middleware import ConfigError, CRAGSettings, LocalEmbeddings, Route, open_knowledge
from crag_middleware.testing import ScriptedEvaluator, ScriptedRetriever, ScriptedRewriter
from crag_middleware.types import Grade, Passage
from tests.support.agents import agent_with, ask, both, crag, passage
from tests.support.milvus import lite_uri  # noqa: F401, a fixture

QUESTION = "Which port does the exporter use?"
FILLER = [passage(f"Rule {n} of the house says nothing about machines, hall {n}.", f"f{n}") for n in range(12)]
PORT = passage("The exporter listens on port 9100.", "port")


class ByQuery:
    """Finds what it holds under words of the query."""

    def __init__(self, held: dict[str, Sequence[Passage]]) -> None:
        self.held, self.asked = held, []

    def retrieve(self, question, *, agent_id, limit):
        self.asked.append(question)
        return [p for words, found in self.held.items() if words in question for p in found][:limit]


class Grades:
    """Calls relevant what holds one of the words, and keeps what it was shown."""

    def __init__(self, *words: str) -> None:
        self.words, self.shown = words, []

    def grade(self, question, passages):
        self.shown.append([p.id for p in passages])
        known = [any(word in p.text for word in self.words) for p in passages]
        return [
            Grade(p.id, 0.95 if is_known else 0.05, "relevant" if is_known else "incorrect")
            for p, is_known in zip(passages, known, strict=True)
        ]


class Writes(ScriptedRewriter):
    """A rewriter that takes apart, imagines and names keywords."""

    def __init__(self, replies=(), *, parts=(), imagined="", typed="", error=None):
        super().__init__(*(replies or ["again"]))
        self.parts, self.imagined, self.typed, self.error = parts, imagined, typed, error

    def decompose(self, question):
        if self.error:
            raise self.error
        return list(self.parts)

    def hypothetical(self, question):
        return self.imagined

    def keywords(self, question):
        return self.typed


class Reranks:
    """Scores by a word, and keeps what it was shown."""

    floor = None

    def __init__(self, word: str = "port", *, error=None, scores=None):
        self.word, self.error, self.scores, self.shown = word, error, scores, []

    def rerank(self, question, passages):
        self.shown.append(len(passages))
        if self.error:
            raise self.error
        return self.scores if self.scores is not None else [9.0 if self.word in p.text else 1.0 for p in passages]


def receipt_of(how="invoke", question=QUESTION, **more):
    settings = CRAGSettings(**more.pop("settings", {}))
    agent, _ = agent_with(crag(settings=settings, **more), replies=["ok"])
    return ask(agent, question, how)["crag"]


def kept(receipt):
    return [source["id"] for source in receipt["sources"]]


# Reranking


@both
def test_a_reranker_brings_a_late_passage_to_the_evaluator(how):
    store = ScriptedRetriever({"a": [*FILLER, PORT]})
    grades, reranker = Grades("9100"), Reranks()
    receipt = receipt_of(how, vector_store=store, evaluator=grades, reranker=reranker)
    assert reranker.shown == [13]
    assert grades.shown == [["port", "f0", "f1", "f2", "f3"]]
    assert kept(receipt) == ["port"]
    (found,) = [p for p in receipt["passages"] if p["id"] == "port"]
    assert found["rerank_score"] == 9.0
    assert found["hits"] == [{"route": "knowledge", "query": 0, "rank": 13, "id": "port", "score": None}]


@both
@pytest.mark.parametrize(
    ("reranker", "reason"),
    [
        (Reranks(error=RuntimeError("private")), "RuntimeError"),
        (Reranks(scores=[1.0]), "invalid_reply"),
        (Reranks(scores=[float("nan")] * 13), "invalid_reply"),
        (Reranks(scores=["9"] * 13), "invalid_reply"),
        (Reranks(scores=7), "invalid_reply"),
    ],
)
def test_a_reranker_that_fails_leaves_the_fused_order_and_is_told(how, reranker, reason):
    grades = Grades("9100")
    receipt = receipt_of(how, vector_store=ScriptedRetriever({"a": [*FILLER, PORT]}), evaluator=grades, reranker=reranker)
    assert grades.shown[0] == ["f0", "f1", "f2", "f3", "f4"]
    assert {"step": "rerank", "reason": reason} in receipt["degraded"]


@both
def test_a_rerankers_floor_leaves_out_what_lies_below_it_and_unscored_passages_stay_behind(how):
    reranker = Reranks(scores=[2.0, 0.5, None, 3.0])
    reranker.floor = 1.0
    grades = Grades("9100")
    receipt_of(how, vector_store=ScriptedRetriever({"a": FILLER[:4]}), evaluator=grades, reranker=reranker, settings={"max_rewrites": 0})
    assert grades.shown == [["f3", "f0", "f2"]]


def test_a_floor_that_is_no_number_is_refused():
    reranker = Reranks()
    reranker.floor = "high"
    with pytest.raises(ConfigError, match="floor"):
        crag(reranker=reranker)


# Merge


@both
def test_copies_from_several_routes_are_one_passage_with_all_its_hits(how):
    copy = passage("The  exporter listens on PORT 9100.", "copy")
    receipt = receipt_of(
        how, vector_store=ScriptedRetriever({"a": [FILLER[0], PORT]}), routes=[Route("other", ScriptedRetriever({"a": [copy]}))]
    )
    (found,) = [p for p in receipt["passages"] if "port" in p["id"] or "copy" in p["id"]]
    assert {(hit["route"], hit["id"]) for hit in found["hits"]} == {("knowledge", "port"), ("other", "copy")}
    assert receipt["routes"] == [
        {"route": "knowledge", "query": 0, "found": 2, "reason": ""},
        {"route": "other", "query": 0, "found": 1, "reason": ""},
    ]


@both
def test_weight_and_age_decide_what_is_graded(how):
    def texts(grades):
        return grades.shown[0]

    stores = {
        "vector_store": ScriptedRetriever({"a": FILLER[:5]}),
        "routes": [Route("other", ScriptedRetriever({"a": FILLER[5:10]}), weight=0.1)],
    }
    receipt_of(how, **stores, evaluator=(grades := Grades("x")), settings={"max_rewrites": 0})
    assert texts(grades) == ["f0", "f1", "f2", "f3", "f4"]
    year_ago = int(time.time() * 1000) - 365 * 86_400_000
    old = [passage(p.text, p.id, created_at=year_ago) for p in FILLER[:5]]
    stores["vector_store"] = ScriptedRetriever({"a": old})
    receipt_of(how, **stores, evaluator=(grades := Grades("x")), settings={"max_rewrites": 0, "half_life_days": 30})
    assert texts(grades) == ["f5", "f6", "f7", "f8", "f9"]


@both
def test_variety_keeps_the_last_places_for_other_facts(how):
    alike = [
        passage(f"Refunds are possible within 30 days of delivery, {more}.", more)
        for more in ("by post", "as a rule", "in cash", "at once")
    ]
    other = passage("Shipping takes four working days inside the country.", "shipping")
    store = {"vector_store": ScriptedRetriever({"a": [*alike, other]})}
    receipt_of(how, **store, evaluator=(plain := Grades("x")), settings={"max_rewrites": 0, "top_k": 3, "near_duplicate": None})
    receipt_of(
        how, **store, evaluator=(varied := Grades("x")), settings={"max_rewrites": 0, "top_k": 3, "mmr_lambda": 0.3, "near_duplicate": None}
    )
    assert "shipping" not in plain.shown[0]
    assert "shipping" in varied.shown[0]


# Query work


@both
def test_a_compound_question_is_searched_as_its_parts_and_each_part_has_a_place(how):
    store = ByQuery({"compare": FILLER[:6], "exporter": [PORT], "battery": [passage("The battery holds 504 Wh.", "battery")]})
    rewriter = Writes(parts=["Which port has the exporter?", "What does the battery hold?", "third?", "fourth?"])
    grades = Grades("9100", "504")
    receipt = receipt_of(
        how,
        "compare both",
        vector_store=store,
        evaluator=grades,
        rewriter=rewriter,
        settings={"decompose": True, "max_rewrites": 0, "top_k": 3},
    )
    assert receipt["queries"] == ["compare both", "Which port has the exporter?", "What does the battery hold?", "third?"]
    assert {"port", "battery"} <= set(grades.shown[0])
    assert sorted(kept(receipt)) == ["battery", "port"]
    assert receipt["calls"]["decompose"] == 1


@both
def test_variants_are_searched_beside_the_question_and_only_in_the_first_round(how):
    store = ByQuery({"listens on": [PORT], "Which": FILLER[:2], "exporter port": FILLER[2:3], "again": []})
    rewriter = Writes(["again please"], imagined="The exporter listens on some port.", typed="exporter port")
    settings = {"query_variants": ("hypothetical", "keywords"), "max_rewrites": 1}
    receipt = receipt_of(how, vector_store=store, evaluator=Grades("zzz"), rewriter=rewriter, settings=settings)
    assert receipt["queries"] == [QUESTION, "The exporter listens on some port.", "exporter port", "again please"]
    assert {p["id"] for p in receipt["passages"]} == {"port", "f0", "f1", "f2"}


@both
def test_a_variant_that_fails_is_told_and_the_question_is_searched(how):
    rewriter = Writes(error=RuntimeError("private"))
    receipt = receipt_of(how, passages=[PORT], rewriter=rewriter, settings={"decompose": True})
    assert kept(receipt) == ["port"]
    assert receipt["degraded"] == [{"step": "decompose", "reason": "RuntimeError"}]


@pytest.mark.parametrize("settings", [{"decompose": True}, {"query_variants": ("hypothetical",)}])
def test_query_work_without_a_rewriter_that_can_do_it_is_refused(settings):
    for rewriter in (None, ScriptedRewriter("b")):
        with pytest.raises(ConfigError, match="rewriter"):
            crag(settings=CRAGSettings(**settings), rewriter=rewriter)


@both
@pytest.mark.parametrize(
    ("rounds", "replies", "queries"), [(3, ["b", "c", "d"], 4), (2, ["b", "c", "d"], 3), (0, ["b"], 1), (3, ["b", "b"], 2)]
)
def test_rounds_end_with_the_setting_or_when_a_query_repeats(how, rounds, replies, queries):
    class Fresh:
        count = 0

        def retrieve(self, question, *, agent_id, limit):
            self.count += 1
            return [passage(f"Note {self.count} about something else.", f"n{self.count}")]

    receipt = receipt_of(
        how, vector_store=Fresh(), evaluator=Grades("x"), rewriter=ScriptedRewriter(*replies), settings={"max_rewrites": rounds}
    )
    assert len(receipt["queries"]) == queries


@both
def test_rounds_end_when_nothing_new_comes_and_what_was_found_first_is_kept(how):
    store, rewriter = ScriptedRetriever({"a": FILLER[:2]}), ScriptedRewriter("b", "c", "d")
    grades = Grades("x")
    receipt = receipt_of(how, vector_store=store, evaluator=grades, rewriter=rewriter, settings={"max_rewrites": 3})
    assert receipt["queries"] == [QUESTION, "b"]
    assert grades.shown == [["f0", "f1"]]
    assert len(receipt["passages"]) == 2


# Deadline and budget


@both
def test_model_calls_are_bounded_and_optional_ones_go_first(how):
    rewriter = Writes(["b", "c", "d"], parts=["x?", "y?"], imagined="z")
    settings = {"decompose": True, "query_variants": ("hypothetical",), "max_rewrites": 3, "max_model_calls": 1}
    receipt = receipt_of(how, vector_store=ByQuery({"": FILLER[:2]}), evaluator=Grades("x"), rewriter=rewriter, settings=settings)
    assert receipt["calls"].get("evaluator") == 1
    assert not {"decompose", "hypothetical", "rewriter"} & receipt["calls"].keys()
    assert "budget_spent" in receipt["notes"]
    more = receipt_of(
        how, vector_store=ByQuery({"": FILLER[:2]}), evaluator=Grades("x"), rewriter=rewriter, settings=settings | {"max_model_calls": 3}
    )
    assert sum(n for port, n in more["calls"].items() if port in ("evaluator", "rewriter", "decompose", "hypothetical")) <= 3


@both
def test_the_turns_deadline_ends_what_hangs_and_begins_nothing_after_it(how):
    gate = threading.Event()

    class Hangs:
        def grade(self, question, passages):
            gate.wait(20)
            return []

    rewriter = ScriptedRewriter("b")
    settings = {"turn_timeout_s": 0.5, "max_rewrites": 3}
    began = time.monotonic()
    receipt = receipt_of(how, passages=[PORT], evaluator=Hangs(), rewriter=rewriter, settings=settings)
    gate.set()
    assert time.monotonic() - began < 15  # the grading alone may take 30 s
    reasons = {d["step"]: d["reason"] for d in receipt["degraded"]}
    assert reasons["grade"] == "deadline"
    assert receipt["rungs"] == ["plain_passages"]
    assert receipt["verdict"] == "ambiguous"


# Milvus


@both
def test_a_kept_passage_brings_its_neighbours_of_the_same_tenant(how, lite_uri):  # noqa: F811
    store = open_knowledge(lite_uri, LocalEmbeddings(), language="en")
    texts = [
        "Alpha machines are blue.",
        "The exporter listens on port 9100.",
        "The exporter must be restarted after a change of the port.",
        "Beta machines are red.",
    ]
    for tenant in ("a", "b"):
        store.add_texts(texts, [{"source": "m.md", "chunk_index": n} for n in range(4)], agent_id=tenant)
    for reach, shown in ((0, texts[1:2]), (1, texts[1:3])):
        question = "Which port does the exporter use, and must it be restarted after a change?"
        receipt = receipt_of(how, question, vector_store=store, evaluator=Grades("9100"), settings={"neighbours": reach})
        (source,) = receipt["sources"]
        assert [strip["text"] for strip in source["strips"]] == shown
        assert receipt["calls"].get("neighbours", 0) == reach


def test_neighbours_of_a_retriever_that_finds_none_are_refused():
    with pytest.raises(ConfigError, match="neighbours"):
        crag([PORT], settings=CRAGSettings(neighbours=1))


@both
def test_every_route_down_is_a_failed_retrieval_and_one_left_is_not(how):
    dead = ScriptedRetriever({}, error=OSError("private"))
    receipt = receipt_of(how, vector_store=dead, routes=[Route("other", ScriptedRetriever({"a": [PORT]}))])
    assert receipt["status"] == "grounded"
    assert receipt["degraded"] == [{"step": "retrieve", "reason": "OSError"}]
    receipt = receipt_of(how, vector_store=dead, routes=[Route("other", dead)])
    assert receipt["status"] == "retrieval_failed"
    assert {d["step"] for d in receipt["degraded"]} == {"retrieve", "route:other"}


async def test_two_tenants_at_once_never_see_each_others_routes():
    tenants = {t: [passage(f"Port of {t} is {n}00.", f"{t}{n}") for n in range(3)] for t in ("a", "b")}
    middleware = crag(
        agent_id=None,
        vector_store=ScriptedRetriever(tenants),
        routes=[Route("other", ScriptedRetriever({t: list(reversed(p)) for t, p in tenants.items()}))],
        evaluator=ScriptedEvaluator(),
    )
    agent, _ = agent_with(middleware, replies=["ok"], context_schema=dict)
    asked = [agent.ainvoke({"messages": [("user", QUESTION)]}, context={"agent_id": t}) for t in ("a", "b") * 10]
    for t, result in zip(("a", "b") * 10, await asyncio.gather(*asked), strict=True):
        assert {p["id"][0] for p in result["crag"]["passages"]} == {t}


@both
def test_an_async_function_is_a_route_under_invoke_too(how):
    async def status(question, *, agent_id):
        await asyncio.sleep(0)
        return [passage(f"The exporter of {agent_id} listens on port 9100.", "status")]

    receipt = receipt_of(how, vector_store=ScriptedRetriever({"a": FILLER[:1]}), routes=[Route("status", status)], evaluator=Grades("9100"))
    assert kept(receipt) == ["status"]
    assert receipt["degraded"] == []
