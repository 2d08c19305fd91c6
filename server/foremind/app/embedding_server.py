"""Builds an embeddings server: the model behind an OpenAI-compatible interface."""

import asyncio
import base64
import hmac
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from foremind.api.dependencies import read_json
from foremind.api.origin_guard import OriginGuard
from foremind.api.request_authentication import bearer_token
from foremind.api.responses import json_response, routing_error_response, with_error_responses
from foremind.app.core import Say
from foremind.app.listening import listening
from foremind.domain.clock import Clock, SystemClock
from foremind.domain.errors import (
    Interrupted,
    InvalidMessage,
    NotAuthenticated,
    NotFound,
    UnsafeBinding,
)
from foremind.domain.settings.settings import Settings, is_loopback
from foremind.retrieval.embedding.remote_backend import PRIORITY_HEADER
from foremind.retrieval.embedding.service import EmbeddingService, LocalBackend, Priority, Vector
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor, begin, stop
from foremind_models import find_model, prepare_model

_MAX_INPUTS = 256
_MAX_BODY_BYTES = 4_194_304
_PRIORITIES = {priority.name.lower(): priority for priority in Priority}


class EmbeddingsRequest(msgspec.Struct, frozen=True):
    """The body of `POST /v1/embeddings`; fields of OpenAI's that are not listed are ignored."""

    model: str
    input: str | list[str]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


@dataclass(frozen=True, slots=True)
class EmbeddingServices:
    """The services of these routes; `key` is what clients must present, None for nothing."""

    embedder: EmbeddingService
    metrics: Metrics
    key: str | None


class _Endpoints:
    def __init__(self, services: EmbeddingServices) -> None:
        self._services = services
        self._manifest = services.embedder.manifest

    async def embed(self, request: Request) -> Response:
        self._authenticate(request)
        body = await read_json(request, EmbeddingsRequest, _MAX_BODY_BYTES)
        texts = [body.input] if isinstance(body.input, str) else body.input
        self._check(body, texts)
        vectors = await _unless_disconnected(request, self._vectors(texts, _priority(request)))
        count = sum(map(len, texts)) // 4 + 1  # no client of this server is billed by it
        return json_response(
            {
                "object": "list",
                "model": self._manifest.name,
                "data": [
                    {
                        "object": "embedding",
                        "index": index,
                        "embedding": _encoded(vector, body.encoding_format),
                    }
                    for index, vector in enumerate(vectors)
                ],
                "usage": {"prompt_tokens": count, "total_tokens": count},
            }
        )

    async def models(self, request: Request) -> Response:
        self._authenticate(request)
        model = {
            "id": self._manifest.name,
            "object": "model",
            "created": 0,
            "owned_by": "foremind",
            "dimension": self._manifest.dimension,
            "fingerprint": self._manifest.fingerprint,
        }
        return json_response({"object": "list", "data": [model]})

    async def healthz(self, _: Request) -> Response:
        return json_response({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        self._authenticate(request)
        return Response(
            generate_latest(self._services.metrics.registry), media_type=CONTENT_TYPE_LATEST
        )

    def _authenticate(self, request: Request) -> None:
        """Check the API key.

        Raises:
            NotAuthenticated: it is missing or wrong.
        """
        key = self._services.key
        given = bearer_token(request) or ""
        if key is not None and not hmac.compare_digest(given.encode(), key.encode()):
            raise NotAuthenticated("authorization: expected Bearer and the API key of this server")
        request.state.connection.mark_identified()

    def _check(self, body: EmbeddingsRequest, texts: list[str]) -> None:
        manifest = self._manifest
        if body.model != manifest.name:
            raise NotFound(f"model: expected {manifest.name}", param="model")
        if body.dimensions not in (None, manifest.dimension):
            raise InvalidMessage(f"dimensions: expected {manifest.dimension}", param="dimensions")
        if not 1 <= len(texts) <= _MAX_INPUTS or not all(texts):
            raise InvalidMessage(
                f"input: expected 1 to {_MAX_INPUTS} texts, none of them empty", param="input"
            )

    async def _vectors(self, texts: list[str], priority: Priority) -> list[Vector]:
        """Return the vectors one by one, so that other requests are served in between."""
        embedder = self._services.embedder
        return [await embedder.embed(text, priority) for text in texts]


def embedding_routes(services: EmbeddingServices) -> list[BaseRoute]:
    """Return the routes of an embeddings server."""
    endpoints = _Endpoints(services)
    return [
        Route("/v1/embeddings", with_error_responses(endpoints.embed), methods=["POST"]),
        Route("/v1/models", with_error_responses(endpoints.models)),
        Route("/healthz", with_error_responses(endpoints.healthz)),
        Route("/metrics", with_error_responses(endpoints.metrics)),
    ]


async def _unless_disconnected(
    request: Request, work: Coroutine[Any, Any, list[Vector]]
) -> list[Vector]:
    """Return the result of `work`; cancel it if the client disconnects first.

    Raises:
        Interrupted: the client has disconnected.
    """
    working = begin(work, "embed")
    disconnected = begin(_disconnect(request), "disconnect")
    try:
        await asyncio.wait({working, disconnected}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Interrupted("The client has disconnected.")
        return working.result()
    finally:
        await stop(working, disconnected)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _priority(request: Request) -> Priority:
    name = request.headers.get(PRIORITY_HEADER, Priority.PAUSE.name.lower())
    if name not in _PRIORITIES:
        raise InvalidMessage(
            f"{PRIORITY_HEADER}: expected one of {', '.join(_PRIORITIES)}", param=PRIORITY_HEADER
        )
    return _PRIORITIES[name]


def _encoded(vector: Vector, encoding: str) -> object:
    if encoding == "base64":
        return base64.b64encode(vector.astype("<f4").tobytes()).decode()
    return vector.tolist()


@asynccontextmanager
async def serving_embeddings(
    settings: Settings, threads: int, *, clock: Clock | None = None, say: Say = lambda _: None
) -> AsyncIterator[int]:
    """Serve the configured model inside the block; yields the port.

    Args:
        threads: how many texts are embedded at a time.

    Raises:
        SetupError: says what the operator must change.
    """
    key = settings.embedding_key
    if key is None and not is_loopback(settings.host):
        raise UnsafeBinding(
            f"Refusing to listen on {settings.host} without a key: anyone could use this server. "
            "Set FOREMIND_EMBEDDING_KEY, or listen on 127.0.0.1."
        )
    clock, metrics = clock or SystemClock(), Metrics()
    manifest = find_model(settings.embedding_model, settings.models_dir)
    model = await asyncio.to_thread(prepare_model, manifest, settings.models_dir, say)
    backend = LocalBackend(await asyncio.to_thread(model.encoder), threads)
    async with (
        Supervisor(clock, metrics) as supervisor,
        EmbeddingService(
            backend, manifest, settings.embedding_queue_size, clock, metrics, supervisor
        ) as embedder,
    ):
        services = EmbeddingServices(embedder, metrics, None if key is None else key.reveal())
        # Here it is the key that authenticates: other machines use any name of this one with it.
        guarded = msgspec.structs.replace(settings, auth_secret=key, auth_keys=None)
        asgi = Starlette(
            routes=embedding_routes(services),
            middleware=[Middleware(OriginGuard, settings=guarded)],
            exception_handlers={HTTPException: routing_error_response},
        )
        asgi.router.redirect_slashes = False
        async with listening(asgi, settings, clock=clock, metrics=metrics) as port:
            yield port
