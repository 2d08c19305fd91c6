"""Worlds for their game servers: clock, scenes, events, saves, and what minds are given."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import RelationshipServices, parse_number, read_json
from foremind.api.memory_routes import text_of
from foremind.api.operations import TEXT, Operation
from foremind.api.responses import DoneResponse, json_response
from foremind.auth.authority import require_host
from foremind.auth.principal import Principal
from foremind.domain.actions import REQUESTED, RESULT, Action, ActionId
from foremind.domain.errors import InvalidMessage, NotFound, TooLarge
from foremind.domain.memory import Recalled
from foremind.domain.world import (
    Calendar,
    EventChoice,
    How,
    NewEvent,
    Ranges,
    Scene,
    Trigger,
    TurnOrder,
    Volume,
    WorldClock,
)
from foremind.gateway.scenes import Scenes
from foremind.llm.acting import problem_of_schema, tools_of
from foremind.storage.mind_store import PerceivedEvent
from foremind.storage.world_events import World
from foremind.worlds.forgetting import WorldEraser
from foremind.worlds.minds import Minds, Thought
from foremind.worlds.narration import flat

_MAX_EVENTS = 1000  # of a request
_MAX_WORLDS = 1000  # of a page
_MAX_BYTES = 8_000_000  # of a request with events
_MAX_MEMBERS = 10_000  # of a scene
_MAX_FIELDS_BYTES = 16_384  # of one event's own fields
_MAX_FACTOR = 1e6
_MAX_ACTIONS = 100  # and triggers of a world
_MAX_SCHEMA_BYTES = 8192  # of the arguments of an action
_MAX_WITNESSED = 100  # events that are told with a context

Name = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f]+$")]
EventId = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]+$")]
Names = Annotated[list[Name], Meta(max_length=_MAX_MEMBERS)]
#: A moment of a world: a time, or seconds since 1970 in the world's own counting.
Moment = datetime | float
Point = Annotated[list[float], Meta(min_length=2, max_length=3)]


class ClockBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The time of a world from now on, and how many times as fast as real time it passes.

    `calendar` has the names of its months, days and feasts.
    """

    time: Moment | None = None
    factor: Annotated[float, Meta(ge=0, le=_MAX_FACTOR)] | None = None
    calendar: Calendar | None = None


class WorldBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of a world is set; what is not given stays. A world begins with the real time."""

    clock: ClockBody | None = None
    ranges: Ranges | None = None


class SceneBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who is in a scene: players by id, minds by the slug of their companion.

    `positions` are [x, y] by name, by which `ranges` limit how far speech reaches; `turn_order`
    says who answers.
    """

    place: Annotated[str, Meta(max_length=200)] = ""
    players: Names = []
    minds: Names = []
    positions: dict[Name, Point] = {}
    turn_order: TurnOrder = TurnOrder()


class WorldEventBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that happens: said, done or seen.

    `type` is the host's own; "said", "told" and "conversation" are something said by `actor`,
    "observation" and "state" are observed, "relationship" is how two stand to each other, and
    everything else is an event. `text` may be as long as a message. Without `audience`, whoever is
    in the scene witnesses it; of a whisper those whom it is said to. Without a scene, everybody in
    the world does. `retells` is the event that the actor passes on, `at` in the world's time. With
    `respond`, minds that witness it in its scene answer it, as the scene's turn order says.
    """

    id: EventId
    type: Name
    text: str
    scene: Name | None = None
    actor: Name | None = None
    to: Name | Names | None = None
    volume: Volume = "say"
    audience: Names | None = None
    at: Moment | None = None
    retells: EventId | None = None
    fields: dict[str, Any] = {}
    respond: bool = False


class WorldEventsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happened, in its order."""

    events: Annotated[list[WorldEventBody], Meta(min_length=1, max_length=_MAX_EVENTS)]


class ActionsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What minds can do in a world, and nothing else."""

    actions: Annotated[list[Action], Meta(max_length=_MAX_ACTIONS)]


class TriggersBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What lets minds of a world speak first, and nothing else."""

    triggers: Annotated[list[Trigger], Meta(max_length=_MAX_ACTIONS)]


class ResultBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What came of the action `id`, in words or as JSON."""

    id: ActionId
    result: Any


class PendingAction(msgspec.Struct, frozen=True):
    """An action that a mind asked for in a scene, at the world's time `at`, without a result."""

    id: str
    mind: str
    scene: str
    name: str
    arguments: dict[str, Any]
    at: datetime


class ActionsView(msgspec.Struct, frozen=True):
    """What minds can do in a world, and what they asked for that has no result yet."""

    actions: list[Action]
    requested: list[PendingAction]


class SaveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named moment of a world."""

    name: Name


class BranchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The moment at which another world begins, and its name."""

    save: Name
    world: Name


class SceneView(msgspec.Struct, frozen=True):
    """A scene of a world."""

    name: str
    place: str
    players: list[str]
    minds: list[str]
    positions: dict[str, list[float]]


class SaveView(msgspec.Struct, frozen=True):
    """A named moment of a world: when it was saved, and the world's time."""

    name: str
    saved_at: datetime
    time: datetime


class WorldView(msgspec.Struct, frozen=True):
    """A world: its time, how fast it passes, what its days are called, and who is where."""

    world: str
    time: datetime
    factor: float
    calendar: Calendar
    scenes: list[SceneView]
    saves: list[SaveView]


class ListedWorldView(msgspec.Struct, frozen=True):
    """A world, its time and how fast it passes."""

    world: str
    time: datetime
    factor: float


class WorldPage(msgspec.Struct, frozen=True):
    """A page of worlds in the order of their names.

    `next_after_world` is the value of `after_world` for the next page, null on the last page.
    """

    worlds: list[ListedWorldView]
    next_after_world: str | None


class StoredWorldEventView(msgspec.Struct, frozen=True):
    """A stored event; `duplicate`: its id had been stored before, and nothing was changed."""

    id: str
    duplicate: bool


class StoredWorldEvents(msgspec.Struct, frozen=True):
    """The events of a request, in its order."""

    events: list[StoredWorldEventView]


class WorldErasureView(msgspec.Struct, frozen=True):
    """What was forgotten: the events, with those that passed them on, and by which minds."""

    events: list[str]
    minds: list[str]


class RecalledView(msgspec.Struct, frozen=True):
    """A memory that a draft recalls."""

    id: str
    content: str
    score: float
    significance: float
    created_at: datetime


class WitnessedView(msgspec.Struct, frozen=True):
    """An event that a mind witnessed, and `how`; `own`: it said or did it itself."""

    id: str
    type: str
    text: str
    how: How
    actor: str
    to: list[str]
    volume: Volume
    place: str
    at: datetime


class MindContext(msgspec.Struct, frozen=True):
    """What a mind's model would be given for a draft, word for word.

    `recalled` are all memories that the draft recalls, best first; `memories` those of them that
    are in the section of that name: others stand in the history. `tools` are those of its
    interface; with the setting `llm_tools` the actions that are allowed. `witnessed` are the last
    events that it witnessed, as many as `events` asks for.
    """

    messages: list[dict[str, str]]
    memories: list[RecalledView]
    recalled: list[RecalledView]
    witnessed: list[WitnessedView]
    time: datetime
    missing: dict[str, str]
    tools: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class WorldServices:
    """The services of the routes of worlds."""

    views: RelationshipServices
    minds: Minds
    eraser: WorldEraser
    scenes: Scenes


