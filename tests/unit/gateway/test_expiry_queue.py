"""What is due comes in order, whatever was set, changed and taken away before."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.gateway.expiry_queue import ExpiryQueue

_STEPS = st.one_of(
    st.tuples(st.sampled_from("abcdef"), st.none() | st.integers(0, 20)),
    st.integers(0, 20),  # time goes by
)


@given(st.lists(_STEPS, max_size=60))
def test_what_is_due_is_what_a_plain_table_says(steps: list[tuple[str, int | None] | int]) -> None:
    """The earliest first; what was changed meanwhile at its new time only."""
    timetable: ExpiryQueue[str] = ExpiryQueue()
    plain: dict[str, float] = {}
    for step in steps:
        if isinstance(step, tuple):
            item, when = step
            timetable.set(item, when)
            if when is None:
                plain.pop(item, None)
            else:
                plain[item] = when
        else:
            taken = list(timetable.take(step))
            assert sorted(taken) == sorted(name for name, when in plain.items() if when <= step)
            assert [plain[name] for name in taken] == sorted(plain[name] for name in taken)
            plain = {name: when for name, when in plain.items() if when > step}
        assert timetable.first() == min(plain.values(), default=None)
        assert len(timetable) == len(plain)


def test_changing_one_item_again_and_again_takes_no_room() -> None:
    """A session that is looked at every two seconds for a week leaves one entry."""
    timetable: ExpiryQueue[str] = ExpiryQueue()
    for when in range(10_000):
        timetable.set("a", when)
    assert len(timetable._queue) < 32
