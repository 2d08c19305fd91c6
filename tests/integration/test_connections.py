"""Every connection is given back, whenever its client goes."""

import asyncio
import socket
import struct
from typing import Any

from foremind.domain.settings import load_settings
from foremind.gateway.transport.listener import listening
from foremind.runtime.metrics import Metrics
from tests.conftest import eventually

HEAD = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"
BODY = bytes(200_000)  # more than is taken in for an app that does not read it
RESET = struct.pack("ii", 1, 0)  # closing sends no more and waits for nothing


async def test_a_connection_that_is_reset_just_when_its_answer_ends_is_given_back() -> None:
    """It is not read just then, so the system would report no end of it."""
    answered, gone = asyncio.Event(), asyncio.Event()
    metrics = Metrics()

    async def refusing(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-length", b"8")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": b"too long", "more_body": True})
        answered.set()
        await gone.wait()
        await send({"type": "http.response.body", "body": b""})

    def connections() -> float | None:
        return metrics.registry.get_sample_value("foremind_tcp_connections")

    settings = load_settings(host="127.0.0.1", port=0)
    async with listening(refusing, settings, metrics=metrics) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + BODY)
        await answered.wait()
        assert connections() == 1
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
        await asyncio.sleep(0)  # only now is the socket closed
        gone.set()
        await eventually(lambda: connections() == 0)
