"""Every connection is released, whenever its client disconnects."""

import asyncio
import socket
import struct
from typing import Any

from foremind.app.configuration import load_settings
from foremind.gateway.transport.listener import listening
from foremind.runtime.metrics import Metrics
from tests.conftest import eventually

HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"
BODY = bytes(200_000)  # more than the server buffers for an application that does not read it
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with timeout 0: close with a reset


async def test_a_connection_reset_at_the_end_of_its_response_is_released() -> None:
    """Reading is paused at that moment, so the event loop would not report the end."""
    response_started, client_gone = asyncio.Event(), asyncio.Event()
    metrics = Metrics()

    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"8")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": b"too long", "more_body": True})
        response_started.set()
        await client_gone.wait()
        await send({"type": "http.response.body", "body": b""})

    def connections() -> float | None:
        return metrics.registry.get_sample_value("foremind_tcp_connections")

    settings = load_settings(host="127.0.0.1", port=0)
    async with listening(refusing, settings, metrics=metrics) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + BODY)
        await response_started.wait()
        assert connections() == 1
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
        await asyncio.sleep(0)  # only now is the socket closed
        client_gone.set()
        await eventually(lambda: connections() == 0)
