"""Which gateways are alive: read from the database about once a second, and whether this is one."""

import asyncio

import structlog

from foremind.cluster.ring import Gateway, Ring
from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.presence import GatewayStore

_POLL_S = 1.0
_LEAVE_S = 1.5  # until the other gateways have polled

_log = structlog.get_logger("foremind.cluster")


class Membership:
    """This process's place among the gateways of its database.

    Until it joins, a process serves every session that it is asked for, and reads nothing. Gateways
    may differ for a moment on who is alive, and then on who owns a relationship: that costs memory
    or a connection, never correctness.
    """

    def __init__(self, store: GatewayStore, clock: Clock, supervisor: Supervisor) -> None:
        self._store = store
        self._clock = clock
        self._supervisor = supervisor
        self._own: Gateway | None = None
        self._leaving = False
        self._conflict: int | None = None  # the presence of another process of this name
        self._writing = asyncio.Lock()  # so that no poll undoes that this process leaves
        #: The gateways as of the latest poll.
        self.ring = Ring()

    @property
    def joined(self) -> bool:
        """Whether this process has joined, and not begun to leave."""
        return self._own is not None and not self._leaving

    async def join(self, gateway: Gateway) -> SupervisedLoop:
        """Tell the others where this process is, and follow who is alive until the loop is stopped.

        Returns once the ring has been read for the first time.
        """
        self._own = gateway
        loop = self._supervisor.every("membership", _POLL_S, self._poll)
        await loop.wait_until_started()
        _log.info("gateway.joined", gateway=gateway.name, gateways=len(self.ring.urls))
        return loop

    async def leave(self) -> None:
        """Own nothing from now on; returns once the others can be expected to know."""
        if self._own is None or self._leaving:
            return
        self._leaving = True
        self.ring = self._without_self()
        try:
            async with self._writing:
                await self._store.drain(self._own.name)
        except ForemindError as error:  # then they notice when this process ends
            _log.warning("gateway.left_silently", reason=error.code)
        if self.ring.urls:
            await self._clock.sleep(_LEAVE_S)
        _log.info("gateway.left", gateway=self._own.name)

    def owner_elsewhere(self, key: bytes) -> Gateway | None:
        """Return the other gateway that owns a relationship; None if it is this one or unknown."""
        owner = self.ring.owner(key)
        return None if owner is None or owner == self._own else owner

    async def _poll(self) -> None:
        async with self._writing:
            gateways = await self._read()
        before, self.ring = self.ring, self.ring.updated(gateways, self._clock.monotonic())
        if before is not self.ring:
            _log.info("gateways.changed", gateways=sorted(self.ring.urls))

    async def _read(self) -> list[Gateway]:
        """Return the gateways that accept sessions, having recorded this one among them."""
        assert self._own is not None
        alive = await self._store.alive()
        presence = self._store.presence.number
        recorded = next((found for found in alive if found.name == self._own.name), None)
        others = [
            Gateway(found.name, found.url)
            for found in alive
            if not found.draining and found.name != self._own.name
        ]
        if self._leaving or presence is None:
            return others
        if recorded is None or recorded.presence != presence or recorded.draining:
            if recorded is not None and not recorded.draining:
                self._report_conflict(recorded.presence)
            await self._store.put(self._own.name, self._own.url, presence)
        return [*others, self._own]

    def _without_self(self) -> Ring:
        others = [
            Gateway(name, url)
            for name, url in self.ring.urls.items()
            if self._own is None or name != self._own.name
        ]
        return self.ring.updated(others, self._clock.monotonic())

    def _report_conflict(self, presence: int) -> None:
        """Warn once of each other process that has this one's name."""
        if presence != self._conflict:
            _log.warning("gateway.name_taken", expected="a FOREMIND_GATEWAY_NAME of its own")
        self._conflict = presence
