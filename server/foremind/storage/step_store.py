"""The schedule of background steps: due, claimed, failed, or held after repeated failures."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from foremind.domain.step import (
    ClaimableLane,
    ClaimLimits,
    Lane,
    PendingRelationship,
    ScheduledStep,
    StepState,
    WaitingSteps,
)
from foremind.storage.companion_store import relationship_settings, settings_from_json
from foremind.storage.database import Database

_MAX_TURNS_BEHIND = 1000  # counted per cursor
_MAX_ROWS = 64  # due steps read by a poll: a relationship may have several
_MAX_WAITING = 10_000  # steps counted per kind, for the metrics


class FoundRelationships(NamedTuple):
    """Relationships with something to do, and whether there may be more."""

    ids: list[int]
    more: bool


class StepStore:
    """Schedules steps, and lets one worker at a time claim a lane of a relationship."""

    def __init__(
        self, database: Database, held_for: timedelta, known_steps: Collection[str]
    ) -> None:
        """Set up without doing anything.

        Args:
            held_for: how long after being held a step may be retried.
            known_steps: those that can be run; a newer version may have scheduled others.
        """
        self._database = database
        self._known_steps = list(known_steps)
        self._held_for = held_for

    async def pending_relationships(self, due_by: datetime, limit: int) -> list[int]:
        """Return relationships with activity that was not scheduled yet, the oldest first."""
        rows = await self._database.rows("pending_relationships", due_by, limit)
        return [row["id"] for row in rows]

    async def pending_relationship(
        self, relationship_id: int, now: datetime
    ) -> PendingRelationship | None:
        """Return a relationship if it has activity that was not scheduled yet."""
        row = await self._database.row("pending_relationship", relationship_id, now)
        if row is None:
            return None
        return PendingRelationship(
            row["id"],
            row["due_at"],
            settings_from_json(row["companion_settings"]),
            relationship_settings(row),
        )

    async def schedule_pending(
        self, pending: PendingRelationship, steps: Sequence[ScheduledStep], now: datetime
    ) -> None:
        """Schedule steps of such a relationship, unless another worker did."""
        async with self._database.transaction() as connection:
            if (
                await connection.row("claim_pending_relationship", pending.id, pending.due_at)
                is not None
            ):
                await connection.execute(
                    "schedule_steps", pending.id, now, *_columns(steps), self._held_for
                )

    async def schedule(
        self, relationship_id: int, steps: Sequence[ScheduledStep], when: datetime
    ) -> None:
        """Schedule steps at a time, unless they are due sooner or backing off after a failure."""
        await self._database.execute(
            "schedule_steps", relationship_id, when, *_columns(steps), self._held_for
        )

    async def retry_failed(self, relationship_id: int, now: datetime) -> None:
        """Make failed and held steps of a relationship due now."""
        await self._database.execute("retry_failed_steps", relationship_id, now)

    async def retry_held(self, now: datetime, since: datetime, limit: int) -> int:
        """Make steps due that were held before a time, at most `limit`; return how many.

        They are held again if they fail.
        """
        held = await self._database.rows("held_steps", since, limit)
        for row in held:
            await self._database.execute("retry_held_step", *row, now, since)
        return len(held)

    async def set_place(self, relationship_id: int, lane: Lane, place: str) -> None:
        """Set the model server that the steps of a lane use."""
        await self._database.execute("set_step_place", relationship_id, lane, place)

    async def claimable_lanes(
        self, now: datetime, due_by: datetime, limits: ClaimLimits, limit: int
    ) -> FoundRelationships:
        """Return the relationships of the steps that have been due the longest and may start.

        Turns that wait to be ingested do not count.
        """
        rows = await self._database.rows(
            "claimable_lanes",
            now,
            list(limits.full),
            limits.models_full,
            [place for place, _ in limits.full_of],
            [companion for _, companion in limits.full_of],
            _MAX_ROWS,
            due_by,
            self._known_steps,
        )
        return _found(rows, limit)

    async def claimable_ingest(
        self, now: datetime, due_by: datetime, limit: int
    ) -> FoundRelationships:
        """Return the relationships of the turns that have waited the longest to be ingested."""
        rows = await self._database.rows("claimable_ingest", now, due_by, _MAX_ROWS)
        return _found(rows, limit)

    async def claimable_lanes_of(self, relationship_id: int, now: datetime) -> list[ClaimableLane]:
        """Return the lanes of a relationship that are due and not claimed, once for each place."""
        rows = await self._database.rows(
            "claimable_lanes_of", relationship_id, now, self._known_steps
        )
        return [ClaimableLane(**dict(row)) for row in rows]

    async def claim(
        self,
        relationship_id: int,
        lane: Lane,
        place: str,
        holder: UUID,
        now: datetime,
        until: datetime,
    ) -> bool:
        """Claim a lane of a relationship; return False if it is claimed already."""
        row = await self._database.row(
            "claim_lane", relationship_id, lane, place, holder, until, now
        )
        return row is not None

    async def renew(
        self, holder: UUID, until: datetime, ingest_until: datetime
    ) -> set[tuple[int, Lane]]:
        """Extend all claims of a worker; return the lanes it still holds."""
        rows = await self._database.rows("renew_claims", holder, until, ingest_until)
        return {(row["relationship_id"], row["lane"]) for row in rows}

    async def renew_one(
        self, relationship_id: int, lane: Lane, holder: UUID, until: datetime
    ) -> None:
        """Extend a worker's claim on a lane."""
        await self._database.execute("renew_claim", relationship_id, lane, holder, until)

    async def release_claim(self, relationship_id: int, lane: Lane, holder: UUID) -> None:
        """Release the claim on a lane."""
        await self._database.execute("release_claim", relationship_id, lane, holder)

    async def release_claims(self, holder: UUID) -> None:
        """Release all claims of a worker."""
        await self._database.execute("release_claims", holder)

    async def step_states(self, relationship_id: int) -> list[StepState]:
        """Return the states of a relationship's steps; of one by one turns, for all together."""
        rows = await self._database.rows("steps_of_relationship", relationship_id)
        return [StepState(**dict(row)) for row in rows]

    async def due_states(
        self, relationship_id: int, lane: Lane, now: datetime, limit: int
    ) -> list[StepState]:
        """Return the states of a lane's due steps, at most `limit`, in the order of their turns."""
        rows = await self._database.rows("due_steps_of_lane", relationship_id, lane, now, limit)
        return [StepState(**dict(row)) for row in rows]

    async def finish(
        self, relationship_id: int, state: StepState, due: datetime | None, now: datetime
    ) -> None:
        """Record that a step succeeded; it stays due if it was scheduled since `state` was read."""
        await self._database.execute(
            "finish_step", relationship_id, state.step, state.marks, due, now
        )

    async def drop_turn(self, relationship_id: int, state: StepState) -> None:
        """Record that a step has nothing to do with a turn, unless it was requested since."""
        await self._database.execute(
            "drop_turn", relationship_id, state.step, state.turn_id, state.marks
        )

    async def fail(
        self,
        relationship_id: int,
        state: StepState,
        attempts: int,
        code: str,
        again: datetime | None,
        held_at: datetime | None,
    ) -> None:
        """Record that a step failed, and when it is retried (`again`) or since when it is held."""
        await self._database.execute(
            "fail_step",
            relationship_id,
            state.step,
            state.turn_id,
            again,
            attempts,
            code,
            held_at,
        )

    async def claimed_lanes(self, relationship_id: int, now: datetime) -> set[Lane]:
        """Return the lanes of a relationship that are claimed."""
        rows = await self._database.rows("claims_of_relationship", relationship_id, now)
        return {row["lane"] for row in rows}

    async def claims_at_place(self, place: str, now: datetime) -> int:
        """Count the claims at a place."""
        count: int = await self._database.value("claims_at_place", place, now)
        return count

    async def turns_behind(
        self, relationship_id: int, cursors: Mapping[str, int]
    ) -> dict[str, int]:
        """Count the turns after each cursor, up to a thousand."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "turns_behind",
            relationship_id,
            list(cursors),
            list(cursors.values()),
            _MAX_TURNS_BEHIND,
        )
        return {row["name"]: row["behind"] for row in rows}

    async def waiting_counts(self, now: datetime, places: int) -> list[WaitingSteps]:
        """Count the waiting steps by step and reason; `places` is the limit per model server."""
        full = [row["place"] for row in await self._database.rows("full_places", now, places)]
        rows = await self._database.rows("curation_waiting", now, _MAX_WAITING, full)
        return [
            WaitingSteps(row["step"], row["reason"], row["waiting"], row["oldest"]) for row in rows
        ]


def _found(rows: Sequence[Any], limit: int) -> FoundRelationships:
    ids = list(dict.fromkeys(row["relationship_id"] for row in rows))
    return FoundRelationships(ids[:limit], len(ids) > limit or len(rows) == _MAX_ROWS)


def _columns(steps: Sequence[ScheduledStep]) -> tuple[list[str], list[str], list[str]]:
    return (
        [step.step for step in steps],
        [step.lane for step in steps],
        [step.place for step in steps],
    )
