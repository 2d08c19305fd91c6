"""OpenAI's doors: `/v1/models`, `/v1/chat/completions` and `/v1/responses`."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.chat_completion_shapes import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChatMessage,
    DeltaChoice,
    FinishReason,
    IncompleteDetails,
    InputItem,
    ModelList,
    ModelResponse,
    ModelView,
    OutputMessage,
    OutputText,
    ReplyChoice,
    ReplyDelta,
    ReplyMessage,
    ResponseFailure,
    ResponsesRequest,
    ResponseUsage,
    TokenUsage,
)
from foremind.api.dependencies import header_text, read_bytes
from foremind.api.front_end_requests import Said, a_task, read_messages
from foremind.api.json_bodies import decode_json
from foremind.api.operations import Operation
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import error_body, json_response
from foremind.api.turn_streams import StreamedTurn, begin_turn, end_of, while_connected
from foremind.auth.principal import Principal
from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError, Interrupted, InvalidMessage, NotFound, TooLarge
from foremind.domain.storable_text import check_storable
from foremind.domain.turn import Speaker
from foremind.domain.turn_request import (
    TranscriptRequest,
    TurnBegun,
    TurnDone,
    TurnEvent,
    TurnPiece,
)
from foremind.gateway.transcript_turns import TranscriptTurns
from foremind.runtime.supervision import run_or_offload
from foremind.storage.companion_store import CompanionStore

_MAX_BODY_BYTES = 50_000_000  # of a whole transcript with its pictures and files
_MAX_TRANSCRIPT_BYTES = 2_000_000  # without them
#: What is before a picture or file in its data URL; it is longer than a message may be.
_FILE = re.compile(rb'"data:[^",]{0,100};base64,(?=[\w+/=\\-]{10000})')
_FILE_CONTENT = re.compile(rb"[\w+/=\\-]++")
_SLICE, _OVERLAP = 262_144, 10_200  # bytes looked at at once, and of these again
#: The user where the server runs open and a client names nobody.
DEFAULT_USER = "player"
_SPEAKERS: dict[str, Speaker] = {"user": "user", "assistant": "companion"}
_TEXT_PARTS = frozenset({"text", "input_text", "output_text"})
_PICTURE, _ATTACHMENT = "[picture]", "[attachment]"
#: What names the conversation, the first that is there.
_CHAT_HEADERS = ("x-foremind-chat-id", "x-openwebui-chat-id")
# What other chats are named, too: Open WebUI's temporary ones, and by a placeholder left as it is.
_SHARED_NAMES = ("local:", "{{")
_MAX_TOKENS = 1e9
#: The fields of a turn that an error may name, as they are called here.
_FIELDS = {
    "companion": "model", "text": "messages", "id": "messages", "message_id": "messages",
    "after": "previous_response_id",
}  # fmt: skip
_RESPONSE_ID = "resp_"
_NUMBER = re.compile(r"[0-9]{1,18}")
_TOOL_ROLES = frozenset({"tool", "function"})
_IGNORED_ROLES = _TOOL_ROLES | {"system", "developer"}


@dataclass(frozen=True, slots=True)
class ChatCompletionServices:
    """The services of these routes."""

    authenticator: RequestAuthenticator
    companions: CompanionStore
    transcripts: TranscriptTurns
    clock: Clock


@dataclass(frozen=True, slots=True)
class _Completion:
    """A reply that has begun; `events` are what is still to come."""

    asked: ChatCompletionRequest
    created: int
    begun: TurnBegun
    events: AsyncIterator[TurnEvent]

    @property
    def _id(self) -> str:
        return f"chatcmpl-{self.begun.turn_id}"

    def whole(self, done: TurnDone) -> ChatCompletion:
        """Return the reply once it has ended."""
        choice = ReplyChoice(ReplyMessage(done.text), _finish_reason(done))
        return ChatCompletion(self._id, self.created, self.asked.model, [choice], self._usage(done))

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the server-sent events of a stream; an error ends it."""
        options = self.asked.stream_options
        yield self._chunk(ReplyDelta(role="assistant", content=""))
        try:
            async for event in self.events:
                match event:
                    case TurnPiece():
                        yield self._chunk(ReplyDelta(content=event.text))
                    case TurnDone():
                        _check_ended(event)
                        yield self._chunk(ReplyDelta(), _finish_reason(event))
                        if options is not None and options.include_usage:
                            yield self._usage_chunk(event)
                        yield _data(b"[DONE]")
        except ForemindError as error:  # the status is sent already
            yield _data(msgspec.json.encode(error_body(error)))

    def _usage(self, done: TurnDone) -> TokenUsage:
        prompt, reply = self.begun.prompt_tokens, done.reply_tokens
        return TokenUsage(prompt, reply, prompt + reply)

    def _chunk(self, delta: ReplyDelta, finish_reason: FinishReason | None = None) -> bytes:
        choice = DeltaChoice(delta, finish_reason=finish_reason)
        chunk = ChatCompletionChunk(self._id, self.created, self.asked.model, [choice])
        return _data(msgspec.json.encode(chunk))

    def _usage_chunk(self, done: TurnDone) -> bytes:
        chunk = ChatCompletionChunk(
            self._id, self.created, self.asked.model, [], usage=self._usage(done)
        )
        return _data(msgspec.json.encode(chunk))


