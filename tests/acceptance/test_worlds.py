"""Worlds: what happens is known to whoever witnessed it, and to nobody else."""

import asyncio
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.acceptance.hosting import hosting, put_minds
from tests.conftest import StartServer

SECRET = "The treasure lies under the old mill"
_FOR_JON = {"name": "look", "when": {"minds": ["jon"]}}


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


async def test_a_world_may_be_put_by_several_at_once(start: StartServer) -> None:
    """Servers of one game that start together all find it."""
    server = await start()
    worlds, now = server.app.core.stores.worlds, datetime.now(UTC)
    for number in range(10):
        found = await asyncio.gather(*(worlds.put(f"isle-{number}", now) for _ in range(8)))
        assert len({world.timeline for world, _ in found}) == 1
        assert sum(is_new for _, is_new in found) == 1


async def test_days_and_feasts_are_called_as_in_the_world(start: StartServer) -> None:
    """Prompts are dated so, and "last harvest" in a draft finds what happened then."""
    server = await start()
    months = "Frost Thaw Seed Bud Bloom Sun Hay Corn Fruit Leaf Mist Dark".split()  # noqa: SIM905
    days = "Moonday Fireday Midweek Thunder Market Bath Rest".split()  # noqa: SIM905
    feasts = {"harvest": {"month": 9, "day": 20, "days": 5}}
    async with hosting(server) as host:
        settings: dict[str, Any] = {"recall_limit": 1, "memory_max_age_days": 1000}
        await put_minds(server, "mara", context_tokens=2000, **settings)
        clock = {"calendar": {"months": months, "days": days, "feasts": feasts}}
        view = await host.request("PUT", json={"clock": clock})
        assert view["calendar"]["feasts"] == feasts
        await host.scene("tavern", players=["ana"], minds=["mara"])
        for at, song in (
            ("1202-07-02", "whales"), ("1202-09-21", "old mills"),
            ("1203-01-09", "snow and wolves"), ("1203-02-11", "her grandmother"),
        ):  # fmt: skip
            sung = {"id": song[:3], "type": "event", "text": f"Tove sang of {song}"}
            await host.report(sung | {"scene": "tavern", "at": f"{at}T12:00:00Z"})
        await host.report(*(said(f"c{n}", f"Talk number {n} of the weather", "ana")
                            for n in range(100)))  # fmt: skip
        await host.request("PUT", json={"clock": {"time": "1203-05-01T12:00:00Z"}})
        prompt = await host.prompt("mara", "What did Tove sing at the last harvest?")
        (best, *_) = re.findall(r"- .* this happened: .*", prompt)
        assert best == (
            '- seven months ago, on 21 Fruit 1202, this happened: "Tove sang of old mills"'
        )
        assert "Today is Thunder, 1 Bloom 1203." in prompt
        prompt = await host.prompt("mara", "What did Tove sing in Thaw?")
        assert (
            re.findall(r"- .* this happened: (.*)", prompt)[0] == '"Tove sang of her grandmother"'
        )


@pytest.mark.parametrize(
    ("calendar", "param"),
    [
        ({"months": ["One"]}, "clock.calendar.months"),
        ({"days": ["One", "Two", "Three", "Four", "Five", "Six", ""]}, "clock.calendar.days[6]"),
        ({"feasts": {"yule": {"month": 13}}}, "clock.calendar.feasts.yule.month"),
        ({"feasts": {"yule": {"month": 2, "day": 30}}}, "clock.calendar.feasts.yule.day"),
    ],
)
async def test_a_calendar_that_is_none_is_refused(
    start: StartServer, calendar: dict[str, Any], param: str
) -> None:
    """With the field that is wrong."""
    server = await start()
    async with hosting(server) as host:
        refused = await host.request("PUT", json={"clock": {"calendar": calendar}}, status=400)
        assert refused["error"]["param"] == param


