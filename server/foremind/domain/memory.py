"""TODO."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.policy import RecallPolicy
from foremind.domain.turn import Speaker


class Reason(msgspec.Struct, frozen=True):
    """Why a turn matters: what was found, and how much that alone is worth, 0 to 1."""

    name: str
    score: float


@dataclass(frozen=True, slots=True)
class MemoryText:
    """What a memory is found by: a unit vector, float32 [dimension], and weighted word counts."""

    vector: npt.NDArray[np.float32]
    terms: dict[str, float]

    @property
    def length(self) -> float:
        """All its words, by weight."""
        return sum(self.terms.values())


@dataclass(frozen=True, slots=True)
class ReembeddedMemory:
    """A memory's text now that a turn beside it is known; `new_terms` are that turn's words."""

    text: MemoryText
    new_terms: frozenset[str]


@dataclass(frozen=True, slots=True)
class NewMemory:
    """A memory about to be stored; `reasons` is JSON, `happened` the time it speaks of."""

    significance: float
    reasons: str
    memory_type: str
    text: MemoryText
    happened: tuple[datetime, datetime] | None


@dataclass(frozen=True, slots=True)
class SimilarMemory:
    """A memory that a turn may repeat; `cosine` is that of the two bare texts."""

    id: int
    speaker: Speaker
    content: str
    significance: float
    created_at: datetime
    cosine: float


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that can be true only one way at a time: a slot and what it is said to be."""

    slot: str
    value: str


class KnownMemory(msgspec.Struct, frozen=True, gc=False):
    """What ranking wants to know of a memory, wherever it was read.

    `happened` is the span of time it speaks of, if any; `length` counts all its words by weight;
    `session` is equal for those that were said in one session; `superseded_by` is the memory
    of what holds since.
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


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A memory that may be recalled: its cosine, -1 to 1, and the query's words in it by weight."""

    memory: KnownMemory
    cosine: float
    matches: dict[str, float]


@dataclass(frozen=True, slots=True)
class RetrievalQuery:
    """What candidates are put forward for.

    `vector` is a unit vector, float32 [dimension]; `terms` are distinct; of each of the `times`
    asked for, from inclusive to exclusive, some memories are among the candidates.
    """

    relationship_id: int
    vector: npt.NDArray[np.float32]
    terms: list[str]
    policy: RecallPolicy
    now: datetime
    times: Sequence[tuple[datetime, datetime]]


@dataclass(frozen=True, slots=True)
class WordStatistics:
    """The relationship's collection statistics: memories, words, memories by query word."""

    memories: int
    words: float
    memories_by_word: dict[str, int]


@dataclass(frozen=True, slots=True)
class IndexState:
    """A relationship's memory version, and its collection statistics at that time."""

    version: int
    memories: int
    words: float


class IndexedMemory(msgspec.Struct, frozen=True, gc=False):
    """A memory as an index in the process takes it.

    `vector` is as `halfvec_send` gives it (four bytes, then big-endian half floats), `words` as
    `packed_words` has them.
    """

    memory: KnownMemory
    vector: bytes
    words: bytes


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A memory with everything that is known of it; `superseded_by` is a memory's id."""

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
    """A memory that a search brought back; the numbers are 0 to 1.

    `score` is what memories are ordered by; `relevance` is the 70/30 rule alone, made of `cosine`
    and `keyword`. `superseded`: something newer contradicts it.
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
