"""Stops the embedded PostgreSQL once every process that used it has ended, even by a kill.

A program of its own, on the standard library only: `postgres_guard.py LOCK USER COMMAND...`.
The kernel releases the locks of a process that dies, so waiting for the lock is enough.
"""

import fcntl
import subprocess
import sys


def main(lock: str, user: str, *command: str) -> None:
    """Wait until nobody holds the lock, then run the command as a user; "" is the current one."""
    with open(lock, "ab") as lock_file:  # noqa: PTH123 - imports as little as possible
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        subprocess.run(  # noqa: S603
            command,
            check=False,
            user=user or None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
