"""What a real web server receives from real agents: nothing of secrets, passages, prompts, history and tenant; all of what makes a question findable."""

import asyncio
import json
import random
import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from langchain.agents import create_agent

from crag_middleware.adapters.chat_model import ChatModelRewriter
from crag_middleware.adapters.tavily import TavilyWebSearch
from crag_middleware.middleware import CRAGMiddleware
from crag_middleware.stages.keywords import INSTRUCTIONS
from crag_middleware.stages.personal import iban, luhn
from crag_middleware.stages.webquery import compose
from crag_middleware.testing import ScriptedChatModel, ScriptedEvaluator, ScriptedRetriever, ScriptedRewriter
from crag_middleware.web_policy import WebPolicy
from tests.support.agents import ask, both, passage
from tests.support.models import ScriptedModel
from tests.support.web_server import WebServer

TENANT = "tenant-kestrel-7731"
KEY = "tvly-test-key"
PASSAGES = [
    passage("The canteen CANTEEN-MARKER opens at 11:30, ask Mrs. Ottokar."),
    passage("内部资料 PASSAGE-MARKER：服务器机房在三号楼，负责人欧阳靖。"),
]
SYSTEM = "You are PROMPT-MARKER, the assistant of Quillfeather Bank. 你是羽笔银行的助手。"
EARLIER = [
    ("user", "My cat HISTORY-MARKER is ill, the vet is Dr. Zwiebel."),
    ("assistant", "I am sorry for HISTORY-MARKER. 祝早日康复，兹维贝尔医生。"),
]
PRIVATE = ["MARKER", "Ottokar", "欧阳靖", "机房", "Quillfeather", "羽笔", "Zwiebel", "兹维贝尔", "kestrel", "7731"]
"""Words of passages, system prompt, earlier conversation and tenant id."""

WORDS = "dragon sunshine princess monkey letmein swordfish trustno hunter shadow football iceman jordan buster tigger ranger pepper ginger".split()  # noqa: SIM905

Maker = Callable[[random.Random], str]


def batched(items: Sequence[Any], size: int) -> list[Sequence[Any]]:
    return [items[i : i + size] for i in range(0, len(items), size)]


def digits(count: int) -> Maker:
    return lambda chance: "".join(chance.choice("123456789") for _ in range(count))


def token(prefix: str, count: int, alphabet: str = string.ascii_letters + string.digits) -> Maker:
    return lambda chance: prefix + "".join(chance.choice(alphabet) for _ in range(count - 2)) + chance.choice("0123456789") + "q"


def shaped(shape: str) -> Maker:
    """A text with a random digit for each `9`, letter for each `A`, small letter for each `a`, hex digit for each `f`."""
    kinds = {"9": "123456789", "A": "ABCDEGHJKLMNPRSTWXYZ", "a": "bcdeghjkmnprstwxyz", "f": "0123456789abcdef"}
    return lambda chance: "".join(chance.choice(kinds.get(sign, sign)) for sign in shape)


def card(chance: random.Random) -> str:
    """A payment card with its check digit, grouped in one of the usual ways."""
    body = chance.choice(["4", "51", "6222"]) + digits(15)(chance)
    number = next(n for n in (body[:15] + str(d) for d in range(10)) if luhn(n))
    return chance.choice(["", " ", "-"]).join(number[i : i + 4] for i in range(0, 16, 4))


def account(chance: random.Random) -> str:
    """A German or British IBAN with its check digits."""
    body = chance.choice(["DE", "GB"]) + "{:02}" + (digits(18)(chance))
    number = next(n for n in (body.format(check) for check in range(2, 99)) if iban(n))
    return chance.choice([number, " ".join(number[i : i + 4] for i in range(0, len(number), 4))])


def resident(chance: random.Random) -> str:
    """A Chinese resident identity number with its check digit. Source: GB 11643-1999."""
    birth = f"{chance.randint(1950, 2005)}{chance.randint(1, 12):02}{chance.randint(1, 28):02}"
    body = f"{chance.choice(['110105', '310115', '440305'])}{birth}{chance.randint(100, 999)}"
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    return body + "10X98765432"[sum(int(d) * w for d, w in zip(body, weights, strict=True)) % 11]


