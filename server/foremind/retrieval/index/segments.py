"""Index segments: memories as columns, with their vectors and posting lists. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from foremind.domain.memory import IndexedMemory
from foremind.retrieval.candidates import Numbers
from foremind.retrieval.index.vector_search import Rows, Vectors
from foremind.text.packed_terms import WORD, hash_of, unpack_terms

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
