"""The score of a memory."""

import dataclasses
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from foremind.domain.companion import CompanionSettings
from foremind.domain.memory import Candidate, KnownMemory, Recalled, WordStatistics
from foremind.domain.policy import RecallPolicy, policy_for
from foremind.domain.settings import Decay, load_settings
from foremind.retrieval.candidates import gathered
from foremind.retrieval.query_parser import EventAnchor, ParsedQuery
from foremind.retrieval.ranking import rank as rank_columns
from foremind.text.time_expressions import day_of

NOW = datetime(2026, 5, 20, tzinfo=UTC)
DEFAULT = policy_for(CompanionSettings(), load_settings()).recall
# The 70/30 rule alone.
POLICY = dataclasses.replace(DEFAULT, significance_weight=0.0, min_score=0.0, min_share=0.0)


def candidate(number: int, cosine: float = 0.0, **matches: int) -> Candidate:
    """A memory with the query's words in it."""
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


def changed(known: Candidate, **what: Any) -> Candidate:
    """The same with other values, of the candidate or of its memory."""
    own = {name: what.pop(name) for name in ("cosine", "matches") if name in what}
    return structs.replace(known, memory=structs.replace(known.memory, **what), **own)


def rank_asked(
    candidates: list[Candidate],
    asked: ParsedQuery,
    statistics: WordStatistics,
    policy: RecallPolicy,
    now: datetime,
) -> list[Recalled]:
    """Rank candidates that were read one by one."""
    return rank_columns(
        gathered(candidates, sorted(set(asked.terms))), asked, statistics, policy, now
    )


def rank(
    candidates: list[Candidate],
    terms: list[str],
    statistics: WordStatistics,
    policy: RecallPolicy = DEFAULT,
) -> list[Recalled]:
    """Rank by words alone, now."""
    return rank_asked(candidates, ParsedQuery(tuple(terms)), statistics, policy, NOW)


def test_the_score_is_seventy_thirty_of_two_shares() -> None:
    """Cosine as it is, BM25 divided by that of a memory that is well worded."""
    statistics = WordStatistics(100, 1000, {"rain": 2})
    best, other = rank([candidate(1, 0.5, rain=1), candidate(2, 0.6)], ["rain"], statistics, POLICY)
    assert (best.id, best.keyword) == (1, 1.0)
    assert (other.id, other.keyword) == (2, 0.0)
    assert [best.score, other.score] == pytest.approx([0.65, 0.42])


def test_bm25_is_okapi_with_the_statistics_of_the_relationship() -> None:
    """Checked against the formula written out, and divided by what was asked for, said once."""
    statistics = WordStatistics(50, 400, {"rain": 5, "boat": 1})
    first, second = candidate(1, 0, rain=2), candidate(2, 0, boat=1)
    ranked = rank([first, second], ["rain", "boat"], statistics, POLICY)

    def idf(spread: int) -> float:
        return math.log(1 + (50 - spread + 0.5) / (spread + 0.5))

    def okapi(frequency: int, spread: int) -> float:
        return idf(spread) * frequency * 2.5 / (frequency + 1.5 * (0.25 + 0.75 * 10 / 8))

    expected = {1: okapi(2, 5), 2: okapi(1, 1)}
    assert {each.id: each.keyword for each in ranked} == {
        number: pytest.approx(score / (idf(5) + idf(1)), abs=1e-4)
        for number, score in expected.items()
    }


def test_one_word_by_accident_is_not_the_whole_question() -> None:
    """What holds it comes after what means the same, though nothing else is worded better."""
    statistics = WordStatistics(1000, 10_000, {"upset": 3, "stomach": 4})
    asked = ["wave", "upset", "stomach"]
    meant, worded = candidate(1, 0.45), candidate(2, 0.2, upset=1)
    first, second = rank([meant, worded], asked, statistics, POLICY)
    assert (first.id, second.id) == (1, 2)
    assert second.keyword < 0.5


@given(
    st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 200), max_size=10),
    st.lists(st.sampled_from("abcdefghijklm"), min_size=1, max_size=30),
    st.lists(st.dictionaries(st.sampled_from("abcdefghij"), st.integers(1, 3)), max_size=8),
)
def test_a_keyword_share_is_no_larger_for_company(
    spread: dict[str, int], asked: list[str], memories: list[dict[str, int]]
) -> None:
    """Between 0 and 1, and never more beside others than alone."""
    statistics = WordStatistics(200, 2000, spread)
    candidates = [
        candidate(number, 0.5, **{word: n for word, n in memory.items() if word in spread})
        for number, memory in enumerate(memories)
    ]
    policy = dataclasses.replace(POLICY, limit=20)
    for each in rank(candidates, asked, statistics, policy):
        (alone,) = rank([candidates[each.id]], asked, statistics, policy)
        assert 0.0 <= each.keyword <= alone.keyword <= 1.0


