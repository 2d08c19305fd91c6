"""What the process takes, with everybody attacking at once: no more than its limits add up to."""

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

from foremind.client import Client, connect
from foremind.domain.settings import Settings, load_settings
from foremind.testing.flooding_model import FLOODS, flooding_model
from foremind.testing.model_server import Script, scripted_model
from foremind.testing.server_process import running_server
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
_POURED = 2_000_000  # bytes of each attacker
_HELD_S = 2.0  # what is not taken by then, is not read any more
BACK_BYTES = 33_554_432  # that the allocators keep of what was freed
FLOODED = ("a line", "a header", "headers", "comments")
_TABLE = re.compile(r"## What the process holds\n(.*?)\n(?:## |\Z)", re.DOTALL)
_UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def limits(settings: Settings) -> dict[str, int]:
    """What each row of the table in the documentation comes to under some settings."""
    found = _TABLE.search((ROOT / "docs" / "access.md").read_text())
    assert found is not None
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", found[1], re.MULTILINE)[1:]

    def value(written: str) -> int:
        text = re.sub(r"`FOREMIND_(\w+)`", lambda each: f"settings.{each[1].lower()}", written)
        text = text.replace("×", "*").replace("KiB", "* 1024").replace("MiB", "* 1048576")
        return int(eval(text, {"settings": settings, "min": min}))

    return {what.strip(): value(written) for what, written in rows}


def resident(process: psutil.Process, name: str) -> int:
    """`VmRSS` or `VmHWM` of a process, in bytes."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


class Attacked:
    """The server, as attackers see it; what they hold open ends with the block."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.url = url
        self.http = url.replace("ws:", "http:").removesuffix("/v1/ws")
        self.port = int(url.split(":")[2].split("/", maxsplit=1)[0])
        self.stack = stack
        self.large = ""  #: the path of a relationship that holds much

    async def raw(self) -> socket.socket:
        """Connect, to read nothing ever."""
        sock = socket.socket()
        self.stack.callback(sock.close)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return sock

    async def pour(self, data: bytes) -> None:
        """Send as much as is taken; then hold the connection open, the answer unread."""
        await self.say(await self.raw(), data)

    async def say(self, sock: socket.socket, data: bytes) -> None:
        """Send as much as is taken."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(_HELD_S):
                await asyncio.get_running_loop().sock_sendall(sock, data)

    async def ask_and_not_read(self, get: bytes) -> None:
        """Ask for what is large many times, and read no more than that it comes."""
        sock = await self.raw()
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(sock, get * 10)
        await loop.sock_recv(sock, 1)

    async def deaf(self, user: str) -> socket.socket:
        """Open a session, of whose events no more is read than that it is open."""
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
        """Send an HTTP request of an honest program."""
        async with httpx2.AsyncClient(timeout=PATIENCE) as client:
            content = None if body is None else json.dumps(body)
            answer = await client.request(method, self.http + path, content=content)
            assert answer.status_code < 300, answer.text
            return answer.json()

    @asynccontextmanager
    async def player(self, user: str, companion: str = "wren") -> AsyncIterator[Client]:
        """A session of somebody who reads."""
        async with connect(self.url) as client:
            opened = await client.open_session(companion, user_id=user)
            assert opened["type"] == "session.opened", opened
            yield client


async def answered(server: Attacked, user: str, text: str) -> None:
    """Send a message and have it answered."""
    async with server.player(user) as client:
        await client.send(text)
        assert (await client.expect("response.done"))["status"] == "completed"


async def flooded(server: Attacked, number: int) -> None:
    """Have replies made by model servers that never stop."""
    companion = FLOODED[number % len(FLOODED)].replace(" ", "-")
    async with server.player(f"flooded-{number}", companion) as client:
        for _ in range(2):
            await client.send("Hello")
            assert (await client.expect("response.done"))["status"] == "failed"


async def typed(server: Attacked, number: int) -> None:
    """Type long drafts, each until its context is there."""
    async with server.player(f"typist-{number}") as client:
        for turn in range(8):
            await client.draft(f"Do you remember {turn} of {number}? ".ljust(7900, "é"))
            await prepared(client)


async def prepared(client: Client) -> None:
    """Wait for a context, which one who reads slowly may not be told of."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_HELD_S):
            await client.expect("context.ready")


