"""Embeds on a server, and here whenever it does not answer or its vectors are others."""

import asyncio
from typing import Self

import numpy as np
import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import ModelUnusable
from foremind.domain.health import OK, degraded
from foremind.retrieval.embedding.backend import Embedded, EmbeddingBackend
from foremind.retrieval.embedding.conversion import CHECK_TEXTS
from foremind.retrieval.embedding.embedding_client import EmbeddingClient, EmbeddingServerError
from foremind.retrieval.embedding.encoder import CancelFlag
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor

# Between vectors of one model, one of them quantised: the least at conversion is 0.98.
_MIN_COSINE = 0.95
_MIN_CHECK_INTERVAL_S, _MAX_CHECK_INTERVAL_S = 1.0, 30.0

_log = structlog.get_logger("foremind.retrieval")


class RemoteBackend:
    """Embeds on a server while that is trusted, otherwise with the local model.

    A server is trusted once its vectors of known texts match the local model's, and until a request
    fails; that text is embedded locally, and the server is checked again until it answers.
    """

    def __init__(
        self,
        client: EmbeddingClient,
        local: EmbeddingBackend,
        clock: Clock,
        metrics: Metrics,
        supervisor: Supervisor,
    ) -> None:
        self.concurrency = client.endpoint.connections
        self._client = client
        self._local = local
        self._clock = clock
        self._metrics = metrics
        self._supervisor = supervisor
        self._watcher: SupervisedLoop | None = None
        self._problem: str | None = "it has not been checked yet"
        self._failed = asyncio.Event()

    async def start(self) -> Self:
        """Check the server, and begin to check it again after each failure.

        Raises:
            ModelUnusable: its vectors are not those of the configured model.
        """
        try:
            await self._check()
        except EmbeddingServerError as error:
            self._distrust(error.message)
        except ModelUnusable:
            await self.close()
            raise
        self._watcher = self._supervisor.start("embedding-server", self._watch)
        return self

    def health(self) -> dict[str, str]:
        """Return whether the server is used at the moment, and why not."""
        problem = self._problem
        outcome = OK if problem is None else degraded(f"embedding locally, {problem}")
        return {"embedding_server": outcome}

    async def embed(self, text: str, priority: Priority, stop: CancelFlag) -> Embedded:
        """Embed a text on the server, or here if it fails.

        The elapsed time stands for the CPU time, which the server does not tell: the more is
        waiting there, the fewer drafts are prefetched early.

        Raises:
            Interrupted: `stop` was set.
        """
        if self._problem is None:
            started = self._clock.monotonic()
            try:
                vector = await self._client.embed(text, priority, stop)
            except EmbeddingServerError as error:
                self._distrust(error.message)
            else:
                return Embedded(vector, self._clock.monotonic() - started)
        self._metrics.embedding_fallbacks.inc()
        return await self._local.embed(text, priority, stop)

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there, as WordShares."""
        return self._local.word_share(letters)

    async def close(self) -> None:
        """Stop checking, and close the connections."""
        if self._watcher is not None:
            await self._watcher.stop()
        await self._client.close()
        await self._local.close()

    def _distrust(self, reason: str) -> None:
        if self._problem is None or not self._failed.is_set():
            _log.warning("embedding_server.left_out", reason=reason)
        self._problem = reason
        self._failed.set()

    async def _watch(self, loop: SupervisedLoop) -> None:
        while True:
            await self._failed.wait()
            interval_s = _MIN_CHECK_INTERVAL_S
            while self._problem is not None:
                await self._clock.sleep(interval_s)
                interval_s = min(2 * interval_s, _MAX_CHECK_INTERVAL_S)
                loop.report_progress()
                try:
                    await self._check()
                except (EmbeddingServerError, ModelUnusable) as error:
                    self._problem = error.message
            self._failed.clear()
            _log.info("embedding_server.used_again")

    async def _check(self) -> None:
        """Compare the server's vectors of known texts with the local model's; then trust it.

        Raises:
            EmbeddingServerError: it did not answer.
            ModelUnusable: its vectors are not those of the configured model.
        """
        for text in CHECK_TEXTS:
            theirs = await self._client.embed(text, Priority.BACKGROUND, CancelFlag())
            ours = await self._local.embed(text, Priority.BACKGROUND, CancelFlag())
            cosine = float(np.dot(theirs, ours.vector))
            if not cosine >= _MIN_COSINE:  # nor is NaN
                raise ModelUnusable(
                    f"The vectors of {self._client.endpoint.url} are not those of the embedding "
                    f"model configured here: cosine {cosine:.2f}, expected at least {_MIN_COSINE}. "
                    "Have it serve that model, without a prefix of its own.",
                    param="embedding_url",
                )
        self._problem = None
