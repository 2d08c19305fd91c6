"""Builds an embeddings server: the model behind an OpenAI-compatible interface."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from foremind.api.embedding_routes import EmbeddingServices, embedding_routes
from foremind.api.origin_guard import OriginGuard
from foremind.api.responses import routing_error_response
from foremind.app.core import Say
from foremind.app.listening import listening
from foremind.domain.clock import Clock, SystemClock
from foremind.domain.errors import UnsafeBinding
from foremind.domain.settings.settings import Settings, is_loopback
from foremind.retrieval.embedding.service import EmbeddingService, LocalBackend
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import Supervisor
from foremind_models import find_model, prepare_model


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
