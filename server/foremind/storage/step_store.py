"""The steps of background work as they stand in the database: due, claimed, failed, held."""

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

_MOST_COUNTED = 1000  # turns behind a cursor
_MOST_WAITING = 10_000  # steps of one kind that a look at the metrics counts


class StepStore:
    """Makes steps due, and lets one worker at a time do those of a relationship's lane."""

    def __init__(self, database: Database, held_for: timedelta) -> None:
        """Args: held_for: what passes before a step that was held is tried again."""
        self._database = database
        self._held_for = held_for

    async def to_look_at(self, now: datetime, limit: int) -> list[PendingLook]:
        """Return relationships in which something happened, the longest ago first."""
        rows = await self._database.rows("relationships_to_look_at", now, limit)
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
        """Make steps due of a relationship in which something happened, unless others did."""
        async with self._database.transaction() as connection:
            if await connection.row("relationship_looked_at", look.id, look.due_at) is not None:
                await connection.execute(
                    "make_steps_due", look.id, now, *_parts(steps), self._held_for
                )

    async def make_due(
        self, relationship_id: int, steps: Sequence[ScheduledStep], when: datetime
    ) -> None:
        """Make steps due at a time, unless they are sooner or wait after a failure."""
        await self._database.execute(
            "make_steps_due", relationship_id, when, *_parts(steps), self._held_for
        )

    async def take_up(self, relationship_id: int, now: datetime) -> None:
        """Make due at once what failed, also what is held."""
        await self._database.execute("take_up_steps", relationship_id, now)

    async def take_up_held(self, now: datetime, since: datetime, limit: int) -> None:
        """Make due what is held since a time, at most `limit` steps; what fails is held again."""
        await self._database.execute("take_up_held", now, since, limit)

    async def move(self, relationship_id: int, lane: Lane, place: str) -> None:
        """Note where the steps of a lane wait by now."""
        await self._database.execute("move_steps", relationship_id, lane, place)

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
        """Take the lane whose step is due the longest, if there is room for one.

        Args:
            full: places at which no more is begun.
            models_full: whether no more is begun that asks any model.
            full_of: places, and companions of which no more is begun there.
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
        """Take a lane of one relationship; False where somebody has it."""
        row = await self._database.row("claim_lane_of", relationship_id, lane, holder, until, now)
        return row is not None

    async def renew(self, holder: UUID, until: datetime) -> set[tuple[int, Lane]]:
        """Hold on to all that is claimed; return what that is."""
        rows = await self._database.rows("renew_claims", holder, until)
        return {(row["relationship_id"], row["lane"]) for row in rows}

    async def give_up(self, relationship_id: int, lane: Lane, holder: UUID) -> None:
        """Let others have a lane."""
        await self._database.execute("give_up_claim", relationship_id, lane, holder)

    async def give_up_all(self, holder: UUID) -> None:
        """Let others have all that is claimed."""
        await self._database.execute("give_up_claims", holder)

    async def of(self, relationship_id: int) -> list[StepState]:
        """Return how the steps of a relationship stand."""
        rows = await self._database.rows("steps_of_relationship", relationship_id)
        return [StepState(**dict(row)) for row in rows]

    async def finish(
        self, relationship_id: int, state: StepState, due: datetime | None, now: datetime
    ) -> None:
        """Note that a step was done; what made it due since `state` was read keeps it due."""
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
        """Note that a step failed; it is tried `again`, or held."""
        await self._database.execute(
            "fail_step", relationship_id, step, again, attempts, code, held_at
        )

    async def lanes_at_work(self, relationship_id: int, now: datetime) -> set[Lane]:
        """Return the lanes of a relationship in which a worker is at work."""
        rows = await self._database.rows("claims_of_relationship", relationship_id, now)
        return {row["lane"] for row in rows}

    async def claims_at(self, place: str, now: datetime) -> int:
        """Count how many lanes are at work at a place."""
        count: int = await self._database.value("claims_at_place", place, now)
        return count

    async def behind(self, relationship_id: int, cursors: Mapping[str, int]) -> dict[str, int]:
        """Count the turns after each of some cursors, up to a thousand."""
        rows = await self._database.of(relationship_id).rows(
            "turns_behind", relationship_id, list(cursors), list(cursors.values()), _MOST_COUNTED
        )
        return {row["name"]: row["behind"] for row in rows}

    async def waiting(self, now: datetime, places: int) -> list[WaitingSteps]:
        """Count what waits, by step and reason; a model has so many `places`."""
        rows = await self._database.rows("curation_waiting", now, _MOST_WAITING, places)
        return [
            WaitingSteps(row["step"], row["reason"], row["waiting"], row["oldest"]) for row in rows
        ]


def _parts(steps: Sequence[ScheduledStep]) -> tuple[list[str], list[str], list[str]]:
    return (
        [step.step for step in steps],
        [step.lane for step in steps],
        [step.place for step in steps],
    )
