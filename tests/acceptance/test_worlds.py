"""Worlds: what happens is known to whoever witnessed it, and to nobody else."""

from typing import Any

import pytest

from tests.acceptance.hosting import hosting
from tests.conftest import StartServer

SECRET = "The treasure lies under the old mill"


def said(id_: str, text: str, actor: str, **more: Any) -> dict[str, Any]:
    """Return something that somebody says in the tavern."""
    return {"id": id_, "type": "said", "text": text, "actor": actor, "scene": "tavern"} | more


async def test_minds_know_what_they_witnessed(start: StartServer) -> None:
    """Leaving a room changes nothing that was witnessed before, and everything after."""
    server = await start()
    async with hosting(server, "mara", "jon", "edda") as host:
        await host.scene("tavern", players=["ana"], minds=["mara", "jon"], place="the tavern")
        await host.report(
            {"id": "e1", "type": "event", "text": "A window broke", "scene": "tavern"},
            said("e2", "Who threw that stone?", "ana"),
        )
        await host.scene("tavern", players=["ana"], minds=["mara"])
        await host.report(said("e3", SECRET, "ana", to="mara"))
        mara, jon, edda = [await host.prompt(name) for name in ("mara", "jon", "edda")]
        assert "A window broke (the tavern)" in mara
        assert "A window broke (the tavern)" in jon
        assert "ana: Who threw that stone?" in jon
        assert f"ana (to you): {SECRET}" in mara
        assert "treasure" not in jon
        assert "window" not in edda
        assert "treasure" not in edda


@pytest.mark.parametrize(
    ("event", "knowing"),
    [
        ({}, {"mara", "jon", "edda"}),
        ({"volume": "whisper", "to": "mara"}, {"mara"}),
        ({"volume": "say"}, {"mara", "jon", "edda"}),
        ({"audience": ["jon"]}, {"jon"}),
        ({"audience": []}, set()),
        ({"actor": "jon", "volume": "whisper", "to": ["edda"]}, {"jon", "edda"}),
    ],
)
async def test_speech_reaches_whom_it_should(
    start: StartServer, event: dict[str, Any], knowing: set[str]
) -> None:
    """By volume, by whom it is said to, or as the host says."""
    server = await start()
    async with hosting(server, "mara", "jon", "edda") as host:
        await host.scene("tavern", players=["ana"], minds=["mara", "jon", "edda"])
        await host.report(said("e1", SECRET, "ana") | event)
        prompts = {name: await host.prompt(name) for name in ("mara", "jon", "edda")}
        assert {name for name, prompt in prompts.items() if "treasure" in prompt} == knowing


async def test_positions_limit_how_far_speech_reaches(start: StartServer) -> None:
    """By the ranges of the world; what happens is seen by all of a scene."""
    server = await start()
    async with hosting(server, "mara", "jon") as host:
        await host.request("PUT", json={"ranges": {"say": 10, "shout": 100}})
        positions = {"ana": [0, 0], "mara": [3, 4], "jon": [30, 40]}
        await host.scene("tavern", players=["ana"], minds=["mara", "jon"], positions=positions)
        await host.report(
            said("e1", "quietly said", "ana"),
            said("e2", "loudly shouted", "ana", volume="shout"),
            {"id": "e3", "type": "event", "text": "It thundered", "scene": "tavern"},
        )
        mara, jon = await host.prompt("mara"), await host.prompt("jon")
        assert "quietly" in mara
        assert "quietly" not in jon
        for text in ("loudly shouted", "It thundered"):
            assert text in mara
            assert text in jon


