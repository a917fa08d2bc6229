"""A tenant's documents: uploaded, listed, deleted."""

import asyncio
import tempfile
import unicodedata
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from chat_service.access import Tenant
from chat_service.guards import Refusal

from crag_middleware.knowledge.ingest import Ingested, IngestProgress
from crag_middleware.knowledge.knowledge import Knowledge
from crag_middleware.knowledge.loading import SUFFIXES

MAX_UPLOAD = 5 * 2**20
"""Bytes of a file."""

MAX_NAME = 200
"""Bytes of a file's name in UTF-8; file systems take 255."""


class Documents:
    """The documents of all tenants. Milvus Lite takes one writer at a time: a single thread does what writes, in the order in which it was asked for.

    Args:
        knowledge: Where they are kept.
    """

    def __init__(self, knowledge: Knowledge) -> None:
        self._knowledge = knowledge
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="documents")

    async def list(self, tenant: Tenant) -> list[dict[str, Any]]:
        """The tenant's documents by name: `source`, `title`, `chunks`, `created_at` in milliseconds since the epoch."""
        found = await asyncio.to_thread(self._knowledge.sources, tenant.agent_id)
        return [{"source": s.source, "title": s.title, "chunks": s.chunks, "created_at": s.created_at} for s in found if s.source]

    async def ingest(self, tenant: Tenant, name: str, content: bytes) -> AsyncIterator[IngestProgress | Ingested]:
        """How far it is, again and again, and at the end what was done. One that nobody waits for any more is finished all the same.

        Raises:
            IngestError: The embeddings or Milvus failed.
        """
        loop, told = asyncio.get_running_loop(), asyncio.Queue[IngestProgress | None]()

        def tell(progress: IngestProgress) -> None:
            loop.call_soon_threadsafe(told.put_nowait, progress)

        def work() -> Ingested:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "uploads" / name  # the folder's name stays with each chunk, so that the same name replaces the file
                file.parent.mkdir()
                file.write_bytes(content)
                return self._knowledge.ingest(file, agent_id=tenant.agent_id, progress=tell)

        done = loop.run_in_executor(self._writer, work)
        done.add_done_callback(lambda _: told.put_nowait(None))
        while progress := await told.get():
            yield progress
        yield await done

    async def delete(self, tenant: Tenant, source: str) -> int:
        """Deletes a document of the tenant's, and says how many chunks it had; 0 if there is none."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, self._knowledge.delete_source, tenant.agent_id, source)

    def close(self) -> None:
        """Waits for what is being written."""
        self._writer.shutdown()


def check_name(name: str) -> str:
    """The name, if a document can have it.

    Raises:
        Refusal: It can't.
    """
    if not name.strip() or len(name.encode("utf-8", "replace")) > MAX_NAME:
        raise Refusal(422, "bad_name", f"A file's name must have 1 to {MAX_NAME} bytes.")
    if name.startswith((".", "~$")) or any(c in '/\\<>:"|?*' or unicodedata.category(c).startswith("C") for c in name):
        raise Refusal(422, "bad_name", "This file's name can't be used. Rename it: letters, digits, spaces, dots, dashes.")
    if Path(name).suffix.lower() not in SUFFIXES:
        raise Refusal(415, "unknown_type", f"Files of this type can't be read. Known: {', '.join(sorted(SUFFIXES))}.")
    return name
