"""Stores worlds: their timelines, scenes and events, and what minds perceive of these."""

from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import numpy as np
import numpy.typing as npt
from pgvector import HalfVector

from foremind.domain.announcements import WorldChanged
from foremind.domain.background_step import RULES_PLACE
from foremind.domain.companion import Companion
from foremind.domain.errors import Conflict, InvalidMessage, NotFound
from foremind.domain.memory import Recalled
from foremind.domain.relationship import companion_id_of, relationship_id_of, user_id_of
from foremind.domain.turn import MAX_PROMPTS, MadePrompt, MemoryType
from foremind.domain.user import NO_NAME, ExportedEvent, name_of
from foremind.domain.world import (
    EventChoice,
    How,
    NewEvent,
    Perceived,
    Scene,
    Trigger,
    TurnOrder,
    Volume,
    Witness,
    WorldClock,
    WorldRules,
    audience_of,
    log_of,
    player_account,
    timeline_account,
)
from foremind.storage.companion_store import companion_of
from foremind.storage.database import Count, Database, DatabaseConnection
from foremind.storage.relationship_transaction import RelationshipTransaction

Vector = npt.NDArray[np.float32]
_MAX_FORGOTTEN = 200  # events that one transaction looks for
_MAX_WITNESSES = 5000  # that one statement stores, so that reading them holds nobody up
_MAX_COMPARED = 5000  # memories of a mind: 7 ms
_MAX_SCENES = 8  # that an announcement names
_MAX_PENDING = 200  # actions of a world that have no result
_MAX_REMOVED = 1000  # of what a player witnessed or happened, at a time


@dataclass(frozen=True, slots=True)
class World:
    """A world as stored.

    `timeline` is going on, `ancestors` came before it, the oldest first. `begun` is the number of
    its first event, `next_seq` that of the next one. `erasures` counts how often something was
    forgotten.
    """

    name: str
    timeline: int
    ancestors: Sequence[int]
    begun: int
    next_seq: int
    clock: WorldClock
    rules: WorldRules
    version: int
    erasures: int = 0

    @property
    def lineage(self) -> list[int]:
        """The timelines that this world's past consists of, the oldest first."""
        return [*self.ancestors, self.timeline]


@dataclass(frozen=True, slots=True)
class StoredWorldEvent:
    """An event as stored; `witnesses` are relationships."""

    timeline: int
    seq: int
    id: str
    type: str
    memory_type: MemoryType
    actor: str
    text: str
    to: Sequence[str]
    volume: Volume
    scene: str
    place: str
    at: datetime
    fields: Mapping[str, object]
    witnesses: Sequence[int]


class EventKey(NamedTuple):
    """An event of any world."""

    timeline: int
    seq: int


@dataclass(frozen=True, slots=True)
class PerceivedEvent:
    """What somebody witnessed; `vector` is that of the text, if anybody has asked yet."""

    key: EventKey
    event: Perceived
    type: str
    memory_type: MemoryType
    scene: str
    happened_at: datetime
    fields: Mapping[str, object]
    vector: Vector | None


@dataclass(frozen=True, slots=True)
class ForgottenEvent:
    """An event that is forgotten, with the relationships that may remember it."""

    key: EventKey
    id: str
    witnesses: Sequence[int]
    was_forgotten: bool


class PlayerAccount(NamedTuple):
    """The account of a player in a timeline, which a world began; no client can name `name`."""

    id: int
    timeline: int
    world: str
    name: str


