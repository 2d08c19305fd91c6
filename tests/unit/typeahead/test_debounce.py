"""Debouncing: a pause is reported after an idle time, and a settled draft possibly before."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.typeahead.prefetch_policy import (
    Debouncer,
    Delays,
    DraftSettled,
    PrefetchDue,
    TypingPaused,
    Wait,
)

PAUSE = Delays(0.5)


def test_a_new_debouncer_has_nothing_to_report() -> None:
    """Until something is typed."""
    assert Debouncer().poll(0.0) is None


def test_a_pause_is_reported_at_the_threshold() -> None:
    """At exactly the threshold, once."""
    debouncer = Debouncer()
    debouncer.typed("hello", 1.0, PAUSE)
    assert debouncer.poll(1.499) == Wait(1.5)
    assert debouncer.poll(1.5) == TypingPaused("hello")
    assert debouncer.poll(9.0) is None


def test_typing_on_moves_the_deadline() -> None:
    """Only the idle time after the last change counts."""
    debouncer = Debouncer()
    debouncer.typed("hel", 1.0, PAUSE)
    debouncer.typed("hello", 1.4, PAUSE)
    assert debouncer.poll(1.5) == Wait(1.9)
    assert debouncer.poll(1.9) == TypingPaused("hello")


def test_a_cleared_draft_never_pauses() -> None:
    """A discarded draft triggers nothing."""
    debouncer = Debouncer()
    debouncer.typed("hello", 1.0, PAUSE)
    debouncer.cleared()
    assert debouncer.poll(5.0) is None


def test_a_draft_settles_is_due_and_pauses_once_each() -> None:
    """Each at its time; what comes at one time, in this order."""
    debouncer = Debouncer()
    debouncer.typed("hello", 1.0, Delays(0.5, settle_s=0.125, prefetch_s=0.125))
    assert debouncer.poll(1.1) == Wait(1.125)
    assert debouncer.poll(1.125) == DraftSettled("hello")
    assert debouncer.poll(1.125) == PrefetchDue("hello")
    assert debouncer.poll(1.125) == Wait(1.5)
    assert debouncer.poll(1.5) == TypingPaused("hello")
    assert debouncer.poll(1.5) is None


def test_a_space_after_a_word_reports_nothing_twice() -> None:
    """The draft is the same; what was not reported yet waits again, as long as for the space."""
    debouncer = Debouncer()
    debouncer.typed("hello", 1.0, Delays(0.5, settle_s=0.125, prefetch_s=0.25))
    assert debouncer.poll(1.125) == DraftSettled("hello")
    debouncer.typed("hello", 1.25, Delays(0.5, settle_s=0.125, prefetch_s=0.25))
    assert debouncer.poll(1.4) == Wait(1.5)
    assert debouncer.poll(1.5) == PrefetchDue("hello")
    assert debouncer.poll(1.75) == TypingPaused("hello")
    debouncer.typed("hello", 2.0, Delays(0.5, settle_s=0.125))
    assert debouncer.poll(3.0) is None


def test_what_would_come_after_the_pause_is_not_reported() -> None:
    """Where the companion's pause is shorter than the settling time."""
    debouncer = Debouncer()
    debouncer.typed("hello", 1.0, Delays(0.125, settle_s=0.25, prefetch_s=0.125))
    assert debouncer.poll(1.2) == TypingPaused("hello")
    assert debouncer.poll(1.2) is None


@given(gaps=st.lists(st.floats(0.001, 3.0), min_size=1, max_size=40), pause=st.floats(0.05, 2.0))
def test_exactly_the_gaps_of_at_least_a_pause_are_reported(gaps: list[float], pause: float) -> None:
    """If polled at each deadline."""
    debouncer = Debouncer()
    now, reported, expected = 0.0, [], []
    for index, gap in enumerate([*gaps, pause + 1]):
        debouncer.typed(f"draft {index}", now, Delays(pause))
        following = now + gap
        if following >= now + pause:
            expected.append(f"draft {index}")
        while isinstance(decision := debouncer.poll(min(following, now + pause)), TypingPaused):
            reported.append(decision.draft)
        now = following
    assert reported == expected
