"""What announcing costs commits: PostgreSQL and NATS side by side, in one run.

    python -m loadtests.announcements

One PostgreSQL server with idle listeners, as other processes are; writers that commit memories,
each of which is announced, beside writers that commit messages, which a player waits for and which
announce nothing.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
import numpy as np

from foremind.app.configuration import load_settings
from foremind.app.core import announcing_database
from foremind.domain.clock import SystemClock
from foremind.domain.companion import CompanionFile
from foremind.domain.turn import OpenedSession
from foremind.runtime.metrics import Metrics
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import Supervisor
from foremind.storage.companion_store import CompanionStore
from foremind.storage.database import Database
from foremind.storage.embedded_postgres import embedded_postgres
from foremind.storage.migrations import migrate
from foremind.storage.relationship_transaction import RelationshipTransaction
from foremind.storage.turn_store import TurnStore
from foremind_eval.processes.nats_server import NatsServer

_RESULT = Path(__file__).parent / "results" / "announcements.json"
_LISTENERS = (0, 60)  # the embedded server allows 100 connections
_WRITERS = 8  # of each kind
_SECONDS = 4.0
_ROUNDS = 3  # alternating, so that both see the same machine


class Bench:
    """Writers on one database, which announces in one way."""

    def __init__(self, database: Database, sessions: list[OpenedSession]) -> None:
        self._database = database
        self._sessions = sessions
        self._turns = TurnStore(database)
        self.message_ms: list[float] = []
        self.memory_ms: list[float] = []

    async def run(self, label: str) -> None:
        """Commit for some seconds from all writers."""
        until = time.monotonic() + _SECONDS
        async with asyncio.TaskGroup() as group:
            for number in range(_WRITERS):
                group.create_task(self._send(self._sessions[number], f"{label}-{number}", until))
                group.create_task(self._remember(self._sessions[_WRITERS + number], until))

    async def _send(self, session: OpenedSession, prefix: str, until: float) -> None:
        number = 0
        while (started := time.monotonic()) < until:
            number += 1
            message_id = f"{prefix}-{number}"
            await self._turns.commit_message(session, message_id, "Hello", datetime.now(UTC))
            self.message_ms.append((time.monotonic() - started) * 1000)

    async def _remember(self, session: OpenedSession, until: float) -> None:
        while (started := time.monotonic()) < until:
            relationship_id = session.relationship_id
            async with RelationshipTransaction.begin(self._database, relationship_id) as change:
                await change.memory_version()
            self.memory_ms.append((time.monotonic() - started) * 1000)


@asynccontextmanager
async def _bench(url: str, nats_url: str | None, folder: Path) -> AsyncIterator[Bench]:
    settings = load_settings(nats_url=nats_url, data_dir=folder)
    clock, metrics = SystemClock(), Metrics()
    async with Supervisor(clock, metrics) as supervisor:
        runtime = RuntimeServices(settings, clock, metrics, supervisor)
        async with announcing_database(url, 2 * _WRITERS, runtime) as (database, _):
            companion = await CompanionStore(database).put(
                CompanionFile("wren", "Wren", "You are Wren.")
            )
            turns, now = TurnStore(database), datetime.now(UTC)
            sessions = [
                await turns.open_session(
                    f"u{number}", "U", companion.id, now, lifetime=timedelta(days=1)
                )
                for number in range(2 * _WRITERS)
            ]
            yield Bench(database, sessions)


async def measure() -> dict[str, object]:
    """Return the figures by number of idle listeners, and by what announces."""
    results: dict[str, object] = {}
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        nats = stack.enter_context(NatsServer())
        url = await stack.enter_async_context(embedded_postgres(folder))
        await migrate(url)
        for listeners in _LISTENERS:
            idle = [await asyncpg.connect(url) for _ in range(listeners)]
            for connection in idle:
                await connection.execute("LISTEN foremind_announcements")
            benches: dict[str, Bench] = {}
            async with AsyncExitStack() as both:
                for name, nats_url in (("postgres", None), ("nats", nats.url)):
                    benches[name] = await both.enter_async_context(_bench(url, nats_url, folder))
                for number in range(_ROUNDS):
                    for name, bench in benches.items():
                        await bench.run(f"{name}-{listeners}-{number}")
            for connection in idle:
                await connection.close()
            results[f"{listeners} idle listeners"] = {
                name: _figures(bench) for name, bench in benches.items()
            }
    return results


def _figures(bench: Bench) -> dict[str, object]:
    seconds = _ROUNDS * _SECONDS
    return {
        kind: {
            "per_second": round(len(elapsed_ms) / seconds),
            "p50_ms": round(float(np.percentile(elapsed_ms, 50)), 2),
            "p99_ms": round(float(np.percentile(elapsed_ms, 99)), 2),
        }
        for kind, elapsed_ms in (("message", bench.message_ms), ("memory", bench.memory_ms))
    }


if __name__ == "__main__":
    figures = asyncio.run(measure())
    _RESULT.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")
    print(json.dumps(figures, indent=2))
