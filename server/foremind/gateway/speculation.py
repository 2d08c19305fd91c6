"""Speculative generation: before Enter the model prefills the prompt, or replies behind a gate.

Nothing here is sent, stored or counted as said. A speculative reply is released only if the prompt
at Enter equals the one it was generated from, character by character.

Lays a prompt out so that it shares a prefix with one that the model has cached.

What the earlier prompt recalled stays in its place, and what is newly recalled follows it. Where
that does not fit, or the draft has changed its subject, the fresh layout is used.

How much of a draft's prompt a model prefills before Enter.

A chat template puts a few tokens behind a message, so only a model that has read the very message
that is sent has nothing left to read. Therefore each draft that settles, as most do at the end of a
word, is read to its end.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import structlog

from foremind.domain.clock import Clock, Timer
from foremind.domain.errors import ForemindError
from foremind.domain.settings.setting_definitions import Ahead as SpeculationMode
from foremind.domain.settings.setting_definitions import LayerName
from foremind.domain.turn import SpeculativeWork, Trigger
from foremind.gateway.gated_reply import GatedReply
from foremind.llm.openai_model import OpenAIChatModel
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.llm.prompt.layout import Message, Prompt
from foremind.llm.prompt.sections import Section
from foremind.llm.slots import Preempted, SlotLease
from foremind.runtime.metrics import Metrics
from foremind.runtime.supervision import begin
from foremind.text.sentences import sentence_keys_in
from foremind.text.tokenization import unspaced_chars
from foremind.typeahead.context_cache import PreparedContext


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


_MIN_OVERLAP = 0.5  # share of the recalled lines that must be recalled again
_TAG_TOKENS = 8  # of the tags around a section


def reuse_prefix(earlier: Prompt, fresh: AssembledPrompt) -> AssembledPrompt:
    """Return `fresh` laid out as a continuation of `earlier`, or unchanged.

    The result contains everything in `fresh`; what only `earlier` contained fits `fresh.spare`.
    """
    new = fresh.prompt
    if not earlier.recalled or not _shares_prefix(earlier, new):
        return fresh
    present = [*earlier.recalled, *(section for part in earlier.added for section in part)]
    present_lines = {(section.layer, line) for section in present for line in section.lines}
    new_lines = {(section.layer, line) for section in new.recalled for line in section.lines}
    if len(present_lines & new_lines) < _MIN_OVERLAP * len(present_lines):
        return fresh
    added = tuple(
        extra for section in new.recalled if (extra := _without(section, present_lines)).lines
    )
    if _sentence_keys(added) & _sentence_keys(present) or sentence_keys_in(
        new.message
    ) & _sentence_keys(present):
        return fresh  # a sentence would appear twice
    obsolete = [_without(section, new_lines) for section in present]
    extra_tokens = sum(sum(section.tokens) for section in obsolete) + _TAG_TOKENS * (
        len(added) + len(earlier.added)
    )
    if extra_tokens > fresh.spare:
        return fresh
    tokens = dict(fresh.tokens)
    for section in obsolete:
        tokens[section.layer] = tokens.get(section.layer, 0) + sum(section.tokens)
    known = {memory.id for memory in new.memories}
    prompt = replace(
        new,
        recalled=earlier.recalled,
        added=(*earlier.added, added) if added else earlier.added,
        memories=(
            *new.memories,
            *(memory for memory in earlier.memories if memory.id not in known),
        ),
    )
    return AssembledPrompt(prompt, tokens, fresh.post_reply_behaviours, fresh.spare - extra_tokens)


def _shares_prefix(earlier: Prompt, new: Prompt) -> bool:
    """Return whether everything before the recalled sections, and everything volatile, is equal."""
    return (
        earlier.messages()[:-1] == new.messages()[:-1]
        and earlier.history == new.history  # unanswered turns are part of the last message
        and earlier.instructions == new.instructions
        and earlier.closing == new.closing
        and earlier.emotions == new.emotions
        and earlier.lore.at("depth") == new.lore.at("depth")  # some is before the last message
        and _state_sections(earlier) == _state_sections(new)
        and earlier.now.date() == new.now.date()
    )


def _state_sections(prompt: Prompt) -> list[Section]:
    return [section for section in prompt.recalled if section.layer == "state"]


def _without(section: Section, known: set[tuple[LayerName, str]]) -> Section:
    """Return a section's lines that are not `known`."""
    lines = enumerate(section.lines)
    return section.only([number for number, line in lines if (section.layer, line) not in known])


