"""Who may see what: a bearer token names the tenant, a table names the tenant of each conversation.

Neither is ever read from the body, the address or a message of a request.
"""

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiosqlite

MIN_TOKEN = 16
"""Characters of a token at least; `secrets.token_urlsafe()` gives 43."""


@dataclass(frozen=True)
class Tenant:
    """A tenant as the page shows it.

    Attributes:
        agent_id: Whose rows of the knowledge these are; never leaves the server.
        name: What people call it.
        examples: Questions to begin with, by language (`en`, `zh`).
    """

    agent_id: str
    name: str
    examples: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


class Tokens:
    """Finds the tenant of a bearer token. Only digests are kept, so that neither a dump nor the time of a look-up tells a token.

    Args:
        tenants: By token.

    Raises:
        ValueError: A token is shorter than `MIN_TOKEN` characters.
    """

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        if any(len(token) < MIN_TOKEN for token in tenants):
            msg = f"a token must have at least {MIN_TOKEN} characters, got a shorter one; make one with secrets.token_urlsafe()"
            raise ValueError(msg)
        self._tenants = {_digest(token): tenant for token, tenant in tenants.items()}

    def tenant(self, token: str) -> Tenant | None:
        """Whose token it is; None if nobody's."""
        return self._tenants.get(_digest(token))


class Threads:
    """Conversations and whose they are, in a table beside the checkpoints.

    Args:
        connection: To the database; `open` makes the table.
    """

    def __init__(self, connection: aiosqlite.Connection) -> None:
        self._connection = connection

    @classmethod
    async def open(cls, path: Path) -> "Threads":
        """The table in this file, made if it is missing."""
        connection = await aiosqlite.connect(path)
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS threads (id TEXT PRIMARY KEY, agent_id TEXT NOT NULL, created_at REAL NOT NULL)"
        )
        await connection.commit()
        return cls(connection)

    async def begin(self, tenant: Tenant) -> str:
        """The id of a new conversation of the tenant's, which can't be guessed."""
        thread = secrets.token_urlsafe(16)
        await self._connection.execute("INSERT INTO threads VALUES (?, ?, ?)", (thread, tenant.agent_id, time.time()))
        await self._connection.commit()
        return thread

    async def belongs(self, thread: str, tenant: Tenant) -> bool:
        """Whether it is a conversation of the tenant's; one of another tenant looks like one that doesn't exist."""
        async with self._connection.execute("SELECT 1 FROM threads WHERE id = ? AND agent_id = ?", (thread, tenant.agent_id)) as found:
            return await found.fetchone() is not None

    async def close(self) -> None:
        """Closes the connection."""
        await self._connection.close()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
