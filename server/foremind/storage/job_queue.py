"""Durable jobs on pgqueuer: enqueued with the turn, run at least once, by any server process."""

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
# A worker that was killed is presumed dead after this long, and its jobs run elsewhere.
_HEARTBEAT = timedelta(seconds=10)
_POLL = timedelta(seconds=5)  # only a safety net: a new job is notified
_BATCH = 8
# Of all processes together. Ratings wait for a language model, perhaps for long, and must not hold
# the places of what makes memories; 0 is any number.
_AT_ONCE = {RATE_TURN: 4}
_MAX_ATTEMPTS = 12  # with doubling delays from 1 s, over an hour; then the job is held
_ASK_AGAIN_S = 1.0
_SILENT_S = 60.0  # without a look into the queue, and something is wrong
_REQUEUE_S = 10.0
_PRUNE_S = 3600.0
_PRUNED_AT_ONCE = 10_000  # rows: each statement stays short, however much there is
_STOP_S = 10.0

_log = structlog.get_logger("foremind.storage")


class JobWorker:
    """Runs jobs until the block ends, each by its name for a turn; then finishes those begun.

    A lost database restarts it; a failing job is retried with growing delays, then held with
    status `failed`, where an operator finds it. What the queue logs is kept for a week, and at most
    a million rows of it.
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
        self._duties: list[SupervisedLoop] = []

    async def __aenter__(self) -> Self:
        await anyio.lowlevel.checkpoint()  # loads what the queue needs for its first job
        every = self._supervisor.every
        self._loop = self._supervisor.start("jobs", self._run, silent_s=_SILENT_S)
        self._duties = [
            every("jobs-requeue", _REQUEUE_S, self._requeue),
            every("jobs-log", _PRUNE_S, self._prune),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        for duty in self._duties:
            await duty.stop()
        if self._loop is not None:
            if self._manager is not None:
                self._manager.shutdown.set()
            await self._loop.finish(_STOP_S)

    async def _run(self, loop: SupervisedLoop) -> None:
        queries = _ListeningQueries(PoolDriver(self._database.pool), loop=loop)
        self._manager = manager = QueueManager(queries)
        for name in self._jobs:
            at_once = _AT_ONCE.get(name, 0)
            manager.entrypoint(name, on_failure="hold", concurrency_limit=at_once)(self._handle)
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
            # A retry is noted in the database: where it is away, the job would be held for good.
            await self._until_the_database_answers()
            if job.attempts >= _MAX_ATTEMPTS:
                raise
            raise RetryRequested(timedelta(seconds=2**job.attempts)) from None

    async def _requeue(self) -> None:
        """Queue again what is held though it did not fail too often: its retry was not noted."""
        await self._database.execute("requeue_held_jobs", _MAX_ATTEMPTS)

    async def _until_the_database_answers(self) -> None:
        while self._manager is not None and not self._manager.shutdown.is_set():
            try:
                await self._database.value("ping")
            except StorageUnavailable as error:
                if self._loop is not None:
                    self._loop.ill(error)
                await self._clock.sleep(_ASK_AGAIN_S)
            else:
                return

    async def _prune(self) -> None:
        """Forget what the queue noted long ago, a portion at a time."""
        for query in ("prune_job_log", "prune_job_statistics"):
            while await self._database.value(query, _PRUNED_AT_ONCE) == _PRUNED_AT_ONCE:
                pass


class PoolDriver(AsyncpgPoolDriver):
    """Gives the connection that listens back to the pool, lost as it may be.

    The library resets it first, which fails on a lost one, and then the pool would be short of one
    for good and never close.
    """

    async def __aexit__(self, *details: object) -> None:
        listening: Any = self._listener_connection
        try:
            await super().__aexit__(*details)
        except Exception:
            self._listener_connection = None
            with suppress(asyncpg.InterfaceError):  # given back already
                listening.terminate()
            raise


@dataclass
class _ListeningQueries(Queries):
    """The queue's own queries; its worker is well whenever it has looked for jobs."""

    loop: SupervisedLoop = field(kw_only=True)

    async def dequeue(self, *args: Any, **named: Any) -> list[Job]:
        jobs = await super().dequeue(*args, **named)
        self.loop.well()
        return jobs
