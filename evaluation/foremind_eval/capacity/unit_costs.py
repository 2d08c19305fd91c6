"""Measures unit costs: each kind of work by itself, at the pace at which it occurs."""

import asyncio
import functools
import itertools
import operator
import random
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

from foremind.domain.background_step import LULL
from foremind.domain.settings.settings import Settings
from foremind.runtime.supervision import begin, stop
from foremind_client import Client, connect
from foremind_eval.benchmarks.figures import Say
from foremind_eval.capacity.model import Cost, UnitCosts, messages_gathered
from foremind_eval.capacity.rig import MEMORIES_PER_USER, Reading, Rig, rig
from foremind_eval.capacity.typists import ENTER_AFTER_S, TEXT, discard_events, type_text
from foremind_eval.processes.server_process import cpu_s, free_port, quiet_server

_IDLE_SESSIONS = 300
_TYPISTS = 20
_TEXTS_PER_TYPIST = 2
_TEXTS = _TYPISTS * _TEXTS_PER_TYPIST
_SETTLE_S = 4.0  # longer than a message waits to be ingested with its reply
_IDLE_S = 60.0
_BETWEEN_WORDS_S = 1.0
_WORDS = TEXT.split()[::-1]  # other drafts than those of the text: none has a context
_BETWEEN_MESSAGES_S = 0.2  # of different players
_NOTHING_PREFETCHED = {"FOREMIND_EAGER": "false", "FOREMIND_PAUSE_MS": "10000"}
UNLIMITED = {
    "FOREMIND_DRAFTS_PER_S": "1e9",
    "FOREMIND_SENDS_PER_S": "1e9",
    "FOREMIND_MAX_SESSIONS": "5000",
    "FOREMIND_MAX_CONNECTIONS_PER_ADDRESS": "5000",
}
_BARE_SERVER = """
import asyncio, json, sys, websockets
async def parse(socket):
    async for message in socket:
        json.loads(message)
async def serve():
    async with websockets.serve(parse, "127.0.0.1", int(sys.argv[1])):
        await asyncio.Future()
asyncio.run(serve())
"""


async def measure_unit_costs(settings: Settings, interval_s: float, say: Say) -> UnitCosts:
    """Run a gateway and its database, and measure; takes about six minutes.

    Args:
        interval_s: seconds between a player's messages, which decide how many of them background
            work takes together.
    """
    at_once = messages_gathered(interval_s)
    async with rig(settings) as (empty, shared):
        say("Memory of sessions, and keystrokes ...")
        async with AsyncExitStack() as stack:
            meters = empty.without_gateways()
            await meters.start(shared, UNLIMITED | _NOTHING_PREFETCHED, stack, tap=True)
            process_mib, idle_kib, memory_kib = await _measure_memory(meters)
            async with meters.crowd(_TYPISTS, seeded=True) as clients:
                await asyncio.sleep(_SETTLE_S)
                keys = await _measure_typing(meters, clients)
        async with AsyncExitStack() as stack:
            meters = empty.without_gateways()
            await meters.start(shared, UNLIMITED, stack, tap=True)
            async with meters.crowd(_TYPISTS, seeded=True) as clients:
                say("Prefetches ...")
                await asyncio.sleep(_SETTLE_S)  # until their indexes are loaded
                before = meters.gateway_bytes
                prefetched = await _measure_prefetches(meters, clients)
                typed = await _measure_typing(meters, clients)
                typing_kib = idle_kib + (meters.gateway_bytes - before) / 1024 / _TYPISTS
                say("Messages and background work ...")
                forgotten = await _measure_messages(meters, clients, at_once, remember=False)
                await asyncio.sleep(LULL.total_seconds() + _SETTLE_S)
                remembered = await _measure_messages(meters, clients, at_once, remember=True)
                before_lull = await meters.read()
                await asyncio.sleep(LULL.total_seconds() + _SETTLE_S)
                gathered = await meters.read() - before_lull
                idle = await _measure_idle(meters)  # at last: statements are planned by now
        messages = _TYPISTS * at_once
        message = cost_of(forgotten, messages, idle)
        return UnitCosts(
            idle=idle,
            typing=cost_of(typed, _TEXTS, idle),
            message=message,
            job=_less(cost_of(remembered, messages, idle), message),
            background=cost_of(gathered, _TYPISTS, idle),
            messages_at_once=at_once,
            keystroke=cost_of(keys, _TEXTS * len(TEXT), idle),
            prefetch=cost_of(prefetched, _TYPISTS * len(_WORDS), idle),
            prefetches_per_message=typed.prefetches / _TEXTS,
            chars_per_message=len(TEXT),
            bare_keystroke_cpu_ms=await _measure_bare_keystrokes(),
            process_mib=process_mib,
            idle_session_kib=idle_kib,
            typing_session_kib=typing_kib,
            memory_kib=memory_kib,
        )


