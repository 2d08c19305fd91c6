"""Actions: what minds of a world ask their game to do, and what they are told of it."""

from typing import Any

import httpx2
import pytest

from foremind_client import Client
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.hosting import Host, hosting, put_minds
from tests.acceptance.test_scenes import join, until
from tests.conftest import StartServer
from tests.unit.auth.test_access_tokens import SECRET, token

GIVE: dict[str, Any] = {
    "name": "give",
    "description": "hand something over",
    "schema": {"properties": {"item": {"type": "string"}}, "required": ["item"]},
}
LOOK = {"name": "look", "wait": True, "when": {"minds": ["mara"]}}


async def say(client: Client, text: str, number: int = 1) -> list[Any]:
    """Say something; return what comes of it."""
    await client.send_raw({"type": "message.send", "id": f"m{number}", "text": text})
    return await until(client, "response.done")


def requested(events: list[Any]) -> list[Any]:
    """Return the actions that are asked for."""
    return [event for event in events if event["type"] == "action.requested"]


async def declare(host: Host, *actions: dict[str, Any]) -> Any:
    """Declare the actions of the world."""
    return await host.request("PUT", "/actions", {"actions": [*actions]})


@pytest.mark.parametrize("as_tools", [False, True])
async def test_a_mind_asks_for_an_action_and_is_told_the_result(
    start: StartServer, as_tools: bool
) -> None:
    """By a mark in its reply, or a tool call; everybody sees it, the mind knows what came of it."""
    reply = ["Here you are."] if as_tools else ["Here you are. ", '[[give {"it', 'em": "rope"}]]']
    script = Script(
        reply=lambda _: reply, tool_calls=lambda _: [("give", '{"item": "rope"}')] * as_tools
    )
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url, llm_tools=as_tools)
        async with hosting(server, "mara") as host:
            await host.scene("tavern", players=["ana", "bo"], minds=["mara"])
            await declare(host, GIVE)
            ana, bo = await join(server, "ana"), await join(server, "bo")
            events = await say(ana, "Have you a rope?")
            (asked,) = requested(events)
            assert (asked["name"], asked["arguments"]) == ("give", {"item": "rope"})
            assert asked["companion"] == "mara"
            assert events[-1]["text"].strip() == "Here you are."
            assert requested(await until(bo, "response.done"))[0]["id"] == asked["id"]
            offered = model.script.player_requests[-1]
            assert ("tools" in offered) == as_tools
            assert ("hand something over" in str(offered["messages"])) != as_tools
            shown = await host.request("GET", "/minds/mara/context")
            assert shown["tools"] == offered.get("tools", [])
            (pending,) = (await host.request("GET", "/actions"))["requested"]
            assert (pending["id"], pending["mind"]) == (asked["id"], "mara")
            answer = {"type": "action.result", "id": asked["id"], "result": {"taken": True}}
            for event_id, duplicate in (("e1", False), ("e2", True)):
                await ana.send_raw(answer | {"event_id": event_id})
                accepted = (await until(ana, "action.accepted"))[-1]
                assert (accepted["id"], accepted["duplicate"]) == (asked["id"], duplicate)
                assert accepted["event_id"] == event_id
            assert await has_no_pending(host)
            prompt = await host.prompt("mara")
            assert 'Mara does this: give {"item":"rope"}' in prompt
            assert 'Result of give: {"taken":true}' in prompt
            # It was not to be waited for: nobody goes on talking.
            assert len(model.script.player_requests) == 1


async def has_no_pending(host: Host) -> bool:
    """Return whether all actions have a result."""
    return not (await host.request("GET", "/actions"))["requested"]


async def test_a_mind_goes_on_once_an_action_that_waits_has_a_result(start: StartServer) -> None:
    """It is told it, and so on; the steps in a row are bounded."""
    script = Script(reply=lambda _: ["[[look]]"])
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        async with hosting(server, "mara", "jon") as host:
            await host.scene("tavern", players=["ana"], minds=["mara", "jon"])
            await declare(host, LOOK)
            ana = await join(server, "ana")
            events = await say(ana, "Mara, what is behind you?")
            steps = 0
            while asked := requested(events):
                steps += 1
                answer = {"id": asked[0]["id"], "result": f"A door, number {steps}"}
                assert not (await host.request("POST", "/results", answer))["duplicate"]
                events = await until(ana, "response.done")
                assert events[-1]["companion"] == "mara"
                assert f"A door, number {steps}" in str(model.script.player_requests[-1])
                if steps == 2:
                    script.reply = lambda _: ["A door. [[look]]"]
            assert 2 < steps < 10
            assert events[-1]["text"] == "A door."
            assert "brackets" not in str(model.script.player_requests[-1]["messages"][-1])
            assert (await host.request("POST", "/results", answer))["duplicate"]
            assert "number 1" not in await host.prompt("jon")