@dataclass(frozen=True, slots=True)
class _Response:
    """As `_Completion`, in the shape of OpenAI's responses."""

    asked: ResponsesRequest
    created: int
    begun: TurnBegun
    events: AsyncIterator[TurnEvent]

    def whole(self, done: TurnDone) -> ModelResponse:
        """Return the reply once it has ended."""
        prompt, reply = self.begun.prompt_tokens, done.reply_tokens
        return msgspec.structs.replace(
            self._begun(),
            status=_status(done),
            output=[self._message(done)],
            usage=ResponseUsage(prompt, reply, prompt + reply),
            incomplete_details=IncompleteDetails() if done.cut_off else None,
        )

    async def stream(self) -> AsyncGenerator[bytes, None]:
        """Yield the server-sent events of a stream, in OpenAI's order; an error ends it."""
        number = count()

        def sent(kind: str, **values: object) -> bytes:
            event = {"type": kind, "sequence_number": next(number), **values}
            return f"event: {kind}\n".encode() + _data(msgspec.json.encode(event))

        item: dict[str, object] = {"item_id": self._message_id, "output_index": 0}
        place = item | {"content_index": 0}
        yield sent("response.created", response=self._begun())
        yield sent("response.in_progress", response=self._begun())
        empty = OutputMessage(self._message_id, [], "in_progress")
        yield sent("response.output_item.added", output_index=0, item=empty)
        yield sent("response.content_part.added", **place, part=OutputText(""))
        try:
            async for event in self.events:
                match event:
                    case TurnPiece():
                        delta = {"delta": event.text, "logprobs": []}
                        yield sent("response.output_text.delta", **place, **delta)
                    case TurnDone():
                        _check_ended(event)
                        text = OutputText(event.text)
                        done = {"text": event.text, "logprobs": []}
                        yield sent("response.output_text.done", **place, **done)
                        yield sent("response.content_part.done", **place, part=text)
                        message = self._message(event)
                        yield sent("response.output_item.done", output_index=0, item=message)
                        yield sent(f"response.{_status(event)}", response=self.whole(event))
        except ForemindError as error:  # the status is sent already
            yield sent("response.failed", response=self._failed(error))

    @property
    def _message_id(self) -> str:
        return f"msg_{self.begun.turn_id}"

    def _message(self, done: TurnDone) -> OutputMessage:
        return OutputMessage(self._message_id, [OutputText(done.text)], _status(done))

    def _begun(self) -> ModelResponse:
        return ModelResponse(
            f"{_RESPONSE_ID}{self.begun.turn_id}",
            self.created,
            self.asked.model,
            "in_progress",
            [],
            previous_response_id=self.asked.previous_response_id,
            store=self.asked.store is not False,
            temperature=self.asked.temperature,
            max_output_tokens=self.asked.max_output_tokens,
            metadata=self.asked.metadata or {},
            user=self.asked.user,
        )

    def _failed(self, error: ForemindError) -> ModelResponse:
        failure = ResponseFailure("server_error", error_body(error).error.message)
        return msgspec.structs.replace(self._begun(), status="failed", error=failure)


