"""Embedding as a service to the rest: one thread, one bounded queue, an owner that stops it."""

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

_FIRST_USUAL_S = 0.003  # CPU time of a short text, until it is measured


class Encoder(Protocol):
    """What turns texts into unit vectors, on the calling thread."""

    def encode(self, texts: list[str], stop: CancelFlag) -> Vector:
        """Return float32 [len(texts), dimension]; raise Interrupted where `stop` was set."""

    def is_word(self, letters: str) -> bool:
        """Tell whether the vocabulary holds some letters as one piece."""


class _Request:
    """One text on its way; its future is cancelled when nobody wants it any more."""

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
    def unwanted(self) -> bool:
        """True where nobody waits for it: who did may have gone without taking it out of a line."""
        return self.future.done()

    def answer(self, vector: Vector) -> None:
        """Give whoever waits the vector."""
        if not self.unwanted:
            self.future.set_result(vector)

    def refuse(self, error: Exception) -> None:
        """Tell whoever waits that nothing will come of it."""
        if not self.unwanted:
            self.future.set_exception(error)
            self.future.exception()  # taken note of: who waits may be gone before it hears


class EmbeddingService:
    """Embeds texts off the event loop, most urgent first.

    Use as an async context manager: leaving it waits for the text under way and fails the rest.
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
            capacity, lambda request: request.unwanted, lambda request: request.owner
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="foremind-embedding")
        self._wake = asyncio.Event()
        self._supervisor = supervisor
        self._worker: SupervisedLoop | None = None
        self._running: _Request | None = None
        #: How busy the thread is, and what a text takes.
        self.load = Utilization(_FIRST_USUAL_S)
        metrics.embedding_busy.set_function(lambda: self.busy)

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
        """Return the unit vector, float32 [dimension], of what somebody asks or says now.

        Cancelling the call drops the request if it still waits.

        Args:
            owner: whose it is; of what is equally urgent, owners have one each served in turn.

        Raises:
            Overloaded: too many texts of this or higher priority wait.
        """
        return await self._embed(self.manifest.query_prefix + text, priority, owner)

    async def embed_passage(self, text: str) -> Vector:
        """Return the unit vector, float32 [dimension], of what is to be remembered.

        Raises:
            Overloaded: too many texts wait.
        """
        return await self._embed(self.manifest.passage_prefix + text, Priority.BACKGROUND, None)

    def hasten(self, text: str, priority: Priority) -> None:
        """Serve a query for `text` that is on its way at least as urgently as this."""
        wanted = self.manifest.query_prefix + text
        on_its_way = self._queue.promote(lambda request: request.text == wanted, priority)
        if on_its_way and priority is Priority.ENTER:
            self._make_way()
        if self._running is not None and self._running.text == wanted:
            on_its_way.append(self._running)
        for request in on_its_way:
            request.priority = min(request.priority, priority)

    def is_word(self, letters: str) -> bool:
        """Tell whether the model's vocabulary holds some letters as one piece."""
        return self._encoder.is_word(letters)

    @property
    def busy(self) -> float:
        """The share of its time that the thread worked lately, 0 to 1."""
        return self.load.share(self._clock.monotonic())

    @property
    def same_for_query_and_passage(self) -> bool:
        """True where a query's vector may be stored as the passage's."""
        return self.manifest.query_prefix == self.manifest.passage_prefix

    async def _embed(self, text: str, priority: Priority, owner: Hashable) -> Vector:
        request = _Request(text, priority, owner, asyncio.get_running_loop().create_future())
        try:
            evicted = self._queue.push(request, priority)
        except Overloaded:
            self._metrics.dropped.labels("rejected").inc()
            raise
        self._give_way(evicted)
        self._metrics.embedding_queue.set(len(self._queue))
        self._wake.set()
        if priority is Priority.ENTER:
            self._make_way()
        try:
            return await request.future
        except asyncio.CancelledError:
            if self._queue.discard(request):
                self._metrics.dropped.labels("superseded").inc()
            raise

    def _make_way(self) -> None:
        """Let nobody who pressed Enter wait for what may be thrown away."""
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
            elif not request.unwanted:
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
            self._again(request, error)
            return
        except Exception as error:  # one bad text must not stop the line
            request.refuse(error)
            return
        ended = self._clock.monotonic()
        self.load.worked(started, ended, cpu_s)
        self._metrics.stage_seconds.labels("embed").observe(ended - started)
        request.answer(vector)

    def _again(self, request: _Request, error: Interrupted) -> None:
        """Put what was broken off back into the line, where there is room."""
        if request.unwanted:
            return
        request.stop = CancelFlag()
        try:
            evicted = self._queue.push(request, request.priority)
        except Overloaded:
            request.refuse(error)
        else:
            self._give_way(evicted)

    def _give_way(self, evicted: _Request | None) -> None:
        if evicted is not None:
            self._metrics.dropped.labels("evicted").inc()
            evicted.refuse(
                Overloaded("More urgent texts took this one's place in the embedding queue.")
            )

    def _timed(self, request: _Request) -> tuple[Vector, float]:
        """Return the vector, and the CPU seconds that it took."""
        started = time.thread_time()
        vectors = self._encoder.encode([request.text], request.stop)
        return vectors[0], time.thread_time() - started
