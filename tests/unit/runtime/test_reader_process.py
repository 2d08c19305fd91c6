"""Files are read by a program of their own; here, this module is one."""

import os
from typing import IO

from foremind.runtime.reader_process import reading, serve_reading


def read(source: IO[bytes], written: IO[bytes]) -> None:
    """Write the priority of the program, and what it was given."""
    written.write(b"%d %s" % (os.nice(0), source.read()))


async def test_files_are_read_after_whoever_types() -> None:
    """A small archive may have minutes of work in it, which takes the processor from nobody."""
    async with reading(__name__, given=[b"a", b"b"], max_s=60) as file:
        priority, content = file.read().split()
    assert int(priority) > os.nice(0)
    assert content == b"ab"


if __name__ == "__main__":
    serve_reading(read)
