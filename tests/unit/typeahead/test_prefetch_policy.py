"""When a draft is worth prefetching for before a pause."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.typeahead.prefetch_policy import ALLOWANCE_S, ALLOWANCE_S_PER_CHAR, PrefetchPolicy

WORDS = {"i", "am", "here", "harbour", "the"}


def typist(interval_s: float = 0.15, keys: int = 40) -> PrefetchPolicy:
    """The policy of a steady typist, with a full allowance."""
    policy = PrefetchPolicy(lambda letters: letters.casefold() in WORDS)
    for number in range(keys):
        policy.typed("x" * number, number * interval_s)
    policy.begin()
    return policy


def test_drafts_of_fast_typists_settle_sooner() -> None:
    """The settling time is slightly above the typist's usual interval."""
    fast, slow = typist(0.08).settle_s("I am here", 0.0), typist(0.4).settle_s("I am here", 0.0)
    assert isinstance(fast, float) and isinstance(slow, float)
    assert 0.08 <= fast < slow <= 0.14


def test_a_likely_end_of_a_message_settles_sooner() -> None:
    """A full stop before a space, a space before a word, a word before part of a word."""
    drafts = ("I am here.", "I am here ", "I am here", "I am her")
    delays = [typist().settle_s(draft, 0.0) for draft in drafts]
    assert all(isinstance(delay, float) for delay in delays)
    assert delays == sorted(set(delays))


def test_everything_settles_before_enter_at_200_ms() -> None:
    """Enter follows 150 to 300 ms after the last letter; even a rare word settles by then."""
    for draft in ("I am here", "I am here?", "the Foremind"):
        settled = typist(2.0).settle_s(draft, 0.0)
        assert isinstance(settled, float) and settled < 0.2


def test_a_small_allowance_is_reserved_for_likely_ends() -> None:
    """Parts of words are excluded first, then words; a sentence's end may overdraw it."""
    policy = typist()
    policy.spent(0.6 * ALLOWANCE_S)
    assert policy.settle_s("I am her", 0.0) == "allowance"
    assert isinstance(policy.settle_s("I am here", 0.0), float)
    policy.spent(0.5 * ALLOWANCE_S)
    assert policy.settle_s("I am here", 0.0) == "allowance"
    assert isinstance(policy.settle_s("I am here.", 0.0), float)
    policy.spent(0.5 * ALLOWANCE_S)
    assert policy.settle_s("I am here.", 0.0) == "allowance"
    policy.begin()
    assert isinstance(policy.settle_s("I am her", 0.0), float)


def test_the_busier_the_embedder_the_less_is_prefetched() -> None:
    """Parts of words are excluded first, then everything but pauses."""
    policy = typist(0.05)
    idle, busy = policy.settle_s("I am here", 0.0), policy.settle_s("I am here", 0.7)
    assert isinstance(idle, float) and isinstance(busy, float) and idle < busy
    assert policy.settle_s("I am her", 0.7) == "busy"
    assert policy.settle_s("I am here", 0.9) == "busy"


@given(
    gaps=st.lists(st.floats(0.02, 2.0), min_size=1, max_size=80),
    cost=st.floats(0.0005, 0.02),
    words=st.booleans(),
)
def test_no_message_spends_more_than_its_allowance(
    gaps: list[float], cost: float, words: bool
) -> None:
    """Except by the one prefetch that exhausted it."""
    policy = PrefetchPolicy(lambda _: words)
    now, spent = 0.0, 0.0
    for index, gap in enumerate(gaps):
        draft = "a" * (index + 1)
        policy.typed(draft, now)
        settle = policy.settle_s(draft, 0.0)
        if isinstance(settle, float) and gap > settle:
            policy.spent(cost)
            spent += cost
        now += gap
    assert spent <= ALLOWANCE_S + len(gaps) * ALLOWANCE_S_PER_CHAR + cost + 1e-9
