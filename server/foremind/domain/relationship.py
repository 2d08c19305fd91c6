"""Relationships between a user and a companion, and what background work reads of them."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.record import RecordLayer
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings
from foremind.domain.turn import Speaker

#: Companions of one database; a relationship's id leaves room for so many beside its user's.
MAX_COMPANIONS = 4_194_304


def relationship_id_of(user_id: int, companion_id: int) -> int:
    """Return the id of a user's relationship with a companion, whether or not it exists. Pure."""
    return user_id * MAX_COMPANIONS + companion_id


def user_id_of(relationship_id: int) -> int:
    """Return the key of a relationship's user. Pure."""
    return relationship_id // MAX_COMPANIONS


def companion_id_of(relationship_id: int) -> int:
    """Return the companion of a relationship. Pure."""
    return relationship_id % MAX_COMPANIONS


@dataclass(frozen=True, slots=True)
class Relationship:
    """The relationship of a user with a companion, given by slug; `settings` are its own.

    `removals` is how often something was removed from it.
    `consented`: the user agreed to be remembered, where the companion requires consent.
    """

    id: int
    memory_version: int
    removals: int
    memory_count: int
    settings: RelationshipSettings
    consented: bool
    user_id: str
    user_name: str
    time_zone: str
    language: str | None
    companion: str
    region: str | None = None


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session and its number of turns."""

    id: UUID
    opened_at: datetime
    active_at: datetime
    closed_at: datetime | None
    turns: int


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """A turn as shown to its user; `memory` is the id of the memory that it is part of, if any."""

    id: str
    session_id: UUID
    speaker: Speaker
    text: str
    created_at: datetime
    memory: str | None


class ChangeSet(msgspec.Struct, frozen=True):
    """Turns whose records of a layer must be rebuilt together."""

    layer: RecordLayer
    turns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RelationshipState:
    """A relationship as background work sees it: names, settings and the cursors of each step.

    `settings` are the relationship's own. The four turn ids are the last turns processed by: stated
    facts, notes, the summary, and episodes. `erasures` is the erasure count when this
    was read, `salt` that of the digests in `dismissed`. `due_at` is when activity is to be looked
    at; `steps_due` are due in lanes other than ingest; open sessions begin with the longest idle.
    `in_world`: it is a mind of a world, by whose time things happen there.
    """

    id: int
    user_name: str
    companion_name: str
    time_zone: str
    language: str | None
    companion_settings: CompanionSettings
    settings: RelationshipSettings
    stated_turn_id: int
    noted_turn_id: int
    summarised_turn_id: int
    narrated_turn_id: int
    habits_at: datetime | None
    dismissed: frozenset[str]
    salt: UUID
    erasures: int
    remade: tuple[ChangeSet, ...]
    companion_id: int
    due_at: datetime | None
    in_world: bool
    steps_due: frozenset[str]
    open_sessions: tuple["OpenSession", ...]

    def change_sets_for(self, layer: RecordLayer) -> list[ChangeSet]:
        """Return the change sets of a layer; one without turns means the whole layer."""
        return [change_set for change_set in self.remade if change_set.layer == layer]

    @property
    def facts_to_redo(self) -> list[ChangeSet]:
        """The turns whose stated facts must be extracted again."""
        return [change_set for change_set in self.change_sets_for("profile") if change_set.turns]

    @property
    def inferences_to_redo(self) -> ChangeSet | None:
        """The change set of the inferred part of the profile, if that must be rebuilt."""
        return next(
            (change_set for change_set in self.change_sets_for("profile") if not change_set.turns),
            None,
        )


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """A turn as background work reads it; its significance once ingested.

    `narrated`: an episode covers it. `vector`, float32 [dimension], of turns that are read for the
    first time, once ingested.
    """

    id: int
    session_id: UUID
    speaker: Speaker
    content: str
    created_at: datetime
    significance: float
    narrated: bool
    vector: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that is not closed, and the time of its last turn."""

    id: UUID
    active_at: datetime


@dataclass(frozen=True, slots=True)
class SessionUsage:
    """How many messages a session's user sent, and their length in UTF-8, in all."""

    id: UUID
    said: int
    bytes: int
