"""Ranking of candidate memories."""

import dataclasses
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from foremind.app.configuration import load_settings
from foremind.domain.memory import Candidate, KnownMemory, Recalled, WordStatistics
from foremind.domain.policy import RecallPolicy, policy_for
from foremind.domain.settings.setting_definitions import Decay
from foremind.domain.settings.settings import CompanionSettings
from foremind.retrieval.ranking import EventAnchor, ParsedQuery, to_candidate_set
from foremind.retrieval.ranking import rank as rank_columns
from foremind.text.time_expressions import day_of

NOW = datetime(2026, 5, 20, tzinfo=UTC)
DEFAULT = policy_for(CompanionSettings(), load_settings()).recall
# 0.70 cosine + 0.30 BM25 only.
POLICY = dataclasses.replace(DEFAULT, significance_weight=0.0, min_score=0.0, min_share=0.0)


def candidate(number: int, cosine: float = 0.0, **matches: int) -> Candidate:
    """A candidate with these term frequencies."""
    memory = KnownMemory(
        id=number,
        content=f"memory {number}",
        speaker="user",
        memory_type="conversation",
        significance=0.5,
        created_at=NOW - timedelta(days=number),
        happened=None,
        last_used_at=None,
        superseded=False,
        session=number,
        length=10,
    )
    return Candidate(memory, cosine, dict(matches))


def changed(original: Candidate, **values: Any) -> Candidate:
    """A copy with other values of the candidate or its memory."""
    own = {name: values.pop(name) for name in ("cosine", "matches") if name in values}
    return structs.replace(original, memory=structs.replace(original.memory, **values), **own)


def rank_query(
    candidates: list[Candidate],
    query: ParsedQuery,
    statistics: WordStatistics,
    policy: RecallPolicy,
    now: datetime,
) -> list[Recalled]:
    """Rank a list of candidates for a parsed query."""
    return rank_columns(
        to_candidate_set(candidates, sorted(set(query.terms))), query, statistics, policy, now
    )


def rank(
    candidates: list[Candidate],
    terms: list[str],
    statistics: WordStatistics,
    policy: RecallPolicy = DEFAULT,
) -> list[Recalled]:
    """Rank for a query that has terms only."""
    return rank_query(candidates, ParsedQuery(tuple(terms)), statistics, policy, NOW)


def test_the_models_floor_counts_as_no_similarity() -> None:
    """Where unrelated texts have a cosine of 0.76, only what exceeds it is relevance."""
    near, far = candidate(1, 0.88), candidate(2, 0.76)
    plain = ParsedQuery(())
    nothing = WordStatistics(100, 1000, {})
    (only,) = rank_columns(to_candidate_set([near, far], []), plain, nothing, DEFAULT, NOW, 0.76)
    assert (only.id, only.cosine) == (1, 0.5)


def test_the_score_is_a_weighted_sum_of_cosine_and_keyword_score() -> None:
    """0.70 cosine + 0.30 BM25 as a share of the attainable score."""
    statistics = WordStatistics(100, 1000, {"rain": 2})
    best, other = rank([candidate(1, 0.5, rain=1), candidate(2, 0.6)], ["rain"], statistics, POLICY)
    assert (best.id, best.keyword) == (1, 1.0)
    assert (other.id, other.keyword) == (2, 0.0)
    assert [best.score, other.score] == pytest.approx([0.65, 0.42])


def test_bm25_uses_the_statistics_of_the_relationship() -> None:
    """Compared with the formula, divided by the score of a memory with each query term once."""
    statistics = WordStatistics(50, 400, {"rain": 5, "boat": 1})
    first, second = candidate(1, 0, rain=2), candidate(2, 0, boat=1)
    ranked = rank([first, second], ["rain", "boat"], statistics, POLICY)

    def idf(count: int) -> float:
        return math.log(1 + (50 - count + 0.5) / (count + 0.5))

    def okapi(frequency: int, count: int) -> float:
        return idf(count) * frequency * 2.5 / (frequency + 1.5 * (0.25 + 0.75 * 10 / 8))

    expected = {1: okapi(2, 5), 2: okapi(1, 1)}
    assert {memory.id: memory.keyword for memory in ranked} == {
        number: pytest.approx(score / (idf(5) + idf(1)), abs=1e-4)
        for number, score in expected.items()
    }


