"""`POST /v1/turns`: one turn without a socket, answered whole or as server-sent events."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

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
from foremind.auth.principal import Principal
from foremind.domain.errors import ForemindError, InvalidMessage
from foremind.domain.turn_request import TurnBegun, TurnDone, TurnEvent, TurnPiece, TurnRequest

_EVENT_STREAM = "text/event-stream"
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

    async def stream(self) -> AsyncIterator[StreamEvent]:
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
            begun = await while_connected(request.receive, _begin(stack, turn, body, principal))
            if _EVENT_STREAM in request.headers.get("accept", ""):
                return _StreamedTurn(begun, stack.pop_all())
            done = await while_connected(request.receive, _end_of(begun.events))
            if done.error is not None and not done.text:
                raise done.error
            return json_response(begun.answer(done))


class _StreamedTurn(Response):
    """Streams a turn as server-sent events; if the client leaves, the reply stops."""

    media_type = _EVENT_STREAM

    def __init__(self, turn: _BegunTurn, owned: AsyncExitStack) -> None:
        super().__init__(headers={"cache-control": "no-store"})
        del self.headers["content-length"]
        self._turn = turn
        self._owned = owned

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._owned:
            await while_connected(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for event in self._turn.stream():
            await send({"type": "http.response.body", "body": _encoded(event), "more_body": True})
        await send({"type": "http.response.body", "body": b""})


async def _begin(
    stack: AsyncExitStack,
    turn: AbstractAsyncContextManager[AsyncIterator[TurnEvent]],
    body: TurnBody,
    principal: Principal,
) -> _BegunTurn:
    """Wait until the message is stored and its reply begins.

    Raises:
        ForemindError: it was refused.
    """
    events = await stack.enter_async_context(turn)
    begun = await anext(events)
    assert isinstance(begun, TurnBegun)
    return _BegunTurn(body, begun, events, principal.allows("memory:read"))


async def _end_of(events: AsyncIterator[TurnEvent]) -> TurnDone:
    async for event in events:
        if isinstance(event, TurnDone):
            return event
    raise ForemindError("The reply did not end.")


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
