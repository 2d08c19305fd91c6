"""What carries announcements between server processes, and what receives them here."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol
from uuid import uuid4

import msgspec
import structlog

from foremind.domain.announcements import Announcement
from foremind.domain.clock import Clock
from foremind.domain.health import OK, degraded
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.database import MAX_SILENCE_S, hold_connection, quoted

_CHANNEL = "foremind_announcements"


_log = structlog.get_logger("foremind.cluster")


class AnnouncementBus(Protocol):
    """Carries what committed transactions announce to every process, this one included.

    Announcements of one process arrive in their order. Some may be lost: `trusted` tells whether
    this process knows of everything that it was told, and `AnnouncementReceiver.catch_up` finds out
    what it was not.
    """

    @property
    def trusted(self) -> bool:
        """Whether announcements arrive, and all that were missed have been found."""

    async def commit(self, raw: Any, announcements: Sequence[msgspec.Struct]) -> None:
        """Commit the transaction of a connection, and publish what it announces."""

    def receiving(self, receiver: "AnnouncementReceiver") -> AbstractAsyncContextManager[object]:
        """Return a context in which announcements are passed to `receiver`."""

    def health(self) -> dict[str, str]:
        """Return whether announcements arrive at the moment, and why not."""


class AnnouncementReceiver:
    """Passes announcements to their listeners, in order.

    Args:
        listeners: called with each announcement.
        hint: called with each announcement of another process; returns whether it takes it, to
            pass on what the database confirms of it.
        catch_up: awaited when announcements may have been missed; finds out which.
    """

    def __init__(
        self,
        listeners: Sequence[Callable[[Announcement], None]],
        hint: Callable[[Announcement], bool],
        catch_up: Callable[[], Awaitable[None]],
        metrics: Metrics,
    ) -> None:
        self._listeners = listeners
        self._hint = hint
        self.catch_up = catch_up
        self._metrics = metrics

    def deliver(self, announcement: Announcement) -> None:
        """Pass an announcement to every listener."""
        for listener in self._listeners:
            listener(announcement)

    def deliver_encoded(self, payload: bytes | str, *, own: bool) -> None:
        """Decode an announcement and pass it on; one that this version does not know is skipped.

        Args:
            own: this process committed what it announces. Of others it is a reason to look.
        """
        self._metrics.announcements.labels("received").inc()
        try:
            announcement = msgspec.json.decode(payload, type=Announcement)
        except msgspec.DecodeError:
            _log.warning("announcement.unknown", bytes=len(payload))
            return
        if own or not self._hint(announcement):
            self.deliver(announcement)


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
