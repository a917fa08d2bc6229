"""The names, identifiers and numbers of a question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware.stages.names import named, names


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("How do I enable HTTPS in Nginx?", {"https", "nginx"}),
        ("Reset my password", set()),
        ("  Reset my password", set()),
        ("how to enable https in nginx", set()),
        ("HOW DO I RESET MY PASSWORD?", set()),
        ("IS ssl_certificate READ BY E5?", {"ssl_certificate", "read", "e5"}),
        ("WHAT READS PG_HBA.CONF IN 2024?", {"pg_hba.conf"}),
        ("PostgreSQL index without locks", {"postgresql"}),
        ("Does ssl_certificate accept pem files?", {"ssl_certificate"}),
        ("Ports of Milvus v2.4", {"milvus"}),
        ("Is V2.4.1 older than utf8mb4?", {"utf8mb4"}),
        ("如何在 Nginx 中启用 HTTPS？", {"nginx", "https"}),
        ("怎么撤销 git 提交", {"git"}),
        ("3D打印机多少钱", set()),
        ("How much does 李明's new phone cost?", set()),
        ("How To Use It In C++?", {"use", "c++"}),
        ("退款需要几天？", set()),
        ("", set()),
    ],
)
def test_names_are_told_by_their_looks(question: str, found: set[str]) -> None:
    assert names(question) == found


@pytest.mark.parametrize(
    ("question", "text", "share"),
    [
        ("HTTPS in Nginx?", "nginx serves https", 1.0),
        ("enable HTTPS in Nginx?", "HTTPS in Apache", 0.5),
        ("Index in PostgreSQL", "Postgres builds it", 1.0),
        ("Threads in Java", "JavaScript has none", 0.0),
        ("Modules in Go", "good modules", 0.0),
        ("Which APIs exist?", "the API", 1.0),
        ("Ports of Milvus 2.4", "Milvus 2.3", 0.5),
        ("Ports of Milvus 2.4", "Milvus v2.4", 1.0),
        ("Ports of Milvus v2.4", "Milvus 2.4", 1.0),
        ("Ports of Milvus 2.4", "Milvus 2.45 and 12.4", 0.5),
        ("2024 年的价格", "2023 年的价格", 0.0),
        ("3D打印机多少钱", "3D打印机的价格", 1.0),
        ("价格", "任何内容", 1.0),
        ("HTTPS in Nginx?", "", 0.0),
        ("", "", 1.0),
    ],
)
def test_the_share_of_names_and_numbers_that_stand_in_a_text(question: str, text: str, share: float) -> None:
    assert named(question, text) == share


WORDS = st.text(st.sampled_from("aAzZ09.+#_-' ，。年版李谁🚀\n")) | st.text(max_size=30)


@given(WORDS, WORDS)
def test_the_share_is_one_and_more_text_never_lowers_it(question: str, text: str) -> None:
    assert 0 <= named(question, text) <= named(question, f"{text}\n{question}") <= 1


@given(WORDS)
def test_a_question_has_all_of_its_own_names(question: str) -> None:
    assert named(question, question) == 1
