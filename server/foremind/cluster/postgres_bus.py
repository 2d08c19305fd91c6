"""Announcements through PostgreSQL: NOTIFY inside the transaction, LISTEN on a connection.

A commit that carries NOTIFY waits for a lock of the whole database server, so where many processes
write, NATS is quicker (`cluster/nats_bus`).
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import msgspec

from foremind.cluster.announcement_bus import AnnouncementReceiver
from foremind.domain.clock import Clock
from foremind.domain.health import OK, degraded
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.database import MAX_SILENCE_S, hold_connection, quoted

_CHANNEL = "foremind_announcements"


class PostgresBus:
    """Publishes with the commit: what is announced is never lost while a process listens.

    What this process announces it handles at once, and its own notifications are skipped.

    Args:
        url: of the database.
    """

    def __init__(self, url: str, clock: Clock, metrics: Metrics, supervisor: Supervisor) -> None:
        self._url = url
        self._clock = clock
        self._metrics = metrics
        self._supervisor = supervisor
        #: Whether announcements arrive, and all that were missed have been found.
        self.trusted = False
        self._began = False
        self._publisher = uuid4().hex
        self._receiver: AnnouncementReceiver | None = None
        self._fail: Callable[[Exception], None] = lambda _: None  # ends the listening connection

    async def commit(self, raw: Any, announcements: Sequence[msgspec.Struct]) -> None:
        """Commit a transaction, which publishes what it announces."""
        encoded = [msgspec.json.encode(announcement).decode() for announcement in announcements]
        payloads = [quoted(f"{self._publisher} {announcement}") for announcement in encoded]
        told = [f"NOTIFY {_CHANNEL}, {payload}" for payload in payloads]
        await raw.execute("; ".join([*told, "COMMIT"]))  # in one round trip
        self._metrics.announcements.labels("published").inc(len(encoded))
        for announcement in encoded:
            self._handle(announcement, own=True)

    @asynccontextmanager
    async def receiving(self, receiver: AnnouncementReceiver) -> AsyncIterator[None]:
        """Listen, and catch up after a lost connection."""
        self._receiver = receiver
        loop = self._supervisor.start("notifications", self._listen, max_silence_s=MAX_SILENCE_S)
        try:
            await loop.wait_until_started()
            yield
        finally:
            self._receiver = None
            await loop.stop()

    def health(self) -> dict[str, str]:
        """Return whether this process listens at the moment."""
        outcome = OK if self.trusted else degraded("not listening, reading versions instead")
        return {"announcements": outcome}

    async def _listen(self, loop: SupervisedLoop) -> None:
        try:
            await hold_connection(self._url, self._clock, loop, self._begin)
        finally:
            self.trusted = False

    async def _begin(self, connection: Any, fail: Callable[[Exception], None]) -> None:
        self._fail = fail
        await connection.add_listener(_CHANNEL, self._on_notification)
        if self._began and self._receiver is not None:
            self._metrics.announcements.labels("gap").inc()
            await self._receiver.catch_up()
        self._began = True
        self.trusted = True

    def _on_notification(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        publisher, _, announcement = payload.partition(" ")
        if publisher != self._publisher:
            self._handle(announcement, own=False)

    def _handle(self, announcement: str, *, own: bool) -> None:
        """Pass an announcement on; if that fails, what it should have told is read."""
        if self._receiver is None:
            return
        try:
            self._receiver.deliver_encoded(announcement, own=own)
        except Exception as error:  # a defect in a listener; the transaction is committed anyway
            self.trusted = False
            self._fail(error)
