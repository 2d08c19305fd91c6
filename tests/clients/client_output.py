"""What a client's driver says, line by line, and commands to it."""

import asyncio
import json
from asyncio.subprocess import Process
from typing import Any


class ClientOutput:
    """Keeps all that a driver has said; whoever waits for more learns when it ends."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._changed = asyncio.Condition()
        self._over = False
        #: Every event so far.
        self.seen: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    async def command(self, command: dict[str, Any]) -> None:
        """Give the driver a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        await self._process.stdin.drain()

    async def at(self, position: int) -> dict[str, Any]:
        """Return the event at a position, once there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self.seen) > position or self._over)
        assert position < len(self.seen), f"the client ended after {self.seen}"
        return self.seen[position]

    async def has(self, expected: dict[str, Any]) -> None:
        """Wait until an event with these members was said."""
        position = 0
        while not has_members(await self.at(position), expected):
            position += 1

    async def ended(self) -> None:
        """Wait until everything was read."""
        await self._reading

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            async for line in self._process.stdout:
                async with self._changed:
                    self.seen.append(json.loads(line))
                    self._changed.notify_all()
        finally:
            async with self._changed:
                self._over = True
                self._changed.notify_all()


def has_members(value: Any, expected: Any) -> bool:
    """Return whether a value has all expected members, at any depth."""
    if isinstance(expected, dict):
        return isinstance(value, dict) and all(
            name in value and has_members(value[name], member) for name, member in expected.items()
        )
    return bool(value == expected)
