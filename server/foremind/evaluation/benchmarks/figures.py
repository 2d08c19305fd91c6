"""What a benchmark measures with, and what it gives."""

import time
from collections.abc import Awaitable, Callable
from statistics import quantiles

import msgspec

from foremind.app import Core
from foremind.evaluation.seeding import owner_connection

Say = Callable[[str], None]

ROUNDS = 60


class Figure(msgspec.Struct, frozen=True):
    """One measurement beside its baseline from the same run; milliseconds unless `unit` says else.

    What is one number, not many, has it as `p50`, `p90` and `p99`.
    """

    name: str
    p50: float
    p90: float
    p99: float
    baseline: str
    baseline_p50: float
    unit: str = "ms"

    @property
    def ratio(self) -> float:
        """How many times slower the baseline is."""
        return self.baseline_p50 / self.p50


async def in_turn(measured: list[Callable[[], Awaitable[object]]]) -> list[list[float]]:
    """Return the milliseconds of each, measured in turn so that drift hits all alike."""
    taken: list[list[float]] = [[] for _ in measured]
    for _ in range(ROUNDS):
        for call, times in zip(measured, taken, strict=True):
            started = time.perf_counter()
            await call()
            times.append((time.perf_counter() - started) * 1000)
    return taken


def figure(name: str, baseline: str, ours: list[float], theirs: list[float]) -> Figure:
    """Return the percentiles of what was measured in milliseconds."""
    cuts = quantiles(ours, n=100)
    return Figure(
        name=name,
        p50=round(cuts[49], 3),
        p90=round(cuts[89], 3),
        p99=round(cuts[98], 3),
        baseline=baseline,
        baseline_p50=round(quantiles(theirs, n=100)[49], 3),
    )


def number(name: str, unit: str, ours: float, baseline: str, theirs: float) -> Figure:
    """Return a single number in some unit."""
    value = round(ours, 3)
    return Figure(name, value, value, value, baseline, round(theirs, 3), unit)


async def empty(parts: Core) -> None:
    """Leave the scratch database as it was made."""
    async with owner_connection(parts) as raw:
        await raw.execute("DROP TABLE IF EXISTS plain")
        await raw.execute("TRUNCATE users, companions, pgqueuer RESTART IDENTITY CASCADE")
        await raw.execute("TRUNCATE memory_terms")
