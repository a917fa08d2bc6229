"""Tests that every retriever, reranker, web search, rewriter and refiner passes."""

import math
from collections.abc import Sequence
from copy import deepcopy
from numbers import Real
from typing import Any, ClassVar

from crag_middleware.findings import Found, WebFound
from crag_middleware.ports import (
    AsyncRefiner,
    AsyncReranker,
    AsyncRetriever,
    AsyncRewriter,
    AsyncWebSearch,
    Refiner,
    Reranker,
    Retriever,
    Rewriter,
    WebSearch,
)
from crag_middleware.stages.decomposing import MAX_PARTS
from crag_middleware.steps import Call, decompose, imagine, refine, rerank, retrieve, rewrite, search_web
from crag_middleware.tenancy import Scope
from crag_middleware.testing.suite import ODD_PASSAGES, ODD_QUESTIONS, PortSuite
from crag_middleware.types import Exchange, Passage
from crag_middleware.web_policy import WebPolicy

AnyRetriever = Retriever | AsyncRetriever
AnyReranker = Reranker | AsyncReranker
AnyWebSearch = WebSearch | AsyncWebSearch
AnyRewriter = Rewriter | AsyncRewriter
AnyRefiner = Refiner | AsyncRefiner


class RetrieverSuite(PortSuite):
    """Tests of a retriever: inherit it and define the fixture `retriever`, which returns one over knowledge of two tenants.

    Attributes:
        agent_id: A tenant with at least two passages that the question finds.
        other_agent_id: Another one, with at least one.
        question: What finds them.
    """

    other_agent_id: ClassVar[str] = "suite-other"
    question: ClassVar[str] = "Which port does Milvus listen on?"
    _method = "retrieve"

    def test_it_finds_sound_passages_best_first(self, retriever: AnyRetriever) -> None:
        """Passages with ids of their own, each field of its type."""
        for found in self._found(retriever, self.agent_id):
            assert len(found) > 1, f"the retriever must find at least two passages of the tenant {self.agent_id!r}, got {len(found)}"

    def test_it_keeps_to_the_limit(self, retriever: AnyRetriever) -> None:
        """At most as many as asked for."""
        for reply in self._ask(retriever, self._call(self.agent_id, limit=1)):
            assert len(reply) <= 1, f"the retriever was asked for 1 passage and returned {len(reply)}"

    def test_tenants_see_their_own_passages_only(self, retriever: AnyRetriever) -> None:
        """Two tenants share none, and one that does not exist has none."""
        for own, other in zip(self._found(retriever, self.agent_id), self._found(retriever, self.other_agent_id), strict=True):
            assert other, f"the retriever must find at least one passage of the tenant {self.other_agent_id!r}"
            assert not {p.id for p in own} & {p.id for p in other}, "two tenants were shown the same passage"
        assert not any(self._found(retriever, f"{self.agent_id}-nobody")), "a tenant without knowledge was shown some"

    def test_odd_questions_find_something_or_nothing(self, retriever: AnyRetriever) -> None:
        """Whatever is asked is answered with a list."""
        for question in ODD_QUESTIONS:
            self._found(retriever, self.agent_id, question)

    def test_it_gives_the_same_sync_and_async_from_threads_and_event_loops(self, retriever: AnyRetriever) -> None:
        """Both forms, asked again, by several at once, on one event loop after the other."""
        self._check_everywhere(retriever, self._call(self.agent_id), lambda a, b: not self.deterministic or _ids(a) == _ids(b))

    def test_it_can_be_called_with_what_is_offered(self, retriever: AnyRetriever) -> None:
        """`retrieve(question, *, agent_id, limit, timeout_s)`, or fewer keywords."""
        self._check_signature(retriever, self._call(self.agent_id))

    def _call(self, agent_id: str, question: str | None = None, limit: int = 10) -> Call[Found]:
        return retrieve(self.question if question is None else question, Scope(agent_id), limit=limit, timeout_s=self.timeout_s)

    def _found(self, retriever: AnyRetriever, agent_id: str, question: str | None = None) -> list[Found]:
        return _read_passages(self._ask(retriever, call := self._call(agent_id, question)), call)


