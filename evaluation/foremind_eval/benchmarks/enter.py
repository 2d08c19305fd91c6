"""From Enter to the request to the language model."""

import asyncio

import msgspec

from foremind.app.core import core
from foremind.app.server import serving
from foremind.domain.settings.setting_definitions import LAYERS, LayerName
from foremind.domain.settings.settings import Settings
from foremind_client import Client, connect
from foremind_eval.benchmarks.figures import ROUNDS, Figure, Say, timing_figure
from foremind_eval.seeding import fill, fill_layers

_ENTER_MEMORIES = 50_000
_INDEX_BYTES = 1 << 30
_INDEX_LOAD_S = 5.0  # long enough for the index to be loaded
_LAYERS_MEMORIES = 1_000
_BETWEEN_MESSAGES_S = 0.3
_PAUSE_MS = 50  # the shortest allowed, so that a round need not wait half a second


async def bench_enter(settings: Settings, say: Say) -> list[Figure]:
    """Compare hit with miss, and a miss searched in process with one searched in the database."""
    say(f"Filling a relationship with {_ENTER_MEMORIES:,} memories ...")
    async with core(settings, say=lambda _: None) as parts:
        await fill(parts, parts.runtime.clock.now(), own=_ENTER_MEMORIES, others=0)
    hits_ms, misses_ms = await _measure_enter(settings, _INDEX_BYTES)
    _, in_database_ms = await _measure_enter(settings, 0)
    name = f"Enter to model request, {_ENTER_MEMORIES:,} memories"
    return [
        timing_figure(f"{name}, hit", "miss: all made on Enter", hits_ms, misses_ms),
        timing_figure(
            f"{name}, miss", "the same, searched in the database", misses_ms, in_database_ms
        ),
    ]


async def _measure_enter(settings: Settings, index_bytes: int) -> tuple[list[float], list[float]]:
    changed = msgspec.structs.replace(
        settings, **{"pause_ms": _PAUSE_MS, "port": 0, "index_bytes": index_bytes}
    )
    async with (
        serving(changed, say=lambda _: None) as (_, port),
        connect(f"ws://127.0.0.1:{port}/v1/ws") as client,
    ):
        await client.open_session("seeded", user_id="seeded", name="Seeded")
        await asyncio.sleep(_INDEX_LOAD_S)
        return await _run_rounds(client)


async def bench_layers(settings: Settings, say: Say) -> list[Figure]:
    """Compare every layer filled and a full context window with memories alone."""
    say(f"Filling a relationship with {_LAYERS_MEMORIES:,} memories and every layer ...")
    all_but_memories = frozenset(LAYERS) - {"memories", "working"}
    ready_ms: dict[str, list[float]] = {}
    for name, off in (
        ("all layers", frozenset[LayerName]()),
        ("memories alone", all_but_memories),
    ):
        changed = msgspec.structs.replace(
            settings,
            pause_ms=_PAUSE_MS,
            port=0,
            layers_off=off,
            data_dir=settings.data_dir / name.replace(" ", "-"),
        )
        async with serving(changed, say=lambda _: None) as (app, port):
            session = await fill(
                app.core, app.core.runtime.clock.now(), own=_LAYERS_MEMORIES, others=0
            )
            await fill_layers(app.core, session, app.core.runtime.clock.now())
            async with connect(f"ws://127.0.0.1:{port}/v1/ws") as client:
                await client.open_session("seeded", user_id="seeded", name="Seeded")
                ready_ms[f"{name} hit"], ready_ms[f"{name} miss"] = await _run_rounds(client)
    return [
        timing_figure(
            f"Enter to model request, all layers, {outcome}",
            "memories alone",
            ready_ms[f"all layers {outcome}"],
            ready_ms[f"memories alone {outcome}"],
        )
        for outcome in ("hit", "miss")
    ]


async def _run_rounds(client: Client) -> tuple[list[float], list[float]]:
    """Send typed and untyped messages alternately; return `ready_ms` of hits and of misses."""
    hits_ms, misses_ms = [], []
    for number in range(ROUNDS):
        text = f"Do you remember word{number} today?"
        hits_ms.append(await _send(client, text, typed=True))
        await asyncio.sleep(_BETWEEN_MESSAGES_S)
        text = f"And do you remember word{number} now?"
        misses_ms.append(await _send(client, text, typed=False))
        await asyncio.sleep(_BETWEEN_MESSAGES_S)
    return hits_ms, misses_ms


async def _send(client: Client, text: str, *, typed: bool) -> float:
    """Send a message, with its context prefetched if `typed`; return `ready_ms`."""
    if typed:
        await client.draft(text)
        await client.expect("context.ready")
    await client.send(text)
    events = await client.expect_all("message.accepted", "response.done", "memory.stored")
    return float(events["message.accepted"]["ready_ms"])
