"""The client of one session: its principal, its connection, and what it is sent."""

from foremind.auth.principal import Principal
from foremind.domain.errors import ForemindError, NotAuthenticated
from foremind.gateway.event_stream import EventListener, EventStream
from foremind.gateway.own_messages import OwnMessages
from foremind.gateway.protocol.decoding import DecodingProblem, error_body
from foremind.gateway.protocol.server_events import ErrorEvent, Event, SessionRedirect
from foremind.runtime.services import RuntimeServices

NOT_AUTHENTICATED = 4401
NOT_ALLOWED = 4403
REPLACED = 4409
ELSEWHERE = 4421  # as HTTP's 421, Misdirected Request
DRAINING = 4503


class SessionClient:
    """Sends events to the client of one session, while it is connected; buffers them otherwise."""

    def __init__(self, principal: Principal, stream: EventStream, runtime: RuntimeServices) -> None:
        self.principal = principal
        self.own_messages = OwnMessages()
        self._stream = stream
        self._metrics = runtime.metrics
        self._clock = runtime.clock
        #: Monotonic time at which the connection was lost; None while connected.
        self.detached_at: float | None = self._clock.monotonic()
        #: Monotonic time at which it last sent something, or connected.
        self.active_at = self._clock.monotonic()

    def attach(self, listener: EventListener) -> None:
        """Replace the previous connection."""
        previous = self._stream.listener
        if previous is not None:
            previous.close(REPLACED, "replaced by a newer connection")
        self._stream.attach(listener)
        self.detached_at = None
        self.active_at = self._clock.monotonic()

    def has_newer(self, listener: EventListener) -> bool:
        """Return whether a connection is attached that was accepted after this one."""
        attached = self._stream.listener
        return attached is not None and attached.accepted > listener.accepted

    def detach(self, listener: EventListener) -> bool:
        """Handle the loss of a connection; return False if another one has replaced it."""
        if self._stream.listener is not listener:
            return False
        self._stream.attach(None)
        self.detached_at = self._clock.monotonic()
        return True

    def disconnect(self, code: int, reason: str) -> None:
        """Close the connection, if there is one, once its queue is sent."""
        if self._stream.listener is not None:
            self._stream.listener.close(code, reason)

    def redirect(self, url: str) -> None:
        """Tell the client which gateway serves its session now, and close the connection."""
        self._stream.emit(SessionRedirect(url=url))
        self.disconnect(ELSEWHERE, "served by another gateway")

    def renew(self, principal: Principal) -> None:
        """Continue under another token of the same user, which may allow less."""
        self.principal = principal
        if not principal.allows("memory:read"):
            self._stream.withhold_memories()

    def can_replay_after(self, seq: int) -> bool:
        """Return whether every event after `seq` is still buffered."""
        return self._stream.missed(seq) is not None

    def continue_after(self, seq: int) -> None:
        """Number events from here on: the client has events that this process never buffered."""
        self._stream.seq = seq

    def prune(self) -> None:
        """Drop expired events."""
        self._stream.prune()

    def emit(self, event: Event) -> None:
        """Send an event about a turn."""
        self.own_messages.on_event(event)
        self._stream.emit(event)

    def fail(self, error: ForemindError, cause: DecodingProblem) -> None:
        """Send an error about something that the client sent."""
        self._metrics.errors.labels(error.code).inc()
        self._stream.emit(ErrorEvent(error=error_body(error, cause)))

    def fail_message(self, error: ForemindError, cause: DecodingProblem) -> None:
        """Send an error about a message; disconnect a client whose token was revoked."""
        self.fail(error, cause)
        if isinstance(error, NotAuthenticated):  # revoked, and that was not announced yet
            self.disconnect(NOT_AUTHENTICATED, "token revoked")
