"""The client libraries and the game server's example, against a whole server."""

import asyncio
import json
import os
import shutil
import sys
from collections import Counter
from functools import partial
from typing import Any

import pytest

from foremind_client import Conversation, Identity, Refused
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.acceptance.hosting import hosting
from tests.acceptance.test_actions import GIVE, declare
from tests.acceptance.test_scenes import join
from tests.conftest import ROOT, StartServer, eventually, owner_of
from tests.faults.proxy import fault_proxy
from tests.unit.auth.test_access_tokens import SECRET, token


async def test_a_game_server_relays_for_its_players(start: StartServer) -> None:
    """It mints their tokens; each player gets a reply, and nothing of the other's conversation."""
    server = await start(auth_secret=SECRET)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / "npc_host.py"),
        env=os.environ | {"FOREMIND_URL": server.url, "FOREMIND_AUTH_SECRET": SECRET},
        stdout=asyncio.subprocess.PIPE,
    )
    output = (await process.communicate())[0].decode()
    assert process.returncode == 0
    assert output.count("[ana] .") == output.count("[bo] .") == 1
    output_of_bo = "".join(line[5:] for line in output.splitlines() if line.startswith("[bo]"))
    assert "map" not in output_of_bo
    rows = await owner_of(server.app.core).fetch(
        "SELECT external_id FROM users JOIN turns ON turns.user_id = users.id"
    )
    assert Counter(row["external_id"] for row in rows) == {"ana": 2, "bo": 2}


async def test_a_game_server_hosts_a_tavern(start: StartServer) -> None:
    """The character knows from each player what that player said, and not what others whispered."""
    server = await start(auth_secret=SECRET)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "examples" / "tavern_host.py"),
        env=os.environ
        | {"FOREMIND_URL": f"http://127.0.0.1:{server.port}", "FOREMIND_AUTH_SECRET": SECRET},
        stdout=asyncio.subprocess.PIPE,
    )
    output = (await process.communicate())[0].decode()
    assert process.returncode == 0
    assert "[bo] wren: " in output
    assert "wren with ana knows of the map: True" in output
    assert "wren with bo knows of the map: False" in output


async def test_a_game_plays_in_a_scene(start: StartServer) -> None:
    """It whispers, reports and answers; what is sent again does not interrupt its own reply."""
    release = asyncio.Event()
    words = ["Here ", "you are. ", '[[give {"item": "rope"}]]']
    script = Script(reply=lambda _: words, hold_before=release, hold_after=1)
    async with scripted_model(script) as model:
        server = await start(llm_url=model.url)
        ana = Identity(world="vale", scene="tavern", user_id="ana")
        async with hosting(server, "mara") as host:
            await host.scene("tavern", players=["ana", "bo"], minds=["mara"])
            await declare(host, GIVE)
            async with Conversation(server.url, ana) as mind:
                fire = {"id": "e1", "type": "event", "text": "The mill burns", "scene": "tavern"}
                for duplicate in (False, True):
                    assert await mind.report([fire]) == [{"id": "e1", "duplicate": duplicate}]
                reply = mind.say("Have you a rope?", "m1", to="mara", volume="whisper")
                events = mind.events()
                while (await anext(events))["type"] != "response.output_text.delta":
                    pass
                again = await join(server, "ana")
                await again.send("Have you a rope?", "m1", to="mara", volume="whisper")
                for _ in range(5):  # it has arrived by then
                    await host.request("GET")
                release.set()
                done = await reply
                assert (done["status"], done["text"].strip()) == ("completed", "Here you are.")
                while (asked := await anext(events))["type"] != "action.requested":
                    pass
                assert not (await mind.answer_action(asked["id"], {"taken": True}))["duplicate"]
                with pytest.raises(Refused):
                    await mind.answer_action("m1", "none")
            prompt = await host.prompt("mara")
            assert "The mill burns" in prompt
            assert 'Result of give: {"taken":true}' in prompt
        with pytest.raises(Refused):
            async with Conversation(server.url, Identity(world="x", scene="y", user_id="ana")):
                pass


async def test_the_module_for_browsers_works_in_node_and_resumes(start: StartServer) -> None:
    """Its connection is cut repeatedly; every message is stored once."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed; CI installs it")
    server = await start(auth_secret=SECRET)
    async with fault_proxy(server.port) as proxy:
        process = await asyncio.create_subprocess_exec(
            node,
            "--experimental-websocket",
            "--no-warnings",
            str(ROOT / "tests" / "acceptance" / "client.mjs"),
            proxy.url,
            token(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        events: list[dict[str, Any]] = []

        async def read() -> None:
            assert process.stdout is not None
            async for line in process.stdout:
                events.append(json.loads(line))

        reading = asyncio.create_task(read())

        def count(kind: str) -> int:
            return sum(event["type"] == kind for event in events)

        def received(kind: str, minimum: int) -> bool:
            return count(kind) >= minimum

        await eventually(lambda: count("session.opened") == 1)
        for number in range(4):
            process.stdin.write(f"I promise to bring map number {number}\n".encode())
            await process.stdin.drain()
            await eventually(partial(received, "message.accepted", number + 1))
            proxy.cut()
            await eventually(partial(received, "response.done", number + 1))
        process.stdin.close()
        assert await process.wait() == 0
        await reading
    resumed = [event["resumed"] for event in events if event["type"] == "session.opened"]
    assert resumed[0] is False
    assert len(resumed) > 1
    assert all(resumed[1:])
    numbers = [
        event["seq"] for event in events if "seq" in event and event["type"] != "session.opened"
    ]
    assert numbers == sorted(set(numbers))
    stored = await owner_of(server.app.core).fetchval(
        "SELECT count(*) FROM turns WHERE speaker = 'user'"
    )
    assert stored == 4


@pytest.mark.parametrize(
    ("text", "overrides", "field"),
    [
        ("x" * 8001, None, "text"),
        ("Hello \ud83d", None, "text"),
        ("Hello", {"model": "another"}, "settings.model"),
    ],
)
async def test_what_the_server_refuses_is_told_to_the_sender(
    start: StartServer, text: str, overrides: dict[str, Any] | None, field: str
) -> None:
    """With the field, and it is not sent again; the conversation goes on."""
    server = await start()
    async with Conversation(server.url, Identity("wren", user_id="ana")) as wren:
        with pytest.raises(Refused) as refused:
            await wren.send(text, settings=overrides)
        assert refused.value.error["param"] == field
        assert (await wren.say("Hello"))["status"] == "completed"
        assert wren.connections == 1
