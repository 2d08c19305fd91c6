"""A connection outside the pool that is kept open and watched."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from foremind.domain.clock import Clock
from foremind.domain.errors import StorageUnavailable
from foremind.runtime.supervision import SupervisedLoop
from foremind.storage.database import connect_as_server
from foremind.storage.failure_classes import translate_errors
from foremind.storage.named_queries import load_queries

#: So that the database soon notices that a machine is unreachable.
KEEPALIVES = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
#: The maximum time between two signs of life of such a loop.
MAX_SILENCE_S = 60.0

_CONNECT_S = 10.0
_PING_S = 10.0  # a connection may break without any sign


async def hold_connection(
    url: str,
    clock: Clock,
    loop: SupervisedLoop,
    begin: Callable[[Any, Callable[[Exception], None]], Awaitable[None]],
) -> None:
    """Open a connection, and keep it until it is lost.

    Args:
        begin: prepares the connection; its second argument ends it with an exception.

    Raises:
        StorageUnavailable: it was lost, or could not be opened.
    """
    with translate_errors():
        connection = await connect_as_server(
            url, timeout=_CONNECT_S, command_timeout=_CONNECT_S, server_settings=KEEPALIVES
        )
        wake = asyncio.Event()
        failures: list[Exception] = []

        def fail(error: Exception) -> None:
            failures.append(error)
            wake.set()

        try:
            connection.add_termination_listener(lambda _: wake.set())
            await begin(connection, fail)
            while not failures and not connection.is_closed():
                wake.clear()
                loop.report_progress()
                timer = clock.call_at(clock.monotonic() + _PING_S, wake.set)
                try:
                    await wake.wait()
                finally:
                    timer.cancel()
                await connection.execute(load_queries()["ping"])
            if failures:
                raise failures[0]
            raise StorageUnavailable("A connection of its own was lost.")
        finally:
            connection.terminate()
