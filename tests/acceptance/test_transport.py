"""Attacks below the messages, over raw sockets: what is bounded, who is closed, who has a turn."""

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from loadtests.hostile import attackers
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame, Opcode

from foremind.client import Client, connect
from foremind.domain.settings import load_settings
from foremind.gateway.transport.channel import Channel
from foremind.testing.manual_clock import ManualClock
from foremind.testing.server_process import free_port, wait_for
from tests.acceptance.test_limits import as_time_passes
from tests.acceptance.test_path import hang_up, sample, synced
from tests.conftest import RunningServer, StartServer, eventually, owner_of

UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
IMPORT = b"POST /v1/relationships/import?user=ana HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def frame(opcode: Opcode, data: bytes = b"", fin: bool = True) -> bytes:
    """A frame as clients write it."""
    return Frame(opcode, data, fin).serialize(mask=True)


class Raw:
    """A socket that says anything."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, data: bytes) -> None:
        """Send, also to one that no longer listens."""
        self.writer.write(data)

    async def upgrade(self) -> None:
        """Become a WebSocket."""
        self.say(UPGRADE)
        assert b" 101 " in await self.reader.readuntil(b"\r\n\r\n")

    async def rest(self) -> bytes:
        """Everything up to the end of the connection."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := await self.reader.read(65_536):
                received += part
        return received

    async def answer(self) -> tuple[int, dict[str, Any]]:
        """The status and the JSON of one answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        return int(head.split()[1]), json.loads(await self.reader.readexactly(length))


@asynccontextmanager
async def raw(server: RunningServer) -> AsyncIterator[Raw]:
    """A connection that has said nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Raw(reader, writer)
    finally:
        await hang_up(writer)


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> list[Channel]:
    """The server's side of every connection that is made from now on."""
    made: list[Channel] = []
    begin = Channel.connection_made

    def connection_made(self: Channel, transport: asyncio.BaseTransport) -> None:
        made.append(self)
        begin(self, transport)

    monkeypatch.setattr(Channel, "connection_made", connection_made)
    return made


def refused(server: RunningServer, reason: str) -> float:
    """How many connections were refused or ended for a reason."""
    return sample(server, "foremind_refused_total", reason=reason)


def code_in(received: bytes) -> int:
    """The close code in the last frame that a server sent."""
    at = received.rindex(b"\x88")
    return int.from_bytes(received[at + 2 : at + 4], "big")


FLOODS = {
    "pings": (b"", frame(Opcode.PING, b"12345678")),
    "pongs": (b"", frame(Opcode.PONG)),
    "empty continuations": (frame(Opcode.TEXT, b"{", fin=False), frame(Opcode.CONT, fin=False)),
    "bytewise": (
        b"",
        frame(Opcode.TEXT, b"{", fin=False)
        + frame(Opcode.CONT, b" ", fin=False) * 62
        + frame(Opcode.CONT, b"}"),
    ),
    "large": (b"", frame(Opcode.TEXT, b"[" * 60_000)),
}


