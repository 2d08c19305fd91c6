"""The score of a memory."""

import dataclasses
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.companions import RecallPolicy
from foremind.memory.ranking import rank
from foremind.memory.terms import terms_of
from foremind.storage.memories import Candidate, WordStatistics

NOW = datetime(2026, 5, 20, tzinfo=UTC)
POLICY = RecallPolicy(0.70, 0.30, 0.3, 90.0, 10)


def candidate(number: int, cosine: float = 0.0, **matches: int) -> Candidate:
    """A memory with the query's words in it."""
    return Candidate(
        id=number,
        content=f"memory {number}",
        speaker="user",
        memory_type="conversation",
        significance=0.5,
        created_at=NOW - timedelta(days=number),
        cosine=cosine,
        length=10,
        matches=matches,
    )


def test_the_score_is_seventy_thirty_of_two_shares() -> None:
    """Cosine as it is, BM25 divided by its best."""
    statistics = WordStatistics(100, 1000, {"rain": 2})
    best, other = rank([candidate(1, 0.5, rain=1), candidate(2, 0.6)], ["rain"], statistics, POLICY)
    assert (best.id, best.score, best.keyword) == (1, pytest.approx(0.65), 1.0)
    assert (other.id, other.score, other.keyword) == (2, pytest.approx(0.42), 0.0)


def test_bm25_is_okapi_with_the_statistics_of_the_relationship() -> None:
    """Checked against the formula written out."""
    statistics = WordStatistics(50, 400, {"rain": 5, "boat": 1})
    first, second = candidate(1, 0, rain=2), candidate(2, 0, boat=1)
    ranked = rank([first, second], ["rain", "boat"], statistics, POLICY)

    def okapi(frequency: int, spread: int) -> float:
        idf = math.log(1 + (50 - spread + 0.5) / (spread + 0.5))
        return idf * frequency * 2.5 / (frequency + 1.5 * (0.25 + 0.75 * 10 / 8))

    expected = {1: okapi(2, 5), 2: okapi(1, 1)}
    best = max(expected.values())
    assert {each.id: each.keyword for each in ranked} == {
        number: pytest.approx(score / best, abs=1e-4) for number, score in expected.items()
    }


def test_a_speakers_name_stands_in_all_that_speaker_said() -> None:
    """Asking about Ana brings what Ana said, though she did not say her name."""
    statistics = WordStatistics(10, 100, {}, {"user": "Ana", "companion": "Mara"})
    hers = candidate(2, 0.3)
    mine = dataclasses.replace(candidate(1, 0.3), speaker="companion")
    ranked = rank([mine, hers], terms_of("What did Ana say?"), statistics, POLICY)
    assert [(each.id, each.keyword) for each in ranked] == [(2, 1.0), (1, 0.0)]


def test_opposite_meanings_do_not_count_against_a_memory() -> None:
    """A cosine below zero is zero."""
    (only,) = rank([candidate(1, -0.4)], [], WordStatistics(1, 10, {}), POLICY)
    assert only.score == 0.0


def test_of_equals_the_newer_comes_first() -> None:
    """Ties are not left to chance."""
    ranked = rank([candidate(3, 0.4), candidate(1, 0.4)], [], WordStatistics(2, 20, {}), POLICY)
    assert [each.id for each in ranked] == [1, 3]


@given(st.lists(st.tuples(st.floats(-1, 1), st.integers(0, 5)), max_size=40), st.integers(0, 15))
def test_ranks_fall_and_scores_stay_in_range(memories: list[tuple[float, int]], limit: int) -> None:
    """At most `limit`, best first, all between 0 and 1."""
    candidates = [
        candidate(number, cosine, **({"rain": count} if count else {}))
        for number, (cosine, count) in enumerate(memories)
    ]
    policy = RecallPolicy(0.70, 0.30, 0.3, None, limit)
    ranked = rank(candidates, ["rain"], WordStatistics(40, 400, {"rain": 20}), policy)
    scores = [each.score for each in ranked]
    assert len(ranked) == min(limit, len(candidates))
    assert scores == sorted(scores, reverse=True)
    assert all(0.0 <= score <= 1.0 for score in scores)
