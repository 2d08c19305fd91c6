"""Requests of one player do not use up the database connections of others."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx2
import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.companion_rules import SignificanceRules
from foremind.domain.settings.settings import CompanionSettings
from foremind_eval.doubles.model_server import is_background_request
from tests.acceptance.world import world
from tests.conftest import PATIENCE, StartServer, eventually, owner_of

SendRequest = Callable[
    [httpx2.AsyncClient, str, dict[str, object], int], Coroutine[Any, Any, httpx2.Response]
]


def forget(
    client: httpx2.AsyncClient, relationship_url: str, _: object, __: int
) -> Coroutine[Any, Any, httpx2.Response]:
    """Erase everything."""
    return client.delete(f"{relationship_url}/memories")


def restore(
    client: httpx2.AsyncClient, relationship_url: str, exported: dict[str, object], _: int
) -> Coroutine[Any, Any, httpx2.Response]:
    """Import an export."""
    return client.post(f"{relationship_url.rpartition('/')[0]}/import", json=exported)


def write(
    client: httpx2.AsyncClient, relationship_url: str, _: object, number: int
) -> Coroutine[Any, Any, httpx2.Response]:
    """Create a record."""
    return client.post(
        f"{relationship_url}/records", json={"layer": "vault", "content": f"Note {number}"}
    )


def export(
    client: httpx2.AsyncClient, relationship_url: str, _: object, __: int
) -> Coroutine[Any, Any, httpx2.Response]:
    """Export everything."""
    return client.get(f"{relationship_url}/export")


def erase(
    client: httpx2.AsyncClient, relationship_url: str, _: object, __: int
) -> Coroutine[Any, Any, httpx2.Response]:
    """Erase the user."""
    return client.delete(f"{relationship_url.rpartition('/')[0].rpartition('/')[0]}/users/ana")


@pytest.mark.parametrize("send_request", [forget, restore, write, export, erase])
async def test_many_requests_of_one_player_leave_connections_for_others(
    start: StartServer, send_request: SendRequest
) -> None:
    """However long they take, others are answered meanwhile."""
    async with world(start, model=False, database_pool_size=4, max_sessions=10) as w:
        await w.talk("I promise to remember the red door")
        other = await w.talk("I promise to remember the blue door", user="bo")
        base = f"http://127.0.0.1:{w.server.port}"
        exported = await w.request("GET", "/export")
        async with (
            httpx2.AsyncClient(timeout=PATIENCE, params={"user": "ana"}) as client,
            httpx2.AsyncClient(timeout=PATIENCE) as balancer,
            owner_of(w.server.app.core).acquire() as raw,
        ):
            block = raw.transaction()
            await block.start()
            await raw.execute(
                "SELECT 1 FROM relationships WHERE id = $1 FOR UPDATE", w.relationship
            )
            relationship_url = f"{base}/v1/relationships/{w.relationship}"
            tasks = [
                asyncio.create_task(send_request(client, relationship_url, exported, number))
                for number in range(50)
            ]
            pool = w.server.app.core.database.pool
            await eventually(lambda: pool.get_size() - pool.get_idle_size() > 0)
            for _ in range(3):
                assert (await balancer.get(f"{base}/readyz")).status_code == 200
                await other.send("Do you remember the blue door?")
                assert (await other.expect("message.accepted"))["type"] == "message.accepted"
                await other.expect("response.done")
                await w.clock.advance(2)
            await block.rollback()
            statuses = {(await task).status_code for task in tasks}
        assert statuses <= {200, 201, 404, 409, 429}
        assert statuses - {429}


async def test_a_model_that_hangs_while_rating_delays_no_ingest(
    start: StartServer,
) -> None:
    """Neither with its own companion nor with another, however many ratings are pending."""
    never = asyncio.Event()
    async with world(start, model=True) as w:
        assert w.model is not None
        w.model.script.hold_for = lambda chat: never if is_background_request(chat) else None
        settings = CompanionSettings(significance=SignificanceRules(model=True))
        await w.server.app.core.stores.companions.put(
            CompanionFile("rated", "Rated", "A persona.", settings=settings)
        )
        client = await w.server.session(companion="rated")
        for number in range(12):
            await client.send(f"I promise to remember door number {number}")
            await client.expect_all("response.done", "memory.stored")
        other = await w.server.session("bo")
        await other.send("I promise to remember the blue door")
        await other.expect_all("response.done", "memory.stored")
        never.set()