def test_one_shared_term_is_not_a_full_keyword_score() -> None:
    """A memory similar in meaning ranks above it, even if no other contains a query term."""
    statistics = WordStatistics(1000, 10_000, {"upset": 3, "stomach": 4})
    terms = ["wave", "upset", "stomach"]
    similar, lexical = candidate(1, 0.45), candidate(2, 0.2, upset=1)
    first, second = rank([similar, lexical], terms, statistics, POLICY)
    assert (first.id, second.id) == (1, 2)
    assert second.keyword < 0.5


@given(
    st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 200), max_size=10),
    st.lists(st.sampled_from("abcdefghijklm"), min_size=1, max_size=30),
    st.lists(st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 3)), max_size=8),
)
def test_other_candidates_never_raise_a_keyword_score(
    frequencies: dict[str, int], terms: list[str], memories: list[dict[str, int]]
) -> None:
    """It is between 0 and 1, and never higher than if the memory is the only candidate."""
    statistics = WordStatistics(200, 2000, frequencies)
    candidates = [
        candidate(number, 0.5, **{word: n for word, n in memory.items() if word in frequencies})
        for number, memory in enumerate(memories)
    ]
    policy = dataclasses.replace(POLICY, limit=20)
    for memory in rank(candidates, terms, statistics, policy):
        (alone,) = rank([candidates[memory.id]], terms, statistics, policy)
        assert 0.0 <= memory.keyword <= alone.keyword <= 1.0


def test_a_long_draft_is_measured_by_its_rarest_terms() -> None:
    """No memory repeats a whole draft: one with its rarest terms gets the full keyword score."""
    words = [f"word{number}" for number in range(30)]
    rare = words[:6]
    statistics = WordStatistics(1000, 10_000, {word: 2 if word in rare else 300 for word in words})
    (only,) = rank([candidate(1, 0.5, **dict.fromkeys(rare, 1))], words, statistics, POLICY)
    assert only.keyword == pytest.approx(1.0)


def test_keywords_count_in_a_small_collection() -> None:
    """The idf assumed for an unseen term is at most that of a term in a single memory."""
    (only,) = rank([candidate(1, 0, boat=1)], ["boat", "name"], WordStatistics(1, 10, {"boat": 1}))
    assert only.keyword == pytest.approx(0.5)


def test_a_memory_gains_from_a_better_one_of_its_session() -> None:
    """By a share of that score; the only candidate of a session keeps its score."""
    best, same_session = candidate(1, 0.8), changed(candidate(2, 0.3), session=1)
    other = candidate(3, 0.35)
    everything = dataclasses.replace(DEFAULT, min_share=0.0)
    ranked = rank([best, same_session, other], [], WordStatistics(3, 30, {}), everything)
    assert ids(ranked) == [1, 2, 3]
    without = rank([best, other], [], WordStatistics(3, 30, {}))
    assert {memory.id: memory.score for memory in without}.items() <= {
        memory.id: memory.score for memory in ranked
    }.items()
    no_share = dataclasses.replace(everything, session_weight=0.0)
    assert ids(rank([best, same_session, other], [], NO_WORDS, no_share)) == [1, 3, 2]


def test_a_negative_cosine_counts_as_zero() -> None:
    """It does not lower the score."""
    (only,) = rank([candidate(1, -0.4)], [], WordStatistics(1, 10, {}), POLICY)
    assert only.score == 0.0


