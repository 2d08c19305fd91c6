"""One WebSocket connection: frames in, a session behind them, close codes out."""

import structlog
from starlette.websockets import WebSocket

from foremind.errors import (
    ForemindError,
    InvalidMessage,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Overloaded,
)
from foremind.gateway.decode import decode, error_body, event_id_of
from foremind.gateway.identity import identify, origin_allowed
from foremind.gateway.messages import ErrorEvent, SessionOpen, encode
from foremind.gateway.outbox import Outbox
from foremind.gateway.registry import DRAINING, SessionRegistry
from foremind.gateway.session import Services, Session

NOT_THIS_PROTOCOL = 4400
NOT_AUTHENTICATED = 4401
NOT_ALLOWED = 4403
OVER_LIMIT = 4429

_log = structlog.get_logger("foremind.gateway")


class Gateway:
    """The ASGI endpoint of `/v1/ws`."""

    def __init__(self, services: Services, registry: SessionRegistry) -> None:
        self._services = services
        self._registry = registry

    async def serve(self, socket: WebSocket) -> None:
        """Serve one connection until it ends."""
        services = self._services
        await socket.accept()
        services.metrics.connections.inc()
        try:
            async with Outbox(socket, services.settings.outbound_bytes, services.metrics) as outbox:
                origin, host = socket.headers.get("origin"), socket.headers.get("host")
                if not origin_allowed(origin, host, services.settings):
                    outbox.close(NOT_ALLOWED, "origin not allowed")
                elif self._registry.draining:
                    outbox.close(DRAINING, "server draining")
                else:
                    await Connection(socket, outbox, services, self._registry).serve()
        finally:
            services.metrics.connections.dec()


class Connection:
    """Reads frames until the client leaves or is closed."""

    def __init__(
        self, socket: WebSocket, outbox: Outbox, services: Services, registry: SessionRegistry
    ) -> None:
        self._socket = socket
        self._outbox = outbox
        self._services = services
        self._registry = registry
        self._session: Session | None = None

    async def serve(self) -> None:
        """Handle every frame, then end the session."""
        clock = self._services.clock
        deadline = clock.call_at(
            clock.monotonic() + self._services.settings.open_timeout_s,
            lambda: self._outbox.close(NOT_AUTHENTICATED, "no session.open in time"),
        )
        try:
            while (frame := await self._socket.receive())["type"] == "websocket.receive":
                arrived = clock.monotonic()
                text = frame.get("text")
                if text is None:
                    self._outbox.close(NOT_THIS_PROTOCOL, "expected text frames")
                    continue
                await self._handle(text, arrived)
                if self._session is not None:
                    deadline.cancel()
        finally:
            deadline.cancel()
            await self._end()

    async def _handle(self, raw: str, arrived: float) -> None:
        event_id: str | None = None
        try:
            try:
                message = decode(raw, self._services.settings.max_text_chars)
            except InvalidMessage:
                event_id = event_id_of(raw)
                raise
            event_id = message.event_id
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

    async def _open(self, message: SessionOpen) -> None:
        try:
            identity = identify(message, self._services.settings)
            session = await Session.open(self._services, identity, message, self._outbox)
            self._registry.add(session)
            session.begin()
        except ForemindError as error:
            self._fail(error, message.event_id)
            match error:
                case NotAuthenticated():
                    self._outbox.close(NOT_AUTHENTICATED, "not authenticated")
                case NotAllowed() | NotFound():
                    self._outbox.close(NOT_ALLOWED, "companion not allowed")
                case Overloaded():
                    self._outbox.close(OVER_LIMIT, "too many sessions")
            return
        self._session = session
        structlog.contextvars.bind_contextvars(session_id=session.id)
        _log.info("session.opened", companion=message.companion)

    def _fail(self, error: ForemindError, event_id: str | None) -> None:
        if self._session is not None:
            self._session.fail(error, event_id)
            return
        self._services.metrics.errors.labels(error.code).inc()
        self._outbox.put(encode(ErrorEvent(error=error_body(error, event_id))))

    async def _end(self) -> None:
        if self._session is None:
            return
        self._registry.remove(self._session)
        try:
            await self._session.close()
        except ForemindError as error:
            _log.warning("session.not_closed", reason=error.code)
        _log.info("session.closed")
