"""A scripted OpenAI-compatible server: real HTTP and real streaming, words from a script."""

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

from foremind.domain.settings import load_settings
from foremind.gateway.transport.listener import listening

Chat = dict[str, Any]
#: How an answer comes: streamed; all at once though a stream was asked for, with either type; or
#: as the `message` of the last event.
Manner = Literal["stream", "whole", "whole as a stream", "message at the end"]


@dataclass
class Script:
    """What the server does with each request; change it between requests.

    Attributes:
        reply: the words of the answer, given the request.
        background: what is answered to a request that no player waits for (its temperature is 0);
            None lets `reply` answer these too.
        status: HTTP status; anything but 200 refuses.
        refuses: the HTTP status with which a request is refused, None where it is not.
        body: sent as it is instead of a stream, where not None.
        hold_before: awaited before the first word and, with `hold_after`, between words.
        hold_after: number of words after which `hold_before` is awaited again; None is never.
        holds: what is awaited before the first word of the answer to a request, if anything.
        cut_after: number of words after which the connection breaks; None is never.
        alternating: whether messages must be of user and assistant in turn, the user's first and
            last, as the templates of many models want it; anything else is refused.
        slots: how many requests are worked on at once, others wait; None is any number. One that is
            hung up on leaves its slot.
        manner: how answers come.
        forms: types of `response_format` that are known; others are refused with `form_status`.
        reasoning: what the model thinks, in a field of its own.
        letters_per_token: with it an answer ends where `max_tokens` are used up.
    """

    reply: Callable[[Chat], list[str]] = lambda _: ["Hello", " there", "."]
    background: Callable[[Chat], str] | None = None
    status: int = 200
    refuses: Callable[[Chat], int | None] = lambda _: None
    body: str | None = None
    hold_before: asyncio.Event | None = None
    hold_after: int | None = None
    holds: Callable[[Chat], asyncio.Event | None] = lambda _: None
    cut_after: int | None = None
    alternating: bool = True
    slots: int | None = None
    manner: Manner = "stream"
    forms: tuple[str, ...] = ("json_schema", "json_object")
    form_status: int = 400
    reasoning: str = ""
    letters_per_token: int | None = None
    requests: list[Chat] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)

    @property
    def spoken(self) -> list[Chat]:
        """The requests for which a player waits."""
        return [request for request in self.requests if request["temperature"] > 0]

    @property
    def asked(self) -> list[Chat]:
        """The requests made in the background."""
        return [
            request
            for request in self.requests
            if request["temperature"] == 0 and request["max_tokens"] > 1
        ]

    @property
    def read(self) -> list[Chat]:
        """The requests that only have the model read a prompt."""
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
        status = script.refuses(body) or script.status
        if status != 200:
            return PlainTextResponse("refused by the script", status)
        if script.alternating and not alternates(body["messages"]):
            return PlainTextResponse("roles must alternate user/assistant/user/...", 400)
        form = body.get("response_format")
        if form is not None and form["type"] not in script.forms:
            return PlainTextResponse("unknown response_format", script.form_status)
        if script.body is not None:
            return PlainTextResponse(script.body, media_type="text/event-stream")
        if script.manner == "whole":
            return JSONResponse(_completion(script, body))
        return StreamingResponse(_in_turn(slots, script, body), media_type="text/event-stream")

    app = Starlette(routes=[Route("/v1/chat/completions", chat, methods=["POST"])])
    async with listening(app, load_settings(host="127.0.0.1", port=0)) as port:
        yield ScriptedModel(f"http://127.0.0.1:{port}/v1", script)


async def _in_turn(slots: asyncio.Semaphore, script: Script, body: Chat) -> AsyncIterator[str]:
    async with slots:
        async for line in _stream(script, body):
            yield line


async def _stream(script: Script, body: Chat) -> AsyncIterator[str]:
    outcome = "left"
    try:
        if script.hold_before is not None and script.hold_after is None:
            await script.hold_before.wait()
        if (held := script.holds(body)) is not None:
            await held.wait()
        words, reason = _within_limits(script, body)
        if script.manner != "stream":
            answer = _completion(script, body)
            whole = script.manner == "whole as a stream"
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
        yield chunk_line("", reason)
        yield "data: [DONE]\n\n"
        outcome = "done"
    finally:
        script.finished.append(outcome)


def alternates(messages: list[dict[str, Any]]) -> bool:
    """Tell whether user and assistant take turns, after any instructions; the user is first."""
    roles = [message["role"] for message in messages]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    turns = [("user", "assistant")[number % 2] for number in range(len(spoken))]
    return bool(spoken) and spoken == turns and spoken[-1] == "user"


def _words(script: Script, body: Chat) -> list[str]:
    if body["max_tokens"] == 1:
        return [""]
    if script.background is not None and in_background(body):
        return [script.background(body)]
    return script.reply(body)


def in_background(body: Chat) -> bool:
    """Tell whether no player waits for the answer to a request."""
    return bool(body["temperature"] == 0 and body["max_tokens"] > 1)


def _within_limits(script: Script, body: Chat) -> tuple[list[str], str]:
    """Return the words that are said, and why no more are."""
    words = _words(script, body)
    if script.letters_per_token is None:
        return words, "stop"
    letters = body["max_tokens"] * script.letters_per_token
    text = "".join(words)
    return ([text[:letters]], "length") if len(text) > letters else (words, "stop")


def _completion(script: Script, body: Chat) -> Chat:
    words, reason = _within_limits(script, body)
    message = {"role": "assistant", "content": "".join(words)}
    if script.reasoning:
        message["reasoning_content"] = script.reasoning
    return {
        "id": "scripted",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
    }


def chunk_line(word: str, finish_reason: str | None = None, **fields: str) -> str:
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
