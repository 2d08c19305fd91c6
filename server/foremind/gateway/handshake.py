"""`session.open`: who it is, whether it may, and which session it gets."""

from dataclasses import replace

import structlog

from foremind.auth.authority import require
from foremind.domain.clock import zone_named
from foremind.domain.companion import Companion
from foremind.domain.errors import Interrupted, InvalidMessage, NotAllowed, NotFound, RateLimited
from foremind.gateway.address_limits import AddressSlot
from foremind.gateway.event_stream import EventListener
from foremind.gateway.pending_session import PendingSession
from foremind.gateway.protocol.messages import Resume, SessionOpen, SessionUpdate, TurnView
from foremind.gateway.session import Session
from foremind.gateway.session_registry import SessionRegistry
from foremind.gateway.session_services import SessionServices

_log = structlog.get_logger("foremind.gateway")


class Handshake:
    """Opens, resumes and renews sessions.

    Whoever waits for the database here is told meanwhile of what is announced (`PendingSession`),
    has a place before it reads, and is greeted without waiting once everything is read.
    """

    def __init__(self, services: SessionServices, registry: SessionRegistry) -> None:
        self._services = services
        self._registry = registry

    async def open(
        self, message: SessionOpen, token: str | None, listener: EventListener, place: AddressSlot
    ) -> Session:
        """Return the session that a client is connected to from now on; it has been greeted.

        Args:
            token: one that came with the connection rather than in the message.
            place: what the connection counts for at its address.

        Raises:
            NotAuthenticated, NotAllowed, NotFound: it may not enter.
            InvalidMessage: a field is wrong.
            Overloaded, RateLimited, Draining, Interrupted, StorageUnavailable: it may try again.
        """
        authority, registry = self._services.authority, self._registry
        caller = authority.of_session(
            message.token or token,
            None if message.user is None else (message.user.id, message.user.name),
            message.companion,
        )
        shut_s = registry.allowance(caller.user_id).shut_s(self._services.clock.monotonic())
        if shut_s:
            raise RateLimited(
                f"Too many messages before; come back in {shut_s:.0f} s.", retry_after_s=shut_s
            )
        with registry.opening(caller) as opening:
            await authority.check_revoked(caller)
            place.identified(host=caller.allows("host"))
            companion = await self._services.companions.find(message.companion)
            if companion.retired:
                raise NotFound("companion: it is not there any more", param="companion")
            opening.check()
            known = self._known(message.resume, opening, message.companion)
            if known is not None and message.resume is not None:
                return await self._resume(known, message.resume, opening, listener)
            registry.reserve(opening)
            async with registry.reading:
                return await self._begin(message, companion, opening, listener)

    async def read_again(self, session: Session) -> None:
        """Have it read what was said, where it let that go while nobody was connected."""
        if not session.knows_history:
            async with self._registry.reading:
                await session.read_history()

    async def update(self, session: Session, message: SessionUpdate) -> None:
        """Do what a running session is asked to: go on by another token, take a state.

        Raises:
            InvalidMessage: there is nothing to do, or a field is wrong.
            NotAuthenticated: the token is wrong, expired or revoked.
            NotAllowed: it is another user's, or does not allow this session or its state.
            Draining, NotFound, StorageUnavailable: it may try again.
        """
        if message.token is None and message.state is None:
            raise InvalidMessage("token: expected a token or a state", param="token")
        if message.token is not None:
            await self._renew(session, message.token)
        if message.state is not None:
            require(session.caller, "memory:write")
            await session.change_state(message.state)
        session.tell_updated(message.event_id)

    async def _renew(self, session: Session, token: str) -> None:
        """Let a session go on by another token of its user.

        Raises:
            InvalidMessage: the server runs open.
            NotAuthenticated: the token is wrong, expired or revoked.
            NotAllowed: it is another user's, or does not allow this session.
            Draining, StorageUnavailable: it may try again.
        """
        if self._services.settings.open_mode:
            raise InvalidMessage("token: this server asks for none", param="token")
        authority = self._services.authority
        caller = authority.named_by(token)
        require(caller, "chat")
        if caller.user_id != session.caller.user_id or not caller.may_open(session.companion):
            raise NotAllowed(
                "token: expected one of this session's user that allows its companion",
                param="token",
            )
        with self._registry.opening(caller) as opening:
            await authority.check_revoked(caller)
            opening.check()
            session.renew(replace(caller, name=session.caller.name))
        _log.info("session.renewed", session_id=session.id)

    async def _resume(
        self, session: Session, resume: Resume, opening: PendingSession, listener: EventListener
    ) -> Session:
        """Go on with a session that this process holds."""
        session.renew(opening.caller)
        if session.resume(listener, resume.seq):
            _log.info("session.resumed", session_id=session.id)
            return session
        past = await self._read_past(session, opening)
        if not self._registry.holds(session):
            raise Interrupted("The session ended meanwhile; open it again.")
        session.greet(listener, past)
        return session

    async def _begin(
        self,
        message: SessionOpen,
        companion: Companion,
        opening: PendingSession,
        listener: EventListener,
    ) -> Session:
        """Begin a session, or go on with one of which this process holds nothing."""
        session = await Session.open(
            self._services,
            opening.caller,
            companion,
            zone_named(message.time_zone),
            message.consent,
        )
        resume = message.resume
        if resume is not None and resume.session_id == session.id:
            session.go_on_after(resume.seq)
            await session.tell_taken()
        past = await self._read_past(session, opening)
        session.greet(listener, past)
        self._registry.add(session, opening)
        _log.info("session.opened", session_id=session.id, companion=message.companion)
        return session

    async def _read_past(self, session: Session, opening: PendingSession) -> list[TurnView]:
        """Read what was said; anew, where something of it is forgotten meanwhile."""
        while True:
            past = await session.read_past()
            opening.check()
            forgets = opening.take_forgets(session.relationship_id)
            if not forgets:
                return past
            for forget in forgets:
                session.forget(forget.memory_version, forget.erasures)

    def _known(
        self, resume: Resume | None, opening: PendingSession, companion: str
    ) -> Session | None:
        """Return the session that a client wants back, if this process holds it.

        Raises:
            NotAllowed: it is another user's, or with another companion.
        """
        session = None if resume is None else self._registry.find(resume.session_id, resume.seq)
        if session is None:
            return None
        whose = (session.caller.user_id, session.companion)
        if whose != (opening.caller.user_id, companion):
            raise NotAllowed(
                "resume.session_id: expected a session of this user with this companion",
                param="resume.session_id",
            )
        return session