class WebSearchSuite(PortSuite):
    """Tests of a web search: inherit it and define the fixture `web_search`, which returns a working one.

    Attributes:
        query: What finds at least two pages.
    """

    query: ClassVar[str] = "Milvus default port"
    _method = "search"

    def test_it_finds_sound_pages(self, web_search: AnyWebSearch) -> None:
        """Passages with ids of their own, each field of its type."""
        for found in self._found(web_search, self._call(self.query)):
            assert len(found) > 1, f"the web search must find at least two pages for {self.query!r}, got {len(found)}"

    def test_it_keeps_to_the_limit(self, web_search: AnyWebSearch) -> None:
        """At most as many as asked for."""
        for reply in self._ask(web_search, self._call(self.query, limit=1)):
            assert len(reply) <= 1, f"the web search was asked for 1 page and returned {len(reply)}"

    def test_odd_queries_find_something_or_nothing(self, web_search: AnyWebSearch) -> None:
        """Whatever has a word in it is answered with a list; nothing else is searched."""
        for query in ("x", "Milvus 的默认端口", "\\ \" ' {{}} %s", "word " * 60):
            self._found(web_search, self._call(query))

    def test_it_gives_the_same_sync_and_async_from_threads_and_event_loops(self, web_search: AnyWebSearch) -> None:
        """Both forms, asked again, by several at once, on one event loop after the other."""
        self._check_everywhere(web_search, self._call(self.query), lambda a, b: not self.deterministic or _ids(a) == _ids(b))

    def test_it_can_be_called_with_what_is_offered(self, web_search: AnyWebSearch) -> None:
        """`search(query, *, agent_id, limit, timeout_s, options, policy)`, or fewer keywords."""
        self._check_signature(web_search, self._call(self.query))

    def _call(self, query: str, limit: int = 5) -> Call[WebFound]:
        return search_web(query, self._scope, limit=limit, timeout_s=self.timeout_s, options={}, policy=WebPolicy())

    def _found(self, web_search: AnyWebSearch, call: Call[WebFound]) -> list[tuple[Passage, ...]]:
        replies = self._ask(web_search, call)
        found: list[tuple[Passage, ...]] = [call.read(reply) for reply in replies]
        _check_ids(replies)
        return found


class RerankerSuite(PortSuite):
    """Tests of a reranker: inherit it and define the fixture `reranker`, which returns a working one.

    Attributes:
        order_free: Whether a passage's score does not depend on its place among the others. Say False where a model sees all at once.
        tolerance: How far two scores that should be equal may differ.
        question: What the passages are scored against.
        passages: What is scored; at least two, whose scores differ.
    """

    order_free: ClassVar[bool] = True
    tolerance: ClassVar[float] = 1e-6
    question: ClassVar[str] = "Which port does Milvus listen on?"
    passages: ClassVar[tuple[Passage, ...]] = (
        Passage(id="p1", text="Bread needs flour, water, salt and yeast."),
        Passage(id="p2", text="Milvus listens on port 19530.", title="Ports"),
        Passage(id="p3", text="Milvus is a database."),
    )
    _method = "rerank"

    def test_every_passage_gets_a_score_or_none(self, reranker: AnyReranker) -> None:
        """One finite number or None a passage, and not None for all of them."""
        for scores in self._scored(reranker, self.question, self.passages):
            assert any(score is not None for score in scores), "the reranker scored no passage at all"

    def test_no_passages_get_no_scores(self, reranker: AnyReranker) -> None:
        """An empty list is no error."""
        self._scored(reranker, self.question, ())

    def test_odd_passages_and_questions_are_scored(self, reranker: AnyReranker) -> None:
        """Blank, long, Chinese and hostile texts, emoji, and one text twice get a score each, be it None."""
        self._scored(reranker, self.question, ODD_PASSAGES)
        for question in ODD_QUESTIONS:
            self._scored(reranker, question, self.passages)

    def test_scores_stand_in_the_passages_order(self, reranker: AnyReranker) -> None:
        """A passage has the same score wherever it stands, if the reranker claims that; not the best one first."""
        if not self.order_free or not self.deterministic:
            return
        forward, backward = (self._scored(reranker, self.question, passages) for passages in (self.passages, self.passages[::-1]))
        for one, other in zip(forward, backward, strict=True):
            assert self._same(one, other[::-1]), f"the scores must stand in the passages' order: {one!r}, and reversed {other!r}"

    def test_it_gives_the_same_sync_and_async_from_threads_and_event_loops(self, reranker: AnyReranker) -> None:
        """Both forms, asked again, by several at once, on one event loop after the other."""
        self._check_everywhere(reranker, self._call(self.question, self.passages), lambda a, b: not self.deterministic or self._same(a, b))

    def test_what_it_is_given_stays_as_it_was(self, reranker: AnyReranker) -> None:
        """Passages are read and never written."""
        given = list(deepcopy(self.passages))
        self._ask(reranker, self._call(self.question, given))
        assert given == list(self.passages), f"the reranker changed its passages: {given!r}"

    def test_it_can_be_called_with_what_is_offered(self, reranker: AnyReranker) -> None:
        """`rerank(question, passages, *, agent_id, timeout_s)`, or fewer keywords."""
        self._check_signature(reranker, self._call(self.question, self.passages))

    def test_its_floor_is_a_number_or_none(self, reranker: AnyReranker) -> None:
        """What scores can be compared with, if there is one."""
        floor = getattr(reranker, "floor", None)
        assert floor is None or (isinstance(floor, Real) and math.isfinite(floor)), (
            f"`floor` must be a finite number or None, got {floor!r}"
        )

    def _call(self, question: str, passages: Sequence[Passage]) -> Call[Any]:
        return rerank(question, passages, self._scope, timeout_s=self.timeout_s)  # type: ignore[arg-type]  # a list shows changes

    def _scored(self, reranker: AnyReranker, question: str, passages: Sequence[Passage]) -> list[Sequence[float | None]]:
        call = self._call(question, passages)
        return [call.read(reply) for reply in self._ask(reranker, call)]

    def _same(self, one: Sequence[float | None], other: Sequence[float | None]) -> bool:
        return all(a == b if a is None or b is None else abs(a - b) <= self.tolerance for a, b in zip(one, other, strict=True))


