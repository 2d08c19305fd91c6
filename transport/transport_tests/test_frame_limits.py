"""WebSocket frame boundaries and rate limits."""

from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from fair_transport.websocket_protocol import (
    FramePiece,
    FrameRateLimit,
    FrameSplitter,
    opcode,
)

MAX_FRAME = 65_536
TEXT, FRAGMENT, CONTINUATION, LAST, PING, PONG = 0x81, 0x01, 0x00, 0x80, 0x89, 0x8A

frames = st.builds(
    Frame,
    st.sampled_from([Opcode.TEXT, Opcode.BINARY, Opcode.CONT, Opcode.PING, Opcode.PONG]),
    st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536]).map(bytes),
    st.booleans(),
).map(lambda frame: frame if frame.opcode < 8 else Frame(frame.opcode, frame.data[:125]))


def split(splitter: FrameSplitter, stream: bytes, cuts: list[int]) -> list[bytes]:
    """The frames of a stream that arrives in several chunks."""
    received: list[bytes] = []
    unread = bytearray()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        unread += stream[start:end]
        while unread and (piece := splitter.next(unread)) is not None:
            data = bytes(unread[: piece.size])
            del unread[: piece.size]
            if piece.first is None:
                received[-1] += data
            else:
                assert data[0] == piece.first
                received.append(data)
    assert not unread
    return received


@given(st.lists(frames, max_size=6), st.lists(st.integers(0, 400), max_size=6))
def test_a_stream_is_split_at_frame_boundaries(sent: list[Frame], cuts: list[int]) -> None:
    """For all frame lengths and all chunk boundaries."""
    serialized = [frame.serialize(mask=True) for frame in sent]
    stream = b"".join(serialized)
    positions = sorted(min(cut, len(stream)) for cut in cuts)
    assert split(FrameSplitter(MAX_FRAME), stream, positions) == serialized


def test_only_the_header_of_an_oversized_frame_is_returned() -> None:
    """It is enough for a parser to reject the frame."""
    stream = Frame(Opcode.TEXT, bytes(MAX_FRAME + 1)).serialize(mask=True)
    assert FrameSplitter(MAX_FRAME).next(stream) == FramePiece(14, TEXT)


def frames_until_closed(
    first: int, size: int = 6, gap_s: float = 0.0, count: int = 100_000
) -> int | None:
    """How many frames a sender gets through before the limit closes it; None for all."""
    limit, now = FrameRateLimit(1_000_000), 0.0
    for number in range(count):
        now += limit.wait(now) + gap_s
        if not limit.take(FramePiece(size, first), gap_s, now):
            return number
    return None


def test_a_flood_of_frames_that_complete_no_message_is_closed() -> None:
    """For every kind of frame."""
    for first in (PING, PONG, FRAGMENT, CONTINUATION, 0x02, 0x88 + 3):
        assert (accepted := frames_until_closed(first)) is not None, hex(first)
        assert accepted < 300


def test_all_bytes_count() -> None:
    """Including those of complete messages, and of continued frames."""
    assert (accepted := frames_until_closed(TEXT, 16_384)) is not None
    assert accepted * 16_384 < 8_000_000
    limit, now = FrameRateLimit(1000), 0.0
    assert limit.take(FramePiece(4000, None), 0.0, now)
    assert limit.take(FramePiece(500, None), 0.0, now)
    assert limit.wait(now) == 0.5


def test_a_client_within_the_limits_is_never_throttled() -> None:
    """A ping per second, or messages at the allowed rate."""
    for first, gap_s in ((PING, 1.0), (PONG, 20.0), (TEXT, 1 / 60)):
        limit, now = FrameRateLimit(1_000_000), 0.0
        for _ in range(5000):
            assert limit.wait(now) == 0.0
            assert limit.take(FramePiece(200, first), gap_s, now)
            now += gap_s


def test_the_number_of_fragments_of_a_message_is_limited() -> None:
    """However slowly they arrive."""
    assert frames_until_closed(CONTINUATION, gap_s=10.0) == 256
    limit = FrameRateLimit(1_000_000)
    for number in range(2000):
        first = LAST if number % 200 == 199 else CONTINUATION
        assert limit.take(FramePiece(6, first), 10.0, 10.0 * number)


def test_the_opcode_ignores_the_fin_bit() -> None:
    """A final and a non-final frame have the same opcode."""
    assert [opcode(first) for first in (TEXT, FRAGMENT, PING)] == [1, 1, 9]