@dataclass(frozen=True, slots=True)
class Perception:
    """What a mind perceived at a place; `spoken`: somebody said it; `own`: the mind did."""

    turn_id: int
    own: bool
    spoken: bool
    place: str
    text: str


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

    def __init__(self, database: Database, fingerprint: str) -> None:
        self._database = database
        self._fingerprint = fingerprint

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
            await _accounts(connection, world.timeline, scene.players)
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
            found = await connection.rows("companions_named", _names(events, scenes))
            companions = {row["slug"]: companion_of(row) for row in found}
            if fresh:
                writer = _EventWriter(connection, world, scenes, companions, now)
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

    async def witnessed(self, past: Sequence[int], after: int, limit: int) -> list[PerceivedEvent]:
        """Return what a mind witnessed after an event, oldest first.

        Args:
            past: its relationships in the timelines of its past.
        """
        *earlier, mind = past
        if not earlier:
            data = self._database.for_relationship(mind)
            rows = await data.rows("witnessed_after", mind, after, limit, self._fingerprint)
        else:
            async with self._database.transaction(mind) as connection:
                await _show_past(connection, past)
                rows = await connection.rows(
                    "witnessed_through_time", past, after, limit, self._fingerprint
                )
        return [_perceived(row) for row in rows]

    async def witnessed_last(self, past: Sequence[int], limit: int) -> list[PerceivedEvent]:
        """Return the last that somebody witnessed, oldest first.

        Args:
            past: its relationships in the timelines of its past, oldest first.
        """
        latest: list[PerceivedEvent] = []  # the newest first
        for relationship in reversed(past):
            if len(latest) < limit:
                rows = await self._database.for_relationship(relationship).rows(
                    "witnessed_last", relationship, limit - len(latest), self._fingerprint
                )
                latest += map(_perceived, rows)
        return latest[::-1]

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
            return (await _accounts(connection, world.timeline, [player]))[player]

    async def existing(self, relationships: Sequence[int]) -> set[int]:
        """Return which of some relationships exist."""
        rows = await self._database.rows("existing_minds", list(relationships))
        return {row["id"] for row in rows}

    async def begin_mind(self, relationship_id: int, source: int | None) -> None:
        """Let a mind begin with nothing, or with what another one remembers, unless it exists."""
        account, companion = user_id_of(relationship_id), companion_id_of(relationship_id)
        if source is None:
            await self._database.execute("insert_mind", relationship_id, account, companion)
            return
        # Whoever takes something out of the other one waits, and finds the copy.
        async with RelationshipTransaction.begin(self._database, source) as transaction:
            connection = transaction.connection
            if await connection.row("copy_mind", relationship_id, account, source) is not None:
                await connection.raw.execute(f"SET LOCAL foremind.copy = '{relationship_id}'")
                await connection.execute("copy_relationship", source, relationship_id)
                await connection.execute("copy_waiting_turns", source, relationship_id)

    async def perceived_seq(self, relationship_id: int) -> int | None:
        """Return the last event that a mind has perceived; None if there is no such mind."""
        seq: int | None = await self._database.value("find_mind", relationship_id)
        return seq

    async def store_vectors(self, past: Sequence[int], vectors: Mapping[EventKey, Vector]) -> None:
        """Store the vectors of events for all who witnessed them; `past` is as for `witnessed`."""
        async with self._database.transaction(past[-1]) as connection:
            await _show_past(connection, past)
            await connection.execute(
                "store_event_vectors",
                self._fingerprint,
                *_columns(list(vectors)),
                [HalfVector(vector) for vector in vectors.values()],
            )

    async def perceive(
        self,
        mind: int,
        events: Sequence[PerceivedEvent],
        vectors: Sequence[Vector],
        narrate: Callable[[Perceived], str],
        now: datetime,
    ) -> list[int]:
        """Let a mind perceive events, with their vectors; return the new turns.

        They wait to become memories. What was forgotten meanwhile is not perceived.

        Args:
            narrate: returns an event as the mind remembers it.

        Raises:
            NotFound: there is no such mind.
        """
        async with RelationshipTransaction.begin(self._database, mind) as transaction:
            connection = transaction.connection
            there = await _remaining(connection, events)
            kept = [
                (event, vector)
                for event, vector in zip(events, vectors, strict=True)
                if event.key in there
            ]
            rows = await connection.rows(
                "insert_perceptions",
                mind,
                user_id_of(mind),
                ["companion" if _is_own(event) else "user" for event, _ in kept],
                [event.event.id for event, _ in kept],
                [event.memory_type for event, _ in kept],
                [narrate(event.event) for event, _ in kept],
                [event.happened_at for event, _ in kept],
                [HalfVector(vector) for _, vector in kept],
                [event.event.place for event, _ in kept],
            )
            turns = [row["id"] for row in rows]
            await connection.execute("set_perceived", mind, events[-1].key.seq)
            await connection.execute("enqueue_turns", mind, "ingest", turns, RULES_PLACE, now)
        return turns

    async def timelines_of(self, world: World) -> list[int]:
        """Return the timelines of a world's past, of its saves, and those that were undone."""
        rows = await self._database.rows("timelines_of_world", world.name)
        return sorted({row["id"] for row in rows} | set(world.lineage))

    async def named(self, timelines: Sequence[int], ids: Sequence[str]) -> list[EventKey]:
        """Return events of some timelines by their ids, also what is forgotten."""
        async with self._database.transaction() as connection:
            await act_for(connection, timelines)
            rows = await connection.rows("events_named", timelines, ids)
        return [EventKey(row["timeline_id"], row["seq"]) for row in rows]

    async def chosen(
        self, timeline: int, choice: EventChoice, last: int
    ) -> AsyncIterator[Sequence[EventKey]]:
        """Yield batches of the chosen events of a timeline, up to the one with a number."""
        after = 0
        while after < last:
            async with self._database.transaction() as connection:
                await act_for(connection, [timeline])
                rows = await connection.rows(
                    "events_between",
                    timeline,
                    after,
                    last,
                    choice.since,
                    choice.until,
                    choice.player,
                    _MAX_FORGOTTEN,
                )
            if not rows:
                return
            after = rows[-1]["seq"]
            yield [EventKey(timeline, row["seq"]) for row in rows]

    async def last_events(self, timelines: Sequence[int]) -> dict[int, int]:
        """Return the number of the last event of each of some timelines; 0 if there is none."""
        async with self._database.transaction() as connection:
            return await _last_events(connection, timelines)

    async def forget(
        self, named: Sequence[EventKey], now: datetime, count: Count | None = None
    ) -> list[ForgottenEvent]:
        """Delete what happened in events, and in all that pass them on or were made of them.

        Nobody will perceive them; minds that have are to forget them until `end_forgetting`.

        Args:
            count: stores how many events were forgotten, and by how many minds of each character.
        """
        async with self._database.transaction() as connection:
            # Nothing is made of them meanwhile, and of what was thought of by now nothing happens.
            await _lock_family(connection, {key.timeline for key in named})
            rows = await connection.rows("with_made_of", *_columns(named))
            found = [EventKey(row["timeline_id"], row["seq"]) for row in rows]
            await act_for(connection, {key.timeline for key in found})
            rows = await connection.rows("lock_to_forget", *_columns(found))
            gone = [_forgotten(row) for row in rows]
            for timeline, events in _by_timeline(gone).items():
                await connection.execute(
                    "forget_world_events",
                    timeline,
                    [event.key.seq for event in events],
                    sorted({known for event in events for known in event.witnesses}),
                    now,
                )
            if count is not None:
                minds = await _slugs_of_minds(connection, gone)
                fresh = sum(not event.was_forgotten for event in gone)
                await count(connection, {"events": fresh} | {f"mind {slug}": 1 for slug in minds})
        return gone

    async def unfinished_forgetting(self) -> list[ForgottenEvent]:
        """Return some forgotten events that minds may still remember."""
        rows = await self._database.rows("events_to_forget", _MAX_FORGOTTEN)
        if not rows:
            return []
        keys = [EventKey(row["timeline_id"], row["seq"]) for row in rows]
        async with self._database.transaction() as connection:
            await act_for(connection, {key.timeline for key in keys})
            rows = await connection.rows("lock_to_forget", *_columns(keys))
        return [_forgotten(row) for row in rows]

    async def minds_remembering(self, events: Sequence[ForgottenEvent]) -> dict[int, list[str]]:
        """Return the minds that may have perceived events, with the ids of these.

        A mind has one relationship in each timeline: those whose past includes an event are meant.
        """
        rows = await self._database.rows(
            "timelines_of_family", sorted({event.key.timeline for event in events})
        )
        pasts = {row["id"]: {row["id"], *row["ancestors"]} for row in rows}
        ids: dict[tuple[int, int], list[str]] = {}
        for event in events:
            for witness in event.witnesses:
                if companion_id_of(witness):
                    ids.setdefault((event.key.timeline, witness), []).append(event.id)
        players = await self._players({user_id_of(witness) for _, witness in ids})
        accounts = await self.accounts(
            [
                player_account(timeline, player)
                for player in set(players.values())
                for timeline in pasts
            ]
        )
        remembering: dict[int, list[str]] = {}
        for (begun, witness), known in ids.items():
            account, companion = user_id_of(witness), companion_id_of(witness)
            for timeline in (later for later, past in pasts.items() if begun in past):
                own: int | None = timeline
                if account != begun:
                    player = players.get(account)
                    named = player is not None and player_account(timeline, player)
                    own = accounts.get(named) if named else None
                if own is not None:
                    mind = relationship_id_of(own, companion)
                    remembering.setdefault(mind, []).extend(known)
        existing = await self.existing(list(remembering))
        return {mind: known for mind, known in remembering.items() if mind in existing}

    async def end_forgetting(self, events: Sequence[ForgottenEvent]) -> None:
        """Record that no mind remembers forgotten events."""
        async with self._database.transaction() as connection:
            await act_for(connection, {event.key.timeline for event in events})
            for timeline, gone in _by_timeline(events).items():
                await connection.execute(
                    "end_forgetting", timeline, [event.key.seq for event in gone]
                )

    async def accounts_of_player(self, player: str) -> list[PlayerAccount]:
        """Return the accounts of a player in all timelines of all worlds."""
        rows = await self._database.rows("accounts_of_player", player)
        return [
            PlayerAccount(
                row["id"],
                row["timeline_id"],
                row["world"],
                player_account(row["timeline_id"], player),
            )
            for row in rows
        ]

    async def witnessed_by(self, account: PlayerAccount) -> list[ExportedEvent]:
        """Return what a player witnessed, the oldest first."""
        log, events, after = log_of(account.id), list[ExportedEvent](), 0
        data = self._database.for_relationship(log)
        while rows := await data.rows("witnessed_by_player", log, after, _MAX_REMOVED):
            after = rows[-1]["seq"]
            events += [
                ExportedEvent(
                    row["id"],
                    row["type"],
                    row["actor"],
                    row["addressed"],
                    row["text"],
                    row["how"],
                    row["place"] or row["scene"],
                    row["happened_at"],
                )
                for row in rows
            ]
        return events

    async def relationships_of(self, account: PlayerAccount) -> list[int]:
        """Return the minds that characters have of a player."""
        rows = await self._database.rows("relationship_ids_of_user", account.id)
        return [row["id"] for row in rows]

    async def delete_account(self, account: PlayerAccount) -> bool:
        """Delete a player's account with its log; False if minds are of it."""
        while True:
            async with self._database.transaction() as connection:
                # So that nothing is witnessed meanwhile, and no mind begins.
                await connection.row("lock_world", account.world)
                await connection.row("lock_user", account.id)
                if await connection.row("relationship_ids_of_user", account.id) is not None:
                    return False
                await act_for(connection, [account.timeline])
                rows = await connection.rows(
                    "lock_witnessed_by", account.id, account.timeline, _MAX_REMOVED
                )
                if not rows:
                    await connection.execute("delete_user", account.id)
                    return True
                await connection.execute(
                    "remove_witnesses",
                    account.timeline,
                    [row["seq"] for row in rows],
                    sorted({row["relationship_id"] for row in rows}),
                )

    async def slugs_of_minds(self, events: Sequence[ForgottenEvent]) -> set[str]:
        """Return the slugs of the characters whose minds witnessed events."""
        return await _slugs_of_minds(self._database, events)

    async def _players(self, accounts: Collection[int]) -> dict[int, str]:
        """Return the players whose accounts some are, by account."""
        rows = await self._database.rows("names_of_accounts", list(accounts))
        named = {row["id"]: row["external_id"].partition("/") for row in rows}
        return {account: player for account, (_, divided, player) in named.items() if divided}

    async def turns_of(self, mind: int, events: Sequence[str]) -> list[int]:
        """Return what a mind has perceived of some events."""
        rows = await self._database.for_relationship(mind).rows(
            "turns_of_events", mind, list(events)
        )
        return [row["id"] for row in rows]

    async def events_of_memories(self, mind: int, memories: Sequence[int]) -> list[str]:
        """Return the events that some memories of a mind were made of."""
        rows = await self._database.for_relationship(mind).rows(
            "events_of_memories", mind, list(memories)
        )
        return [row["event_id"] for row in rows]

    async def unfinished(self, mind: int) -> list[int]:
        """Return the turns of a mind that wait to become memories."""
        rows = await self._database.for_relationship(mind).rows("unfinished_perceptions", mind)
        return [row["turn_id"] for row in rows]

    async def perceptions(self, mind: int, limit: int) -> list[Perception]:
        """Return what a mind perceived last, oldest first."""
        rows = await self._database.for_relationship(mind).rows("perceptions", mind, limit)
        return [
            Perception(row["id"], row["own"], row["spoken"], row["place"], row["content"])
            for row in rows
        ]

    async def most_significant(
        self, mind: int, limit: int, since: datetime, permanent: float
    ) -> list[Recalled]:
        """Return the most significant of a mind's last memories, in order of time.

        Args:
            since: older ones count only from the significance `permanent` on.
        """
        rows = await self._database.for_relationship(mind).rows(
            "most_significant_memories", mind, limit, since, permanent, _MAX_COMPARED
        )
        return [
            Recalled(
                row["id"],
                row["content"],
                row["speaker"],
                row["memory_type"],
                row["significance"],
                row["created_at"],
                superseded=False,
                score=0.0,
                relevance=0.0,
                cosine=0.0,
                keyword=0.0,
                place=row["place"],
            )
            for row in rows
        ]

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

    async def abandoned_timeline(self) -> int | None:
        """Return a timeline that nothing goes on from, the latest first; None if there is none.

        Nothing ever will: a world goes on from its present or from a save.
        """
        timeline: int | None = await self._database.value("abandoned_timeline")
        return timeline

    async def minds_of_timeline(self, timeline: int) -> list[int]:
        """Return the minds of a timeline."""
        async with self._database.transaction() as connection:
            return await _minds_of_accounts(connection, await _accounts_of(connection, timeline))

    async def delete_timeline(self, timeline: int) -> bool:
        """Delete an abandoned timeline with what happened in it; False if it still has minds."""
        while True:
            async with self._database.transaction() as connection:
                await act_for(connection, [timeline])
                rows = await connection.rows("lock_first_events", timeline, _MAX_REMOVED)
                if not rows:
                    break
                await connection.execute(
                    "delete_world_events",
                    timeline,
                    [row["seq"] for row in rows],
                    sorted({known for row in rows for known in row["witnesses"]}),
                )
        async with self._database.transaction() as connection:
            accounts = await _accounts_of(connection, timeline)
            if await _minds_of_accounts(connection, accounts):
                return False
            await connection.execute("delete_sources_of_timeline", timeline)
            await connection.execute("delete_timeline", timeline)
            await connection.execute("delete_accounts", accounts)
        return True

    async def saves(self, name: str) -> list[tuple[str, datetime, datetime]]:
        """Return the named moments of a world, the latest first: name, real time, world time."""
        rows = await self._database.rows("saves_of_world", name)
        return [(row["name"], row["saved_at"], row["clock_time"]) for row in rows]

    async def _locked(self, connection: DatabaseConnection, name: str) -> Any:
        await connection.row("lock_world", name)
        return await connection.row("find_world", name)


