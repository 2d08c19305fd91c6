"""What a reply waits for before it is known to be made under the settings in force."""

import asyncio
from typing import Any, cast

import msgspec
import pytest

from foremind.domain.announcements import CompanionChanged, MemoriesForgotten, SettingsChanged
from foremind.domain.errors import StorageUnavailable
from foremind.domain.relationship import relationship_id_of
from foremind.domain.settings.settings import CompanionSettings, RelationshipSettings
from foremind.gateway.live_settings import LiveSettings
from foremind_eval.doubles.manual_clock import ManualClock

CHANGED = RelationshipSettings(user=CompanionSettings(eager=False))
ANA, BO = relationship_id_of(1, 1), relationship_id_of(2, 1)


class Stores:
    """Both stores; those in `away` are not reached."""

    def __init__(self) -> None:
        self.away: set[int] = set()
        self.stored = RelationshipSettings()
        self.reads: list[int] = []

    async def settings(self, relationship_id: int) -> RelationshipSettings:
        """Return the settings as a new object."""
        await asyncio.sleep(0)
        self.reads.append(relationship_id)
        if relationship_id in self.away:
            raise StorageUnavailable("The database is away.")
        return msgspec.structs.replace(self.stored)

    async def get(self, _: int) -> None:
        """Return no companion, as none is shared."""


async def test_a_reply_waits_for_settings_of_its_own_relationship_only() -> None:
    """Those of another may never be read; those of its own are read at once, or that fails."""
    stores = Stores()
    reader = cast("Any", stores)
    async with LiveSettings(reader.get, reader, ManualClock()) as live:
        known = RelationshipSettings()
        ana = await live.settings(ANA, known, live.changes)
        bo = await live.settings(BO, known, live.changes)
        await live.settled(ANA)
        assert stores.reads == []
        stores.away, stores.stored = {BO}, CHANGED
        for relationship_id in (ANA, BO):
            live.on_announcement(SettingsChanged(relationship_id, 1))
        await live.settled(ANA)
        assert ana.value == CHANGED
        with pytest.raises(StorageUnavailable):
            await live.settled(BO)
        assert bo.value is known
        live.on_announcement(CompanionChanged(1, 2))
        await asyncio.sleep(0.01)
        stores.reads.clear()
        await live.settled(ANA)
        assert stores.reads == []


async def test_settings_that_are_read_again_unchanged_are_no_change() -> None:
    """Every erasure has them read again; a reply in progress must not be made anew for it."""
    reader = cast("Any", Stores())
    async with LiveSettings(reader.get, reader, ManualClock()) as live:
        known = RelationshipSettings()
        ana = await live.settings(ANA, known, live.changes)
        live.on_announcement(MemoriesForgotten(ANA, 1, 1, 1, None, 0))
        await live.settled(ANA)
        assert reader.reads == [ANA]
        assert ana.value is known
