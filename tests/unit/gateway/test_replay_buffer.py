"""The replay buffer returns all missed events, or none."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.gateway.event_stream import ReplayBuffer


def replayed(buffer: ReplayBuffer, seq: int, now: float = 0.0) -> list[int] | None:
    """Return the numbers of the events after `seq`."""
    missed = buffer.after(seq, now)
    return None if missed is None else [int(frame) for frame in missed]


def test_all_later_events_are_returned_in_order() -> None:
    """And none if none were missed."""
    buffer = ReplayBuffer(10, 1000, 60.0)
    for seq in range(1, 5):
        buffer.add(seq, str(seq).encode(), 0.0)
    assert replayed(buffer, 0) == [1, 2, 3, 4]
    assert replayed(buffer, 2) == [3, 4]
    assert replayed(buffer, 4) == []


def test_an_unknown_seq_is_refused() -> None:
    """A client that claims more events than there are had another session."""
    buffer = ReplayBuffer(10, 1000, 60.0)
    buffer.add(1, b"1", 0.0)
    assert replayed(buffer, 2) is None


def test_events_are_never_returned_with_a_gap() -> None:
    """Too many events, too many bytes, too old: then nothing is returned at all."""
    few = ReplayBuffer(2, 1000, 60.0)
    small = ReplayBuffer(10, 2, 60.0)
    brief = ReplayBuffer(10, 1000, 60.0)
    for seq in range(1, 4):
        for buffer in (few, small, brief):
            buffer.add(seq, str(seq).encode(), 30.0 * seq)
    assert replayed(few, 0, 90.0) is None
    assert replayed(few, 1, 90.0) == [2, 3]
    assert replayed(small, 0, 90.0) is None
    assert replayed(brief, 0, 90.0) is None
    assert replayed(brief, 1, 90.0) == [2, 3]
    assert replayed(brief, 3, 9000.0) == []


@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0, 30)), max_size=60),
    st.integers(0, 80),
)
def test_the_replay_is_complete_and_within_bounds(
    events: list[tuple[int, float]], seq: int
) -> None:
    """From the requested number to the newest, or nothing."""
    buffer, now = ReplayBuffer(16, 200, 60.0), 0.0
    for number, (size, gap_s) in enumerate(events, 1):
        now += gap_s
        buffer.add(number, str(number).encode().rjust(size, b"0"), now)
    numbers = replayed(buffer, seq, now)
    if numbers is not None:
        assert numbers == list(range(seq + 1, len(events) + 1))
        assert len(numbers) <= 16
    else:
        assert seq > len(events) or len(events) - seq > 0
