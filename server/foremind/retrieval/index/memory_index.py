"""A relationship's memories in the process: vectors and posting lists, searched together. Pure.

It returns the same candidates as the database's query, so that `ranking` gives the same order
whichever of the two they came from.

Exact nearest-neighbour search over many vectors, most of them excluded by int8 codes.

The VA-file of Weber, Schek and Blott (VLDB 1998): quantised codes with a bound on their error are
scanned first, and only the vectors that the bound cannot exclude are rescored, so that the result
is exactly that of a full scan.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import simsimd

from foremind.domain.memory import IndexedMemory, IndexState, RetrievalQuery, WordStatistics
from foremind.domain.policy import RecallPolicy
from foremind.retrieval.ranking import K1, CandidateSet, Numbers, idf, to_candidate_set
from foremind.text.tokenization import WORD, hash_of, unpack_terms

Vector = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

_HEADER_BYTES = 4
_MIN_QUANTISED_VECTORS = 4096  # vectors; fewer are scanned as fast as their codes
_MAX_CODE = 127
_MIN_MAGNITUDE = float(np.finfo(np.float32).tiny) * _MAX_CODE  # of an all-zero vector
_BATCH_VECTORS = 1024  # quantised at a time, so that they stay in the processor's cache
_ROUNDING_ERROR = 1e-5  # what float32 arithmetic may add to the error
_NO_COSINES: Vector = np.zeros(0, np.float32)


class Vectors:
    """Unit vectors, float32 [vectors, dimension]; with quantised codes where there are many."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        """Decode vectors from the output of `halfvec_send`."""
        self._vectors = _unpacked(packed)
        self._codes = (
            _QuantisedCodes(self._vectors) if len(packed) >= _MIN_QUANTISED_VECTORS else None
        )

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def size_bytes(self) -> int:
        """Memory use of vectors and codes."""
        return self._vectors.nbytes + (0 if self._codes is None else self._codes.size_bytes)

    def cosines(self, vector: Vector) -> tuple[Vector, float]:
        """Return approximate cosines of all with a unit vector, and their maximum error."""
        if self._codes is not None:
            return self._codes.cosines(vector)
        return (self._vectors @ vector if len(self) else _NO_COSINES), 0.0

    def exact(self, rows: Rows, vector: Vector) -> Vector:
        """Return the exact cosines of some rows."""
        return self._vectors[rows] @ vector if len(rows) else _NO_COSINES


class _QuantisedCodes:
    """int8 codes [vectors, dimension] with a float32 scale [vectors]."""

    def __init__(self, vectors: Vector) -> None:
        self._codes = np.empty(vectors.shape, np.int8)
        self._scales = np.empty(len(vectors), np.float32)
        self._max_error = 0.0  # the largest distance between a vector and its decoded code
        for first in range(0, len(vectors), _BATCH_VECTORS):
            rows = slice(first, first + _BATCH_VECTORS)
            self._codes[rows], self._scales[rows], error = _quantised(vectors[rows])
            self._max_error = max(self._max_error, error)

    @property
    def size_bytes(self) -> int:
        return self._codes.nbytes + self._scales.nbytes

    def cosines(self, vector: Vector) -> tuple[Vector, float]:
        codes, scales, error = _quantised(vector[None])
        products = np.asarray(simsimd.cdist(codes, self._codes, "dot", out_dtype="float32"))[0]
        # |q.v - q'.v'| <= |q||v - v'| + |q - q'||v'|, and |v'| <= |v| + |v - v'|.
        max_error = self._max_error + error * (1 + self._max_error) + _ROUNDING_ERROR
        return products * (self._scales * scales[0]), max_error


def _unpacked(vectors: Sequence[bytes]) -> Vector:
    if not vectors:
        return np.zeros((0, 0), np.float32)
    raw = np.frombuffer(b"".join(vectors), np.uint8).reshape(len(vectors), -1)
    return np.ascontiguousarray(raw[:, _HEADER_BYTES:]).view(">f2").astype(np.float32)


def _quantised(vectors: Vector) -> tuple[npt.NDArray[np.int8], Vector, float]:
    """Return codes, scales and the largest distance of a vector from its decoded code."""
    scales = np.maximum(np.abs(vectors).max(axis=1), _MIN_MAGNITUDE) / _MAX_CODE
    column = scales[:, None]
    rounded = np.rint(vectors / column)
    residuals = vectors - rounded * column
    error = float(np.sqrt(np.einsum("ij,ij->i", residuals, residuals).max()))
    return rounded.astype(np.int8), scales, error


_NO_ROWS: Rows = np.zeros(0, np.int64)
_NO_NUMBERS: Numbers = np.zeros(0)
_NO_POSTINGS = slice(0, 0)
_ROW_BYTES = 600  # what a memory's objects occupy in addition to its texts and numbers


class Segment:
    """Memories as columns, sorted by id."""

    def __init__(self, memories: Sequence[IndexedMemory]) -> None:
        self.memories = memories = sorted(memories, key=lambda indexed: indexed.memory.id)
        self.vectors = Vectors([indexed.vector for indexed in memories])
        known = [indexed.memory for indexed in memories]
        self.ids = np.array([memory.id for memory in known], np.int64)
        self.lengths = np.array([memory.length for memory in known], np.float64)
        self.superseded = np.array([memory.superseded for memory in known], np.bool_)
        self.sessions = np.array([memory.session for memory in known], np.int64)
        self.significance = np.array([memory.significance for memory in known], np.float64)
        self.created = np.array([memory.created_at.timestamp() for memory in known], np.float64)
        happened = [
            (np.inf, -np.inf) if memory.happened is None
            else (memory.happened[0].timestamp(), memory.happened[1].timestamp())
            for memory in known
        ]  # fmt: skip
        self.happened = np.array(happened, np.float64).reshape(-1, 2)
        self.postings = _PostingLists([indexed.words for indexed in memories])
        texts = sum(
            len(indexed.memory.content) + len(indexed.vector) + len(indexed.words)
            for indexed in memories
        )
        self.size_bytes = (
            self.vectors.size_bytes + self.postings.size_bytes + texts + _ROW_BYTES * len(memories)
        )

    def __len__(self) -> int:
        return len(self.memories)

    def rows_of(self, ids: Rows) -> Rows:
        """Return the rows of those memories that are in this segment."""
        rows: Rows = np.searchsorted(self.ids, ids)
        inside = rows < len(self)
        here: Rows = rows[inside][self.ids[rows[inside]] == ids[inside]]
        return here


class TermHits(NamedTuple):
    """Postings as columns: the row, the position of the term in the query, and its frequency."""

    rows: Rows
    terms: Rows
    frequencies: Numbers

    def filtered(self, mask: npt.NDArray[np.bool_]) -> "TermHits":
        return TermHits(self.rows[mask], self.terms[mask], self.frequencies[mask])

    def shifted(self, offset: int) -> "TermHits":
        return self._replace(rows=self.rows + offset) if offset else self


class _PostingLists:
    """Rows and frequencies per term, in flat arrays sorted by the term's hash."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        words = unpack_terms(b"".join(packed))
        sizes = [len(row_words) // WORD.itemsize for row_words in packed]
        order = np.argsort(words["hash"])
        self._hashes, self._starts = np.unique(words["hash"][order], return_index=True)
        self._ends = np.append(self._starts[1:], len(words))
        self._rows = np.repeat(np.arange(len(packed)), sizes)[order]
        self._frequencies = words["frequency"][order]

    @property
    def size_bytes(self) -> int:
        return sum(
            array.nbytes
            for array in (self._hashes, self._starts, self._ends, self._rows, self._frequencies)
        )

    def hits(self, terms: Sequence[str]) -> TermHits:
        """Return the postings of the terms, by the rows of this segment."""
        hashes = np.array([hash_of(term) for term in terms], np.uint64)
        positions = np.searchsorted(self._hashes, hashes)
        postings = [
            slice(self._starts[position], self._ends[position])
            if position < len(self._hashes) and self._hashes[position] == term_hash
            else _NO_POSTINGS
            for position, term_hash in zip(positions.tolist(), hashes, strict=True)
        ]
        return TermHits(
            np.concatenate([_NO_ROWS, *(self._rows[part] for part in postings)]),
            np.repeat(np.arange(len(terms)), [part.stop - part.start for part in postings]),
            np.concatenate([_NO_NUMBERS, *(self._frequencies[part] for part in postings)]),
        )


#: Shared by all new relationships, which have no memories yet.
EMPTY_SEGMENT = Segment(())


Scores = npt.NDArray[np.floating]

_OVERFETCH = 8  # times the limit is examined: the policy may exclude some of the best
_GROWTH_FACTOR = 32  # each segment is more than this many times as large as the next


class MemoryIndex:
    """All memories of one relationship as of one version; immutable, replaced as a whole.

    Vectors and terms are stored in segments, each much smaller than the one before it; the last
    segment that contains a memory has its current version. Adding a memory therefore costs little,
    however many there are: the logarithmic method of Bentley and Saxe (Journal of Algorithms,
    1980).
    """

    def __init__(self, state: IndexState, segments: Sequence[Segment]) -> None:
        self.state = state
        self._segments = segments
        self._rows = list(chain.from_iterable(segment.memories for segment in segments))
        self._starts = np.cumsum([0, *(len(segment) for segment in segments)])[:-1]

        def column(name: str) -> npt.NDArray[Any]:
            return _concatenated([getattr(segment, name) for segment in segments])

        self._ids = column("ids")
        self._lengths = column("lengths")
        self._superseded = column("superseded")
        self._sessions = np.unique(column("sessions"), return_inverse=True)[1]
        self._significance = column("significance")
        self._created = column("created")
        self._happened = column("happened")
        self._replaced = self._replaced_rows()
        self._all_rows = np.arange(len(self._rows))
        #: Approximate memory use.
        self.size_bytes = sum(segment.size_bytes for segment in segments)

    @classmethod
    def build(cls, state: IndexState, memories: Sequence[IndexedMemory]) -> "MemoryIndex":
        """Index memories in one segment; a tenth of a second for ten thousand."""
        return cls(state, [Segment(memories) if memories else EMPTY_SEGMENT])

    def with_changes(self, state: IndexState, changes: Sequence[IndexedMemory]) -> "MemoryIndex":
        """Return a new index with these memories added or replaced."""
        segments = list(self._segments)
        newest = {change.memory.id: change for change in changes}
        while newest and segments and len(segments[-1]) <= _GROWTH_FACTOR * len(newest):
            newest = {memory.memory.id: memory for memory in segments.pop().memories} | newest
        if newest:
            segments.append(Segment(list(newest.values())))
        return MemoryIndex(state, segments)

    def candidates(self, query: RetrievalQuery) -> tuple[CandidateSet, WordStatistics]:
        """Return the candidates that the database would, with the statistics to score them."""
        hits = self._term_hits(query.terms)
        counts = np.bincount(hits.terms, minlength=len(query.terms)).tolist()
        document_frequencies = {
            term: count for term, count in zip(query.terms, counts, strict=True) if count
        }
        statistics = WordStatistics(self.state.memories, self.state.words, document_frequencies)
        if not self._rows:
            return to_candidate_set([], query.terms), statistics
        allowed = partial(self._allowed_rows, query.policy, query.now)
        limit = query.policy.candidate_limit
        cosines = _CosineSearch(self._segments, self._starts, query.vector)
        parts = [cosines.nearest(self._all_rows, limit, allowed)]
        if document_frequencies:
            lexical_scores = self._lexical_scores(hits, counts)
            parts.append(self._best_lexical(lexical_scores, allowed, limit))
        if query.times:
            in_time = np.flatnonzero(self._within(query.times))
            parts.append(cosines.nearest(in_time, limit // 2, allowed))
        rows = _sorted_unique(np.concatenate(parts))
        return CandidateSet(
            terms=query.terms,
            ids=self._ids[rows],
            cosines=cosines.exact(rows).astype(np.float64),
            frequencies=self._frequencies(hits, rows, len(query.terms)),
            lengths=self._lengths[rows],
            significance=self._significance[rows],
            created=self._created[rows],
            superseded=self._superseded[rows],
            sessions=self._sessions[rows],
            memory=lambda row: self._rows[rows[row]].memory,
        ), statistics

    def _replaced_rows(self) -> npt.NDArray[np.bool_] | None:
        """Return which rows have a newer version in a later segment; None if none do."""
        replaced = np.zeros(len(self._rows), np.bool_)
        for number, segment in enumerate(self._segments[:-1]):
            later_ids = self._ids[self._starts[number + 1] :]
            replaced[self._starts[number] + segment.rows_of(later_ids)] = True
        return replaced if replaced.any() else None

    def _term_hits(self, terms: Sequence[str]) -> TermHits:
        """Return the postings of the terms in all segments, without replaced rows."""
        parts = [
            segment.postings.hits(terms).shifted(start)
            for segment, start in zip(self._segments, self._starts.tolist(), strict=True)
        ]
        hits = TermHits(*(_concatenated(columns) for columns in zip(*parts, strict=True)))
        return hits if self._replaced is None else hits.filtered(~self._replaced[hits.rows])

    def _allowed_rows(self, policy: RecallPolicy, now: datetime, rows: Rows) -> Rows:
        """Return those rows that the policy allows to be recalled."""
        significance = self._significance[rows]
        allowed = significance >= _as_float4(policy.significance_threshold)
        if policy.max_age_days is not None:
            recent = self._created[rows] >= policy.oldest_recalled(now).timestamp()
            allowed &= recent | (significance >= _as_float4(policy.permanent_significance))
        if self._replaced is not None:
            allowed &= ~self._replaced[rows]
        return rows[allowed]

    def _within(self, times: Sequence[tuple[datetime, datetime]]) -> npt.NDArray[np.bool_]:
        """Return which rows were said, or tell of what happened, at one of these times."""
        within = np.zeros(len(self._rows), bool)
        first, last = self._happened.T
        for since, until in ((since.timestamp(), until.timestamp()) for since, until in times):
            within |= (self._created >= since) & (self._created < until)
            within |= (first < until) & (last > since)
        return within

    def _lexical_scores(self, hits: TermHits, counts: Sequence[int]) -> Numbers:
        """Return every row's BM25 without length normalisation, which selects candidates."""
        idfs = np.array([idf(count, self.state.memories) for count in counts])
        # In the same order as the database's query, so that ties there are ties here.
        weights = idfs[hits.terms] * hits.frequencies / (hits.frequencies + K1)
        scores = np.bincount(hits.rows, weights, minlength=len(self._rows))
        return np.asarray(scores, np.float64)

    def _best_lexical(self, scores: Numbers, allowed: Callable[[Rows], Rows], limit: int) -> Rows:
        """Return the `limit` allowed rows with the best lexical scores; ties go to the newer."""
        rows = np.flatnonzero(scores)
        _, matches = _best_allowed(partial(_top_with_ties, scores), rows, allowed, limit)
        best = _top_with_ties(scores, matches, limit)
        if len(best) > limit:
            best = best[np.lexsort((self._ids[best], scores[best]))[-limit:]]
        return best

    def _frequencies(self, hits: TermHits, rows: Rows, terms: int) -> Numbers:
        """Return how often each of `rows` contains each term, float64 [rows, terms]."""
        positions = np.full(len(self._rows), -1)
        positions[rows] = np.arange(len(rows))
        position = positions[hits.rows]
        selected = position >= 0
        frequencies = np.zeros((len(rows), terms))
        frequencies[position[selected], hits.terms[selected]] = hits.frequencies[selected]
        return frequencies


class _CosineSearch:
    """Cosines of all rows with a vector: approximate first, exact where they decide the result."""

    def __init__(self, segments: Sequence[Segment], starts: Rows, vector: Vector) -> None:
        self._segments, self._starts, self._vector = segments, starts, vector
        parts = [segment.vectors.cosines(vector) for segment in segments]
        self._approximate = _concatenated([cosines for cosines, _ in parts])
        self._max_error = max(error for _, error in parts)

    def exact(self, rows: Rows) -> Vector:
        """Return the exact cosines of `rows`, which are sorted."""
        if not self._max_error:
            return self._approximate[rows]
        bounds = pairwise([0, *np.searchsorted(rows, self._starts[1:]).tolist(), len(rows)])
        return _concatenated(
            [
                segment.vectors.exact(rows[first:last] - start, self._vector)
                for segment, start, (first, last) in zip(
                    self._segments, self._starts.tolist(), bounds, strict=True
                )
            ]
        )

    def nearest(self, rows: Rows, limit: int, allowed: Callable[[Rows], Rows]) -> Rows:
        """Return the nearest `limit` allowed rows of `rows`, which are sorted."""
        examined, matches = _best_allowed(partial(_top, self._approximate), rows, allowed, limit)
        if len(matches) <= limit or not self._max_error:
            return _top(self._approximate, matches, limit)
        # Rescore every row that the error bound leaves a chance of being among the nearest.
        approximate = self._approximate[matches]
        minimum = approximate[_highest(approximate, limit)].min() - 2 * self._max_error
        if len(examined) == len(rows) or self._approximate[examined].min() < minimum:
            close = np.sort(matches[approximate >= minimum])
        else:
            close = allowed(rows[_scores_of(self._approximate, rows) >= minimum])
        return close[_highest(self.exact(close), limit)]


def _best_allowed(
    top: Callable[[Rows, int], Rows], rows: Rows, allowed: Callable[[Rows], Rows], limit: int
) -> tuple[Rows, Rows]:
    """Return the best rows examined and the allowed ones of them, at least `limit` if there are.

    Nearly all rows are allowed, so that examining a few more than `limit` is enough.
    """
    examined = top(rows, _OVERFETCH * limit)
    matches = allowed(examined)
    if len(matches) < limit < len(rows):
        examined, matches = rows, allowed(rows)
    return examined, matches


def _top(scores: Scores, rows: Rows, limit: int) -> Rows:
    if len(rows) <= limit:
        return rows
    return rows[_highest(_scores_of(scores, rows), limit)]


def _sorted_unique(rows: Rows) -> Rows:
    rows = np.sort(rows)
    first = np.ones(len(rows), np.bool_)
    first[1:] = rows[1:] != rows[:-1]
    return rows[first]


def _top_with_ties(scores: Scores, rows: Rows, limit: int) -> Rows:
    """Return the best `limit` rows and all that tie with the last of them."""
    if len(rows) <= limit:
        return rows
    row_scores = scores[rows]
    minimum = np.partition(row_scores, len(rows) - limit)[len(rows) - limit]
    best: Rows = rows[row_scores >= minimum]
    return best


def _scores_of(scores: Scores, rows: Rows) -> Scores:
    return scores if len(rows) == len(scores) else scores[rows]


def _concatenated(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _highest(scores: Scores, limit: int) -> Rows:
    return np.argpartition(scores, len(scores) - limit)[len(scores) - limit :]


def _as_float4(number: float) -> float:
    """Return a number as the database's real (float4) column compares it."""
    return float(np.float32(number))
