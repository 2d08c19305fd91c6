"""Counts announced erasures, so that queued work does not use erased text."""

from cachetools import LRUCache

from foremind.domain.announcements import Announcement, MemoriesForgotten
from foremind.domain.errors import Conflict

_MAX_RELATIONSHIPS = 10_000  # for others, the check before writing finds the erasure


class ErasureWatch:
    """The number of erasures per relationship, as far as this process knows."""

    def __init__(self) -> None:
        self._erasures: LRUCache[int, int] = LRUCache(_MAX_RELATIONSHIPS)

    def on_announcement(self, announcement: Announcement) -> None:
        """Update the number of erasures."""
        if isinstance(announcement, MemoriesForgotten):
            relationship_id = announcement.relationship_id
            known = 0 if announcement.went_back else self.erasures_of(relationship_id)
            self._erasures[relationship_id] = max(announcement.erasures, known)

    def erasures_of(self, relationship_id: int) -> int:
        """Return the known number of erasures."""
        return int(self._erasures.get(relationship_id, 0))

    def check(self, relationship_id: int, erasures: int) -> None:
        """Check that nothing was erased since there had been this many erasures.

        Raises:
            Conflict: something was.
        """
        if self.erasures_of(relationship_id) > erasures:
            raise Conflict("Something was forgotten or corrected meanwhile.")
