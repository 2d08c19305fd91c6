"""Several gateway processes on one machine, which share a port: `foremind serve --workers N`.

The parent holds the port and the embedded database, converts the embedding model, and restarts
workers that end. Each worker is a whole gateway: it accepts connections of the shared port, and
listens on a port of its own, where clients find the sessions that it owns.

Parent and worker hold the two ends of a socket pair. The worker writes a line once it is ready; if
either process dies, even by a kill, the other reads the end of the stream.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import structlog

from foremind.app.configuration import PREFIX
from foremind.app.core import Say, database_url
from foremind.app.listening import bind
from foremind.app.server import check_files
from foremind.domain.clock import Clock, SystemClock
from foremind.domain.errors import Interrupted, SetupError
from foremind.domain.settings.settings import Settings, check_binding, is_loopback
from foremind.retrieval.classifiers import TEXT_FEATURES
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind_models import find_model, ready_model

_READY = b"ready\n"
#: Beyond the grace period for replies, until a worker ends without what hangs, or is killed.
WORKER_STOP_S = 7.0
_ANY_ADDRESS = {"0.0.0.0", "::", ""}  # noqa: S104 - compared with, not bound to

_log = structlog.get_logger("foremind.workers")


class Workers:
    """The worker processes of one parent, each restarted with backoff whenever it ends."""

    def __init__(self, settings: Settings, shared: socket.socket) -> None:
        self._settings = settings
        self._shared = shared
        self._processes: dict[int, asyncio.subprocess.Process] = {}
        self._ready: set[int] = set()  # workers that have been ready at least once
        #: Set once all have been ready, or one ended instead.
        self.started = asyncio.Event()
        self._ended = asyncio.Event()  # a process has ended
        self._stopping = False

    def start(self, supervisor: Supervisor) -> None:
        """Start all workers."""
        for number in range(1, self._settings.workers + 1):
            supervisor.start(f"worker-{number}", partial(self._run, number))

    def check_started(self) -> None:
        """Check, once they have `started`, that all workers are ready.

        Raises:
            SetupError: one of them ended instead; it has printed why.
        """
        if len(self._ready) < self._settings.workers:
            raise SetupError("A worker did not start; it has said why.")

    async def stop(self) -> None:
        """Let the workers finish accepted messages, and wait until they have ended."""
        self._stopping = True
        for process in self._processes.values():
            _send_signal(process, signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.drain_s + WORKER_STOP_S + 1.0):
                while self._processes:
                    self._ended.clear()
                    await self._ended.wait()
        self.kill()

    def kill(self) -> None:
        """End the workers at once, which loses nothing accepted."""
        for process in self._processes.values():
            _send_signal(process, signal.SIGKILL)

    async def _run(self, number: int, loop: SupervisedLoop) -> None:
        """Run one worker until it ends.

        Raises:
            Interrupted: it ended by itself, and is to be started again.
        """
        code = None if self._stopping else await self._run_process(number, loop)
        if self._stopping:
            await asyncio.Event().wait()  # until the supervisor ends this loop
        if number not in self._ready:
            self.started.set()
        _log.error("worker.ended", worker=number, code=code)
        raise Interrupted(f"Worker {number} ended with {code}.")

    async def _run_process(self, number: int, loop: SupervisedLoop) -> int:
        """Start a process, report once it is ready, and return its exit code."""
        here, there = socket.socketpair()
        with here, there:
            here.setblocking(False)
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "foremind", "serve"),
                *("--as-worker", str(self._shared.fileno()), str(there.fileno())),
                env=self._environment(number),
                pass_fds=(self._shared.fileno(), there.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal must reach the parent only
            )
            self._processes[number] = process
            there.close()  # so that the stream ends with the worker
            if self._stopping:  # began while the process was being created
                _send_signal(process, signal.SIGTERM)
            try:
                if await asyncio.get_running_loop().sock_recv(here, len(_READY)):
                    self._on_ready(number)
                    loop.report_progress()
                return await process.wait()
            finally:
                _send_signal(process, signal.SIGKILL)
                await process.wait()
                del self._processes[number]
                self._ended.set()

    def _on_ready(self, number: int) -> None:
        self._ready.add(number)
        if len(self._ready) == self._settings.workers:
            self.started.set()

    def _environment(self, number: int) -> Mapping[str, str]:
        """Return the environment of a worker: settings of its own, and those of the command."""
        settings = self._settings
        port = self._shared.getsockname()[1]
        base = settings.gateway_name or f"{socket.gethostname()}-{port}"
        variables = {
            "WORKERS": "1",
            "HOST": settings.host,
            "PORT": str(settings.port and settings.port + number),
            "DATA_DIR": str(settings.data_dir),
            "GATEWAY_NAME": f"{base}-{number}",
        }
        if origins := _origins(settings, port):
            variables["ALLOWED_ORIGINS"] = ",".join(origins)
        if url := public_url(settings):
            variables["PUBLIC_URL"] = url
        return os.environ | {PREFIX + name: value for name, value in variables.items()}


def public_url(settings: Settings) -> str | None:
    """Return the URL of a worker that clients are told, None if it is unknown.

    Without a setting it is the worker's own port at the address that the server listens on.
    """
    if settings.public_url is not None or settings.host in _ANY_ADDRESS:
        return settings.public_url
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"ws://{host}:{{port}}/v1/ws"


@asynccontextmanager
async def serving_workers(
    settings: Settings, *, clock: Clock | None = None, say: Say = lambda _: None
) -> AsyncIterator[tuple[Workers, int]]:
    """Run several workers inside the block, and yield them with the port that they share.

    They may not be ready yet.

    Raises:
        SetupError: says what the operator must change.
    """
    check_binding(settings)
    check_files(settings)
    clock = clock or SystemClock()
    manifest = find_model(settings.embedding_model, settings.models_dir)
    await asyncio.to_thread(ready_model, manifest, settings.models_dir, TEXT_FEATURES, say)
    async with AsyncExitStack() as stack:
        shared = stack.enter_context(bind(settings))
        supervisor = await stack.enter_async_context(Supervisor(clock, Metrics()))
        await stack.enter_async_context(database_url(settings, say, supervisor, clock))
        workers = Workers(settings, shared)
        stack.push_async_callback(workers.stop)
        workers.start(supervisor)
        yield workers, shared.getsockname()[1]


class Parent:
    """The parent of this worker process, at the other end of a socket pair.

    Args:
        shared_fd, parent_fd: the inherited listening socket and end of the pair.
    """

    def __init__(self, shared_fd: int, parent_fd: int) -> None:
        self.shared = socket.socket(fileno=shared_fd)
        self.shared.setblocking(False)
        self._socket = socket.socket(fileno=parent_fd)
        self._socket.setblocking(False)

    def report_ready(self) -> None:
        """Tell the parent that this worker is ready."""
        with suppress(OSError):  # the parent has ended
            self._socket.send(_READY)

    def when_gone(self, stop: asyncio.Event) -> None:
        """Set an event once the parent has ended, however."""
        loop = asyncio.get_running_loop()

        def on_end() -> None:
            loop.remove_reader(self._socket.fileno())
            stop.set()

        loop.add_reader(self._socket.fileno(), on_end)


def _origins(settings: Settings, port: int) -> list[str]:
    """Return the web origins of the shared port, which are not those of a worker's own port."""
    hosts = {settings.host} | ({"localhost", "127.0.0.1"} if is_loopback(settings.host) else set())
    names = [f"[{host}]" if ":" in host else host for host in sorted(hosts - _ANY_ADDRESS)]
    return [*settings.allowed_origins, *(f"http://{name}:{port}" for name in names)]


def _send_signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(number)
