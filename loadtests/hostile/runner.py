"""`make hostile`: honest typists beside attackers of every kind, with one and with fifty of each.

The same typists type in calm and in hostile rounds by turns, so that drift hits both; what counts
is how much later one Enter in a hundred is answered than in all calm rounds so far, and what the
server's memory grows by and comes back to. One Enter in a hundred is few: an attack that seems to
hurt is measured up to four times as long. Every attacker is a process of its own that yields to the
others: attackers bring their own machines. Beside Enter stands how late this process itself was
woken: where one time in a hundred that is as long, the machine was measured, not the server. The
server's processor time hardly depends on what else runs on the machine.

The report is written after every attack. Attacks that are measured alone replace what the report
says of them; the others' results stay.
"""

import argparse
import asyncio
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil
import uvloop

from foremind.app.configuration import load_settings
from foremind_client import Client, Closed, connect
from foremind_eval.processes.server_process import cpu_s, running_server
from loadtests.hostile import attackers
from loadtests.hostile.report import USUAL_PROFILE, Profile, add_result, read_results

RESULTS = Path(__file__).parents[1] / "results"
_MOST_ENTER, _MOST_MEMORY = 1.2, 1.1  # times what it is when calm
_TIMES_AGAIN = 4  # as many rounds, where an attack seems to hurt
_KEYS_PER_S = 4.0
_ENTER_AFTER_S = 0.2
_TEXT = "Do you remember the old boat?"
_NAP_S = 0.01
_SAMPLE_S = 0.1
_MEET_S = 2.0  # the attackers are in place by then
_CALM_S = 3.0  # and forgotten again
_SWOLLEN_BYTES = 3 * 2**30
_LOST_S = 60.0  # an Enter that is not answered by then is an error


@dataclass
class Measured:
    """What calm or hostile rounds took: milliseconds, bytes."""

    entered: list[float] = field(default_factory=list)
    woken_late: list[float] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    lost: int = 0
    server_cpu_s: float = 0.0
    took_s: float = 0.0

    def figures(self) -> dict[str, Any]:
        """Return the figures as they are published."""
        cuts = _percentiles(self.entered)
        return {
            "sent": len(self.entered),
            "p50_ms": round(cuts[49], 2),
            "p99_ms": round(cuts[98], 2),
            "max_ms": round(max(self.entered, default=float("inf")), 2),
            "woken_late_p99_ms": round(quantiles(self.woken_late, n=100)[98], 2),
            "most_memory_kib": max(self.memory) // 1024,
            "server_cpu": round(self.server_cpu_s / self.took_s, 3),
        }


def _percentiles(taken: list[float]) -> list[float]:
    """Return the 99 percentiles; infinite where too few were taken."""
    return quantiles(taken, n=100) if len(taken) > 1 else [float("inf")] * 99


