"""Scenes: players meet minds in a place of a world, over sockets and over HTTP."""

import asyncio
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.hosting import hosting, put_minds
from tests.acceptance.test_identity import close_code
from tests.conftest import PATIENCE, RunningServer, StartServer
from tests.unit.auth.test_access_tokens import SECRET as AUTH_SECRET
from tests.unit.auth.test_access_tokens import token

SECRET = "The treasure lies under the old mill"


async def join(
    server: RunningServer,
    player: str,
    scene: str = "tavern",
    *,
    sentences: bool = False,
    signed: bool = False,
) -> Client:
    """Let a player join a scene; return its client after its state has come."""
    client = await server.connect()
    who: dict[str, Any] = {"user": {"id": player, "name": player.title()}}
    if signed:
        who = {"token": token(sub=player)}
    where = {"world": "vale", "scene": scene}
    await client.send_raw({"type": "session.open", "sentences": sentences} | who | where)
    assert (await client.next_event())["type"] == "session.opened"
    assert (await client.next_event())["type"] == "scene.state"
    return client


async def until(client: Client, type_: str) -> list[Any]:
    """Return the events up to one of a type."""
    events = [await client.next_event()]
    while events[-1]["type"] != type_:
        events.append(await client.next_event())
    return events


async def test_players_hear_each_other_and_minds_answer(start: StartServer) -> None:
    """Everybody in the scene is told what is said; whispers reach only whom they should."""
    server = await start()
    async with hosting(server, "mara", "jon") as host:
        await host.scene("tavern", players=["ana", "bo"], minds=["mara", "jon"])
        ana, bo = await join(server, "ana"), await join(server, "bo")
        await ana.send_raw({"type": "message.send", "id": "m1", "text": "Good evening, Mara"})
        events = await until(ana, "response.done")
        kinds = [event["type"] for event in events if event["type"] != "scene.event"]
        assert kinds[:2] == ["message.accepted", "response.created"]
        assert events[-1]["companion"] == "mara"  # she is named
        heard = await until(bo, "response.done")
        said = [event for event in heard if event["type"] == "scene.event"]
        assert (said[0]["actor"], said[0]["text"]) == ("ana", "Good evening, Mara")
        await ana.send_raw(
            {
                "type": "message.send",
                "id": "m2",
                "text": SECRET,
                "to": "mara",
                "volume": "whisper",
            }
        )
        await until(ana, "response.done")
        await bo.send_raw({"type": "message.send", "id": "m3", "text": "Hello", "to": ["jon"]})
        heard = await until(bo, "response.done")
        assert "treasure" not in str(heard)
        assert "treasure" in await host.prompt("mara")
        assert "treasure" not in await host.prompt("jon")
        await bo.close()
        back = await server.connect()
        await back.send_raw(
            {
                "type": "session.open",
                "user": {"id": "bo", "name": "Bo"},
                "world": "vale",
                "scene": "tavern",
            }
        )
        missed = await until(back, "scene.event")
        assert "treasure" not in str(missed)
        assert "Good evening, Mara" in str(missed)


async def test_who_is_there_and_types_is_told(start: StartServer) -> None:
    """A player who leaves is told no more; drafts show as typing, without their text."""
    server = await start()
    async with hosting(server, "mara") as host:
        await host.scene("tavern", players=["ana", "bo"], minds=["mara"], place="the tavern")
        ana, bo = await join(server, "ana"), await join(server, "bo")
        await ana.send_raw({"type": "draft.update", "text": "I am thinking"})
        typing = (await until(bo, "scene.typing"))[-1]
        assert (typing["player"], typing["typing"]) == ("ana", True)
        assert "thinking" not in str(typing)
        await ana.send_raw({"type": "draft.clear"})
        assert not (await until(bo, "scene.typing"))[-1]["typing"]
        await host.scene("tavern", players=["ana"], minds=["mara"])
        left = (await until(bo, "scene.state"))[-1]
        assert (left["here"], left["members"]) == (False, [])
        await bo.send_raw({"type": "message.send", "id": "m1", "text": "Hello?"})
        error = (await until(bo, "error"))[-1]["error"]
        assert (error["code"], error["param"]) == ("not_allowed", "scene")


async def typed(client: Client, text: str, **more: Any) -> Any:
    """Type a draft at once; return the event that its context is ready."""
    await client.send_raw({"type": "draft.update", "text": text} | more)
    return (await until(client, "context.ready"))[-1]


