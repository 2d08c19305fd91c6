"""Every client passes the same recorded conversations with a misbehaving server."""

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from foremind_client import Closed, Conversation, Identity, Unreachable
from foremind_client.retry_delay import FIRST_RETRY_S, failures_after, max_retry_delay
from foremind_client.token_source import renewal_delay
from foremind_eval.processes.server_process import free_port
from tests.clients.client_output import ClientOutput, has_members
from tests.clients.scripted_http import replaying
from tests.clients.scripted_server import ScriptedServer, Step, playing
from tests.clients.test_turn_clients import TURNS
from tests.contract.check import check_event
from tests.contract.conftest import npm_folder  # noqa: F401 - a fixture
from tests.unit.auth.test_access_tokens import token

HERE = Path(__file__).parent
# Of reports, which a game server makes over HTTP, also without a connection.
REPORTS = [turns for turns in TURNS if "python" in turns.get("clients", ())]
CONVERSATIONS: list[dict[str, Any]] = json.loads((HERE / "conversations.json").read_text())
_NODE = shutil.which("node") or "node"
CLIENTS = {
    "python": [sys.executable, str(HERE / "driver.py")],
    "javascript": [
        _NODE, "--experimental-websocket", "--no-warnings", str(HERE / "driver.mjs"),
    ],
    "javascript with ws": [_NODE, str(HERE / "driver.mjs")],
    "csharp": ["mono"],  # and what the fixture `csharp_driver` has compiled
}  # fmt: skip
_TIMEOUT_S = 120.0  # patient with a busy machine


# What the Python client cannot do: connect at any time.
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