def word(chance: random.Random) -> str:
    return chance.choice(WORDS)


@dataclass(frozen=True)
class Kind:
    """One kind of secret: how it is made, and sentences of both languages that tell it."""

    make: Maker
    english: tuple[str, ...]
    chinese: tuple[str, ...]


KINDS = {
    "password in a form": Kind(
        token("", 9), ("password: {}", "DB_PASSWORD={}", '{{"password": "{}"}}'), ("密码：{}", "口令={}", "password: {}")
    ),
    "password in a sentence": Kind(
        word,
        ("My password is {}.", "The root password was {}, I am sure.", "I changed the password to {} yesterday."),
        ("我的密码是 {}。", "密码是{}，", "账号admin密码{}，"),
    ),
    "password in Chinese": Kind(
        lambda c: c.choice(["龙腾虎跃", "芝麻开门", "春暖花开"]), ("密码是“{}”,", "密码：{} "), ("密码是{}，", "口令是{}。")
    ),
    "password on a command line": Kind(
        token("", 8), ("mysql -uroot -p{} fails.", "curl -u admin:{} fails."), ("执行 sshpass -p {} ssh 报错。",)
    ),
    "key of a provider": Kind(token("sk-proj-", 24), ("OPENAI_API_KEY {} is refused.", "I use {}."), ("我的 key 是 {}，", "使用{}时")),
    "token of a repository": Kind(token("ghp_", 36), ("The token is {}.",), ("令牌{}被拒绝。",)),
    "access key": Kind(token("AKIA", 16, "ABCDEGHJKLMNPQRSTUVW"), ("AWS key {} denied.",), ("访问密钥 {} 无效。",)),
    "web token": Kind(token("eyJhbGciOiJIUzI1NiJ9.", 40), ("It sends {}.",), ("请求头带有{}。",)),
    "header": Kind(token("", 20), ("Authorization: Bearer {}",), ("请求头 Authorization: Bearer {}",)),
    "address with a user": Kind(
        token("", 10), ("postgres://app:{}@db.example.com/x is used.",), ("连接串 redis://:{}@cache.example.com/0 。",)
    ),
    "address with a token": Kind(
        token("", 14), ("https://x.example/cb?access_token={} is called.",), ("回调 https://x.example/cb?code={} 。",)
    ),
    "private key": Kind(
        token("MIIEowIBAAKCAQEA", 48),
        ("-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----\n",),
        ("-----BEGIN PRIVATE KEY-----\n{}\n\n",),
    ),
    "code for one use": Kind(digits(6), ("The verification code {} is refused.", "OTP: {}"), ("验证码{}无效。", "验证码是{}，")),
    "product key": Kind(shaped("AA9A9-A9AA9-99AAA-AA99A-9AAA9"), ("Product key {} is used.",), ("序列号 {} 。",)),
    "mail address": Kind(
        lambda c: shaped("aaaaaa.aaaaa@aaaaaaa")(c) + ".com", ("Write to {}.", "{} gets no mail."), ("联系{}，", "邮箱是{}。")
    ),
    "mobile in China": Kind(shaped("13999999999"), ("My phone is {}.", "Call +86 {}."), ("手机号{}，", "请打{}。")),
    "phone in groups": Kind(shaped("(999) 999-9999"), ("Call {}.",), ("电话 {}。",)),
    "phone abroad": Kind(shaped("+49 999 9999999"), ("Call {} today.",), ("电话{}。",)),
    "resident number": Kind(resident, ("My id is {}.",), ("身份证号{}，", "身份证 {} 。")),
    "passport": Kind(shaped("A99999999"), ("passport number {}.",), ("护照号{}，",)),
    "card": Kind(card, ("My card {} is declined.",), ("银行卡{}被拒。", "卡号 {} ，")),
    "bank account": Kind(account, ("IBAN {}.",), ("账户 {} 。",)),
    "social security": Kind(shaped("999-99-9999"), ("SSN {}.",), ("社安号 {} 。",)),
    "insurance number": Kind(shaped("AA 99 99 99 C"), ("NI number {}.",), ("英国保险号 {} 。",)),
    "identity card of Hong Kong": Kind(shaped("A999999(9)"), ("HKID {}.",), ("香港身份证{}，",)),
    "number plate": Kind(lambda c: c.choice("京沪粤苏浙") + shaped("A99A99")(c), ("My car is {}.",), ("车牌{}，",)),
    "id of an account": Kind(shaped("ffffffff-ffff-ffff-ffff-ffffffffffff"), ("Tenant {} is locked.",), ("租户{}被锁。",)),
    "id of a machine": Kind(shaped("f9:9f:ff:9f:f9:ff"), ("MAC {} is offline.",), ("网卡 {} 离线。",)),
    "private address": Kind(shaped("10.9.99.99"), ("It runs on {}.", "http://{}:8080/ hangs."), ("服务器是{}，", "地址 http://{}/x 。")),
    "internal host": Kind(
        lambda c: shaped("aaaaaa.aaaa")(c) + ".internal", ("It runs on {}.", "https://{}/x hangs."), ("主机{}，", "地址 https://{}/x 。")
    ),
    "host with a port": Kind(lambda c: shaped("aaaaaa-99")(c) + ":5432", ("It runs on {}.",), ("主机 {} ，",)),
    "home on Unix": Kind(shaped("aaaaaaa"), ("It is in /home/{}/.ssh/config.", "See /Users/{}/Library."), ("文件在 /home/{}/.ssh 下。",)),
    "home on Windows": Kind(shaped("aaaaaaa"), (r"It is in C:\Users\{}\AppData.",), (r"文件在 C:\Users\{}\Desktop 里。",)),
}

