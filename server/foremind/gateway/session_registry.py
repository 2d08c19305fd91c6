"""The sessions of this process: lookup, announcements, limits and expiry."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Self

import structlog
from cachetools import LRUCache

from foremind.auth.authority import Authority
from foremind.auth.principal import Principal
from foremind.cluster.membership import Membership
from foremind.domain.announcements import (
    Announcement,
)
from foremind.domain.clock import Clock
from foremind.domain.errors import Draining, ForemindError, Overloaded, StorageUnavailable
from foremind.domain.settings.settings import Settings
from foremind.gateway.announcement_dispatch import AnnouncementDispatch
from foremind.gateway.event_stream import EventListener
from foremind.gateway.flow_control import UserBudget
from foremind.gateway.pending_session import PendingSession
from foremind.gateway.session import Session
from foremind.gateway.session_client import DRAINING, NOT_ALLOWED, NOT_AUTHENTICATED, REPLACED
from foremind.gateway.session_index import SessionIndex
from foremind.gateway.session_places import SessionPlaces
from foremind.gateway.session_snapshot import SessionSnapshot, snapshot_of
from foremind.gateway.session_sweeper import SessionSweeper
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor, TaskSet

_POLL_S = 0.05
_CATCH_UP_S = 600.0  # age of revocations that may have been missed with the database connection
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
        self._index = SessionIndex()
        self._places = SessionPlaces(settings)
        self._pending: set[PendingSession] = set()
        #: Held while a session is read from the database.
        self.read_slots = asyncio.Semaphore(_MAX_CONCURRENT_READS)
        self._user_budgets: LRUCache[str, UserBudget] = LRUCache(_MAX_USERS)
        self._tasks = TaskSet()
        self._sweeper = SessionSweeper(
            settings, authority, clock, supervisor, self.end, self._expel
        )
        self._announcements = AnnouncementDispatch(
            self.end, self._replace, self._expel, self._tasks
        )
        #: Which gateways there are besides this one.
        self.membership = membership
        self.draining = False
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._sweeper.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sweeper.stop()
        for session in self._all():
            self.end(session)
        self._stopping = True
        await self._tasks.finish()

    def is_draining(self) -> bool:
        """Return whether new sessions are refused because the server is about to stop."""
        return self.draining

    def find(self, session_id: str, seq: int) -> Session | None:
        """Return the session to resume by a client that has its events up to `seq`."""
        return self._index.resumable(session_id, seq)

    def user_budget(self, user_id: str) -> UserBudget:
        """Return the rate budget of a user over all its connections."""
        budget = self._user_budgets.get(user_id)
        if budget is None:
            budget = self._user_budgets[user_id] = UserBudget(self._settings)
        return budget

    def is_open(self, session: Session) -> bool:
        """Return whether a session is open, with or without a connection."""
        return session in self._index

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
                self._places.release(principal.effective_user_id)

    def reserve(self, pending: PendingSession) -> None:
        """Reserve a place for a session, if need be by ending one that lost its connection.

        Raises:
            Overloaded: the server, or this user, is at its session limit.
        """
        user_id = pending.principal.effective_user_id
        if self._places.full_for(user_id) and not self._end_longest_detached(
            session for session in self._all() if session.principal.effective_user_id == user_id
        ):
            limit = self._settings.max_sessions_per_user
            raise Overloaded(f"At most {limit} sessions of a user may be open.")
        if self._places.full and not self._end_longest_detached(self._all()):
            raise Overloaded("The server is at its session limit; try again shortly.")
        self._places.take(user_id)
        pending.reserved = True

    def add(self, session: Session, pending: PendingSession) -> None:
        """Add a session in its reserved place, and pass it the announcements made meanwhile."""
        pending.reserved = False
        self._index.add(session)
        session.on_turn = partial(self._share_turn, session)
        self._metrics.sessions.set(len(self._index))
        self._sweeper.schedule(session)
        for announcement in pending.take_announcements():
            self._announcements.dispatch(announcement, [session])

    def detach(self, session: Session, listener: EventListener) -> None:
        """Detach a closed connection from its session."""
        session.detach(listener)
        if session in self._index:
            self._sweeper.schedule(session)

    def end(self, session: Session, grace_s: float = 0.0) -> None:
        """End a session in the background; a reply in progress may continue for `grace_s`."""
        if session not in self._index:
            return
        self._index.remove(session)
        self._sweeper.forget(session)
        self._places.release(session.principal.effective_user_id)
        self._metrics.sessions.set(len(self._index))
        self._tasks.begin(self._close(session, grace_s), "session-close")

    def sessions(self) -> list[Session]:
        """Return all sessions of this process, with or without a connection."""
        return self._all()

    def snapshots(self) -> list[SessionSnapshot]:
        """Return snapshots of all sessions of this process, for the operator."""
        return [snapshot_of(session) for session in self._all()]

    def dismiss(self, session_id: str) -> bool:
        """End a session and its connection, for the operator; return False if there is none."""
        known = self._index.windows(session_id)
        for session in known:
            session.client.disconnect(NOT_ALLOWED, "closed by the operator")
            self.end(session)
        return bool(known)

    def on_announcement(self, announcement: Announcement) -> None:
        """Pass an announcement of this or another process to the sessions that it concerns."""
        for pending in self._pending:
            pending.on_announcement(announcement)
        concerned = self._index.concerned_by(announcement)
        self._announcements.dispatch(announcement, concerned)

    def _share_turn(self, session: Session, turn: PastTurn) -> None:
        """Pass a new turn of one window to the others, and tell their clients."""
        assert turn.id is not None
        for other in self._index.others(session):
            other.windows.add_turn(turn, session.stored_id)
            self._tasks.begin(other.windows.report([turn.id], session.stored_id), "report-turn")

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
        return self._index.relationships()

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
            if len(self._index):
                await self._clock.sleep(_POLL_S)

    def _hand_over(self, session: Session) -> None:
        """End a session here, and tell its client where it continues."""
        successor = self.membership.owner_elsewhere(session.key)
        if session.follows and successor is not None:
            self._metrics.redirects.labels("drain").inc()
            session.client.redirect(successor.url)
        session.client.disconnect(DRAINING, "server draining")
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
        session = longest_detached(sessions)
        if session is None:
            return False
        self.end(session)
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

    def _all(self) -> list[Session]:
        return self._index.all()


def longest_detached(sessions: Iterable[Session]) -> Session | None:
    """Return the idle session that lost its connection first, None if there is none. Pure."""
    since = [
        (session.detached_at, session)
        for session in sessions
        if session.detached_at is not None and not session.busy
    ]
    return min(since, key=lambda entry: entry[0])[1] if since else None
