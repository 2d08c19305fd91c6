"""The embedding service: one thread and one bounded priority queue."""

import asyncio
import time
from collections.abc import Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from foremind.domain.clock import Clock
from foremind.domain.errors import Interrupted, Overloaded
from foremind.retrieval.embedding.encoder import CancelFlag
from foremind.retrieval.embedding.manifest import Manifest
from foremind.retrieval.embedding.priority_queue import EmbeddingQueue, Priority
from foremind.retrieval.embedding.utilization import Utilization
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor

Vector = npt.NDArray[np.float32]

_INITIAL_CPU_S = 0.003  # for a short text, until measured


class Encoder(Protocol):
    """Encodes texts as unit vectors, on the calling thread."""

    def encode(self, texts: list[str], stop: CancelFlag) -> Vector:
        """Return float32 [len(texts), dimension]; raise Interrupted if `stop` was set."""

    def is_word(self, letters: str) -> bool:
        """Return whether the vocabulary contains `letters` as a single token."""


class _Request:
    """One text to embed; its future is cancelled when the caller stops waiting."""

    __slots__ = ("future", "owner", "priority", "stop", "text")

    def __init__(
        self, text: str, priority: Priority, owner: Hashable, future: asyncio.Future[Vector]
    ) -> None:
        self.text = text
        self.owner = owner
        self.priority = priority
        self.future = future
        self.stop = CancelFlag()

    @property
    def abandoned(self) -> bool:
        """Whether the caller no longer waits; the request may still be queued."""
        return self.future.done()

    def succeed(self, vector: Vector) -> None:
        """Return the vector to the caller."""
        if not self.abandoned:
            self.future.set_result(vector)

    def fail(self, error: Exception) -> None:
        """Raise an error in the caller."""
        if not self.abandoned:
            self.future.set_exception(error)
            self.future.exception()  # marked as retrieved: the caller may be cancelled first


class EmbeddingService:
    """Embeds texts off the event loop, most urgent first.

    Use as an async context manager: exiting waits for the running text and cancels the others.
    """

    def __init__(
        self,
        encoder: Encoder,
        manifest: Manifest,
        capacity: int,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
    ) -> None:
        self.manifest = manifest
        self._encoder = encoder
        self._clock = clock
        self._metrics = metrics
        self._queue: EmbeddingQueue[_Request] = EmbeddingQueue(
            capacity, lambda request: request.abandoned, lambda request: request.owner
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="foremind-embedding")
        self._wake = asyncio.Event()
        self._supervisor = supervisor
        self._worker: SupervisedLoop | None = None
        self._running: _Request | None = None
        #: The thread's utilization, and the typical CPU time of a text.
        self.load = Utilization(_INITIAL_CPU_S)
        metrics.embedding_busy.set_function(lambda: self.utilization)

    async def __aenter__(self) -> Self:
        self._worker = self._supervisor.start("embedding", self._run)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._worker is not None:
            await self._worker.stop()
        while (request := self._queue.pop()) is not None:
            request.future.cancel()
        self._thread.shutdown(wait=True)

    async def embed_query(self, text: str, priority: Priority, owner: Hashable = None) -> Vector:
        """Return the unit vector, float32 [dimension], of a draft or message.

        Cancelling the call drops the request if it is still queued.

        Args:
            owner: for fairness; within a priority, owners are served in turn.

        Raises:
            Overloaded: too many texts of this or a higher priority are queued.
        """
        return await self._embed(self.manifest.query_prefix + text, priority, owner)

    async def embed_passage(self, text: str) -> Vector:
        """Return the unit vector, float32 [dimension], of a text to be stored.

        Raises:
            Overloaded: too many texts are queued.
        """
        return await self._embed(self.manifest.passage_prefix + text, Priority.BACKGROUND, None)

    def raise_priority(self, text: str, priority: Priority) -> None:
        """Raise the priority of queued or running queries for `text` to at least `priority`."""
        prefixed = self.manifest.query_prefix + text
        requests = self._queue.promote(lambda request: request.text == prefixed, priority)
        if requests and priority is Priority.ENTER:
            self._interrupt_eager()
        if self._running is not None and self._running.text == prefixed:
            requests.append(self._running)
        for request in requests:
            request.priority = min(request.priority, priority)

    def is_word(self, letters: str) -> bool:
        """Return whether the model's vocabulary contains `letters` as a single token."""
        return self._encoder.is_word(letters)

    @property
    def utilization(self) -> float:
        """The recent share of time that the thread was busy, 0 to 1."""
        return self.load.share(self._clock.monotonic())

    @property
    def same_for_query_and_passage(self) -> bool:
        """Whether a query's vector may be stored as the passage's."""
        return self.manifest.query_prefix == self.manifest.passage_prefix

    async def _embed(self, text: str, priority: Priority, owner: Hashable) -> Vector:
        request = _Request(text, priority, owner, asyncio.get_running_loop().create_future())
        try:
            evicted = self._queue.push(request, priority)
        except Overloaded:
            self._metrics.dropped.labels("rejected").inc()
            raise
        self._reject_evicted(evicted)
        self._metrics.embedding_queue.set(len(self._queue))
        self._wake.set()
        if priority is Priority.ENTER:
            self._interrupt_eager()
        try:
            return await request.future
        except asyncio.CancelledError:
            if self._queue.discard(request):
                self._metrics.dropped.labels("superseded").inc()
            raise

    def _interrupt_eager(self) -> None:
        """Interrupt a speculative text, so that Enter does not wait for it."""
        if self._running is not None and self._running.priority is Priority.EAGER:
            self._running.stop.set()

    async def _run(self, loop: SupervisedLoop) -> None:
        while True:
            loop.well()
            request = self._queue.pop()
            self._metrics.embedding_queue.set(len(self._queue))
            if request is None:
                self._wake.clear()
                await self._wake.wait()
            elif not request.abandoned:
                self._running = request
                try:
                    await self._encode(request)
                finally:
                    self._running = None

    async def _encode(self, request: _Request) -> None:
        loop = asyncio.get_running_loop()
        started = self._clock.monotonic()
        try:
            vector, cpu_s = await loop.run_in_executor(self._thread, self._timed, request)
        except asyncio.CancelledError:
            request.future.cancel()
            raise
        except Interrupted as error:
            self._metrics.dropped.labels("interrupted").inc()
            self._requeue(request, error)
            return
        except Exception as error:  # one bad text must not stop the worker
            request.fail(error)
            return
        ended = self._clock.monotonic()
        self.load.record(started, ended, cpu_s)
        self._metrics.stage_seconds.labels("embed").observe(ended - started)
        request.succeed(vector)

    def _requeue(self, request: _Request, error: Interrupted) -> None:
        """Queue an interrupted request again, if there is space."""
        if request.abandoned:
            return
        request.stop = CancelFlag()
        try:
            evicted = self._queue.push(request, request.priority)
        except Overloaded:
            request.fail(error)
        else:
            self._reject_evicted(evicted)

    def _reject_evicted(self, evicted: _Request | None) -> None:
        if evicted is not None:
            self._metrics.dropped.labels("evicted").inc()
            evicted.fail(Overloaded("Evicted from the embedding queue by more urgent texts."))

    def _timed(self, request: _Request) -> tuple[Vector, float]:
        """Return the vector and the CPU time it took, in seconds."""
        started = time.thread_time()
        vectors = self._encoder.encode([request.text], request.stop)
        return vectors[0], time.thread_time() - started
