"""A session being opened: collects announcements while the database is still being read."""

from foremind.auth.authority import token_revoked
from foremind.auth.principal import Principal
from foremind.domain.announcements import AccessRevoked, Announcement, MemoriesForgotten
from foremind.domain.errors import ForemindError, StorageUnavailable

_MAX_ANNOUNCEMENTS = 4096  # of all relationships: which one it will be is not known yet


class PendingSession:
    """Announcements between a client's first message and its session, kept for that session.

    Data read from the database is as old as its query. An announcement that arrives after the query
    and before the session exists would otherwise be lost.
    """

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        #: Whether a place is reserved for the session.
        self.reserved = False
        self._announcements: list[Announcement] = []
        self._refusal: ForemindError | None = None

    def on_announcement(self, announcement: Announcement) -> None:
        """Record an announcement from this or another process."""
        if isinstance(announcement, AccessRevoked):
            principal = self.principal
            if announcement.covers(principal.user_id, principal.token_id, principal.issued_at):
                self.refuse(token_revoked())
        elif len(self._announcements) < _MAX_ANNOUNCEMENTS:
            self._announcements.append(announcement)
        else:
            self.refuse(StorageUnavailable("The session took too long to open; try again shortly."))

    def refuse(self, error: ForemindError) -> None:
        """Make the next `check` fail; the first error counts."""
        self._refusal = self._refusal or error

    def check(self) -> None:
        """Check that the session may still be opened; call after every wait.

        Raises:
            NotAuthenticated, StorageUnavailable, Draining: it may not.
        """
        if self._refusal is not None:
            raise self._refusal

    def take_erasures(self, relationship_id: int) -> list[MemoriesForgotten]:
        """Remove and return the erasures of a relationship announced since the last call."""
        erasures = [
            announcement
            for announcement in self._announcements
            if isinstance(announcement, MemoriesForgotten)
            and announcement.relationship_id == relationship_id
        ]
        self._announcements = [
            announcement for announcement in self._announcements if announcement not in erasures
        ]
        return erasures

    def take_announcements(self) -> list[Announcement]:
        """Remove and return the remaining announcements, in order."""
        announcements, self._announcements = self._announcements, []
        return announcements
