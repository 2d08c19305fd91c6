"""Memory ranking: 0.70 cosine + 0.30 BM25, then significance, recency, time and session. Pure.

Memories fade in one of four modes, chosen by name:

- `window`: constant recency for 90 days, after which memories are no longer recalled.
- `half_life`: recency halves with every 180 days.
- `hourly`: recency is 0.995 to the power of the hours since the last access (Generative Agents,
  Park et al. 2023, arXiv 2304.03442), and is a term of the score.
- `product`: the score is similarity times importance times the user's weight times that recency.

The last access is when a memory was said or last used, whichever is later: recall refreshes it.
Memories at or above the permanent significance do not decay.

Okapi BM25 over arrays of term frequencies, shared by memories and documents.

Robertson et al. 1994 (TREC-3): a document scores, for each query term, the term's idf times its
saturated frequency. The idf is ln(1 + (N - n + 0.5) / (n + 0.5)), the form of Lucene and of BM25L;
it is never negative, so a term that most documents contain still counts for those that do.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from statistics import median

import numpy as np
import numpy.typing as npt

from foremind.domain.memory import NARRATED_TYPES, Candidate, KnownMemory, Recalled, WordStatistics
from foremind.domain.policy import RecallPolicy
from foremind.domain.world import NOWHERE, Surroundings
from foremind.text.languages.language_files import ENGLISH
from foremind.text.languages.utterances import is_pure_question
from foremind.text.time_expressions import (
    DAY_S,
    Span,
    day_of,
    open_ended_span,
    span_proximity,
    spans_in,
)
from foremind.text.tokenization import query_terms_of, terms_of

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


_HOURLY = 0.995
_HOUR_S = 3600


def recency(
    policy: RecallPolicy,
    significance: float,
    created_at: datetime,
    last_used_at: datetime | None,
    now: datetime,
) -> float:
    """Return a memory's recency at `now`, 1 down to 0; always 1 in the `window` mode."""
    if policy.decay == "window" or significance >= policy.permanent_significance:
        return 1.0
    last = created_at if last_used_at is None else max(created_at, last_used_at)
    age_s = max(0.0, (now - last).total_seconds())
    if policy.decay != "half_life":
        return float(_HOURLY ** (age_s / _HOUR_S))
    return float(0.5 ** (age_s / DAY_S / policy.half_life_days))


_ANCHOR = re.compile(
    r"\b(?P<side>before|after|since|until) (?:the|my|our|his|her|their|your) "
    r"(?P<event>[a-z][\w'’-]*)",
    re.IGNORECASE,
)
_PAST = re.compile(
    r"\b(?:used to|before|previous(?:ly)?|former(?:ly)?|back then|in the past|originally|"
    r"at first|earlier|old|first|ever|once|no longer|anymore)\b",
    re.IGNORECASE,
)
_QUESTIONS = re.compile(r"\b(?:ask(?:ed|ing)?|questions?|wonder(?:ed|ing)?)\b", re.IGNORECASE)
_MAX_ANCHORS = 4  # of one text; each is searched for in all candidates


