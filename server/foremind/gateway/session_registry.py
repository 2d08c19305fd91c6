"""The sessions of this process: lookup, announcements, limits and expiry."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Self

import structlog
from cachetools import LRUCache

from foremind.auth.access_tokens import CLOCK_SKEW_S
from foremind.auth.authority import Authority, token_revoked
from foremind.auth.principal import Principal
from foremind.cluster.freshness import RECONCILE_S, Freshness
from foremind.cluster.membership import Membership
from foremind.cluster.ring import Ring
from foremind.domain.announcements import (
    AccessRevoked,
    Announcement,
    MemoriesForgotten,
    SessionTaken,
)
from foremind.domain.clock import Clock
from foremind.domain.errors import Draining, ForemindError, Overloaded, StorageUnavailable
from foremind.domain.settings.settings import Settings
from foremind.gateway.event_stream import EventListener
from foremind.gateway.flow_control import UserBudget
from foremind.gateway.scene_session import SceneSession
from foremind.gateway.scenes import Scenes
from foremind.gateway.session import Session, SessionPhase
from foremind.gateway.session_client import DRAINING, NOT_ALLOWED, NOT_AUTHENTICATED, REPLACED
from foremind.gateway.session_sweeper import SessionSweeper
from foremind.llm.prompt.layout import PastTurn
from foremind.runtime.metrics import Metrics
from foremind.runtime.services import RuntimeServices
from foremind.runtime.supervision import SupervisedLoop, Supervisor, TaskSet

_MAX_ANNOUNCEMENTS = 4096  # of all relationships: which one it will be is not known yet


class PendingSession:
    """Announcements between a client's first message and its session, kept for that session.

    Data read from the database is as old as its query. An announcement that arrives after the query
    and before the session exists would otherwise be lost.
    """

    def __init__(self, principal: Principal) -> None:
        self.principal = principal
        #: Whether a place is reserved for the session.
        self.reserved = False
        self._announcements: list[Announcement] = []
        self._refusal: ForemindError | None = None

    def on_announcement(self, announcement: Announcement) -> None:
        """Record an announcement from this or another process."""
        if isinstance(announcement, AccessRevoked):
            principal = self.principal
            if announcement.covers(principal.user_id, principal.token_id, principal.issued_at):
                self.refuse(token_revoked())
        elif len(self._announcements) < _MAX_ANNOUNCEMENTS:
            self._announcements.append(announcement)
        else:
            self.refuse(StorageUnavailable("The session took too long to open; try again shortly."))

    def refuse(self, error: ForemindError) -> None:
        """Make the next `check` fail; the first error counts."""
        self._refusal = self._refusal or error

    def check(self) -> None:
        """Check that the session may still be opened; call after every wait.

        Raises:
            NotAuthenticated, StorageUnavailable, Draining: it may not.
        """
        if self._refusal is not None:
            raise self._refusal

    def take_erasures(self, relationship_id: int) -> list[MemoriesForgotten]:
        """Remove and return the erasures of a relationship announced since the last call."""
        erasures = [
            announcement
            for announcement in self._announcements
            if isinstance(announcement, MemoriesForgotten)
            and announcement.relationship_id == relationship_id
        ]
        self._announcements = [
            announcement for announcement in self._announcements if announcement not in erasures
        ]
        return erasures

    def take_announcements(self) -> list[Announcement]:
        """Remove and return the remaining announcements, in order."""
        announcements, self._announcements = self._announcements, []
        return announcements


class SessionPlaces:
    """Counts sessions, including places reserved for those that are being opened."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.total = 0
        self.by_user: Counter[str] = Counter()

    @property
    def full(self) -> bool:
        """Whether the server is at its session limit."""
        return self.total >= self._settings.max_sessions

    def full_for(self, user_id: str) -> bool:
        """Return whether a user is at the session limit."""
        return self.by_user[user_id] >= self._settings.max_sessions_per_user

    def take(self, user_id: str) -> None:
        """Reserve a place."""
        self.by_user[user_id] += 1
        self.total += 1

    def release(self, user_id: str) -> None:
        """Release the place of a session that ended or never opened."""
        self.total -= 1
        self.by_user[user_id] -= 1
        if not self.by_user[user_id]:
            del self.by_user[user_id]


