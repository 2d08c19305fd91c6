"""Durable jobs on pgqueuer: enqueued with the turn, run at least once, by any server process."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Self

import structlog
from pgqueuer.core.qm import QueueManager
from pgqueuer.domain.errors import RetryRequested
from pgqueuer.domain.models import Job
from pgqueuer.queries import Queries

from foremind.clock import Clock
from foremind.errors import StorageUnavailable
from foremind.storage.database import Database

REMEMBER_TURN = "remember_turn"
RATE_TURN = "rate_turn"
# A worker that was killed is presumed dead after this long, and its jobs run elsewhere.
_HEARTBEAT = timedelta(seconds=10)
_POLL = timedelta(seconds=5)  # only a safety net: a new job is notified
_BATCH = 8
_MAX_ATTEMPTS = 12  # with doubling delays from 1 s, over an hour; then the job is held
_RESTART_S = 1.0
_REQUEUE_S = 10.0
_STOP_S = 10.0

_log = structlog.get_logger("foremind.jobs")


class JobWorker:
    """Runs jobs until the block ends, each by its name for a turn; then finishes those begun.

    A lost database restarts it; a failing job is retried with growing delays, then held with
    status `failed`, where an operator finds it.
    """

    def __init__(
        self,
        database: Database,
        jobs: Mapping[str, Callable[[int, int], Awaitable[object]]],
        clock: Clock,
    ) -> None:
        self._database = database
        self._jobs = jobs
        self._clock = clock
        self._manager: QueueManager | None = None
        self._task: asyncio.Task[None] | None = None
        self._requeuing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._prune()
        self._task = asyncio.create_task(self._run(), name="jobs")
        self._requeuing = asyncio.create_task(self._requeue_on(), name="jobs-requeue")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is None or self._requeuing is None:
            return
        self._requeuing.cancel()
        await asyncio.wait({self._requeuing})
        if self._manager is not None:
            self._manager.shutdown.set()
            await asyncio.wait({self._task}, timeout=_STOP_S)
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            manager = QueueManager(Queries.from_asyncpg_pool(self._database.pool))
            for name in self._jobs:
                manager.entrypoint(name, on_failure="hold")(self._handle)
            self._manager = manager
            try:
                await manager.run(
                    dequeue_timeout=_POLL,
                    batch_size=_BATCH,
                    max_concurrent_tasks=2 * _BATCH,
                    heartbeat_timeout=_HEARTBEAT,
                )
                return
            except Exception as error:
                _log.warning("jobs.restart", reason=type(error).__name__)
                await self._clock.sleep(_RESTART_S)

    async def _handle(self, job: Job) -> None:
        relationship_id, turn_id = map(int, (job.payload or b"0:0").split(b":"))
        try:
            await self._jobs[job.entrypoint](relationship_id, turn_id)
        except Exception as error:
            _log.warning(
                "jobs.failed", turn_id=turn_id, attempt=job.attempts, reason=type(error).__name__
            )
            # A retry is noted in the database: where it is away, the job would be held for good.
            await self._until_the_database_answers()
            if job.attempts >= _MAX_ATTEMPTS:
                raise
            raise RetryRequested(timedelta(seconds=2**job.attempts)) from None

    async def _requeue_on(self) -> None:
        """Queue again what is held though it did not fail too often: its retry was not noted."""
        while True:
            await asyncio.sleep(_REQUEUE_S)  # real time, as the queue's own polling
            with contextlib.suppress(StorageUnavailable):
                await self._database.execute("requeue_held_jobs", _MAX_ATTEMPTS)

    async def _until_the_database_answers(self) -> None:
        while self._manager is not None and not self._manager.shutdown.is_set():
            try:
                await self._database.value("ping")
            except StorageUnavailable:
                await self._clock.sleep(_RESTART_S)
            else:
                return

    async def _prune(self) -> None:
        await self._database.execute("prune_job_log")
        await self._database.execute("prune_job_statistics")
