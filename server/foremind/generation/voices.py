"""Which voice a companion has: its own model server, the server's, or none."""

import asyncio
import os
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from foremind.generation.offline import OfflineVoice
from foremind.generation.slots import Slots
from foremind.generation.voice import Voice
from foremind.memory.forgets import Forgets
from foremind.policies import VoicePolicy
from foremind.settings import Ahead, Settings
from foremind.settings_parsing import KEY_PREFIX
from foremind.storage.forgetting import MemoriesForgotten
from foremind.storage.notifications import Announcement
from foremind.supervision import TaskSet

if TYPE_CHECKING:
    from foremind.generation.model_client import ModelAddress, ModelClient
    from foremind.generation.model_server import ModelServer

_MOST_CLIENTS = 32  # distinct addresses and keys whose connections are kept open


class Voices:
    """Shares one client among all who ask the same model server with the same key.

    The least recently used goes first, and is closed when nobody uses it any longer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._offline = OfflineVoice()
        self._clients: OrderedDict[ModelAddress, ModelClient] = OrderedDict()
        # By the server's address; they live as long as any client of it.
        self._slots: WeakValueDictionary[str, Slots] = WeakValueDictionary()
        self._closing = TaskSet()
        #: For whoever waits for a model, with something to ask of it.
        self.forgets = Forgets()
        self._loading = asyncio.Lock()
        self._loaded = False

    async def prepare(self, policy: VoicePolicy) -> None:
        """Load what a policy's voice needs, where that was not done: no player waits for it."""
        if not policy.url:
            return
        async with self._loading:
            if not self._loaded:
                await asyncio.to_thread(_rehearse)
                self._loaded = True

    def heard(self, announcement: Announcement) -> None:
        """Learn that something was forgotten: no prompt with it is read again."""
        self.forgets.heard(announcement)
        if isinstance(announcement, MemoriesForgotten):
            for slots in list(self._slots.values()):
                slots.forget()

    async def close(self) -> None:
        """Close every client."""
        while self._clients:
            await self._clients.popitem()[1].close()
        await self._closing.finish()

    def model_of(self, policy: VoicePolicy) -> str:
        """Name the model that contexts are made for; `offline` without one."""
        return policy.model if policy.url else "offline"

    def voice_of(self, policy: VoicePolicy) -> Voice:
        """Return the voice that speaks under a policy."""
        return self.server_of(policy) or self._offline

    def server_of(self, policy: VoicePolicy) -> "ModelServer | None":
        """Return the model server of a policy, if there is one."""
        if not policy.url:
            return None
        # The library takes over a second to import, and a server without a model never needs it.
        from foremind.generation.model_client import ModelAddress  # noqa: PLC0415
        from foremind.generation.model_server import (  # noqa: PLC0415
            ModelServer,
            ModelServerOptions,
        )

        server = self._settings
        address = ModelAddress(
            url=policy.url,
            key=self._key(policy),
            connect_timeout_s=server.llm_connect_timeout_s,
            token_timeout_s=server.llm_token_timeout_s,
        )
        options = ModelServerOptions(
            address=address,
            model=policy.model,
            max_tokens=policy.max_tokens,
            temperature=policy.temperature,
            reply_timeout_s=server.llm_reply_timeout_s,
            # Whoever has tokens paid for asks for a key, and may say that it is no matter.
            own=address.key is None or policy.ahead != "off",
        )
        return ModelServer(options, self._client(address))

    def ahead_of(self, policy: VoicePolicy) -> "tuple[ModelServer | None, Ahead]":
        """Return the model server of a policy, and what it may do before Enter."""
        return self.server_of(policy), policy.ahead

    def _client(self, address: "ModelAddress") -> "ModelClient":
        from foremind.generation.model_client import ModelClient  # noqa: PLC0415

        client = self._clients.get(address)
        if client is None:
            slots = self._slots.setdefault(address.url, Slots(self._settings.llm_slots))
            client = self._clients[address] = ModelClient(address, slots, self._close_later)
            if len(self._clients) > _MOST_CLIENTS:
                self._clients.popitem(last=False)[1].dismiss()
        self._clients.move_to_end(address)
        return client

    def _close_later(self, client: "ModelClient") -> None:
        self._closing.begin(client.close(), "model-client-close")

    def _key(self, policy: VoicePolicy) -> str | None:
        if policy.key_env:
            # Any other variable may hold what no model server is to be told.
            ours = policy.key_env.startswith(KEY_PREFIX)
            return os.environ.get(policy.key_env) if ours else None
        # The server's key goes to the server's own URL, never to a companion's other one.
        server = self._settings
        if server.llm_key is None or policy.url != server.llm_url:
            return None
        return server.llm_key.get_secret_value()


def _rehearse() -> None:
    # Here for the same reason: it takes a second, which a server without a model need not spend.
    from foremind.generation.rehearsal import rehearse  # noqa: PLC0415

    rehearse()
