"""What background work reads of a relationship, and when its steps are due."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec
import numpy as np

from foremind.domain.announcements import StateChanged
from foremind.domain.background_step import (
    Claim,
    ClaimLimits,
    FinishedStep,
    Lane,
    ScheduledStep,
    StepState,
    WaitingSteps,
)
from foremind.domain.relationship import (
    ChangeSet,
    OpenSession,
    RelationshipState,
    SessionUsage,
    TranscriptTurn,
)
from foremind.storage.companion_store import (
    relationship_settings,
    settings_from_json,
    without_settings,
)
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.user_store import reset_user_without_data

MAX_TURNS = 1000  # per query
_MAX_STEPS = 64  # that are due


class BackgroundStore:
    """Reads turns, sessions and cursors, and closes sessions; `RecordStore` has the records."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def schedule_now(self, relationship_id: int, now: datetime) -> None:
        """Schedule background work on a relationship now."""
        await self._database.execute("schedule_relationship", relationship_id, now)

    async def schedule_retention(
        self, now: datetime, since: datetime, limit: int, *, applies_to_all: bool
    ) -> int:
        """Schedule idle relationships to which retention applies; return how many were looked at.

        Args:
            since: relationships checked later than this are skipped.
            limit: of relationships looked at.
            applies_to_all: retention applies to all of them; otherwise only to those for which the
                companion or the relationship sets it.
        """
        rows = await self._database.rows("relationships_to_check", since, applies_to_all, limit)
        for row in rows:
            await self._database.execute("schedule_retention", row["id"], now, row["applies"])
        return len(rows)

    async def count_turns(self, relationship_id: int, limit: int) -> int:
        """Count what was said, up to a limit."""
        row = await self._database.for_relationship(relationship_id).row(
            "count_turns", relationship_id, limit
        )
        return 0 if row is None else int(row["count"])

    async def unkept_turns(self, relationship_id: int) -> list[int]:
        """Return the ids of turns in closed sessions that were not to be kept."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "unkept_turns", relationship_id
        )
        return [row["id"] for row in rows]

    async def relationship_state(
        self, relationship_id: int, now: datetime
    ) -> RelationshipState | None:
        """Return the state of a relationship, with its steps that are due; None if it is gone."""
        row = await self._database.row("relationship_state", relationship_id, now, _MAX_STEPS)
        if row is None:
            return None
        values = without_settings(row) | {
            "companion_settings": settings_from_json(row["companion_settings"]),
            "dismissed": frozenset(row["dismissed"]),
            "steps_due": frozenset(row["steps_due"]),
            "open_sessions": tuple(
                map(OpenSession, row["sessions_open"], row["sessions_active_at"])
            ),
            "remade": msgspec.json.decode(row["remade"], type=tuple[ChangeSet, ...]),
        }
        del values["sessions_open"], values["sessions_active_at"]
        return RelationshipState(**values, settings=relationship_settings(row))

    async def turns_after(
        self, relationship_id: int, turn_id: int, limit: int = MAX_TURNS
    ) -> list[TranscriptTurn]:
        """Return the turns after a cursor, oldest first."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "turns_after", relationship_id, turn_id, limit
        )
        turns = []
        for row in rows:
            values = dict(row)
            vector = values.pop("vector")
            values["vector"] = None if vector is None else np.asarray(vector.to_numpy(), np.float32)
            turns.append(TranscriptTurn(**values))
        return turns

    async def turns(self, relationship_id: int, turn_ids: Sequence[int]) -> list[TranscriptTurn]:
        """Return turns by id, oldest first, except those that were erased."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "turns_by_id", relationship_id, list(turn_ids)
        )
        return [TranscriptTurn(**dict(row)) for row in rows]

    async def answered_by(self, relationship_id: int, turn_id: int) -> list[TranscriptTurn]:
        """Return the message that a reply answers; none if it answers none, or that was erased."""
        row = await self._database.for_relationship(relationship_id).row(
            "message_of_reply", relationship_id, turn_id
        )
        return [] if row is None else await self.turns(relationship_id, [row["reply_to"]])

    async def last_closed_session(self, relationship_id: int) -> list[TranscriptTurn]:
        """Return the turns of the last closed session that still has any text."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "last_closed_session", relationship_id, MAX_TURNS
        )
        return [TranscriptTurn(**dict(row)) for row in rows]

    async def close_session(
        self, relationship_id: int, session_id: UUID, now: datetime, idle_since: datetime
    ) -> None:
        """Close a session and delete its state, unless it was active after `idle_since`."""
        async with self._database.transaction(relationship_id) as connection:
            cleared = await connection.rows(
                "close_session", session_id, relationship_id, now, idle_since
            )
            if cleared:
                connection.announce(StateChanged(relationship_id))

    async def delete_empty_sessions(self, relationship_id: int) -> None:
        """Delete closed sessions without turns; with the last one, reset the user's name."""
        async with self._database.transaction(relationship_id) as connection:
            await connection.execute("delete_closed_sessions", relationship_id)
            await reset_user_without_data(connection, relationship_id)

    async def session_usage(self, relationship_id: int) -> list[SessionUsage]:
        """Return when the latest sessions were and what was said in them, newest first."""
        rows = await self._database.for_relationship(relationship_id).rows(
            "session_usage", relationship_id
        )
        return [SessionUsage(**dict(row)) for row in rows]


_MAX_TURNS_BEHIND = 1000  # counted per cursor
_MAX_ROWS = 64  # due steps read by a poll: a relationship may have several
#: Due steps, or turns, of a lane that are run before other lanes have their turn.
MAX_STATES = 32
_MAX_WAITING = 10_000  # steps counted per kind, for the metrics