ENGLISH = [
    ("Why does Nginx 1.27.3 return 502 on port 8443? {}", ("Nginx 1.27.3", "502", "8443")),
    ("{} How do I fix ORA-12154 in Oracle 19c?", ("ORA-12154", "Oracle 19c")),
    ("Since 2024 it fails with 0x80070005. {} What does KB5034441 change?", ("2024", "0x80070005", "KB5034441")),
]
CHINESE = [
    ("为什么 Nginx 1.27.3 在端口 8443 返回 502？{}", ("Nginx 1.27.3", "8443", "502")),
    ("{}如何解决 Oracle 19c 的 ORA-12154 错误？", ("Oracle 19c", "ORA-12154")),
    ("2024年起报错 0x80070005。{} 请问 KB5034441 改了什么？", ("2024年", "0x80070005", "KB5034441")),
]


@dataclass(frozen=True)
class Seeded:
    """A question with a secret, and what of it has to leave."""

    question: str
    secret: str
    kept: tuple[str, ...]
    kind: str


def corpus() -> Iterator[Seeded]:
    """Each kind of secret in each sentence that tells it, in each question around it."""
    chance = random.Random(5)
    for name, kind in KINDS.items():
        for sentences, questions in ((kind.english, ENGLISH), (kind.chinese, CHINESE)):
            for number in range(6):
                secret = kind.make(chance)
                around, kept = questions[number % 3]
                yield Seeded(around.format(sentences[number % len(sentences)].format(secret)), secret, kept, name)


CORPUS = list(corpus())


def unchanged(prompt: str) -> str:
    """The question of a rewriter's prompt."""
    return prompt.rpartition("<question>\n")[2].removesuffix("\n</question>")


def agent_on(server: WebServer, passages: Sequence[Any] = PASSAGES, **more: Any) -> Any:
    """An agent whose knowledge answers nothing and whose web is the server."""
    middleware = CRAGMiddleware(
        ScriptedRetriever({TENANT: passages}),
        TENANT,
        evaluator=ScriptedEvaluator(otherwise=0.05),
        web_search=TavilyWebSearch(api_key=KEY, api_base_url=server.url),
        **more,
    )
    return create_agent(ScriptedChatModel(replies=["ok"]), middleware=[middleware], system_prompt=SYSTEM)


def queries(server: WebServer) -> list[str]:
    return [request["body"]["query"] for request in server.requests]


def received(server: WebServer) -> str:
    """Everything that the server was sent, but for its own address and the key."""
    return json.dumps(server.requests, ensure_ascii=False).replace(KEY, "").replace(server.url.removeprefix("http://"), "")


