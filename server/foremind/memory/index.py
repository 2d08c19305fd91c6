"""A relationship's memories in the process: exact vectors and postings, searched in one go. Pure.

It puts forward the same candidates as the database's query does, so that `ranking` gives the same
order whichever of the two found them.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from foremind.memory.candidates import CandidateSet, Numbers, gathered
from foremind.policies import RecallPolicy
from foremind.storage.memories import (
    IndexedMemory,
    IndexState,
    Wanted,
    WordStatistics,
    candidate_limit,
    oldest_recalled,
)
from foremind.storage.packed_words import WORD, hash_of, unpack_words

Vector = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

_VECTOR_HEADER_BYTES = 4
_K1 = 1.5  # of BM25, as in ranking
_MARGIN = 4
# Up to so many, or such a share of the bulk, is kept apart from it; then all is laid down anew.
_MOST_RECENT = 256
_MOST_RECENT_SHARE = 32
_ROW_BYTES = 600  # what the objects of a memory take, beside its texts and numbers


class MemoryIndex:
    """All memories of one relationship as of one version; never changed, only replaced.

    Vectors and words lie in two blocks: the bulk, and what was added or changed since it was laid
    down, which takes the place of what it changes. So a new memory costs as little as it is.
    """

    def __init__(self, state: IndexState, bulk: "_Block", recent: "_Block") -> None:
        self.state = state
        self._bulk, self._recent = bulk, recent
        self._rows = [*bulk.memories, *recent.memories]

        def column(name: str) -> npt.NDArray[Any]:
            return np.concatenate((getattr(bulk, name), getattr(recent, name)))

        self._ids = column("ids")
        self._lengths = column("lengths")
        self._superseded = column("superseded")
        self._significance = column("significance")
        self._created = column("created")
        self._alive = np.ones(len(self._rows), np.bool_)
        self._alive[: len(bulk.ids)] = ~np.isin(bulk.ids, recent.ids)
        self._changed = len(recent.ids) > 0
        #: About what it takes in memory.
        self.size_bytes = bulk.size_bytes + recent.size_bytes

    @classmethod
    def of(cls, state: IndexState, memories: Sequence[IndexedMemory]) -> "MemoryIndex":
        """Lay memories down in one block; a tenth of a second for ten thousand."""
        return cls(state, _Block(memories) if memories else _NOTHING, _NOTHING)

    def changed(self, state: IndexState, changes: Sequence[IndexedMemory]) -> "MemoryIndex":
        """Return the index with these memories added or replaced."""
        recent = {each.memory.id: each for each in (*self._recent.memories, *changes)}
        if len(recent) <= max(_MOST_RECENT, len(self._bulk.ids) // _MOST_RECENT_SHARE):
            return MemoryIndex(state, self._bulk, _Block(list(recent.values())))
        everything = {each.memory.id: each for each in self._bulk.memories} | recent
        return MemoryIndex.of(state, list(everything.values()))

    def candidates(self, wanted: Wanted) -> tuple[CandidateSet, WordStatistics]:
        """Put forward the memories that the database would, from memory."""
        found = {term: self._holding(term) for term in wanted.terms}
        spread = {term: len(rows) for term, (rows, _) in found.items() if len(rows)}
        statistics = WordStatistics(self.state.memories, self.state.words, spread)
        if not self._rows:
            return gathered([], wanted.terms), statistics
        recallable = partial(self._recallable, wanted.policy, wanted.now)
        cosines = self._cosines(wanted.vector)
        limit = candidate_limit(wanted.policy)
        everything = np.arange(len(self._rows))
        chosen = [_best(cosines, everything, recallable, limit)]
        if spread:
            worded, rows = self._worded(found, statistics)
            chosen.append(_best(worded, rows, recallable, limit))
        if wanted.times:
            then = np.flatnonzero(self._of_that_time(wanted.times))
            chosen.append(_best(cosines, then, recallable, limit // 2))
        picked = np.unique(np.concatenate(chosen))
        return CandidateSet(
            terms=wanted.terms,
            ids=self._ids[picked],
            cosines=cosines[picked].astype(np.float64),
            frequencies=_frequencies(picked, list(found.values())),
            lengths=self._lengths[picked],
            significance=self._significance[picked],
            created=self._created[picked],
            superseded=self._superseded[picked],
            memory=lambda row: self._rows[picked[row]].memory,
        ), statistics

    def _cosines(self, vector: Vector) -> Vector:
        blocks = [each.vectors @ vector for each in (self._bulk, self._recent) if len(each.ids)]
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)

    def _holding(self, term: str) -> "_Found":
        """Return the rows that hold a term, in order, and its frequencies there."""
        rows, frequencies = self._bulk.postings.of(term)
        if not self._changed:
            return rows, frequencies
        still = self._alive[rows]
        more, often = self._recent.postings.of(term)
        return (
            np.concatenate((rows[still], more + len(self._bulk.ids))),
            np.concatenate((frequencies[still], often)),
        )

    def _recallable(self, policy: RecallPolicy, now: datetime, rows: Rows) -> Rows:
        """Return those of some rows that the policy lets be recalled."""
        significance = self._significance[rows]
        recallable = significance >= _real(policy.significance_threshold)
        if policy.max_age_days is not None:
            recent = self._created[rows] >= oldest_recalled(policy, now).timestamp()
            recallable &= recent | (significance >= _real(policy.permanent_significance))
        if self._changed:
            recallable &= self._alive[rows]
        return rows[recallable]

    def _of_that_time(self, times: Sequence[tuple[datetime, datetime]]) -> npt.NDArray[np.bool_]:
        then = np.zeros(len(self._rows), bool)
        for since, until in times:
            then |= (self._created >= since.timestamp()) & (self._created < until.timestamp())
        return then

    def _worded(
        self, found: Mapping[str, "_Found"], statistics: WordStatistics
    ) -> tuple[Numbers, Rows]:
        """Return BM25 without the length of the memory, which chooses candidates; and whose."""
        scores = np.zeros(len(self._rows))
        for rows, frequencies in found.values():
            common = len(rows)
            rarity = np.log(1 + (max(statistics.memories - common, 0) + 0.5) / (common + 0.5))
            scores[rows] += rarity * frequencies / (frequencies + _K1)
        return scores, np.flatnonzero(scores)


class _Block:
    """Some memories as columns; `vectors` is float32 [memories, dimension]."""

    def __init__(self, memories: Sequence[IndexedMemory]) -> None:
        self.memories = memories
        self.vectors = _matrix([each.vector for each in memories])
        known = [each.memory for each in memories]
        self.ids = np.array([each.id for each in known], np.int64)
        self.lengths = np.array([each.length for each in known], np.float64)
        self.superseded = np.array([each.superseded for each in known], np.bool_)
        self.significance = np.array([each.significance for each in known], np.float64)
        self.created = np.array([each.created_at.timestamp() for each in known], np.float64)
        self.postings = _Postings([each.words for each in memories])
        texts = sum(
            len(each.memory.content) + len(each.vector) + len(each.words) for each in memories
        )
        self.size_bytes = (
            self.vectors.nbytes + self.postings.size_bytes + texts + _ROW_BYTES * len(memories)
        )


_Found = tuple[Rows, npt.NDArray[np.float32]]


class _Postings:
    """Which memories hold a word, and how often: words sorted by hash, rows beside them."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        words = unpack_words(b"".join(packed))
        sizes = [len(each) // WORD.itemsize for each in packed]
        order = np.argsort(words["hash"], kind="stable")
        self._hashes, self._starts = np.unique(words["hash"][order], return_index=True)
        self._ends = np.append(self._starts[1:], len(words))
        self._rows = np.repeat(np.arange(len(packed)), sizes)[order]
        self._frequencies = words["frequency"][order]

    @property
    def size_bytes(self) -> int:
        return sum(
            each.nbytes
            for each in (self._hashes, self._starts, self._ends, self._rows, self._frequencies)
        )

    def of(self, term: str) -> _Found:
        """Return the rows that hold a term, and its frequencies there."""
        wanted = np.uint64(hash_of(term))
        place = int(np.searchsorted(self._hashes, wanted))
        if place == len(self._hashes) or self._hashes[place] != wanted:
            return self._rows[:0], self._frequencies[:0]
        part = slice(self._starts[place], self._ends[place])
        return self._rows[part], self._frequencies[part]


def _matrix(vectors: Sequence[bytes]) -> Vector:
    """Return float32 [memories, dimension]."""
    if not vectors:
        return np.zeros((0, 0), np.float32)
    raw = np.frombuffer(b"".join(vectors), np.uint8).reshape(len(vectors), -1)
    halves = np.ascontiguousarray(raw[:, _VECTOR_HEADER_BYTES:]).view(">f2")
    return halves.astype(np.float32)


def _best(
    scores: npt.NDArray[np.floating], rows: Rows, allowed: Callable[[Rows], Rows], limit: int
) -> Rows:
    """Return the best `limit` of some rows that are allowed, in no order.

    Nearly all are allowed, so that a few more than `limit` are enough to ask about.
    """
    found = allowed(_top(scores, rows, _MARGIN * limit))
    if len(found) < limit < len(rows):
        found = allowed(rows)
    return _top(scores, found, limit)


def _top(scores: npt.NDArray[np.floating], rows: Rows, limit: int) -> Rows:
    if len(rows) <= limit:
        return rows
    own = scores if len(rows) == len(scores) else scores[rows]
    return rows[np.argpartition(own, len(own) - limit)[len(own) - limit :]]


def _frequencies(picked: Rows, found: Sequence[_Found]) -> Numbers:
    """Return how often each picked row holds each term; rows of a posting are in order."""
    frequencies = np.zeros((len(picked), len(found)))
    for column, (rows, counts) in enumerate(found):
        if len(rows):
            places = np.minimum(np.searchsorted(rows, picked), len(rows) - 1)
            frequencies[:, column] = np.where(rows[places] == picked, counts[places], 0.0)
    return frequencies


def _real(number: float) -> float:
    """Return a number as the database's real column compares it."""
    return float(np.float32(number))


_NOTHING = _Block(())  # most relationships are new: they share it