async def test_what_happened_at_a_place_is_recalled_for_it(start: StartServer) -> None:
    """Of one that a draft names, or where it is asked; prompts say where, and where a mind is."""
    server = await start()
    async with hosting(server) as host:
        await put_minds(server, "mara", context_tokens=2000, recall_limit=1)
        for number, place in enumerate(("the mill", "the harbour", "the chapel")):
            scene = place.removeprefix("the ")
            await host.scene(scene, players=["ana"], minds=["mara"], place=place)
            lost = f"I lost coin number {number}"
            await host.report(said(f"e{number}", lost, "ana", scene=scene))
            if place != "the chapel":
                await host.scene(scene, players=[], minds=[])
        await host.report(*(said(f"c{n}", f"Talk number {n} of the weather", "ana", scene="chapel")
                            for n in range(100)))  # fmt: skip

        async def best(draft: str) -> str:
            prompt = await host.prompt("mara", draft)
            assert "Today is Thursday, 1 May 1203. (the chapel)" in prompt
            recalled: list[str] = re.findall(r"- .* this happened: .*", prompt)
            return recalled[0]

        for number, place in enumerate(("the mill", "the harbour")):
            line = f'- just now, on 1 May 1203 ({place}), this happened: "ana: I lost coin number '
            assert await best(f"Which coin did ana lose at {place}?") == f'{line}{number}"'
        assert '"ana: I lost coin number 2"' in await best("Which coin did ana lose?")


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
        assert f"Mara told you that “{SECRET}” (Mara has it from ana)" in await host.prompt("jon")
        told = f"Jon told you that “{SECRET}” (Jon has it from Mara, who has it from ana)"
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


async def test_a_host_is_told_what_a_mind_witnessed_and_recalls(start: StartServer) -> None:
    """Across saves, without what was undone; and where everybody stands."""
    server = await start()
    async with hosting(server, "mara") as host:
        await host.scene("tavern", players=["ana"], minds=["mara"], positions={"ana": [1, 2]})
        await host.report(
            {"id": "e1", "type": "event", "text": "The well is dry", "scene": "tavern"},
            said("e2", SECRET, "ana", to="mara", volume="whisper"),
        )
        await host.request("POST", "/saves", {"name": "dusk"})
        await host.report(said("e3", "Good evening", "ana"))

        async def told(events: int) -> list[tuple[str, str]]:
            path = f"/minds/mara/context?draft=Where+is+the+treasure%3F&events={events}"
            context = await host.request("GET", path)
            assert any(SECRET in memory["content"] for memory in context["recalled"])
            return [(event["id"], event["how"]) for event in context["witnessed"]]

        assert await told(10) == [("e1", "seen"), ("e2", "told"), ("e3", "heard")]
        assert await told(2) == [("e2", "told"), ("e3", "heard")]
        assert await told(0) == []
        view = await host.request("POST", "/rollback", {"name": "dusk"})
        assert await told(10) == [("e1", "seen"), ("e2", "told")]
        assert view["scenes"][0]["positions"] == {"ana": [1, 2]}


async def test_what_a_player_whispers_is_known_to_the_character_it_has_alone(
    start: StartServer,
) -> None:
    """A character with a mind for each player keeps what one of them whispers from the others."""
    server = await start()
    async with hosting(server) as host:
        await put_minds(server, "pia", mind=None)
        await host.scene("tavern", players=["ana", "ben"], minds=["pia"])
        await host.report(
            said("e1", "Good evening, both of you", "ben"),
            said("e2", SECRET, "ana", to="pia", volume="whisper"),
        )
        ana, ben = [await host.prompt("pia", player=player) for player in ("ana", "ben")]
        assert "ben: Good evening" in ana
        assert "ben: Good evening" in ben
        assert f"ana (whispering to you): {SECRET}" in ana
        assert SECRET not in ben
        shown = [
            await host.request("GET", "/minds/pia/context", query={"player": name, "events": 9})
            for name in ("ana", "ben")
        ]
        witnessed = [[seen["id"] for seen in body["witnessed"]] for body in shown]
        assert witnessed == [["e1", "e2"], ["e1"]]


