"""What one session makes of announcements about its relationship."""

from contextlib import suppress

from foremind.domain.announcements import (
    Announcement,
    ConsentGiven,
    LayersChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
)
from foremind.domain.errors import StorageUnavailable
from foremind.gateway.event_builders import memory_stored
from foremind.gateway.event_stream import EventStream
from foremind.gateway.live_state import LiveState
from foremind.gateway.own_messages import OwnMessages
from foremind.gateway.protocol.server_events import SummaryAppliedEvent
from foremind.gateway.session_policy import SessionPolicy
from foremind.gateway.turns.turn_pipeline import TurnPipeline


class SessionAnnouncements:
    """Records what changed, drops what is cached of it, and tells the client what concerns it."""

    def __init__(
        self,
        session_policy: SessionPolicy,
        state: LiveState,
        pipeline: TurnPipeline,
        own_messages: OwnMessages,
        stream: EventStream,
    ) -> None:
        self._session_policy = session_policy
        self._state = state
        self._pipeline = pipeline
        self._own_messages = own_messages
        self._stream = stream

    def handle(self, announcement: Announcement) -> None:
        """Handle an announcement of this or another process about the session's relationship."""
        match announcement:
            case ConsentGiven():
                self._session_policy.set_consent(given=announcement.given)
            case MemoriesChanged():  # which makes contexts stale
                self._session_policy.observe_memory_version(announcement.memory_version)
            case MemoriesForgotten(went_back=True):
                self._session_policy.go_back(announcement.memory_version)
                self._pipeline.drop_history(announcement.erasures, went_back=True)
                self._state.invalidate()
            case MemoriesForgotten():
                self._session_policy.observe_memory_version(announcement.memory_version)
                self.drop_cached(announcement.erasures)
            case LayersChanged():
                self._on_layers_changed(announcement)
            case MemoryAnnouncement():
                self._on_turn_scored(announcement)

    async def read_state(self) -> None:
        """Reload the state, which was changed elsewhere."""
        self._state.invalidate()
        with suppress(StorageUnavailable):  # then it is loaded with the next message
            await self._state.read()

    def drop_history(self) -> None:
        """Drop history and state, which may have changed elsewhere; both are loaded again."""
        self._pipeline.drop_history()
        self._state.invalidate()
        self._own_messages.expect_no_scores()

    def drop_cached(self, erasures: int | None = None) -> None:
        """Drop everything cached that may contain erased text.

        Args:
            erasures: the number of erasures in this relationship so far, if some happened.
        """
        self._session_policy.forget_layers_version()
        self._pipeline.drop_history(erasures)
        self._state.invalidate()
        self._stream.clear()
        self._own_messages.expect_no_scores()

    def _on_layers_changed(self, announcement: LayersChanged) -> None:
        self._session_policy.observe_layers_version(announcement.layers_version)
        self._pipeline.on_layers()
        summary = announcement.summary
        if summary is not None:
            self._stream.emit(
                SummaryAppliedEvent(
                    messages=summary.messages, lines=summary.lines, made_by=summary.made_by
                )
            )

    def _on_turn_scored(self, announcement: MemoryAnnouncement) -> None:
        if announcement.memory_version is not None:
            self._session_policy.observe_memory_version(announcement.memory_version)
        message_id = announcement.message_id
        if (
            message_id is not None
            and message_id not in self._own_messages
            and self._pipeline.lacks(message_id, announcement.speaker)
        ):
            # Another process has a window of this session.
            self._pipeline.drop_history()
        if self._own_messages.on_scored(announcement):
            self._stream.emit(memory_stored(announcement))
