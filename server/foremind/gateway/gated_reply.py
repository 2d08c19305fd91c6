"""A reply generated before its message is confirmed, withheld from the client by a gate."""

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

import structlog

from foremind.domain.actions import ActionCall
from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError
from foremind.domain.turn import SpokenSentence
from foremind.llm.acting import ActionMarks, without_actions
from foremind.llm.chat_model import ChatModel, CutOffText, LoopedText, RestartedText
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.llm.speech import EmotionMarks, SpokenSentences, without_marks
from foremind.runtime.supervision import begin

ReplyStatus = Literal["completed", "cancelled", "failed"]

# Buffered behind the gate at most; beyond that the model waits. Everything buffered is emitted at
# once when the gate opens. A piece is about one token.
_MAX_BUFFERED_PIECES = 128
_MAX_BUFFERED_CHARS = 8192

_log = structlog.get_logger("foremind.gateway")


@dataclass(frozen=True, slots=True)
class ReplyResult:
    """How a reply ended; `text` is what the client was sent, without what was discarded.

    `looped` says that it was stopped in a loop; it is not remembered then. `cut_off` says that its
    token limit ended it. `emotion` is the first that it was marked with, `calls` are the actions
    that it asks for.
    """

    status: ReplyStatus
    text: str
    first_token_at: float | None
    error: ForemindError | None
    looped: bool = False
    cut_off: bool = False
    emotion: str | None = None
    calls: Sequence[ActionCall] = ()


class GatedReply:
    """A chat model generating one reply in its own task.

    The request to the model starts at once; its pieces are buffered until `open_gate`, so that
    nothing unconfirmed reaches the client. Marks of emotions and actions are no part of its text.
    """

    def __init__(
        self,
        model: ChatModel,
        assembled: AssembledPrompt,
        on_piece: Callable[[str], None],
        clock: Clock,
    ) -> None:
        self.id = uuid.uuid4().hex
        self.model = model
        self.prompt = assembled.prompt
        self.behaviours = assembled.post_reply_behaviours
        self._on_piece = on_piece
        self._clock = clock
        self._gate = asyncio.Event()
        self._buffered: list[str] = []
        self._emitted: list[str] = []
        self._first_token_at: float | None = None
        self._looped = self._cut_off = False
        self._marks, self._actions = self._new_marks()
        self._sentences: SpokenSentences | None = None
        self._on_sentence: Callable[[SpokenSentence], None] = lambda _: None
        #: Ends with the reply.
        self.task = begin(self._generate(), "reply")

    def open_gate(self, on_sentence: Callable[[SpokenSentence], None] | None = None) -> None:
        """Emit the buffered pieces, and from now on every piece as it arrives.

        Args:
            on_sentence: called with each sentence as soon as it is whole; None if nobody asks.
        """
        if on_sentence is not None:
            self._sentences, self._on_sentence = SpokenSentences(self._marks), on_sentence
        self._gate.set()
        for piece in self._buffered:
            self._emit(piece)
        self._buffered.clear()

    @property
    def alive(self) -> bool:
        """True unless the reply was cancelled or has failed."""
        if not self.task.done():
            return self.task.cancelling() == 0
        return not self.task.cancelled() and self.task.exception() is None

    def cancel(self) -> None:
        """Stop generating; what was emitted stands."""
        self.task.cancel()

    async def result(self) -> ReplyResult:
        """Wait for the end. Cancelling this call does not stop the reply.

        The last sentence of a `completed` reply is whole.
        """
        await asyncio.wait({self.task})
        status: ReplyStatus = "completed"
        error: ForemindError | None = None
        if self.task.cancelled():
            status = "cancelled"
        elif (failure := self.task.exception()) is not None:
            status = "failed"
            error = _as_foremind_error(failure)
        text = "".join(self._emitted)
        if self._sentences is not None and status == "completed":
            for sentence in self._sentences.end(text):
                self._on_sentence(sentence)
            self._sentences = None
        emotion = None if self._marks is None else self._marks.first
        return ReplyResult(
            status,
            text,
            self._first_token_at,
            error,
            self._looped,
            self._cut_off,
            emotion,
            () if self._actions is None or self._looped else tuple(self._actions.calls),
        )

    async def _generate(self) -> None:
        async with aclosing(self.model.stream_reply(self.prompt)) as pieces:
            async for received in pieces:
                piece = str(received)  # no subclass, which cannot be encoded
                if isinstance(received, LoopedText):
                    await self._gate.wait()  # its pieces are sent, and then replaced
                    self._emitted = [without_marks(without_actions(piece), self.prompt.emotions)]
                    self._looped = True
                    return
                self._cut_off = isinstance(received, CutOffText)
                if isinstance(received, RestartedText):
                    self._restart()
                if self._actions is not None:
                    piece = self._actions.feed(piece)
                await self._pass(piece if self._marks is None else self._marks.feed(piece))
        rest = "" if self._actions is None else self._actions.end()
        if self._marks is not None:
            rest = self._marks.feed(rest) + self._marks.end()
        await self._pass(rest)

    async def _pass(self, piece: str) -> None:
        """Emit a piece, or buffer it, waiting for the gate if that is too much."""
        if not piece:
            return
        if self._gate.is_set():
            self._emit(piece)
        else:
            self._buffered.append(piece)
            if self._buffer_full():
                await self._gate.wait()

    def _restart(self) -> None:
        """Forget what was said: it turned out not to belong to the reply."""
        self._emitted.clear()
        self._buffered.clear()
        self._marks, self._actions = self._new_marks()
        if self._sentences is not None:
            self._sentences.restart(self._marks)

    def _new_marks(self) -> tuple[EmotionMarks | None, ActionMarks | None]:
        if not self.model.is_generative:
            return None, None
        emotions, acts = self.prompt.emotions, self.prompt.offer is not None
        return EmotionMarks(emotions) if emotions else None, ActionMarks() if acts else None

    def _buffer_full(self) -> bool:
        if len(self._buffered) >= _MAX_BUFFERED_PIECES:
            return True
        return sum(map(len, self._buffered)) >= _MAX_BUFFERED_CHARS

    def _emit(self, piece: str) -> None:
        if self._first_token_at is None:
            self._first_token_at = self._clock.monotonic()
        self._emitted.append(piece)
        self._on_piece(piece)
        if self._sentences is not None:
            for sentence in self._sentences.feed(piece):
                self._on_sentence(sentence)


def _as_foremind_error(failure: BaseException) -> ForemindError:
    if isinstance(failure, ForemindError):
        return failure
    _log.error("reply.failed", reason=type(failure).__name__)
    return ForemindError("The reply failed for an unexpected reason.")
