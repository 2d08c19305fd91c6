"""One WebSocket connection: frames in, a session behind them, close codes out."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
from starlette.websockets import WebSocket

from foremind.auth.origins import origin_allowed
from foremind.domain.clock import Clock, Timer
from foremind.domain.errors import (
    Draining,
    ForemindError,
    InvalidMessage,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Overloaded,
    RateLimited,
)
from foremind.gateway.address_limits import AddressLimits, AddressSlot
from foremind.gateway.flow_control import ConnectionBudget, FlowControl, Kind, amount_of, kind_of
from foremind.gateway.handshake import Handshake
from foremind.gateway.outbox import Outbox
from foremind.gateway.protocol.decoding import (
    DecodingProblem,
    cause_in,
    cause_of,
    decode,
    error_body,
    too_large,
)
from foremind.gateway.protocol.messages import (
    ErrorEvent,
    MessageSend,
    SessionOpen,
    SessionUpdate,
    encode,
)
from foremind.gateway.session import Session
from foremind.gateway.session_registry import (
    DRAINING,
    NOT_ALLOWED,
    NOT_AUTHENTICATED,
    SessionRegistry,
)
from foremind.gateway.session_services import SessionServices

TOO_LARGE = 1009
NOT_THIS_PROTOCOL = 4400
OVER_LIMIT = 4429
_TOGETHER_S = 0.001  # since the frame before: it lay ready
_HOST_S = 3.0  # in which a connection that its address has no room for must show a host's token
_CROWDED = "too many connections from this address"
_LET_WAIT_S = 5.0  # who was shut out, before it is told

SUBPROTOCOL = "foremind.v1"
_BEARER = "bearer."

_log = structlog.get_logger("foremind.gateway")


class Gateway:
    """The ASGI endpoint of `/v1/ws`."""

    def __init__(self, services: SessionServices, registry: SessionRegistry) -> None:
        self._services = services
        self._registry = registry
        settings = services.settings
        self._addresses = AddressLimits(
            settings.max_connections_per_address, settings.host_addresses
        )
        self._turn = asyncio.Lock()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one connection until it ends."""
        services, settings = self._services, self._services.settings
        offered: list[str] = socket.scope.get("subprotocols", [])
        origin, host = socket.headers.get("origin"), socket.headers.get("host")
        await _next(self._turn)
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        address = "" if socket.client is None else socket.client.host
        known = socket.state.connection.identified
        with self._counted(), self._addresses.place(address, known) as place:
            async with Outbox(socket, settings.outbound_bytes, services.metrics) as outbox:
                if not origin_allowed(origin, host, settings):
                    outbox.close(NOT_ALLOWED, "origin not allowed")
                elif self._registry.draining:
                    outbox.close(DRAINING, "server draining")
                elif place.refused:
                    outbox.close(OVER_LIMIT, _CROWDED)
                else:
                    token = token_offered(offered)
                    await Connection(
                        socket, outbox, services, self._registry, self._turn, token, place
                    ).serve()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._services.metrics.connections.inc()
        try:
            yield
        finally:
            self._services.metrics.connections.dec()


