"""What gives a companion words."""

from collections.abc import AsyncGenerator
from typing import Protocol

from foremind.llm.prompt.layout import Prompt


class RestartedText(str):
    """A piece with which a reply begins anew: what came before turned out to be no part of it."""

    __slots__ = ()


class ChatModel(Protocol):
    """Answers a prompt piece by piece.

    `says_new_things` is False where replies are fixed phrases and quotations: not to be remembered.
    """

    says_new_things: bool

    def speak(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yield the reply as it is made; closing the generator stops the work behind it.

        A piece that is `RestartedText` takes the place of all before it.

        Raises:
            ModelServerError: the language model failed.
        """