async def unheard(server: Attacked, number: int) -> None:
    """Send messages and read no reply."""
    sock = await server.deaf(f"deaf-{number}")
    said = b""
    for turn in range(8):
        text = f"Tell me {turn} ".ljust(7900, "x")
        message = {"type": "message.send", "id": f"m{turn}", "text": text}
        said += frame(0x81, json.dumps(message).encode())
    await server.say(sock, said)


async def heard_much(server: Attacked) -> None:
    """Open a session for which much has to be read."""
    async with server.player("writer") as client:
        await client.draft("Do you remember everything?")
        await prepared(client)


async def wrote(server: Attacked, user: str, records: int) -> str:
    """Fill a relationship with records of many long references; return its path."""
    async with connect(server.url) as client:
        opened = await client.open_session("wren", user_id=user)
    refs = [f"{user} {each} ".ljust(290, "r") for each in range(100)]
    note = {"layer": "scratchpad", "content": "é" * 8000, "refs": refs}
    path = f"/v1/relationships/{opened['relationship_id']}"
    for _ in range(records):
        await server.ask("POST", f"{path}/records?user={user}", note)
    return path


def head(start: str) -> bytes:
    """The beginning of a request."""
    return f"{start} HTTP/1.1\r\nHost: 127.0.0.1\r\n".encode()


def imports(number: int, length: int) -> bytes:
    """The head of an import."""
    start = head(f"POST /v1/relationships/import?user=import-{number}")
    return start + f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode()


async def attack(server: Attacked, scale: int) -> None:
    """Everything at once, so many times; over once everybody was refused or has all it can."""
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
                group.create_task(server.pour(begins + goes_on * (_POURED // len(goes_on))))
            group.create_task(server.pour(imports(number, 60_000_000) + b" " * _POURED))
            group.create_task(flooded(server, number))
            group.create_task(typed(server, number))
            group.create_task(unheard(server, number))
            group.create_task(heard_much(server))
            for path in ["/records"] * 6 + ["/export"] * 2:
                get = head(f"GET {server.large}{path}?user=writer") + b"\r\n"
                group.create_task(server.ask_and_not_read(get))


@pytest.fixture
async def server(
    settings: Settings,
) -> AsyncIterator[tuple[Attacked, psutil.Process, Settings]]:
    """A server in a process of its own, with small limits, and model servers that flood."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(
            scripted_model(Script(reply=lambda _: ["word "] * 400))
        )
        assert settings.database_url is not None
        given = load_settings(**SMALL, **PATIENT, llm_url=model.url)
        environment = {
            f"FOREMIND_{name.upper()}": str(value)
            for name, value in (SMALL | PATIENT | {"llm_url": model.url}).items()
        } | {"FOREMIND_DATABASE_URL": settings.database_url.get_secret_value()}
        url, process = stack.enter_context(running_server(settings, environment))
        attacked = Attacked(url, await stack.enter_async_context(AsyncExitStack()))
        for flood in FLOODED:
            flooding = await stack.enter_async_context(flooding_model(FLOODS[flood]))
            slug = flood.replace(" ", "-")
            body = {"name": "Flo", "persona": "P", "settings": {"llm_url": flooding.url}}
            await attacked.ask("PUT", f"/v1/admin/companions/{slug}?user=owner", body)
        yield attacked, process, given


async def test_what_attackers_together_take_is_bounded(
    server: tuple[Attacked, psutil.Process, Settings],
) -> None:
    """By the sum of the limits; an honest player is answered, and afterwards it is free again."""
    attacked, process, given = server
    most = sum(limits(given).values())
    attacked.large = await wrote(attacked, "writer", RECORDS)
    for _ in range(2):
        await attack(attacked, 1)
        await attacked.stack.aclose()
        await answered(attacked, "honest", "Is the harbour open?")
    base = resident(process, "VmRSS")
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")  # forgets the highest
    await attack(attacked, SCALE)
    await answered(attacked, "honest", "Is the harbour open?")
    grown = resident(process, "VmHWM") - base
    await attacked.stack.aclose()
    assert grown <= most, f"{grown >> 20} MiB, at most {most >> 20}"
    await eventually(lambda: resident(process, "VmRSS") - base < BACK_BYTES)
