"""How long what this process has cached may be used without asking the database.

Announcements keep caches current. Where they cannot be relied on, whoever is about to use what is
cached of a relationship compares versions first, and every few seconds those of all open sessions
are compared anyway: that finds what a process committed and, as it died, did not announce. What is
found is handled as if it had been announced.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

import structlog
from cachetools import LRUCache

from foremind.cluster.announcement_bus import AnnouncementReceiver
from foremind.cluster.missed_changes import (
    are_lower,
    companion_after,
    confirmed,
    missed_of_companion,
    missed_of_relationship,
    relationship_after,
)
from foremind.domain.announcements import (
    Announcement,
    CompanionChanged,
    ConsentGiven,
    LayersChanged,
    LibraryChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
    RelationshipDeleted,
    SettingsChanged,
)
from foremind.domain.clock import Clock
from foremind.domain.errors import StorageUnavailable
from foremind.domain.turn import CompanionVersions, RelationshipVersions, VersionsInForce
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin, stop
from foremind.storage.relationship_store import VersionStore

#: How often the versions of open sessions are compared.
RECONCILE_S = 5.0
_MAX_AGE_S = 2 * RECONCILE_S  # of a comparison that is relied on
_MAX_TRACKED = 100_000  # relationships; those with anything cached are fewer
_BATCH = 1000  # relationships in one query
_MAX_HINTS = 20  # of one relationship that wait for its versions; the rest is found by comparing

_VERSIONED = (
    MemoryAnnouncement
    | MemoriesChanged
    | MemoriesForgotten
    | LayersChanged
    | ConsentGiven
    | SettingsChanged
    | RelationshipDeleted
)

_log = structlog.get_logger("foremind.cluster")


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
        self._hints: dict[int, list[Announcement]] = {}  # by relationship, of those known
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._looking is not None:
            await stop(self._looking)

    def hint(self, announcement: Announcement) -> bool:
        """Look at what another process announces of the versions of a known relationship.

        Whoever can reach the bus can announce anything. So what is known changes only by what the
        database says, which is read at once.

        Returns:
            Whether listeners are told once it was read, and not of the announcement itself.
        """
        if not isinstance(announcement, _VERSIONED):
            return False
        relationship_id = announcement.relationship_id
        known = self._relationships.get(relationship_id)
        if known is None:
            return False
        self._relationships[relationship_id] = replace(known, compared_at=float("-inf"))
        hints = self._hints.setdefault(relationship_id, [])
        if len(hints) < _MAX_HINTS:
            hints.append(announcement)
        if self._looking is None or self._looking.done():
            self._looking = begin(self._look(), "look-at-hints")
        return True

    async def _look(self) -> None:
        """Compare the relationships that there are hints of, until there are none."""
        while self._hints:
            hints, self._hints = self._hints, {}
            try:
                await self.reconcile(hints)
            except StorageUnavailable as error:  # they are compared before they are used
                _log.warning("hints.not_read", reason=error.code)
                continue
            for relationship_id, announcements in hints.items():
                known = self._relationships.get(relationship_id)
                if known is None or self.receiver is None:
                    continue
                for announcement in announcements:
                    told = confirmed(announcement, known.versions)
                    if told is not None:
                        self.receiver.deliver(told)

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

    def removals(self, relationship_id: int) -> int:
        """Return how many removals are known of a relationship, -1 if none of it is known."""
        known = self._relationships.get(relationship_id)
        return -1 if known is None else known.versions.removals

    async def ensure(self, relationship_id: int) -> bool:
        """Compare the versions of a relationship, unless it is fresh; return whether some changed.

        Raises:
            StorageUnavailable: the database did not answer, so nothing may be used.
        """
        if self.is_fresh(relationship_id):
            return False
        return bool(await self._compare([relationship_id]))

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

    async def observe(self, current: VersionsInForce) -> list[Announcement]:
        """Handle what must have changed since the known versions, and return it.

        Raises:
            StorageUnavailable: they are lower than the known ones, and could not be read again.
        """
        relationship_id = current.relationship.relationship_id
        known = self._relationships.get(relationship_id)
        missed = self._observe(current, None)
        if known is not None and are_lower(current.relationship, known.versions):
            missed += await self._compare([relationship_id])
        return missed

    def _observe(
        self, current: VersionsInForce, before: RelationshipVersions | None
    ) -> list[Announcement]:
        missed: list[Announcement] = []
        relationship, companion = current.relationship, current.companion
        known_companion = self._companions.get(companion.companion_id, companion)
        found, newest = missed_of_companion(known_companion, companion)
        self._companions[companion.companion_id] = newest
        missed += found
        known = self._relationships.get(relationship.relationship_id)
        versions = relationship if known is None else known.versions
        found_here, versions = missed_of_relationship(versions, relationship, before)
        missed += found_here
        if before is not None and are_lower(relationship, before):
            _log.warning("versions.went_back", relationship_id=relationship.relationship_id)
        self._relationships[relationship.relationship_id] = _Known(
            versions, self._clock.monotonic()
        )
        self._deliver(missed)
        return missed

    async def _compare(self, relationships: Sequence[int]) -> list[Announcement]:
        before = {number: self._relationships.get(number) for number in relationships}
        current = await self._store.versions(relationships)
        missed: list[Announcement] = []
        for relationship_id in relationships:
            if relationship_id in current:
                known = before[relationship_id]
                missed += self._observe(
                    current[relationship_id], None if known is None else known.versions
                )
            else:
                self._relationships.pop(relationship_id, None)
                deleted = RelationshipDeleted(relationship_id)
                self._deliver([deleted])
                missed.append(deleted)
        return missed

    def _deliver(self, missed: Sequence[Announcement]) -> None:
        self._metrics.announcements.labels("missed").inc(len(missed))
        if self.receiver is not None:
            for announcement in missed:
                self.receiver.deliver(announcement)
