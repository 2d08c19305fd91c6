"""Scenes that players are in: what they say there, who answers, and what each of them is told.

What is said is an event of the world first, stored with its witnesses; then minds that heard it
answer, one after another. Players are told what they witness, out of the database, whichever
process it happened in; only the pieces of a reply come from the process that makes it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol
from uuid import uuid4

import msgspec
import structlog
from cachetools import LRUCache
from msgspec import UNSET

from foremind.auth.principal import Principal
from foremind.domain.actions import (
    ACTION,
    REQUESTED,
    RESULT,
    Action,
    ActionCall,
    Offer,
    RequestedAction,
)
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
from foremind.domain.storable_text import check_storable
from foremind.domain.turn import Outcome, SpokenSentence
from foremind.domain.world import NO_SCENE, NewEvent, Scene, Volume, Witness, audience_of
from foremind.gateway.event_builders import memory_view
from foremind.gateway.gated_reply import GatedReply, ReplyResult
from foremind.gateway.protocol.decoding import ErrorCause, error_body
from foremind.gateway.protocol.server_events import (
    ActionRequested,
    Event,
    MessageAccepted,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ResponseSentence,
    ResponseTimings,
)
from foremind.gateway.scene_prefetch import OnReady, Room, ScenePrefetcher, SentDraft
from foremind.gateway.scene_triggers import SceneTriggers
from foremind.gateway.session_client import NOT_ALLOWED, NOT_AUTHENTICATED
from foremind.gateway.session_services import SessionServices
from foremind.llm.acting import MAX_CALLS, checked
from foremind.retrieval.access_counts import used_memories
from foremind.runtime.supervision import TaskSet, run_or_offload
from foremind.storage.world_events import StoredWorldEvent, World
from foremind.worlds.minds import Minds, Thought
from foremind.worlds.narration import flat
from foremind.worlds.turn_order import answering

Tell = Callable[[Event], None]
_MAX_FLOORS = 10_000  # scenes in which something was said lately
_MAX_PLAYERS = 1000  # of a scene that said something lately
_MAX_RESULT_CHARS = 4000  # of an action, as a mind is told it
_MAX_STEPS = 4  # actions that a mind may ask for in a row, told the result of each
_MAX_REACTIONS = 200  # events that wait for a reaction
_ESCAPED = str.maketrans({mark: f"%{ord(mark):02X}" for mark in f"%:>{ACTION}"})

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
    """Return the id of the event that a player's message is, and nothing else, whatever is in ids.

    What separates the parts of an id is escaped in what players choose: else "ana" with the message
    "b:m1" would be "ana:b" with "m1", and the message "m1>mara" what Mara answers to "m1".
    """
    return f"message:{player.translate(_ESCAPED)}:{message_id.translate(_ESCAPED)}"


def action_event_id(reply_id: str, number: int) -> str:
    """Return the id of the event that an action is, number `number` of a reply."""
    return f"{reply_id}{ACTION}{number}"


def reply_event_id(event_id: str, slug: str) -> str:
    """Return the id of the event that a mind's reply to an event is."""
    return f"{event_id}>{slug}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a mind answered; `memories` are those in its prompt.

    `is_private`: the mind is of the player alone, who may be shown what it remembers.
    """

    slug: str
    result: ReplyResult
    memories: Sequence[MemoryView] = ()
    sentences: Sequence[SpokenSentence] = ()
    actions: Sequence[RequestedAction] = ()
    is_private: bool = False


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

    def on_change(self, change: WorldChanged) -> None:
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
        self.answered = ""  # the id of the event that the reply is to
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
    sent: SentDraft | None = None


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
        #: Let minds speak first.
        self.triggers = SceneTriggers(services, self._minds, self._windows, self._react)

    def join(self, window: SceneWindow) -> None:
        """Tell a window what happens from now on."""
        self._windows[window.world].add(window)
        self.triggers.on_change(window.world)

    def leave(self, window: SceneWindow) -> None:
        """Tell a window nothing any more."""
        self._windows[window.world].discard(window)
        if not self._windows[window.world]:
            del self._windows[window.world]

    def on_announcement(self, announcement: Announcement) -> None:
        """Let the windows on a world that changed look at it; end those that may stay no longer."""
        match announcement:
            case WorldChanged(world=world):
                self.triggers.on_change(world)
                for window in list(self._windows.get(world, ())):
                    window.on_change(announcement)
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

    def prefetcher(self, window: SceneWindow, on_ready: OnReady) -> ScenePrefetcher:
        """Return what prepares contexts for what a player types in a window."""
        return ScenePrefetcher(
            self._services,
            self._minds,
            window.player,
            lambda: self._room(window.world, window.scene),
            self._answerers,
            on_ready,
        )

    async def speak(
        self, speech: Speech, arrived: float, tell: Tell, sent: SentDraft | None = None
    ) -> list[Answer]:
        """Store what a player says, and let those answer who do; return their answers.

        Args:
            arrived: the monotonic time at which it did.
            tell: is told what comes of it.
            sent: what was prepared while it was typed.

        Raises:
            NotFound: there is no such world.
            InvalidMessage: there is no such scene in it, or nobody of those whom it is said to.
            NotAllowed: the player is not there.
            Conflict: the id belongs to another text.
            StorageUnavailable: nothing was stored; try again later, with the same id.
        """
        room, new = await self._happens(speech)
        floor = self._floor(speech.world, speech.scene)
        number = floor.said[speech.player] = floor.said.get(speech.player, 0) + 1
        again = floor.answered == speech.event.id  # sent again after a lost connection
        if floor.reply is not None and floor.asked_by in (speech.player, "") and not again:
            floor.reply.cancel()
        if not new:
            (stored,) = await self._services.stores.worlds.events(room.world, [speech.event.id])
            if stored.text and stored.text != speech.text:
                raise Conflict("id: expected one that is not used for another text", param="id")
        exchange = _Exchange(
            speech.world,
            speech.event,
            speech.id,
            speech.player,
            tell,
            arrived,
            duplicate=not new,
            asked_by=speech.player,
            sent=sent,
        )
        order = [] if new else await self._answered(exchange, room)
        seed = sent.seed if sent is not None else speech.event.id
        order = order or self._answerers(speech.event, speech.player, room, seed)
        waits = floor.lock.locked()
        async with floor.lock:
            for place, slug in enumerate(order):
                if floor.said.get(speech.player) != number:
                    break
                if waits or place:
                    room = await self._room(speech.world, speech.scene)
                await self._answer(exchange, floor, slug, room)
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

    async def answer_action(self, name: str, action_id: str, result: Any) -> bool:
        """Tell a mind what came of an action; return False if it was told before.

        If the action waits for that, the mind goes on talking.

        Raises:
            NotFound: there is no such world.
            InvalidMessage: nobody asked for such an action, or the result is too long.
            Overloaded: too many events are waiting for a reaction.
            StorageUnavailable: nothing was stored.
        """
        text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
        if len(text) > _MAX_RESULT_CHARS:
            raise InvalidMessage(
                f"result: expected at most {_MAX_RESULT_CHARS} characters", param="result"
            )
        check_storable(text, "result")
        self.check_room(1)
        worlds, now = self._services.stores.worlds, self._services.runtime.clock.now()
        world = await worlds.find(name)
        asked = next(iter(await worlds.events(world, [action_id])), None)
        if asked is None or asked.type != REQUESTED or not asked.text:
            raise InvalidMessage("id: expected that of an action that was requested", param="id")
        told = (asked.actor, *asked.to)
        event = NewEvent(
            f"{action_id}>result",
            RESULT,
            f"Result of {asked.fields.get('name')}: {flat(text)}",
            asked.scene,
            to=told,
            audience=told,
            sources=(action_id,),
        )
        is_new = all((await worlds.report(name, [event], now)).new)
        if is_new and asked.fields.get("wait") is True:
            self.react(name, [event])
        return is_new

    async def stop(self) -> None:
        """Stop reacting."""
        await self.triggers.stop()
        await self._reactions.stop()

    async def _react(self, name: str, event: NewEvent, minds: Collection[str] = ()) -> None:
        """Let minds answer an event; of `minds`, if any are given."""
        try:
            room = await self._room(name, event.scene)
            players = room.scene.players
            there = [player for player in (event.actor, *event.to) if player in players]
            player = next(iter([*there, *players]), "")
            arrived = self._services.runtime.clock.monotonic()
            exchange = _Exchange(
                name, event, event.id, player, lambda _: None, arrived, True, accepted=True
            )
            order = self._answerers(event, player, room, event.id, minds)
            floor = self._floor(name, event.scene)
            waits = floor.lock.locked()
            async with floor.lock:
                said = sum(floor.said.values())
                for place, slug in enumerate(order):
                    if sum(floor.said.values()) != said:
                        break  # a player says something
                    if waits or place:
                        room = await self._room(name, event.scene)
                    await self._answer(exchange, floor, slug, room)
        except ForemindError as error:
            _log.warning("scene.not_reacted", reason=error.code)

    def _answerers(
        self, event: NewEvent, player: str, room: Room, seed: str, minds: Collection[str] = ()
    ) -> list[str]:
        """Return who answers what happens, in order; of `minds`, if any are given.

        Args:
            player: whose minds answer, of characters that have one for each player.
            seed: what chance is drawn from.
        """
        scene, companions = room.scene, room.companions
        audience = audience_of(event, room.scenes, room.world.rules.ranges, companions)
        present = {
            slug: companions[slug].name
            for slug in scene.minds
            if slug in companions
            and Witness("mind", slug) in audience
            and slug != event.actor
            and (not minds or slug in minds)
            and (player or companions[slug].has_one_mind)
        }
        last = self._floor(room.world.name, scene.name).last_speaker
        return answering(scene.turn_order, event.text, event.to, present, last, seed)

    async def _answered(self, exchange: _Exchange, room: Room) -> list[str]:
        """Return who has answered what happened, in order."""
        ids = {reply_event_id(exchange.event.id, slug): slug for slug in room.scene.minds}
        stored = await self._services.stores.worlds.events(room.world, list(ids))
        return [ids[event.id] for event in stored]

    async def _room(self, world_name: str, scene_name: str) -> Room:
        worlds = self._services.stores.worlds
        world = await worlds.find(world_name)
        scenes = await worlds.scenes(world)
        scene = scenes.get(scene_name, NO_SCENE)
        companions = await self._services.stores.companions.named(list(scene.minds))
        return Room(world, scenes, scene, companions)

    async def _answer(self, exchange: _Exchange, floor: _Floor, slug: str, room: Room) -> None:
        """Let a mind answer, and store what it says as an event that it witnesses with others."""
        services, event, sent = self._services, exchange.event, exchange.sent
        clock, player = services.runtime.clock, exchange.player
        said = _reply_to(event, slug)
        if exchange.duplicate and await self._repeated(exchange, room.world, said):
            return
        mind = await self._minds.mind(
            room.world, slug, player or None, event.scene, event.id, scenes=room.scenes
        )
        if event.id.count(ACTION) >= _MAX_STEPS:
            mind = replace(mind, offer=Offer())
        await services.chat_models.prepare(mind.policy.chat_model)
        thought = await self._minds.react(mind, event.text, None if sent is None else sent.recall)
        listeners = self._listeners(room, said, mind.companion, exchange)

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
        self._accept(exchange, thought.recalled.outcome)
        emit(ResponseCreated(response_id=reply.id, message_id=exchange.id, companion=slug))
        reply.open_gate(lambda spoken: tell_sentence(reply.id, spoken))
        floor.answered = event.id
        result = await reply.result()
        floor.reply, floor.last_speaker = None, slug
        prompt = thought.assembled.prompt
        used = await run_or_offload(
            sum(map(len, (result.text, *prompt.said))),
            lambda: used_memories(result.text, prompt.memories, prompt.said),
        )
        actions: Sequence[RequestedAction] = ()
        try:
            actions = await self._store(room.world, said, thought, result, used, player)
        except ForemindError as error:
            result = replace(result, status="failed", error=error)
        for action in actions:
            emit(_requested(reply.id, slug, action))
        emit(_done(exchange, reply.id, slug, result, used, clock.monotonic()))
        memories = [memory_view(memory, mind.now, prompt.language) for memory in prompt.memories]
        exchange.answers.append(
            Answer(slug, result, memories, sentences, actions, is_private=mind.is_private)
        )
        _log.info("scene.answered", companion=slug, status=result.status, chars=len(result.text))

    async def _store(
        self,
        world: World,
        said: NewEvent,
        thought: Thought,
        result: ReplyResult,
        used: Sequence[int],
        player: str,
    ) -> list[RequestedAction]:
        """Store what a mind said, with what it answers and what it took of what it remembered.

        What it has from somebody, it passes on. Return the actions that it asks for, which are
        stored as well; a reply that was stopped asks for none.

        Args:
            player: whose mind it is, of a character that has one for each.

        Raises:
            Conflict: something that it knew was undone or forgotten meanwhile.
            StorageUnavailable: nothing was stored.
        """
        worlds, mind = self._services.stores.worlds, thought.mind.relationship.id
        text = "" if result.looped else result.text.strip()
        calls = result.calls if result.status == "completed" else ()
        offer = thought.mind.offer
        asked = await _checked(calls, offer.actions) if calls and offer is not None else []
        if not text and not asked:
            return []
        sources = await self._services.stores.minds.events_of_memories(mind, used) if used else []
        taken = await worlds.events(world, sources) if sources else []
        answered = said.id.rpartition(">")[0]
        event = replace(
            said,
            text=text,
            sources=(answered, *sources),
            retells=next((event.id for event in taken if _is_told(event, said.actor)), None),
        )
        events = [event] if text else []
        requested = []
        for number, (action, arguments) in enumerate(asked):
            action_id = action_event_id(said.id, number)
            requested.append(RequestedAction(action_id, action.name, arguments))
            shown = msgspec.json.encode(arguments).decode() if arguments else ""
            events.append(
                replace(
                    event,
                    id=action_id,
                    type=REQUESTED,
                    text=f"{thought.mind.companion.name} does this: {action.name} {shown}".strip(),
                    to=(player,) if thought.mind.is_private else (),
                    retells=None,
                    sources=(*event.sources, *([said.id] if text else [])),
                    fields={"name": action.name, "arguments": arguments, "wait": action.wait},
                )
            )
        prompt = thought.assembled.prompt
        chars = sum(len(message["content"]) for message in prompt.messages())
        kept = await run_or_offload(chars, lambda: thought.kept_prompt)
        now = self._services.runtime.clock.now()
        await worlds.report(world.name, events, now, since=world, prompt=kept)
        return requested

    def _listeners(
        self, room: Room, said: NewEvent, companion: Companion, exchange: _Exchange
    ) -> list[SceneWindow]:
        """Return the windows of others than the asking player who hear what a mind will say."""
        audience = audience_of(said, room.scenes, room.world.rules.ranges, [companion.slug])
        return [
            window
            for window in self._windows.get(exchange.world, ())
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

    async def _repeated(self, exchange: _Exchange, world: World, said: NewEvent) -> bool:
        """Tell a reply that is stored; return False if there is none."""
        slug, ids = said.actor, [action_event_id(said.id, number) for number in range(MAX_CALLS)]
        stored = await self._services.stores.worlds.events(world, [said.id, *ids])
        if not stored:
            return False
        self._accept(exchange, "miss")
        text = "".join(event.text for event in stored if event.type != REQUESTED)
        actions = [
            msgspec.convert({"id": event.id} | dict(event.fields), RequestedAction)
            for event in stored
            if event.type == REQUESTED and event.fields
        ]
        response_id, message_id = uuid4().hex, exchange.id
        exchange.tell(
            ResponseCreated(response_id=response_id, message_id=message_id, companion=slug)
        )
        exchange.tell(ResponseDelta(response_id=response_id, delta=text))
        for action in actions:
            exchange.tell(_requested(response_id, slug, action))
        result = ReplyResult("completed", text, None, None)
        now = self._services.runtime.clock.monotonic()
        exchange.tell(_done(exchange, response_id, slug, result, (), now))
        exchange.answers.append(Answer(slug, result, actions=actions))
        return True

    async def _happens(self, speech: Speech) -> tuple[Room, bool]:
        """Store what a player says, unless it is stored; return where, and whether it is new."""
        worlds, now = self._services.stores.worlds, self._services.runtime.clock.now()
        world, scenes, companions, (is_new,) = await worlds.report(
            speech.world, [speech.event], now, check=partial(_check_speech, speech)
        )
        return Room(world, scenes, scenes[speech.scene], companions), is_new

    def _floor(self, world: str, scene: str) -> _Floor:
        floor = self._floors.get((world, scene))
        if floor is None:
            floor = self._floors[world, scene] = _Floor()
        return floor


def _check_speech(speech: Speech, scenes: Mapping[str, Scene]) -> None:
    """Check that a player is in a scene with all to whom something is said there.

    Raises:
        InvalidMessage: there is no such scene, or somebody is not there.
        NotAllowed: the player is not there.
    """
    scene = scenes.get(speech.scene)
    if scene is None:
        raise InvalidMessage("scene: expected a scene of this world", param="scene")
    if speech.player not in scene.players:
        raise NotAllowed("scene: expected one that the player is in", param="scene")
    if not {*scene.players, *scene.minds}.issuperset(speech.to):
        raise InvalidMessage("to: expected players and minds that are in the scene", param="to")


def _reply_to(event: NewEvent, slug: str) -> NewEvent:
    """Return the event that a mind's reply is, without its text."""
    whom = (event.actor,) if event.actor else ()
    event_id = reply_event_id(event.id, slug)
    return NewEvent(event_id, "said", "", event.scene, slug, whom, event.volume)


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


async def _checked(
    calls: Sequence[ActionCall], actions: Sequence[Action]
) -> list[tuple[Action, dict[str, Any]]]:
    """Return the actions that are asked for in order, without those that are none, or not so."""
    # In a thread: the first one imports what it needs.
    found = await asyncio.to_thread(lambda: [checked(call, actions) for call in calls])
    valid = [known for known in found if known is not None]
    if len(valid) < len(calls):
        _log.info("scene.invalid_actions", invalid=len(calls) - len(valid), valid=len(valid))
    return valid


def _requested(response_id: str, slug: str, action: RequestedAction) -> ActionRequested:
    return ActionRequested(
        response_id=response_id,
        id=action.id,
        name=action.name,
        arguments=action.arguments,
        companion=slug,
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
        error=None if result.error is None else error_body(result.error, ErrorCause()),
        message_id=exchange.id,
        used=[str(memory_id) for memory_id in used],
        emotion=result.emotion or UNSET,
        companion=slug,
        cut_off=result.cut_off,
    )
