"""One streamed chat completion: the request, its deadlines and limits, and its failures."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import httpx2
import msgspec

from foremind.domain.errors import ModelServerError
from foremind.llm.chat_model import MAX_CHARS_PER_TOKEN
from foremind.llm.completion_parser import StreamEnding, StreamParser
from foremind.llm.http_client import (
    ModelHttpClient,
    ServerCapabilities,
    allow_tokens,
)
from foremind.llm.model_failures import AskedModel, mapped_errors
from foremind.llm.prompt.layout import Message
from foremind.llm.token_accounts import TokenAccount

TextStream = AsyncGenerator[str, None]

# Statuses with which a server may say that it cannot be asked to count tokens.
_USAGE_REFUSED = (400, 422)
# Within this time, about a round trip, it shows that a connection had been closed before.
_STALE_S = 1.0
# After so many pieces other tasks go on, though the next may have arrived: under 5 ms.
_PIECES_AT_ONCE = 16
_NO_ANSWER = "disconnected without sending a response"  # in the words of the HTTP library


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What a model is asked to complete.

    `timeout_s` is for the whole reply. Where `partial` is set, a reply that exceeds it is cut off
    instead of failing, once some of it has arrived. `own` and `extra` are as in `ChatModelPolicy`.
    The tokens are counted for a `purpose`, unless there is no account.
    """

    model: str
    messages: Sequence[Message]
    max_tokens: int
    temperature: float
    timeout_s: float
    response_format: dict[str, Any] | None = None
    partial: bool = False
    own: frozenset[str] = frozenset()
    extra: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Mapping[str, Any]] = ()
    account: TokenAccount | None = None
    purpose: str = ""


async def stream_completion(
    client: ModelHttpClient,
    request: CompletionRequest,
    ending: StreamEnding,
    on_accepted: Callable[[], None] = lambda: None,
) -> TextStream:
    """Yield the text of a completion as it arrives, and record in `ending` how it ended.

    Args:
        on_accepted: called once the server has accepted the request.

    Raises:
        ModelServerError: as `mapped_errors`.
        TokenLimitReached, StorageUnavailable: as `TokenAccount.admit`.
    """
    if request.account is not None:
        await request.account.admit(request.purpose)
    asked = AskedModel(request.model, request.own, client.has_key)
    client.slots.record_prompt(request.messages)
    left = max_chars = request.max_tokens * MAX_CHARS_PER_TOKEN
    with mapped_errors(asked, "model_broken"), client.used() as connections:
        deadline = asyncio.get_running_loop().time() + request.timeout_s
        with mapped_errors(asked, "model_unreachable"):
            async with asyncio.timeout_at(deadline):
                response = await _accepted(
                    connections, request, client.capabilities_of(request.model)
                )
        on_accepted()
        received = response.aiter_bytes()
        try:
            allow_tokens(response, request.max_tokens)
            parser = StreamParser(ending, has_tools=bool(request.tools))
            pieces = _text_pieces(received, parser, ending)
            while (piece := await _next_piece(pieces, deadline)) is not None:
                yield piece[:left]
                left -= len(piece)
                if left <= 0:
                    ending.reason = "length"
                    break
            if not ending.done and ending.reason is None:
                raise ModelServerError(_why_incomplete(response, asked), code="model_broken")
        except TimeoutError:
            if not request.partial or left == max_chars:
                raise
            ending.reason = "length"
        finally:
            if ending.done:
                client.keep_connection(response, received)
            else:
                await response.aclose()
            if request.account is not None:
                await request.account.record(
                    request.purpose, request.messages, request.max_tokens, ending
                )


async def _accepted(
    connections: httpx2.AsyncClient, request: CompletionRequest, capabilities: ServerCapabilities
) -> httpx2.Response:
    """Send a request, and again without asking for usage if it may have been refused for that.

    A reply finds out whether a server can be asked: a background request may be refused for its
    format as well.
    """
    body, known = _body_of(request), capabilities.reports_usage
    if known is False or (known is None and request.partial):
        return await _opened(connections, body)
    try:
        response = await _opened(connections, body | {"stream_options": {"include_usage": True}})
    except httpx2.HTTPStatusError as error:
        if known or error.response.status_code not in _USAGE_REFUSED:
            raise
        response = await _opened(connections, body)
        capabilities.reports_usage = False
    else:
        capabilities.reports_usage = True
    return response


async def _opened(connections: httpx2.AsyncClient, body: dict[str, Any]) -> httpx2.Response:
    """Send a request, and again if its connection turns out to be closed already.

    Some servers, llama.cpp's among them, announce that they keep connections, and close them. One
    that closes it later has begun to work, and is not asked to do that again.
    """
    loop = asyncio.get_running_loop()
    sent_at = loop.time()
    try:
        return await _sent(connections, body)
    except (httpx2.ReadError, httpx2.WriteError, httpx2.RemoteProtocolError) as error:
        misused = isinstance(error, httpx2.RemoteProtocolError) and _NO_ANSWER not in str(error)
        if misused or loop.time() - sent_at > _STALE_S:
            raise
    return await _sent(connections, body)


async def _sent(connections: httpx2.AsyncClient, body: dict[str, Any]) -> httpx2.Response:
    request = connections.build_request(
        "POST",
        "/chat/completions",
        content=msgspec.json.encode(body),
        headers={"Content-Type": "application/json"},
    )
    response = await connections.send(request, stream=True)
    if not response.is_success:
        await response.aread()
        response.raise_for_status()
    return response


def _body_of(request: CompletionRequest) -> dict[str, Any]:
    extra = {name: value for name, value in request.extra.items() if value is not None}
    body: dict[str, Any] = extra | {
        "model": request.model,
        "messages": request.messages,
        "stream": True,
        "max_tokens": request.max_tokens,
        "temperature": request.temperature,
    }
    if request.response_format is not None:
        body["response_format"] = request.response_format
    if request.tools:
        body["tools"] = request.tools
    return body


def _why_incomplete(response: httpx2.Response, asked: AskedModel) -> str:
    if "html" in response.headers.get("content-type", ""):
        url = asked.setting("llm_url")
        return (
            "The language model server answered with a web page. "
            f"Check {url}, which mostly ends with /v1."
        )
    return (
        "The language model server closed the stream without saying that the reply was complete. "
        "Its own log may say why."
    )


async def _next_piece(pieces: AsyncIterator[str], deadline: float) -> str | None:
    """Return the next piece, None after the last.

    Raises:
        TimeoutError: it did not arrive in time. Only waiting for the server is limited like this,
            not the consumer of the pieces, whose task the timeout would otherwise cancel.
    """
    async with asyncio.timeout_at(deadline):
        return await anext(pieces, None)


async def _text_pieces(
    received: AsyncIterator[bytes], parser: StreamParser, ending: StreamEnding
) -> AsyncIterator[str]:
    numbers = count(1)
    async for data in received:
        for piece in parser.feed(data):
            yield piece
            if next(numbers) % _PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
        if ending.done:
            return
    for piece in parser.end():
        yield piece
