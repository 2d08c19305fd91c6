"""What Citus costs a message and a read, and whether moving shards under traffic loses anything.

    python -m loadtests.sharding postgresql://.../plain postgresql://coordinator.../spread

Both databases are migrated, the second is distributed, and both are to be empty. Each message is
committed and each read made in one and then in the other, so that whatever else the machine does
meets both alike. Then shards move from worker to worker while players go on talking.
"""

import argparse
import asyncio
import json
import time
from collections import Counter, defaultdict
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from foremind.cluster.announcement_bus import PostgresBus
from foremind.domain.clock import SystemClock
from foremind.domain.companion import CompanionFile
from foremind.domain.errors import StorageUnavailable
from foremind.domain.turn import OpenedSession
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind.storage.companion_store import CompanionStore
from foremind.storage.database import Database
from foremind.storage.distribution import distribute
from foremind.storage.migrations import migrate
from foremind.storage.turn_store import TurnStore

RESULTS = Path(__file__).parent / "results"
_TEXT = "I promise to bring the red map to the harbour tomorrow, whatever the weather."
_PLAYERS = 40
_HISTORY = 20  # turns that a read returns
_RETRY_S = 0.05
_TIMEOUT_S = 60.0
_MOVE_TIMEOUT_S = 600.0


async def _open(turns: TurnStore, companion_id: int) -> list[OpenedSession]:
    lifetime = timedelta(hours=24)
    return [
        await turns.open_session(
            f"player {number}", "P", companion_id, datetime.now(UTC), lifetime=lifetime
        )
        for number in range(_PLAYERS)
    ]


def _summary(durations: list[float]) -> dict[str, float]:
    p50, p99 = np.percentile(durations, (50, 99))
    return {"p50_ms": round(float(p50), 2), "p99_ms": round(float(p99), 2)}


async def _compare(
    stores: dict[str, TurnStore], players: dict[str, list[OpenedSession]], repetitions: int
) -> dict[str, Any]:
    """Commit and read in turns with each database; return percentiles in milliseconds."""
    durations: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for number in range(repetitions + 100):
        for name, turns in stores.items():
            session = players[name][number % _PLAYERS]
            began = time.perf_counter()
            await turns.commit_message(session, f"timed {number}", _TEXT, datetime.now(UTC))
            committed = time.perf_counter()
            await turns.recent_turns(session.relationship_id, _HISTORY)
            ended = time.perf_counter()
            if number >= 100:  # until then plans are made
                durations[name, "commit"].append((committed - began) * 1000)
                durations[name, "read"].append((ended - committed) * 1000)
    return {
        what: {name: _summary(durations[name, what]) for name in stores}
        for what in ("commit", "read")
    }


async def _talk(
    turns: TurnStore, session: OpenedSession, sent: list[str], ended: asyncio.Event
) -> Counter[str]:
    """Send messages one after another until the end, each again until it is stored."""
    outcomes: Counter[str] = Counter()
    while not ended.is_set():
        message_id = f"moving {session.relationship_id} {len(sent)}"
        sent.append(message_id)
        while True:
            try:
                stored = await turns.commit_message(session, message_id, _TEXT, datetime.now(UTC))
            except StorageUnavailable:
                outcomes["retried"] += 1
                await asyncio.sleep(_RETRY_S)
            else:
                outcomes["duplicate" if stored.duplicate else "stored"] += 1
                break
        await asyncio.sleep(0.02)
    return outcomes


