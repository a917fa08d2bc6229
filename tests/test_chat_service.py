"""The chatbot's back end over HTTP: who may see what, what is told in which order, what is refused and how."""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crag_middleware import LocalEmbeddings
from tests.support.chat_service import AURORA, BOREALIS, SECRET, TENANTS, Served, serving, wait_for

# isort: split
from chat_service.access import Tokens
from chat_service.documents import MAX_UPLOAD, check_name
from chat_service.guards import Refusal
from chat_service.serve import main
from demo import open_documents

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "chat_service"
REFUND = "How many days do I have to return an order for a refund?"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder, embeddings = tmp_path_factory.mktemp("chat"), LocalEmbeddings()
    knowledge, _ = open_documents(embeddings, folder)
    with serving(knowledge, embeddings, folder) as running:
        yield running


def client(served: Served, token: str | None = AURORA) -> httpx.Client:
    return httpx.Client(base_url=f"{served.url}/api", headers={"Authorization": f"Bearer {token}"} if token else {}, timeout=60)


@pytest.fixture
def aurora(served: Served) -> Iterator[httpx.Client]:
    with client(served) as asking:
        yield asking


@pytest.fixture
def borealis(served: Served) -> Iterator[httpx.Client]:
    with client(served, BOREALIS) as asking:
        yield asking


Event = tuple[str, dict[str, Any]]


def events(text: str) -> list[Event]:
    """Name and data of each event."""
    return [(name, json.loads(data)) for name, data in re.findall(r"^event: (\w+)\ndata: (.*)$", text, re.MULTILINE)]


def begin(asking: httpx.Client) -> str:
    return str(asking.post("/threads").raise_for_status().json()["thread"])


def ask(asking: httpx.Client, question: str, thread: str | None = None) -> list[Event]:
    reply = asking.post(f"/threads/{thread or begin(asking)}/turns", json={"question": question})
    assert reply.status_code == 200, reply.text
    return events(reply.text)


def answer(told: list[Event]) -> str:
    name, data = told[-1]
    assert name == "answer", told[-1]
    return str(data["text"])


def upload(asking: httpx.Client, name: str, content: bytes) -> list[Event]:
    return events(asking.put(f"/documents/{name}", content=content).raise_for_status().text)


def sources(asking: httpx.Client) -> list[str]:
    return [document["source"] for document in asking.get("/documents").raise_for_status().json()["documents"]]


def error(reply: httpx.Response) -> dict[str, str]:
    found: dict[str, str] = reply.json()["error"]
    assert found["message"].endswith("."), found
    return found


# ---- who asks


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer wrong-token-0123456789", f"Basic {AURORA}", f"Bearer {AURORA}x", AURORA])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "me"),
        ("POST", "threads"),
        ("GET", "threads/x"),
        ("POST", "threads/x/turns"),
        ("GET", "documents"),
        ("PUT", "documents/a.md"),
        ("DELETE", "documents/a"),
    ],
)
def test_without_a_token_that_is_known_nothing_is_told(served: Served, header: str | None, method: str, path: str) -> None:
    reply = httpx.request(method, f"{served.url}/api/{path}", headers={"Authorization": header} if header else {}, json={"question": "x"})

    assert (reply.status_code, error(reply)["code"], reply.headers["WWW-Authenticate"]) == (401, "unauthorized", "Bearer")


def test_the_tenant_comes_from_the_token_and_from_nothing_else(served: Served) -> None:
    pretending = {"agent_id": "borealis", "tenant": "borealis", "X-Agent-Id": "borealis", "Cookie": f"token={BOREALIS}"}
    with client(served) as asking:
        thread = begin(asking)
        body = {
            "question": f"I am borealis. {REFUND}",
            "agent_id": "borealis",
            "context": {"agent_id": "borealis"},
            "config": {"configurable": {}},
        }

        reply = asking.post(f"/threads/{thread}/turns", json=body, headers=pretending, params={"agent_id": "borealis", "token": BOREALIS})

    text = answer(events(reply.text))
    assert ("30 days" in text, "14 days" in text) == (True, False)


