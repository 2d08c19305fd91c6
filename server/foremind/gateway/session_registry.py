"""The sessions of this process: lookup, announcements, limits and expiry."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import structlog
from cachetools import LRUCache

from foremind.auth.authority import Authority
from foremind.auth.principal import Principal
from foremind.cluster.membership import Membership
from foremind.domain.announcements import (
    AccessRevoked,
    Announcement,
    ConsentGiven,
    LayersChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
    RelationshipDeleted,
    ReplyStored,
    SessionTaken,
    StateChanged,
    UserErased,
)
from foremind.domain.clock import Clock
from foremind.domain.errors import Draining, ForemindError, Overloaded, StorageUnavailable
from foremind.domain.settings.settings import Settings
from foremind.gateway.event_stream import EventListener
from foremind.gateway.expiry_queue import ExpiryQueue
from foremind.gateway.flow_control import UserBudget
from foremind.gateway.pending_session import PendingSession
from foremind.gateway.session import Session
from foremind.gateway.session_client import NOT_AUTHENTICATED, REPLACED
from foremind.gateway.session_snapshot import SessionSnapshot, snapshot_of
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor, TaskSet

NOT_ALLOWED = 4403
DRAINING = 4503

_POLL_S = 0.05
_TOKEN_CHECK_S = 2.0  # polled: keys can be withdrawn, and the wall clock can step
_CATCH_UP_S = 600.0  # age of revocations that may have been missed with the database connection
_PRUNE_S = 30.0  # between two removals of expired events
_SWEEP_BATCH = 50  # sessions checked before the event loop runs other tasks
_MAX_CONCURRENT_READS = 4  # so that mass reconnection leaves the database to open sessions
_MAX_USERS = 10_000  # whose rates are tracked

_log = structlog.get_logger("foremind.gateway")


class SessionRegistry:
    """Holds at most `max_sessions` sessions, including those that wait to be resumed.

    Active while entered; leaving it ends every session.
    """

    def __init__(
        self,
        settings: Settings,
        authority: Authority,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
        membership: Membership,
    ) -> None:
        self._settings = settings
        self._authority = authority
        self._clock = clock
        self._metrics = metrics
        self._sessions: set[Session] = set()
        self._by_id: defaultdict[str, list[Session]] = defaultdict(list)
        self._by_relationship: defaultdict[int, set[Session]] = defaultdict(set)
        #: Sessions by user and in total, including reserved places.
        self._count_by_user: Counter[str] = Counter()
        self._count = 0
        self._pending: set[PendingSession] = set()
        #: Held while a session is read from the database.
        self.read_slots = asyncio.Semaphore(_MAX_CONCURRENT_READS)
        self._user_budgets: LRUCache[str, UserBudget] = LRUCache(_MAX_USERS)
        self._check_times: ExpiryQueue[Session] = ExpiryQueue()
        self._sweeper_wakeup = asyncio.Event()  # set when a check is due
        self._tasks = TaskSet()
        self._supervisor = supervisor
        #: Which gateways there are besides this one.
        self.membership = membership
        self._sweeper: SupervisedLoop | None = None
        self.draining = False
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._sweeper = self._supervisor.start("session-sweeper", self._sweep_loop)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._sweeper is not None:
            await self._sweeper.stop()
        for session in self._all():
            self.end(session)
        self._stopping = True
        await self._tasks.finish()

    def is_draining(self) -> bool:
        """Return whether new sessions are refused because the server is about to stop."""
        return self.draining

    def find(self, session_id: str, seq: int) -> Session | None:
        """Return the session to resume by a client that has its events up to `seq`.

        Windows of one user share an id: prefer one that can replay the missed events, then one that
        lost its connection, then the newest.
        """
        known = self._by_id.get(session_id, ())
        replayable = [session for session in known if session.client.can_replay_after(seq)]
        detached = [session for session in replayable if session.detached_at is not None]
        return next(reversed(detached or replayable or known), None)

    def user_budget(self, user_id: str) -> UserBudget:
        """Return the rate budget of a user over all its connections."""
        budget = self._user_budgets.get(user_id)
        if budget is None:
            budget = self._user_budgets[user_id] = UserBudget(self._settings)
        return budget

    def is_open(self, session: Session) -> bool:
        """Return whether a session is open, with or without a connection."""
        return session in self._sessions

    @contextmanager
    def opening(self, principal: Principal) -> Iterator[PendingSession]:
        """Collect announcements for a session being opened, for the duration of the block.

        A reserved place that was not used is released.

        Raises:
            Draining: new sessions are refused.
        """
        if self.draining:
            raise Draining("The server is draining; connect again.")
        pending = PendingSession(principal)
        self._pending.add(pending)
        try:
            yield pending
        finally:
            self._pending.discard(pending)
            if pending.reserved:
                self._release_place(principal.effective_user_id)

    def reserve(self, pending: PendingSession) -> None:
        """Reserve a place for a session, if need be by ending one that lost its connection.

        Raises:
            Overloaded: the server, or this user, is at its session limit.
        """
        user_id = pending.principal.effective_user_id
        limit = self._settings.max_sessions_per_user
        if self._count_by_user[user_id] >= limit and not self._end_longest_detached(
            session for session in self._all() if session.principal.effective_user_id == user_id
        ):
            raise Overloaded(f"At most {limit} sessions of a user may be open.")
        if self._count >= self._settings.max_sessions and not self._end_longest_detached(
            self._all()
        ):
            raise Overloaded("The server is at its session limit; try again shortly.")
        self._count_by_user[user_id] += 1
        self._count += 1
        pending.reserved = True

    def add(self, session: Session, pending: PendingSession) -> None:
        """Add a session in its reserved place, and pass it the announcements made meanwhile."""
        pending.reserved = False
        self._sessions.add(session)
        self._by_id[session.id].append(session)
        self._by_relationship[session.relationship_id].add(session)
        session.on_turn = partial(self._share_turn, session)
        self._metrics.sessions.set(len(self._sessions))
        self._schedule_check(session)
        for announcement in pending.take_announcements():
            self._dispatch(announcement, [session])

    def detach(self, session: Session, listener: EventListener) -> None:
        """Detach a closed connection from its session."""
        session.detach(listener)
        if session in self._sessions:
            self._schedule_check(session)

    def end(self, session: Session, grace_s: float = 0.0) -> None:
        """End a session in the background; a reply in progress may continue for `grace_s`."""
        if session not in self._sessions:
            return
        self._sessions.discard(session)
        self._check_times.set(session, None)
        self._by_id[session.id].remove(session)
        if not self._by_id[session.id]:
            del self._by_id[session.id]
        group = self._by_relationship[session.relationship_id]
        group.discard(session)
        if not group:
            del self._by_relationship[session.relationship_id]
        self._release_place(session.principal.effective_user_id)
        self._metrics.sessions.set(len(self._sessions))
        self._begin(self._close(session, grace_s), "session-close")

    def sessions(self) -> list[Session]:
        """Return all sessions of this process, with or without a connection."""
        return self._all()

    def snapshots(self) -> list[SessionSnapshot]:
        """Return snapshots of all sessions of this process, for the operator."""
        return [snapshot_of(session) for session in self._all()]

    def dismiss(self, session_id: str) -> bool:
        """End a session and its connection, for the operator; return False if there is none."""
        known = list(self._by_id.get(session_id, ()))
        for session in known:
            session.client.disconnect(NOT_ALLOWED, "closed by the operator")
            self.end(session)
        return bool(known)

    def on_announcement(self, announcement: Announcement) -> None:
        """Pass an announcement of this or another process to the sessions that it concerns."""
        for pending in self._pending:
            pending.on_announcement(announcement)
        match announcement:
            case SessionTaken() | ReplyStored():
                sessions = list(self._by_id.get(announcement.session_id, ()))
            case (
                MemoriesForgotten()
                | LayersChanged()
                | MemoriesChanged()
                | MemoryAnnouncement()
                | StateChanged()
                | RelationshipDeleted()
            ):
                sessions = list(self._by_relationship.get(announcement.relationship_id, ()))
            case _:
                sessions = self._all()
        self._dispatch(announcement, sessions)

    def _dispatch(self, event: Announcement, sessions: list[Session]) -> None:
        """Apply an announcement to those of some sessions that it concerns."""
        for session in sessions:
            match event:
                case SessionTaken() | ReplyStored() if event.session_id == session.id:
                    self._on_used_elsewhere(event, session)
                case StateChanged() if event.relationship_id == session.relationship_id:
                    self._begin(session.announcements.read_state(), "read-state")
                case AccessRevoked():
                    self._on_revoked(event, session)
                case UserErased() if event.user_id == session.principal.effective_user_id:
                    self._end_erased(session)
                case RelationshipDeleted() if event.relationship_id == session.relationship_id:
                    self._end_erased(session)
                case (
                    ConsentGiven()
                    | MemoriesForgotten()
                    | LayersChanged()
                    | MemoriesChanged()
                    | MemoryAnnouncement()
                ) if event.relationship_id == session.relationship_id:
                    session.announcements.handle(event)

    def _end_erased(self, session: Session) -> None:
        session.client.disconnect(NOT_ALLOWED, "the user was erased")
        self.end(session)

    def _on_used_elsewhere(self, event: SessionTaken | ReplyStored, session: Session) -> None:
        if session.origin == event.origin:
            return
        if isinstance(event, SessionTaken):
            self._replace(session)
        else:
            self._begin(session.windows.read_reply(event.turn_id), "read-reply")

    def _on_revoked(self, event: AccessRevoked, session: Session) -> None:
        principal = session.principal
        if event.covers(principal.user_id, principal.token_id, principal.issued_at):
            self._expel(session, "token revoked")

    def _share_turn(self, session: Session, turn: PastTurn) -> None:
        """Pass a new turn of one window to the other windows of its session."""
        for other in self._by_id.get(session.id, ()):
            if other is not session:
                other.windows.add_turn(turn)

    async def catch_up(self) -> None:
        """Handle what announcements may have told that has no version.

        Sessions being opened are refused, what others did in open ones is read again, and
        revocations are.
        """
        for pending in self._pending:
            pending.refuse(StorageUnavailable("The server was cut off; try again shortly."))
        for session in self._all():
            session.announcements.drop_history()
        await self.apply_revocations(_CATCH_UP_S)

    async def apply_revocations(self, seconds: float) -> None:
        """End the sessions whose tokens were revoked in the last `seconds`.

        Raises:
            StorageUnavailable: the database did not answer.
        """
        for revocation in await self._authority.recent_revocations(seconds):
            self.on_announcement(revocation)

    def open_relationships(self) -> list[int]:
        """Return the relationships with open sessions."""
        return list(self._by_relationship)

    async def drain(self, seconds: float) -> None:
        """Refuse new sessions; close each once its messages are answered, all after `seconds`.

        Clients that follow are told which gateway serves them from now on.
        """
        self.draining = True
        for pending in self._pending:
            pending.refuse(Draining("The server is draining; connect again."))
        deadline = self._clock.monotonic() + seconds
        await self.membership.leave()
        while sessions := self._all():
            overdue = self._clock.monotonic() >= deadline
            for session in sessions:
                if overdue or session.finished:
                    self._hand_over(session)
            if self._sessions:
                await self._clock.sleep(_POLL_S)

    def _hand_over(self, session: Session) -> None:
        """End a session here, and tell its client where it continues."""
        successor = self.membership.owner_elsewhere(session.key)
        if session.follows and successor is not None:
            self._metrics.redirects.labels("drain").inc()
            session.client.redirect(successor.url)
        session.client.disconnect(DRAINING, "server draining")
        self.end(session)

    async def _sweep_loop(self, loop: SupervisedLoop) -> None:
        """Check each session when it is due."""
        while True:
            self._sweeper_wakeup.clear()
            earliest = self._check_times.earliest()
            timer = (
                None
                if earliest is None
                else self._clock.call_at(earliest, self._sweeper_wakeup.set)
            )
            try:
                await self._sweeper_wakeup.wait()
            finally:
                if timer is not None:
                    timer.cancel()
            await self._sweep_due()
            loop.report_progress()

    async def _sweep_due(self) -> None:
        """Check the sessions that are due; a separate frame, so that no reference outlives it."""
        due = self._check_times.pop_due(self._clock.monotonic())
        for number, session in enumerate(due, 1):
            self._sweep_one(session)
            if number % _SWEEP_BATCH == 0:
                await asyncio.sleep(0)

    def _sweep_one(self, session: Session) -> None:
        try:
            self._sweep(session, self._clock.monotonic())
        except Exception:  # the loop restarts without this session
            self.end(session)
            raise
        if session in self._sessions:
            self._schedule_check(session)

    def _schedule_check(self, session: Session) -> None:
        """Schedule the next check of a session."""
        earliest = self._check_times.earliest()
        check_at = self._next_check(session, self._clock.monotonic())
        self._check_times.set(session, check_at)
        if earliest is None or check_at < earliest:
            self._sweeper_wakeup.set()

    def _next_check(self, session: Session, now: float) -> float:
        """Return when a session is to be checked next."""
        settings = self._settings
        if session.detached_at is not None:
            wait_s = settings.reply_grace_s if session.busy else settings.resume_s
            return max(session.detached_at + wait_s, now + _POLL_S)
        return now + (_PRUNE_S if session.principal.expires_at is None else _TOKEN_CHECK_S)

    def _sweep(self, session: Session, now: float) -> None:
        """Drop a session's expired events, and enforce its time limits."""
        session.client.prune()
        if session.detached_at is None:
            if not self._authority.still_valid(session.principal):
                self._expel(session, "token expired")
            return
        detached_s = now - session.detached_at
        if session.busy and detached_s >= self._settings.reply_grace_s:
            session.stop_reply()
        elif not session.busy and detached_s >= self._settings.resume_s:
            self.end(session)

    def _replace(self, session: Session) -> None:
        session.client.disconnect(REPLACED, "replaced by a newer connection")
        self.end(session, self._settings.reply_grace_s)

    def _expel(self, session: Session, reason: str) -> None:
        _log.info("session.expelled", session_id=session.id, reason=reason)
        session.client.disconnect(NOT_AUTHENTICATED, reason)
        self.end(session)

    def _end_longest_detached(self, sessions: Iterable[Session]) -> bool:
        """End the idle session that lost its connection first; return False if there is none."""
        detached = [
            (session.detached_at, session)
            for session in sessions
            if session.detached_at is not None
        ]
        idle = [(since, session) for since, session in detached if not session.busy]
        if not idle:
            return False
        self.end(min(idle, key=lambda entry: entry[0])[1])
        return True

    async def _close(self, session: Session, grace_s: float) -> None:
        deadline = self._clock.monotonic() + grace_s
        while session.busy and not self._stopping and self._clock.monotonic() < deadline:
            await self._clock.sleep(_POLL_S)
        try:
            await session.close()
        except ForemindError as error:
            _log.warning("session.not_closed", session_id=session.id, reason=error.code)
        _log.info("session.closed", session_id=session.id)

    def _release_place(self, user_id: str) -> None:
        """Release the place of a session that ended or never opened."""
        self._count -= 1
        self._count_by_user[user_id] -= 1
        if not self._count_by_user[user_id]:
            del self._count_by_user[user_id]

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.begin(work, name)

    def _all(self) -> list[Session]:
        return list(self._sessions)