async def _measure_memory(meters: Rig) -> tuple[float, float, float]:
    """Return MiB of a process, KiB of an idle session, and KiB of a memory in an index."""
    async with meters.crowd(_TYPISTS):  # what is allocated once is not charged to sessions
        await asyncio.sleep(_SETTLE_S)
    empty = meters.gateway_bytes
    async with meters.crowd(_IDLE_SESSIONS):
        await asyncio.sleep(_SETTLE_S)
        idle_kib = (meters.gateway_bytes - empty) / _IDLE_SESSIONS / 1024
    before = meters.gateway_bytes
    async with meters.crowd(_TYPISTS, seeded=True):
        await asyncio.sleep(_SETTLE_S)
        index_bytes = meters.gateway_bytes - before
    return empty / 2**20, idle_kib, index_bytes / 1024 / _TYPISTS / MEMORIES_PER_USER


async def _measure_idle(meters: Rig) -> Cost:
    """Return what a second takes in which the players of a gateway do nothing."""
    before = await meters.read()
    await asyncio.sleep(_IDLE_S)
    used = await meters.read() - before
    return cost_of(used, used.seconds)


async def _measure_typing(meters: Rig, clients: Sequence[Client]) -> Reading:
    before = await meters.read()
    await _type_all(clients)
    return await meters.read() - before


async def _type_all(clients: Sequence[Client]) -> None:
    await asyncio.gather(*(_type_texts(client, seed) for seed, client in enumerate(clients)))


async def _type_texts(client: Client, seed: int) -> None:
    """Type, pause as before Enter, and discard the draft."""
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    reader = begin(discard_events(client), "reader")
    for _ in range(_TEXTS_PER_TYPIST):
        await type_text(client, draw)
        await asyncio.sleep(ENTER_AFTER_S)
        await client.clear_draft()
    await stop(reader)


async def _measure_bare_keystrokes() -> float:
    """Return what a key takes, in ms, of a server that only parses what the same typists send."""
    port = free_port()
    with quiet_server([sys.executable, "-c", _BARE_SERVER, str(port)], port) as process:
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(connect(f"ws://127.0.0.1:{port}"))
                for _ in range(_TYPISTS)
            ]
            before_s = cpu_s(process)
            await _type_all(clients)
            return (cpu_s(process) - before_s) * 1000 / (_TEXTS * len(TEXT))


async def _measure_prefetches(meters: Rig, clients: Sequence[Client]) -> Reading:
    """Return what a text takes that grows by a word a second, each time with a new context."""

    async def type_words(number: int, client: Client) -> None:
        await asyncio.sleep(number * _BETWEEN_WORDS_S / _TYPISTS)
        for count in range(1, len(_WORDS) + 1):
            await client.draft(" ".join(_WORDS[:count]))
            await client.expect("context.ready")
            await asyncio.sleep(_BETWEEN_WORDS_S)
        await client.clear_draft()

    before = await meters.read()
    await asyncio.gather(*itertools.starmap(type_words, enumerate(clients)))
    return await meters.read() - before


async def _measure_messages(
    meters: Rig, clients: Sequence[Client], each: int, *, remember: bool
) -> Reading:
    """Return what messages take whose contexts are ready, and ingesting those to be remembered.

    The reply of the offline model is not ingested.
    """
    used = []
    for number in range(each):
        text = f"{TEXT}, number {number} of {each}?"
        for client in clients:
            await client.draft(text)
            await client.expect("context.ready")
        before = await meters.read()
        for client in clients:
            await client.send_raw(
                {"type": "message.send", "id": f"{remember}-{number}", "text": text,
                 "remember": remember}
            )  # fmt: skip
            await client.expect("response.done")
            await asyncio.sleep(_BETWEEN_MESSAGES_S)
        await asyncio.sleep(_SETTLE_S)
        used.append(await meters.read() - before)
    return functools.reduce(operator.add, used)


def cost_of(used: Reading, count: float, idle: Cost | None = None) -> Cost:
    """Return the cost of each of `count` pieces of work, less what passes in idle seconds. Pure."""
    cost = Cost(
        gateway_cpu_ms=used.gateway_cpu_s * 1000 / count,
        database_cpu_ms=used.database_cpu_s * 1000 / count,
        database_round_trips=used.round_trips / count,
        database_bytes=used.database_bytes / count,
        client_bytes=used.client_bytes / count,
    )
    return cost if idle is None else _less(cost, idle, used.seconds / count)


def _less(cost: Cost, part: Cost, count: float = 1.0) -> Cost:
    """Return a cost without `count` times another; what is below zero stays so."""
    return Cost(
        *(getattr(cost, name) - getattr(part, name) * count for name in Cost.__struct_fields__)
    )
