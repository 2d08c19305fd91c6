"""Selects the chat model of a policy: the companion's own, the server's, or the offline one."""

import asyncio
import os
import re
from collections import OrderedDict
from collections.abc import AsyncGenerator
from datetime import datetime
from weakref import WeakValueDictionary

from foremind.domain.announcements import Announcement, MemoriesForgotten
from foremind.domain.memory import NARRATED_TYPES, Recalled
from foremind.domain.policy import ChatModelPolicy
from foremind.domain.settings.setting_definitions import Ahead
from foremind.domain.settings.settings import KEY_PREFIX, Settings
from foremind.llm.chat_model import ChatModel
from foremind.llm.http_client import ModelEndpoint, ModelHttpClient, load_client
from foremind.llm.openai_model import ChatModelOptions, OpenAIChatModel
from foremind.llm.prompt.layout import Prompt
from foremind.llm.slots import SlotPool
from foremind.llm.token_accounts import TokenAccounts
from foremind.runtime.supervision import TaskSet
from foremind.storage.relationship_store import ErasureWatch
from foremind.text.languages.detection import language_of
from foremind.text.languages.prompt_words import age_in_words, stand_in_words
from foremind.text.languages.utterances import asks, requests
from foremind.text.sentences import QUESTION_MARKS

# Below this relevance a recalled memory is a coincidence rather than an answer.
_RELEVANT = 0.30
_PIECE = re.compile(r"\S+\s*")


class OfflineChatModel:
    """Stands in for a language model: it quotes what is recalled, else says a fixed phrase."""

    is_generative = False

    async def stream_reply(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yield the reply word by word."""
        for piece in _PIECE.findall(compose(prompt)):
            yield piece


def compose(prompt: Prompt) -> str:
    """Return the whole reply; it is deterministic.

    It quotes, in the language of the message, and neither affirms nor denies anything: it does not
    understand what was asked.
    """
    message = prompt.message.strip()
    language = language_of(message, prompt.language)
    is_question = asks(message, language) or requests(message, language)
    known = [
        memory
        for memory in prompt.memories
        if memory.relevance >= _RELEVANT
        and (memory.speaker == "user" or memory.memory_type in NARRATED_TYPES)
        and memory.content.strip().casefold() != message.casefold()
        and not (is_question and memory.content.rstrip().endswith(QUESTION_MARKS))
    ]
    words = stand_in_words(language)
    if known:
        quoted = known[: 2 if is_question else 1]
        return " ".join(_recollection(memory, prompt.now, language) for memory in quoted)
    phrases = (words.unknown if is_question else words.listening).strip().splitlines()
    return phrases[len(prompt.history) // 2 % len(phrases)]


def _recollection(memory: Recalled, now: datetime, language: str) -> str:
    words = stand_in_words(language)
    template = words.happened if memory.memory_type in NARRATED_TYPES else words.told
    age = age_in_words(memory.created_at, now, language)
    said = template.format(age=age, text=memory.content.strip())
    return f"{said[0].upper()}{said[1:]}"


_MAX_CLIENTS = 32  # distinct endpoints whose connections are kept open


class ChatModels:
    """Shares one HTTP client among all policies with the same model server and key.

    The least recently used client is evicted first, and closed once it is idle.
    """

    def __init__(self, settings: Settings, accounts: TokenAccounts | None = None) -> None:
        """Args: accounts: where tokens are counted; None counts none."""
        self._settings = settings
        self._accounts = accounts
        self._offline = OfflineChatModel()
        self._clients: OrderedDict[ModelEndpoint, ModelHttpClient] = OrderedDict()
        # By the server's URL; a pool lives as long as any client of the server.
        self._slots: WeakValueDictionary[str, SlotPool] = WeakValueDictionary()
        self._closing = TaskSet()
        #: Lets background requests notice erasures while they wait for a slot.
        self.forgets = ErasureWatch()
        self._prepared = False

    async def prepare(self, policy: ChatModelPolicy) -> None:
        """Load what a policy's chat model needs, once, so that no player waits for it."""
        if policy.url and not self._prepared:
            await asyncio.to_thread(load_client)
            self._prepared = True

    def on_announcement(self, announcement: Announcement) -> None:
        """Stop restoring prompts after an erasure: they may contain erased text."""
        self.forgets.on_announcement(announcement)
        if isinstance(announcement, MemoriesForgotten):
            for slots in list(self._slots.values()):
                slots.clear_prompts()

    async def invalidate_all(self) -> None:
        """Stop restoring prompts: an erasure may have been missed."""
        for slots in list(self._slots.values()):
            slots.clear_prompts()

    async def close(self) -> None:
        """Close every client."""
        while self._clients:
            await self._clients.popitem()[1].close()
        await self._closing.finish()

    def model_name_for(self, policy: ChatModelPolicy) -> str:
        """Return the name of the model that contexts are prepared for; `offline` without one."""
        return policy.model if policy.url else "offline"

    def chat_model_for(
        self, policy: ChatModelPolicy, relationship_id: int | None = None
    ) -> ChatModel:
        """Return the chat model of a policy; its tokens are counted as by `model_server_for`."""
        return self.model_server_for(policy, relationship_id) or self._offline

    def model_server_for(
        self, policy: ChatModelPolicy, relationship_id: int | None = None
    ) -> OpenAIChatModel | None:
        """Return the chat model on a policy's model server, None without a server.

        Its tokens are counted for a relationship, if any.
        """
        if not policy.url:
            return None
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
            # A provider that bills tokens needs a key; `llm_ahead` can state that cost is no issue.
            self_hosted=address.key is None or policy.ahead != "off",
            own=policy.own,
            extra=policy.extra,
        )
        account = None
        if self._accounts is not None and relationship_id is not None:
            account = self._accounts.of(relationship_id, policy)
        return OpenAIChatModel(options, self._client(address), account)

    def speculation_for(
        self, policy: ChatModelPolicy, relationship_id: int
    ) -> tuple[OpenAIChatModel | None, Ahead]:
        """Return the chat model of a policy, and what it may do before Enter."""
        return self.model_server_for(policy, relationship_id), policy.ahead

    def _client(self, address: ModelEndpoint) -> ModelHttpClient:
        client = self._clients.get(address)
        if client is None:
            slots = self._slots.setdefault(address.url, SlotPool(self._settings.llm_slots))
            client = self._clients[address] = ModelHttpClient(address, slots, self._close_later)
            if len(self._clients) > _MAX_CLIENTS:
                self._clients.popitem(last=False)[1].dismiss()
        self._clients.move_to_end(address)
        return client

    def _close_later(self, client: ModelHttpClient) -> None:
        self._closing.begin(client.close(), "model-client-close")

    def _key(self, policy: ChatModelPolicy) -> str | None:
        if policy.key_env:
            # Any other variable may hold a secret that must not reach a model server.
            allowed = policy.key_env.startswith(KEY_PREFIX)
            return os.environ.get(policy.key_env) if allowed else None
        # The server's key is sent to the server's own URL only, never to a companion's.
        server = self._settings
        if server.llm_key is None or policy.url != server.llm_url:
            return None
        return server.llm_key.reveal()
