"""Drive the Python client for the conformance suite: commands in, events out, as JSON lines.

The arguments are the URL and the options as JSON; `driver.mjs` does the same with the JavaScript
client.
"""

import asyncio
import json
import sys
from typing import Any

from foremind_client import Closed, Conversation, Identity, Refused


def report(event: dict[str, Any]) -> None:
    """Print an event as a JSON line."""
    print(json.dumps(event), flush=True)


async def main(url: str, options: dict[str, Any]) -> None:
    """Run one conversation until standard input ends or the server refuses to continue."""
    tokens: list[dict[str, str]] = options.get("tokens", [])

    async def token() -> str:
        entry = tokens.pop(0) if len(tokens) > 1 else tokens[0]
        if "fails" in entry:
            raise ValueError(entry["fails"])
        return entry["token"]

    world = options.get("world")
    identity = Identity(
        None if world else "wren",
        world=world,
        scene=options.get("scene"),
        user_id="ana",
        token=options.get("token") or (token if tokens else None),
        language=options.get("language"),
    )

    def lost(error: Exception) -> None:
        code = error.code if isinstance(error, Closed) else 0
        report({"type": "state", "state": "waiting", "code": code})

    conversation = Conversation(
        url,
        identity,
        first_retry_s=0.01,
        open_timeout_s=None,
        answer_timeout_s=options.get("answerTimeoutMs", 30_000) / 1000,
        on_lost=lost,
    )
    if "offline" in options:
        await run_commands(conversation)
        return
    commands = asyncio.create_task(run_commands(conversation))
    try:
        async with conversation:
            async for event in conversation.events():
                report(event)
    except Closed as error:
        report({"type": "state", "state": "closed", "code": error.code})
    except Refused:
        report({"type": "state", "state": "closed", "code": 0})
    commands.cancel()


async def run_commands(conversation: Conversation) -> None:
    """Run the commands that arrive on standard input."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        try:
            if "report" in command:
                report({"reported": await conversation.report(command["report"])})
            run(conversation, command)
        except Refused as refused:
            report({"failed": refused.error["code"]})
        except (ValueError, OverflowError) as error:
            report({"type": "rejected", "message": str(error)})


def run(conversation: Conversation, command: dict[str, Any]) -> None:
    """Do what a command says; with `times`, the text is repeated."""
    times = command.get("times", 1)
    for draft in command.get("type", ()):  # within one moment, however busy the machine is
        how = command.get("how", {})
        conversation.type(draft * times, to=how.get("to"), volume=how.get("volume"))
    match command:
        case {"send": text}:
            conversation.send(text * times, **command.get("how", {}))
        case {"state": state}:
            task: str | None = state.get("task")
            conversation.set_state(task and task * times, state.get("flags"))
        case {"cancel": response_id}:
            conversation.cancel(response_id)
        case {"answer": action_id, "result": result}:
            conversation.answer_action(action_id, result)
        case {"clear": True}:
            conversation.clear()


asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
