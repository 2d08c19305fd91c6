"""A language model in the process: a model server's slots and portions, words from a script."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from foremind.domain.errors import ModelServerError
from foremind.domain.policy import ChatModelPolicy
from foremind.domain.settings import Ahead, Settings
from foremind.llm.http_client import ModelEndpoint, ModelHttpClient
from foremind.llm.model_selection import ChatModels
from foremind.llm.openai_model import ChatModelOptions, OpenAIChatModel
from foremind.llm.prompt.layout import Message
from foremind.llm.slots import SlotPool

_ADDRESS = ModelEndpoint("http://localhost/v1", None, connect_timeout_s=5.0, token_timeout_s=30.0)
_OPTIONS = ChatModelOptions(_ADDRESS, "scripted", 400, 0.8, reply_timeout_s=120.0)


class InProcessModel(OpenAIChatModel):
    """Answers without a network.

    Args:
        delay: seconds before each piece; a negative one is a failure.
        reply: the pieces of an answer.
    """

    def __init__(
        self, delay: Callable[[], float], reply: Callable[[Sequence[Message]], Sequence[str]]
    ) -> None:
        super().__init__(_OPTIONS, ModelHttpClient(_ADDRESS, SlotPool(1), lambda _: None))
        self._delay = delay
        self._words = reply

    async def _write(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float,
        *,
        may_be_empty: bool = False,
    ) -> AsyncGenerator[str, None]:
        self.slots.asked(messages)
        for piece in ("",) if may_be_empty else self._words(messages):
            delay = self._delay()
            if delay < 0:
                raise ModelServerError("It failed, as it was to.", code="model_broken")
            await asyncio.sleep(delay)
            yield piece


class SingleChatModel(ChatModels):
    """Gives every companion the same model."""

    def __init__(self, settings: Settings, model: InProcessModel, ahead: Ahead) -> None:
        super().__init__(settings)
        self._model = model
        self._mode = ahead

    def model_of(self, policy: ChatModelPolicy) -> str:
        """Name the model."""
        return "scripted"

    def server_of(self, policy: ChatModelPolicy) -> InProcessModel:
        """Return the model."""
        return self._model

    def ahead_of(self, policy: ChatModelPolicy) -> tuple[OpenAIChatModel, Ahead]:
        """Return the model, and what it may do before Enter."""
        return self._model, self._mode
