"""The sessions of this process: found by id, told of what happens, ended in time."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import structlog
from cachetools import LRUCache

from foremind.auth.authority import Authority
from foremind.auth.principal import Principal
from foremind.domain.announcements import (
    AccessRevoked,
    ConsentGiven,
    LayersChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
    ReplyStored,
    SessionTaken,
    StateChanged,
    UserErased,
)
from foremind.domain.clock import Clock
from foremind.domain.errors import Draining, ForemindError, Overloaded, StorageUnavailable
from foremind.domain.settings import Settings
from foremind.gateway.event_stream import EventListener
from foremind.gateway.expiry_queue import ExpiryQueue
from foremind.gateway.flow_control import UserBudget
from foremind.gateway.pending_session import PendingSession
from foremind.gateway.session import REPLACED, Session, SessionSnapshot
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor, TaskSet
from foremind.storage.memory_store import MemoryStore
from foremind.storage.notifications import Announcement

NOT_AUTHENTICATED = 4401
NOT_ALLOWED = 4403
DRAINING = 4503

_POLL_S = 0.05
_LOOK_AGAIN_S = 2.0  # for what has no time of its own: keys withdrawn, a wall clock that stepped
_CATCH_UP_S = 600.0  # revocations that a lost database connection may have kept from us
_PRUNE_S = 30.0  # between two looks for events that are too old to be asked for
_SWEPT_AT_ONCE = 50  # sessions, before others get their turn
_OPENED_AT_ONCE = 4  # so that a crowd that comes back leaves the database to who is there
_USERS_KNOWN = 10_000  # whose rates are counted

_log = structlog.get_logger("foremind.gateway")


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
        supervisor: Supervisor,
    ) -> None:
        self._settings = settings
        self._store = store
        self._authority = authority
        self._clock = clock
        self._metrics = metrics
        self._sessions: set[Session] = set()
        self._by_id: defaultdict[str, list[Session]] = defaultdict(list)
        self._by_relationship: defaultdict[int, set[Session]] = defaultdict(set)
        #: Sessions of each user, and of all: those included for which a place is reserved.
        self._of_user: Counter[str] = Counter()
        self._places = 0
        self._openings: set[PendingSession] = set()
        #: Taken while a session is read from the database.
        self.reading = asyncio.Semaphore(_OPENED_AT_ONCE)
        self._allowances: LRUCache[str, UserBudget] = LRUCache(_USERS_KNOWN)
        self._timetable: ExpiryQueue[Session] = ExpiryQueue()
        self._look = asyncio.Event()  # something is due earlier than the sweeper knows
        self._ending = TaskSet()
        self._supervisor = supervisor
        self._sweeper: SupervisedLoop | None = None
        self.draining = False
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._sweeper = self._supervisor.start("session-sweeper", self._sweep_on)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._sweeper is not None:
            await self._sweeper.stop()
        for session in self._all():
            self.end(session)
        self._stopping = True
        await self._ending.finish()

    def is_draining(self) -> bool:
        """Tell whether no new sessions are taken, for the server is to stop."""
        return self.draining

    def find(self, session_id: str, seq: int) -> Session | None:
        """Return the session that a client wants back which has its events up to `seq`.

        Windows of one user share an id: who lost its connection comes first, then the newest.
        """
        known = self._by_id.get(session_id, ())
        fitting = [each for each in known if each.holds_after(seq)]
        lost = [each for each in fitting if each.detached_at is not None]
        return next(reversed(lost or fitting or known), None)

    def allowance(self, user_id: str) -> UserBudget:
        """Return what a user may still send, over all its connections."""
        known = self._allowances.get(user_id)
        if known is None:
            known = self._allowances[user_id] = UserBudget(self._settings)
        return known

    def holds(self, session: Session) -> bool:
        """Tell whether a session is open, with or without a connection."""
        return session in self._sessions

    @contextmanager
    def opening(self, caller: Principal) -> Iterator[PendingSession]:
        """Hear for a caller, as long as the block lasts, what is announced meanwhile.

        A place that was reserved and not taken is given back.

        Raises:
            Draining: no session is opened any more.
        """
        if self.draining:
            raise Draining("The server is draining; connect again.")
        opening = PendingSession(caller)
        self._openings.add(opening)
        try:
            yield opening
        finally:
            self._openings.discard(opening)
            if opening.reserved:
                self._give_back(caller.user_id)

    def reserve(self, opening: PendingSession) -> None:
        """Keep a place for one more session, ending one that lost its connection if need be.

        Raises:
            Overloaded: the server, or this user, has as many as it may.
        """
        user_id = opening.caller.user_id
        if self._of_user[user_id] >= self._settings.max_sessions_per_user and not self._leave(
            each for each in self._all() if each.caller.user_id == user_id
        ):
            raise Overloaded(
                f"At most {self._settings.max_sessions_per_user} sessions of a user may be open."
            )
        if self._places >= self._settings.max_sessions and not self._leave(self._all()):
            raise Overloaded("The server holds as many sessions as it may; try again shortly.")
        self._of_user[user_id] += 1
        self._places += 1
        opening.reserved = True

    def add(self, session: Session, opening: PendingSession) -> None:
        """Take in a session that opened, in the place that was kept for it.

        It learns of what was announced meanwhile.
        """
        opening.reserved = False
        self._sessions.add(session)
        self._by_id[session.id].append(session)
        self._by_relationship[session.relationship_id].add(session)
        session.on_turn = partial(self._said, session)
        self._metrics.sessions.set(len(self._sessions))
        self._schedule(session)
        for told in opening.take_heard():
            self._tell(told, [session])

    def detach(self, session: Session, listener: EventListener) -> None:
        """Learn that a connection is gone."""
        session.detach(listener)
        if session in self._sessions:
            self._schedule(session)

    def end(self, session: Session, grace_s: float = 0.0) -> None:
        """End a session, in the background: a reply under way may go on for `grace_s`."""
        if session not in self._sessions:
            return
        self._sessions.discard(session)
        self._timetable.set(session, None)
        self._by_id[session.id].remove(session)
        if not self._by_id[session.id]:
            del self._by_id[session.id]
        group = self._by_relationship[session.relationship_id]
        group.discard(session)
        if not group:
            del self._by_relationship[session.relationship_id]
        self._give_back(session.caller.user_id)
        self._metrics.sessions.set(len(self._sessions))
        self._do(self._close(session, grace_s), "session-close")

    def listed(self) -> list[SessionSnapshot]:
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
        for opening in self._openings:
            opening.announce(announcement)
        match announcement:
            case SessionTaken() | ReplyStored():
                concerned = list(self._by_id.get(announcement.session_id, ()))
            case (
                MemoriesForgotten()
                | LayersChanged()
                | MemoriesChanged()
                | MemoryAnnouncement()
                | StateChanged()
            ):
                concerned = list(self._by_relationship.get(announcement.relationship_id, ()))
            case _:
                concerned = self._all()
        self._tell(announcement, concerned)

    def _tell(self, told: Announcement, sessions: list[Session]) -> None:
        """Tell sessions what happened, each if it concerns it."""
        for session in sessions:
            match told:
                case SessionTaken() | ReplyStored() if told.session_id == session.id:
                    self._happened_elsewhere(told, session)
                case StateChanged() if told.relationship_id == session.relationship_id:
                    self._do(session.read_state(), "read-state")
                case AccessRevoked():
                    self._revoked(told, session)
                case UserErased() if told.user_id == session.caller.user_id:
                    session.disconnect(NOT_ALLOWED, "the user was erased")
                    self.end(session)
                case ConsentGiven() if told.relationship_id == session.relationship_id:
                    session.consented(given=told.given)
                case MemoriesForgotten() if told.relationship_id == session.relationship_id:
                    session.forget(told.memory_version, told.erasures)
                case LayersChanged() if told.relationship_id == session.relationship_id:
                    session.layers_changed(told)
                case MemoriesChanged() if told.relationship_id == session.relationship_id:
                    session.observe_version(told.memory_version)
                case MemoryAnnouncement() if told.relationship_id == session.relationship_id:
                    session.heard(told)

    def _happened_elsewhere(self, told: SessionTaken | ReplyStored, session: Session) -> None:
        if session.origin == told.origin:
            return
        if isinstance(told, SessionTaken):
            self._replace(session)
        else:
            self._do(session.read_reply(told.turn_id), "read-reply")

    def _said(self, session: Session, turn: PastTurn) -> None:
        """Tell other windows of a session what was said in one of them."""
        for each in self._by_id.get(session.id, ()):
            if each is not session:
                each.hear(turn)

    def _revoked(self, told: AccessRevoked, session: Session) -> None:
        caller = session.caller
        if told.covers(caller.user_id, caller.token_id, caller.issued_at):
            self._expel(session, "token revoked")

    async def catch_up(self) -> None:
        """Learn the memory versions anew, after announcements may have been missed."""
        for opening in self._openings:
            opening.refuse(StorageUnavailable("The database was away; try again shortly."))
        versions = await self._store.versions(list(self._by_relationship))
        for relationship_id, (version, erasures) in versions.items():
            for session in self._by_relationship.get(relationship_id, ()):
                # That something was forgotten may have been missed too.
                session.forget(version, erasures)
        for each in await self._authority.revoked_lately(_CATCH_UP_S):
            self.announce(each)

    async def drain(self, seconds: float) -> None:
        """Let replies under way finish for at most `seconds`, then close every session."""
        self.draining = True
        for opening in self._openings:
            opening.refuse(Draining("The server is draining; connect again."))
        until = self._clock.monotonic() + seconds
        while any(each.busy for each in self._all()) and self._clock.monotonic() < until:
            await self._clock.sleep(_POLL_S)
        for session in self._all():
            session.disconnect(DRAINING, "server draining")
            self.end(session)

    async def _sweep_on(self, loop: SupervisedLoop) -> None:
        """Look at each session when its time has come."""
        while True:
            self._look.clear()
            first = self._timetable.first()
            timer = None if first is None else self._clock.call_at(first, self._look.set)
            try:
                await self._look.wait()
            finally:
                if timer is not None:
                    timer.cancel()
            await self._sweep_due()
            loop.well()

    async def _sweep_due(self) -> None:
        """Look at the sessions that are due; what waits afterwards holds none of them any more."""
        for number, session in enumerate(self._timetable.take(self._clock.monotonic()), 1):
            self._sweep_one(session)
            if number % _SWEPT_AT_ONCE == 0:
                await asyncio.sleep(0)

    def _sweep_one(self, session: Session) -> None:
        try:
            self._sweep(session, self._clock.monotonic())
        except Exception:  # the loop starts again without it
            self.end(session)
            raise
        if session in self._sessions:
            self._schedule(session)

    def _schedule(self, session: Session) -> None:
        """Note when a session is to be looked at next."""
        before = self._timetable.first()
        when = self._due(session, self._clock.monotonic())
        self._timetable.set(session, when)
        if before is None or when < before:
            self._look.set()

    def _due(self, session: Session, now: float) -> float:
        """Return when a session is to be looked at next."""
        settings = self._settings
        if session.detached_at is not None:
            waits = settings.reply_grace_s if session.busy else settings.resume_s
            return max(session.detached_at + waits, now + _POLL_S)
        return now + (_PRUNE_S if session.caller.expires_at is None else _LOOK_AGAIN_S)

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
        alone = [
            (session.detached_at, session)
            for session in sessions
            if session.detached_at is not None
        ]
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

    def _give_back(self, user_id: str) -> None:
        """Free a place: that of a session that ended, or one from which nothing came."""
        self._places -= 1
        self._of_user[user_id] -= 1
        if not self._of_user[user_id]:
            del self._of_user[user_id]

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._ending.begin(work, name)

    def _all(self) -> list[Session]:
        return list(self._sessions)
