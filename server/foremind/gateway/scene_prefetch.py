"""Contexts prepared while a player types in a scene, by the mind that is likely to answer first."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from uuid import uuid4

import structlog

from foremind.domain.clock import Timer
from foremind.domain.companion import Companion
from foremind.domain.errors import ForemindError
from foremind.domain.turn import Trigger
from foremind.domain.world import NewEvent, Scene, Volume
from foremind.gateway.session_services import SessionServices
from foremind.runtime.supervision import TaskSet
from foremind.storage.world_events import World
from foremind.text.languages.language_files import ENGLISH
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import ContextAtEnter, PrefetchCallbacks, Prefetcher
from foremind.worlds.minds import Mind, Minds, Recall

#: Is told of a context that is ready: whose mind, the draft, what triggered it.
OnReady = Callable[[Mind, str, PreparedContext, Trigger], None]
_MAX_MINDS = 4  # that a player's drafts are prepared for
_LOOK_AGAIN_S = 1.0  # in a world where something happens all the time
_IDLE_S = 60.0  # since the last key, after which nothing is prepared anew
_SETTLE_S = 0.2  # after an answer, when what it changed has been announced

_log = structlog.get_logger("foremind.gateway")


@dataclass(frozen=True, slots=True)
class Room:
    """A scene as it is now, with the companions whose minds are there, by slug."""

    world: World
    scenes: Mapping[str, Scene]
    scene: Scene
    companions: Mapping[str, Companion]


@dataclass(frozen=True, slots=True)
class Draft:
    """What a player is typing, and to whom, as far as that is known."""

    text: str = ""
    to: tuple[str, ...] = ()
    volume: Volume = "say"


@dataclass(frozen=True, slots=True)
class SentDraft:
    """What was prepared for a message that was sent.

    `seed` is what the chance of who answers is drawn from, `recall` returns the context with which
    a mind answers.
    """

    seed: str
    recall: Recall


class _Likely:
    """A mind that may answer first; `changes` counts those of the world that it knows."""

    def __init__(
        self,
        services: SessionServices,
        minds: Minds,
        mind: Mind,
        changes: int,
        on_ready: OnReady,
    ) -> None:
        self.mind = mind
        self.changes = changes
        self.prefetcher = Prefetcher(
            services.context.builder,
            services.context.cache,
            lambda: minds.scope(self.mind, self.mind.history),
            PrefetchCallbacks(lambda _: None, lambda *ready: on_ready(self.mind, *ready)),
            lambda: (self.mind.policy.pause_s, self.mind.policy.eager),
            services.runtime.settings.recall_timeout_s,
            services.runtime.clock,
            services.runtime.metrics,
            mind.relationship.language or ENGLISH,
        )


class ScenePrefetcher:
    """Lets the mind that would answer a draft first perceive what it witnessed, and recall.

    What a draft would be answered with never leaves it: contexts are prepared, nobody acts.

    Args:
        room: returns the scene as it is now.
        answerers: returns who would answer an event there, in order, of chance drawn from a seed.
        on_ready: is told of a context that is ready.
    """

    def __init__(
        self,
        services: SessionServices,
        minds: Minds,
        player: str,
        room: Callable[[], Awaitable[Room]],
        answerers: Callable[[NewEvent, str, Room, str], Collection[str]],
        on_ready: OnReady,
    ) -> None:
        self._services = services
        self._minds = minds
        self._player = player
        self._read_room = room
        self._answerers = answerers
        self._on_ready = on_ready
        self._clock = services.runtime.clock
        self._draft = Draft()
        self._typed_at = 0.0
        self._slug = ""  # who would answer the draft first, or would have answered the last one
        #: What chance is drawn from for the message that is being typed.
        self._seed = uuid4().hex
        self._room: Room | None = None
        self._changes = 1  # of the world, counted
        self._known_changes = 0
        self._looking = False
        #: When to look again at what is known, and after a failure.
        self._look_again_at = self._retry_at = 0.0
        self._timer: Timer | None = None
        self._likely: OrderedDict[str, _Likely] = OrderedDict()
        self._tasks = TaskSet()

    def update(self, draft: Draft) -> None:
        """Record that the draft changed."""
        if not draft.text.strip():
            self.clear()
            return
        self._draft, self._typed_at = draft, self._clock.monotonic()
        self._follow()

    def clear(self) -> None:
        """Record that the draft was discarded."""
        self._draft = Draft()
        for likely in self._likely.values():
            likely.prefetcher.clear()

    def on_change(self) -> None:
        """Record that something happened in the world."""
        self._changes += 1
        if self._draft.text:
            self._look_if_due(self._first())

    def answered(self) -> None:
        """Record that what was sent is answered: that is perceived before more is typed."""
        self._changes += 1
        if self._timer is None:
            self._timer = self._clock.call_at(self._clock.monotonic() + _SETTLE_S, self._on_time)

    def enter(self, text: str) -> SentDraft:
        """Record that `text` was sent; return what was prepared for it."""
        for likely in self._likely.values():
            likely.prefetcher.enter(text)
        self._draft = Draft()
        self._look_again_at = 0.0
        seed, self._seed = self._seed, uuid4().hex
        return SentDraft(seed, self._context)

    async def close(self) -> None:
        """Stop preparing."""
        self._draft = Draft()
        self._cancel_timer()
        await self._tasks.stop()
        while self._likely:
            await self._likely.popitem()[1].prefetcher.close()

    def _follow(self) -> None:
        """Let the mind that would answer the draft first prepare for it, once that is known."""
        slug = self._first()
        self._look_if_due(slug)
        if self._looking:
            return
        for other, unlikely in self._likely.items():
            if other != slug:
                unlikely.prefetcher.clear()
        if slug in self._likely:
            self._likely[slug].prefetcher.update(self._draft.text)

    def _look_if_due(self, slug: str) -> None:
        """Look at the scene if something in it is not known, soon or at once.

        Args:
            slug: who would answer the draft first, as far as is known.
        """
        if self._looking or self._knows(slug, self._changes):
            return
        now = self._clock.monotonic()
        stranger = self._room is None or (slug and slug not in self._likely)
        due_at = self._retry_at if stranger else self._look_again_at
        if now >= due_at:
            self._begin_to_look()
        elif self._timer is None and now - self._typed_at < _IDLE_S:
            self._timer = self._clock.call_at(due_at, self._on_time)

    def _begin_to_look(self) -> None:
        self._cancel_timer()
        self._looking = True
        self._tasks.begin(self._look(), "scene-prefetch")

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        if self._draft.text:
            self._look_if_due(self._first())
        elif not self._looking:
            self._begin_to_look()

    def _knows(self, slug: str, changes: int) -> bool:
        """Return whether all that happened until a change is known to the mind that answers."""
        if self._known_changes < changes:
            return False
        return not slug or (slug in self._likely and self._likely[slug].changes >= changes)

    def _first(self) -> str:
        """Return who would answer the draft first, as far as is known; "" for nobody.

        Without a draft, whoever would have answered the last one.
        """
        room, draft = self._room, self._draft
        if room is None or self._player not in room.scene.players:
            return ""
        if not draft.text:
            return self._slug if self._slug in room.scene.minds else ""
        event = NewEvent(
            "", "said", draft.text, room.scene.name, self._player, draft.to, draft.volume
        )
        self._slug = next(iter(self._answerers(event, self._player, room, self._seed)), "")
        return self._slug

    async def _look(self) -> None:
        """Look at the scene, and bring the mind that would answer first up to date."""
        changes = self._changes
        try:
            self._room = room = await self._read_room()
            self._known_changes = changes
            while not self._knows(slug := self._first(), changes):
                mind = await self._minds.mind(
                    room.world, slug, self._player, room.scene.name, scenes=room.scenes
                )
                await self._keep(slug, mind, changes)
        except ForemindError as error:
            _log.warning("scene.not_prepared", reason=error.code)
            self._known_changes = 0
            self._retry_at = self._clock.monotonic() + _LOOK_AGAIN_S
        finally:
            self._looking = False
            self._look_again_at = self._clock.monotonic() + _LOOK_AGAIN_S
        if self._draft.text:
            self._follow()

    async def _keep(self, slug: str, mind: Mind, changes: int) -> None:
        likely = self._likely.get(slug)
        if likely is not None and likely.mind.relationship.id == mind.relationship.id:
            if likely.mind.relationship.memory_version != mind.relationship.memory_version:
                likely.prefetcher.clear()  # what was prepared for the draft no longer counts
            likely.mind, likely.changes = mind, changes
            return
        if likely is not None:  # it is in another timeline now
            await self._likely.pop(slug).prefetcher.close()
        while len(self._likely) >= _MAX_MINDS:
            await self._likely.popitem(last=False)[1].prefetcher.close()
        self._likely[slug] = _Likely(self._services, self._minds, mind, changes, self._on_ready)

    async def _context(self, mind: Mind, text: str) -> ContextAtEnter | None:
        """Return the context of a sent text; None if this mind has prepared nothing."""
        likely = self._likely.get(mind.companion.slug)
        if likely is None or likely.mind.relationship.id != mind.relationship.id:
            return None
        before = mind.history[:-1]
        return await likely.prefetcher.context_at_enter(
            text, lambda: self._minds.scope(mind, before)
        )
