"""Any OpenAI-compatible server, with limits on everything it could do wrong."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import openai

from foremind.errors import ModelServerError
from foremind.generation.prompt import Message, Prompt

# A server may ignore max_tokens; no model writes tokens longer than this on average.
_MAX_CHARS_PER_TOKEN = 16


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

    def __init__(self, options: ModelServerOptions) -> None:
        self._options = options
        self._client = openai.AsyncOpenAI(
            base_url=options.url,
            api_key=options.key or "none",
            max_retries=0,  # a player waits: a clear failure now beats a late success
            timeout=openai.Timeout(options.token_timeout_s, connect=options.connect_timeout_s),
        )

    async def close(self) -> None:
        """Close the connections to the server."""
        await self._client.close()

    async def speak(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        """Yield the reply as it arrives; closing the generator closes the request.

        Raises:
            ModelServerError: `model_unreachable`, `model_timeout`, `model_refused` or
                `model_broken`.
        """
        options = self._options
        written = self.write(prompt.messages(), options.max_tokens, options.temperature)
        async with aclosing(written):
            async for piece in written:
                yield piece

    async def write(
        self, messages: Sequence[Message], max_tokens: int, temperature: float
    ) -> AsyncGenerator[str, None]:
        """Yield what the model writes to any messages; otherwise as `speak`."""
        options = self._options
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
        if not written:
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
