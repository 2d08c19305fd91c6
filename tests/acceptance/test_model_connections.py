"""Connections to language model servers: kept between requests, replaced when closed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import pytest

from foremind.app.configuration import load_settings
from foremind.domain.errors import ModelServerError
from foremind.domain.policy import policy_for
from foremind.domain.settings.settings import CompanionSettings
from foremind.llm.model_selection import ChatModels
from foremind.llm.openai_model import OpenAIChatModel
from foremind_eval.doubles.model_server import chunk_line
from tests.conftest import eventually

_HEADERS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
)


@dataclass
class ConnectedModel:
    """A server that keeps its connections, and closes one when it gets a request too many on it."""

    per_connection: int = 1_000
    url: str = ""
    connections: int = 0
    requests: int = 0
    open: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        self.connections += 1
        self.open += 1
        answered = 0
        while await _read_request(reader):
            self.requests += 1
            if answered == self.per_connection:
                break
            answered += 1
            writer.write(_HEADERS)
            for text in (chunk_line("Hello."), "data: [DONE]\n\n", ""):
                writer.write(f"{len(text):x}\r\n{text}\r\n".encode())
                await writer.drain()
        writer.close()
        self.open -= 1


async def _read_request(reader: asyncio.StreamReader) -> bool:
    try:
        headers = (await reader.readuntil(b"\r\n\r\n")).lower().split(b"\r\n")
        lengths = [line for line in headers if line.startswith(b"content-length:")]
        await reader.readexactly(int(lengths[0].split(b":")[1]))
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return True


@asynccontextmanager
async def talking_to(model: ConnectedModel) -> AsyncIterator[OpenAIChatModel]:
    """Run a server, and yield a client of it."""
    server = await asyncio.start_server(model.serve, "127.0.0.1", 0)
    async with server:
        model.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        settings = load_settings(llm_url=model.url)
        chat_models = ChatModels(settings)
        client = chat_models.model_server_for(policy_for(CompanionSettings(), settings).chat_model)
        assert client is not None
        yield client
        await chat_models.close()
        await eventually(lambda: not model.open)


async def say(client: OpenAIChatModel) -> str:
    """Return a whole reply, once its response has ended as well."""
    async with aclosing(client.write([{"role": "user", "content": "Hi"}], 10, 0.5)) as pieces:
        reply = "".join([piece async for piece in pieces])
    await eventually(
        lambda: not any(task.get_name() == "model-response-end" for task in asyncio.all_tasks())
    )
    return reply


async def test_requests_share_a_connection() -> None:
    """To a distant server, opening one takes several round trips."""
    model = ConnectedModel()
    async with talking_to(model) as client:
        assert [await say(client) for _ in range(3)] == ["Hello."] * 3
    assert (model.requests, model.connections) == (3, 1)


async def test_a_kept_connection_that_the_server_closes_costs_no_reply() -> None:
    """As llama.cpp's server does, which says that it keeps them: the request goes out again."""
    model = ConnectedModel(per_connection=1)
    async with talking_to(model) as client:
        assert [await say(client) for _ in range(3)] == ["Hello."] * 3
    assert (model.requests, model.connections) == (5, 3)


async def test_a_server_that_answers_nothing_is_asked_twice() -> None:
    """Not for ever."""
    model = ConnectedModel(per_connection=0)
    async with talking_to(model) as client:
        with pytest.raises(ModelServerError) as failure:
            await say(client)
    assert failure.value.code == "model_broken"
    assert model.requests == 2