async def test_only_what_is_allowed_now_is_offered_and_asked_for(start: StartServer) -> None:
    """By mind, scene and player; what does not fit the schema is not asked for."""
    replies = iter(["[[look]] No.", "[[give {}]] No.", "[[fly]] No.", "[[give rope]] Yes."])
    async with scripted_model(Script(reply=lambda _: [next(replies)])) as model:
        server = await start(llm_url=model.url)
        async with hosting(server, "mara", "jon") as host:
            await host.scene("tavern", players=["ana"], minds=["mara", "jon"])
            await declare(host, GIVE | {"when": {"players": ["ana"]}}, LOOK)
            ana = await join(server, "ana")
            for number in range(3):
                events = await say(ana, f"Jon, number {number}", number)
                assert (requested(events), events[-1]["text"]) == ([], "No.")
            assert len(requested(await say(ana, "Jon, again", 3))) == 1
            assert "look" in await host.prompt("mara")
            assert "look" not in (await host.prompt("jon")).partition("<instructions>")[2]
            await host.scene("tavern", players=["bo"], minds=["mara", "jon"])
            assert "hand something over" not in await host.prompt("mara")


async def test_the_same_message_again_asks_for_the_same_action(start: StartServer) -> None:
    """Over HTTP, with an answer that is nothing but an action."""
    async with scripted_model(Script(reply=lambda _: ["[[give rope]]"])) as model:
        server = await start(llm_url=model.url)
        async with hosting(server, "mara") as host:
            await host.scene("tavern", players=["ana"], minds=["mara"])
            await declare(host, GIVE)
            turn = {"id": "t1", "user": "ana", "text": "A rope!", "world": "vale",
                    "scene": "tavern"}  # fmt: skip
            bodies = [(await host.http.post("/v1/turns", json=turn)).json() for _ in range(2)]
            first, again = (body["replies"] for body in bodies)
            assert first == again
            assert (first[0]["text"], first[0]["status"]) == ("", "completed")
            assert first[0]["actions"][0]["arguments"] == {"item": "rope"}
            assert len(model.script.player_requests) == 1
            streamed = await host.http.post(
                "/v1/turns", json=turn | {"id": "t2"}, headers={"accept": "text/event-stream"}
            )
            assert "event: action.requested" in streamed.text


async def test_what_is_undone_or_forgotten_was_not_asked_for(start: StartServer) -> None:
    """A rollback takes it back; with the message the action is forgotten, and its result."""
    async with scripted_model(Script(reply=lambda _: ["[[give rope]] There."])) as model:
        server = await start(llm_url=model.url)
        async with hosting(server, "mara") as host:
            await host.scene("tavern", players=["ana"], minds=["mara"])
            await declare(host, GIVE)
            await host.request("POST", "/saves", {"name": "before"})
            ana = await join(server, "ana")
            (asked,) = requested(await say(ana, "A rope, Mara"))
            await host.request("POST", "/rollback", {"name": "before"})
            assert await has_no_pending(host)
            answer = {"id": asked["id"], "result": "done"}
            refused = await host.request("POST", "/results", answer, status=400)
            assert refused["error"]["param"] == "id"
            (asked,) = requested(await say(ana, "A rope, Mara", 2))
            await host.request("POST", "/results", answer | {"id": asked["id"]})
            assert "Result of give" in await host.prompt("mara")
            await host.request("DELETE", "/events/message:ana:m2")
            assert "rope" not in (await host.prompt("mara")).partition("<instructions>")[0]
            assert "Result of give" not in await host.prompt("mara")


