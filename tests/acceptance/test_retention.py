"""Retention: what expires goes, and what was derived from it stays as long as its layer says."""

from typing import Any

import pytest

from foremind.domain.companion import CompanionFile
from foremind.domain.record import RECORD_LAYERS
from foremind.domain.settings.settings import CompanionSettings
from tests.acceptance.world import World, world
from tests.conftest import StartServer, owner_of

TOLD = (
    "My name is Ana",
    "I live in Porto",
    "I am allergic to peanuts",
    "My goal is to run a marathon",
    "I decided to buy the violin from Beatriz in Braga",
    "save this: the safe is behind the picture",
)
FILLER = ("Nice weather again", "ok", "Hm, I see", "The bus was late")
DERIVED = ("Porto", "peanuts", "marathon", "Beatriz", "behind the picture")
DAYS = 12


async def stored(w: World) -> dict[str, dict[str, Any]]:
    """Return what every record says, by layer and id; usage patterns are computed anew."""
    return {
        layer: {
            record["id"]: (record["title"], record["content"])
            for record in await w.records(layer)
            if record["kind"] != "inferred"
        }
        for layer in RECORD_LAYERS
    }


async def told(w: World) -> dict[str, dict[str, Any]]:
    """Say what is told, then only filler once it has expired; return the records before that."""
    await (await w.talk(*TOLD)).close()
    await w.next_day()
    before = await stored(w)
    said = str(before)
    assert all(word in said for word in DERIVED), said
    for _ in range(DAYS):
        await w.next_day()
    await (await w.talk(*FILLER)).close()
    await w.next_day()
    return before


@pytest.mark.parametrize("model", [True, False], ids=["model", "rules"])
@pytest.mark.parametrize("expiring", ["conversation", "transcript", "both"])
async def test_what_was_derived_outlives_its_sources(
    start: StartServer, expiring: str, model: bool
) -> None:
    """Names, home, allergy, notes, episodes and pins, none of them made anew of what is left."""
    names = ("conversation", "transcript") if expiring == "both" else (expiring,)
    async with world(start, model=model, retention_days=dict.fromkeys(names, 10)) as w:
        before = await told(w)
        owner = owner_of(w.server.app.core)
        memories, turns = await owner.fetchrow(
            "SELECT (SELECT count(*) FROM memories WHERE content LIKE '%Porto%'), "
            "(SELECT count(*) FROM turns WHERE content LIKE '%Porto%')"
        )
        assert (memories == 0) == ("conversation" in names)
        assert (turns == 0) == ("transcript" in names)
        after = await stored(w)
        for layer in ("profile", "scratchpad", "episodes", "topics", "questions", "vault"):
            assert before[layer].items() <= after[layer].items(), layer
        assert not await owner.fetchval("SELECT count(*) FROM relationships WHERE remade <> '[]'")
        context = str(await w.context("Where do I live, and where is the safe?"))
        assert all(word in context for word in ("Porto", "peanuts", "behind the picture"))
        if "transcript" in names and "conversation" in names:
            terms = await owner.fetch("SELECT DISTINCT term FROM memory_terms")
            assert {row["term"] for row in terms}.isdisjoint({"porto", "peanut", "marathon"})


async def test_a_layer_that_expires_leaves_what_was_written_from_it(start: StartServer) -> None:
    """Core memory and topics are made anew when something is new, and not before."""
    days = {"scratchpad": 10, "episodes": 10}
    async with world(start, model=False, retention_days=days) as w:
        await (await w.talk(*TOLD)).close()
        await w.next_day()
        (before,) = await w.records("hot")
        for _ in range(DAYS):
            await w.next_day()
        assert await w.records("scratchpad") == []
        assert await w.records("episodes") == []
        assert (await w.records("hot"))[0]["content"] == before["content"]


async def test_core_memory_that_has_expired_is_made_anew_when_something_is_new(
    start: StartServer,
) -> None:
    """Not on the next day, of what its own layer keeps for longer."""
    async with world(start, model=False, retention_days={"hot": 10}) as w:
        await (await w.talk(*TOLD)).close()
        await w.next_day()
        assert await w.records("hot")
        for _ in range(DAYS):
            await w.next_day()
        assert await w.records("episodes")
        assert await w.records("hot") == []
        await (await w.talk("I decided to sell the violin in Lisbon")).close()
        await w.next_day()
        assert "Porto" in str(await w.records("hot"))


async def test_all_sets_whatever_is_not_named(start: StartServer) -> None:
    """On the server, for a companion, and for a relationship."""
    async with world(start, model=False, retention_days={"all": 10, "vault": 90}) as w:
        await told(w)
        assert "behind the picture" in str(await w.records("vault"))
        everything = str(await w.request("GET", "/export"))
        assert not any(word in everything for word in DERIVED[:4])


async def test_what_has_expired_is_erased_with_what_was_derived(start: StartServer) -> None:
    """An erasure by session or words still finds it."""
    async with world(
        start, model=False, retention_days={"conversation": 10, "transcript": 10}
    ) as w:
        await told(w)
        session = await owner_of(w.server.app.core).fetchval(
            "SELECT session_id FROM turns ORDER BY id LIMIT 1"
        )
        await w.request("DELETE", "/memories?about=peanuts")
        assert "peanuts" not in str(await stored(w))
        await w.request("DELETE", f"/memories?session={session}")
        await w.wait_until_idle()
        remaining = str(await stored(w))
        assert not any(word in remaining for word in DERIVED), remaining


@pytest.mark.parametrize(
    ("days", "warned"),
    [
        ({}, False),
        ({"conversation": 365}, True),
        ({"transcript": 30}, True),
        ({"conversation": 365, "transcript": 30}, True),
        ({"event": 30}, True),
        ({"conversation": 365, "episodes": 90}, False),
        ({"all": 365}, False),
    ],
)
async def test_the_server_warns_where_only_sources_expire(
    start: StartServer, caplog: pytest.LogCaptureFixture, days: dict[str, float], warned: bool
) -> None:
    """At start, of its own setting and of a companion's."""
    server = await start(retention_days=days)
    assert ("retention.leaves_derived" in caplog.text) == warned
    caplog.clear()
    if not days:
        settings = CompanionSettings(retention_days={"transcript": 10})
        await server.app.core.stores.companions.put(
            CompanionFile("wren", "Wren", "You are Wren.", settings=settings)
        )
        address = server.app.core.runtime.settings.database_url
        await start(database_url=address)
        assert "retention.leaves_derived" in caplog.text
        assert "wren" in caplog.text
