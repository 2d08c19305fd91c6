"""Measures unit costs: each kind of work by itself, less what it contains of the others."""

import asyncio
import random
from contextlib import AsyncExitStack

from foremind.domain.settings.settings import Settings
from foremind.runtime.supervision import begin, stop
from foremind_client import Client
from foremind_eval.benchmarks.figures import Say
from foremind_eval.capacity.model import Cost, UnitCosts
from foremind_eval.capacity.rig import MEMORIES_PER_USER, Reading, Rig, rig
from foremind_eval.capacity.typists import ENTER_AFTER_S, TEXT, discard_events, type_text

_IDLE_SESSIONS = 300
_TYPISTS = 20
_TEXTS_PER_TYPIST = 2
_MESSAGES_PER_TYPIST = 8
_FAST_KEYS = 300  # of each typist, while nothing is prefetched
_SETTLE_S = 2.0
_NOTHING_PREFETCHED = {"FOREMIND_EAGER": "false", "FOREMIND_PAUSE_MS": "10000"}
UNLIMITED = {
    "FOREMIND_DRAFTS_PER_S": "1e9",
    "FOREMIND_SENDS_PER_S": "1e9",
    "FOREMIND_MAX_SESSIONS": "5000",
    "FOREMIND_MAX_CONNECTIONS_PER_ADDRESS": "5000",
}


async def measure_unit_costs(settings: Settings, say: Say) -> UnitCosts:
    """Run a gateway and its database, and measure; takes a minute or two."""
    async with rig(settings) as (empty, shared):
        say("Memory of sessions, and keystrokes ...")
        async with AsyncExitStack() as stack:
            meters = empty.without_gateways()
            await meters.start(shared, UNLIMITED | _NOTHING_PREFETCHED, stack, tap=True)
            process_mib, idle_kib, memory_kib = await _measure_memory(meters)
            keystroke = await _measure_keystrokes(meters)
        async with AsyncExitStack() as stack:
            meters = empty.without_gateways()
            await meters.start(shared, UNLIMITED, stack, tap=True)
            async with meters.crowd(_TYPISTS, seeded=True) as clients:
                say("Prefetches ...")
                await asyncio.sleep(_SETTLE_S)  # until their indexes are loaded
                before = meters.gateway_bytes
                prefetch, per_message = await _measure_prefetches(meters, clients, keystroke)
                typing_kib = idle_kib + max(0.0, meters.gateway_bytes - before) / 1024 / _TYPISTS
                say("Messages and jobs ...")
                message, remembered = [
                    await _measure_messages(meters, clients, keystroke, prefetch, remember=remember)
                    for remember in (False, True)
                ]
        return UnitCosts(
            keystroke=keystroke,
            prefetch=prefetch,
            message=message,
            job=_less(remembered, (message, 1.0)),
            prefetches_per_message=per_message,
            chars_per_message=len(TEXT),
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


async def _measure_keystrokes(meters: Rig) -> Cost:
    async with meters.crowd(_TYPISTS, seeded=True) as clients:
        await asyncio.sleep(_SETTLE_S)
        before = await meters.read()
        for number in range(_FAST_KEYS):
            for client in clients:
                await client.draft(TEXT[: number % len(TEXT) + 1])
            await asyncio.sleep(0)
        for client in clients:  # messages are handled in order: all drafts are done
            await client.send_raw({"type": "sync"})
            await client.expect("error")
        return _per(await meters.read() - before, _FAST_KEYS * len(clients))


async def _measure_prefetches(
    meters: Rig, clients: list[Client], keystroke: Cost
) -> tuple[Cost, float]:
    """Return the cost of a prefetch, and how many a typed message has."""
    before = await meters.read()
    await asyncio.gather(*(_type_texts(client, seed) for seed, client in enumerate(clients)))
    used = await meters.read() - before
    texts = _TEXTS_PER_TYPIST * len(clients)
    cost = _less(_per(used, texts), (keystroke, len(TEXT)))
    per_message = used.prefetches / texts
    return _scaled(cost, 1 / per_message), per_message


async def _type_texts(client: Client, seed: int) -> None:
    """Type, pause as before Enter, and discard the draft."""
    draw = random.Random(seed)  # noqa: S311 - not for secrets
    reader = begin(discard_events(client), "reader")
    for _ in range(_TEXTS_PER_TYPIST):
        await type_text(client, draw)
        await asyncio.sleep(ENTER_AFTER_S)
        await client.clear_draft()
    await stop(reader)


async def _measure_messages(
    meters: Rig, clients: list[Client], keystroke: Cost, prefetch: Cost, *, remember: bool
) -> Cost:
    """Return the cost of a message, with the job that follows if it is remembered.

    The reply of the offline model is not ingested.
    """
    before = await meters.read()
    for number in range(_MESSAGES_PER_TYPIST):
        for client in clients:
            text = f"{TEXT}, number {number}?"
            await client.draft(text)
            await client.expect("context.ready")
            await client.send_raw(
                {"type": "message.send", "id": f"{remember}-{number}", "text": text,
                 "remember": remember}
            )  # fmt: skip
            await client.expect("response.done")
    count = _MESSAGES_PER_TYPIST * len(clients)
    while remember and (await meters.read() - before).ingested < count:  # noqa: ASYNC110
        await asyncio.sleep(_SETTLE_S)
    await asyncio.sleep(_SETTLE_S)  # what background work by rules remains
    used = await meters.read() - before
    return _less(_per(used, count), (keystroke, 1.0), (prefetch, used.prefetches / count))


def _per(used: Reading, count: float) -> Cost:
    return Cost(
        gateway_cpu_ms=used.gateway_cpu_s * 1000 / count,
        database_cpu_ms=used.database_cpu_s * 1000 / count,
        database_round_trips=used.round_trips / count,
        database_bytes=used.database_bytes / count,
        client_bytes=used.client_bytes / count,
    )


def _scaled(cost: Cost, factor: float) -> Cost:
    return Cost(*(getattr(cost, name) * factor for name in Cost.__struct_fields__))


def _less(cost: Cost, *parts: tuple[Cost, float]) -> Cost:
    """Return a cost without what it contains: other costs, each so many times; never below zero."""
    return Cost(
        *(
            max(0.0, getattr(cost, name) - sum(getattr(part, name) * n for part, n in parts))
            for name in Cost.__struct_fields__
        )
    )
