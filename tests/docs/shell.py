"""Runs the commands of a document one after another, as a reader would paste them."""

import asyncio
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from foremind_eval.processes.server_process import free_port
from tests.conftest import ROOT

_READY = " is ready on "
_COMMENT = re.compile(r"(^|\s{2,})#.*$")
_SERVES = re.compile(r"(^|\s)(make serve|foremind (serve|embed)( --\S+ \S+)*)$")


def commands(text: str) -> list[str]:
    """Return the commands of a block, without comments and with continued lines joined."""
    joined = text.replace("\\\n", " ")
    lines = (_COMMENT.sub("", line).strip() for line in joined.splitlines())
    return [line for line in lines if line]


def serves(command: str) -> bool:
    """Tell whether a command runs until it is stopped."""
    return _SERVES.search(command) is not None


@dataclass
class Shell:
    """Where commands run: a working directory, a port that replaces 8770, and a data directory.

    Attributes:
        folder: the working directory, except for `make`, which runs in the checkout.
        settings: further environment variables.
        swaps: replacements, by the text in the documents that they replace.
    """

    folder: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    swaps: Mapping[str, str] = field(default_factory=dict)
    port: int = field(default_factory=partial(free_port, in_row=5))  # and those of its workers

    async def run(self, command: str, expected: int = 0) -> str:
        """Run a command that must end with this status, and return what it printed."""
        process = await self._start(command)
        output = (await process.communicate())[0].decode()
        assert process.returncode == expected, f"{command}\n{output}"
        return output

    @asynccontextmanager
    async def serving(self, command: str) -> AsyncIterator[str]:
        """Run a server for the length of a block; yield the URL of its socket."""
        process = await self._start(command)
        assert process.stdout is not None
        output = b""
        while _READY.encode() not in output:
            line = await process.stdout.readline()
            assert line, f"{command}\n{output.decode()}"
            output += line
        try:
            yield f"ws://127.0.0.1:{self.port}/v1/ws"
        finally:
            os.killpg(process.pid, signal.SIGINT)
            await process.communicate()

    async def _start(self, command: str) -> asyncio.subprocess.Process:
        for documented, actual in {"8770": str(self.port), **self.swaps}.items():
            command = command.replace(documented, actual)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        inherited = {name: value for name, value in os.environ.items() if "MAKE" not in name}
        return await asyncio.create_subprocess_shell(
            command,
            cwd=ROOT if re.search(r"(^|\s)make ", command) else self.folder,
            env=inherited
            | {
                "PATH": path,
                "COLUMNS": "250",
                "FOREMIND_PORT": str(self.port),
                "FOREMIND_DATA_DIR": str(self.folder / "data"),
                **self.settings,
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
