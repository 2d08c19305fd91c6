"""A pause is a rest of 500 ms after the last change."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.typeahead.pause import Paused, PauseDetector, Wait


def test_nothing_typed_is_nothing_to_wait_for() -> None:
    """A fresh detector is idle."""
    assert PauseDetector(0.5).poll(0.0) is None


def test_a_rest_of_the_threshold_is_a_pause() -> None:
    """At exactly the threshold the draft is reported, once."""
    detector = PauseDetector(0.5)
    detector.typed("hello", 1.0)
    assert detector.poll(1.499) == Wait(1.5)
    assert detector.poll(1.5) == Paused("hello")
    assert detector.poll(9.0) is None


def test_typing_on_moves_the_deadline() -> None:
    """Only the rest after the last change counts."""
    detector = PauseDetector(0.5)
    detector.typed("hel", 1.0)
    detector.typed("hello", 1.4)
    assert detector.poll(1.5) == Wait(1.9)
    assert detector.poll(1.9) == Paused("hello")


def test_a_cleared_draft_never_pauses() -> None:
    """What was given up triggers nothing."""
    detector = PauseDetector(0.5)
    detector.typed("hello", 1.0)
    detector.cleared()
    assert detector.poll(5.0) is None


@given(gaps=st.lists(st.floats(0.001, 3.0), min_size=1, max_size=40), pause=st.floats(0.05, 2.0))
def test_every_rest_is_reported_once_and_no_hurry_is(gaps: list[float], pause: float) -> None:
    """Polling at each deadline reports exactly the drafts followed by a long enough rest."""
    detector = PauseDetector(pause)
    now, reported, expected = 0.0, [], []
    for index, gap in enumerate([*gaps, pause + 1]):
        detector.typed(f"draft {index}", now)
        following = now + gap
        if following >= now + pause:
            expected.append(f"draft {index}")
        while isinstance(decision := detector.poll(min(following, now + pause)), Paused):
            reported.append(decision.draft)
        now = following
    assert reported == expected
