"""What carries announcements between server processes, and what receives them here."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec
import structlog

from foremind.domain.announcements import Announcement
from foremind.runtime.metrics import Metrics

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
