"""What gives a companion words."""

from collections.abc import AsyncGenerator
from typing import Protocol

from foremind.generation.prompt import Prompt


class Voice(Protocol):
    """Answers a prompt piece by piece."""

    def speak(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yield the reply as it is made; closing the generator stops the work behind it.

        Raises:
            ModelServerError: the language model failed.
        """
