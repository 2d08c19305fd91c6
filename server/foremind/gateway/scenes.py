"""Scenes that players are in: what they say there, who answers, and what each of them is told.

What is said is an event of the world first, stored with its witnesses; then minds that heard it
answer, one after another. Players are told what they witness, out of the database, whichever
process it happened in; only the pieces of a reply come from the process that makes it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import uuid4

import msgspec
import structlog
from cachetools import LRUCache
from msgspec import UNSET

from foremind.auth.principal import Principal
from foremind.domain.announcements import AccessRevoked, Announcement, UserErased, WorldChanged
from foremind.domain.companion import Companion
from foremind.domain.errors import (
    Conflict,
    ForemindError,
    InvalidMessage,
    NotAllowed,
    Overloaded,
)
from foremind.domain.memory import MemoryView
from foremind.domain.turn import Outcome, SpokenSentence
from foremind.domain.world import NewEvent, Scene, Volume, Witness, audience_of
from foremind.gateway.event_builders import memory_view
from foremind.gateway.gated_reply import GatedReply, ReplyResult
from foremind.gateway.protocol.decoding import DecodingProblem, error_body
from foremind.gateway.protocol.server_events import (
    Event,
    MessageAccepted,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ResponseSentence,
    ResponseTimings,
)
from foremind.gateway.session_client import NOT_ALLOWED, NOT_AUTHENTICATED
from foremind.gateway.session_services import SessionServices
from foremind.retrieval.access_counts import used_memories
from foremind.runtime.supervision import TaskSet, run_or_offload
from foremind.storage.world_store import StoredWorldEvent, World
from foremind.worlds.minds import Minds, Thought
from foremind.worlds.turn_order import answering

Tell = Callable[[Event], None]
_ATTEMPTS = 3  # to store what is said while things are undone or forgotten
_MAX_FLOORS = 10_000  # scenes in which something was said lately
_MAX_PLAYERS = 1000  # of a scene that said something lately
_MAX_REACTIONS = 200  # events that wait for a reaction
_NO_SCENE = Scene("")

_log = structlog.get_logger("foremind.gateway")


@dataclass(frozen=True, slots=True)
class Speech:
    """What a player says in a scene; `id` is the client's, `to` whom it is said to, if anybody."""

    world: str
    scene: str
    id: str
    player: str
    text: str
    to: tuple[str, ...] = ()
    volume: Volume = "say"

    @property
    def event(self) -> NewEvent:
        """The event that it is: as with messages, its id is unique per player."""
        return NewEvent(
            message_event_id(self.player, self.id),
            "said",
            self.text,
            self.scene,
            self.player,
            self.to,
            self.volume,
        )


def message_event_id(player: str, message_id: str) -> str:
    """Return the id of the event that a player's message is."""
    return f"message:{player}:{message_id}"


def reply_event_id(event_id: str, slug: str) -> str:
    """Return the id of the event that a mind's reply to an event is."""
    return f"{event_id}>{slug}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a mind answered; `memories` are those in its prompt."""

    slug: str
    result: ReplyResult
    memories: Sequence[MemoryView] = ()
    sentences: Sequence[SpokenSentence] = ()


class SceneWindow(Protocol):
    """A player's window on a scene."""

    principal: Principal
    player: str
    world: str
    scene: str

    def disconnect(self, code: int, reason: str) -> None:
        """Close the connection once everything queued is sent."""

    def emit(self, event: Event) -> None:
        """Send an event to the client."""

    def on_change(self) -> None:
        """Something happened in the world."""


class _Floor:
    """Whose turn it is in one scene: one reply at a time.

    What a player says next ends the reply to what that player said before, and reactions.
    """

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.last_speaker = ""
        self.reply: GatedReply | None = None
        self.asked_by = ""
        #: Counts the messages of each player: a newer one interrupts what follows an older one.
        self.said: LRUCache[str, int] = LRUCache(_MAX_PLAYERS)


@dataclass(slots=True)
class _Exchange:
    """Something that happened in a scene, and what minds answer to it.

    `id` is what those who are told call it: of a message the client's. `player` is whose minds
    answer, of characters that have one for each player; "" if there is nobody.
    """

    world: str
    event: NewEvent
    id: str
    player: str
    tell: Tell
    arrived: float
    duplicate: bool
    accepted: bool = False
    answers: list[Answer] = field(default_factory=list)
    asked_by: str = ""  # the player who said it, and is told by `tell`


