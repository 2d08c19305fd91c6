"""Chat models behind OpenAI-compatible servers: replies, background answers, prefill.

The `response_format` parameter that constrains an answer to a shape.

Servers differ in what they support; the strictest form is tried first.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import httpx2
import msgspec

from foremind.domain.errors import ModelServerError, TemporaryError
from foremind.llm.acting import tools_of
from foremind.llm.chat_model import CutOffText, LoopedText, RestartedText
from foremind.llm.completion_parser import StreamEnding
from foremind.llm.completion_stream import (
    CompletionRequest,
    TextStream,
    stream_completion,
)
from foremind.llm.http_client import ModelEndpoint, ModelHttpClient
from foremind.llm.model_failures import may_be_format_refusal
from foremind.llm.prompt.layout import Message, Prompt
from foremind.llm.reply_ending import SentenceBuffer, loop_period, without_loop
from foremind.llm.slots import (
    Preempted,
    SlotLease,
    prompt_chars,
    prompt_prefix,
    shared_prefix_chars,
)
from foremind.llm.thinking_filter import ThinkingFilter
from foremind.llm.token_accounts import PREFILL_TOKENS, TokenAccount

#: From the strictest to none; a form that a server refused is not tried again.
FORMS = ("json_schema", "json_object with schema", "json_object", "none")

# Limits of lengths and item counts produce grammars that some servers refuse and others compile for
# seconds; `answer_parsing` enforces them instead.
_KEYWORDS = ("type", "enum", "const", "anyOf", "items", "properties")


def response_format(form: int, shape: type[msgspec.Struct]) -> dict[str, Any] | None:
    """Return the `response_format` of `FORMS[form]`, None for the last."""
    name = FORMS[form]
    if name == "none":
        return None
    if name == "json_schema":
        json_schema = {"name": shape.__name__.lower(), "strict": True, "schema": schema_of(shape)}
        return {"type": name, "json_schema": json_schema}
    schema = {"schema": schema_of(shape)} if "schema" in name else {}
    return {"type": "json_object", **schema}


@cache
def schema_of(shape: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the JSON schema of a shape, reduced to keywords that all servers understand."""
    (schema,), parts = msgspec.json.schema_components([shape], ref_template="#/$defs/{name}")
    simplified: dict[str, Any] = _simplified(schema, parts)
    return simplified


def _simplified(schema: Any, parts: dict[str, Any]) -> Any:
    if "$ref" in schema:
        return _simplified(parts[schema["$ref"].rpartition("/")[2]], parts)
    simplified: dict[str, Any] = {}
    for keyword in _KEYWORDS:
        if keyword not in schema:
            continue
        value = schema[keyword]
        if keyword == "anyOf":
            value = [_simplified(choice, parts) for choice in value]
        elif keyword == "items":
            value = _simplified(value, parts)
        elif keyword == "properties":
            value = {name: _simplified(member, parts) for name, member in value.items()}
            simplified["required"] = list(value)
            simplified["additionalProperties"] = False
        simplified[keyword] = value
    return simplified


# Target duration of one prefill chunk: at Enter, the player may have to wait for the rest of it.
_CHUNK_S = 0.05
_MIN_CHUNK_CHARS, _MAX_CHUNK_CHARS = 256, 16_384
# A server that takes this long for a chunk is too slow for restoring its prompt cache.
_SLOW_CHUNK_S = 0.5


def _bends_answers(name: str) -> bool:
    """Return whether a sampler may end an answer in JSON, or keep it from repeating signs."""
    named = name in ("stop", "logit_bias", "min_tokens")
    return named or "penalty" in name or name.startswith(("dry_", "xtc_"))


