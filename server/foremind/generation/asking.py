"""Asks a language model for an answer of a given shape."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import TypeVar

import msgspec

from foremind.errors import NOT_JSON, ModelServerError
from foremind.generation.model_server import ModelServer
from foremind.generation.prompt import Message

Answer = TypeVar("Answer", bound=msgspec.Struct)

_ATTEMPTS = 2


async def ask(
    server: ModelServer, messages: Sequence[Message], shape: type[Answer], max_tokens: int
) -> Answer:
    """Return the model's JSON answer, validated; an invalid one is asked for once more.

    Text around the JSON is ignored: models like to introduce it.

    Raises:
        ModelServerError: the server failed, or both answers were of another shape.
    """
    asked = list(messages)
    problem = ""
    for _ in range(_ATTEMPTS):
        written = ""
        async with aclosing(server.write(asked, max_tokens, 0.0)) as pieces:
            async for piece in pieces:
                written += piece
        try:
            return msgspec.json.decode(_json_in(written), type=shape)
        except NOT_JSON as error:
            problem = str(error)
            asked = [*messages, {"role": "user", "content": f"That was not valid: {problem}"}]
    raise ModelServerError(
        f"The language model's answer is not valid: {problem}", code="model_broken"
    )


def _json_in(text: str) -> str:
    return text[text.find("{") : text.rfind("}") + 1]
