"""Accepts connections one at a time, each in its turn, and only where there is room."""

import asyncio
import contextlib
import socket
import struct

from foremind.gateway.transport.channel import Channel, TransportServices
from foremind.runtime.supervision import TaskSet

_AGAIN_S = 0.1  # after the system had no descriptor or memory to give
_RESET = struct.pack("ii", 1, 0)  # closing sends no more and waits for nothing


class Acceptor:
    """Listens; stands in for an asyncio server where uvicorn expects one."""

    def __init__(self, listener: socket.socket, services: TransportServices) -> None:
        self._listener = listener
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._beginning = TaskSet()  # bounded by the connections
        self._closed = False

    def start(self) -> None:
        """Begin to accept."""
        self._loop.add_reader(self._listener.fileno(), self._somebody)

    def close(self) -> None:
        """Accept nobody more."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._listener.fileno())
            self._services.anonymous.leave(self)

    async def wait_closed(self) -> None:
        """Return once those who were let in have begun."""
        await self._beginning.finish()

    def take_turn(self) -> None:
        """Accept one; whoever waits besides has to wait for the next turn."""
        if self._closed:
            return
        with self._services.anonymous.spending():
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
            self._loop.call_later(_AGAIN_S, self._ask)
            return
        self._let_in(raw, str(address[0]))
        self._ask()

    def _somebody(self) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._ask()

    def _ask(self) -> None:
        if not self._closed:
            self._services.anonymous.ask(self, at_the_door=True)

    def _let_in(self, raw: socket.socket, address: str) -> None:
        admission = self._services.admission
        if not admission.admits(address):
            with contextlib.suppress(OSError):
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            raw.close()
            return
        raw.setblocking(False)
        channel = Channel(self._services, address)
        admission.enter(channel)
        self._beginning.begin(self._begin(channel, raw), "accept")

    async def _begin(self, channel: Channel, raw: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: channel, raw)
        except OSError:  # it is gone already
            self._services.admission.leave(channel)
            raw.close()