def main() -> None:
    """Run, print, write `hostile.json`; exit with 1 where Enter or the server's memory suffers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attacks", type=_names, default=list(attackers.ATTACKS),
                        help="some of " + ",".join(attackers.ATTACKS))  # fmt: skip
    parser.add_argument("--attackers", type=_numbers, default=[1, 50], help="of each, in turn")
    parser.add_argument("--typists", type=int)
    parser.add_argument("--rounds", type=int, help="calm and hostile ones")
    parser.add_argument("--messages", type=int, help="of a typist in a round")
    parser.add_argument("--out", type=Path, default=RESULTS / "hostile.json")
    parser.set_defaults(**USUAL_PROFILE)
    options = parser.parse_args()
    profile = {name: getattr(options, name) for name in USUAL_PROFILE}
    some = set(options.attacks) != set(attackers.ATTACKS)
    if some and read_results(options.out, profile) is None:
        parser.error(f"{options.out} has another number of typists, rounds or messages: "
                     "choose the same, or another --out")  # fmt: skip
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="hostile-", dir=settings.data_dir) as scratch,
        running_server(settings.in_scratch(Path(scratch))) as (url, process),
    ):
        taken = uvloop.run(_every_attack(url, process, options, profile))
    if suffering := [result["attack"] for result in taken if not result["held"]]:
        sys.exit(f"Enter or memory suffers: {', '.join(suffering)}.")


def _names(given: str) -> list[str]:
    if unknown := set(given.split(",")) - set(attackers.ATTACKS):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}")
    return given.split(",")


def _numbers(given: str) -> list[int]:
    return [int(number) for number in given.split(",")]


async def _every_attack(
    url: str, process: psutil.Process, options: argparse.Namespace, profile: Profile
) -> list[dict[str, Any]]:
    await _round(url, process, options, Measured())  # warms up
    every_calm: list[float] = []
    taken: list[dict[str, Any]] = []
    for attack in options.attacks:
        for number in options.attackers:
            taken.append(await _compare(url, process, options, attack, number, every_calm))
            print(_line(taken[-1]), flush=True)
            add_result(options.out, profile, taken[-1])
    return taken


async def _compare(
    url: str,
    process: psutil.Process,
    options: argparse.Namespace,
    attack: str,
    number: int,
    every_calm: list[float],
) -> dict[str, Any]:
    calm, hostile, after = Measured(), Measured(), Measured()
    for done in range(1, _TIMES_AGAIN * options.rounds + 1):
        before = len(calm.entered)
        await _round(url, process, options, calm)
        every_calm += calm.entered[before:]
        async with _attackers(url, attack, number, process):
            await asyncio.sleep(_MEET_S)
            await _round(url, process, options, hostile)
        await asyncio.sleep(_CALM_S)
        after.memory.append(process.memory_info().rss)
        taken = _compared(calm, hostile, after, every_calm)
        if done >= options.rounds and taken["held"]:
            break
    return {"attack": attack, "attackers": number, "rounds": done} | taken


def _compared(
    calm: Measured, hostile: Measured, after: Measured, every_calm: list[float]
) -> dict[str, Any]:
    quiet, loud = calm.figures(), hostile.figures()
    usual_p99 = _percentiles(every_calm)[98]
    p99 = loud["p99_ms"] / usual_p99
    memory = max(hostile.memory) / max(calm.memory)
    back = after.memory[-1] / max(calm.memory)
    lost = calm.lost + hostile.lost
    return {
        "calm": quiet,
        "hostile": loud,
        "every_calm_p99_ms": round(usual_p99, 2),
        "p50_ratio": round(loud["p50_ms"] / quiet["p50_ms"], 3),
        "p99_ratio": round(p99, 3),
        "memory_ratio": round(memory, 3),
        "memory_back_ratio": round(back, 3),
        "lost": lost,
        "held": p99 <= _MOST_ENTER and max(memory, back) <= _MOST_MEMORY and not lost,
    }


def _line(taken: dict[str, Any]) -> str:
    return (
        f"{taken['attack']:>14} x{taken['attackers']:<3} p99 {taken['every_calm_p99_ms']:8.2f} -> "
        f"{taken['hostile']['p99_ms']:8.2f} ms ({taken['p99_ratio']:.2f}), slowest "
        f"{taken['hostile']['max_ms']:.0f} ms, server's CPU {taken['calm']['server_cpu']:.2f} -> "
        f"{taken['hostile']['server_cpu']:.2f}, memory {taken['memory_ratio']:.2f}, back "
        f"{taken['memory_back_ratio']:.2f}, lost {taken['lost']}"
    )


@asynccontextmanager
async def _attackers(
    url: str, attack: str, number: int, server: psutil.Process
) -> AsyncIterator[None]:
    """Run attackers while the block runs, each in a process of its own.

    They are ended early where the server swells: the machine is others', too.
    """
    host, _, port = url.removeprefix("ws://").partition("/")[0].partition(":")
    command = [sys.executable, "-S", "-E", attackers.__file__, attack, host, port]
    running = [
        subprocess.Popen([*command, str(attacker)], stderr=subprocess.DEVNULL)  # noqa: ASYNC220
        for attacker in range(number)
    ]

    async def guard() -> None:
        while server.memory_info().rss < _SWOLLEN_BYTES:  # noqa: ASYNC110
            await asyncio.sleep(_SAMPLE_S)
        print(f"{attack}: the server swells, its attackers are ended", file=sys.stderr)
        for process in running:
            process.kill()

    guarding = asyncio.create_task(guard())
    try:
        yield
    finally:
        guarding.cancel()
        await asyncio.wait({guarding})
        for process in running:
            process.kill()
        for process in running:
            process.wait()


async def _round(
    url: str, process: psutil.Process, options: argparse.Namespace, measured: Measured
) -> None:
    started, cpu_before = time.perf_counter(), cpu_s(process)
    with _watched(process, measured):
        async with asyncio.TaskGroup() as group:
            for number in range(options.typists):
                group.create_task(_honest(url, number, options.messages, measured))
    measured.took_s += time.perf_counter() - started
    measured.server_cpu_s += cpu_s(process) - cpu_before


@contextlib.contextmanager
def _watched(process: psutil.Process, measured: Measured) -> Iterator[None]:
    """Take how late this process is woken, and the server's memory."""

    async def nap() -> None:
        while True:
            due = time.perf_counter() + _NAP_S
            await asyncio.sleep(_NAP_S)
            measured.woken_late.append((time.perf_counter() - due) * 1000)

    async def sample() -> None:
        while True:
            measured.memory.append(process.memory_info().rss)
            await asyncio.sleep(_SAMPLE_S)

    tasks = [asyncio.create_task(nap()), asyncio.create_task(sample())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


async def _honest(url: str, number: int, messages: int, measured: Measured) -> None:
    """Type and press Enter, some times; what is not answered is counted as lost."""
    before = len(measured.entered)
    mine = 0
    try:
        async with asyncio.timeout(_LOST_S), connect(url) as client:
            await client.open_session("wren", user_id=f"honest-{number}", name="H")
            async for taken in _typed(client, random.Random(number), messages):
                measured.entered.append(taken)
                mine += 1
    except (Closed, OSError, TimeoutError) as error:
        print(f"lost after {len(measured.entered) - before}: {error!r}", file=sys.stderr)
    measured.lost += messages - mine


async def _typed(client: Client, draw: random.Random, messages: int) -> AsyncIterator[float]:
    """Yield how long each Enter took, in milliseconds."""
    await asyncio.sleep(draw.uniform(0, len(_TEXT) / _KEYS_PER_S))
    accepted: asyncio.Queue[float] = asyncio.Queue()
    reader = asyncio.create_task(_hear(client, accepted))
    try:
        for _ in range(messages):
            for end in range(1, len(_TEXT) + 1):
                await asyncio.sleep(draw.expovariate(_KEYS_PER_S))
                await client.draft(_TEXT[:end])
            await asyncio.sleep(_ENTER_AFTER_S)
            pressed = time.perf_counter()
            await client.send(_TEXT)
            yield (await accepted.get() - pressed) * 1000
    finally:
        reader.cancel()
        await asyncio.wait({reader})


async def _hear(client: Client, accepted: "asyncio.Queue[float]") -> None:
    while True:
        if (await client.next_event())["type"] == "message.accepted":
            accepted.put_nowait(time.perf_counter())
