"""What was forgotten, as this process has heard it: what waits is not to go on with it."""

from cachetools import LRUCache

from foremind.domain.announcements import MemoriesForgotten
from foremind.domain.errors import Conflict
from foremind.storage.notifications import Announcement

_KNOWN = 10_000  # relationships; of others it is found out when something is to be written


class ErasureWatch:
    """How often something was erased of relationships."""

    def __init__(self) -> None:
        self._erasures: LRUCache[int, int] = LRUCache(_KNOWN)

    def heard(self, announcement: Announcement) -> None:
        """Learn that something was forgotten."""
        if isinstance(announcement, MemoriesForgotten):
            whose = announcement.relationship_id
            self._erasures[whose] = max(announcement.erasures, self.of(whose))

    def of(self, relationship_id: int) -> int:
        """Return how often something was erased, as far as is known."""
        return int(self._erasures.get(relationship_id, 0))

    def check(self, relationship_id: int, erasures: int) -> None:
        """Make sure that nothing was erased since it had been so often.

        Raises:
            Conflict: something was.
        """
        if self.of(relationship_id) > erasures:
            raise Conflict("Something was forgotten or corrected meanwhile.")
