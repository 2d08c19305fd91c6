"""Builds what embeds texts: the model in this process, and a server where one is configured."""

from foremind.retrieval.embedding.backend import EmbeddingBackend, Encoder, LocalBackend
from foremind.retrieval.embedding.manifest import Manifest
from foremind.retrieval.embedding.remote_backend import (
    EmbeddingClient,
    EmbeddingEndpoint,
    RemoteBackend,
)
from foremind.runtime.services import RuntimeServices


async def embedding_backend(
    encoder: Encoder, manifest: Manifest, runtime: RuntimeServices
) -> EmbeddingBackend:
    """Return the configured backend; the caller closes it.

    Raises:
        ModelUnusable: the embeddings server has another model than this one.
    """
    settings = runtime.settings
    local = LocalBackend(encoder)
    if not settings.embedding_url:
        return local
    key = settings.embedding_key
    endpoint = EmbeddingEndpoint(
        settings.embedding_url,
        None if key is None else key.get_secret_value(),
        settings.embedding_server_model or manifest.name,
        settings.embedding_timeout_s,
        settings.embedding_connections,
    )
    client = EmbeddingClient(endpoint, manifest.dimension)
    backend = RemoteBackend(client, local, runtime.clock, runtime.metrics, runtime.supervisor)
    return await backend.start()
