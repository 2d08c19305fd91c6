"""From Enter to the request to the language model."""

import asyncio

from foremind.app import core, serving
from foremind.client import Client, connect
from foremind.domain.settings import LAYERS, LayerName, Settings
from foremind.evaluation.benchmarks.figures import ROUNDS, Figure, Say, figure
from foremind.evaluation.seeding import fill, fill_layers

_ENTER_MEMORIES = 50_000
_INDEX_BYTES = 1 << 30
_LOADED_S = 5.0  # the index is loaded by then
_LAYERS_MEMORIES = 1_000
_REST_S = 0.3  # nobody writes the next message within it
_PAUSE_MS = 50  # the shortest allowed: a benchmark need not rest half a second each time


async def bench_enter(settings: Settings, say: Say) -> list[Figure]:
    """Hit against miss, and a miss searched in the process against one in the database."""
    say(f"Filling a relationship with {_ENTER_MEMORIES:,} memories ...")
    async with core(settings, say=lambda _: None) as parts:
        await fill(parts, parts.clock.now(), own=_ENTER_MEMORIES, others=0)
    hits, misses = await _enter(settings, _INDEX_BYTES)
    _, in_database = await _enter(settings, 0)
    name = f"Enter to model request, {_ENTER_MEMORIES:,} memories"
    return [
        figure(f"{name}, hit", "miss: all made on Enter", hits, misses),
        figure(f"{name}, miss", "the same, searched in the database", misses, in_database),
    ]


async def _enter(settings: Settings, index_bytes: int) -> tuple[list[float], list[float]]:
    quick = settings.model_copy(
        update={"pause_ms": _PAUSE_MS, "port": 0, "index_bytes": index_bytes}
    )
    async with (
        serving(quick, say=lambda _: None) as (_, port),
        connect(f"ws://127.0.0.1:{port}/v1/ws") as client,
    ):
        await client.open_session("seeded", user_id="seeded", name="Seeded")
        await asyncio.sleep(_LOADED_S)
        return await _rounds(client)


async def bench_layers(settings: Settings, say: Say) -> list[Figure]:
    """The same with every layer alive and a full window, against memories alone."""
    say(f"Filling a relationship with {_LAYERS_MEMORIES:,} memories and every layer ...")
    alone = frozenset(LAYERS) - {"memories", "working"}
    taken: dict[str, list[float]] = {}
    for name, off in (("all layers", frozenset[LayerName]()), ("memories alone", alone)):
        quick = settings.model_copy(
            update={"pause_ms": _PAUSE_MS, "port": 0, "layers_off": off,
                    "data_dir": settings.data_dir / name.replace(" ", "-")}
        )  # fmt: skip
        async with serving(quick, say=lambda _: None) as (app, port):
            session = await fill(app.core, app.core.clock.now(), own=_LAYERS_MEMORIES, others=0)
            await fill_layers(app.core, session, app.core.clock.now())
            async with connect(f"ws://127.0.0.1:{port}/v1/ws") as client:
                await client.open_session("seeded", user_id="seeded", name="Seeded")
                taken[f"{name} hit"], taken[f"{name} miss"] = await _rounds(client)
    return [
        figure(
            f"Enter to model request, all layers, {kind}",
            "memories alone",
            taken[f"all layers {kind}"],
            taken[f"memories alone {kind}"],
        )
        for kind in ("hit", "miss")
    ]


async def _rounds(client: Client) -> tuple[list[float], list[float]]:
    """Send messages that were typed, and by turns some that were not; return `ready_ms` of both."""
    hits, misses = [], []
    for number in range(ROUNDS):
        asked = f"Do you remember word{number} today?"
        hits.append(await _send(client, asked, typed=True))
        await asyncio.sleep(_REST_S)
        asked = f"And do you remember word{number} now?"
        misses.append(await _send(client, asked, typed=False))
        await asyncio.sleep(_REST_S)
    return hits, misses


async def _send(client: Client, text: str, *, typed: bool) -> float:
    """Send a message, after its context was prepared if it was typed; return `ready_ms`."""
    if typed:
        await client.draft(text)
        await client.expect("context.ready")
    await client.send(text)
    seen = await client.expect_all("message.accepted", "response.done", "memory.stored")
    return float(seen["message.accepted"]["ready_ms"])
