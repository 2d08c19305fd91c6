"""How fast: each figure stands beside what it is compared to, measured in the same run."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import quantiles

import msgspec
import numpy as np
from pgvector import HalfVector

from foremind.app import Core, core, serving
from foremind.client import Client, connect
from foremind.companions import CompanionSettings
from foremind.embedding.encoder import OnnxEncoder
from foremind.embedding.prepare import prepare_model
from foremind.embedding.registry import find_model
from foremind.evaluation.seeding import fill, fill_layers, words_said
from foremind.memory.indexed import IndexedCandidates
from foremind.memory.search import Query, RankedSearch
from foremind.policies import policy_for
from foremind.settings import LAYERS, LayerName, Settings
from foremind.storage.turns import OpenedSession

Say = Callable[[str], None]

_ROUNDS = 60
_LENGTHS = (8, 16, 32, 64, 128)
_SEARCH_SIZES = (1_000, 10_000)
_TABLE = 100_000
_INDEX_BYTES = 1 << 30
_ENTER_MEMORIES = 10_000
_LAYERS_MEMORIES = 1_000
_REST_S = 0.3  # nobody writes the next message within it
_PAUSE_MS = 50  # the shortest allowed: a benchmark need not rest half a second each time


class Figure(msgspec.Struct, frozen=True):
    """One measurement: milliseconds, beside its baseline from the same run."""

    name: str
    p50: float
    p90: float
    p99: float
    baseline: str
    baseline_p50: float

    @property
    def ratio(self) -> float:
        """How many times slower the baseline is."""
        return self.baseline_p50 / self.p50


async def bench_embedding(settings: Settings, say: Say) -> list[Figure]:
    """One text at a time, int8 against fp32, by length in tokens."""
    manifest = find_model(settings.embedding_model, settings.models_dir)
    model = await asyncio.to_thread(prepare_model, manifest, settings.models_dir, say)
    encoder, reference = model.encoder(), model.reference_encoder()
    figures = []
    for length in _LENGTHS:
        text = text_of(encoder, length)
        pair = [
            _in_thread(encoder, text),
            _in_thread(reference, text),
        ]
        figures.append(_figure(f"embed {length} tokens", "fp32", *await _in_turn(pair)))
    return figures


async def bench_search(settings: Settings, say: Say) -> list[Figure]:
    """The gateway's search, in the process and in the database, against plain pgvector."""
    figures = []
    for size in _SEARCH_SIZES:
        say(f"Filling a table of {_TABLE:,} memories, {size:,} of one relationship ...")
        async with core(settings, say=lambda _: None) as parts:
            session = await fill(parts, parts.clock.now(), own=size, others=_TABLE - size)
            await _create_plain_text_index(parts)
            figures += await _search_figures(parts, session, size)
            await _empty(parts)
    return figures


async def bench_enter(settings: Settings, say: Say) -> list[Figure]:
    """From the frame's arrival until the model request could start, hit against miss."""
    say(f"Filling a relationship with {_ENTER_MEMORIES:,} memories ...")
    quick = settings.model_copy(update={"pause_ms": _PAUSE_MS, "port": 0})
    async with serving(quick, say=lambda _: None) as (app, port):
        await fill(app.core, app.core.clock.now(), own=_ENTER_MEMORIES, others=0)
        async with connect(f"ws://127.0.0.1:{port}/v1/ws") as client:
            await client.open_session("seeded", user_id="seeded", name="Seeded")
            hits, misses = [], []
            for number in range(_ROUNDS):
                hits.append(await _send(client, f"Do you remember word{number} today?", typed=True))
                misses.append(
                    await _send(client, f"And do you remember word{number} now?", typed=False)
                )
        await _empty(app.core)
    return [_figure("Enter to context on a hit", "miss: all computed on Enter", hits, misses)]


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
                hits, misses = [], []
                for number in range(_ROUNDS):
                    asked = f"Do you remember word{number} today?"
                    hits.append(await _send(client, asked, typed=True))
                    await asyncio.sleep(_REST_S)
                    asked = f"And do you remember word{number} now?"
                    misses.append(await _send(client, asked, typed=False))
                    await asyncio.sleep(_REST_S)
                taken[f"{name} hit"], taken[f"{name} miss"] = hits, misses
    return [
        _figure(
            f"Enter to model request, all layers, {kind}",
            "memories alone",
            taken[f"all layers {kind}"],
            taken[f"memories alone {kind}"],
        )
        for kind in ("hit", "miss")
    ]


BENCHMARKS: dict[str, Callable[[Settings, Say], Awaitable[list[Figure]]]] = {
    "embedding": bench_embedding,
    "search": bench_search,
    "enter": bench_enter,
    "layers": bench_layers,
}


