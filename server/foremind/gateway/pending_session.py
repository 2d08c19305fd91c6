"""Somebody who wants in: hears what is announced while the database is still being read."""

from foremind.auth.authority import revoked
from foremind.auth.principal import Principal
from foremind.domain.announcements import AccessRevoked, MemoriesForgotten
from foremind.domain.errors import ForemindError, StorageUnavailable
from foremind.storage.notifications import Announcement

_MOST_HEARD = 4096  # of all relationships: whose session it becomes is read only meanwhile


class PendingSession:
    """What happens between a caller's first word and its session, kept for that session.

    What is read from the database is as old as the moment it was asked for. An announcement that
    comes after that moment and before the session is there would otherwise reach nobody.
    """

    def __init__(self, caller: Principal) -> None:
        self.caller = caller
        #: Whether a place is kept for the session that comes of it.
        self.reserved = False
        self._heard: list[Announcement] = []
        self._refusal: ForemindError | None = None

    def announce(self, told: Announcement) -> None:
        """Learn that something happened, here or in another process."""
        if isinstance(told, AccessRevoked):
            if told.covers(self.caller.user_id, self.caller.token_id, self.caller.issued_at):
                self.refuse(revoked())
        elif len(self._heard) < _MOST_HEARD:
            self._heard.append(told)
        else:
            self.refuse(StorageUnavailable("The session took too long to open; try again shortly."))

    def refuse(self, error: ForemindError) -> None:
        """Let nothing come of it; the first reason counts."""
        self._refusal = self._refusal or error

    def check(self) -> None:
        """Check that it may go on, after every wait.

        Raises:
            NotAuthenticated, StorageUnavailable, Draining: it may not.
        """
        if self._refusal is not None:
            raise self._refusal

    def take_forgets(self, relationship_id: int) -> list[MemoriesForgotten]:
        """Return what was forgotten of a relationship since this was asked last."""
        forgets = [
            each
            for each in self._heard
            if isinstance(each, MemoriesForgotten) and each.relationship_id == relationship_id
        ]
        self._heard = [each for each in self._heard if each not in forgets]
        return forgets

    def take_heard(self) -> list[Announcement]:
        """Return what else was announced meanwhile, in order."""
        heard, self._heard = self._heard, []
        return heard
