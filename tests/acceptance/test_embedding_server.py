"""Vectors from a server: the same recall, and local ones whenever it fails."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import numpy as np
import openai
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from fair_transport import listening
from foremind.app.configuration import load_settings
from foremind.app.embedding_server import serving_embeddings
from foremind.domain.errors import ModelMismatch, UnsafeBinding
from foremind.domain.settings.settings import Settings
from foremind.retrieval.embedding.service import Priority
from foremind_client import Client
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.processes.server_process import free_port
from foremind_models import ConvertedEncoder
from tests.acceptance.test_http import get
from tests.conftest import PATIENCE, RunningServer, StartServer, eventually
from tests.unit.auth.test_access_tokens import SECRET

TEXT = "My sister Ana lives in Porto."


def fallbacks(server: RunningServer) -> int:
    """Return how many texts a server embedded itself."""
    return int(server.app.core.runtime.metrics.embedding_fallbacks._value.get())


async def recalled(client: Client, text: str) -> list[dict[str, Any]]:
    """Send a message and return the memories in its context."""
    await client.send(text)
    context = await client.expect("context.ready")
    await client.expect("response.done")
    memories: list[dict[str, Any]] = context["memories"]
    return memories


async def tell_and_ask(server: RunningServer, user: str) -> list[tuple[str, float]]:
    """Return what a question recalls after a few statements, with the scores."""
    client = await server.connect()
    await client.open_session("wren", user_id=user, name="Player")
    for text in (TEXT, "I broke my arm in March.", "The lighthouse keeper hates gulls."):
        await client.send(text)
        # A reply that is stopped by the next message may leave no turn between the two.
        await client.expect_all("response.done", "memory.stored")
    return [
        (memory["content"], memory["score"])
        for memory in await recalled(client, "Where does my sister live?")
    ]


async def test_a_server_of_the_same_model_recalls_the_same(
    start: StartServer, settings: Settings
) -> None:
    """With the scores of the local model; nothing is embedded locally."""
    async with serving_embeddings(settings, 2) as port:
        remote = await start(embedding_url=f"http://127.0.0.1:{port}/v1")
        from_server = await tell_and_ask(remote, "ana")
        assert fallbacks(remote) == 0
    local = await start()
    locally = await tell_and_ask(local, "ben")
    assert [content for content, _ in from_server] == [content for content, _ in locally]
    assert from_server[0][0] == TEXT
    assert [score for _, score in from_server] == pytest.approx(
        [score for _, score in locally], abs=1e-3
    )


async def test_while_the_server_is_away_texts_are_embedded_locally(
    start: StartServer, settings: Settings
) -> None:
    """Readiness says so without failing, and the server is used again when it is back."""
    clock = ManualClock()
    embedding = msgspec.structs.replace(settings, port=free_port())
    async with serving_embeddings(embedding, 1) as port:
        url = f"http://127.0.0.1:{port}/v1"
        server = await start(clock, embedding_url=url)
        client = await server.session()
        await client.send(TEXT)
        await client.expect("memory.stored")
    memories = await recalled(client, "Where does my sister live?")
    assert memories[0]["content"] == TEXT
    assert fallbacks(server) > 0
    status, _, body = await get(server, "/readyz")
    assert status == 200
    assert json.loads(body)["embedding_server"].startswith("degraded: embedding locally, not reach")
    async with serving_embeddings(embedding, 1):
        while True:
            await clock.advance(1.0)
            if json.loads((await get(server, "/readyz"))[2])["embedding_server"] == "ok":
                break
        before = fallbacks(server)
        await recalled(client, "Where does she live?")
        assert fallbacks(server) == before


async def test_a_server_that_was_never_there_only_slows_the_start(start: StartServer) -> None:
    server = await start(embedding_url="http://127.0.0.1:1/v1")
    assert (await tell_and_ask(server, "ana"))[0][0] == TEXT


@asynccontextmanager
async def double(answer: Callable[[list[float]], Response]) -> AsyncIterator["Double"]:
    """Run a server that answers with the right vectors until it is `spoilt`."""
    yield_double = Double(answer)
    async with listening(yield_double.app) as port:
        yield_double.url = f"http://127.0.0.1:{port}/v1"
        yield yield_double


class Double:
    """An embeddings server by other people, which `answer`s badly once it is spoilt."""

    url = ""

    def __init__(self, answer: Callable[[list[float]], Response]) -> None:
        self.app = Starlette(routes=[Route("/v1/embeddings", self.embed, methods=["POST"])])
        self.encoder: Any = None
        self.spoilt = False
        self._answer = answer

    async def embed(self, request: Request) -> Response:
        """Answer with numbers, as servers do that know no base64."""
        body = await request.json()
        vector = (3.0 * self.encoder.encode(body["input"])[0]).tolist()  # not normalised
        return self._answer(vector) if self.spoilt else _answer(vector)


def _answer(embedding: object) -> Response:
    return JSONResponse({"object": "list", "data": [{"index": 0, "embedding": embedding}]})


async def _endless() -> AsyncIterator[bytes]:
    while True:
        yield b" " * 65_536
        await asyncio.sleep(0)


async def _silent() -> AsyncIterator[bytes]:
    yield b" "
    await asyncio.Event().wait()


BAD_ANSWERS: dict[str, Callable[[list[float]], Response]] = {
    "another dimension": lambda vector: _answer(vector[:-1]),
    "not numbers": lambda vector: _answer(["x"] * len(vector)),
    "broken base64": lambda _: _answer("%%%"),
    "too little base64": lambda _: _answer(base64.b64encode(b"12345").decode()),
    "no vector": lambda _: JSONResponse({"data": []}),
    "nothing but zeros": lambda vector: _answer([0.0] * len(vector)),
    "not finite": lambda vector: _answer(
        base64.b64encode(np.full(len(vector), np.nan, "<f4").tobytes()).decode()
    ),
    "a page": lambda _: Response("<html>Hello</html>"),
    "an error": lambda _: JSONResponse({"error": {"message": "out of memory"}}, 500),
    "an endless answer": lambda _: StreamingResponse(_endless()),
    "an answer that never ends": lambda _: StreamingResponse(_silent()),
}


@pytest.mark.parametrize("bad", BAD_ANSWERS)
async def test_whatever_a_server_answers_the_player_is_not_affected(
    start: StartServer, model: ConvertedEncoder, bad: str
) -> None:
    async with double(BAD_ANSWERS[bad]) as other:
        other.encoder = model.encoder()
        # The last of these is given up after this time, which no good answer takes.
        server = await start(embedding_url=other.url, embedding_timeout_s=10.0)
        assert (await tell_and_ask(server, "ana"))[0][0] == TEXT
        assert fallbacks(server) == 0
        other.spoilt = True
        client = await server.session("ben")
        await client.send(TEXT)
        await client.expect("memory.stored")
        assert fallbacks(server) > 0


async def test_a_server_of_another_model_is_refused(
    start: StartServer, model: ConvertedEncoder
) -> None:
    """Its vectors would be compared with stored ones of the configured model."""
    async with double(_answer) as other:
        other.encoder = model.encoder()
        encode = other.encoder.encode
        other.encoder = type("Reversed", (), {"encode": lambda _, texts: encode(texts)[:, ::-1]})()
        with pytest.raises(ModelMismatch, match="are not those of the embedding model"):
            await start(embedding_url=other.url)


async def test_the_official_client_gets_the_vectors_of_the_model(
    settings: Settings, model: ConvertedEncoder
) -> None:
    """As numbers and in base64, one text or several."""
    expected = model.encoder().encode([TEXT, "gulls"])
    async with serving_embeddings(settings, 1) as port:
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="any")
        several = await client.embeddings.create(model="all-MiniLM-L6-v2", input=[TEXT, "gulls"])
        assert np.allclose([item.embedding for item in several.data], expected, atol=1e-6)
        single = await client.embeddings.create(
            model="all-MiniLM-L6-v2", input=TEXT, encoding_format="float"
        )
        assert np.allclose(single.data[0].embedding, expected[0], atol=1e-6)
        assert [item.id async for item in client.models.list()] == ["all-MiniLM-L6-v2"]
        await client.close()


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"model": "other", "input": "x"}, "model"),
        ({"model": "all-MiniLM-L6-v2", "input": []}, "input"),
        ({"model": "all-MiniLM-L6-v2", "input": [""]}, "input"),
        ({"model": "all-MiniLM-L6-v2", "input": ["x"] * 257}, "input"),
        ({"model": "all-MiniLM-L6-v2", "input": [1, 2]}, "input"),
        ({"model": "all-MiniLM-L6-v2", "input": "x", "dimensions": 12}, "dimensions"),
        ({"model": "all-MiniLM-L6-v2", "input": "x", "encoding_format": "hex"}, "encoding_format"),
        ({"input": "x"}, "model"),
    ],
)
async def test_a_bad_request_names_the_field(
    settings: Settings, body: dict[str, Any], param: str
) -> None:
    async with (
        serving_embeddings(settings, 1) as port,
        httpx2.AsyncClient(timeout=PATIENCE) as http,
    ):
        response = await http.post(f"http://127.0.0.1:{port}/v1/embeddings", json=body)
        assert response.status_code in (400, 404)
        assert response.json()["error"]["param"].startswith(param)


async def test_outside_loopback_an_embeddings_server_needs_a_key(settings: Settings) -> None:
    with pytest.raises(UnsafeBinding, match="FOREMIND_EMBEDDING_KEY"):
        async with serving_embeddings(msgspec.structs.replace(settings, host="0.0.0.0"), 1):
            pass


async def test_only_clients_with_the_key_are_served(start: StartServer, settings: Settings) -> None:
    """A gateway sends it; without it, everything but the health check is refused."""
    keyed = load_settings(**(msgspec.structs.asdict(settings) | {"embedding_key": "a key"}))
    async with serving_embeddings(keyed, 1) as port, httpx2.AsyncClient(timeout=PATIENCE) as http:
        url = f"http://127.0.0.1:{port}"
        for path in ("/v1/models", "/metrics"):
            assert (await http.get(url + path)).status_code == 401
        assert (await http.post(f"{url}/v1/embeddings", json={})).status_code == 401
        assert (await http.get(f"{url}/healthz")).status_code == 200
        for scheme, status in (("Bearer", 200), ("bearer", 200), ("BEARER", 200), ("Basic", 401)):
            headers = {"authorization": f"{scheme} a key"}
            assert (await http.get(f"{url}/v1/models", headers=headers)).status_code == status
        server = await start(embedding_url=f"{url}/v1", embedding_key="a key")
        await tell_and_ask(server, "ana")
        assert fallbacks(server) == 0


@pytest.mark.parametrize("key", ["a key", None])
async def test_other_machines_use_a_server_with_a_key_by_its_name(
    settings: Settings, key: str | None
) -> None:
    """However the gateways authenticate. Without a key, a page could use it by DNS rebinding."""
    changes = {"embedding_key": key, "auth_secret": SECRET if key is None else None}
    headers = {"Host": "embedding.internal:8769", "Authorization": f"Bearer {key}"}
    async with (
        serving_embeddings(
            load_settings(**(msgspec.structs.asdict(settings) | changes)), 1
        ) as port,
        httpx2.AsyncClient(timeout=PATIENCE, headers=headers) as http,
    ):
        answer = await http.get(f"http://127.0.0.1:{port}/v1/models")
    assert answer.status_code == (401 if key is None else 200)


async def test_enter_interrupts_a_speculative_request(
    start: StartServer, settings: Settings
) -> None:
    """When all connections are in use; the player's text is not sent after it."""
    begun, release = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield b" "
        begun.set()
        await release.wait()

    encoder = (await start()).app.core.embedder
    async with double(lambda _: StreamingResponse(slow())) as other:
        other.encoder = _encoder_of(encoder)
        server = await start(embedding_url=other.url, embedding_connections=1)
        embedder = server.app.core.embedder
        other.spoilt = True
        eager = asyncio.create_task(embedder.embed_query("I was", Priority.EAGER))
        await eventually(begun.is_set)
        other.spoilt = False
        await embedder.embed_query("I was here", Priority.ENTER)
        await eager
        assert fallbacks(server) == 0
        release.set()


def _encoder_of(embedder: Any) -> Any:
    return embedder._backend._encoder
