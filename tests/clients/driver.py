"""Drives the Python client as the conformance suite says: commands in, events out, as JSON lines.

Started with the URL and the options as JSON; `driver.mjs` does the same with the JavaScript client.
"""

import asyncio
import json
import sys
from typing import Any

from foremind.client import Closed, Conversation, Identity, Refused


def tell(event: dict[str, Any]) -> None:
    """Print what happened."""
    print(json.dumps(event), flush=True)


async def main(url: str, options: dict[str, Any]) -> None:
    """Hold one conversation until standard input ends or the server will have no more of it."""
    tokens: list[dict[str, str]] = options.get("tokens", [])

    async def token() -> str:
        following = tokens.pop(0) if len(tokens) > 1 else tokens[0]
        if "fails" in following:
            raise ValueError(following["fails"])
        return following["token"]

    who = Identity("wren", user_id="ana", token=options.get("token") or (token if tokens else None))

    def lost(error: Exception) -> None:
        code = error.code if isinstance(error, Closed) else 0
        tell({"type": "state", "state": "waiting", "code": code})

    conversation = Conversation(url, who, first_retry_s=0.01, open_timeout_s=None, lost=lost)
    commands = asyncio.create_task(obey(conversation))
    try:
        async with conversation:
            async for event in conversation.events():
                tell(event)
    except Closed as error:
        tell({"type": "state", "state": "closed", "code": error.code})
    except Refused:
        tell({"type": "state", "state": "closed", "code": 0})
    commands.cancel()


async def obey(conversation: Conversation) -> None:
    """Do what standard input says."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await reader.readline():
        match json.loads(line):
            case {"type": text}:
                conversation.type(text)
            case {"send": text}:
                conversation.send(text)
            case {"state": state}:
                conversation.set_state(**state)


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
