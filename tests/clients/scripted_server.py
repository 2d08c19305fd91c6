"""A server that replays one recorded conversation, connection by connection."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

from foremind_eval.processes.server_process import free_port
from tests.clients.placeholders import Placeholders

Step = dict[str, Any]
# Fields of every session.opened, unless a step overrides them.
_OPENED = {
    "relationship_id": "1",
    "user": {"id": "ana", "name": "Ana"},
    "companion": {"slug": "wren", "name": "Wren", "greeting": "", "greetings": 1},
    "turns": [],
}


class ScriptedServer:
    """Replays the steps; a command is given to the client once it has told the last event.

    Values are `Placeholders`: `$here` is the client's URL, `$elsewhere` another one that leads here
    too, and nothing listens at `$nowhere`.
    """

    def __init__(
        self,
        connections: list[list[Step]],
        command: Callable[[Step, Step | None], Awaitable[None]],
    ) -> None:
        self._connections = connections
        self._command = command
        self._values = Placeholders()
        self._next_connection = 0
        self._last_sent: Step | None = None  # its type and number
        #: Resolves when all steps are done; fails with the first unexpected frame.
        self.played: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def listen_at(self, url: str) -> None:
        """Record the URL under which the recording is played."""
        self._values.known |= {
            "$here": url,
            "$elsewhere": f"{url}?gateway=2",
            "$nowhere": f"ws://127.0.0.1:{free_port()}/v1/ws",
        }

    async def play(self, socket: ServerConnection) -> None:
        """Replay the steps of the next connection."""
        number = self._next_connection
        self._next_connection += 1
        try:
            assert number < len(self._connections), "one connection more than expected"
            for step in self._connections[number]:
                await self._play(step, socket)
        except Exception as error:
            if not self.played.done():
                self.played.set_exception(error)
            raise
        if number + 1 == len(self._connections) and not self.played.done():
            self.played.set_result(None)
        await socket.wait_closed()

    async def _play(self, step: Step, socket: ServerConnection) -> None:
        match step:
            case {"at": url}:
                assert socket.request is not None
                assert self._values.known[url].endswith(socket.request.path), socket.request.path
            case {"receive": expected}:
                frame = json.loads(await socket.recv())
                assert self._values.match(expected, frame), f"expected {expected}, received {frame}"
            case {"send": event}:
                defaults = _OPENED if event["type"] == "session.opened" else {}
                await socket.send(json.dumps(defaults | self._values.substituted(event)))
                self._last_sent = {"type": event["type"], "seq": event["seq"]}
            case {"close": code}:
                await socket.close(code)
            case {"abort": True}:
                socket.transport.abort()
            case {"command": command}:
                await self._command(command, self._last_sent)
            case _:
                raise AssertionError(f"unknown step {step}")


@asynccontextmanager
async def playing(script: ScriptedServer) -> AsyncIterator[str]:
    """Run the server; yield its URL."""
    async with serve(script.play, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        url = f"ws://127.0.0.1:{port}/v1/ws"
        script.listen_at(url)
        yield url
