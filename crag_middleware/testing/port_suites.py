"""Tests that every retriever, web search, rewriter and refiner passes."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar

from crag_middleware.ports import AsyncRefiner, AsyncRetriever, AsyncRewriter, AsyncWebSearch, Refiner, Retriever, Rewriter, WebSearch
from crag_middleware.steps import Call, refine, retrieve, rewrite, search_web
from crag_middleware.tenancy import Scope
from crag_middleware.testing.suite import ODD_PASSAGES, ODD_QUESTIONS, PortSuite
from crag_middleware.types import Exchange, Passage, WebFound
from crag_middleware.web_policy import WebPolicy

AnyRetriever = Retriever | AsyncRetriever
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

    def _call(self, agent_id: str, question: str | None = None, limit: int = 10) -> Call[tuple[Passage, ...]]:
        return retrieve(self.question if question is None else question, Scope(agent_id), limit=limit, timeout_s=self.timeout_s)

    def _found(self, retriever: AnyRetriever, agent_id: str, question: str | None = None) -> list[tuple[Passage, ...]]:
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


class RewriterSuite(PortSuite):
    """Tests of a rewriter: inherit it and define the fixture `rewriter`, which returns a working one.

    Attributes:
        question: A question that needs its history.
        history: What was said before it.
    """

    question: ClassVar[str] = "What about the second one?"
    history: ClassVar[tuple[Exchange, ...]] = (
        Exchange("user", "Compare plan A and plan B."),
        Exchange("assistant", "Plan A costs 5 a month, plan B 9."),
    )
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


def _read_passages(replies: Sequence[Any], call: Call[tuple[Passage, ...]]) -> list[tuple[Passage, ...]]:
    """What the plan reads in each reply, which must not have to repair it."""
    found = [call.read(reply) for reply in replies]
    _check_ids(replies)
    return found


def _check_ids(replies: Sequence[Sequence[Passage]]) -> None:
    for reply in replies:
        assert len(set(_ids(reply))) == len(reply), f"passages must have ids of their own, got {_ids(reply)}"


def _ids(passages: Sequence[Passage]) -> list[str]:
    return [p.id for p in passages]
