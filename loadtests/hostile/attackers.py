"""One attacker in a process of its own: raw sockets and the standard library, nothing else.

Run as `python attackers.py ATTACK HOST PORT NUMBER`; it goes on until it is killed, and comes back
whenever it is thrown out. It yields the processor to whoever else wants it: real attackers bring
their own machines.
"""

import base64
import contextlib
import itertools
import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Iterator

_SILENT = 60  # connections that one silent attacker holds
_AGAIN_S = 0.2  # until who was thrown out is back
_PIECE = 65_536  # bytes handed to the kernel at once
_PATIENCE_S = 30.0  # for a server that neither reads nor ends the connection

_KEY = base64.b64encode(b"0123456789abcdef").decode()
_LONG = "x" * 7000


class Target:
    """Where the server is, and which of the attackers this is."""

    def __init__(self, host: str, port: int, number: int) -> None:
        self.host, self.port, self.number = host, port, number

    @property
    def name(self) -> str:
        """What the server's Host header wants."""
        return f"{self.host}:{self.port}"

    def connect(self, *, receive_bytes: int = 0) -> socket.socket:
        """Open a TCP connection; its sends give up after a while."""
        raw = socket.socket()
        if receive_bytes:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        raw.settimeout(_PATIENCE_S)
        raw.connect((self.host, self.port))
        return raw

    def upgraded(self, **options: int) -> socket.socket:
        """Open a WebSocket and say nothing on it."""
        raw = self.connect(**options)
        raw.sendall(
            f"GET /v1/ws HTTP/1.1\r\nHost: {self.name}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {_KEY}\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        head = b""
        while b"\r\n\r\n" not in head:
            got = raw.recv(1)
            if not got:
                raise ConnectionError
            head += got
        return raw

    def session(self, kind: str, **options: int) -> socket.socket:
        """Open a session as a user of this attacker's own."""
        raw = self.upgraded(**options)
        user = {"id": f"{kind}-{self.number}", "name": "A"}
        opening = {"type": "session.open", "companion": "wren", "user": user}
        raw.sendall(frame(0x81, json.dumps(opening).encode()))
        return raw


def frame(head: int, payload: bytes = b"") -> bytes:
    """Return a masked frame (RFC 6455, section 5.2); `head` is its first byte."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65_536:
        length = bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return bytes([head]) + length + b"\0\0\0\0" + payload


def _pour(raw: socket.socket, pieces: Iterator[bytes], *, read: bool) -> None:
    """Send as fast as the server takes it, dropping what it answers, until it ends."""
    raw.setblocking(False)
    left = b""
    ended_at = time.monotonic() + _PATIENCE_S
    while time.monotonic() < ended_at:
        left = left or next(pieces, b"")
        if not left and not read:
            time.sleep(0.1)
            continue
        readable, writable, _ = select.select([raw] if read else [], [raw] if left else [], [], 0.5)
        if readable and not raw.recv(_PIECE):
            return
        if writable:
            left = left[raw.send(left) :]
            ended_at = time.monotonic() + _PATIENCE_S


def _many(piece: bytes) -> Iterator[bytes]:
    return itertools.repeat(piece * max(1, _PIECE // len(piece)))


def pings(target: Target) -> None:
    """Pings as fast as they go, the pongs read."""
    _pour(target.upgraded(), _many(frame(0x89, b"p" * 8)), read=True)


def pongs(target: Target) -> None:
    """Pings whose pongs are never read."""
    _pour(target.upgraded(receive_bytes=1024), _many(frame(0x89, b"p" * 125)), read=False)


def unasked(target: Target) -> None:
    """Pongs that nobody asked for."""
    _pour(target.upgraded(), _many(frame(0x8A)), read=True)


def continuations(target: Target) -> None:
    """A message of empty continuation frames without end."""
    raw = target.upgraded()
    raw.sendall(frame(0x01, b"{"))
    _pour(raw, _many(frame(0x00)), read=True)


def bytewise(target: Target) -> None:
    """Frames of a message a byte each, one message after the other."""
    message = frame(0x01, b"{") + frame(0x00, b" ") * 62 + frame(0x80, b"}")
    _pour(target.upgraded(), _many(message), read=True)


def junk(target: Target) -> None:
    """Messages that are none, as large as frames may be."""
    _pour(target.upgraded(), _many(frame(0x81, b"[" * 65_000)), read=True)


def handshakes(target: Target) -> None:
    """Connect, upgrade, go, again."""
    for _ in range(100):
        target.upgraded().close()


def connects(target: Target) -> None:
    """Connect, go, again."""
    for _ in range(100):
        target.connect().close()


def pipeline(target: Target) -> None:
    """Requests one after the other that wait for no answer."""
    _pour(target.connect(), _many(f"GET /healthz HTTP/1.1\r\nHost: {target.name}\r\n\r\n".encode()),
          read=False)  # fmt: skip


def requests(target: Target) -> None:
    """Requests as fast as they are answered."""
    with target.connect() as raw:
        while True:
            raw.sendall(f"GET /v1/companions HTTP/1.1\r\nHost: {target.name}\r\n\r\n".encode())
            if not raw.recv(_PIECE):
                return


def headers(target: Target) -> None:
    """One header without end."""
    raw = target.connect()
    raw.sendall(f"GET / HTTP/1.1\r\nHost: {target.name}\r\nX: ".encode())
    _pour(raw, _many(b"x" * _PIECE), read=True)


def lines(target: Target) -> None:
    """Headers without end."""
    raw = target.connect()
    raw.sendall(f"GET / HTTP/1.1\r\nHost: {target.name}\r\n".encode())
    _pour(raw, _many(b"X-Header: x\r\n"), read=True)


def dribble(target: Target) -> None:
    """A header a byte at a time."""
    with target.connect() as raw:
        raw.sendall(f"GET / HTTP/1.1\r\nHost: {target.name}\r\nX: ".encode())
        while True:
            raw.sendall(b"x")
            time.sleep(0.5)


def _importing(target: Target, user: str, body: str) -> socket.socket:
    """Begin an import whose head says how the body comes."""
    raw = target.connect()
    raw.sendall(
        f"POST /v1/relationships/import?user={user}-{target.number} HTTP/1.1\r\n"
        f"Host: {target.name}\r\nContent-Type: application/json\r\n{body}\r\n\r\n".encode()
    )
    return raw


def uploads(target: Target) -> None:
    """Much of an import, and then nothing."""
    raw = _importing(target, "upload", "Content-Length: 190000000")
    _pour(raw, itertools.repeat(b" " * _PIECE, 300), read=True)


def chunks(target: Target) -> None:
    """A body in chunks of a byte without end."""
    raw = _importing(target, "chunks", "Transfer-Encoding: chunked")
    _pour(raw, _many(b"1\r\n \r\n"), read=True)


def unread(target: Target) -> None:
    """Ask for what is large, and read none of it."""
    raw = target.connect(receive_bytes=1024)
    raw.sendall(f"GET /v1/openapi.json HTTP/1.1\r\nHost: {target.name}\r\n\r\n".encode() * 200)
    _pour(raw, iter(()), read=False)


def silent(target: Target) -> None:
    """Connect many times and never say a word."""
    connections = [target.connect() for _ in range(_SILENT)]
    while connections:
        over, _, _ = select.select(connections, [], [], 1.0)
        for connection in over:
            with contextlib.suppress(OSError):
                if connection.recv(1):
                    continue
            connection.close()
            connections.remove(connection)
            connections.append(target.connect())


def idler(target: Target) -> None:
    """Upgrade and never say who."""
    with target.upgraded() as raw:
        while raw.recv(_PIECE):
            pass


def flooder(target: Target) -> None:
    """Drafts in a session as fast as they go."""
    raw = target.session("flooder")
    drafts = (
        frame(0x81, json.dumps({"type": "draft.update", "text": f"{count} {_LONG}"}).encode())
        for count in itertools.count()
    )
    _pour(raw, drafts, read=True)


def slow_reader(target: Target) -> None:
    """A session that asks for much and reads nothing."""
    with target.session("slow", receive_bytes=1024) as raw:
        for count in itertools.count():
            asked = {"type": "draft.update", "text": f"Do you remember number {count}?"}
            raw.sendall(frame(0x81, json.dumps(asked).encode()))
            time.sleep(0.2)


ATTACKS: dict[str, Callable[[Target], None]] = {
    attack.__name__: attack
    for attack in (
        pings, pongs, unasked, continuations, bytewise, junk, handshakes, connects, pipeline,
        requests, headers, lines, dribble, uploads, chunks, unread, silent, idler, flooder,
        slow_reader,
    )
}  # fmt: skip


def main() -> None:
    """Attack until killed."""
    attack, host, port, number = sys.argv[1:]
    if sys.platform == "linux":  # the only system where nobody else is kept waiting at all
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)
    target = Target(host, int(port), int(number))
    while True:
        with contextlib.suppress(OSError):
            ATTACKS[attack](target)
        time.sleep(_AGAIN_S)


if __name__ == "__main__":
    main()
