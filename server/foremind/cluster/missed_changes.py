"""What follows from versions that are newer than the known ones. Pure.

Announcements may be lost; versions in the database are not. Whoever reads them finds out what no
announcement has told, and handles it as if it had been announced.
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
from foremind.domain.versions import CompanionVersions, RelationshipVersions


def missed_of_companion(
    known: CompanionVersions, current: CompanionVersions
) -> tuple[list[Announcement], CompanionVersions]:
    """Return what must have been announced between two states, and what is known then."""
    missed: list[Announcement] = []
    if current.version > known.version:
        missed.append(CompanionChanged(current.companion_id, current.version))
    if current.documents > known.documents:  # one may have been deleted
        missed.append(LibraryChanged(current.companion_id, current.documents, gone=True))
    newest = CompanionVersions(
        current.companion_id,
        max(known.version, current.version),
        max(known.documents, current.documents),
    )
    return missed, newest


def missed_of_relationship(
    known: RelationshipVersions, current: RelationshipVersions
) -> tuple[list[Announcement], RelationshipVersions]:
    """Return what must have been announced between two states, and what is known then.

    Which turns were removed is unknown, so it may have been any.
    """
    missed: list[Announcement] = []
    relationship_id = current.relationship_id
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
    )
    return missed, newest


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
        case MemoriesForgotten():
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
