"""Warms the client library up with one reply from a local stub server.

The libraries import most of their modules on the first request, which takes most of a second.
Nothing is sent to the configured model: it may cost money, and may not be running yet.
"""

import asyncio
from contextlib import aclosing

import structlog

from foremind.domain.errors import ModelServerError
from foremind.llm import structured_output  # noqa: F401 - preloaded for background work
from foremind.llm.http_client import ModelEndpoint, ModelHttpClient
from foremind.llm.openai_model import ChatModelOptions, OpenAIChatModel
from foremind.llm.slots import SlotPool

_RESPONSE = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    b'data: {"id":"1","object":"chat.completion.chunk","created":0,"model":"none","choices":'
    b'[{"index":0,"delta":{"role":"assistant","content":"Hello."},"finish_reason":null}]}\n\n'
    b"data: [DONE]\n\n"
)
_TIMEOUT_S = 30.0

_log = structlog.get_logger("foremind.llm")


def warm_up_client() -> None:
    """Request one reply; call it in a thread of its own, which it blocks for about a second."""
    asyncio.run(_request_reply())


async def _request_reply() -> None:
    server = await asyncio.start_server(_serve_reply, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        address = ModelEndpoint(f"http://127.0.0.1:{port}/v1", None, _TIMEOUT_S, _TIMEOUT_S)
        client = ModelHttpClient(address, SlotPool(1), lambda _: None)
        options = ChatModelOptions(
            address, model="none", max_tokens=1, temperature=0.0, reply_timeout_s=_TIMEOUT_S
        )
        model = OpenAIChatModel(options, client)
        reply = model.write([{"role": "user", "content": "Hello?"}], 1, 0.0)
        try:
            async with aclosing(reply) as pieces:
                async for _ in pieces:
                    pass
        except ModelServerError as error:  # perhaps a proxy: the first reply will be slow
            _log.warning("rehearsal.failed", reason=error.code)
        finally:
            await client.close()


async def _serve_reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    headers = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in headers.lower().split(b"\r\n")
         if line.startswith(b"content-length:")), 0,
    )  # fmt: skip
    await reader.readexactly(length)
    writer.write(_RESPONSE)
    await writer.drain()
    writer.close()
