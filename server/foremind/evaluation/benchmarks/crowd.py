"""Many at once: what a connection takes, what a draft costs, and whether Enter is held up."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import numpy as np
import psutil

from foremind.client import Client, connect
from foremind.domain.settings import Settings
from foremind.evaluation.benchmarks.figures import Figure, Say, figure, number
from foremind.testing.server_process import running_server

_SIZES = (10, 100, 1_000)  # sessions
_TYPISTS = 200
_KEYS_PER_S = 4.0
_MESSAGES = 4  # of each typist
_ENTER_AFTER_S = 0.2
_DRAFTS_S = 8.0  # how long drafts are poured in
_SETTLED_S = 3.0
_TEXT = "Do you remember the harbour and the boats of last summer?"
_AT_ONCE = 50  # connections opened

_numbers = itertools.count()


async def bench_connections(settings: Settings, say: Say) -> list[Figure]:
    """Memory of an idle and of a typing session, and how Enter grows with their number."""
    entered: dict[int, list[float]] = {size: [] for size in _SIZES}
    taken: list[float] = []  # KiB for each session, idle and typing
    with running_server(settings, {"FOREMIND_MAX_SESSIONS": "5000"}) as (url, process):
        async with _crowd(url, _SIZES[0]) as warm:  # what the first ones allocate is not theirs
            await _type_and_send(warm, [])
        empty = process.memory_info().rss

        def each_takes(count: int) -> float:
            return (process.memory_info().rss - empty) / count / 1024

        for size in reversed(_SIZES):  # the most first: nobody's leftovers are counted as theirs
            say(f"{size:,} sessions ...")
            async with _crowd(url, size) as clients:
                taken.append(each_takes(size))
                await _type_and_send(clients[:20], entered[size])
                await _keep_typing(clients, _DRAFTS_S)
                taken.append(each_takes(size))
    few = entered[_SIZES[0]]
    return [
        number("memory of an idle session", "KiB", taken[0], "bar", 40),
        number("memory of a typing session", "KiB", taken[1], "bar", 80),
        *(
            figure(f"Enter to model request, {size:,} sessions open", f"{_SIZES[0]} open", own, few)
            for size, own in entered.items()
        ),
    ]


async def bench_drafts(settings: Settings, say: Say) -> list[Figure]:
    """Drafts that a core takes in, with contexts prepared at settled keystrokes and without."""
    per_s = {}
    for eager in ("true", "false"):
        say(f"Drafts as fast as they go, eager {eager} ...")
        unlimited = {"FOREMIND_EAGER": eager, "FOREMIND_DRAFTS_PER_S": "1e9"}
        with running_server(settings, unlimited) as (url, process):
            async with _crowd(url, 20) as clients:
                before, cpu = time.perf_counter(), _cpu_s(process)
                sent = await asyncio.gather(
                    *(_pour(client, before + _DRAFTS_S) for client in clients)
                )
                per_s[eager] = sum(sent) / (_cpu_s(process) - cpu)
    return [number("drafts a second and core", "1/s", per_s["true"], "pauses only", per_s["false"])]


async def bench_typists(settings: Settings, say: Say) -> list[Figure]:
    """Two hundred typists at four keys a second: Enter, with settled drafts and pauses only."""
    taken: dict[str, list[float]] = {"true": [], "false": []}
    for eager, entered in taken.items():
        say(f"{_TYPISTS} typists, eager {eager} ...")
        with running_server(settings, {"FOREMIND_EAGER": eager}) as (url, _):
            async with _crowd(url, _TYPISTS) as clients:
                await asyncio.gather(*(_type_on(client, entered) for client in clients))
    name = f"Enter to model request, {_TYPISTS} typists at {_KEYS_PER_S:.0f} keys a second"
    return [figure(name, "pauses only", taken["true"], taken["false"])]


@asynccontextmanager
async def _crowd(url: str, size: int) -> AsyncIterator[list[Client]]:
    """Open sessions of as many new players, and wait until the server rests."""
    gate = asyncio.Semaphore(_AT_ONCE)
    async with AsyncExitStack() as stack:

        async def enter() -> Client:
            async with gate:
                client = await stack.enter_async_context(connect(url))
                await client.open_session("wren", user_id=f"crowd-{next(_numbers)}", name="C")
            return client

        clients = await asyncio.gather(*(enter() for _ in range(size)))
        await asyncio.sleep(_SETTLED_S)
        yield clients


async def _type_and_send(clients: list[Client], entered: list[float]) -> None:
    for client in clients:
        await client.draft(_TEXT)
        await client.expect("context.ready")
        await client.send(_TEXT)
        entered.append((await client.expect("message.accepted"))["ready_ms"])
        await client.expect("response.done")


async def _keep_typing(clients: list[Client], seconds: float) -> None:
    """Let everybody type at a steady pace, the keys of all spread over time."""
    until, typed = time.perf_counter() + seconds, itertools.count(1)
    pause = 1 / (_KEYS_PER_S * len(clients))
    while time.perf_counter() < until:
        for client in clients:
            length = next(typed) // len(clients) % len(_TEXT) + 1
            await client.draft(_TEXT[:length])
            await asyncio.sleep(pause)


async def _pour(client: Client, until: float) -> int:
    reader = asyncio.create_task(_read(client))
    for sent in itertools.count(1):
        await client.draft(_TEXT[: sent % len(_TEXT) + 1])
        await asyncio.sleep(0)  # sending alone lets nobody else send or read
        if time.perf_counter() > until:
            break
    # What was sent is handled once something sent after it is answered.
    await client.send_raw({"type": "sync"})
    await reader
    return sent


async def _read(client: Client) -> None:
    await client.expect("error")


async def _type_on(client: Client, entered: list[float]) -> None:
    """Type messages key by key and press Enter 200 ms after the last."""
    draw = np.random.default_rng(next(_numbers))
    await asyncio.sleep(draw.uniform(0.0, len(_TEXT) / _KEYS_PER_S))
    accepted: asyncio.Queue[float] = asyncio.Queue()

    async def read() -> None:
        while True:
            event = await client.expect("message.accepted", "error")
            accepted.put_nowait(event.get("ready_ms", float("inf")))

    reader = asyncio.create_task(read())
    for _ in range(_MESSAGES):
        due = time.perf_counter()
        for end in range(1, len(_TEXT) + 1):
            due += draw.exponential(1 / _KEYS_PER_S)
            await asyncio.sleep(due - time.perf_counter())
            await client.draft(_TEXT[:end])
        await asyncio.sleep(_ENTER_AFTER_S)
        await client.send(_TEXT)
        entered.append(await accepted.get())
    reader.cancel()


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)
