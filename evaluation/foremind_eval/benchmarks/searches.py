"""Whether the searches of a program keep players waiting who type."""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import httpx2

from foremind.app.core import core
from foremind.domain.settings.settings import Settings
from foremind.runtime.supervision import begin, stop
from foremind_client import Client
from foremind_eval.benchmarks.figures import Figure, Say, timing_figure
from foremind_eval.many_clients import crowd, new_users
from foremind_eval.processes.server_process import running_server
from foremind_eval.seeding import fill

_MEMORIES = 1_000  # of the user whom the program searches
_TYPISTS = 10
_ROUNDS = 3  # of each kind, by turns
_DRAFTS = 10  # of a typist in a round
_BETWEEN_DRAFTS_S = 0.3
_LEAD_S = 2.0  # how long before a round the program begins to search
_MAX_CHARS = 8_000
_USER, _COMPANION = "seeded", "seeded"
_HEADERS = {"accept": "application/json, text/event-stream"}

_numbers = itertools.count()

Search = Callable[[], Awaitable[httpx2.Response]]


async def bench_searches(settings: Settings, say: Say) -> list[Figure]:
    """From a draft to its `context.ready`, while another user's program searches and while not.

    The program searches for texts as long as they may be, as often as it may.
    """
    say(f"Filling a relationship with {_MEMORIES:,} memories ...")
    async with core(settings, say=lambda _: None) as parts:
        await fill(parts, parts.runtime.clock.now(), own=_MEMORIES, others=0)
    times_ms: dict[str, list[float]] = {"nobody searches": []}
    with running_server(settings, {"FOREMIND_MCP": "true"}) as (url, _):
        address = url.replace("ws://", "http://").removesuffix("/v1/ws")
        async with (
            httpx2.AsyncClient(base_url=address, timeout=60.0, headers=_HEADERS) as http,
            crowd([url], new_users(_TYPISTS), _COMPANION) as typists,
        ):
            (known,) = (await http.get("/v1/relationships", params={"user": _USER})).json()
            searches: dict[str, Search] = {
                "over HTTP": lambda: _over_http(http, known["id"]),
                "over MCP": lambda: _over_mcp(http),
            }
            for number in range(_ROUNDS):
                say(f"Round {number + 1} of {_ROUNDS} ...")
                times_ms["nobody searches"] += await _round(typists)
                for how, search in searches.items():
                    async with _searching(search, settings.http_per_s, say):
                        await asyncio.sleep(_LEAD_S)
                        times_ms.setdefault(f"one user searches {how}", []).extend(
                            await _round(typists)
                        )
    calm = times_ms["nobody searches"]
    return [
        timing_figure(f"draft to context.ready, {name}", "nobody searches", times, calm)
        for name, times in times_ms.items()
    ]


async def _round(typists: list[Client]) -> list[float]:
    times = await asyncio.gather(*map(_type_drafts, typists))
    return [taken for typist in times for taken in typist]


async def _type_drafts(typist: Client) -> list[float]:
    """Return the milliseconds from each draft to its context."""
    times = []
    for _ in range(_DRAFTS):
        await asyncio.sleep(_BETWEEN_DRAFTS_S)
        started = time.perf_counter()
        await typist.draft(f"Do you remember boat number {next(_numbers)} in the harbour?")
        await typist.expect("context.ready")
        times.append((time.perf_counter() - started) * 1000)
    return times


@asynccontextmanager
async def _searching(search: Search, per_s: float, say: Say) -> AsyncIterator[None]:
    """Search at a rate while the block runs, without waiting for answers."""
    statuses: Counter[int] = Counter()

    async def ask() -> None:
        with suppress(httpx2.TransportError):  # as is raised where the round ends
            statuses[(await search()).status_code] += 1

    async def go_on() -> None:
        async with asyncio.TaskGroup() as group:
            for count in itertools.count():
                group.create_task(ask())
                await asyncio.sleep(started + (count + 1) / per_s - time.perf_counter())

    started = time.perf_counter()
    task = begin(go_on(), "searches")
    try:
        yield
    finally:
        await stop(task)
    say(f"{statuses[200]} searches answered, {statuses[429]} refused.")
    assert statuses.keys() <= {200, 429}, statuses


async def _over_http(http: httpx2.AsyncClient, relationship: str) -> httpx2.Response:
    path = f"/v1/relationships/{relationship}/context"
    return await http.get(path, params={"user": _USER, "draft": _long_text()})


async def _over_mcp(http: httpx2.AsyncClient) -> httpx2.Response:
    arguments = {"user": _USER, "companion": _COMPANION, "query": _long_text()}
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "recall", "arguments": arguments},
    }
    return await http.post("/v1/mcp", json=message)


def _long_text() -> str:
    words = (f"word{next(_numbers)} harbour" for _ in itertools.repeat(None))
    return " ".join(itertools.islice(words, _MAX_CHARS // 20))[:_MAX_CHARS]
