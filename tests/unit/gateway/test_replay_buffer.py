"""What a client that comes back is given."""

from hypothesis import given
from hypothesis import strategies as st

from foremind.gateway.replay_buffer import ReplayBuffer


def frames(buffer: ReplayBuffer, seq: int, now: float = 0.0) -> list[int] | None:
    """The numbers of what came after `seq`."""
    missed = buffer.after(seq, now)
    return None if missed is None else [int(each) for each in missed]


def test_everything_after_a_number_is_given_in_order() -> None:
    """And nothing where nothing was missed."""
    buffer = ReplayBuffer(10, 1000, 60.0)
    for seq in range(1, 5):
        buffer.add(seq, str(seq).encode(), 0.0)
    assert frames(buffer, 0) == [1, 2, 3, 4]
    assert frames(buffer, 2) == [3, 4]
    assert frames(buffer, 4) == []


def test_what_was_never_sent_was_not_missed() -> None:
    """A client that claims to have more than there is has something else."""
    buffer = ReplayBuffer(10, 1000, 60.0)
    buffer.add(1, b"1", 0.0)
    assert frames(buffer, 2) is None


def test_a_gap_is_never_passed_over() -> None:
    """Too many events, too many bytes, too long ago: then nothing is given at all."""
    few = ReplayBuffer(2, 1000, 60.0)
    small = ReplayBuffer(10, 2, 60.0)
    brief = ReplayBuffer(10, 1000, 60.0)
    for seq in range(1, 4):
        for buffer in (few, small, brief):
            buffer.add(seq, str(seq).encode(), 30.0 * seq)
    assert frames(few, 0, 90.0) is None
    assert frames(few, 1, 90.0) == [2, 3]
    assert frames(small, 0, 90.0) is None
    assert frames(brief, 0, 90.0) is None
    assert frames(brief, 1, 90.0) == [2, 3]
    assert frames(brief, 3, 9000.0) == []


@given(
    st.lists(st.tuples(st.integers(1, 40), st.floats(0, 30)), max_size=60),
    st.integers(0, 80),
)
def test_what_is_given_is_whole(events: list[tuple[int, float]], seq: int) -> None:
    """From the number asked for to the newest, or nothing; and within the bounds."""
    buffer, now = ReplayBuffer(16, 200, 60.0), 0.0
    for number, (size, later) in enumerate(events, 1):
        now += later
        buffer.add(number, str(number).encode().rjust(size, b"0"), now)
    given_ = frames(buffer, seq, now)
    if given_ is not None:
        assert given_ == list(range(seq + 1, len(events) + 1))
        assert len(given_) <= 16
    else:
        assert seq > len(events) or len(events) - seq > 0
