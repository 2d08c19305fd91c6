"""Memories laid down as columns: their vectors, their words, what else is asked of them. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from foremind.domain.memory import IndexedMemory
from foremind.retrieval.candidates import Numbers
from foremind.retrieval.index.vector_search import Rows, Vectors
from foremind.text.packed_terms import WORD, hash_of, unpack_words

_NO_ROWS: Rows = np.zeros(0, np.int64)
_NO_NUMBERS: Numbers = np.zeros(0)
_NOWHERE = slice(0, 0)
_ROW_BYTES = 600  # what the objects of a memory take, beside its texts and numbers


class Segment:
    """Some memories as columns, in the order of their identifiers."""

    def __init__(self, memories: Sequence[IndexedMemory]) -> None:
        self.memories = memories = sorted(memories, key=lambda each: each.memory.id)
        self.vectors = Vectors([memory.vector for memory in memories])
        known = [memory.memory for memory in memories]
        self.ids = np.array([each.id for each in known], np.int64)
        self.lengths = np.array([each.length for each in known], np.float64)
        self.superseded = np.array([each.superseded for each in known], np.bool_)
        self.sessions = np.array([each.session for each in known], np.int64)
        self.significance = np.array([each.significance for each in known], np.float64)
        self.created = np.array([each.created_at.timestamp() for each in known], np.float64)
        self.postings = _Postings([memory.words for memory in memories])
        texts = sum(
            len(memory.memory.content) + len(memory.vector) + len(memory.words)
            for memory in memories
        )
        self.size_bytes = (
            self.vectors.size_bytes + self.postings.size_bytes + texts + _ROW_BYTES * len(memories)
        )

    def __len__(self) -> int:
        return len(self.memories)

    def rows_of(self, ids: Rows) -> Rows:
        """Return the rows of those memories that are here."""
        rows: Rows = np.searchsorted(self.ids, ids)
        inside = rows < len(self)
        here: Rows = rows[inside][self.ids[rows[inside]] == ids[inside]]
        return here


class TermHits(NamedTuple):
    """Where terms stand, as columns: which row, which of the terms, how often."""

    rows: Rows
    terms: Rows
    frequencies: Numbers

    def only(self, these: npt.NDArray[np.bool_]) -> "TermHits":
        return TermHits(self.rows[these], self.terms[these], self.frequencies[these])

    def moved(self, by: int) -> "TermHits":
        return self._replace(rows=self.rows + by) if by else self


class _Postings:
    """Which memories hold a word, and how often: words sorted by hash, rows beside them."""

    def __init__(self, packed: Sequence[bytes]) -> None:
        words = unpack_words(b"".join(packed))
        sizes = [len(each) // WORD.itemsize for each in packed]
        order = np.argsort(words["hash"])
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

    def of(self, terms: Sequence[str]) -> TermHits:
        """Return where the terms stand, in the block's own rows."""
        hashes = np.array([hash_of(term) for term in terms], np.uint64)
        places = np.searchsorted(self._hashes, hashes)
        parts = [
            slice(self._starts[place], self._ends[place])
            if place < len(self._hashes) and self._hashes[place] == wanted
            else _NOWHERE
            for place, wanted in zip(places.tolist(), hashes, strict=True)
        ]
        return TermHits(
            np.concatenate([_NO_ROWS, *(self._rows[part] for part in parts)]),
            np.repeat(np.arange(len(terms)), [part.stop - part.start for part in parts]),
            np.concatenate([_NO_NUMBERS, *(self._frequencies[part] for part in parts)]),
        )


#: Most relationships are new: they share it.
NOTHING = Segment(())
