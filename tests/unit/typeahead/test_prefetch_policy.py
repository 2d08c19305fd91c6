"""When a draft is worth preparing for before the pause."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.typeahead.prefetch_policy import ALLOWANCE_S, ALLOWANCE_S_PER_CHAR, PrefetchPolicy

WORDS = {"i", "am", "here", "harbour", "the"}


def typist(interval_s: float = 0.15, keys: int = 40) -> PrefetchPolicy:
    """Someone who has typed at a steady pace, with the whole allowance left."""
    eagerness = PrefetchPolicy(lambda letters: letters.casefold() in WORDS)
    for number in range(keys):
        eagerness.typed("x" * number, number * interval_s)
    eagerness.begin()
    return eagerness


def test_whoever_types_faster_is_waited_for_less() -> None:
    """The rest that counts is a little more than this typist's usual one."""
    fast, slow = typist(0.08).settle_s("I am here", 0.0), typist(0.4).settle_s("I am here", 0.0)
    assert isinstance(fast, float) and isinstance(slow, float)
    assert 0.08 <= fast < slow <= 0.14


def test_an_end_of_a_sentence_or_word_is_believed_earlier() -> None:
    """A full stop settles before a space, that before a word, that before half a word."""
    drafts = ("I am here.", "I am here ", "I am here", "I am her")
    rests = [typist().settle_s(draft, 0.0) for draft in drafts]
    assert all(isinstance(rest, float) for rest in rests)
    assert rests == sorted(set(rests))


def test_everything_settles_before_enter_at_200_ms() -> None:
    """Enter comes 150 to 300 ms after the last letter; after a rare word just in time."""
    for draft in ("I am here", "I am here?", "the Foremind"):
        settled = typist(2.0).settle_s(draft, 0.0)
        assert isinstance(settled, float) and settled < 0.2


def test_the_less_is_left_of_the_allowance_the_likelier_an_end_must_be() -> None:
    """Half words go first, then words; an ended sentence may even owe a little."""
    eagerness = typist()
    eagerness.spent(0.6 * ALLOWANCE_S)
    assert eagerness.settle_s("I am her", 0.0) == "allowance"
    assert isinstance(eagerness.settle_s("I am here", 0.0), float)
    eagerness.spent(0.5 * ALLOWANCE_S)
    assert eagerness.settle_s("I am here", 0.0) == "allowance"
    assert isinstance(eagerness.settle_s("I am here.", 0.0), float)
    eagerness.spent(0.5 * ALLOWANCE_S)
    assert eagerness.settle_s("I am here.", 0.0) == "allowance"
    eagerness.begin()
    assert isinstance(eagerness.settle_s("I am her", 0.0), float)


def test_the_busier_the_embedder_the_less_settles() -> None:
    """First half words go, then all; at full load only pauses are left."""
    eagerness = typist(0.05)
    idle, busy = eagerness.settle_s("I am here", 0.0), eagerness.settle_s("I am here", 0.7)
    assert isinstance(idle, float) and isinstance(busy, float) and idle < busy
    assert eagerness.settle_s("I am her", 0.7) == "busy"
    assert eagerness.settle_s("I am here", 0.9) == "busy"


@given(
    gaps=st.lists(st.floats(0.02, 2.0), min_size=1, max_size=80),
    cost=st.floats(0.0005, 0.02),
    words=st.booleans(),
)
def test_no_message_spends_more_than_its_allowance(
    gaps: list[float], cost: float, words: bool
) -> None:
    """But for the one preparation that used the last of it up."""
    eagerness = PrefetchPolicy(lambda _: words)
    now, spent = 0.0, 0.0
    for index, gap in enumerate(gaps):
        draft = "a" * (index + 1)
        eagerness.typed(draft, now)
        settle = eagerness.settle_s(draft, 0.0)
        if isinstance(settle, float) and gap > settle:
            eagerness.spent(cost)
            spent += cost
        now += gap
    assert spent <= ALLOWANCE_S + len(gaps) * ALLOWANCE_S_PER_CHAR + cost + 1e-9