class WorldEndpoints:
    """Operations of game servers on their worlds."""

    def __init__(self, services: WorldServices) -> None:
        self._services = services
        self._worlds = services.views.stores.worlds
        self._clock = services.views.runtime.clock

    @Operation(
        "GET",
        "/v1/worlds",
        WorldPage,
        query={
            "after_world": TEXT | {"description": "The name of the last world of the page before."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": _MAX_WORLDS,
                "default": 100,
                "description": "The most worlds of a page.",
            },
        },
        scope="world",
        caller="anyone",
    )
    async def list_worlds(self, request: Request, principal: Principal | None) -> Response:
        """List the worlds of a game server."""
        params = request.query_params
        limit = parse_number(params.get("limit", "100"), "limit", 1, _MAX_WORLDS)
        among = None if principal is None or principal.admin else principal.worlds
        found = await self._worlds.page(params.get("after_world", ""), limit, among)
        now = self._clock.now()
        return json_response(
            WorldPage(
                [ListedWorldView(name, clock.at(now), clock.factor) for name, clock in found],
                found[-1][0] if len(found) == limit else None,
            )
        )

    @Operation(
        "PUT", "/v1/worlds/{world}", WorldView, body=WorldBody, scope="world", caller="anyone"
    )
    async def put_world(self, request: Request, principal: Principal | None) -> Response:
        """Create a world, or change it.

        What is not given stays as it is. A world's time passes as fast as real time, unless
        `factor` says otherwise; 0 stops it.
        """
        name = _hosted(request, principal)
        body = await read_json(request, WorldBody)
        now = self._clock.now()
        clock: WorldClock | None = None
        if body.clock is not None:
            known = await self._clock_of(name, now)
            clock = WorldClock(
                known.at(now) if body.clock.time is None else moment(body.clock.time, "clock.time"),
                now,
                known.factor if body.clock.factor is None else body.clock.factor,
            )
        rules: dict[str, object] = {} if body.ranges is None else {"ranges": body.ranges}
        if body.clock is not None and body.clock.calendar is not None:
            rules["calendar"] = _checked(body.clock.calendar)
        world, _ = await self._worlds.put(name, now, clock, **rules)
        return json_response(await self._view(world))

    @Operation("GET", "/v1/worlds/{world}", WorldView, scope="world", caller="anyone")
    async def get_world(self, request: Request, principal: Principal | None) -> Response:
        """Read a world: its time, who is where, and its saved moments."""
        name = _hosted(request, principal)
        return json_response(await self._view(await self._worlds.find(name)))

    @Operation("DELETE", "/v1/worlds/{world}", DoneResponse, scope="world", caller="anyone")
    async def delete(self, request: Request, principal: Principal | None) -> Response:
        """Delete a world, with its saves and all that happened in it.

        Players in it are disconnected, and what its characters remembered of it is erased. Worlds
        that began at a save of it keep what happened before that.
        """
        await self._services.eraser.delete_world(_hosted(request, principal))
        return json_response({"status": "ok"})

    @Operation(
        "PUT",
        "/v1/worlds/{world}/scenes/{scene}",
        SceneView,
        body=SceneBody,
        scope="world",
        caller="anyone",
    )
    async def put_scene(self, request: Request, principal: Principal | None) -> Response:
        """Set who is in a scene.

        Whoever is not named has left. What happens from now on is witnessed by those who are there;
        what happened before stays witnessed by those who were.
        """
        name = _hosted(request, principal)
        scene_name = _name(request.path_params["scene"], "scene")
        body = await read_json(request, SceneBody)
        minds = {"minds": body.minds, "turn_order.minds": body.turn_order.minds}
        known = await self._companions(minds, body.players)
        for index, player in enumerate(body.players):
            if player in known:  # what they say would be taken for what the companion says
                path = f"players[{index}]"
                raise InvalidMessage(f"{path}: expected an id that is no companion's", param=path)
        scene = Scene(
            scene_name,
            flat(body.place),
            list(dict.fromkeys(body.players)),
            list(dict.fromkeys(body.minds)),
            body.positions,
            body.turn_order,
        )
        await self._worlds.put_scene(name, scene)
        return json_response(_scene_view(scene))

    @Operation(
        "POST",
        "/v1/worlds/{world}/events",
        StoredWorldEvents,
        body=WorldEventsBody,
        scope="world",
        caller="anyone",
    )
    async def report(self, request: Request, principal: Principal | None) -> Response:
        """Report what happens in a world.

        Answers when all of it is stored, with those who witness it at this moment; the same `id`
        again changes nothing. If one event is invalid, none is stored. Reactions are made
        afterwards; they are told to the players who hear them.
        """
        name = _hosted(request, principal)
        body = await read_json(request, WorldEventsBody, _MAX_BYTES)
        events = [self._event(event, f"events[{index}]") for index, event in enumerate(body.events)]
        asking = [event for event, asked in zip(events, body.events, strict=True) if asked.respond]
        self._services.scenes.check_room(len(asking))
        world, _, _, new = await self._worlds.report(name, events, self._clock.now())
        self._services.scenes.react(name, asking)
        if world.rules.triggers:
            fresh = zip(events, body.events, new, strict=True)
            self._services.scenes.triggers.on_events(
                name,
                [
                    event
                    for event, asked, is_new in fresh
                    if is_new and event.scene and not asked.respond
                ],
            )
        return json_response(
            StoredWorldEvents(
                [
                    StoredWorldEventView(event.id, not is_new)
                    for event, is_new in zip(events, new, strict=True)
                ]
            )
        )

    @Operation(
        "PUT",
        "/v1/worlds/{world}/actions",
        ActionsView,
        body=ActionsBody,
        scope="world",
        caller="anyone",
    )
    async def put_actions(self, request: Request, principal: Principal | None) -> Response:
        """Declare what minds can do in a world.

        An action is a `name` with the JSON `schema` of its arguments. Minds are told of those that
        are allowed to them `when` they are asked, and ask for them in replies. With `wait`, a mind
        goes on talking once it is told the result.
        """
        name = _hosted(request, principal)
        body = await read_json(request, ActionsBody, _MAX_BYTES)
        await self._worlds.find(name)
        _check_names("actions", body.actions)
        await self._companions(_minds_of("actions", body.actions))
        for index, action in enumerate(body.actions):
            path = f"actions[{index}].schema"
            if len(msgspec.json.encode(action.schema)) > _MAX_SCHEMA_BYTES:
                raise TooLarge(f"{path}: expected at most {_MAX_SCHEMA_BYTES} bytes", param=path)
            if problem := await asyncio.to_thread(problem_of_schema, action.schema):
                raise InvalidMessage(
                    f"{path}: expected a JSON Schema of an object ({problem})", param=path
                )
        world, _ = await self._worlds.put(name, self._clock.now(), actions=tuple(body.actions))
        return json_response(await self._actions(world))

    @Operation("GET", "/v1/worlds/{world}/actions", ActionsView, scope="world", caller="anyone")
    async def get_actions(self, request: Request, principal: Principal | None) -> Response:
        """Read what minds can do, and what they asked for that has no result yet."""
        name = _hosted(request, principal)
        return json_response(await self._actions(await self._worlds.find(name)))

    async def _actions(self, world: World) -> ActionsView:
        pending = [
            PendingAction(
                event.id,
                event.actor,
                event.scene,
                str(event.fields.get("name", "")),
                msgspec.convert(event.fields.get("arguments", {}), dict[str, Any]),
                event.at,
            )
            for event in await self._worlds.pending_actions(world)
        ]
        return ActionsView(list(world.rules.actions), pending)

    @Operation(
        "PUT",
        "/v1/worlds/{world}/triggers",
        TriggersBody,
        body=TriggersBody,
        scope="world",
        caller="anyone",
    )
    async def put_triggers(self, request: Request, principal: Principal | None) -> Response:
        """Declare what lets minds of a world speak first.

        A trigger fires `on` events of a type, on `idle` time in a scene with players, or on the
        `return` of a player, `when` that is allowed, not too often. Those who answer are as for an
        event with `respond`. A player switches it off with the setting `speaks_first`.
        """
        name = _hosted(request, principal)
        body = await read_json(request, TriggersBody)
        await self._worlds.find(name)
        _check_names("triggers", body.triggers)
        await self._companions(_minds_of("triggers", body.triggers))
        await self._worlds.put(name, self._clock.now(), triggers=tuple(body.triggers))
        return json_response(body)

    @Operation("GET", "/v1/worlds/{world}/triggers", TriggersBody, scope="world", caller="anyone")
    async def get_triggers(self, request: Request, principal: Principal | None) -> Response:
        """Read what lets minds of a world speak first."""
        world = await self._worlds.find(_hosted(request, principal))
        return json_response(TriggersBody(list(world.rules.triggers)))

    @Operation(
        "POST",
        "/v1/worlds/{world}/results",
        StoredWorldEventView,
        body=ResultBody,
        scope="world",
        caller="anyone",
    )
    async def answer_action(self, request: Request, principal: Principal | None) -> Response:
        """Tell a mind what came of an action.

        The first result counts; the mind alone witnesses it. If the action waits for that, the
        mind goes on talking.
        """
        name = _hosted(request, principal)
        body = await read_json(request, ResultBody)
        is_new = await self._services.scenes.answer_action(name, body.id, body.result)
        return json_response(StoredWorldEventView(body.id, not is_new))

    @Operation(
        "DELETE",
        "/v1/worlds/{world}/events/{event:path}",
        WorldErasureView,
        scope="world",
        caller="anyone",
    )
    async def forget(self, request: Request, principal: Principal | None) -> Response:
        """Let everybody forget an event.

        It is erased from every mind that witnessed it, in this world, its saved moments and its
        branches, with what was derived from it, and with the events that passed it on or were made
        of it.
        """
        name = _hosted(request, principal)
        world = await self._worlds.find(name)
        return await self._forget(world, EventChoice([request.path_params["event"]]))

    @Operation(
        "DELETE",
        "/v1/worlds/{world}/events",
        WorldErasureView,
        query={
            "from": TEXT | {"description": "In the world's time. Default: the beginning."},
            "to": TEXT | {"description": "In the world's time, not included. Default: the end."},
            "player": TEXT
            | {"description": "Only what this player said or did, or was told. Default: all."},
        },
        scope="world",
        caller="anyone",
    )
    async def forget_some(self, request: Request, principal: Principal | None) -> Response:
        """Let everybody forget a span of time, or a player.

        One of the parameters is needed. What happens meanwhile is not meant. Otherwise as for one
        event; events that are forgotten already are left out of the receipt.
        """
        name = _hosted(request, principal)
        world = await self._worlds.find(name)
        params = request.query_params
        choice = EventChoice(
            since=_moment_given(params.get("from"), "from"),
            until=_moment_given(params.get("to"), "to"),
            player=params.get("player"),
        )
        if choice == EventChoice():
            raise InvalidMessage("from: expected it, or to, or player", param="from")
        return await self._forget(world, choice)

    async def _forget(self, world: World, choice: EventChoice) -> Response:
        receipt = await self._services.eraser.forget(world, choice)
        return json_response(WorldErasureView(list(receipt.events), list(receipt.minds)))

    @Operation(
        "GET",
        "/v1/worlds/{world}/minds/{slug}/context",
        MindContext,
        query={
            "draft": TEXT | {"description": "What would be said to it. Default: nothing."},
            "player": TEXT
            | {
                "description": "The id of who would say it; of a mind for each player, whose it is."
            },
            "events": {
                "type": "integer",
                "minimum": 0,
                "maximum": _MAX_WITNESSED,
                "description": "How many of the last events that it witnessed are told. "
                "Default: 0.",
            },
        },
        scope="world",
        caller="anyone",
    )
    async def context(self, request: Request, principal: Principal | None) -> Response:
        """Read word for word what a mind's model would be given.

        The mind perceives what it witnessed by now first.
        """
        name = _hosted(request, principal)
        events = parse_number(request.query_params.get("events", "0"), "events", 0, _MAX_WITNESSED)
        world = await self._worlds.find(name)
        player = request.query_params.get("player")
        mind = await self._services.minds.mind(
            world, _name(request.path_params["slug"], "slug"), player, met=False
        )
        draft = request.query_params.get("draft", "")
        thought = await self._services.minds.think(mind, draft, player or "")
        witnessed = await self._services.minds.witnessed(mind, player, events) if events else []
        return json_response(_context_view(thought, witnessed))

    @Operation(
        "POST", "/v1/worlds/{world}/saves", SaveBody, body=SaveBody, scope="world", caller="anyone"
    )
    async def save(self, request: Request, principal: Principal | None) -> Response:
        """Name this moment of a world, so that it can be rolled back to it.

        A name that is used already is moved to this moment.
        """
        name = _hosted(request, principal)
        body = await read_json(request, SaveBody)
        await self._worlds.save(name, body.name, self._clock.now())
        return json_response(body)

    @Operation(
        "DELETE", "/v1/worlds/{world}/saves/{save}", DoneResponse, scope="world", caller="anyone"
    )
    async def delete_save(self, request: Request, principal: Principal | None) -> Response:
        """Delete a saved moment of a world, which itself goes on."""
        name = _hosted(request, principal)
        await self._worlds.delete_save(name, request.path_params["save"])
        return json_response({"status": "ok"})

    @Operation(
        "POST",
        "/v1/worlds/{world}/rollback",
        WorldView,
        body=SaveBody,
        scope="world",
        caller="anyone",
    )
    async def roll_back(self, request: Request, principal: Principal | None) -> Response:
        """Let a world go on from a saved moment.

        Nothing that happened since is known to any mind; scenes and the world's time are as they
        were.
        """
        name = _hosted(request, principal)
        body = await read_json(request, SaveBody)
        await self._worlds.roll_back(name, body.name, self._clock.now())
        return json_response(await self._view(await self._worlds.find(name)))

    @Operation(
        "POST",
        "/v1/worlds/{world}/branches",
        WorldView,
        body=BranchBody,
        scope="world",
        caller="anyone",
    )
    async def branch(self, request: Request, principal: Principal | None) -> Response:
        """Begin another world at a saved moment of this one.

        Both share what happened before it, and nothing after.
        """
        name = _hosted(request, principal)
        body = await read_json(request, BranchBody)
        _check_host(principal, body.world)
        await self._worlds.branch(name, body.save, body.world, self._clock.now())
        return json_response(await self._view(await self._worlds.find(body.world)))

    async def _companions(
        self, minds: Mapping[str, Sequence[str]], others: Sequence[str] = ()
    ) -> Collection[str]:
        """Return which slugs are those of companions.

        Args:
            minds: slugs by the field that has them.

        Raises:
            InvalidMessage: one of them is no companion's.
        """
        slugs = [slug for named in minds.values() for slug in named]
        known = await self._services.views.stores.companions.named([*slugs, *others])
        for field, named in minds.items():
            for index, slug in enumerate(named):
                if slug not in known:
                    path = f"{field}[{index}]"
                    raise InvalidMessage(f"{path}: expected the slug of a companion", param=path)
        return known

    async def _clock_of(self, name: str, now: datetime) -> WorldClock:
        try:
            return (await self._worlds.find(name)).clock
        except NotFound:
            return WorldClock(now, now)

    def _event(self, event: WorldEventBody, path: str) -> NewEvent:
        """Return an event that can be stored.

        Raises:
            InvalidMessage, TooLarge: naming the field and what was expected.
        """
        if len(msgspec.json.encode(event.fields)) > _MAX_FIELDS_BYTES:
            raise TooLarge(
                f"{path}.fields: expected at most {_MAX_FIELDS_BYTES} bytes", param=f"{path}.fields"
            )
        if event.respond and event.scene is None:
            raise InvalidMessage(
                f"{path}.respond: expected an event with a scene, where minds answer it",
                param=f"{path}.respond",
            )
        if event.type in (REQUESTED, RESULT):
            raise InvalidMessage(
                f"{path}.type: expected another one; this is for what minds ask for",
                param=f"{path}.type",
            )
        to = [event.to] if isinstance(event.to, str) else event.to or []
        return NewEvent(
            event.id,
            event.type,
            text_of(self._services.views, event.text, f"{path}.text"),
            event.scene or "",
            event.actor or "",
            tuple(to),
            event.volume,
            None if event.audience is None else tuple(event.audience),
            None if event.at is None else moment(event.at, f"{path}.at"),
            event.retells,
            (),
            event.fields,
        )

    async def _view(self, world: World) -> WorldView:
        scenes = await self._worlds.scenes(world)
        return WorldView(
            world.name,
            world.clock.at(self._clock.now()),
            world.clock.factor,
            world.rules.calendar,
            [_scene_view(scene) for scene in scenes.values()],
            [SaveView(*save) for save in await self._worlds.saves(world.name)],
        )


