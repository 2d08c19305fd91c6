"""Finds the open sessions of this process: by id, by relationship, or by what concerns them."""

from collections import defaultdict

from foremind.domain.announcements import (
    Announcement,
    LayersChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
    RelationshipDeleted,
    ReplyStored,
    SessionTaken,
    StateChanged,
)
from foremind.gateway.session import Session


class SessionIndex:
    """The open sessions, with or without a connection; each is a window with an id of its own."""

    def __init__(self) -> None:
        self._sessions: set[Session] = set()
        self._by_id: defaultdict[str, list[Session]] = defaultdict(list)
        self._by_relationship: defaultdict[int, set[Session]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: Session) -> bool:
        return session in self._sessions

    def add(self, session: Session) -> None:
        """Add a session."""
        self._sessions.add(session)
        self._by_id[session.id].append(session)
        self._by_relationship[session.relationship_id].add(session)

    def remove(self, session: Session) -> None:
        """Remove a session that is present."""
        self._sessions.discard(session)
        self._by_id[session.id].remove(session)
        if not self._by_id[session.id]:
            del self._by_id[session.id]
        group = self._by_relationship[session.relationship_id]
        group.discard(session)
        if not group:
            del self._by_relationship[session.relationship_id]

    def all(self) -> list[Session]:
        """Return all sessions."""
        return list(self._sessions)

    def relationships(self) -> list[int]:
        """Return the relationships with open sessions."""
        return list(self._by_relationship)

    def windows(self, session_id: str) -> list[Session]:
        """Return what is open under an id, in the order in which it was opened."""
        return list(self._by_id.get(session_id, ()))

    def others(self, session: Session) -> list[Session]:
        """Return the other windows of a relationship."""
        return list(self._by_relationship[session.relationship_id] - {session})

    def resumable(self, session_id: str, seq: int) -> Session | None:
        """Return the session to resume by a client that has its events up to `seq`.

        Prefer one that can replay the missed events, then one that lost its connection, then the
        newest: an id may be used twice for a moment.
        """
        known = self.windows(session_id)
        replayable = [session for session in known if session.client.can_replay_after(seq)]
        detached = [session for session in replayable if session.detached_at is not None]
        return next(reversed(detached or replayable or known), None)

    def concerned_by(self, announcement: Announcement) -> list[Session]:
        """Return every session that an announcement concerns, and perhaps others."""
        match announcement:
            case SessionTaken():
                return self.windows(announcement.session_id)
            case (
                ReplyStored()
                | MemoriesForgotten()
                | LayersChanged()
                | MemoriesChanged()
                | MemoryAnnouncement()
                | StateChanged()
                | RelationshipDeleted()
            ):
                return list(self._by_relationship.get(announcement.relationship_id, ()))
        return self.all()
