"""What other server processes stored, heard through LISTEN on a connection of its own."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self, TypeGuard

import asyncpg
import msgspec
import structlog

from foremind.clock import Clock
from foremind.errors import StorageUnavailable
from foremind.storage.database import connect_as_server
from foremind.storage.documents import LibraryChanged
from foremind.storage.forgetting import MemoriesForgotten
from foremind.storage.records import LayersChanged
from foremind.storage.remembering import MemoryAnnouncement
from foremind.storage.revocations import AccessRevoked
from foremind.storage.turns import ReplyStored, SessionTaken

Announcement = (
    MemoryAnnouncement
    | MemoriesForgotten
    | LayersChanged
    | LibraryChanged
    | AccessRevoked
    | SessionTaken
    | ReplyStored
)

_CHANNEL = "foremind_memory"
_LOST = (
    OSError,
    TimeoutError,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    StorageUnavailable,
)
_RECONNECT_S = 1.0

_log = structlog.get_logger("foremind.notifications")


def forgets(
    announcement: Announcement,
) -> TypeGuard[MemoriesForgotten | LayersChanged]:
    """Tell whether something was forgotten that nothing may hold any longer."""
    return isinstance(announcement, MemoriesForgotten) or (
        isinstance(announcement, LayersChanged) and announcement.forgotten
    )


class MemoryListener:
    """Calls `on_announcement` for what is judged, forgotten or curated.

    And `on_gap` after a lost connection. Of each, one after the other, in order.
    """

    def __init__(
        self,
        url: str,
        on_announcement: Sequence[Callable[[Announcement], None]],
        on_gap: Sequence[Callable[[], Awaitable[None]]],
        clock: Clock,
    ) -> None:
        self._url = url
        self._on_announcement = on_announcement
        self._on_gap = on_gap
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        listening = asyncio.Event()
        self._task = asyncio.create_task(self._run(listening), name="memory-listener")
        await listening.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self, listening: asyncio.Event) -> None:
        while True:
            try:
                await self._listen(listening)
            except _LOST as error:  # also while catching up: that is done again then
                _log.warning("notifications.lost", reason=type(error).__name__)
            await self._clock.sleep(_RECONNECT_S)

    async def _listen(self, listening: asyncio.Event) -> None:
        lost = asyncio.Event()
        connection = await connect_as_server(self._url, timeout=10)
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(_CHANNEL, self._received)
            if listening.is_set():
                for catch_up in self._on_gap:
                    await catch_up()
            listening.set()
            await lost.wait()
        finally:
            connection.terminate()

    def _received(self, _connection: Any, _pid: int, _channel: str, payload: str) -> None:
        announcement = msgspec.json.decode(payload, type=Announcement)
        for hear in self._on_announcement:
            hear(announcement)
