"""Attacks below the protocol, over raw sockets: limits, closed connections, and fairness."""

import asyncio
import contextlib
import json
import logging
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

from fair_transport import Channel, fair_scheduling
from fair_transport.fair_scheduling import AnonymousScheduler
from fair_transport.http_protocol import BoundedHttpProtocol
from foremind.app.configuration import load_settings
from foremind_client import Client, connect
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.processes.server_process import free_port, wait_for
from tests.acceptance.test_limits import while_time_passes
from tests.acceptance.test_message_path import hang_up, metric_value, wait_until_processed
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually, owner_of
from tests.programs import program

UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
IMPORT = b"POST /v1/relationships/import?user=ana HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def frame(opcode: Opcode, data: bytes = b"", fin: bool = True) -> bytes:
    """Return a frame as clients send it."""
    return Frame(opcode, data, fin).serialize(mask=True)


class Raw:
    """A raw socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, data: bytes) -> None:
        """Send, also to a peer that no longer reads."""
        self.writer.write(data)

    async def upgrade(self) -> None:
        """Become a WebSocket."""
        self.say(UPGRADE)
        assert b" 101 " in await self.reader.readuntil(b"\r\n\r\n")

    async def read_to_end(self) -> bytes:
        """Return everything up to the end of the connection."""
        received = b""
        with contextlib.suppress(ConnectionError):
            while part := await self.reader.read(65_536):
                received += part
        return received

    async def response(self) -> tuple[int, dict[str, Any]]:
        """Return the status and the JSON of one response."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        return int(head.split()[1]), json.loads(await self.reader.readexactly(length))


@asynccontextmanager
async def raw(server: RunningServer) -> AsyncIterator[Raw]:
    """Open a connection and send nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield Raw(reader, writer)
    finally:
        await hang_up(writer)


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> list[Channel]:
    """The server's side of every connection from now on."""
    opened: list[Channel] = []
    connection_made_before = Channel.connection_made

    def connection_made(self: Channel, transport: asyncio.BaseTransport) -> None:
        opened.append(self)
        connection_made_before(self, transport)

    monkeypatch.setattr(Channel, "connection_made", connection_made)
    return opened


def refused_count(server: RunningServer, reason: str) -> float:
    """Return how many connections were refused or closed for a reason."""
    return metric_value(server, "foremind_refused_total", reason=reason)


