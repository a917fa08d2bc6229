"""What the knowledge is asked: the question on its own, its parts, other texts that find its answer, and another query when none was found."""

from collections.abc import Sequence
from typing import Any

from crag_middleware.errors import CRAGError, RewriteError
from crag_middleware.ledger import Run
from crag_middleware.stages.merge import fold
from crag_middleware.stages.question import shorten
from crag_middleware.steps import Call, Plan, PortName, Stage, ask, decompose, draft_keywords, imagine, rewrite
from crag_middleware.types import Exchange, Question

Asked = tuple[PortName, Call[Any]]
"""A call of the rewriter, and what it is told as."""


def standalone(question: Question, run: Run) -> Plan[str]:
    """The question made understandable on its own if it has a history; its own words if that can't be had."""
    own = shorten(question.text, run.settings.max_question_chars)
    if not question.history or not run.settings.standalone_questions:
        return own
    return (yield from rewritten(own, run, history=question.history, sparing=1)) or own


def rewritten(text: str, run: Run, *, history: tuple[Exchange, ...] = (), tried: Sequence[str] = (), sparing: int = 0) -> Plan[str]:
    """The rewriter's text; empty if there is no rewriter, it failed, or no call is left for it beside `sparing` others."""
    if not run.has("rewriter"):
        run.notes.append("no_rewriter")
        return ""
    if not (yield from run.may_ask(sparing=sparing)):
        return ""
    yield Stage("rewriting")
    run.count("rewriter")
    try:
        written = yield from ask(rewrite(text, history, tuple(tried), run.scope, timeout_s=run.settings.rewrite_timeout_s))
    except RewriteError as error:
        run.trouble("rewrite", error)
        return ""
    return shorten(written, run.settings.max_question_chars)


def spread(query: str, run: Run) -> Plan[tuple[Asked, ...]]:
    """The calls that make further queries of one: its parts, and the variants that are set; as many as the budget has room for beside a grading."""
    settings = run.settings
    timeout_s = settings.rewrite_timeout_s
    calls: list[Asked] = [("decompose", decompose(query, run.scope, timeout_s=timeout_s))] if settings.decompose else []
    for variant in dict.fromkeys(settings.query_variants):
        write = imagine if variant == "hypothetical" else draft_keywords
        calls.append((variant, write(query, run.scope, timeout_s=timeout_s)))
    asked = []
    for port, call in calls:
        if (yield from run.may_ask(sparing=1)):
            run.count(port)
            asked.append((port, call))
    return tuple(asked)


def further(asked: Sequence[Asked], outcomes: Sequence[Any], run: Run, *, tried: Sequence[str]) -> tuple[str, ...]:
    """The texts that the calls of `spread` gave, each once and none that was tried; a failure is told."""
    texts: dict[str, str] = {}
    for (port, _), outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, CRAGError):
            run.trouble(port, outcome)
            continue
        for text in (outcome,) if isinstance(outcome, str) else outcome:
            short = shorten(text, run.settings.max_question_chars)
            texts.setdefault(fold(short), short)
    return tuple(text for key, text in texts.items() if key not in map(fold, tried))