class SessionIndex:
    """The open sessions, with or without a connection; each is a window with an id of its own."""

    def __init__(self) -> None:
        self._sessions: set[Session] = set()
        self._by_id: defaultdict[str, list[Session]] = defaultdict(list)
        self._by_relationship: defaultdict[int, set[Session]] = defaultdict(set)

    def __len__(self) -> int:
        return len(self._sessions)

    def __contains__(self, session: Session) -> bool:
        return session in self._sessions

    def add(self, session: Session) -> None:
        """Add a session."""
        self._sessions.add(session)
        self._by_id[session.id].append(session)
        self._by_relationship[session.relationship_id].add(session)

    def remove(self, session: Session) -> None:
        """Remove a session that is present."""
        self._sessions.discard(session)
        self._by_id[session.id].remove(session)
        if not self._by_id[session.id]:
            del self._by_id[session.id]
        group = self._by_relationship[session.relationship_id]
        group.discard(session)
        if not group:
            del self._by_relationship[session.relationship_id]

    def all(self) -> list[Session]:
        """Return all sessions."""
        return list(self._sessions)

    def relationships(self) -> list[int]:
        """Return the relationships with open sessions."""
        return list(self._by_relationship)

    def windows(self, session_id: str) -> list[Session]:
        """Return what is open under an id, in the order in which it was opened."""
        return list(self._by_id.get(session_id, ()))

    def others(self, session: Session) -> list[Session]:
        """Return the other windows of a relationship."""
        return list(self._by_relationship[session.relationship_id] - {session})

    def resumable(self, session_id: str, seq: int) -> Session | None:
        """Return the session to resume by a client that has its events up to `seq`.

        Prefer one that can replay the missed events, then one that lost its connection, then the
        newest: an id may be used twice for a moment.
        """
        known = self.windows(session_id)
        replayable = [session for session in known if session.client.can_replay_after(seq)]
        detached = [session for session in replayable if session.detached_at is not None]
        return next(reversed(detached or replayable or known), None)

    def concerned_by(self, announcement: Announcement) -> list[Session]:
        """Return every session that an announcement concerns, and perhaps others."""
        if isinstance(announcement, SessionTaken):
            return self.windows(announcement.session_id)
        relationship_id = getattr(announcement, "relationship_id", None)
        if relationship_id is not None:
            return list(self._by_relationship.get(relationship_id, ()))
        return self.all()


@dataclass(frozen=True, slots=True)
class SessionSnapshot:
    """A session as operators see it; `busy` while it answers a message."""

    session_id: str
    user: str
    companion: str
    connected: bool
    busy: bool


def snapshot_of(session: Session) -> SessionSnapshot:
    """Return a session as operators see it."""
    return SessionSnapshot(
        session.id,
        session.principal.effective_user_id,
        session.companion,
        session.phase is SessionPhase.CONNECTED,
        session.busy,
    )


_BUSY_POLL_S = 0.05  # between two looks whether sessions have finished
_MISSED_REVOCATIONS_S = 600.0  # age of those missed with the database connection
_MAX_SESSION_READS = 4  # so that mass reconnection leaves the database to open sessions
_MAX_USER_BUDGETS = 10_000  # whose rates are tracked

_log = structlog.get_logger("foremind.gateway")


class SessionRegistry:
    """Holds at most `max_sessions` sessions, including those that wait to be resumed.

    Active while entered; leaving it ends every session.
    """

    def __init__(
        self,
        runtime: RuntimeServices,
        authority: Authority,
        membership: Membership,
        scenes: Scenes,
    ) -> None:
        settings, clock = runtime.settings, runtime.clock
        #: The scenes of worlds that players of this process are in.
        self.scenes = scenes
        self._settings = settings
        self._authority = authority
        self._clock = clock
        self._metrics = runtime.metrics
        self._index = SessionIndex()
        self._places = SessionPlaces(settings)
        self._pending: set[PendingSession] = set()
        #: Sessions that a request over HTTP opened for its turn; nobody follows these in a log.
        self._single: set[Session] = set()
        #: Held while a session is read from the database.
        self.read_slots = asyncio.Semaphore(_MAX_SESSION_READS)
        self._user_budgets: LRUCache[str, UserBudget] = LRUCache(_MAX_USER_BUDGETS)
        self._tasks = TaskSet()
        self._sweeper = SessionSweeper(
            settings, authority, clock, runtime.supervisor, self.end, self._expel
        )
        #: Which gateways there are besides this one.
        self.membership = membership
        self.draining = False
        self._stopping = False

    async def __aenter__(self) -> Self:
        self._sweeper.start()
        self.scenes.triggers.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._sweeper.stop()
        for session in self._all():
            self.end(session)
        self._stopping = True
        await self._tasks.finish()
        await self.scenes.stop()

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

    def add_window(self, window: SceneSession, pending: PendingSession) -> None:
        """Let a window on a scene take the reserved place, until `remove_window`."""
        pending.reserved = False
        self.scenes.join(window)

    def remove_window(self, window: SceneSession) -> None:
        """Give the place of a window on a scene back."""
        self.scenes.leave(window)
        self._places.release(window.player)

    def add(self, session: Session, pending: PendingSession, *, for_one_turn: bool = False) -> None:
        """Add a session in its reserved place, and pass it the announcements made meanwhile."""
        pending.reserved = False
        self._index.add(session)
        if for_one_turn:
            self._single.add(session)
        session.on_turn = partial(self._share_turn, session)
        self._metrics.sessions.set(len(self._index))
        self._sweeper.schedule(session)
        for announcement in pending.take_announcements():
            self._pass_on(announcement, session)

    def detach(self, session: Session, listener: EventListener) -> None:
        """Detach a closed connection from its session."""
        session.detach(listener)
        if session in self._index:
            self._sweeper.schedule(session)

    def end(self, session: Session, grace_s: float = 0.0) -> None:
        """End a session in the background; a reply in progress may continue for `grace_s`.

        That is logged once for an id, which two of them may have for a moment.
        """
        if session not in self._index:
            return
        session.end()
        self._index.remove(session)
        single = session in self._single
        self._single.discard(session)
        logged = not single and self._single.issuperset(self._index.windows(session.id))
        self._sweeper.forget(session)
        self._places.release(session.principal.effective_user_id)
        self._metrics.sessions.set(len(self._index))
        self._tasks.begin(self._close(session, grace_s, logged=logged), "session-close")

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
        self.scenes.on_announcement(announcement)
        for session in self._index.concerned_by(announcement):
            self._pass_on(announcement, session)

    def _pass_on(self, announcement: Announcement, session: Session) -> None:
        session.on_announcement(announcement, self._tasks, partial(self._dismiss, session))

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
            session.drop_history()
        await self.apply_revocations(_MISSED_REVOCATIONS_S)

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
        self.scenes.close(DRAINING, "server draining")
        await self.membership.leave()
        while sessions := self._all():
            overdue = self._clock.monotonic() >= deadline
            for session in sessions:
                if overdue or session.finished:
                    self._hand_over(session)
            if len(self._index):
                await self._clock.sleep(_BUSY_POLL_S)

    def _hand_over(self, session: Session) -> None:
        """End a session here, and tell its client where it continues."""
        successor = self.membership.owner_elsewhere(session.key)
        if session.follows and successor is not None:
            self._metrics.redirects.labels("drain").inc()
            session.client.redirect(successor.url)
        session.client.disconnect(DRAINING, "server draining")
        self.end(session)

    def _dismiss(self, session: Session, code: int, reason: str) -> None:
        """End a session and its connection; one that is used elsewhere may end its reply."""
        if code == NOT_AUTHENTICATED:
            _log.info("session.expelled", session_id=session.id, reason=reason)
        session.client.disconnect(code, reason)
        self.end(session, self._settings.reply_grace_s if code == REPLACED else 0.0)

    def _expel(self, session: Session, reason: str) -> None:
        self._dismiss(session, NOT_AUTHENTICATED, reason)

    def _end_longest_detached(self, sessions: Iterable[Session]) -> bool:
        """End the idle session that lost its connection first; return False if there is none."""
        session = longest_detached(sessions)
        if session is None:
            return False
        self.end(session)
        return True

    async def _close(self, session: Session, grace_s: float, *, logged: bool) -> None:
        deadline = self._clock.monotonic() + grace_s
        while session.busy and not self._stopping and self._clock.monotonic() < deadline:
            await self._clock.sleep(_BUSY_POLL_S)
        try:
            await session.close()
        except ForemindError as error:
            _log.warning("session.not_closed", session_id=session.id, reason=error.code)
        if logged:
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


