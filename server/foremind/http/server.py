"""uvicorn, owned: it starts inside a block, says where it listens, and stops with the block."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Literal

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import Config

from foremind.errors import SetupError
from foremind.settings import Settings

_BACKLOG = 2048
_STOP_S = 5


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def listening(
    app: ASGIApp,
    settings: Settings,
    protocol: type[asyncio.Protocol] | Literal["none"] = "none",
    max_frame_bytes: int = 65_536,
) -> AsyncIterator[int]:
    """Serve `app` while the block runs, and yield the port; `protocol` speaks WebSocket.

    Raises:
        SetupError: the address cannot be listened on.
    """
    listener = _bind(settings.host, settings.port)
    server = _Server(
        Config(
            app,
            ws=protocol,
            ws_max_size=max_frame_bytes,
            ws_ping_interval=settings.heartbeat_s,
            ws_ping_timeout=settings.heartbeat_timeout_s,
            ws_per_message_deflate=False,
            http="httptools",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            forwarded_allow_ips=list(settings.trusted_proxies),
            timeout_graceful_shutdown=_STOP_S,
        )
    )
    task = asyncio.create_task(server.serve([listener]), name="http-server")
    try:
        while not server.started:
            if task.done():
                await task
            await asyncio.sleep(0.005)
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        with contextlib.suppress(asyncio.CancelledError):
            await task
        listener.close()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise SetupError(
            f"Cannot listen on {host}:{port}: {error.strerror}. Another server may run there; "
            "choose a port with --port or FOREMIND_PORT."
        ) from None
    listener.setblocking(False)
    return listener
