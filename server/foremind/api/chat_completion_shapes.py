"""The shapes of OpenAI's chat completions and responses, as far as this server has them."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType


class ContentPart(msgspec.Struct, frozen=True):
    """A part of a message; only those of type `text` are read."""

    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct, frozen=True):
    """A message of the transcript.

    Those of the roles `user` and `assistant` are the conversation; all others are ignored, since
    the companion's own persona applies.
    """

    role: str
    content: str | list[ContentPart] | None = None


class StreamOptions(msgspec.Struct, frozen=True):
    """With `include_usage`, the tokens are stated in a chunk of their own at the end."""

    include_usage: bool | None = None


class ChatCompletionRequest(msgspec.Struct, frozen=True):
    """A request for the next reply; fields that are not described are ignored.

    `model` is the companion's slug. `messages` is the whole conversation; the last one is the
    user's, or a reply that is to be continued. `user` names the user where the server runs open, or
    the token's scope is `host` or `admin`. `temperature` and `max_tokens`, or
    `max_completion_tokens`, apply within what the user may set; a limit below 1 is none.
    """

    model: str
    messages: list[ChatMessage]
    user: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    n: float | None = None


class ReplyMessage(msgspec.Struct, frozen=True):
    """The companion's reply."""

    content: str
    role: Literal["assistant"] = "assistant"


#: Why a reply ended: by itself, or by its token limit.
FinishReason = Literal["stop", "length"]


class ReplyChoice(msgspec.Struct, frozen=True):
    """The only choice; `finish_reason` is `length` where the token limit ended the reply."""

    message: ReplyMessage
    finish_reason: FinishReason
    index: int = 0


class TokenUsage(msgspec.Struct, frozen=True):
    """Tokens by the configured tokenizer, or as estimated; the prompt is Foremind's own."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class ChatCompletion(msgspec.Struct, frozen=True):
    """A reply; `created` is in seconds since the epoch."""

    id: str
    created: int
    model: str
    choices: list[ReplyChoice]
    usage: TokenUsage
    object: Literal["chat.completion"] = "chat.completion"


class ReplyDelta(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a chunk adds to the reply."""

    role: str | None = None
    content: str | None = None


class DeltaChoice(msgspec.Struct, frozen=True):
    """The only choice of a chunk; `finish_reason` is set in the last one."""

    delta: ReplyDelta
    index: int = 0
    finish_reason: FinishReason | None = None


class ChatCompletionChunk(msgspec.Struct, frozen=True):
    """A chunk of a streamed reply."""

    id: str
    created: int
    model: str
    choices: list[DeltaChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: TokenUsage | UnsetType = UNSET


class ModelView(msgspec.Struct, frozen=True):
    """A companion as a model; `id` is its slug, `name` what it is called."""

    id: str
    name: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: Literal["foremind"] = "foremind"


class ModelList(msgspec.Struct, frozen=True):
    """The companions that the caller may open."""

    data: list[ModelView]
    object: Literal["list"] = "list"


class InputItem(msgspec.Struct, frozen=True):
    """An item of a response's input; those of another type than `message` are ignored."""

    type: str = "message"
    role: str | None = None
    content: str | list[ContentPart] | None = None


class ResponsesRequest(msgspec.Struct, frozen=True):
    """A request for the next reply; fields that are not described are ignored.

    `model` is the companion's slug. `input` is what the user says or the whole conversation, or
    what follows `previous_response_id`, one of the newest. With `store` false, nothing is
    remembered of it. `user`, `temperature` and `max_output_tokens` are as those of chat
    completions. Not supported are `background`, `conversation`, `prompt`, formats of `text` other
    than text, and a `tool_choice` that requires a tool.
    """

    model: str
    input: str | list[InputItem]
    user: str | None = None
    stream: bool | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    temperature: float | None = None
    max_output_tokens: float | None = None
    metadata: dict[str, str] | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    text: dict[str, Any] | None = None
    tool_choice: Any = None


class OutputText(msgspec.Struct, frozen=True):
    """The text of a reply."""

    text: str
    type: Literal["output_text"] = "output_text"
    annotations: list[Any] = []
    logprobs: list[Any] = []


class OutputMessage(msgspec.Struct, frozen=True):
    """The companion's reply; `incomplete` where its token limit ended it."""

    id: str
    content: list[OutputText]
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"


def _no_input_details() -> dict[str, int]:
    return {"cached_tokens": 0, "cache_write_tokens": 0}


def _no_output_details() -> dict[str, int]:
    return {"reasoning_tokens": 0}


class ResponseUsage(msgspec.Struct, frozen=True):
    """Tokens as those of chat completions; none is cached, and there is no reasoning."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: dict[str, int] = msgspec.field(default_factory=_no_input_details)
    output_tokens_details: dict[str, int] = msgspec.field(default_factory=_no_output_details)


class ResponseFailure(msgspec.Struct, frozen=True):
    """Why a reply failed once it had begun."""

    code: str
    message: str


class IncompleteDetails(msgspec.Struct, frozen=True):
    """Why a reply is incomplete."""

    reason: Literal["max_output_tokens"] = "max_output_tokens"


class ModelResponse(msgspec.Struct, frozen=True):
    """A reply, `incomplete` where its token limit ended it.

    `created_at` is in seconds since the epoch.
    """

    id: str
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    output: list[OutputMessage]
    usage: ResponseUsage | None = None
    error: ResponseFailure | None = None
    previous_response_id: str | None = None
    store: bool = True
    temperature: float | None = None
    max_output_tokens: float | None = None
    metadata: dict[str, str] = {}
    object: Literal["response"] = "response"
    background: bool = False
    incomplete_details: IncompleteDetails | None = None
    instructions: None = None
    parallel_tool_calls: bool = False
    text: dict[str, Any] = msgspec.field(default_factory=lambda: {"format": {"type": "text"}})
    tool_choice: Literal["auto"] = "auto"
    tools: list[Any] = []
    top_p: float | None = None
    truncation: Literal["auto"] = "auto"
    user: str | None = None