def test_ties_go_to_the_newer_memory() -> None:
    """The order is deterministic."""
    ranked = rank([candidate(3, 0.4), candidate(1, 0.4)], [], WordStatistics(2, 20, {}), POLICY)
    assert ids(ranked) == [1, 3]


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 5)), max_size=40), st.integers(0, 15))
def test_scores_are_sorted_and_in_range(memories: list[tuple[float, int]], limit: int) -> None:
    """At most `limit` memories, best first, with scores between 0 and 1."""
    candidates = [
        candidate(number, cosine, **({"rain": count} if count else {}))
        for number, (cosine, count) in enumerate(memories)
    ]
    policy = dataclasses.replace(POLICY, limit=limit)
    ranked = rank(candidates, ["rain"], WordStatistics(40, 400, {"rain": 20}), policy)
    scores = [memory.score for memory in ranked]
    assert len(ranked) == min(limit, len(candidates))
    assert scores == sorted(scores, reverse=True)
    assert all(0.0 <= score <= 1.0 for score in scores)


NO_WORDS = WordStatistics(2, 20, {})


def better(
    first: Candidate, second: Candidate, query: ParsedQuery, policy: RecallPolicy = DEFAULT
) -> int:
    """The id of the candidate that ranks first."""
    return rank_query([first, second], query, NO_WORDS, policy, NOW)[0].id


def ids(memories: list[Recalled]) -> list[int]:
    """The ids of ranked memories, in order."""
    return [memory.id for memory in memories]


def test_significance_decides_between_equals() -> None:
    """It is a weighted term of the score."""
    first, second = candidate(1, 0.5), changed(candidate(2, 0.5), significance=0.9)
    ranked = rank([first, second], [], NO_WORDS)
    assert ids(ranked) == [2, 1]
    assert ranked[0].relevance == pytest.approx(0.35)
    assert ranked[0].score == pytest.approx((0.35 + 0.25 * 0.9) / 1.25, abs=1e-4)


def test_a_requested_time_favours_memories_of_that_time() -> None:
    """A much better match from another day still ranks first."""
    on_day, other = candidate(5, 0.5), candidate(20, 0.55)
    query = ParsedQuery((), times=(day_of(on_day.memory.created_at),))
    assert better(on_day, other, query) == 5
    assert better(on_day, changed(other, cosine=0.95), query) == 20


def test_a_memory_matches_the_time_of_its_event() -> None:
    """Not only the day on which it was said."""
    event = changed(candidate(1, 0.5), happened=(NOW, NOW + timedelta(days=1)))
    query = ParsedQuery((), times=(day_of(NOW),))
    assert better(event, changed(candidate(2, 0.5)), query) == 1


def test_a_time_relative_to_an_event_is_resolved() -> None:
    """ "Before the wedding" favours memories older than the one about the wedding."""
    wedding = changed(candidate(10, 0.4), matches={"wed": 1.0})
    query = ParsedQuery(("wed",), anchors=(EventAnchor("before", ("wed",)),))
    ranked = rank_query(
        [wedding, candidate(2, 0.5), candidate(30, 0.5)],
        query,
        WordStatistics(3, 30, {"wed": 1}),
        DEFAULT,
        NOW,
    )
    order = ids(ranked)
    assert order.index(30) < order.index(2)


def test_superseded_memories_rank_lower() -> None:
    """Unless the query is about the past."""
    old = changed(candidate(9, 0.8), superseded=True)
    assert better(old, candidate(1, 0.6), ParsedQuery(())) == 1
    assert better(old, candidate(1, 0.6), ParsedQuery((), about_the_past=True)) == 9


def test_irrelevant_memories_are_not_recalled() -> None:
    """However significant they are."""
    irrelevant = changed(candidate(1, 0.1), significance=1.0)
    assert rank([irrelevant], [], NO_WORDS) == []


DECAYS: tuple[Decay, ...] = ("window", "half_life", "hourly", "product")