def _sentence_keys(sections: Sequence[Section]) -> set[int]:
    """Return the keys of the sentences in sections."""
    shapes = (shape for section in sections for shape in section.shapes)
    return {key for shape in shapes if shape is not None for key in shape.keys}


#: The prompt up to the draft and with it, or up to the last message, which does not depend on it.
PrefillPart = Literal["all", "beginning"]

MAX_PREFILLS = 64  #: per message
MAX_SETTLED_PREFILLS = 48  #: of these, before any pause: a message of about as many words
# In a draft that is settled but no sentence: fewer recall something else than more.
_MIN_WORDS = 3
_MIN_UNSPACED_CHARS = 6  # likewise, where no spaces separate words: "昨日、川で魚を"
_SENTENCE_ENDS = (".", "?", "!", "…", "。", "？", "！", "؟", "۔")


def part_to_prefill(draft: str, trigger: Trigger, prefills: int) -> PrefillPart | None:
    """Return the part of the prompt to prefill for a draft, None if nothing more.

    Args:
        trigger: why its context was prepared.
        prefills: how many were begun for this message before.
    """
    if prefills >= (MAX_PREFILLS if trigger == "pause" else MAX_SETTLED_PREFILLS):
        return None
    if trigger == "pause" or ends_sentence(draft) or _has_several_words(draft):
        return "all"
    return None if prefills else "beginning"


def _has_several_words(draft: str) -> bool:
    return len(draft.split()) >= _MIN_WORDS or unspaced_chars(draft) >= _MIN_UNSPACED_CHARS


def ends_sentence(draft: str) -> bool:
    """Return whether a draft ends with a sentence's end."""
    return draft.rstrip().endswith(_SENTENCE_ENDS)


_MAX_REPLIES = 2  # per message
_REPLY_TTL_S = 30.0  # a reply not claimed within this time is dropped

