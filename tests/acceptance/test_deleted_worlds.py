"""Worlds, saves and what was undone are deleted with all that was remembered of them."""

import asyncio

from foremind.app.core import build_eraser, build_world_eraser
from tests.acceptance.hosting import Host, hosting, put_minds
from tests.acceptance.test_identity import close_code
from tests.acceptance.test_scenes import join, until
from tests.acceptance.test_worlds import SECRET, said
from tests.conftest import RunningServer, StartServer, owner_of

_KEPT = frozenset(("companions", "companion_versions", "embedding_model"))


async def rows(server: RunningServer) -> dict[str, int]:
    """Return how many rows each table has, except of what belongs to no world."""
    owner = owner_of(server.app.core)
    tables = await owner.fetch(
        "SELECT tablename AS name FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
    )
    return {
        table["name"]: count
        for table in tables
        if table["name"] not in _KEPT
        for count in [await owner.fetchval(f"SELECT count(*) FROM {table['name']}")]
        if count
    }


async def delete_abandoned(server: RunningServer) -> None:
    """Delete what was undone, as every server does from time to time."""
    core = server.app.core
    await build_world_eraser(core, build_eraser(core)).delete_abandoned()


async def play(host: Host) -> None:
    """Have a secret told and passed on in a world with saves, and ask all who know it."""
    await host.scene("tavern", players=["ana", "bo"], minds=["mara", "jon", "pia"])
    await host.report(said("e1", "The well is dry", "ana"))
    await host.request("POST", "/saves", {"name": "dusk"})
    await host.report(
        said("e2", SECRET, "ana", to="mara", volume="whisper"),
        said("e3", f"Do you know? {SECRET}", "mara", retells="e2"),
    )
    await host.request("POST", "/saves", {"name": "dawn"})
    await host.report(said("e4", "Good morning", "bo"))
    assert "treasure" in await host.prompt("jon", "Where is the treasure?")
    assert "treasure" in await host.prompt("pia", "Where is the treasure?", "bo")


async def test_nothing_is_left_of_a_deleted_world(start: StartServer) -> None:
    """Its name can be used again; a world that began at a save of it keeps the past."""
    server = await start()
    await put_minds(server, "pia", mind="player")
    async with hosting(server, "mara", "jon", world="other"):
        before = await rows(server)
        async with hosting(server, world="vale") as host:
            await play(host)
            await host.request("POST", "/branches", {"save": "dusk", "world": "vale2"})
            await host.request("DELETE")
            await host.request("GET", status=404)
            await host.request("DELETE", status=404)
            host.world = "vale2"
            jon = await host.prompt("jon", "Where is the treasure?")
            assert "The well is dry" in jon
            assert "treasure lies" not in jon
            host.world = "vale"
            await host.request("PUT", json={})
            assert "is dry" not in await host.prompt("jon", "What of the well?")
            await host.request("DELETE")
            host.world = "vale2"
            await host.request("DELETE")
        assert await rows(server) == before


async def test_what_was_undone_is_deleted_unless_a_save_is_in_it(start: StartServer) -> None:
    """And then with that save."""
    server = await start()
    await put_minds(server, "pia", mind="player")
    async with hosting(server, "mara", "jon") as host:
        await play(host)
        await host.request("POST", "/rollback", {"name": "dusk"})
        await delete_abandoned(server)
        owner = owner_of(server.app.core)

        async def texts() -> str:
            found = await owner.fetch(
                "SELECT content FROM world_events UNION ALL SELECT content FROM turns"
            )
            return " ".join(row["content"] for row in found)

        assert "Good morning" not in await texts()
        assert "treasure" in await texts()  # known to whoever goes on from dawn
        view = await host.request("GET")
        assert [save["name"] for save in view["saves"]] == ["dawn", "dusk"]
        await host.request("DELETE", "/saves/dawn")
        await host.request("DELETE", "/saves/dawn", status=404)
        await host.request("POST", "/rollback", {"name": "dawn"}, status=404)
        await delete_abandoned(server)
        assert "treasure" not in await texts()
        assert "The well is dry" in await host.prompt("jon", "What of the well?")


async def test_players_of_a_deleted_world_are_disconnected(start: StartServer) -> None:
    """They can come back once there is one of that name."""
    server = await start()
    async with hosting(server, "mara") as host:
        await host.scene("tavern", players=["ana"], minds=["mara"])
        ana = await join(server, "ana")
        await ana.send_raw({"type": "message.send", "id": "m1", "text": "Good evening, Mara"})
        await until(ana, "response.done")
        await host.request("DELETE")
        assert await close_code(ana) == 4403
        await host.request("PUT", json={})
        await host.scene("tavern", players=["ana"], minds=["mara"])
        back = await join(server, "ana")
        await back.send_raw({"type": "message.send", "id": "m1", "text": "Good evening, Mara"})
        (done,) = (await until(back, "response.done"))[-1:]
        assert done["companion"] == "mara"


async def test_two_servers_may_delete_the_same_world(start: StartServer) -> None:
    """What one of them has erased, the other finds gone."""
    server = await start()
    await put_minds(server, "pia", mind="player")
    async with hosting(server, "mara", "jon") as host:
        before = await rows(server)
        await play(host)
        await host.request("POST", "/rollback", {"name": "dusk"})
        await host.request("DELETE", "/saves/dawn")
        await asyncio.gather(*(delete_abandoned(server) for _ in range(3)))
        await host.request("DELETE")
        assert (await rows(server)).keys() <= before.keys()


async def test_a_host_is_told_which_worlds_there_are(start: StartServer) -> None:
    """Page by page, by name."""
    server = await start()
    async with hosting(server, world="vale") as host:
        for name in ("attic", "moor"):
            host.world = name
            await host.request("PUT", json={"clock": {"factor": 3}})

        async def listed(query: str) -> tuple[list[str], str | None]:
            response = await host.http.get(f"/v1/worlds{query}")
            body = response.json()
            return [world["world"] for world in body["worlds"]], body["next_after_world"]

        assert await listed("") == (["attic", "moor", "vale"], None)
        assert await listed("?limit=2") == (["attic", "moor"], "moor")
        assert await listed("?limit=2&after_world=moor") == (["vale"], None)