@pytest.mark.parametrize("flood", FLOODS)
async def test_who_presses_on_with_frames_of_any_kind_is_closed(
    start: StartServer, flood: str
) -> None:
    """Before anybody said who they are; 4429, and an honest player goes on."""
    clock = ManualClock()
    server = await start(clock)
    honest = await server.session()
    first, many = FLOODS[flood]
    async with raw(server) as attacker:
        await attacker.upgrade()
        attacker.say(first + many * (12_000_000 // len(many) if flood == "large" else 3000))
        received = await as_time_passes(clock, attacker.rest())
    assert code_in(received) == 4429
    assert received.count(b"\x8a\x08") < 300  # pongs
    await synced(honest)


@pytest.mark.parametrize("flood", FLOODS)
async def test_however_many_flood_the_others_have_their_turn(
    start: StartServer, flood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one turn of the loop some frames of one connection are parsed, whoever floods."""
    parsed = 0
    parse = WebSocketsSansIOProtocol.data_received

    def data_received(self: WebSocketsSansIOProtocol, data: bytes) -> None:
        nonlocal parsed
        parsed += 1
        parse(self, data)

    async def turns() -> None:
        nonlocal parsed
        while True:
            parsed = 0
            await asyncio.sleep(0)
            most.append(parsed)

    async def some_parsed() -> None:
        while sum(most) < 30:
            await asyncio.sleep(0.01)

    most: list[int] = []
    clock = ManualClock()
    server = await start(clock)
    first, many = FLOODS[flood]
    async with contextlib.AsyncExitStack() as stack:
        attackers = [await stack.enter_async_context(raw(server)) for _ in range(10)]
        for attacker in attackers:
            await attacker.upgrade()
        monkeypatch.setattr(WebSocketsSansIOProtocol, "data_received", data_received)
        counting = asyncio.create_task(turns())
        for attacker in attackers:
            attacker.say(first + many * min(2000, 1_000_000 // len(many)))
        await as_time_passes(clock, some_parsed())
        counting.cancel()
    assert max(most) <= 8


async def test_pongs_that_nobody_reads_are_not_piled_up(
    start: StartServer, channels: list[Channel]
) -> None:
    """The last is kept; who asks for more without reading is closed with 4413."""
    server = await start(ManualClock())
    async with raw(server) as attacker:
        await attacker.upgrade()
        (channel,) = channels
        channel.pause_writing()  # as the loop does when what was sent is not read
        for number in range(17):
            attacker.say(frame(Opcode.PING, b"%08d" % number))
        received = await attacker.reader.readuntil(b"too slowly")
        assert b"\x8a" not in received
        assert code_in(received) == 4413


async def test_who_reads_again_is_given_the_last_pong(
    start: StartServer, channels: list[Channel]
) -> None:
    """As the protocol allows."""
    server = await start(ManualClock())
    async with raw(server) as slow:
        await slow.upgrade()
        (channel,) = channels
        channel.pause_writing()
        for number in range(3):
            slow.say(frame(Opcode.PING, b"%08d" % number))
        slow.say(frame(Opcode.TEXT, b"{}"))
        await eventually(lambda: sample(server, "foremind_errors_total", code="unknown_type") == 1)
        channel.resume_writing()
        assert b"\x8a\x0800000002" in await slow.reader.readuntil(b"00000002")


@pytest.mark.parametrize(
    ("sent", "status", "code"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 1_000_000, 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000, 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 101 + b"\r\n", 431, "headers_too_large"),
        (b"\r\n" * 500_000, 431, "headers_too_large"),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n\r\n", 414, "address_too_long"),
        (b"\x16\x03\x01\x02", 400, "invalid_request"),
        (b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400, "invalid_request"),
        (b"GET / HTTP/9.1\r\n\r\n", 400, "invalid_request"),
    ],
)
async def test_a_head_without_end_or_sense_is_refused(
    start: StartServer, sent: bytes, status: int, code: str
) -> None:
    """In the shape of every error; what still comes is neither parsed nor kept."""
    server = await start()
    async with raw(server) as attacker:
        attacker.say(sent)
        answered, body = await attacker.answer()
        assert (answered, body["error"]["code"]) == (status, code)
        assert body["error"]["type"] == "invalid_request_error"
        await attacker.rest()


async def test_what_says_nothing_is_closed_and_what_dribbles_is_told(start: StartServer) -> None:
    """Ten seconds for a request, however many connections wait."""
    clock = ManualClock()
    server = await start(clock)
    async with contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(raw(server)) for _ in range(100)]
        dribbling = await stack.enter_async_context(raw(server))
        dribbling.say(b"GET /he")
        await eventually(lambda: sample(server, "foremind_tcp_connections") == 101)
        await clock.advance(9.0)
        dribbling.say(b"althz HTTP")
        await asyncio.sleep(0)
        assert sample(server, "foremind_tcp_connections") == 101
        assert (await as_time_passes(clock, dribbling.answer()))[0] == 408
        assert [await each.rest() for each in silent] == [b""] * 100
        assert refused(server, "silent") == 100


async def test_a_connection_that_rests_between_requests_is_closed(start: StartServer) -> None:
    """Five seconds later."""
    clock = ManualClock()
    server = await start(clock)
    async with raw(server) as client:
        client.say(GET)
        assert (await client.answer())[0] == 200
        client.say(GET)
        assert (await client.answer())[0] == 200
        assert await as_time_passes(clock, client.rest()) == b""


async def test_pipelined_requests_are_answered_one_by_one_in_order(
    start: StartServer, channels: list[Channel]
) -> None:
    """What comes ahead of its turn is not read: at most a chunk of it is held."""
    server = await start()
    async with raw(server) as client:
        client.say((GET + GET.replace(b"healthz", b"v1/none")) * 500)
        held = 0
        for number in range(1000):
            status, _ = await client.answer() if number % 2 == 0 else await not_found(client)
            assert status == (200 if number % 2 == 0 else 404), number
            held = max(held, len(channels[0]._unread))
        assert held <= 2 * 16_384


async def not_found(client: Raw) -> tuple[int, str]:
    """The status of an answer that need not be JSON."""
    head = (await client.reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return int(head.split()[1]), (await client.reader.readexactly(length)).decode()


async def test_answers_that_nobody_reads_end_the_connection(
    start: StartServer, channels: list[Channel]
) -> None:
    """And are not made in advance: what waits to be read is bounded meanwhile."""
    clock = ManualClock()
    server = await start(clock)
    attacker = socket.socket()
    attacker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    attacker.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(attacker, ("127.0.0.1", server.port))
    await loop.sock_sendall(attacker, GET.replace(b"healthz", b"v1/openapi.json") * 150)
    most = 0

    async def ended() -> None:
        nonlocal most
        while not refused(server, "unread"):
            most = max(most, channels[0]._transport.get_write_buffer_size())
            await asyncio.sleep(0.001)

    with attacker:
        await eventually(lambda: bool(channels) and channels[0]._reader_watch is not None)
        await as_time_passes(clock, ended())
    assert 0 < most <= 4 * 65_536
    await eventually(lambda: sample(server, "foremind_tcp_connections") == 0)


async def test_an_upload_that_stands_still_is_ended(start: StartServer) -> None:
    """While one that goes on may take its time."""
    clock = ManualClock()
    server = await start(clock)
    async with raw(server) as stalled, raw(server) as slow:
        for client in (stalled, slow):
            client.say(IMPORT + b"Content-Length: 1000000\r\n\r\n" + b" " * 100_000)
        answer = asyncio.create_task(stalled.answer())
        while not answer.done():
            slow.say(b" " * 11_000)
            await slow.writer.drain()
            for _ in range(40):
                await clock.advance(0.25)
                await asyncio.sleep(0.002)
        assert answer.result()[0] == 408
        assert refused(server, "slow") == 1
        slow.say(b" " * 1_000_000)
        assert (await as_time_passes(clock, slow.answer()))[0] == 400  # no JSON
        await stalled.rest()


async def test_what_all_uploads_hold_is_bounded(start: StartServer) -> None:
    """Who would be too much is told to come back; then there is room again."""
    server = await start(body_bytes=1_048_576)
    async with raw(server) as first, raw(server) as second:
        first.say(IMPORT + b"Content-Length: 900000\r\n\r\n" + b" " * 850_000)
        await asyncio.sleep(0)
        second.say(IMPORT + b"Content-Length: 900000\r\n\r\n" + b" " * 850_000)
        told = [asyncio.create_task(each.answer()) for each in (first, second)]
        done, _ = await asyncio.wait(told, return_when=asyncio.FIRST_COMPLETED)
        status, body = done.pop().result()
        assert (status, body["error"]["code"], body["error"]["retryable"]) == (
            503, "overloaded", True,
        )  # fmt: skip
        assert refused(server, "bodies") == 1
        other = second if told[0].done() else first
        other.say(b" " * 50_000)
        assert (await (told[1] if told[0].done() else told[0]))[0] == 400  # no JSON
    async with raw(server) as again:
        again.say(IMPORT + b"Content-Length: 900000\r\n\r\n" + b" " * 900_000)
        assert (await again.answer())[0] == 400


async def test_a_body_over_its_limit_is_refused_and_counted(start: StartServer) -> None:
    """Where its length is told, before any of it comes; else once it is too much."""
    server = await start()
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    told = b"Content-Length: 64000001\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n" + 4 * chunk
    settle = b"PATCH /v1/relationships/%d/config?user=ana HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    await server.session()
    async with owner_of(server.app.core).acquire() as database:
        mine = await database.fetchval("SELECT id FROM relationships")
    for number, (head, rest) in enumerate(zip((IMPORT, settle % mine), told, strict=True), 1):
        async with raw(server) as attacker:
            attacker.say(head + rest)
            status, body = await attacker.answer()
            assert (status, body["error"]["code"]) == (413, "too_large")
            assert refused(server, "body_size") == number


async def test_a_body_that_is_mostly_wrapping_is_refused(start: StartServer) -> None:
    """Chunks of a byte, extensions, trailers: none is endless."""
    server = await start()
    for many in (b"1\r\n \r\n" * 20_000, b"1;" + b"x" * 100_000, b"0\r\n" + b"X: y\r\n" * 20_000):
        async with raw(server) as attacker:
            attacker.say(IMPORT + b"Transfer-Encoding: chunked\r\n\r\n" + many)
            assert (await attacker.answer())[0] in (400, 431)
            await attacker.rest()


async def test_a_body_in_chunks_is_taken_and_its_connection_closed(start: StartServer) -> None:
    """Where it ends is known only once it is parsed."""
    server = await start()
    async with raw(server) as client:
        client.say(
            IMPORT + b"Transfer-Encoding: chunked\r\n\r\n" + b"5\r\n[1,2]\r\n0\r\n\r\n" + GET
        )
        status, body = await client.answer()
        assert (status, body["error"]["param"]) == (400, "body")
        assert await client.rest() == b""


async def test_bytes_come_in_any_portions(start: StartServer) -> None:
    """A request, its body, the next one; a handshake with a message right behind it."""
    server = await start()
    body = b'{"companion": 1}'
    post = IMPORT + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for size in (1, 3, 1000):
        async with raw(server) as client:
            sent = post + GET + UPGRADE + frame(Opcode.TEXT, b"{}")
            for at in range(0, len(sent), size):
                client.say(sent[at : at + size])
                await asyncio.sleep(0)
            assert (await client.answer())[0] == 400
            assert (await client.answer())[0] == 200
            assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
            assert b"unknown_type" in await client.reader.readuntil(b"}}")


async def test_silent_connections_lock_nobody_out(start: StartServer) -> None:
    """They make room for who comes, the most silent first, and never for who is known."""
    server = await start(max_connections=5)
    honest = await server.session()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(30):
            await stack.enter_async_context(raw(server))
        await eventually(lambda: refused(server, "evicted") == 26)
        assert sample(server, "foremind_tcp_connections") == 5
        for _ in range(3):
            assert await server.session()
        await synced(honest)


async def test_uploads_under_way_lock_nobody_out(start: StartServer) -> None:
    """Their users are known, and may take their time only where nobody wants the place."""
    server = await start(max_connections=4)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(10):
            client = await stack.enter_async_context(raw(server))
            client.say(IMPORT + b"Content-Length: 900000\r\n\r\n" + b" " * 1000)
            await eventually(lambda: refused(server, "evicted") == max(0, number - 3))  # noqa: B023
        assert await server.session()


async def test_where_everybody_is_known_one_more_is_refused(start: StartServer) -> None:
    """At once, without a word."""
    server = await start(max_connections=2)
    await server.session("ana")
    await server.session("bo")
    async with raw(server) as third:
        assert await third.rest() == b""
    assert refused(server, "connections") == 1


@contextlib.contextmanager
def own_process(folder: Path, database_url: str, descriptors: int) -> Iterator[psutil.Process]:
    """A server in a process of its own, on the port that its command line ends with."""
    port = free_port()
    settings = load_settings()
    command = f"ulimit -n {descriptors}; exec {sys.executable} -m foremind serve --port {port}"
    server = subprocess.Popen(
        ["bash", "-c", command],
        env={
            "PATH": "/usr/bin:/bin",
            "FOREMIND_DATABASE_URL": database_url,
            "FOREMIND_DATA_DIR": str(folder),
            "FOREMIND_MODELS_PATH": str(settings.models_dir.absolute()),
            "FOREMIND_LOG_LEVEL": "warning",
        },
    )
    try:
        wait_for(server, port)
        yield psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


@asynccontextmanager
async def playing(port: str) -> AsyncIterator[Client]:
    """An honest player, whose message was answered."""
    async with connect(f"ws://127.0.0.1:{port}/v1/ws") as client:
        await client.open_session("wren", user_id="ana", name="Ana")
        await client.send("Hello")
        assert (await client.expect("response.done"))["status"] == "completed"
        yield client


async def test_a_thousand_idle_connections_reach_no_limit_of_the_system(
    tmp_path: Path, database_url: str
) -> None:
    """The limit is known, some descriptors are kept, and an honest player comes in and plays."""
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(own_process(tmp_path, database_url, 320)).cmdline()[-1]
        for _ in range(1000):
            idle = socket.socket()
            idle.setblocking(False)
            stack.callback(idle.close)
            await asyncio.get_running_loop().sock_connect(idle, ("127.0.0.1", int(port)))
        async with playing(port):
            pass


async def test_every_attack_at_once_leaves_memory_within_its_bound(
    tmp_path: Path, database_url: str
) -> None:
    """A tenth of what the weakest of them took before it was bounded; and a player goes on."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(own_process(tmp_path, database_url, 1024))
        port = server.cmdline()[-1]
        async with playing(port) as client:
            before = most = server.memory_info().rss
            for attack in attackers.ATTACKS:
                command = [sys.executable, "-S", "-E", attackers.__file__, attack]
                running = subprocess.Popen(  # noqa: ASYNC220
                    [*command, "127.0.0.1", port, "0"], stderr=subprocess.DEVNULL
                )
                stack.callback(running.wait)
                stack.callback(running.kill)
            for _ in range(80):
                most = max(most, server.memory_info().rss)
                await asyncio.sleep(0.1)
            await client.send("Still here")
            assert (await client.expect("response.done"))["status"] == "completed"
        assert most - before < 88 * 2**20
