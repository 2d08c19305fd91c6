"""The sessions of this process: found by id, told of what happens, ended in time."""

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterator
from typing import Any, Self

import structlog
from cachetools import LRUCache

from foremind.clock import Clock
from foremind.errors import ForemindError, Overloaded
from foremind.gateway.limits import UserAllowance
from foremind.gateway.session import REPLACED, Session, SessionShown
from foremind.gateway.stream import Listener
from foremind.identity.authority import Authority
from foremind.metrics import Metrics
from foremind.settings import Settings
from foremind.storage.forgetting import MemoriesForgotten
from foremind.storage.memories import MemoryStore
from foremind.storage.notifications import Announcement
from foremind.storage.records import LayersChanged
from foremind.storage.remembering import MemoryAnnouncement
from foremind.storage.revocations import AccessRevoked
from foremind.storage.turns import ReplyStored, SessionTaken

NOT_AUTHENTICATED = 4401
NOT_ALLOWED = 4403
DRAINING = 4503

_POLL_S = 0.05
_LOOK_AGAIN_S = 2.0  # for what has no time of its own: keys withdrawn, a wall clock that stepped
_CATCH_UP_S = 600.0  # revocations that a lost database connection may have kept from us
_OPENED_AT_ONCE = 4  # so that a crowd that comes back leaves the database to who is there
_USERS_KNOWN = 10_000  # whose rates are counted

_log = structlog.get_logger("foremind.sessions")


