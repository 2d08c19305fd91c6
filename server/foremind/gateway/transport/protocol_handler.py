"""The protocol spoken on a channel, as the channel sees it."""

import math
from typing import Any, Protocol

#: What `ProtocolHandler.step` returns, other than seconds to wait.
READ_MORE, HOLD, YIELD = None, math.inf, 0.0


class ProtocolHandler(Protocol):
    """The protocol spoken on a channel: HTTP, and WebSocket after an upgrade."""

    def step(self, unread: bytearray) -> float | None:
        """Consume one slice from the front of the unread bytes.

        Returns:
            READ_MORE if it needs more bytes, HOLD if it will call `Channel.resume_processing`,
            otherwise the seconds until it can consume more, YIELD being its next slice.
        """

    def buffered_bytes(self) -> int:
        """Return how many consumed bytes of an incomplete message it buffers."""

    def connection_made(self, transport: Any) -> None:
        """As in `asyncio.Protocol`, with the channel as the transport."""

    def connection_lost(self, exc: Exception | None) -> None:
        """As in `asyncio.Protocol`."""

    def pause_writing(self) -> None:
        """As in `asyncio.Protocol`."""

    def resume_writing(self) -> None:
        """As in `asyncio.Protocol`."""


class NoHandler:
    """Replaces the handler once the connection is lost, to break the reference cycle.

    Otherwise channels and handlers would wait for the cyclic garbage collector, and traversing tens
    of thousands of them stops the process for half a second.
    """

    def step(self, unread: bytearray) -> float | None:
        return HOLD

    def buffered_bytes(self) -> int:
        return 0

    def connection_made(self, transport: Any) -> None:
        pass

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def pause_writing(self) -> None:
        pass

    def resume_writing(self) -> None:
        pass


NO_HANDLER = NoHandler()
