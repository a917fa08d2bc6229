"""Agreement of words, names, numbers and the kind of answer."""

import pytest

from crag_middleware.stages.agreement import agree, has_names, names


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("How do I enable HTTPS in Nginx?", {"https", "nginx"}),
        ("Reset my password", set()),
        ("how to enable https in nginx", set()),
        ("PostgreSQL index without locks", {"postgresql"}),
        ("Does ssl_certificate accept pem files?", {"ssl_certificate"}),
        ("如何在 Nginx 中启用 HTTPS？", {"nginx", "https"}),
        ("怎么撤销 git 提交", {"git"}),
        ("How To Use It In C++?", {"use", "c++"}),
        ("退款需要几天？", set()),
        ("", set()),
    ],
)
def test_names_are_told_by_their_looks(question: str, found: set[str]) -> None:
    assert names(question) == found


@pytest.mark.parametrize(
    ("question", "text", "there"),
    [
        ("HTTPS in Nginx?", "nginx serves https", True),
        ("HTTPS in Nginx?", "HTTPS in Apache", False),
        ("Index in PostgreSQL", "Postgres builds it", True),
        ("Threads in Java", "JavaScript has none", False),
        ("Modules in Go", "good modules", False),
        ("Which APIs exist?", "the API", True),
        ("Ports of Milvus 2.4", "Milvus 2.3", False),
        ("Ports of Milvus 2.4", "Milvus v2.4", True),
        ("2024 年的价格", "2023 年的价格", False),
        ("价格", "任何内容", True),
    ],
)
def test_every_name_and_number_of_the_question_must_stand_in_the_text(question: str, text: str, there: bool) -> None:
    assert has_names(question, text) is there


@pytest.mark.parametrize(
    ("question", "text", "there"),
    [
        ("How many days do I have?", "You have 30 days.", True),
        ("How many days do I have?", "You have some days.", False),
        ("How much is 5 kg?", "A parcel of 5 kg is sent by post.", False),
        ("When does it open?", "It opens on Monday at 9:00.", True),
        ("When does it open?", "It opens with a key.", False),
        ("退款需要几天？", "退款在七天内到账。", True),
        ("退款需要几天？", "退款由财务处理。", False),
        ("Who founded Acme Robotics?", "Acme Robotics was founded by Maria Lindqvist.", True),
        ("Who founded Acme Robotics?", "Acme Robotics was founded in a garage.", False),
        ("谁是创始人？", "创始人是李明。", True),
        ("How do I reset it?", "Press the button.", True),
    ],
)
def test_the_text_must_have_the_kind_of_thing_that_is_asked_for(question: str, text: str, there: bool) -> None:
    assert agree(question, text).kind is there


def test_shared_words_are_counted_in_both_languages() -> None:
    assert agree("default port of Milvus", "Milvus ports: the default is 19530").words == 1.0
    assert agree("default port of Milvus", "bread and salt").words == 0.0
    assert agree("退款需要几天", "退款七天到账").words == pytest.approx(0.5)
    assert agree("the of a", "the of a").words == 0.0