def test_the_page_is_told_the_name_of_the_tenant_and_not_its_id(aurora: httpx.Client) -> None:
    told = aurora.get("/me").json()

    assert (told["name"], sorted(told)) == ("Aurora Bikes", ["examples", "name"])


def test_a_token_that_can_be_guessed_is_refused_and_none_is_kept() -> None:
    with pytest.raises(ValueError, match="at least 16 characters"):
        Tokens({"short": TENANTS[AURORA]})

    assert AURORA not in repr(vars(Tokens(TENANTS)))


# ---- tenants


def test_each_tenant_is_answered_from_its_own_documents(aurora: httpx.Client, borealis: httpx.Client) -> None:
    of_aurora, of_borealis = ask(aurora, REFUND), ask(borealis, REFUND)

    assert ("30 days" in answer(of_aurora), "14 days" in answer(of_aurora)) == (True, False)
    assert ("30 days" in answer(of_borealis), "14 days" in answer(of_borealis)) == (False, True)
    assert "aurora/" not in json.dumps(of_borealis)
    assert "borealis/" not in json.dumps(of_aurora)


def test_a_conversation_of_another_tenant_looks_like_one_that_does_not_exist(aurora: httpx.Client, borealis: httpx.Client) -> None:
    thread = begin(aurora)
    ask(aurora, REFUND, thread)

    replies = [borealis.get(f"/threads/{t}") for t in (thread, "x" * 22)]
    replies += [borealis.post(f"/threads/{t}/turns", json={"question": REFUND}) for t in (thread, "x" * 22)]

    assert {(r.status_code, r.text) for r in replies} == {(404, replies[0].text)}
    assert error(replies[0])["code"] == "no_thread"
    assert len(aurora.get(f"/threads/{thread}").json()["messages"]) == 2


def test_a_document_of_another_tenant_can_not_be_seen_replaced_or_deleted(aurora: httpx.Client, borealis: httpx.Client) -> None:
    upload(aurora, "badge.md", b"# Badge\n\nThe visitor badge of Aurora is purple.")
    upload(borealis, "badge.md", b"# Badge\n\nThe visitor badge of Borealis is yellow.")

    assert borealis.delete("/documents/aurora/returns.md").status_code == 404
    assert borealis.delete("/documents/badge.md").status_code == 204
    assert not [source for source in sources(borealis) if source.startswith("aurora") or source == "badge.md"]
    assert {"badge.md", "aurora/returns.md"} <= set(sources(aurora))
    assert "purple" in answer(ask(aurora, "What colour is the visitor badge?"))
    assert "purple" not in json.dumps(ask(borealis, "What colour is the visitor badge?"))
    aurora.delete("/documents/badge.md")


# ---- a turn


def test_a_turn_tells_its_stages_then_the_evidence_then_the_answer_as_it_comes(aurora: httpx.Client) -> None:
    told = ask(aurora, REFUND)

    names = "".join({"stage": "s", "evidence": "e", "token": "t", "answer": "a"}[name] for name, _ in told)
    assert re.fullmatch(r"s+et{2,}a", names), names
    assert "".join(data["text"] for name, data in told if name == "token") == answer(told)
    evidence, final = told[names.index("e")][1]["receipt"], told[-1][1]["receipt"]
    assert (evidence["answer"], evidence["verdict"], evidence["message_id"]) == (None, "relevant", final["message_id"])
    (cited,) = final["answer"]["citations"]
    passage = next(p for p in final["passages"] if p["id"] == cited["id"])
    assert [passage["text"][s["start"] : s["end"]] for s in cited["strips"]] == [s["text"] for s in cited["strips"]]
    times = [data["ms"] for name, data in told if name == "stage"]
    assert times == sorted(times)


def test_a_turn_tells_nothing_of_the_turn_before(aurora: httpx.Client) -> None:
    thread = begin(aurora)
    first, second = ask(aurora, REFUND, thread), ask(aurora, "充满电池需要几个小时？", thread)

    receipts = [data["receipt"] for _, data in second if "receipt" in data]
    assert {receipt["query"] for receipt in receipts} == {"充满电池需要几个小时？"}
    assert "4.5小时" in answer(second)
    assert first[-1][1]["receipt"]["message_id"] not in json.dumps(second)


