"""Many sessions at once: memory per connection, CPU per draft, and the latency of Enter."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np

from foremind.domain.settings.settings import Settings
from foremind_client import Client
from foremind_eval.benchmarks.figures import Figure, Say, single_figure, timing_figure
from foremind_eval.many_clients import crowd, new_users
from foremind_eval.processes.server_process import cpu_s, running_server

_SESSION_COUNTS = (10, 100, 1_000)
_TYPISTS = 200
_KEYS_PER_S = 4.0
_MESSAGES_PER_TYPIST = 4
_ENTER_AFTER_S = 0.2
_DRAFTS_S = 8.0  # how long drafts are sent
_SETTLE_S = 3.0
_TEXT = "Do you remember the harbour and the boats of last summer?"

_seeds = itertools.count()


async def bench_connections(settings: Settings, say: Say) -> list[Figure]:
    """Memory of an idle and of a typing session, and Enter by the number of open sessions."""
    ready_ms: dict[int, list[float]] = {count: [] for count in _SESSION_COUNTS}
    kib_per_session: list[float] = []  # idle, then typing, for each number of sessions
    with running_server(settings, {"FOREMIND_MAX_SESSIONS": "5000"}) as (url, process):
        # Warm up: what the server allocates once is not charged to the sessions.
        async with _settled_crowd(url, _SESSION_COUNTS[0]) as clients:
            await _type_and_send(clients, [])
        baseline_bytes = process.memory_info().rss

        def kib_each(count: int) -> float:
            return (process.memory_info().rss - baseline_bytes) / count / 1024

        # Largest first, so that memory retained from a smaller crowd is not counted.
        for count in reversed(_SESSION_COUNTS):
            say(f"{count:,} sessions ...")
            async with _settled_crowd(url, count) as clients:
                kib_per_session.append(kib_each(count))
                await _type_and_send(clients[:20], ready_ms[count])
                await _keep_typing(clients, _DRAFTS_S)
                kib_per_session.append(kib_each(count))
    fewest = _SESSION_COUNTS[0]
    return [
        single_figure("memory of an idle session", "KiB", kib_per_session[0], "bar", 40),
        single_figure("memory of a typing session", "KiB", kib_per_session[1], "bar", 80),
        *(
            timing_figure(
                f"Enter to model request, {count:,} sessions open", f"{fewest} open",
                times_ms, ready_ms[fewest],
            )
            for count, times_ms in ready_ms.items()
        ),
    ]  # fmt: skip


async def bench_drafts(settings: Settings, say: Say) -> list[Figure]:
    """Drafts handled per second and core, with contexts built for settled drafts and without."""
    drafts_per_s = {}
    for eager in ("true", "false"):
        say(f"Drafts as fast as they go, eager {eager} ...")
        unlimited = {"FOREMIND_EAGER": eager, "FOREMIND_DRAFTS_PER_S": "1e9"}
        with running_server(settings, unlimited) as (url, process):
            async with _settled_crowd(url, 20) as clients:
                started, started_cpu_s = time.perf_counter(), cpu_s(process)
                sent = await asyncio.gather(
                    *(_flood_drafts(client, started + _DRAFTS_S) for client in clients)
                )
                drafts_per_s[eager] = sum(sent) / (cpu_s(process) - started_cpu_s)
    return [
        single_figure(
            "drafts a second and core", "1/s", drafts_per_s["true"],
            "pauses only", drafts_per_s["false"],
        )
    ]  # fmt: skip


async def bench_typists(settings: Settings, say: Say) -> list[Figure]:
    """Two hundred typists at four keys a second: Enter with eager prefetch and with pauses only."""
    ready_ms: dict[str, list[float]] = {"true": [], "false": []}
    for eager, times_ms in ready_ms.items():
        say(f"{_TYPISTS} typists, eager {eager} ...")
        with running_server(settings, {"FOREMIND_EAGER": eager}) as (url, _):
            async with _settled_crowd(url, _TYPISTS) as clients:
                await asyncio.gather(*(_type_messages(client, times_ms) for client in clients))
    name = f"Enter to model request, {_TYPISTS} typists at {_KEYS_PER_S:.0f} keys a second"
    return [timing_figure(name, "pauses only", ready_ms["true"], ready_ms["false"])]


@asynccontextmanager
async def _settled_crowd(url: str, size: int) -> AsyncIterator[list[Client]]:
    """Open one session for each of `size` new users, and wait until the server is idle."""
    async with crowd([url], new_users(size)) as clients:
        await asyncio.sleep(_SETTLE_S)
        yield clients


async def _type_and_send(clients: list[Client], ready_ms: list[float]) -> None:
    for client in clients:
        await client.draft(_TEXT)
        await client.expect("context.ready")
        await client.send(_TEXT)
        ready_ms.append((await client.expect("message.accepted"))["ready_ms"])
        await client.expect("response.done")


async def _keep_typing(clients: list[Client], seconds: float) -> None:
    """Let all clients type at a steady pace, their keys evenly interleaved."""
    deadline, keys = time.perf_counter() + seconds, itertools.count(1)
    interval_s = 1 / (_KEYS_PER_S * len(clients))
    while time.perf_counter() < deadline:
        for client in clients:
            length = next(keys) // len(clients) % len(_TEXT) + 1
            await client.draft(_TEXT[:length])
            await asyncio.sleep(interval_s)


async def _flood_drafts(client: Client, deadline: float) -> int:
    """Send drafts without waiting until `deadline`; return how many the server handled."""
    reader = asyncio.create_task(_read_until_error(client))
    for sent in itertools.count(1):
        await client.draft(_TEXT[: sent % len(_TEXT) + 1])
        await asyncio.sleep(0)  # sending alone never yields to the other clients
        if time.perf_counter() > deadline:
            break
    # Messages are handled in order: all drafts are done once this one is refused.
    await client.send_raw({"type": "sync"})
    await reader
    return sent


async def _read_until_error(client: Client) -> None:
    await client.expect("error")


async def _type_messages(client: Client, ready_ms: list[float]) -> None:
    """Type messages key by key, and press Enter 200 ms after the last key."""
    rng = np.random.default_rng(next(_seeds))
    await asyncio.sleep(rng.uniform(0.0, len(_TEXT) / _KEYS_PER_S))
    accepted: asyncio.Queue[float] = asyncio.Queue()

    async def read() -> None:
        while True:
            event = await client.expect("message.accepted", "error")
            accepted.put_nowait(event.get("ready_ms", float("inf")))

    reader = asyncio.create_task(read())
    for _ in range(_MESSAGES_PER_TYPIST):
        next_key = time.perf_counter()
        for end in range(1, len(_TEXT) + 1):
            next_key += rng.exponential(1 / _KEYS_PER_S)
            await asyncio.sleep(next_key - time.perf_counter())
            await client.draft(_TEXT[:end])
        await asyncio.sleep(_ENTER_AFTER_S)
        await client.send(_TEXT)
        ready_ms.append(await accepted.get())
    reader.cancel()
