"""Network faults between client and server: accepted messages are stored exactly once."""

import asyncio
from collections import Counter

import pytest

from foremind_client import Conversation, Identity
from tests.conftest import RunningServer, StartServer, eventually, owner_of
from tests.faults.proxy import Faults, fault_proxy

SENT = 12


async def stored(server: RunningServer) -> Counter[str]:
    """Return how often each message is in the database."""
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
async def test_a_bad_connection_only_delays_messages(start: StartServer, faults: Faults) -> None:
    """Frames arrive late and in pieces; every message is answered once and in order."""
    server = await start()
    async with (
        fault_proxy(server.port, faults) as proxy,
        Conversation(proxy.url, Identity("wren", user_id="ana", name="Ana")) as conversation,
    ):
        for number in range(3):
            conversation.type(f"I keep my map number {number}")
            done = await conversation.say(f"I keep my map number {number}", f"m{number}")
            assert done["status"] == "completed"
    assert await stored(server) == Counter({"m0": 1, "m1": 1, "m2": 1})


@pytest.mark.parametrize("how", ["cut", "reset"])
async def test_lost_connections_lose_no_messages(start: StartServer, how: str) -> None:
    """Disconnected repeatedly at any moment: each message is accepted and stored once."""
    server = await start()
    accepted = set()
    async with fault_proxy(server.port) as proxy:

        async def disconnect_repeatedly() -> None:
            for number in range(200):
                await asyncio.sleep(0.01 + 0.013 * (number % 7))
                getattr(proxy, how)()

        disconnecting = asyncio.create_task(disconnect_repeatedly())
        identity = Identity("wren", user_id="ana", name="Ana")
        async with Conversation(proxy.url, identity, first_retry_s=0.02) as conversation:
            for number in range(SENT):
                if number % 3 == 2:  # at least once in three, however slow the machine
                    getattr(proxy, how)()
                text = f"Remember number {number}, I promise"
                event = await conversation.send(text, f"m{number}")
                assert event["id"] == f"m{number}"
                accepted.add(event["id"])
            assert conversation.connections > 3
        disconnecting.cancel()
    assert await stored(server) == Counter(dict.fromkeys(accepted, 1))
    assert len(accepted) == SENT


async def test_a_half_open_connection_is_detected_and_replaced(start: StartServer) -> None:
    """Only the heartbeat can tell that the connection is dead."""
    server = await start(heartbeat_s=2.0, heartbeat_timeout_s=2.0)
    async with fault_proxy(server.port) as proxy:
        identity = Identity("wren", user_id="ana", name="Ana")
        async with Conversation(proxy.url, identity, first_retry_s=0.05) as conversation:
            await conversation.say("Hello there", "m1")
            (session,) = server.app.registry._all()
            proxy.faults.silent = True
            await eventually(lambda: session.detached_at is not None)
            proxy.faults.silent = False
            proxy.cut()
            done = await conversation.say("Are you there again?", "m2")
            assert done["status"] == "completed"
            assert conversation.connections >= 2
            assert server.app.registry._all() == [session]
