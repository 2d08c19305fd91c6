"""uvicorn's WebSocket protocol with Foremind's close codes and hard ends."""

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

HEARTBEAT_LOST = 4408
_ABORT_S = 10.0


class ForemindProtocol(WebSocketsSansIOProtocol):
    """Closes with 4408 when pings go unanswered, and never waits for a peer that does not read."""

    def keepalive_timeout(self) -> None:
        """End a connection whose peer no longer answers."""
        self.pong_timer = None
        self.pending_ping_payload = None
        if self.close_sent or self.transport.is_closing():
            return
        self.conn.fail(HEARTBEAT_LOST, "heartbeat lost")
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        # A peer that is gone will not read the close frame: do not wait for it.
        self.loop.call_later(1.0, self.transport.abort)

    async def send(self, message: Any) -> None:
        """Send as uvicorn does, but let a close overtake frames that wait for a slow reader."""
        closing = message["type"] == "websocket.close"
        if closing:
            self.writable.set()
        await super().send(message)
        if closing:
            self.loop.call_later(_ABORT_S, self.transport.abort)
