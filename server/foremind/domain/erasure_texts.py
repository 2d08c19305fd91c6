"""What an erasure reads: transcript and record texts, and the versions they were read at."""

from dataclasses import dataclass
from uuid import UUID

from foremind.domain.record import MadeBy, RecordLayer, is_manual
from foremind.domain.turn import Speaker


@dataclass(frozen=True, slots=True)
class TranscriptText:
    """A turn; `vector` in `halfvec_send` format, `alive` unless its text was erased.

    What happened, which a game reported, counts as said by the user, and belongs to no session.
    """

    id: int
    session_id: UUID | None
    speaker: Speaker
    reply_to: int | None
    alive: bool
    content: str
    vector: bytes | None
    memory_id: int | None


@dataclass(frozen=True, slots=True)
class RecordText:
    """The full text of a record in a `revision`; 0 is the current state.

    `turns` are its sources, known for the current state only.
    """

    id: int
    revision: int
    made_by: MadeBy
    text: str
    title: str
    content: str
    layer: RecordLayer | None = None
    kind: str = ""
    turns: frozenset[int] = frozenset()

    @property
    def is_manual(self) -> bool:
        """Whether a user or developer wrote it."""
        return is_manual(self.made_by)


@dataclass(frozen=True, slots=True)
class ShownState:
    """The versions of a relationship at the time it was read.

    `language` is the player's, English if it is unknown.
    """

    erasures: int
    memory_version: int
    layers_version: int
    last_turn: int
    language: str