async def run_benchmarks(
    names: list[str], settings: Settings, scratch: Path, say: Say
) -> list[Figure]:
    """Run benchmarks by name, on a database of their own in `scratch`."""
    figures: list[Figure] = []
    for name in names:
        figures += await BENCHMARKS[name](settings.in_scratch(scratch / name), say)
    return figures


def text_of(encoder: OnnxEncoder, tokens: int) -> str:
    """Return a text that the tokenizer counts as `tokens`, or the nearest more."""
    text = "rain"
    while encoder.count_tokens(text) < tokens:
        text += " rain"
    return text


def _in_thread(encoder: OnnxEncoder, text: str) -> Callable[[], Awaitable[object]]:
    async def encode() -> object:
        return encoder.encode([text])

    return encode


async def _search_figures(parts: Core, session: OpenedSession, size: int) -> list[Figure]:
    rng = np.random.default_rng(1)
    # Made-up words ask for nothing: the gate would keep them from being searched at all.
    policy = policy_for(CompanionSettings(recall_gate=False), parts.settings).recall

    def query() -> Query:
        vector = rng.standard_normal(parts.embedder.manifest.dimension).astype(np.float32)
        return Query(
            session.relationship_id,
            " ".join(words_said(rng, 5)),
            vector / np.linalg.norm(vector),
            policy,
            parts.clock.now(),
        )

    async with IndexedCandidates(parts.memories, _INDEX_BYTES, parts.metrics) as index:
        await index.loaded(session.relationship_id)
        indexed = RankedSearch(index)

        async def in_process() -> object:
            return await indexed.search(query())

        async def in_database() -> object:
            return await parts.search.search(query())

        async def plain() -> object:
            return await _plain_search(parts, query())

        ours, stored, theirs = await _in_turn([in_process, in_database, plain])
    name = f"{size:,} of {_TABLE:,}"
    return [
        _figure(f"search {name} in the process", "the same in the database", ours, stored),
        _figure(f"search {name} in the database", "pgvector scan, then ts_rank", stored, theirs),
    ]


async def _create_plain_text_index(parts: Core) -> None:
    """What one would build first: a tsvector beside each memory, found by relationship."""
    async with parts.database.pool.acquire() as raw:
        await raw.execute(
            "CREATE TABLE plain AS SELECT id, relationship_id, content, embedding, "
            "to_tsvector('english', content) AS words FROM memories"
        )
        await raw.execute("CREATE INDEX ON plain (relationship_id)")
        await raw.execute("VACUUM ANALYZE plain")


async def _plain_search(parts: Core, query: Query) -> object:
    async with parts.database.pool.acquire() as raw:
        nearest = await raw.fetch(
            "SELECT id, content FROM plain WHERE relationship_id = $1 "
            "ORDER BY embedding <=> $2 LIMIT 40",
            query.relationship_id,
            HalfVector(query.vector),
        )
        worded = await raw.fetch(
            "SELECT id, content FROM plain, to_tsquery('english', $2) AS wanted "
            "WHERE relationship_id = $1 AND words @@ wanted "
            "ORDER BY ts_rank(words, wanted) DESC LIMIT 40",
            query.relationship_id,
            query.text.replace(" ", " | "),
        )
    return nearest, worded


async def _send(client: Client, text: str, *, typed: bool) -> float:
    """Send a message, after its context was prepared if it was typed; return `ready_ms`."""
    if typed:
        await client.draft(text)
        await client.expect("context.ready")
    await client.send(text)
    seen = await client.expect_all("message.accepted", "response.done", "memory.stored")
    return float(seen["message.accepted"]["ready_ms"])


async def _in_turn(measured: list[Callable[[], Awaitable[object]]]) -> list[list[float]]:
    """Return the milliseconds of each, measured in turn so that drift hits all alike."""
    taken: list[list[float]] = [[] for _ in measured]
    for _ in range(_ROUNDS):
        for call, times in zip(measured, taken, strict=True):
            started = time.perf_counter()
            await call()
            times.append((time.perf_counter() - started) * 1000)
    return taken


def _figure(name: str, baseline: str, ours: list[float], theirs: list[float]) -> Figure:
    cuts = quantiles(ours, n=100)
    return Figure(
        name=name,
        p50=round(cuts[49], 3),
        p90=round(cuts[89], 3),
        p99=round(cuts[98], 3),
        baseline=baseline,
        baseline_p50=round(quantiles(theirs, n=100)[49], 3),
    )


async def _empty(parts: Core) -> None:
    """Leave the scratch database as it was made."""
    async with parts.database.pool.acquire() as raw:
        await raw.execute("DROP TABLE IF EXISTS plain")
        await raw.execute("TRUNCATE users, companions, pgqueuer RESTART IDENTITY CASCADE")
        await raw.execute("TRUNCATE memory_terms")
