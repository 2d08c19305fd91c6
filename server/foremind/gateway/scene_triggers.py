"""Triggers of worlds: when minds speak first, in scenes that players of this process are in."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import structlog
from cachetools import LRUCache

from foremind.domain.errors import ForemindError
from foremind.domain.world import IDLE, NO_SCENE, RETURN, NewEvent, Scene, Trigger
from foremind.gateway.session_services import SessionServices
from foremind.runtime.supervision import SupervisedLoop, TaskSet
from foremind.worlds.minds import Minds

_MAX_TASKS = 200  # batches of events that triggers are looked up for
_MAX_WORLDS = 10_000  # whose last change is known
_IDLE_CHECK_S = 5.0  # between two looks for scenes in which nothing happens

_log = structlog.get_logger("foremind.gateway")


class ScenePlayer(Protocol):
    """A player who is in a scene."""

    player: str
    world: str
    scene: str


class SceneTriggers:
    """Lets minds answer what triggers fire on; looks for idle time between `start` and `stop`.

    Args:
        present: the players of this process by world, as they are at any moment.
        react: lets those of some minds answer an event who do.
    """

    def __init__(
        self,
        services: SessionServices,
        minds: Minds,
        present: Mapping[str, Collection[ScenePlayer]],
        react: Callable[[str, NewEvent, Collection[str]], Awaitable[None]],
    ) -> None:
        self._stores = services.stores
        self._clock = services.runtime.clock
        self._supervisor = services.runtime.supervisor
        self._minds = minds
        self._present = present
        self._react = react
        self._tasks = TaskSet()
        self._changed_at: LRUCache[str, float] = LRUCache(_MAX_WORLDS)
        self._loop: SupervisedLoop | None = None

    def start(self) -> None:
        """Begin to look for scenes in which nothing happens."""
        self._loop = self._supervisor.start("scene-idle", self._look_for_idle)

    async def stop(self) -> None:
        """Let nothing fire any more."""
        if self._loop is not None:
            await self._loop.stop()
        await self._tasks.stop()

    def on_change(self, world: str) -> None:
        """Something happened in a world."""
        self._changed_at[world] = self._clock.monotonic()

    def on_arrival(self, player: ScenePlayer) -> None:
        """Let triggers fire on a player who has come to a scene."""
        event_id = f"{RETURN}:{player.player}:{self._clock.now().timestamp():.3f}"
        event = NewEvent(event_id, RETURN, "", player.scene, player.player)
        self.on_events(player.world, [event])

    def on_events(self, world: str, events: Sequence[NewEvent]) -> None:
        """Let triggers fire on what happened in a world, unless too much waits."""
        if events and len(self._tasks) < _MAX_TASKS:
            self._tasks.begin(self._fire_on(world, events), "scene-triggers")

    async def _look_for_idle(self, loop: SupervisedLoop) -> None:
        while True:
            await self._clock.sleep(_IDLE_CHECK_S)
            now = self._clock.now().timestamp()
            for world, present in list(self._present.items()):
                scenes = sorted({player.scene for player in present})
                self.on_events(
                    world,
                    [NewEvent(f"{IDLE}:{scene}:{now:.3f}", IDLE, "", scene) for scene in scenes],
                )
            loop.report_progress()

    async def _fire_on(self, name: str, events: Sequence[NewEvent]) -> None:
        """Let minds answer those of some events on which a trigger fires, one for each."""
        worlds = self._stores.worlds
        try:
            world = await worlds.find(name)
            if not world.rules.triggers:
                return
            scenes = await worlds.scenes(world)
            for event in events:
                scene = scenes.get(event.scene, NO_SCENE)
                for trigger in world.rules.triggers:
                    minds = _concerned(trigger, event, scene)
                    if not minds or (event.type == IDLE and not self._is_idle(name, trigger)):
                        continue
                    minds = await self._willing(minds, scene.players)
                    if minds and await worlds.fire(world, trigger, self._clock.now()):
                        await self._react(name, await self._told(name, trigger, event), minds)
                        break
        except ForemindError as error:
            _log.warning("scene.not_triggered", reason=error.code)

    async def _told(self, world: str, trigger: Trigger, event: NewEvent) -> NewEvent:
        """Return an event as minds perceive it; idle time and returns are stored first."""
        if event.text:
            return event
        text = trigger.text
        if not text and event.type == RETURN:
            name = (await self._minds.names()).of(event.actor)
            text = f"{name[0].upper()}{name[1:]} is back"
        told = replace(event, text=text or "Nothing has happened for a while")
        await self._stores.worlds.report(world, [told], self._clock.now())
        return told

    def _is_idle(self, world: str, trigger: Trigger) -> bool:
        """Return whether nothing has happened for long enough, and let that time begin again."""
        now = self._clock.monotonic()
        is_idle = now - self._changed_at.get(world, now) >= trigger.when.idle_s
        if is_idle:
            self._changed_at[world] = now
        return is_idle

    async def _willing(self, minds: Sequence[str], players: Sequence[str]) -> list[str]:
        """Return those of some minds that may speak first, as far as no player there objects."""
        known = await self._stores.companions.named(minds)
        silent = await self._stores.worlds.silent(players, minds)
        return [
            slug
            for slug in minds
            if slug in known
            and slug not in silent
            and known[slug].settings.speaks_first is not False
        ]


def _concerned(trigger: Trigger, event: NewEvent, scene: Scene) -> list[str]:
    """Return the minds in a scene that a trigger lets speak first on an event."""
    if trigger.on != event.type or not trigger.is_drawn(event.id):
        return []
    when = trigger.when
    return [slug for slug in scene.minds if when.holds(slug, scene.name, scene.players)]
