"""Forgetting in worlds: what is forgotten leaves every mind, and what was told of it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from foremind.domain.clock import Clock
from foremind.domain.errors import NotFound
from foremind.domain.world import EventChoice
from foremind.memory.erasure.eraser import Eraser
from foremind.storage.database import Count, DatabaseConnection
from foremind.storage.stores import Stores
from foremind.storage.user_store import UserErasure
from foremind.storage.world_erasure_store import ForgottenEvent, PlayerAccount
from foremind.storage.world_events import EventKey, World


@dataclass(frozen=True, slots=True)
class WorldErasureReceipt:
    """The events that were forgotten, and the characters whose minds had witnessed them."""

    events: Sequence[str]
    minds: Sequence[str]


class WorldEraser:
    """Takes events out of every mind.

    An event is deleted before anything else. Which minds are still to forget it is recorded, and
    finished by whoever finds it unfinished.
    """

    def __init__(self, stores: Stores, eraser: Eraser, clock: Clock) -> None:
        self._stores = stores
        self._eraser = eraser
        self._clock = clock

    async def forget(self, world: World, choice: EventChoice) -> WorldErasureReceipt:
        """Forget events of a world, and those that pass them on or were made of them.

        In this world, its saved moments, what was undone and, of what happened before they began,
        its branches. Each mind that has perceived them forgets them; none perceives them any more.
        What happens meanwhile is not meant, and an id means what was undone only where nothing else
        has it.

        Raises:
            NotFound: an event is named that has not happened in the world.
            StorageUnavailable, Overloaded: try again later.
        """
        erasures = self._stores.world_erasures
        timelines = await erasures.timelines_of(world)
        if choice.ids:
            named = await erasures.named(world.lineage, choice.ids)
            named = named or await erasures.named(timelines, choice.ids)
            if not named:
                raise NotFound("event: expected the id of one of this world", param="event")
            forgotten = await self._forget(named)
        else:
            last = await erasures.last_events(timelines)
            forgotten = [event async for event in self._forget_chosen(last, choice)]
        minds = await erasures.slugs_of_minds(forgotten)
        return WorldErasureReceipt(sorted({event.id for event in forgotten}), sorted(minds))

    async def forget_player(self, erasure: UserErasure, count: Count) -> None:
        """Forget what a player said, did or was told in any world, and that there was one.

        The minds that characters have of the player alone are erased, and the player's log.

        Args:
            count: stores what each transaction erased, by kind, within it.

        Raises:
            StorageUnavailable, Overloaded: try again later; what is erased stays so.
        """
        erasures = self._stores.world_erasures
        accounts = await erasures.accounts_of_player(erasure.alias)
        for account in accounts:
            await self._erase_minds_of(account, count)
        choice = EventChoice(player=erasure.player)
        async for _ in self._forget_chosen(erasure.timelines, choice, count):
            pass
        await self.finish_interrupted()  # perhaps an earlier attempt was
        for account in accounts:
            while not await erasures.delete_account(account):
                await self._erase_minds_of(account, count)

    async def _erase_minds_of(self, account: PlayerAccount, count: Count) -> None:
        for mind in await self._stores.world_erasures.relationships_of(account):
            with suppress(NotFound):  # somebody else has erased it
                await self._eraser.erase_relationship(mind, count)

    async def delete_world(self, name: str) -> None:
        """Delete a world with its saves, and all that happened in it or was undone there.

        What its branches share with it stays, as it is their past.

        Raises:
            NotFound: there is no such world.
            RateLimited, StorageUnavailable, Overloaded: it is deleted, and the rest will be.
        """
        await self._stores.worlds.delete(name)
        await self.delete_abandoned()

    async def delete_abandoned(self) -> None:
        """Delete the timelines that nothing goes on from, with all minds in them.

        Raises:
            RateLimited, StorageUnavailable, Overloaded: try again later.
        """
        erasures = self._stores.world_erasures
        while (timeline := await erasures.abandoned_timeline()) is not None:
            while not await erasures.delete_timeline(timeline):
                for mind in await erasures.minds_of_timeline(timeline):
                    with suppress(NotFound):  # somebody else has erased it
                        await self._eraser.erase_relationship(mind, _uncounted)

    async def finish_interrupted(self) -> None:
        """Let minds forget what is forgotten.

        Raises:
            RateLimited, StorageUnavailable, Overloaded: try again later.
        """
        while forgotten := await self._stores.world_erasures.unfinished_forgetting():
            await self._let_minds_forget(forgotten)

    async def _forget_chosen(
        self, last: Mapping[int, int], choice: EventChoice, count: Count | None = None
    ) -> AsyncIterator[ForgottenEvent]:
        """Forget chosen events, given the number of the last one of each timeline; yield them."""
        for timeline, upto in last.items():
            async for named in self._stores.world_erasures.chosen(timeline, choice, upto):
                for event in await self._forget(named, count):
                    yield event

    async def _forget(
        self, named: Sequence[EventKey], count: Count | None = None
    ) -> Sequence[ForgottenEvent]:
        """Forget events with what was made of them; return it."""
        forgotten = await self._stores.world_erasures.forget(named, self._clock.now(), count)
        await self._let_minds_forget(forgotten)
        return forgotten

    async def _let_minds_forget(self, events: Sequence[ForgottenEvent]) -> None:
        """Take forgotten events out of the minds that have perceived them.

        Until none has: a mind that begins in another timeline with what it remembers may copy it
        before it has forgotten. A mind that has only answered one has it in a prompt.
        """
        erasures, remembering = self._stores.world_erasures, True
        for mind in await erasures.minds_remembering(events):
            await self._eraser.erase_prompts(mind)
        while remembering:
            remembering = False
            for mind, ids in (await erasures.minds_remembering(events)).items():
                if turns := await self._stores.minds.turns_of(mind, ids):
                    remembering = True
                    await self._erase(mind, turns)
        await erasures.end_forgetting(events)

    async def _erase(self, mind: int, turns: Sequence[int]) -> None:
        try:
            relationship = await self._stores.relationships.find_any(mind)
            names = relationship.user_name, relationship.companion
            await self._eraser.erase_turns(mind, names, turns)
        except NotFound:  # erased with its player
            return


async def _uncounted(connection: DatabaseConnection, counts: Mapping[str, int]) -> None:
    """Store nothing of how much was erased."""
