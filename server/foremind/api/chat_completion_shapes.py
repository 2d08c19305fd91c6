"""The shapes of OpenAI's chat completions, as far as this server has them."""

from typing import Literal

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


class ReplyChoice(msgspec.Struct, frozen=True):
    """The only choice."""

    message: ReplyMessage
    index: int = 0
    finish_reason: Literal["stop"] = "stop"


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
    finish_reason: Literal["stop"] | None = None


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
