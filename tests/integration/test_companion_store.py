"""Companions on real PostgreSQL: their cards, versions and settings."""

from typing import Any

from foremind.app.core import Core
from foremind.domain.companion import CompanionFile
from foremind.domain.settings.settings import CompanionSettings
from tests.conftest import owner_of

CARD: dict[str, Any] = {
    "name": "Mara",
    "nickname": "M",
    "extensions": {"a/b": [1, None, 2.5, "é😀"]},
    "tags": [],
}
OWN = CompanionSettings()
SETTINGS = CompanionSettings(pause_ms=300)


def mara(card: dict[str, Any] | None = None, settings: CompanionSettings = OWN) -> CompanionFile:
    """A companion, with a card or without."""
    return CompanionFile("mara", "Mara", "A persona.", "Hello.", settings, card)


async def test_a_card_is_kept_as_it_is(built: Core) -> None:
    """A list of companions comes with no more of it than the nickname."""
    companions = built.stores.companions
    assert (await companions.put(mara())).card is None
    stored = await companions.put(mara(CARD))
    assert stored.card == CARD
    assert (await companions.find("mara"), await companions.get(stored.id)) == (stored, stored)
    listed = {companion.slug: companion.card for companion in await companions.list()}
    assert listed == {"mara": {"nickname": "M"}}


async def test_settings_are_kept_where_that_is_asked_for(built: Core) -> None:
    """Of a companion that exists; a new one has none."""
    companions = built.stores.companions
    assert (await companions.put(mara(CARD), keep_settings=True)).settings == OWN
    assert (await companions.put(mara(CARD, SETTINGS))).settings == SETTINGS
    assert (await companions.put(mara(CARD), keep_settings=True)).settings == SETTINGS
    assert (await companions.put(mara(CARD))).settings == OWN


async def test_a_version_is_for_a_change(built: Core) -> None:
    """The same again is none, and settings that are kept are none."""
    companions = built.stores.companions
    first = (await companions.put(mara())).version
    assert (await companions.put(mara())).version == first
    assert (await companions.put(mara(CARD))).version == first + 1
    assert (await companions.put(mara(CARD, SETTINGS))).version == first + 2
    assert (await companions.put(mara(CARD), keep_settings=True)).version == first + 2
    assert (await companions.put(mara(CARD | {"tags": ["a"]}))).version == first + 3
    assert (await companions.put(mara())).version == first + 4


async def test_a_card_broken_by_hand_stops_nothing(built: Core) -> None:
    """As settings that were."""
    companions = built.stores.companions
    await companions.put(mara(CARD))
    await owner_of(built).execute("UPDATE companions SET card = '[1]' WHERE slug = 'mara'")
    assert (await companions.find("mara")).card is None
