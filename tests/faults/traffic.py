"""Players who send continuously and retry what was not accepted, and a check of the outcome."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import asyncpg

from foremind_client import Closed, connect
from tests.conftest import PATIENCE

PLAYERS = 4


@dataclass
class Traffic:
    """The ids of sent messages, the turn ids of accepted ones, and error events."""

    url: str
    sent: set[str] = field(default_factory=set)
    accepted: dict[str, str] = field(default_factory=dict)
    errors: list[dict[str, object]] = field(default_factory=list)

    async def player(self, name: str) -> None:
        """Run one player, who reconnects when disconnected and retries what failed."""
        pending: dict[str, str] = {}
        while True:
            with contextlib.suppress(OSError, Closed, TimeoutError):
                async with asyncio.timeout(10), connect(self.url) as client:
                    opened = await client.open_session("wren", user_id=name)
                    if opened["type"] == "error":
                        self.errors.append(opened["error"])
                        continue
                    while True:
                        if not pending:
                            message_id = uuid.uuid4().hex
                            pending[message_id] = f"I promise to bring {message_id}"
                            self.sent.add(message_id)
                        for message_id, text in pending.items():
                            await client.draft(text)
                            await client.send(text, message_id)
                        event = await client.expect("message.accepted", "error")
                        if event["type"] == "error":
                            self.errors.append(event["error"])
                            await asyncio.sleep(0.05)
                            continue
                        self.accepted[event["id"]] = event["turn_id"]
                        pending.pop(event["id"], None)
            await asyncio.sleep(0.02)

    async def check(self, database_url: str) -> None:
        """Wait for ingest; then check that accepted messages are stored and ingested once."""
        database = await asyncpg.connect(database_url)
        try:
            async with asyncio.timeout(PATIENCE):
                while await database.fetchval(
                    "SELECT count(*) FROM background_steps WHERE step = 'ingest'"
                ):
                    await asyncio.sleep(0.2)
            stored = await database.fetch(
                "SELECT message_id, id::text, content, "
                "(SELECT count(*) FROM memories WHERE source_turn_id = turn.id"
                " AND relationship_id = turn.relationship_id) "
                "+ (SELECT count(*) FROM memory_sources WHERE turn_id = turn.id"
                " AND relationship_id = turn.relationship_id) AS memories "
                "FROM turns AS turn WHERE speaker = 'user'"
            )
        finally:
            await database.close()
        turns = {row["message_id"]: row["id"] for row in stored}
        assert len(turns) == len(stored)
        assert {key: turns.get(key) for key in self.accepted} == self.accepted
        assert set(turns) <= self.sent
        assert [dict(row) for row in stored if row["memories"] != 1] == []
        assert all(error["retryable"] for error in self.errors), self.errors


@asynccontextmanager
async def traffic_on(url: str) -> AsyncIterator[Traffic]:
    """Run some players for the duration of a block."""
    traffic = Traffic(url)
    players = [asyncio.create_task(traffic.player(f"player {number}")) for number in range(PLAYERS)]
    try:
        yield traffic
    finally:
        for player in players:
            player.cancel()
        results = await asyncio.gather(*players, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results), results
