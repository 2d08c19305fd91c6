"""Events of a session are numbered without gaps, with or without a connection."""

import json
from typing import Any

from foremind.gateway.event_stream import MAX_REPLAY_EVENTS, EventStream
from foremind.gateway.protocol.server_events import (
    ContextReady,
    ContextTimings,
    ResponseCreated,
    ResponseDelta,
)
from foremind_eval.doubles.manual_clock import ManualClock


class RecordingListener:
    """A connection that records events; when `full`, it drops telemetry."""

    accepted = 0

    def __init__(self, *, full: bool = False) -> None:
        self.events: list[dict[str, Any]] = []
        self.full = full

    def put(self, frame: bytes, *, event: object = None, telemetry: bool = False) -> bool:
        """Record a frame."""
        if telemetry and self.full:
            return False
        self.events.append(json.loads(frame))
        return True

    def close(self, code: int, reason: str) -> None:
        """Nothing to close."""


def context() -> ContextReady:
    """Return a telemetry event."""
    return ContextReady(draft="x", trigger="pause", memories=[], timings=ContextTimings(1, 1, 1))


def test_dropped_telemetry_takes_no_number() -> None:
    """The client sees no gap."""
    stream, listener = EventStream(300.0, ManualClock()), RecordingListener(full=True)
    stream.attach(listener)
    stream.emit(context(), telemetry=True)
    stream.emit(ResponseCreated(response_id="r", message_id="m"))
    assert [event["seq"] for event in listener.events] == [1]


def test_a_long_undelivered_reply_is_kept_whole() -> None:
    """Its pieces are merged into few events, none of them large."""
    stream = EventStream(300.0, ManualClock())
    stream.attach(RecordingListener())
    stream.emit(ResponseCreated(response_id="r", message_id="m"))
    stream.emit(ResponseDelta(response_id="r", delta="delivered "))
    stream.attach(None)
    pieces = [f"piece {number} " for number in range(3000)]
    for piece in pieces:
        stream.emit(ResponseDelta(response_id="r", delta=piece))
    missed = stream.missed(2)
    assert missed is not None
    events = [json.loads(frame) for frame in missed]
    assert "".join(event["delta"] for event in events) == "".join(pieces)
    assert [event["seq"] for event in events] == list(range(3, 3 + len(events)))
    assert len(events) < MAX_REPLAY_EVENTS
    assert max(map(len, missed)) < 8192


async def test_a_piece_follows_one_that_is_no_longer_kept() -> None:
    """A model may pause for longer than events are kept, while nobody is connected."""
    clock = ManualClock()
    stream = EventStream(300.0, clock)
    stream.emit(ResponseDelta(response_id="r", delta="one"))
    await clock.advance(301.0)
    stream.prune()
    stream.emit(ResponseDelta(response_id="r", delta="two"))
    missed = stream.missed(1)
    assert missed is not None
    (event,) = map(json.loads, missed)
    assert (event["seq"], event["delta"]) == (2, "two")


def test_a_delivered_event_is_never_changed() -> None:
    """No piece is appended to one that may have been delivered, or to one of another reply."""
    stream, listener = EventStream(300.0, ManualClock()), RecordingListener()
    stream.attach(listener)
    stream.emit(ResponseDelta(response_id="r", delta="one"))
    stream.attach(None)
    stream.emit(ResponseDelta(response_id="r", delta="two"))
    stream.emit(ResponseDelta(response_id="s", delta="three"))
    missed = stream.missed(0)
    assert missed is not None
    assert [json.loads(frame)["delta"] for frame in missed] == ["one", "two", "three"]
    reconnected = RecordingListener()
    stream.attach(reconnected)
    stream.emit(ResponseDelta(response_id="s", delta="four"))
    assert reconnected.events[0]["seq"] == 4