async def act_for(connection: DatabaseConnection, timelines: Iterable[int]) -> None:
    """Make the events of some timelines visible to a transaction of their host."""
    listed = ",".join(str(int(timeline)) for timeline in timelines)
    await connection.raw.execute(f"SET LOCAL foremind.timelines = '{{{listed}}}'")


async def leave_worlds(connection: DatabaseConnection, player: str, alias: str) -> dict[int, int]:
    """Remove a player from all scenes, and call the player's accounts otherwise.

    Returns:
        The number of the last event of each timeline in which the player was.
    """
    rows = await connection.rows("accounts_of_player", player)
    if not rows:
        return {}
    await _lock_family(connection, [row["timeline_id"] for row in rows])
    rows = await connection.rows("accounts_of_player", player)
    timelines = [row["timeline_id"] for row in rows]
    later = await connection.rows("timelines_of_family", timelines)
    await connection.execute("remove_from_scenes", [row["id"] for row in later], player)
    renamed = [player_account(timeline, alias) for timeline in timelines]
    await connection.execute("rename_accounts", [row["id"] for row in rows], renamed)
    return await _last_events(connection, timelines)


async def _last_events(connection: DatabaseConnection, timelines: Sequence[int]) -> dict[int, int]:
    await act_for(connection, timelines)
    rows = await connection.rows("last_events", timelines)
    return {row["timeline_id"]: row["seq"] for row in rows}