def pieces(secret: str) -> list[str]:
    """The parts of a secret that tell something of it by themselves."""
    return [secret, *re.findall(r"[A-Za-z0-9]{4,}", secret)]


@pytest.fixture(scope="module", params=["invoke", "ainvoke"])
def turns(request: pytest.FixtureRequest) -> Iterator[tuple[WebServer, list[list[str]]]]:
    """The server after every question was asked, and the web queries that each turn's receipt tells."""
    with WebServer() as server:
        agent = agent_on(server, rewriter=ChatModelRewriter(ScriptedModel(script=[unchanged])))
        given = [{"messages": [*EARLIER, ("user", seeded.question)]} for seeded in CORPUS]
        if request.param == "invoke":
            results = [agent.invoke(messages) for messages in given]
        else:

            async def few_at_a_time() -> list[Any]:
                return [result for four in batched(given, 4) for result in await asyncio.gather(*map(agent.ainvoke, four))]

            results = asyncio.run(few_at_a_time())
        yield server, [result["crag"]["web_queries"] for result in results]


def test_the_corpus_has_every_kind_in_both_languages() -> None:
    assert len(CORPUS) >= 300
    assert all(seeded.secret in seeded.question for seeded in CORPUS)


def test_c104_no_secret_leaves_and_what_makes_a_question_findable_does(turns: tuple[WebServer, list[list[str]]]) -> None:
    server, told = turns
    everything = received(server)

    leaked = [(s.kind, s.question, sent) for s, sent in zip(CORPUS, told, strict=True) if any(p in "".join(sent) for p in pieces(s.secret))]
    lost = [(s.kind, s.question, sent) for s, sent in zip(CORPUS, told, strict=True) if not all(k in "".join(sent) for k in s.kept)]

    assert leaked == []
    assert lost == []
    assert [s for s in CORPUS if s.secret in everything] == []


def test_c104_nothing_of_passages_prompt_history_and_tenant_leaves(turns: tuple[WebServer, list[list[str]]]) -> None:
    server, _ = turns
    everything = received(server)

    assert server.requests
    assert [private for private in PRIVATE if private in everything] == []


def test_the_exact_text_that_left_is_in_the_receipt(turns: tuple[WebServer, list[list[str]]]) -> None:
    server, told = turns

    # A query that was answered just before comes from the cache.
    assert set(queries(server)) == {query for sent in told for query in sent}
    assert all(len(sent) == 1 for sent in told)
    assert all(len(query) <= 400 for query in queries(server))
    assert {tuple(sorted(request["headers"])) for request in server.requests} == {tuple(sorted(server.requests[0]["headers"]))}


@both
def test_c104_a_pasted_config_leaves_without_its_password(how: str) -> None:
    config = "server:\n  host: db-7.corp\n  port: 5432\n  user: app\n  password: s3cr3t-Pa$$\n  sslmode: verify-full\n"
    with WebServer() as server:
        result = ask(agent_on(server), f"{config}\nWhy does PostgreSQL 16 refuse the connection?", how)

        assert result["crag"]["verdict"] == "incorrect"
        (query,) = queries(server)
        assert query.endswith("Why does PostgreSQL 16 refuse the connection?")
        assert "verify-full" in query
        assert not {"s3cr3t", "corp", "db-7", *PRIVATE} & set(re.split(r"[\s.:]+", received(server)))


@both
@pytest.mark.parametrize(
    ("question", "asked"),
    [
        (
            "We run three nodes and checked each step of the manual twice. " * 19 + "Why does the third node never join?",
            "Why does the third node never join?",
        ),
        (
            "我们在三台服务器上部署了集群，并按照文档逐项检查了配置。" * 18 + "为什么第三个节点始终无法加入？",
            "为什么第三个节点始终无法加入？",
        ),
    ],
)
def test_c092_a_long_question_leaves_shortened_at_a_sentence_and_is_answered(how: str, question: str, asked: str) -> None:
    assert len(question) >= 500

    with WebServer() as server:
        result = ask(agent_on(server), question, how)

        (query,) = queries(server)
        assert len(query) <= 400
        assert query.endswith(asked)
        assert query.removesuffix(asked).strip()[-1] in ".。"
        assert result["crag"]["degraded"] == []