async def test_an_event_is_stored_once_and_recalled_after_long(start: StartServer) -> None:
    """Its id again changes nothing; far back, it is recalled for a draft, by the world's clock."""
    server = await start()
    async with hosting(server, "mara") as host:
        await host.scene("tavern", players=["ana"], minds=["mara"])
        first = said("e1", "My dog Biscuit ran away", "ana")
        assert [e["duplicate"] for e in await host.report(first, first)] == [False, True]
        assert [e["duplicate"] for e in await host.report(first | {"text": "no"})] == [True]
        chatter = [said(f"c{n}", f"Talk number {n} of the weather", "ana") for n in range(430)]
        await host.report(*chatter)
        await host.request("PUT", json={"clock": {"time": "1203-05-08T12:00:00Z"}})
        prompt = await host.prompt("mara", "Where is Biscuit?", "ana")
        assert "on 1 May 1203, this happened" in prompt
        assert prompt.count("My dog Biscuit ran away") == 1
        assert prompt.rstrip().endswith("ana: Where is Biscuit?")


async def test_what_a_mind_is_told_is_said_to_be_so(start: StartServer) -> None:
    """With the chain of those who passed it on."""
    server = await start()
    async with hosting(server, "mara", "jon", "edda") as host:
        await host.scene("tavern", players=["ana"], minds=["mara", "jon", "edda"])
        await host.report(
            said("e1", SECRET, "ana", to="mara", volume="whisper"),
            said("e2", SECRET, "mara", to="jon", volume="whisper", retells="e1"),
            said("e3", SECRET, "jon", to="edda", volume="whisper", retells="e2"),
        )
        assert f'Mara told you that "{SECRET}" (Mara has it from ana)' in await host.prompt("jon")
        told = f'Jon told you that "{SECRET}" (Jon has it from Mara, who has it from ana)'
        assert told in await host.prompt("edda")


async def test_what_is_forgotten_leaves_every_mind(start: StartServer) -> None:
    """With what was told of it; the receipt lists the minds, and the id stays used."""
    server = await start()
    async with hosting(server, "mara", "jon", "edda") as host:
        await host.scene("tavern", players=["ana"], minds=["mara", "jon", "edda"])
        await host.report(said("e0", "Good evening", "ana"))
        before = {name: await host.prompt(name) for name in ("mara", "jon", "edda")}
        await host.report(
            said("e1", SECRET, "ana", to="mara", volume="whisper"),
            said("e2", f"Do you know? {SECRET}", "mara", to="jon", volume="whisper", retells="e1"),
        )
        assert "treasure" in await host.prompt("jon")  # edda has perceived nothing of it
        receipt = await host.request("DELETE", "/events/e1")
        assert receipt == {"events": ["e1", "e2"], "minds": ["jon", "mara"]}
        assert {name: await host.prompt(name) for name in before} == before
        (again,) = await host.report(said("e1", SECRET, "ana"))
        assert again["duplicate"]
        await host.request("DELETE", "/events/e9", status=404)


async def test_a_world_is_rolled_back_and_branched(start: StartServer) -> None:
    """Nothing of what was undone is known to any mind, and a branch shares the past alone."""
    server = await start()
    async with hosting(server, "mara", "jon") as host, hosting(server, world="other") as _:
        await host.scene("tavern", players=["ana"], minds=["mara", "jon"])
        await host.report(said("e1", "The well is dry", "ana"))
        at_save = await host.prompt("mara", "What of the well?", "ana")  # jon was never asked
        await host.request("POST", "/saves", {"name": "dusk"})
        assert await host.prompt("mara", "What of the well?", "ana") == at_save
        await host.report(said("e2", SECRET, "ana"))
        await host.request("PUT", json={"clock": {"time": "1203-06-01T12:00:00Z"}})
        assert "treasure" in await host.prompt("jon")
        branch = await host.request("POST", "/branches", {"save": "dusk", "world": "vale2"})
        assert branch["scenes"][0]["minds"] == ["mara", "jon"]
        undone = await host.request("POST", "/rollback", {"name": "dusk"})
        assert undone["time"] == "1203-05-01T12:00:00Z"
        assert await host.prompt("mara", "What of the well?", "ana") == at_save
        jon = await host.prompt("jon")
        assert "The well is dry" in jon
        assert "treasure" not in jon
        (again,) = await host.report(said("e2", "Another secret", "ana"))
        assert not again["duplicate"]
        host.world = "vale2"
        assert await host.prompt("mara", "What of the well?", "ana") == at_save
        assert "secret" not in await host.prompt("jon")
