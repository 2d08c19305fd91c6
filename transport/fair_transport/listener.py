"""Runs uvicorn inside a context manager, with an acceptor and protocols of its own."""

import asyncio
import contextlib
import ipaddress
import resource
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from uvicorn.config import Config

from fair_transport.admission import Admission
from fair_transport.body_limits import ASGIApp, BodyBudget
from fair_transport.channel import Channel, ProtocolHandler, TransportServices
from fair_transport.fair_scheduling import (
    AnonymousScheduler,
    FairScheduler,
    MeteredCoroutine,
    Precedence,
)
from fair_transport.http_protocol import BoundedHttpProtocol
from fair_transport.options import Hooks, Limits
from fair_transport.websocket_protocol import BoundedWebSocketProtocol

_RETRY_S = 0.1  # after the system was out of file descriptors or memory
_LINGER_ZERO = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: close() sends RST and does not wait


class Acceptor:
    """Accepts on a listening socket; has the interface of an asyncio server, as uvicorn expects."""

    def __init__(self, listener: socket.socket, services: TransportServices) -> None:
        self._listener = listener
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._starting: set[asyncio.Task[None]] = set()  # bounded by the connection limit
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
        while self._starting:
            await asyncio.wait(self._starting)

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
            self._services.hooks.on_refused("descriptors")
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
        task = self._services.hooks.start_task(metered, "accept")
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)

    async def _connect(self, channel: Channel, raw: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: channel, raw)
        except OSError:  # the client has disconnected already
            self._services.admission.leave(channel)
            raw.close()


_DEFAULT_MAX_CONNECTIONS = 10_000
_UNLIMITED = 1_048_576  # assumed when the system sets no limit


class TooFewDescriptors(Exception):
    """The limit on connections needs more file descriptors than this process may have."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit on file descriptors to the hard limit; return the resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        hard = _UNLIMITED
    if soft != resource.RLIM_INFINITY and soft < hard:
        with contextlib.suppress(ValueError, OSError):  # macOS allows less than it reports
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (hard, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
            )
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def connection_limit(limits: Limits, descriptors: int) -> int:
    """Return the maximum number of simultaneous connections.

    Raises:
        TooFewDescriptors: the number in the limits needs more file descriptors than there are.
    """
    available = descriptors - limits.reserved_descriptors
    if limits.connections is None:
        return max(1, min(_DEFAULT_MAX_CONNECTIONS, available))
    if limits.connections > available:
        raise TooFewDescriptors(
            f"{limits.connections} connections need "
            f"{limits.connections + limits.reserved_descriptors} file descriptors, but this "
            f"process is limited to {descriptors}"
        )
    return limits.connections


_BACKLOG = 2048
_GRACEFUL_STOP_S = 5
_POLL_S = 0.005
_DATE_S = 1.0  # how often the date of responses is renewed


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to its owner, and accepting to `Acceptor`."""

    def __init__(
        self, config: Config, create_services: Callable[["_Server"], TransportServices]
    ) -> None:
        super().__init__(config)
        self._create_services = create_services
        self._stopping = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        services = self._create_services(self)
        self.servers: list[Acceptor] = []  # type: ignore[assignment]
        for listener in sockets or []:
            acceptor = Acceptor(listener, services)
            acceptor.start()
            self.servers.append(acceptor)
        self.started = True

    def stop(self) -> None:
        """Begin to stop."""
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        # Uvicorn's own looks ten times a second whether to stop.
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DATE_S):
                    await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # As uvicorn's own, which takes at least .1 s, and looks no more often at what it waits for.
        for acceptor in self.servers:
            acceptor.close()
        for listener in sockets or []:
            listener.close()
        state = self.server_state
        for connection in list(state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GRACEFUL_STOP_S):
                while state.connections or state.tasks:  # noqa: ASYNC110 - nothing tells their end
                    await asyncio.sleep(_POLL_S)
                for acceptor in self.servers:
                    await acceptor.wait_closed()
        for task in state.tasks:
            task.cancel()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(
    app: ASGIApp,
    *sockets: socket.socket,
    limits: Limits | None = None,
    hooks: Hooks | None = None,
    precedence: Precedence | None = None,
) -> AsyncIterator[int]:
    """Serve `app` inside the block; yields the port of the first socket.

    Args:
        sockets: listening sockets, which are closed at the end; by default one of `bind`.
        precedence: what `app` reports to that the queues of connections give way to.

    Raises:
        TooFewDescriptors: the limits need more file descriptors than this process may have.
    """
    sockets = sockets or (bind(),)
    limits, hooks, precedence = limits or Limits(), hooks or Hooks(), precedence or Precedence()
    with contextlib.ExitStack() as stack:
        for listener in sockets:
            stack.callback(listener.close)
        server = _server(app, limits, hooks, precedence)
        task = hooks.start_task(server.serve(list(sockets)), "http-server")
        try:
            while not server.started:
                if task.done():
                    await task
                await asyncio.sleep(_POLL_S)
            yield sockets[0].getsockname()[1]
        finally:
            server.stop()
            with contextlib.suppress(asyncio.CancelledError):
                await task


def _server(app: ASGIApp, limits: Limits, hooks: Hooks, precedence: Precedence) -> _Server:
    admission = Admission(
        connection_limit(limits, raise_descriptor_limit()),
        limits.per_address,
        _shared_addresses(limits),
        hooks,
    )
    config = _uvicorn_config(BodyBudget(app, limits.body_bytes, hooks), limits)

    def create_services(server: uvicorn.Server) -> TransportServices:
        loop = asyncio.get_running_loop()

        def create_handler(channel: Channel) -> ProtocolHandler:
            return BoundedHttpProtocol(channel, config=config, server_state=server.server_state)

        return TransportServices(
            limits=limits,
            hooks=hooks,
            admission=admission,
            anonymous_scheduler=AnonymousScheduler(loop, precedence),
            identified_scheduler=FairScheduler(loop, precedence),
            create_handler=create_handler,
        )

    return _Server(config, create_services)


def _uvicorn_config(app: ASGIApp, limits: Limits) -> Config:
    return Config(
        app,
        ws=BoundedWebSocketProtocol,
        ws_max_size=limits.frame_bytes,
        ws_ping_interval=limits.ping_interval_s,
        ws_ping_timeout=limits.ping_timeout_s,
        ws_per_message_deflate=False,
        http=BoundedHttpProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=list(limits.trusted_proxies),
    )


def _shared_addresses(limits: Limits) -> Callable[[str], bool]:
    """Return a predicate for addresses that many users share: loopback, proxies, those named."""
    proxies = set(limits.trusted_proxies)
    networks = [_network(address) for address in (*limits.shared_addresses, *proxies)]

    def is_shared(address: str) -> bool:
        if "*" in proxies or address in proxies:
            return True
        with contextlib.suppress(ValueError):
            parsed = ipaddress.ip_address(address)
            return parsed.is_loopback or any(parsed in network for network in networks if network)
        return False

    return is_shared


def _network(address: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(address)
    except ValueError:
        return None


def bind(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a socket that listens on an address; port 0 picks a free one.

    Raises:
        OSError: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener
