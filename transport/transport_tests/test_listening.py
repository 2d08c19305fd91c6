"""A listener as a whole: a plain ASGI application behind it, real sockets before it."""

import asyncio
import json
import socket
import struct
import tomllib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from fair_transport import Hooks, Limits, Precedence, Refusal, bind, fair_scheduling, listening
from fair_transport.body_limits import Message, Receive, Scope, Send
from transport_tests.waiting import PATIENCE, eventually

GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with timeout 0: close with a reset


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with the length of its body, and a text of a WebSocket with that text."""
    if scope["type"] == "http":
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        body = b"%d" % size
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        return
    await receive()
    await send({"type": "websocket.accept"})
    scope["state"]["connection"].mark_identified()
    while (message := await receive())["type"] == "websocket.receive":
        await send({"type": "websocket.send", "text": message["text"]})


@asynccontextmanager
async def raw(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """Open a connection and send nothing."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def read_to_end(reader: asyncio.StreamReader) -> bytes:
    """Return everything up to the end of the connection."""
    async with asyncio.timeout(PATIENCE):
        return await reader.read()


def code_in(received: bytes) -> int:
    """Return the close code in the last frame that a server sent."""
    at = received.rindex(b"\x88")
    return int.from_bytes(received[at + 2 : at + 4], "big")


async def test_requests_and_sockets_are_served() -> None:
    """On every socket that the listener is given."""
    first, second = bind(), bind()
    ports = [first.getsockname()[1], second.getsockname()[1]]
    async with listening(echo, first, second) as port:
        assert port == ports[0]
        for served in ports:
            async with raw(served) as (reader, writer):
                writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello" + GET)
                assert (await reader.readuntil(b"\r\n\r\n5")).startswith(b"HTTP/1.1 200")
                assert (await reader.readuntil(b"\r\n\r\n0")).startswith(b"HTTP/1.1 200")
            async with connect(f"ws://127.0.0.1:{served}") as client:
                await client.send("hello")
                assert await client.recv() == "hello"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_refusals_are_reported_and_told_in_the_words_of_the_program() -> None:
    """Those of a request, of a handshake and of a connection that sends nothing."""
    reasons: list[str] = []

    def error_body(refusal: Refusal) -> bytes:
        return json.dumps({"problem": refusal.code}).encode()

    hooks = Hooks(on_refused=reasons.append, error_body=error_body)
    async with listening(echo, limits=Limits(head_timeout_s=0.05), hooks=hooks) as port:
        for sent, problem in (
            (b"HELLO\r\n\r\n", "invalid_request"),
            (b"GET /" + b"x" * 10_000, "address_too_long"),
            (UPGRADE.replace(b": 13", b": 12"), "invalid_request"),
            (b"GET / HTTP/1.1\r\n", "too_slow"),
        ):
            async with raw(port) as (reader, writer):
                writer.write(sent)
                body = (await read_to_end(reader)).rpartition(b"\r\n\r\n")[2]
                assert json.loads(body) == {"problem": problem}, sent
        async with raw(port) as (reader, _):
            assert await read_to_end(reader) == b""
    assert reasons == ["malformed", "head", "slow", "silent"]


async def test_a_socket_that_sends_too_much_is_closed() -> None:
    """By bytes that it may send in a second; one that answers no pings likewise."""
    reasons: list[str] = []
    limits = Limits(bytes_per_s=1000, ping_interval_s=0.05, ping_timeout_s=0.05)
    hooks = Hooks(on_refused=reasons.append)
    async with listening(echo, limits=limits, hooks=hooks) as port:
        async with raw(port) as (reader, writer):
            writer.write(UPGRADE + Frame(Opcode.TEXT, b"x" * 20_000).serialize(mask=True))
            assert code_in(await reader.readuntil(b"too many frames")) == 4429
        async with raw(port) as (reader, writer):
            writer.write(UPGRADE)
            assert code_in(await reader.readuntil(b"heartbeat lost")) == 4408
    assert reasons == ["closed_4429", "closed_4408"]


async def test_a_frame_that_is_too_long_is_refused() -> None:
    """By its header, with the code of the protocol."""
    async with AsyncExitStack() as stack:
        port = await stack.enter_async_context(listening(echo, limits=Limits(frame_bytes=1000)))
        client = await stack.enter_async_context(connect(f"ws://127.0.0.1:{port}"))
        await client.send("x" * 1000)
        assert await client.recv() == "x" * 1000
        await client.send("x" * 1001)
        with pytest.raises(ConnectionClosed) as closed:
            await client.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


async def test_requests_wait_for_what_has_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are answered once it is done."""
    monkeypatch.setattr(fair_scheduling, "MAX_HOLD_S", PATIENCE)
    precedence = Precedence()
    urgent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    connections: list[int] = []
    hooks = Hooks(on_connections=connections.append)
    serving = listening(echo, hooks=hooks, precedence=precedence)
    async with serving as port, raw(port) as (reader, writer):
        await eventually(lambda: connections == [1])
        precedence.hold_until(urgent)
        writer.write(GET)
        response = asyncio.create_task(reader.readuntil(b"\r\n\r\n"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not response.done()
        urgent.set_result(None)
        assert (await response).startswith(b"HTTP/1.1 200")


async def test_a_connection_reset_at_the_end_of_its_response_is_released() -> None:
    """Reading is paused at that moment, so the event loop would not report the end."""
    response_started, client_gone = asyncio.Event(), asyncio.Event()
    connections: list[int] = []
    body = bytes(200_000)  # more than is buffered for an application that does not read it

    async def refusing(_: Scope, __: Receive, send: Send) -> None:
        headers = [(b"content-length", b"8")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": b"too long", "more_body": True})
        response_started.set()
        await client_gone.wait()
        await send({"type": "http.response.body", "body": b""})

    async with listening(refusing, hooks=Hooks(on_connections=connections.append)) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n" + body
        )
        await response_started.wait()
        assert connections == [1]
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
        await asyncio.sleep(0)  # only now is the socket closed
        client_gone.set()
        await eventually(lambda: connections == [1, 0])


async def test_an_application_that_fails_is_answered_for() -> None:
    """With 500; the listener goes on."""

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/fail":
            raise ZeroDivisionError
        await echo(scope, receive, send)

    async with listening(failing) as port, raw(port) as (reader, writer):
        writer.write(GET.replace(b"GET /", b"GET /fail"))
        assert (await read_to_end(reader)).startswith(b"HTTP/1.1 500")
        async with raw(port) as (other, other_writer):
            other_writer.write(GET)
            assert (await other.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


def test_what_is_installed_is_what_it_was_tested_with() -> None:
    """It extends modules that may change with any version."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))
    pins = dict(pin.split("==") for pin in project["project"]["dependencies"])
    assert pins.keys() == {"httptools", "uvicorn", "websockets"}
    assert {name: version(name) for name in pins} == pins


async def test_messages_of_a_plain_type_are_enough(caplog: pytest.LogCaptureFixture) -> None:
    """A handshake that the application refuses is no error."""

    async def refusing(_: Scope, receive: Receive, send: Send) -> None:
        message: Message = await receive()
        assert message["type"] == "websocket.connect"
        await send({"type": "websocket.close", "code": 1008})

    async with listening(refusing) as port, raw(port) as (reader, writer):
        writer.write(UPGRADE)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 403")
    assert not caplog.records
