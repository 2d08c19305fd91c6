"""Closed connections leave no reference cycles: full garbage collections block the event loop."""

import asyncio
import contextlib
import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from loadtests.hostile.attackers import Target, frame

from foremind_eval.doubles.manual_clock import ManualClock
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually

_OWN_MODULES = ("foremind.", "fair_transport.", "uvicorn.", "websockets.", "starlette.")
_REPETITIONS = 20


async def handshake(server: RunningServer) -> None:
    """Connect, upgrade, disconnect."""
    await asyncio.to_thread(lambda: _target(server).upgraded().close())


async def connect(server: RunningServer) -> None:
    """Connect, disconnect."""
    await asyncio.to_thread(lambda: _target(server).connect().close())


async def request(server: RunningServer) -> None:
    """Send a request, read the response, disconnect."""
    await asyncio.to_thread(_get_companions, _target(server))


async def junk(server: RunningServer) -> None:
    """Send invalid messages until the server says that it closes the connection."""
    await asyncio.to_thread(_pour_junk, _target(server))


async def talk(server: RunningServer) -> None:
    """Send a message, wait for the reply, disconnect."""
    client = await server.session()
    await client.draft("Do you remember")
    await client.send("Do you remember the harbour?")
    await client.expect("memory.stored")
    await client.close()


@pytest.mark.parametrize("kind", [handshake, connect, request, junk, talk])
async def test_closed_connections_leave_no_cycles(
    start: StartServer, kind: Callable[[RunningServer], Awaitable[None]]
) -> None:
    """Everything is freed by reference counting."""
    server = await start()
    for _ in range(3):
        await kind(server)
    await _wait_for_disconnects(server)
    gc.collect()
    gc.disable()
    try:
        for _ in range(_REPETITIONS):
            await kind(server)
        await _wait_for_disconnects(server)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        cycles = Counter(f"{type(item).__module__}.{type(item).__name__}" for item in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    own = {name: count for name, count in cycles.items() if name.startswith(_OWN_MODULES)}
    assert max(own.values(), default=0) < _REPETITIONS // 2, own


async def test_full_collections_run_only_after_much_growth(
    start: StartServer,
) -> None:
    """Not because of many closed connections."""
    clock = ManualClock()
    server = await start(clock)
    for _ in range(_REPETITIONS):
        await handshake(server)
    assert gc.get_threshold()[:2] == (700, 10)  # or one of these would take tens of milliseconds
    assert gc.get_threshold()[2] > 1_000_000
    await _pass_check_interval(clock)
    collected = gc.get_stats()[2]["collections"]
    await _pass_check_interval(clock)
    assert gc.get_stats()[2]["collections"] == collected
    growth = [(number,) for number in range(sys.getallocatedblocks() // 2)]
    await _pass_check_interval(clock)
    assert gc.get_stats()[2]["collections"] == collected + 1
    await _pass_check_interval(clock)
    assert gc.get_stats()[2]["collections"] == collected + 1
    del growth


async def _pass_check_interval(clock: ManualClock) -> None:
    """Advance the clock past the next check."""
    for _ in range(31):
        await clock.advance(1.0)


async def _wait_for_disconnects(server: RunningServer) -> None:
    """Wait until no connection is open, and all their callbacks have run."""
    open_ = server.app.core.runtime.metrics.tcp_connections
    await eventually(lambda: open_._value.get() == 0)
    for _ in range(10):
        await asyncio.sleep(0)


def _target(server: RunningServer) -> Target:
    return Target("127.0.0.1", server.port, 1)


def _get_companions(target: Target) -> None:
    with target.connect() as raw:
        raw.sendall(
            f"GET /v1/companions HTTP/1.1\r\nHost: {target.name}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        while raw.recv(65_536):
            pass


def _pour_junk(target: Target) -> None:
    with contextlib.suppress(OSError), target.upgraded() as raw:
        raw.settimeout(PATIENCE)
        for _ in range(3):
            raw.sendall(frame(0x81, b"[" * 65_000))
        received = b""
        while b"too many messages" not in received:  # the reason in its close frame
            chunk = raw.recv(65_536)
            assert chunk
            received += chunk
