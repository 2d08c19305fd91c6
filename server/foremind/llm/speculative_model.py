"""Speculative generation: a reply that is generated before the player presses Enter."""

from collections.abc import AsyncGenerator

from foremind.llm.openai_model import OpenAIChatModel
from foremind.llm.prompt.layout import Prompt
from foremind.llm.slots import SlotLease


class SpeculativeChatModel:
    """Generates a reply as speculative work; `promote` turns it into foreground work."""

    is_generative = True

    def __init__(self, server: OpenAIChatModel) -> None:
        self.server = server
        self._lease: SlotLease | None = None

    def stream_reply(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yield the reply as it arrives, as long as its slot is not needed."""
        return self.server.stream_speculatively(prompt, self._on_lease)

    def promote(self) -> bool:
        """Turn the work into foreground work; return False if it is queued or was preempted."""
        if self._lease is None or self._lease.preempted:
            return False
        self._lease.promote()
        return True

    def _on_lease(self, lease: SlotLease) -> None:
        self._lease = lease
