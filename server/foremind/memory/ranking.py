"""The score of a memory: 0.70 cosine + 0.30 BM25 by default. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from rank_bm25 import BM25Okapi

from foremind.companions import RecallPolicy
from foremind.memory.terms import terms_of
from foremind.storage.memories import Candidate, WordStatistics
from foremind.storage.turns import Speaker


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory that a search brought back; `score`, `cosine` and `keyword` are 0 to 1."""

    id: int
    content: str
    speaker: Speaker
    memory_type: str
    significance: float
    created_at: datetime
    score: float
    cosine: float
    keyword: float


class CandidateBM25(BM25Okapi):  # type: ignore[misc]
    """BM25 over a few candidates with the word statistics of the whole relationship.

    Two departures from the library's own constructor: the statistics are given, since the
    candidates are a selection; and the idf is ln(1 + (N - n + 0.5) / (n + 0.5)), which is never
    negative, so that a word in most memories still speaks for a memory that has it.
    """

    def __init__(self, candidates: Sequence[Candidate], statistics: WordStatistics) -> None:
        self.k1, self.b = 1.5, 0.75
        self.corpus_size = len(candidates)
        self.avgdl = max(1.0, statistics.words / max(1, statistics.memories))
        named = {speaker: terms_of(name) for speaker, name in statistics.names.items()}
        self.doc_freqs = [
            _with_name(each.matches, named.get(each.speaker, ())) for each in candidates
        ]
        self.doc_len = [each.length for each in candidates]
        # A name stands in all that its speaker said. Each of two says about half, which is close
        # enough for a word that common.
        half = statistics.memories // 2
        spread = dict.fromkeys((term for terms in named.values() for term in terms), half)
        for word, count in statistics.memories_by_word.items():
            spread[word] = max(count, spread.get(word, 0))
        self.idf = {
            word: math.log(1 + (max(statistics.memories, count) - count + 0.5) / (count + 0.5))
            for word, count in spread.items()
        }


def _with_name(matches: dict[str, int], name: Sequence[str]) -> dict[str, int]:
    """Count the words of the speaker's name once more."""
    return matches | {term: matches.get(term, 0) + 1 for term in name}


def rank(
    candidates: Sequence[Candidate],
    terms: Sequence[str],
    statistics: WordStatistics,
    policy: RecallPolicy,
) -> list[Recalled]:
    """Return the best `policy.limit` candidates, best first.

    Cosines below zero count as zero. BM25 is divided by its best score, so that a lone weak
    match counts as much as a lone strong one. Ties go to the newer memory.
    """
    if not candidates or policy.limit == 0:
        return []
    cosines = np.clip([each.cosine for each in candidates], 0.0, 1.0)
    keywords = CandidateBM25(candidates, statistics).get_scores(list(terms))
    best = keywords.max()
    keywords = keywords / best if best > 0 else keywords
    scores = policy.vector_weight * cosines + policy.keyword_weight * keywords
    order = sorted(
        range(len(candidates)),
        key=lambda index: (
            -scores[index],
            -candidates[index].created_at.timestamp(),
            -candidates[index].id,
        ),
    )
    return [
        Recalled(
            id=candidates[index].id,
            content=candidates[index].content,
            speaker=candidates[index].speaker,
            memory_type=candidates[index].memory_type,
            significance=round(candidates[index].significance, 4),
            created_at=candidates[index].created_at,
            score=round(float(scores[index]), 4),
            cosine=round(float(cosines[index]), 4),
            keyword=round(float(keywords[index]), 4),
        )
        for index in order[: policy.limit]
    ]
