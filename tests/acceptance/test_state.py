"""What goes on in a session, as the game or the client tells it."""

from typing import Any

import httpx2
import pytest

from foremind.client import Client
from foremind.domain.session_state import MOST_FLAGS, MOST_TASK
from foremind.testing.background_answers import curate
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Script, scripted_model
from tests.acceptance.layers import World, world
from tests.acceptance.test_identity import entered
from tests.acceptance.traces import stored_text
from tests.conftest import PATIENCE, RunningServer, StartServer, everything_heard
from tests.unit.auth.test_access_tokens import SECRET, token

QUEST = {"task": "Find the lost compass", "flags": {"door_open": True, "gold": 3, "hint": "dunes"}}
LINES = [
    '- the task in hand: "Find the lost compass"',
    "- door_open = true",
    "- gold = 3",
    '- hint = "dunes"',
]


async def shown(w: World) -> list[str]:
    """What the prompt says of it."""
    lines: list[str] = (await w.context("And now?"))["layers"]["state"]["lines"]
    return lines


async def told(client: Client, **state: Any) -> dict[str, Any]:
    """Tell what goes on; return what the server knows of it then."""
    await client.send_raw({"type": "session.update", "state": state, "event_id": "s"})
    answer = await client.expect("session.updated", "error")
    if answer["type"] == "session.updated":
        assert answer["event_id"] == "s"
    return answer


async def test_it_stands_in_the_prompt_of_what_is_said_next(start: StartServer) -> None:
    """At once, and only while the session lasts; another window and another client see it."""
    prompts: list[str] = []

    def reply(request: dict[str, Any]) -> list[str]:
        prompts.append(request["messages"][-1]["content"])
        return ["Yes."]

    clock = ManualClock()
    async with scripted_model(Script(reply=reply, background=curate)) as model:
        w = World(await start(clock=clock, llm_url=model.url), clock, None)
        client = await w.talk("Hello")
        assert "<state>" not in prompts[-1]
        known = await told(client, **QUEST)
        assert (known["state"], known["expires_at"]) == (QUEST, None)
        await client.send("Where was I?")
        await client.expect("response.done")
        assert "<state>\n" + "\n".join(LINES) + "\n</state>" in prompts[-1]
        assert await shown(w) == LINES

        other = await w.server.connect()
        opened = await other.open_session("wren", user_id="ana", name="Ana")
        assert opened["state"] == QUEST
        await told(other, flags={"gold": None, "door_open": False})
        await everything_heard(w.server)
        await client.send("And now?")
        await client.expect("response.done")
        assert "gold" not in prompts[-1]
        assert "- door_open = false" in prompts[-1]

        await w.next_day()
        assert await w.request("GET", "/state") == {"session": None, "task": "", "flags": {}}
        assert "compass" not in await stored_text(w.server)
        assert (await told(client, task="Rest"))["state"] == {"task": "Rest", "flags": {}}


async def test_a_game_server_tells_it_over_http(start: StartServer) -> None:
    """As a merge patch of the session that goes on; where none does, it says so."""
    async with world(start, model=False) as w:
        client = await w.talk("Hello")
        set_to = await w.request("PATCH", "/state", QUEST)
        assert set_to["session"]
        assert {name: set_to[name] for name in ("task", "flags")} == QUEST
        assert await w.request("GET", "/state") == set_to
        await everything_heard(w.server)
        assert await shown(w) == LINES
        left = await w.request("PATCH", "/state", {"task": None, "flags": {"gold": None}})
        assert (left["task"], left["flags"]) == ("", {"door_open": True, "hint": "dunes"})
        far = await w.request("PATCH", "/state", {"flags": {"far": 1e300, "near": 1e-300}})
        assert (await w.request("GET", "/state"))["flags"] == far["flags"]
        assert (far["flags"]["far"], far["flags"]["near"]) == (1e300, 1e-300)
        assert (await w.request("GET", "/export"))["sessions"][-1]["state"]["flags"] == far["flags"]
        await client.close()
        await w.next_day()
        refused = await w.answer("PATCH", "/state", QUEST)
        assert (refused.status_code, refused.json()["error"]["param"]) == (404, "session")


@pytest.mark.parametrize(
    ("state", "param"),
    [
        ({"task": "x" * (MOST_TASK + 1)}, "task"),
        ({"flags": {"Door": True}}, "flags"),
        ({"flags": {"door": [1]}}, "flags[...]"),
        ({"flags": {"door": "x" * 201}}, "flags[...]"),
        ({"flags": {"door": 2**53}}, "flags[...]"),
        ({"flags": {f"f{number}": 1 for number in range(MOST_FLAGS + 1)}}, "flags"),
    ],
)
async def test_it_is_bounded_and_what_is_over_is_refused_by_name(
    start: StartServer, state: dict[str, Any], param: str
) -> None:
    """Over the socket and HTTP; what was told before stays."""
    async with world(start, model=False) as w:
        client = await w.talk("Hello")
        await told(client, **QUEST)
        error = (await told(client, **state))["error"]
        assert error["param"].startswith("state")
        refused = await w.answer("PATCH", "/state", state)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"].removeprefix("state.").startswith(param)
        assert (await w.request("GET", "/state"))["task"] == QUEST["task"]


async def test_a_token_needs_the_scope_to_write(start: StartServer) -> None:
    """Over the socket and over HTTP."""
    server = await start(auth_secret=SECRET)
    reader = token(scopes=["chat", "memory:read"])
    client = await entered(server, reader)
    assert (await told(client, task="x"))["error"]["code"] == "not_allowed"
    await client.send_raw({"type": "session.update"})
    assert (await client.expect("error"))["error"]["param"] == "token"
    writer = await entered(server, token(scopes=["chat", "memory:write"]))
    assert (await told(writer, task="x"))["state"]["task"] == "x"
    bond = await relationship(server, reader)
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.patch(
            f"http://127.0.0.1:{server.port}/v1/relationships/{bond}/state",
            headers={"authorization": f"Bearer {reader}", "content-type": "application/json"},
            content='{"task": "y"}',
        )
    assert answer.status_code == 403


async def relationship(server: RunningServer, signed: str) -> str:
    """The id of a token's relationship."""
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.get(
            f"http://127.0.0.1:{server.port}/v1/relationships",
            headers={"authorization": f"Bearer {signed}"},
        )
    found: str = answer.json()[0]["id"]
    return found


async def test_it_is_forgotten_exported_and_restored_like_everything(start: StartServer) -> None:
    """What holds what is forgotten goes, the rest stays; a file has it, another server takes it."""
    async with world(start, model=False) as w:
        client = await w.talk("My brother Zarco lost a compass in the dunes")
        quest = QUEST | {"flags": {**QUEST["flags"], "zarco_is_near": True}}  # type: ignore[dict-item]
        await told(client, **quest)
        receipt = await w.request("DELETE", "/memories?about=zarco")
        assert receipt["layers"]["state"] == 1
        assert "zarco" not in await stored_text(w.server)
        await everything_heard(w.server)
        assert await shown(w) == LINES

        exported = await w.request("GET", "/export")
        assert exported["sessions"][-1]["state"] == QUEST
        await w.request("DELETE", "/memories")
        assert "compass" not in await stored_text(w.server)
        await everything_heard(w.server)
        assert await shown(w) == []

        w.relationship = int((await w.imported(exported)).json()["id"])
        restored = await w.request("GET", "/export")
        assert QUEST in [each["state"] for each in restored["sessions"]]
