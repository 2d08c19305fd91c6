"""What background work on a relationship reads: its turns and sessions, how far each step is."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.companions import CompanionSettings, RelationshipSettings
from foremind.storage.companions import (
    relationship_settings,
    settings_from_json,
    without_settings,
)
from foremind.storage.database import Database
from foremind.storage.records import RecordLayer
from foremind.storage.session_state import StateChanged
from foremind.storage.turns import Speaker

MOST_TURNS = 1000  # that are read at once


class Portion(msgspec.Struct, frozen=True):
    """Turns whose notes of a layer are to be made again, together."""

    layer: RecordLayer
    turns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bond:
    """A relationship that is curated: whose it is, its settings, and how far the work is.

    `settings` are the relationship's own. The five turn ids are those up to which what is stated is
    kept by rules and read for the profile by a model, the scratchpad is kept, the summary tells,
    and episodes are told. `erasures` is how often something had been erased when this was read,
    `salt` that of the digests in `dismissed`.
    """

    id: int
    user_name: str
    companion_name: str
    time_zone: str
    companion_settings: CompanionSettings
    settings: RelationshipSettings
    stated_turn_id: int
    profiled_turn_id: int
    noted_turn_id: int
    summarised_turn_id: int
    told_turn_id: int
    habits_at: datetime | None
    dismissed: frozenset[str]
    salt: UUID
    erasures: int
    remade: tuple[Portion, ...]
    messages: int

    def remade_in(self, layer: RecordLayer) -> list[Portion]:
        """Return what is to be made again in a layer; of everything where there are no turns."""
        return [each for each in self.remade if each.layer == layer]

    @property
    def stated_again(self) -> list[Portion]:
        """The turns of which what is stated is to be kept again."""
        return [each for each in self.remade_in("profile") if each.turns]

    @property
    def inferred_again(self) -> Portion | None:
        """What stands for the inferred part of the profile where that is to be made again."""
        return next((each for each in self.remade_in("profile") if not each.turns), None)


@dataclass(frozen=True, slots=True)
class SaidTurn:
    """A turn as curation reads it; `vector` float32 [dimension] and significance once judged.

    `told`: an episode tells of it.
    """

    id: int
    session_id: UUID
    speaker: Speaker
    content: str
    created_at: datetime
    vector: npt.NDArray[np.float32] | None
    significance: float
    told: bool


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that is not closed, and when something was last said in it."""

    id: UUID
    active_at: datetime


@dataclass(frozen=True, slots=True)
class SessionHabit:
    """A session's span, how often its user spoke, and how often with a question."""

    id: UUID
    began: datetime
    ended: datetime
    said: int
    asked: int


class CurationStore:
    """Reads what is to be curated, and ends sessions; records go through `RecordStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_due(self, bond_id: int, now: datetime) -> None:
        """Let a relationship be curated as soon as may be."""
        await self._database.execute("make_due", bond_id, now)

    async def wake(self, now: datetime, since: datetime, limit: int, *, all_let_go: bool) -> None:
        """Have sleeping relationships looked at that were not since a time, some at once.

        Only where something is let go by age: of all, or by settings of the companion or its own.
        """
        await self._database.execute("wake_for_retention", now, since, all_let_go, limit)

    async def unkept_turns(self, bond_id: int) -> list[int]:
        """Return the turns of sessions that are over which were not to be kept."""
        rows = await self._database.of(bond_id).rows("unkept_turns", bond_id)
        return [row["id"] for row in rows]

    async def bond(self, bond_id: int) -> Bond | None:
        """Return a relationship, or None where it is gone."""
        row = await self._database.of(bond_id).row("relationship_to_curate", bond_id)
        if row is None:
            return None
        values = without_settings(row) | {
            "companion_settings": settings_from_json(row["companion_settings"]),
            "dismissed": frozenset(row["dismissed"]),
            "remade": msgspec.json.decode(row["remade"], type=tuple[Portion, ...]),
        }
        return Bond(**values, settings=relationship_settings(row))

    async def turns_after(
        self, bond_id: int, turn_id: int, limit: int = MOST_TURNS
    ) -> list[SaidTurn]:
        """Return the first turns after one, oldest first."""
        rows = await self._database.of(bond_id).rows("turns_after", bond_id, turn_id, limit)
        return [_turn(row) for row in rows]

    async def turns(self, bond_id: int, turn_ids: Sequence[int]) -> list[SaidTurn]:
        """Return turns that were not removed, oldest first."""
        rows = await self._database.of(bond_id).rows("turns_by_id", bond_id, list(turn_ids))
        return [_turn(row) for row in rows]

    async def last_session_over(self, bond_id: int) -> list[SaidTurn]:
        """Return the turns of the last session that is over and of which something is left."""
        rows = await self._database.of(bond_id).rows("last_session_over", bond_id, MOST_TURNS)
        return [_turn(row) for row in rows]

    async def open_sessions(self, bond_id: int) -> Sequence[OpenSession]:
        """Return the sessions that are not closed, the longest silent first."""
        rows = await self._database.rows("open_sessions", bond_id)
        return [OpenSession(**dict(row)) for row in rows]

    async def close_session(
        self, bond_id: int, session_id: UUID, now: datetime, silent_since: datetime
    ) -> None:
        """Close a session, unless something was said in it since; its state is gone then."""
        async with self._database.transaction(bond_id) as connection:
            cleared = await connection.rows("close_session", session_id, bond_id, now, silent_since)
            if cleared:
                await connection.announce(StateChanged(bond_id))

    async def leave_nothing(self, bond_id: int) -> None:
        """Delete sessions that are over and of which nothing is left; after the last, the name."""
        async with self._database.transaction(bond_id) as connection:
            await connection.execute("delete_closed_sessions", bond_id)
            await connection.execute("forget_name", bond_id)

    async def habits(self, bond_id: int) -> list[SessionHabit]:
        """Return the last sessions, newest first."""
        rows = await self._database.of(bond_id).rows("session_habits", bond_id)
        return [SessionHabit(**dict(row)) for row in rows]


def _turn(row: Any) -> SaidTurn:
    values = dict(row)
    vector = values.pop("embedding")
    return SaidTurn(
        **values, vector=None if vector is None else np.asarray(vector.to_numpy(), np.float32)
    )
