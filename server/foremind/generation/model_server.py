"""Any OpenAI-compatible server, with limits on everything it could do wrong."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import openai

from foremind.errors import ModelServerError
from foremind.generation.portions import beginning, length, shared
from foremind.generation.prompt import Message, Prompt
from foremind.generation.slots import Seat, Slots

Pieces = AsyncGenerator[str, None]

# A server may ignore max_tokens; no model writes tokens longer than this on average.
_MAX_CHARS_PER_TOKEN = 16

# A portion of a prompt that is read ahead: as much as the server reads in about this time, because
# whoever presses Enter may have to wait for the rest of it.
_PORTION_S = 0.05
_LEAST_CHARS, _MOST_CHARS = 256, 16_384
_FIRST_CHARS = 512


@dataclass(frozen=True, slots=True)
class ModelServerOptions:
    """Where the server is and its limits; times are seconds."""

    url: str
    model: str
    key: str | None
    max_tokens: int
    temperature: float
    connect_timeout_s: float
    token_timeout_s: float
    reply_timeout_s: float


class ModelServer:
    """Streams replies of one model on one server."""

    says_new_things = True

    def __init__(self, options: ModelServerOptions, slots: Slots) -> None:
        self._options = options
        self.slots = slots  #: of the server, whatever else its clients differ in
        self._portion_chars = _FIRST_CHARS

    @cached_property
    def _client(self) -> openai.AsyncOpenAI:
        options = self._options
        return openai.AsyncOpenAI(
            base_url=options.url,
            api_key=options.key or "none",
            max_retries=0,  # a player waits: a clear failure now beats a late success
            timeout=openai.Timeout(options.token_timeout_s, connect=options.connect_timeout_s),
        )

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._client.close()

    def speak(self, prompt: Prompt) -> Pieces:
        """Yield the reply as it arrives; closing the generator closes the request.

        Raises:
            ModelServerError: `model_unreachable`, `model_timeout`, `model_refused` or
                `model_broken`.
        """
        options = self._options
        return self.write(prompt.messages(), options.max_tokens, options.temperature)

    async def write(
        self, messages: Sequence[Message], max_tokens: int, temperature: float
    ) -> Pieces:
        """Yield what the model writes to any messages; otherwise as `speak`."""
        with self.slots.taken():
            async with aclosing(self._write(messages, max_tokens, temperature)) as pieces:
                async for piece in pieces:
                    yield piece

    async def read(self, target: Callable[[], Sequence[Message]]) -> None:
        """Have the model read a prompt ahead, in portions, while nobody waits for the server.

        Args:
            target: the prompt; asked for anew for each portion.

        Raises:
            Displaced: somebody does; what was read so far is not lost.
            ModelServerError: as `speak`.
        """
        async with self.slots.spare():
            portion: Sequence[Message] = ()
            while True:
                messages = target()
                chars = max(self.slots.known(messages), shared(portion, messages))
                if chars >= length(messages):
                    return
                portion = beginning(messages, chars + self._portion_chars)
                started = time.perf_counter()
                await self._read(portion)
                took = time.perf_counter() - started
                change = min(2.0, max(0.5, _PORTION_S / max(took, 0.001)))
                self._portion_chars = round(
                    min(_MOST_CHARS, max(_LEAST_CHARS, self._portion_chars * change))
                )

    async def speak_ahead(self, prompt: Prompt, on_seat: Callable[[Seat], None]) -> Pieces:
        """Yield the reply as `speak` does, where and as long as nobody waits for the server.

        Args:
            on_seat: told where the work sits once it begins.

        Raises:
            Displaced: somebody waits for the server.
            ModelServerError: as `speak`.
        """
        options = self._options
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
        options = self._options
        self.slots.asked(messages)
        written = 0
        async with asyncio.timeout(options.reply_timeout_s):
            with _failures_named(options, "model_unreachable"):
                stream: Any = await self._client.chat.completions.create(
                    model=options.model,
                    messages=messages,  # type: ignore[arg-type]
                    stream=True,
                    max_tokens=max_tokens,
                    temperature=temperature,
                )
            with _failures_named(options, "model_broken"):
                try:
                    async for piece in _pieces(stream):
                        written += len(piece)
                        yield piece
                        if written > max_tokens * _MAX_CHARS_PER_TOKEN:
                            break
                finally:
                    await stream.close()
        if not written and not may_be_empty:
            raise ModelServerError("The language model gave an empty reply.", code="model_broken")


async def _pieces(stream: AsyncIterator[Any]) -> AsyncIterator[str]:
    async for chunk in stream:
        for choice in chunk.choices or ():
            if choice.delta is not None and choice.delta.content:
                yield choice.delta.content


@contextmanager
def _failures_named(options: ModelServerOptions, when_lost: str) -> Iterator[None]:
    """Turn whatever the library and the network raise into four kinds of failure.

    A lost connection means `when_lost`: before the first byte nobody is there, later it broke.
    """
    try:
        yield
    except (openai.APITimeoutError, TimeoutError) as error:
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
        if isinstance(error, openai.APIConnectionError) and when_lost == "model_unreachable":
            raise ModelServerError(
                "The language model server cannot be reached. Check FOREMIND_LLM_URL.",
                code=when_lost,
            ) from error
        raise ModelServerError(
            f"The language model server broke off or sent nonsense ({type(error).__name__}).",
            code="model_broken",
        ) from error
