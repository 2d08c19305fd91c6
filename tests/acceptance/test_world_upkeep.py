"""What a server does with all memories harms no mind of a world, whose time is its own."""

from typing import Any

import pytest

from foremind.storage.background_store import BackgroundStore
from tests.acceptance.hosting import Host, hosting, put_minds
from tests.acceptance.world import World, world
from tests.conftest import StartServer, owner_of


async def tell(host: Host, *texts: str, at: str | None = None) -> None:
    """Have Ana say something to a mind in the tavern."""
    await host.scene("tavern", players=["ana"], minds=["mara"], place="the tavern")
    await host.report(
        *(
            {"id": f"{at}-{number}", "type": "said", "text": text, "actor": "ana", "at": at}
            | {"scene": "tavern"}
            for number, text in enumerate(texts)
        )
    )


async def work_in_the_background(w: World) -> list[Any]:
    """Have every relationship looked at, and wait; return the steps that have run or failed."""
    owner = owner_of(w.server.app.core)
    store = BackgroundStore(w.server.app.core.database)
    for row in await owner.fetch("SELECT id FROM relationships"):
        await store.schedule_now(row["id"], w.clock.now())
    await w.wait_until_idle()
    return await owner.fetch("SELECT step, attempts, code FROM background_steps")


@pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
async def test_background_work_fails_on_no_mind(start: StartServer, model: bool) -> None:
    """Though what a mind knows belongs to no session; and it changes nothing that was witnessed."""
    async with world(start, model=model) as w, hosting(w.server, "mara") as host:
        await tell(host, "I live in Porto", "My dog Biscuit ran away", "Save this: mind the step")
        before = await host.prompt("mara", "Where is Biscuit?")
        steps = await work_in_the_background(w)
        assert steps
        assert not [dict(step) for step in steps if step["attempts"]]
        assert await host.prompt("mara", "Where is Biscuit?") == before


async def test_minds_keep_what_they_know(start: StartServer) -> None:
    """Days of retention are real ones, and a world's time is its host's."""
    async with (
        world(start, model=False, retention_days={"all": 1}) as w,
        hosting(w.server, "mara") as host,
    ):
        await (await w.talk("I promise to call my boat Zephyrine")).close()
        await tell(host, "My dog Biscuit ran away")
        before = await host.prompt("mara", "Where is Biscuit?")
        await work_in_the_background(w)
        for _ in range(3):
            await w.next_day()
        await work_in_the_background(w)
        assert "Zephyrine" not in str(await w.memories())
        assert await host.prompt("mara", "Where is Biscuit?") == before


async def test_memories_age_by_the_time_of_the_world(start: StartServer) -> None:
    """The real time is centuries later."""
    server = await start(working_tokens=10)
    async with hosting(server, world="vale") as host:
        await put_minds(server, "mara", memory_max_age_days=30, permanent_significance=1.0)
        await tell(host, "My dog Biscuit ran away", at="1203-05-01T12:00:00Z")
        await tell(host, *(f"It rained for {n} days" for n in range(25)), at="1203-05-02T12:00:00Z")
        assert "Biscuit" in await host.prompt("mara", "Where is Biscuit?")
        for day, is_recalled in (("20", True), ("31", True)):
            await host.request("PUT", json={"clock": {"time": f"1203-05-{day}T11:00:00Z"}})
            recalled = "Biscuit ran" in await host.prompt("mara", "Where is Biscuit?")
            assert recalled == is_recalled, day
        await host.request("PUT", json={"clock": {"time": "1203-06-01T12:00:00Z"}})
        assert "Biscuit ran" not in await host.prompt("mara", "Where is Biscuit?")


@pytest.mark.parametrize("year", ["0002", "0100", "1582", "9998"])
async def test_a_world_may_be_in_any_year(start: StartServer, year: str) -> None:
    """Also where "a century ago" and "in a hundred years" are in no calendar."""
    server = await start()
    texts = ("Yesterday I lost a coin", "Last year we met", "In a hundred years", "Tomorrow I go")
    async with hosting(server, "mara") as host:
        await tell(host, *texts, at=f"{year}-01-01T00:00:00Z")
        await tell(host, *texts, at=f"{year}-12-31T23:59:59Z")
        await host.request(
            "PUT", json={"clock": {"time": f"{year}-12-31T23:59:59Z", "factor": 1e6}}
        )
        for query in ("-62135596800", "253402300799", "1e300", "nan"):
            await host.request("DELETE", "/events", query={"from": query}, status=400)
        for draft in (*texts, "What was last week?", "And three centuries ago, before Easter?"):
            assert "I lost a coin" in await host.prompt("mara", draft)


async def test_vectors_of_another_model_are_made_anew(start: StartServer) -> None:
    """An event's vector tells which model made it; what nobody has asked about has none."""
    server = await start()
    owner = owner_of(server.app.core)
    vectors = "SELECT vector::text, vector_of FROM world_events ORDER BY seq"
    async with hosting(server, "mara", "jon") as host:
        await host.scene("tavern", players=[], minds=["mara", "jon"])
        await host.report(
            {"id": "e1", "type": "event", "text": "A window broke", "scene": "tavern"}
        )
        assert [tuple(row) for row in await owner.fetch(vectors)] == [(None, None)]
        await host.prompt("mara")
        made = await owner.fetch(vectors)
        await owner.execute("UPDATE world_events SET vector = '[1,2]', vector_of = 'another'")
        assert "A window broke" in await host.prompt("jon")
        assert await owner.fetch(vectors) == made
        embeddings = await owner.fetch("SELECT embedding::text FROM turns")
        assert {row["embedding"] for row in embeddings} == {made[0]["vector"]}
