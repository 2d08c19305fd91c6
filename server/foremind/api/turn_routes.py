"""`POST /v1/turns`: one turn without a socket, answered whole or as server-sent events."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.client_presence import while_connected
from foremind.api.dependencies import read_json
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import error_body, json_response
from foremind.api.turn_shapes import (
    Reply,
    ReplyCreated,
    ReplyDone,
    ReplyPiece,
    StreamEvent,
    TurnAccepted,
    TurnAnswer,
    TurnBody,
    TurnContext,
    TurnFailed,
)
from foremind.api.turn_streams import EVENT_STREAM, StreamedTurn, begin_turn, end_of
from foremind.auth.principal import Principal
from foremind.domain.errors import ForemindError, InvalidMessage
from foremind.domain.turn_request import TurnBegun, TurnDone, TurnEvent, TurnPiece, TurnRequest

_RESERVED = ("world", "scene", "to")


class TurnMaker(Protocol):
    """What makes a turn without a socket."""

    def turn(
        self, principal: Principal, request: TurnRequest
    ) -> AbstractAsyncContextManager[AsyncIterator[TurnEvent]]:
        """Yield what comes of a message; leaving the block stops the reply."""


@dataclass(frozen=True, slots=True)
class TurnServices:
    """The services of this route."""

    authenticator: RequestAuthenticator
    turns: TurnMaker


@dataclass(frozen=True, slots=True)
class _BegunTurn:
    """A message that is stored, and whose reply begins; `events` are what is still to come."""

    body: TurnBody
    begun: TurnBegun
    events: AsyncIterator[TurnEvent]
    with_memories: bool

    def answer(self, done: TurnDone) -> TurnAnswer:
        """Return the whole answer."""
        begun = self.begun
        return TurnAnswer(
            turn_id=str(begun.turn_id),
            duplicate=begun.duplicate,
            remembered=begun.remembered,
            replies=[Reply(self.body.companion, done.text, done.status)],
            context=begun.context,
            memories=list(begun.memories) if self.with_memories else [],
        )

    async def encoded_events(self) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events, each named as on the socket."""
        async with aclosing(self._stream()) as stream:
            async for event in stream:
                yield _encoded(event)

    async def _stream(self) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of a stream; an error ends it."""
        body, begun = self.body, self.begun
        response_id = begun.response_id
        if not begun.duplicate:
            yield TurnContext(body.text, list(begun.memories) if self.with_memories else [])
        yield TurnAccepted(
            body.id, str(begun.turn_id), begun.duplicate, begun.context, begun.remembered
        )
        yield ReplyCreated(response_id, body.id, body.companion)
        try:
            async for event in self.events:
                match event:
                    case TurnPiece():
                        yield ReplyPiece(response_id, event.text)
                    case TurnDone():
                        error = None if event.error is None else error_body(event.error).error
                        yield ReplyDone(response_id, event.status, event.text, error)
        except ForemindError as error:  # the status is sent already
            yield TurnFailed(error_body(error).error)


class _TurnEndpoints:
    def __init__(self, services: TurnServices) -> None:
        self._services = services

    async def make_turn(self, request: Request) -> Response:
        caller = await self._services.authenticator.authenticate_caller(request)
        body = await read_json(request, TurnBody)
        _check_reserved(body)
        user = body.user or request.query_params.get("user")
        principal = self._services.authenticator.strict_player(caller, user, body.name)
        request.state.connection.mark_identified()
        asked = TurnRequest(body.companion, body.id, body.text, body.settings, body.remember)
        async with AsyncExitStack() as stack:
            turn = self._services.turns.turn(principal, asked)
            begun, events = await while_connected(request.receive, begin_turn(stack, turn))
            reply = _BegunTurn(body, begun, events, principal.allows("memory:read"))
            if EVENT_STREAM in request.headers.get("accept", ""):
                return StreamedTurn(reply.encoded_events(), stack.pop_all())
            done = await while_connected(request.receive, end_of(events))
            if done.error is not None and not done.text:
                raise done.error
            return json_response(reply.answer(done))


def _encoded(event: StreamEvent) -> bytes:
    name = type(event).__struct_config__.tag
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


def _check_reserved(body: TurnBody) -> None:
    for name in _RESERVED:
        if getattr(body, name) is not None:
            raise InvalidMessage(
                f"{name}: reserved for a later version, expected none",
                param=name,
                code="not_supported",
            )


def turn_routes(services: TurnServices) -> list[BaseRoute]:
    """Return the route of turns without a socket."""
    return [Route("/v1/turns", _TurnEndpoints(services).make_turn, methods=["POST"])]
