"""Whether the database takes writes, tried now and then by really writing."""

import asyncio
from typing import Any, Self

import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import StorageUnavailable
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.database import Database, connect_as_server
from foremind.storage.failure_classes import errors_translated
from foremind.storage.named_queries import load_queries

_EVERY_S = 5.0
_EVERY_ILL_S = 1.0  # sooner, for others wait for it to be over
_YOUNG_S = 1.0  # an outcome as old as that is told again: however many ask, it is tried no oftener
_PATIENCE_S = 5.0

_READ_ONLY = "The database takes no writes: it is read-only."

_log = structlog.get_logger("foremind.storage")


class DatabaseProbe:
    """Tries the database on a connection made for it, as the next one of the pool would be.

    It sees a read-only database, a full disk, a commit that hangs and a server that is gone. When
    what it finds changes, the pool's connections are made anew, which may have been made when the
    database was another's standby; when all is well again, whatever waits to be restarted is.
    """

    def __init__(self, database: Database, supervisor: Supervisor, clock: Clock) -> None:
        self._database = database
        self._supervisor = supervisor
        self._clock = clock
        self._loop: SupervisedLoop | None = None
        self._look = asyncio.Event()
        self._looked = asyncio.Event()
        self._looked_at = float("-inf")
        self._trouble: str | None = None

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("database-probe", self._run)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()

    async def outcome(self) -> str | None:
        """Return what is wrong with the database, None where nothing is; at most seconds old."""
        if self._looked.is_set() and self._clock.monotonic() - self._looked_at > _YOUNG_S:
            self._looked.clear()
            self._look.set()
        await self._looked.wait()
        return self._trouble

    async def _run(self, loop: SupervisedLoop) -> None:
        while True:
            trouble = await self._tried()
            await self._learn(trouble)
            self._looked_at = self._clock.monotonic()
            self._looked.set()
            loop.well()
            pause = _EVERY_S if trouble is None else _EVERY_ILL_S
            timer = self._clock.call_at(self._looked_at + pause, self._look.set)
            try:
                await self._look.wait()
            finally:
                timer.cancel()
            self._look.clear()
            self._looked.clear()

    async def _learn(self, trouble: str | None) -> None:
        before, self._trouble = self._trouble, trouble
        if before == trouble:
            return
        await self._database.replace_connections()
        if trouble is None:
            _log.info("database.well")
            self._supervisor.try_again()
        else:
            _log.error("database.ill", reason=trouble)

    async def _tried(self) -> str | None:
        try:
            with errors_translated():
                async with asyncio.timeout(_PATIENCE_S):
                    raw = await connect_as_server(self._database.url)
                    try:
                        return await _written_on(raw)
                    finally:
                        raw.terminate()
        except StorageUnavailable as error:
            return error.message


async def _written_on(raw: Any) -> str | None:
    queries = load_queries()
    if not await raw.fetchval(queries["takes_writes"]):
        return _READ_ONLY
    await raw.execute("SET work_mem = '64kB'")  # so that the megabyte goes to the disk
    await raw.execute(queries["write_a_little"])
    return None