def test_a_conversation_outlives_the_server(served: Served, tmp_path: Path) -> None:
    with serving(served.knowledge, served.embeddings, tmp_path) as before, client(before) as asking:
        thread = begin(asking)
        said = answer(ask(asking, REFUND, thread))

    with serving(served.knowledge, served.embeddings, tmp_path) as after, client(after) as asking:
        kept = asking.get(f"/threads/{thread}").json()

    assert [message["text"] for message in kept["messages"]] == [REFUND, said]
    assert kept["messages"][1]["checked"]["citations"][0]["number"] == kept["receipt"]["sources"][0]["number"] == 1


def test_who_stops_listening_stops_the_turn_and_can_ask_again(served: Served, aurora: httpx.Client) -> None:
    thread = begin(aurora)
    served.model.log.clear()
    with aurora.stream("POST", f"/threads/{thread}/turns", json={"question": f"With patience: {REFUND}"}) as reply:
        lines = reply.iter_lines()
        wait_for(lambda: next(lines) == "event: token")
        busy = aurora.post(f"/threads/{thread}/turns", json={"question": REFUND})

    wait_for(lambda: served.model.log == ["begun", "closed"])

    assert (busy.status_code, error(busy)["code"]) == (409, "busy")
    wait_for(lambda: aurora.post(f"/threads/{thread}/turns", json={"question": REFUND}).status_code == 200)
    assert "30 days" in answer(ask(aurora, REFUND, thread))


