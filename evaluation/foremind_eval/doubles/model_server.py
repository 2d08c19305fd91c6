"""A scripted OpenAI-compatible server: real HTTP and real streaming, scripted replies."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from fair_transport import listening

_WORDS_AT_ONCE = 100

Chat = dict[str, Any]
#: How an answer is sent: streamed; whole although a stream was requested, as JSON or labelled as
#: an event stream; or as the `message` of a single event.
ReplyMode = Literal["stream", "whole", "whole as a stream", "message at the end"]


@dataclass
class Script:
    """How the server handles each request; may be changed between requests.

    Attributes:
        reply: returns the words of the answer to a request.
        background: returns the answer to a background request (temperature 0); if None, `reply`
            answers these too.
        status: HTTP status; any other than 200 refuses all requests.
        refusal_status: returns the HTTP status that refuses a request, or None to accept it.
        body: sent verbatim instead of a stream, unless None.
        hold_before: awaited before the first word or, with `hold_after`, between words.
        hold_after: number of words after which `hold_before` is awaited, instead of before the
            first.
        hold_for: returns an event to await before the first word of a request's answer, or None.
        tool_calls: returns the name and the arguments of each tool that a request's answer calls
            after its words, if it may call any.
        cut_after: number of words after which the connection breaks, unless None.
        alternating: refuse messages that do not alternate between user and assistant, starting and
            ending with the user, as many chat templates require.
        slots: maximum number of concurrent requests, unless None; others wait. A disconnected
            request releases its slot.
        reply_mode: how answers are sent.
        response_formats: supported types of `response_format`; others are refused with
            `unsupported_format_status`.
        reasoning: the model's reasoning, sent in a separate field.
        usage: returns the `usage` of a request with this answer, unless None.
        stream_options: whether usage can be asked for; otherwise that is refused with 400.
        chars_per_token: truncate answers to `max_tokens`, at this many characters per token.
        requests: the bodies of all requests, in order.
        finished: how each stream but those of prefill requests ended: "done", "cut", or "left" if
            the client disconnected.
    """

    reply: Callable[[Chat], list[str]] = lambda _: ["Hello", " there", "."]
    background: Callable[[Chat], str] | None = None
    status: int = 200
    refusal_status: Callable[[Chat], int | None] = lambda _: None
    body: str | None = None
    hold_before: asyncio.Event | None = None
    hold_after: int | None = None
    hold_for: Callable[[Chat], asyncio.Event | None] = lambda _: None
    tool_calls: Callable[[Chat], list[tuple[str, str]]] = lambda _: []
    cut_after: int | None = None
    alternating: bool = True
    slots: int | None = None
    reply_mode: ReplyMode = "stream"
    response_formats: tuple[str, ...] = ("json_schema", "json_object")
    unsupported_format_status: int = 400
    reasoning: str = ""
    usage: Callable[[Chat, str], object] | None = None
    stream_options: bool = True
    chars_per_token: int | None = None
    requests: list[Chat] = field(default_factory=list)
    #: The port from which each of them came.
    ports: list[int] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)

    @property
    def player_requests(self) -> list[Chat]:
        """Requests that a player waits for."""
        return [request for request in self.requests if request["temperature"] > 0]

    @property
    def background_requests(self) -> list[Chat]:
        """Background requests."""
        return [
            request
            for request in self.requests
            if request["temperature"] == 0 and request["max_tokens"] > 1
        ]

    @property
    def prefill_requests(self) -> list[Chat]:
        """Requests that only prefill a prompt."""
        return [request for request in self.requests if request["max_tokens"] == 1]


class ScriptedModel:
    """A running server: `url` for FOREMIND_LLM_URL, and the `script` it follows."""

    def __init__(self, url: str, script: Script) -> None:
        self.url = url
        self.script = script


@asynccontextmanager
async def scripted_model(script: Script | None = None) -> AsyncIterator[ScriptedModel]:
    """Run a scripted model server on a free loopback port."""
    script = script or Script()
    slots = asyncio.Semaphore(script.slots or 1_000_000)

    async def chat(request: Request) -> Response:
        body: Chat = await request.json()
        script.requests.append(body)
        if request.client is not None:
            script.ports.append(request.client.port)
        status = script.refusal_status(body) or script.status
        if status != 200:
            return PlainTextResponse("refused by the script", status)
        if script.alternating and not alternates(body["messages"]):
            return PlainTextResponse("roles must alternate user/assistant/user/...", 400)
        if "stream_options" in body and not script.stream_options:
            return PlainTextResponse("unknown field: stream_options", 400)
        response_format = body.get("response_format")
        if response_format is not None and response_format["type"] not in script.response_formats:
            return PlainTextResponse("unknown response_format", script.unsupported_format_status)
        if script.body is not None:
            return PlainTextResponse(script.body, media_type="text/event-stream")
        if script.reply_mode == "whole":
            return JSONResponse(_completion(script, body))
        return StreamingResponse(
            _stream_in_slot(slots, script, body), media_type="text/event-stream"
        )

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    async with listening(app) as port:
        yield ScriptedModel(f"http://127.0.0.1:{port}/v1", script)


async def _stream_in_slot(
    slots: asyncio.Semaphore, script: Script, body: Chat
) -> AsyncIterator[str]:
    async with slots:
        async for line in _stream(script, body):
            yield line


async def _stream(script: Script, body: Chat) -> AsyncIterator[str]:
    outcome = "left"
    try:
        if script.hold_before is not None and script.hold_after is None:
            await script.hold_before.wait()
        if (event := script.hold_for(body)) is not None:
            await event.wait()
        words, finish_reason = _limited_words(script, body)
        if script.reply_mode != "stream":
            answer = _completion(script, body)
            whole = script.reply_mode == "whole as a stream"
            yield json.dumps(answer, indent=1) if whole else f"data: {json.dumps(answer)}\n\n"
            outcome = "done"
            return
        if script.reasoning:
            yield chunk_line("", reasoning_content=script.reasoning)
        for index, word in enumerate(words):
            if script.cut_after == index:
                outcome = "cut"
                raise ConnectionResetError
            if script.hold_after == index and script.hold_before is not None:
                await script.hold_before.wait()
            yield chunk_line(word)
            if index % _WORDS_AT_ONCE == 0:
                await asyncio.sleep(0)  # the server under test shares the event loop
        if calls := _tool_calls(script, body):
            yield "".join(chunk_line("", tool_calls=[call]) for call in calls)
        yield chunk_line("", finish_reason)
        if script.usage is not None and body.get("stream_options"):
            usage = script.usage(body, "".join(words))
            yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"
        outcome = "done"
    finally:
        if body["max_tokens"] > 1:
            script.finished.append(outcome)


def _tool_calls(script: Script, body: Chat) -> list[Chat]:
    """Return the parts of the calls of tools in an answer: the arguments of each come in two."""
    parts: list[Chat] = []
    for number, (name, arguments) in enumerate(script.tool_calls(body) if "tools" in body else ()):
        half = len(arguments) // 2
        parts.append({"index": number, "function": {"name": name, "arguments": arguments[:half]}})
        parts.append({"index": number, "function": {"arguments": arguments[half:]}})
    return parts


def alternates(messages: list[dict[str, Any]]) -> bool:
    """Return whether messages alternate from user to user, after an optional system message."""
    roles = [message["role"] for message in messages]
    chat_roles = roles[1:] if roles[:1] == ["system"] else roles
    expected = [("user", "assistant")[number % 2] for number in range(len(chat_roles))]
    return bool(chat_roles) and chat_roles == expected and chat_roles[-1] == "user"


def _words(script: Script, body: Chat) -> list[str]:
    if body["max_tokens"] == 1:
        return [""]
    if script.background is not None and is_background_request(body):
        return [script.background(body)]
    return script.reply(body)


def is_background_request(body: Chat) -> bool:
    """Return whether a request is made in the background, without a player waiting for it."""
    return bool(body["temperature"] == 0 and body["max_tokens"] > 1)


def _limited_words(script: Script, body: Chat) -> tuple[list[str], str]:
    """Return the words of an answer within `max_tokens`, and the finish reason."""
    words = _words(script, body)
    if script.chars_per_token is None:
        return words, "stop"
    max_chars = body["max_tokens"] * script.chars_per_token
    text = "".join(words)
    return ([text[:max_chars]], "length") if len(text) > max_chars else (words, "stop")


def _completion(script: Script, body: Chat) -> Chat:
    words, finish_reason = _limited_words(script, body)
    message = {"role": "assistant", "content": "".join(words)}
    if script.reasoning:
        message["reasoning_content"] = script.reasoning
    usage = {} if script.usage is None else {"usage": script.usage(body, "".join(words))}
    return usage | {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": finish_reason}],
    }


def chunk_line(word: str, finish_reason: str | None = None, **fields: Any) -> str:
    """Return a word as a server-sent event of a streamed reply."""
    chunk = {
        "id": "scripted",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "scripted",
        "choices": [
            {"index": 0, "delta": {"content": word, **fields}, "finish_reason": finish_reason}
        ],
    }
    return f"data: {json.dumps(chunk)}\n\n"