def code_in(received: bytes) -> int:
    """Return the close code in the last frame that a server sent."""
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
async def test_clients_that_flood_with_frames_are_closed(start: StartServer, flood: str) -> None:
    """With 4429, before authentication; an honest player is not affected."""
    clock = ManualClock()
    server = await start(clock)
    honest = await server.session()
    first, many = FLOODS[flood]
    async with raw(server) as attacker:
        await attacker.upgrade()
        attacker.say(first + many * (12_000_000 // len(many) if flood == "large" else 3000))
        received = await while_time_passes(clock, attacker.read_to_end())
    assert code_in(received) == 4429
    assert received.count(b"\x8a\x08") < 300  # pongs
    await wait_until_processed(honest)


@pytest.mark.parametrize("flood", FLOODS)
async def test_floods_do_not_keep_other_connections_from_their_turn(
    start: StartServer, flood: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One iteration of the event loop parses a limited number of frames."""
    parsed = 0
    parse = WebSocketsSansIOProtocol.data_received

    def data_received(self: WebSocketsSansIOProtocol, data: bytes) -> None:
        nonlocal parsed
        parsed += 1
        parse(self, data)

    async def count_parsed() -> None:
        nonlocal parsed
        while True:
            parsed = 0
            await asyncio.sleep(0)
            parsed_per_iteration.append(parsed)

    async def enough_parsed() -> None:
        while sum(parsed_per_iteration) < 30:
            await asyncio.sleep(0.01)

    parsed_per_iteration: list[int] = []
    clock = ManualClock()
    server = await start(clock)
    first, many = FLOODS[flood]
    async with contextlib.AsyncExitStack() as stack:
        attackers = [await stack.enter_async_context(raw(server)) for _ in range(10)]
        for attacker in attackers:
            await attacker.upgrade()
        monkeypatch.setattr(WebSocketsSansIOProtocol, "data_received", data_received)
        counting = asyncio.create_task(count_parsed())
        for attacker in attackers:
            attacker.say(first + many * min(2000, 1_000_000 // len(many)))
        await while_time_passes(clock, enough_parsed())
        counting.cancel()
    assert max(parsed_per_iteration) <= 8


async def test_unread_pongs_are_not_queued(start: StartServer, channels: list[Channel]) -> None:
    """Only the last is kept; clients that send more pings without reading are closed with 4413."""
    server = await start(ManualClock())
    async with raw(server) as attacker:
        await attacker.upgrade()
        (channel,) = channels
        channel.pause_writing()  # as the event loop does when the client does not read
        for number in range(17):
            attacker.say(frame(Opcode.PING, b"%08d" % number))
        received = await attacker.reader.readuntil(b"too slowly")
        assert b"\x8a" not in received
        assert code_in(received) == 4413


async def test_a_client_that_reads_again_gets_the_last_pong(
    start: StartServer, channels: list[Channel]
) -> None:
    """As RFC 6455 allows (section 5.5.3)."""
    server = await start(ManualClock())
    async with raw(server) as slow:
        await slow.upgrade()
        (channel,) = channels
        channel.pause_writing()
        for number in range(3):
            slow.say(frame(Opcode.PING, b"%08d" % number))
        slow.say(frame(Opcode.TEXT, b"{}"))
        await eventually(
            lambda: metric_value(server, "foremind_errors_total", code="unknown_type") == 1
        )
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
async def test_oversized_and_malformed_request_heads_are_refused(
    start: StartServer, sent: bytes, status: int, code: str
) -> None:
    """With the usual error; further bytes are neither parsed nor kept."""
    server = await start()
    async with raw(server) as attacker:
        attacker.say(sent)
        answered, body = await attacker.response()
        assert (answered, body["error"]["code"]) == (status, code)
        assert body["error"]["type"] == "invalid_request_error"
        await attacker.read_to_end()


async def test_silent_connections_are_closed_and_slow_requests_get_408(start: StartServer) -> None:
    """After ten seconds, however many connections there are."""
    clock = ManualClock()
    server = await start(clock)
    async with contextlib.AsyncExitStack() as stack:
        silent = [await stack.enter_async_context(raw(server)) for _ in range(100)]
        dribbling = await stack.enter_async_context(raw(server))
        dribbling.say(b"GET /he")
        await eventually(lambda: metric_value(server, "foremind_tcp_connections") == 101)
        await clock.advance(9.0)
        dribbling.say(b"althz HTTP")
        await asyncio.sleep(0)
        assert metric_value(server, "foremind_tcp_connections") == 101
        assert (await while_time_passes(clock, dribbling.response()))[0] == 408
        assert [await connection.read_to_end() for connection in silent] == [b""] * 100
        assert refused_count(server, "silent") == 100


async def test_an_idle_keep_alive_connection_is_closed(start: StartServer) -> None:
    """Five seconds after its last request."""
    clock = ManualClock()
    server = await start(clock)
    async with raw(server) as client:
        client.say(GET)
        assert (await client.response())[0] == 200
        client.say(GET)
        assert (await client.response())[0] == 200
        assert await while_time_passes(clock, client.read_to_end()) == b""


async def test_pipelined_requests_are_answered_in_order(
    start: StartServer, channels: list[Channel]
) -> None:
    """Later requests are not read ahead, but for a bounded number of bytes."""
    server = await start()
    async with raw(server) as client:
        client.say((GET + GET.replace(b"healthz", b"v1/none")) * 500)
        max_unread = 0
        for number in range(1000):
            status, _ = (
                await client.response() if number % 2 == 0 else await response_as_text(client)
            )
            assert status == (200 if number % 2 == 0 else 404), number
            max_unread = max(max_unread, len(channels[0]._unread))
        assert max_unread <= 2 * 16_384


async def response_as_text(client: Raw) -> tuple[int, str]:
    """Return the status and the body of a response that need not be JSON."""
    head = (await client.reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.split("content-length: ")[1].split("\r\n")[0])
    return int(head.split()[1]), (await client.reader.readexactly(length)).decode()


async def test_a_client_that_does_not_read_responses_is_closed(
    start: StartServer, channels: list[Channel]
) -> None:
    """Responses are not made in advance: the unread bytes are bounded meanwhile."""
    clock = ManualClock()
    server = await start(clock)
    attacker = socket.socket()
    attacker.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    attacker.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(attacker, ("127.0.0.1", server.port))
    await loop.sock_sendall(attacker, GET.replace(b"healthz", b"v1/openapi.json") * 150)
    max_buffered = 0

    async def closed_for_not_reading() -> None:
        nonlocal max_buffered
        while not refused_count(server, "unread"):
            max_buffered = max(max_buffered, channels[0]._transport.get_write_buffer_size())
            await asyncio.sleep(0.001)

    with attacker:
        await eventually(lambda: bool(channels) and channels[0]._reader_watch is not None)
        await while_time_passes(clock, closed_for_not_reading())
    assert 0 < max_buffered <= 4 * 65_536
    await eventually(lambda: metric_value(server, "foremind_tcp_connections") == 0)


async def test_a_stalled_upload_is_closed(start: StartServer) -> None:
    """A slow one that continues is not."""
    clock = ManualClock()
    server = await start(clock)
    async with raw(server) as stalled, raw(server) as slow:
        for client in (stalled, slow):
            client.say(IMPORT + b"Content-Length: 1000000\r\n\r\n" + b" " * 100_000)
        response = asyncio.create_task(stalled.response())
        while not response.done():
            slow.say(b" " * 11_000)
            await slow.writer.drain()
            for _ in range(40):
                await clock.advance(0.25)
                await asyncio.sleep(0.002)
        assert response.result()[0] == 408
        assert refused_count(server, "slow") == 1
        slow.say(b" " * 1_000_000)
        assert (await while_time_passes(clock, slow.response()))[0] == 400  # no JSON
        await stalled.read_to_end()


async def test_the_memory_of_all_uploads_is_bounded(start: StartServer) -> None:
    """An upload that exceeds it gets a retryable error; it can be sent again later."""
    server = await start(body_bytes=1_048_576)
    async with raw(server) as first, raw(server) as second:
        first.say(IMPORT + b"Content-Length: 900000\r\n\r\n" + b" " * 850_000)
        await asyncio.sleep(0)
        second.say(IMPORT + b"Content-Length: 900000\r\n\r\n" + b" " * 850_000)
        responses = [asyncio.create_task(upload.response()) for upload in (first, second)]
        done, _ = await asyncio.wait(responses, return_when=asyncio.FIRST_COMPLETED)
        status, body = done.pop().result()
        assert (status, body["error"]["code"], body["error"]["retryable"]) == (
            503, "overloaded", True,
        )  # fmt: skip
        assert refused_count(server, "bodies") == 1
        other = second if responses[0].done() else first
        other.say(b" " * 50_000)
        assert (await (responses[1] if responses[0].done() else responses[0]))[0] == 400  # no JSON
    async with raw(server) as retry:
        retry.say(IMPORT + b"Content-Length: 900000\r\n\r\n" + b" " * 900_000)
        assert (await retry.response())[0] == 400


async def test_a_body_over_its_limit_is_refused(start: StartServer) -> None:
    """Before any of it is read if its length is stated, otherwise once it exceeds the limit."""
    server = await start()
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    framings = (
        b"Content-Length: 64000001\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n" + 4 * chunk,
    )
    config_patch = b"PATCH /v1/relationships/%d/config?user=ana HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    await server.session()
    async with owner_of(server.app.core).acquire() as database:
        relationship_id = await database.fetchval("SELECT id FROM relationships")
    for number, (head, body_start) in enumerate(
        zip((IMPORT, config_patch % relationship_id), framings, strict=True), 1
    ):
        async with raw(server) as attacker:
            attacker.say(head + body_start)
            status, body = await attacker.response()
            assert (status, body["error"]["code"]) == (413, "too_large")
            assert refused_count(server, "body_size") == number


async def test_chunked_bodies_with_excessive_overhead_are_refused(start: StartServer) -> None:
    """One-byte chunks, extensions and trailers are limited."""
    clock = ManualClock()
    server = await start(clock)
    for many in (b"1\r\n \r\n" * 20_000, b"1;" + b"x" * 100_000, b"0\r\n" + b"X: y\r\n" * 20_000):
        async with raw(server) as attacker:
            attacker.say(IMPORT + b"Transfer-Encoding: chunked\r\n\r\n" + many)
            status, _ = await while_time_passes(clock, attacker.response())
            assert status in (400, 431)
            await while_time_passes(clock, attacker.read_to_end())


async def test_a_body_in_tiny_chunks_is_read_slowly(
    start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand chunks a second, after five hundred at once; a slice may exceed that."""
    parsed = 0
    count_before = BoundedHttpProtocol.on_chunk_header

    def on_chunk_header(self: BoundedHttpProtocol) -> None:
        nonlocal parsed
        parsed += 1
        count_before(self)

    monkeypatch.setattr(BoundedHttpProtocol, "on_chunk_header", on_chunk_header)
    clock = ManualClock()
    server = await start(clock)
    in_slice = 4096 // len(b"1\r\n \r\n") + 1
    async with raw(server) as client:
        client.say(IMPORT + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 3000)
        await eventually(lambda: parsed >= 500)
        for passed in range(30):
            assert parsed <= 500 + 100 * passed + in_slice
            await clock.advance(0.1)
            await asyncio.sleep(0.001)
        client.say(b"0\r\n\r\n")
        assert (await while_time_passes(clock, client.response()))[0] == 400  # no JSON
        assert parsed == 3001


async def test_a_body_in_ordinary_chunks_is_not_slowed(start: StartServer) -> None:
    """The clock stands still while it arrives."""
    server = await start(ManualClock())
    chunk = b"2000\r\n" + b" " * 8192 + b"\r\n"
    async with raw(server) as client:
        client.say(IMPORT + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 400)
        client.say(b"0\r\n\r\n")
        assert (await client.response())[0] == 400  # no JSON


async def test_requests_wait_while_a_message_is_being_stored(
    start: StartServer, channels: list[Channel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are answered as soon as it is stored."""
    monkeypatch.setattr(fair_scheduling, "MAX_HOLD_S", PATIENCE)
    server = await start()
    player = await server.session()
    async with raw(server) as client, owner_of(server.app.core).acquire() as database:
        await eventually(lambda: len(channels) == 2)
        block = database.transaction()
        await block.start()
        await database.execute("LOCK TABLE turns IN EXCLUSIVE MODE")
        await player.send("Hello")
        await eventually(lambda: server.app.precedence.holds)
        client.say(GET)
        await eventually(lambda: channels[-1]._unread == GET)
        for _ in range(100):
            await asyncio.sleep(0)
        assert channels[-1]._unread == GET
        await block.rollback()
        await player.expect("message.accepted")
        assert (await client.response())[0] == 200
        assert not server.app.precedence.holds


async def test_a_message_that_cannot_be_stored_delays_requests_only_briefly(
    start: StartServer,
) -> None:
    """They are answered while it still waits."""
    server = await start()
    player = await server.session()
    async with owner_of(server.app.core).acquire() as database:
        block = database.transaction()
        await block.start()
        await database.execute("LOCK TABLE turns IN EXCLUSIVE MODE")
        await player.send("Hello")
        async with raw(server) as client:
            client.say(GET)
            assert (await client.response())[0] == 200
        await block.rollback()
        await player.expect("message.accepted")


async def test_everything_about_an_anonymous_connection_is_metered(
    start: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepting it (four steps), starting it, losing it, and the event loop's own work for it."""
    charges: list[float] = []
    charge_before = AnonymousScheduler.charge

    def charge(self: AnonymousScheduler, seconds: float) -> None:
        charges.append(seconds)
        charge_before(self, seconds)

    server = await start()
    monkeypatch.setattr(AnonymousScheduler, "charge", charge)
    for number in range(1, 11):
        async with raw(server):
            await eventually(lambda: metric_value(server, "foremind_tcp_connections") == 1)
        await eventually(lambda: metric_value(server, "foremind_tcp_connections") == 0)
        await eventually(lambda: len(charges) >= 7 * number)  # noqa: B023


async def test_a_connection_is_closed_after_a_chunked_body(start: StartServer) -> None:
    """Its end is known only once it is parsed."""
    server = await start()
    async with raw(server) as client:
        client.say(IMPORT + b"Transfer-Encoding: chunked\r\n\r\n" + b'3\r\n"x"\r\n0\r\n\r\n' + GET)
        status, body = await client.response()
        assert (status, body["error"]["param"]) == (400, "body")
        assert await client.read_to_end() == b""


async def test_requests_and_handshakes_may_arrive_in_any_fragments(start: StartServer) -> None:
    """A request with a body, another one, and a handshake followed at once by a message."""
    server = await start()
    body = b'{"companion": 1}'
    post = IMPORT + b"Content-Length: %d\r\n\r\n" % len(body) + body
    for size in (1, 3, 1000):
        async with raw(server) as client:
            sent = post + GET + UPGRADE + frame(Opcode.TEXT, b"{}")
            for offset in range(0, len(sent), size):
                client.say(sent[offset : offset + size])
                await asyncio.sleep(0)
            assert (await client.response())[0] == 400
            assert (await client.response())[0] == 200
            assert b" 101 " in await client.reader.readuntil(b"\r\n\r\n")
            assert b"unknown_type" in await client.reader.readuntil(b"}}")


async def test_silent_connections_are_evicted_for_new_ones(start: StartServer) -> None:
    """The longest silent first; authenticated connections are never evicted."""
    server = await start(max_connections=5)
    honest = await server.session()
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(30):
            await stack.enter_async_context(raw(server))
        await eventually(lambda: refused_count(server, "evicted") == 26)
        assert metric_value(server, "foremind_tcp_connections") == 5
        for _ in range(3):
            assert await server.session()
        await wait_until_processed(honest)


async def test_uploads_are_evicted_for_new_connections(start: StartServer) -> None:
    """Though their users are authenticated."""
    server = await start(max_connections=4)
    async with contextlib.AsyncExitStack() as stack:
        for number in range(10):
            client = await stack.enter_async_context(raw(server))
            client.say(IMPORT + b"Content-Length: 900000\r\n\r\n" + b" " * 1000)
            await eventually(lambda: refused_count(server, "evicted") == max(0, number - 3))  # noqa: B023
        assert await server.session()


async def test_a_connection_is_refused_where_none_can_be_evicted(start: StartServer) -> None:
    """At once, without a response."""
    server = await start(max_connections=2)
    await server.session("ana")
    await server.session("bo")
    async with raw(server) as third:
        assert await third.read_to_end() == b""
    assert refused_count(server, "connections") == 1


LARGE = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("path", [b"/v1/turns", b"/v1/mcp", b"/v1/chat/completions"])
async def test_who_sends_too_much_is_told_so(
    start: StartServer, path: bytes, chunked: bool
) -> None:
    """Also a client that reads only after it has sent all: it is not cut off before."""
    server = await start(mcp=True)
    megabyte, megabytes = b"x" * 2**20, 15
    if chunked and path == b"/v1/chat/completions":  # which may have pictures
        megabytes = 60
    async with raw(server) as peer:
        length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % (100 * 2**20)
        peer.say(LARGE % path + length + b"\r\n\r\n")
        for _ in range(megabytes):
            peer.say(b"100000\r\n" + megabyte + b"\r\n" if chunked else megabyte)
            await peer.writer.drain()
        status, body = await peer.response()
    assert (status, body["error"]["code"]) == (413, "too_large")


async def test_fetch_sees_that_a_body_is_too_large(start: StartServer) -> None:
    """It sends on while the answer arrives, and would report a broken pipe instead."""
    server = await start()
    code = """
      const headers = { "content-type": "application/json" };
      const sent = { method: "POST", headers, body: "x".repeat(5_000_000) };
      console.log((await fetch(process.argv[1], sent)).status);
    """
    url = f"http://127.0.0.1:{server.port}/v1/turns"
    for _ in range(5):
        node = await asyncio.create_subprocess_exec(
            program("node"), "--input-type=module", "--eval", code, url,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        out, error = await node.communicate()
        assert out.strip() == b"413", error


async def test_who_never_stops_sending_is_cut_off(start: StartServer) -> None:
    """After a bounded amount, of which nothing is kept."""
    server = await start()
    async with raw(server) as peer:
        length = b"Content-Length: %d\r\n\r\n" % 2**40
        peer.say(LARGE % b"/v1/turns" + length)
        with pytest.raises(ConnectionError):
            for _ in range(400):
                peer.say(b"x" * 2**20)
                await peer.writer.drain()


async def test_a_refused_handshake_writes_no_error_into_the_log(
    start: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody can make one: at a path that is none, from a foreign page, or left at once."""
    monitored = logging.getLogger("uvicorn.error")
    monitored.addHandler(caplog.handler)
    server = await start()
    try:
        for path in (b"/", b"/v1/wss", b"/v1/turns", b"/v1/ws/x", b"/%00"):
            for _ in range(2):
                async with raw(server) as peer:
                    peer.say(UPGRADE.replace(b"/v1/ws", path))
                    assert b" 404 " in await peer.read_to_end()
        async with raw(server) as peer:
            origin = b"Origin: https://evil.example\r\n"
            peer.say(UPGRADE.replace(b"Upgrade: web", origin + b"Upgrade: web"))
            assert code_in(await peer.read_to_end()) == 4403
        for path in (b"/v1/ws", b"/nowhere"):
            for _ in range(10):
                async with raw(server) as peer:
                    peer.say(UPGRADE.replace(b"/v1/ws", path))
                    await peer.writer.drain()
                    peer.writer.transport.abort()
        async with raw(server) as peer:
            peer.say(UPGRADE.replace(b"/v1/ws", b"/v1/ws/"))  # every address may end with a slash
            assert b" 101 " in await peer.reader.readuntil(b"\r\n\r\n")
        client = await server.session()
        await client.send("Hello")
        await client.expect("response.done")
    finally:
        monitored.removeHandler(caplog.handler)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


@contextlib.contextmanager
def own_process(folder: Path, database_url: str, descriptors: int) -> Iterator[psutil.Process]:
    """Run a server in a process of its own; its command line ends with its port."""
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
    """Return an honest player's client, whose message was answered."""
    async with connect(f"ws://127.0.0.1:{port}/v1/ws") as client:
        await client.open_session("wren", user_id="ana", name="Ana")
        await client.send("Hello")
        assert (await client.expect("response.done"))["status"] == "completed"
        yield client


async def test_idle_connections_do_not_exhaust_file_descriptors(
    tmp_path: Path, database_url: str
) -> None:
    """The server knows the limit and keeps a reserve: an honest player can connect."""
    with contextlib.ExitStack() as stack:
        port = stack.enter_context(own_process(tmp_path, database_url, 320)).cmdline()[-1]
        for _ in range(1000):
            idle = socket.socket()
            idle.setblocking(False)
            stack.callback(idle.close)
            await asyncio.get_running_loop().sock_connect(idle, ("127.0.0.1", int(port)))
        async with playing(port):
            pass


async def test_memory_stays_bounded_under_all_attacks_at_once(
    tmp_path: Path, database_url: str
) -> None:
    """A tenth of what the weakest attack took without limits; a player continues meanwhile."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(own_process(tmp_path, database_url, 1024))
        port = server.cmdline()[-1]
        async with playing(port) as client:
            rss_before = max_rss = server.memory_info().rss
            for attack in attackers.ATTACKS:
                command = [sys.executable, "-S", "-E", attackers.__file__, attack]
                running = subprocess.Popen(  # noqa: ASYNC220
                    [*command, "127.0.0.1", port, "0"], stderr=subprocess.DEVNULL
                )
                stack.callback(running.wait)
                stack.callback(running.kill)
            for _ in range(80):
                max_rss = max(max_rss, server.memory_info().rss)
                await asyncio.sleep(0.1)
            await client.send("Still here")
            assert (await client.expect("response.done"))["status"] == "completed"
        assert max_rss - rss_before < 88 * 2**20
