"""Embeds on a server, and here whenever it does not answer or its vectors are others."""

import asyncio
import base64
import binascii
from dataclasses import dataclass
from functools import partial
from typing import Self

import httpx2
import msgspec
import numpy as np
import numpy.typing as npt
import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import Interrupted, ModelMismatch, TemporaryError
from foremind.domain.health import OK, degraded
from foremind.retrieval.embedding.service import Embedded, EmbeddingBackend, Priority
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind_models import CHECK_TEXTS, CancelFlag

#: Carries a request's priority; servers other than `foremind embed` ignore it.
PRIORITY_HEADER = "x-foremind-priority"
# A vector of 1,280 numbers, written out, takes about 28,000 bytes.
_MAX_RESPONSE_BYTES = 262_144

Vector = npt.NDArray[np.float32]


class EmbeddingServerError(TemporaryError):
    """The embeddings server is down, slow, or sent something else than the vector of a text."""


class _Item(msgspec.Struct):
    embedding: str | list[float]


class _Answer(msgspec.Struct):
    data: list[_Item]


_decoder = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True, slots=True)
class EmbeddingEndpoint:
    """Address, API key and model name of a server; how long to wait for a vector, in seconds."""

    url: str
    key: str | None
    model: str
    timeout_s: float
    connections: int


class EmbeddingClient:
    """Requests vectors over connections that are kept open."""

    def __init__(self, endpoint: EmbeddingEndpoint, dimension: int) -> None:
        self.endpoint = endpoint
        self._dimension = dimension
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if endpoint.key:
            headers["authorization"] = f"Bearer {endpoint.key}"
        self._http = httpx2.AsyncClient(
            headers=headers,
            timeout=endpoint.timeout_s,
            limits=httpx2.Limits(
                max_connections=endpoint.connections,
                max_keepalive_connections=endpoint.connections,
            ),
        )
        self._url = endpoint.url.rstrip("/") + "/embeddings"

    async def embed(self, text: str, priority: Priority, stop: CancelFlag) -> Vector:
        """Return the unit vector, float32 [dimension], of a text.

        Raises:
            Interrupted: `stop` was set.
            EmbeddingServerError: the server did not send a vector of this dimension in time.
        """
        body = msgspec.json.encode(
            {"model": self.endpoint.model, "input": [text], "encoding_format": "base64"}
        )
        try:
            async with asyncio.timeout(self.endpoint.timeout_s) as deadline:
                stop.on_set = partial(_end_now, deadline)
                content = await self._post(body, priority)
        except TimeoutError:
            if stop.is_set:
                raise Interrupted("Interrupted for a more urgent text.") from None
            raise EmbeddingServerError(
                f"no answer within {self.endpoint.timeout_s:g} seconds"
            ) from None
        except httpx2.HTTPError as error:
            raise EmbeddingServerError(f"not reachable: {type(error).__name__}") from error
        finally:
            stop.on_set = lambda: None
        return self._vector(content)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _post(self, body: bytes, priority: Priority) -> bytes:
        headers = {PRIORITY_HEADER: priority.name.lower()}
        async with self._http.stream("POST", self._url, content=body, headers=headers) as response:
            if response.status_code != 200:
                raise EmbeddingServerError(f"it answered with status {response.status_code}")
            content = bytearray()
            async for piece in response.aiter_raw():
                content += piece
                if len(content) > _MAX_RESPONSE_BYTES:
                    raise EmbeddingServerError("it sent more than a vector")
        return bytes(content)

    def _vector(self, content: bytes) -> Vector:
        try:
            (item,) = _decoder.decode(content).data
            numbers = item.embedding
            vector = (
                np.frombuffer(base64.b64decode(numbers, validate=True), "<f4")
                if isinstance(numbers, str)
                else np.asarray(numbers, np.float32)
            )
        except (ValueError, msgspec.DecodeError, binascii.Error, RecursionError) as error:
            raise EmbeddingServerError("its answer is not a list of one embedding") from error
        if vector.shape != (self._dimension,):
            raise EmbeddingServerError(
                f"its vectors have {vector.size} numbers, expected {self._dimension}"
            )
        length = float(np.linalg.norm(vector))
        if not 0 < length < np.inf:  # false for NaN as well
            raise EmbeddingServerError("its vector has no direction")
        return vector / np.float32(length)


def _end_now(deadline: asyncio.Timeout) -> None:
    if not deadline.expired():  # once it has, it cannot be moved
        deadline.reschedule(asyncio.get_running_loop().time())


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
            ModelMismatch: its vectors are not those of the configured model.
        """
        try:
            await self._check()
        except EmbeddingServerError as error:
            self._distrust(error.message)
        except ModelMismatch:
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
                except (EmbeddingServerError, ModelMismatch) as error:
                    self._problem = error.message
            self._failed.clear()
            _log.info("embedding_server.used_again")

    async def _check(self) -> None:
        """Compare the server's vectors of known texts with the local model's; then trust it.

        Raises:
            EmbeddingServerError: it did not answer.
            ModelMismatch: its vectors are not those of the configured model.
        """
        for text in CHECK_TEXTS:
            theirs = await self._client.embed(text, Priority.BACKGROUND, CancelFlag())
            ours = await self._local.embed(text, Priority.BACKGROUND, CancelFlag())
            cosine = float(np.dot(theirs, ours.vector))
            if not cosine >= _MIN_COSINE:  # nor is NaN
                raise ModelMismatch(
                    f"The vectors of {self._client.endpoint.url} are not those of the embedding "
                    f"model configured here: cosine {cosine:.2f}, expected at least {_MIN_COSINE}. "
                    "Have it serve that model, without a prefix of its own.",
                    param="embedding_url",
                )
        self._problem = None
