"""Events of a session: numbered without a gap, whoever listens."""

import json
from typing import Any

from foremind.gateway.event_stream import MOST_EVENTS, EventStream
from foremind.gateway.protocol.messages import (
    ContextReady,
    ContextTimings,
    ResponseCreated,
    ResponseDelta,
)
from foremind.testing.manual_clock import ManualClock


class Listening:
    """A connection that takes everything, or no telemetry."""

    def __init__(self, *, full: bool = False) -> None:
        self.heard: list[dict[str, Any]] = []
        self.full = full

    def put(self, frame: bytes, *, telemetry: bool = False) -> bool:
        """Take a frame."""
        if telemetry and self.full:
            return False
        self.heard.append(json.loads(frame))
        return True

    def close(self, code: int, reason: str) -> None:
        """Nothing to close."""


def context() -> ContextReady:
    """Telemetry."""
    return ContextReady(draft="x", trigger="pause", memories=[], timings=ContextTimings(1, 1, 1))


def test_telemetry_that_is_dropped_takes_no_number() -> None:
    """The client sees no gap."""
    stream, listener = EventStream(300.0, ManualClock()), Listening(full=True)
    stream.attach(listener)
    stream.emit(context(), telemetry=True)
    stream.emit(ResponseCreated(response_id="r", message_id="m"))
    assert [each["seq"] for each in listener.heard] == [1]


def test_a_long_reply_that_nobody_hears_stays_whole() -> None:
    """Its pieces become few events, none of them large."""
    stream = EventStream(300.0, ManualClock())
    stream.attach(Listening())
    stream.emit(ResponseCreated(response_id="r", message_id="m"))
    stream.emit(ResponseDelta(response_id="r", delta="heard "))
    stream.attach(None)
    pieces = [f"piece {number} " for number in range(3000)]
    for piece in pieces:
        stream.emit(ResponseDelta(response_id="r", delta=piece))
    missed = stream.missed(2)
    assert missed is not None
    events = [json.loads(each) for each in missed]
    assert "".join(event["delta"] for event in events) == "".join(pieces)
    assert [event["seq"] for event in events] == list(range(3, 3 + len(events)))
    assert len(events) < MOST_EVENTS
    assert max(map(len, missed)) < 8192


def test_what_was_heard_is_never_changed() -> None:
    """A piece that somebody may have had is not added to, nor one of another reply."""
    stream, listener = EventStream(300.0, ManualClock()), Listening()
    stream.attach(listener)
    stream.emit(ResponseDelta(response_id="r", delta="one"))
    stream.attach(None)
    stream.emit(ResponseDelta(response_id="r", delta="two"))
    stream.emit(ResponseDelta(response_id="s", delta="three"))
    missed = stream.missed(0)
    assert missed is not None
    assert [json.loads(each)["delta"] for each in missed] == ["one", "two", "three"]
    again = Listening()
    stream.attach(again)
    stream.emit(ResponseDelta(response_id="s", delta="four"))
    assert again.heard[0]["seq"] == 4
