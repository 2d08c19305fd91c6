"""The order of memories: 0.70 cosine + 0.30 BM25, then what else speaks for each. Pure."""

import math
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from statistics import median

import numpy as np
import numpy.typing as npt

from foremind.domain.memory import KnownMemory, Recalled, WordStatistics
from foremind.domain.policy import RecallPolicy
from foremind.retrieval.candidates import CandidateSet, Numbers
from foremind.retrieval.decay import recency
from foremind.retrieval.query_parser import ParsedQuery
from foremind.retrieval.recall_gate import only_asks
from foremind.text.time_expressions import DAY_S, Span, beside, closeness, day_of

# What no longer holds comes after what took its place, unless the past is asked about.
_SUPERSEDED = 0.6
K1, _B = 1.5, 0.75  # of BM25
# A long draft is not expected to stand in a memory whole: so many of its words, the rarest, are.
_TELLING_WORDS = 6
# How rare a word is taken to be that no memory holds: as one that stands in one of twenty.
_UNKNOWN_RARITY = 3.0
# How far from noise towards the best a memory must be, as a part of the share of the best that it
# must have; what is known of noise weighs as much as one candidate of none.
_ABOVE_NOISE, _NOISELESS = 0.36, 1
_NEARLY = 0.8  # of the best score, from which on a memory is no noise


def rank(
    candidates: CandidateSet,
    asked: ParsedQuery,
    statistics: WordStatistics,
    policy: RecallPolicy,
    now: datetime,
) -> list[Recalled]:
    """Return the best `policy.limit` candidates that are relevant enough, best first.

    A score must be near enough to the best of this draft, and clear of what candidates score that
    have nothing to do with it: fewer than the limit is normal. What the user only asked is no
    answer, unless it is questions that are asked about. Ties go to the newer memory.
    """
    if not len(candidates) or policy.limit == 0:
        return []
    cosines = np.clip(candidates.cosines, 0.0, 1.0)
    keywords = keyword_shares(candidates, asked.terms, statistics)
    relevance = policy.vector_weight * cosines + policy.keyword_weight * keywords
    scores = _scores(candidates, asked, cosines, relevance, policy, now)
    enough = np.flatnonzero(relevance >= policy.min_score)
    # The last key decides first.
    order = np.lexsort((-candidates.ids[enough], -candidates.created[enough], -scores[enough]))

    best_first = _chosen(candidates, enough[order], scores, asked, policy)
    numbers = np.stack([candidates.significance, scores, relevance, cosines, keywords])
    rounded = np.round(numbers[:, best_first], 4).T.tolist()
    return [
        _recalled(candidates.memory(row), *each)
        for row, each in zip(best_first, rounded, strict=True)
    ]


def _chosen(
    candidates: CandidateSet,
    best_first: npt.NDArray[np.int64],
    scores: Numbers,
    asked: ParsedQuery,
    policy: RecallPolicy,
) -> list[int]:
    """Return the first rows that answer something and are near enough to the best of them."""
    chosen: list[int] = []
    least = 0.0
    for row in best_first.tolist():
        if len(chosen) == policy.limit or scores[row] < least:
            break
        memory = candidates.memory(row)
        if asked.about_questions or memory.speaker != "user" or not only_asks(memory.content):
            least = least if chosen else _least(scores, float(scores[row]), policy)
            chosen.append(row)
    return chosen


def _least(scores: Numbers, best: float, policy: RecallPolicy) -> float:
    """Return the score from which on a candidate helps, where the best one scores so much.

    Most candidates of any draft have nothing to do with it: what the middle one scores is noise.
    Those that score nearly as much as the best are not counted: they may say the same again.
    """
    if policy.decay == "product":  # it has no measure that a share of it would mean anything by
        return 0.0
    others = [each for each in scores.tolist() if each < _NEARLY * best]
    noise = median(others) * len(others) / (len(others) + _NOISELESS) if others else 0.0
    above = _ABOVE_NOISE * policy.min_share
    return max(policy.min_share * best, (noise + above * (best - noise)) if above else 0.0)


def _recalled(
    memory: KnownMemory,
    significance: float,
    score: float,
    relevance: float,
    cosine: float,
    keyword: float,
) -> Recalled:
    return Recalled(
        id=memory.id,
        content=memory.content,
        speaker=memory.speaker,
        memory_type=memory.memory_type,
        significance=significance,
        created_at=memory.created_at,
        superseded=memory.superseded,
        score=score,
        relevance=relevance,
        cosine=cosine,
        keyword=keyword,
    )


def keyword_shares(
    candidates: CandidateSet, asked: Sequence[str], statistics: WordStatistics
) -> Numbers:
    """Return BM25 of each candidate as a share of what the words asked for could score, 0 to 1.

    All of it has a memory that scores as much as one of average length would that says each of the
    most telling words once. Were only the best of the candidates the measure, some memory would
    always have all of it, for whatever word it holds by accident.
    """
    spread, memories = statistics.memories_by_word, statistics.memories
    unknown = min(_UNKNOWN_RARITY, rarity(1, memories))
    weights, telling = [], []
    times_asked = Counter(asked)
    for term in candidates.terms:
        known = rarity(spread.get(term, 0), memories)
        weights.append(times_asked[term] * known)
        telling.append(times_asked[term] * (known or unknown))
    scores = bm25(candidates, weights, statistics)
    possible = sum(sorted(telling)[-_TELLING_WORDS:])
    return scores / max(float(scores.max()), possible, 1e-9)


