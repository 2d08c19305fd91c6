"""The state of a session (task and flags), as set by the game or the client."""

from typing import Any

import httpx2
import pytest

from foremind.domain.session_state import MAX_FLAGS, MAX_TASK_CHARS
from foremind_client import Client
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.test_identity import open_session_with
from tests.acceptance.traces import stored_text
from tests.acceptance.world import World, world
from tests.conftest import PATIENCE, RunningServer, StartServer, all_announcements_handled
from tests.unit.auth.test_access_tokens import SECRET, token

QUEST = {"task": "Find the lost compass", "flags": {"door_open": True, "gold": 3, "hint": "dunes"}}
LINES = [
    '- the task in hand: "Find the lost compass"',
    "- door_open = true",
    "- gold = 3",
    '- hint = "dunes"',
]


async def state_lines(w: World) -> list[str]:
    """Return the lines about the state in the prompt."""
    lines: list[str] = (await w.context("And now?"))["layers"]["state"]["lines"]
    return lines


async def update_state(client: Client, **state: Any) -> dict[str, Any]:
    """Update the state over the socket; return the response."""
    await client.send_raw({"type": "session.update", "state": state, "event_id": "s"})
    response = await client.expect("session.updated", "error")
    if response["type"] == "session.updated":
        assert response["event_id"] == "s"
    return response


async def test_the_state_is_in_the_next_prompt(start: StartServer) -> None:
    """At once, until the session ends, and for all connections of the session."""
    prompts: list[str] = []

    def reply(request: dict[str, Any]) -> list[str]:
        prompts.append(request["messages"][-1]["content"])
        return ["Yes."]

    clock = ManualClock()
    async with scripted_model(Script(reply=reply, background=background_answer)) as model:
        w = World(await start(clock=clock, llm_url=model.url), clock, None)
        client = await w.talk("Hello")
        assert "<state>" not in prompts[-1]
        updated = await update_state(client, **QUEST)
        assert (updated["state"], updated["expires_at"]) == (QUEST, None)
        await client.send("Where was I?")
        await client.expect("response.done")
        assert "<state>\n" + "\n".join(LINES) + "\n</state>" in prompts[-1]
        assert await state_lines(w) == LINES

        other = await w.server.connect()
        opened = await other.open_session("wren", user_id="ana", name="Ana")
        assert opened["state"] == QUEST
        await update_state(other, flags={"gold": None, "door_open": False})
        await all_announcements_handled(w.server)
        await client.send("And now?")
        await client.expect("response.done")
        assert "gold" not in prompts[-1]
        assert "- door_open = false" in prompts[-1]

        await w.next_day()
        assert await w.request("GET", "/state") == {"session": None, "task": "", "flags": {}}
        assert "compass" not in await stored_text(w.server)
        assert (await update_state(client, task="Rest"))["state"] == {"task": "Rest", "flags": {}}


async def test_a_game_server_updates_the_state_over_http(start: StartServer) -> None:
    """With a merge patch; 404 without an open session."""
    async with world(start, model=False) as w:
        client = await w.talk("Hello")
        updated = await w.request("PATCH", "/state", QUEST)
        assert updated["session"]
        assert {name: updated[name] for name in ("task", "flags")} == QUEST
        assert await w.request("GET", "/state") == updated
        await all_announcements_handled(w.server)
        assert await state_lines(w) == LINES
        remaining = await w.request("PATCH", "/state", {"task": None, "flags": {"gold": None}})
        assert (remaining["task"], remaining["flags"]) == ("", {"door_open": True, "hint": "dunes"})
        extremes = await w.request("PATCH", "/state", {"flags": {"far": 1e300, "near": 1e-300}})
        assert (await w.request("GET", "/state"))["flags"] == extremes["flags"]
        assert (extremes["flags"]["far"], extremes["flags"]["near"]) == (1e300, 1e-300)
        assert (await w.request("GET", "/export"))["sessions"][-1]["state"]["flags"] == extremes[
            "flags"
        ]
        await client.close()
        await w.next_day()
        refused = await w.response_to("PATCH", "/state", QUEST)
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "session")


@pytest.mark.parametrize(
    ("state", "param"),
    [
        ({"task": "x" * (MAX_TASK_CHARS + 1)}, "task"),
        ({"flags": {"Door": True}}, "flags"),
        ({"flags": {"door": [1]}}, "flags.door"),
        ({"flags": {"door": "x" * 201}}, "flags.door"),
        ({"flags": {"door": 2**53}}, "flags.door"),
        ({"flags": {f"f{number}": 1 for number in range(MAX_FLAGS + 1)}}, "flags"),
    ],
)
async def test_the_error_for_state_over_a_limit_names_the_field(
    start: StartServer, state: dict[str, Any], param: str
) -> None:
    """Over the socket and HTTP; the former state stays."""
    async with world(start, model=False) as w:
        client = await w.talk("Hello")
        await update_state(client, **QUEST)
        error = (await update_state(client, **state))["error"]
        assert error["param"].startswith("state")
        refused = await w.response_to("PATCH", "/state", state)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"].removeprefix("state.").startswith(param)
        assert (await w.request("GET", "/state"))["task"] == QUEST["task"]


async def test_updating_the_state_requires_memory_write(start: StartServer) -> None:
    """Over the socket and HTTP."""
    server = await start(auth_secret=SECRET)
    reader = token(scopes=["chat", "memory:read"])
    client = await open_session_with(server, reader)
    assert (await update_state(client, task="x"))["error"]["code"] == "not_allowed"
    await client.send_raw({"type": "session.update"})
    assert (await client.expect("error"))["error"]["param"] == "token"
    writer = await open_session_with(server, token(scopes=["chat", "memory:write"]))
    assert (await update_state(writer, task="x"))["state"]["task"] == "x"
    id_ = await relationship_id(server, reader)
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.patch(
            f"http://127.0.0.1:{server.port}/v1/relationships/{id_}/state",
            headers={"authorization": f"Bearer {reader}", "content-type": "application/json"},
            content='{"task": "y"}',
        )
    assert response.status_code == 403


async def relationship_id(server: RunningServer, signed: str) -> str:
    """Return the id of the relationship of a token."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        response = await http.get(
            f"http://127.0.0.1:{server.port}/v1/relationships",
            headers={"authorization": f"Bearer {signed}"},
        )
    id_: str = response.json()[0]["id"]
    return id_


async def test_the_state_is_erased_exported_and_imported(start: StartServer) -> None:
    """Only flags that contain what is erased are removed."""
    async with world(start, model=False) as w:
        client = await w.talk("My brother Zarco lost a compass in the dunes")
        quest = QUEST | {"flags": {**QUEST["flags"], "zarco_is_near": True}}  # type: ignore[dict-item]
        await update_state(client, **quest)
        receipt = await w.request("DELETE", "/memories?about=zarco")
        assert receipt["layers"]["state"] == 1
        assert "zarco" not in await stored_text(w.server)
        await all_announcements_handled(w.server)
        assert await state_lines(w) == LINES

        exported = await w.request("GET", "/export")
        assert exported["sessions"][-1]["state"] == QUEST
        await w.request("DELETE", "/memories")
        assert "compass" not in await stored_text(w.server)
        await all_announcements_handled(w.server)
        assert await state_lines(w) == []

        w.relationship = int((await w.import_file(exported)).json()["id"])
        restored = await w.request("GET", "/export")
        assert QUEST in [session["state"] for session in restored["sessions"]]
