"""A proxy that makes trouble between two ends: slow, narrow, in slices, cut, reset, half open."""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_CHUNK = 65_536


@dataclass
class Faults:
    """What happens to bytes on their way; change it at any time.

    Attributes:
        latency_s: how long each piece takes, one way.
        jitter_s: up to how much longer.
        bytes_per_s: how much gets through; None is all.
        slice_bytes: the largest piece that is passed on at once; None leaves them as they come.
        silent: nothing gets through in either direction, and nobody is told.
        refuses: new connections are closed at once.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    slice_bytes: int | None = None
    silent: bool = False
    refuses: bool = False
    draw: random.Random = field(default_factory=lambda: random.Random(7))

    def delay_s(self, size: int) -> float:
        """How long a piece takes."""
        narrow = 0.0 if self.bytes_per_s is None else size / self.bytes_per_s
        return self.latency_s + self.draw.uniform(0, self.jitter_s) + narrow


class FaultProxy:
    """Passes connections on to `upstream`: a port, or the path of a socket."""

    def __init__(self, upstream: int | str, faults: Faults) -> None:
        self._upstream = upstream
        self.faults = faults
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The socket of the server behind it."""
        return f"ws://127.0.0.1:{self.port}/v1/ws"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; whatever ends it, both its sockets are closed then."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        ends = [writer]
        try:
            if self.faults.refuses:
                return
            if isinstance(self._upstream, int):
                onward = await asyncio.open_connection("127.0.0.1", self._upstream)
            else:
                onward = await asyncio.open_unix_connection(self._upstream)
            ends.append(onward[1])
            self._writers.update(ends)
            await self._pass_on(reader, writer, *onward)
        except OSError:
            pass  # nobody is there: the connection ends
        finally:
            self._writers.difference_update(ends)
            for end in ends:
                end.close()
            self._serving.discard(task)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        onward_reader: asyncio.StreamReader,
        onward_writer: asyncio.StreamWriter,
    ) -> None:
        pumps = [
            asyncio.create_task(self._pump(reader, onward_writer)),
            asyncio.create_task(self._pump(onward_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)

    async def close(self) -> None:
        """Break what there is, and wait until every socket is closed."""
        writers = list(self._writers)
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        for writer in writers:
            writer.transport.abort()  # what was not written yet would keep it open
        await asyncio.gather(*serving, return_exceptions=True)
        for writer in writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def cut(self) -> None:
        """End every connection, as a peer that goes away."""
        for writer in list(self._writers):
            writer.close()

    def reset(self) -> None:
        """Break every connection with a TCP reset."""
        for writer in list(self._writers):
            sock = writer.get_extra_info("socket")
            open_ = sock is not None and sock.fileno() >= 0  # the other end may have closed it
            if open_ and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                for piece in self._sliced(data):
                    await asyncio.sleep(self.faults.delay_s(len(piece)))
                    while self.faults.silent:
                        await asyncio.sleep(0.02)
                    writer.write(piece)
                    await writer.drain()

    def _sliced(self, data: bytes) -> list[bytes]:
        size = self.faults.slice_bytes or len(data)
        return [data[at : at + size] for at in range(0, len(data), size)]


@asynccontextmanager
async def fault_proxy(
    upstream: int | str, faults: Faults | None = None
) -> AsyncIterator[FaultProxy]:
    """Run a proxy on a free loopback port."""
    proxy = FaultProxy(upstream, faults or Faults())
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
