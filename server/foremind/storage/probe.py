"""Checks regularly that the database accepts writes, by writing."""

import asyncio
from typing import Any, Self

import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import StorageUnavailable
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.database import Database, connect_as_server, translate_errors
from foremind.storage.named_queries import load_queries

_INTERVAL_S = 5.0
_FAILING_INTERVAL_S = 1.0  # others wait for the database to recover
_MAX_AGE_S = 1.0  # of an outcome; limits how often the database is probed, however many ask
_TIMEOUT_S = 5.0

_READ_ONLY = "The database accepts no writes: it is read-only."

_log = structlog.get_logger("foremind.storage")


class DatabaseProbe:
    """Probes the database on a fresh connection, like the next one of the pool.

    Detects a read-only database, a full disk, a hanging commit and an unreachable server. When the
    outcome changes, the pool's connections are replaced, as they may lead to a former standby. On
    recovery, everything that waits to be restarted is restarted.

    It also notices that the database has another embedding model by now.
    """

    def __init__(self, database: Database, supervisor: Supervisor, clock: Clock) -> None:
        self._database = database
        self._supervisor = supervisor
        self._clock = clock
        self._loop: SupervisedLoop | None = None
        self._wake = asyncio.Event()
        self._probed = asyncio.Event()
        self._probed_at = float("-inf")
        self._problem: str | None = None
        self._model: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def __aenter__(self) -> Self:
        self._loop = self._supervisor.start("database-probe", self._run)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._loop is not None:
            await self._loop.stop()

    async def outcome(self) -> str | None:
        """Return what is wrong with the database, or None; an outcome older than 1 s is renewed."""
        if self._probed.is_set() and self._clock.monotonic() - self._probed_at > _MAX_AGE_S:
            self._probed.clear()
            self._wake.set()
        await self._probed.wait()
        return self._problem

    async def replaced_model(self) -> str:
        """Wait until the database has another model than this process; return its name."""
        return await asyncio.shield(self._model)

    async def _run(self, loop: SupervisedLoop) -> None:
        while True:
            problem = await self._probe()
            await self._update(problem)
            self._probed_at = self._clock.monotonic()
            self._probed.set()
            loop.report_progress()
            interval = _INTERVAL_S if problem is None else _FAILING_INTERVAL_S
            timer = self._clock.call_at(self._probed_at + interval, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()
            self._wake.clear()
            self._probed.clear()

    async def _update(self, problem: str | None) -> None:
        before, self._problem = self._problem, problem
        if before == problem:
            return
        await self._database.replace_connections()
        if problem is None:
            _log.info("database.well")
            self._supervisor.restart_now()
        else:
            _log.error("database.ill", reason=problem)

    async def _probe(self) -> str | None:
        try:
            with translate_errors():
                async with asyncio.timeout(_TIMEOUT_S):
                    raw = await connect_as_server(self._database.url)
                    try:
                        await self._look_at_model(raw)
                        return await _write(raw)
                    finally:
                        raw.terminate()
        except StorageUnavailable as error:
            return error.message

    async def _look_at_model(self, raw: Any) -> None:
        owner = await raw.fetchrow(load_queries()["embedding_model"])
        known = owner is None or owner["fingerprint"] == self._database.fingerprint
        if not known and not self._model.done():
            self._model.set_result(owner["name"])


async def _write(raw: Any) -> str | None:
    queries = load_queries()
    if not await raw.fetchval(queries["is_writable"]):
        return _READ_ONLY
    await raw.execute("SET work_mem = '64kB'")  # so that the megabyte is written to disk
    await raw.execute(queries["probe_write"])
    return None
