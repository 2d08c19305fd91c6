"""What follows from versions that are newer than the known ones."""

import pytest
from msgspec.structs import replace

from foremind.cluster.missed_changes import (
    confirmed,
    missed_of_companion,
    missed_of_relationship,
    outdates_reply,
    relationship_after,
)
from foremind.domain.announcements import (
    CompanionChanged,
    LayersChanged,
    LibraryChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
    SettingsChanged,
)
from foremind.domain.turn import CompanionVersions, RelationshipVersions

KNOWN = RelationshipVersions(
    relationship_id=7,
    memory_version=3,
    layers_version=2,
    removals=1,
    erasures=1,
    settings_version=4,
    consented=False,
    incarnation="yesterday 16384",
)


def test_nothing_is_missed_of_what_is_known() -> None:
    """Nor of what is older, which another connection may have read."""
    older = replace(KNOWN, memory_version=2, layers_version=1)
    assert missed_of_relationship(KNOWN, KNOWN) == ([], KNOWN)
    assert missed_of_relationship(KNOWN, older) == ([], KNOWN)


@pytest.mark.parametrize(
    "counter", ["memory_version", "layers_version", "removals", "erasures", "settings_version"]
)
def test_a_counter_that_was_read_later_and_is_lower_went_back(counter: str) -> None:
    """A standby without the last commits took over: nothing that was known holds."""
    current = replace(KNOWN, **{counter: 0})
    missed, newest = missed_of_relationship(KNOWN, current, before=KNOWN)
    assert any(isinstance(item, MemoriesForgotten) and item.went_back for item in missed)
    assert newest == current


def test_versions_of_another_start_of_the_database_are_not_compared() -> None:
    """They may have caught up, and mean something else."""
    current = replace(KNOWN, incarnation="today 16384")
    missed, newest = missed_of_relationship(KNOWN, current)
    assert any(isinstance(item, MemoriesForgotten) and item.went_back for item in missed)
    assert newest == current


def test_an_announcement_claims_no_versions_that_the_database_does_not_have() -> None:
    forged = MemoryAnnouncement(7, "1", "user", 0.5, memory_version=10**9)
    told = confirmed(forged, KNOWN)
    assert isinstance(told, MemoryAnnouncement)
    assert told.memory_version == KNOWN.memory_version
    assert confirmed(MemoriesChanged(7, 10**9), KNOWN) is None


def test_a_newer_version_was_announced_by_somebody() -> None:
    current = replace(KNOWN, memory_version=5, layers_version=3)
    missed, newest = missed_of_relationship(KNOWN, current)
    assert missed == [MemoriesChanged(7, 5), LayersChanged(7, 3)]
    assert newest == current


def test_any_turn_may_have_been_removed_by_an_erasure_that_was_missed() -> None:
    current = replace(KNOWN, memory_version=4, removals=2, erasures=2)
    missed, _ = missed_of_relationship(KNOWN, current)
    (forgotten,) = missed
    assert isinstance(forgotten, MemoriesForgotten)
    assert forgotten.turn_ids is None


def test_an_announcement_after_one_that_was_missed_does_not_hide_it() -> None:
    """The number of removals stays behind, so that a comparison finds it."""
    later = MemoriesForgotten(7, 5, 2, 3, None, 3)
    assert relationship_after(KNOWN, later).removals == KNOWN.removals
    assert relationship_after(KNOWN, replace(later, removals=2)).removals == 2


def test_documents_may_have_been_deleted() -> None:
    missed, newest = missed_of_companion(CompanionVersions(1, 1, 1), CompanionVersions(1, 2, 2))
    assert missed == [CompanionChanged(1, 2), LibraryChanged(1, 2, gone=True)]
    assert newest == CompanionVersions(1, 2, 2)


@pytest.mark.parametrize(
    ("missed", "trusted", "outdated"),
    [
        ([], False, False),
        ([MemoriesChanged(7, 5), LayersChanged(7, 3)], True, False),
        ([MemoriesChanged(7, 5)], False, True),
        ([MemoriesForgotten(7, 5, 2, 2, None, 2)], True, True),
        ([LayersChanged(7, 3), SettingsChanged(7, 5)], True, True),
    ],
)
def test_a_reply_is_outdated_by_all_but_growth_that_is_being_announced(
    missed: list[MemoriesChanged], trusted: bool, outdated: bool
) -> None:
    assert outdates_reply(missed, trusted=trusted) is outdated