class ChatCompletionEndpoints:
    """The operations that clients of OpenAI's API know."""

    def __init__(self, services: ChatCompletionServices) -> None:
        self._services = services

    @Operation("GET", "/v1/models", ModelList, scope="", caller="anyone")
    async def models(self, _: Request, principal: Principal | None) -> Response:
        """List companions as models.

        As OpenAI's `GET /v1/models`: the companions that the token allows, or all of them in open
        mode.
        """
        return json_response(ModelList(await self._models(principal)))

    @Operation("GET", "/v1/models/{slug}", ModelView, scope="", caller="anyone")
    async def model(self, request: Request, principal: Principal | None) -> Response:
        """Get a companion as a model.

        As OpenAI's `GET /v1/models/{model}`: the companion with this slug.
        """
        for model in await self._models(principal):
            if model.id == request.path_params["slug"]:
                return json_response(model)
        raise NotFound("model: expected one of /v1/models", param="model")

    @Operation(
        "POST",
        "/v1/chat/completions",
        ChatCompletion,
        body=ChatCompletionRequest,
        scope="chat",
        caller="player",
    )
    async def complete(self, request: Request, caller: Principal | None) -> Response:
        """Complete a chat.

        As OpenAI's chat completions: answers the last message of a conversation that is sent whole,
        and stores each turn once. What no longer stands in the conversation, such as a reply that
        is to be made anew, is erased with what was derived from it. Fields that are not described
        are ignored. With `stream`, the reply is sent as server-sent events, each a
        `ChatCompletionChunk`, and `[DONE]` at the end. `X-Foremind-Recalled` states how many
        memories the prompt had, `X-Foremind-Recalled-Ids` which, for a token with the scope
        `memory:read`, `X-Foremind-Context` the kind of context and `X-Foremind-Turn` the id of the
        stored turn.
        """
        return await self._answer(request, caller, ChatCompletionRequest)

    @Operation(
        "POST", "/v1/responses", ModelResponse, body=ResponsesRequest, scope="chat", caller="player"
    )
    async def respond(self, request: Request, caller: Principal | None) -> Response:
        """Create a response.

        As OpenAI's responses, and otherwise as chat completions: answers the last message of
        `input`, with what was said before in `input` or up to `previous_response_id`. With
        `stream`, the reply is sent as server-sent events from `response.created` to
        `response.completed`, `response.incomplete` or `response.failed`. What is not supported is
        refused by its name.
        """
        return await self._answer(request, caller, ResponsesRequest)

    async def _answer(
        self,
        request: Request,
        caller: Principal | None,
        shape: type[ChatCompletionRequest] | type[ResponsesRequest],
    ) -> Response:
        authenticator = self._services.authenticator
        raw = await _without_files(await read_bytes(request, _MAX_BODY_BYTES))
        if len(raw) > _MAX_TRANSCRIPT_BYTES:
            raise TooLarge(
                f"body: expected at most {_MAX_TRANSCRIPT_BYTES} bytes without pictures and files",
                param="body",
            )
        body = await decode_json(raw, shape, check_storable)
        principal = authenticator.player(caller, *_named_user(request, body, open_=caller is None))
        request.state.connection.mark_identified()
        try:
            asked = await (
                _transcript_request(request, body)
                if isinstance(body, ChatCompletionRequest)
                else _response_request(request, body)
            )
            async with AsyncExitStack() as stack:
                turn = self._services.transcripts.turn(principal, asked)
                beginning = begin_turn(stack, turn)
                begun, events = await while_connected(request.receive, beginning)
                created = int(self._services.clock.now().timestamp())
                reply = (
                    _Completion(body, created, begun, events)
                    if isinstance(body, ChatCompletionRequest)
                    else _Response(body, created, begun, events)
                )
                headers = _headers(principal, begun)
                if body.stream:
                    return StreamedTurn(reply.stream(), stack.pop_all(), headers)
                done = await while_connected(request.receive, end_of(events))
                _check_ended(done)
                return json_response(reply.whole(done), headers=headers)
        except ForemindError as error:
            raise _in_words_of_this_api(error, body) from None

    async def _models(self, principal: Principal | None) -> list[ModelView]:
        return [
            ModelView(companion.slug, companion.name)
            for companion in await self._services.companions.list()
            if principal is None or principal.may_open(companion.slug)
        ]


