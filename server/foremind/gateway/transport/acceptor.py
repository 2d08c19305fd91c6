"""Accepts TCP connections, one per scheduler slice, subject to admission."""

import asyncio
import contextlib
import socket
import struct

from foremind.gateway.transport.channel import Channel, TransportServices
from foremind.gateway.transport.fair_scheduling import MeteredCoroutine
from foremind.runtime.supervision import TaskSet

_RETRY_S = 0.1  # after the system was out of file descriptors or memory
_LINGER_ZERO = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: close() sends RST and does not wait


class Acceptor:
    """Accepts on a listening socket; has the interface of an asyncio server, as uvicorn expects."""

    def __init__(self, listener: socket.socket, services: TransportServices) -> None:
        self._listener = listener
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._starting = TaskSet()  # bounded by the connection limit
        self._closed = False

    def start(self) -> None:
        """Start accepting."""
        self._loop.add_reader(self._listener.fileno(), self._on_readable)

    def close(self) -> None:
        """Stop accepting."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())
            self._services.anonymous_scheduler.cancel(self)

    async def wait_closed(self) -> None:
        """Wait until all accepted connections have started."""
        await self._starting.finish()

    def run_slice(self) -> None:
        """Accept one connection."""
        if self._closed:
            return
        with self._services.anonymous_scheduler.metered():
            self._accept()

    def _accept(self) -> None:
        try:
            raw, address = self._listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            self.start()
            return
        except OSError:
            self._services.metrics.refused.labels("descriptors").inc()
            self._services.admission.evict_one()
            self._loop.call_later(_RETRY_S, self._enqueue)
            return
        self._admit(raw, str(address[0]))
        self._enqueue()

    def _on_readable(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._enqueue()

    def _enqueue(self) -> None:
        if not self._closed:
            self._services.anonymous_scheduler.enqueue(self, accepting=True)

    def _admit(self, raw: socket.socket, address: str) -> None:
        admission = self._services.admission
        if not admission.admits(address):
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            raw.close()
            return
        raw.setblocking(False)
        channel = Channel(self._services, address)
        admission.enter(channel)
        metered = MeteredCoroutine(
            self._connect(channel, raw), self._services.anonymous_scheduler, lambda: True
        )
        self._starting.begin(metered, "accept")

    async def _connect(self, channel: Channel, raw: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: channel, raw)
        except OSError:  # the client has disconnected already
            self._services.admission.leave(channel)
            raw.close()
