"""The order of memories: 0.70 cosine + 0.30 BM25, then what else speaks for each. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt
from rank_bm25 import BM25Okapi

from foremind.memory.asked import Asked
from foremind.memory.dates import Span, beside, closeness, day_of
from foremind.memory.decay import recency
from foremind.policies import RecallPolicy
from foremind.storage.memories import Candidate, KnownMemory, WordStatistics
from foremind.storage.turns import Speaker

# What no longer holds comes after what took its place, unless the past is asked about.
_SUPERSEDED = 0.6


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory that a search brought back; the numbers are 0 to 1.

    `score` is what memories are ordered by; `relevance` is the 70/30 rule alone, made of `cosine`
    and `keyword`. `superseded`: something newer contradicts it.
    """

    id: int
    content: str
    speaker: Speaker
    memory_type: str
    significance: float
    created_at: datetime
    superseded: bool
    score: float
    relevance: float
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
        self.doc_freqs = [each.matches for each in candidates]
        self.doc_len = [each.memory.length for each in candidates]
        self.idf = {
            word: math.log(1 + (max(statistics.memories, count) - count + 0.5) / (count + 0.5))
            for word, count in statistics.memories_by_word.items()
        }


def rank(
    candidates: Sequence[Candidate],
    asked: Asked,
    statistics: WordStatistics,
    policy: RecallPolicy,
    now: datetime,
) -> list[Recalled]:
    """Return the best `policy.limit` candidates that are relevant enough, best first.

    Ties go to the newer memory.
    """
    if not candidates or policy.limit == 0:
        return []
    cosines = np.clip([each.cosine for each in candidates], 0.0, 1.0)
    keywords = CandidateBM25(candidates, statistics).get_scores(list(asked.terms))
    best = keywords.max()
    keywords = keywords / best if best > 0 else keywords
    relevance = policy.vector_weight * cosines + policy.keyword_weight * keywords
    scores = _scores(candidates, asked, cosines, relevance, policy, now)
    order = sorted(
        (index for index in range(len(candidates)) if relevance[index] >= policy.min_score),
        key=lambda index: (
            -scores[index],
            -candidates[index].memory.created_at.timestamp(),
            -candidates[index].memory.id,
        ),
    )

    def recalled(index: int) -> Recalled:
        memory = candidates[index].memory
        return Recalled(
            id=memory.id,
            content=memory.content,
            speaker=memory.speaker,
            memory_type=memory.memory_type,
            significance=round(memory.significance, 4),
            created_at=memory.created_at,
            superseded=memory.superseded,
            score=round(float(scores[index]), 4),
            relevance=round(float(relevance[index]), 4),
            cosine=round(float(cosines[index]), 4),
            keyword=round(float(keywords[index]), 4),
        )

    return [recalled(index) for index in order[: policy.limit]]


def _scores(
    candidates: Sequence[Candidate],
    asked: Asked,
    cosines: npt.NDArray[np.float64],
    relevance: npt.NDArray[np.float64],
    policy: RecallPolicy,
    now: datetime,
) -> npt.NDArray[np.float64]:
    """Return what each candidate is ordered by, 0 to 1.

    Relevance, significance, recency and fitting the time asked for add up by their weights and are
    divided by the sum of these; under `product` the published factors are multiplied instead.
    """
    memories = [each.memory for each in candidates]
    significance = np.array([each.significance for each in memories])
    if policy.decay == "product":
        weights = [policy.user_weight if each.speaker == "user" else 1.0 for each in memories]
        fresh = _recencies(memories, policy, now)
        scores = cosines * significance * np.array(weights) * fresh / max(1.0, policy.user_weight)
    else:
        scores = relevance + policy.significance_weight * significance
        total = policy.vector_weight + policy.keyword_weight + policy.significance_weight
        if policy.decay != "window":
            scores = scores + policy.recency_weight * _recencies(memories, policy, now)
            total += policy.recency_weight
        times = _times_asked_for(candidates, asked, relevance)
        if times:
            fits = np.array([_fit(each, times) for each in memories])
            scores = scores + policy.time_weight * fits
            total += policy.time_weight
        scores = scores / max(total, 1e-9)
    if not asked.about_the_past:
        scores = scores * np.array([_SUPERSEDED if each.superseded else 1.0 for each in memories])
    return np.asarray(scores, np.float64)


def _recencies(
    memories: Sequence[KnownMemory], policy: RecallPolicy, now: datetime
) -> npt.NDArray[np.float64]:
    return np.array(
        [
            recency(policy, each.significance, each.created_at, each.last_used_at, now)
            for each in memories
        ]
    )


def _fit(memory: KnownMemory, times: Sequence[Span]) -> float:
    """Return how well a memory fits the times asked for: when it was said, what it tells of."""
    own = [day_of(memory.created_at)]
    if memory.happened is not None:
        own.append(Span(*memory.happened))
    return max(closeness(asked, each) for asked in times for each in own)


def _times_asked_for(
    candidates: Sequence[Candidate], asked: Asked, relevance: npt.NDArray[np.float64]
) -> list[Span]:
    """Return the times that the text names, and those beside an event that a memory tells of."""
    times = list(asked.times)
    for anchor in asked.anchors:
        telling = [
            index
            for index, each in enumerate(candidates)
            if all(each.matches.get(term, 0) >= 1 for term in anchor.terms)
        ]
        if telling:
            event = candidates[max(telling, key=lambda index: relevance[index])].memory
            span = Span(*event.happened) if event.happened else day_of(event.created_at)
            times.append(beside(span, anchor.side))
    return times
