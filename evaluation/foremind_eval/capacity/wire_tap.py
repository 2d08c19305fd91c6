"""A TCP proxy that counts bytes and round trips, and looks at nothing."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from foremind.runtime.supervision import begin, stop

_PIECE = 65_536

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@dataclass
class Traffic:
    """What went through: bytes of both directions, and how often a request followed a response."""

    port: int = 0
    bytes: int = 0
    round_trips: int = 0


@asynccontextmanager
async def wire_tap(connect: Connect) -> AsyncIterator[Traffic]:
    """Forward connections from a free port of this machine to what `connect` returns."""
    traffic = Traffic()
    forwarding: set[asyncio.Task[None]] = set()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        forwarding.add(task)
        try:
            await _forward(traffic, reader, writer, connect)
        finally:
            forwarding.discard(task)

    server = await asyncio.start_server(forward, "127.0.0.1")
    traffic.port = server.sockets[0].getsockname()[1]
    try:
        yield traffic
    finally:
        server.close()
        await stop(*forwarding)


async def _forward(
    traffic: Traffic,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    connect: Connect,
) -> None:
    target_reader, target_writer = await connect()
    responded = [True]

    async def pump(
        source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, requests: bool
    ) -> None:
        while piece := await source.read(_PIECE):
            traffic.bytes += len(piece)
            if requests and responded[0]:
                traffic.round_trips += 1
            responded[0] = not requests
            sink.write(piece)
            await sink.drain()

    pumps = [
        begin(pump(reader, target_writer, requests=True), "requests"),
        begin(pump(target_reader, writer, requests=False), "responses"),
    ]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stop(*pumps)
        for side in (writer, target_writer):
            side.close()
