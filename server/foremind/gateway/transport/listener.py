"""Runs uvicorn inside a context manager, with Foremind's acceptor and protocols."""

import asyncio
import contextlib
import ipaddress
import resource
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import Config

from foremind.domain.clock import Clock, SystemClock
from foremind.domain.errors import SetupError
from foremind.domain.settings.settings import Settings
from foremind.gateway.transport.admission import Admission
from foremind.gateway.transport.body_limits import BodyBudget
from foremind.gateway.transport.channel import Channel, ProtocolHandler, TransportServices
from foremind.gateway.transport.fair_scheduling import (
    AnonymousScheduler,
    EnterPrecedence,
    FairScheduler,
    MeteredCoroutine,
)
from foremind.gateway.transport.http_protocol import BoundedHttpProtocol
from foremind.gateway.transport.websocket_protocol import BoundedWebSocketProtocol
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import TaskSet, begin

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


_RESERVED = 256  # for files, listeners, connections to the model server, database notifications
_DEFAULT_MAX_CONNECTIONS = 10_000
_UNLIMITED = 1_048_576  # assumed when the system sets no limit


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


def connection_limit(settings: Settings, descriptors: int) -> int:
    """Return the maximum number of simultaneous connections.

    Raises:
        SetupError: the configured number needs more file descriptors than there are.
    """
    reserved = _RESERVED + settings.database_pool_size
    available = descriptors - reserved
    limit = settings.max_connections or max(1, min(_DEFAULT_MAX_CONNECTIONS, available))
    if limit > available:
        raise SetupError(
            f"FOREMIND_MAX_CONNECTIONS={limit} needs {limit + reserved} file descriptors, but "
            f"this process is limited to {descriptors}: raise the limit (`ulimit -n`, "
            "LimitNOFILE=)."
        )
    return limit


_BACKLOG = 2048
_GRACEFUL_STOP_S = 5
_STARTUP_POLL_S = 0.005


class _Server(uvicorn.Server):
    """A uvicorn server that leaves signals to its owner, and accepting to `Acceptor`."""

    def __init__(
        self, config: Config, create_services: Callable[["_Server"], TransportServices]
    ) -> None:
        super().__init__(config)
        self._create_services = create_services

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        services = self._create_services(self)
        self.servers: list[Acceptor] = []  # type: ignore[assignment]
        for listener in sockets or []:
            acceptor = Acceptor(listener, services)
            acceptor.start()
            self.servers.append(acceptor)
        self.started = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(
    app: ASGIApp,
    settings: Settings,
    *,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    max_frame_size: int = 65_536,
    precedence: EnterPrecedence | None = None,
    shared: socket.socket | None = None,
    open_socket: Callable[[], socket.socket] | None = None,
) -> AsyncIterator[int]:
    """Serve `app` inside the block; yields the port.

    Args:
        shared: another listening socket to serve, which this process shares with others.
        open_socket: returns the listening socket to serve, which outlives the server.
        max_frame_size: maximum size of a WebSocket frame in bytes.
        precedence: what `app` reports messages to that the transport's queues give way to.

    Raises:
        SetupError: the address cannot be bound, or there are too few file descriptors.
    """
    metrics = metrics or Metrics()
    precedence = precedence or EnterPrecedence()
    admission = _admission(settings, metrics)
    # Duplicates: what waits to be accepted outlives the server, which closes its sockets.
    listener = open_socket().dup() if open_socket else bind(settings.host, settings.port)
    listeners = [listener] if shared is None else [listener, shared.dup()]
    served = _without_trailing_slash(BodyBudget(app, settings.body_bytes, metrics))
    config = _uvicorn_config(served, settings, max_frame_size)

    def create_services(server: uvicorn.Server) -> TransportServices:
        loop = asyncio.get_running_loop()

        def create_handler(channel: Channel) -> ProtocolHandler:
            return BoundedHttpProtocol(channel, config=config, server_state=server.server_state)

        return TransportServices(
            settings=settings,
            clock=clock or SystemClock(),
            metrics=metrics,
            admission=admission,
            anonymous_scheduler=AnonymousScheduler(loop, precedence),
            identified_scheduler=FairScheduler(loop, precedence),
            create_handler=create_handler,
            max_frame_size=max_frame_size,
        )

    server = _Server(config, create_services)
    task = begin(server.serve(listeners), "http-server")
    try:
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(_STARTUP_POLL_S)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await task
        listener.close()


def _without_trailing_slash(app: ASGIApp) -> ASGIApp:
    """Return `app` with "/v1/turns/" being "/v1/turns": clients join addresses in either way.

    An id in a path may end with a slash, which is "%2F" there.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope["raw_path"]
        if raw.endswith(b"/") and raw != b"/":
            scope = {**scope, "path": scope["path"].removesuffix("/"), "raw_path": raw[:-1]}
        await app(scope, receive, send)

    return serve


def _admission(settings: Settings, metrics: Metrics) -> Admission:
    return Admission(
        connection_limit(settings, raise_descriptor_limit()),
        settings.max_connections_per_address,
        _shared_addresses(settings),
        metrics,
    )


def _uvicorn_config(app: ASGIApp, settings: Settings, max_frame_size: int) -> Config:
    return Config(
        app,
        ws=BoundedWebSocketProtocol,
        ws_max_size=max_frame_size,
        ws_ping_interval=settings.heartbeat_s,
        ws_ping_timeout=settings.heartbeat_timeout_s,
        ws_per_message_deflate=False,
        http=BoundedHttpProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=_GRACEFUL_STOP_S,
    )


def _shared_addresses(settings: Settings) -> Callable[[str], bool]:
    """Return a predicate for addresses that many players share: loopback, proxies, game hosts."""
    proxies = set(settings.trusted_proxies)
    networks = [_network(address) for address in (*settings.host_addresses, *proxies)]

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


def bind(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address; port 0 picks a free one.

    Raises:
        SetupError: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # accepted sockets inherit it
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SetupError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Another server may be using the "
            "port; choose another with --port or FOREMIND_PORT."
        ) from None
    listener.setblocking(False)
    return listener