async def _lock_family(connection: DatabaseConnection, timelines: Iterable[int]) -> None:
    """Lock all worlds whose present may know what happened in timelines, and count an erasure."""
    locked, found = list[str](), [""]
    while found != locked:  # one that has begun meanwhile is found the next time
        locked = found
        rows = await connection.rows("lock_family", list(timelines))
        found = [row["name"] for row in rows]
    await connection.execute("count_erasure", locked)
    for name in locked:
        connection.announce(WorldChanged(name))


async def _slugs_of_minds(
    database: Database | DatabaseConnection, events: Iterable[ForgottenEvent]
) -> set[str]:
    companions = {companion_id_of(known) for event in events for known in event.witnesses}
    rows = await database.rows("slugs_of_companions", sorted(companions))
    return {row["slug"] for row in rows}


def _columns(keys: Sequence[EventKey]) -> tuple[list[int], list[int]]:
    return [key.timeline for key in keys], [key.seq for key in keys]


def _forgotten(row: Any) -> ForgottenEvent:
    key = EventKey(row["timeline_id"], row["seq"])
    return ForgottenEvent(key, row["id"], row["witnesses"], row["was_forgotten"])


def _by_timeline(events: Iterable[ForgottenEvent]) -> dict[int, list[ForgottenEvent]]:
    found: dict[int, list[ForgottenEvent]] = {}
    for event in events:
        found.setdefault(event.key.timeline, []).append(event)
    return found


