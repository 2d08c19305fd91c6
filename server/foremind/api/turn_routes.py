"""Turns without a socket: one is made, edited, answered again; whole or as server-sent events."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from typing import TypeVar

import msgspec
from msgspec import UNSET
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.dependencies import read_json
from foremind.api.operations import Operation
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import error_body, json_response
from foremind.api.turn_shapes import (
    ChooseBody,
    ChosenAnswer,
    EditBody,
    RegenerateBody,
    Reply,
    ReplyCreated,
    ReplyDone,
    ReplyPiece,
    ReplySentence,
    SentenceOfReply,
    StreamEvent,
    TurnAccepted,
    TurnAnswer,
    TurnBody,
    TurnContext,
    TurnFailed,
)
from foremind.api.turn_streams import (
    EVENT_STREAM,
    StreamedTurn,
    begin_turn,
    while_connected,
)
from foremind.auth.principal import Principal
from foremind.domain.errors import ForemindError, InvalidMessage
from foremind.domain.storable_text import check_storable
from foremind.domain.turn import SpokenSentence
from foremind.domain.turn_request import (
    ChoiceRequest,
    TurnBegun,
    TurnDone,
    TurnEvent,
    TurnPiece,
    TurnReply,
    TurnRequest,
)
from foremind.domain.user import read_hints
from foremind.gateway.protocol.server_events import Event, MessageAccepted, ResponseSentence
from foremind.gateway.scenes import Answer, Scenes, Speech
from foremind.gateway.single_turn import SingleTurns
from foremind.runtime.supervision import begin, stop

_MAX_TOLD = 8192  # events of a turn in a scene that wait to be read; a piece is about one token
_Body = TypeVar("_Body", TurnBody, EditBody, RegenerateBody, ChooseBody)


@dataclass(frozen=True, slots=True)
class TurnServices:
    """The services of this route."""

    authenticator: RequestAuthenticator
    turns: SingleTurns
    scenes: Scenes


@dataclass(frozen=True, slots=True)
class _BegunTurn:
    """A message that is stored, and whose reply begins; `events` are what is still to come."""

    companion: str
    message_id: str
    begun: TurnBegun
    events: AsyncIterator[TurnEvent]
    with_memories: bool
    warnings: tuple[str, ...]
    sentences: bool

    async def answer(self) -> TurnAnswer:
        """Wait for the end of the reply, and return the whole answer.

        Raises:
            ForemindError: there is none.
        """
        begun, sentences = self.begun, list[SentenceOfReply]()
        async for event in self.events:
            match event:
                case SpokenSentence():
                    sentences.append(SentenceOfReply(event.text, event.emotion or UNSET))
                case TurnDone() as done:
                    break
        else:
            raise ForemindError("The reply did not end.")
        if done.error is not None and not done.text:
            raise done.error
        return TurnAnswer(
            turn_id=str(begun.turn_id),
            duplicate=begun.duplicate,
            remembered=begun.remembered,
            replies=[
                Reply(
                    self.companion,
                    done.text,
                    done.status,
                    done.index,
                    done.count,
                    done.cut_off,
                    done.emotion or UNSET,
                    sentences if self.sentences else UNSET,
                )
            ],
            context=begun.context,
            memories=list(begun.memories) if self.with_memories else [],
            warnings=self.warnings,
        )

    async def encoded_events(self) -> AsyncGenerator[bytes, None]:
        """Yield server-sent events, each named as on the socket."""
        async with aclosing(self._stream()) as stream:
            async for event in stream:
                yield _encoded(event)

    async def _stream(self) -> AsyncGenerator[StreamEvent, None]:
        """Yield the events of a stream; an error ends it."""
        begun, response_id = self.begun, self.begun.response_id
        if not begun.duplicate:
            seen = self.with_memories
            yield TurnContext(
                begun.text,
                list(begun.memories) if seen else [],
                lore=list(begun.lore) if seen else [],
            )
        yield TurnAccepted(
            self.message_id,
            str(begun.turn_id),
            begun.duplicate,
            begun.context,
            begun.remembered,
            begun.ahead,
            self.warnings,
        )
        try:
            async for event in self.events:
                match event:
                    case TurnReply(index, count):
                        yield ReplyCreated(
                            response_id, self.message_id, self.companion, index, count
                        )
                    case TurnPiece():
                        yield ReplyPiece(response_id, event.text)
                    case SpokenSentence(number, text, emotion):
                        yield ReplySentence(response_id, number, text, emotion or UNSET)
                    case TurnDone():
                        error = None if event.error is None else error_body(event.error).error
                        yield ReplyDone(
                            response_id,
                            event.status,
                            event.text,
                            error,
                            self.message_id,
                            event.index,
                            event.count,
                            list(event.used) if self.with_memories else [],
                            event.cut_off,
                            event.emotion or UNSET,
                            self.companion,
                        )
        except ForemindError as error:  # the status is sent already
            yield TurnFailed(error_body(error).error)


class TurnEndpoints:
    """Operations that make turns without a socket."""

    def __init__(self, services: TurnServices) -> None:
        self._services = services

    @Operation("POST", "/v1/turns", TurnAnswer, body=TurnBody, scope="chat", caller="player")
    async def make_turn(self, request: Request, caller: Principal | None) -> Response:
        """Make a turn.

        Stores a message and returns the reply, without a WebSocket. The same `id` again returns the
        stored reply, or waits for it, and with another text is refused (409). With `accept:
        text/event-stream`, what happens is sent as server-sent events, each named as on the
        WebSocket. A client that leaves stops the reply. With a token of scope `host` or `admin`, or
        in open mode, `user` names the player; any other token names its own.
        """
        principal, body = await self._read(request, caller, TurnBody)
        if body.world is not None:
            return await self._say(request, principal, body, body.world)
        for name in ("scene", "to"):
            if getattr(body, name) is not None:
                raise InvalidMessage(f"{name}: expected none without a world", param=name)
        if not body.companion:
            raise InvalidMessage("companion: expected the slug of one", param="companion")
        asked = TurnRequest(
            body.companion,
            body.id,
            body.text,
            body.settings,
            body.remember,
            hints=read_hints(body.time_zone, body.language),
            sentences=body.sentences,
        )
        return await self._answer(request, principal, asked)

    @Operation("POST", "/v1/turns/edit", TurnAnswer, body=EditBody, scope="chat", caller="player")
    async def edit_turn(self, request: Request, caller: Principal | None) -> Response:
        """Edit the last message.

        Stores a message in place of the last one of the session, which is erased with its replies
        and all that was derived from them, and returns the reply as `POST /v1/turns` does. 400 with
        the code `not_last_message` or `nothing_said` if `message_id` does not name that message.
        The same `id` again changes nothing.
        """
        principal, body = await self._read(request, caller, EditBody)
        asked = TurnRequest(
            body.companion,
            body.id,
            body.text,
            body.settings,
            body.remember,
            hints=read_hints(body.time_zone, body.language),
            replaces=body.message_id,
            sentences=body.sentences,
        )
        return await self._answer(request, principal, asked)

    @Operation(
        "POST",
        "/v1/turns/regenerate",
        TurnAnswer,
        body=RegenerateBody,
        scope="chat",
        caller="player",
    )
    async def regenerate_reply(self, request: Request, caller: Principal | None) -> Response:
        """Make another reply.

        Makes another reply to the last message of the session, and returns it as `POST /v1/turns`
        does. The one before is forgotten, and can be chosen again. The same `id` again makes no
        further reply. `message_id` is checked as for an edit.
        """
        principal, body = await self._read(request, caller, RegenerateBody)
        asked = TurnRequest(
            body.companion,
            body.id,
            "",
            body.settings,
            hints=read_hints(body.time_zone, body.language),
            regenerates=body.message_id,
            sentences=body.sentences,
        )
        return await self._answer(request, principal, asked)

    @Operation(
        "POST", "/v1/turns/choose", ChosenAnswer, body=ChooseBody, scope="chat", caller="player"
    )
    async def choose_reply(self, request: Request, caller: Principal | None) -> Response:
        """Choose a reply.

        Lets one of the replies to the last message of the session stand, and returns it. The one
        before is forgotten, and can be chosen again. `message_id` is checked as for an edit.
        """
        principal, body = await self._read(request, caller, ChooseBody)
        choice = ChoiceRequest(body.companion, body.message_id, body.index)
        chosen = await self._services.turns.choose(principal, choice)
        reply = Reply(body.companion, chosen.text, chosen.status, chosen.index, chosen.count)
        return json_response(ChosenAnswer(str(chosen.turn_id), reply))

    async def _read(
        self, request: Request, caller: Principal | None, shape: type[_Body]
    ) -> tuple[Principal, _Body]:
        """Return whose turn a request makes, and its body.

        Raises:
            RequestError: it is not allowed, or malformed.
        """
        body = await read_json(request, shape, check=_check_besides_hints)
        user = body.user or request.query_params.get("user")
        principal = self._services.authenticator.strict_player(caller, user, body.name)
        request.state.connection.mark_identified()
        return principal, body

    async def _say(
        self, request: Request, principal: Principal, body: TurnBody, world: str
    ) -> Response:
        """Say something in a scene, and return what is answered."""
        services = self._services
        if body.scene is None:
            raise InvalidMessage("scene: expected the scene of the player", param="scene")
        services.turns.check_text(body.text)
        services.turns.admit(principal, body.companion, len(body.text))
        to = [body.to] if isinstance(body.to, str) else body.to
        speech = Speech(
            world,
            body.scene,
            body.id,
            principal.effective_user_id,
            body.text.strip(),
            tuple(to if to is not None else [body.companion] if body.companion else ()),
            body.volume,
        )
        told: asyncio.Queue[Event | None] = asyncio.Queue(_MAX_TOLD)
        speaking = begin(self._speak(speech, told, sentences=body.sentences), "scene-turn")
        if EVENT_STREAM in request.headers.get("accept", ""):
            stack = AsyncExitStack()
            stack.push_async_callback(stop, speaking)
            first = await while_connected(request.receive, _first(told, speaking))
            return StreamedTurn(_scene_stream(first, told), stack)
        try:
            answers = await while_connected(request.receive, _result(speaking))
        finally:
            await stop(speaking)
        is_told = all(answer.is_private for answer in answers) or principal.hosts(world)
        with_memories = is_told and principal.allows("memory:read")
        return json_response(
            _scene_answer(
                speech, answers, told, with_memories=with_memories, sentences=body.sentences
            )
        )

    async def _speak(
        self, speech: Speech, told: "asyncio.Queue[Event | None]", *, sentences: bool
    ) -> Sequence[Answer]:
        def tell(event: Event) -> None:
            if sentences or not isinstance(event, ResponseSentence):
                told.put_nowait(event)

        try:
            arrived = self._services.turns.clock.monotonic()
            return await self._services.scenes.speak(speech, arrived, tell)
        finally:
            told.put_nowait(None)

    async def _answer(self, request: Request, principal: Principal, asked: TurnRequest) -> Response:
        async with AsyncExitStack() as stack:
            turn = self._services.turns.turn(principal, asked)
            begun, events = await while_connected(request.receive, begin_turn(stack, turn))
            message_id = asked.regenerates or asked.id
            reply = _BegunTurn(
                asked.companion,
                message_id,
                begun,
                events,
                principal.allows("memory:read"),
                asked.hints.warnings,
                asked.sentences,
            )
            if EVENT_STREAM in request.headers.get("accept", ""):
                return StreamedTurn(reply.encoded_events(), stack.pop_all())
            return json_response(await while_connected(request.receive, reply.answer()))


def _check_besides_hints(body: object, path: str) -> None:
    """Check that a body can be stored; its hints are stored as they are understood."""
    no_hints = {name: None for name in ("time_zone", "language") if hasattr(body, name)}
    check_storable(replace(body, **no_hints) if isinstance(body, msgspec.Struct) else body, path)


def _encoded(event: StreamEvent) -> bytes:
    name = type(event).__struct_config__.tag
    return f"event: {name}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"


async def _result(speaking: "asyncio.Task[Sequence[Answer]]") -> Sequence[Answer]:
    return await speaking


async def _first(
    told: "asyncio.Queue[Event | None]", speaking: "asyncio.Task[Sequence[Answer]]"
) -> Event:
    """Return the first event of a turn in a scene.

    Raises:
        ForemindError: the message was refused.
    """
    event = await told.get()
    if event is None:
        await speaking
        raise ForemindError("The message was not accepted.")
    return event


async def _scene_stream(
    first: Event, told: "asyncio.Queue[Event | None]"
) -> AsyncGenerator[bytes, None]:
    """Yield what comes of a message in a scene as server-sent events, named as on the socket."""
    event: Event | None = first
    while event is not None:
        name = type(event).__struct_config__.tag
        yield f"event: {name}\ndata: ".encode() + msgspec.json.encode(event) + b"\n\n"
        event = await told.get()


def _scene_answer(
    speech: Speech,
    answers: Sequence[Answer],
    told: "asyncio.Queue[Event | None]",
    *,
    with_memories: bool,
    sentences: bool,
) -> TurnAnswer:
    accepted = told.get_nowait()
    assert isinstance(accepted, MessageAccepted)
    if len(answers) == 1 and (failed := answers[0].result).error is not None and not failed.text:
        raise failed.error
    return TurnAnswer(
        turn_id=speech.event.id,
        duplicate=accepted.duplicate,
        remembered=True,
        replies=[_reply(answer, with_sentences=sentences) for answer in answers],
        context=accepted.context,
        memories=list(answers[0].memories) if answers and with_memories else [],
    )


def _reply(answer: Answer, *, with_sentences: bool) -> Reply:
    result = answer.result
    spoken = [SentenceOfReply(said.text, said.emotion or UNSET) for said in answer.sentences]
    return Reply(
        answer.slug,
        result.text,
        result.status,
        cut_off=result.cut_off,
        emotion=result.emotion or UNSET,
        sentences=spoken if with_sentences else UNSET,
        actions=list(answer.actions) or UNSET,
    )