@dataclass(frozen=True, slots=True)
class ChatModelOptions:
    """The endpoint, the sampling parameters and the time limit of a reply in seconds.

    `self_hosted` says that the operator runs the server: prompt tokens cost nothing. `own` and
    `extra` are as in `ChatModelPolicy`.
    """

    address: ModelEndpoint
    model: str
    max_tokens: int
    temperature: float
    reply_timeout_s: float
    self_hosted: bool = False
    own: frozenset[str] = frozenset()
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def extra_of_answers(self) -> dict[str, Any]:
        """What background requests have of `extra`: not what would end or bend their JSON."""
        return {name: value for name, value in self.extra.items() if not _bends_answers(name)}


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote, its thinking included; `cut_off` where a limit or a loop ended it."""

    text: str
    cut_off: bool = False


class OpenAIChatModel:
    """Streams replies of one model on one server, over a shared client."""

    is_generative = True

    def __init__(
        self,
        options: ChatModelOptions,
        client: ModelHttpClient,
        account: TokenAccount | None = None,
    ) -> None:
        """Args: account: what its tokens are counted for; None counts none."""
        self.options = options
        self._account = account
        self.slots = client.slots
        self._client = client

    @contextmanager
    def connections(self) -> Iterator[tuple[httpx2.AsyncClient, bool]]:
        """Keep the connections to the server open while in the context, and say if it has a key."""
        with self._client.used() as connections:
            yield connections, self._client.has_key

    def stream_reply(self, prompt: Prompt) -> TextStream:
        """Yield the reply as it arrives; closing the generator closes the request.

        Raises:
            ModelServerError: `model_unreachable`, `model_timeout`, `model_busy`, `model_refused`
                or `model_broken`.
            TokenLimitReached, StorageUnavailable: as `TokenAccount.admit`.
        """
        options = self.options
        return self.write(
            prompt.messages(),
            options.max_tokens,
            options.temperature,
            prompt.companion_name,
            tools_of(prompt.offer),
        )

    async def write(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float,
        speaker: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> TextStream:
        """Yield the model's reply to arbitrary messages; otherwise as `stream_reply`.

        Args:
            tools: that it may call; calls are marks of actions in its reply.
            speaker: whose name as a label is left out at its beginning; "" for none.
        """
        with self.slots.foreground():
            self.slots.expected_prompt = messages
            reply = self._write(messages, max_tokens, temperature, "reply", speaker, tools=tools)
            async with aclosing(reply) as pieces:
                async for piece in pieces:
                    yield piece

    async def answer(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        shape: type[msgspec.Struct] | None = None,
        on_preempted: Callable[[], None] = lambda: None,
        check: Callable[[], None] = lambda: None,
        *,
        purpose: str = "background",
    ) -> Completion:
        """Return what the model writes as a background request.

        A request that is preempted starts over; see `SlotPool.background` for how long it may have
        to wait.

        Args:
            shape: constrains the answer, as far as the server supports it.
            on_preempted: called each time the request is preempted.
            check: called before each attempt; what it raises ends this.
            purpose: what its tokens are counted for.

        Raises:
            ModelServerError: as `stream_reply`, but an empty answer is not an error.
            TokenLimitReached, StorageUnavailable: as `TokenAccount.admit`.
        """
        since = asyncio.get_running_loop().time()
        while True:
            try:
                async with self.slots.background(since):
                    check()
                    written = await self._answer(messages, max_tokens, shape, purpose)
            except Preempted:
                on_preempted()
                self._restore_cache()
            else:
                self._restore_cache()
                return written

    def tokens_with_thinking(
        self, max_tokens: int, thinking_tokens: int, available_tokens: int | None
    ) -> int:
        """Return the token limit for an answer, with room for thinking if the model thinks aloud.

        Args:
            available_tokens: upper bound for the sum; None for no bound.
        """
        if not self._client.capabilities_of(self.options.model).thinks:
            return max_tokens
        total = max_tokens + thinking_tokens
        return total if available_tokens is None else max(max_tokens, min(total, available_tokens))

    async def _answer(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        shape: type[msgspec.Struct] | None,
        purpose: str,
    ) -> Completion:
        """Request the strictest form that the server accepts, and remember which that is."""
        capabilities = self._client.capabilities_of(self.options.model)
        last = len(FORMS) - 1
        form = last if shape is None else capabilities.form
        while True:
            try:
                return await self._collect(messages, max_tokens, shape, form, purpose)
            except ModelServerError as error:
                if form == last or not may_be_format_refusal(error):
                    capabilities.form = capabilities.accepted_form  # it was not about the form
                    raise
                # Recorded before the retry, which may be preempted before it is answered.
                form = capabilities.form = form + 1

    async def _collect(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        shape: type[msgspec.Struct] | None,
        form: int,
        purpose: str,
    ) -> Completion:
        capabilities = self._client.capabilities_of(self.options.model)

        def on_accepted() -> None:
            if shape is not None:
                capabilities.form = capabilities.accepted_form = form

        ending = StreamEnding()
        text, looping = "", False
        request = CompletionRequest(
            self.options.model,
            messages,
            max_tokens,
            0.0,
            self.options.reply_timeout_s,
            None if shape is None else response_format(form, shape),
            partial=True,
            own=self.options.own,
            extra=self.options.extra_of_answers,
            account=self._account,
            purpose=purpose,
        )
        stream = stream_completion(self._client, request, ending, on_accepted)
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                text += piece
                if looping := bool(loop_period(text)):
                    break
        thinking = ThinkingFilter()
        thinking.feed(text)
        capabilities.thinks |= thinking.thought or ending.reasoned
        capabilities.thinks_unmarked |= thinking.ended_unmarked
        return Completion(text, ending.cut_off or looping)

    def expect(self, messages: Sequence[Message]) -> None:
        """Prefill what the next prompt is expected to begin with, if prompt tokens cost nothing.

        That happens while nothing else uses the server, and again after background work, which
        evicts it where there are few slots.
        """
        if self.options.self_hosted:
            self.slots.expected_prompt = messages
            self._restore_cache()

    def expects(self, messages: Sequence[Message]) -> bool:
        """Return whether these very messages are the latest that `expect` was given."""
        return self.slots.expected_prompt is messages

    def _restore_cache(self) -> None:
        """Prefill the expected prompt, unless that is in progress. Preempts nothing."""
        expected = self.slots.expected_prompt
        if self.options.self_hosted and expected and not self._client.restoring:
            self._client.restoring.begin(self._restore(), "restore-prompt-cache")

    async def _restore(self) -> None:
        with suppress(Preempted, TemporaryError):  # the next reply then prefills all of it
            async with self.slots.restoring():
                await self._prefill(lambda: self.slots.expected_prompt, stop_if_slow=True)

    async def prefill(self, target: Callable[[], Sequence[Message]]) -> None:
        """Prefill a prompt in chunks, as speculative work.

        Args:
            target: returns the prompt; called before each chunk, so that it may change.

        Raises:
            Preempted: the slot is needed; what was prefilled so far stays cached.
            ModelServerError: as `stream_reply`.
        """
        async with self.slots.speculative():
            await self._prefill(target)

    async def _prefill(
        self, target: Callable[[], Sequence[Message]], *, stop_if_slow: bool = False
    ) -> None:
        chunk: Sequence[Message] = ()
        while True:
            messages = target()
            cached_chars = max(
                self.slots.cached_chars(messages), shared_prefix_chars(chunk, messages)
            )
            if cached_chars >= prompt_chars(messages) and (
                chunk == list(messages) or self._has_read_to_its_end(messages)
            ):
                return
            chunk = prompt_prefix(messages, cached_chars + self._client.prefill_chunk_chars)
            started = time.perf_counter()
            await self._prefill_chunk(chunk)
            elapsed_s = time.perf_counter() - started
            factor = min(2.0, max(0.5, _CHUNK_S / max(elapsed_s, 0.001)))
            self._client.prefill_chunk_chars = round(
                min(
                    _MAX_CHUNK_CHARS,
                    max(_MIN_CHUNK_CHARS, self._client.prefill_chunk_chars * factor),
                )
            )
            if elapsed_s > _SLOW_CHUNK_S and stop_if_slow:
                return

    def _has_read_to_its_end(self, messages: Sequence[Message]) -> bool:
        """Return whether a prompt that was read also ends there, if it ends with a message.

        That of a longer draft lacks what the server's chat template puts behind the message.
        """
        ends_open = not messages or messages[-1]["role"] != "user"
        return ends_open or self.slots.caches(messages)

    async def stream_speculatively(
        self, prompt: Prompt, on_lease: Callable[[SlotLease], None]
    ) -> TextStream:
        """Yield the reply as `stream_reply` does, but as speculative work.

        Args:
            on_lease: called with the slot's lease once the request starts.

        Raises:
            Preempted: the slot is needed.
            ModelServerError: as `stream_reply`.
        """
        options = self.options
        async with self.slots.speculative() as lease:
            on_lease(lease)
            reply = self._write(
                prompt.messages(),
                options.max_tokens,
                options.temperature,
                "ahead",
                prompt.companion_name,
            )
            async with aclosing(reply) as pieces:
                async for piece in pieces:
                    yield piece

    async def _prefill_chunk(self, messages: Sequence[Message]) -> None:
        async with aclosing(
            self._write(messages, PREFILL_TOKENS, 0.0, "ahead", may_be_empty=True)
        ) as pieces:
            async for _ in pieces:
                pass

    async def _write(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float,
        purpose: str,
        speaker: str = "",
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        may_be_empty: bool = False,
    ) -> TextStream:
        capabilities = self._client.capabilities_of(self.options.model)
        thinking = ThinkingFilter(
            speaker=speaker, unmarked=capabilities.thinks_unmarked, sections=True
        )
        ending = StreamEnding()
        is_empty = True
        request = CompletionRequest(
            self.options.model,
            messages,
            max_tokens,
            temperature,
            self.options.reply_timeout_s,
            own=self.options.own,
            extra=self.options.extra,
            tools=tools,
            account=self._account,
            purpose=purpose,
        )
        sentences, said = SentenceBuffer(max_tokens), ""
        async with aclosing(stream_completion(self._client, request, ending)) as pieces:
            async for piece in pieces:
                text = thinking.feed(piece)
                if thinking.restarted:
                    capabilities.thinks_unmarked = True
                    said, is_empty = text, not text
                    sentences.restart()
                    yield RestartedText(sentences.feed(text))
                elif text:
                    said, is_empty = said + text, False
                    if passed := sentences.feed(text):
                        yield passed
                    if period := loop_period(said):
                        yield LoopedText(without_loop(said, period))
                        return
        if remainder := thinking.end(cut_off=ending.cut_off):
            is_empty = False
        remainder = sentences.feed(remainder) + sentences.end(cut_off=ending.cut_off)
        if ending.cut_off:
            yield CutOffText(remainder)
        elif remainder:
            yield remainder
        capabilities.thinks_unmarked |= thinking.ended_unmarked
        capabilities.thinks |= thinking.thought or ending.reasoned
        if is_empty and not may_be_empty:
            thought = thinking.thought or ending.reasoned or capabilities.thinks_unmarked
            raise ModelServerError(_why_empty(thought), code="model_broken")


def _why_empty(thought: bool) -> str:
    if not thought:
        return "The language model gave an empty reply."
    return (
        "The language model thought aloud until its reply was over. Serve it without thinking, "
        "choose one that does not think, or raise FOREMIND_LLM_MAX_TOKENS."
    )