def test_a_long_draft_is_measured_by_its_most_telling_words() -> None:
    """Nobody says all of it again: what holds the rarest of its words is well worded."""
    words = [f"word{number}" for number in range(30)]
    rare = words[:6]
    statistics = WordStatistics(1000, 10_000, {word: 2 if word in rare else 300 for word in words})
    (only,) = rank([candidate(1, 0.5, **dict.fromkeys(rare, 1))], words, statistics, POLICY)
    assert only.keyword == pytest.approx(1.0)


def test_words_count_also_where_hardly_anything_is_known() -> None:
    """A word that no memory holds is not taken to be rarer than the rarest there are."""
    (only,) = rank([candidate(1, 0, boat=1)], ["boat", "name"], WordStatistics(1, 10, {"boat": 1}))
    assert only.keyword == pytest.approx(0.5)


def test_what_stands_beside_a_good_memory_gains() -> None:
    """A share of the best of its session; what stands alone in one keeps its score."""
    best, beside = candidate(1, 0.8), changed(candidate(2, 0.3), session=1)
    other = candidate(3, 0.35)
    everything = dataclasses.replace(DEFAULT, min_share=0.0)
    ranked = rank([best, beside, other], [], WordStatistics(3, 30, {}), everything)
    assert [each.id for each in ranked] == [1, 2, 3]
    without = rank([best, other], [], WordStatistics(3, 30, {}))
    assert {each.id: each.score for each in without}.items() <= {
        each.id: each.score for each in ranked
    }.items()
    unmoved = dataclasses.replace(everything, session_weight=0.0)
    assert [each.id for each in rank([best, beside, other], [], NO_WORDS, unmoved)] == [1, 3, 2]


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
    policy = dataclasses.replace(POLICY, limit=limit)
    ranked = rank(candidates, ["rain"], WordStatistics(40, 400, {"rain": 20}), policy)
    scores = [each.score for each in ranked]
    assert len(ranked) == min(limit, len(candidates))
    assert scores == sorted(scores, reverse=True)
    assert all(0.0 <= score <= 1.0 for score in scores)


NO_WORDS = WordStatistics(2, 20, {})


def better(
    first: Candidate, second: Candidate, asked: ParsedQuery, policy: RecallPolicy = DEFAULT
) -> int:
    """Which of two comes first."""
    return rank_asked([first, second], asked, NO_WORDS, policy, NOW)[0].id


def test_significance_decides_between_equals() -> None:
    """And adds its weight, of all weights together."""
    first, second = candidate(1, 0.5), changed(candidate(2, 0.5), significance=0.9)
    ranked = rank([first, second], [], NO_WORDS)
    assert [each.id for each in ranked] == [2, 1]
    assert ranked[0].relevance == pytest.approx(0.35)
    assert ranked[0].score == pytest.approx((0.35 + 0.25 * 0.9) / 1.25, abs=1e-4)


def test_a_time_that_is_asked_for_speaks_for_what_was_said_then() -> None:
    """Softly: a much better match of another day still comes first."""
    then, other = candidate(5, 0.5), candidate(20, 0.55)
    asked = ParsedQuery((), times=(day_of(then.memory.created_at),))
    assert better(then, other, asked) == 5
    assert better(then, changed(other, cosine=0.95), asked) == 20


def test_a_memory_fits_the_time_it_tells_of() -> None:
    """Not only the day it was told."""
    told = changed(candidate(1, 0.5), happened=(NOW, NOW + timedelta(days=1)))
    asked = ParsedQuery((), times=(day_of(NOW),))
    assert better(told, changed(candidate(2, 0.5)), asked) == 1


def test_an_event_stands_for_its_time() -> None:
    """ "Before the wedding": what was said before the memory that tells of it."""
    wedding = changed(candidate(10, 0.4), matches={"wed": 1.0})
    asked = ParsedQuery(("wed",), anchors=(EventAnchor("before", ("wed",)),))
    ranked = rank_asked(
        [wedding, candidate(2, 0.5), candidate(30, 0.5)],
        asked,
        WordStatistics(3, 30, {"wed": 1}),
        DEFAULT,
        NOW,
    )
    order = [each.id for each in ranked]
    assert order.index(30) < order.index(2)