async def _without_files(raw: bytes) -> bytes:
    """Return a body without what pictures and files are encoded as, which companions cannot see.

    So a conversation goes on after one of them, which front ends send again with every message.
    """
    kept, taken, position = [], 0, 0
    while position < len(raw):
        await asyncio.sleep(0)
        found = _FILE.search(raw, position, position + _SLICE)
        if found is None:
            position += _SLICE - _OVERLAP
            continue
        begin = position = found.end()
        while content := _FILE_CONTENT.match(raw, position, position + _SLICE):
            position = content.end()
            await asyncio.sleep(0)
        if raw.startswith(b'"', position):
            kept.append(raw[taken:begin])
            taken = position
    kept.append(raw[taken:])
    return b"".join(kept)


def _check_ended(done: TurnDone) -> None:
    """Check that a reply ended by itself or by its limit.

    Raises:
        ForemindError: why it failed.
        Interrupted: it was stopped, as something that it may repeat was erased.
    """
    if done.error is not None:
        raise done.error
    if done.status == "cancelled":
        raise Interrupted("The reply was stopped; send the message again.")


def _finish_reason(done: TurnDone) -> FinishReason:
    return "length" if done.cut_off else "stop"


def _status(done: TurnDone) -> Literal["completed", "incomplete"]:
    return "incomplete" if done.cut_off else "completed"


def _data(content: bytes) -> bytes:
    return b"data: " + content + b"\n\n"


def _named_user(
    request: Request, body: ChatCompletionRequest | ResponsesRequest, *, open_: bool
) -> tuple[str | None, str | None]:
    """Return the id and the name of the user that a request names, each None if it does not.

    Raises:
        InvalidMessage: a header is no text.
    """
    user_id = (
        body.user
        or request.query_params.get("user")
        or header_text(request, "x-openwebui-user-id")
        or (DEFAULT_USER if open_ else None)
    )
    name = header_text(request, "x-openwebui-user-name") or ""
    return user_id, name.strip() or None


async def _transcript_request(request: Request, body: ChatCompletionRequest) -> TranscriptRequest:
    """Return the conversation that a request contains.

    Raises:
        InvalidMessage: a message is not of a known role or lacks its text, the last one is not
            the user's, or the request is a task of the front end.
    """
    if body.n not in (None, 1):
        raise InvalidMessage("n: expected 1: there is one reply", param="n")
    if header_text(request, "x-foremind-task"):
        raise a_task()
    said: list[Said] = []
    for number, message in enumerate(body.messages):
        speaker = _SPEAKERS.get(message.role)
        if speaker is None and message.role not in _IGNORED_ROLES:
            param = f"messages[{number}].role"
            raise InvalidMessage(f"{param}: expected system, user or assistant", param=param)
        if message.role not in _TOOL_ROLES:
            said.append(Said(speaker, _text_of(message, f"messages[{number}]")))
    chars = sum(len(message.text) for message in said)
    asked = await run_or_offload(chars, lambda: read_messages(said))
    limits = [limit for limit in (body.max_completion_tokens, body.max_tokens) if limit is not None]
    chat = next(filter(None, (header_text(request, name) for name in _CHAT_HEADERS)), "")
    return TranscriptRequest(
        body.model,
        asked.transcript,
        None if not chat or chat.startswith(_SHARED_NAMES) else chat,
        asked.attached,
        body.temperature,
        next((int(min(limit, _MAX_TOKENS)) for limit in limits if limit >= 1), None),
    )


