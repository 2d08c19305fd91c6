"""Receives what server processes announce, by LISTEN on a connection of its own."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

import msgspec
import structlog

from foremind.domain.announcements import (
    AccessRevoked,
    CompanionChanged,
    ConsentGiven,
    LayersChanged,
    LibraryChanged,
    MemoriesChanged,
    MemoriesForgotten,
    MemoryAnnouncement,
    ReplyStored,
    SessionTaken,
    SettingsChanged,
    StateChanged,
    UserErased,
)
from foremind.domain.clock import Clock
from foremind.domain.errors import StorageUnavailable
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.database import connect_as_server
from foremind.storage.failure_classes import errors_translated
from foremind.storage.named_queries import load_queries
from foremind.storage.presence import KEEPALIVES, Presence

Announcement = (
    MemoryAnnouncement
    | MemoriesChanged
    | MemoriesForgotten
    | LayersChanged
    | LibraryChanged
    | CompanionChanged
    | SettingsChanged
    | AccessRevoked
    | SessionTaken
    | ReplyStored
    | UserErased
    | ConsentGiven
    | StateChanged
)

_CHANNEL = "foremind_memory"
_CONNECT_S = 10.0
_PING_S = 10.0  # a connection may break without any sign
_MAX_SILENCE_S = 60.0

_log = structlog.get_logger("foremind.storage")


class NotificationListener:
    """Passes on announcements, and catches up after a lost connection.

    Its connection also holds the lock that shows other processes that this one is alive.

    Args:
        on_announcement: called in order with each announcement.
        on_gap: awaited in order after a lost connection, as announcements may have been missed.
    """

    def __init__(
        self,
        url: str,
        on_announcement: Sequence[Callable[[Announcement], None]],
        on_gap: Sequence[Callable[[], Awaitable[None]]],
        clock: Clock,
        supervisor: Supervisor,
        presence: Presence,
    ) -> None:
        self._presence = presence
        self._url = url
        self._on_announcement = on_announcement
        self._on_gap = on_gap
        self._clock = clock
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None
        self._missed = False  # whether announcements may have been missed

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("notifications", self._listen, silent_s=_MAX_SILENCE_S)
        await self._loop.begun()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()

    async def _listen(self, loop: SupervisedLoop) -> None:
        with errors_translated():
            connection = await connect_as_server(
                self._url,
                timeout=_CONNECT_S,
                command_timeout=_CONNECT_S,
                server_settings=KEEPALIVES,
            )
            try:
                await self._presence.begin(connection)
                await self._receive(connection, loop)
            finally:
                self._presence.end()
                connection.terminate()

    async def _receive(self, connection: Any, loop: SupervisedLoop) -> None:
        wake = asyncio.Event()
        failures: list[Exception] = []

        def received(_connection: Any, _pid: int, _channel: str, payload: str) -> None:
            try:
                self._pass_on(payload)
            except Exception as error:  # asyncpg would only log it
                failures.append(error)
                wake.set()

        connection.add_termination_listener(lambda _: wake.set())
        await connection.add_listener(_CHANNEL, received)
        if self._missed:
            for catch_up in self._on_gap:
                await catch_up()
        self._missed = True  # from here on, whenever this connection ends
        while not failures and not connection.is_closed():
            wake.clear()
            loop.well()
            timer = self._clock.call_at(self._clock.monotonic() + _PING_S, wake.set)
            try:
                await wake.wait()
            finally:
                timer.cancel()
            await connection.execute(load_queries()["ping"])
        if failures:
            raise failures[0]
        raise StorageUnavailable("The connection that receives announcements was lost.")

    def _pass_on(self, payload: str) -> None:
        try:
            announcement = msgspec.json.decode(payload, type=Announcement)
        except msgspec.DecodeError:  # a type that this version does not know
            _log.warning("notifications.unknown", bytes=len(payload))
            return
        for listener in self._on_announcement:
            listener(announcement)
