"""The same mistake is answered alike at every door: the socket, HTTP, MCP, settings and files."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from tests.acceptance.test_mcp import ANA, client_of, refused
from tests.acceptance.world import world
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually, owner_of

TURN = ANA | {"id": "m1", "text": "Hello"}
Error = dict[str, Any]


async def over_http(
    server: RunningServer, method: str, path: str, body: object, status: int = 400
) -> Error:
    """Send a request that is refused; return the error."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}{path}"
        params = httpx2.QueryParams(path.partition("?")[2]).set("user", "ana")
        response = await http.request(method, url, json=body, params=params)
    assert response.status_code == status, response.text
    error: Error = response.json()["error"]
    return error


async def over_socket(server: RunningServer, frame: dict[str, Any]) -> Error:
    """Send a frame that is refused, in a session of its own; return the error."""
    client = await server.session()
    await client.send_raw(frame)
    error: Error = (await client.expect("error"))["error"]
    await client.close()
    return error


def without(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a body without a field."""
    return {field: value for field, value in body.items() if field != name}


def said(error: Error) -> tuple[str, str, str]:
    """Return what an error says."""
    return error["code"], error["param"], error["message"]


async def test_a_mistake_in_a_message_is_the_same_at_every_door(start: StartServer) -> None:
    """What is missing, of another type or too long is named, and what was expected there."""
    server = await start(mcp=True)
    frame = {"type": "message.send", "id": "m1", "text": "Hello"}
    async with client_of(server) as client:
        for wrong, expected in (
            (None, "expected a value, it is missing"),
            (7, "expected text, got a whole number"),
        ):
            change = {} if wrong is None else {"text": wrong}
            for error in (
                await over_socket(server, without(frame, "text") | change),
                await over_http(server, "POST", "/v1/turns", without(TURN, "text") | change),
                await refused(client, "remember", ANA | change),
            ):
                assert said(error) == ("invalid_message", "text", f"text: {expected}")
        misspelt = "tekst: expected a known field; did you mean `text`?"
        for error in (
            await over_http(server, "POST", "/v1/turns", TURN | {"tekst": "Hello"}),
            await refused(client, "remember", ANA | {"text": "Hello", "tekst": "Hello"}),
        ):
            assert said(error) == ("invalid_message", "tekst", misspelt)


@pytest.mark.parametrize(
    ("given", "param", "expected"),
    [
        ({"temperature": 0.2}, "settings.temperature", "did you mean `llm_temperature`?"),
        ({"llm_temprature": 0.2}, "settings.llm_temprature", "did you mean `llm_temperature`"),
        ({"zzzz": 1}, "settings.zzzz", "one of "),
        ({"recall_limit": "x"}, "settings.recall_limit", "expected a whole number or null"),
        ({"recall_limit": 5000}, "settings.recall_limit", "expected a whole number of at most 100"),
        ({"layers_off": ["soul"]}, "settings.layers_off[0]", "expected "),
    ],
)
async def test_a_wrong_setting_is_the_same_at_every_door(
    start: StartServer, given: dict[str, Any], param: str, expected: str
) -> None:
    """Of a message, a turn, a relationship and a companion."""
    server = await start()
    client = await server.session()
    await client.send("Hello", "m0")
    await client.expect_all("response.done")
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}/v1/relationships?user=ana"
        (relationship,) = (await http.get(url)).json()
    companion = {"name": "Mara", "persona": "A sailor."}
    frame = {"type": "message.send", "id": "m1", "text": "Hello", "settings": given}
    config = f"/v1/relationships/{relationship['id']}/config"
    for error in (
        await over_socket(server, frame),
        await over_http(server, "POST", "/v1/turns", TURN | {"settings": given}),
        await over_http(server, "PATCH", config, {"settings": given}),
        await over_http(
            server, "PUT", "/v1/admin/companions/mara", companion | {"settings": given}
        ),
    ):
        assert error["param"] == param, error
        assert error["message"].startswith(f"{param}: expected "), error
        assert expected in error["message"], error


async def test_a_wrong_flag_is_named_at_every_door(start: StartServer) -> None:
    """Among others that are right."""
    server = await start()
    client = await server.session()
    await client.send("Hello", "m0")
    await client.expect_all("response.done")
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{server.port}/v1/relationships?user=ana"
        (relationship,) = (await http.get(url)).json()
    path = f"/v1/relationships/{relationship['id']}/state"
    for flags, name in (
        ({"storm": True, "Gold Coins": 3}, "Gold Coins"),
        ({"storm": True, "gold": [3]}, "gold"),
    ):
        update = {"type": "session.update", "state": {"flags": flags}}
        on_socket = await over_socket(server, update)
        by_http = await over_http(server, "PATCH", path, {"flags": flags})
        assert on_socket["param"] == f"state.flags.{name}"
        assert by_http["param"] == f"flags.{name}"
        assert on_socket["message"] == f"state.{by_http['message']}"
        assert ": expected " in by_http["message"], json.dumps(by_http)


async def test_a_full_store_is_the_same_error_at_every_door(start: StartServer) -> None:
    """Nothing is stored, whichever way it comes; what is longer by a correction is more, too."""
    async with world(start, model=False, mcp=True, user_bytes=1_048_576) as w:
        await w.talk("My sister Mira keeps bees")
        exported = await w.request("GET", "/export")
        memory = (await w.memories())["My sister Mira keeps bees"]["id"]
        owner = owner_of(w.server.app.core)
        await owner.execute(
            "INSERT INTO turns "
            "(relationship_id, user_id, session_id, speaker, status, content, created_at) "
            "SELECT relationship_id, user_id, session_id, 'companion', 'completed', "
            "repeat('x', 14300), created_at FROM turns, generate_series(1, 64) "
            "WHERE speaker = 'user'"
        )
        await w.clock.advance(700)  # after which it is measured again, with the next message
        await w.talk("Hello")
        await eventually(
            lambda: not any(task.get_name() == "measure-user" for task in asyncio.all_tasks())
        )
        stored = "SELECT count(*), sum(length(content)) FROM turns"
        before = await owner.fetchrow(stored)
        event = {"id": "e1", "type": "event", "text": "The bridge collapsed"}
        chat = {"model": "wren", "user": "ana", "messages": [{"role": "user", "content": "Hello"}]}
        longer = {"content": "Bees " * 1500}
        relationship = f"/v1/relationships/{w.relationship}"
        for method, path, body, param in (
            ("POST", "/v1/turns", TURN, "text"),
            ("POST", "/v1/chat/completions", chat, "messages"),
            ("POST", f"{relationship}/events", {"events": [event]}, "text"),
            ("POST", "/v1/relationships/import?companion=wren", exported, "text"),
            ("PATCH", f"{relationship}/memories/{memory}", longer, "text"),
        ):
            error = await over_http(w.server, method, path, body, status=413)
            assert (error["code"], error["param"]) == ("storage_full", param), path
            assert "of 1048576 bytes; forgetting makes room" in error["message"]
        async with client_of(w.server) as client:
            error = await refused(client, "remember", ANA | {"text": "And goats"})
            assert (error["code"], error["param"]) == ("storage_full", "text")
        error = await over_socket(w.server, {"type": "message.send", "id": "m2", "text": "Hi"})
        assert (error["code"], error["param"]) == ("storage_full", "text")
        assert await owner.fetchrow(stored) == before
        await w.request("PATCH", f"/memories/{memory}", {"content": "Mira keeps bees"})
