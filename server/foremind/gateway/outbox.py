"""The send queue of one connection: bounded in bytes, written by at most one task."""

import asyncio
import contextlib
import itertools
from typing import Self

from starlette.websockets import WebSocket, WebSocketDisconnect

from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin

SLOW_READER = 4413
_ABNORMAL_CLOSURE = 1006  # RFC 6455: never sent on the wire
_connections = itertools.count()
_FRAMES_AT_ONCE = 64  # then other connections get their turn; a client that reads never blocks


class Outbox:
    """Sends frames in order without ever blocking the sender.

    A client that reads too slowly, so that more than `capacity` bytes would be queued, first loses
    telemetry, then its connection. Use as an async context manager: leaving it flushes the queue
    as far as possible, then closes the connection.
    """

    def __init__(self, socket: WebSocket, capacity: int, metrics: Metrics) -> None:
        self.accepted = next(_connections)
        self._socket = socket
        self._capacity = capacity
        self._metrics = metrics
        self._frames: list[bytes] = []
        self._queued_bytes = 0
        self._sending = False  # a writer cancelled before it starts would never close
        self._close: tuple[int, str] | None = None
        #: Exists only while there is something to write: most connections are idle.
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close(1000, "")
        if self._writer is not None:
            await asyncio.gather(self._writer, return_exceptions=True)

    def put(self, frame: bytes, *, telemetry: bool = False) -> bool:
        """Queue a frame; ignored after `close`.

        Telemetry may use half of the capacity and is dropped beyond that: then return False.
        """
        if self._close is not None:
            return True
        capacity = self._capacity // 2 if telemetry else self._capacity
        if self._queued_bytes + len(frame) > capacity:
            if telemetry:
                self._metrics.dropped.labels("telemetry").inc()
                return False
            self._frames.clear()
            self.close(SLOW_READER, "reading too slowly")
            if self._writer is not None and self._sending:
                self._writer.cancel()
            return True
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        self._ensure_writer()
        return True

    def close(self, code: int, reason: str) -> None:
        """Close the connection once the queue is sent; only the first call has an effect."""
        if self._close is None:
            self._close = (code, reason)
            self._ensure_writer()

    def _ensure_writer(self) -> None:
        if self._writer is None:
            self._writer = begin(self._run(), "outbox")

    async def _run(self) -> None:
        try:
            # Only `put` cancels the writer, when it is blocked by a client that does not read.
            with contextlib.suppress(asyncio.CancelledError):
                await self._write()
            if self._close is not None:
                await self._socket.close(*self._close)
        except (WebSocketDisconnect, RuntimeError, OSError):
            self._close = self._close or (_ABNORMAL_CLOSURE, "")
        finally:
            self._writer = None

    async def _write(self) -> None:
        while self._frames:
            frames, self._frames = self._frames, []
            for number, frame in enumerate(frames, 1):
                self._sending = True
                await self._socket.send_text(frame.decode())
                self._sending = False
                self._queued_bytes -= len(frame)
                if number % _FRAMES_AT_ONCE == 0:
                    await asyncio.sleep(0)