async def _show_past(connection: DatabaseConnection, past: Sequence[int]) -> None:
    """Show a transaction what its mind witnessed in earlier timelines, too."""
    listed = ",".join(str(int(relationship)) for relationship in past)
    await connection.raw.execute(f"SET LOCAL foremind.past = '{{{listed}}}'")


async def events_of(
    connection: DatabaseConnection, timelines: Sequence[int], ids: Sequence[str]
) -> list[StoredWorldEvent]:
    """Return those of some events that happened in some timelines, in order."""
    rows = await connection.rows("world_events", list(timelines), list(ids))
    return [
        StoredWorldEvent(
            row["timeline_id"],
            row["seq"],
            row["id"],
            row["type"],
            row["memory_type"],
            row["actor"],
            row["content"],
            row["addressed"],
            row["volume"],
            row["scene"],
            row["place"],
            row["happened_at"],
            msgspec.json.decode(row["fields"]),
            row["witnesses"],
        )
        for row in rows
    ]


def _names(events: Sequence[NewEvent], scenes: Mapping[str, Scene]) -> list[str]:
    """Return all names that may be those of minds who are concerned by events."""
    found: set[str] = set()
    for place in {event.scene for event in events}:
        there = [scenes[place]] if place in scenes else scenes.values()
        found.update(mind for scene in there for mind in scene.minds)
    for event in events:
        found |= {event.actor, *event.to, *(event.audience or ())}
    return sorted(found)