class RewriterSuite(PortSuite):
    """Tests of a rewriter: inherit it and define the fixture `rewriter`, which returns a working one.

    What it may have besides (`decompose`, `hypothetical`) is checked where it has it.

    Attributes:
        question: A question that needs its history.
        history: What was said before it.
        compound: A question that asks for two things.
    """

    question: ClassVar[str] = "What about the second one?"
    history: ClassVar[tuple[Exchange, ...]] = (
        Exchange("user", "Compare plan A and plan B."),
        Exchange("assistant", "Plan A costs 5 a month, plan B 9."),
    )
    compound: ClassVar[str] = "What does plan A cost, and when did plan B begin?"
    _method = "rewrite"

    def test_a_follow_up_becomes_text(self, rewriter: AnyRewriter) -> None:
        """With a history: a query of one's own words, never blank."""
        self._written(rewriter, self._call())

    def test_another_query_differs_from_those_tried(self, rewriter: AnyRewriter) -> None:
        """With queries tried: one that is none of them."""
        tried = "How much is plan B?"
        for written in self._written(rewriter, rewrite(tried, (), (tried,), self._scope, timeout_s=self.timeout_s)):
            assert written != tried, "the rewriter returned a query that was tried already"

    def test_it_gives_the_same_sync_and_async_from_threads_and_event_loops(self, rewriter: AnyRewriter) -> None:
        """Both forms, asked again, by several at once, on one event loop after the other."""
        self._check_everywhere(rewriter, self._call(), lambda a, b: not self.deterministic or a == b)

    def test_it_can_be_called_with_what_is_offered(self, rewriter: AnyRewriter) -> None:
        """`rewrite(question, *, history, tried, agent_id, timeout_s)`, or fewer keywords."""
        self._check_signature(rewriter, self._call())

    def test_the_parts_of_a_question_are_few_and_differ_from_it(self, rewriter: AnyRewriter) -> None:
        """None, or three texts at most, none blank, twice, or the whole question."""
        call = decompose(self.compound, self._scope, timeout_s=self.timeout_s)
        for reply in self._optional(rewriter, "decompose", call):
            parts = call.read(reply)
            assert len(parts) == len(reply), f"`decompose` must return at most {MAX_PARTS} texts, none of them blank, got {reply!r}"
            assert len({*parts, self.compound}) == len(parts) + 1, (
                f"the parts must differ from each other and from the question, got {parts!r}"
            )

    def test_a_hypothetical_passage_is_text_other_than_the_question(self, rewriter: AnyRewriter) -> None:
        """Words to search with, other than those that are searched anyhow."""
        call = imagine(self.compound, self._scope, timeout_s=self.timeout_s)
        for reply in self._optional(rewriter, "hypothetical", call):
            assert call.read(reply) != self.compound, "the rewriter returned the question as a passage"

    def _optional(self, rewriter: AnyRewriter, method: str, call: Call[Any]) -> list[Any]:
        """What each form of a method replies; nothing if the rewriter has none."""
        if not any(callable(getattr(rewriter, name, None)) for name in (method, f"a{method}")):
            return []
        self._check_signature(rewriter, call, method)
        return self._ask(rewriter, call, method)

    def _call(self) -> Call[str]:
        return rewrite(self.question, self.history, (), self._scope, timeout_s=self.timeout_s)

    def _written(self, rewriter: AnyRewriter, call: Call[str]) -> list[str]:
        return [call.read(reply) for reply in self._ask(rewriter, call)]


