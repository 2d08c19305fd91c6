"""A game server that hosts a companion for its players: it signs them in, and relays both ways.

The game tells the host what each player types and says; the host tells the game what the companion
says, word by word. Run it to see two players talk:

    FOREMIND_AUTH_SECRET=... foremind serve
    FOREMIND_AUTH_SECRET=... python examples/npc_host.py
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

import jwt

from foremind.client import Conversation, Identity

TOKEN_S = 600  # a token's life; every connection gets a fresh one


@dataclass
class Seat:
    """One player beside the companion."""

    mind: Conversation
    relay: "asyncio.Task[None]"
    stack: AsyncExitStack


class NpcHost:
    """One companion for every player of a game.

    Args:
        url: the Foremind server's socket.
        companion: the slug of whom the players talk with.
        secret: what the server knows as FOREMIND_AUTH_SECRET; it never leaves the game server.
        says: called with a player's id and the next words for that player; None ends a reply.
    """

    def __init__(
        self, url: str, companion: str, secret: str, says: Callable[[str, str | None], None]
    ) -> None:
        self._url = url
        self._companion = companion
        self._secret = secret
        self._says = says
        self._seats: dict[str, Seat] = {}

    async def join(self, player: str, name: str) -> None:
        """A player comes near."""

        async def token() -> str:
            now = int(time.time())
            claims = {
                "sub": player,
                "name": name,
                "iat": now,
                "exp": now + TOKEN_S,
                "companions": [self._companion],
                "scopes": ["chat", "memory:read", "host"],
            }
            return jwt.encode(claims, self._secret, algorithm="HS256")

        stack = AsyncExitStack()
        who = Identity(self._companion, token=token)
        mind = await stack.enter_async_context(Conversation(self._url, who))
        relay = asyncio.create_task(self._relay(player, mind))
        self._seats[player] = Seat(mind, relay, stack)

    async def leave(self, player: str) -> None:
        """A player goes away; what was said is remembered."""
        seat = self._seats.pop(player)
        seat.relay.cancel()
        await asyncio.gather(seat.relay, return_exceptions=True)
        await seat.stack.aclose()

    def typed(self, player: str, draft: str) -> None:
        """A player's chat box now reads `draft`: the companion recalls while it is typed."""
        self._seats[player].mind.type(draft)

    async def said(self, player: str, text: str) -> None:
        """A player pressed Enter; returns once it is stored, while the reply is still spoken."""
        await self._seats[player].mind.send(text)

    async def _relay(self, player: str, mind: Conversation) -> None:
        async for event in mind.events():
            if event["type"] == "response.output_text.delta":
                self._says(player, event["delta"])
            elif event["type"] == "response.done":
                self._says(player, None)


async def main() -> None:
    """Two players who do not know of each other."""
    url = os.environ.get("FOREMIND_URL", "ws://127.0.0.1:8770/v1/ws")
    over = asyncio.Queue[str]()

    def says(player: str, words: str | None) -> None:
        print(f"[{player}] {words}" if words else f"[{player}] .")
        if words is None:
            over.put_nowait(player)

    host = NpcHost(url, "wren", os.environ["FOREMIND_AUTH_SECRET"], says)
    for player, text in (("ana", "I promise to bring the map"), ("bo", "What did Ana promise?")):
        await host.join(player, player.title())
        for end in range(1, len(text) + 1):
            host.typed(player, text[:end])
            await asyncio.sleep(0.03)
        await host.said(player, text)
        await over.get()
        await host.leave(player)


if __name__ == "__main__":
    if "FOREMIND_AUTH_SECRET" not in os.environ:
        sys.exit("Set FOREMIND_AUTH_SECRET to what the server has.")
    asyncio.run(main())
