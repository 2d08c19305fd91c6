"""Trouble between a client and the server: what was accepted is stored, once."""

import asyncio
from collections import Counter

import pytest

from foremind.client import Conversation, Identity
from tests.conftest import RunningServer, StartServer, eventually, owner_of
from tests.faults.proxy import Faults, fault_proxy

SENT = 12


async def stored(server: RunningServer) -> Counter[str]:
    """How often each message is in the database."""
    rows = await owner_of(server.app.core).fetch(
        "SELECT message_id FROM turns WHERE speaker = 'user'"
    )
    return Counter(row["message_id"] for row in rows)


@pytest.mark.parametrize(
    "faults",
    [
        Faults(latency_s=0.03, jitter_s=0.05),
        Faults(slice_bytes=1),
        Faults(slice_bytes=7, jitter_s=0.001),
        Faults(bytes_per_s=20_000),
    ],
    ids=["slow", "drip", "sliced", "narrow"],
)
async def test_a_bad_line_changes_nothing_but_the_time(start: StartServer, faults: Faults) -> None:
    """Frames arrive in pieces and late; every message is answered once and in order."""
    server = await start()
    async with (
        fault_proxy(server.port, faults) as proxy,
        Conversation(proxy.url, Identity("wren", user_id="ana", name="Ana")) as mind,
    ):
        for number in range(3):
            mind.type(f"I keep my map number {number}")
            done = await mind.say(f"I keep my map number {number}", f"m{number}")
            assert done["status"] == "completed"
    assert await stored(server) == Counter({"m0": 1, "m1": 1, "m2": 1})


@pytest.mark.parametrize("how", ["cut", "reset"])
async def test_lost_connections_lose_nothing(start: StartServer, how: str) -> None:
    """Broken at any moment, again and again: each message is accepted and stored once."""
    server = await start()
    accepted = set()
    async with fault_proxy(server.port) as proxy:

        async def trouble() -> None:
            for number in range(200):
                await asyncio.sleep(0.01 + 0.013 * (number % 7))
                getattr(proxy, how)()

        breaking = asyncio.create_task(trouble())
        who = Identity("wren", user_id="ana", name="Ana")
        async with Conversation(proxy.url, who, first_retry_s=0.02) as mind:
            for number in range(SENT):
                if number % 3 == 2:  # however slow this machine is
                    getattr(proxy, how)()
                event = await mind.send(f"Remember number {number}, I promise", f"m{number}")
                assert event["id"] == f"m{number}"
                accepted.add(event["id"])
            assert mind.connections > 3
        breaking.cancel()
    assert await stored(server) == Counter(dict.fromkeys(accepted, 1))
    assert len(accepted) == SENT


async def test_a_peer_that_fell_silent_is_left_and_found_again(start: StartServer) -> None:
    """Half open: nothing says that the line is dead, until the heartbeat does."""
    server = await start(heartbeat_s=2.0, heartbeat_timeout_s=2.0)
    async with fault_proxy(server.port) as proxy:
        who = Identity("wren", user_id="ana", name="Ana")
        async with Conversation(proxy.url, who, first_retry_s=0.05) as mind:
            await mind.say("Hello there", "m1")
            (session,) = server.app.registry._all()
            proxy.faults.silent = True
            await eventually(lambda: session.detached_at is not None)
            proxy.faults.silent = False
            proxy.cut()
            assert (await mind.say("Are you there again?", "m2"))["status"] == "completed"
            assert mind.connections >= 2
            assert server.app.registry._all() == [session]
