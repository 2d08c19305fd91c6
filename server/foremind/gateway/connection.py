"""One WebSocket connection: decodes frames, passes them to its session, maps errors to closes."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import ip_network
from typing import Self

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

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
from foremind.gateway.flow_control import (
    AddressLimits,
    AddressSlot,
    ConnectionBudget,
    FlowControl,
    Kind,
    cost_of,
    kind_of,
)
from foremind.gateway.handshake import Handshake, Redirected
from foremind.gateway.protocol.client_messages import (
    MessageEdit,
    MessageSend,
    SessionOpen,
    SessionUpdate,
)
from foremind.gateway.protocol.decoding import (
    ErrorCause,
    cause_in,
    cause_of,
    decode,
    error_body,
    too_large,
)
from foremind.gateway.protocol.server_events import ErrorEvent, Event, SessionRedirect, encode
from foremind.gateway.scene_session import SceneSession
from foremind.gateway.session import Session
from foremind.gateway.session_client import DRAINING, ELSEWHERE, NOT_ALLOWED, NOT_AUTHENTICATED
from foremind.gateway.session_registry import SessionRegistry
from foremind.gateway.session_services import SessionServices
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin

SLOW_READER = 4413
_ABNORMAL_CLOSURE = 1006  # RFC 6455: never sent on the wire
_connections = itertools.count()
_FRAMES_AT_ONCE = 64  # then other connections get their turn; a client that reads never blocks


class Outbox:
    """Sends frames in order without ever blocking the sender.

    A client that reads too slowly, so that more than `capacity` bytes would be queued, first loses
    telemetry, then its connection. Use as an async context manager: leaving it flushes the queue
    as far as possible, then closes the connection.
    """

    def __init__(self, socket: WebSocket, capacity: int, metrics: Metrics) -> None:
        self.accepted = next(_connections)
        self._socket = socket
        self._capacity = capacity
        self._metrics = metrics
        self._frames: list[bytes] = []
        self._queued_bytes = 0
        self._sending = False  # a writer cancelled before it starts would never close
        self._close: tuple[int, str] | None = None
        #: Exists only while there is something to write: most connections are idle.
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close(1000, "")
        if self._writer is not None:
            await asyncio.gather(self._writer, return_exceptions=True)

    def put(self, frame: bytes, *, event: Event | None = None, telemetry: bool = False) -> bool:
        """Queue a frame; ignored after `close`.

        Telemetry may use half of the capacity and is dropped beyond that: then return False.
        """
        if self._close is not None:
            return True
        capacity = self._capacity // 2 if telemetry else self._capacity
        if self._queued_bytes + len(frame) > capacity:
            if telemetry:
                self._metrics.dropped.labels("telemetry").inc()
                return False
            self._frames.clear()
            self.close(SLOW_READER, "reading too slowly")
            if self._writer is not None and self._sending:
                self._writer.cancel()
            return True
        self._frames.append(frame)
        self._queued_bytes += len(frame)
        self._ensure_writer()
        return True

    def close(self, code: int, reason: str) -> None:
        """Close the connection once the queue is sent; only the first call has an effect."""
        if self._close is None:
            self._close = (code, reason)
            self._ensure_writer()

    def _ensure_writer(self) -> None:
        if self._writer is None:
            self._writer = begin(self._run(), "outbox")

    async def _run(self) -> None:
        try:
            # Only `put` cancels the writer, when it is blocked by a client that does not read.
            with contextlib.suppress(asyncio.CancelledError):
                await self._write()
            if self._close is not None:
                await self._socket.close(*self._close)
        except (WebSocketDisconnect, RuntimeError, OSError):
            self._close = self._close or (_ABNORMAL_CLOSURE, "")
        finally:
            self._writer = None

    async def _write(self) -> None:
        while self._frames:
            frames, self._frames = self._frames, []
            for number, frame in enumerate(frames, 1):
                self._sending = True
                await self._socket.send_text(frame.decode())
                self._sending = False
                self._queued_bytes -= len(frame)
                if number % _FRAMES_AT_ONCE == 0:
                    await asyncio.sleep(0)


TOO_LARGE = 1009
NOT_THIS_PROTOCOL = 4400
OVER_LIMIT = 4429
_BACK_TO_BACK_S = 0.001  # a frame that follows this soon was already buffered
_HOST_TIMEOUT_S = 3.0  # to present a host's token when the address is at its limit
_ADDRESS_FULL = "too many connections from this address"
_LOCKOUT_DELAY_S = 5.0  # before a locked-out client is told, which delays its next attempt

SUBPROTOCOL = "foremind.v1"
_BEARER = "bearer."

_log = structlog.get_logger("foremind.gateway")


class SocketEndpoint:
    """The ASGI endpoint of `/v1/ws`."""

    def __init__(self, services: SessionServices, registry: SessionRegistry) -> None:
        self._services = services
        self._registry = registry
        settings = services.runtime.settings
        self._addresses = AddressLimits(
            settings.max_connections_per_address,
            tuple(ip_network(network) for network in settings.host_addresses),
        )
        self._fairness_lock = asyncio.Lock()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one connection until it ends."""
        services, settings = self._services, self._services.runtime.settings
        offered: list[str] = socket.scope.get("subprotocols", [])
        origin, host = socket.headers.get("origin"), socket.headers.get("host")
        await _wait_for_turn(self._fairness_lock)
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        address = "" if socket.client is None else socket.client.host
        on_identified = socket.state.connection.mark_identified
        with self._counted(), self._addresses.slot(address, on_identified) as address_slot:
            async with Outbox(socket, settings.outbound_bytes, services.runtime.metrics) as outbox:
                if not origin_allowed(origin, host, settings):
                    outbox.close(NOT_ALLOWED, "origin not allowed")
                elif self._registry.draining and not self._registry.membership.ring.urls:
                    outbox.close(DRAINING, "server draining")
                elif address_slot.refused:
                    outbox.close(OVER_LIMIT, _ADDRESS_FULL)
                else:
                    await Connection(
                        socket,
                        outbox,
                        services,
                        self._registry,
                        self._fairness_lock,
                        offered_token(offered),
                        address_slot,
                    ).serve()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self._services.runtime.metrics.connections.inc()
        try:
            yield
        finally:
            self._services.runtime.metrics.connections.dec()


