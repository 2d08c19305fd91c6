"""`session.open`: who it is, whether it may, and which session it gets."""

import structlog

from foremind.errors import NotAllowed, RateLimited
from foremind.gateway.messages import Resume, SessionOpen
from foremind.gateway.registry import SessionRegistry
from foremind.gateway.services import Services
from foremind.gateway.session import Session
from foremind.gateway.stream import Listener
from foremind.identity.caller import Caller

_log = structlog.get_logger("foremind.gateway")


class Handshake:
    """Opens and resumes sessions."""

    def __init__(self, services: Services, registry: SessionRegistry) -> None:
        self._services = services
        self._registry = registry

    async def open(self, message: SessionOpen, token: str | None, listener: Listener) -> Session:
        """Return the session that a client is connected to from now on; it has been greeted.

        Args:
            token: one that came with the connection rather than in the message.

        Raises:
            NotAuthenticated, NotAllowed, NotFound: it may not enter.
            InvalidMessage: a field is wrong.
            Overloaded, RateLimited, StorageUnavailable: it may try again.
        """
        caller = await self._services.authority.of_session(
            message.token or token,
            None if message.user is None else (message.user.id, message.user.name),
            message.companion,
        )
        shut_s = self._registry.allowance(caller.user_id).shut_s(self._services.clock.monotonic())
        if shut_s:
            raise RateLimited(
                f"Too many messages before; come back in {shut_s:.0f} s.", retry_after_s=shut_s
            )
        known = self._known(message.resume, caller, message.companion)
        if message.resume is not None and known is not None:
            known.caller = caller
            if known.resume(listener, message.resume.seq):
                _log.info("session.resumed", session_id=known.id)
                return known
            await known.greet(listener)
            return known
        return await self._open(message, caller, listener)

    async def _open(self, message: SessionOpen, caller: Caller, listener: Listener) -> Session:
        """Begin a session, or go on with one of which this process holds nothing."""
        self._registry.check_room(caller.user_id)
        resume = message.resume
        async with self._registry.opening:
            session = await Session.open(self._services, caller, message)
        taken = resume is not None and resume.session_id == session.id
        if resume is not None and taken:
            session.go_on_after(resume.seq)
        await session.greet(listener)
        self._registry.add(session)
        if taken:
            await session.tell_taken()
        _log.info("session.opened", session_id=session.id, companion=message.companion)
        return session

    def _known(self, resume: Resume | None, caller: Caller, companion: str) -> Session | None:
        """Return the session that a client wants back, if this process holds it.

        Raises:
            NotAllowed: it is another user's, or with another companion.
        """
        session = None if resume is None else self._registry.find(resume.session_id, resume.seq)
        if session is None:
            return None
        if session.caller.user_id != caller.user_id or session.companion != companion:
            raise NotAllowed(
                "resume.session_id: expected a session of this user with this companion",
                param="resume.session_id",
            )
        return session