@dataclass(frozen=True, slots=True)
class EventAnchor:
    """An event that a time is relative to ("before the wedding"): which side, and its terms."""

    side: str
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A parsed text. `terms` may repeat; `times` are in the player's time zone.

    `place` is where it is asked, in a world; `named` are terms that may be those of places.
    """

    terms: tuple[str, ...]
    times: tuple[Span, ...] = ()
    anchors: tuple[EventAnchor, ...] = ()
    about_the_past: bool = False
    about_questions: bool = False
    place: str = ""
    named: frozenset[str] = frozenset()


def parse_query(
    text: str,
    now: datetime,
    fallback: str = ENGLISH,
    around: Surroundings = NOWHERE,
) -> ParsedQuery:
    """Parse `text` as of `now`, which is in the player's time zone, or the time of a world.

    `fallback` is its language where that is unsure, perhaps with the player's region.
    """
    times = tuple(spans_in(text, now, fallback, undecided=True, calendar=around.calendar))
    terms = tuple(query_terms_of(text, fallback))
    return ParsedQuery(
        terms=terms,
        times=times,
        anchors=() if times else tuple(_anchors(text, frozenset(terms))),
        about_the_past=_PAST.search(text) is not None,
        about_questions=_QUESTIONS.search(text) is not None,
        place=around.place,
        named=frozenset(terms),
    )


def _anchors(text: str, known: frozenset[str]) -> list[EventAnchor]:
    """Return the events that times are relative to, if their terms are `known`, the text's terms.

    A word tokenized on its own may give other terms than within the text.
    """
    anchors = []
    for match in islice(_ANCHOR.finditer(text), _MAX_ANCHORS):
        terms = tuple(terms_of(match["event"]))
        if terms and known.issuperset(terms):
            anchors.append(EventAnchor(match["side"].lower(), terms))
    return anchors


# A term is common if so many times more memories contain it than the rarest term, and such a share.
_COMMON_FACTOR, _COMMON_SHARE = 3, 0.05


def rare_terms(terms: Sequence[str], statistics: WordStatistics) -> tuple[str, ...]:
    """Return terms without those that nearly everything contains; nothing if there are none.

    A name that is in most of what somebody witnessed does not tell which of it is asked about; nor
    does a word that nothing contains.
    """
    known = {
        term: count for term, count in statistics.document_frequencies.items() if term in terms
    }
    if not known:
        return ()
    limit = max(_COMMON_FACTOR * min(known.values()), _COMMON_SHARE * statistics.memories)
    rare = {term for term, count in known.items() if count <= limit}
    return tuple(term for term in terms if term in rare) if len(rare) < len(known) else ()


# Of what happened at a place that is named, and how much of it of what happened where it is asked.
_PLACE_WEIGHT, _HERE_FIT = 0.15, 0.3
# A superseded memory ranks after its replacement, unless the query is about the past.
_SUPERSEDED_FACTOR = 0.6
# No memory repeats a whole long draft: BM25 is measured against this many of its rarest terms.
_MAX_DISTINCTIVE_TERMS = 6
# Highest idf assumed for a term that no memory contains: as if about one in twenty did.
_MAX_UNSEEN_IDF = 3.0
# How far a score must rise from noise towards the best, as a multiple of `min_share`; and how many
# candidates without any noise the noise estimate is smoothed with.
_NOISE_MARGIN, _NOISE_PRIOR = 0.36, 1
_NEAR_BEST = 0.8  # share of the best score from which a candidate is not counted as noise


def rank(
    candidates: CandidateSet,
    query: ParsedQuery,
    statistics: WordStatistics,
    policy: RecallPolicy,
    now: datetime,
    floor: float = 0.0,
) -> list[Recalled]:
    """Return the best `policy.limit` candidates that are relevant enough, best first.

    A score must be close enough to the best for this draft, and well above what unrelated
    candidates score: fewer results than the limit are normal. A question of the user's is not an
    answer, unless the query is about questions. Ties go to the newer memory.

    Args:
        floor: the cosine of the embedding model that counts as 0.
    """
    if not len(candidates) or policy.limit == 0:
        return []
    cosines = np.clip((candidates.cosines - floor) / (1 - floor), 0.0, 1.0)
    keywords = keyword_scores(candidates, query.terms, statistics)
    relevance = policy.vector_weight * cosines + policy.keyword_weight * keywords
    scores = _scores(candidates, query, cosines, relevance, policy, now)
    relevant = np.flatnonzero(relevance >= policy.min_score)
    # The last key is the primary one.
    order = np.lexsort(
        (-candidates.ids[relevant], -candidates.created[relevant], -scores[relevant])
    )

    best_first = _select(candidates, relevant[order], scores, query, policy)
    numbers = np.stack([candidates.significance, scores, relevance, cosines, keywords])
    rounded = np.round(numbers[:, best_first], 4).T.tolist()
    return [
        _recalled(candidates.memory(row), *row_numbers)
        for row, row_numbers in zip(best_first, rounded, strict=True)
    ]


def _select(
    candidates: CandidateSet,
    best_first: npt.NDArray[np.int64],
    scores: Numbers,
    query: ParsedQuery,
    policy: RecallPolicy,
) -> list[int]:
    """Return the first rows that can answer the query and score close enough to the best."""
    selected: list[int] = []
    minimum = 0.0
    for row in best_first.tolist():
        if len(selected) == policy.limit or scores[row] < minimum:
            break
        memory = candidates.memory(row)
        if (
            query.about_questions
            or memory.speaker != "user"
            or not is_pure_question(memory.content)
        ):
            if not selected:
                minimum = _minimum_score(scores, float(scores[row]), policy)
            selected.append(row)
    return selected


def _minimum_score(scores: Numbers, best: float, policy: RecallPolicy) -> float:
    """Return the lowest score worth recalling, given the best one.

    Most candidates for any draft are unrelated to it, so their median score is the noise level.
    Those that score nearly as high as the best are left out of it: they may be repetitions.
    """
    if policy.decay == "product":  # its scores have no scale on which a share means anything
        return 0.0
    noisy = [score for score in scores.tolist() if score < _NEAR_BEST * best]
    noise = median(noisy) * len(noisy) / (len(noisy) + _NOISE_PRIOR) if noisy else 0.0
    margin = _NOISE_MARGIN * policy.min_share
    return max(policy.min_share * best, (noise + margin * (best - noise)) if margin else 0.0)


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
        place=memory.place,
    )


def keyword_scores(
    candidates: CandidateSet, terms: Sequence[str], statistics: WordStatistics
) -> Numbers:
    """Return each candidate's BM25 as a share of what the query terms could score, 0 to 1.

    The denominator is the score of a memory of average length that contains each of the rarest
    query terms once. If it were only the best candidate's score, some memory would always get the
    full share, for whichever term it contains by chance.
    """
    document_frequencies, memories = statistics.document_frequencies, statistics.memories
    unseen_idf = min(_MAX_UNSEEN_IDF, idf(1, memories))
    weights, possible = [], []
    query_frequencies = Counter(terms)
    for term in candidates.terms:
        term_idf = idf(document_frequencies.get(term, 0), memories)
        weights.append(query_frequencies[term] * term_idf)
        possible.append(query_frequencies[term] * (term_idf or unseen_idf))
    scores = bm25_scores(candidates, weights, statistics)
    attainable = sum(sorted(possible)[-_MAX_DISTINCTIVE_TERMS:])
    return scores / max(float(scores.max()), attainable, 1e-9)


def bm25_scores(
    candidates: CandidateSet, weights: Sequence[float], statistics: WordStatistics
) -> Numbers:
    """Return the BM25 of each candidate, with the relationship's document frequencies.

    Args:
        weights: for each of `candidates.terms`, its idf times its frequency in the query.
    """
    mean_length = max(1.0, statistics.words / max(1, statistics.memories))
    norms = length_norms(candidates.lengths, mean_length)
    scores: Numbers = saturated(candidates.frequencies, norms[:, None]) @ np.array(
        weights, np.float64
    )
    return scores


def _scores(
    candidates: CandidateSet,
    query: ParsedQuery,
    cosines: Numbers,
    relevance: Numbers,
    policy: RecallPolicy,
    now: datetime,
) -> Numbers:
    """Return the score that each candidate is ordered by, 0 to 1.

    The weighted mean of relevance, significance, recency and closeness to the requested time, plus
    a share of the best score of the same session. Under `product` the published factors are
    multiplied instead.
    """
    significance = candidates.significance
    if policy.decay == "product":
        memories = _memories(candidates)
        fresh = _recencies(memories, policy, now)
        scores = cosines * significance * _speaker_weights(memories, policy) * fresh
    else:
        scores = relevance + policy.significance_weight * significance
        total = policy.vector_weight + policy.keyword_weight + policy.significance_weight
        if policy.decay != "window":
            fresh = _recencies(_memories(candidates), policy, now)
            scores = scores + policy.recency_weight * fresh
            total += policy.recency_weight
        times = _requested_times(candidates, query, relevance)
        if times:
            scores = scores + policy.time_weight * _time_fits(candidates, times)
            total += policy.time_weight
        if policy.in_world:
            scores = scores + _PLACE_WEIGHT * _place_fits(candidates, query)
            total += _PLACE_WEIGHT
        scores = scores / max(total, 1e-9)
        if policy.user_weight != 1:
            scores = scores * _speaker_weights(_memories(candidates), policy)
        scores = _add_session_share(scores, candidates.sessions, policy)
    if not query.about_the_past:
        scores = _demote_superseded(candidates, scores)
    return np.asarray(scores, np.float64)


def _demote_superseded(candidates: CandidateSet, scores: Numbers) -> Numbers:
    """Lower the scores of superseded memories; their replacements inherit the original scores."""
    superseded = np.flatnonzero(candidates.superseded)
    inherited = scores.copy()
    for row in superseded[np.argsort(candidates.ids[superseded])].tolist():  # oldest first
        replacement = candidates.ids == candidates.memory(row).superseded_by
        inherited[replacement] = np.maximum(inherited[replacement], inherited[row])
    return np.where(candidates.superseded, _SUPERSEDED_FACTOR * scores, inherited)


def _add_session_share(
    scores: Numbers, sessions: npt.NDArray[np.int64], policy: RecallPolicy
) -> Numbers:
    """Mix in the best score of each session; the only candidate of a session keeps its score."""
    best = np.zeros(sessions.max() + 1)
    np.maximum.at(best, sessions, scores)
    return (scores + policy.session_weight * best[sessions]) / (1 + policy.session_weight)


def _memories(candidates: CandidateSet) -> list[KnownMemory]:
    return [candidates.memory(row) for row in range(len(candidates))]


def _speaker_weights(memories: Sequence[KnownMemory], policy: RecallPolicy) -> Numbers:
    """Return the weight of who said each memory, 0 to 1; what happened counts as the user's."""
    heaviest = max(1.0, policy.user_weight)
    weights = [
        policy.user_weight
        if memory.speaker == "user" or memory.memory_type in NARRATED_TYPES
        else 1.0
        for memory in memories
    ]
    return np.array(weights) / heaviest


