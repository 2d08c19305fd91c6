"""A relationship's memories in the process: exact vectors and postings, searched in one go. Pure.

It puts forward the same candidates as the database's query does, so that `ranking` gives the same
order whichever of the two found them.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

import numpy as np
import numpy.typing as npt

from foremind.policies import RecallPolicy
from foremind.storage.memories import (
    Candidate,
    IndexedMemory,
    IndexState,
    Wanted,
    WordStatistics,
    candidate_limit,
    oldest_recalled,
)
from foremind.storage.packed_words import WORD, hash_of, unpack_words

Vector = npt.NDArray[np.float32]

_VECTOR_HEADER_BYTES = 4
_K1 = 1.5  # of BM25, as in ranking
_ROW_BYTES = 600  # what the objects of a memory take, beside its texts and numbers


class MemoryIndex:
    """All memories of one relationship as of one version; never changed, only replaced."""

    def __init__(self, state: IndexState, memories: Mapping[int, IndexedMemory]) -> None:
        """Build the index; a tenth of a second for ten thousand memories, so off the event loop."""
        self.state = state
        self.memories = memories
        self._rows = list(memories.values())
        self._vectors = _matrix([each.vector for each in self._rows])
        self._significance = np.array([each.memory.significance for each in self._rows], np.float32)
        self._created = np.array([each.memory.created_at.timestamp() for each in self._rows])
        self._postings = _Postings([each.words for each in self._rows])
        texts = sum(
            len(each.memory.content) + len(each.vector) + len(each.words) for each in self._rows
        )
        #: About what it takes in memory.
        self.size_bytes = (
            self._vectors.nbytes + self._postings.size_bytes + texts + _ROW_BYTES * len(self._rows)
        )

    def changed(self, state: IndexState, changes: Sequence[IndexedMemory]) -> "MemoryIndex":
        """Return the index with these memories added or replaced."""
        return MemoryIndex(state, {**self.memories, **{each.memory.id: each for each in changes}})

    def candidates(self, wanted: Wanted) -> tuple[list[Candidate], WordStatistics]:
        """Return what `MemoryStore.candidates` returns, from memory."""
        found = {term: self._postings.of(term) for term in wanted.terms}
        spread = {term: len(rows) for term, (rows, _) in found.items() if len(rows)}
        statistics = WordStatistics(self.state.memories, self.state.words, spread)
        if not self._rows:
            return [], statistics
        recallable = self._recallable(wanted.policy, wanted.now)
        cosines = self._vectors @ wanted.vector
        limit = candidate_limit(wanted.policy)
        chosen = [_best(cosines, recallable, limit)]
        worded = self._worded(found, statistics)
        chosen.append(_best(worded, recallable & (worded > 0), limit))
        if wanted.times:
            then = self._of_that_time(wanted.times)
            chosen.append(_best(cosines, recallable & then, limit // 2))
        picked = np.unique(np.concatenate(chosen))
        matches = _matches(picked, found)
        return [
            Candidate(self._rows[row].memory, cosine, found_in)
            for row, cosine, found_in in zip(
                picked.tolist(), cosines[picked].tolist(), matches, strict=True
            )
        ], statistics

    def _recallable(self, policy: RecallPolicy, now: datetime) -> npt.NDArray[np.bool_]:
        recallable = self._significance >= np.float32(policy.significance_threshold)
        if policy.max_age_days is not None:
            recent = self._created >= oldest_recalled(policy, now).timestamp()
            recallable &= recent | (self._significance >= np.float32(policy.permanent_significance))
        return recallable

    def _of_that_time(self, times: Sequence[tuple[datetime, datetime]]) -> npt.NDArray[np.bool_]:
        then = np.zeros(len(self._rows), bool)
        for since, until in times:
            then |= (self._created >= since.timestamp()) & (self._created < until.timestamp())
        return then

    def _worded(
        self, found: Mapping[str, "_Found"], statistics: WordStatistics
    ) -> npt.NDArray[np.float64]:
        """Return BM25 without the length of the memory, which chooses candidates."""
        scores = np.zeros(len(self._rows))
        for rows, frequencies in found.values():
            common = len(rows)
            rarity = np.log(1 + (max(statistics.memories - common, 0) + 0.5) / (common + 0.5))
            scores[rows] += rarity * frequencies / (frequencies + _K1)
        return scores


_Found = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]


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
    scores: npt.NDArray[np.floating], allowed: npt.NDArray[np.bool_], limit: int
) -> npt.NDArray[np.int64]:
    """Return the rows of the best allowed scores, in no order."""
    rows = np.flatnonzero(allowed)
    if len(rows) <= limit:
        return rows
    return rows[np.argpartition(-scores[rows], limit)[:limit]]


def _matches(picked: npt.NDArray[np.int64], found: Mapping[str, _Found]) -> list[dict[str, float]]:
    """Return which of the terms each picked row holds; rows of a posting are in order."""
    matches: list[dict[str, float]] = [{} for _ in picked]
    for term, (rows, frequencies) in found.items():
        if not len(rows):
            continue
        places = np.minimum(np.searchsorted(rows, picked), len(rows) - 1)
        holds = np.flatnonzero(rows[places] == picked)
        for index, count in zip(holds.tolist(), frequencies[places[holds]].tolist(), strict=True):
            matches[index][term] = count
    return matches
