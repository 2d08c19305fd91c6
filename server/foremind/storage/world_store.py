"""Stores worlds: their rules, scenes and what happens in them; saves, rollbacks and branches."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from foremind.domain.announcements import WorldChanged
from foremind.domain.companion import Companion
from foremind.domain.errors import Conflict, NotFound
from foremind.domain.relationship import companion_id_of, user_id_of
from foremind.domain.turn import MAX_PROMPTS, MadePrompt
from foremind.domain.user import NO_NAME
from foremind.domain.world import (
    NewEvent,
    Scene,
    Trigger,
    TurnOrder,
    WorldClock,
    WorldRules,
    player_account,
    timeline_account,
)
from foremind.storage.companion_store import companion_of
from foremind.storage.database import Database, DatabaseConnection
from foremind.storage.world_events import (
    EventWriter,
    StoredWorldEvent,
    World,
    accounts_in,
    act_for,
    events_of,
    names_concerned,
)

_MAX_PENDING = 200  # actions of a world that have no result


class MindPrompt(NamedTuple):
    """What a mind, given by its relationship, was given for what it says."""

    mind: int
    made: MadePrompt


class Reported(NamedTuple):
    """What happened in a world: the world as it was, its scenes, and characters by slug.

    `companions` are the characters whom it concerns. `new` tells of each event whether it is: one
    whose id is stored changes nothing.
    """

    world: World
    scenes: Mapping[str, Scene]
    companions: Mapping[str, Companion]
    new: Sequence[bool]


class _CreatedMeanwhile(Exception):
    """Another transaction has just created the world."""


class WorldStore:
    """Reads and writes worlds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, name: str) -> World:
        """Return a world.

        Raises:
            NotFound: there is none of that name.
        """
        row = await self._database.row("find_world", name)
        if row is None:
            raise _no_world()
        return _world(row)

    async def page(
        self, after: str, limit: int, among: Collection[str] | None = None
    ) -> list[tuple[str, WorldClock]]:
        """Return worlds whose names come after one, with their clocks; `among`: only these."""
        names = None if among is None else sorted(among)
        return [
            (row["name"], WorldClock(row["clock_time"], row["clock_set_at"], row["clock_factor"]))
            for row in await self._database.rows("list_worlds", after, names, limit)
        ]

    async def put(
        self,
        name: str,
        now: datetime,
        clock: WorldClock | None = None,
        **rules: object,
    ) -> tuple[World, bool]:
        """Create a world, or change what is given of it; return it, and whether it is new.

        Args:
            rules: those to change, by their names in `WorldRules`.
        """
        try:
            return await self._put(name, now, clock, rules)
        except _CreatedMeanwhile:
            return await self._put(name, now, clock, rules)

    async def _put(
        self, name: str, now: datetime, clock: WorldClock | None, rules: Mapping[str, object]
    ) -> tuple[World, bool]:
        async with self._database.transaction() as connection:
            row = await self._locked(connection, name)
            if row is None:
                world = World(
                    name,
                    await _begin_timeline(connection, name, (), 1),
                    (),
                    1,
                    1,
                    clock or WorldClock(now, now),
                    msgspec.structs.replace(WorldRules(), **rules),
                    1,
                )
                if await _insert_world(connection, world):
                    return world, True
                raise _CreatedMeanwhile
            known = _world(row)
            world = replace(
                known,
                clock=known.clock if clock is None else clock,
                rules=msgspec.structs.replace(known.rules, **rules),
            )
            await _change_world(connection, world)
        return world, False

    async def put_scene(self, name: str, scene: Scene) -> None:
        """Set who is in a scene.

        Raises:
            NotFound: there is no such world.
        """
        async with self._database.transaction() as connection:
            world = _world(await self._locked(connection, name) or _raise(_no_world()))
            await accounts_in(connection, world.timeline, scene.players)
            await connection.execute(
                "put_scene",
                world.timeline,
                scene.name,
                scene.place,
                list(scene.players),
                list(scene.minds),
                msgspec.json.encode(scene.positions).decode(),
                msgspec.json.encode(scene.turn_order).decode(),
            )
            await _change_world(connection, world)

    async def scenes(self, world: World) -> dict[str, Scene]:
        """Return the scenes of a world by name."""
        return _scenes(await self._database.rows("scenes_of_timeline", world.timeline))

    async def report(
        self,
        name: str,
        events: Sequence[NewEvent],
        now: datetime,
        since: World | None = None,
        check: Callable[[Mapping[str, Scene]], None] = lambda _: None,
        prompt: MindPrompt | None = None,
    ) -> Reported:
        """Store what happens in a world, each event with those who witness it at this moment.

        Args:
            since: the world as it was when what happens was thought of; None if that does not
                depend on what minds know.
            check: raises if what happens cannot, with its scenes as they are.
            prompt: what the first event was made of, which a mind says.

        Raises:
            NotFound: there is no such world.
            InvalidMessage: an event names a scene or an event that there is not.
            Conflict: something that was known then was undone or forgotten meanwhile.
        """
        # Of relationships, only the prompt's rows are visible.
        mind = None if prompt is None else prompt.mind
        async with self._database.transaction(mind) as connection:
            world = _world(await self._locked(connection, name) or _raise(_no_world()))
            if since is not None and (
                since.timeline not in world.lineage or since.erasures != world.erasures
            ):
                raise Conflict("world: something was undone or forgotten meanwhile", param="world")
            await act_for(connection, world.lineage)
            scenes = _scenes(await connection.rows("scenes_of_timeline", world.timeline))
            check(scenes)
            known = {
                row["id"]
                for row in await connection.rows(
                    "known_events", world.lineage, [event.id for event in events]
                )
            }
            fresh: dict[int, NewEvent] = {}
            for place, event in enumerate(events):
                if event.id not in known:
                    fresh[place] = event
                    known.add(event.id)
            new = [place in fresh for place in range(len(events))]
            found = await connection.rows("companions_named", names_concerned(events, scenes))
            companions = {row["slug"]: companion_of(row) for row in found}
            if fresh:
                writer = EventWriter(connection, world, scenes, companions, now)
                first = await writer.write(fresh)
                if prompt is not None and new[0]:
                    made = prompt.made
                    await connection.execute(
                        "insert_mind_prompt",
                        mind,
                        first,
                        made.removals,
                        made.text,
                        MAX_PROMPTS,
                    )
        return Reported(world, scenes, companions, new)

    async def events(self, world: World, ids: Sequence[str]) -> list[StoredWorldEvent]:
        """Return those of some events that happened in a world, in order, for its host."""
        async with self._database.transaction() as connection:
            await act_for(connection, world.lineage)
            return await events_of(connection, world.lineage, ids)

    async def prompt(
        self, world: World, ids: Sequence[str], player: str | None
    ) -> tuple[int, str] | None:
        """Return the relationship of a mind, and what it was given for the first of some events.

        Args:
            ids: of the same line: what was said, and what was done with it.
            player: only a mind of this player's own counts; None for any.

        Returns:
            None if no such mind said any of them; the prompt is "" if it is not kept. Minds of
            several players witness a line: to a player, one that is not kept may be another's.
        """
        async with self._database.transaction() as connection:
            await act_for(connection, world.lineage)
            said = await connection.rows("events_said", world.lineage, list(ids))
            accounts = [
                player_account(timeline, player or "") for timeline in world.lineage if player
            ]
            own = {row["id"] for row in await connection.rows("accounts", accounts)}
            minds = [
                (mind, row["seq"])
                for row in said
                for mind in row["witnesses"]
                if companion_id_of(mind) == row["actor_id"]
                and (player is None or user_id_of(mind) in own)
            ]
            for mind, seq in minds:
                await connection.scope_to(mind)
                kept = await connection.row("prompt_of_event", mind, seq)
                if kept is not None:
                    return mind, kept["prompt"]
        return (minds[0][0], "") if minds and player is None else None

    async def fire(self, world: World, trigger: Trigger, now: datetime) -> bool:
        """Let a trigger fire, and return whether it may: not too lately, nor too often today."""
        row = await self._database.row(
            "fire_trigger", world.name, trigger.name, now, trigger.cooldown_s, trigger.per_day
        )
        return row is not None

    async def silent(self, players: Sequence[str], slugs: Sequence[str]) -> set[str]:
        """Return which characters one of some players does not want to speak first."""
        rows = await self._database.rows("silent_companions", list(players), list(slugs))
        return {row["slug"] for row in rows}

    async def pending_actions(self, world: World) -> list[StoredWorldEvent]:
        """Return the latest actions that minds asked for, without those that have a result."""
        async with self._database.transaction() as connection:
            await act_for(connection, world.lineage)
            rows = await connection.rows("pending_actions", world.lineage, _MAX_PENDING)
            return await events_of(connection, world.lineage, [row["id"] for row in rows])

    async def accounts(self, ids: Sequence[str]) -> dict[str, int]:
        """Return those of some accounts that exist, by the ids that no client can name."""
        rows = await self._database.rows("accounts", list(ids))
        return {row["external_id"]: row["id"] for row in rows}

    async def account(self, world: World, player: str, *, met: bool = True) -> int | None:
        """Return a player's account in the timeline that is going on; None for a stranger.

        Whoever is in a scene, or was in the world in an earlier timeline, gets one if needed.

        Args:
            met: False lets a stranger have one, too, as who is erased would be one.
        """
        ids = [player_account(timeline, player) for timeline in world.lineage]
        known = await self.accounts(ids)
        if ids[-1] in known:
            return known[ids[-1]]
        async with self._database.transaction() as connection:
            # Nobody erases the player meanwhile.
            if await self._locked(connection, world.name) is None:
                return None
            if met and not await connection.rows("accounts", ids):
                scenes = _scenes(await connection.rows("scenes_of_timeline", world.timeline))
                if not any(player in scene.players for scene in scenes.values()):
                    return None
            return (await accounts_in(connection, world.timeline, [player]))[player]

    async def save(self, name: str, save: str, now: datetime) -> None:
        """Name this moment of a world: what follows is another timeline.

        Raises:
            NotFound: there is no such world.
        """
        async with self._database.transaction() as connection:
            world = _world(await self._locked(connection, name) or _raise(_no_world()))
            time = world.clock.at(now)
            await connection.execute(
                "insert_save", name, save, world.timeline, time, world.clock.factor, now
            )
            await _continue(connection, world, world.lineage, world.clock)

    async def roll_back(self, name: str, save: str, now: datetime) -> None:
        """Let a world go on from a moment; nothing that happened since has happened.

        Raises:
            NotFound: there is no such world or moment.
        """
        async with self._database.transaction() as connection:
            world = _world(await self._locked(connection, name) or _raise(_no_world()))
            row = await connection.row("find_save", name, save) or _raise(_no_save("name"))
            clock = WorldClock(row["clock_time"], now, row["clock_factor"])
            await _continue(connection, world, [*row["ancestors"], row["timeline_id"]], clock)

    async def branch(self, name: str, save: str, branch: str, now: datetime) -> None:
        """Begin another world at a moment of this one.

        Raises:
            NotFound: there is no such world or moment.
            Conflict: there is a world of that name.
        """
        async with self._database.transaction() as connection:
            known = _world(await self._locked(connection, name) or _raise(_no_world()))
            saved = await connection.row("find_save", name, save) or _raise(_no_save("save"))
            past = [*saved["ancestors"], saved["timeline_id"]]
            begun = known.next_seq
            timeline = await _begin_timeline(connection, branch, past, begun)
            clock = WorldClock(saved["clock_time"], now, saved["clock_factor"])
            world = World(branch, timeline, past, begun, begun, clock, known.rules, 1)
            if not await _insert_world(connection, world):
                raise Conflict("world: expected the name of no world yet", param="world")
            await connection.execute("copy_scenes", timeline, saved["timeline_id"])

    async def delete_save(self, name: str, save: str) -> None:
        """Delete a named moment of a world; what only it went on from is abandoned.

        Raises:
            NotFound: there is no such world or moment.
        """
        async with self._database.transaction() as connection:
            await connection.row("lock_world", name) or _raise(_no_world())
            await connection.row("delete_save", name, save) or _raise(_no_save("save"))

    async def delete(self, name: str) -> None:
        """Delete a world with its saves; the timelines that only it went on from are abandoned.

        Raises:
            NotFound: there is no such world.
        """
        async with self._database.transaction() as connection:
            await connection.row("delete_world", name) or _raise(_no_world())
            connection.announce(WorldChanged(name))

    async def saves(self, name: str) -> list[tuple[str, datetime, datetime]]:
        """Return the named moments of a world, the latest first: name, real time, world time."""
        rows = await self._database.rows("saves_of_world", name)
        return [(row["name"], row["saved_at"], row["clock_time"]) for row in rows]

    async def _locked(self, connection: DatabaseConnection, name: str) -> Any:
        await connection.row("lock_world", name)
        return await connection.row("find_world", name)


