"""No text, however odd, holds a turn up: what reads foreign text takes time in proportion to its length."""

import contextlib
import time

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from crag_middleware.adapters.messages import read_question
from crag_middleware.errors import RewriteError
from crag_middleware.stages.answers import candidates
from crag_middleware.stages.assemble import neutralise
from crag_middleware.stages.grading import read_grades
from crag_middleware.stages.merge import MergeRules, arrange, marked, merge
from crag_middleware.stages.names import named
from crag_middleware.stages.prompting import fenced
from crag_middleware.stages.question import classify, shorten, without_fence
from crag_middleware.stages.refine import WordRefiner
from crag_middleware.stages.relevance import Read, features
from crag_middleware.stages.replies import json_values, without_reasoning
from crag_middleware.stages.rewriting import read_query
from crag_middleware.stages.selection import select
from crag_middleware.types import Grade, Graded, Passage, Thresholds

SIZE = 100_000
UNITS = [
    *("A", "Ab ", "Ab-", "1,", "大中", "李·", "《", "“", "几", "when "),
    *("a", "1", "字", " ", "\n", "，", "。", "?", "a?", "\u200b", "- "),
    *("<", "< ", "</", "&lt;", "<crag_sources>", "</crag_sources>", "<think ", "<think>"),
    *("[", "[1", "[1,", "【2†", "{", '{"a":'),
]
PASSAGES = [Passage("1", "x"), Passage("2", "y")]


def reads(text):
    classify(text)
    without_fence(text)
    shorten(text, 1000)
    neutralise(text)
    fenced("passage", text)
    without_reasoning(text)
    list(json_values(text))
    read_grades(text, PASSAGES, Thresholds(0.5, 0.9))
    with contextlib.suppress(RewriteError):
        read_query(text, "q")
    candidates(text, text)
    named(text, text)
    features("谁创立了 Acme 2.4？", [Read(text, (text, text), (0.5, 0.4)), Read("", ("Acme",), (0.5,))])


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("frame", ["{}", "x{}x", "1. relevant{}2. no"])
def test_no_text_takes_long_to_read(unit, frame):
    """Quadratic time would be minutes here; the bound leaves room for a slow machine."""
    text = frame.replace("{}", unit * (SIZE // len(unit)))
    begun = time.perf_counter()

    reads(text)

    assert time.perf_counter() - begun < 5


def test_a_long_history_is_not_read_to_its_beginning():
    blank = "<" + " " * 2000
    messages = [message for n in range(5000) for message in (HumanMessage(blank, id=f"h{n}"), AIMessage(blank))]
    begun = time.perf_counter()

    question = read_question([*messages, HumanMessage("Which port?", id="q")], history=6)

    assert len(question.history) == 6
    assert time.perf_counter() - begun < 2


def test_a_version_of_thousands_of_digits_ends_no_turn():
    pages = [
        Graded(passage=Passage(i, "x", "a.md", metadata={"version": version}), grade=Grade(i, 0.95, "relevant"))
        for i, version in (("1", "9" * 5000), ("2", "8" * 5000))
    ]

    assert len(arrange(pages)) == 2


NAMES = "退货商品到达北京仓库之后，张伟会在七天之内把款项退回原支付账户。"
DIRECTION = tuple(1.0 if i == 0 else 0.01 for i in range(384))
MANY = {
    "hundreds of English ones": [Passage(str(n), f"Build {n} listens on port {n}100 unless told otherwise. " * 15) for n in range(200)],
    "hundreds of Chinese ones without a number": [Passage(str(n), f"{NAMES * 20}{chr(0x4E00 + n)}甲") for n in range(200)],
    "near-copies with names": [Passage(str(n), f"{NAMES * 20}{'天地玄黄宇'[n % 5]}", vector=DIRECTION) for n in range(50)],
    "copies set differently": [Passage(str(n), f"{'*' * (n % 3)}Refunds take 7 days.{' ' * n}" * 30) for n in range(200)],
    "a million characters": [Passage(str(n), f"Build {n} listens on port 9100. " * 31_250) for n in range(2)],
    "a million Chinese characters": [Passage(str(n), f"第{n}版默认监听9100端口。" * 66_666) for n in range(2)],
}


@pytest.mark.parametrize("kind", MANY)
def test_many_passages_or_long_ones_take_no_long_time(kind):
    """Comparing each with each by all their words would be minutes; the bound leaves room for a slow machine."""
    rules = MergeRules(weights={}, half_life_days={}, by_type={}, now_ms=0)
    begun = time.process_time()

    merged = merge(marked(MANY[kind], "milvus", 0), rules)
    chosen = select(merged, 20, mmr_lambda=1.0, fair=False)
    WordRefiner().refine("Which port? 退款几天？", chosen)

    assert time.process_time() - begun < 8
