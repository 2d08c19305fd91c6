"""TODO."""

from datetime import datetime

import msgspec

from foremind.domain.memory import Reason
from foremind.domain.record import MadeBy
from foremind.domain.turn import Speaker


class SummaryApplied(msgspec.Struct, frozen=True):
    """That the oldest turns are summarised: how many, in how many lines, by which means."""

    messages: int
    lines: int
    made_by: MadeBy


class LayersChanged(msgspec.Struct, frozen=True, tag="layers"):
    """That records of a relationship changed, as every server process is told."""

    relationship_id: int
    layers_version: int
    summary: SummaryApplied | None = None


class LibraryChanged(msgspec.Struct, frozen=True, tag="library"):
    """That documents of a companion changed, as every server process is told.

    `gone`: one was deleted, and is to be found no more.
    """

    companion_id: int
    gone: bool = False


class MemoryAnnouncement(msgspec.Struct, frozen=True, tag="judged"):
    """What became of a turn, as every server process is told."""

    relationship_id: int
    message_id: str | None
    speaker: Speaker
    significance: float
    memory_id: int | None = None
    memory_type: str | None = None
    memory_version: int | None = None
    reasons: tuple[Reason, ...] = ()


class MemoriesForgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """That something of a relationship was forgotten, as every server process is told.

    `turn_ids` are those whose text is gone, None where they are many.
    """

    relationship_id: int
    memory_version: int
    layers_version: int
    erasures: int
    turn_ids: tuple[int, ...] | None


class CompanionChanged(msgspec.Struct, frozen=True, tag="companion_changed"):
    """That a companion was changed or retired."""

    companion_id: int


class AccessRevoked(msgspec.Struct, frozen=True, tag="revoked"):
    """What was revoked: the tokens of `subject` issued until `until`, or the one `token_id`.

    `until` is past the moment of revoking by as much as the clock of who mints may be ahead.
    """

    subject: str
    token_id: str | None
    until: datetime

    def covers(self, subject: str, token_id: str | None, issued_at: float | None) -> bool:
        """Tell whether a token is revoked by this; one that does not say its age is old."""
        if subject != self.subject:
            return False
        if self.token_id is not None:
            return self.token_id == token_id
        return issued_at is None or issued_at <= self.until.timestamp()


class StateChanged(msgspec.Struct, frozen=True, tag="state_changed"):
    """That something else goes on in a relationship's session, as every process is told."""

    relationship_id: int


class SessionTaken(msgspec.Struct, frozen=True, tag="session_taken"):
    """That a session is used over a new connection; `origin` tells which."""

    session_id: str
    origin: str


class ReplyStored(msgspec.Struct, frozen=True, tag="reply_stored"):
    """That a reply was stored which nobody was connected to hear."""

    relationship_id: int
    session_id: str
    turn_id: int
    origin: str


class MemoriesChanged(msgspec.Struct, frozen=True, tag="memories"):
    """That memories of a relationship changed, as every server process is told."""

    relationship_id: int
    memory_version: int


class ConsentGiven(msgspec.Struct, frozen=True, tag="consent"):
    """Whether a user agrees to be remembered from now on, as every server process is told."""

    relationship_id: int
    given: bool


class SettingsChanged(msgspec.Struct, frozen=True, tag="settings_changed"):
    """That a relationship's own settings were changed."""

    relationship_id: int


class UserErased(msgspec.Struct, frozen=True, tag="user_erased"):
    """That a user is erased, as every server process is told."""

    user_id: str
    name: str
