"""One reply: begun before anything is confirmed, heard only once the gate opens."""

import asyncio
import uuid
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

import structlog

from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError
from foremind.llm.chat_model import ChatModel, RestartedText
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.runtime.supervision import begin

ReplyStatus = Literal["completed", "cancelled", "failed"]

# What is held of a reply: pieces (about tokens) and characters. They leave all at once when the
# gate opens; the voice waits with the rest.
_MOST_HELD = 128
_MOST_HELD_CHARS = 8192

_log = structlog.get_logger("foremind.gateway")


@dataclass(frozen=True, slots=True)
class ReplyResult:
    """How a reply ended; `text` is what the player was shown of it, but what was thinking."""

    status: ReplyStatus
    text: str
    first_token_at: float | None
    error: ForemindError | None


class GatedReply:
    """A voice speaking in a task of its own.

    The request to the language model starts at once; its words wait at a gate until
    `open_gate`, so that nothing unconfirmed is heard.
    """

    def __init__(
        self,
        voice: ChatModel,
        assembled: AssembledPrompt,
        on_piece: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.voice = voice
        self.prompt = assembled.prompt
        self.afterwards = assembled.afterwards
        self._on_piece = on_piece
        self._clock = clock
        self._gate = asyncio.Event()
        self._held: list[str] = []
        self._said: list[str] = []
        self._first_token_at: float | None = None
        #: Ends when the voice has said everything.
        self.task = begin(self._speak(), "reply")

    def open_gate(self) -> None:
        """Let the words be heard, those first that came before."""
        self._gate.set()
        for piece in self._held:
            self._say(piece)
        self._held.clear()

    @property
    def alive(self) -> bool:
        """True unless it was cancelled or has failed."""
        if not self.task.done():
            return self.task.cancelling() == 0
        return not self.task.cancelled() and self.task.exception() is None

    def cancel(self) -> None:
        """Stop speaking; what was heard stays said."""
        self.task.cancel()

    async def result(self) -> ReplyResult:
        """Wait for the end. Cancelling this call does not stop the reply."""
        await asyncio.wait({self.task})
        status: ReplyStatus = "completed"
        error: ForemindError | None = None
        if self.task.cancelled():
            status = "cancelled"
        elif (failure := self.task.exception()) is not None:
            status = "failed"
            error = _as_foremind_error(failure)
        return ReplyResult(status, "".join(self._said), self._first_token_at, error)

    async def _speak(self) -> None:
        async with aclosing(self.voice.speak(self.prompt)) as pieces:
            async for piece in pieces:
                if isinstance(piece, RestartedText):
                    self._said.clear()
                    self._held.clear()
                if not piece:
                    continue
                if self._gate.is_set():
                    self._say(piece)
                else:
                    self._held.append(piece)
                    if len(self._held) >= _MOST_HELD or self._held_chars() >= _MOST_HELD_CHARS:
                        await self._gate.wait()

    def _held_chars(self) -> int:
        return sum(map(len, self._held))

    def _say(self, piece: str) -> None:
        if self._first_token_at is None:
            self._first_token_at = self._clock.monotonic()
        self._said.append(piece)
        self._on_piece(piece)


def _as_foremind_error(failure: BaseException) -> ForemindError:
    if isinstance(failure, ForemindError):
        return failure
    _log.error("reply.failed", reason=type(failure).__name__)
    return ForemindError("The reply failed for an unexpected reason.")
