"""Every client passes the same recorded conversations with a misbehaving server."""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from foremind_client import Closed, Conversation, Identity, Unreachable
from foremind_client.token_source import renewal_delay
from foremind_eval.processes.server_process import free_port
from tests.clients.scripted_server import ScriptedServer, Step, playing
from tests.unit.auth.test_access_tokens import token

HERE = Path(__file__).parent
CONVERSATIONS: list[dict[str, Any]] = json.loads((HERE / "conversations.json").read_text())
CLIENTS = {
    "python": [sys.executable, str(HERE / "driver.py")],
    "javascript": [
        shutil.which("node") or "node",
        "--experimental-websocket",
        "--no-warnings",
        str(HERE / "driver.mjs"),
    ],
}
_TIMEOUT_S = 120.0  # patient with a busy machine


# What only the JavaScript client can do: connect at any time.
_CONNECTING = [
    {
        "name": "connecting before the retry is due opens one session",
        "options": {"impatient": True, "firstRetryMs": 1},
        "connections": [
            [{"receive": {"type": "session.open"}}, {"close": 4503}],
            [
                {"receive": {"type": "session.open"}},
                {"send": {"type": "session.opened", "seq": 1, "session_id": "s", "resumed": False}},
                {"command": {"send": "Hello"}},
                {"receive": {"type": "message.send", "id": "$m"}},
            ],
        ],
        "events": [{"type": "state", "state": "waiting"}, {"type": "session.opened"}],
    },
    {
        "name": "connecting right after leaving opens the session again",
        "connections": [
            [
                {"receive": {"type": "session.open"}},
                {"send": {"type": "session.opened", "seq": 1, "session_id": "s", "resumed": False}},
                {"command": {"send": "Hello"}},
                {"receive": {"type": "message.send", "id": "$m"}},
                {"command": {"reopen": True}},
            ],
            [
                {"receive": {"type": "session.open"}},
                {"send": {"type": "session.opened", "seq": 2, "session_id": "s", "resumed": True}},
                {"receive": {"type": "message.send", "id": "$m"}},
            ],
        ],
        "events": [{"type": "session.opened"}, {"type": "session.opened", "resumed": True}],
    },
]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "conversation", CONVERSATIONS, ids=lambda conversation: conversation["name"]
)
async def test_a_client_follows_the_recording(client: str, conversation: dict[str, Any]) -> None:
    """The server receives the expected frames, and the game the expected events."""
    await _replay(client, conversation)


@pytest.mark.parametrize("conversation", _CONNECTING, ids=lambda conversation: conversation["name"])
async def test_a_game_may_connect_at_any_time(conversation: dict[str, Any]) -> None:
    """Whatever the client is waiting for, there is one connection."""
    await _replay("javascript", conversation)


async def test_nothing_stays_pending_when_a_conversation_is_left() -> None:
    """A message that nobody has answered fails, and the events end."""

    async def command(_: Step) -> None:
        pass

    opened = {"type": "session.opened", "seq": 1, "session_id": "s", "resumed": False}
    steps: list[Step] = [
        {"receive": {"type": "session.open"}},
        {"send": opened},
        {"receive": {"type": "message.send", "id": "$m"}},
    ]
    script = ScriptedServer([steps], command)
    async with asyncio.timeout(_TIMEOUT_S), playing(script) as url:
        async with Conversation(url, Identity("wren", user_id="ana")) as conversation:
            unanswered = conversation.say("Hello")
            await script.played
        with pytest.raises(Closed):
            await unanswered
        with pytest.raises(Closed):
            await conversation.send("Hello again")
        assert [event["type"] async for event in conversation.events()] == ["session.opened"]


async def _replay(client: str, conversation: dict[str, Any]) -> None:
    process: asyncio.subprocess.Process | None = None

    async def command(step: Step) -> None:
        assert process is not None
        assert process.stdin is not None
        process.stdin.write(json.dumps(step).encode() + b"\n")
        await process.stdin.drain()

    script = ScriptedServer(conversation["connections"], command)
    async with asyncio.timeout(_TIMEOUT_S), playing(script) as url:
        process = await asyncio.create_subprocess_exec(
            *CLIENTS[client],
            url,
            json.dumps(conversation.get("options", {})),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            for step in conversation.get("commands", ()):
                await command(step)
            await script.played
            await _expect_events(process, conversation["events"])
            if conversation.get("over"):
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _expect_events(process: asyncio.subprocess.Process, events: list[dict[str, Any]]) -> None:
    """Read the client's output until all of `events` have occurred, in order."""
    assert process.stdout is not None
    remaining = list(events)
    while remaining:
        line = await process.stdout.readline()
        assert line, f"the client ended without {remaining[0]}"
        event = json.loads(line)
        if all(event.get(name) == value for name, value in remaining[0].items()):
            remaining.pop(0)


async def test_an_unreachable_server_is_reported() -> None:
    """A game server that starts before Foremind gets the cause instead of waiting silently."""
    losses: list[Exception] = []
    conversation = Conversation(
        f"ws://127.0.0.1:{free_port()}/v1/ws",
        Identity("wren", user_id="ana"),
        first_retry_s=0.01,
        open_timeout_s=2.0,
        on_lost=losses.append,
    )
    with pytest.raises(Unreachable, match="No session was opened in 2 s: "):
        async with conversation:
            pass
    assert losses
    with pytest.raises(Unreachable, match="No session"):
        await conversation.say("Hello")


def test_a_token_is_renewed_when_most_of_its_lifetime_has_passed() -> None:
    """Regardless of the local clock; a token without an expiry is kept."""
    minted = token(iat=1000, exp=1600)
    assert renewal_delay(minted, 1000) == pytest.approx(480)
    assert renewal_delay(minted, 1400) == pytest.approx(160)
    assert renewal_delay(minted, 9999) == pytest.approx(480)
    for without_expiry in ("", "opaque", "a.b.c", "a.e30.c"):
        assert renewal_delay(without_expiry, 1000) is None