async def sent(client: Client, id_: str, text: str, **more: Any) -> tuple[str, str]:
    """Send a message; return how its context was found, and who answered first."""
    await client.send_raw({"type": "message.send", "id": id_, "text": text} | more)
    events = await until(client, "message.accepted")
    accepted = events[-1]
    while (done := (await until(client, "response.done"))[-1])["message_id"] != id_:
        pass  # what others were answered
    return accepted["context"], done["companion"]


async def test_the_first_answer_finds_its_context_prepared(start: StartServer) -> None:
    """Whoever is named, spoken to, or chosen by chance."""
    server = await start()
    minds = ["mara", "jon", "wren", "tom"]
    async with hosting(server, *minds) as host:
        order = {"replies": 1}
        await host.scene("tavern", players=["ana", "bo"], minds=minds, turn_order=order)
        ana, bo = await join(server, "ana"), await join(server, "bo")
        await sent(bo, "b1", SECRET, to="jon", volume="whisper")
        asked = "Jon, where is the treasure?"
        ready = await typed(ana, asked)
        assert ready["draft"] == asked
        assert await sent(ana, "m1", asked) == ("hit", "jon")
        for number in range(4):
            said = f"Is anybody here hungry, or thirsty? ({number})"
            await typed(ana, said)
            assert (await sent(ana, f"m2-{number}", said))[0] == "hit"
        await typed(ana, "And you?", to="tom")
        assert await sent(ana, "m3", "And you?", to="tom") == ("hit", "tom")
        # Whom it was not typed to has prepared nothing.
        await typed(ana, "And you there?", to="tom")
        assert await sent(ana, "m4", "And you there?", to="wren") == ("miss", "wren")
        # What happens after it was typed counts.
        await typed(ana, "Wren, who is the miller?")
        await sent(bo, "b2", "The miller is my uncle", to="wren")
        assert await sent(ana, "m5", "Wren, who is the miller?") == ("refreshed", "wren")


async def test_players_are_told_what_they_witness_wherever_it_happens(start: StartServer) -> None:
    """Also if it happens in another scene than the one that they are in."""
    server = await start()
    async with hosting(server, "mara") as host:
        await host.scene("tavern", players=["ana"], minds=["mara"])
        await host.scene("cellar", players=["bo"], minds=[])
        ana, bo = await join(server, "ana"), await join(server, "bo", "cellar")
        told = {"type": "event", "scene": "tavern"}
        await host.report(told | {"id": "e1", "text": "A window broke"})
        assert (await until(ana, "scene.event"))[-1]["id"] == "e1"
        await host.report(
            told | {"id": "e2", "text": "A bell rang", "audience": ["bo"]},
            told | {"id": "e3", "text": "Bo drops a cup", "actor": "bo"},
            {"id": "e4", "type": "event", "text": "It thundered"},
        )
        heard = [(await until(bo, "scene.event"))[-1]["id"] for _ in range(3)]
        assert heard == ["e2", "e3", "e4"]
        heard = [(await until(ana, "scene.event"))[-1]["id"] for _ in range(2)]
        assert heard == ["e3", "e4"]


@pytest.mark.parametrize("mind", ["world", None])
async def test_a_mind_is_asked_the_same_whether_it_was_typed_to_or_not(
    start: StartServer, mind: str | None
) -> None:
    """And whatever happened between; nothing of it is asked twice or missed afterwards."""
    async with scripted_model(Script(reply=lambda _: ["Aye."])) as model:
        server = await start(llm_url=model.url)
        async with hosting(server) as host:
            await put_minds(server, "mara", mind=mind)
            await host.scene("tavern", players=["ana", "bo"], minds=["mara"])
            await host.request("POST", "/saves", {"name": "dusk"})
            asked, shown = [], []
            for typing in (True, False):
                ana, bo = await join(server, "ana"), await join(server, "bo")
                before = len(model.script.player_requests)
                for number, text in enumerate((SECRET, "Where is it?", "Who has the key of it?")):
                    if typing:
                        await typed(ana, text)
                    if number == 1:
                        noise = {"id": f"n{typing}", "type": "event", "text": "The bell rings"}
                        await host.report(noise | {"scene": "tavern"})
                    await sent(ana, f"m{number}{typing}", text)
                    await sent(bo, f"b{number}{typing}", "Be quiet", to="mara")
                asked.append([*map(str, model.script.player_requests[before:])])
                shown.append(await host.prompt("mara", "Is it deep?", "ana"))
                await host.request("POST", "/rollback", {"name": "dusk"})
    assert asked[0] == asked[1]
    assert shown[0] == shown[1]
    assert SECRET in shown[0]


