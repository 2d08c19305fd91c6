"""Announcements: what server processes tell each other, by PostgreSQL or NATS.

Identifiers, versions and scores: no text that anyone wrote, and no name.
"""

from datetime import datetime
from uuid import UUID

import msgspec

from foremind.domain.memory import Reason
from foremind.domain.record import MadeBy
from foremind.domain.turn import Speaker


class SummaryApplied(msgspec.Struct, frozen=True):
    """The oldest turns were summarised: how many turns, in how many lines, and by what."""

    messages: int
    lines: int
    made_by: MadeBy


class LayersChanged(msgspec.Struct, frozen=True, tag="layers"):
    """Records of a relationship changed."""

    relationship_id: int
    layers_version: int
    summary: SummaryApplied | None = None


class LibraryChanged(msgspec.Struct, frozen=True, tag="library"):
    """Documents of a companion changed.

    `version` is the number of changes to them; `gone`: one was deleted and must no longer be found.
    """

    companion_id: int
    version: int
    gone: bool = False


class MemoryAnnouncement(msgspec.Struct, frozen=True, tag="judged"):
    """A turn was ingested, with or without becoming a memory."""

    relationship_id: int
    message_id: str | None
    speaker: Speaker
    significance: float
    memory_id: int | None = None
    memory_type: str | None = None
    memory_version: int | None = None
    reasons: tuple[Reason, ...] = ()


class MemoriesForgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """Something in a relationship was erased, or removed because it had expired.

    `turn_ids` are the turns whose text was erased, None if there are many. `erasures` and
    `removals` are the numbers of erasures, and of these and removals, so far. `went_back`: the last
    commits may be lost, so nothing that was known holds, and the numbers may be lower than before.
    """

    relationship_id: int
    memory_version: int
    layers_version: int
    erasures: int
    turn_ids: tuple[int, ...] | None
    removals: int
    went_back: bool = False


class CompanionChanged(msgspec.Struct, frozen=True, tag="companion_changed"):
    """A companion was changed or retired."""

    companion_id: int
    version: int


class AccessRevoked(msgspec.Struct, frozen=True, tag="revoked"):
    """Tokens were revoked: those of `subject` issued until `until`, or the single `token_id`.

    `until` is later than the revocation by the clock skew allowed for token issuers.
    """

    subject: str
    token_id: str | None
    until: datetime

    def covers(self, subject: str, token_id: str | None, issued_at: float | None) -> bool:
        """Return whether a token is revoked; one without an issue time counts as old."""
        if subject != self.subject:
            return False
        if self.token_id is not None:
            return self.token_id == token_id
        return issued_at is None or issued_at <= self.until.timestamp()


class StateChanged(msgspec.Struct, frozen=True, tag="state_changed"):
    """The state of a relationship's session changed."""

    relationship_id: int


class SessionTaken(msgspec.Struct, frozen=True, tag="session_taken"):
    """A window moved to a new connection, identified by `origin`."""

    session_id: str
    origin: str


class ReplyStored(msgspec.Struct, frozen=True, tag="reply_stored"):
    """A reply to a message was stored; `origin` is the window that it was made for."""

    relationship_id: int
    session_id: UUID
    message_turn_id: int | None
    turn_id: int
    origin: str


class MemoriesChanged(msgspec.Struct, frozen=True, tag="memories"):
    """Memories of a relationship changed."""

    relationship_id: int
    memory_version: int


class ConsentGiven(msgspec.Struct, frozen=True, tag="consent"):
    """A user gave or withdrew consent to being remembered; `version` is that of the settings."""

    relationship_id: int
    given: bool
    version: int


class SettingsChanged(msgspec.Struct, frozen=True, tag="settings_changed"):
    """A relationship's own settings were changed."""

    relationship_id: int
    version: int


class UserErased(msgspec.Struct, frozen=True, tag="user_erased"):
    """A user was erased."""

    user_id: str


class WorldChanged(msgspec.Struct, frozen=True, tag="world"):
    """Something happened in a world, or somebody came or left.

    `version` is that of its rules and scenes; -1 if they are to be looked at anyway. If only those
    who are in some scenes witness what happened, `scenes` has them.
    """

    world: str
    version: int = -1
    scenes: tuple[str, ...] = ()


class RelationshipDeleted(msgspec.Struct, frozen=True, tag="deleted"):
    """A relationship was deleted, with its user."""

    relationship_id: int


Announcement = (
    MemoryAnnouncement
    | MemoriesChanged
    | MemoriesForgotten
    | LayersChanged
    | LibraryChanged
    | CompanionChanged
    | SettingsChanged
    | AccessRevoked
    | SessionTaken
    | ReplyStored
    | UserErased
    | RelationshipDeleted
    | ConsentGiven
    | StateChanged
    | WorldChanged
)
