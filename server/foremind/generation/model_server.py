"""Any OpenAI-compatible server, with limits on everything it could do wrong."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from foremind.errors import ModelServerError
from foremind.generation.model_client import ModelAddress, ModelClient
from foremind.generation.portions import beginning, length, shared
from foremind.generation.prompt import Message, Prompt
from foremind.generation.reply_bounds import Unbounded, expect
from foremind.generation.slots import Seat
from foremind.generation.thinking import ThinkingFilter

Pieces = AsyncGenerator[str, None]

#: A server may ignore max_tokens; no model writes tokens longer than this on average.
MAX_CHARS_PER_TOKEN = 16

# A portion of a prompt that is read ahead: as much as the server reads in about this time, because
# whoever presses Enter may have to wait for the rest of it.
_PORTION_S = 0.05
_LEAST_CHARS, _MOST_CHARS = 256, 16_384


@dataclass(frozen=True, slots=True)
class ModelServerOptions:
    """Where the server is, what it is asked for, and its limits; times are seconds."""

    address: ModelAddress
    model: str
    max_tokens: int
    temperature: float
    reply_timeout_s: float


class ModelServer:
    """Streams replies of one model on one server, over connections that others use too."""

    says_new_things = True

    def __init__(self, options: ModelServerOptions, client: ModelClient) -> None:
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
                portion = beginning(messages, chars + self._client.portion_chars)
                started = time.perf_counter()
                await self._read(portion)
                took = time.perf_counter() - started
                change = min(2.0, max(0.5, _PORTION_S / max(took, 0.001)))
                self._client.portion_chars = round(
                    min(_MOST_CHARS, max(_LEAST_CHARS, self._client.portion_chars * change))
                )

    async def speak_ahead(self, prompt: Prompt, on_seat: Callable[[Seat], None]) -> Pieces:
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
        options = self.options
        self.slots.asked(messages)
        left, said, thinking = max_tokens * MAX_CHARS_PER_TOKEN, False, ThinkingFilter()
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
                    )
            try:
                expect(stream.response, max_tokens)
                pieces = _pieces(stream)
                while (piece := await _next(pieces, deadline)) is not None:
                    if passed_on := thinking.feed(piece[:left]):
                        said = True
                        yield passed_on
                    left -= len(piece)
                    if left <= 0:
                        break
            finally:
                await stream.close()
        if rest := thinking.end():
            said = True
            yield rest
        if not said and not may_be_empty:
            raise ModelServerError(_why_empty(thinking.thought), code="model_broken")


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
    except ModelServerError:  # it has its name already
        raise
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
        cause = error if isinstance(error, httpx2.ProtocolError) else error.__cause__
        if isinstance(cause, Unbounded):
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
