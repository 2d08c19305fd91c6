"""What the language model does before Enter: it reads the prompt, or speaks behind a gate.

Speculation: nothing here is sent, stored or counted as said. A reply made ahead is released only if
the prompt that Enter leads to is the one it was made from, to the letter.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from foremind.domain.clock import Clock, Timer
from foremind.domain.errors import ForemindError
from foremind.domain.settings import Ahead as Mode
from foremind.gateway.gated_reply import GatedReply
from foremind.gateway.protocol.messages import DoneAhead
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.llm.prompt.layout import Message
from foremind.llm.prompt.prefix_reuse import staying
from foremind.llm.slots import Preempted
from foremind.llm.speculative_model import SpeculativeChatModel
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin
from foremind.typeahead.context_cache import PreparedContext
from foremind.typeahead.prefetcher import Trigger

if TYPE_CHECKING:
    from foremind.llm.openai_model import OpenAIChatModel

_MOST_READINGS = 8  # for one message
_MOST_SETTLED = 4  # of these, before any pause
_MOST_REPLIES = 2  # for one message
_HELD_S = 30.0  # a reply that nobody asks for by then is dropped
_SENTENCE_ENDS = (".", "?", "!", "…", "。", "？", "！")

_log = structlog.get_logger("foremind.gateway")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """What the model is to read, and what it may answer then."""

    messages: Sequence[Message]
    reply_to: AssembledPrompt | None


class SpeculativeGeneration:
    """Follows one session's drafts; at most one task at a time, and one reply held.

    Args:
        server: the companion's model server and what it may do ahead, as of now.
        assemble: puts the prompt together that a draft would lead to.
        on_piece: called with the words of a reply, once it is heard.
    """

    def __init__(
        self,
        server: Callable[[], "tuple[OpenAIChatModel | None, Mode]"],
        assemble: Callable[[str, PreparedContext], AssembledPrompt],
        on_piece: Callable[[str], None],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._server = server
        self._assemble = assemble
        self._on_piece = on_piece
        self._clock = clock
        self._metrics = metrics
        self._task: asyncio.Task[None] | None = None
        self._ended: set[asyncio.Task[None]] = set()  # cancelled, not over yet
        self._target = _Candidate((), None)
        self._laid: AssembledPrompt | None = None  # the layout that it has read, or is reading
        self._reply: GatedReply | None = None
        self._drop: Timer | None = None
        self._begin()

    def ready(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        """A context is there for the draft as it stands."""
        server, mode = self._server()
        if server is None or mode == "off" or self._readings >= _MOST_READINGS:
            return
        paused = trigger == "pause"
        finished = draft.rstrip().endswith(_SENTENCE_ENDS)
        if not paused and self._readings >= (_MOST_SETTLED if finished else 1):
            return  # what does not depend on the draft is being read already
        fresh = self._assemble(draft, context)
        if paused or finished:  # likely to be sent as it is: a pause then has only to speak
            fresh = self._laid = self.lay(fresh)
            messages = fresh.prompt.messages()
        else:
            messages = fresh.prompt.messages()[:-1]
        speaks = mode == "reply" and paused and finished
        self._readings += 1
        # A reading under way goes on with the new prompt: mostly it begins like the one before.
        self._target = _Candidate(messages, fresh if speaks else None)
        if self._task is None:
            self._task = begin(self._work(server), "model-ahead")

    def typed(self, text: str) -> None:
        """The draft now reads `text`: a reply to anything else is of no use."""
        server, _ = self._server()
        if server is not None and text:
            server.slots.typed()
        if self._reply is not None and self._reply.prompt.message != text:
            self._drop_reply()
        answering = self._target.reply_to
        if answering is not None and answering.prompt.message != text:
            self._target = _Candidate(self._target.messages, None)
        if not text:
            self.forget()

    def forget(self) -> None:
        """Nothing that was laid out or said may be used: something in it may be forgotten."""
        server, _ = self._server()
        if server is not None:
            server.slots.last_wanted = ()
        self._stop_task()
        self._drop_reply()
        self._begin()

    def entered(self) -> None:
        """Enter was pressed: reading makes way for the answer."""
        self._stop_task()

    def lay(self, fresh: AssembledPrompt) -> AssembledPrompt:
        """Return the prompt of a message, laid out so that it begins as what was read does."""
        return fresh if self._laid is None else staying(self._laid.prompt, fresh)

    def take(
        self, asked: AssembledPrompt, server: "OpenAIChatModel | None"
    ) -> tuple[GatedReply | None, DoneAhead]:
        """Hand over the reply that was made from exactly this prompt; a new message begins.

        `server` is that of the message's own settings. Also tells what was done ahead that serves
        this prompt.
        """
        did: DoneAhead = "prefill" if self._finished else "nothing"
        taken = None
        if self._reply is not None and self._answers(self._reply, asked, server):
            taken, self._reply, did = self._reply, None, "reply"
            self._count("reply", "used")
        self._drop_reply()
        self._begin()
        return taken, did

    def _answers(
        self, reply: GatedReply, asked: AssembledPrompt, server: "OpenAIChatModel | None"
    ) -> bool:
        """Tell whether a reply made ahead is the one to this prompt, and have it kept if so."""
        voice = reply.voice
        return (
            isinstance(voice, SpeculativeChatModel)
            and server is not None
            and voice.server.options == server.options
            and reply.prompt.messages() == asked.prompt.messages()
            and reply.alive
            and voice.keep()
        )

    async def close(self) -> None:
        """Stop what is done ahead, and wait for its end."""
        self._stop_task()
        self._drop_reply()
        while self._ended:
            await asyncio.wait(self._ended)

    def _begin(self) -> None:
        self._readings = self._finished = self._replies = 0
        self._target = _Candidate((), None)
        self._laid = None

    async def _work(self, server: "OpenAIChatModel") -> None:
        """Have the prompt read, again where somebody else came first, and then answered."""
        try:
            while True:
                try:
                    await server.read(lambda: self._target.messages)
                    break
                except Preempted:
                    self._count("prefill", "displaced")
            self._task = None
            self._finished += 1
            self._count("prefill", "finished")
            reply_to = self._target.reply_to
            if reply_to is not None and self._replies < _MOST_REPLIES:
                self._replies += 1
                self._speak(server, reply_to)
        except asyncio.CancelledError:
            self._count("prefill", "dropped")
            raise
        except Exception as error:  # Enter will tell the player, if it fails as well
            self._task = None
            self._count("prefill", "failed")
            if not isinstance(error, ForemindError):
                raise  # a defect: it is logged where the task ends
            _log.warning("prefill.failed", reason=error.code)

    def _speak(self, server: "OpenAIChatModel", reply_to: AssembledPrompt) -> None:
        self._drop_reply()
        self._reply = GatedReply(
            SpeculativeChatModel(server), reply_to, self._on_piece, self._clock
        )
        self._drop = self._clock.call_at(self._clock.monotonic() + _HELD_S, self._drop_reply)

    def _drop_reply(self) -> None:
        if self._drop is not None:
            self._drop.cancel()
            self._drop = None
        if self._reply is not None:
            self._count("reply", "dropped")
            self._reply.cancel()
            self._await_end(self._reply.task)
            self._reply = None

    def _stop_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._await_end(self._task)
            self._task = None

    def _await_end(self, task: "asyncio.Task[None]") -> None:
        def over(task: "asyncio.Task[None]") -> None:
            self._ended.discard(task)
            if not task.cancelled():
                task.exception()  # seen: how it ended does not matter to anybody

        self._ended.add(task)
        task.add_done_callback(over)

    def _count(self, kind: str, outcome: str) -> None:
        self._metrics.ahead.labels(kind, outcome).inc()