class SessionRegistry:
    """At most `max_sessions` sessions, those included that lost their connection a while ago.

    Runs while entered; leaving it ends every session.
    """

    def __init__(
        self,
        settings: Settings,
        store: MemoryStore,
        authority: Authority,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._settings = settings
        self._store = store
        self._authority = authority
        self._clock = clock
        self._metrics = metrics
        self._sessions: set[Session] = set()
        self._by_id: defaultdict[str, list[Session]] = defaultdict(list)
        self._by_relationship: defaultdict[int, set[Session]] = defaultdict(set)
        self._of_user: Counter[str] = Counter()
        #: Taken while a session is read from the database.
        self.opening = asyncio.Semaphore(_OPENED_AT_ONCE)
        self._allowances: LRUCache[str, UserAllowance] = LRUCache(_USERS_KNOWN)
        self._look = asyncio.Event()
        self._ending: set[asyncio.Task[None]] = set()
        self._sweeper: asyncio.Task[None] | None = None
        self.draining = False
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._sweeper = asyncio.create_task(self._sweep_on(), name="session-sweeper")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._sweeper
        for session in self._all():
            self.end(session)
        self._stopping = True
        while self._ending:
            await asyncio.wait(self._ending)

    def find(self, session_id: str, seq: int) -> Session | None:
        """Return the session that a client wants back which has its events up to `seq`.

        Windows of one user share an id: who lost its connection comes first, then the newest.
        """
        known = self._by_id.get(session_id, ())
        fitting = [each for each in known if each.holds_after(seq)]
        lost = [each for each in fitting if each.detached_at is not None]
        return next(reversed(lost or fitting or known), None)

    def allowance(self, user_id: str) -> UserAllowance:
        """Return what a user may still send, over all its connections."""
        known = self._allowances.get(user_id)
        if known is None:
            known = self._allowances[user_id] = UserAllowance(self._settings)
        return known

    def check_room(self, user_id: str) -> None:
        """Check that one more session may be opened.

        Raises:
            Overloaded: the server, or this user, holds as many as it may.
        """
        if self._of_user[user_id] >= self._settings.max_sessions_per_user and not self._leave(
            each for each in self._all() if each.caller.user_id == user_id
        ):
            raise Overloaded(
                f"At most {self._settings.max_sessions_per_user} sessions of a user may be open."
            )
        if len(self._sessions) >= self._settings.max_sessions and not self._leave(self._all()):
            raise Overloaded("The server holds as many sessions as it may; try again shortly.")

    def add(self, session: Session) -> None:
        """Take in a session that opened."""
        self._sessions.add(session)
        self._by_id[session.id].append(session)
        self._by_relationship[session.relationship_id].add(session)
        self._of_user[session.caller.user_id] += 1
        self._metrics.sessions.set(len(self._sessions))
        self._look.set()

    def detach(self, session: Session, listener: Listener) -> None:
        """Learn that a connection is gone."""
        session.detach(listener)
        self._look.set()

    def end(self, session: Session, grace_s: float = 0.0) -> None:
        """End a session, in the background: a reply under way may go on for `grace_s`."""
        if session not in self._sessions:
            return
        self._sessions.discard(session)
        self._by_id[session.id].remove(session)
        if not self._by_id[session.id]:
            del self._by_id[session.id]
        group = self._by_relationship[session.relationship_id]
        group.discard(session)
        if not group:
            del self._by_relationship[session.relationship_id]
        user_id = session.caller.user_id
        self._of_user[user_id] -= 1
        if not self._of_user[user_id]:
            del self._of_user[user_id]
        self._metrics.sessions.set(len(self._sessions))
        self._do(self._close(session, grace_s), "session-close")

    def listed(self) -> list[SessionShown]:
        """Return the sessions of this process as an operator sees them."""
        return [each.shown() for each in self._all()]

    def dismiss(self, session_id: str) -> bool:
        """End a session and its connection, for the operator; False where there is none."""
        known = list(self._by_id.get(session_id, ()))
        for session in known:
            session.disconnect(NOT_ALLOWED, "closed by the operator")
            self.end(session)
        return bool(known)

    def announce(self, announcement: Announcement) -> None:
        """Tell the sessions that it concerns what happened, here or in another process."""
        match announcement:
            case SessionTaken() | ReplyStored():
                self._happened_elsewhere(announcement)
            case AccessRevoked():
                self._revoked(announcement)
            case MemoriesForgotten():
                for session in self._of(announcement.relationship_id):
                    session.forget(announcement.memory_version)
            case LayersChanged():
                for session in self._of(announcement.relationship_id):
                    session.layers_changed(announcement)
            case MemoryAnnouncement():
                for session in self._of(announcement.relationship_id):
                    session.heard(announcement)

    def _happened_elsewhere(self, told: SessionTaken | ReplyStored) -> None:
        for session in list(self._by_id.get(told.session_id, ())):
            if session.origin == told.origin:
                continue
            if isinstance(told, SessionTaken):
                self._replace(session)
            else:
                self._do(session.read_reply(told.turn_id), "read-reply")

    def _revoked(self, told: AccessRevoked) -> None:
        for session in self._all():
            caller = session.caller
            if told.covers(caller.user_id, caller.token_id, caller.issued_at):
                self._expel(session, "token revoked")

    def _of(self, relationship_id: int) -> list[Session]:
        return list(self._by_relationship.get(relationship_id, ()))

    async def catch_up(self) -> None:
        """Learn the memory versions anew, after announcements may have been missed."""
        versions = await self._store.versions(list(self._by_relationship))
        for relationship_id, version in versions.items():
            for session in self._by_relationship.get(relationship_id, ()):
                session.forget(version)  # that something was forgotten may have been missed too
        for each in await self._authority.revoked_lately(_CATCH_UP_S):
            self.announce(each)

    async def drain(self, seconds: float) -> None:
        """Let replies under way finish for at most `seconds`, then close every session."""
        self.draining = True
        until = self._clock.monotonic() + seconds
        while any(each.busy for each in self._all()) and self._clock.monotonic() < until:
            await self._clock.sleep(_POLL_S)
        for session in self._all():
            session.disconnect(DRAINING, "server draining")
            self.end(session)

    async def _sweep_on(self) -> None:
        """Sweep whenever a session's time may have come."""
        while True:
            self._look.clear()
            now = self._clock.monotonic()
            due = min(filter(None, (self._due(each, now) for each in self._all())), default=None)
            timer = None if due is None else self._clock.call_at(due, self._look.set)
            try:
                await self._look.wait()
            finally:
                if timer is not None:
                    timer.cancel()
            for session in self._all():
                self._sweep(session, self._clock.monotonic())

    def _due(self, session: Session, now: float) -> float | None:
        """Return when a session is to be looked at next, None where nothing will come of it."""
        settings = self._settings
        if session.detached_at is not None:
            waits = settings.reply_grace_s if session.busy else settings.resume_s
            return max(session.detached_at + waits, now + _POLL_S)
        return None if session.caller.expires_at is None else now + _LOOK_AGAIN_S

    def _sweep(self, session: Session, now: float) -> None:
        """Do what a session's time has come for."""
        session.prune()
        if session.detached_at is None:
            if not self._authority.still_valid(session.caller):
                self._expel(session, "token expired")
            return
        alone_s = now - session.detached_at
        if session.busy and alone_s >= self._settings.reply_grace_s:
            session.hush()
        elif not session.busy and alone_s >= self._settings.resume_s:
            self.end(session)

    def _replace(self, session: Session) -> None:
        session.disconnect(REPLACED, "replaced by a newer connection")
        self.end(session, self._settings.reply_grace_s)

    def _expel(self, session: Session, reason: str) -> None:
        _log.info("session.expelled", session_id=session.id, reason=reason)
        session.disconnect(NOT_AUTHENTICATED, reason)
        self.end(session)

    def _leave(self, sessions: "Iterator[Session] | list[Session]") -> bool:
        """End whichever of some sessions lost its connection longest ago; False: none did."""
        alone = [(each.detached_at, each) for each in sessions if each.detached_at is not None]
        idle = [(since, each) for since, each in alone if not each.busy]
        if not idle:
            return False
        self.end(min(idle, key=lambda each: each[0])[1])
        return True

    async def _close(self, session: Session, grace_s: float) -> None:
        until = self._clock.monotonic() + grace_s
        while session.busy and not self._stopping and self._clock.monotonic() < until:
            await self._clock.sleep(_POLL_S)
        try:
            await session.close()
        except ForemindError as error:
            _log.warning("session.not_closed", session_id=session.id, reason=error.code)
        _log.info("session.closed", session_id=session.id)

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _all(self) -> list[Session]:
        return list(self._sessions)