async def test_a_player_stays_with_a_fresh_token(start: StartServer) -> None:
    """Of the same player; with it, what is told may change, but there is no state in a scene."""
    clock = ManualClock()
    now = clock.now().timestamp()
    server = await start(clock, auth_secret=AUTH_SECRET)
    async with hosting(await start(), "mara") as host:  # a server that needs no token
        await host.scene("tavern", players=["ana"], minds=["mara"])
        ana = await server.connect()
        where = {"world": "vale", "scene": "tavern"}
        await ana.send_raw({"type": "session.open", "token": token(exp=now + 60)} | where)
        await until(ana, "scene.state")
        for update, param in (
            ({"token": token(sub="bo", exp=now + 600)}, "token"),
            ({"state": {"task": "Find the key"}}, "state"),
            ({}, "token"),
        ):
            await ana.send_raw({"type": "session.update"} | update)
            assert (await ana.next_event())["error"]["param"] == param
        fresh = {"token": token(exp=now + 600), "contexts": False, "event_id": "u1"}
        await ana.send_raw({"type": "session.update"} | fresh)
        updated = await ana.next_event()
        assert (updated["type"], updated["event_id"]) == ("session.updated", "u1")
        await clock.advance(120)
        await ana.send_raw({"type": "draft.update", "text": "Good evening"})
        await clock.advance(1)
        await ana.send_raw({"type": "message.send", "id": "m1", "text": "Good evening"})
        told = [event["type"] for event in await until(ana, "message.accepted")]
        assert "context.ready" not in told
        await clock.advance(600)
        await ana.send_raw({"type": "message.send", "id": "m2", "text": "Still there?"})
        assert await close_code(ana) == 4401


async def test_players_are_shown_memories_of_minds_of_their_own_only(start: StartServer) -> None:
    """Over the socket and over HTTP, a mind that others talk to as well shows its host alone."""
    server = await start(auth_secret=AUTH_SECRET)
    async with hosting(await start(), "jon") as host:
        await put_minds(server, "mara", mind=None)
        await host.scene("tavern", players=["ana", "bo"], minds=["jon", "mara"])
        ana, bo = await join(server, "ana", signed=True), await join(server, "bo", signed=True)
        for mind in ("jon", "mara"):
            await sent(bo, f"b-{mind}", SECRET, to=mind, volume="whisper")
            await sent(ana, f"a-{mind}", "My sister is called Ida", to=mind)
        asked = "What is my sister called?"
        assert (await typed(ana, asked, to="jon"))["memories"] == []
        shown = str((await typed(ana, asked + "!", to="mara"))["memories"])
        assert "Ida" in shown
        assert "mill" not in shown
        for mind in ("jon", "mara"):
            for url, is_host in ((f"http://127.0.0.1:{server.port}", False), ("", True)):
                turn = {"id": f"t-{mind}-{is_host}", "text": asked, "to": mind}
                where = {"world": "vale", "scene": "tavern"} | ({"user": "ana"} if is_host else {})
                headers = {} if is_host else {"authorization": f"Bearer {token(sub='ana')}"}
                address = f"{url}/v1/turns"
                answer = await host.http.post(address, json=turn | where, headers=headers)
                assert answer.status_code == 200, answer.text
                memories = str(answer.json()["memories"])
                assert ("Ida" in memories) == (is_host or mind == "mara"), (mind, is_host)
                assert "mill" not in memories


async def test_a_turn_over_http_is_answered_once(start: StartServer) -> None:
    """By whom it is said to; the same id again returns what was answered."""
    server = await start()
    async with hosting(server, "mara", "jon") as host:
        await host.scene("tavern", players=["ana"], minds=["mara", "jon"])
        url = f"http://127.0.0.1:{server.port}"
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
            turn = {
                "id": "t1",
                "user": "ana",
                "text": "What do you sell?",
                "world": "vale",
                "scene": "tavern",
                "to": ["jon"],
            }
            first = (await http.post("/v1/turns", json=turn)).json()
            assert [reply["companion"] for reply in first["replies"]] == ["jon"]
            again = (await http.post("/v1/turns", json=turn)).json()
            assert again["duplicate"]
            assert again["replies"] == first["replies"]
            other = await http.post("/v1/turns", json=turn | {"text": "Something else"})
            assert other.status_code == 409
            for change, param in (
                ({"scene": None}, "scene"),
                ({"scene": "cellar"}, "scene"),
                ({"to": "edda"}, "to"),
            ):
                response = await http.post("/v1/turns", json=turn | {"id": "t2"} | change)
                assert response.json()["error"]["param"] == param
            streamed = await http.post(
                "/v1/turns", json=turn | {"id": "t3"}, headers={"accept": "text/event-stream"}
            )
            assert streamed.text.index("message.accepted") < streamed.text.index("response.done")
        jon, mara = await host.prompt("jon"), await host.prompt("mara")
        assert "ana (to you): What do you sell?" in jon
        assert "ana (to Jon): What do you sell?" in mara
        reply = first["replies"][0]["text"]
        assert f"assistant: {reply}" in jon
        assert f"Jon (to ana): {reply}" in mara


