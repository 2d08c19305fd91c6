"""A game server that hosts a companion: it mints players' tokens and relays in both directions.

The game passes on what each player types and sends; the host passes back what the companion says,
as it is generated. Run it to see two players talk:

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

from foremind_client import Conversation, Identity

TOKEN_S = 600  # lifetime of a token; every connection gets a fresh one


@dataclass
class Player:
    """One player's conversation with the companion."""

    conversation: Conversation
    relay: "asyncio.Task[None]"
    stack: AsyncExitStack


class NpcHost:
    """One companion for every player of a game.

    Args:
        url: the Foremind server's socket.
        companion: the slug of the companion.
        secret: the Foremind server's FOREMIND_AUTH_SECRET; it never leaves the game server.
        on_reply: called with a player's id and the next piece of the reply; None ends the reply.
    """

    def __init__(
        self, url: str, companion: str, secret: str, on_reply: Callable[[str, str | None], None]
    ) -> None:
        self._url = url
        self._companion = companion
        self._secret = secret
        self._on_reply = on_reply
        self._players: dict[str, Player] = {}

    async def join(self, player_id: str, name: str) -> None:
        """Open a player's conversation."""

        async def token() -> str:
            now = int(time.time())
            claims = {
                "sub": player_id,
                "name": name,
                "iat": now,
                "exp": now + TOKEN_S,
                "companions": [self._companion],
                "scopes": ["chat", "memory:read", "host"],
            }
            return jwt.encode(claims, self._secret, algorithm="HS256")

        stack = AsyncExitStack()
        identity = Identity(self._companion, token=token)
        conversation = await stack.enter_async_context(Conversation(self._url, identity))
        relay = asyncio.create_task(self._relay(player_id, conversation))
        self._players[player_id] = Player(conversation, relay, stack)

    async def leave(self, player_id: str) -> None:
        """Close a player's conversation; what was said is remembered."""
        player = self._players.pop(player_id)
        player.relay.cancel()
        await asyncio.gather(player.relay, return_exceptions=True)
        await player.stack.aclose()

    def type(self, player_id: str, draft: str) -> None:
        """Pass on what a player's chat box now reads, so that the companion can recall early."""
        self._players[player_id].conversation.type(draft)

    async def send(self, player_id: str, text: str) -> None:
        """Send a player's message; return once it is stored, while the reply is still streaming."""
        await self._players[player_id].conversation.send(text)

    async def _relay(self, player_id: str, conversation: Conversation) -> None:
        async for event in conversation.events():
            if event["type"] == "response.output_text.delta":
                self._on_reply(player_id, event["delta"])
            elif event["type"] == "response.done":
                self._on_reply(player_id, None)


async def main() -> None:
    """Let two players talk, one after the other; neither learns what the other said."""
    url = os.environ.get("FOREMIND_URL", "ws://127.0.0.1:8770/v1/ws")
    replies_done = asyncio.Queue[str]()

    def on_reply(player_id: str, piece: str | None) -> None:
        print(f"[{player_id}] {piece}" if piece else f"[{player_id}] .")
        if piece is None:
            replies_done.put_nowait(player_id)

    host = NpcHost(url, "wren", os.environ["FOREMIND_AUTH_SECRET"], on_reply)
    messages = {"ana": "I promise to bring the map", "bo": "What did Ana promise?"}
    for player_id, text in messages.items():
        await host.join(player_id, player_id.title())
        for end in range(1, len(text) + 1):
            host.type(player_id, text[:end])
            await asyncio.sleep(0.03)
        await host.send(player_id, text)
        await replies_done.get()
        await host.leave(player_id)


if __name__ == "__main__":
    if "FOREMIND_AUTH_SECRET" not in os.environ:
        sys.exit("Set FOREMIND_AUTH_SECRET to the same secret as the server's.")
    asyncio.run(main())
