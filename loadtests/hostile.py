"""`make hostile`: honest typists beside slow readers, flooders and idlers who never say a word.

The same typists type in quiet and in hostile rounds by turns, so that drift hits both; what counts
is how much later one Enter in a hundred is answered. The hostile crowd is a process of its own that
yields to the others: attackers bring their own machines. Beside Enter stands how late this process
itself was woken: where one time in a hundred that is as long, the machine was measured, not the
server.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil
import uvloop

from foremind.client import Client, Closed, connect
from foremind.settings import load_settings
from foremind.testing.server_process import running_server

RESULTS = Path(__file__).parent / "results"
_KEYS_PER_S = 4.0
_ENTER_AFTER_S = 0.2
_TEXT = "Do you remember the old boat?"
_NAP_S = 0.01
_MEET_S = 2.0  # the crowd is in place by then
_LONG = "x" * 7000  # what flooders and slow readers send


def main() -> None:
    """Run, print, write `hostile.json`; exit with 1 where Enter suffers by more than a fifth."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--each", type=int, default=50, help="typists, and of each kind of hostile")
    parser.add_argument("--rounds", type=int, default=3, help="quiet and hostile ones")
    parser.add_argument("--messages", type=int, default=4, help="of a typist in a round")
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.attack:
        os.nice(19)
        uvloop.run(_attack(options.attack, options.each))
        return
    settings = load_settings()
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="hostile-", dir=settings.data_dir) as scratch,
        running_server(settings.in_scratch(Path(scratch))) as (url, process),
    ):
        report = uvloop.run(_compare(url, process, options))
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps(report, indent=2)
    (RESULTS / "hostile.json").write_text(text + "\n")
    print(text)
    if report["p99_ratio"] > 1.2 or report["errors"]:
        sys.exit("Enter suffers.")


async def _compare(
    url: str, process: psutil.Process, options: argparse.Namespace
) -> dict[str, Any]:
    taken: dict[str, list[float]] = {"quiet": [], "hostile": []}
    late: dict[str, list[float]] = {"quiet": [], "hostile": []}
    memory: dict[str, int] = {}
    await _round(url, options, [])  # warms up
    for _ in range(options.rounds):
        with _watched(late["quiet"]):
            taken["quiet"] += await _round(url, options, [])
        memory.setdefault("before_kib", process.memory_info().rss // 1024)
        command = [sys.executable, "-m", "loadtests.hostile", "--attack", url]
        crowd = await asyncio.create_subprocess_exec(*command, "--each", str(options.each))
        try:
            await asyncio.sleep(_MEET_S)
            with _watched(late["hostile"]):
                taken["hostile"] += await _round(url, options, [])
            memory["hostile_kib"] = process.memory_info().rss // 1024
        finally:
            crowd.kill()
            await crowd.wait()
    figures = {}
    for name, values in taken.items():
        cuts = quantiles(values, n=100)
        figures[name] = {
            "sent": len(values),
            "p50_ms": round(cuts[49], 2),
            "p99_ms": round(cuts[98], 2),
            "woken_late_p99_ms": round(quantiles(late[name], n=100)[98], 2),
        }
    wanted = 2 * options.rounds * options.each * options.messages
    return {
        "of_each_kind": options.each,
        "enter_to_accepted": figures,
        "p99_ratio": round(figures["hostile"]["p99_ms"] / figures["quiet"]["p99_ms"], 3),
        "p50_ratio": round(figures["hostile"]["p50_ms"] / figures["quiet"]["p50_ms"], 3),
        "errors": wanted - sum(map(len, taken.values())),
        "server_memory": memory,
    }


@contextlib.contextmanager
def _watched(late: list[float]) -> Iterator[None]:
    """Take how many milliseconds late this process is woken."""

    async def sleep() -> None:
        while True:
            due = time.perf_counter() + _NAP_S
            await asyncio.sleep(_NAP_S)
            late.append((time.perf_counter() - due) * 1000)

    sleeper = asyncio.create_task(sleep())
    try:
        yield
    finally:
        sleeper.cancel()


async def _round(url: str, options: argparse.Namespace, taken: list[float]) -> list[float]:
    async with asyncio.TaskGroup() as group:
        for number in range(options.each):
            group.create_task(_honest(url, number, options.messages, taken))
    return taken


async def _honest(url: str, number: int, messages: int, taken: list[float]) -> None:
    draw = random.Random(number)
    async with connect(url) as client:
        await client.open_session("wren", user_id=f"honest-{number}", name="H")
        await asyncio.sleep(draw.uniform(0, len(_TEXT) / _KEYS_PER_S))
        accepted: asyncio.Queue[float] = asyncio.Queue()
        reader = asyncio.create_task(_hear(client, accepted))
        for _ in range(messages):
            for end in range(1, len(_TEXT) + 1):
                await asyncio.sleep(draw.expovariate(_KEYS_PER_S))
                await client.draft(_TEXT[:end])
            await asyncio.sleep(_ENTER_AFTER_S)
            pressed = time.perf_counter()
            await client.send(_TEXT)
            taken.append((await accepted.get() - pressed) * 1000)
        reader.cancel()


async def _hear(client: Client, accepted: "asyncio.Queue[float]") -> None:
    while True:
        if (await client.next_event())["type"] == "message.accepted":
            accepted.put_nowait(time.perf_counter())


async def _attack(url: str, each: int) -> None:
    """Be hostile until killed; whoever is thrown out comes back after a while."""
    async with asyncio.TaskGroup() as group:
        for number in range(each):
            for kind in (_slow_reader, _flooder, _idler):
                group.create_task(_again_and_again(kind, url, number))


async def _again_and_again(kind: Any, url: str, number: int) -> None:
    while True:
        with contextlib.suppress(Closed, OSError, TimeoutError):
            await kind(url, number)
        await asyncio.sleep(1.0)


async def _flooder(url: str, number: int) -> None:
    """Send drafts as fast as they go."""
    async with connect(url) as client:
        await client.open_session("wren", user_id=f"flooder-{number}", name="F")
        reader = asyncio.create_task(_drop(client))
        try:
            for count in range(1_000_000):
                await client.draft(f"{count} {_LONG}")
        finally:
            reader.cancel()


async def _slow_reader(url: str, number: int) -> None:
    """Ask for much and read nothing."""
    host, _, port = url.removeprefix("ws://").partition("/")[0].partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    writer.write(
        f"GET /v1/ws HTTP/1.1\r\nHost: {host}:{port}\r\n"
        "Upgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    await reader.readuntil(b"\r\n\r\n")
    reader._transport.pause_reading()  # type: ignore[attr-defined]
    opening = {"type": "session.open", "companion": "wren",
               "user": {"id": f"slow-{number}", "name": "S"}}  # fmt: skip
    writer.write(_frame(json.dumps(opening)))
    for count in range(1_000_000):
        asked = {"type": "draft.update", "text": f"Do you remember number {count}?"}
        writer.write(_frame(json.dumps(asked)))
        await writer.drain()
        await asyncio.sleep(0.2)


async def _idler(url: str, _: int) -> None:
    """Connect and never say who."""
    async with connect(url) as client:
        await client.next_event()


async def _drop(client: Client) -> None:
    async for _ in client.events():
        pass


def _frame(text: str) -> bytes:
    """Return a masked text frame (RFC 6455, section 5.2)."""
    payload = text.encode()
    head = bytes([0x81, 0x80 | len(payload)]) if len(payload) < 126 else (
        bytes([0x81, 0x80 | 126]) + len(payload).to_bytes(2)
    )  # fmt: skip
    return head + b"\0\0\0\0" + payload


if __name__ == "__main__":
    main()
