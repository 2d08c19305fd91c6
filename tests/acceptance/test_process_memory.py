"""Memory of the process under attack: at most the sum of its limits."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from loadtests.hostile.attackers import frame

from foremind.app.configuration import load_settings
from foremind.domain.settings.settings import Settings
from foremind_client import Client, connect
from foremind_eval.doubles.flooding_model import FLOODS, flooding_model
from foremind_eval.doubles.model_server import Script, scripted_model
from foremind_eval.processes.server_process import running_server
from tests.conftest import PATIENCE, ROOT, eventually

SMALL = {
    "prepared_bytes": 1_048_576,
    "layers_bytes": 4_194_304,
    "index_bytes": 4_194_304,
    "body_bytes": 1_048_576,
    "outbound_bytes": 65_536,
    "max_connections": 120,
    "max_sessions": 40,
    "context_tokens": 2000,
    "working_tokens": 1000,
}
PATIENT = {
    "pause_ms": 50,
    "http_per_s": 1000,
    "open_timeout_s": PATIENCE,
    "heartbeat_timeout_s": PATIENCE,
    "database_timeout_s": PATIENCE,
    "recall_timeout_s": PATIENCE,
}
RECORDS, SCALE = 300, 6
_FLOOD_BYTES = 2_000_000  # sent by each attacker
_SEND_TIMEOUT_S = 2.0  # what the server has not read by then, it will not read
RETAINED_BYTES = 33_554_432  # freed memory that allocators do not return
FLOODED = ("a line", "a header", "headers", "comments")
_TABLE = re.compile(r"## What the process holds\n(.*?)\n(?:## |\Z)", re.DOTALL)
_UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def limits(settings: Settings) -> dict[str, int]:
    """Return the byte limit of each row of the table in the documentation, for some settings."""
    found = _TABLE.search((ROOT / "docs" / "access.md").read_text())
    assert found is not None
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", found[1], re.MULTILINE)[1:]

    def value(written: str) -> int:
        text = re.sub(r"`FOREMIND_(\w+)`", lambda match: f"settings.{match[1].lower()}", written)
        text = text.replace("×", "*").replace("KiB", "* 1024").replace("MiB", "* 1048576")
        return int(eval(text, {"settings": settings, "min": min}))

    return {what.strip(): value(written) for what, written in rows}


def resident(process: psutil.Process, name: str) -> int:
    """Return `VmRSS` or `VmHWM` of a process, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


class Attacked:
    """A server under attack; connections that attackers hold open end with the block."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.url = url
        self.http = url.replace("ws:", "http:").removesuffix("/v1/ws")
        self.port = int(url.split(":")[2].split("/", maxsplit=1)[0])
        self.stack = stack
        self.large = ""  #: the path of a relationship with much content

    async def raw(self) -> socket.socket:
        """Connect without ever reading."""
        sock = socket.socket()
        self.stack.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return sock

    async def pour(self, data: bytes) -> None:
        """Send as much as the server reads; keep the connection open and the response unread."""
        await self.say(await self.raw(), data)

    async def say(self, sock: socket.socket, data: bytes) -> None:
        """Send as much as the server reads."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_SEND_TIMEOUT_S):
                await asyncio.get_running_loop().sock_sendall(sock, data)

    async def ask_and_not_read(self, get: bytes) -> None:
        """Request something large many times, and read one byte of it."""
        sock = await self.raw()
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, get * 10)
        await loop.sock_recv(sock, 1)

    async def deaf(self, user: str) -> socket.socket:
        """Open a session, and read no events after `session.opened`."""
        sock = await self.raw()
        loop = asyncio.get_running_loop()
        opening = {"type": "session.open", "companion": "wren", "user": {"id": user, "name": "D"}}
        await loop.sock_sendall(sock, _UPGRADE + frame(0x81, json.dumps(opening).encode()))
        heard = b""
        while b"session.opened" not in heard:
            received = await loop.sock_recv(sock, 1024)
            assert received and b'"error"' not in heard, heard
            heard += received
        return sock

    async def ask(self, method: str, path: str, body: object = None) -> Any:
        """Send an HTTP request as an honest program."""
        async with httpx2.AsyncClient(timeout=PATIENCE) as client:
            content = None if body is None else json.dumps(body)
            answer = await client.request(method, self.http + path, content=content)
            assert answer.status_code < 300, answer.text
            return answer.json()

    @asynccontextmanager
    async def player(self, user: str, companion: str = "wren") -> AsyncIterator[Client]:
        """Open a session of a client that reads."""
        async with connect(self.url) as client:
            opened = await client.open_session(companion, user_id=user)
            assert opened["type"] == "session.opened", opened
            yield client


async def send_and_wait(server: Attacked, user: str, text: str) -> None:
    """Send a message and wait for the reply."""
    async with server.player(user) as client:
        await client.send(text)
        assert (await client.expect("response.done"))["status"] == "completed"


async def use_flooding_model(server: Attacked, number: int) -> None:
    """Request replies from model servers that never stop sending."""
    companion = FLOODED[number % len(FLOODED)].replace(" ", "-")
    async with server.player(f"flooded-{number}", companion) as client:
        for _ in range(2):
            await client.send("Hello")
            assert (await client.expect("response.done"))["status"] == "failed"


