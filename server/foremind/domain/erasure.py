"""TODO."""

from dataclasses import dataclass
from uuid import UUID

from foremind.domain.record import MadeBy, RecordLayer, by_hand
from foremind.domain.turn import Speaker


@dataclass(frozen=True, slots=True)
class TranscriptText:
    """A turn or what is left of one; `vector` as PostgreSQL sends a halfvec, `alive` its text."""

    id: int
    session_id: UUID
    speaker: Speaker
    reply_to: int | None
    alive: bool
    content: str
    vector: bytes | None
    memory_id: int | None


@dataclass(frozen=True, slots=True)
class RecordText:
    """Everything that a record says, or said in a `revision`; 0 is its present state.

    `turns` are those that it was made of, known of the present state only.
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
    def by_hand(self) -> bool:
        """Whether somebody wrote it."""
        return by_hand(self.made_by)


@dataclass(frozen=True, slots=True)
class ShownState:
    """How far a relationship had come when it was read."""

    erasures: int
    memory_version: int
    layers_version: int
    last_turn: int
