"""A scripted language model in process, with the slots and prefill chunks of a model server."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from foremind.domain.errors import ModelServerError
from foremind.domain.policy import ChatModelPolicy
from foremind.domain.settings.setting_definitions import Ahead
from foremind.domain.settings.settings import Settings
from foremind.llm.http_client import ModelEndpoint, ModelHttpClient
from foremind.llm.model_selection import ChatModels
from foremind.llm.openai_model import ChatModelOptions, OpenAIChatModel
from foremind.llm.prompt.layout import Message
from foremind.llm.slots import SlotPool

_ADDRESS = ModelEndpoint("http://localhost/v1", None, connect_timeout_s=5.0, token_timeout_s=30.0)
_OPTIONS = ChatModelOptions(_ADDRESS, "scripted", 400, 0.8, reply_timeout_s=120.0)


class InProcessModel(OpenAIChatModel):
    """Replies without a network.

    Args:
        delay: seconds before each piece; a negative delay makes the request fail.
        reply: the pieces of the reply to a prompt.
    """

    def __init__(
        self, delay: Callable[[], float], reply: Callable[[Sequence[Message]], Sequence[str]]
    ) -> None:
        super().__init__(_OPTIONS, ModelHttpClient(_ADDRESS, SlotPool(1), lambda _: None))
        self._delay = delay
        self._reply = reply

    async def _write(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float,
        purpose: str,
        speaker: str = "",
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        may_be_empty: bool = False,
    ) -> AsyncGenerator[str, None]:
        self.slots.record_prompt(messages)
        for piece in ("",) if may_be_empty else self._reply(messages):
            delay = self._delay()
            if delay < 0:
                raise ModelServerError("Failed on purpose.", code="model_broken")
            await asyncio.sleep(delay)
            yield piece


class SingleChatModel(ChatModels):
    """Gives every companion the same chat model."""

    def __init__(self, settings: Settings, model: InProcessModel, ahead: Ahead) -> None:
        super().__init__(settings)
        self._model = model
        self._mode = ahead

    def model_name_for(self, policy: ChatModelPolicy) -> str:
        """Return the model's name."""
        return "scripted"

    def model_server_for(
        self, policy: ChatModelPolicy, relationship_id: int | None = None
    ) -> InProcessModel:
        """Return the model."""
        return self._model

    def speculation_for(
        self, policy: ChatModelPolicy, relationship_id: int
    ) -> tuple[OpenAIChatModel, Ahead]:
        """Return the model and its speculation mode."""
        return self._model, self._mode