@both
def test_c104_who_drafts_keywords_sees_the_question_as_it_may_leave_and_nothing_else(how: str) -> None:
    model = ScriptedModel(script=[unchanged])
    with WebServer() as server:
        agent = agent_on(server, [passage("Cats sleep.", "cats")], rewriter=ChatModelRewriter(model))

        ask(agent, [*EARLIER, ("user", "My password is dragon. Why does Falcon's nginx 1.27.3 return 502?")], how)

        drafts = [asked for asked in model.asked if asked[0].text in INSTRUCTIONS.values()]
        assert [draft[1].text for draft in drafts] == [f"<question>\n{query}\n</question>" for query in queries(server)]
        assert [len(draft) for draft in drafts] == [2]


@both
def test_a_host_that_the_user_names_is_searched_in_and_leaves_the_text(how: str) -> None:
    with WebServer() as server:
        ask(agent_on(server), "nginx 502 site:docs.example.org", how)

        (sent,) = server.requests
        assert (sent["body"]["query"], sent["body"]["include_domains"]) == ("nginx 502", ["docs.example.org"])


@both
def test_a_rewriter_can_set_nothing_but_the_text(how: str) -> None:
    hijacked = ScriptedRewriter('site:evil.example "nginx 502" inurl:x My password is hunter, mail anna@acme.example')
    with WebServer() as plain, WebServer() as server:
        ask(agent_on(plain), "nginx 502", how)
        ask(agent_on(server, rewriter=hijacked), [*EARLIER, ("user", "nginx 502")], how)

        (usual,), (sent,) = plain.requests, server.requests
        assert {k: v for k, v in sent["body"].items() if k != "query"} == {k: v for k, v in usual["body"].items() if k != "query"}
        assert sent["body"]["query"] == "nginx 502 inurl x My password is , mail"


TERMS = ("Falcon", "龙腾科技", "Project Blue Sky")
SPELLINGS = [
    *(
        "Falcon",
        "FALCON",
        "falcon's",
        "Falcons",
        "ｆａｌｃｏｎ",
        "f-a-l-c-o-n",
        "f a l c o n",
        "fal\u200bcon",
        "project-falcon-db01",
        "falcon_api",
    ),
    *(
        "falcon.example.com",
        "myFalconService",
        "龙腾科技",
        "龙 腾 科 技",
        "龙腾\u200b科技",
        "龙-腾-科-技",
        "查龙腾科技的",
        "Project Blue Sky",
    ),
    *("project-blue-sky", "ProjectBlueSky", "blue_sky of project blue  sky"),
]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize(("around", "kept"), [*ENGLISH, *CHINESE])
def test_c104_a_protected_term_does_not_leave_in_any_spelling(spelling: str, around: str, kept: tuple[str, ...]) -> None:
    query = compose(around.format(f" {spelling} "), protected=TERMS).text

    letters = re.sub(r"[^\w]|_", "", query.casefold())
    assert not any(re.sub(r"\s", "", term.casefold()) in letters for term in TERMS)
    assert all(words in query for words in kept)


@both
def test_c104_the_terms_of_a_tenants_policy_reach_the_query(how: str) -> None:
    with WebServer() as server:
        agent = agent_on(server, web_policy=WebPolicy(protected_terms=TERMS))

        ask(agent, "Why does project-falcon-db01 of 龙腾科技 run nginx 1.25?", how)
        told = ask(agent, "What is Falcon?", how)["crag"]["web_queries"]

        assert queries(server) == ["Why does of run nginx 1.25?"]
        assert told == []


