"""Worlds: their clock, scenes and events, and who witnesses what. Pure.

A world belongs to a game server. What happens in it is an event, stored once with the witnesses
that it had at that moment. A mind is what one character knows: the events that it witnessed, and
what was derived from them.
"""

from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import dist
from random import Random
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from foremind.domain.actions import Action, ActionName, Condition
from foremind.domain.relationship import relationship_id_of
from foremind.domain.turn import MemoryType

CalendarName = Annotated[
    str, Meta(min_length=1, max_length=64, pattern=r"^[^\W_]([^\W_]|[ '’-])*$")
]
_LEAP_YEAR = 2024


class Feast(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Days of every year: the first, with the month counted from 1, and how many they are."""

    month: Annotated[int, Meta(ge=1, le=12)]
    day: Annotated[int, Meta(ge=1, le=31)] = 1
    days: Annotated[int, Meta(ge=1, le=366)] = 1

    @property
    def last_day(self) -> int:
        """The last day of its month, in some years at least."""
        return monthrange(_LEAP_YEAR, self.month)[1]


class Calendar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a world calls the twelve months, the seven days from Monday on, feasts and seasons.

    Months are as long as in the Gregorian calendar; what has no names has those of the language.
    """

    months: Annotated[tuple[CalendarName, ...], Meta(min_length=12, max_length=12)] | None = None
    days: Annotated[tuple[CalendarName, ...], Meta(min_length=7, max_length=7)] | None = None
    feasts: Annotated[dict[CalendarName, Feast], Meta(max_length=100)] = {}


#: A world that has no names of its own.
NO_CALENDAR = Calendar()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where in a world somebody is, and what its days are called."""

    place: str = ""
    calendar: Calendar = NO_CALENDAR


#: Outside of worlds.
NOWHERE = Surroundings()


Volume = Literal["whisper", "say", "shout"]
#: How an event was witnessed; `own`: the mind itself said or did it.
How = Literal["seen", "heard", "overheard", "told", "own"]

#: Types of events in which somebody says something.
SPEECH = frozenset({"conversation", "said", "say", "says", "speech", "message", "told", "tell"})
_NARRATED: dict[str, MemoryType] = {
    "observation": "observation", "state": "observation", "seen": "observation",
    "relationship": "relationship",
}  # fmt: skip
_MAX_YEAR = 9999


class Ranges(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far speech reaches, in the units of the positions in a scene; None: all of the scene."""

    whisper: float | None = 2.0
    say: float | None = None
    shout: float | None = None

    def of(self, volume: Volume) -> float | None:
        """Return how far a volume reaches."""
        reach: float | None = getattr(self, volume)
        return reach


Order = Literal["natural", "list", "host"]


class TurnOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Who answers what players say in a scene.

    `natural`: those who are named, else by chance; `list`: those in `minds`, in this order; `host`:
    nobody but those whom a player speaks to, or of whom the host asks for a reaction.
    `talkativeness` is by slug, `replies` the most that follow one message.
    """

    order: Order = "natural"
    minds: list[str] = []
    talkativeness: dict[str, Annotated[float, Meta(ge=0, le=1)]] = {}
    replies: Annotated[int, Meta(ge=0, le=10)] = 2


NATURAL_ORDER = TurnOrder()


#: Of triggers: nothing has happened for a while; a player comes back to a scene.
IDLE, RETURN = "idle", "return"
_MAX_SECONDS = 366 * 86_400.0


class TriggerCondition(Condition, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Where a trigger fires; `idle_s`: how long nothing has happened, for one `on` that."""

    idle_s: Annotated[float, Meta(ge=5, le=_MAX_SECONDS)] = 60.0


class Trigger(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What lets minds speak first: an event of the type `on`, `idle` time, or a player's `return`.

    It fires at most once in `cooldown_s` seconds and `per_day` times a day (UTC), with a
    `probability`. `text` is what minds then perceive, of idle time and returns.
    """

    name: ActionName
    on: Annotated[str, Meta(min_length=1, max_length=128)]
    when: TriggerCondition = TriggerCondition()
    text: Annotated[str, Meta(max_length=1000)] = ""
    cooldown_s: Annotated[float, Meta(ge=0, le=_MAX_SECONDS)] = 60.0
    probability: Annotated[float, Meta(ge=0, le=1)] = 1.0
    per_day: Annotated[int, Meta(ge=0, le=100_000)] | None = None

    def is_drawn(self, event_id: str) -> bool:
        """Return whether chance lets it fire on an event: the same one draws the same."""
        return Random(f"{self.name}:{event_id}").random() < self.probability  # noqa: S311


class WorldRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """What holds in a world: how far speech reaches, the names of days, what minds can do, and
    when they speak first.
    """

    ranges: Ranges = Ranges()
    calendar: Calendar = NO_CALENDAR
    actions: tuple[Action, ...] = ()
    triggers: tuple[Trigger, ...] = ()


@dataclass(frozen=True, slots=True)
class WorldClock:
    """The time of a world: `time` at the real time `set_at`, passing `factor` times as fast."""

    time: datetime
    set_at: datetime
    factor: float = 1.0

    def at(self, now: datetime) -> datetime:
        """Return the time of the world at a real time; a calendar ends with the year 9999."""
        passed = max(0.0, (now - self.set_at).total_seconds()) * self.factor
        left = datetime(_MAX_YEAR, 12, 30, tzinfo=self.time.tzinfo) - self.time
        return self.time + timedelta(seconds=min(passed, left.total_seconds()))


@dataclass(frozen=True, slots=True)
class Scene:
    """A place, and the players and minds that are there; `positions` are [x, y] by name."""

    name: str
    place: str = ""
    players: Sequence[str] = ()
    minds: Sequence[str] = ()
    positions: Mapping[str, Sequence[float]] = field(default_factory=dict)
    turn_order: TurnOrder = NATURAL_ORDER

    @property
    def members(self) -> set[str]:
        """The players and minds that are there."""
        return {*self.players, *self.minds}

    def distance(self, one: str, other: str) -> float | None:
        """Return how far two are apart; None if the position of either is not known."""
        if one in self.positions and other in self.positions:
            return dist(self.positions[one], self.positions[other])
        return None


NO_SCENE = Scene("")


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something that happens in a world, as its host reports it.

    Attributes:
        type: of the host's own; those in `SPEECH` are something said, by `actor`.
        to: whom it is said or done to; nobody: everybody.
        audience: who witnesses it, where the host knows better; None: as scene and volume have it.
        at: in the world's time; None: now.
        retells: the id of an earlier event that the actor passes on.
        sources: the ids of events that it was made of.
    """

    id: str
    type: str
    text: str
    scene: str = ""
    actor: str = ""
    to: tuple[str, ...] = ()
    volume: Volume = "say"
    audience: tuple[str, ...] | None = None
    at: datetime | None = None
    retells: str | None = None
    sources: tuple[str, ...] = ()
    fields: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_speech(self) -> bool:
        """Whether somebody says something."""
        return bool(self.actor) and self.type in SPEECH

    @property
    def made_of(self) -> list[str]:
        """The ids of the events that it passes on, or was made of."""
        retold = [] if self.retells is None else [self.retells]
        return list(dict.fromkeys([*retold, *self.sources]))

    @property
    def memory_type(self) -> MemoryType:
        """The type of the memories that are made of it."""
        return "conversation" if self.is_speech else _NARRATED.get(self.type, "event")


@dataclass(frozen=True, slots=True)
class EventChoice:
    """Which events are meant: some by id, else those of a span of the world's time and of a player.

    Without a beginning or an end, the span has none. Of a player is what the player said or did,
    and what was said to the player.
    """

    ids: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    player: str | None = None


@dataclass(frozen=True, slots=True)
class Witness:
    """Somebody who witnesses an event: a player by id, or a mind by the slug of its companion."""

    kind: Literal["player", "mind"]
    name: str


def audience_of(
    event: NewEvent, scenes: Mapping[str, Scene], ranges: Ranges, minds: Iterable[str]
) -> dict[Witness, How]:
    """Return who witnesses an event, and how.

    Its actor does. So does whoever the host names as the audience or else, with a scene, whoever is
    there: of a whisper, only those to whom it is said. Positions limit how far speech reaches. What
    happens without a scene is witnessed by everybody who is in any.

    Args:
        minds: the slugs that name minds; any other name is that of a player.
    """
    known = set(minds)
    scene = scenes.get(event.scene)

    def witness(name: str) -> Witness:
        is_player = name not in known or (scene is not None and name in scene.players)
        return Witness("player" if is_player else "mind", name)

    if event.audience is not None:
        present = [witness(name) for name in event.audience]
    else:
        places = [scene] if scene is not None else [] if event.scene else list(scenes.values())
        present = [
            member
            for place in places
            for member in _present(place)
            if _reaches(event, place, member.name, ranges)
        ]
    found = {member: _how(event, member.name) for member in present}
    if event.actor and (event.actor in known or _is_there(event.actor, scenes)):
        found[witness(event.actor)] = "own"
    return found


def _present(scene: Scene) -> list[Witness]:
    players = [Witness("player", name) for name in scene.players]
    return [*players, *(Witness("mind", name) for name in scene.minds)]


def _is_there(player: str, scenes: Mapping[str, Scene]) -> bool:
    return any(player in scene.players for scene in scenes.values())


def _reaches(event: NewEvent, scene: Scene, name: str, ranges: Ranges) -> bool:
    """Return whether somebody in a scene witnesses what happens there."""
    if not event.is_speech:
        return True
    if event.volume == "whisper" and name not in event.to:
        return False
    reach, distance = ranges.of(event.volume), scene.distance(event.actor, name)
    return reach is None or distance is None or distance <= reach


def _how(event: NewEvent, name: str) -> How:
    if not event.is_speech:
        return "seen"
    if not event.to:
        return "heard"
    return "told" if name in event.to else "overheard"


@dataclass(frozen=True, slots=True)
class Perceived:
    """An event as one mind witnessed it.

    `how` it did, `chain` from whom its actor has it, the nearest first; `place` where it happened;
    `spoken`: somebody says it; `telling`: and passes something on by it, rather than talks.
    """

    how: How
    id: str
    actor: str
    addressed: Sequence[str]
    chain: Sequence[str]
    text: str
    place: str
    volume: Volume
    spoken: bool
    telling: bool


def player_account(timeline: int, player: str) -> str:
    """Return the id of the account of one player in a timeline, which no client can name."""
    return f"\n{timeline}/{player}"


def timeline_account(world: str, number: str) -> str:
    """Return the id of the account of a timeline itself."""
    return f"\n{world}\n{number}"


def log_of(account: int) -> int:
    """Return the relationship of a player's own log: of an account with no companion."""
    return relationship_id_of(account, 0)
