"""Okapi BM25 over arrays of term frequencies, shared by memories and documents. Pure.

Robertson et al. 1994 (TREC-3): a document scores, for each query term, the term's idf times its
saturated frequency. The idf is ln(1 + (N - n + 0.5) / (n + 0.5)), the form of Lucene and of BM25L;
it is never negative, so a term that most documents contain still counts for those that do.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foremind.domain.memory import Candidate, KnownMemory

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """The features of n candidates; a memory itself is read only once it is selected.

    `cosines`, `lengths`, `significance` and `created` (seconds) are float64 [n], `ids` int64 [n],
    `superseded` bool [n]; `sessions` int64 [n] numbers the sessions from 0; `frequencies` float64
    [n, len(terms)] are weighted term frequencies.
    """

    terms: Sequence[str]
    ids: npt.NDArray[np.int64]
    cosines: Numbers
    frequencies: Numbers
    lengths: Numbers
    significance: Numbers
    created: Numbers
    superseded: npt.NDArray[np.bool_]
    sessions: npt.NDArray[np.int64]
    memory: Callable[[int], KnownMemory]

    def __len__(self) -> int:
        return len(self.ids)


def to_candidate_set(candidates: Sequence[Candidate], terms: Sequence[str]) -> CandidateSet:
    """Return candidates read from the database, as columns; `terms` are distinct."""
    memories = [candidate.memory for candidate in candidates]
    frequencies = [[candidate.matches.get(term, 0.0) for term in terms] for candidate in candidates]
    return CandidateSet(
        terms=terms,
        ids=np.array([memory.id for memory in memories], np.int64),
        cosines=np.array([candidate.cosine for candidate in candidates], np.float64),
        frequencies=np.array(frequencies, np.float64).reshape(len(candidates), len(terms)),
        lengths=np.array([memory.length for memory in memories], np.float64),
        significance=np.array([memory.significance for memory in memories], np.float64),
        created=np.array([memory.created_at.timestamp() for memory in memories], np.float64),
        superseded=np.array([memory.superseded for memory in memories], np.bool_),
        sessions=np.unique([memory.session for memory in memories], return_inverse=True)[1],
        memory=memories.__getitem__,
    )


K1 = 1.5  # term-frequency saturation
B = 0.75  # strength of length normalisation


def idf(document_frequency: int, documents: int) -> float:
    """Return the idf of a term that `document_frequency` of `documents` contain; 0 if none do."""
    if not document_frequency:
        return 0.0
    absent = max(documents, document_frequency) - document_frequency
    return math.log(1 + (absent + 0.5) / (document_frequency + 0.5))


def length_norms(lengths: Numbers, mean_length: float) -> Numbers:
    """Return the length normalisation of documents, given their lengths in terms, float64 [n]."""
    return K1 * (1 - B + B * lengths / mean_length)


def saturated(frequencies: Numbers, norms: Numbers) -> Numbers:
    """Return saturated term frequencies, from 0 to below K1 + 1; times the idf they are scores.

    Args:
        frequencies: how often documents contain terms, float64 of any shape.
        norms: the `length_norms` of those documents, broadcast against `frequencies`.
    """
    return frequencies * (K1 + 1) / (frequencies + norms)
