"""Moves idle sessions to the gateways that own them, after gateways have come or gone."""

import asyncio

from foremind.cluster.ring import Ring
from foremind.domain.clock import Clock
from foremind.gateway.session import Session
from foremind.gateway.session_registry import SessionRegistry
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor

_INTERVAL_S = 1.0
_MAX_MOVES = 20  # in an interval: each costs the new owner the reading of a session
_IDLE_S = 10.0  # without a key: longer than any pause within a message
_BATCH = 50  # sessions examined before the event loop runs other tasks


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
        return supervisor.every("handover", _INTERVAL_S, self._move_some)

    async def _move_some(self) -> None:
        membership, now = self._registry.membership, self._clock.monotonic()
        ring = membership.ring
        if ring is self._placed or not membership.joined or not ring.settled(now):
            return
        misplaced = moved = 0
        for number, session in enumerate(self._registry.sessions(), 1):
            if number % _BATCH == 0:
                await asyncio.sleep(0)
            owner = membership.owner_elsewhere(session.key) if _may_move(session) else None
            if owner is None:
                continue
            misplaced += 1
            if moved < _MAX_MOVES and session.finished and session.idle_s(now) >= _IDLE_S:
                self._metrics.redirects.labels("move").inc()
                session.client.redirect(owner.url)
                moved += 1
        self._placed = None if misplaced else ring


def _may_move(session: Session) -> bool:
    return session.follows and not session.stays and session.detached_at is None
