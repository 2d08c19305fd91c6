"""What a reply waits for before it is known to be made under the settings in force."""

import asyncio
from typing import Any, cast

import pytest

from foremind.domain.announcements import CompanionChanged, SettingsChanged
from foremind.domain.companion import RelationshipSettings
from foremind.domain.errors import StorageUnavailable
from foremind.domain.relationship import relationship_id_of
from foremind.gateway.live_settings import LiveSettings
from foremind_eval.doubles.manual_clock import ManualClock

ANA, BO = relationship_id_of(1, 1), relationship_id_of(2, 1)


class Stores:
    """Both stores; those in `away` are not reached."""

    def __init__(self) -> None:
        self.away: set[int] = set()
        self.reads: list[int] = []

    async def settings(self, relationship_id: int) -> RelationshipSettings:
        """Return new settings."""
        await asyncio.sleep(0)
        self.reads.append(relationship_id)
        if relationship_id in self.away:
            raise StorageUnavailable("The database is away.")
        return RelationshipSettings()

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
        stores.away = {BO}
        for relationship_id in (ANA, BO):
            live.on_announcement(SettingsChanged(relationship_id, 1))
        await live.settled(ANA)
        assert ana.value is not known
        with pytest.raises(StorageUnavailable):
            await live.settled(BO)
        assert bo.value is known
        live.on_announcement(CompanionChanged(1, 2))
        await asyncio.sleep(0.01)
        stores.reads.clear()
        await live.settled(ANA)
        assert stores.reads == []
