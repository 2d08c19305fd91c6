"""What a draft brings back beside memories: episodes, topics, open questions, the vault. Pure.

Records are few beside memories, so that all of a relationship's are compared, exactly, in the
process. Names, places and works are found by a table of the references, which does what an inverted
index would do in the database, without a round trip.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from foremind.domain.record import Record
from foremind.text.proper_names import EVERYDAY, meant_as_names
from foremind.text.tokenization import words_of

Vector = npt.NDArray[np.float32]

# As published for other models; a manifest's calibration says what they mean for this one.
EPISODE_COSINE = 0.72
VAULT_COSINE = 0.65
TOPIC_COSINE = 0.65
QUESTION_COSINE = 0.65
NOTE_COSINE = 0.65

MOST_EPISODES = 3
MOST_TOPICS = 2
MOST_QUESTIONS = 2
MOST_VAULT = 5
MOST_NOTES = 6
_LONGEST_REFERENCE = 4  # words


class SearchableRecord:
    """Records of one layer, found by their vector or by an exact reference."""

    def __init__(self, records: Sequence[Record]) -> None:
        # Their vectors lie in one array.
        self._records = [replace(record, vector=None) for record in records]
        vectors = [record.vector for record in records if record.vector is not None]
        self._with_vector = [i for i, record in enumerate(records) if record.vector is not None]
        self._vectors = np.stack(vectors) if vectors else np.zeros((0, 0), np.float32)
        self._by_reference: defaultdict[str, set[int]] = defaultdict(set)
        for index, record in enumerate(records):
            for reference in record.refs:
                self._by_reference[reference].add(index)

    @classmethod
    def of(cls, records: Sequence[Record]) -> "SearchableRecord":
        """Return them as they can be found; most relationships have none, and share that."""
        return cls(records) if records else _NOTHING

    def find(
        self,
        vector: Vector,
        references: Sequence[str],
        least: float,
        limit: int,
        weight: Callable[[Record], float] = lambda _: 1.0,
    ) -> list[Record]:
        """Return the records that are near enough or share a reference, best first.

        Of those that share a reference, the nearer come first; a record found both ways counts
        once. `weight` scales what a record is ordered by, not whether it is near enough.
        """
        scores: dict[int, float] = {}
        if self._with_vector:
            cosines = self._vectors @ vector
            near = zip(self._with_vector, cosines.tolist(), strict=True)
            scores = dict(near)
        named = {
            index for reference in references for index in self._by_reference.get(reference, ())
        }
        found = {index for index, cosine in scores.items() if cosine >= least} | named
        order = sorted(
            found,
            key=lambda i: (-(scores.get(i, 0.0) + (i in named)) * weight(self._records[i]), -i),
        )
        return [self._records[index] for index in order[:limit]]


_NOTHING = SearchableRecord(())


def references_in(text: str) -> list[str]:
    """Return everything in `text` that could be a reference: runs of up to four words, folded.

    A name that is an everyday word too is one only where it is meant as a name.
    """
    words = words_of(text)
    everyday = EVERYDAY.intersection(words)
    other = everyday - meant_as_names(text) if everyday else everyday
    return [
        " ".join(words[start : start + length])
        for length in range(1, _LONGEST_REFERENCE + 1)
        for start in range(len(words) - length + 1)
        if length > 1 or words[start] not in other
    ]


def topic_weight(record: Record, now: datetime, half_life: timedelta) -> float:
    """Return what a topic counts: half for every half-life without news or use."""
    return math.pow(0.5, max(timedelta(0), now - record.accessed_at) / half_life)
