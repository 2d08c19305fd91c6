"""Servers in their own process, so that their resource use is measured apart from the clients'."""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import psutil

from foremind.domain.settings.settings import Settings

_START_TIMEOUT_S = 300.0  # patient with a busy machine
_reserved: list[ExitStack] = []  # ports; until the process ends


@contextmanager
def running_server(
    settings: Settings, environment: Mapping[str, str] | None = None
) -> Iterator[tuple[str, psutil.Process]]:
    """Run `foremind serve` on the settings' data folder; yield its URL and its process.

    Args:
        environment: environment variables that override those of this process.
    """
    port = free_port()
    variables = {
        **os.environ,
        "FOREMIND_LOG_LEVEL": "warning",
        **(environment or {}),
        "FOREMIND_DATA_DIR": str(settings.data_dir.absolute()),
        "FOREMIND_MODELS_PATH": str(settings.models_dir.absolute()),
    }
    command = [sys.executable, "-m", "foremind", "serve", "--port", str(port)]
    server = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL)  # noqa: S603
    try:
        wait_for(server, port)
        yield f"ws://127.0.0.1:{port}/v1/ws", psutil.Process(server.pid)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


@contextmanager
def quiet_server(command: Sequence[str], port: int) -> Iterator[psutil.Process]:
    """Run another program that listens on a port, discard its output, and yield its process."""
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        wait_for(server, port)
        yield psutil.Process(server.pid)
    finally:
        server.terminate()
        server.wait()


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU time that a process has used, in seconds; 0 if it has ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def free_port(in_row: int = 1) -> int:
    """Return an unused port of this machine, which no other call returns while this process runs.

    It lies below the ports that systems give to outgoing connections, so that none of those takes
    it before the caller listens.

    Args:
        in_row: how many ports are unused, counted from the one returned.
    """
    while True:
        first = random.randrange(10_000, 32_000)  # noqa: S311 - a port is no secret
        with ExitStack() as reserved:
            try:
                for port in range(first, first + in_row):
                    reserved.enter_context(_reserve(port))
            except OSError:
                continue
            _reserved.append(reserved.pop_all())
            return first


def _reserve(port: int) -> socket.socket:
    """Reserve a port on which nothing listens, by UDP, which leaves TCP to the caller.

    Raises:
        OSError: it is in use or reserved, perhaps by another process.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", port))
    reservation = socket.socket(type=socket.SOCK_DGRAM)
    try:
        reservation.bind(("127.0.0.1", port))
    except OSError:
        reservation.close()
        raise
    return reservation


def wait_for(server: "subprocess.Popen[bytes]", port: int) -> None:
    """Wait until a server accepts connections.

    Raises:
        SystemExit: the server ended, or did not listen in time.
    """
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    server.kill()
    sys.exit("The server did not start in time.")
