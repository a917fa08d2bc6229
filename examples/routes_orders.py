"""An HTTP service as a route: where an order is, asked of a small server on loopback, which tells each company of its own orders only."""

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx

from crag_middleware import Passage

ORDERS = {
    ("aurora", "A-1042"): {"item": "Aurora City", "state": "with the carrier", "zh": "运输中", "day": "2031-05-14"},
    ("borealis", "B-2001"): {"item": "Espresso 3", "state": "in packing", "zh": "打包中", "day": "2031-05-20"},
}
NUMBER = re.compile(r"(?<![A-Za-z0-9])[A-Z]-\d{4}(?!\d)")


class Orders:
    """The route: asks for each order number in the question."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def search(self, question: str, *, agent_id: str, limit: int, timeout_s: float) -> list[Passage]:
        """A passage for each order of the company's that the question names."""
        found = []
        async with httpx.AsyncClient(base_url=self._url, headers={"X-Company": agent_id}, timeout=timeout_s, trust_env=False) as client:
            for number in list(dict.fromkeys(NUMBER.findall(question)))[:limit]:
                reply = await client.get(f"/orders/{number}")
                if reply.status_code != httpx.codes.NOT_FOUND:
                    found.append(read_order(number, reply.raise_for_status().json(), question))
        return found


def read_order(number: str, order: dict[str, str], question: str) -> Passage:
    """The service's reply as a sentence in the question's language."""
    if re.search(r"[\u4e00-\u9fff]", question):
        text = f"订单{number}（{order['item']}）{order['zh']}，预计{order['day']}送达。"
    else:
        text = f"Order {number} ({order['item']}) is {order['state']} and arrives on {order['day']}."
    return Passage(id=number, text=text, title=f"Order {number}", source="order service")


class Handler(BaseHTTPRequestHandler):
    """Answers `GET /orders/NUMBER` for the company in the header `X-Company`."""

    def do_GET(self) -> None:
        """The order, or 404: also for another company's, so that nobody learns that it exists."""
        order = ORDERS.get((self.headers.get("X-Company", ""), self.path.removeprefix("/orders/")))
        body = json.dumps(order).encode()
        self.send_response(200 if order else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing, so that the example's output stays readable."""


@contextmanager
def start_order_service() -> Iterator[str]:
    """The service's address, while it answers from a thread of its own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
