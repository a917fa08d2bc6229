"""The chatbot of examples/chat_service on a real socket, with a chat model that can hesitate and fail."""

import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.messages import AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk
from pydantic import Field

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

from chat_service.access import Tenant, Tokens
from chat_service.app import create_app
from chat_service.serve import agent_maker

from crag_middleware import CRAGMiddleware, CRAGSettings, EmbeddingEvaluator, LocalEmbeddings, WordClaimChecker
from crag_middleware.testing import QuotingChatModel

AURORA, BOREALIS = "token-of-aurora-0123456789", "token-of-borealis-0123456789"
TENANTS = {
    AURORA: Tenant(
        "aurora", "Aurora Bikes", {"en": ("How many days do I have to return an order for a refund?",), "zh": ("多少天内可以退货？",)}
    ),
    BOREALIS: Tenant("borealis", "Borealis Coffee"),
}
TALE = "Every customer receives 900 golden trumpets."
SECRET = "sk-secret of the provider"


class Moody(QuotingChatModel):
    """Quotes; asked for patience it writes until nobody listens, asked for a tale it adds one, asked for trouble it fails with a private error.

    Args:
        log: `begun` and `closed` of each patient answer.
    """

    log: list[str] = Field(default_factory=list)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        asked = str(messages[-1].text)
        if "trouble" in asked:
            raise RuntimeError(SECRET)
        if "patience" in asked:
            self.log.append("begun")
            try:
                for _ in range(600):
                    await asyncio.sleep(0.05)
                    yield ChatGenerationChunk(message=AIMessageChunk("well "))
            finally:
                self.log.append("closed")
        for piece in (*self._pieces(messages), *(["\n" + TALE] if "tale" in asked else [])):
            yield ChatGenerationChunk(message=AIMessageChunk(piece))


@dataclass
class Served:
    """A running service."""

    url: str
    model: Moody
    knowledge: Any
    embeddings: LocalEmbeddings


@contextmanager
def serving(
    knowledge: Any, embeddings: LocalEmbeddings, folder: Path, tenants: Mapping[str, Tenant] = TENANTS, web: Any = None
) -> Iterator[Served]:
    """The service over this knowledge, until the block ends."""
    model = Moody()
    crag = CRAGMiddleware(
        knowledge,
        evaluator=EmbeddingEvaluator(embeddings),
        web_search=web,
        claim_checker=WordClaimChecker(),
        settings=CRAGSettings(receipt_detail="full"),
    )
    app = create_app(agent_maker(model, crag), knowledge, Tokens(tenants), folder / "conversations.db")
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_for(lambda: server.started or not thread.is_alive())
        port = server.servers[0].sockets[0].getsockname()[1]
        yield Served(f"http://127.0.0.1:{port}", model, knowledge, embeddings)
    finally:
        server.should_exit = True
        thread.join(20)


def wait_for(condition: Any, timeout_s: float = 20) -> None:
    """Returns as soon as it holds.

    Raises:
        TimeoutError: It never did.
    """
    until = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.02)
