"""Runs a module that reads files as a program of its own.

Parsers hold the interpreter's lock, and a hostile file takes much time and memory.
"""

import asyncio
import os
import resource
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import IO

from foremind.domain.errors import InvalidMessage, TooLarge

_MAX_BYTES = 2_000_000_000  # of memory for the program
_NICENESS = 10  # those who type have the processor first
_INVALID, _TOO_LARGE = 1, 3  # exit codes
_TOO_MUCH_MEMORY = "body: expected a file that takes less memory to read"


@asynccontextmanager
async def reading(
    module: str, *arguments: str, given: Iterable[bytes], max_s: float
) -> AsyncIterator[IO[bytes]]:
    """Yield a file with what a module writes that is given bytes; it calls `serve_reading`.

    Raises:
        InvalidMessage, TooLarge: what it raised, or it took longer than `max_s` seconds.
    """
    with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as written:
        await asyncio.to_thread(source.writelines, given)
        source.seek(0)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", module, *arguments),
            stdin=source,
            stdout=written,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(max_s):
                _, problem = await process.communicate()
        except TimeoutError:
            raise InvalidMessage(
                f"body: expected a file that can be read within {max_s:g} s", param="body"
            ) from None
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if process.returncode:
            error = TooLarge if process.returncode == _TOO_LARGE else InvalidMessage
            message = problem.decode(errors="replace").strip().rpartition("\n")[2]
            raise error(message or "body: expected a file that can be read", param="body")
        written.seek(0)
        yield written


def serve_reading(read: Callable[[IO[bytes], IO[bytes]], None]) -> None:
    """Run as such a program: `read` is given the file, and one to write to.

    Standard error says what is wrong with the file.
    """
    os.nice(_NICENESS)
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_BYTES, _MAX_BYTES))
    try:
        read(sys.stdin.buffer, sys.stdout.buffer)
    except (InvalidMessage, TooLarge) as error:
        print(error.message, file=sys.stderr)  # noqa: T201 - read by `reading`
        sys.exit(_TOO_LARGE if isinstance(error, TooLarge) else _INVALID)
    except (MemoryError, RecursionError):
        sys.exit(_TOO_MUCH_MEMORY)
