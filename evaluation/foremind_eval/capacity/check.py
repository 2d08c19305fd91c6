"""Holds the model against measured loads: typists on one, two and four gateways."""

import asyncio
from contextlib import AsyncExitStack

import msgspec

from foremind.domain.background_step import GATHERED_FOR
from foremind.domain.settings.settings import Settings
from foremind.runtime.supervision import begin, stop
from foremind_eval.benchmarks.figures import Say
from foremind_eval.capacity.model import UnitCosts, Workload, load_of
from foremind_eval.capacity.rig import Rig, rig
from foremind_eval.capacity.typists import converse
from foremind_eval.capacity.unit_costs import UNLIMITED

_GATEWAYS = (1, 2, 4)
# Players and seconds between their messages: as many messages a second for each, so that one small
# machine serves all of them, the clients included.
_CROWDS = ((100, 30.0), (1_000, 300.0))
# Until background work takes up as many messages as are sent, also of those that gather longest.
_WARM_UP_S = GATHERED_FOR.total_seconds() + 30.0
_MEASURED_S = 60.0


class Check(msgspec.Struct, frozen=True):
    """A load as measured and as the model has it; errors are shares of what was measured."""

    gateways: int
    players: int
    message_interval_s: float
    cores: float
    predicted_cores: float
    cores_error: float
    gib: float
    predicted_gib: float
    gib_error: float


async def check_model(settings: Settings, costs: UnitCosts, say: Say) -> list[Check]:
    """Measure every crowd on every number of gateways; takes about twenty minutes."""
    checks = []
    async with rig(settings) as (empty, shared):
        for number in _GATEWAYS:
            meters = empty.without_gateways()
            async with AsyncExitStack() as stack:
                for _ in range(number):
                    await meters.start(shared, UNLIMITED, stack, tap=False)
                for players, interval_s in _CROWDS:
                    say(f"{players:,} typists on {number} gateways ...")
                    checks.append(await _check(meters, costs, players, interval_s))
    return checks


async def _check(meters: Rig, costs: UnitCosts, players: int, interval_s: float) -> Check:
    async with meters.crowd(players) as clients:
        typing = [
            begin(converse(client, interval_s, seed), "typist")
            for seed, client in enumerate(clients)
        ]
        try:
            await asyncio.sleep(_WARM_UP_S)
            before = await meters.read()
            await asyncio.sleep(_MEASURED_S)
            used = await meters.read() - before
            gib = meters.gateway_bytes / 2**30
        finally:
            await stop(*typing)
    cores = (used.gateway_cpu_s + used.database_cpu_s) / _MEASURED_S
    predicted = load_of(
        Workload(players, interval_s, 0, jobs_per_message=1.0), costs, len(meters.gateways)
    )
    predicted_cores = predicted.gateway_cores + predicted.database_cores
    return Check(
        gateways=len(meters.gateways),
        players=players,
        message_interval_s=interval_s,
        cores=round(cores, 3),
        predicted_cores=round(predicted_cores, 3),
        cores_error=round(predicted_cores / cores - 1, 3),
        gib=round(gib, 3),
        predicted_gib=round(predicted.gateway_gib, 3),
        gib_error=round(predicted.gateway_gib / gib - 1, 3),
    )
