"""A small web-search server that speaks Tavily's protocol over a dozen bundled pages, so that the web can be shown without a key.

python examples/web_server.py --port 8010
TAVILY_API_KEY=any TAVILY_API_BASE_URL=http://127.0.0.1:8010 python your_agent.py
"""

import argparse
import json
import math
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

CORPUS = Path(__file__).with_name("web_corpus.json")
LOWEST_SCORE = 0.15
"""Pages that share less with the query are no results."""

WORD = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")
CHINESE = re.compile(r"[\u4e00-\u9fff]+")
STOP_WORDS = re.compile(
    r"a|an|and|any|are|as|at|be|by|can|do|does|for|from|had|has|have|how|i|in|is|it|its|many|may|me|most|much|my|no|not|of|on|or|our|so|than|that|the"
    r"|their|there|they|this|to|was|we|what|when|where|which|who|why|will|with|you|your"
)

Page = dict[str, str]


def terms(text: str) -> frozenset[str]:
    """What a text is found by: English words without plural, and pairs of neighbouring Chinese characters."""
    words = {w[:-1] if len(w) > 3 and w.endswith("s") else w for w in WORD.findall(text.lower()) if not STOP_WORDS.fullmatch(w)}
    pairs = {run[i : i + 2] for run in CHINESE.findall(text) for i in range(len(run) - 1)}
    return frozenset(words | pairs)


class Index:
    """The pages, found by their words."""

    def __init__(self, pages: list[Page]) -> None:
        self._pages = [(page, terms(f"{page['title']} {page['content']}")) for page in pages]

    def search(self, query: str) -> list[tuple[float, Page]]:
        """Score and page, best first: the share of the query's terms that the page has, where a rare term weighs more; in (0, 1]."""
        weights = {term: self._weight(term) for term in terms(query)}
        total = sum(weights.values())
        scored = [(sum(weights[t] for t in found & weights.keys()) / total, page) for page, found in self._pages] if total else []
        return sorted((hit for hit in scored if hit[0] >= LOWEST_SCORE), key=lambda hit: -hit[0])

    def _weight(self, term: str) -> float:
        count = sum(1 for _, found in self._pages if term in found)
        return math.log(1 + len(self._pages) / count) if count else 1.0


class Handler(BaseHTTPRequestHandler):
    """Answers `POST /search` as Tavily does, refusals included."""

    server: "WebServer"
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Read the whole request, then answer it."""
        began = time.perf_counter()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            request = json.loads(body)
        except ValueError:
            request = None
        if self.path != "/search":
            self.refuse(404, "Not found")
        elif not (self.headers.get("Authorization") or "").startswith("Bearer "):
            self.refuse(401, "Unauthorized: missing or invalid API key.")
        elif not isinstance(request, dict) or not isinstance(request.get("query"), str) or not request["query"].strip():
            self.refuse(400, "Query is missing.")
        elif len(request["query"]) > 400:
            self.refuse(400, "Query is too long. Max query length is 400 characters.")
        else:
            results = self.results(request)
            reply = {"query": request["query"], "follow_up_questions": None, "answer": None, "images": [], "results": results}
            self.reply(200, reply | {"response_time": round(time.perf_counter() - began, 3)})

    def results(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """The best pages from allowed hosts, in Tavily's form."""
        wanted, unwanted = request.get("include_domains") or [], request.get("exclude_domains") or []
        hits = [
            (score, page)
            for score, page in self.server.index.search(request["query"])
            if (not wanted or within(page["url"], wanted)) and not within(page["url"], unwanted)
        ]
        most = request.get("max_results", 5)
        raw = bool(request.get("include_raw_content"))
        return [page | {"score": round(score, 4), "raw_content": page["content"] if raw else None} for score, page in hits[:most]]

    def refuse(self, status: int, why: str) -> None:
        """An error in Tavily's form."""
        self.reply(status, {"detail": {"error": why}})

    def reply(self, status: int, content: dict[str, Any]) -> None:
        """JSON with its length."""
        body = json.dumps(content, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing, so that a demo's output stays readable."""


class WebServer(ThreadingHTTPServer):
    """The server with its pages."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.index = Index(json.loads(CORPUS.read_text(encoding="utf-8")))

    @property
    def url(self) -> str:
        """What `api_base_url` takes."""
        return f"http://127.0.0.1:{self.server_address[1]}"


def within(url: str, domains: list[str]) -> bool:
    """Whether the page lies on one of the hosts or below it."""
    name = urlsplit(url).hostname or ""
    return any(name == domain or name.endswith(f".{domain}") for domain in domains)


@contextmanager
def start_web_server(port: int = 0) -> Iterator[str]:
    """The server's address, while it answers from a thread of its own; port 0 takes a free one."""
    with WebServer(port) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield server.url
        finally:
            server.shutdown()


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description="A web-search server on loopback that speaks Tavily's protocol over a few bundled pages.")
    parser.add_argument("--port", type=int, default=8010, help="0 takes a free one (default: 8010)")
    with WebServer(parser.parse_args().port) as server:
        print(f"TAVILY_API_KEY=any TAVILY_API_BASE_URL={server.url}", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print("stopped")


if __name__ == "__main__":
    main()
