"""Where frames begin and end, and how many may come."""

from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from foremind.gateway.transport.frame_limits import (
    FramePiece,
    FrameRateLimit,
    FrameSplitter,
    opcode,
)

MOST = 65_536
TEXT, FRAGMENT, CONTINUATION, LAST, PING, PONG = 0x81, 0x01, 0x00, 0x80, 0x89, 0x8A

frames = st.builds(
    Frame,
    st.sampled_from([Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PING, Opcode.PONG]),
    st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536]).map(bytes),
    st.booleans(),
).map(lambda frame: frame if frame.opcode < 8 else Frame(frame.opcode, frame.data[:125]))


def split(splitter: FrameSplitter, stream: bytes, cuts: list[int]) -> list[bytes]:
    """The frames of a stream that comes in portions."""
    found: list[bytes] = []
    unread = bytearray()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        unread += stream[start:end]
        while unread and (piece := splitter.next(unread)) is not None:
            taken = bytes(unread[: piece.size])
            del unread[: piece.size]
            if piece.first is None:
                found[-1] += taken
            else:
                assert taken[0] == piece.first
                found.append(taken)
    assert not unread
    return found


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 400), max_size=6))
def test_a_stream_is_cut_where_its_frames_end(sent: list[Frame], cuts: list[int]) -> None:
    """However it comes in, whatever their length."""
    written = [each.serialize(mask=True) for each in sent]
    stream = b"".join(written)
    at = sorted(min(cut, len(stream)) for cut in cuts)
    assert split(FrameSplitter(MOST), stream, at) == written


def test_of_a_frame_that_is_too_long_only_the_head_is_taken() -> None:
    """That is enough for a parser to refuse it."""
    stream = Frame(Opcode.TEXT, bytes(MOST + 1)).serialize(mask=True)
    assert FrameSplitter(MOST).next(stream) == FramePiece(14, TEXT)


def pressed(first: int, size: int = 6, gap_s: float = 0.0, most: int = 100_000) -> int | None:
    """How many such frames are taken from one who does not wait; None: all of them."""
    pace, now = FrameRateLimit(1_000_000), 0.0
    for number in range(most):
        now += pace.wait(now) + gap_s
        if not pace.take(FramePiece(size, first), gap_s, now):
            return number
    return None


def test_whoever_presses_on_with_frames_that_are_no_messages_is_given_up() -> None:
    """Whatever their kind: each kind counts."""
    for first in (PING, PONG, FRAGMENT, CONTINUATION, 0x02, 0x88 + 3):
        assert (taken := pressed(first)) is not None, hex(first)
        assert taken < 300


def test_bytes_count_whatever_they_are_part_of() -> None:
    """Also those of whole messages, and of a frame that goes on."""
    assert (taken := pressed(TEXT, 16_384)) is not None
    assert taken * 16_384 < 8_000_000
    pace, now = FrameRateLimit(1000), 0.0
    assert pace.take(FramePiece(4000, None), 0.0, now)
    assert pace.take(FramePiece(500, None), 0.0, now)
    assert pace.wait(now) == 0.5


def test_an_honest_client_is_never_slowed() -> None:
    """A ping a second, or messages as fast as they are allowed."""
    for first, gap_s in ((PING, 1.0), (PONG, 20.0), (TEXT, 1 / 60)):
        pace, now = FrameRateLimit(1_000_000), 0.0
        for _ in range(5000):
            assert pace.wait(now) == 0.0
            assert pace.take(FramePiece(200, first), gap_s, now)
            now += gap_s


def test_a_message_has_only_so_many_fragments() -> None:
    """However slowly they come."""
    assert pressed(CONTINUATION, gap_s=10.0) == 256
    pace = FrameRateLimit(1_000_000)
    for number in range(2000):
        first = LAST if number % 200 == 199 else CONTINUATION
        assert pace.take(FramePiece(6, first), 10.0, 10.0 * number)


def test_the_opcode_is_told_whether_a_frame_is_the_last_or_not() -> None:
    """Its first bit says something else."""
    assert [opcode(each) for each in (TEXT, FRAGMENT, PING)] == [1, 1, 9]
