"""What leaves for a web search."""

import string
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware.stages.webquery import compose, cut

ENGLISH = " ".join(f"Sentence number {i} describes the set-up of our cluster in some detail." for i in range(25))
CHINESE = "我们在三台服务器上部署了集群，并按照文档逐项检查了配置。" * 20


@pytest.mark.parametrize(
    "question",
    [
        "How do I reset my password?",
        "密码错误怎么办？",
        "Nginx 1.27.3 returns 502 on port 8443, why?",
        "Error 0x80070005 and HRESULT -2147467259 after update KB5034441 in 2024",
        "integer overflow at 2147483647 or 4294967295",
        "ORA-01017 和 ERR_CONNECTION_REFUSED 有什么区别",
        "java.lang.IllegalArgumentException in OAuth2AuthorizationServerConfiguration",
        "gpt-4o-mini-2024-07-18 vs claude-3-5-sonnet-20241022",
        "@angular/core@15.2.0 peer dependency conflict",
        "/usr/local/lib/python3/site-packages/foo/bar is not writable",
        "years 2019 2020 2021 2022 and ports 8080 8443 9090 9443",
        "What does C++11 14 17 20 23 support mean",
        "pi is 3.14159265358979",
        "What are bearer shares, and is a basic income taxed?",
        "monkey: an animal? keyboard: US layout",
        "the password is wrong after the update",
        "invalid token: unexpected end of JSON input",
        "docker run -p 8080:80 -e TZ=UTC nginx:1.25-alpine",
        "与 2023-10-01 12:30:45 相比",
        "sk-learn-intelex or scikit-learn",
        "192.168.1.10 refuses 10.0.0.0/8",
        "What does error code 3221225477 mean?",
        "Windows error 1073741819",
        "1234567890 bytes in GB",
        "What is 1000000007 in modular arithmetic?",
        "Why is LONG_MAX 9223372036854775807 and LONG_MIN -9223372036854775808?",
        "Unix timestamp 1700000000 to date",
        "ISBN 9783161484100 or ISBN 978-3-16-148410-0",
        "commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b breaks the build",
        "HRESULT 0x800700057",
        "What does sorted(d, key=str.lower) do?",
        "sort(key=len, reverse=True) and max(d, key=d.get)",
        "How does key=lambda x: x[1] work in sorted()?",
        "React key=index warning and key={item.id}",
        "git@github.com:torvalds/linux.git permission denied",
        "http://localhost:4873/@scope/pkg returns 404",
        "password: how to reset it on Windows 11",
        "API key: where do I find it?",
        "密码：如何重置？",
        "密码：忘记了怎么办？",
        "密钥: 什么是非对称加密",
        "密码 SHA256 加密",
        "secretary: duties",
        "passwordless: pros",
        "the password is wrong!",
        "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE is undefined",
        "docker run mysql -p3306:3306",
        "How do I use mysql -p <password> safely",
        "忘记了Windows11密码怎么办",
        "https://example.com/page?code=404",
        "验证码 404 错误",
    ],
)
def test_an_ordinary_question_leaves_as_it_is(question: str) -> None:
    assert compose(question) == question