def test_what_no_longer_holds_comes_after_what_does() -> None:
    """Unless the past is asked about."""
    old = changed(candidate(9, 0.8), superseded=True)
    assert better(old, candidate(1, 0.6), ParsedQuery(())) == 1
    assert better(old, candidate(1, 0.6), ParsedQuery((), about_the_past=True)) == 9


def test_nothing_is_recalled_that_is_not_relevant_enough() -> None:
    """However significant it is."""
    loud = changed(candidate(1, 0.1), significance=1.0)
    assert rank([loud], [], NO_WORDS) == []


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
    decay: Decay, cosine: float, significance: float, age: int, what: str, more: float
) -> None:
    """Other things equal, for any two memories and every way to fade."""
    policy = dataclasses.replace(DEFAULT, decay=decay, min_score=0.0)
    base = changed(
        candidate(1, cosine, rain=1),
        significance=significance,
        created_at=NOW - timedelta(days=age),
    )
    better_by = {
        "cosine": min(1.0, cosine + more),
        "significance": min(1.0, significance + more),
        "created_at": base.memory.created_at + timedelta(days=300 * more),
        "last_used_at": base.memory.created_at + timedelta(days=300 * more),
        "matches": {"rain": 1 + 10 * more},
    }[what]
    rival = changed(base, id=2, **{what: better_by})
    asked = ParsedQuery(("rain",))
    ranked = rank_asked([base, rival], asked, WordStatistics(9, 90, {"rain": 2}), policy, NOW)
    assert ranked[0].id == 2


def test_only_what_is_near_the_best_comes_back() -> None:
    """However many may; a share of nothing lets all through."""
    cosines = (0.9, 0.7, 0.5, 0.3)
    found = [candidate(number, cosine) for number, cosine in enumerate(cosines, 1)]
    statistics = WordStatistics(10, 100, {})
    near = dataclasses.replace(POLICY, min_share=0.68)
    assert [each.id for each in rank(found, [], statistics, near)] == [1, 2]
    assert len(rank(found, [], statistics, POLICY)) == 4
    product = dataclasses.replace(near, decay="product")
    assert len(rank(found, [], statistics, product)) == 4


def test_what_candidates_score_that_have_nothing_to_do_with_it_is_noise() -> None:
    """Of many that are all half as good as the best, only those come back that stand out."""
    statistics = WordStatistics(10, 100, {})
    near = dataclasses.replace(POLICY, min_share=0.5)
    others = [candidate(number, 0.5) for number in range(3, 12)]
    found = [candidate(1, 0.9), candidate(2, 0.7), *others]
    assert [each.id for each in rank(found, [], statistics, near)] == [1, 2]
    assert len(rank(found, [], statistics, POLICY)) == 10
    few = [candidate(1, 0.9), candidate(2, 0.7)]
    assert len(rank(few, [], statistics, near)) == 2


def test_what_the_user_only_asked_is_no_answer() -> None:
    """Unless questions are asked about; the companion's questions, and statements, stay."""
    asked, told, hers = candidate(1, 0.9), candidate(2, 0.5), candidate(3, 0.4)
    found = [
        changed(asked, content="Where do I live?"),
        changed(told, content="I live in Porto. Do you like it?"),
        changed(hers, content="Where do you live?", speaker="companion"),
    ]
    statistics = WordStatistics(10, 100, {})
    assert [each.id for each in rank(found, [], statistics, POLICY)] == [2, 3]
    questions = ParsedQuery((), about_questions=True)
    ranked = rank_asked(found, questions, statistics, POLICY, NOW)
    assert [each.id for each in ranked] == [1, 2, 3]


def test_what_holds_now_comes_before_what_it_took_the_place_of() -> None:
    """However well the old words fit, unless the past is asked about."""
    old = changed(candidate(1, 0.9), superseded=True, superseded_by=2)
    found = [old, candidate(2, 0.2), candidate(3, 0.6)]
    statistics = WordStatistics(10, 100, {})
    assert [each.id for each in rank(found, [], statistics, POLICY)] == [2, 3, 1]
    past = rank_asked(found, ParsedQuery((), about_the_past=True), statistics, POLICY, NOW)
    assert [turn.id for turn in past] == [1, 3, 2]
