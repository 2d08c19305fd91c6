"""What a session reports about a single turn, as values for a client without a socket."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import msgspec

from foremind.domain.errors import (
    Draining,
    ForemindError,
    Interrupted,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Overloaded,
)
from foremind.domain.turn import Status
from foremind.domain.turn_request import (
    ChosenReply,
    TurnBegun,
    TurnDone,
    TurnEvent,
    TurnPiece,
    TurnReply,
)
from foremind.gateway.event_builders import lore_views
from foremind.gateway.protocol.decoding import error_of
from foremind.gateway.protocol.server_events import (
    ErrorEvent,
    MessageAccepted,
    ResponseChosen,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
)
from foremind.gateway.reply_generation import RunningTurn
from foremind.gateway.session import Session
from foremind.gateway.session_client import DRAINING, NOT_ALLOWED, NOT_AUTHENTICATED
from foremind.gateway.session_services import SessionServices
from foremind.llm.prompt.token_counter import counter_for
from foremind.retrieval.memory_views import memory_view
from foremind.runtime.offload import run_or_offload

_Answer = (
    MessageAccepted | ResponseCreated | ResponseDelta | ResponseDone | ResponseChosen | ErrorEvent
)
_MAX_WAITING = 8192  # answers; a piece is about one token
_decoder = msgspec.json.Decoder(_Answer)


class TurnOutcome:
    """What a session reports about its one message: the listener in place of a connection.

    At most `outbound_bytes` of text wait to be read, in at most `_MAX_WAITING` answers. A reader
    that is slower loses the rest of the reply, which is stopped.

    Args:
        regenerates: whether another reply was asked for to a message that is stored.
    """

    accepted = 0  # it resumes no session

    def __init__(
        self, services: SessionServices, session: Session, *, regenerates: bool = False
    ) -> None:
        self._services = services
        self._regenerates = regenerates
        self._session = session
        self._answers: asyncio.Queue[_Answer | ForemindError] = asyncio.Queue(_MAX_WAITING)
        self._waiting_bytes = 0
        self._ended = False  # nothing follows what waits
        self._turn: RunningTurn | None = None

    def put(self, frame: bytes, *, telemetry: bool = False) -> bool:
        """Take an event of the session; other than about its message, none matters here."""
        try:
            answer: _Answer = _decoder.decode(frame)
        except msgspec.ValidationError:
            return True
        if self._ended:
            return True
        self._waiting_bytes += _size_of(answer)
        too_much = self._waiting_bytes > self._services.runtime.settings.outbound_bytes
        if too_much or self._answers.qsize() >= _MAX_WAITING - 1:
            self._end(Overloaded("The reply was read too slowly."))
            self._session.stop_reply()
        else:
            self._answers.put_nowait(answer)
        return True

    def close(self, code: int, reason: str) -> None:
        """Take note that the session ends, and why."""
        self._end(_closed(code, reason))

    def _end(self, error: ForemindError) -> None:
        """Let an error follow what waits, for which a place is kept."""
        if not self._ended:
            self._ended = True
            self._answers.put_nowait(error)

    def on_reply(self, turn: RunningTurn) -> None:
        """Take the prompt of the reply, which is about to be sent."""
        self._turn = turn

    async def chosen(self) -> ChosenReply:
        """Return the reply that was chosen.

        Raises:
            ForemindError: it was not, or the session has ended.
        """
        while True:
            match await self._answers.get():
                case ForemindError() as error:
                    raise error
                case ErrorEvent() as event:
                    raise error_of(event.error)
                case ResponseChosen(turn=turn):
                    status: Status = msgspec.convert(turn.status, Status)
                    return ChosenReply(int(turn.turn_id), turn.text, status, turn.index, turn.count)

    async def events(self) -> AsyncIterator[TurnEvent]:
        """Yield what comes of the message.

        Raises:
            ForemindError: it was not accepted, or the session has ended.
        """
        accepted = MessageAccepted(id="", turn_id="0", duplicate=False, context="miss", ready_ms=0)
        while True:
            answer = await self._answers.get()
            match answer:
                case ForemindError():
                    raise answer
                case ErrorEvent():
                    raise error_of(answer.error)
                case MessageAccepted() if self._turn is None:
                    async for event in self._answered_elsewhere(answer):
                        yield event
                    return
                case MessageAccepted():
                    accepted = answer
                case ResponseCreated():
                    yield await self._begun(accepted, answer.response_id)
                    yield TurnReply(answer.index, answer.count)
                case ResponseDelta():
                    self._waiting_bytes -= _size_of(answer)
                    yield TurnPiece(answer.delta)
                case ResponseDone():
                    yield await self._done(answer)
                    return

    async def _begun(self, accepted: MessageAccepted, response_id: str) -> TurnBegun:
        assert self._turn is not None
        prompt = self._turn.reply.prompt
        now = self._services.runtime.clock.now().astimezone(self._session.time_zone)
        language = self._session.prompt_language
        contents = [message["content"] for message in prompt.messages()]
        return TurnBegun(
            turn_id=int(accepted.turn_id),
            duplicate=accepted.duplicate and not self._regenerates,
            context=accepted.context,
            remembered=accepted.remembered,
            memories=[memory_view(memory, now, language) for memory in prompt.memories],
            lore=lore_views(prompt.lore),
            prompt_tokens=await self._tokens(*contents),
            response_id=response_id,
            text=self._turn.message.text,
            ahead=accepted.ahead,
        )

    async def _done(self, done: ResponseDone) -> TurnDone:
        error = None if done.error is None else error_of(done.error)
        tokens = await self._tokens(done.text)
        return TurnDone(done.status, done.text, tokens, error, done.index, done.count)

    async def _answered_elsewhere(self, accepted: MessageAccepted) -> AsyncIterator[TurnEvent]:
        """Yield the stored reply to a message that was or is being answered elsewhere.

        Raises:
            NotFound: it was erased.
            Interrupted: there is none.
        """
        turn_id, turns = int(accepted.turn_id), self._services.stores.turns
        relationship_id = self._session.relationship_id
        yield TurnBegun(
            turn_id,
            duplicate=True,
            context=accepted.context,
            remembered=accepted.remembered,
            response_id=uuid4().hex,
        )
        await self._session.settle()
        now = self._services.runtime.clock.now()
        found = await turns.find_answer(relationship_id, turn_id, now)
        reply = None if found.reply is None else await turns.find(relationship_id, found.reply)
        if reply is None and found.reply is None and await turns.find(relationship_id, turn_id):
            raise Interrupted("The message is stored and has no reply; send it again.")
        if reply is None:
            raise NotFound("id: this message or its reply was erased", param="id")
        yield TurnReply(reply.index, reply.count)
        yield TurnPiece(reply.content)
        tokens = await self._tokens(reply.content)
        yield TurnDone(reply.status, reply.content, tokens, index=reply.index, count=reply.count)

    async def _tokens(self, *texts: str) -> int:
        count = counter_for(self._session.policy.layers.tokenizer)
        return await run_or_offload(sum(map(len, texts)), lambda: sum(map(count, texts)))


def _size_of(answer: _Answer) -> int:
    return len(answer.delta.encode()) if isinstance(answer, ResponseDelta) else 0


def _closed(code: int, reason: str) -> ForemindError:
    """Return the error for what would close a connection."""
    if code == NOT_AUTHENTICATED:
        return NotAuthenticated(f"token: {reason}", param="token")
    if code == NOT_ALLOWED:
        return NotAllowed(f"session: {reason}")
    if code == DRAINING:
        return Draining("The server is draining; send it again.")
    return Interrupted(f"The turn was interrupted ({reason}); send it again.")
