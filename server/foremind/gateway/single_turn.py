"""Makes one turn of a relationship without a socket, in a session of its own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from uuid import uuid4
from zoneinfo import ZoneInfo

import msgspec

from foremind.auth.principal import Principal
from foremind.domain.errors import (
    Draining,
    ForemindError,
    Interrupted,
    InvalidMessage,
    NotAllowed,
    NotAuthenticated,
    NotFound,
    Overloaded,
    RateLimited,
)
from foremind.domain.turn import SpokenSentence, Status
from foremind.domain.turn_request import (
    ChoiceRequest,
    ChosenReply,
    EarlierTurn,
    SessionChoice,
    TurnBegun,
    TurnDone,
    TurnEvent,
    TurnPiece,
    TurnReply,
    TurnRequest,
)
from foremind.domain.user import NO_HINTS, UTC, PlayerHints
from foremind.gateway.event_builders import lore_views, memory_view
from foremind.gateway.flow_control import cost_of
from foremind.gateway.handshake import open_session
from foremind.gateway.protocol.client_messages import (
    MAX_ID_CHARS,
    MessageEdit,
    MessageSend,
    ResponseChoose,
    ResponseRegenerate,
    Revision,
)
from foremind.gateway.protocol.decoding import error_of
from foremind.gateway.protocol.server_events import (
    ErrorEvent,
    Event,
    MessageAccepted,
    ResponseChosen,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ResponseSentence,
)
from foremind.gateway.reply_generation import RunningTurn
from foremind.gateway.session import Session
from foremind.gateway.session_client import DRAINING, NOT_ALLOWED, NOT_AUTHENTICATED
from foremind.gateway.session_registry import SessionRegistry
from foremind.gateway.session_services import SessionServices
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.token_counter import counter_for
from foremind.llm.speech import SpokenSentences
from foremind.runtime.supervision import run_or_offload

_Answer = (
    MessageAccepted
    | ResponseCreated
    | ResponseDelta
    | ResponseSentence
    | ResponseDone
    | ResponseChosen
    | ErrorEvent
)
_MAX_WAITING = 8192  # answers; a piece is about one token


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

    def put(self, frame: bytes, *, event: Event | None = None, telemetry: bool = False) -> bool:
        """Take an event of the session; other than about its message, none matters here."""
        if self._ended or not isinstance(event, _Answer):
            return True
        self._waiting_bytes += _size_of(event)
        too_much = self._waiting_bytes > self._services.runtime.settings.outbound_bytes
        if too_much or self._answers.qsize() >= _MAX_WAITING - 1:
            self._end(Overloaded("The reply was read too slowly."))
            self._session.stop_reply()
        else:
            self._answers.put_nowait(event)
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
                case ResponseSentence():
                    self._waiting_bytes -= _size_of(answer)
                    emotion = answer.emotion or None
                    yield SpokenSentence(answer.index, answer.text, emotion)
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
        return TurnDone(
            done.status,
            done.text,
            tokens,
            error,
            done.index,
            done.count,
            tuple(done.used),
            done.cut_off,
            done.emotion or None,
        )

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
        if self._session.client.wants_sentences:
            for sentence in SpokenSentences(None).end(reply.content):
                yield sentence
        tokens = await self._tokens(reply.content)
        yield TurnDone(reply.status, reply.content, tokens, index=reply.index, count=reply.count)

    async def _tokens(self, *texts: str) -> int:
        count = counter_for(self._session.policy.layers.tokenizer)
        return await run_or_offload(sum(map(len, texts)), lambda: sum(map(count, texts)))


def _size_of(answer: _Answer) -> int:
    match answer:
        case ResponseDelta():
            return len(answer.delta.encode())
        case ResponseSentence():
            return len(answer.text.encode())
    return 0


def _closed(code: int, reason: str) -> ForemindError:
    """Return the error for what would close a connection."""
    if code == NOT_AUTHENTICATED:
        return NotAuthenticated(f"token: {reason}", param="token")
    if code == NOT_ALLOWED:
        return NotAllowed(f"session: {reason}")
    if code == DRAINING:
        return Draining("The server is draining; send it again.")
    return Interrupted(f"The turn was interrupted ({reason}); send it again.")


class SingleTurns:
    """Makes turns for clients that keep no connection.

    Each has a session of this process for as long as it lasts, so that everything holds for it
    that holds for sessions: limits, announcements, idempotency, draining, another owner elsewhere.
    """

    def __init__(self, services: SessionServices, registry: SessionRegistry) -> None:
        self._services = services
        self._registry = registry
        self.clock = services.runtime.clock

    @asynccontextmanager
    async def turn(
        self, principal: Principal, request: TurnRequest
    ) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """Admit a message, send it, and yield what comes of it.

        That is `TurnBegun`, `TurnReply`, then `TurnPiece`s, then `TurnDone`; in between each
        `SpokenSentence`, if that is asked for.

        Leaving the block before `TurnDone` stops the reply; what came of it is stored. The iterator
        raises the same errors as this method.

        Args:
            principal: whose token is valid, and acts for the user.

        Raises:
            InvalidMessage: a field is wrong.
            NotAuthenticated, NotAllowed, NotFound: the user may not talk to this companion.
            Conflict: the id belongs to another message.
            Draining, Interrupted, Overloaded, RateLimited, StorageUnavailable: it may retry.
        """
        chars = 0
        if not request.regenerates:
            self.check_text(request.text)
            chars = len(request.text)
        self.admit(principal, request.companion, chars)
        async with self.make(principal, request) as events:
            yield events

    async def choose(self, principal: Principal, choice: ChoiceRequest) -> ChosenReply:
        """Let one of the replies to the last message stand.

        Args:
            principal: whose token is valid, and acts for the user.

        Raises:
            InvalidMessage: there is no such reply, or the message is not the last one.
            ForemindError: as `turn`.
        """
        self.admit(principal, choice.companion)
        arrived = self._services.runtime.clock.monotonic()
        session = await self._open(principal, choice.companion)
        answer = TurnOutcome(self._services, session)
        try:
            session.connect(answer, [])
            session.handle(ResponseChoose(choice.message_id, choice.index), arrived)
            return await answer.chosen()
        finally:
            self._registry.end(session)

    def admit(self, principal: Principal, companion: str, chars: int = 0) -> None:
        """Check that a message may be sent now, and charge it to its user.

        Args:
            companion: whom it is sent to, "" for a scene.
            chars: of its text, 0 for a request without one.

        Raises:
            NotAllowed, Draining, RateLimited: it may not.
        """
        if companion and not principal.may_open(companion):
            raise NotAllowed(
                "companion: the token does not allow this companion", param="companion"
            )
        if self._registry.is_draining():
            raise Draining("The server is draining; send it again.")
        self.charge(principal.effective_user_id, chars)

    def check_text(self, text: str) -> None:
        """Check the length of a message.

        Raises:
            InvalidMessage: it is blank, or too long.
        """
        max_chars = self._services.runtime.settings.max_text_chars
        if not text.strip():
            raise InvalidMessage("text: expected text that is not blank", param="text")
        if len(text) > max_chars:
            raise InvalidMessage(
                f"text: expected at most {max_chars} characters, got {len(text)}", param="text"
            )

    @asynccontextmanager
    async def make(
        self, principal: Principal, request: TurnRequest
    ) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """Do as `turn` does, with a message that was admitted."""
        arrived = self._services.runtime.clock.monotonic()
        if not 0 < len(request.id) <= MAX_ID_CHARS:
            raise InvalidMessage(f"id: expected 1 to {MAX_ID_CHARS} characters", param="id")
        session = await self._open(
            principal,
            request.companion,
            request.hints,
            request.session,
            request.earlier,
        )
        session.add_to_turn(request.begun, request.attached)
        session.client.wants_sentences = request.sentences
        answer = TurnOutcome(self._services, session, regenerates=request.regenerates is not None)
        try:
            session.watch_replies(answer.on_reply)
            session.connect(answer, [])
            session.handle(_message_of(request), arrived)
            yield self._noted(principal, session, answer.events())
        finally:
            self._registry.end(session)

    async def _noted(
        self, principal: Principal, session: Session, events: AsyncIterator[TurnEvent]
    ) -> AsyncIterator[TurnEvent]:
        """Yield events; the audit trail says first to whom but the user memories are shown."""
        foreign = principal.effective_user_id != principal.user_id
        async for event in events:
            shown = isinstance(event, TurnBegun) and bool(event.memories)
            if foreign and shown and principal.allows("memory:read"):
                await self._services.stores.records.add_audit_entry(
                    session.relationship_id,
                    principal.user_id,
                    "read",
                    "memories",
                    self._services.runtime.clock.now(),
                )
            yield event

    def charge(self, user_id: str, chars: int) -> None:
        """Charge a message to the rate that its user has over all connections.

        Raises:
            RateLimited: it is exceeded.
        """
        now, cost = self._services.runtime.clock.monotonic(), cost_of("send", chars)
        budget = self._registry.user_budget(user_id)
        wait_s = max(budget.lockout_s(now), budget.wait_s("send", now, cost))
        if wait_s > 0:
            raise RateLimited("Too many messages a second; see limits.", retry_after_s=wait_s)
        budget.take("send", now, cost)

    async def _open(
        self,
        principal: Principal,
        slug: str,
        hints: PlayerHints = NO_HINTS,
        choice: SessionChoice = "current",
        earlier: Sequence[EarlierTurn] = (),
    ) -> Session:
        """Open a session for one turn, under the name, time zone and language stored or stated."""
        services, registry = self._services, self._registry
        with registry.opening(principal) as pending:
            await services.authority.check_revoked(principal)
            companion = await services.stores.companions.find_open(slug)
            known = await services.stores.users.get(principal.effective_user_id)
            if known is not None and not principal.states_name:
                principal = replace(principal, name=known.name)
            pending.check()
            registry.reserve(pending)
            async with registry.read_slots:
                session = await open_session(
                    services,
                    principal,
                    companion,
                    hints.time_zone or (UTC if known is None else ZoneInfo(known.time_zone)),
                    choice=choice,
                    earlier=[PastTurn(said.speaker, said.text) for said in earlier],
                    language=hints.language_tag,
                )
            pending.check()
            registry.add(session, pending, for_one_turn=True)
            return session


def _message_of(request: TurnRequest) -> MessageSend | Revision:
    settings = None if request.settings is None else dict(request.settings)
    if request.regenerates is not None:
        return ResponseRegenerate(request.id, request.regenerates, settings)
    if request.replaces is not None:
        return MessageEdit(request.id, request.replaces, request.text, settings, request.remember)
    return MessageSend(request.id, request.text, settings, request.remember)