_log = structlog.get_logger("foremind.gateway")


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The messages to prefill, and the prompt to reply to after that, if any."""

    messages: Sequence[Message]
    reply_to: AssembledPrompt | None


class SpeculativeGeneration:
    """Follows the drafts of one session; runs at most one task and keeps at most one reply.

    Args:
        server: returns the current model server and speculation mode.
        assemble: assembles the prompt that a draft would lead to.
        on_piece: called with each piece of a reply once its gate is open.
    """

    def __init__(
        self,
        server: Callable[[], tuple[OpenAIChatModel | None, SpeculationMode]],
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
        self._ending: set[asyncio.Task[None]] = set()  # cancelled, not finished yet
        self._candidate = _Candidate((), None)
        self._prefilled: AssembledPrompt | None = None  # the layout prefilled, or being prefilled
        self._reply: GatedReply | None = None
        self._reply_expiry: Timer | None = None
        self._begin_message()

    def on_settled(self, draft: str) -> None:
        """The draft has settled: prefill it with what was recalled for the one before.

        Its own context may recall the same, or come too late for Enter.
        """
        server, mode = self._server()
        if server is None or mode == "off" or self._prefilled is None:
            return
        if part_to_prefill(draft, "eager", self._prefills) == "all":
            prompt = replace(self._prefilled.prompt, message=draft.rstrip())
            self._prefill(server, prompt.messages())

    def on_context(self, draft: str, context: PreparedContext, trigger: Trigger) -> None:
        """A context is ready for the current draft."""
        server, mode = self._server()
        if server is None or mode == "off":
            return
        part = part_to_prefill(draft, trigger, self._prefills)
        if part is None:
            return
        paused = trigger == "pause"
        # A space after a word is read with the next word.
        assembled = self._assemble(draft if paused else draft.rstrip(), context)
        if part == "all":
            # What is typed next continues the draft, and what was recalled stays in its place.
            assembled = self.reuse_prefix(assembled)
            self._prefilled = assembled
        messages = assembled.prompt.messages()
        replies = mode == "reply" and paused and ends_sentence(draft)
        self._prefill(
            server,
            messages if part == "all" else messages[:-1],
            assembled if replies else None,
            again=paused,
        )

    def _prefill(
        self,
        server: OpenAIChatModel,
        messages: Sequence[Message],
        reply_to: AssembledPrompt | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Prefill a prompt, unless it was the last one and is not to be read `again`."""
        if not again and messages == self._candidate.messages:
            return
        self._prefills += 1
        # A prefill in flight continues with the new prompt, which mostly shares its prefix.
        self._candidate = _Candidate(messages, reply_to)
        if self._task is None:
            self._task = begin(self._run(server), "model-ahead")

    def on_draft(self, text: str) -> None:
        """The draft is now `text`: drop a reply to any other; an empty draft was discarded."""
        server, _ = self._server()
        if server is not None and text:
            server.slots.record_keystroke()
        if self._reply is not None and self._reply.prompt.message != text:
            self._drop_reply()
        reply_to = self._candidate.reply_to
        if reply_to is not None and reply_to.prompt.message != text:
            self._candidate = _Candidate(self._candidate.messages, None)
        if not text:
            self._discard()

    def reset(self) -> None:
        """Drop all speculative work: it may contain erased text."""
        server, _ = self._server()
        if server is not None:
            server.slots.expected_prompt = ()
        self._discard()

    def _discard(self) -> None:
        self._stop_task()
        self._drop_reply()
        self._begin_message()

    def on_enter(self) -> None:
        """Enter was pressed: free the model server for the answer."""
        self._stop_task()

    def reuse_prefix(self, assembled: AssembledPrompt) -> AssembledPrompt:
        """Return the prompt laid out to share the longest prefix with the prefilled one."""
        return (
            assembled
            if self._prefilled is None
            else reuse_prefix(self._prefilled.prompt, assembled)
        )

    def claim(
        self, assembled: AssembledPrompt, server: OpenAIChatModel | None
    ) -> tuple[GatedReply | None, SpeculativeWork]:
        """Hand over the reply generated from exactly this prompt, and begin the next message.

        Also return what was done speculatively that serves this prompt.

        Args:
            server: the model server under the message's own settings.
        """
        work: SpeculativeWork = "prefill" if self._finished else "nothing"
        claimed = None
        if self._reply is not None and self._keep_if_matching(self._reply, assembled, server):
            claimed, self._reply, work = self._reply, None, "reply"
            self._count("reply", "used")
        self._drop_reply()
        self._begin_message()
        return claimed, work

    async def close(self) -> None:
        """Stop all speculative work, and wait until it has ended."""
        self._stop_task()
        self._drop_reply()
        while self._ending:
            await asyncio.wait(self._ending)

    def _keep_if_matching(
        self, reply: GatedReply, assembled: AssembledPrompt, server: OpenAIChatModel | None
    ) -> bool:
        """Return whether a speculative reply answers this prompt, and keep its slot if so."""
        model = reply.model
        return (
            isinstance(model, SpeculativeChatModel)
            and server is not None
            and model.server.options == server.options
            and reply.prompt.messages() == assembled.prompt.messages()
            and reply.alive
            and model.promote()
        )

    def _begin_message(self) -> None:
        self._prefills = self._finished = self._replies = 0
        self._candidate = _Candidate((), None)
        self._prefilled = None

    async def _run(self, server: OpenAIChatModel) -> None:
        """Prefill the prompt, again after each preemption, then generate the reply."""
        try:
            while True:
                try:
                    await server.prefill(lambda: self._candidate.messages)
                    break
                except Preempted:
                    self._count("prefill", "displaced")
            self._task = None
            self._finished += 1
            self._count("prefill", "finished")
            reply_to = self._candidate.reply_to
            if reply_to is not None and self._replies < _MAX_REPLIES:
                self._replies += 1
                self._begin_reply(server, reply_to)
        except asyncio.CancelledError:
            self._count("prefill", "dropped")
            raise
        except Exception as error:  # a failure that persists is reported to the player at Enter
            self._task = None
            self._count("prefill", "failed")
            if not isinstance(error, ForemindError):
                raise  # a defect: logged where the task ends
            _log.warning("prefill.failed", reason=error.code)

    def _begin_reply(self, server: OpenAIChatModel, reply_to: AssembledPrompt) -> None:
        self._drop_reply()
        self._reply = GatedReply(
            SpeculativeChatModel(server), reply_to, self._on_piece, self._clock
        )
        expires_at = self._clock.monotonic() + _REPLY_TTL_S
        self._reply_expiry = self._clock.call_at(expires_at, self._drop_reply)

    def _drop_reply(self) -> None:
        if self._reply_expiry is not None:
            self._reply_expiry.cancel()
            self._reply_expiry = None
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
        def ended(task: "asyncio.Task[None]") -> None:
            self._ending.discard(task)
            if not task.cancelled():
                task.exception()  # retrieved, so that asyncio does not log it

        self._ending.add(task)
        task.add_done_callback(ended)

    def _count(self, kind: str, outcome: str) -> None:
        self._metrics.ahead.labels(kind, outcome).inc()
