"""The terminal client `foremind chat`, in a real terminal and in a pipe."""

import asyncio
import os
import pty
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest

from foremind.cli.main import app
from foremind.domain.errors import SetupError
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually_async, owner_of
from tests.faults.proxy import fault_proxy


class Screen:
    """The output of a terminal that runs `foremind chat`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.shown = ""
        asyncio.get_running_loop().add_reader(descriptor, self._read)

    def _read(self) -> None:
        try:
            self.shown += os.read(self._descriptor, 4096).decode(errors="replace")
        except OSError:
            asyncio.get_running_loop().remove_reader(self._descriptor)

    async def shows(self, text: str) -> None:
        """Wait until `text` is shown, and discard the output up to it."""
        async with asyncio.timeout(PATIENCE):
            while text not in self.shown:
                await asyncio.sleep(0.02)
        self.shown = self.shown.partition(text)[2]

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._descriptor, keys.encode())


def command(url: str) -> list[str]:
    """Return the command line of a chat with a server."""
    return [sys.executable, "-m", "foremind", "chat", "--url", url, "--user", "Ana"]


@asynccontextmanager
async def terminal(url: str) -> AsyncIterator[Screen]:
    """Run a chat in a terminal of its own; end it with Ctrl-C."""
    master, slave = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *command(url), stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    screen = Screen(master)
    yield screen
    screen.press("\x03")
    assert await process.wait() == 0
    os.close(master)


async def test_the_terminal_client_shows_recall_while_typing(start: StartServer) -> None:
    """The context is ready before Enter, and the reply uses it."""
    server = await start()
    async with terminal(server.url) as screen:
        await screen.shows("the offline model quotes what it recalls")
        await screen.shows("listening")
        screen.press("I promise to name my boat Zephyrine")
        await screen.shows("ready, 0 memories")
        screen.press("\r")
        await screen.shows("Ana: I promise to name my boat Zephyrine")
        await screen.shows("Wren: ")
        await eventually_async(partial(_has_memory, server))
        screen.press("What will I name my boat?")
        await screen.shows("ready, 1 memory")
        screen.press("\r")
        await screen.shows("you told me: “I promise to name my boat Zephyrine”")


async def _has_memory(server: RunningServer) -> bool:
    count = "SELECT count(*) FROM memories"
    return bool(await owner_of(server.app.core).fetchval(count))


async def test_what_is_typed_while_it_starts_is_sent(start: StartServer) -> None:
    """The terminal is not in raw mode yet, and keeps it."""
    server = await start()
    async with terminal(server.url) as screen:
        screen.press("I promise to write\r")
        await screen.shows("Ana: I promise to write")
        await screen.shows("Wren: ")


async def test_a_message_entered_while_disconnected_arrives_later(start: StartServer) -> None:
    """The client shows that it is disconnected, reconnects, and shows the reply."""
    server = await start()
    async with (
        fault_proxy(server.port) as proxy,
        terminal(proxy.url) as screen,
    ):
        await screen.shows("listening")
        proxy.faults.refuses = True
        proxy.cut()
        await screen.shows("trying again")
        await screen.shows("not connected")
        screen.press("I promise to wait for you\r")
        await screen.shows("Ana: I promise to wait for you")
        proxy.faults.refuses = False
        await screen.shows("Wren: ")


async def test_lines_of_a_pipe_are_answered_one_by_one(start: StartServer, tmp_path: Path) -> None:
    """So that scripts can use the client."""
    server = await start()
    process = await asyncio.create_subprocess_exec(
        *command(server.url), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate(
        b"I promise to remember your lamp\n\nWhat did I promise about your lamp?\n"
    )
    assert process.returncode == 0
    assert out.decode().count("Wren: ") == 2
    assert "you told me: “I promise to remember your lamp”" in out.decode()


async def piped(*arguments: str, **variables: str) -> tuple[int | None, str, str]:
    """Run a chat whose only line is "Hello"; return its exit code, its output and its errors."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "foremind", "chat", "--user", "Ana", *arguments,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env=os.environ | variables,
    )  # fmt: skip
    out, error = await process.communicate(b"Hello\n")
    return process.returncode, out.decode(), error.decode()


async def test_any_address_by_which_a_server_is_known_will_do(start: StartServer) -> None:
    """The page's, its host and port, or those of the settings that say where it is."""
    server = await start()
    host = f"127.0.0.1:{server.port}"
    for arguments, variables in (
        (["--url", f"http://{host}"], {}),
        (["--url", f"{host}/"], {}),
        (["--url", f"WS://{host}/v1/ws"], {}),
        ([], {"FOREMIND_URL": f"http://{host}/"}),
        ([], {"FOREMIND_PORT": str(server.port)}),
    ):
        code, out, error = await piped(*arguments, **variables)
        assert (code, error) == (0, ""), error
        assert out.startswith("Wren: ")


async def test_an_unreachable_server_is_a_clear_error() -> None:
    """One line, exit code 1, and no traceback."""
    code, _, error = await piped("--url", "ws://127.0.0.1:1/v1/ws")
    assert (code, error.count("\n")) == (1, 1)
    assert error.startswith("foremind: ws://127.0.0.1:1/v1/ws: no server listens there.")
    assert "foremind serve" in error
    assert "--url" in error


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1", "http://", "://x", "127.0.0.1:port", "ws://a b/", "ws://a:99999/"]
)
def test_what_is_no_address_is_refused_by_name(url: str) -> None:
    """With examples of what is one."""
    with pytest.raises(SetupError, match=r"^--url .*expected the address of a server"):
        app(["chat", "--url", url], standalone_mode=False)