async def _response_request(request: Request, body: ResponsesRequest) -> TranscriptRequest:
    """Return the conversation that a request contains, as chat completions have it.

    Raises:
        InvalidMessage: as `_transcript_request`; or something is not supported, and named.
    """
    chosen_format = (body.text or {}).get("format") or {}
    for param, expected, is_supported in (
        ("background", "false: replies are made while the client waits", not body.background),
        ("conversation", "the conversation in input", body.conversation is None),
        ("prompt", "none: a companion has its own", body.prompt is None),
        ("text.format", "that of text", chosen_format in ({}, {"type": "text"})),
        (
            "tool_choice",
            "auto: companions use no tools",
            body.tool_choice in (None, "auto", "none"),
        ),
    ):
        if not is_supported:
            raise InvalidMessage(f"{param}: expected {expected}", param=param)
    messages: list[ChatMessage] = []
    items = (
        [InputItem(role="user", content=body.input)]
        if isinstance(body.input, str)
        else (body.input)
    )
    for number, item in enumerate(items):
        if item.type == "item_reference":
            raise InvalidMessage(
                f"input[{number}].type: expected the item itself", param=f"input[{number}].type"
            )
        is_message = item.type == "message"
        messages.append(ChatMessage((item.role or "") if is_message else "tool", item.content))
    completion = ChatCompletionRequest(
        body.model,
        messages,
        temperature=body.temperature,
        max_completion_tokens=body.max_output_tokens,
    )
    asked = await _transcript_request(request, completion)
    remember = body.store is not False
    if body.previous_response_id is None:
        return replace(asked, remember=remember)
    turn_id = body.previous_response_id.removeprefix(_RESPONSE_ID)
    if not _NUMBER.fullmatch(turn_id):
        raise NotFound("after: expected the id of a response", param="after")
    return replace(asked, remember=remember, after=int(turn_id))


def _in_words_of_this_api(
    error: ForemindError, body: ChatCompletionRequest | ResponsesRequest
) -> ForemindError:
    """Return an error with the name that its field has here."""
    named = error.param or ""
    field = re.match(r"\w+(?=\[|$)", named)
    name = _FIELDS.get(field[0] if field else "", field[0] if field else "")
    if isinstance(body, ResponsesRequest) and name == "messages":
        name = "input"
    if field is not None and name != field[0]:
        error.param = name + named[field.end() :]
        error.message = error.message.replace(f"{named}:", f"{error.param}:", 1)
    return error


def _text_of(message: ChatMessage, param: str) -> str:
    """Return the text of a message; a note of what it has, if that is no text.

    Raises:
        InvalidMessage: a part that is to be text has none.
    """
    if isinstance(message.content, str):
        return message.content
    parts = message.content or ()
    for number, part in enumerate(parts):
        if part.type in _TEXT_PARTS and part.text is None:
            param = f"{param}.content[{number}].text"
            raise InvalidMessage(f"{param}: expected text", param=param)
    text = "\n".join(part.text for part in parts if part.text is not None)
    others = [part.type for part in parts if part.type not in _TEXT_PARTS]
    if text.strip() or not others or message.role != "user":
        return text
    return _PICTURE if any("image" in kind for kind in others) else _ATTACHMENT


def _headers(principal: Principal, begun: TurnBegun) -> dict[str, str]:
    """Return what was recalled for a reply, in headers, and without any text."""
    headers = {"x-foremind-turn": str(begun.turn_id), "x-foremind-context": begun.context}
    if not begun.duplicate:
        headers["x-foremind-recalled"] = str(len(begun.memories))
        if principal.allows("memory:read"):
            ids = ",".join(str(memory.id) for memory in begun.memories)
            headers["x-foremind-recalled-ids"] = ids
    return headers
