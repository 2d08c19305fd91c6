"""Compares what players were told with what the database holds."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg

from loadtests.cluster.players import Player

_POLL_S = 0.2


@dataclass(frozen=True)
class Outcome:
    """What became of the messages.

    Attributes:
        messages: how many were accepted.
        lost: those that were accepted and are not stored as told, not ingested, or were answered
            and have no stored reply.
        doubled: those stored, answered or ingested more than once.
    """

    messages: int
    lost: list[str]
    doubled: list[str]


async def audit(database_url: str, players: Sequence[Player], patience_s: float) -> Outcome:
    """Wait until everything is ingested, then compare.

    Raises:
        TimeoutError: it was not ingested within `patience_s`.
    """
    database = await asyncpg.connect(database_url)
    try:
        deadline = time.monotonic() + patience_s
        while await database.fetchval(_WAITING):
            if time.monotonic() > deadline:
                raise TimeoutError("Turns still wait to be ingested.")
            await asyncio.sleep(_POLL_S)
        rows = {
            row["message_id"]: row
            for row in await database.fetch(_STORED, [player.name for player in players])
        }
    finally:
        await database.close()
    accepted = {key: turn for player in players for key, turn in player.accepted.items()}
    answered = set[str]().union(*(player.answered for player in players))
    lost = [
        key
        for key, turn in accepted.items()
        if key not in rows
        or rows[key]["turn_id"] != turn
        or not rows[key]["memories"]
        or (key in answered and not rows[key]["replies"])
    ]
    doubled = [
        key
        for key, row in rows.items()
        if row["copies"] > 1 or row["replies"] > 1 or row["memories"] > 1
    ]
    return Outcome(len(accepted), lost, doubled)


_WAITING = "SELECT count(*) FROM background_steps WHERE step = 'ingest'"
_STORED = """
WITH said AS (
    SELECT turn.message_id, turn.id,
        (
            SELECT count(*) FROM turns AS reply
            WHERE reply.relationship_id = turn.relationship_id AND reply.reply_to = turn.id
        ) AS replies,
        (
            SELECT count(*) FROM memories AS memory
            WHERE memory.relationship_id = turn.relationship_id AND memory.source_turn_id = turn.id
        ) + (
            SELECT count(*) FROM memory_sources AS source
            WHERE source.relationship_id = turn.relationship_id AND source.turn_id = turn.id
        ) AS memories
    FROM turns AS turn JOIN users ON users.id = turn.user_id
    WHERE turn.speaker = 'user' AND users.external_id = ANY($1)
)
SELECT message_id, min(id)::text AS turn_id, count(*) AS copies, max(replies) AS replies,
    max(memories) AS memories
FROM said GROUP BY message_id
"""
