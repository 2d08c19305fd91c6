"""Stops the embedded PostgreSQL once every process that used it has ended, even by a kill.

A program of its own, on the standard library only:

    postgres_guard.py LOCK USER PID_FILE COMMAND...

The kernel releases the locks of a process that dies, so waiting for the lock is enough.
"""

import fcntl
import os
import signal
import subprocess
import sys


def main(lock: str, user: str, pid_file: str, *command: str) -> None:
    """Wait until nobody holds the lock, then run the command as a user; "" is the current one.

    The command gets a mode: fast, then immediate. A server that neither stops hangs, and is killed.
    """
    with open(lock, "ab") as lock_file:  # noqa: PTH123 - imports as little as possible
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        for mode in ("fast", "immediate"):
            ended = subprocess.run(  # noqa: S603
                [*command, "-m", mode],
                check=False,
                user=user or None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            if ended.returncode == 0:
                return
        try:
            with open(pid_file) as running:  # noqa: PTH123
                os.kill(int(running.readline()), signal.SIGKILL)
        except (OSError, ValueError):
            return  # it is not running


if __name__ == "__main__":
    main(*sys.argv[1:])
