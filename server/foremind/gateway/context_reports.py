"""Reports the contexts of one session to its client."""

from foremind.domain.prefetch import Trigger
from foremind.gateway.event_builders import context_ready
from foremind.gateway.event_stream import EventStream
from foremind.gateway.session_client import SessionClient
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.session_services import SessionServices
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import ContextAtEnter


class ContextReports:
    """Notes which layers the contexts of one session were made of, and sends `context.ready`."""

    def __init__(
        self,
        relationship_id: int,
        session_policy: SessionPolicy,
        services: SessionServices,
        client: SessionClient,
        stream: EventStream,
    ) -> None:
        self._relationship_id = relationship_id
        self._session_policy = session_policy
        self._services = services
        self._client = client
        self._stream = stream
        #: Whether the client wants `context.ready`.
        self.wanted = True

    def prepared(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        """A context for a draft is ready."""
        self._session_policy.observe_layers_version(context.cache_key.layers_version)
        self._emit(draft, context, trigger)

    def at_enter(self, text: str, at_enter: ContextAtEnter) -> None:
        """A message has a context, of which the client may not know yet."""
        if at_enter.context is not None:
            self._session_policy.observe_layers_version(at_enter.context.cache_key.layers_version)
            if at_enter.trigger is not None:
                self._emit(text, at_enter.context, at_enter.trigger)

    def _emit(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        if not self.wanted:
            return
        if self._services.context.cache.predates_erasure(self._relationship_id, context):
            return
        now = self._services.runtime.clock.now().astimezone(self._session_policy.time_zone)
        with_memories = self._client.principal.allows("memory:read")
        event = context_ready(draft, context, trigger, now, with_memories=with_memories)
        self._stream.emit(event, telemetry=True)
