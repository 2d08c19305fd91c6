"""A fault-injecting TCP proxy: latency, low bandwidth, small slices, disconnects, resets."""

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
    """The faults to inject; may be changed at any time.

    Attributes:
        latency_s: one-way delay of each piece.
        jitter_s: maximum additional random delay.
        bytes_per_s: bandwidth limit, None for no limit.
        slice_bytes: maximum size of a forwarded piece, None to forward pieces as they arrive.
        silent: forward nothing in either direction, without closing connections.
        refuses: close new connections at once.
        pieces_left: how many pieces clients may send; the next one is lost, and every connection
            cut. None for no limit.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float | None = None
    slice_bytes: int | None = None
    silent: bool = False
    refuses: bool = False
    pieces_left: int | None = None
    rng: random.Random = field(default_factory=lambda: random.Random(7))

    def delay_s(self, size: int) -> float:
        """Return the delay of a piece of `size` bytes."""
        transfer_s = 0.0 if self.bytes_per_s is None else size / self.bytes_per_s
        return self.latency_s + self.rng.uniform(0, self.jitter_s) + transfer_s


class FaultProxy:
    """Forwards connections to `upstream`: a port, or the path of a Unix socket."""

    def __init__(self, upstream: int | str, faults: Faults) -> None:
        self._upstream = upstream
        self.faults = faults
        self.port = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """The URL of the server's WebSocket through the proxy."""
        return f"ws://127.0.0.1:{self.port}/v1/ws"

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection; both sockets are closed however it ends."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        writers = [writer]
        try:
            if self.faults.refuses:
                return
            if isinstance(self._upstream, int):
                upstream = await asyncio.open_connection("127.0.0.1", self._upstream)
            else:
                upstream = await asyncio.open_unix_connection(self._upstream)
            writers.append(upstream[1])
            self._writers.update(writers)
            await self._forward(reader, writer, *upstream)
        except OSError:
            pass  # the upstream is unreachable: close the connection
        finally:
            self._writers.difference_update(writers)
            for open_writer in writers:
                open_writer.close()
            self._serving.discard(task)

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        upstream_reader: asyncio.StreamReader,
        upstream_writer: asyncio.StreamWriter,
    ) -> None:
        pumps = [
            asyncio.create_task(self._pump(reader, upstream_writer, from_client=True)),
            asyncio.create_task(self._pump(upstream_reader, writer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.wait(pumps)

    async def close(self) -> None:
        """Abort all connections, and wait until every socket is closed."""
        writers = list(self._writers)
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        for writer in writers:
            writer.transport.abort()  # unsent data would keep it open
        await asyncio.gather(*serving, return_exceptions=True)
        for writer in writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    def cut(self) -> None:
        """Close every connection, like a peer that disconnects."""
        for writer in list(self._writers):
            writer.close()

    def reset(self) -> None:
        """Abort every connection with a TCP reset."""
        for writer in list(self._writers):
            sock = writer.get_extra_info("socket")
            is_open = sock is not None and sock.fileno() >= 0  # the peer may have closed it
            if is_open and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        from_client: bool = False,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                for piece in self._sliced(data):
                    if from_client and self._spent():
                        return
                    await asyncio.sleep(self.faults.delay_s(len(piece)))
                    while self.faults.silent:
                        await asyncio.sleep(0.02)
                    writer.write(piece)
                    await writer.drain()

    def _spent(self) -> bool:
        """Take one of the pieces that are left; cut every connection if none is."""
        if self.faults.pieces_left is None:
            return False
        if not self.faults.pieces_left:
            self.cut()
            return True
        self.faults.pieces_left -= 1
        return False

    def _sliced(self, data: bytes) -> list[bytes]:
        size = self.faults.slice_bytes or len(data)
        return [data[start : start + size] for start in range(0, len(data), size)]


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
