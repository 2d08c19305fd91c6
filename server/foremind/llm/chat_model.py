"""The chat model interface: turns a prompt into a streamed reply."""

from collections.abc import AsyncGenerator
from typing import Protocol

from foremind.llm.prompt.layout import Prompt

#: A server may ignore max_tokens; no model writes tokens longer than this on average.
MAX_CHARS_PER_TOKEN = 16


class RestartedText(str):
    """A piece that restarts the reply: everything before it turned out not to belong to it."""

    __slots__ = ()


class LoopedText(str):
    """The whole of a reply that was stopped in a loop, without the loop."""

    __slots__ = ()


class CutOffText(str):
    """The last piece, maybe empty, of a reply that its token limit cut off."""

    __slots__ = ()


class ChatModel(Protocol):
    """Streams the reply to a prompt.

    `is_generative` is False where replies are fixed phrases and quotations: these are not
    ingested.
    """

    is_generative: bool

    def stream_reply(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yield the reply as it is generated; closing the generator cancels the work behind it.

        A `RestartedText` or `LoopedText` piece replaces everything yielded before it.

        Raises:
            ModelServerError: the language model failed.
        """
