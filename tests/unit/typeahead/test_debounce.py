"""A pause is a rest of 500 ms after the last change; a draft may settle before."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.typeahead.debounce import Debouncer, DraftSettled, TypingPaused, Wait


def test_nothing_typed_is_nothing_to_wait_for() -> None:
    """A fresh detector is idle."""
    assert Debouncer(0.5).poll(0.0) is None


def test_a_rest_of_the_threshold_is_a_pause() -> None:
    """At exactly the threshold the draft is reported, once."""
    detector = Debouncer(0.5)
    detector.typed("hello", 1.0)
    assert detector.poll(1.499) == Wait(1.5)
    assert detector.poll(1.5) == TypingPaused("hello")
    assert detector.poll(9.0) is None


def test_typing_on_moves_the_deadline() -> None:
    """Only the rest after the last change counts."""
    detector = Debouncer(0.5)
    detector.typed("hel", 1.0)
    detector.typed("hello", 1.4)
    assert detector.poll(1.5) == Wait(1.9)
    assert detector.poll(1.9) == TypingPaused("hello")


def test_a_cleared_draft_never_pauses() -> None:
    """What was given up triggers nothing."""
    detector = Debouncer(0.5)
    detector.typed("hello", 1.0)
    detector.cleared()
    assert detector.poll(5.0) is None


def test_a_draft_settles_once_and_pauses_after_that() -> None:
    """Both are told, each in its time."""
    detector = Debouncer(0.5)
    detector.typed("hello", 1.0, 0.12)
    assert detector.poll(1.1) == Wait(1.12)
    assert detector.poll(1.12) == DraftSettled("hello")
    assert detector.poll(1.12) == Wait(1.5)
    detector.settle_by(1.3)
    assert detector.poll(1.4) == Wait(1.5)
    assert detector.poll(1.5) == TypingPaused("hello")


def test_a_draft_may_settle_earlier_than_thought_but_not_later() -> None:
    """A space after it shows that a word was whole."""
    detector = Debouncer(0.5)
    detector.typed("harbour", 1.0, 0.18)
    detector.settle_by(1.15)
    detector.settle_by(1.4)
    assert detector.poll(1.1) == Wait(1.15)


def test_settling_after_the_pause_is_the_pause() -> None:
    """Where a companion's pause is shorter than a rest, there is one report."""
    detector = Debouncer(0.1)
    detector.typed("hello", 1.0, 0.12)
    assert detector.poll(1.2) == TypingPaused("hello")
    assert detector.poll(1.2) is None


@given(gaps=st.lists(st.floats(0.001, 3.0), min_size=1, max_size=40), pause=st.floats(0.05, 2.0))
def test_every_rest_is_reported_once_and_no_hurry_is(gaps: list[float], pause: float) -> None:
    """Polling at each deadline reports exactly the drafts followed by a long enough rest."""
    detector = Debouncer(pause)
    now, reported, expected = 0.0, [], []
    for index, gap in enumerate([*gaps, pause + 1]):
        detector.typed(f"draft {index}", now)
        following = now + gap
        if following >= now + pause:
            expected.append(f"draft {index}")
        while isinstance(decision := detector.poll(min(following, now + pause)), TypingPaused):
            reported.append(decision.draft)
        now = following
    assert reported == expected
