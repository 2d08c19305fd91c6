"""`python -m foremind` and the `foremind` command."""

import gc
import sys
from importlib.util import find_spec

#: Allocations between two collections of young objects. Python's 700 suit small programs: here a
#: third of a start, and a tenth of a message, would be collecting what is still in use.
YOUNG_ALLOCATIONS = 50_000


def main() -> None:
    """Run the command line, or say in one line that this system cannot."""
    if find_spec("fcntl") is None:
        sys.exit(
            "foremind: the server and its commands need a POSIX system such as Linux. On Windows, "
            "run them in WSL 2 or in a container; clients run anywhere."
        )
    gc.set_threshold(YOUNG_ALLOCATIONS)
    from foremind.cli import main as run_command  # noqa: PLC0415 - imports what only POSIX has

    run_command()


if __name__ == "__main__":
    main()
