"""Memories: how they are stored, indexed, retrieved and ranked."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.policy import RecallPolicy
from foremind.domain.turn import MemoryType, Speaker

#: The types of memories of what happened, which nobody said.
NARRATED_TYPES: frozenset[MemoryType] = frozenset({"observation", "event", "relationship"})


class Reason(msgspec.Struct, frozen=True):
    """A reason why a turn is significant, and the score that it gives alone, 0 to 1."""

    name: str
    score: float


@dataclass(frozen=True, slots=True)
class MemoryText:
    """What a memory is indexed by: a unit vector, float32 [dimension], and weighted term counts."""

    vector: npt.NDArray[np.float32]
    terms: dict[str, float]

    @property
    def length(self) -> float:
        """The sum of all term weights."""
        return sum(self.terms.values())


@dataclass(frozen=True, slots=True)
class ReembeddedMemory:
    """A memory re-embedded with neighbouring turns; `new_terms` are the terms of these turns."""

    text: MemoryText
    new_terms: frozenset[str]


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory to be stored; `reasons` is JSON, `happened` the time span it refers to.

    `facts` are what it states.
    """

    turn_id: int
    created_at: datetime
    speaker: Speaker
    content: str
    memory_type: str
    significance: float
    reasons: str
    text: MemoryText
    happened: tuple[datetime, datetime] | None
    facts: Sequence["Fact"]


@dataclass(frozen=True, slots=True)
class SimilarMemory:
    """A memory that a turn may repeat.

    `cosine` compares the texts without context, `nearness` the turn's text with the memory in its
    context.
    """

    id: int
    speaker: Speaker
    content: str
    significance: float
    created_at: datetime
    cosine: float
    nearness: float = 0.0


@dataclass(frozen=True, slots=True)
class Fact:
    """A single-valued fact: a slot and its stated value."""

    slot: str
    value: str


@dataclass(frozen=True, slots=True)
class StatedFact:
    """A fact that a memory states of its speaker."""

    memory_id: int
    speaker: Speaker
    fact: Fact
    said_at: datetime


@dataclass(frozen=True, slots=True)
class RepeatedMemory:
    """A memory that a turn repeats, for a reason."""

    memory_id: int
    turn_id: int
    said_at: datetime
    reason: str


@dataclass(frozen=True, slots=True)
class RescoredMemory:
    """The new significance of a memory, why as JSON, and when a turn repeated it, if any did."""

    significance: float
    reasons: str
    said_at: datetime | None = None


@dataclass(slots=True)
class MemoryChanges:
    """What ingesting turns changes of memories.

    A memory that is not stored yet has the negative id of its turn. `growth` is by how much the sum
    of all term weights grows; `rescored` and `reembedded` are by memory, `superseded` is by the
    older memory, with the newer one and why; `used` are those that the reply was made of.
    """

    new: list[NewMemory] = field(default_factory=list)
    growth: float = 0.0
    reembedded: dict[int, ReembeddedMemory] = field(default_factory=dict)
    repeated: list[RepeatedMemory] = field(default_factory=list)
    rescored: dict[int, RescoredMemory] = field(default_factory=dict)
    superseded: dict[int, tuple[int, str]] = field(default_factory=dict)
    used: Sequence[int] = ()

    def __bool__(self) -> bool:
        changed = self.new or self.reembedded or self.rescored or self.superseded or self.used
        return bool(changed)


class KnownMemory(msgspec.Struct, frozen=True, gc=False):
    """The fields of a memory that ranking needs, from the index or the database.

    `happened` is the time span it refers to, if any; `place` where it was witnessed, in a world;
    `length` is the sum of its term weights; `session` is equal for memories of the same session;
    `superseded_by` is the memory that replaced it.
    """

    id: int
    content: str
    speaker: Speaker
    memory_type: str
    significance: float
    created_at: datetime
    happened: tuple[datetime, datetime] | None
    last_used_at: datetime | None
    superseded: bool
    session: int
    length: float
    superseded_by: int | None = None
    place: str = ""


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A candidate for recall: its cosine, -1 to 1, and the query terms in it by weight."""

    memory: KnownMemory
    cosine: float
    matches: dict[str, float]


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """A query for candidates.

    `vector` is a unit vector, float32 [dimension]; `terms` are distinct; `times` are half-open time
    spans mentioned in the query, each of which contributes candidates.
    """

    relationship_id: int
    vector: npt.NDArray[np.float32]
    terms: list[str]
    policy: RecallPolicy
    now: datetime
    times: Sequence[tuple[datetime, datetime]]


@dataclass(frozen=True, slots=True)
class WordStatistics:
    """Statistics of a relationship for BM25; `document_frequencies` is per query term."""

    memories: int
    words: float
    document_frequencies: dict[str, int]


@dataclass(frozen=True, slots=True)
class IndexState:
    """A relationship's memory version, and its collection statistics at that version."""

    version: int
    memories: int
    words: float


class IndexedMemory(msgspec.Struct, frozen=True, gc=False):
    """A memory as the in-process index loads it.

    `vector` is in `halfvec_send` format (four bytes, then big-endian half floats), `words` in the
    packed format of `packed_terms`.
    """

    memory: KnownMemory
    vector: bytes
    words: bytes


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory with all of its fields; `superseded_by` is a memory's id."""

    id: str
    content: str
    speaker: Speaker
    memory_type: str
    significance: float
    reasons: list[Reason]
    created_at: datetime
    happened_from: datetime | None
    happened_to: datetime | None
    last_used_at: datetime | None
    superseded_by: str | None
    times_said: int


class Recalled(msgspec.Struct, frozen=True, gc=False):
    """A memory returned by a search; all scores are 0 to 1.

    Memories are sorted by `score`; `relevance` is the 70/30 combination of `cosine` and `keyword`
    alone. `superseded`: a newer memory contradicts it; `place`: where it was witnessed, in a world.
    """

    id: int
    content: str
    speaker: Speaker
    memory_type: str
    significance: float
    created_at: datetime
    superseded: bool
    score: float
    relevance: float
    cosine: float
    keyword: float
    place: str = ""


class LoreView(msgspec.Struct, frozen=True):
    """An active entry of the companion's lorebook, by the card's id and name for it."""

    id: str
    name: str


class MemoryView(msgspec.Struct, frozen=True):
    """A recalled memory as clients see it; `score` and `relevance` are those of `Recalled`.

    `age` is how long ago it was said, in words of the language of the prompt.
    """

    id: str
    content: str
    score: float
    significance: float
    created_at: datetime
    speaker: Speaker
    memory_type: str
    age: str
    relevance: float
    superseded: bool
