"""Players who talk without a break through the Python client, and note what they are told."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from foremind_client import Conversation, Identity

_PAUSE_S = 0.1  # between a reply and the next message


@dataclass(eq=False)
class Player:
    """One player's log.

    Attributes:
        before_enter_s: how long a finished draft stands before it is sent.
        accepted: the turn id of each accepted message, by its id.
        answered: the ids of messages whose reply was received to its end.
        outages: seconds from each lost connection to the next accepted message.
        lost_at: the monotonic times at which connections were lost.
        gaps: where the number of an event was not one more than that of the event before.
        errors: what the conversation ended with, if it did.
        accepted_ms: from sending each message to its `message.accepted`.
        ready_ms: what the server states in that: from its arrival to the request to the model.
    """

    name: str
    before_enter_s: float = 0.0
    accepted: dict[str, str] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    outages: list[float] = field(default_factory=list)
    lost_at: list[float] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    accepted_ms: list[float] = field(default_factory=list)
    ready_ms: list[float] = field(default_factory=list)
    _silent_since: float | None = None

    async def play(self, url: str) -> None:
        """Talk until cancelled."""
        identity = Identity("wren", user_id=self.name, name=self.name)
        try:
            async with (
                Conversation(
                    url, identity, first_retry_s=0.05, open_timeout_s=None, on_lost=self._on_lost
                ) as wren,
                asyncio.TaskGroup() as group,
            ):
                group.create_task(self._listen(wren))
                while True:
                    await self._talk(wren)
                    await asyncio.sleep(_PAUSE_S)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.errors.append(repr(error))

    async def _talk(self, wren: Conversation) -> None:
        message_id = uuid.uuid4().hex
        text = f"I promise to bring {message_id}"
        wren.type(text)
        await asyncio.sleep(self.before_enter_s)
        sent_at = time.monotonic()
        sending = wren.send(text, message_id)
        answered = wren.say(text, message_id)
        accepted = await sending
        self.accepted_ms.append((time.monotonic() - sent_at) * 1000)
        self.ready_ms.append(accepted["ready_ms"])
        self.accepted[message_id] = accepted["turn_id"]
        if self._silent_since is not None:
            self.outages.append(time.monotonic() - self._silent_since)
            self._silent_since = None
        if (await answered)["type"] == "response.done":
            self.answered.add(message_id)

    async def _listen(self, wren: Conversation) -> None:
        """Check that the numbers of events continue, also from one gateway to another."""
        last = 0
        async for event in wren.events():
            if event["seq"] != last + (not _repeats(event)):
                self.gaps.append((last, event["seq"]))
            last = event["seq"]

    def _on_lost(self, _: Exception) -> None:
        now = time.monotonic()
        self.lost_at.append(now)
        if self._silent_since is None:
            self._silent_since = now


def _repeats(event: dict[str, Any]) -> bool:
    """Return whether an event repeats the number of the one before."""
    return event["type"] == "session.opened" and bool(event["resumed"])


@asynccontextmanager
async def playing(
    url: str, players: int, before_enter_s: float = 0.0
) -> AsyncIterator[list[Player]]:
    """Have a number of players talk inside the block."""
    log = [Player(f"player-{number}", before_enter_s) for number in range(players)]
    tasks = [asyncio.create_task(player.play(url)) for player in log]
    try:
        yield log
    finally:
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
