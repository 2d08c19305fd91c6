"""When a draft is worth prefetching for before a pause."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind.text.languages.language_files import LANGUAGES
from foremind.typeahead.prefetch_policy import (
    ALLOWANCE_S,
    ALLOWANCE_S_PER_CHAR,
    DeferReason,
    Delays,
    PrefetchPolicy,
)

SHARES = {
    "i": 0.001, "am": 0.5, "here": 0.6, "her": 0.4, "the": 0.7, "comp": 0.004, "tim": 0.03,
    "re": 0.03, "hotel": 0.9, "don": 0.1,
}  # fmt: skip


def word_share(letters: str) -> float | None:
    """Shares as of a vocabulary in which all other short letters begin words."""
    return SHARES.get(letters.casefold(), 0.0 if len(letters) < 6 else None)


def typed(
    draft: str, spent: float = 0.0, utilization: float = 0.0
) -> tuple[Delays, DeferReason | None]:
    """What follows from a draft, after a share of the allowance was spent on its message."""
    policy = PrefetchPolicy(word_share)
    policy.typed(draft, 0.0, 0.5)
    policy.spent(spent * ALLOWANCE_S)
    return policy.typed(draft, utilization, 0.5, LANGUAGES["en"].leading_words)


@pytest.mark.parametrize(
    "draft",
    ["I am here", "I am here?", "I am here ", "I am in Foremind", "I like Tim", "I am here,",
     "at a hotel/", 'he said "hotel"', "*I am here*", "great 😀"],
)  # fmt: skip
@pytest.mark.parametrize("utilization", [0.0, 0.49])
def test_what_may_be_sent_is_prepared_before_a_hasty_enter(draft: str, utilization: float) -> None:
    """Some players press Enter 80 ms after the last letter: also after a name or a slip."""
    delays, reason = typed(draft, utilization=utilization)
    assert reason is None and delays.prefetch_s is not None and delays.prefetch_s < 0.07
    assert delays.settle_s == delays.prefetch_s and delays.pause_s == 0.5


@pytest.mark.parametrize(
    "draft",
    ["I am in the", "I am in the ", "I am a", "I", "I am in y", "I don'", "I am well-", "my ",
     'he said "', "I am (", "I am har", "I am harbo", "I am tim", "I am on Tue", "I am on Tues ",
     "I am with", "I don"],
)  # fmt: skip
def test_what_hardly_ends_a_message_waits_for_a_long_pause(draft: str) -> None:
    """After an article, within a word, where a quotation begins."""
    delays, reason = typed(draft)
    assert (delays.prefetch_s, delays.pause_s, reason) == (None, 1.5, None)


def test_a_message_of_three_words_has_a_context_though_another_one_follows() -> None:
    """Unless it had one before; the model may read it with what is recalled."""
    policy = PrefetchPolicy(word_share)
    leading_words = LANGUAGES["en"].leading_words
    assert policy.typed("I am", 0.0, 0.5, leading_words)[0].prefetch_s is not None
    for draft, prepared in (("in the", False), ("I won the ", True), ("I am at w", False)):
        first, _ = policy.typed(draft, 0.0, 0.5, leading_words)
        assert (first.prefetch_s is not None and 0.1 < first.prefetch_s < 0.2) == prepared


def test_beginnings_of_names_are_prepared_before_enter_at_200_ms() -> None:
    """As they may be abbreviations ("Tues"), while hardly any of the allowance is spent."""
    delays, _ = typed("I am on Tues")
    assert delays.prefetch_s is not None and 0.1 < delays.prefetch_s < 0.2
    assert typed("I am on Tues", spent=0.2)[1] == "allowance"
    assert typed("I am on Tues", utilization=0.5)[1] == "busy"


def test_what_is_not_prefetched_settles_as_well_but_not_within_a_word() -> None:
    """The model may read it; a hasty Enter comes after 80 ms."""
    for draft in ("I am here", "I am here?", "I am here ", "the Foremind"):
        delays, reason = typed(draft, spent=2.5)
        assert reason == "allowance" and delays.prefetch_s is None
        assert delays.settle_s is not None and delays.settle_s <= 0.08
    assert (
        typed("I am in the", spent=2.5)[0].settle_s == typed("I am in the")[0].settle_s is not None
    )
    assert typed("I am har")[0].settle_s is None


def test_a_small_allowance_is_reserved_for_likely_ends() -> None:
    """They may overdraw it; the next message has all of it."""
    assert typed("I am here", spent=1.4)[1] is None
    assert typed("I am here", spent=1.6)[1] == "allowance"
    assert typed("I am here.", spent=1.9)[1] is None
    assert typed("I am here.", spent=2.1)[1] == "allowance"
    policy = PrefetchPolicy(word_share)
    policy.spent(3 * ALLOWANCE_S)
    policy.begin()
    assert policy.typed("I am here", 0.0, 0.5)[1] is None


def test_the_busier_the_embedder_the_less_is_prefetched() -> None:
    """Later at first, then only at pauses."""
    found = [typed("I am here", utilization=load)[0] for load in (0.0, 0.49, 0.55, 0.7, 0.79)]
    delays = [delay.prefetch_s or 9 for delay in found]
    assert delays[0] == delays[1] and delays[1:] == sorted(set(delays)) and delays[-1] <= 0.14
    assert all(delay.settle_s is not None and delay.settle_s <= 0.08 for delay in found)
    assert typed("I am here", utilization=0.9)[1] == "busy"


@given(
    gaps=st.lists(st.floats(0.02, 2.0), min_size=1, max_size=80),
    cost=st.floats(0.0005, 0.02),
    share=st.none() | st.floats(0.0, 1.0),
)
def test_no_message_spends_more_than_its_allowance(
    gaps: list[float], cost: float, share: float | None
) -> None:
    """Except by half of it, and by the one prefetch that exhausted that."""
    policy = PrefetchPolicy(lambda _: share)
    spent = 0.0
    for index, gap in enumerate(gaps):
        delays, _ = policy.typed("a" * (index + 1), 0.0, 0.5)
        if delays.prefetch_s is not None and gap > delays.prefetch_s:
            policy.spent(cost)
            spent += cost
    assert spent <= 1.5 * ALLOWANCE_S + len(gaps) * ALLOWANCE_S_PER_CHAR + cost + 1e-9