class _Source(NamedTuple):
    """A stored event that others pass on, or were made of."""

    timeline: int
    seq: int
    spoken: bool
    actor: str
    chain: Sequence[str]


class _Witnesses(NamedTuple):
    """How many witness an event; their relationships, and how each does, as texts of arrays."""

    number: int
    relationships: str
    hows: str


class _Written(NamedTuple):
    """An event about to be stored; `chain`: from whom its actor has what it passes on."""

    seq: int
    event: NewEvent
    chain: Sequence[str]
    witnesses: _Witnesses


class _EventWriter:
    """Stores events of one world within a transaction that has locked it."""

    def __init__(
        self,
        connection: DatabaseConnection,
        world: World,
        scenes: Mapping[str, Scene],
        companions: Mapping[str, Companion],
        now: datetime,
    ) -> None:
        self._connection = connection
        self._world = world
        self._scenes = scenes
        self._companions = companions
        self._now = now
        self._accounts: Mapping[str, int] = {}  # of players
        self._known_witnesses: dict[tuple[object, ...], _Witnesses] = {}

    async def write(self, new: Mapping[int, NewEvent]) -> int:
        """Store events that are not stored, by their places in a request.

        Return the number of the first.

        Raises:
            InvalidMessage: one names a scene or an event that there is not.
        """
        world, connection, events = self._world, self._connection, [*new.values()]
        for place, event in new.items():
            if event.scene and event.scene not in self._scenes:
                path = f"events[{place}].scene"
                raise InvalidMessage(f"{path}: expected a scene of this world", param=path)
        players = self._possible_players(events)
        self._accounts = await _accounts(connection, world.timeline, players)
        sources = await self._sources(new)
        chains = _chains(events, sources)
        time = world.clock.at(self._now)
        latest = max(event.at or time for event in events)
        row = await connection.row(
            "take_event_numbers",
            world.name,
            len(events),
            latest if latest > time else None,
            self._now,
        )
        assert row is not None  # it is locked
        numbers = range(row["first"], row["first"] + len(events))
        await act_for(connection, [world.timeline])  # which is compared for each row
        written, many = list[_Written](), 0
        for seq, event, chain in zip(numbers, events, chains, strict=True):
            written.append(_Written(seq, event, chain, self._witnesses(event)))
            many += written[-1].witnesses.number
            if many > _MAX_WITNESSES:
                await self._insert(written, time)
                written, many = [], 0
        if written:
            await self._insert(written, time)
        if any(event.made_of for event in events):
            await self._insert_sources(events, numbers, sources)
        connection.announce(WorldChanged(world.name, world.version, self._concerned(events)))
        return int(row["first"])

    def _concerned(self, events: Sequence[NewEvent]) -> tuple[str, ...]:
        """Return the scenes whose members alone may witness events; nothing if anybody may."""
        if any(not event.scene or event.audience is not None for event in events):
            return ()
        there = {name: self._scenes[name].members for name in {event.scene for event in events}}
        if any(event.actor and event.actor not in there[event.scene] for event in events):
            return ()
        members = set[str]().union(*there.values())
        scenes = self._scenes.values()
        found = [scene.name for scene in scenes if not members.isdisjoint(scene.members)]
        return tuple(found) if len(found) <= _MAX_SCENES else ()

    async def _insert(self, written: Sequence[_Written], time: datetime) -> None:
        """Store events with their witnesses."""
        events = [fresh.event for fresh in written]
        numbers = [fresh.seq for fresh in written]
        witnesses = [fresh.witnesses.relationships for fresh in written]
        await self._connection.execute(
            "insert_world_events",
            self._world.timeline,
            numbers,
            [event.id for event in events],
            [event.type for event in events],
            [event.memory_type for event in events],
            [event.actor for event in events],
            [self._actor(event) for event in events],
            [_array(event.to) for event in events],
            [event.volume for event in events],
            [_array(fresh.chain) for fresh in written],
            [event.text for event in events],
            [msgspec.json.encode(event.fields).decode() for event in events],
            [event.scene for event in events],
            [self._scenes[event.scene].place if event.scene else "" for event in events],
            [event.at or time for event in events],
            witnesses,
        )
        await self._connection.execute(
            "insert_witnesses",
            self._world.timeline,
            numbers,
            witnesses,
            [fresh.witnesses.hows for fresh in written],
        )

    async def _insert_sources(
        self, events: Sequence[NewEvent], numbers: Sequence[int], sources: Mapping[str, _Source]
    ) -> None:
        """Store what events pass on, or were made of: stored events, or such as come with them."""
        timeline = self._world.timeline
        known = {event.id: (timeline, seq) for event, seq in zip(events, numbers, strict=True)}
        known |= {id_: (source.timeline, source.seq) for id_, source in sources.items()}
        edges = [
            (*known[source], seq)
            for event, seq in zip(events, numbers, strict=True)
            for source in event.made_of
        ]
        await self._connection.execute(
            "insert_event_sources", timeline, *map(list, zip(*edges, strict=True))
        )

    def _possible_players(self, events: Sequence[NewEvent]) -> list[str]:
        """Return all names that may be those of players who witness or do something."""
        places = {event.scene for event in events}
        scenes = self._scenes.values() if "" in places else [self._scenes[name] for name in places]
        found = {player for scene in scenes for player in scene.players}
        for event in events:
            named = {event.actor, *event.to, *(event.audience or ())} - {""}
            found |= named - self._companions.keys()
        return sorted(found)

    def _witnesses(self, event: NewEvent) -> _Witnesses:
        """Return who witnesses an event; of several that are alike, it is found out once."""
        alike = (
            event.scene,
            event.actor,
            event.to,
            event.volume,
            event.is_speech,
            event.audience,
        )
        known = self._known_witnesses.get(alike)
        if known is None:
            ranges = self._world.rules.ranges
            audience = audience_of(event, self._scenes, ranges, self._companions)
            found = self._relationships(event, audience)
            known = _Witnesses(len(found), _array(found), _array(found.values()))
            self._known_witnesses[alike] = known
        return known

    def _relationships(self, event: NewEvent, audience: Mapping[Witness, How]) -> dict[int, How]:
        """Return the relationships of witnesses, and how they witness.

        A character that has a mind for each player witnesses with the minds of those who are there.
        """
        found: dict[int, How] = {}
        for witness, how in audience.items():
            if witness.kind == "player":
                found[log_of(self._accounts[witness.name])] = how
                continue
            companion = self._companions[witness.name]
            if companion.has_one_mind:
                found[relationship_id_of(self._world.timeline, companion.id)] = how
                continue
            for player in self._beside(event, audience):
                found[relationship_id_of(self._accounts[player], companion.id)] = how
        return found

    def _beside(self, event: NewEvent, audience: Mapping[Witness, How]) -> list[str]:
        """Return the players whose own minds of a character witness what it witnesses.

        They are those who witness it too, so that what one of them whispers to a character is not
        known to what it is to the others; all who are there if none of them does.
        """
        players = [witness.name for witness in audience if witness.kind == "player"]
        scene = self._scenes.get(event.scene)
        return players or ([] if scene is None else list(scene.players))

    def _actor(self, event: NewEvent) -> int | None:
        """Return the character that acts; a player of the same name who is there does instead."""
        scene = self._scenes.get(event.scene)
        companion = self._companions.get(event.actor)
        is_player = scene is not None and event.actor in scene.players
        return None if companion is None or is_player else companion.id

    async def _sources(self, new: Mapping[int, NewEvent]) -> dict[str, _Source]:
        """Return what events pass on or were made of, and is stored, by id.

        Raises:
            InvalidMessage: an event names one that there is not.
        """
        named = sorted({source for event in new.values() for source in event.made_of})
        if not named:
            return {}
        rows = await self._connection.rows("remembered_events", self._world.lineage, named)
        known = {
            row["id"]: _Source(
                row["timeline_id"],
                row["seq"],
                row["memory_type"] == "conversation",
                row["actor"],
                row["chain"],
            )
            for row in rows
        }
        earlier = set(known)
        for place, event in new.items():
            for source in event.made_of:
                if source not in earlier:
                    path = f"events[{place}].retells"
                    raise InvalidMessage(
                        f"{path}: expected the id of an earlier event of this world", param=path
                    )
            earlier.add(event.id)
        return known