class RefinerSuite(PortSuite):
    """Tests of a refiner: inherit it and define the fixture `refiner`, which returns a working one.

    Attributes:
        question: What the strips should bear on.
        passages: What they are picked from.
    """

    question: ClassVar[str] = "Which port does Milvus listen on?"
    passages: ClassVar[tuple[Passage, ...]] = (
        Passage(id="p1", text="Milvus is a vector database. It listens on port 19530. Bread needs salt."),
        Passage(id="p2", text="Milvus 是向量数据库。它默认监听 19530 端口。面包要放盐。"),
    )
    _method = "refine"

    def test_strips_stand_in_their_passage_word_for_word(self, refiner: AnyRefiner) -> None:
        """One list a passage, its strips with true offsets, none empty, none over another."""
        self._check(refiner, self.question, self.passages)

    def test_no_passages_give_no_strips(self, refiner: AnyRefiner) -> None:
        """An empty list is no error."""
        self._check(refiner, self.question, ())

    def test_odd_passages_and_questions_are_refined(self, refiner: AnyRefiner) -> None:
        """Blank, long, Chinese and hostile texts, and emoji, keep what was said above."""
        self._check(refiner, self.question, ODD_PASSAGES)
        for question in ODD_QUESTIONS:
            self._check(refiner, question, self.passages)

    def test_it_gives_the_same_sync_and_async_from_threads_and_event_loops(self, refiner: AnyRefiner) -> None:
        """Both forms, asked again, by several at once, on one event loop after the other."""
        call = self._call(self.question, self.passages)
        self._check_everywhere(refiner, call, lambda a, b: not self.deterministic or call.read(a) == call.read(b))

    def test_what_it_is_given_stays_as_it_was(self, refiner: AnyRefiner) -> None:
        """Passages are read and never written."""
        given = list(deepcopy(self.passages))
        self._ask(refiner, self._call(self.question, given))
        assert given == list(self.passages), f"the refiner changed its passages: {given!r}"

    def test_it_can_be_called_with_what_is_offered(self, refiner: AnyRefiner) -> None:
        """`refine(question, passages, *, agent_id, timeout_s, memo)`, or fewer keywords."""
        self._check_signature(refiner, self._call(self.question, self.passages))

    def _call(self, question: str, passages: Sequence[Passage]) -> Call[Any]:
        return refine(question, passages, self._scope, timeout_s=self.timeout_s)  # type: ignore[arg-type]  # a list shows changes

    def _check(self, refiner: AnyRefiner, question: str, passages: Sequence[Passage]) -> None:
        call = self._call(question, passages)
        for reply in self._ask(refiner, call):
            assert all(strip.text for strips in call.read(reply) for strip in strips), "the refiner returned a strip without text"


def _read_passages(replies: Sequence[Any], call: Call[Found]) -> list[Found]:
    """What the plan reads in each reply, which must not have to repair it."""
    found = [call.read(reply) for reply in replies]
    _check_ids(replies)
    return found


def _check_ids(replies: Sequence[Sequence[Passage]]) -> None:
    for reply in replies:
        assert len(set(_ids(reply))) == len(reply), f"passages must have ids of their own, got {_ids(reply)}"


def _ids(passages: Sequence[Passage]) -> list[str]:
    return [p.id for p in passages]
