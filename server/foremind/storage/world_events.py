"""Events of worlds as they are stored, each with those who witness it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import msgspec

from foremind.domain.announcements import WorldChanged
from foremind.domain.companion import Companion
from foremind.domain.errors import InvalidMessage
from foremind.domain.relationship import relationship_id_of
from foremind.domain.turn import MemoryType
from foremind.domain.user import name_of
from foremind.domain.world import (
    How,
    NewEvent,
    Scene,
    Volume,
    Witness,
    WorldClock,
    WorldRules,
    audience_of,
    log_of,
    player_account,
)
from foremind.storage.database import DatabaseConnection

_MAX_WITNESSES = 5000  # that one statement stores, so that reading them holds nobody up
_MAX_SCENES = 8  # that an announcement names


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


async def act_for(connection: DatabaseConnection, timelines: Iterable[int]) -> None:
    """Make the events of some timelines visible to a transaction of their host."""
    listed = ",".join(str(int(timeline)) for timeline in timelines)
    await connection.raw.execute(f"SET LOCAL foremind.timelines = '{{{listed}}}'")


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


def names_concerned(events: Sequence[NewEvent], scenes: Mapping[str, Scene]) -> list[str]:
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


class EventWriter:
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
        self._accounts = await accounts_in(connection, world.timeline, players)
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


async def accounts_in(
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


def columns_of(keys: Sequence[EventKey]) -> tuple[list[int], list[int]]:
    return [key.timeline for key in keys], [key.seq for key in keys]
