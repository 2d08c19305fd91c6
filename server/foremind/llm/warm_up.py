"""One reply from a model server made for it, so that everything a reply needs is loaded.

The libraries load most of themselves with the first request, which takes most of a second. Nothing
is sent to the model that is configured: it may cost, and may not be there yet.
"""

import asyncio
from contextlib import aclosing

import structlog

from foremind.domain.errors import ModelServerError
from foremind.llm.http_client import ModelEndpoint, ModelHttpClient
from foremind.llm.openai_model import ChatModelOptions, OpenAIChatModel
from foremind.llm.slots import SlotPool

_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    b'data: {"id":"1","object":"chat.completion.chunk","created":0,"model":"none","choices":'
    b'[{"index":0,"delta":{"role":"assistant","content":"Hello."},"finish_reason":null}]}\n\n'
    b"data: [DONE]\n\n"
)
_PATIENCE_S = 30.0

_log = structlog.get_logger("foremind.llm")


def rehearse() -> None:
    """Speak once; to be called in a thread of its own, which it keeps busy for a second."""
    asyncio.run(_rehearse())


async def _rehearse() -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        address = ModelEndpoint(f"http://127.0.0.1:{port}/v1", None, _PATIENCE_S, _PATIENCE_S)
        client = ModelHttpClient(address, SlotPool(1), lambda _: None)
        options = ChatModelOptions(
            address, model="none", max_tokens=1, temperature=0.0, reply_timeout_s=_PATIENCE_S
        )
        model = OpenAIChatModel(options, client)
        written = model.write([{"role": "user", "content": "Hello?"}], 1, 0.0)
        try:
            async with aclosing(written) as pieces:
                async for _ in pieces:
                    pass
        except ModelServerError as error:  # a proxy in the way, perhaps: the first reply is slow
            _log.warning("rehearsal.failed", reason=error.code)
        finally:
            await client.close()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n")
         if line.startswith(b"content-length:")), 0,
    )  # fmt: skip
    await reader.readexactly(length)
    writer.write(_ANSWER)
    await writer.drain()
    writer.close()
