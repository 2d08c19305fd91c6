"""What follows from versions that differ from the known ones. Pure.

Announcements may be lost, late or forged; versions in the database are none of these. Whoever reads
them finds out what no announcement has told, and handles it as if it had been announced.
"""

from collections.abc import Sequence

import msgspec

from foremind.domain.announcements import (
    Announcement,
    CompanionChanged,
    ConsentGiven,
    LayersChanged,
    LibraryChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
    SettingsChanged,
)
from foremind.domain.turn import CompanionVersions, RelationshipVersions


def missed_of_companion(
    known: CompanionVersions, current: CompanionVersions
) -> tuple[list[Announcement], CompanionVersions]:
    """Return what must have been announced between two states, and what is known then."""
    missed: list[Announcement] = []
    if current.version != known.version:
        missed.append(CompanionChanged(current.companion_id, current.version))
    if current.documents != known.documents:  # one may have been deleted
        missed.append(LibraryChanged(current.companion_id, current.documents, gone=True))
    return missed, current


def are_lower(current: RelationshipVersions, known: RelationshipVersions) -> bool:
    """Return whether some counter is lower than known."""
    return any(getattr(current, counter) < getattr(known, counter) for counter in _COUNTERS)


_COUNTERS = ("memory_version", "layers_version", "removals", "erasures", "settings_version")


def missed_of_relationship(
    known: RelationshipVersions,
    current: RelationshipVersions,
    before: RelationshipVersions | None = None,
) -> tuple[list[Announcement], RelationshipVersions]:
    """Return what must have been announced between two states, and what is known then.

    Which turns were removed is unknown, so it may have been any.

    Args:
        before: what was known when `current` began to be read, if that is known: lower counters
            went back. Those lower than `known` alone may have been read before it.
    """
    missed: list[Announcement] = []
    relationship_id = current.relationship_id
    went_back = before is not None and are_lower(current, before)
    if went_back or current.incarnation != known.incarnation:
        return [
            SettingsChanged(relationship_id, current.settings_version),
            ConsentGiven(relationship_id, current.consented, current.settings_version),
            MemoriesForgotten(
                relationship_id,
                current.memory_version,
                current.layers_version,
                current.erasures,
                None,
                current.removals,
                went_back=True,
            ),
        ], current
    memory_version = max(known.memory_version, current.memory_version)
    layers_version = max(known.layers_version, current.layers_version)
    erasures = max(known.erasures, current.erasures)
    if current.settings_version > known.settings_version:
        missed.append(SettingsChanged(relationship_id, current.settings_version))
        missed.append(ConsentGiven(relationship_id, current.consented, current.settings_version))
    if current.removals > known.removals:
        missed.append(
            MemoriesForgotten(
                relationship_id, memory_version, layers_version, erasures, None, current.removals
            )
        )
    else:
        if memory_version > known.memory_version:
            missed.append(MemoriesChanged(relationship_id, memory_version))
        if layers_version > known.layers_version:
            missed.append(LayersChanged(relationship_id, layers_version))
    latest = current if current.settings_version >= known.settings_version else known
    newest = RelationshipVersions(
        relationship_id,
        memory_version,
        layers_version,
        max(known.removals, current.removals),
        erasures,
        latest.settings_version,
        latest.consented,
        current.incarnation,
    )
    return missed, newest


def confirmed(announcement: Announcement, current: RelationshipVersions) -> Announcement | None:
    """Return what an announcement tells besides versions, None for nothing.

    Args:
        current: the versions read after it arrived; it may claim no higher ones.
    """
    replace = msgspec.structs.replace
    match announcement:
        case MemoryAnnouncement():
            claimed = announcement.memory_version
            version = None if claimed is None else min(claimed, current.memory_version)
            return replace(announcement, memory_version=version)
        case LayersChanged() if announcement.summary is not None:
            version = min(announcement.layers_version, current.layers_version)
            return replace(announcement, layers_version=version)
    return None


def outdates_reply(missed: Sequence[Announcement], *, trusted: bool) -> bool:
    """Return whether a reply must be generated again because of what was missed before its message.

    Memories and layers keep growing while a player talks. What they gained a moment ago, and what
    is announced a moment later, may wait for the next reply; nothing else may.

    Args:
        trusted: whether announcements arrive.
    """
    if not trusted:
        return bool(missed)
    return any(not isinstance(item, MemoriesChanged | LayersChanged) for item in missed)


def companion_after(known: CompanionVersions, announcement: Announcement) -> CompanionVersions:
    """Return what is known of a companion once an announcement about it was handled."""
    if isinstance(announcement, CompanionChanged):
        version = max(known.version, announcement.version)
        return msgspec.structs.replace(known, version=version)
    if isinstance(announcement, LibraryChanged) and announcement.version == known.documents + 1:
        return msgspec.structs.replace(known, documents=announcement.version)
    return known  # an earlier deletion may have been missed: the version stays behind


def relationship_after(
    known: RelationshipVersions, announcement: Announcement
) -> RelationshipVersions:
    """Return what is known of a relationship once an announcement about it was handled."""
    replace = msgspec.structs.replace
    match announcement:
        case MemoriesForgotten() if not announcement.went_back:  # else it is known already
            # If an earlier one was missed, the number stays behind.
            follows = announcement.removals == known.removals + 1
            return replace(
                known,
                memory_version=max(known.memory_version, announcement.memory_version),
                layers_version=max(known.layers_version, announcement.layers_version),
                erasures=max(known.erasures, announcement.erasures),
                removals=announcement.removals if follows else known.removals,
            )
        case MemoriesChanged() | MemoryAnnouncement() if announcement.memory_version is not None:
            version = max(known.memory_version, announcement.memory_version)
            return replace(known, memory_version=version)
        case LayersChanged():
            return replace(
                known, layers_version=max(known.layers_version, announcement.layers_version)
            )
        case ConsentGiven() if announcement.version == known.settings_version + 1:
            return replace(
                known, settings_version=announcement.version, consented=announcement.given
            )
        case SettingsChanged() if announcement.version == known.settings_version + 1:
            return replace(known, settings_version=announcement.version)
    return known