async def _begin_timeline(
    connection: DatabaseConnection, world: str, ancestors: Sequence[int], begun_seq: int
) -> int:
    """Begin a timeline after others; return its number, which is that of its account."""
    account = timeline_account(world, uuid4().hex)
    (row,) = await connection.rows("insert_accounts", [account], [NO_NAME])
    await connection.execute("insert_timeline", row["id"], world, list(ancestors), begun_seq)
    return int(row["id"])


async def _insert_world(connection: DatabaseConnection, world: World) -> bool:
    clock = world.clock
    row = await connection.row(
        "insert_world",
        world.name,
        world.timeline,
        world.next_seq,
        clock.time,
        clock.set_at,
        clock.factor,
        msgspec.json.encode(world.rules).decode(),
    )
    return row is not None


async def _change_world(connection: DatabaseConnection, world: World) -> None:
    clock, rules = world.clock, msgspec.json.encode(world.rules).decode()
    await connection.execute(
        "change_world", world.name, clock.time, clock.set_at, clock.factor, rules, world.timeline
    )
    connection.announce(WorldChanged(world.name, world.version + 1))


async def _continue(
    connection: DatabaseConnection, world: World, past: Sequence[int], clock: WorldClock
) -> None:
    """Let a world go on after some timelines, with the scenes of the last of them."""
    timeline = await _begin_timeline(connection, world.name, past, world.next_seq)
    await connection.execute("copy_scenes", timeline, past[-1])
    await _change_world(connection, replace(world, timeline=timeline, clock=clock))


def _world(row: Any) -> World:
    return World(
        row["name"],
        row["timeline_id"],
        row["ancestors"],
        row["begun_seq"],
        row["next_seq"],
        WorldClock(row["clock_time"], row["clock_set_at"], row["clock_factor"]),
        msgspec.json.decode(row["rules"], type=WorldRules),
        row["version"],
        row["erasures"],
    )


def _scenes(rows: Iterable[Any]) -> dict[str, Scene]:
    return {
        row["name"]: Scene(
            row["name"],
            row["place"],
            row["players"],
            row["minds"],
            msgspec.json.decode(row["positions"]),
            msgspec.json.decode(row["turn_order"], type=TurnOrder),
        )
        for row in rows
    }


def _no_world() -> NotFound:
    return NotFound("world: expected the name of a world of yours", param="world")


def _no_save(param: str) -> NotFound:
    return NotFound(f"{param}: expected the name of a saved moment of this world", param=param)


def _raise(error: Exception) -> Any:
    raise error
