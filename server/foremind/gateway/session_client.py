"""The client of one session: its principal, its connection, and what it is sent."""

from uuid import uuid4

from cachetools import LRUCache

from foremind.auth.principal import Principal
from foremind.domain.announcements import MemoryAnnouncement
from foremind.domain.errors import ForemindError, NotAuthenticated
from foremind.domain.turn import Trigger
from foremind.gateway.event_builders import context_ready
from foremind.gateway.event_stream import EventListener, EventStream
from foremind.gateway.protocol.decoding import ErrorCause, error_body
from foremind.gateway.protocol.server_events import (
    ErrorEvent,
    Event,
    MessageAccepted,
    SessionRedirect,
)
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.typeahead.context_cache import PreparedContext

_MAX_OWN_MESSAGES = 512  # message ids for which a session reports memory.stored


class OwnMessages:
    """The ids of the messages that the client of one session sent last."""

    def __init__(self) -> None:
        self._sent: LRUCache[str, None] = LRUCache(_MAX_OWN_MESSAGES)
        #: Those that were accepted, and whose memory.stored is still to come.
        self._unscored: LRUCache[str, None] = LRUCache(_MAX_OWN_MESSAGES)

    @property
    def scored(self) -> bool:
        """Whether no memory.stored is to be expected."""
        return not self._unscored

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._sent

    def add(self, message_id: str) -> None:
        """Record a message that is about to be answered."""
        self._sent[message_id] = None

    def on_event(self, event: Event) -> None:
        """An event is sent: one that accepts a new message says that it will be scored."""
        if isinstance(event, MessageAccepted) and event.remembered and not event.duplicate:
            self._unscored[event.id] = None

    def on_scored(self, announcement: MemoryAnnouncement) -> bool:
        """Record that a turn was scored; return whether it is a message of this client."""
        message_id = announcement.message_id
        if announcement.speaker != "user" or message_id is None:
            return False
        self._unscored.pop(message_id, None)
        return message_id in self._sent

    def expect_no_scores(self) -> None:
        """Forget which scores are still to come: they may have been missed."""
        self._unscored.clear()


NOT_AUTHENTICATED = 4401
NOT_ALLOWED = 4403
REPLACED = 4409
ELSEWHERE = 4421  # as HTTP's 421, Misdirected Request
DRAINING = 4503


class SessionClient:
    """Sends events to the client of one session, while it is connected; buffers them otherwise."""

    def __init__(
        self,
        principal: Principal,
        stream: EventStream,
        session_policy: SessionPolicy,
        services: SessionServices,
        relationship_id: int,
    ) -> None:
        self.principal = principal
        self.own_messages = OwnMessages()
        #: By which other processes tell this window from others with the same id.
        self.origin = uuid4().hex
        #: Whether it wants `context.ready`.
        self.wants_contexts = True
        #: Whether it wants `response.sentence`.
        self.wants_sentences = False
        self._stream = stream
        self._session_policy = session_policy
        self._contexts = services.context.cache
        self._relationship_id = relationship_id
        self._metrics = services.runtime.metrics
        self._clock = services.runtime.clock
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

    def fail(self, error: ForemindError, cause: ErrorCause) -> None:
        """Send an error about something that the client sent."""
        self._metrics.errors.labels(error.code).inc()
        self._stream.emit(ErrorEvent(error=error_body(error, cause)))

    def fail_message(self, error: ForemindError, cause: ErrorCause) -> None:
        """Send an error about a message; disconnect a client whose token was revoked."""
        self.fail(error, cause)
        if isinstance(error, NotAuthenticated):  # revoked, and that was not announced yet
            self.disconnect(NOT_AUTHENTICATED, "token revoked")

    def send_context(self, draft: str, context: PreparedContext, trigger: Trigger | None) -> None:
        """Note which layers a context was made of, and send `context.ready` if that is wanted.

        Args:
            trigger: what started the build; None if the client knows of it.
        """
        self._session_policy.observe_layers_version(context.cache_key.layers_version)
        if trigger is None or not self.wants_contexts:
            return
        if self._contexts.predates_erasure(self._relationship_id, context):
            return
        now = self._clock.now().astimezone(self._session_policy.time_zone)
        with_memories = self.principal.allows("memory:read")
        event = context_ready(draft, context, trigger, now, with_memories=with_memories)
        self._stream.emit(event, telemetry=True)