class Scenes:
    """The scenes of this process's players."""

    def __init__(self, services: SessionServices) -> None:
        self._services = services
        self._minds = Minds(
            services.runtime, services.stores, services.context, services.after_reply.ingester
        )
        self._windows: defaultdict[str, set[SceneWindow]] = defaultdict(set)
        self._floors: LRUCache[tuple[str, str], _Floor] = LRUCache(_MAX_FLOORS)
        self._reactions = TaskSet()

    def join(self, window: SceneWindow) -> None:
        """Tell a window what happens from now on."""
        self._windows[window.world].add(window)

    def leave(self, window: SceneWindow) -> None:
        """Tell a window nothing any more."""
        self._windows[window.world].discard(window)
        if not self._windows[window.world]:
            del self._windows[window.world]

    def on_announcement(self, announcement: Announcement) -> None:
        """Let the windows on a world that changed look at it; end those that may stay no longer."""
        match announcement:
            case WorldChanged(world=world):
                for window in list(self._windows.get(world, ())):
                    window.on_change()
            case AccessRevoked() | UserErased():
                for window in self._all():
                    _end_if_concerned(window, announcement)

    def close(self, code: int, reason: str) -> None:
        """Close the connections of all windows."""
        for window in self._all():
            window.disconnect(code, reason)

    def _all(self) -> list[SceneWindow]:
        return [window for windows in self._windows.values() for window in windows]

    def beside(self, window: SceneWindow) -> list[SceneWindow]:
        """Return the windows of other players on the same scene."""
        return [
            other
            for other in self._windows.get(window.world, ())
            if other.scene == window.scene and other.player != window.player
        ]

    def cancel(self, window: SceneWindow, response_id: str) -> None:
        """Stop the reply in progress to a player.

        Raises:
            InvalidMessage: there is none of this id.
        """
        floor = self._floor(window.world, window.scene)
        if floor.reply is None or floor.reply.id != response_id or floor.asked_by != window.player:
            raise InvalidMessage("response_id: expected the reply in progress", param="response_id")
        floor.reply.cancel()

    async def speak(self, speech: Speech, arrived: float, tell: Tell) -> list[Answer]:
        """Store what a player says, and let those answer who do; return their answers.

        Args:
            arrived: the monotonic time at which it did.
            tell: is told what comes of it.

        Raises:
            NotFound: there is no such world.
            InvalidMessage: there is no such scene in it, or nobody of those whom it is said to.
            NotAllowed: the player is not there.
            Conflict: the id belongs to another text, or too much is being undone.
            StorageUnavailable: nothing was stored; try again later, with the same id.
        """
        worlds = self._services.stores.worlds
        world, scenes = await self._entered(speech)
        floor = self._floor(speech.world, speech.scene)
        number = floor.said[speech.player] = floor.said.get(speech.player, 0) + 1
        if floor.reply is not None and floor.asked_by in (speech.player, ""):
            floor.reply.cancel()
        new = await self._happens(speech, world)
        if not new:
            (stored,) = await worlds.events(world, [speech.event.id])
            if stored.text and stored.text != speech.text:
                raise Conflict("id: expected one that is not used for another text", param="id")
        exchange = _Exchange(
            world.name,
            speech.event,
            speech.id,
            speech.player,
            tell,
            arrived,
            duplicate=not new,
            asked_by=speech.player,
        )
        order = await self._order(exchange, world, scenes)
        async with floor.lock:
            for slug in order:
                if floor.said.get(speech.player) != number:
                    break
                await self._answer(exchange, floor, slug)
        if not exchange.accepted:
            self._accept(exchange, "miss")
        return exchange.answers

    def check_room(self, reactions: int) -> None:
        """Check that so many events more can be reacted to.

        Raises:
            Overloaded: too many are waiting for that; try again later.
        """
        if len(self._reactions) + reactions > _MAX_REACTIONS:
            raise Overloaded("Too many events are waiting for a reaction; try again later.")

    def react(self, world: str, events: Sequence[NewEvent]) -> None:
        """Let minds answer what happened in their scenes; whoever hears them is told.

        What a mind has answered before, it does not answer again.
        """
        for event in events:
            self._reactions.begin(self._react(world, event), "scene-reaction")

    async def stop(self) -> None:
        """Stop reacting."""
        await self._reactions.stop()

    async def _react(self, name: str, event: NewEvent) -> None:
        try:
            worlds = self._services.stores.worlds
            world = await worlds.find(name)
            scenes = await worlds.scenes(world)
            scene = scenes.get(event.scene, _NO_SCENE)
            there = [player for player in (event.actor, *event.to) if player in scene.players]
            player = next(iter([*there, *scene.players]), "")
            arrived = self._services.runtime.clock.monotonic()
            exchange = _Exchange(
                name, event, event.id, player, lambda _: None, arrived, True, accepted=True
            )
            order = await self._order(exchange, world, scenes)
            floor = self._floor(name, event.scene)
            async with floor.lock:
                said = sum(floor.said.values())
                for slug in order:
                    if sum(floor.said.values()) != said:
                        break  # a player says something
                    await self._answer(exchange, floor, slug)
        except ForemindError as error:
            _log.warning("scene.not_reacted", reason=error.code)

    async def _order(
        self, exchange: _Exchange, world: World, scenes: Mapping[str, Scene]
    ) -> list[str]:
        """Return who answers what happened, in order."""
        event = exchange.event
        scene = scenes.get(event.scene, _NO_SCENE)
        companions = await self._services.stores.companions.named(list(scene.minds))
        audience = audience_of(event, scenes, world.rules.ranges, companions)
        present = {
            slug: companions[slug].name
            for slug in scene.minds
            if slug in companions
            and Witness("mind", slug) in audience
            and slug != event.actor
            and (exchange.player or companions[slug].settings.mind == "world")
        }
        last = self._floor(world.name, scene.name).last_speaker
        return answering(scene.turn_order, event.text, event.to, present, last, event.id)

    async def _answer(self, exchange: _Exchange, floor: _Floor, slug: str) -> None:
        """Let a mind answer, and store what it says as an event that it witnesses with others."""
        services, event = self._services, exchange.event
        worlds, clock = services.stores.worlds, services.runtime.clock
        world = await worlds.find(exchange.world)
        said = NewEvent(
            reply_event_id(event.id, slug),
            "said",
            "",
            event.scene,
            slug,
            (event.actor,) if event.actor else (),
            event.volume,
        )
        if exchange.duplicate and (stored := await worlds.events(world, [said.id])):
            self._accept(exchange, "miss")
            self._repeat(exchange, stored[0].text, slug)
            return
        mind = await self._minds.mind(world, slug, exchange.player or None)
        await services.chat_models.prepare(mind.policy.chat_model)
        thought = await self._minds.react(mind, event.text)
        listeners = await self._listeners(world, said, mind.companion, exchange)

        def emit(told: Event) -> None:
            exchange.tell(told)
            for listener in listeners:
                listener.emit(msgspec.structs.replace(told))

        sentences = list[SpokenSentence]()

        def tell_sentence(response_id: str, spoken: SpokenSentence) -> None:
            sentences.append(spoken)
            emit(_sentence(response_id, spoken))

        reply = GatedReply(
            services.chat_models.chat_model_for(mind.policy.chat_model, mind.relationship.id),
            thought.assembled,
            lambda piece: emit(ResponseDelta(response_id=reply.id, delta=piece)),
            clock,
        )
        floor.reply, floor.asked_by = reply, exchange.asked_by
        self._accept(exchange, "miss")
        emit(ResponseCreated(response_id=reply.id, message_id=exchange.id, companion=slug))
        reply.open_gate(lambda spoken: tell_sentence(reply.id, spoken))
        result = await reply.result()
        floor.reply, floor.last_speaker = None, slug
        prompt = thought.assembled.prompt
        used = await run_or_offload(
            sum(map(len, (result.text, *prompt.said))),
            lambda: used_memories(result.text, prompt.memories, prompt.said),
        )
        if result.text.strip() and not result.looped:
            try:
                await self._store(world, said, thought, result.text.strip(), used)
            except ForemindError as error:
                result = replace(result, status="failed", error=error)
        emit(_done(exchange, reply.id, slug, result, used, clock.monotonic()))
        memories = [
            memory_view(memory, thought.mind.now, prompt.language) for memory in prompt.memories
        ]
        exchange.answers.append(Answer(slug, result, memories, sentences))
        _log.info("scene.answered", companion=slug, status=result.status, chars=len(result.text))

    async def _store(
        self, world: World, said: NewEvent, thought: Thought, text: str, used: Sequence[int]
    ) -> None:
        """Store what a mind said, with what it answers and what it took of what it remembered.

        What it has from somebody, it passes on.

        Raises:
            Conflict: something that it knew was undone or forgotten meanwhile.
            StorageUnavailable: nothing was stored.
        """
        worlds, mind = self._services.stores.worlds, thought.mind.relationship.id
        sources = await worlds.events_of_memories(mind, used) if used else []
        taken = await worlds.events(world, sources) if sources else []
        answered = said.id.rpartition(">")[0]
        event = replace(
            said,
            text=text,
            sources=(answered, *sources),
            retells=next((event.id for event in taken if _is_told(event, said.actor)), None),
        )
        now = self._services.runtime.clock.now()
        await worlds.report(world.name, [event], now, since=world)

    async def _listeners(
        self, world: World, said: NewEvent, companion: Companion, exchange: _Exchange
    ) -> list[SceneWindow]:
        """Return the windows of others than the asking player who hear what a mind will say."""
        scenes = await self._services.stores.worlds.scenes(world)
        audience = audience_of(said, scenes, world.rules.ranges, [companion.slug])
        return [
            window
            for window in self._windows.get(world.name, ())
            if window.player != exchange.asked_by and Witness("player", window.player) in audience
        ]

    def _accept(self, exchange: _Exchange, context: Outcome) -> None:
        """Tell that a message is stored, once."""
        if not exchange.accepted:
            exchange.accepted = True
            passed = self._services.runtime.clock.monotonic() - exchange.arrived
            exchange.tell(
                MessageAccepted(
                    id=exchange.id,
                    turn_id=exchange.event.id,
                    duplicate=exchange.duplicate,
                    context=context,
                    ready_ms=round(passed * 1000, 3),
                )
            )

    def _repeat(self, exchange: _Exchange, text: str, slug: str) -> None:
        """Tell a reply that is stored."""
        response_id, message_id = uuid4().hex, exchange.id
        exchange.tell(
            ResponseCreated(response_id=response_id, message_id=message_id, companion=slug)
        )
        exchange.tell(ResponseDelta(response_id=response_id, delta=text))
        result = ReplyResult("completed", text, None, None)
        now = self._services.runtime.clock.monotonic()
        exchange.tell(_done(exchange, response_id, slug, result, (), now))
        exchange.answers.append(Answer(slug, result))

    async def _entered(self, speech: Speech) -> tuple[World, Mapping[str, Scene]]:
        """Return the world and its scenes, in one of which the player is with all addressees."""
        worlds = self._services.stores.worlds
        world = await worlds.find(speech.world)
        scenes = await worlds.scenes(world)
        scene = scenes.get(speech.scene)
        if scene is None:
            raise InvalidMessage("scene: expected a scene of this world", param="scene")
        if speech.player not in scene.players:
            raise NotAllowed("scene: expected one that the player is in", param="scene")
        there = {*scene.players, *scene.minds}
        for name in speech.to:
            if name not in there:
                raise InvalidMessage(
                    "to: expected players and minds that are in the scene", param="to"
                )
        return world, scenes

    async def _happens(self, speech: Speech, world: World) -> bool:
        """Store what a player says; return False if it is stored already."""
        worlds, now = self._services.stores.worlds, self._services.runtime.clock.now()
        for _ in range(_ATTEMPTS):
            with suppress(Conflict):
                return (await worlds.report(world.name, [speech.event], now, since=world))[0]
            # Something was undone or forgotten: perhaps who the player is, too.
            world, _ = await self._entered(speech)
        return (await worlds.report(world.name, [speech.event], now, since=world))[0]

    def _floor(self, world: str, scene: str) -> _Floor:
        floor = self._floors.get((world, scene))
        if floor is None:
            floor = self._floors[world, scene] = _Floor()
        return floor