def _chains(events: Sequence[NewEvent], sources: Mapping[str, _Source]) -> list[list[str]]:
    """Return from whom the actor of each event has what it passes on, the nearest first."""
    chains: dict[str, list[str]] = {}
    batch: dict[str, NewEvent] = {}
    for event in events:
        chains[event.id] = []
        batch[event.id] = event
        if event.retells is None:
            continue
        if (source := sources.get(event.retells)) is not None:
            spoken, actor, chain = source.spoken, source.actor, source.chain
        else:
            told = batch[event.retells]
            spoken, actor, chain = told.is_speech, told.actor, chains[told.id]
        if spoken and actor != event.actor:
            chains[event.id] = [actor, *chain]
    return [chains[event.id] for event in events]


def _array(values: Iterable[object]) -> str:
    """Return the text of an array, as arrays of arrays have one length in PostgreSQL."""
    quoted = (
        str(value)
        if isinstance(value, int)
        else '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
        for value in values
    )
    return "{" + ",".join(quoted) + "}"


async def _accounts(
    connection: DatabaseConnection, timeline: int, players: Collection[str]
) -> dict[str, int]:
    """Return the accounts of players in a timeline, which are created if needed."""
    ids = {player_account(timeline, player): player for player in players}
    rows = list(await connection.rows("accounts", list(ids)))
    missing = set(ids) - {row["external_id"] for row in rows}
    if missing:
        ordered = sorted(missing)
        rows += await connection.rows(
            "insert_accounts",
            ordered,
            [name_of(None, ids[account]) for account in ordered],
        )
    return {ids[row["external_id"]]: row["id"] for row in rows}