class Deadline:
    """Calls something once so much time has passed, not counting the time while it is paused."""

    def __init__(self, clock: Clock, seconds: float, late: Callable[[], None]) -> None:
        self._clock = clock
        self._left_s = seconds
        self._late = late
        self._timer: Timer | None = None
        self.go_on()

    def go_on(self) -> None:
        """Count time, from now on."""
        self._begun = self._clock.monotonic()
        self._timer = self._clock.call_at(self._begun + self._left_s, self._late)

    def pause(self) -> None:
        """Count no time until it goes on."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._left_s -= self._clock.monotonic() - self._begun


class Connection:
    """Reads frames until the client leaves or is closed.

    Frames that come together are handled one at a time over all connections, with everything else
    going on in between: who pours them in waits for others who do, not the others for them.
    """

    def __init__(
        self,
        socket: WebSocket,
        outbox: Outbox,
        services: SessionServices,
        registry: SessionRegistry,
        turn: asyncio.Lock,
        token: str | None,
        place: AddressSlot,
    ) -> None:
        self._socket = socket
        self._outbox = outbox
        self._services = services
        self._registry = registry
        self._turn = turn
        self._token = token
        self._place = place
        self._handshake = Handshake(services, registry)
        self._session: Session | None = None
        self._pace = FlowControl(ConnectionBudget(services.settings))

    async def serve(self) -> None:
        """Handle every frame, then leave the session to whoever comes back for it."""
        clock = self._services.clock
        patience_s, code, reason = (
            self._services.settings.open_timeout_s,
            NOT_AUTHENTICATED,
            "no session.open in time",
        )
        if self._place.for_hosts_only:
            patience_s, code, reason = min(patience_s, _HOST_S), OVER_LIMIT, _CROWDED
        outbox = self._outbox  # nothing in it refers back to this
        self._deadline = Deadline(clock, patience_s, lambda: outbox.close(code, reason))
        asked = clock.monotonic()
        try:
            while (frame := await self._socket.receive())["type"] == "websocket.receive":
                arrived = clock.monotonic()
                text = frame.get("text")
                if text is None:
                    self._outbox.close(NOT_THIS_PROTOCOL, "expected text frames")
                    continue
                if too_large(text):
                    self._outbox.close(TOO_LARGE, "frame too large")
                    continue
                if arrived - asked < _TOGETHER_S:
                    await _next(self._turn)
                await self._handle(text, arrived, arrived - asked)
                asked = clock.monotonic()
        finally:
            self._deadline.pause()
            if self._session is not None:
                self._registry.detach(self._session, self._outbox)
                _log.info("session.detached")

    async def _handle(self, raw: str, arrived: float, idle_s: float) -> None:
        cause = DecodingProblem()
        kind: Kind = "send"  # what is no message counts as one
        chars = len(raw)
        try:
            try:
                message = decode(raw, self._services.settings.max_text_chars)
            except InvalidMessage:
                cause = cause_in(raw)
                raise
            cause, kind = cause_of(message), kind_of(message)
            chars = len(message.text) if isinstance(message, MessageSend) else chars
            if self._session is not None:
                if isinstance(message, SessionUpdate):
                    await self._handshake.update(self._session, message)
                else:
                    self._session.handle(message, arrived)
            elif isinstance(message, SessionOpen):
                await self._open(message)
            else:
                raise InvalidMessage(
                    "type: expected session.open first", param="type", code="not_open"
                )
        except ForemindError as error:
            self._fail(error, cause)
        except Exception:  # a defect must not take the connection along
            _log.exception("message.failed")
            self._fail(ForemindError("The message could not be handled."), cause)
        await self._slow_down(kind, idle_s, amount_of(kind, chars))

    async def _slow_down(self, kind: Kind, idle_s: float, amount: float) -> None:
        """Leave the next frame waiting for as long as this client is ahead of what it may send."""
        clock = self._services.clock
        wait = self._pace.take(kind, idle_s, clock.monotonic(), amount)
        if wait is None:
            self._fail(RateLimited("Too many messages a second; see limits."), DecodingProblem())
            self._outbox.close(OVER_LIMIT, "too many messages")
        elif wait > 0:
            self._services.metrics.slowed.labels(kind).inc()
            await clock.sleep(wait)

    async def _open(self, message: SessionOpen) -> None:
        services = self._services
        self._deadline.pause()  # how long the server takes is not the client's doing
        try:
            self._session = await self._handshake.open(
                message, self._token, self._outbox, self._place
            )
        except ForemindError as error:
            if isinstance(error, RateLimited):  # it would only be back at once
                await services.clock.sleep(_LET_WAIT_S)
            self._fail(error, cause_of(message))
            self._deadline.go_on()
            match error:
                case NotAuthenticated():
                    self._outbox.close(NOT_AUTHENTICATED, "not authenticated")
                case NotAllowed() | NotFound():
                    self._outbox.close(NOT_ALLOWED, "companion not allowed")
                case Overloaded():
                    self._outbox.close(OVER_LIMIT, "too many sessions")
                case RateLimited():
                    self._outbox.close(OVER_LIMIT, "too many messages")
                case Draining():
                    self._outbox.close(DRAINING, "server draining")
            return
        self._pace.of_user = self._registry.allowance(self._session.caller.user_id)
        structlog.contextvars.bind_contextvars(session_id=self._session.id)
        await self._handshake.read_again(self._session)

    def _fail(self, error: ForemindError, cause: DecodingProblem) -> None:
        if self._session is not None:
            self._session.fail(error, cause)
            return
        self._services.metrics.errors.labels(error.code).inc()
        self._outbox.put(encode(ErrorEvent(error=error_body(error, cause))))


async def _next(turn: asyncio.Lock) -> None:
    """Wait in line, and let everything else go on between this and who was before."""
    async with turn:
        await asyncio.sleep(0)


def token_offered(subprotocols: list[str]) -> str | None:
    """Return the token among the subprotocols that a client offers, as a browser must send it."""
    for subprotocol in subprotocols:
        if subprotocol.startswith(_BEARER):
            return subprotocol.removeprefix(_BEARER)
    return None