def _is_told(event: StoredWorldEvent, slug: str) -> bool:
    """Return whether a mind has what an event says from somebody else."""
    return event.memory_type == "conversation" and event.actor != slug


def _end_if_concerned(window: SceneWindow, announcement: AccessRevoked | UserErased) -> None:
    principal = window.principal
    if isinstance(announcement, UserErased):
        if announcement.user_id == window.player:
            window.disconnect(NOT_ALLOWED, "the user was erased")
    elif announcement.covers(principal.user_id, principal.token_id, principal.issued_at):
        window.disconnect(NOT_AUTHENTICATED, "token revoked")


def _sentence(response_id: str, sentence: SpokenSentence) -> ResponseSentence:
    return ResponseSentence(
        response_id=response_id,
        index=sentence.index,
        text=sentence.text,
        emotion=sentence.emotion or UNSET,
    )


def _done(
    exchange: _Exchange,
    response_id: str,
    slug: str,
    result: ReplyResult,
    used: Sequence[int],
    now: float,
) -> ResponseDone:
    first = result.first_token_at
    return ResponseDone(
        response_id=response_id,
        status=result.status,
        text=result.text,
        timings=ResponseTimings(
            first_token_ms=None if first is None else round((first - exchange.arrived) * 1000, 3),
            total_ms=round((now - exchange.arrived) * 1000, 3),
        ),
        error=None if result.error is None else error_body(result.error, DecodingProblem()),
        message_id=exchange.id,
        used=[str(memory_id) for memory_id in used],
        emotion=result.emotion or UNSET,
        companion=slug,
        cut_off=result.cut_off,
    )
