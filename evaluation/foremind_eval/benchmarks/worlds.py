"""Worlds: how fast what happens is stored, and how soon a prompt is right after a rollback."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Sequence
from typing import Any

import asyncpg
import httpx2

from foremind.app.core import core
from foremind.domain.relationship import companion_id_of, relationship_id_of, user_id_of
from foremind.domain.settings.settings import Settings
from foremind.storage.embedded_postgres import embedded_postgres
from foremind.storage.named_queries import load_queries
from foremind_eval.benchmarks.figures import Figure, Say, single_figure, timing_figure
from foremind_eval.processes.server_process import running_server
from foremind_eval.seeding import put_minds

_WITNESSES = 50
_EVENTS = 1_000  # of a batch
_BATCHES = 20
_SINGLE = 2_000  # events that are reported one by one
_CONNECTIONS = 8
_MINDS = 1_000
_MEMORIES = 100  # of each mind
_ROLLBACKS = 50
_SAVES = 200
_COPIES = 3  # how often everything is copied
_PATIENCE_S = 120.0
_DRAFT = "What was that about the harbour?"

_numbers = itertools.count()


async def bench_worlds(settings: Settings, say: Say) -> list[Figure]:
    """Events with 50 witnesses each, and rollbacks of 1,000 minds that remember 100 events each.

    What happens is compared with telling it to each witness, and a rollback with copying what all
    minds remember.
    """
    async with core(settings, say=lambda _: None) as parts:
        await put_minds(parts, (f"mind-{number}" for number in range(_MINDS)), "Mara")
    async with embedded_postgres(settings.data_dir) as database:
        owner = await asyncpg.connect(database, command_timeout=_PATIENCE_S)
        try:
            with running_server(settings, {"FOREMIND_HTTP_PER_S": "1e6"}) as (url, _):
                address = url.replace("ws://", "http://").removesuffix("/v1/ws")
                async with httpx2.AsyncClient(base_url=address, timeout=_PATIENCE_S) as http:
                    return [
                        *await _reports(http, owner, say),
                        *await _rollbacks(http, owner, say),
                    ]
        finally:
            await owner.close()


async def _request(http: httpx2.AsyncClient, method: str, path: str, body: Any = None) -> Any:
    response = await http.request(method, f"/v1/worlds/{path}", json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def _milliseconds(doing: Awaitable[object]) -> float:
    started = time.perf_counter()
    await doing
    return (time.perf_counter() - started) * 1000


async def _reports(http: httpx2.AsyncClient, owner: Any, say: Say) -> list[Figure]:
    """How long it takes until what happened is stored."""
    players = [f"player {number}" for number in range(_WITNESSES)]
    await _request(http, "PUT", "busy", {})
    await _request(http, "PUT", "busy/scenes/market", {"players": players})
    await owner.execute(
        "CREATE TABLE told (witness bigint, seq bigint, said text, PRIMARY KEY (witness, seq))"
    )
    batches_ms, told_ms = list[float](), list[float]()
    for number in range(_BATCHES):
        say(f"Batch {number + 1} of {_BATCHES} ...")
        body = {"events": [_event(players) for _ in range(_EVENTS)]}
        batches_ms.append(await _milliseconds(_request(http, "POST", "busy/events", body)))
        told_ms.append(await _milliseconds(_tell_each(owner, [e["text"] for e in body["events"]])))
    say("One by one ...")

    async def report_singly() -> None:
        for _ in range(_SINGLE // _CONNECTIONS):
            await _request(http, "POST", "busy/events", {"events": [_event(players)]})

    singly_ms = await _milliseconds(asyncio.gather(*(report_singly() for _ in range(_CONNECTIONS))))
    per_event_ms = sum(told_ms) / len(told_ms) / _EVENTS
    return [
        timing_figure(
            f"store {_EVENTS:,} events with {_WITNESSES} witnesses each, in a batch",
            "each told to each witness in the database", batches_ms, told_ms,
        ),
        single_figure(
            f"store an event with {_WITNESSES} witnesses, singly over {_CONNECTIONS} connections",
            "ms", singly_ms / _SINGLE, "in a batch", sum(batches_ms) / _BATCHES / _EVENTS,
        ),
        single_figure(
            f"events a second with {_WITNESSES} witnesses each, in batches of {_EVENTS:,}",
            "1/s", _BATCHES * _EVENTS / sum(batches_ms) * 1000,
            "each told to each witness in the database", 1000 / per_event_ms,
        ),
    ]  # fmt: skip


def _event(actors: Sequence[str]) -> dict[str, Any]:
    number = next(_numbers)
    return {
        "id": f"event {number}",
        "type": "said",
        "text": f"This is what somebody says at the harbour of the market, for the {number}th time",
        "actor": actors[number % len(actors)],
        "scene": "market",
    }


async def _tell_each(owner: Any, texts: Sequence[str]) -> None:
    """Store a copy for each witness."""
    first = next(_numbers) * _EVENTS
    await owner.execute(
        "INSERT INTO told SELECT witness, $1 + number, said "
        "FROM unnest($2::text[]) WITH ORDINALITY AS given (said, number), "
        "generate_series(1, $3::bigint) AS witness",
        first, texts, _WITNESSES,
    )  # fmt: skip


async def _rollbacks(http: httpx2.AsyncClient, owner: Any, say: Say) -> list[Figure]:
    """How long after a rollback is asked for a mind's prompt is there."""
    say(f"{_MINDS:,} minds witness {_MEMORIES} events ...")
    minds = [f"mind-{number}" for number in range(_MINDS)]
    await _request(http, "PUT", "vale", {"clock": {"factor": 0}})
    await _request(http, "PUT", "vale/scenes/market", {"minds": minds})
    body = {"events": [_event(minds) for _ in range(_MEMORIES)]}
    await _request(http, "POST", "vale/events", body)
    await _prompt(http, minds[0])
    await _know_the_same(owner, len(minds))
    await _request(http, "POST", "vale/saves", {"name": "first"})
    right = [await _prompt(http, mind) for mind in minds[:_ROLLBACKS]]
    rollbacks_ms = []
    for number in range(_ROLLBACKS):
        say(f"Rollback {number + 1} of {_ROLLBACKS} ...")
        rollbacks_ms.append(await _roll_back(http, minds, number, "first", right[number]))
    say(f"{_SAVES} saves ...")
    for number in range(_SAVES):
        await _request(http, "POST", "vale/events", {"events": [_event(minds)]})
        await _request(http, "POST", "vale/saves", {"name": f"save {number}"})
        await _prompt(http, minds[number % _ROLLBACKS])
    deep_ms = []
    for number in range(_ROLLBACKS):
        right[number] = await _prompt(http, minds[number])
    await _request(http, "POST", "vale/saves", {"name": "last"})
    for number in range(_ROLLBACKS):
        say(f"Rollback {number + 1} of {_ROLLBACKS} ...")
        deep_ms.append(await _roll_back(http, minds, number, "last", right[number]))
    say("Copying everything ...")
    copies_ms = [await _milliseconds(_copy_everything(owner)) for _ in range(_COPIES)]
    return [
        timing_figure(
            f"roll back {_MINDS:,} minds of {_MEMORIES} memories until a prompt is right{how}",
            "copy what all of them remember", times_ms, copies_ms,
        )
        for how, times_ms in (("", rollbacks_ms), (f", after {_SAVES} saves", deep_ms))
    ]  # fmt: skip