async def _move(url: str, moves: int) -> list[float]:
    """Move groups of co-located shards from the fuller worker to the other; return seconds."""
    raw = await asyncpg.connect(url, command_timeout=_MOVE_TIMEOUT_S)
    try:
        seconds = []
        for number in range(moves):
            shards = await raw.fetch(
                "SELECT shardid, nodename, nodeport FROM citus_shards"
                " WHERE table_name = 'turns'::regclass ORDER BY shardid"
            )
            shard = shards[number % len(shards)]
            target = await raw.fetchrow(
                "SELECT nodename, nodeport FROM pg_dist_node WHERE shouldhaveshards AND isactive"
                " AND (nodename, nodeport) <> ($1, $2) ORDER BY nodeid LIMIT 1",
                shard["nodename"],
                shard["nodeport"],
            )
            began = time.perf_counter()
            await raw.execute(
                "SELECT citus_move_shard_placement($1, $2, $3, $4, $5, 'auto')", *shard, *target
            )
            seconds.append(round(time.perf_counter() - began, 2))
        return seconds
    finally:
        await raw.close()


async def _under_traffic(
    turns: TurnStore, players: list[OpenedSession], url: str, moves: int
) -> dict[str, Any]:
    sent: list[list[str]] = [[] for _ in players]
    ended = asyncio.Event()
    talking = [
        asyncio.create_task(_talk(turns, session, ids, ended))
        for session, ids in zip(players, sent, strict=True)
    ]
    try:
        seconds = await _move(url, moves)
    finally:
        ended.set()
        outcomes = sum(await asyncio.gather(*talking), Counter())
    raw = await asyncpg.connect(url, command_timeout=_MOVE_TIMEOUT_S)
    try:
        stored = Counter(
            row["message_id"]
            for row in await raw.fetch(
                "SELECT message_id FROM turns WHERE message_id LIKE 'moving %'"
            )
        )
        waiting = await raw.fetchval(
            "SELECT count(*) FROM turns JOIN background_steps AS step"
            " ON step.relationship_id = turns.relationship_id AND step.turn_id = turns.id"
            " WHERE message_id LIKE 'moving %'"
        )
    finally:
        await raw.close()
    messages = [message_id for ids in sent for message_id in ids]
    return {
        "moves": len(seconds),
        "seconds_per_move": seconds,
        "messages": len(messages),
        "retried": outcomes["retried"],
        "lost": sum(1 for message_id in messages if not stored[message_id]),
        "twice": sum(1 for message_id in messages if stored[message_id] > 1),
        "without_job": len(messages) - waiting,
    }


async def measure(
    plain_url: str, citus_url: str, repetitions: int, moves: int, shards: int
) -> dict[str, Any]:
    """Migrate and distribute the databases, and measure."""
    for url in (plain_url, citus_url):
        await migrate(url)
    await distribute(citus_url, shards)
    clock, metrics = SystemClock(), Metrics()
    async with Supervisor(clock, metrics) as supervisor, AsyncExitStack() as stack:
        stores, players = {}, {}
        for name, url in (("plain", plain_url), ("citus", citus_url)):
            bus = PostgresBus(url, clock, metrics, supervisor)
            database = await stack.enter_async_context(
                Database.connect(url, size=20, timeout_s=_TIMEOUT_S, publisher=bus)
            )
            if database.sharded != (name == "citus"):
                raise SystemExit(f"{name}: expected a database that is {name}")
            companion = await CompanionStore(database).put(CompanionFile("w", "W", "You are W."))
            stores[name] = TurnStore(database)
            players[name] = await _open(stores[name], companion.id)
        result = await _compare(stores, players, repetitions)
        result["moving"] = await _under_traffic(stores["citus"], players["citus"], citus_url, moves)
    return result


def main() -> None:
    """Measure, print, and write `sharding.json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plain", help="URL of a plain database")
    parser.add_argument("citus", help="URL of a database on a Citus coordinator with two workers")
    parser.add_argument("--repetitions", type=int, default=2000)
    parser.add_argument("--moves", type=int, default=5)
    parser.add_argument("--shards", type=int, default=8)
    options = parser.parse_args()
    result = asyncio.run(
        measure(options.plain, options.citus, options.repetitions, options.moves, options.shards)
    )
    text = json.dumps(result, indent=2)
    (RESULTS / "sharding.json").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
