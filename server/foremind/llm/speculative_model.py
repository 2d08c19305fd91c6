"""A voice that speaks before anybody has asked, behind a gate that its listener keeps."""

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from foremind.llm.prompt.layout import Prompt
from foremind.llm.slots import SlotLease

if TYPE_CHECKING:
    from foremind.llm.openai_model import OpenAIChatModel


class SpeculativeChatModel:
    """Speaks as long as nobody waits for the server; `keep` makes it an answer."""

    says_new_things = True

    def __init__(self, server: "OpenAIChatModel") -> None:
        self.server = server
        self._seat: SlotLease | None = None

    def speak(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yield the reply as it arrives, as long as nobody waits for the server."""
        return self.server.speak_ahead(prompt, self._sit)

    def keep(self) -> bool:
        """From now on a player waits for this; False where it has not begun or had to go."""
        if self._seat is None or self._seat.displaced:
            return False
        self._seat.keep()
        return True

    def _sit(self, seat: SlotLease) -> None:
        self._seat = seat
