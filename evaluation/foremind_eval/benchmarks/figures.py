"""How benchmarks measure, and what they return."""

import time
from collections.abc import Awaitable, Callable
from statistics import quantiles

import msgspec

from foremind.app.core import Core
from foremind_eval.seeding import owner_connection

Say = Callable[[str], None]

ROUNDS = 60


class Figure(msgspec.Struct, frozen=True):
    """A measurement and its baseline from the same run, in `unit` (milliseconds by default).

    A measurement that is a single number repeats it as `p50`, `p90` and `p99`.
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
        """The baseline's median divided by the measured one."""
        return self.baseline_p50 / self.p50


async def measure_interleaved(calls: list[Callable[[], Awaitable[object]]]) -> list[list[float]]:
    """Return each call's durations in milliseconds, interleaved so that drift affects all alike."""
    durations_ms: list[list[float]] = [[] for _ in calls]
    for _ in range(ROUNDS):
        for call, times in zip(calls, durations_ms, strict=True):
            started = time.perf_counter()
            await call()
            times.append((time.perf_counter() - started) * 1000)
    return durations_ms


def timing_figure(
    name: str, baseline: str, times_ms: list[float], baseline_ms: list[float]
) -> Figure:
    """Return the percentiles of durations in milliseconds."""
    cuts = quantiles(times_ms, n=100)
    return Figure(
        name=name,
        p50=round(cuts[49], 3),
        p90=round(cuts[89], 3),
        p99=round(cuts[98], 3),
        baseline=baseline,
        baseline_p50=round(quantiles(baseline_ms, n=100)[49], 3),
    )


def single_figure(
    name: str, unit: str, value: float, baseline: str, baseline_value: float
) -> Figure:
    """Return a figure of a single number."""
    value = round(value, 3)
    return Figure(name, value, value, value, baseline, round(baseline_value, 3), unit)


async def clear_database(parts: Core) -> None:
    """Delete everything that a benchmark wrote to its scratch database."""
    async with owner_connection(parts) as raw:
        await raw.execute("DROP TABLE IF EXISTS plain")
        await raw.execute("TRUNCATE users, companions RESTART IDENTITY CASCADE")
        await raw.execute("TRUNCATE memory_terms")
