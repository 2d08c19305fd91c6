"""Where vectors come from: the session of this process, or a server."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from foremind.retrieval.embedding.encoder import CancelFlag
from foremind.retrieval.embedding.priority_queue import Priority

Vector = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Embedded:
    """A unit vector, float32 [dimension], and the CPU time that it took, in seconds."""

    vector: Vector
    cpu_s: float


class EmbeddingBackend(Protocol):
    """Embeds one text per call."""

    @property
    def concurrency(self) -> int:
        """The number of texts that it embeds at a time."""

    def health(self) -> dict[str, str]:
        """Return the outcomes of its health checks by name."""

    async def embed(self, text: str, priority: Priority, stop: CancelFlag) -> Embedded:
        """Embed a text; raise Interrupted if `stop` was set."""

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there, as WordShares."""

    async def close(self) -> None:
        """Wait for the texts in progress, and release what they used."""


class Encoder(Protocol):
    """Encodes texts as unit vectors, on the calling thread."""

    def encode(self, texts: list[str], stop: CancelFlag) -> Vector:
        """Return float32 [len(texts), dimension]; raise Interrupted if `stop` was set."""

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there, as WordShares."""


class LocalBackend:
    """Encodes on threads of this process, `concurrency` texts at a time."""

    def __init__(self, encoder: Encoder, concurrency: int = 1) -> None:
        self.concurrency = concurrency
        self._encoder = encoder
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="foremind-embedding")

    async def embed(self, text: str, priority: Priority, stop: CancelFlag) -> Embedded:
        """Embed a text; the priority has had its effect in the queue.

        Raises:
            Interrupted: `stop` was set.
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, self._timed, text, stop)

    def word_share(self, letters: str) -> float | None:
        """Return what share of the words that begin with `letters` ends there, as WordShares."""
        return self._encoder.word_share(letters)

    def health(self) -> dict[str, str]:
        """Return no outcomes: whether the model answers is checked by embedding a text."""
        return {}

    async def close(self) -> None:
        """Wait for the texts in progress."""
        self._threads.shutdown(wait=True)

    def _timed(self, text: str, stop: CancelFlag) -> Embedded:
        started = time.thread_time()
        vectors = self._encoder.encode([text], stop)
        return Embedded(vectors[0], time.thread_time() - started)
