"""Which voice a companion has: its own model server, the server's, or none."""

import asyncio
import os
from collections import OrderedDict
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from foremind.domain.announcements import MemoriesForgotten
from foremind.domain.policy import ChatModelPolicy
from foremind.domain.setting_syntax import KEY_PREFIX
from foremind.domain.settings import Ahead, Settings
from foremind.llm.chat_model import ChatModel
from foremind.llm.offline import OfflineChatModel
from foremind.llm.slots import SlotPool
from foremind.runtime.supervision import TaskSet
from foremind.storage.erasure_watch import ErasureWatch
from foremind.storage.notifications import Announcement

if TYPE_CHECKING:
    from foremind.llm.http_client import ModelEndpoint, ModelHttpClient
    from foremind.llm.openai_model import OpenAIChatModel

_MOST_CLIENTS = 32  # distinct addresses and keys whose connections are kept open


class ChatModels:
    """Shares one client among all who ask the same model server with the same key.

    The least recently used goes first, and is closed when nobody uses it any longer.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._offline = OfflineChatModel()
        self._clients: OrderedDict[ModelEndpoint, ModelHttpClient] = OrderedDict()
        # By the server's address; they live as long as any client of it.
        self._slots: WeakValueDictionary[str, SlotPool] = WeakValueDictionary()
        self._closing = TaskSet()
        #: For whoever waits for a model, with something to ask of it.
        self.forgets = ErasureWatch()
        self._loading = asyncio.Lock()
        self._loaded = False

    async def prepare(self, policy: ChatModelPolicy) -> None:
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

    def model_of(self, policy: ChatModelPolicy) -> str:
        """Name the model that contexts are made for; `offline` without one."""
        return policy.model if policy.url else "offline"

    def voice_of(self, policy: ChatModelPolicy) -> ChatModel:
        """Return the voice that speaks under a policy."""
        return self.server_of(policy) or self._offline

    def server_of(self, policy: ChatModelPolicy) -> "OpenAIChatModel | None":
        """Return the model server of a policy, if there is one."""
        if not policy.url:
            return None
        # The library takes over a second to import, and a server without a model never needs it.
        from foremind.llm.http_client import ModelEndpoint  # noqa: PLC0415
        from foremind.llm.openai_model import (  # noqa: PLC0415
            ChatModelOptions,
            OpenAIChatModel,
        )

        server = self._settings
        address = ModelEndpoint(
            url=policy.url,
            key=self._key(policy),
            connect_timeout_s=server.llm_connect_timeout_s,
            token_timeout_s=server.llm_token_timeout_s,
        )
        options = ChatModelOptions(
            address=address,
            model=policy.model,
            max_tokens=policy.max_tokens,
            temperature=policy.temperature,
            reply_timeout_s=server.llm_reply_timeout_s,
            # Whoever has tokens paid for asks for a key, and may say that it is no matter.
            own=address.key is None or policy.ahead != "off",
        )
        return OpenAIChatModel(options, self._client(address))

    def ahead_of(self, policy: ChatModelPolicy) -> "tuple[OpenAIChatModel | None, Ahead]":
        """Return the model server of a policy, and what it may do before Enter."""
        return self.server_of(policy), policy.ahead

    def _client(self, address: "ModelEndpoint") -> "ModelHttpClient":
        from foremind.llm.http_client import ModelHttpClient  # noqa: PLC0415

        client = self._clients.get(address)
        if client is None:
            slots = self._slots.setdefault(address.url, SlotPool(self._settings.llm_slots))
            client = self._clients[address] = ModelHttpClient(address, slots, self._close_later)
            if len(self._clients) > _MOST_CLIENTS:
                self._clients.popitem(last=False)[1].dismiss()
        self._clients.move_to_end(address)
        return client

    def _close_later(self, client: "ModelHttpClient") -> None:
        self._closing.begin(client.close(), "model-client-close")

    def _key(self, policy: ChatModelPolicy) -> str | None:
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
    from foremind.llm.warm_up import rehearse  # noqa: PLC0415

    rehearse()