async def test_only_the_game_server_answers_actions(start: StartServer) -> None:
    """A player cannot say what came of one; the bad is told what was expected."""
    async with scripted_model(Script(reply=lambda _: ["[[give rope]]"])) as model:
        server = await start(llm_url=model.url, auth_secret=SECRET)
        async with hosting(await start(), "mara"):
            pass  # another server creates what is needed without a key
        url = f"http://127.0.0.1:{server.port}"
        headers = {"authorization": f"Bearer {token(sub='game', scopes=['world'])}"}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=100.0) as http:
            host = Host(server, http, "vale")
            await host.scene("tavern", players=["ana"], minds=["mara"])
            await declare(host, GIVE)
            ana = await server.connect()
            await ana.send_raw({"type": "session.open", "token": token(sub="ana"),
                                "world": "vale", "scene": "tavern"})  # fmt: skip
            await until(ana, "scene.state")
            (asked,) = requested(await say(ana, "A rope"))
            await ana.send_raw({"type": "action.result", "id": asked["id"], "result": "gold"})
            error = (await until(ana, "error"))[-1]["error"]
            assert (error["code"], error["param"]) == ("not_allowed", "token")
            answer = {"id": asked["id"], "result": "taken"}
            path = "/v1/worlds/vale/results"
            mine = {"authorization": f"Bearer {token(sub='ana')}"}
            assert (await http.post(path, json=answer, headers=mine)).status_code == 403
            assert (await http.post(path, json=answer)).status_code == 200
            unknown = await host.request("POST", "/results", answer | {"id": "m"}, status=400)
            assert unknown["error"]["param"] == "id"
            long = await host.request("POST", "/results", answer | {"result": "x" * 5000},
                                      status=400)  # fmt: skip
            assert long["error"]["param"] == "result"


@pytest.mark.parametrize(
    ("actions", "param"),
    [
        ([{"name": "two words"}], "actions[0].name"),
        ([GIVE, GIVE], "actions[1].name"),
        ([{"name": "a", "schema": {"type": "array"}}], "actions[0].schema"),
        ([{"name": "a", "schema": {"properties": {"x": {"type": "?"}}}}], "actions[0].schema"),
        ([{"name": "a", "schema": {"title": "x" * 9000}}], "actions[0].schema"),
        ([{"name": "a", "when": {"mood": []}}], "actions[0].when.mood"),
    ],
)
async def test_a_declaration_that_cannot_be_used_is_refused(
    start: StartServer, actions: list[Any], param: str
) -> None:
    """It names the field, and what was declared before stays."""
    server = await start()
    async with hosting(server, "mara") as host:
        await declare(host, LOOK)
        response = await host.http.put("/v1/worlds/vale/actions", json={"actions": actions})
        assert response.status_code in (400, 413)
        assert response.json()["error"]["param"] == param
        (kept,) = (await host.request("GET", "/actions"))["actions"]
        assert kept["name"] == "look"


async def test_what_minds_ask_for_is_not_reported_by_the_game(start: StartServer) -> None:
    """It would be taken for what one asked for."""
    async with hosting(await start(), "mara") as host:
        await host.scene("tavern", players=["ana"], minds=["mara"])
        for type_ in ("action.requested", "action.result"):
            event = {"id": "e1", "type": type_, "text": "x", "fields": {"arguments": 5}}
            refused = await host.request("POST", "/events", {"events": [event]}, status=400)
            assert refused["error"]["param"] == "events[0].type"
        assert await has_no_pending(host)


async def test_a_mind_of_one_player_acts_and_knows_for_that_player(start: StartServer) -> None:
    """The minds that it has for others are not told what came of it, nor of what it does next."""
    async with scripted_model(Script(reply=lambda _: ["[[look]] A moment."])) as model:
        server = await start(llm_url=model.url)
        async with hosting(server) as host:
            await put_minds(server, "pia", mind=None)
            await host.scene("tavern", players=["ana", "bo"], minds=["pia"])
            await declare(host, {"name": "look", "wait": True})
            ana = await join(server, "ana")
            events = await say(ana, "Pia?")
            for result in ("a door", "a cellar"):
                (asked,) = requested(events)
                await host.request("POST", "/results", {"id": asked["id"], "result": result})
                events = await until(ana, "response.done")
                assert f"Result of look: {result}" in await host.prompt("pia", player="ana")
                assert "Result of look" not in await host.prompt("pia", player="bo")