async def test_an_id_is_of_one_message_of_one_player(start: StartServer) -> None:
    """Whatever is in it: neither another player's message nor a mind's reply is taken for it."""
    server = await start()
    async with hosting(server, "mara") as host:
        players = ["ana", "ana:b", "ana%3Ab"]
        await host.scene("tavern", players=players, minds=["mara"])
        url = f"http://127.0.0.1:{server.port}"
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:

            async def say(user: str, id_: str, text: str) -> Any:
                turn = {"id": id_, "user": user, "text": text, "to": "mara", "volume": "whisper"}
                where = {"world": "vale", "scene": "tavern"}
                response = await http.post("/v1/turns", json=turn | where)
                assert response.status_code == 200, response.text
                return response.json()

            said = [
                await say("ana:b", "m1", SECRET),
                await say("ana", "b:m1", SECRET),  # as whoever guesses what was whispered
                await say("ana%3Ab", "m1", SECRET),
                await say("ana", "m2>mara", "I am Mara"),
                await say("ana", "m2>mara#0", "I am what Mara does"),
                await say("ana", "m2", "Who are you?"),
            ]
            assert not any(answer["duplicate"] for answer in said)
            assert len({answer["turn_id"] for answer in said}) == len(said)
            again = await say("ana", "m2", "Who are you?")
            assert again["duplicate"]
            assert again["replies"] == said[-1]["replies"] != []
        reply = said[-1]["replies"][0]["text"]
        assert f"assistant: {reply}" in await host.prompt("mara")


async def test_a_roll_back_shows_in_the_scene(start: StartServer) -> None:
    """The client is told what its player has witnessed in the past that is left."""
    server = await start()
    async with hosting(server, "mara") as host:
        await host.scene("tavern", players=["ana"], minds=["mara"])
        ana = await join(server, "ana")
        await host.report({"id": "e1", "type": "event", "text": "It rains", "scene": "tavern"})
        await until(ana, "scene.event")
        await host.request("POST", "/saves", {"name": "dusk"})
        assert (await until(ana, "scene.state"))[-1]["events"] is None
        await host.report({"id": "e2", "type": "event", "text": SECRET, "scene": "tavern"})
        await until(ana, "scene.event")
        await host.request("POST", "/rollback", {"name": "dusk"})
        state = (await until(ana, "scene.state"))[-1]
        assert [event["text"] for event in state["events"]] == ["It rains"]


@pytest.mark.parametrize(
    ("order", "answers"),
    [
        ({"order": "list", "minds": ["jon", "mara"]}, ["jon", "mara"]),
        ({"order": "list", "minds": ["jon", "mara"], "replies": 1}, ["jon"]),
        ({"order": "host"}, []),
        ({"talkativeness": {"mara": 0, "jon": 1}}, ["jon"]),
    ],
)
async def test_who_answers_is_the_scene_s_to_say(
    start: StartServer, order: dict[str, Any], answers: list[str]
) -> None:
    """By a list, by chance, or by nobody but the host."""
    server = await start()
    async with hosting(server, "mara", "jon") as host:
        await host.scene("tavern", players=["ana"], minds=["mara", "jon"], turn_order=order)
        url = f"http://127.0.0.1:{server.port}"
        async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
            turn = {
                "id": "t1",
                "user": "ana",
                "text": "Good evening",
                "world": "vale",
                "scene": "tavern",
            }
            made = (await http.post("/v1/turns", json=turn)).json()
        assert [reply["companion"] for reply in made["replies"]] == answers


