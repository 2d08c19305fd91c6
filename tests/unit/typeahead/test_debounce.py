"""Debouncing: a pause is reported after an idle time, and a settled draft possibly before."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.typeahead.debounce import Debouncer, DraftSettled, TypingPaused, Wait


def test_a_new_debouncer_has_nothing_to_report() -> None:
    """Until something is typed."""
    assert Debouncer(0.5).poll(0.0) is None


def test_a_pause_is_reported_at_the_threshold() -> None:
    """At exactly the threshold, once."""
    debouncer = Debouncer(0.5)
    debouncer.typed("hello", 1.0)
    assert debouncer.poll(1.499) == Wait(1.5)
    assert debouncer.poll(1.5) == TypingPaused("hello")
    assert debouncer.poll(9.0) is None


def test_typing_on_moves_the_deadline() -> None:
    """Only the idle time after the last change counts."""
    debouncer = Debouncer(0.5)
    debouncer.typed("hel", 1.0)
    debouncer.typed("hello", 1.4)
    assert debouncer.poll(1.5) == Wait(1.9)
    assert debouncer.poll(1.9) == TypingPaused("hello")


def test_a_cleared_draft_never_pauses() -> None:
    """A discarded draft triggers nothing."""
    debouncer = Debouncer(0.5)
    debouncer.typed("hello", 1.0)
    debouncer.cleared()
    assert debouncer.poll(5.0) is None


def test_a_draft_settles_once_and_pauses_after_that() -> None:
    """Both are reported, each at its time."""
    debouncer = Debouncer(0.5)
    debouncer.typed("hello", 1.0, 0.12)
    assert debouncer.poll(1.1) == Wait(1.12)
    assert debouncer.poll(1.12) == DraftSettled("hello")
    assert debouncer.poll(1.12) == Wait(1.5)
    debouncer.settle_by(1.3)
    assert debouncer.poll(1.4) == Wait(1.5)
    assert debouncer.poll(1.5) == TypingPaused("hello")


def test_settling_may_be_moved_earlier_but_not_later() -> None:
    """As when a space shows that a word is complete."""
    debouncer = Debouncer(0.5)
    debouncer.typed("harbour", 1.0, 0.18)
    debouncer.settle_by(1.15)
    debouncer.settle_by(1.4)
    assert debouncer.poll(1.1) == Wait(1.15)


def test_a_draft_that_would_settle_after_the_pause_is_reported_once() -> None:
    """As paused, where the companion's pause is shorter than the settling time."""
    debouncer = Debouncer(0.1)
    debouncer.typed("hello", 1.0, 0.12)
    assert debouncer.poll(1.2) == TypingPaused("hello")
    assert debouncer.poll(1.2) is None


@given(gaps=st.lists(st.floats(0.001, 3.0), min_size=1, max_size=40), pause=st.floats(0.05, 2.0))
def test_exactly_the_gaps_of_at_least_a_pause_are_reported(gaps: list[float], pause: float) -> None:
    """If polled at each deadline."""
    debouncer = Debouncer(pause)
    now, reported, expected = 0.0, [], []
    for index, gap in enumerate([*gaps, pause + 1]):
        debouncer.typed(f"draft {index}", now)
        following = now + gap
        if following >= now + pause:
            expected.append(f"draft {index}")
        while isinstance(decision := debouncer.poll(min(following, now + pause)), TypingPaused):
            reported.append(decision.draft)
        now = following
    assert reported == expected
