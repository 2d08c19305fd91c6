"""How many sessions may be open, in total and per user."""

from collections import Counter

from foremind.domain.settings.settings import Settings


class SessionPlaces:
    """Counts sessions, including places reserved for those that are being opened."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.total = 0
        self.by_user: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        """Whether the server is at its session limit."""
        return self.total >= self._settings.max_sessions

    def full_for(self, user_id: str) -> bool:
        """Return whether a user is at the session limit."""
        return self.by_user[user_id] >= self._settings.max_sessions_per_user

    def take(self, user_id: str) -> None:
        """Reserve a place."""
        self.by_user[user_id] += 1
        self.total += 1

    def release(self, user_id: str) -> None:
        """Release the place of a session that ended or never opened."""
        self.total -= 1
        self.by_user[user_id] -= 1
        if not self.by_user[user_id]:
            del self.by_user[user_id]