async def _roll_back(
    http: httpx2.AsyncClient, minds: Sequence[str], number: int, save: str, right: str
) -> float:
    """Undo something that all minds know; return the milliseconds until one does not know it."""
    await _request(http, "POST", "vale/events", {"events": [_event(minds)]})
    assert await _prompt(http, minds[number]) != right
    started = time.perf_counter()
    await _request(http, "POST", "vale/rollback", {"name": save})
    prompt = await _prompt(http, minds[number])
    taken_ms = (time.perf_counter() - started) * 1000
    assert prompt == right
    return taken_ms


async def _prompt(http: httpx2.AsyncClient, mind: str) -> str:
    response = await http.get(f"/v1/worlds/vale/minds/{mind}/context", params={"draft": _DRAFT})
    assert response.status_code == 200, response.text
    return str(response.json()["messages"])


async def _know_the_same(owner: Any, minds: int) -> None:
    """Let all minds remember what the first one does, in the database."""
    queries = load_queries()
    source = await owner.fetchval("SELECT id FROM relationships WHERE perceived_seq > 0")
    account = user_id_of(source)
    companions = await owner.fetch(
        "SELECT id FROM companions WHERE slug LIKE 'mind-%' ORDER BY id LIMIT $1", minds
    )
    for companion in companions:
        target = relationship_id_of(account, companion["id"])
        if target != source:
            await owner.fetchrow(
                queries["copy_mind"].replace("$2, companion_id", f"$2, {companion['id']}"),
                target, account, source,
            )  # fmt: skip
            await owner.execute(queries["copy_relationship"], source, target)


async def _copy_everything(owner: Any) -> None:
    """Copy what the minds of the first moment remember to accounts of their own."""
    queries = load_queries()
    async with owner.transaction():
        first = await owner.fetchval(
            "SELECT timeline_id FROM saves WHERE world = 'vale' AND name = 'first'"
        )
        account = await owner.fetchval(
            "INSERT INTO users (external_id, name) VALUES ($1, '') RETURNING id",
            f"copy {next(_numbers)}",
        )
        for row in await owner.fetch("SELECT id FROM relationships WHERE user_id = $1", first):
            target = relationship_id_of(account, companion_id_of(row["id"]))
            await owner.fetchrow(queries["copy_mind"], target, account, row["id"])
            await owner.execute(queries["copy_relationship"], row["id"], target)