async def type_long_drafts(server: Attacked, number: int) -> None:
    """Type long drafts, each until its context is ready."""
    async with server.player(f"typist-{number}") as client:
        for turn in range(8):
            await client.draft(f"Do you remember {turn} of {number}? ".ljust(7900, "é"))
            await wait_for_context(client)


async def wait_for_context(client: Client) -> None:
    """Wait for a context, whose event may be skipped for slow readers."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_SEND_TIMEOUT_S):
            await client.expect("context.ready")


async def send_without_reading(server: Attacked, number: int) -> None:
    """Send messages without reading the replies."""
    sock = await server.deaf(f"deaf-{number}")
    said = b""
    for turn in range(8):
        text = f"Tell me {turn} ".ljust(7900, "x")
        message = {"type": "message.send", "id": f"m{turn}", "text": text}
        said += frame(0x81, json.dumps(message).encode())
    await server.say(sock, said)


async def open_large_session(server: Attacked) -> None:
    """Open a session for which the server has to read much."""
    async with server.player("writer") as client:
        await client.draft("Do you remember everything?")
        await wait_for_context(client)


async def fill_relationship(server: Attacked, user: str, records: int) -> str:
    """Fill a relationship with large records; return its path."""
    async with connect(server.url) as client:
        opened = await client.open_session("wren", user_id=user)
    refs = [f"{user} {number} ".ljust(290, "r") for number in range(100)]
    note = {"layer": "scratchpad", "content": "é" * 8000, "refs": refs}
    path = f"/v1/relationships/{opened['relationship_id']}"
    for _ in range(records):
        await server.ask("POST", f"{path}/records?user={user}", note)
    return path


def head(start: str) -> bytes:
    """Return the beginning of a request."""
    return f"{start} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()


def import_head(number: int, length: int) -> bytes:
    """Return the head of an import request."""
    start = head(f"POST /v1/relationships/import?user=import-{number}")
    return start + f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()


async def attack(server: Attacked, scale: int) -> None:
    """Run `scale` attackers of each kind at once, until all are refused or stalled."""
    floods = (
        (b"", head("GET /healthz") + b"\r\n"),
        (b"", head("GET /v1/openapi.json") + b"\r\n"),
        (head("GET /") + b"X: ", b"x"),
        (head("GET /"), b"X: y\r\n"),
        (_UPGRADE, frame(0x89, b"p" * 125)),
        (_UPGRADE + frame(0x01, b"{"), frame(0x00, b" " * 60_000)),
    )
    async with asyncio.TaskGroup() as group:
        for number in range(scale):
            for begins, goes_on in floods:
                group.create_task(server.pour(begins + goes_on * (_FLOOD_BYTES // len(goes_on))))
            group.create_task(server.pour(import_head(number, 60_000_000) + b" " * _FLOOD_BYTES))
            group.create_task(use_flooding_model(server, number))
            group.create_task(type_long_drafts(server, number))
            group.create_task(send_without_reading(server, number))
            group.create_task(open_large_session(server))
            for path in ["/records"] * 6 + ["/export"] * 2:
                get = head(f"GET {server.large}{path}?user=writer") + b"\r\n"
                group.create_task(server.ask_and_not_read(get))


@pytest.fixture
async def server(
    settings: Settings,
) -> AsyncIterator[tuple[Attacked, psutil.Process, Settings]]:
    """A server process with small limits, and model servers that flood it."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(
            scripted_model(Script(reply=lambda _: ["word "] * 400))
        )
        assert settings.database_url is not None
        given = load_settings(**SMALL, **PATIENT, llm_url=model.url)
        environment = {
            f"FOREMIND_{name.upper()}": str(value)
            for name, value in (SMALL | PATIENT | {"llm_url": model.url}).items()
        } | {"FOREMIND_DATABASE_URL": settings.database_url.reveal()}
        url, process = stack.enter_context(running_server(settings, environment))
        attacked = Attacked(url, await stack.enter_async_context(AsyncExitStack()))
        for flood in FLOODED:
            flooding = await stack.enter_async_context(flooding_model(FLOODS[flood]))
            slug = flood.replace(" ", "-")
            body = {"name": "Flo", "persona": "P", "settings": {"llm_url": flooding.url}}
            await attacked.ask("PUT", f"/v1/admin/companions/{slug}?user=owner", body)
        yield attacked, process, given


@pytest.mark.timeout(1200)
async def test_memory_under_attack_is_bounded_by_the_sum_of_the_limits(
    server: tuple[Attacked, psutil.Process, Settings],
) -> None:
    """An honest player is answered meanwhile, and the memory is freed afterwards."""
    attacked, process, limits_in_force = server
    max_growth = sum(limits(limits_in_force).values())
    attacked.large = await fill_relationship(attacked, "writer", RECORDS)
    for _ in range(2):
        await attack(attacked, 1)
        await attacked.stack.aclose()
        await send_and_wait(attacked, "honest", "Is the harbour open?")
    base = resident(process, "VmRSS")
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # resets VmHWM
    await attack(attacked, SCALE)
    await send_and_wait(attacked, "honest", "Is the harbour open?")
    grown = resident(process, "VmHWM") - base
    await attacked.stack.aclose()
    assert grown <= max_growth, f"{grown >> 20} MiB, at most {max_growth >> 20}"
    await eventually(lambda: resident(process, "VmRSS") - base < RETAINED_BYTES)