@pytest.mark.parametrize("undoing", ["rollback", "erasure", "erasure of the message"])
async def test_a_reply_that_knows_what_is_undone_is_not_stored(
    start: StartServer, undoing: str
) -> None:
    """It was begun before; the player is told that it failed, and no mind knows it."""
    release = asyncio.Event()
    script = Script(reply=lambda _: ["I ", "remember ", SECRET], hold_before=release, hold_after=1)
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        async with hosting(server, "mara") as host:
            await host.scene("tavern", players=["ana"], minds=["mara"])
            await host.request("POST", "/saves", {"name": "dusk"})
            await host.report({"id": "e1", "type": "event", "text": SECRET, "scene": "tavern"})
            ana = await join(server, "ana")
            await ana.send_raw({"type": "message.send", "id": "m1", "text": "What lies there?"})
            await until(ana, "response.output_text.delta")
            if undoing == "rollback":
                await host.request("POST", "/rollback", {"name": "dusk"})
            else:
                event = "e1" if undoing == "erasure" else quote("message:ana:m1")
                await host.request("DELETE", f"/events/{event}")
            release.set()
            done = (await until(ana, "response.done"))[-1]
            assert done["status"] == "failed"
            assert "remember" not in await host.prompt("mara")
            script.hold_before = None
            await ana.send_raw({"type": "message.send", "id": "m2", "text": "And now?"})
            assert (await until(ana, "response.done"))[-1]["status"] == "completed"


async def test_an_erased_player_leaves_the_scene(start: StartServer) -> None:
    """With what the player said, and what was said to the player; others stay."""
    server = await start()
    async with hosting(server, "mara") as host:
        await host.scene("tavern", players=["ana", "bo"], minds=["mara"])
        ana, bo = await join(server, "ana"), await join(server, "bo")
        await bo.send_raw({"type": "message.send", "id": "m0", "text": "Good evening, Mara"})
        for player in (ana, bo):
            await until(player, "response.done")
        before = await host.prompt("mara")
        await ana.send_raw({"type": "message.send", "id": "m1", "text": SECRET, "to": "mara"})
        await until(ana, "response.done")
        assert "treasure" in await host.prompt("mara")
        exported = await host.http.get("/v1/users/ana/export", params={"user": "ana"})
        (played,) = exported.json()["worlds"]
        witnessed = [event["text"] for event in played["witnessed"]]
        assert witnessed[::2] == ["Good evening, Mara", SECRET]  # and what she answered
        receipt = await host.http.delete("/v1/users/ana", params={"user": "ana"})
        assert receipt.json()["minds"] == ["mara"]
        assert receipt.json()["events"] == 2
        assert await host.prompt("mara") == before
        left = (await until(bo, "scene.state"))[-1]
        assert [member["id"] for member in left["members"]] == ["bo", "mara"]
        assert await close_code(ana) == 4403
        again = await host.http.delete("/v1/users/ana", params={"user": "ana"})
        assert again.status_code == 404


async def test_a_mind_reacts_to_what_the_host_asks_about(start: StartServer) -> None:
    """Whoever hears it is told, sentence by sentence if asked for; the same event again is none."""
    server = await start()
    async with hosting(server, "mara", "jon") as host:
        order = {"order": "list", "minds": ["mara", "jon"], "replies": 2}
        await host.scene("tavern", players=["ana", "bo"], minds=["mara", "jon"], turn_order=order)
        await host.scene("mill", players=["cem"], minds=[])
        ana, cem = await join(server, "ana", sentences=True), await join(server, "cem", "mill")
        bo = await join(server, "bo")
        event = {"id": "e1", "type": "event", "text": "The door falls shut", "scene": "tavern"}
        await host.report(event | {"respond": True})
        heard = [*await until(ana, "response.done"), *await until(ana, "response.done")]
        begun = [told for told in heard if told["type"] == "response.created"]
        assert [told["companion"] for told in begun] == ["mara", "jon"]
        assert {told["message_id"] for told in begun} == {"e1"}
        spoken = [told for told in heard if told["type"] == "response.sentence"]
        assert {told["response_id"] for told in spoken} == {told["response_id"] for told in begun}
        other = [*await until(bo, "response.done"), *await until(bo, "response.done")]
        assert not [told for told in other if told["type"] == "response.sentence"]
        said = [told["text"] for told in heard if told["type"] == "response.done"]
        prompt = await host.prompt("jon")
        assert all(text in prompt for text in ("The door falls shut", *said))
        await host.report(event | {"respond": True})
        await cem.send_raw({"type": "message.send", "id": "m1", "text": "Is anybody here?"})
        there = await until(cem, "scene.event")
        assert {told["type"] for told in there} <= {"message.accepted", "scene.event"}
        await ana.send_raw({"type": "message.send", "id": "m2", "text": "Hm", "to": "mara"})
        later = await until(ana, "response.done")
        assert [t["message_id"] for t in later if t["type"] == "response.created"] == ["m2"]
        refused = await host.http.post(
            "/v1/worlds/vale/events",
            json={"events": [{"id": "e2", "type": "x", "text": "x", "respond": True}]},
        )
        assert refused.json()["error"]["param"] == "events[0].respond"
