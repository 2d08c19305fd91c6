"""`python -m foremind` and the `foremind` command."""

import gc
import sys
from importlib.util import find_spec

# Allocations between two collections of young objects, until a server is ready: at Python's 700, a
# tenth of a start or more would be looking through objects that are to stay.
_ALLOCATIONS_WHILE_STARTING = 50_000


def main() -> None:
    """Run the command line, or say in one line that this system cannot."""
    if find_spec("fcntl") is None:
        sys.exit(
            "foremind: the server and its commands need a POSIX system such as Linux. On Windows, "
            "run them in WSL 2 or in a container; clients run anywhere."
        )
    gc.set_threshold(_ALLOCATIONS_WHILE_STARTING)
    from foremind.cli import main as run_command  # noqa: PLC0415 - imports what only POSIX has

    run_command()


if __name__ == "__main__":
    main()