def bm25(candidates: CandidateSet, weights: Sequence[float], statistics: WordStatistics) -> Numbers:
    """Return Okapi BM25 of each candidate, with the relationship's counts.

    Robertson et al. 1994 (TREC-3), k1 1.5 and b 0.75; the idf is ln(1 + (N - n + 0.5) / (n + 0.5)),
    which is never negative, so that a word in most memories still speaks for one that has it. A
    word that is asked for twice counts twice.

    Args:
        weights: of each of the candidates' terms, its idf times how often it is asked for.
    """
    mean_length = max(1.0, statistics.words / max(1, statistics.memories))
    norms = K1 * (1 - _B + _B * candidates.lengths / mean_length)
    found = candidates.frequencies
    scores: Numbers = (found * (K1 + 1) / (found + norms[:, None])) @ np.array(weights, np.float64)
    return scores


def rarity(count: int, memories: int) -> float:
    """Return the idf of a word that stands in `count` of so many memories; 0 where in none."""
    if not count:
        return 0.0
    return math.log(1 + (max(memories, count) - count + 0.5) / (count + 0.5))


def _scores(
    candidates: CandidateSet,
    asked: ParsedQuery,
    cosines: Numbers,
    relevance: Numbers,
    policy: RecallPolicy,
    now: datetime,
) -> Numbers:
    """Return what each candidate is ordered by, 0 to 1.

    Relevance, significance, recency and fitting the time asked for add up by their weights and are
    divided by the sum of these; then comes a share of the best that stands in the same session.
    Under `product` the published factors are multiplied instead.
    """
    significance = candidates.significance
    if policy.decay == "product":
        memories = _memories(candidates)
        weights = [policy.user_weight if memory.speaker == "user" else 1.0 for memory in memories]
        fresh = _recencies(memories, policy, now)
        scores = cosines * significance * np.array(weights) * fresh / max(1.0, policy.user_weight)
    else:
        scores = relevance + policy.significance_weight * significance
        total = policy.vector_weight + policy.keyword_weight + policy.significance_weight
        if policy.decay != "window":
            fresh = _recencies(_memories(candidates), policy, now)
            scores = scores + policy.recency_weight * fresh
            total += policy.recency_weight
        times = _times_asked_for(candidates, asked, relevance)
        if times:
            scores = scores + policy.time_weight * _fits(candidates, times)
            total += policy.time_weight
        scores = _with_sessions(scores / max(total, 1e-9), candidates.sessions, policy)
    if not asked.about_the_past:
        scores = _with_what_holds(candidates, scores)
    return np.asarray(scores, np.float64)


def _with_what_holds(candidates: CandidateSet, scores: Numbers) -> Numbers:
    """Return scores where what no longer holds speaks for what holds since, and comes after it."""
    superseded = np.flatnonzero(candidates.superseded)
    spoken_for = scores.copy()
    for row in superseded[np.argsort(candidates.ids[superseded])].tolist():  # oldest first
        since = candidates.ids == candidates.memory(row).superseded_by
        spoken_for[since] = np.maximum(spoken_for[since], spoken_for[row])
    return np.where(candidates.superseded, _SUPERSEDED * scores, spoken_for)


def _with_sessions(
    scores: Numbers, sessions: npt.NDArray[np.int64], policy: RecallPolicy
) -> Numbers:
    """Return scores with their share of the best of their session; alone in one, as they were."""
    best = np.zeros(sessions.max() + 1)
    np.maximum.at(best, sessions, scores)
    return (scores + policy.session_weight * best[sessions]) / (1 + policy.session_weight)


def _memories(candidates: CandidateSet) -> list[KnownMemory]:
    return [candidates.memory(row) for row in range(len(candidates))]


def _recencies(memories: Sequence[KnownMemory], policy: RecallPolicy, now: datetime) -> Numbers:
    return np.array(
        [
            recency(policy, memory.significance, memory.created_at, memory.last_used_at, now)
            for memory in memories
        ]
    )


def _fits(candidates: CandidateSet, times: Sequence[Span]) -> Numbers:
    """Return how well each fits the times asked for: when it was said, what it tells of."""
    said = np.floor(candidates.created / DAY_S) * DAY_S  # the day, in UTC
    told = np.array(
        [
            [np.inf, -np.inf] if happened is None else [each.timestamp() for each in happened]
            for happened in (memory.happened for memory in _memories(candidates))
        ]
    )
    fits = [
        fit
        for asked in times
        for fit in (closeness(asked, said, said + DAY_S), closeness(asked, told[:, 0], told[:, 1]))
    ]
    return np.asarray(np.max(fits, axis=0), np.float64)


def _times_asked_for(
    candidates: CandidateSet, asked: ParsedQuery, relevance: Numbers
) -> list[Span]:
    """Return the times that the text names, and those beside an event that a memory tells of."""
    times = list(asked.times)
    for anchor in asked.anchors:
        columns = [candidates.terms.index(term) for term in anchor.terms]
        telling = np.flatnonzero((candidates.frequencies[:, columns] >= 1).all(axis=1))
        if len(telling):
            event = candidates.memory(int(telling[np.argmax(relevance[telling])]))
            span = Span(*event.happened) if event.happened else day_of(event.created_at)
            times.append(beside(span, anchor.side))
    return times
