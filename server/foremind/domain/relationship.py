"""TODO."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.companion import CompanionSettings, RelationshipSettings
from foremind.domain.record import RecordLayer
from foremind.domain.turn import Speaker


@dataclass(frozen=True, slots=True)
class Relationship:
    """One user with one companion, by its slug; `settings` are its own.

    `shares_counts`: its user agreed to be counted, with others, by topic; `consented`: to be
    remembered, where the companion asks for that.
    """

    id: int
    memory_version: int
    memory_count: int
    settings: RelationshipSettings
    shares_counts: bool
    consented: bool
    user_id: str
    user_name: str
    time_zone: str
    companion: str


@dataclass(frozen=True, slots=True)
class SessionView:
    """A session and how much was said in it."""

    id: UUID
    opened_at: datetime
    active_at: datetime
    closed_at: datetime | None
    turns: int


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """A turn as its user may look at it; `memory` is the id of that which it is part of, if any."""

    id: str
    session_id: UUID
    speaker: Speaker
    text: str
    created_at: datetime
    memory: str | None


class ChangeSet(msgspec.Struct, frozen=True):
    """Turns whose notes of a layer are to be made again, together."""

    layer: RecordLayer
    turns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RelationshipState:
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
    remade: tuple[ChangeSet, ...]
    messages: int

    def remade_in(self, layer: RecordLayer) -> list[ChangeSet]:
        """Return what is to be made again in a layer; of everything where there are no turns."""
        return [each for each in self.remade if each.layer == layer]

    @property
    def stated_again(self) -> list[ChangeSet]:
        """The turns of which what is stated is to be kept again."""
        return [each for each in self.remade_in("profile") if each.turns]

    @property
    def inferred_again(self) -> ChangeSet | None:
        """What stands for the inferred part of the profile where that is to be made again."""
        return next((each for each in self.remade_in("profile") if not each.turns), None)


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
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
class SessionUsage:
    """A session's span, how often its user spoke, and how often with a question."""

    id: UUID
    began: datetime
    ended: datetime
    said: int
    asked: int
