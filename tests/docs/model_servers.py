"""Language model servers that enforce limits like the real ones.

Each accepts a limited number of tokens, counted by a real tokenizer, and handles longer prompts as
the real one does: Ollama silently drops the beginning, llama.cpp and vLLM refuse the request.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tokenizers import Tokenizer

from fair_transport import listening
from foremind_eval.doubles.model_server import chunk_line

_THINKING = ("<think>\n", "The user said something. I should answer.", "\n</think>\n\n")
_TEMPLATE_TOKENS = 8  # added to each message by the chat template


@dataclass
class StrictServer:
    """A server with a context of `context` tokens for prompt and reply together.

    Attributes:
        truncates: drop the beginning of a prompt that is too long, instead of refusing it.
        models: the names of served models; if empty, any name is accepted.
        thinks: the model writes its reasoning before the reply.
        key: the required bearer token, if any.
        seen: the prompts of foreground requests, after truncation.
        refused: the error messages of refused foreground requests.
    """

    tokenizer: Tokenizer
    context: int
    truncates: bool = False
    models: tuple[str, ...] = ()
    thinks: bool = False
    key: str | None = None
    seen: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    async def chat(self, request: Request) -> Response:
        """Answer `POST /v1/chat/completions`."""
        body: dict[str, Any] = await request.json()
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return self._refuse(body, 401, "invalid key")
        if self.models and body["model"] not in self.models:
            return self._refuse(body, 404, f"the model {body['model']!r} does not exist")
        prompt = "\n".join(message["content"] for message in body["messages"])
        encoded = self.tokenizer.encode(prompt, add_special_tokens=False)
        max_prompt_tokens = (
            self.context - body["max_tokens"] - _TEMPLATE_TOKENS * len(body["messages"])
        )
        if len(encoded) > max_prompt_tokens:
            if not self.truncates:
                message = f"{len(encoded)} tokens are more than {max_prompt_tokens}"
                return self._refuse(body, 400, message)
            prompt = prompt[encoded.offsets[-max_prompt_tokens][0] :]
        if body["temperature"] > 0:
            self.seen.append(prompt)
        words = [*(_THINKING if self.thinks else ()), "Hello", " there", "."]
        return StreamingResponse(self._stream(words), media_type="text/event-stream")

    def _refuse(self, body: dict[str, Any], status: int, message: str) -> Response:
        if body["temperature"] > 0:
            self.refused.append(message)
        return JSONResponse({"error": {"message": message}}, status)

    async def _stream(self, words: list[str]) -> AsyncIterator[str]:
        for word in words:
            yield chunk_line(word)
        yield "data: [DONE]\n\n"


@asynccontextmanager
async def running(server: StrictServer) -> AsyncIterator[int]:
    """Run a model server; yield its port."""
    app = Starlette(routes=[Route("/v1/chat/completions", server.chat, methods=["POST"])])
    async with listening(app) as port:
        yield port
