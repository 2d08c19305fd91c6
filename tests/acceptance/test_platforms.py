"""What runs where something of this system is missing: uvloop, or what only POSIX has."""

import asyncio
import os
import signal
import subprocess
import sys

from foremind.domain.settings.settings import Settings
from foremind_client import Conversation, Identity
from tests.conftest import StartServer

_FOREMIND = "from foremind.__main__ import main; main()"
_CLIENT = """
from foremind_client import Conversation, Identity

async def talk():
    async with Conversation(sys.argv[1], Identity("wren", user_id="ana")) as mind:
        print((await mind.say("I promise to name my boat Zephyrine"))["status"])

asyncio.run(talk())
"""


def _without(*modules: str) -> str:
    """Return code that hides modules; asyncio has imported what it needs of this system."""
    return f"import asyncio, sys; sys.modules.update(dict.fromkeys({modules}))\n"


async def test_the_server_runs_without_uvloop(settings: Settings, database_url: str) -> None:
    """On asyncio's own event loop: it answers, and stops when it is told to."""
    environment = {
        "FOREMIND_DATABASE_URL": database_url,
        "FOREMIND_DATA_DIR": str(settings.data_dir),
        "FOREMIND_MODELS_PATH": str(settings.models_dir.absolute()),
    }
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _without("uvloop") + _FOREMIND, "serve", "--port", "0",
        env=os.environ | environment, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert server.stderr is not None
    output = b""
    while b"Foremind is ready on http" not in output:
        line = await server.stderr.readline()
        assert line, output.decode()
        output += line
    address = output.decode().rpartition("ready on http")[2].split()[0]
    async with Conversation(f"ws{address}/v1/ws", Identity("wren", user_id="ana")) as mind:
        mind.type("I promise to na")
        assert (await mind.say("I promise to name my boat"))["status"] == "completed"
    server.send_signal(signal.SIGINT)
    await server.communicate()
    assert server.returncode == 0


def test_without_posix_the_server_says_where_it_runs() -> None:
    """In one line, instead of the name of a missing module."""
    command = [sys.executable, "-c", _without("fcntl", "resource", "termios") + _FOREMIND, "serve"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (1, "")
    assert len(result.stderr.splitlines()) == 1
    assert "On Windows" in result.stderr


async def test_the_client_needs_nothing_that_only_posix_has(start: StartServer) -> None:
    """A game server on Windows has no such modules."""
    hidden = _without("fcntl", "grp", "pwd", "resource", "termios", "tty", "uvloop")
    server = await start()
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", hidden + _CLIENT, server.url, stdout=subprocess.PIPE
    )
    assert (await program.communicate())[0].split() == [b"completed"]