def _recencies(memories: Sequence[KnownMemory], policy: RecallPolicy, now: datetime) -> Numbers:
    return np.array(
        [
            recency(policy, memory.significance, memory.created_at, memory.last_used_at, now)
            for memory in memories
        ]
    )


def _time_fits(candidates: CandidateSet, times: Sequence[Span]) -> Numbers:
    """Return how close each candidate is to the requested times: its day, or its event's."""
    said = np.floor(candidates.created / DAY_S) * DAY_S  # the day, in UTC
    happened = np.array(
        [
            [np.inf, -np.inf] if span is None else [moment.timestamp() for moment in span]
            for span in (memory.happened for memory in _memories(candidates))
        ]
    )
    fits = [
        fit
        for time in times
        for fit in (
            span_proximity(time, said, said + DAY_S),
            span_proximity(time, happened[:, 0], happened[:, 1]),
        )
    ]
    return np.asarray(np.max(fits, axis=0), np.float64)


def _place_fits(candidates: CandidateSet, query: ParsedQuery) -> Numbers:
    """Return how well the place of each candidate fits: one that is named, or where it is asked."""

    def fit(place: str) -> float:
        if place and query.named.issuperset(terms_of(place)):
            return 1.0
        return _HERE_FIT if place and place == query.place else 0.0

    fits = {place: fit(place) for place in {memory.place for memory in _memories(candidates)}}
    return np.array([fits[memory.place] for memory in _memories(candidates)])


def _requested_times(
    candidates: CandidateSet, query: ParsedQuery, relevance: Numbers
) -> list[Span]:
    """Return the times the query names, and those relative to an event found in a memory."""
    times = list(query.times)
    for anchor in query.anchors:
        columns = [candidates.terms.index(term) for term in anchor.terms]
        matches = np.flatnonzero((candidates.frequencies[:, columns] >= 1).all(axis=1))
        if len(matches):
            event = candidates.memory(int(matches[np.argmax(relevance[matches])]))
            span = Span(*event.happened) if event.happened else day_of(event.created_at)
            times.append(open_ended_span(span, anchor.side))
    return times
