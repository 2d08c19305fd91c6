"""How long what this process has cached may be used without asking the database.

Announcements keep caches current. Where they cannot be relied on, whoever is about to use what is
cached of a relationship compares versions first, and every few seconds those of all open sessions
are compared anyway: that finds what a process committed and, as it died, did not announce. What is
found is handled as if it had been announced.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from cachetools import LRUCache

from foremind.cluster.announcement_bus import AnnouncementReceiver
from foremind.cluster.missed_changes import (
    companion_after,
    missed_of_companion,
    missed_of_relationship,
    relationship_after,
)
from foremind.domain.announcements import (
    Announcement,
    CompanionChanged,
    LibraryChanged,
    RelationshipDeleted,
)
from foremind.domain.clock import Clock
from foremind.domain.versions import CompanionVersions, RelationshipVersions, VersionsInForce
from foremind.runtime.metrics import Metrics
from foremind.storage.version_store import VersionStore

#: How often the versions of open sessions are compared.
RECONCILE_S = 5.0
_MAX_AGE_S = 2 * RECONCILE_S  # of a comparison that is relied on
_MAX_TRACKED = 100_000  # relationships; those with anything cached are fewer
_BATCH = 1000  # relationships in one query


@dataclass(frozen=True, slots=True)
class _Known:
    versions: RelationshipVersions
    compared_at: float


class Freshness:
    """The versions that this process knows of, and whether they are those in force.

    Args:
        trusted: returns whether announcements arrive.
    """

    def __init__(
        self, store: VersionStore, trusted: Callable[[], bool], clock: Clock, metrics: Metrics
    ) -> None:
        self._store = store
        self._trusted = trusted
        self._clock = clock
        self._metrics = metrics
        self._relationships: LRUCache[int, _Known] = LRUCache(_MAX_TRACKED)
        self._companions: LRUCache[int, CompanionVersions] = LRUCache(_MAX_TRACKED)
        #: Receives what was missed; set before anything is compared.
        self.receiver: AnnouncementReceiver | None = None

    def on_announcement(self, announcement: Announcement) -> None:
        """Record the versions in an announcement."""
        if isinstance(announcement, CompanionChanged | LibraryChanged):
            companion = self._companions.get(announcement.companion_id)
            if companion is not None:
                self._companions[companion.companion_id] = companion_after(companion, announcement)
            return
        relationship_id = getattr(announcement, "relationship_id", None)
        known = None if relationship_id is None else self._relationships.get(relationship_id)
        if known is None:
            return
        if isinstance(announcement, RelationshipDeleted):
            del self._relationships[announcement.relationship_id]
            return
        versions = relationship_after(known.versions, announcement)
        self._relationships[versions.relationship_id] = _Known(versions, known.compared_at)

    @property
    def trusted(self) -> bool:
        """Whether announcements arrive, so that what this process caches is current in a moment."""
        return self._trusted()

    def is_fresh(self, relationship_id: int) -> bool:
        """Return whether what is cached of a relationship may be used without comparing."""
        known = self._relationships.get(relationship_id)
        return (
            known is not None
            and self.trusted
            and self._clock.monotonic() - known.compared_at <= _MAX_AGE_S
        )

    async def ensure(self, relationship_id: int) -> bool:
        """Compare the versions of a relationship, unless it is fresh; return whether some changed.

        Raises:
            StorageUnavailable: the database did not answer, so nothing may be used.
        """
        if self.is_fresh(relationship_id):
            return False
        return await self._compare([relationship_id])

    async def reconcile(self, relationships: Iterable[int]) -> None:
        """Compare the versions of relationships.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        waiting = list(relationships)
        for start in range(0, len(waiting), _BATCH):
            await self._compare(waiting[start : start + _BATCH])

    async def catch_up(self) -> None:
        """Compare everything that is known, after announcements may have been missed.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        await self.reconcile(list(self._relationships))

    def observe(self, current: VersionsInForce) -> list[Announcement]:
        """Handle what must have changed since the known versions, and return it."""
        missed: list[Announcement] = []
        relationship, companion = current.relationship, current.companion
        known_companion = self._companions.get(companion.companion_id, companion)
        found, newest = missed_of_companion(known_companion, companion)
        self._companions[companion.companion_id] = newest
        missed += found
        known = self._relationships.get(relationship.relationship_id)
        versions = relationship if known is None else known.versions
        found_here, versions = missed_of_relationship(versions, relationship)
        missed += found_here
        self._relationships[relationship.relationship_id] = _Known(
            versions, self._clock.monotonic()
        )
        self._deliver(missed)
        return missed

    async def _compare(self, relationships: Sequence[int]) -> bool:
        current = await self._store.versions(relationships)
        changed = False
        for relationship_id in relationships:
            if relationship_id in current:
                changed |= bool(self.observe(current[relationship_id]))
            else:
                self._relationships.pop(relationship_id, None)
                self._deliver([RelationshipDeleted(relationship_id)])
                changed = True
        return changed

    def _deliver(self, missed: Sequence[Announcement]) -> None:
        self._metrics.announcements.labels("missed").inc(len(missed))
        if self.receiver is not None:
            for announcement in missed:
                self.receiver.deliver(announcement)
