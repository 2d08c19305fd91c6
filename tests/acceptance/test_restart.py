"""What was accepted survives: a restart, and a kill at any moment."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from foremind.client import connect
from foremind.settings import Settings
from tests.faults.traffic import traffic_on


class Process:
    """`foremind serve` as a process of its own."""

    def __init__(self, settings: Settings, port: int) -> None:
        self.url = f"ws://127.0.0.1:{port}/v1/ws"
        self._port = port
        self._environment = os.environ | {
            "FOREMIND_DATA_DIR": str(settings.data_dir),
            "FOREMIND_PORT": str(port),
            "FOREMIND_LOG_LEVEL": "error",
        }
        if settings.database_url is not None:
            self._environment["FOREMIND_DATABASE_URL"] = settings.database_url.get_secret_value()

    async def start(self) -> None:
        """Start, and wait until it listens."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "foremind",
            "serve",
            env=self._environment,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self._process.stderr is not None
        said = b""
        while b"is ready" not in said:
            line = await self._process.stderr.readline()
            assert line, said.decode()
            said += line

    async def stop(self, how: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        _, _ = await self._process.communicate()
        return self._process.returncode or 0


@asynccontextmanager
async def process(settings: Settings) -> AsyncIterator[Process]:
    """A server process that does not outlive its test."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Process(settings, port)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(signal.SIGKILL)


async def test_the_companion_still_knows_after_a_restart(
    settings: Settings, tmp_path: Path
) -> None:
    """On the embedded database, with Ctrl-C in between; killed or not, none is left running."""
    alone = settings.model_copy(update={"database_url": None, "data_dir": tmp_path / "data"})
    async with process(alone) as server:
        async with connect(server.url) as client:
            await client.open_session("wren", user_id="ana", name="Ana")
            await client.send("I promise to call my boat Zephyrine")
            await client.expect("response.done")
        assert await server.stop(signal.SIGINT) == 0
        await server.start()
        async with connect(server.url) as client:
            opened = await client.open_session("wren", user_id="ana", name="Ana")
            assert opened["turns"][0]["text"] == "I promise to call my boat Zephyrine"
            async with asyncio.timeout(20):
                # Ctrl-C may come before the turn was judged: then the job runs now.
                while True:
                    await client.draft(f"What is my boat called? {uuid.uuid4()}")
                    if (await client.expect("context.ready"))["memories"]:
                        break
            await client.send("What is my boat called?")
            assert "Zephyrine" in (await client.expect("response.done"))["text"]
        await server.stop(signal.SIGKILL)
        await server.start()
        assert await server.stop(signal.SIGTERM) == 0
    assert not (tmp_path / "data" / "postgres" / "postmaster.pid").exists()


@pytest.mark.timeout(3600)
async def test_kills_under_traffic_lose_nothing_and_store_nothing_twice(
    settings: Settings, database_url: str, request: pytest.FixtureRequest
) -> None:
    """`kill -9` at random moments; then the clients' log equals the database."""
    randomness = random.Random(4)
    kills: int = request.config.getoption("--kills")
    async with process(settings) as server:
        async with traffic_on(server.url) as traffic:
            for _ in range(kills):
                await asyncio.sleep(randomness.uniform(0.05, 0.6))
                await server.stop(signal.SIGKILL)
                await server.start()
            await asyncio.sleep(0.5)
        await traffic.check(database_url)
    assert len(traffic.accepted) > kills
