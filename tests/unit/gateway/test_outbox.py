"""What waits to be sent on one connection."""

import asyncio
from typing import Any

from starlette.websockets import WebSocket

from foremind.gateway.outbox import SLOW_READER, Outbox
from foremind.runtime.metrics import Metrics


class Wire:
    """A peer as ASGI shows it: takes what is sent, one message a turn, unless it is `stuck`."""

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


async def connected(wire: Wire) -> WebSocket:
    """Return an accepted connection to `wire`."""
    socket = WebSocket({"type": "websocket"}, wire.receive, wire.send)
    await socket.accept()
    wire.sent.clear()
    return socket


async def turns(count: int = 10) -> None:
    """Let everything else go on."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_frames_are_sent_in_order_whenever_they_come_and_then_it_is_closed() -> None:
    wire = Wire()
    async with Outbox(await connected(wire), 100, Metrics()) as outbox:
        outbox.put(b"1")
        outbox.put(b"2")
        await turns(2)
        outbox.put(b"3")
        await turns()
        outbox.put(b"4")
    assert wire.sent == ["1", "2", "3", "4", 1000]


async def test_an_idle_connection_has_no_task() -> None:
    wire = Wire()
    async with Outbox(await connected(wire), 100, Metrics()) as outbox:
        outbox.put(b"1")
        await turns()
        assert [task.get_name() for task in asyncio.all_tasks()].count("outbox") == 0


async def test_more_than_there_is_room_for_at_once_closes_before_anything_is_sent() -> None:
    wire = Wire()
    async with Outbox(await connected(wire), 100, Metrics()) as outbox:
        for _ in range(3):
            outbox.put(b"x" * 40)
        await turns()
        assert wire.sent == [SLOW_READER]


async def test_a_reader_that_does_not_read_is_closed_in_the_middle_of_a_frame() -> None:
    wire = Wire()
    async with Outbox(await connected(wire), 100, Metrics()) as outbox:
        wire.stuck = True
        outbox.put(b"x" * 40)
        await turns()
        for _ in range(3):
            outbox.put(b"x" * 40)
        await turns()
        assert wire.sent == [SLOW_READER]


async def test_telemetry_gives_way_first() -> None:
    wire = Wire()
    async with Outbox(await connected(wire), 100, Metrics()) as outbox:
        assert outbox.put(b"x" * 40, telemetry=True)
        assert not outbox.put(b"x" * 40, telemetry=True)
        assert outbox.put(b"y" * 40)
    assert wire.sent == ["x" * 40, "y" * 40, 1000]


async def test_what_comes_after_the_peer_is_gone_is_dropped() -> None:
    wire = Wire()

    async def gone(_: Any) -> None:
        raise OSError

    socket = await connected(wire)
    async with Outbox(socket, 100, Metrics()) as outbox:
        socket._send = gone
        outbox.put(b"1")
        await turns()
        outbox.put(b"2")
        await turns()
        assert not [task for task in asyncio.all_tasks() if task.get_name() == "outbox"]
    assert wire.sent == []
