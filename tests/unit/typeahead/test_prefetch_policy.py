"""When a draft is worth prefetching for before a pause."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.typeahead.prefetch_policy import ALLOWANCE_S, ALLOWANCE_S_PER_CHAR, PrefetchPolicy

SHARES = {"i": 0.001, "am": 0.5, "here": 0.6, "her": 0.4, "harbour": 1.0, "the": 0.7, "comp": 0.004}


def word_share(letters: str) -> float | None:
    """Shares as of a vocabulary in which all other short letters begin words."""
    return SHARES.get(letters.casefold(), 0.0 if len(letters) < 6 else None)


def policy_spent(seconds: float = 0.0) -> PrefetchPolicy:
    """The policy of a message that has spent some of its full allowance."""
    policy = PrefetchPolicy(word_share)
    policy.spent(seconds)
    return policy


def test_words_and_sentences_settle_before_a_hasty_enter_while_there_is_room() -> None:
    """Some players press Enter 80 ms after the last letter."""
    for draft in ("I am here", "I am here?", "I am here ", "the Foremind", "her"):
        settled = policy_spent().settle_s(draft, 0.49)
        assert isinstance(settled, float) and settled < 0.06


def test_a_likely_end_of_a_message_settles_sooner() -> None:
    """A full stop before a space, a space before a word, that before a name or a misspelling."""
    drafts = ("I am here.", "I am here ", "I am here", "I am in Foremind", "I am in Fore")
    delays = [policy_spent().settle_s(draft, 0.0) for draft in drafts]
    assert all(isinstance(delay, float) for delay in delays)
    assert delays == sorted(set(delays))


def test_letters_that_hardly_ever_end_a_word_are_part_of_one() -> None:
    """Though they are in the vocabulary: "comp" nearly always goes on."""
    assert policy_spent().settle_s("a comp", 0.0) == policy_spent().settle_s("a co", 0.0)


def test_everything_settles_before_enter_at_200_ms() -> None:
    """Even part of a word does, as long as nothing has been spent."""
    for draft in ("I am here", "I am here?", "the Foremind", "I am in Fore"):
        settled = policy_spent().settle_s(draft, 0.0)
        assert isinstance(settled, float) and settled < 0.2


def test_a_small_allowance_is_reserved_for_likely_ends() -> None:
    """Parts of words are excluded first, then unknown words; a sentence may overdraw it."""
    policy = policy_spent(0.2 * ALLOWANCE_S)
    assert policy.settle_s("I am har", 0.0) == "allowance"
    assert isinstance(policy.settle_s("the Foremind", 0.0), float)
    policy.spent(0.7 * ALLOWANCE_S)
    assert policy.settle_s("the Foremind", 0.0) == "allowance"
    assert policy.settle_s("I am here", 0.0) == policy_spent().settle_s("I am here", 0.0)
    policy.spent(0.2 * ALLOWANCE_S)
    assert policy.settle_s("I am here", 0.0) == "allowance"
    assert isinstance(policy.settle_s("I am here.", 0.0), float)
    policy.spent(0.5 * ALLOWANCE_S)
    assert policy.settle_s("I am here.", 0.0) == "allowance"
    policy.begin()
    assert isinstance(policy.settle_s("I am har", 0.0), float)


def test_the_busier_the_embedder_the_less_is_prefetched() -> None:
    """Parts of words and unknown words are excluded first, then everything but pauses."""
    policy = policy_spent()
    delays = [policy.settle_s("I am here", load) for load in (0.0, 0.49, 0.55, 0.7, 0.79)]
    assert all(isinstance(delay, float) and delay <= 0.14 for delay in delays)
    assert delays[0] == delays[1] and delays[1:] == sorted(set(delays))
    assert policy.settle_s("I am har", 0.5) == policy.settle_s("the Foremind", 0.5) == "busy"
    assert policy.settle_s("I am here", 0.9) == "busy"


def test_what_is_not_prefetched_settles_as_well_but_not_within_a_word() -> None:
    """The model may read it; a hasty Enter comes after 80 ms."""
    policy = policy_spent(2 * ALLOWANCE_S)
    assert policy.settle_s("I am here", 0.0) == "allowance"
    for draft in ("I am here", "I am here?", "I am here ", "the Foremind"):
        settled = policy.unprepared_settle_s(draft)
        assert settled is not None and settled <= 0.08
    assert policy.unprepared_settle_s("I am har") is None


@given(
    gaps=st.lists(st.floats(0.02, 2.0), min_size=1, max_size=80),
    cost=st.floats(0.0005, 0.02),
    share=st.none() | st.floats(0.0, 1.0),
)
def test_no_message_spends_more_than_its_allowance(
    gaps: list[float], cost: float, share: float | None
) -> None:
    """Except by the one prefetch that exhausted it."""
    policy = PrefetchPolicy(lambda _: share)
    spent = 0.0
    for index, gap in enumerate(gaps):
        draft = "a" * (index + 1)
        policy.typed(draft)
        settle = policy.settle_s(draft, 0.0)
        if isinstance(settle, float) and gap > settle:
            policy.spent(cost)
            spent += cost
    assert spent <= ALLOWANCE_S + len(gaps) * ALLOWANCE_S_PER_CHAR + cost + 1e-9