async def test_what_is_named_and_is_not_there_is_named(start: StartServer) -> None:
    """With its field, also of the one event of many that names it."""
    server = await start()
    async with hosting(server, "mara") as host:
        await host.scene("tavern", players=["ana"], minds=["mara"])
        fine = said("e1", "Good evening", "ana")
        elsewhere, hearsay = (
            fine | {"id": "e2", "scene": "mill"},
            fine | {"id": "e3", "retells": "e9"},
        )
        for path, body, param in (
            ("/events", {"events": [fine, elsewhere]}, "events[1].scene"),
            ("/events", {"events": [fine, fine, hearsay]}, "events[2].retells"),
            ("/rollback", {"name": "dusk"}, "name"),
            ("/branches", {"save": "dusk", "world": "vale2"}, "save"),
        ):
            refused = await host.request(
                "POST", path, body, status=400 if path == "/events" else 404
            )
            assert refused["error"]["param"] == param
        refused = await host.request("DELETE", "/events/e1", status=404)
        assert refused["error"]["param"] == "event"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/scenes/tavern", {"minds": ["mara", "jon"]}, "minds[1]"),
        ("/scenes/tavern", {"turn_order": {"minds": ["mara", "jon"]}}, "turn_order.minds[1]"),
        ("/actions", {"actions": [{"name": "give"}, _FOR_JON]}, "actions[1].when.minds[0]"),
        ("/triggers", {"triggers": [_FOR_JON | {"on": "fire"}]}, "triggers[0].when.minds[0]"),
    ],
)
async def test_minds_are_characters_that_there_are(
    start: StartServer, path: str, body: dict[str, Any], param: str
) -> None:
    """A name that is misspelt would otherwise let nothing ever happen."""
    server = await start()
    async with hosting(server, "mara") as host:
        refused = await host.request("PUT", path, body, status=400)
        assert refused["error"]["param"] == param


async def test_a_player_cannot_be_taken_for_a_character(start: StartServer) -> None:
    """Neither by the slug of a companion, nor by its name."""
    server = await start()
    async with hosting(server, "mara", "jon") as host:
        body = {"players": ["ana", "mara"], "minds": ["jon"]}
        refused = await host.request("PUT", "/scenes/tavern", body, status=400)
        assert refused["error"]["param"] == "players[1]"
        await host.scene("tavern", players=["Mara"], minds=["jon"])
        await host.report(said("e1", "I own this tavern", "Mara"))
        assert "somebody called Mara: I own this tavern" in await host.prompt("jon")


async def test_what_the_host_says_is_shown_beside_a_claim_of_the_same(start: StartServer) -> None:
    """A claim hides nothing that is so, though it has the same words."""
    server = await start()
    async with hosting(server) as host:
        await put_minds(server, "mara", context_tokens=1000)
        await host.scene("tavern", players=["ana"], minds=["mara"])
        await host.report({"id": "e1", "type": "state", "text": "The old well in the yard is dry",
                           "scene": "tavern"})  # fmt: skip
        await host.report(*(said(f"c{n}", f"Talk number {n}", "ana") for n in range(60)))
        await host.report(said("e2", "Listen. The old well in the yard is dry", "ana"))
        prompt = await host.prompt("mara", "Is the old well dry?")
        assert "ana: Listen. The old well in the yard is dry" in prompt
        assert 'this happened: "The old well in the yard is dry"' in prompt


async def test_what_mattered_most_stays_in_mind(start: StartServer) -> None:
    """Beyond what its history shows, in the words of who said it; all else is recalled if asked."""
    server = await start(working_tokens=200)
    async with hosting(server, "mara") as host:
        await host.scene("tavern", players=["ana"], minds=["mara"])
        await host.report(
            said("e1", "My brother Tom died in Leeds. I promise to avenge him!", "ana", to="mara"),
            *(
                {"id": f"r{n}", "type": "event", "text": f"It rained for {n} days"}
                for n in range(100)
            ),
        )
        prompt = await host.prompt("mara", "Hm")
        summary = prompt.partition("<summary>")[2].partition("</summary>")[0]
        assert "ana (to you): My brother Tom died in Leeds. I promise to avenge him!" in summary
        assert prompt.count("brother Tom") == 1
        receipt = await host.request("DELETE", "/events/e1")
        assert receipt["events"] == ["e1"]
        assert "brother Tom" not in await host.prompt("mara", "Hm")
