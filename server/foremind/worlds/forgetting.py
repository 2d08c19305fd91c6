"""Forgetting in worlds: what is forgotten leaves every mind, and what was told of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from foremind.memory.erase import Eraser
from foremind.storage.stores import Stores
from foremind.storage.world_store import World


@dataclass(frozen=True, slots=True)
class WorldErasureReceipt:
    """The events that were forgotten, and the characters whose minds had witnessed them."""

    events: Sequence[str]
    minds: Sequence[str]


class WorldEraser:
    """Takes events out of every mind."""

    def __init__(self, stores: Stores, eraser: Eraser) -> None:
        self._stores = stores
        self._eraser = eraser

    async def forget(self, world: World, ids: Sequence[str]) -> WorldErasureReceipt:
        """Forget events of a world, and those that pass them on or were made of them.

        In this world, its saved moments and its branches. Each mind that has perceived them forgets
        them; none perceives them any more.

        Raises:
            StorageUnavailable, Overloaded: try again later.
        """
        worlds = self._stores.worlds
        forgotten = await worlds.forget(world, ids)
        for mind in await worlds.minds_of(forgotten.timelines, forgotten.companions):
            if turns := await worlds.turns_of(mind, forgotten.ids):
                relationship = await self._stores.relationships.find_any(mind)
                names = relationship.user_name, relationship.companion
                await self._eraser.erase_turns(mind, names, turns)
        return WorldErasureReceipt(forgotten.ids, sorted(forgotten.companions.values()))
