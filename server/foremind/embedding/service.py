"""Embedding as a service to the rest: one thread, one bounded queue, an owner that stops it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from foremind.clock import Clock
from foremind.embedding.manifest import Manifest
from foremind.embedding.queue import EmbeddingQueue, Priority
from foremind.errors import Overloaded
from foremind.metrics import Metrics

Vector = npt.NDArray[np.float32]


class Encoder(Protocol):
    """What turns texts into unit vectors, on the calling thread."""

    def encode(self, texts: list[str]) -> Vector:
        """Return float32 [len(texts), dimension]."""


class _Request:
    """One text on its way; its future is cancelled when nobody wants it any more."""

    __slots__ = ("future", "text")

    def __init__(self, text: str, future: asyncio.Future[Vector]) -> None:
        self.text = text
        self.future = future


class EmbeddingService:
    """Embeds texts off the event loop, most urgent first.

    Use as an async context manager: leaving it waits for the text under way and fails the rest.
    """

    def __init__(
        self, encoder: Encoder, manifest: Manifest, capacity: int, clock: Clock, metrics: Metrics
    ) -> None:
        self.manifest = manifest
        self._encoder = encoder
        self._clock = clock
        self._metrics = metrics
        self._queue: EmbeddingQueue[_Request] = EmbeddingQueue(capacity)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="foremind-embedding")
        self._wake = asyncio.Event()
        self._worker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._worker = asyncio.create_task(self._run(), name="embedding")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._worker is not None:
            self._worker.cancel()
            await asyncio.gather(self._worker, return_exceptions=True)
        while (request := self._queue.pop()) is not None:
            request.future.cancel()
        self._thread.shutdown(wait=True)

    async def embed_query(self, text: str, priority: Priority) -> Vector:
        """Return the unit vector, float32 [dimension], of what somebody asks or says now.

        Cancelling the call drops the request if it still waits.

        Raises:
            Overloaded: too many texts of this or higher priority wait.
        """
        return await self._embed(self.manifest.query_prefix + text, priority)

    async def embed_passage(self, text: str) -> Vector:
        """Return the unit vector, float32 [dimension], of what is to be remembered.

        Raises:
            Overloaded: too many texts wait.
        """
        return await self._embed(self.manifest.passage_prefix + text, Priority.BACKGROUND)

    def hasten(self, text: str) -> None:
        """Serve a waiting query for `text` with those on which Enter was pressed."""
        self._queue.promote(
            lambda request: request.text == self.manifest.query_prefix + text, Priority.ENTER
        )

    @property
    def same_for_query_and_passage(self) -> bool:
        """True where a query's vector may be stored as the passage's."""
        return self.manifest.query_prefix == self.manifest.passage_prefix

    async def _embed(self, text: str, priority: Priority) -> Vector:
        request = _Request(text, asyncio.get_running_loop().create_future())
        try:
            evicted = self._queue.push(request, priority)
        except Overloaded:
            self._metrics.dropped.labels("rejected").inc()
            raise
        if evicted is not None:
            self._metrics.dropped.labels("evicted").inc()
            evicted.future.set_exception(
                Overloaded("More urgent texts took this one's place in the embedding queue.")
            )
        self._metrics.embedding_queue.set(len(self._queue))
        self._wake.set()
        try:
            return await request.future
        except asyncio.CancelledError:
            if self._queue.discard(request):
                self._metrics.dropped.labels("superseded").inc()
            raise

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            request = self._queue.pop()
            self._metrics.embedding_queue.set(len(self._queue))
            if request is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            if request.future.done():
                continue
            started = self._clock.monotonic()
            try:
                vectors = await loop.run_in_executor(
                    self._thread, self._encoder.encode, [request.text]
                )
            except asyncio.CancelledError:
                request.future.cancel()
                raise
            except Exception as error:  # one bad text must not stop the line
                if not request.future.done():
                    request.future.set_exception(error)
                continue
            self._metrics.stage_seconds.labels("embed").observe(self._clock.monotonic() - started)
            if not request.future.done():
                request.future.set_result(vectors[0])
