"""What kind of answer is asked for, and what could be one."""

import logging
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jieba
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware.stages import chinese
from crag_middleware.stages.answers import asks_number, candidates


@pytest.mark.parametrize(
    "question",
    [
        *(
            "How many days do I have?",
            "how LONG is it",
            "How much is it?",
            "When does it open?",
            "Since when is it open?",
            "Do you know when it opens?",
        ),
        *(
            "In what year was it built?",
            "Which port does it use?",
            "What is the population of Lima?",
            "What is the maximum size of a file?",
        ),
        *(
            "退款需要几天？",
            "默认端口是多少？",
            "大桥是什么时候建的？",
            "哪年成立的？",
            "哪一年成立的？",
            "河有多长？",
            "电影的票房",
            "比赛的比分",
        ),
    ],
)
def test_a_number_a_time_or_an_amount_is_asked_for(question: str) -> None:
    assert asks_number(question)


@pytest.mark.parametrize(
    "question",
    [
        *(
            "Who founded it?",
            "How do I reset it?",
            "Which city is it in?",
            "What is shown?",
            "Somehow many came",
            "What happens when the disk is full?",
        ),
        *(
            "谁是创始人？",
            "怎么退款？",
            "几何学是谁创立的？",
            "他几乎没来的原因",
            "多伦多大学在哪里？",
            "许多大学在哪里？",
            "",
            "🚀",
            "???",
        ),
    ],
)
def test_something_else_is_asked_for(question: str) -> None:
    assert not asks_number(question)


@pytest.mark.parametrize(
    ("question", "text", "found"),
    [
        ("How many days do I have?", "Maria gives you 30 days, or seven weeks.", {"30", "7"}),
        ("How much is 5 kg?", "A parcel of 5 kg is sent by post for 12.50.", {"12.50"}),
        ("When did it open?", "It opened on 5 January 2024.", {"2024", "2024-01", "01-05", "2024-01-05"}),
        ("When did it open?", "It opened with a key.", set()),
        ("退款需要几天？", "退款在七天内到账。", {"7"}),
        ("退款需要几天？", "退款由李明处理。", set()),
        ("2024 年的年费是多少？", "2024 年的年费是 300 元。", {"300"}),
    ],
)
def test_numbers_are_possible_answers_where_numbers_are_asked_for(question: str, text: str, found: set[str]) -> None:
    assert candidates(question, text) == found


@pytest.mark.parametrize(
    ("question", "text", "found"),
    [
        ("Who founded Acme Robotics?", "Acme Robotics was founded by Maria Lindqvist in 2014.", {"maria lindqvist"}),
        ("Who founded Acme Robotics?", "It was founded in a garage. The owner is known. In it, they worked.", set()),
        ("Who wrote it?", "It is by Gabriel García Márquez, as “The Times” says.", {"gabriel garcía márquez", "“the times”"}),
        ("Where is it?", "at the University of California", {"university of california"}),
        ("谁是创始人？", "创始人是李明，生于北京。", {"李明", "北京"}),
        ("谁写的？", "《百年孤独》由加西亚·马尔克斯写成。", {"《百年孤独》", "由加西亚·马尔克斯写成"}),
        ("北京的创始人是谁？", "北京的创始人是李明。", {"李明"}),
        ("谁开发了它？", "它由 Zilliz 的团队开发。", {"zilliz"}),
        ("谁?", "", set()),
        ("谁?", "🚀，。！", set()),
    ],
)
def test_names_are_possible_answers_else(question: str, text: str, found: set[str]) -> None:
    got = candidates(question, text)

    assert found <= got
    assert bool(found) == bool(got)


TEXTS = st.text(st.sampled_from("aA 0年几李明·《》“”北京的。🚀\n")) | st.text(max_size=40)


@given(TEXTS, TEXTS)
def test_nothing_that_stands_in_the_question_could_be_its_answer(question: str, text: str) -> None:
    assert not candidates(question, question)
    assert not any(answer in question.casefold() for answer in candidates(question, text) if not asks_number(question))


def test_a_name_with_a_character_that_jieba_never_saw_ends_nothing() -> None:
    assert list(chinese.proper_names("丂北京丂丂李明㐀𠀀")) == ["北京", "李明"]


@pytest.mark.parametrize("unit", ["丂", "大中", "龘靐", "臺灣"])
def test_chinese_made_to_hold_jieba_up_does_not(unit: str) -> None:
    list(chinese.proper_names("北京"))
    begun = time.perf_counter()

    candidates("谁？", unit * 25_000)

    assert time.perf_counter() - begun < 5


def test_jieba_s_own_level_is_its_user_s() -> None:
    level = jieba.default_logger.level
    chinese.load()

    assert jieba.default_logger.level == level


def fresh(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent.parent, check=False)


def test_eight_threads_may_be_the_first_to_read_chinese_and_nothing_is_printed() -> None:
    done = fresh(
        f"""
        import threading
        import jieba
        from crag_middleware.stages.answers import candidates

        found, barrier = [], threading.Barrier(8)

        def read():
            barrier.wait()
            found.append(candidates("谁？", "创始人是李明，生于北京。"))

        threads = [threading.Thread(target=read) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert found == [{{"李明", "北京"}}] * 8, found
        assert jieba.default_logger.level == {logging.DEBUG}
        """
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_jieba_s_tagger_is_loaded_with_the_first_chinese_text_only() -> None:
    done = fresh(
        """
        import sys
        from crag_middleware.stages.answers import candidates
        candidates("Who is it?", "Maria of Lima")
        assert "jieba.posseg" not in sys.modules
        """
    )

    assert (done.returncode, done.stderr) == (0, "")
