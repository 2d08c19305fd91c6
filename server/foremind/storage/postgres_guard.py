"""Stops the embedded PostgreSQL once every process that used it is gone, however it went.

A program of its own, which needs nothing but the standard library: `guard.py LOCK USER COMMAND...`.
The kernel gives up the locks of whoever dies, so waiting for the lock is all that it does.
"""

import fcntl
import subprocess
import sys


def main(lock: str, user: str, *command: str) -> None:
    """Wait until nobody holds the lock, then run the command as a user; "" is one's own."""
    with open(lock, "ab") as held:  # noqa: PTH123 - as little as possible is imported
        fcntl.flock(held, fcntl.LOCK_EX)
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