BENIGN = """
How do I reset a forgotten root password in MySQL 8.0?
Nginx 1.27.3 returns 502 Bad Gateway on port 8443, why?
What is the difference between TCP and UDP?
ORA-12154: TNS could not resolve the connect identifier
Windows 11 error 0x80070005 when installing KB5034441
How to fix CVE-2024-3094 in xz 5.6.1?
When does support for Oracle 10.2.0.4 end?
Chrome 120.0.6099.109 crashes on startup
SQL Server 15.0.2000.5 cumulative update 2024
Access denied for user 'root'@'localhost' (using password: YES)
Is the password stored in plain text in Firefox 128?
The password is too short, what is the minimum in Debian 12?
How do I change my password to something stronger?
What is the default password of a Raspberry Pi 5?
Where does Chrome keep passwords?
JWT token is expired in Spring Boot 3.2
the secret is not mounted in the pod, Kubernetes 1.29
API key is invalid after rotating it
KeyError: key is not found in dict, Python 3.12
host.docker.internal does not resolve on Linux
localhost:3000 refused to connect
0.0.0.0:8080 is already in use
ping 8.8.8.8 works but DNS does not
docker pull nginx:1.25-alpine fails with x509
app.py:123 TypeError: NoneType object is not callable
Main.java:57 NullPointerException in Java 21
Which requirements does ISO 9001:2015 add?
RHSA-2024:1234 fixed packages
What is the block 10.0.0.0/8 of RFC 1918 for?
ISBN 978-3-16-148410-0
Why is Number.MAX_SAFE_INTEGER 9007199254740991?
Convert timestamp 1700000000000 in JavaScript
Rails migration 20240115123045 fails
DOI 10.1145/1571941.1572114
Which CRAG is arXiv 2401.15884?
Who won the World Cup in 2022?
What happened in Berlin in 1989?
tar -xzf a.tar.gz: not in gzip format
git commit --amend --no-edit keeps the date?
ls -la /var/log shows nothing
C:\\Windows\\System32\\drivers\\etc\\hosts is read-only
ssh user@host: Permission denied (publickey)
git clone git@github.com:torvalds/linux.git hangs
npm install lodash@4.17.21 peer dependency conflict
getty@tty1.service failed on Ubuntu 24.04
How do I center a div in CSS?
credentials are not configured in boto3 1.34
Is GPT-4o better than Claude 3.5 Sonnet?
What does exit code 137 mean in Kubernetes?
commit 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b breaks the build
如何重置 MySQL 8.0 的 root 密码？
密码是什么意思？
密码是错的怎么办？
密码是加密存储的吗？
密码是MD5加密的，安全吗？
密码为空时报错 1045
初始密码是多少？
密码是否需要定期修改？
验证码收不到怎么办？
身份证丢了怎么补办？
护照过期了怎么办？
手机号怎么换绑？
电话会议怎么开？
银行卡被锁了怎么办？
Docker 25.0 与 Podman 5.0 有什么区别？
错误码 0x80070005 是什么意思？
2024年个人所得税起征点是多少？
Milvus 2.4 的默认端口是多少？
端口 19530 被占用怎么办？
粤港澳大湾区有哪些城市？
Java 17 和 Java 21 的区别
Python 3.12 有哪些新特性？
nginx 报 502 错误怎么解决？
Kubernetes 1.29 如何升级到 1.30？
微信小程序 errcode 40163
支付宝 SDK 签名错误 40002
什么是零知识证明？
一二三四五线城市如何划分？
Windows 11 23H2 蓝屏 0x0000007E
CVE-2021-44228 影响哪些版本？
请介绍一下 GB/T 22239-2019
GB 18030-2022 与 Unicode 15.1 的关系
ISO/IEC 27001:2022 附录A 有多少控制项？
12306 官网打不开怎么办？
《红楼梦》的作者是谁？
iPhone 15 Pro Max 有多重？
北京到上海的高铁要几个小时？
ORA-01017 和 ERR_CONNECTION_REFUSED 有什么区别？
Spring Boot 3.2 连接 Redis 7.2 超时
TLS 1.3 握手失败 SSL_ERROR_SYSCALL
如何在 Ubuntu 24.04 上安装 CUDA 12.4？
java.lang.OutOfMemoryError: Java heap space 怎么解决？
端口 8080、8443 和 9090 分别做什么用？
书号 9787111213826 是哪本书？
2019、2020、2021、2022 年的 GDP 增速
localhost:9200 拒绝连接
git push 报错 403
HTTP 429 与 503 的区别
RTX 4090 与 A100 的显存带宽
C++20 协程与 Go 1.22 goroutine 的区别
""".strip().split("\n")


def test_questions_without_secrets_leave_as_they_are() -> None:
    changed = [question for question in BENIGN if compose(question).text.split() != question.split()]

    assert len(BENIGN) == 100
    assert len(changed) <= 5, changed
