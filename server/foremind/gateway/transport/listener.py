"""uvicorn, owned: it starts inside a block, says where it listens, and stops with the block."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config

from foremind.domain.clock import Clock, SystemClock
from foremind.domain.errors import SetupError
from foremind.domain.settings import Settings
from foremind.gateway.transport.acceptor import Acceptor
from foremind.gateway.transport.admission import Admission
from foremind.gateway.transport.body_limits import BodyBudget
from foremind.gateway.transport.channel import Channel, ProtocolHandler, TransportServices
from foremind.gateway.transport.fair_scheduling import AnonymousScheduler, FairScheduler
from foremind.gateway.transport.file_descriptors import most_connections, raise_descriptor_limit
from foremind.gateway.transport.http_protocol import BoundedHttpProtocol
from foremind.gateway.transport.websocket_protocol import BoundedWebSocketProtocol
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin

_BACKLOG = 2048
_STOP_S = 5


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it, and accepting to `Acceptor`."""

    def __init__(self, config: Config, services: Callable[["_Server"], TransportServices]) -> None:
        super().__init__(config)
        self._services = services

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        services = self._services(self)
        self.servers: list[Acceptor] = []  # type: ignore[assignment]
        for each in sockets or []:
            acceptor = Acceptor(each, services)
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
    most_frame: int = 65_536,
) -> AsyncIterator[int]:
    """Serve `app` while the block runs, and yield the port.

    Raises:
        SetupError: the address cannot be listened on, or there are too few file descriptors.
    """
    counted = metrics or Metrics()
    admission = Admission(
        most_connections(settings, raise_descriptor_limit()),
        settings.max_connections_per_address,
        _shared(settings),
        counted,
    )
    listener = _bind(settings.host, settings.port)
    config = Config(
        BodyBudget(app, settings.body_bytes, counted),
        ws=BoundedWebSocketProtocol,
        ws_max_size=most_frame,
        ws_ping_interval=settings.heartbeat_s,
        ws_ping_timeout=settings.heartbeat_timeout_s,
        ws_per_message_deflate=False,
        http=BoundedHttpProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        forwarded_allow_ips=list(settings.trusted_proxies),
        timeout_graceful_shutdown=_STOP_S,
    )

    def services(server: uvicorn.Server) -> TransportServices:
        loop = asyncio.get_running_loop()

        def speaker(channel: Channel) -> ProtocolHandler:
            return BoundedHttpProtocol(channel, config=config, server_state=server.server_state)

        return TransportServices(
            settings=settings,
            clock=clock or SystemClock(),
            metrics=counted,
            admission=admission,
            anonymous=AnonymousScheduler(loop),
            known=FairScheduler(loop),
            speaker=speaker,
            most_frame=most_frame,
        )

    server = _Server(config, services)
    task = begin(server.serve([listener]), "http-server")
    try:
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await task
        listener.close()


def _shared(settings: Settings) -> Callable[[str], bool]:
    """Return what tells an address that many may share: this machine's, proxies', and hosts'."""
    proxies = set(settings.trusted_proxies)
    networks = [*settings.host_addresses, *(_network(proxy) for proxy in proxies)]

    def shared(address: str) -> bool:
        if "*" in proxies or address in proxies:
            return True
        with contextlib.suppress(ValueError):
            parsed = ipaddress.ip_address(address)
            return parsed.is_loopback or any(parsed in network for network in networks if network)
        return False

    return shared


def _network(
    given: str,
) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(given)
    except ValueError:
        return None


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SetupError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Another server may run there; "
            "choose a port with --port or FOREMIND_PORT."
        ) from None
    listener.setblocking(False)
    return listener