def _hosted(request: Request, principal: Principal | None) -> str:
    """Return the world of a request, which comes from its game server.

    Raises:
        NotAllowed: it does not.
    """
    name = _name(request.path_params["world"], "world")
    _check_host(principal, name)
    return name


def _check_host(principal: Principal | None, world: str) -> None:
    """Check that a principal is the game server of a world; in open mode everybody is.

    Raises:
        NotAllowed: it is not.
    """
    if principal is not None:
        require_host(principal, world)


def _check_names(field: str, declared: Sequence[Action | Trigger]) -> None:
    """Check that no two actions or triggers have the same name."""
    names = [entry.name for entry in declared]
    for index, name in enumerate(names):
        if name in names[:index]:
            path = f"{field}[{index}].name"
            raise InvalidMessage(f"{path}: expected one that is not used twice", param=path)


def _minds_of(field: str, declared: Sequence[Action | Trigger]) -> dict[str, Sequence[str]]:
    """Return the minds to which actions or triggers are limited, by the field that has them."""
    return {
        f"{field}[{index}].when.minds": entry.when.minds for index, entry in enumerate(declared)
    }


def moment(given: Moment, path: str) -> datetime:
    """Return a moment of a world.

    Raises:
        InvalidMessage: no calendar has it.
    """
    found: datetime | None = None
    if isinstance(given, datetime):
        found = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
    else:
        with suppress(ValueError, OverflowError, OSError):
            found = datetime.fromtimestamp(given, UTC)
    if found is not None and MINYEAR < found.year < MAXYEAR:
        return found
    raise InvalidMessage(
        f"{path}: expected a time, or seconds since 1970, in the years 2 to 9998", param=path
    )


