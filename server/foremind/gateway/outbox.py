"""What waits to be sent on one connection: bounded in bytes, written by one task at a time."""

import asyncio
import contextlib
from typing import Self

from starlette.websockets import WebSocket, WebSocketDisconnect

from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin

SLOW_READER = 4413
_GONE = 1006  # nobody is told: there is nobody


class Outbox:
    """Sends frames in order without ever making the sender wait.

    A reader so slow that more than `capacity` bytes would wait first loses telemetry, then its
    connection. Use as an async context manager: leaving it sends what it can, then closes.
    """

    def __init__(self, socket: WebSocket, capacity: int, metrics: Metrics) -> None:
        self._socket = socket
        self._capacity = capacity
        self._metrics = metrics
        self._frames: list[bytes] = []
        self._waiting = 0
        self._sending = False  # a writer that is cancelled before it begins would never close
        self._close: tuple[int, str] | None = None
        #: Writes while there is something to write: most connections are idle.
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close(1000, "")
        if self._writer is not None:
            await asyncio.gather(self._writer, return_exceptions=True)

    def put(self, frame: bytes, *, telemetry: bool = False) -> bool:
        """Queue a frame; after `close` it is ignored.

        Telemetry may take half of the room, and is dropped beyond that: then return False.
        """
        if self._close is not None:
            return True
        room = self._capacity // 2 if telemetry else self._capacity
        if self._waiting + len(frame) > room:
            if telemetry:
                self._metrics.dropped.labels("telemetry").inc()
                return False
            self._frames.clear()
            self.close(SLOW_READER, "reading too slowly")
            if self._writer is not None and self._sending:
                self._writer.cancel()
            return True
        self._frames.append(frame)
        self._waiting += len(frame)
        self._write_on()
        return True

    def close(self, code: int, reason: str) -> None:
        """Close the connection once what waits is sent; the first call decides."""
        if self._close is None:
            self._close = (code, reason)
            self._write_on()

    def _write_on(self) -> None:
        if self._writer is None:
            self._writer = begin(self._run(), "outbox")

    async def _run(self) -> None:
        try:
            # Only `put` cancels the writer, when it hangs on a reader that does not read.
            with contextlib.suppress(asyncio.CancelledError):
                await self._write()
            if self._close is not None:
                await self._socket.close(*self._close)
        except (WebSocketDisconnect, RuntimeError, OSError):
            self._close = self._close or (_GONE, "")
        finally:
            self._writer = None

    async def _write(self) -> None:
        while self._frames:
            frames, self._frames = self._frames, []
            for frame in frames:
                self._sending = True
                await self._socket.send_text(frame.decode())
                self._sending = False
                self._waiting -= len(frame)
