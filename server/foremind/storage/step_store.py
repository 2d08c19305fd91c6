"""The schedule of background steps: due, claimed, failed, or held after repeated failures."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from foremind.domain.step import (
    ClaimedStep,
    Lane,
    PendingLook,
    ScheduledStep,
    StepState,
    WaitingSteps,
)
from foremind.storage.companion_store import relationship_settings, settings_from_json
from foremind.storage.database import Database

_MAX_TURNS_BEHIND = 1000  # counted per cursor
_MAX_WAITING = 10_000  # steps counted per kind, for the metrics


class StepStore:
    """Schedules steps, and lets one worker at a time claim a lane of a relationship."""

    def __init__(self, database: Database, held_for: timedelta) -> None:
        """Args: held_for: how long after being held a step may be retried."""
        self._database = database
        self._held_for = held_for

    async def to_look_at(self, now: datetime, limit: int) -> list[PendingLook]:
        """Return relationships with activity that was not scheduled yet, the oldest first."""
        rows = await self._database.rows("pending_relationships", now, limit)
        return [
            PendingLook(
                row["id"],
                row["due_at"],
                settings_from_json(row["companion_settings"]),
                relationship_settings(row),
            )
            for row in rows
        ]

    async def look_at(
        self, look: PendingLook, steps: Sequence[ScheduledStep], now: datetime
    ) -> None:
        """Schedule steps of such a relationship, unless another worker did."""
        async with self._database.transaction() as connection:
            if await connection.row("claim_pending_relationship", look.id, look.due_at) is not None:
                await connection.execute(
                    "schedule_steps", look.id, now, *_columns(steps), self._held_for
                )

    async def make_due(
        self, relationship_id: int, steps: Sequence[ScheduledStep], when: datetime
    ) -> None:
        """Schedule steps at a time, unless they are due sooner or backing off after a failure."""
        await self._database.execute(
            "schedule_steps", relationship_id, when, *_columns(steps), self._held_for
        )

    async def take_up(self, relationship_id: int, now: datetime) -> None:
        """Make failed and held steps of a relationship due now."""
        await self._database.execute("retry_failed_steps", relationship_id, now)

    async def take_up_held(self, now: datetime, since: datetime, limit: int) -> None:
        """Make steps due that were held before a time, at most `limit`.

        They are held again if they fail.
        """
        await self._database.execute("retry_held_steps", now, since, limit)

    async def move(self, relationship_id: int, lane: Lane, place: str) -> None:
        """Set the model server that the steps of a lane use."""
        await self._database.execute("set_step_place", relationship_id, lane, place)

    async def claim(
        self,
        holder: UUID,
        now: datetime,
        until: datetime,
        *,
        full: Collection[str],
        models_full: bool,
        full_of: Collection[tuple[str, int]],
    ) -> ClaimedStep | None:
        """Claim the lane whose step has been due the longest, among those that may start.

        Args:
            full: places (model servers) at their limit.
            models_full: whether the limit for all model servers together is reached.
            full_of: pairs of a place, and a companion at its limit there.
        """
        pairs = list(full_of)
        row = await self._database.row(
            "claim_lane",
            now,
            until,
            holder,
            list(full),
            models_full,
            [place for place, _ in pairs],
            [companion for _, companion in pairs],
        )
        return None if row is None else ClaimedStep(**dict(row))

    async def claim_of(
        self, relationship_id: int, lane: Lane, holder: UUID, now: datetime, until: datetime
    ) -> bool:
        """Claim a lane of one relationship; return False if it is claimed already."""
        row = await self._database.row("claim_lane_of", relationship_id, lane, holder, until, now)
        return row is not None

    async def renew(self, holder: UUID, until: datetime) -> set[tuple[int, Lane]]:
        """Extend all claims of a worker; return the lanes it still holds."""
        rows = await self._database.rows("renew_claims", holder, until)
        return {(row["relationship_id"], row["lane"]) for row in rows}

    async def give_up(self, relationship_id: int, lane: Lane, holder: UUID) -> None:
        """Release the claim on a lane."""
        await self._database.execute("release_claim", relationship_id, lane, holder)

    async def give_up_all(self, holder: UUID) -> None:
        """Release all claims of a worker."""
        await self._database.execute("release_claims", holder)

    async def of(self, relationship_id: int) -> list[StepState]:
        """Return the states of a relationship's steps."""
        rows = await self._database.rows("steps_of_relationship", relationship_id)
        return [StepState(**dict(row)) for row in rows]

    async def finish(
        self, relationship_id: int, state: StepState, due: datetime | None, now: datetime
    ) -> None:
        """Record that a step succeeded; it stays due if it was scheduled since `state` was read."""
        await self._database.execute(
            "finish_step", relationship_id, state.step, state.marks, due, now
        )

    async def fail(
        self,
        relationship_id: int,
        step: str,
        attempts: int,
        code: str,
        again: datetime | None,
        held_at: datetime | None,
    ) -> None:
        """Record that a step failed, and when it is retried (`again`) or since when it is held."""
        await self._database.execute(
            "fail_step", relationship_id, step, again, attempts, code, held_at
        )

    async def lanes_at_work(self, relationship_id: int, now: datetime) -> set[Lane]:
        """Return the lanes of a relationship that are claimed."""
        rows = await self._database.rows("claims_of_relationship", relationship_id, now)
        return {row["lane"] for row in rows}

    async def claims_at(self, place: str, now: datetime) -> int:
        """Count the claims at a place."""
        count: int = await self._database.value("claims_at_place", place, now)
        return count

    async def behind(self, relationship_id: int, cursors: Mapping[str, int]) -> dict[str, int]:
        """Count the turns after each cursor, up to a thousand."""
        rows = await self._database.of(relationship_id).rows(
            "turns_behind",
            relationship_id,
            list(cursors),
            list(cursors.values()),
            _MAX_TURNS_BEHIND,
        )
        return {row["name"]: row["behind"] for row in rows}

    async def waiting(self, now: datetime, places: int) -> list[WaitingSteps]:
        """Count the waiting steps by step and reason; `places` is the limit per model server."""
        rows = await self._database.rows("curation_waiting", now, _MAX_WAITING, places)
        return [
            WaitingSteps(row["step"], row["reason"], row["waiting"], row["oldest"]) for row in rows
        ]


def _columns(steps: Sequence[ScheduledStep]) -> tuple[list[str], list[str], list[str]]:
    return (
        [step.step for step in steps],
        [step.lane for step in steps],
        [step.place for step in steps],
    )
