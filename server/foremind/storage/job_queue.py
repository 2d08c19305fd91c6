"""Durable jobs on pgqueuer: enqueued with the turn, run at least once by any server process."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

import anyio.lowlevel
import asyncpg
import structlog
from pgqueuer.adapters.drivers.asyncpg import AsyncpgPoolDriver
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.errors import RetryRequested
from pgqueuer.domain.models import Job
from pgqueuer.queries import Queries

from foremind.domain.clock import Clock
from foremind.domain.errors import StorageUnavailable
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.database import Database
from foremind.storage.failure_classes import errors_translated

REMEMBER_TURN = "remember_turn"
RATE_TURN = "rate_turn"
# A worker is presumed dead after this long without a heartbeat, and its jobs run elsewhere.
_HEARTBEAT = timedelta(seconds=10)
_POLL = timedelta(seconds=5)  # only a safety net: new jobs are notified
_BATCH = 8
# Concurrent jobs of all processes together; unlimited if not listed. Ratings may wait long for a
# language model and must not keep ingest from running.
_CONCURRENCY_LIMITS = {RATE_TURN: 4}
_MAX_ATTEMPTS = 12  # with doubling delays from 1 s, over an hour; then the job is held
_RETRY_PING_S = 1.0
_MAX_SILENCE_S = 60.0  # between two polls of the queue
_REQUEUE_S = 10.0
_PRUNE_S = 3600.0
_PRUNE_BATCH_SIZE = 10_000  # rows per statement, so that each stays short
_STOP_S = 10.0

_log = structlog.get_logger("foremind.storage")


class JobWorker:
    """Runs jobs until the block ends, then finishes those in progress.

    If the database fails, the worker is restarted. A failing job is retried with exponential
    backoff, then held with status `failed` for an operator. The queue's log is kept for a week, at
    most a million rows.

    Args:
        jobs: by name, functions of relationship id and turn id.
    """

    def __init__(
        self,
        database: Database,
        jobs: Mapping[str, Callable[[int, int], Awaitable[object]]],
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._clock = clock
        self._manager: QueueManager | None = None
        self._supervisor = supervisor
        self._loop: SupervisedLoop | None = None
        self._maintenance: list[SupervisedLoop] = []

    async def __aenter__(self) -> Self:
        await anyio.lowlevel.checkpoint()  # imports what the first job needs
        every = self._supervisor.every
        self._loop = self._supervisor.start("jobs", self._run, silent_s=_MAX_SILENCE_S)
        self._maintenance = [
            every("jobs-requeue", _REQUEUE_S, self._requeue),
            every("jobs-log", _PRUNE_S, self._prune),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._maintenance:
            await task.stop()
        if self._loop is not None:
            if self._manager is not None:
                self._manager.shutdown.set()
            await self._loop.finish(_STOP_S)

    async def _run(self, loop: SupervisedLoop) -> None:
        queries = _ListeningQueries(PoolDriver(self._database.pool), loop=loop)
        self._manager = manager = QueueManager(queries)
        for name in self._jobs:
            limit = _CONCURRENCY_LIMITS.get(name, 0)  # 0: unlimited
            manager.entrypoint(name, on_failure="hold", concurrency_limit=limit)(self._handle)
        with errors_translated():
            await manager.run(
                dequeue_timeout=_POLL,
                batch_size=_BATCH,
                max_concurrent_tasks=2 * _BATCH,
                heartbeat_timeout=_HEARTBEAT,
            )

    async def _handle(self, job: Job) -> None:
        relationship_id, turn_id = map(int, (job.payload or b"0:0").split(b":"))
        try:
            await self._jobs[job.entrypoint](relationship_id, turn_id)
        except Exception as error:
            _log.warning(
                "jobs.failed", turn_id=turn_id, attempt=job.attempts, reason=type(error).__name__
            )
            # The retry is recorded in the database; if that fails, the job is held for good.
            await self._wait_for_database()
            if job.attempts >= _MAX_ATTEMPTS:
                raise
            raise RetryRequested(timedelta(seconds=2**job.attempts)) from None

    async def _requeue(self) -> None:
        """Requeue jobs that are held with attempts left: their retry could not be recorded."""
        await self._database.execute("requeue_held_jobs", _MAX_ATTEMPTS)

    async def _wait_for_database(self) -> None:
        while self._manager is not None and not self._manager.shutdown.is_set():
            try:
                await self._database.value("ping")
            except StorageUnavailable as error:
                if self._loop is not None:
                    self._loop.ill(error)
                await self._clock.sleep(_RETRY_PING_S)
            else:
                return

    async def _prune(self) -> None:
        """Delete old entries of the queue's log and statistics, in batches."""
        for query in ("prune_job_log", "prune_job_statistics"):
            while await self._database.value(query, _PRUNE_BATCH_SIZE) == _PRUNE_BATCH_SIZE:
                pass


class PoolDriver(AsyncpgPoolDriver):
    """Returns the listening connection to the pool even if it is broken.

    The library resets it first, which fails on a broken connection; the pool would then lack one
    for good and never close.
    """

    async def __aexit__(self, *details: object) -> None:
        listening: Any = self._listener_connection
        try:
            await super().__aexit__(*details)
        except Exception:
            self._listener_connection = None
            with suppress(asyncpg.InterfaceError):  # returned already
                listening.terminate()
            raise


@dataclass
class _ListeningQueries(Queries):
    """The queue's own queries; each poll reports the worker as healthy."""

    loop: SupervisedLoop = field(kw_only=True)

    async def dequeue(self, *args: Any, **named: Any) -> list[Job]:
        jobs = await super().dequeue(*args, **named)
        self.loop.well()
        return jobs
