"""Makes one turn of a relationship without a socket, in a session of its own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from zoneinfo import ZoneInfo

from foremind.auth.authority import require_scope
from foremind.auth.principal import Principal
from foremind.domain.errors import (
    Draining,
    InvalidMessage,
    NotAllowed,
    RateLimited,
)
from foremind.domain.hints import NO_HINTS, UTC, PlayerHints
from foremind.domain.turn_request import (
    ChoiceRequest,
    ChosenReply,
    EarlierTurn,
    SessionChoice,
    TurnBegun,
    TurnEvent,
    TurnRequest,
)
from foremind.gateway.flow_control import cost_of
from foremind.gateway.handshake import find_open_companion
from foremind.gateway.protocol.client_messages import (
    MAX_ID_CHARS,
    MessageEdit,
    MessageSend,
    ResponseChoose,
    ResponseRegenerate,
    Revision,
)
from foremind.gateway.session import Session
from foremind.gateway.session_opening import open_session
from foremind.gateway.session_registry import SessionRegistry
from foremind.gateway.session_services import SessionServices
from foremind.gateway.turn_outcome import TurnOutcome
from foremind.llm.prompt.layout import PastTurn


class SingleTurns:
    """Makes turns for clients that keep no connection.

    Each has a session of this process for as long as it lasts, so that everything holds for it
    that holds for sessions: limits, announcements, idempotency, draining, another owner elsewhere.
    """

    def __init__(self, services: SessionServices, registry: SessionRegistry) -> None:
        self._services = services
        self._registry = registry

    @asynccontextmanager
    async def turn(
        self, principal: Principal, request: TurnRequest
    ) -> AsyncIterator[AsyncIterator[TurnEvent]]:
        """Admit a message, send it, and yield what comes of it.

        That is `TurnBegun`, `TurnReply`, then `TurnPiece`s, then `TurnDone`.

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
            chars: of its text, 0 for a request without one.

        Raises:
            NotAllowed, Draining, RateLimited: it may not.
        """
        require_scope(principal, "chat")
        if not principal.may_open(companion):
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
        answer = TurnOutcome(self._services, session, regenerates=request.regenerates is not None)
        try:
            session.on_reply = answer.on_reply
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
            companion = await find_open_companion(services.stores.companions, slug)
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
            registry.add(session, pending)
            return session


def _message_of(request: TurnRequest) -> MessageSend | Revision:
    settings = None if request.settings is None else dict(request.settings)
    if request.regenerates is not None:
        return ResponseRegenerate(request.id, request.regenerates, settings)
    if request.replaces is not None:
        return MessageEdit(request.id, request.replaces, request.text, settings, request.remember)
    return MessageSend(request.id, request.text, settings, request.remember)