_HANDOVER_INTERVAL_S = 1.0
_MAX_MOVES = 20  # in an interval: each costs the new owner the reading of a session
_MOVED_IDLE_S = 10.0  # without a key: longer than any pause within a message
_HANDOVER_BATCH = 50  # sessions examined before the event loop runs other tasks


class Handover:
    """Tells the clients of idle sessions that another gateway owns to continue there.

    Only those that follow, and only once all gateways can be expected to agree on the owner. What
    moves is what a joining gateway takes over; an owner that has left was replaced at once, by the
    gateway that its clients reconnected to.
    """

    def __init__(self, registry: SessionRegistry, clock: Clock, metrics: Metrics) -> None:
        self._registry = registry
        self._clock = clock
        self._metrics = metrics
        self._placed: Ring | None = None  # under which every session is where it belongs

    def start(self, supervisor: Supervisor) -> SupervisedLoop:
        """Run until the loop is stopped."""
        return supervisor.every("handover", _HANDOVER_INTERVAL_S, self._move_some)

    async def _move_some(self) -> None:
        membership, now = self._registry.membership, self._clock.monotonic()
        ring = membership.ring
        if ring is self._placed or not membership.joined or not ring.settled(now):
            return
        misplaced = moved = 0
        for number, session in enumerate(self._registry.sessions(), 1):
            if number % _HANDOVER_BATCH == 0:
                await asyncio.sleep(0)
            owner = membership.owner_elsewhere(session.key) if _may_move(session) else None
            if owner is None:
                continue
            misplaced += 1
            if moved < _MAX_MOVES and session.finished and session.idle_s(now) >= _MOVED_IDLE_S:
                self._metrics.redirects.labels("move").inc()
                session.client.redirect(owner.url)
                moved += 1
        self._placed = None if misplaced else ring


def _may_move(session: Session) -> bool:
    return session.follows and not session.stays and session.phase is SessionPhase.CONNECTED


# Revocations carry the time of the process that made them, whose clock may be behind this one.
_REVOKED_WITHIN_S = 4 * RECONCILE_S + CLOCK_SKEW_S


class Reconciliation:
    """Bounds how long an open session goes without what nobody announced; runs while entered."""

    def __init__(
        self, freshness: Freshness, registry: SessionRegistry, supervisor: Supervisor
    ) -> None:
        self._freshness = freshness
        self._registry = registry
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.every("reconciliation", RECONCILE_S, self.reconcile)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()

    async def reconcile(self) -> None:
        """Compare versions, and apply revocations."""
        relationships = self._registry.open_relationships()
        if not relationships:
            return
        try:
            await self._freshness.reconcile(relationships)
            await self._registry.apply_revocations(_REVOKED_WITHIN_S)
        except StorageUnavailable as error:  # then versions are compared before each use
            _log.warning("reconciliation.failed", reason=error.code)
