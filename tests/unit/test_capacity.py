"""What players cost follows from unit costs."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foremind_eval.capacity.model import (
    Cost,
    Prices,
    UnitCosts,
    Workload,
    deployment_for,
    load_of,
)
from foremind_eval.capacity.wire_tap import wire_tap

COSTS = UnitCosts(
    keystroke=Cost(0.1, 0, 0, 0, 70),
    prefetch=Cost(5, 0, 0, 0, 1_000),
    message=Cost(4, 2, 5, 3_000, 1_500),
    job=Cost(3, 4, 10, 8_000, 400),
    prefetches_per_message=10,
    chars_per_message=60,
    process_mib=256,
    idle_session_kib=30,
    typing_session_kib=100,
    memory_kib=4,
)
PRICES = Prices(core=10, gib=2, cores_per_machine=16)


def test_a_load_is_the_sum_of_its_work() -> None:
    """A thousand players with a message each 25 s: 40 messages a second, of 66 ms each."""
    load = load_of(Workload(1_000, 25, 1_000), COSTS, gateways=4)
    assert load.gateway_cores == pytest.approx(40 * (60 * 0.1 + 10 * 5 + 4 + 2 * 3) / 1000)
    assert load.database_cores == pytest.approx(40 * (2 + 2 * 4) / 1000)
    assert load.commits_per_s == 40 * 4
    assert load.gateway_gib == pytest.approx(1 + 1_000 * (100 + 4_000) / 2**20)


def test_cores_have_room_for_bursts() -> None:
    """Gateways are 60% busy and databases 50%: 2.64 and 0.4 cores of work take 5 and 1."""
    deployment = deployment_for(Workload(1_000, 25, 0), COSTS, PRICES)
    assert deployment.gateways == 5
    assert deployment.database_nodes == 1
    assert deployment.price == pytest.approx((5 + 1) * 10 + deployment.gateway_gib * 2)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_more_players_never_cost_less(some: int, more: int) -> None:
    fewer, many = sorted((some, more))
    prices = [
        deployment_for(Workload(players, 25, 1_000), COSTS, PRICES).price
        for players in (fewer, many)
    ]
    assert prices[0] <= prices[1]


async def test_a_tap_counts_round_trips_and_bytes() -> None:
    """Three requests of two writes each, and their responses."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readexactly(4):
            writer.write(b"response")

    server = await asyncio.start_server(respond, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    async with wire_tap(lambda: asyncio.open_connection("127.0.0.1", port)) as traffic:
        reader, writer = await asyncio.open_connection("127.0.0.1", traffic.port)
        for _ in range(3):
            writer.write(b"re")
            await writer.drain()
            writer.write(b"qu")
            assert await reader.readexactly(8) == b"response"
        writer.close()
    server.close()
    assert (traffic.round_trips, traffic.bytes) == (3, 3 * 12)
