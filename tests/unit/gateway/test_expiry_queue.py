"""The expiry queue yields due items in order, whatever was set, changed and removed before."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.gateway.session_sweeper import ExpiryQueue

_STEPS = st.one_of(
    st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 20)),
    st.integers(0, 20),  # the current time
)


@given(st.lists(_STEPS, max_size=60))
def test_the_queue_agrees_with_a_plain_dictionary(
    steps: list[tuple[str, int | None] | int],
) -> None:
    """Earliest first; a changed item only at its new deadline."""
    queue: ExpiryQueue[str] = ExpiryQueue()
    deadlines: dict[str, float] = {}
    for step in steps:
        if isinstance(step, tuple):
            item, deadline = step
            queue.set(item, deadline)
            if deadline is None:
                deadlines.pop(item, None)
            else:
                deadlines[item] = deadline
        else:
            due = list(queue.pop_due(step))
            assert sorted(due) == sorted(name for name, at in deadlines.items() if at <= step)
            assert [deadlines[name] for name in due] == sorted(deadlines[name] for name in due)
            deadlines = {name: at for name, at in deadlines.items() if at > step}
        assert queue.earliest() == min(deadlines.values(), default=None)
        assert len(queue) == len(deadlines)


def test_changing_one_item_repeatedly_takes_constant_space() -> None:
    """A session that is checked every two seconds for a week leaves one entry."""
    queue: ExpiryQueue[str] = ExpiryQueue()
    for deadline in range(10_000):
        queue.set("a", deadline)
    assert len(queue._heap) < 32
