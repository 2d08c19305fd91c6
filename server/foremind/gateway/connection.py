"""One WebSocket connection: frames in, a session behind them, close codes out."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from starlette.websockets import WebSocket

from foremind.errors import (
    ForemindError,
    InvalidMessage,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Overloaded,
    RateLimited,
)
from foremind.gateway.decode import decode, error_body, event_id_of
from foremind.gateway.handshake import Handshake
from foremind.gateway.limits import Allowance, Kind, Pace, kind_of
from foremind.gateway.messages import ErrorEvent, SessionOpen, encode
from foremind.gateway.outbox import Outbox
from foremind.gateway.registry import (
    DRAINING,
    NOT_ALLOWED,
    NOT_AUTHENTICATED,
    SessionRegistry,
)
from foremind.gateway.services import Services
from foremind.gateway.session import Session
from foremind.identity.origins import LOOPBACK, origin_allowed

NOT_THIS_PROTOCOL = 4400
OVER_LIMIT = 4429
_TOGETHER_S = 0.001  # since the frame before: it lay ready
_LET_WAIT_S = 5.0  # who was shut out, before it is told

SUBPROTOCOL = "foremind.v1"
_BEARER = "bearer."

_log = structlog.get_logger("foremind.gateway")


class Gateway:
    """The ASGI endpoint of `/v1/ws`."""

    def __init__(self, services: Services, registry: SessionRegistry) -> None:
        self._services = services
        self._registry = registry
        self._of_address: Counter[str] = Counter()
        self._turn = asyncio.Lock()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one connection until it ends."""
        services, settings = self._services, self._services.settings
        offered: list[str] = socket.scope.get("subprotocols", [])
        origin, host = socket.headers.get("origin"), socket.headers.get("host")
        await _next(self._turn)
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        address = "" if socket.client is None else socket.client.host
        with self._counted(address) as connections:
            async with Outbox(socket, settings.outbound_bytes, services.metrics) as outbox:
                if not origin_allowed(origin, host, settings):
                    outbox.close(NOT_ALLOWED, "origin not allowed")
                elif self._registry.draining:
                    outbox.close(DRAINING, "server draining")
                elif connections > settings.max_connections_per_address:
                    outbox.close(OVER_LIMIT, "too many connections from this address")
                else:
                    await Connection(
                        socket, outbox, services, self._registry, self._turn, token_offered(offered)
                    ).serve()

    @contextmanager
    def _counted(self, address: str) -> Iterator[int]:
        """Count a connection; yield how many its address has: none are counted for loopback."""
        self._services.metrics.connections.inc()
        counted = address if address not in LOOPBACK else ""
        self._of_address[counted] += 1
        try:
            yield self._of_address[counted] if counted else 0
        finally:
            self._services.metrics.connections.dec()
            self._of_address[counted] -= 1
            if not self._of_address[counted]:
                del self._of_address[counted]


class Connection:
    """Reads frames until the client leaves or is closed.

    Frames that come together are handled one at a time over all connections, with everything else
    going on in between: who pours them in waits for others who do, not the others for them.
    """

    def __init__(
        self,
        socket: WebSocket,
        outbox: Outbox,
        services: Services,
        registry: SessionRegistry,
        turn: asyncio.Lock,
        token: str | None,
    ) -> None:
        self._socket = socket
        self._outbox = outbox
        self._services = services
        self._registry = registry
        self._turn = turn
        self._token = token
        self._session: Session | None = None
        self._pace = Pace(Allowance(services.settings))

    async def serve(self) -> None:
        """Handle every frame, then leave the session to whoever comes back for it."""
        clock = self._services.clock
        deadline = clock.call_at(
            clock.monotonic() + self._services.settings.open_timeout_s,
            lambda: self._outbox.close(NOT_AUTHENTICATED, "no session.open in time"),
        )
        asked = clock.monotonic()
        try:
            while (frame := await self._socket.receive())["type"] == "websocket.receive":
                arrived = clock.monotonic()
                text = frame.get("text")
                if text is None:
                    self._outbox.close(NOT_THIS_PROTOCOL, "expected text frames")
                    continue
                if arrived - asked < _TOGETHER_S:
                    await _next(self._turn)
                await self._handle(text, arrived, arrived - asked)
                if self._session is not None:
                    deadline.cancel()
                asked = clock.monotonic()
        finally:
            deadline.cancel()
            if self._session is not None:
                self._registry.detach(self._session, self._outbox)
                _log.info("session.detached")

    async def _handle(self, raw: str, arrived: float, idle_s: float) -> None:
        event_id: str | None = None
        kind: Kind = "send"  # what is no message counts as one
        try:
            try:
                message = decode(raw, self._services.settings.max_text_chars)
            except InvalidMessage:
                event_id = event_id_of(raw)
                raise
            event_id, kind = message.event_id, kind_of(message)
            if self._session is not None:
                self._session.handle(message, arrived)
            elif isinstance(message, SessionOpen):
                await self._open(message)
            else:
                raise InvalidMessage(
                    "type: expected session.open first", param="type", code="not_open"
                )
        except ForemindError as error:
            self._fail(error, event_id)
        except Exception:  # a defect must not take the connection along
            _log.exception("message.failed")
            self._fail(ForemindError("The message could not be handled."), event_id)
        await self._slow_down(kind, idle_s)

    async def _slow_down(self, kind: Kind, idle_s: float) -> None:
        """Leave the next frame waiting for as long as this client is ahead of what it may send."""
        clock = self._services.clock
        wait = self._pace.take(kind, idle_s, clock.monotonic())
        if wait is None:
            self._fail(RateLimited("Too many messages a second; see limits."), None)
            self._outbox.close(OVER_LIMIT, "too many messages")
        elif wait > 0:
            self._services.metrics.slowed.labels(kind).inc()
            await clock.sleep(wait)

    async def _open(self, message: SessionOpen) -> None:
        services = self._services
        handshake = Handshake(services, self._registry)
        try:
            self._session = await handshake.open(message, self._token, self._outbox)
        except ForemindError as error:
            if isinstance(error, RateLimited):  # it would only be back at once
                await services.clock.sleep(_LET_WAIT_S)
            self._fail(error, message.event_id)
            match error:
                case NotAuthenticated():
                    self._outbox.close(NOT_AUTHENTICATED, "not authenticated")
                case NotAllowed() | NotFound():
                    self._outbox.close(NOT_ALLOWED, "companion not allowed")
                case Overloaded():
                    self._outbox.close(OVER_LIMIT, "too many sessions")
                case RateLimited():
                    self._outbox.close(OVER_LIMIT, "too many messages")
            return
        self._pace.of_user = self._registry.allowance(self._session.caller.user_id)
        structlog.contextvars.bind_contextvars(session_id=self._session.id)

    def _fail(self, error: ForemindError, event_id: str | None) -> None:
        if self._session is not None:
            self._session.fail(error, event_id)
            return
        self._services.metrics.errors.labels(error.code).inc()
        self._outbox.put(encode(ErrorEvent(error=error_body(error, event_id))))


async def _next(turn: asyncio.Lock) -> None:
    """Wait in line, and let everything else go on between this and who was before."""
    async with turn:
        await asyncio.sleep(0)


def token_offered(subprotocols: list[str]) -> str | None:
    """Return the token among the subprotocols that a client offers, as a browser must send it."""
    for each in subprotocols:
        if each.startswith(_BEARER):
            return each.removeprefix(_BEARER)
    return None
