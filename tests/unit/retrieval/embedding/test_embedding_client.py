"""The client of an embeddings server: however a request ends, its caller can go on."""

import asyncio
import time
from typing import Any

import pytest

from foremind.domain.errors import Interrupted
from foremind.retrieval.embedding.remote_backend import (
    EmbeddingClient,
    EmbeddingEndpoint,
    EmbeddingServerError,
)
from foremind.retrieval.embedding.service import Priority
from foremind_models import CancelFlag

TIMEOUT_S = 0.1


class _SilentServer(asyncio.Protocol):
    """Answers nothing; has the deadline of a request and its interruption expire together."""

    def __init__(self, flag: CancelFlag) -> None:
        self._flag = flag

    def data_received(self, data: bytes) -> None:
        """Hold the event loop until both are overdue: the deadline first, as it is earlier."""
        asyncio.get_running_loop().call_later(TIMEOUT_S, self._flag.set)
        time.sleep(2 * TIMEOUT_S)


async def test_an_interruption_that_meets_the_deadline_is_no_error() -> None:
    """Enter interrupts, and must not fail because a slow request was given up at that moment."""
    loop = asyncio.get_running_loop()
    problems: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: problems.append(context))
    flag = CancelFlag()
    async with await loop.create_server(lambda: _SilentServer(flag), "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        endpoint = EmbeddingEndpoint(f"http://127.0.0.1:{port}/v1", None, "a-model", TIMEOUT_S, 1)
        client = EmbeddingClient(endpoint, 384)
        with pytest.raises((Interrupted, EmbeddingServerError)):
            await client.embed("a draft", Priority.EAGER, flag)
        await client.close()
    assert problems == []
