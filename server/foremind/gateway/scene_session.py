"""A player's window on a scene of a world: what it witnesses, and what the player says there."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import uuid4

from foremind import __version__
from foremind.auth.authority import require_host
from foremind.auth.principal import Principal
from foremind.domain.announcements import WorldChanged
from foremind.domain.errors import ForemindError, InvalidMessage, NotFound, Overloaded
from foremind.domain.session_state import NO_STATE
from foremind.domain.turn import Trigger
from foremind.domain.world import Scene, log_of, player_account
from foremind.gateway.event_builders import context_ready, session_updated
from foremind.gateway.event_stream import EventListener, EventStream
from foremind.gateway.flow_control import limits_of
from foremind.gateway.protocol.client_messages import (
    ActionResult,
    ClientMessage,
    DraftClear,
    DraftUpdate,
    MessageSend,
    ResponseCancel,
    SessionUpdate,
    UserClaim,
)
from foremind.gateway.protocol.decoding import ErrorCause, cause_of, error_body
from foremind.gateway.protocol.server_events import (
    PROTOCOL,
    ActionAccepted,
    CompanionCard,
    ErrorEvent,
    Event,
    ResponseSentence,
    SceneEvent,
    SceneMember,
    SceneState,
    SceneTyping,
    SessionOpened,
)
from foremind.gateway.scene_prefetch import Draft
from foremind.gateway.scenes import Scenes, Speech
from foremind.gateway.session_client import NOT_ALLOWED, NOT_AUTHENTICATED
from foremind.gateway.session_services import SessionServices
from foremind.runtime.supervision import TaskSet
from foremind.storage.mind_store import PerceivedEvent
from foremind.storage.world_events import World
from foremind.typeahead.context_cache import PreparedContext
from foremind.worlds.minds import Mind

_RECENT = 30  # events that a client is told of when it joins
_BATCH = 256  # events that are read at once
_MAX_RUNNING = 8  # messages and results of one window that are being handled


class SceneSession:
    """Handles the messages of one connection to a scene; it ends with the connection.

    What it missed meanwhile is told when the player joins again.
    """

    def __init__(
        self,
        services: SessionServices,
        scenes: Scenes,
        principal: Principal,
        world: str,
        scene: str,
        listener: EventListener,
        *,
        sentences: bool,
        contexts: bool,
    ) -> None:
        self._services = services
        self._scenes = scenes
        self.principal = principal
        self.player = principal.effective_user_id
        self.world = world
        self.scene = scene
        self.id = uuid4().hex
        self._listener = listener
        self._sentences = sentences
        self._contexts = contexts
        self._prefetcher = scenes.prefetcher(self, self._on_context)
        self._stream = EventStream(0.0, services.runtime.clock)
        self._tasks = TaskSet()
        self._changes = 0
        self._looking = asyncio.Lock()
        self._world: World | None = None  # as it was looked at last
        self._version = -1  # of its rules and scenes, as was announced last
        self._timeline = 0
        self._seen = 0  # the number of the last event that the client was told of
        self._last_state: object = None
        self._typing = False
        self._running = 0

    async def open(self, warnings: Sequence[str] = ()) -> None:
        """Send `session.opened`, then the state of the scene, and whatever happens from then on.

        Raises:
            NotFound: there is no such world.
        """
        await self._services.stores.worlds.find(self.world)
        self._stream.attach(self._listener)
        settings = self._services.runtime.settings
        self.emit(
            SessionOpened(
                protocol=PROTOCOL,
                server=__version__,
                session_id=self.id,
                relationship_id="",
                user=UserClaim(self.player, self.principal.name),
                companion=CompanionCard("", "", ""),
                pause_ms=settings.pause_ms,
                limits=limits_of(settings),
                resumed=False,
                consent="assumed",
                model=None,
                turns=[],
                warnings=list(warnings),
            )
        )
        await self._look()
        self._scenes.triggers.on_arrival(self)

    def emit(self, event: Event) -> None:
        """Send an event to the client, unless it is a sentence and it wants none."""
        if self._sentences or not isinstance(event, ResponseSentence):
            self._stream.emit(event)

    def on_change(self, change: WorldChanged) -> None:
        """Something happened in the world: look at it, unless it was elsewhere."""
        elsewhere = change.scenes and self.scene not in change.scenes
        if elsewhere and change.version == self._version:
            return
        self._version = change.version
        self._changes += 1
        self._prefetcher.on_change()
        if self._changes == 1:
            self._tasks.begin(self._look(), "scene-look")

    def handle(self, message: ClientMessage, arrived: float) -> None:
        """Handle a message that arrived at monotonic time `arrived`.

        Raises:
            RequestError, TemporaryError: to be sent to the client.
        """
        if not self._services.authority.still_valid(self.principal):
            self.disconnect(NOT_AUTHENTICATED, "token expired")
            return
        match message:
            case DraftUpdate():
                self._tell_typing(bool(message.text.strip()))
                to = _names(message.to)
                self._prefetcher.update(Draft(message.text, to, message.volume))
            case DraftClear():
                self._tell_typing(False)
                self._prefetcher.clear()
            case MessageSend():
                self._say(message, arrived)
            case ResponseCancel():
                self._scenes.cancel(self, message.response_id)
            case ActionResult():
                self._answer_action(message)
            case _:
                raise InvalidMessage(
                    "type: expected a draft, a message, the cancelling of a reply or the result of "
                    "an action in a scene",
                    param="type",
                )

    def renew(self, principal: Principal) -> None:
        """Continue under another token of the same user, which may allow less."""
        self.principal = principal
        if not principal.allows("memory:read"):
            self._stream.withhold_memories()

    def update(self, message: SessionUpdate) -> None:
        """Send from now on what the client wants, and tell it under which token."""
        if message.contexts is not None:
            self._contexts = message.contexts
        if message.sentences is not None:
            self._sentences = message.sentences
        self.emit(session_updated(self.principal, NO_STATE, message.event_id))

    def disconnect(self, code: int, reason: str) -> None:
        """Close the connection once everything queued is sent."""
        self._listener.close(code, reason)

    async def close(self) -> None:
        """Leave; what was said is answered all the same."""
        self._tell_typing(False)
        self._stream.attach(None)
        await self._tasks.finish()
        await self._prefetcher.close()

    def _say(self, message: MessageSend, arrived: float) -> None:
        if not message.text.strip():
            raise InvalidMessage("text: expected text that is not blank", param="text")
        self._tell_typing(False)
        speech = Speech(
            self.world,
            self.scene,
            message.id,
            self.player,
            message.text.strip(),
            _names(message.to),
            message.volume,
        )
        sent = self._prefetcher.enter(speech.text)
        self._begin(message, lambda: self._scenes.speak(speech, arrived, self.emit, sent))

    def _on_context(
        self, mind: Mind, draft: str, context: PreparedContext, trigger: Trigger
    ) -> None:
        """Tell the client that what a mind recalls for a draft is ready."""
        cache = self._services.context.cache
        if not self._contexts or cache.predates_erasure(mind.relationship.id, context):
            return
        is_told = mind.is_private or self.principal.hosts(self.world)
        shown = is_told and self.principal.allows("memory:read")
        event = context_ready(draft, context, trigger, mind.now, with_memories=shown)
        self._stream.emit(event, telemetry=True)

    def _answer_action(self, message: ActionResult) -> None:
        require_host(self.principal, self.world)
        self._begin(message, lambda: self._tell_result(message))

    async def _tell_result(self, message: ActionResult) -> None:
        is_new = await self._scenes.answer_action(self.world, message.id, message.result)
        self.emit(ActionAccepted(id=message.id, duplicate=not is_new, event_id=message.event_id))

    def _begin(self, message: ClientMessage, handle: Callable[[], Awaitable[object]]) -> None:
        """Handle a message in the background; its failure is told to the client.

        Raises:
            Overloaded: too many are being handled; the client sends it again.
        """
        if self._running >= _MAX_RUNNING:
            raise Overloaded(f"At most {_MAX_RUNNING} messages of a player may wait in a scene.")
        self._running += 1
        self._tasks.begin(self._handled(message, handle), "scene-message")

    async def _handled(
        self, message: ClientMessage, handle: Callable[[], Awaitable[object]]
    ) -> None:
        try:
            await handle()
        except ForemindError as error:
            self.fail(error, cause_of(message))
        finally:
            self._running -= 1
            self._prefetcher.answered()

    def fail(self, error: ForemindError, cause: ErrorCause) -> None:
        """Send an error about something that the client sent."""
        self._services.runtime.metrics.errors.labels(error.code).inc()
        self.emit(ErrorEvent(error=error_body(error, cause)))

    def _tell_typing(self, typing: bool) -> None:
        if typing != self._typing:
            self._typing = typing
            for other in self._scenes.beside(self):
                other.emit(SceneTyping(player=self.player, typing=typing))

    async def _look(self) -> None:
        """Tell the client who is there and what the player witnessed, as far as it is new."""
        async with self._looking:
            self._changes = 0
            worlds = self._services.stores.worlds
            if self._world is not None and self._world.version == self._version:
                await self._tell_events(self._world)  # nobody came or left
                return
            try:
                self._world = world = await worlds.find(self.world)
            except NotFound:
                self.disconnect(NOT_ALLOWED, "the world was deleted")
                return
            scene = (await worlds.scenes(world)).get(self.scene)
            earlier = self._timeline
            if world.timeline != earlier:
                self._timeline = world.timeline
                events = None
                if earlier not in world.ancestors:
                    events = await self._recent(world)
                self._seen = max(self._seen if events is None else 0, world.begun - 1)
                await self._tell_state(world, scene, events)
            else:
                await self._tell_state(world, scene, None)
            await self._tell_events(world)

    async def _tell_events(self, world: World) -> None:
        """Tell the client what the player witnessed since it was told last."""
        stores = self._services.stores
        account = await stores.worlds.account(world, self.player)
        if account is None:
            return
        log = [log_of(account)]
        while events := await stores.minds.witnessed(log, self._seen, _BATCH):
            for event in events:
                self.emit(_scene_event(event))
            self._seen = events[-1].key.seq

    async def _recent(self, world: World) -> list[SceneEvent]:
        """Return the last events that the player witnessed before this timeline began."""
        stores = self._services.stores
        ids = [player_account(timeline, self.player) for timeline in world.ancestors]
        accounts = await stores.worlds.accounts(ids)
        past = [log_of(accounts[account]) for account in ids if account in accounts]
        return [_scene_event(event) for event in await stores.minds.witnessed_last(past, _RECENT)]

    async def _tell_state(
        self, world: World, scene: Scene | None, events: list[SceneEvent] | None
    ) -> None:
        members = await self._members(scene)
        here = scene is not None and self.player in scene.players
        place = "" if scene is None else scene.place
        state = (world.timeline, place, here, members)
        if state == self._last_state and events is None:
            return
        self._last_state = state
        self.emit(
            SceneState(
                world=self.world,
                scene=self.scene,
                place=place,
                time=world.clock.at(self._services.runtime.clock.now()),
                here=here,
                members=members if here else [],
                timeline=str(world.timeline),
                events=events,
            )
        )

    async def _members(self, scene: Scene | None) -> list[SceneMember]:
        if scene is None:
            return []
        companions = await self._services.stores.companions.named(list(scene.minds))
        return [
            *(SceneMember("player", player, player) for player in scene.players),
            *(
                SceneMember("mind", slug, companions[slug].name)
                for slug in scene.minds
                if slug in companions
            ),
        ]


def _names(to: str | Sequence[str] | None) -> tuple[str, ...]:
    return (to,) if isinstance(to, str) else tuple(to or ())


def _scene_event(one: PerceivedEvent) -> SceneEvent:
    event = one.event
    return SceneEvent(
        id=event.id,
        event_type=one.type,
        kind=one.memory_type,
        text=event.text,
        how=event.how,
        actor=event.actor,
        to=list(event.addressed),
        volume=event.volume,
        scene=one.scene,
        place=event.place,
        at=one.happened_at,
        fields=dict(one.fields),
    )