class Deadline:
    """Calls `on_timeout` after `seconds`, not counting the time while paused."""

    def __init__(self, clock: Clock, seconds: float, on_timeout: Callable[[], None]) -> None:
        self._clock = clock
        self._remaining_s = seconds
        self._on_timeout = on_timeout
        self._timer: Timer | None = None
        self.resume()

    def resume(self) -> None:
        """Let the time run."""
        self._resumed_at = self._clock.monotonic()
        self._timer = self._clock.call_at(self._resumed_at + self._remaining_s, self._on_timeout)

    def pause(self) -> None:
        """Stop the time until `resume`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._remaining_s -= self._clock.monotonic() - self._resumed_at


class Connection:
    """Reads frames until the client leaves or is closed.

    Frames that arrive back to back are handled one at a time over all connections, and the event
    loop runs everything else in between. A flood of frames thus delays only other floods.
    """

    def __init__(
        self,
        socket: WebSocket,
        outbox: Outbox,
        services: SessionServices,
        registry: SessionRegistry,
        fairness_lock: asyncio.Lock,
        token: str | None,
        address_slot: AddressSlot,
    ) -> None:
        self._socket = socket
        self._outbox = outbox
        self._services = services
        self._registry = registry
        self._fairness_lock = fairness_lock
        self._token = token
        self._address_slot = address_slot
        self._handshake = Handshake(services, registry)
        self._session: Session | SceneSession | None = None
        self._flow_control = FlowControl(ConnectionBudget(services.runtime.settings))

    async def serve(self) -> None:
        """Handle every frame, then detach from the session, which can be resumed."""
        clock = self._services.runtime.clock
        self._deadline = self._open_deadline()
        waiting_since = clock.monotonic()
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
                if arrived - waiting_since < _BACK_TO_BACK_S:
                    await _wait_for_turn(self._fairness_lock)
                await self._handle(text, arrived, arrived - waiting_since)
                waiting_since = clock.monotonic()
        finally:
            self._deadline.pause()
            if isinstance(self._session, SceneSession):
                self._registry.remove_window(self._session)
                await self._session.close()
            elif self._session is not None:
                self._registry.detach(self._session, self._outbox)
                _log.info("session.detached")

    def _open_deadline(self) -> Deadline:
        """Start the deadline for `session.open`."""
        timeout_s, code, reason = (
            self._services.runtime.settings.open_timeout_s,
            NOT_AUTHENTICATED,
            "no session.open in time",
        )
        if self._address_slot.for_hosts_only:
            timeout_s, code, reason = min(timeout_s, _HOST_TIMEOUT_S), OVER_LIMIT, _ADDRESS_FULL
        outbox = self._outbox  # the callback must not keep this connection alive
        return Deadline(self._services.runtime.clock, timeout_s, lambda: outbox.close(code, reason))

    async def _handle(self, raw: str, arrived: float, idle_s: float) -> None:
        cause = ErrorCause()
        kind: Kind = "send"  # also charged for frames that cannot be decoded
        chars = len(raw)
        try:
            try:
                message = decode(raw, self._services.runtime.settings.max_text_chars)
            except InvalidMessage:
                cause = cause_in(raw)
                raise
            cause, kind = cause_of(message), kind_of(message)
            chars = len(message.text) if isinstance(message, MessageSend | MessageEdit) else chars
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
        except Exception:  # a defect must not end the connection
            _log.exception("message.failed")
            self._fail(ForemindError("The message could not be handled."), cause)
        await self._apply_backpressure(kind, idle_s, cost_of(kind, chars))

    async def _apply_backpressure(self, kind: Kind, idle_s: float, cost: float) -> None:
        """Delay reading the next frame while the client is over its rate; close persistent ones."""
        clock = self._services.runtime.clock
        wait_s = self._flow_control.take(kind, idle_s, clock.monotonic(), cost)
        if wait_s is None:
            self._fail(RateLimited("Too many messages a second; see limits."), ErrorCause())
            self._outbox.close(OVER_LIMIT, "too many messages")
        elif wait_s > 0:
            self._services.runtime.metrics.slowed.labels(kind).inc()
            await clock.sleep(wait_s)

    async def _open(self, message: SessionOpen) -> None:
        self._deadline.pause()  # the server's own time does not count against the client
        try:
            self._session = await self._handshake.open(
                message, self._token, self._outbox, self._address_slot
            )
        except Redirected as redirected:
            self._services.runtime.metrics.redirects.labels("open").inc()
            self._outbox.put(encode(SessionRedirect(url=redirected.url)))
            self._outbox.close(ELSEWHERE, "served by another gateway")
            return
        except ForemindError as error:
            if isinstance(error, RateLimited):
                await self._services.runtime.clock.sleep(_LOCKOUT_DELAY_S)
            self._fail(error, cause_of(message))
            self._deadline.resume()
            match error:
                case NotAuthenticated():
                    self._outbox.close(NOT_AUTHENTICATED, "not authenticated")
                case NotAllowed() | NotFound():
                    self._outbox.close(NOT_ALLOWED, "companion or world not allowed")
                case Overloaded():
                    self._outbox.close(OVER_LIMIT, "too many sessions")
                case RateLimited():
                    self._outbox.close(OVER_LIMIT, "too many messages")
                case Draining():
                    self._outbox.close(DRAINING, "server draining")
            return
        user_id = self._session.principal.user_id
        self._flow_control.user_budget = self._registry.user_budget(user_id)
        structlog.contextvars.bind_contextvars(session_id=self._session.id)
        if isinstance(self._session, Session):
            await self._handshake.reload_history(self._session)

    def _fail(self, error: ForemindError, cause: ErrorCause) -> None:
        if isinstance(self._session, SceneSession):
            self._session.fail(error, cause)
            return
        if self._session is not None:
            self._session.client.fail(error, cause)
            return
        self._services.runtime.metrics.errors.labels(error.code).inc()
        self._outbox.put(encode(ErrorEvent(error=error_body(error, cause))))


async def _wait_for_turn(fairness_lock: asyncio.Lock) -> None:
    """Wait in line, and let the event loop run between this waiter and the one before."""
    async with fairness_lock:
        await asyncio.sleep(0)


def offered_token(subprotocols: list[str]) -> str | None:
    """Return the token among the offered subprotocols, which is where browsers have to put it."""
    for subprotocol in subprotocols:
        if subprotocol.startswith(_BEARER):
            return subprotocol.removeprefix(_BEARER)
    return None
