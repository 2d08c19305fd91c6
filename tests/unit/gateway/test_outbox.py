"""The send queue of one connection."""

import asyncio
from typing import Any

from starlette.websockets import WebSocket

from foremind.gateway.connection import SLOW_READER, Outbox
from foremind.runtime.metrics import Metrics


class Peer:
    """The ASGI side of a client; accepts one message per loop iteration, unless `stuck`."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.stuck = False

    async def send(self, message: Any) -> None:
        while self.stuck and message["type"] == "websocket.send":
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.sent.append(message.get("text", message.get("code")))

    async def receive(self) -> Any:
        return {"type": "websocket.connect"}


async def connected(peer: Peer) -> WebSocket:
    """Return an accepted connection to `peer`."""
    socket = WebSocket({"type": "websocket"}, peer.receive, peer.send)
    await socket.accept()
    peer.sent.clear()
    return socket


async def run_loop(iterations: int = 10) -> None:
    """Let other tasks run."""
    for _ in range(iterations):
        await asyncio.sleep(0)


async def test_frames_are_sent_in_order_before_the_close() -> None:
    peer = Peer()
    async with Outbox(await connected(peer), 100, Metrics()) as outbox:
        outbox.put(b"1")
        outbox.put(b"2")
        await run_loop(2)
        outbox.put(b"3")
        await run_loop()
        outbox.put(b"4")
    assert peer.sent == ["1", "2", "3", "4", 1000]


async def test_an_idle_connection_has_no_task() -> None:
    peer = Peer()
    async with Outbox(await connected(peer), 100, Metrics()) as outbox:
        outbox.put(b"1")
        await run_loop()
        assert [task.get_name() for task in asyncio.all_tasks()].count("outbox") == 0


async def test_an_overflow_closes_the_connection() -> None:
    peer = Peer()
    async with Outbox(await connected(peer), 100, Metrics()) as outbox:
        for _ in range(3):
            outbox.put(b"x" * 40)
        await run_loop()
        assert peer.sent == [SLOW_READER]


async def test_a_blocked_reader_is_closed_in_the_middle_of_a_frame() -> None:
    peer = Peer()
    async with Outbox(await connected(peer), 100, Metrics()) as outbox:
        peer.stuck = True
        outbox.put(b"x" * 40)
        await run_loop()
        for _ in range(3):
            outbox.put(b"x" * 40)
        await run_loop()
        assert peer.sent == [SLOW_READER]


async def test_telemetry_is_dropped_first() -> None:
    peer = Peer()
    async with Outbox(await connected(peer), 100, Metrics()) as outbox:
        assert outbox.put(b"x" * 40, telemetry=True)
        assert not outbox.put(b"x" * 40, telemetry=True)
        assert outbox.put(b"y" * 40)
    assert peer.sent == ["x" * 40, "y" * 40, 1000]


async def test_frames_after_a_lost_connection_are_dropped() -> None:
    peer = Peer()

    async def fail(_: Any) -> None:
        raise OSError

    socket = await connected(peer)
    async with Outbox(socket, 100, Metrics()) as outbox:
        socket._send = fail
        outbox.put(b"1")
        await run_loop()
        outbox.put(b"2")
        await run_loop()
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "outbox"]
    assert peer.sent == []
