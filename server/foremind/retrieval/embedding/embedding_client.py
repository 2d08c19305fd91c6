"""The client of an OpenAI-compatible embeddings server: one text per request."""

import asyncio
import base64
import binascii
from dataclasses import dataclass
from functools import partial

import httpx2
import msgspec
import numpy as np
import numpy.typing as npt

from foremind.domain.errors import Interrupted, TemporaryError
from foremind.retrieval.embedding.encoder import CancelFlag
from foremind.retrieval.embedding.priority_queue import Priority

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