class FoundRelationships(NamedTuple):
    """Relationships with turns to ingest, and with other work; of each, if there may be more."""

    to_ingest: list[int]
    more_to_ingest: bool
    to_visit: list[int]
    more_to_visit: bool


_NOBODY = Claim(UUID(int=0), datetime.min.replace(tzinfo=UTC))


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

    async def schedule(
        self,
        relationship_id: int,
        steps: Sequence[ScheduledStep],
        when: datetime,
        connection: DatabaseConnection | None = None,
    ) -> None:
        """Schedule steps at a time, unless they are due sooner or backing off after a failure."""
        await self.claim(relationship_id, {}, _NOBODY, when, steps, connection=connection)

    async def claim(
        self,
        relationship_id: int,
        lanes: Mapping[Lane, str],
        claim: Claim,
        now: datetime,
        steps: Sequence[ScheduledStep] = (),
        active_at: datetime | None = None,
        connection: DatabaseConnection | None = None,
        *,
        due: bool = False,
    ) -> list[StepState]:
        """Claim lanes of a relationship that are due, and return the due steps of those claimed.

        Args:
            lanes: those that may be claimed, with the place of each.
            steps: to be scheduled first.
            active_at: the time at which activity was to be looked at; if that is no longer so, no
                step is scheduled. None where the steps do not depend on activity.
            connection: of a transaction that it is to be part of.
            due: the steps are due already, and get the lanes that they have now.
        """
        rows = await (connection or self._database).rows(
            "claim_steps",
            relationship_id,
            now,
            active_at,
            [step.step for step in steps],
            [step.lane for step in steps],
            [step.place for step in steps],
            self._held_for,
            self._known_steps,
            list(lanes),
            list(lanes.values()),
            claim.holder,
            claim.until,
            MAX_STATES,
            due,
        )
        return [StepState(**dict(row)) for row in rows]

    async def claim_turns(
        self,
        relationship_id: int,
        turn_ids: Sequence[int],
        now: datetime,
        until: datetime,
        due_by: datetime | None = None,
    ) -> list[StepState]:
        """Take the turns that are to be ingested, and return them; at a later time others may.

        Args:
            turn_ids: turns that are taken although they are due later, but not after `due_by`.
        """
        rows = await self._database.rows(
            "claim_turns", relationship_id, now, until, list(turn_ids), MAX_STATES, due_by or now
        )
        return sorted((StepState(**dict(row)) for row in rows), key=lambda state: state.turn_id)

    async def finish(
        self,
        relationship_id: int,
        steps: Sequence[FinishedStep],
        now: datetime,
        released: Sequence[Lane] = (),
        holder: UUID = _NOBODY.holder,
        connection: DatabaseConnection | None = None,
    ) -> None:
        """Record what became of steps; one that succeeded stays due if it was scheduled since.

        Args:
            released: lanes on which the holder's claims end.
            connection: of a transaction that it is to be part of.
        """
        columns = zip(*steps, strict=True) if steps else ([] for _ in FinishedStep._fields)
        await (connection or self._database).execute(
            "finish_steps", relationship_id, now, list(released), holder, *map(list, columns)
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

    async def relationships_due(
        self, now: datetime, due_by: datetime, limits: ClaimLimits, limit: int, ingest: int
    ) -> FoundRelationships:
        """Return the relationships with something to do since a time, the longest waiting first.

        Args:
            due_by: what has been due since then.
            limits: of the lanes other than ingest that may be claimed.
            limit: of relationships of each kind.
            ingest: most relationships with turns to be ingested.
        """
        rows = await self._database.rows(
            "relationships_due",
            now,
            due_by,
            ingest > 0,
            limit,
            list(limits.full),
            limits.models_full,
            [place for place, _ in limits.full_of],
            [companion for _, companion in limits.full_of],
            self._known_steps,
            _MAX_ROWS,
        )
        by_kind: dict[str, list[int]] = {"ingest": [], "activity": [], "steps": []}
        for row in rows:
            by_kind[row["kind"]].append(row["relationship_id"])
        ids = list(dict.fromkeys(by_kind["steps"]))
        more = (
            len(by_kind["activity"]) == limit
            or len(by_kind["steps"]) == _MAX_ROWS
            or len(ids) > limit
        )
        to_ingest = list(dict.fromkeys(by_kind["ingest"]))
        more_to_ingest = len(by_kind["ingest"]) == _MAX_ROWS or len(to_ingest) > ingest
        others = list(dict.fromkeys([*by_kind["activity"], *ids[:limit]]))
        return FoundRelationships(to_ingest[:ingest], more_to_ingest, others, more)

    async def renew(self, holder: UUID, until: datetime) -> set[tuple[int, Lane]]:
        """Extend all claims of a worker; return the lanes it still holds."""
        rows = await self._database.rows("renew_claims", holder, until)
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

    async def drop_turn(self, relationship_id: int, state: StepState) -> None:
        """Record that a step has nothing to do with a turn, unless it was requested since."""
        await self._database.execute(
            "drop_turn", relationship_id, state.step, state.turn_id, state.marks
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

    async def backup_age(self) -> float:
        """Return the seconds since the last backup; without one, since the database was created."""
        return float(await self._database.value("backup_age"))

    async def waiting_counts(self, now: datetime, places: int) -> list[WaitingSteps]:
        """Count the waiting steps by step and reason; `places` is the limit per model server."""
        full = [row["place"] for row in await self._database.rows("full_places", now, places)]
        rows = await self._database.rows("background_waiting", now, _MAX_WAITING, full)
        return [
            WaitingSteps(row["step"], row["reason"], row["waiting"], row["oldest"]) for row in rows
        ]
