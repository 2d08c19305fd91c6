"""The open sessions of this process: who hears of a memory, and how they all end."""

from collections import defaultdict

from foremind.clock import Clock
from foremind.errors import Overloaded
from foremind.gateway.session import Session
from foremind.metrics import Metrics
from foremind.storage.documents import LibraryChanged
from foremind.storage.forgetting import MemoriesForgotten
from foremind.storage.memories import MemoryStore
from foremind.storage.notifications import Announcement
from foremind.storage.records import LayersChanged

DRAINING = 4503
_POLL_S = 0.05


class SessionRegistry:
    """At most `capacity` sessions."""

    def __init__(self, capacity: int, store: MemoryStore, clock: Clock, metrics: Metrics) -> None:
        self._capacity = capacity
        self._store = store
        self._clock = clock
        self._metrics = metrics
        self._sessions: defaultdict[int, set[Session]] = defaultdict(set)
        self._count = 0
        self.draining = False

    def add(self, session: Session) -> None:
        """Take in a session that opened.

        Raises:
            Overloaded: the server holds as many as it may.
        """
        if self._count >= self._capacity:
            raise Overloaded("The server holds as many sessions as it may; try again shortly.")
        self._sessions[session.relationship_id].add(session)
        self._count += 1
        self._metrics.sessions.set(self._count)

    def remove(self, session: Session) -> None:
        """Forget a session that ended."""
        group = self._sessions[session.relationship_id]
        group.discard(session)
        if not group:
            del self._sessions[session.relationship_id]
        self._count -= 1
        self._metrics.sessions.set(self._count)

    def announce(self, announcement: Announcement) -> None:
        """Tell the sessions of a relationship what became of its turns."""
        if isinstance(announcement, LibraryChanged):
            return
        for session in list(self._sessions.get(announcement.relationship_id, ())):
            match announcement:
                case MemoriesForgotten():
                    session.forget(announcement.memory_version)
                case LayersChanged():
                    session.layers_changed(announcement)
                case _:
                    session.heard(announcement)

    async def catch_up(self) -> None:
        """Learn the memory versions anew, after announcements may have been missed."""
        versions = await self._store.versions(list(self._sessions))
        for relationship_id, version in versions.items():
            for session in self._sessions.get(relationship_id, ()):
                session.forget(version)  # that something was forgotten may have been missed too

    async def drain(self, seconds: float) -> None:
        """Let replies under way finish for at most `seconds`, then close every session."""
        self.draining = True
        until = self._clock.monotonic() + seconds
        while any(each.busy for each in self._all()) and self._clock.monotonic() < until:
            await self._clock.sleep(_POLL_S)
        for session in self._all():
            session.disconnect(DRAINING, "server draining")
        while self._count and self._clock.monotonic() < until + 1:
            await self._clock.sleep(_POLL_S)

    def _all(self) -> list[Session]:
        return [session for group in self._sessions.values() for session in group]
