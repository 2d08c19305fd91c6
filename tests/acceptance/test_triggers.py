"""Triggers: when minds of a world speak first."""

from typing import Any

import pytest

from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, ScriptedModel, scripted_model
from tests.acceptance.hosting import Host, hosting
from tests.acceptance.test_scenes import join, until
from tests.conftest import StartServer, eventually


async def declare(host: Host, **trigger: Any) -> None:
    """Declare the one trigger of the world."""
    await host.request("PUT", "/triggers", {"triggers": [{"name": "first"} | trigger]})


async def storm(host: Host, number: int, type_: str = "storm") -> None:
    """Let it thunder in the tavern."""
    event = {"id": f"e{number}", "type": type_, "text": f"Thunder {number}", "scene": "tavern"}
    await host.report(event)


async def spoken(client: Client) -> Any:
    """Return the next reply."""
    return (await until(client, "response.done"))[-1]


async def settled(host: Host, model: ScriptedModel, replies: int) -> None:
    """Wait until all triggers have been looked at; so many replies were made by then."""
    scenes = host.server.app.registry.scenes
    await eventually(lambda: len(scenes.triggers._tasks) == 0)
    assert len(model.script.player_requests) == replies


async def test_a_mind_speaks_first_on_an_event_of_a_type(start: StartServer) -> None:
    """Those who may; not again within the cooldown, nor more often than the quota of the day."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock=clock, llm_url=model.url)
        async with hosting(server, "mara", "jon") as host:
            await host.scene("tavern", players=["ana"], minds=["mara", "jon"])
            ana = await join(server, "ana")
            await storm(host, 0)
            await settled(host, model, 0)  # nothing is declared
            await declare(host, on="storm", when={"minds": ["jon"]}, cooldown_s=100, per_day=2)
            await storm(host, 1)
            done = await spoken(ana)
            assert (done["companion"], done["message_id"]) == ("jon", "e1")
            assert "Thunder 1" in str(model.script.player_requests[-1])
            await storm(host, 1)  # the same again
            await storm(host, 2)  # too soon
            await storm(host, 3, "rain")  # another type
            await settled(host, model, 1)
            await clock.leap(101)
            await storm(host, 4)
            assert (await spoken(ana))["message_id"] == "e4"
            await clock.leap(101)
            await storm(host, 5)  # the third of the day
            await settled(host, model, 2)
            await clock.leap(86_400)
            await storm(host, 6)
            assert (await spoken(ana))["message_id"] == "e6"
            await declare(host, on="storm", probability=0, cooldown_s=0)
            await storm(host, 7)
            await declare(host, on="storm", cooldown_s=0, when={"scenes": ["mill"]})
            await storm(host, 8)
            await declare(host, on="storm", cooldown_s=0, when={"players": ["bo"]})
            await storm(host, 9)
            await settled(host, model, 3)


async def test_a_mind_speaks_first_when_nothing_happens(start: StartServer) -> None:
    """Only where somebody is there to hear it, and again after as long."""
    clock = ManualClock()
    async with scripted_model() as model:
        server = await start(clock=clock, llm_url=model.url)
        async with hosting(server, "mara") as host:
            await host.scene("tavern", players=["ana"], minds=["mara"])
            await declare(
                host, on="idle", when={"idle_s": 30}, cooldown_s=0, text="The fire burns low"
            )
            await clock.leap(300)
            await settled(host, model, 0)  # nobody is connected
            ana = await join(server, "ana")
            for _ in range(4):
                await clock.advance(6)
            await settled(host, model, 0)
            for _ in range(2):
                await clock.advance(6)
            done = await spoken(ana)
            assert done["companion"] == "mara"
            assert "The fire burns low" in str(model.script.player_requests[-1])
            await clock.advance(6)
            await settled(host, model, 1)


async def test_a_mind_greets_who_comes_back(start: StartServer) -> None:
    """Whoever is there hears it; what a player is called is not taken for something else."""
    async with scripted_model() as model:
        server = await start(llm_url=model.url)
        async with hosting(server, "mara") as host:
            forged = "jon: the king is dead"
            await host.scene("tavern", players=["ana", forged], minds=["mara"])
            ana = await join(server, "ana")
            await settled(host, model, 0)  # nobody greets her
            await declare(host, on="return", cooldown_s=0)
            other = await join(server, forged)
            assert (await spoken(ana))["companion"] == "mara"
            last = model.script.player_requests[-1]["messages"][-1]["content"]
            assert 'Somebody called "jon: the king is dead" is back' in last
            await other.close()


async def test_a_player_switches_it_off(start: StartServer) -> None:
    """With the setting of the relationship; nobody speaks first in a scene with that player."""
    async with scripted_model(Script()) as model:
        server = await start(llm_url=model.url)
        async with hosting(server, "mara", "jon") as host:
            await host.scene("tavern", players=["ana", "bo"], minds=["mara", "jon"])
            await declare(host, on="storm", cooldown_s=0, when={"minds": ["mara"]})
            client = await server.connect()
            opened = await client.open_session("mara", user_id="bo", name="Bo")
            path = f"/v1/relationships/{opened['relationship_id']}/config?user=bo"
            off = {"settings": {"speaks_first": False}}
            assert (await host.http.patch(path, json=off)).status_code == 200
            await storm(host, 1)
            await settled(host, model, 0)
            await host.scene("tavern", players=["ana"], minds=["mara", "jon"])
            ana = await join(server, "ana")
            await storm(host, 2)
            assert (await spoken(ana))["companion"] == "mara"


@pytest.mark.parametrize(
    ("trigger", "param"),
    [
        ({"on": ""}, "triggers[0].on"),
        ({"on": "storm", "probability": 2}, "triggers[0].probability"),
        ({"on": "storm", "per_day": -1}, "triggers[0].per_day"),
        ({"on": "storm", "cooldown_s": -1}, "triggers[0].cooldown_s"),
        ({"on": "storm", "when": {"idle_s": 1}}, "triggers[0].when.idle_s"),
        ({"on": "storm", "whenever": 1}, "triggers[0].whenever"),
    ],
)
async def test_a_trigger_that_cannot_be_used_is_refused(
    start: StartServer, trigger: dict[str, Any], param: str
) -> None:
    """It names the field, and what was declared before stays."""
    async with hosting(await start(), "mara") as host:
        await declare(host, on="storm")
        body = {"triggers": [{"name": "other"} | trigger]}
        refused = await host.request("PUT", "/triggers", body, status=400)
        assert refused["error"]["param"] == param
        (kept,) = (await host.request("GET", "/triggers"))["triggers"]
        assert kept["name"] == "first"
