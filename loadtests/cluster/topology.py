"""What is measured: one process, or several workers behind one port, on a given database."""

import asyncio
import os
import random
import re
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

import httpx2
import psutil

_POLL_S = 0.1
_READY = re.compile(rb"is ready on http://127\.0\.0\.1:(\d+)")


class WorkerCluster:
    """`foremind serve` with a number of gateways; a single one is restarted by this class.

    Use as an async context manager.
    """

    def __init__(
        self,
        gateways: int,
        database_url: str,
        data_dir: Path,
        models_dir: Path | None = None,
        nats_url: str | None = None,
    ) -> None:
        self.gateways = gateways
        #: What a server on this database needs in its environment.
        self.environment = {
            "FOREMIND_DATABASE_URL": database_url,
            "FOREMIND_DATA_DIR": str(data_dir),
            "FOREMIND_LOG_LEVEL": "error",
        }
        if models_dir is not None:
            self.environment["FOREMIND_MODELS_PATH"] = str(models_dir)
        if nats_url is not None:
            self.environment["FOREMIND_NATS_URL"] = nats_url
        #: The port that the gateways share.
        self.port = 0
        self._reading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)
        await self.exit_code()

    @property
    def url(self) -> str:
        """The URL that clients are given."""
        return f"ws://127.0.0.1:{self.port}/v1/ws"

    async def exit_code(self) -> int:
        """Wait until the server has ended."""
        if self._reading is not None:
            await self._reading
        return await self.process.wait()

    async def kill_gateway(self, rng: random.Random) -> float:
        """Kill a random gateway, and return the monotonic time at which that was done."""
        if self.gateways > 1:
            rng.choice(workers_of(self.process)).kill()
            return time.monotonic()
        self.process.kill()
        killed_at = time.monotonic()
        await self.exit_code()
        await self._start()
        return killed_at

    async def wait_until_whole(self) -> None:
        """Wait until every gateway serves, and hears what the others announce."""
        while not await self._is_whole():  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(_POLL_S)

    async def _is_whole(self) -> bool:
        ports = [self.port]
        if self.gateways > 1:
            with suppress(psutil.Error, ValueError):
                ports = [own_port(worker, self.port) for worker in workers_of(self.process)]
            if self.port in ports or len(ports) < self.gateways:
                return False
        async with httpx2.AsyncClient() as http:
            return all([await _hears_others(http, port) for port in ports])

    async def _start(self) -> None:
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "foremind", "serve"),
            *("--port", str(self.port), "--workers", str(self.gateways)),
            env=os.environ | self.environment,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self.process.stderr is not None
        output = b""
        while (ready := _READY.search(output)) is None:
            line = await self.process.stderr.readline()
            if not line:
                raise RuntimeError(output.decode())
            output += line
        self.port = int(ready[1])
        self._reading = asyncio.create_task(_print_lines(self.process.stderr))


def workers_of(process: asyncio.subprocess.Process) -> list[psutil.Process]:
    """Return the running worker processes of a server."""
    with suppress(psutil.Error):
        return [
            child
            for child in psutil.Process(process.pid).children()
            if "--as-worker" in child.cmdline() and child.status() != psutil.STATUS_ZOMBIE
        ]
    return []


def own_port(worker: psutil.Process, shared: int) -> int:
    """Return the port on which a worker listens besides the shared one."""
    ports = {
        connection.laddr.port
        for connection in worker.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    (port,) = ports - {shared}
    return int(port)


async def _hears_others(http: httpx2.AsyncClient, port: int) -> bool:
    try:
        answer = await http.get(f"http://127.0.0.1:{port}/readyz")
    except httpx2.TransportError:
        return False
    return answer.is_success and answer.json()["announcements"] == "ok"


async def _print_lines(stream: asyncio.StreamReader) -> None:
    async for line in stream:
        sys.stderr.write(line.decode())
