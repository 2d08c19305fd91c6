"""The clients of turns over HTTP pass recorded turns, and talk with a real server."""

import asyncio
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lummao
import pytest

from tests.clients import lsl_driver, luau_driver
from tests.clients.scripted_http import replaying
from tests.conftest import (
    ROOT,
    RunningServer,
    StartServer,
    all_announcements_handled,
    eventually_async,
    owner_of,
)
from tests.unit.auth.test_access_tokens import SECRET, token

TURNS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("turns.json").read_text("utf-8"))
CLIENTS = ("luau", "lsl")
_TIMEOUT_S = 120.0  # patient with a busy machine


async def _told(
    client: str, url: str, commands: Sequence[Mapping[str, Any]], **options: Any
) -> list[dict[str, Any]]:
    """Run a client's driver to its end; return what it told."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"tests.clients.{client}_driver", url,
        json.dumps(options), json.dumps(commands),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    async with asyncio.timeout(_TIMEOUT_S):
        output = (await process.communicate())[0].decode()
    assert process.returncode == 0
    return [json.loads(line) for line in output.splitlines()]


def _without_bytes(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in event.items() if name != "bytes"} for event in events]


@pytest.mark.parametrize(
    ("client", "turns"),
    [
        pytest.param(client, turns, id=f"{client}: {turns['name']}")
        for turns in TURNS
        for client in turns.get("clients", CLIENTS)
        if client in CLIENTS
    ],
)
async def test_a_client_follows_the_recording(client: str, turns: dict[str, Any]) -> None:
    """The server receives the expected requests, the player what is expected, after what waits."""
    with replaying(turns["exchanges"]) as url:
        events = await _told(client, url, turns["commands"], **turns.get("options", {}))
    told = turns["told"][client] if isinstance(turns["told"], dict) else turns["told"]
    assert [event for event in _without_bytes(events) if "waited" not in event] == told
    waits = turns.get("waits", {}).get(client, [])
    assert [event["waited"] for event in events if "waited" in event] == waits


def _exchange(text: str, answer: dict[str, Any]) -> dict[str, Any]:
    request = {"method": "POST", "path": "/v1/turns", "body": {"text": text}}
    return {"request": request, "status": 200, "answer": answer}


def _answer(text: str, **changes: Any) -> dict[str, Any]:
    reply = {"companion": "wren", "text": text, "status": "completed", "index": 0, "count": 1}
    answer = {"turn_id": "1", "duplicate": False, "remembered": True, "replies": [reply]}
    return answer | {"context": "miss", "memories": []} | changes


@pytest.mark.parametrize(
    "text", ["word " * 700, "x" * 3000, "🐝" * 900, "é" * 400 + " " + "é" * 400]
)
async def test_a_long_reply_is_said_in_pieces_that_a_region_takes(text: str) -> None:
    """Of at most 1,024 bytes each; words stay whole where there are any."""
    with replaying([_exchange("Hello", _answer(text))]) as url:
        pieces = await _told("lsl", url, [{"ask": "Hello"}])
    assert "".join(piece["said"] for piece in pieces) == text
    assert len(pieces) > 1
    for piece in pieces:
        assert piece["bytes"] <= 1024
    if " " in text:
        assert all(piece["said"].endswith(" ") for piece in pieces[:-1])


async def test_of_an_answer_that_is_cut_off_the_reply_is_said() -> None:
    """Whole if only the memories are missing, else as far as it came, whatever was cut."""
    memory = {
        "id": "7", "content": "x" * 20_000, "score": 0.5, "significance": 0.5,
        "created_at": "2026-11-25T00:00:00Z", "speaker": "user", "memory_type": "conversation",
        "age": "today", "relevance": 0.5, "superseded": False,
    }  # fmt: skip
    with replaying([_exchange("Hello", _answer('"Bees"', memories=[memory]))]) as url:
        assert _without_bytes(await _told("lsl", url, [{"ask": "Hello"}])) == [{"said": '"Bees"'}]
    texts = ["y" * shift + '"é\\' * 9_000 for shift in range(6)]
    with replaying([_exchange("Hello", _answer(text)) for text in texts]) as url:
        events = await _told("lsl", url, [{"ask": "Hello"}] * len(texts))
    said = "".join(event["said"] for event in events).split(" …")
    assert said.pop() == ""
    for text, beginning in zip(texts, said, strict=True):
        assert text.startswith(beginning)
        assert len(beginning) > 3_000


async def _until_remembered(server: RunningServer) -> None:
    async def is_remembered() -> bool:
        return bool(await owner_of(server.app.core).fetchval("SELECT count(*) FROM memories"))

    await eventually_async(is_remembered)
    await all_announcements_handled(server)


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_client_talks_with_a_real_server(client: str, start: StartServer) -> None:
    """With a host's token; the second message recalls what the first one said."""
    server = await start(auth_secret=SECRET)
    host = token(sub="world", scopes=["host", "chat"])
    address = f"http://127.0.0.1:{server.port}"
    await _told(client, address, [{"ask": "I promise to name my boat Zephyrine"}], token=host)
    await _until_remembered(server)
    (event,) = await _told(client, address, [{"ask": "What will I name my boat?"}], token=host)
    assert "Zephyrine" in event["said"]


async def test_a_player_sees_and_erases_memories_on_a_real_server(start: StartServer) -> None:
    """With the player's own token; another reply and a choice are made before."""
    server = await start(auth_secret=SECRET)
    address = f"http://127.0.0.1:{server.port}"
    promise = "I promise to name my boat Zephyrine"
    talk: list[dict[str, Any]] = [
        {"ask": "Hello"},
        {"edit": promise},
        {"regenerate": True},
        {"choose": 0},
    ]
    events = await _told("luau", address, talk, playerToken=token(sub="ana"))
    assert [list(event) for event in events] == [["said"]] * 4
    await _until_remembered(server)
    own: list[dict[str, Any]] = [{"memories": True}, {"forget": None}, {"memories": True}]
    before, _, after = await _told("luau", address, own, playerToken=token(sub="ana"))
    assert promise in before["memories"]
    assert after == {"memories": []}


def test_the_codes_of_the_client_in_luau_are_those_of_the_server() -> None:
    """Of requests and replies; the last line has those of the client itself."""
    source = luau_driver.MODULE.read_text("utf-8")
    union = source.split("export type Code =\n")[1].split("\n\n")[0]
    *theirs, own = union.splitlines()
    table = re.findall(
        r"^\| (\w+) \| `\w+_error` \| (.*) \|$", (ROOT / "docs/access.md").read_text("utf-8"), re.M
    )
    documented = {
        code
        for status, text in table
        if status != "socket"
        for code in re.findall(r"`([a-z_]+)`", text)
    }
    assert set(re.findall(r'"(\w+)"', "".join(theirs))) == documented
    assert re.findall(r'"(\w+)"', own) == ["busy", "unreachable", "unexpected_answer"]


def test_a_broken_client_is_detected() -> None:
    """By the compilers that the drivers use."""
    broken = luau_driver.MODULE.read_text("utf-8").replace(" = ", " = = ", 1)
    with pytest.raises(RuntimeError, match="syntax error"):
        luau_driver.machine().load_chunk(broken, name="broken")
    undeclared = lsl_driver.SCRIPT.read_text("utf-8").replace("string URL", "string ADDRESS", 1)
    with pytest.raises(lummao.exceptions.CompileError, match="undeclared"):
        lummao.convert_script(undeclared)