@given(
    st.sampled_from(DECAYS),
    st.floats(0.3, 1),
    st.floats(0, 1),
    st.integers(0, 400),
    st.sampled_from(["cosine", "significance", "created_at", "last_used_at", "matches"]),
    st.floats(0, 0.3),
)
def test_more_similar_recent_or_significant_never_ranks_lower(
    decay: Decay, cosine: float, significance: float, age: int, feature: str, more: float
) -> None:
    """All else being equal, for any two memories and every decay mode."""
    policy = dataclasses.replace(DEFAULT, decay=decay, min_score=0.0)
    base = changed(
        candidate(1, cosine, rain=1),
        significance=significance,
        created_at=NOW - timedelta(days=age),
    )
    higher = {
        "cosine": min(1.0, cosine + more),
        "significance": min(1.0, significance + more),
        "created_at": base.memory.created_at + timedelta(days=300 * more),
        "last_used_at": base.memory.created_at + timedelta(days=300 * more),
        "matches": {"rain": 1 + 10 * more},
    }[feature]
    rival = changed(base, id=2, **{feature: higher})
    query = ParsedQuery(("rain",))
    ranked = rank_query([base, rival], query, WordStatistics(9, 90, {"rain": 2}), policy, NOW)
    assert ranked[0].id == 2


def test_only_scores_near_the_best_are_recalled() -> None:
    """Regardless of the limit; a minimum share of 0 admits all, and so does `product`."""
    cosines = (0.9, 0.7, 0.5, 0.3)
    candidates = [candidate(number, cosine) for number, cosine in enumerate(cosines, 1)]
    statistics = WordStatistics(10, 100, {})
    near = dataclasses.replace(POLICY, min_share=0.68)
    assert ids(rank(candidates, [], statistics, near)) == [1, 2]
    assert len(rank(candidates, [], statistics, POLICY)) == 4
    product = dataclasses.replace(near, decay="product")
    assert len(rank(candidates, [], statistics, product)) == 4


def test_the_median_score_is_treated_as_noise() -> None:
    """Where many score about half of the best, only those well above them are recalled."""
    statistics = WordStatistics(10, 100, {})
    near = dataclasses.replace(POLICY, min_share=0.5)
    others = [candidate(number, 0.5) for number in range(3, 12)]
    candidates = [candidate(1, 0.9), candidate(2, 0.7), *others]
    assert ids(rank(candidates, [], statistics, near)) == [1, 2]
    assert len(rank(candidates, [], statistics, POLICY)) == 10
    few = [candidate(1, 0.9), candidate(2, 0.7)]
    assert len(rank(few, [], statistics, near)) == 2


def test_a_question_of_the_user_is_not_an_answer() -> None:
    """Unless the query is about questions; statements and the companion's questions are."""
    candidates = [
        changed(candidate(1, 0.9), content="Where do I live?"),
        changed(candidate(2, 0.5), content="I live in Porto. Do you like it?"),
        changed(candidate(3, 0.4), content="Where do you live?", speaker="companion"),
    ]
    statistics = WordStatistics(10, 100, {})
    assert ids(rank(candidates, [], statistics, POLICY)) == [2, 3]
    questions = ParsedQuery((), about_questions=True)
    ranked = rank_query(candidates, questions, statistics, POLICY, NOW)
    assert ids(ranked) == [1, 2, 3]


def test_a_replacement_ranks_above_the_memory_it_superseded() -> None:
    """Even if the superseded one matches better, unless the query is about the past."""
    superseded = changed(candidate(1, 0.9), superseded=True, superseded_by=2)
    candidates = [superseded, candidate(2, 0.2), candidate(3, 0.6)]
    statistics = WordStatistics(10, 100, {})
    assert ids(rank(candidates, [], statistics, POLICY)) == [2, 3, 1]
    past = rank_query(candidates, ParsedQuery((), about_the_past=True), statistics, POLICY, NOW)
    assert ids(past) == [1, 3, 2]
