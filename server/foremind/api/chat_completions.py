"""The chat-completions door: `/v1/models` and `/v1/chat/completions`, as OpenAI has them."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from foremind.api.chat_completion_shapes import (
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionRequest,
    ChatMessage,
    DeltaChoice,
    ModelList,
    ModelView,
    ReplyChoice,
    ReplyDelta,
    ReplyMessage,
    TokenUsage,
)
from foremind.api.dependencies import header_text, read_json
from foremind.api.front_end_requests import Said, a_task, read_messages
from foremind.api.operations import Operation
from foremind.api.request_authentication import RequestAuthenticator
from foremind.api.responses import error_body, json_response
from foremind.api.turn_streams import StreamedTurn, begin_turn, end_of, while_connected
from foremind.auth.principal import Principal
from foremind.domain.clock import Clock
from foremind.domain.errors import ForemindError, InvalidMessage, NotFound
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

_MAX_BODY_BYTES = 2_000_000  # of a whole transcript
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
}  # fmt: skip
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
class _Reply:
    """A reply that has begun; `events` are what is still to come."""

    companion: str
    created: int
    begun: TurnBegun
    events: AsyncIterator[TurnEvent]

    @property
    def id(self) -> str:
        return f"chatcmpl-{self.begun.turn_id}"

    def usage(self, done: TurnDone) -> TokenUsage:
        prompt, reply = self.begun.prompt_tokens, done.reply_tokens
        return TokenUsage(prompt, reply, prompt + reply)

    async def chunks(self, *, include_usage: bool) -> AsyncGenerator[bytes, None]:
        """Yield the server-sent events of a stream; an error ends it."""
        yield self._chunk(ReplyDelta(role="assistant", content=""))
        try:
            async for event in self.events:
                match event:
                    case TurnPiece():
                        yield self._chunk(ReplyDelta(content=event.text))
                    case TurnDone(error=ForemindError() as error):
                        raise error
                    case TurnDone():
                        yield self._chunk(ReplyDelta(), ended=True)
                        if include_usage:
                            yield self._usage_chunk(event)
                        yield _data(b"[DONE]")
        except ForemindError as error:  # the status is sent already
            yield _data(msgspec.json.encode(error_body(error)))

    def _chunk(self, delta: ReplyDelta, *, ended: bool = False) -> bytes:
        choice = DeltaChoice(delta, finish_reason="stop" if ended else None)
        chunk = ChatCompletionChunk(self.id, self.created, self.companion, [choice])
        return _data(msgspec.json.encode(chunk))

    def _usage_chunk(self, done: TurnDone) -> bytes:
        chunk = ChatCompletionChunk(
            self.id, self.created, self.companion, [], usage=self.usage(done)
        )
        return _data(msgspec.json.encode(chunk))


class ChatCompletionEndpoints:
    """The operations that clients of OpenAI's API know."""

    def __init__(self, services: ChatCompletionServices) -> None:
        self._services = services

    @Operation("GET", "/v1/models", ModelList, scope="")
    async def models(self, request: Request) -> Response:
        """List companions as models.

        As OpenAI's `GET /v1/models`: the companions that the token allows, or all of them in open
        mode.
        """
        principal = await self._services.authenticator.authenticate_unless_open(request)
        return json_response(ModelList(await self._models(principal)))

    @Operation("GET", "/v1/models/{slug}", ModelView, scope="")
    async def model(self, request: Request) -> Response:
        """Get a companion as a model.

        As OpenAI's `GET /v1/models/{model}`: the companion with this slug.
        """
        principal = await self._services.authenticator.authenticate_unless_open(request)
        for model in await self._models(principal):
            if model.id == request.path_params["slug"]:
                return json_response(model)
        raise NotFound("model: expected one of /v1/models", param="model")

    @Operation(
        "POST", "/v1/chat/completions", ChatCompletion, body=ChatCompletionRequest, scope="chat"
    )
    async def complete(self, request: Request) -> Response:
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
        authenticator = self._services.authenticator
        caller = await authenticator.authenticate_caller(request)
        body = await read_json(request, ChatCompletionRequest, _MAX_BODY_BYTES)
        principal = authenticator.player(caller, *_named_user(request, body, open_=caller is None))
        request.state.connection.mark_identified()
        asked = await _transcript_request(request, body)
        async with AsyncExitStack() as stack:
            turn = self._services.transcripts.turn(principal, asked)
            reply = await while_connected(request.receive, self._begin(stack, turn, body.model))
            headers = _headers(principal, reply.begun)
            if body.stream:
                options = body.stream_options
                include_usage = options is not None and bool(options.include_usage)
                return StreamedTurn(
                    reply.chunks(include_usage=include_usage), stack.pop_all(), headers
                )
            done = await while_connected(request.receive, end_of(reply.events))
            if done.error is not None:
                raise done.error
            return json_response(
                ChatCompletion(
                    reply.id,
                    reply.created,
                    reply.companion,
                    [ReplyChoice(ReplyMessage(done.text))],
                    reply.usage(done),
                ),
                headers=headers,
            )

    async def _models(self, principal: Principal | None) -> list[ModelView]:
        return [
            ModelView(companion.slug, companion.name)
            for companion in await self._services.companions.list()
            if principal is None or principal.may_open(companion.slug)
        ]

    async def _begin(
        self,
        stack: AsyncExitStack,
        turn: AbstractAsyncContextManager[AsyncIterator[TurnEvent]],
        companion: str,
    ) -> _Reply:
        """Wait until the message is stored and its reply begins.

        Raises:
            ForemindError: it was refused.
        """
        try:
            begun, events = await begin_turn(stack, turn)
        except ForemindError as error:
            raise _in_words_of_this_api(error) from None
        return _Reply(companion, int(self._services.clock.now().timestamp()), begun, events)


def _data(content: bytes) -> bytes:
    return b"data: " + content + b"\n\n"


def _named_user(
    request: Request, body: ChatCompletionRequest, *, open_: bool
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


def _in_words_of_this_api(error: ForemindError) -> ForemindError:
    """Return an error with the name that its field has here."""
    name = _FIELDS.get(error.param or "")
    if name is not None:
        error.message = error.message.replace(f"{error.param}:", f"{name}:", 1)
        error.param = name
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
