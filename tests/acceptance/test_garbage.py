"""A connection that has ended is freed at once: going through what is left holds everybody up."""

import asyncio
import contextlib
import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest
from loadtests.hostile.attackers import Target, frame

from foremind.testing.manual_clock import ManualClock
from tests.conftest import RunningServer, StartServer, eventually

_OURS = ("foremind.", "uvicorn.", "websockets.", "starlette.")
_TIMES = 20


async def handshake(server: RunningServer) -> None:
    """Connect, upgrade, go."""
    await asyncio.to_thread(lambda: _target(server).upgraded().close())


async def connect(server: RunningServer) -> None:
    """Connect, go."""
    await asyncio.to_thread(lambda: _target(server).connect().close())


async def request(server: RunningServer) -> None:
    """Ask, be answered, go."""
    await asyncio.to_thread(_ask, _target(server))


async def junk(server: RunningServer) -> None:
    """Messages that are none, until the server has enough."""
    await asyncio.to_thread(_pour_junk, _target(server))


async def talk(server: RunningServer) -> None:
    """Say something, hear the answer, go."""
    client = await server.session()
    await client.draft("Do you remember")
    await client.send("Do you remember the harbour?")
    await client.expect("memory.stored")
    await client.close()


@pytest.mark.parametrize("kind", [handshake, connect, request, junk, talk])
async def test_who_has_gone_leaves_nothing_to_the_collector(
    start: StartServer, kind: Callable[[RunningServer], Awaitable[None]]
) -> None:
    """Nothing of a connection that has ended refers to itself in a circle."""
    server = await start()
    for _ in range(3):
        await kind(server)
    await _gone(server)
    gc.collect()
    gc.disable()
    try:
        for _ in range(_TIMES):
            await kind(server)
        await _gone(server)
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.garbage)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    ours = {name: count for name, count in left.items() if name.startswith(_OURS)}
    assert max(ours.values(), default=0) < _TIMES // 2, ours


async def test_everything_is_gone_through_only_once_there_is_much_more_of_it(
    start: StartServer,
) -> None:
    """Nobody waits for the collector because many have come and gone."""
    clock = ManualClock()
    server = await start(clock)
    for _ in range(_TIMES):
        await handshake(server)
    assert gc.get_threshold()[2] > 1_000_000
    await _looked(clock)
    collected = gc.get_stats()[2]["collections"]
    await _looked(clock)
    assert gc.get_stats()[2]["collections"] == collected
    much = [(number,) for number in range(sys.getallocatedblocks() // 2)]
    await _looked(clock)
    assert gc.get_stats()[2]["collections"] == collected + 1
    await _looked(clock)
    assert gc.get_stats()[2]["collections"] == collected + 1
    del much


async def _looked(clock: ManualClock) -> None:
    """Let the time pass after which it is looked at again."""
    for _ in range(6):
        await clock.advance(1.0)


async def _gone(server: RunningServer) -> None:
    """Wait until nobody is connected, and their ends were seen."""
    open_ = server.app.core.metrics.tcp_connections
    await eventually(lambda: open_._value.get() == 0)
    for _ in range(10):
        await asyncio.sleep(0)


def _target(server: RunningServer) -> Target:
    return Target("127.0.0.1", server.port, 1)


def _ask(target: Target) -> None:
    with target.connect() as raw:
        raw.sendall(
            f"GET /v1/companions HTTP/1.1\r\nHost: {target.name}\r\n"
            "Connection: close\r\n\r\n".encode()
        )
        while raw.recv(65_536):
            pass


def _pour_junk(target: Target) -> None:
    with contextlib.suppress(OSError), target.upgraded() as raw:
        raw.settimeout(5)
        for _ in range(3):
            raw.sendall(frame(0x81, b"[" * 65_000))
        while raw.recv(65_536):
            pass
