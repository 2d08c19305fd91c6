"""What waits to be sent on one connection: bounded in bytes, written by one task."""

import asyncio
import contextlib
from collections import deque
from typing import Self

from starlette.websockets import WebSocket, WebSocketDisconnect

from foremind.metrics import Metrics

SLOW_READER = 4413


class Outbox:
    """Sends frames in order without ever making the sender wait.

    A reader so slow that more than `capacity` bytes would wait first loses telemetry, then its
    connection. Use as an async context manager: leaving it sends what it can, then closes.
    """

    def __init__(self, socket: WebSocket, capacity: int, metrics: Metrics) -> None:
        self._socket = socket
        self._capacity = capacity
        self._metrics = metrics
        self._frames: deque[bytes] = deque()
        self._waiting = 0
        self._wake = asyncio.Event()
        self._close: tuple[int, str] | None = None
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._writer = asyncio.create_task(self._run(), name="outbox")
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
            if self._writer is not None:
                self._writer.cancel()
            return True
        self._frames.append(frame)
        self._waiting += len(frame)
        self._wake.set()
        return True

    def close(self, code: int, reason: str) -> None:
        """Close the connection once what waits is sent; the first call decides."""
        if self._close is None:
            self._close = (code, reason)
            self._wake.set()

    async def _run(self) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError, OSError):
            # Only `put` cancels the writer, when it hangs on a reader that does not read.
            with contextlib.suppress(asyncio.CancelledError):
                await self._write()
            if self._close is not None:
                await self._socket.close(*self._close)

    async def _write(self) -> None:
        while True:
            while self._frames:
                frame = self._frames.popleft()
                await self._socket.send_text(frame.decode())
                self._waiting -= len(frame)
            if self._close is not None:
                return
            self._wake.clear()
            await self._wake.wait()