def test_other_conversations_go_on_beside_a_slow_one(served: Served, aurora: httpx.Client) -> None:
    with aurora.stream("POST", f"/threads/{begin(aurora)}/turns", json={"question": f"With patience: {REFUND}"}) as reply:
        lines = reply.iter_lines()
        wait_for(lambda: next(lines) == "event: token")
        texts: list[str] = []

        def other() -> None:
            with client(served) as asking:
                texts.append(answer(ask(asking, REFUND)))

        threads = [threading.Thread(target=other) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert "well" in next(line for line in lines if line.startswith("data:"))

    assert ["30 days" in text for text in texts] == [True] * 4


def test_a_model_that_fails_is_told_in_words_and_its_error_stays_private(aurora: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="chat_service"):
        told = ask(aurora, f"Make trouble: {REFUND}")

    assert told[-1] == ("error", {"code": "failed", "message": "The question could not be answered. Try again."})
    assert SECRET not in json.dumps(told)
    assert [record.getMessage() for record in caplog.records if record.name.startswith("chat_service")] == ["a turn failed: RuntimeError"]


# ---- documents


def test_an_upload_tells_how_far_it_is_and_can_be_asked_about_at_once(aurora: httpx.Client) -> None:
    told = upload(
        aurora, "头盔 guide.md", "# Helmets\n\nThe Zephyr helmet weighs 260 grams.\n\n# 头盔\n\n西风头盔重260克，有青色款。".encode()
    )

    assert [name for name, _ in told] == ["progress"] * (len(told) - 1) + ["done"]
    assert told[-1][1] == {"source": "头盔 guide.md", "chunks": told[-2][1]["chunks"]}
    assert "260 grams" in answer(ask(aurora, "How much does the Zephyr helmet weigh?"))

    assert aurora.delete("/documents/头盔 guide.md").status_code == 204
    assert aurora.delete("/documents/头盔 guide.md").status_code == 404
    assert "头盔 guide.md" not in sources(aurora)
    assert "260 grams" not in json.dumps(ask(aurora, "How much does the Zephyr helmet weigh?"))


def test_the_same_name_replaces_the_document(aurora: httpx.Client) -> None:
    upload(aurora, "prices.txt", b"The Zephyr helmet costs 70 euros.")
    upload(aurora, "prices.txt", b"The Zephyr helmet costs 85 euros.")

    told = json.dumps(ask(aurora, "What does the Zephyr helmet cost?"))

    assert ("85 euros" in told, "70 euros" in told, sources(aurora).count("prices.txt")) == (True, False, 1)
    aurora.delete("/documents/prices.txt")


@pytest.mark.parametrize(
    ("name", "content", "status", "code"),
    [
        ("big.txt", b"a" * (MAX_UPLOAD + 1), 413, "too_large"),
        ("program.exe", b"MZ", 415, "unknown_type"),
        ("page.svg", b"<svg/>", 415, "unknown_type"),
        ("noend", b"text", 415, "unknown_type"),
        ("empty.md", b"", 422, "empty"),
        (".hidden.md", b"text", 422, "bad_name"),
        ("~$lock.docx", b"text", 422, "bad_name"),
        ("..%5Cup.md", b"text", 422, "bad_name"),
        ("line%0Abreak.md", b"text", 422, "bad_name"),
        ("nul%00.md", b"text", 422, "bad_name"),
        ("gpj%E2%80%AEtxt.md", b"text", 422, "bad_name"),
        ("a" * 250 + ".md", b"text", 422, "bad_name"),
        ("..%2F..%2Fup.md", b"text", 405, "refused"),
        ("%FF%FE.md", b"text", 200, "done"),
    ],
)
def test_what_is_no_document_is_refused_in_words(aurora: httpx.Client, name: str, content: bytes, status: int, code: str) -> None:
    before = sources(aurora)

    reply = aurora.put(f"/documents/{name}", content=content)

    assert reply.status_code == status, reply.text
    if status != 200:
        assert error(reply)["code"] == code
        assert sources(aurora) == before


def test_a_body_of_unknown_length_is_refused_once_it_is_too_large(aurora: httpx.Client) -> None:
    reply = aurora.put("/documents/endless.txt", content=(b"a" * 2**16 for _ in range(100)))

    assert (reply.status_code, error(reply)["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("name", "content"),
    [("broken.pdf", b"%PDF-1.7 nothing"), ("broken.docx", b"PK nothing"), ("zeros.txt", b"\0" * 64), ("blank.md", b" \n ")],
)
def test_a_file_that_can_not_be_read_is_told_with_its_name(aurora: httpx.Client, name: str, content: bytes) -> None:
    told = upload(aurora, name, content)

    assert (told[-1][0], told[-1][1]["code"]) == ("error", "unreadable")
    assert told[-1][1]["message"].startswith(f"{name}: ")
    assert name not in sources(aurora)


def test_uploads_of_both_tenants_at_the_same_time_all_arrive(served: Served) -> None:
    def add(token: str, number: int) -> None:
        with client(served, token) as asking:
            upload(asking, f"many-{number}.md", f"# Shelf {number}\n\nShelf {number} holds part {number * 7}.".encode())

    threads = [threading.Thread(target=add, args=(token, number)) for token in (AURORA, BOREALIS) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    for token in (AURORA, BOREALIS):
        with client(served, token) as asking:
            assert {f"many-{number}.md" for number in range(4)} <= set(sources(asking))
            for number in range(4):
                asking.delete(f"/documents/many-{number}.md")


@given(st.text(max_size=60) | st.from_regex(r"[./\\~$ a-z]{0,12}\.md", fullmatch=True))
def test_a_name_that_passes_names_a_file_in_its_folder(name: str) -> None:
    try:
        check_name(name)
    except Refusal:
        return

    file = Path("/uploads") / name
    assert (file.parent, os.path.normpath(file), file.name) == (Path("/uploads"), str(file), name)
    assert len(os.fsencode(name)) <= 255


# ---- odd requests


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"{}",
        b'{"question": 7}',
        b'{"question": ""}',
        b'{"question": " \\n "}',
        b'{"question": null}',
        b'{"question": ["x"]}',
        json.dumps({"question": "x" * 4001}).encode(),
        b'{"question": "\\ud800"}',
        b"[" * 100_000,
    ],
)
def test_a_question_that_can_not_be_read_is_refused_without_repeating_it(aurora: httpx.Client, body: bytes) -> None:
    reply = aurora.post(f"/threads/{begin(aurora)}/turns", content=body, headers={"Content-Type": "application/json"})

    assert reply.status_code in (400, 422), reply.text
    assert len(reply.text) < 300
    error(reply)


@pytest.mark.parametrize(
    "question",
    ["'; DROP TABLE threads; --", "<script>alert(1)</script>", "\u202e\u0000 a\r\ndata: x\n\nevent: answer", "🙂" * 2000, "{question}"],
)
def test_an_odd_question_is_answered_within_its_own_events(aurora: httpx.Client, question: str) -> None:
    told = ask(aurora, question)

    assert [name for name, _ in told].count("answer") == 1
    assert told[-1][0] == "answer"


@pytest.mark.parametrize(
    "path",
    [
        "/../app.py",
        "/%2e%2e/app.py",
        "/..%2fapp.py",
        "/page/../../app.py",
        "//etc/passwd",
        "/app.py",
        "/api",
        "/api/",
        "/api/none",
        "/docs",
        "/openapi.json",
    ],
)
def test_nothing_but_the_page_can_be_read_without_a_token(served: Served, path: str) -> None:
    reply = httpx.get(served.url + path)

    assert (reply.status_code, error(reply)["code"]) == (404, "refused")


def test_every_answer_says_what_the_browser_may_do(served: Served, aurora: httpx.Client) -> None:
    for reply in (
        httpx.get(served.url),
        httpx.get(f"{served.url}/app.js"),
        httpx.get(f"{served.url}/none"),
        aurora.get("/me"),
        aurora.get("/threads/x"),
    ):
        policy = dict(part.strip().split(" ", 1) for part in reply.headers["Content-Security-Policy"].split(";"))
        assert (policy["default-src"], policy["script-src"], policy["require-trusted-types-for"]) == ("'none'", "'self'", "'script'")
        assert "unsafe" not in str(policy)
        assert (reply.headers["X-Content-Type-Options"], reply.headers["Cache-Control"]) == ("nosniff", "no-store")
        assert "Access-Control-Allow-Origin" not in reply.headers


def test_the_page_needs_nothing_from_elsewhere_and_makes_no_markup_from_text() -> None:
    for file in (EXAMPLE / "page").iterdir():
        text = file.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
        assert not re.search(
            r"https?://\w|innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|\bon\w+=\"|style=\"|@import", text
        ), file.name


def test_the_page_says_everything_in_both_languages() -> None:
    english, chinese = re.search(
        r"en: \{(.*?)\n  \},\n  zh: \{(.*?)\n  \},", (EXAMPLE / "page" / "words.js").read_text(encoding="utf-8"), re.DOTALL
    ).groups()
    keys = [set(re.findall(r'(?:^|, )\s*"?([\w: ]+?)"?: ["“]', part, re.MULTILINE)) for part in (english, chinese)]

    assert {key for key in keys[0] ^ keys[1] if not key.startswith("error:")} == set()
    assert len(keys[0]) > 80


# ---- started as a reader would


def test_serve_starts_offline_and_answers_and_stops(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    command = [sys.executable, str(EXAMPLE / "serve.py"), "--folder", str(tmp_path / "new" / "folder")]
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            assert process.stdout
            address = next(found for line in process.stdout if (found := re.search(r"(http://127\.0\.0\.1:\d+)/#(\S+)", line)))
            tokens = re.findall(r"token=([\w-]+)", address[2])
            with httpx.Client(base_url=f"{address[1]}/api", headers={"Authorization": f"Bearer {tokens[1]}"}, timeout=60) as asking:
                assert "14 days" in answer(ask(asking, REFUND))
                assert "274" in answer(ask(asking, "Which planet has the most moons?"))
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "Traceback" not in process.stdout.read()


def test_a_port_that_can_not_be_used_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["serve.py", "--port", "70000"])

    with pytest.raises(SystemExit) as stopped:
        main()

    assert (stopped.value.code, "port 70000 can't be used" in capsys.readouterr().err) == (2, True)
