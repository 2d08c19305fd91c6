"""Recall of records for a draft: episodes, topics, open questions, pinned records, notes. Pure.

A relationship has few records compared with memories, so that all are compared exactly, in the
process. Names, places and works are looked up in a table of references, which serves as the
inverted index does in the database, without a round trip.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from foremind.domain.record import Record
from foremind.text.proper_names import EVERYDAY_NAMES, everyday_names_in
from foremind.text.tokenization import words_of

Vector = npt.NDArray[np.float32]

# Minimum cosines as published for other models; a manifest's calibration converts them.
MIN_EPISODE_COSINE = 0.72
MIN_PINNED_COSINE = 0.65
MIN_TOPIC_COSINE = 0.65
MIN_QUESTION_COSINE = 0.65
MIN_NOTE_COSINE = 0.65

MAX_EPISODES = 3
MAX_TOPICS = 2
MAX_QUESTIONS = 2
MAX_PINNED = 5
MAX_NOTES = 6
_MAX_REFERENCE_WORDS = 4


class RecordIndex:
    """Records of one layer, searchable by vector or by exact reference."""

    def __init__(self, records: Sequence[Record]) -> None:
        # The vectors are kept in one array instead.
        self._records = [replace(record, vector=None) for record in records]
        vectors = [record.vector for record in records if record.vector is not None]
        self._with_vector = [
            index for index, record in enumerate(records) if record.vector is not None
        ]
        self._vectors = np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)
        self._by_reference: defaultdict[str, set[int]] = defaultdict(set)
        for index, record in enumerate(records):
            for reference in record.refs:
                self._by_reference[reference].add(index)

    def find(
        self,
        vector: Vector,
        references: Sequence[str],
        min_cosine: float,
        limit: int,
        weight: Callable[[Record], float] = lambda _: 1.0,
    ) -> list[Record]:
        """Return the records with at least `min_cosine` or a shared reference, best first.

        A record is ordered by its cosine, plus 1 if it shares a reference, times its `weight`; the
        weight does not decide whether it is returned.
        """
        scores: dict[int, float] = {}
        if self._with_vector:
            cosines = self._vectors @ vector
            scores = dict(zip(self._with_vector, cosines.tolist(), strict=True))
        named = {
            index for reference in references for index in self._by_reference.get(reference, ())
        }
        matches = {index for index, cosine in scores.items() if cosine >= min_cosine} | named
        order = sorted(
            matches,
            key=lambda i: (-(scores.get(i, 0.0) + (i in named)) * weight(self._records[i]), -i),
        )
        return [self._records[index] for index in order[:limit]]


def references_in(text: str) -> list[str]:
    """Return all possible references in `text`: runs of up to four words, casefolded.

    A name that is also an everyday word counts only where it is used as a name.
    """
    words = words_of(text)
    everyday = EVERYDAY_NAMES.intersection(words)
    not_names = everyday - everyday_names_in(text) if everyday else everyday
    return [
        " ".join(words[start : start + length])
        for length in range(1, _MAX_REFERENCE_WORDS + 1)
        for start in range(len(words) - length + 1)
        if length > 1 or words[start] not in not_names
    ]


def topic_weight(record: Record, now: datetime, half_life: timedelta) -> float:
    """Return a topic's weight, which halves with every half-life since its last update or use."""
    return math.pow(0.5, max(timedelta(0), now - record.accessed_at) / half_life)