def _moment_given(text: str | None, param: str) -> datetime | None:
    """Return a moment of a query, if there is one."""
    if text is None:
        return None
    try:
        return moment(msgspec.convert(text, Moment, strict=False), param)
    except msgspec.ValidationError:
        raise InvalidMessage(
            f"{param}: expected a time, or seconds since 1970", param=param
        ) from None


def _name(text: str, param: str) -> str:
    try:
        return msgspec.convert(text, Name)
    except msgspec.ValidationError:
        raise InvalidMessage(
            f"{param}: expected text of 1 to 128 characters in one line", param=param
        ) from None


def _checked(calendar: Calendar) -> Calendar:
    """Return a calendar all of whose feasts begin on a day that there is."""
    for name, feast in calendar.feasts.items():
        if feast.day > feast.last_day:
            path = f"clock.calendar.feasts.{name}.day"
            raise InvalidMessage(f"{path}: expected at most {feast.last_day}", param=path)
    return calendar


def _scene_view(scene: Scene) -> SceneView:
    positions = {name: list(point) for name, point in scene.positions.items()}
    return SceneView(scene.name, scene.place, list(scene.players), list(scene.minds), positions)


def _context_view(thought: Thought, witnessed: Sequence[PerceivedEvent]) -> MindContext:
    prompt, recalled = thought.assembled.prompt, thought.recalled.context
    missing = {} if recalled is None else recalled.missing
    return MindContext(
        [{"role": said["role"], "content": said["content"]} for said in prompt.messages()],
        _recalled_views(prompt.memories),
        _recalled_views(() if recalled is None else recalled.memories),
        [
            WitnessedView(
                perceived.event.id,
                perceived.type,
                perceived.event.text,
                perceived.event.how,
                perceived.event.actor,
                list(perceived.event.addressed),
                perceived.event.volume,
                perceived.event.place,
                perceived.happened_at,
            )
            for perceived in witnessed
        ],
        thought.mind.now,
        {str(layer): why for layer, why in missing.items()},
        tools_of(prompt.offer),
    )


def _recalled_views(memories: Sequence[Recalled]) -> list[RecalledView]:
    return [
        RecalledView(
            str(memory.id), memory.content, memory.score, memory.significance, memory.created_at
        )
        for memory in memories
    ]
