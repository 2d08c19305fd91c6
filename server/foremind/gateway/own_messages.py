"""The messages of one session whose scoring its client is to learn of."""

from cachetools import LRUCache

from foremind.domain.announcements import MemoryAnnouncement
from foremind.gateway.protocol.server_events import Event, MessageAccepted

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
