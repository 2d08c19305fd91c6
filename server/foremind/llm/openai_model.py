"""Any OpenAI-compatible server, with limits on everything it could do wrong."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec
import openai

from foremind.domain.errors import ModelServerError
from foremind.llm.chat_model import RestartedText
from foremind.llm.http_client import ModelEndpoint, ModelHttpClient
from foremind.llm.prompt.layout import Message, Prompt
from foremind.llm.prompt.prefill_chunks import beginning, length, shared
from foremind.llm.response_format import FORMS, response_format
from foremind.llm.slots import Preempted, SlotLease
from foremind.llm.stream_events import StreamEnding, StreamParser
from foremind.llm.stream_limits import StreamLimitExceeded, expect
from foremind.llm.thinking_filter import ThinkingFilter

Pieces = AsyncGenerator[str, None]

#: A server may ignore max_tokens; no model writes tokens longer than this on average.
MAX_CHARS_PER_TOKEN = 16

# A portion of a prompt that is read ahead: as much as the server reads in about this time, because
# whoever presses Enter may have to wait for the rest of it.
_PORTION_S = 0.05
_LEAST_CHARS, _MOST_CHARS = 256, 16_384
# A server that takes so long for a portion is not worth reading a prompt again on.
_SLOW_S = 0.5
# With these a server says that it does not know a form; others have other reasons.
_FORM_REFUSED = (400, 404, 415, 422, 500, 501)
# With these it says that it will not take what it is given: a filter does not like it, or it is too
# long. The same again is refused again; others have to do with keys, loads and outages.
_CONTENT_REFUSED = (400, 413, 422)


@dataclass(frozen=True, slots=True)
class ChatModelOptions:
    """Where the server is, what it is asked for, and its limits; times are seconds.

    `own` says that its operator runs it: nobody pays for what it reads again.
    """

    address: ModelEndpoint
    model: str
    max_tokens: int
    temperature: float
    reply_timeout_s: float
    own: bool = False


@dataclass(frozen=True, slots=True)
class Completion:
    """What a model wrote, its thinking included; `cut_off` where the limit of tokens ended it."""

    text: str
    cut_off: bool = False


class OpenAIChatModel:
    """Streams replies of one model on one server, over connections that others use too."""

    says_new_things = True

    def __init__(self, options: ChatModelOptions, client: ModelHttpClient) -> None:
        self.options = options
        self.slots = client.slots
        self._client = client

    def speak(self, prompt: Prompt) -> Pieces:
        """Yield the reply as it arrives; closing the generator closes the request.

        Raises:
            ModelServerError: `model_unreachable`, `model_timeout`, `model_refused` or
                `model_broken`.
        """
        options = self.options
        return self.write(prompt.messages(), options.max_tokens, options.temperature)

    async def write(
        self, messages: Sequence[Message], max_tokens: int, temperature: float
    ) -> Pieces:
        """Yield what the model writes to any messages; otherwise as `speak`."""
        with self.slots.taken():
            self.slots.last_wanted = messages
            async with aclosing(self._write(messages, max_tokens, temperature)) as pieces:
                async for piece in pieces:
                    yield piece

    async def answer(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        shape: type[msgspec.Struct] | None = None,
        on_displaced: Callable[[], None] = lambda: None,
        check: Callable[[], None] = lambda: None,
    ) -> Completion:
        """Return what the model writes, for which nobody waits.

        It is written while nobody wants the server, from the beginning each time that it had to
        make way; see `Slots.background` for how long that may take.

        Args:
            shape: what the server is asked to hold the model to, where it can.
            on_displaced: called each time that it had to make way.
            check: called each time before the server is asked; what it raises ends this.

        Raises:
            ModelServerError: as `speak`; an empty answer is none.
        """
        since = asyncio.get_running_loop().time()
        while True:
            try:
                async with self.slots.background(since):
                    check()
                    written = await self._answer(messages, max_tokens, shape)
            except Preempted:
                on_displaced()
                self._read_again()
            else:
                self._read_again()
                return written

    def with_thinking(self, max_tokens: int, more: int, most: int | None) -> int:
        """Return the tokens that an answer needs of a model that perhaps thinks aloud before it.

        Args:
            most: as many as there are.
        """
        if not self._client.habits_of(self.options.model).thinks:
            return max_tokens
        whole = max_tokens + more
        return whole if most is None else max(max_tokens, min(whole, most))

    async def _answer(
        self, messages: Sequence[Message], max_tokens: int, shape: type[msgspec.Struct] | None
    ) -> Completion:
        """Ask in the strictest form that the server takes, and remember which that is."""
        habits = self._client.habits_of(self.options.model)
        last = len(FORMS) - 1
        form = last if shape is None else habits.form
        while True:
            try:
                return await self._collect(messages, max_tokens, shape, form)
            except ModelServerError as error:
                if form == last or not _may_be_about_the_form(error):
                    habits.form = habits.taken  # it was not about the form
                    raise
                # Known from now on: the next try may have to make way before it is answered.
                form = habits.form = form + 1

    async def _collect(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        shape: type[msgspec.Struct] | None,
        form: int,
    ) -> Completion:
        habits = self._client.habits_of(self.options.model)

        def taken() -> None:
            if shape is not None:
                habits.form = habits.taken = form

        ending = StreamEnding()
        text: list[str] = []
        asked_for = None if shape is None else response_format(form, shape)
        received = self._received(messages, max_tokens, 0.0, ending, asked_for, taken, whole=False)
        async with aclosing(received) as pieces:
            async for piece in pieces:
                text.append(piece)
        written = "".join(text)
        thinking = ThinkingFilter()
        thinking.feed(written)
        habits.thinks |= thinking.thought or ending.reasoned
        habits.thinks_unmarked |= thinking.ended_unmarked
        return Completion(written, ending.cut_off)

    def _read_again(self) -> None:
        """Have the server read again what a player's next message is likely to begin with.

        The background has pushed it out where there are few slots. It takes the place of nothing.
        """
        messages = self.slots.last_wanted
        if self.options.own and messages and not self._client.returning:
            self._client.returning.begin(self._read_what_was(messages), "model-read-again")

    async def _read_what_was(self, messages: Sequence[Message]) -> None:
        with suppress(Preempted, ModelServerError):  # the next reply reads it all then
            async with self.slots.returning():
                await self._read_portions(lambda: messages, patient=False)

    async def read(self, target: Callable[[], Sequence[Message]]) -> None:
        """Have the model read a prompt ahead, in portions, while nobody waits for the server.

        Args:
            target: the prompt; asked for anew for each portion.

        Raises:
            Displaced: somebody does; what was read so far is not lost.
            ModelServerError: as `speak`.
        """
        async with self.slots.spare():
            await self._read_portions(target)

    async def _read_portions(
        self, target: Callable[[], Sequence[Message]], *, patient: bool = True
    ) -> None:
        portion: Sequence[Message] = ()
        while True:
            messages = target()
            chars = max(self.slots.known(messages), shared(portion, messages))
            if chars >= length(messages):
                return
            portion = beginning(messages, chars + self._client.portion_chars)
            started = time.perf_counter()
            await self._read(portion)
            took = time.perf_counter() - started
            change = min(2.0, max(0.5, _PORTION_S / max(took, 0.001)))
            self._client.portion_chars = round(
                min(_MOST_CHARS, max(_LEAST_CHARS, self._client.portion_chars * change))
            )
            if took > _SLOW_S and not patient:
                return

    async def speak_ahead(self, prompt: Prompt, on_seat: Callable[[SlotLease], None]) -> Pieces:
        """Yield the reply as `speak` does, where and as long as nobody waits for the server.

        Args:
            on_seat: told where the work sits once it begins.

        Raises:
            Displaced: somebody waits for the server.
            ModelServerError: as `speak`.
        """
        options = self.options
        async with self.slots.spare() as seat:
            on_seat(seat)
            reply = self._write(prompt.messages(), options.max_tokens, options.temperature)
            async with aclosing(reply) as pieces:
                async for piece in pieces:
                    yield piece

    async def _read(self, messages: Sequence[Message]) -> None:
        async with aclosing(self._write(messages, 1, 0.0, may_be_empty=True)) as pieces:
            async for _ in pieces:
                pass

    async def _write(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float,
        *,
        may_be_empty: bool = False,
    ) -> Pieces:
        habits = self._client.habits_of(self.options.model)
        thinking, ending = ThinkingFilter(unmarked=habits.thinks_unmarked), StreamEnding()
        said = False
        received = self._received(messages, max_tokens, temperature, ending)
        async with aclosing(received) as pieces:
            async for piece in pieces:
                passed_on = thinking.feed(piece)
                if thinking.anew:
                    habits.thinks_unmarked = True
                    said = bool(passed_on)
                    yield RestartedText(passed_on)
                elif passed_on:
                    said = True
                    yield passed_on
        if rest := thinking.end(cut_off=ending.cut_off):
            said = True
            yield rest
        habits.thinks_unmarked |= thinking.ended_unmarked
        habits.thinks |= thinking.thought or ending.reasoned
        if not said and not may_be_empty:
            thought = thinking.thought or ending.reasoned or habits.thinks_unmarked
            raise ModelServerError(_why_empty(thought), code="model_broken")

    async def _received(
        self,
        messages: Sequence[Message],
        max_tokens: int,
        temperature: float,
        ending: StreamEnding,
        form: dict[str, Any] | None = None,
        on_taken: Callable[[], None] = lambda: None,
        *,
        whole: bool = True,
    ) -> Pieces:
        """Yield the text that the server sends, as it comes.

        Args:
            on_taken: called once the server does not refuse.
            whole: whether a text that takes too long is a failure; else what came is cut off.
        """
        options = self.options
        self.slots.asked(messages)
        left = most = max_tokens * MAX_CHARS_PER_TOKEN
        with _failures_named(options, "model_broken"), self._client.used() as library:
            deadline = asyncio.get_running_loop().time() + options.reply_timeout_s
            with _failures_named(options, "model_unreachable"):
                async with asyncio.timeout_at(deadline):
                    stream: Any = await library.chat.completions.create(
                        model=options.model,
                        messages=messages,  # type: ignore[arg-type]
                        stream=True,
                        max_tokens=max_tokens,
                        temperature=temperature,
                        extra_body=None if form is None else {"response_format": form},
                    )
            on_taken()
            try:
                expect(stream.response, max_tokens)
                pieces = _pieces(stream.response, ending)
                while (piece := await _next(pieces, deadline)) is not None:
                    yield piece[:left]
                    left -= len(piece)
                    if left <= 0:
                        ending.reason = "length"
                        break
            except TimeoutError:
                if whole or left == most:
                    raise
                ending.reason = "length"
            finally:
                await stream.close()


def refuses_what_was_asked(error: ModelServerError) -> bool:
    """Tell whether a server will not take what it was given, as long as that is the same."""
    refused = error.__cause__
    return isinstance(refused, openai.APIStatusError) and refused.status_code in _CONTENT_REFUSED


def _may_be_about_the_form(error: ModelServerError) -> bool:
    refused = error.__cause__
    return isinstance(refused, openai.APIStatusError) and refused.status_code in _FORM_REFUSED


def _why_empty(thought: bool) -> str:
    if not thought:
        return "The language model gave an empty reply."
    return (
        "The language model thought aloud until its reply was over. Serve it without thinking, "
        "choose one that does not think, or raise FOREMIND_LLM_MAX_TOKENS."
    )


async def _next(pieces: AsyncIterator[str], deadline: float) -> str | None:
    """Return the next piece, None after the last.

    Raises:
        TimeoutError: it did not come in time. Only waiting for the server is limited like this,
            not whoever the pieces are yielded to, whose task the limit would otherwise cancel.
    """
    async with asyncio.timeout_at(deadline):
        return await anext(pieces, None)


async def _pieces(response: httpx2.Response, ending: StreamEnding) -> AsyncIterator[str]:
    events = StreamParser(ending)
    async for received in response.aiter_bytes():
        for piece in events.feed(received):
            yield piece
        if ending.done:
            return
    for piece in events.end():
        yield piece


@contextmanager
def _failures_named(options: ChatModelOptions, when_lost: str) -> Iterator[None]:
    """Turn whatever the library and the network raise into four kinds of failure.

    A lost connection means `when_lost`: before the first byte nobody is there, later it broke.
    """
    try:
        yield
    except ModelServerError:  # it has its name already
        raise
    except (openai.APITimeoutError, httpx2.TimeoutException, TimeoutError) as error:
        raise ModelServerError(
            "The language model took too long to answer.", code="model_timeout"
        ) from error
    except openai.APIStatusError as error:
        raise ModelServerError(
            f"The language model server refused the request (HTTP {error.status_code}). Check "
            f"FOREMIND_LLM_MODEL ({options.model!r}) and FOREMIND_LLM_KEY.",
            code="model_refused",
        ) from error
    except Exception as error:  # a lost connection, a cut stream, bad JSON, an odd shape
        cause = error if isinstance(error, httpx2.ProtocolError) else error.__cause__
        if isinstance(cause, StreamLimitExceeded):
            raise ModelServerError(str(cause), code="model_broken") from error
        nonsense = isinstance(cause, httpx2.ProtocolError)
        lost = isinstance(error, openai.APIConnectionError) and not nonsense
        if lost and when_lost == "model_unreachable":
            raise ModelServerError(
                "The language model server cannot be reached. Check FOREMIND_LLM_URL.",
                code=when_lost,
            ) from error
        raise ModelServerError(
            f"The language model server broke off or sent nonsense ({type(error).__name__}).",
            code="model_broken",
        ) from error
