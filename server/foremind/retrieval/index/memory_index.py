"""A relationship's memories in the process: vectors and postings, searched in one go. Pure.

It puts forward the same candidates as the database's query does, so that `ranking` gives the same
order whichever of the two found them.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from foremind.domain.memory import IndexedMemory, IndexState, RetrievalQuery, WordStatistics
from foremind.domain.policy import RecallPolicy
from foremind.retrieval.candidates import CandidateSet, Numbers, gathered
from foremind.retrieval.index.segments import NOTHING, Segment, TermHits
from foremind.retrieval.index.vector_search import Rows, Vector
from foremind.retrieval.ranking import K1, rarity
from foremind.storage.memory_store import candidate_limit, oldest_recalled

Scores = npt.NDArray[np.floating]

_MARGIN = 8  # times as many are looked at as are wanted: some of them may not be recalled
_GROWTH = 32  # each block is more than so many times as large as the next


class MemoryIndex:
    """All memories of one relationship as of one version; never changed, only replaced.

    Vectors and words lie in blocks, each much smaller than the one before it; a memory counts where
    it stands last. So a new memory costs little more than it is, however many there are: the
    logarithmic method of Bentley and Saxe (Journal of Algorithms, 1980).
    """

    def __init__(self, state: IndexState, blocks: Sequence[Segment]) -> None:
        self.state = state
        self._blocks = blocks
        self._rows = list(chain.from_iterable(block.memories for block in blocks))
        self._starts = np.cumsum([0, *(len(block) for block in blocks)])[:-1]

        def column(name: str) -> npt.NDArray[Any]:
            return _joined([getattr(block, name) for block in blocks])

        self._ids = column("ids")
        self._lengths = column("lengths")
        self._superseded = column("superseded")
        self._sessions = np.unique(column("sessions"), return_inverse=True)[1]
        self._significance = column("significance")
        self._created = column("created")
        self._replaced = self._replaced_rows()
        self._everything = np.arange(len(self._rows))
        #: About what it takes in memory.
        self.size_bytes = sum(block.size_bytes for block in blocks)

    @classmethod
    def of(cls, state: IndexState, memories: Sequence[IndexedMemory]) -> "MemoryIndex":
        """Lay memories down in one block; a tenth of a second for ten thousand."""
        return cls(state, [Segment(memories) if memories else NOTHING])

    def changed(self, state: IndexState, changes: Sequence[IndexedMemory]) -> "MemoryIndex":
        """Return the index with these memories added or replaced."""
        blocks = list(self._blocks)
        newest = {change.memory.id: change for change in changes}
        while newest and blocks and len(blocks[-1]) <= _GROWTH * len(newest):
            newest = {memory.memory.id: memory for memory in blocks.pop().memories} | newest
        if newest:
            blocks.append(Segment(list(newest.values())))
        return MemoryIndex(state, blocks)

    def candidates(self, wanted: RetrievalQuery) -> tuple[CandidateSet, WordStatistics]:
        """Put forward the memories that the database would, from memory."""
        found = self._holding(wanted.terms)
        counts = np.bincount(found.terms, minlength=len(wanted.terms)).tolist()
        spread = {term: n for term, n in zip(wanted.terms, counts, strict=True) if n}
        statistics = WordStatistics(self.state.memories, self.state.words, spread)
        if not self._rows:
            return gathered([], wanted.terms), statistics
        recallable = partial(self._recallable, wanted.policy, wanted.now)
        limit = candidate_limit(wanted.policy)
        cosines = _Cosines(self._blocks, self._starts, wanted.vector)
        chosen = [cosines.nearest(self._everything, limit, recallable)]
        if spread:
            worded = self._worded(found, counts)
            chosen.append(self._best_worded(worded, recallable, limit))
        if wanted.times:
            then = np.flatnonzero(self._of_that_time(wanted.times))
            chosen.append(cosines.nearest(then, limit // 2, recallable))
        picked = _once(np.concatenate(chosen))
        return CandidateSet(
            terms=wanted.terms,
            ids=self._ids[picked],
            cosines=cosines.of(picked).astype(np.float64),
            frequencies=self._frequencies(found, picked, len(wanted.terms)),
            lengths=self._lengths[picked],
            significance=self._significance[picked],
            created=self._created[picked],
            superseded=self._superseded[picked],
            sessions=self._sessions[picked],
            memory=lambda row: self._rows[picked[row]].memory,
        ), statistics

    def _replaced_rows(self) -> npt.NDArray[np.bool_] | None:
        """Tell which rows stand again in a later block; None where there are none."""
        replaced = np.zeros(len(self._rows), np.bool_)
        for number, block in enumerate(self._blocks[:-1]):
            later = self._ids[self._starts[number + 1] :]
            replaced[self._starts[number] + block.rows_of(later)] = True
        return replaced if replaced.any() else None

    def _holding(self, terms: Sequence[str]) -> TermHits:
        """Return where the terms stand."""
        parts = [
            block.postings.of(terms).moved(start)
            for block, start in zip(self._blocks, self._starts.tolist(), strict=True)
        ]
        found = TermHits(*(_joined(columns) for columns in zip(*parts, strict=True)))
        return found if self._replaced is None else found.only(~self._replaced[found.rows])

    def _recallable(self, policy: RecallPolicy, now: datetime, rows: Rows) -> Rows:
        """Return those of some rows that the policy lets be recalled."""
        significance = self._significance[rows]
        recallable = significance >= _real(policy.significance_threshold)
        if policy.max_age_days is not None:
            recent = self._created[rows] >= oldest_recalled(policy, now).timestamp()
            recallable &= recent | (significance >= _real(policy.permanent_significance))
        if self._replaced is not None:
            recallable &= ~self._replaced[rows]
        return rows[recallable]

    def _of_that_time(self, times: Sequence[tuple[datetime, datetime]]) -> npt.NDArray[np.bool_]:
        then = np.zeros(len(self._rows), bool)
        for since, until in times:
            then |= (self._created >= since.timestamp()) & (self._created < until.timestamp())
        return then

    def _worded(self, found: TermHits, counts: Sequence[int]) -> Numbers:
        """Return BM25 without the length of the memory, which chooses candidates, of every row."""
        rarities = np.array([rarity(count, self.state.memories) for count in counts])
        # In the order in which the database's query calculates: what is equal there is here.
        weights = rarities[found.terms] * found.frequencies / (found.frequencies + K1)
        scores = np.bincount(found.rows, weights, minlength=len(self._rows))
        return np.asarray(scores, np.float64)

    def _best_worded(self, worded: Numbers, allowed: Callable[[Rows], Rows], limit: int) -> Rows:
        """Return the best worded `limit` rows that are allowed; of equals the newer."""
        rows = np.flatnonzero(worded)
        _, found = _found(partial(_as_good, worded), rows, allowed, limit)
        best = _as_good(worded, found, limit)
        if len(best) > limit:
            best = best[np.lexsort((self._ids[best], worded[best]))[-limit:]]
        return best

    def _frequencies(self, found: TermHits, picked: Rows, terms: int) -> Numbers:
        """Return how often each picked row holds each term."""
        places = np.full(len(self._rows), -1)
        places[picked] = np.arange(len(picked))
        place = places[found.rows]
        own = place >= 0
        frequencies = np.zeros((len(picked), terms))
        frequencies[place[own], found.terms[own]] = found.frequencies[own]
        return frequencies


class _Cosines:
    """The cosines of all rows with a vector: about, and exactly for those that matter."""

    def __init__(self, blocks: Sequence[Segment], starts: Rows, vector: Vector) -> None:
        self._blocks, self._starts, self._vector = blocks, starts, vector
        about = [block.vectors.cosines(vector) for block in blocks]
        self._about = _joined([cosines for cosines, _ in about])
        self._off = max(off for _, off in about)

    def of(self, rows: Rows) -> Vector:
        """Return the cosines of some rows, which are in order."""
        if not self._off:
            return self._about[rows]
        bounds = pairwise([0, *np.searchsorted(rows, self._starts[1:]).tolist(), len(rows)])
        return _joined(
            [
                block.vectors.exact(rows[first:last] - start, self._vector)
                for block, start, (first, last) in zip(
                    self._blocks, self._starts.tolist(), bounds, strict=True
                )
            ]
        )

    def nearest(self, rows: Rows, limit: int, allowed: Callable[[Rows], Rows]) -> Rows:
        """Return the nearest `limit` of some rows, which are in order, that are allowed."""
        looked_at, found = _found(partial(_top, self._about), rows, allowed, limit)
        if len(found) <= limit or not self._off:
            return _top(self._about, found, limit)
        # Whatever may be as near as the last of these, if its code is off as far as can be.
        about = self._about[found]
        least = about[_highest(about, limit)].min() - 2 * self._off
        if len(looked_at) == len(rows) or self._about[looked_at].min() < least:
            close = np.sort(found[about >= least])
        else:
            close = allowed(rows[_own(self._about, rows) >= least])
        return close[_highest(self.of(close), limit)]


def _found(
    top: Callable[[Rows, int], Rows], rows: Rows, allowed: Callable[[Rows], Rows], limit: int
) -> tuple[Rows, Rows]:
    """Return some of the best rows, and those of them that are allowed: `limit` where there are.

    Nearly all are allowed, so that a few more than `limit` are enough to ask about.
    """
    looked_at = top(rows, _MARGIN * limit)
    found = allowed(looked_at)
    if len(found) < limit < len(rows):
        looked_at, found = rows, allowed(rows)
    return looked_at, found


def _top(scores: Scores, rows: Rows, limit: int) -> Rows:
    if len(rows) <= limit:
        return rows
    return rows[_highest(_own(scores, rows), limit)]


def _once(rows: Rows) -> Rows:
    """Return rows in order, each once."""
    rows = np.sort(rows)
    first = np.ones(len(rows), np.bool_)
    first[1:] = rows[1:] != rows[:-1]
    return rows[first]


def _as_good(scores: Scores, rows: Rows, limit: int) -> Rows:
    """Return the best `limit` rows, and all that are as good as the last of them."""
    if len(rows) <= limit:
        return rows
    own = scores[rows]
    as_good: Rows = rows[own >= np.partition(own, len(rows) - limit)[len(rows) - limit]]
    return as_good


def _own(scores: Scores, rows: Rows) -> Scores:
    return scores if len(rows) == len(scores) else scores[rows]


def _joined(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _highest(scores: Scores, limit: int) -> Rows:
    return np.argpartition(scores, len(scores) - limit)[len(scores) - limit :]


def _real(number: float) -> float:
    """Return a number as the database's real column compares it."""
    return float(np.float32(number))
