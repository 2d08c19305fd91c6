"""What players cost follows from unit costs."""

import asyncio

import msgspec
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
    messages_gathered,
    negative_costs,
)
from foremind_eval.capacity.rig import Reading
from foremind_eval.capacity.unit_costs import cost_of
from foremind_eval.capacity.wire_tap import wire_tap

COSTS = UnitCosts(
    idle=Cost(2, 1, 3, 600, 0),
    typing=Cost(40, 0, 0, 0, 14_000),
    message=Cost(4, 2, 5, 3_000, 1_500),
    job=Cost(3, 4, 10, 8_000, 400),
    background=Cost(8, 12, 20, 9_000, 0),
    messages_at_once=4,
    keystroke=Cost(0.2, 0, 0, 0, 70),
    prefetch=Cost(3, 0, 0, 0, 1_000),
    prefetches_per_message=10,
    chars_per_message=60,
    bare_keystroke_cpu_ms=0.16,
    process_mib=256,
    idle_session_kib=30,
    typing_session_kib=100,
    memory_kib=4,
)
PRICES = Prices(core=10, gib=2, cores_per_machine=16)


def test_a_load_is_the_sum_of_its_work() -> None:
    """A thousand players with a message each 25 s: 40 messages a second, of 52 ms each."""
    load = load_of(Workload(1_000, 25, 1_000), COSTS, gateways=4)
    assert load.gateway_cores == pytest.approx((40 * (40 + 4 + 2 * 3 + 8 / 4) + 4 * 2) / 1000)
    assert load.database_cores == pytest.approx((40 * (2 + 2 * 4 + 12 / 4) + 4 * 1) / 1000)
    assert load.commits_per_s == 40 * 4
    assert load.gateway_gib == pytest.approx(1 + 1_000 * (100 + 4_000) / 2**20)


@pytest.mark.parametrize(
    ("interval_s", "messages"), [(1, 6), (18, 6), (19, 5), (25, 4), (30, 4), (45, 3), (46, 1)]
)
def test_background_work_gathers_what_is_sent_without_a_lull(
    interval_s: float, messages: int
) -> None:
    assert messages_gathered(interval_s) == messages


def test_a_cost_below_zero_is_named_and_not_hidden() -> None:
    assert negative_costs(COSTS) == []
    wrong = msgspec.structs.replace(COSTS, job=Cost(-1.5, 4, 10, 8_000, 400))
    assert negative_costs(wrong) == ["job.gateway_cpu_ms: -1.500"]
    workload = Workload(1_000, 25, 0)
    less = load_of(workload, COSTS).gateway_cores - load_of(workload, wrong).gateway_cores
    assert less == pytest.approx(40 * 2 * 4.5 / 1000)


def test_the_cost_of_a_piece_of_work_is_less_what_passes_idle() -> None:
    """Ten pieces in five seconds, which cost 2 ms each when nothing is done."""
    used = Reading(
        seconds=5, gateway_cpu_s=0.05, database_cpu_s=0, round_trips=35, database_bytes=3_000,
        client_bytes=700, prefetches=0,
    )  # fmt: skip
    assert cost_of(used, 10, COSTS.idle) == Cost(4, -0.5, 2, 0, 70)


def test_cores_have_room_for_bursts() -> None:
    """Gateways are 60% busy and databases 50%: 2.08 and 0.52 cores of work take 4 and 2."""
    deployment = deployment_for(Workload(1_000, 25, 0), COSTS, PRICES)
    assert deployment.gateways == 4
    assert deployment.database_nodes == 1
    assert deployment.price == pytest.approx((4 + 2) * 10 + deployment.gateway_gib * 2)


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