SECRETS = [
    ("why does password: hunter2 fail?", "hunter2"),
    ('{"password": "S3cr3t, with words", "port": 5432} fails', "words"),
    ("DB_PASSWORD=correcthorse in .env is ignored", "correcthorse"),
    ("spring.datasource.password = tiger", "tiger"),
    ("<password>hunter2</password> in settings.xml", "hunter2"),
    ("mysql --password hunter2 fails", "hunter2"),
    ("my password is hunter2 and I can't log in", "hunter2"),
    ("我的密码是abc12345，为什么登录失败？", "abc12345"),
    ("密码：Ab#99xyz 无法登录", "Ab#99xyz"),
    ("key=abcdef in the config", "abcdef"),
    ("token: 9f8e7d", "9f8e7d"),
    ("api_key: plainword", "plainword"),
    ("clientSecret='abc def'", "abc def"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalr"),
    ("AKIAIOSFODNN7EXAMPLE is denied", "AKIAIOSFODNN7EXAMPLE"),
    ("OPENAI sk-proj-abc123def456ghi789 rejected", "abc123"),
    ("sk-abcdefghijklmnopqrstuvwx rejected", "abcdefghijklmnopqrstuvwx"),
    ("s\u200bk-abc123def456ghi789 rejected", "abc123"),
    ("push with ghp_16C7e42F292c6912E7710c838347Ae178B4a", "16C7e42F"),
    ("Authorization: Bearer abcdefgh", "abcdefgh"),
    ("curl -H 'Authorization: Basic dXNlcjpwYXNz' fails", "dXNlcjpwYXNz"),
    ("send bearer a1b2c3d4e5f6 to it", "a1b2c3d4e5f6"),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln is expired", "eyJ"),
    ("postgres://app:S3cret@db.internal:5432/x times out", "S3cret"),
    ("sha 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "9f86d081"),
    ("blob dGhpcyBpcyBhIHNlY3JldCB2YWx1ZTEyMw==", "dGhpcyBp"),
    ("mail zhangsan@acme.com about it", "zhangsan"),
    ("联系张三zhang.san@acme.com.cn处理", "zhang.san"),
    ("call 13800138000 now", "13800138000"),
    ("电话１３８００１３８０００", "138"),
    ("call +86 138 0013 8000", "0013"),
    ("call (415) 555-0123 or 415-555-0123", "555"),
    ("座机 010-12345678", "12345678"),
    ("ssn 123-45-6789", "6789"),
    ("身份证11010519491231002X丢失", "19491231"),
    ("id 110105 19491231 002X", "19491231"),
    ("card 4111 1111 1111 1111 declined", "1111"),
    ("card 4111-1111-1111-1111 declined", "1111"),
    ("card 4111111111111111 declined", "4111"),
    ("account 12345678901", "12345678901"),
    ("tenant 550e8400-e29b-41d4-a716-446655440000 is locked", "550e8400"),
    (r"{\"password\":\"esc9 secret\"} fails", "secret"),
    (r'"password" : "with \"quote9\" inside" fails', "inside"),
    ("密碼：abc12345", "abc12345"),
    ("密码 abc12345 登录失败", "abc12345"),
    ("密码 123456 登录失败", "123456"),
    ("密码改成abc12345了", "abc12345"),
    ("账号admin密码admin123", "admin123"),
    ("用户名：张三 密码：龙腾虎跃", "龙腾虎跃"),
    ("密码是“龙腾虎跃”", "龙腾虎跃"),
    ('password "dragon" fails', "dragon"),
    ("password `dragon` fails", "dragon"),
    ('the password is "dragon"', "dragon"),
    ("the password was changed to Winter2024!", "Winter2024"),
    ("| password | dragon |", "dragon"),
    ('<password type="x">two words</password>', "words"),
    ('<add key="Password" value="dragon"/>', "dragon"),
    ('{"name":"DB_PASSWORD","value":"dragon"}', "dragon"),
    ("- name: DB_PASSWORD\n  value: dragon", "dragon"),
    ("password: |\n  dragon", "dragon"),
    ("password: abc def9 ghi", "def9"),
    ("pw: dragon", "dragon"),
    ("passwd hunter2", "hunter2"),
    ("curl -s -u admin:dragon http://x", "dragon"),
    ("sshpass -p dragon ssh host", "dragon"),
    ("mysql -uroot -pdragon", "dragon"),
    ("redis-cli -h db -a dragon", "dragon"),
    ("https://user:p/ss@host/x", "p/ss"),
    ("https://user:p@ss@host/x", "ss@"),
    ("https://x.com/cb?code=4/0AX4XfWh&state=1", "0AX4XfWh"),
    ("https://x.com/cb?key=abc", "abc"),
    ("https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXX", "T0000"),
    ("ya29.a0AfH6SMBx expired", "a0AfH6SMBx"),
    ("SG.abcdefgh.ijklmnop rejected", "abcdefgh"),
    ("dop_v1_abcdef123456 rejected", "abcdef"),
    ("whsec_abcdEFGH1234 rejected", "abcdEFGH"),
    ("glpat-abcdEFGHijkl rejected", "abcdEFGH"),
    ("tel 1-800-555-0123", "555"),
    ("phone 020 7946 0958", "7946"),
    ("call 415.555.0123 or 138.0013.8000", "01"),
    ("call 4155550123", "4155550123"),
    ("account number: 123456789", "123456789"),
    ("账号123456789", "123456789"),
    ("amex 3782 822463 10005", "822463"),
    ("card 4111.1111.1111.1111", "1111"),
    ("银行卡6222 0200 0000 1234 567", "567"),
    ("验证码 482193 无效", "482193"),
    ("my pin code: 4821", "4821"),
    ("PIN 4821 is refused", "4821"),
    ("护照E12345678丢失", "12345678"),
]


@pytest.mark.parametrize(("question", "secret"), SECRETS)
def test_c104_a_secret_does_not_leave(question: str, secret: str) -> None:
    assert secret not in compose(question)


@pytest.mark.parametrize(
    ("question", "query"),
    [
        ("why does password: hunter2 fail?", "why does password fail?"),
        ("sk-abc123def456ghi789为什么失败？", "为什么失败？"),
        ("密码是abc12345，为什么登录失败？", "密码 ，为什么登录失败？"),
        ("错误码 10060，手机13800138000收不到短信", "错误码 10060，手机 收不到短信"),
    ],
)
def test_c104_what_stands_around_a_secret_leaves(question: str, query: str) -> None:
    assert compose(question) == query


@pytest.mark.parametrize("end", ["-----END RSA PRIVATE KEY-----\n", ""])
def test_c104_a_private_key_does_not_leave_even_if_cut_off(end: str) -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA7bq3\nabcdefghijklmnopABCDEFGH\nqrs1==\n" + end

    query = compose(f"nginx 1.27 says 'key values mismatch'\n{key}Why does TLS fail on port 8443?")

    assert query == "nginx 1.27 says 'key values mismatch' Why does TLS fail on port 8443?"


def test_c104_of_a_pasted_config_the_question_leaves_and_the_password_does_not() -> None:
    config = "database:\n  host: db01\n  port: 5432\n  user: app\n  password: s3cr3t-Pa$$\n  sslmode: verify-full\n"

    query = compose(f"{config}\nWhy does PostgreSQL 16 refuse the connection?")

    assert query.endswith("Why does PostgreSQL 16 refuse the connection?")
    assert "5432" in query
    assert "s3cr3t" not in query


def test_search_operators_lose_their_force_and_keep_their_words() -> None:
    assert compose("SITE:evil.example inurl:admin filetype：pdf how to reset") == "SITE evil.example inurl admin filetype pdf how to reset"
    assert compose("查site:evil.example的说明") == "查site evil.example的说明"


def test_white_space_and_invisible_characters_are_folded() -> None:
    assert compose("  how\tto\n\nreset\u200b \u202ethe router\x00  ") == "how to reset the router"


@pytest.mark.parametrize("question", ["", "  \n", "?!", "。。。", "🙂", "\u200b", "sk-abc123def456ghi789", "13800138000"])
def test_nothing_worth_searching_gives_an_empty_query(question: str) -> None:
    assert compose(question) == ""


def test_c092_of_a_long_english_text_the_question_is_kept_and_sentences_stay_whole() -> None:
    asked = "Why does the third node never join?"

    query = compose(f"{ENGLISH} {asked} {ENGLISH}")

    assert len(query) <= 400
    assert asked in query
    assert query.startswith("Sentence number 0")
    assert all(part.strip() + "." in ENGLISH for part in query.replace(asked, "").split(".") if part.strip())


def test_c092_of_500_chinese_characters_the_question_is_kept_and_sentences_stay_whole() -> None:
    asked = "为什么第三个节点始终无法加入？"

    query = compose(CHINESE + asked)

    assert len(query) <= 400
    assert query.endswith(asked)
    assert query.removesuffix(asked) in CHINESE
    assert query.removesuffix(asked).endswith("。")


@pytest.mark.parametrize("question", ["word " * 240, "how do I configure the replica set " * 35 + "?"])
def test_c092_a_single_long_english_sentence_is_cut_between_words(question: str) -> None:
    query = compose(question)

    assert 350 <= len(query) <= 400
    assert f"{query} " in f"{question} "


def test_c092_a_single_long_chinese_sentence_is_cut_between_words() -> None:
    question = "人工智能" * 125

    query = compose(question)

    assert 390 <= len(query) <= 400
    assert len(query) % 2 == 0


@given(st.text(alphabet=string.ascii_letters + string.digits + " .?!,\n中文问题吗。？，", max_size=900), st.integers(1, 450))
def test_a_query_never_exceeds_its_limit_and_composing_again_keeps_within_it(question: str, limit: int) -> None:
    query = compose(question, limit=limit)

    assert len(query) <= limit
    assert query == " ".join(query.split())
    assert len(compose(query, limit=limit)) <= len(query)


@given(st.text(max_size=300), st.integers(0, 200))
def test_cutting_keeps_a_beginning_of_the_text(text: str, limit: int) -> None:
    assert text.startswith(cut(text, limit))
    assert len(cut(text, limit)) <= limit or len(text) <= limit


@pytest.mark.parametrize(
    "filler",
    [
        *("a", "a1", "1 ", "a@", "a.", "=", " ", "\n", "?", "。", "中", "://", "0x", "eyJ", "-eyJ", "-----BEGIN A-----"),
        *(
            "password",
            "password: ",
            "passwordis",
            "password “",
            'password="',
            "<password ",
            "|password",
            "密码",
            "key:",
            "id ",
            "curl ",
            "mysql ",
        ),
    ],
)
def test_a_huge_text_takes_no_huge_time(filler: str) -> None:
    began = time.perf_counter()

    compose(filler * (200_000 // len(filler)))

    assert time.perf_counter() - began < 3


@pytest.mark.parametrize("start", ["password", "密码", "密码改", "PIN", "护照", "account", "password is", "curl", "|", "key="])
@pytest.mark.parametrize("filler", [" ", "\n", "1", "a"])
def test_a_long_run_after_the_name_of_a_secret_takes_no_huge_time(start: str, filler: str) -> None:
    began = time.perf_counter()

    compose(start + filler * 100_000)

    assert time.perf_counter() - began < 2