_UNTIL_A_MESSAGE: list[Step] = [
    {"receive": {"type": "session.open"}},
    {"send": {"type": "session.opened", "seq": 1, "session_id": "s", "resumed": False}},
    {"receive": {"type": "message.send", "id": "$m"}},
]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "conversation", CONVERSATIONS, ids=lambda conversation: conversation["name"]
)
async def test_a_client_follows_the_recording(
    client: str, conversation: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """The server receives the expected frames, and the game the expected events."""
    arguments = []
    if client == "javascript with ws":
        packages: Path = request.getfixturevalue("npm_folder") / "node_modules"
        arguments = [str(packages / "ws" / "wrapper.mjs")]
    expected = _as_told(conversation) if client == "csharp" else conversation
    await replay(command_of(client, request), expected, *arguments)


@pytest.mark.parametrize("client", ["python", "javascript", "csharp"])
@pytest.mark.parametrize("reports", REPORTS, ids=lambda reports: reports["name"])
async def test_events_are_reported(
    client: str, reports: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """The server receives the expected requests, and the game is told what became of them."""
    options = json.dumps(reports["options"] | {"offline": True})
    lines = "".join(json.dumps(command) + "\n" for command in reports["commands"])
    with replaying(reports["exchanges"]) as url:
        process = await asyncio.create_subprocess_exec(
            *command_of(client, request), f"{url.replace('http', 'ws')}/v1/ws", options,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(_TIMEOUT_S):
            output = (await process.communicate(lines.encode()))[0].decode()
    assert [json.loads(line) for line in output.splitlines()] == reports["told"]


@pytest.mark.parametrize(
    ("where", "field"),
    [({}, "companion"), ({"companion": "wren", "world": "vale"}, "companion"),
     ({"world": "vale"}, "scene"), ({"scene": "tavern"}, "world")],
)  # fmt: skip
def test_python_names_what_is_missing(where: dict[str, str], field: str) -> None:
    """A companion, or a world and a scene of it."""
    with pytest.raises(ValueError, match=f"^{field}: expected"):
        Identity(**where, user_id="ana")


async def test_in_a_scene_a_message_may_stay_without_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else what is awaited in Python is the first reply, of several."""
    monkeypatch.setattr("foremind_client.reconnecting._DUPLICATE_S", 0.1)
    accepted = {"type": "message.accepted", "duplicate": False}
    replies: list[Step] = [
        step
        for seq, slug in ((3, "wren"), (5, "mara"))
        for step in (
            {"send": {"type": "response.created", "seq": seq, "response_id": slug,
                      "message_id": "$m", "companion": slug}},
            {"send": {"type": "response.done", "seq": seq + 1, "response_id": slug,
                      "text": slug}},
        )
    ]  # fmt: skip
    steps: list[Step] = [
        *_UNTIL_A_MESSAGE,
        {"send": accepted | {"seq": 2, "id": "$m"}},
        *replies,
        {"receive": {"type": "message.send", "id": "$n"}},
        {"send": accepted | {"seq": 7, "id": "$n"}},
    ]
    script = ScriptedServer([steps], _no_command)
    ana = Identity(world="vale", scene="tavern", user_id="ana")
    async with asyncio.timeout(_TIMEOUT_S), playing(script) as url, Conversation(url, ana) as mind:
        assert (await mind.say("Hello"))["text"] == "wren"
        assert (await mind.say("Nobody?"))["type"] == "message.accepted"


def _as_told(conversation: dict[str, Any]) -> dict[str, Any]:
    """Return a conversation as .NET tells it: 1012 is no close code there, and told as 0."""
    events = [
        {**event, "code": 0} if event.get("code") == 1012 else event
        for event in conversation["events"]
    ]
    return {**conversation, "events": events}


@pytest.mark.parametrize(
    "conversation",
    [conversation for conversation in CONVERSATIONS if conversation.get("complete")],
    ids=lambda conversation: conversation["name"],
)
def test_complete_recordings_match_the_contract(conversation: dict[str, Any]) -> None:
    """Every event that the recorded server sends has the fields of a real one."""
    sent = [
        step["send"] for steps in conversation["connections"] for step in steps if "send" in step
    ]
    assert sent
    for event in sent:
        check_event(event)


_OPENED: list[Step] = [
    {"receive": {"type": "session.open"}},
    {"send": {"type": "session.opened", "seq": 1, "session_id": "s", "resumed": False}},
]


@pytest.mark.parametrize("client", ["javascript", "csharp"])
@pytest.mark.parametrize("before", [_OPENED[:1], _OPENED], ids=["at the door", "once open"])
async def test_delays_between_attempts_double_up_to_a_bound(
    client: str, before: list[Step], request: pytest.FixtureRequest
) -> None:
    """Where the game is told each; they are random, so that clients do not come together.

    So they do for a server that closes whatever it opens.
    """
    refused = [[*before, {"close": 4503}]] * 12
    seen = await replay(
        command_of(client, request),
        {
            "name": "delays",
            "options": {"impatient": True, "firstRetryMs": 250},
            "connections": [*refused, _OPENED],
            "events": [{"type": "session.opened"}] * (1 if before == _OPENED[:1] else 13),
        },
    )
    delays = [event["retryMs"] for event in seen if event.get("state") == "waiting"]
    assert len(delays) == len(refused)
    for number, delay in enumerate(delays):
        assert 0 <= delay <= min(15_000, 250 * 2**number)
    assert len(set(delays)) == len(delays)
    assert max(delays) > 250


def test_the_delay_in_python_doubles_up_to_a_bound() -> None:
    """However long the server is away."""
    bounds = [max_retry_delay(FIRST_RETRY_S, failures) for failures in (1, 2, 3, 6, 7, 100_000)]
    assert bounds == [0.25, 0.5, 1.0, 8.0, 15.0, 15.0]


def test_python_takes_a_short_session_for_a_failure() -> None:
    """One that was open for longer than the last delay ends the row of failures."""
    failures = 0
    for expected in range(1, 8):
        failures = failures_after(FIRST_RETRY_S, failures, open_s=0.1 * (expected > 1))
        assert failures == expected
    assert failures_after(FIRST_RETRY_S, failures, open_s=15.0) == 8
    assert failures_after(FIRST_RETRY_S, failures, open_s=15.1) == 1


@pytest.mark.parametrize("client", ["javascript", "csharp"])
@pytest.mark.parametrize("conversation", _CONNECTING, ids=lambda conversation: conversation["name"])
async def test_a_game_may_connect_at_any_time(
    client: str, conversation: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    """Whatever the client is waiting for, there is one connection."""
    await replay(command_of(client, request), conversation)


async def _no_command(_: Step, __: Step | None) -> None:
    pass


async def test_nothing_stays_pending_when_a_conversation_is_left() -> None:
    """A message that nobody has answered fails, and the events end."""
    script = ScriptedServer([_UNTIL_A_MESSAGE], _no_command)
    async with asyncio.timeout(_TIMEOUT_S), playing(script) as url:
        async with Conversation(url, Identity("wren", user_id="ana")) as conversation:
            unanswered = conversation.say("Hello")
            await script.played
        with pytest.raises(Closed):
            await unanswered
        with pytest.raises(Closed):
            await conversation.send("Hello again")
        assert [event["type"] async for event in conversation.events()] == ["session.opened"]


async def test_of_too_many_unread_events_the_newest_are_kept() -> None:
    """A game that does not read its events does not fill its memory."""
    steps: list[Step] = [
        *_UNTIL_A_MESSAGE,
        *({"send": {"type": "moon.rose", "seq": number}} for number in range(2, 1100)),
        {"send": {"type": "message.accepted", "seq": 1100, "id": "$m", "duplicate": False}},
    ]
    script = ScriptedServer([steps], _no_command)
    async with asyncio.timeout(_TIMEOUT_S), playing(script) as url:
        async with Conversation(url, Identity("wren", user_id="ana")) as conversation:
            await conversation.send("Hello")
            events = conversation.events()
            numbers = [(await anext(events))["seq"] for _ in range(1024)]
        assert numbers == list(range(77, 1101))


def command_of(client: str, request: pytest.FixtureRequest) -> list[str]:
    """Return the command that starts a client's driver, compiled if it has to be."""
    if client == "csharp":
        return [*CLIENTS[client], str(request.getfixturevalue("csharp_driver"))]
    return CLIENTS[client]


async def replay(
    driver: list[str], conversation: dict[str, Any], *arguments: str
) -> list[dict[str, Any]]:
    """Play a conversation with a client's driver; return all that it said."""
    output: ClientOutput | None = None

    async def command(step: Step, told: Step | None) -> None:
        assert output is not None
        if told is not None:  # what the player does next, the player does knowing it
            await output.has(told)
        await output.command(step)

    script = ScriptedServer(conversation["connections"], command)
    async with asyncio.timeout(_TIMEOUT_S), playing(script) as url:
        options = json.dumps(conversation.get("options", {}))
        process = await asyncio.create_subprocess_exec(
            *driver, url, options, *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output = ClientOutput(process)
        try:
            for step in conversation.get("commands", ()):
                await command(step, None)
            await script.played
            await _expect_events(output, conversation)
            if conversation.get("over"):
                assert await process.wait() == 0
            return output.seen
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
            await output.ended()


async def _expect_events(output: ClientOutput, conversation: dict[str, Any]) -> None:
    """Wait until all events have occurred, in order.

    Those of a `complete` conversation are all that the server's events lead to.
    """
    position = 0
    for expected in conversation["events"]:
        while not has_members(event := await output.at(position), expected):
            position += 1
            if conversation.get("complete"):
                assert event["type"] == "state", f"expected {expected}, told {event}"
        position += 1


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


@pytest.mark.parametrize("client", ["python", "javascript"])
async def test_a_client_says_the_players_language(client: str) -> None:
    """If it is given, with every session."""
    opened = {"type": "session.opened", "seq": 1, "session_id": "s", "resumed": False}
    asks = {"receive": {"type": "session.open", "language": "pt-BR"}}
    conversation = {
        "options": {"language": "pt-BR", "token": "t"},
        "connections": [[asks, {"send": opened}, {"close": 4503}], [asks, {"send": opened}]],
        "events": [{"type": "session.opened"}] * 2,
    }
    await replay(CLIENTS[client], conversation)