async def _accounts_of(connection: DatabaseConnection, timeline: int) -> list[int]:
    return [row["id"] for row in await connection.rows("lock_accounts_of_timeline", timeline)]


async def _minds_of_accounts(connection: DatabaseConnection, accounts: Sequence[int]) -> list[int]:
    return [row["id"] for row in await connection.rows("minds_of_accounts", accounts)]


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


async def _remaining(
    connection: DatabaseConnection, events: Sequence[PerceivedEvent]
) -> set[EventKey]:
    """Return which events nobody has forgotten, and nobody does until the transaction ends."""
    keys = [event.key for event in events]
    await act_for(connection, {key.timeline for key in keys})
    rows = await connection.rows("remaining_events", *_columns(keys))
    return {EventKey(row["timeline_id"], row["seq"]) for row in rows}


def _is_own(event: PerceivedEvent) -> bool:
    return event.event.how == "own" or event.memory_type != "conversation"


def _perceived(row: Any) -> PerceivedEvent:
    how, spoken = row["how"], row["memory_type"] == "conversation"
    by_mind = row["actor_id"] is not None
    vector = row["vector"]
    return PerceivedEvent(
        EventKey(row["timeline_id"], row["seq"]),
        Perceived(
            how,
            row["id"],
            row["actor"],
            row["addressed"],
            row["chain"],
            row["content"],
            row["place"],
            row["volume"],
            spoken,
            bool(row["chain"]) or row["type"] in ("tell", "told") or (by_mind and how == "told"),
        ),
        row["type"],
        row["memory_type"],
        row["scene"],
        row["happened_at"],
        msgspec.json.decode(row["fields"]),
        None if vector is None else np.asarray(vector.to_numpy(), np.float32),
    )


def _no_world() -> NotFound:
    return NotFound("world: expected the name of a world of yours", param="world")


def _no_save(param: str) -> NotFound:
    return NotFound(f"{param}: expected the name of a saved moment of this world", param=param)


def _raise(error: Exception) -> Any:
    raise error
