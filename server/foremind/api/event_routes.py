"""What a game reports of what happened around a relationship, which nobody said."""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import RelationshipServices, read_json, resolve_relationship
from foremind.api.mcp_tools import ChargeMessage
from foremind.api.memory_routes import text_of
from foremind.api.operations import Operation
from foremind.api.responses import json_response
from foremind.api.turn_shapes import MessageId
from foremind.auth.principal import Principal
from foremind.domain.errors import InvalidMessage
from foremind.domain.turn import EventType, ReportedEvent
from foremind.memory.remember import Rememberer

_MAX_BYTES = 500_000  # of a request
_MAX_EVENTS = 100  # of a request
_MAX_AHEAD = timedelta(minutes=5)  # that the clock of a game may be


class EventBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that happened, which nobody said: an `event`, or an `observation` of the companion.

    `id` is the game's: the same one again changes nothing. `at` is when it happened, by default
    now.
    """

    id: MessageId
    type: EventType
    text: str
    at: datetime | None = None


class EventsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What happened, in its order."""

    events: Annotated[list[EventBody], Meta(min_length=1, max_length=_MAX_EVENTS)]


class EventView(msgspec.Struct, frozen=True):
    """A stored event; `duplicate`: its id had been stored before, and nothing was changed."""

    id: str
    turn_id: str
    duplicate: bool


class StoredEvents(msgspec.Struct, frozen=True):
    """The events of a request, in its order."""

    events: list[EventView]


class EventEndpoints:
    """The operation that stores what happened."""

    def __init__(
        self, services: RelationshipServices, rememberer: Rememberer, charge: ChargeMessage
    ) -> None:
        self._services = services
        self._rememberer = rememberer
        self._charge = charge

    @Operation(
        "POST", "/v1/relationships/{id}/events", StoredEvents, body=EventsBody, scope="memory:write"
    )
    async def report(self, request: Request, principal: Principal) -> Response:
        """Report what happened.

        Stores what happened around the relationship, which nobody said: each becomes a memory of
        its `type` that prompts narrate, and is not part of the transcript. Answers when all of them
        are stored; the same `id` again changes nothing. If one is invalid, none is stored.
        `turn_id` is what erases it, as `turn` of `DELETE .../memories`. 409 where the companion
        asks for a consent that the user has not given.
        """
        services = self._services
        resolved = await resolve_relationship(services, request, principal)
        body = await read_json(request, EventsBody, _MAX_BYTES)
        now = services.runtime.clock.now()
        events = [
            _checked(services, event, f"events[{index}]", now)
            for index, event in enumerate(body.events)
        ]
        relationship = resolved.relationship
        user = await services.stores.users.find(relationship.user_id)
        self._charge(relationship.user_id, sum(len(event.text) for event in events))
        stored = await self._rememberer.report(
            relationship.id, user.id, events, needs_consent=resolved.policy.consent != "assumed"
        )
        services.background_worker.wake(relationship.id)
        return json_response(
            StoredEvents(
                [EventView(event.id, str(event.turn_id), event.duplicate) for event in stored]
            )
        )


def event_routes(
    services: RelationshipServices, rememberer: Rememberer, charge: ChargeMessage
) -> list[BaseRoute]:
    """Return the route of `/v1/relationships/{id}/events`."""
    endpoints = EventEndpoints(services, rememberer, charge)
    return [Route("/v1/relationships/{id}/events", endpoints.report, methods=["POST"])]


def _checked(
    services: RelationshipServices, event: EventBody, path: str, now: datetime
) -> ReportedEvent:
    """Return an event whose text and time can be stored.

    Raises:
        InvalidMessage: naming the field and what was expected.
    """
    if event.at is not None and event.at > now + _MAX_AHEAD:
        raise InvalidMessage(f"{path}.at: expected a time that has passed", param=f"{path}.at")
    text = text_of(services, event.text, f"{path}.text")
    return ReportedEvent(
        event.id, event.type, text, now if event.at is None else min(event.at, now)
    )
