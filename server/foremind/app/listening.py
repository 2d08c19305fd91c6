"""Serves an application on the transport, as settings say, with the errors and metrics of all."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

import fair_transport
from fair_transport import Precedence, Refusal, TooFewDescriptors
from foremind.api.responses import error_body
from foremind.domain.clock import Clock, SystemClock
from foremind.domain.errors import (
    ForemindError,
    Overloaded,
    RequestError,
    SetupError,
    TemporaryError,
)
from foremind.domain.settings.settings import Settings
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin

_RESERVED = 256  # for files, listeners, connections to the model server, database notifications
_MESSAGE_BYTES = 16_384  # assumed per message at the rates announced to clients
#: What a refusal is, by its HTTP status; any other is the client's mistake.
_ERRORS: dict[int, type[ForemindError]] = {
    408: TemporaryError, 500: ForemindError, 503: TemporaryError,
}  # fmt: skip


def bind(settings: Settings) -> socket.socket:
    """Return a socket that listens where settings say.

    Raises:
        SetupError: the address cannot be bound.
    """
    try:
        return fair_transport.bind(settings.host, settings.port)
    except OSError as error:
        raise SetupError(
            f"Cannot listen on {settings.host}:{settings.port}: {error.strerror}. Another server "
            "may be using the port; choose another with --port or FOREMIND_PORT."
        ) from None


@asynccontextmanager
async def listening(
    app: ASGIApp,
    settings: Settings,
    *,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    frame_bytes: int = 65_536,
    precedence: Precedence | None = None,
    shared: socket.socket | None = None,
    open_socket: Callable[[], socket.socket] | None = None,
) -> AsyncIterator[int]:
    """Serve `app` inside the block; yields the port.

    Args:
        frame_bytes: maximum size of a WebSocket frame.
        precedence: what `app` reports messages to that the transport's queues give way to.
        shared: another listening socket to serve, which this process shares with others.
        open_socket: returns the listening socket to serve, which outlives the server.

    Raises:
        SetupError: the address cannot be bound, or there are too few file descriptors.
    """
    # Duplicates: what waits to be accepted outlives the server, which closes its sockets.
    listener = open_socket().dup() if open_socket else bind(settings)
    sockets = [listener] if shared is None else [listener, shared.dup()]
    try:
        async with fair_transport.listening(
            _without_trailing_slash(app),
            *sockets,
            limits=_limits(settings, frame_bytes),
            hooks=_hooks(clock or SystemClock(), metrics or Metrics()),
            precedence=precedence,
        ) as port:
            yield port
    except TooFewDescriptors as error:
        raise SetupError(
            f"FOREMIND_MAX_CONNECTIONS: {error}: raise the limit (`ulimit -n`, LimitNOFILE=)."
        ) from None


def _limits(settings: Settings, frame_bytes: int) -> fair_transport.Limits:
    return fair_transport.Limits(
        connections=settings.max_connections,
        reserved_descriptors=_RESERVED + settings.database_pool_size,
        per_address=settings.max_connections_per_address,
        shared_addresses=settings.host_addresses,
        trusted_proxies=settings.trusted_proxies,
        body_bytes=settings.body_bytes,
        frame_bytes=frame_bytes,
        bytes_per_s=_MESSAGE_BYTES * (settings.drafts_per_s + settings.sends_per_s),
        head_timeout_s=settings.open_timeout_s,
        ping_interval_s=settings.heartbeat_s,
        ping_timeout_s=settings.heartbeat_timeout_s,
    )


def _hooks(clock: Clock, metrics: Metrics) -> fair_transport.Hooks:
    return fair_transport.Hooks(
        on_refused=lambda reason: metrics.refused.labels(reason).inc(),
        on_connections=metrics.tcp_connections.set,
        error_body=_error_body,
        body_refused=Overloaded,
        start_task=begin,
        monotonic=clock.monotonic,
        call_at=clock.call_at,
    )


def _error_body(refusal: Refusal) -> bytes:
    """Return the JSON of an error that the transport answers with."""
    error = _ERRORS.get(refusal.status, RequestError)(refusal.message)
    error.code = refusal.code
    return msgspec.json.encode(error_body(error))


def _without_trailing_slash(app: ASGIApp) -> ASGIApp:
    """Return `app` with "/v1/turns/" being "/v1/turns": clients join addresses in either way.

    An id in a path may end with a slash, which is "%2F" there.
    """

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        raw: bytes = scope["raw_path"]
        if raw.endswith(b"/") and raw != b"/":
            scope = {**scope, "path": scope["path"].removesuffix("/"), "raw_path": raw[:-1]}
        await app(scope, receive, send)

    return serve
