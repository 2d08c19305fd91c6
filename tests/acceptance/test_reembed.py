"""`foremind db reembed` beside a server that players use, killed once in the middle."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import asyncpg
import httpx2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from foremind.app.configuration import load_settings
from foremind.retrieval.classifiers import TEXT_FEATURES
from foremind.storage.embedded_postgres import embedded_postgres
from foremind_eval.processes.server_process import running_server
from foremind_models import (
    ConvertedEncoder,
    Prefixes,
    describe_folder,
    find_model,
    prepare_model,
    ready_model,
)
from tests.conftest import PATIENCE, eventually_async

_LAYERS = 3
_NAMES = {"boat": "Zephyrine", "cat": "Mog", "dog": "Rex", "parrot": "Polly", "ship": "Argo"}
_USERS = ("ana", "bo", "cy")
_RETRYABLE = (503, 429)


@pytest.fixture(scope="module")
def models(model: ConvertedEncoder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the default model, and one made of its first layers: as wide, and different."""
    source, folder = tmp_path_factory.mktemp("hub"), tmp_path_factory.mktemp("models")
    graph = onnx.load(model.folder / "model.fp32.onnx")
    norms = [node for node in graph.graph.node if node.op_type == "LayerNormalization"]
    last = norms[2 * _LAYERS].output[0]
    nodes = list(graph.graph.node)
    kept = nodes[: next(n for n, node in enumerate(nodes) if last in node.output) + 1]
    inputs = {name for node in kept for name in node.input}
    weights = [tensor for tensor in graph.graph.initializer if tensor.name in inputs]
    for field, values in (("node", kept), ("initializer", weights)):
        graph.graph.ClearField(field)
        getattr(graph.graph, field).extend(values)
    del graph.graph.output[:]
    shape: list[str | int | None] = ["batch", "tokens", model.manifest.dimension]
    graph.graph.output.append(helper.make_tensor_value_info(last, TensorProto.FLOAT, shape))
    (source / "onnx").mkdir()
    onnx.save(graph, source / "onnx" / "model.onnx")
    (source / "config.json").write_text(json.dumps({"hidden_size": model.manifest.dimension}))
    shutil.copy(model.folder / "tokenizer.json", source)
    ready_model(describe_folder("three-layers", source, Prefixes()), folder, TEXT_FEATURES, print)
    shutil.copytree(model.folder, folder / model.folder.name)
    yield folder


async def reembed(environment: dict[str, str], *, kill_at: str | None = None) -> str:
    """Run the command, or kill it once it has said something; return what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "foremind", "db", "reembed", "three-layers", env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    said = ""
    async for line in process.stdout:
        said += line.decode()
        if kill_at is not None and kill_at in said:
            process.kill()
            await process.wait()
            return said
    assert await process.wait() == 0, said
    return said


class Players:
    """Who asks what they told before, and tells more, until they are stopped."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._relationships: dict[str, str] = {}
        self.asked = self.told = 0

    async def tell(self, user: str, text: str) -> None:
        """Say something until it is stored, as a client does."""
        self.told += 1
        message = {"id": f"m{self.told}", "companion": "wren", "user": user, "text": text}
        async with asyncio.timeout(PATIENCE):
            while True:
                with contextlib.suppress(httpx2.RemoteProtocolError, httpx2.ReadError):
                    response = await self._http.post("/v1/turns", json=message)
                    if response.status_code not in _RETRYABLE:
                        assert response.status_code == 200, response.text
                        return
                await asyncio.sleep(0.1)

    async def is_recalled(self, user: str, thing: str) -> bool:
        """Ask what something is called; return whether what was told is recalled."""
        if user not in self._relationships:
            (found,) = (await self._http.get("/v1/relationships", params={"user": user})).json()
            self._relationships[user] = found["id"]
        params = {"user": user, "draft": f"What is my {thing} called?"}
        path = f"/v1/relationships/{self._relationships[user]}/context"
        try:
            response = await self._http.get(path, params=params)
        except (httpx2.RemoteProtocolError, httpx2.ReadError):  # its connection was closed
            response = await self._http.get(path, params=params)
        assert response.status_code == 200, response.text
        recalled = [memory["content"] for memory in response.json()["memories"]]
        return any(_NAMES[thing] in content for content in recalled)

    async def go_on(self) -> None:
        """Ask and tell until cancelled."""
        while True:
            for user in _USERS:
                for thing in _NAMES:
                    assert await self.is_recalled(user, thing), (user, thing, self.asked)
                    self.asked += 1
                await self.tell(user, f"Today I saw {self.told} gulls and promised to feed them")


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_players_notice_nothing(models: Path, tmp_path: Path, workers: str) -> None:
    """What they told is recalled at any moment; a second run continues what a kill ended."""
    settings = load_settings(data_dir=tmp_path, models_path=models)
    environment = {
        **os.environ,
        "FOREMIND_DATA_DIR": str(tmp_path),
        "FOREMIND_MODELS_PATH": str(models),
        "FOREMIND_HTTP_PER_S": "1000",
        "FOREMIND_WORKERS": workers,
    }
    with running_server(settings, environment) as (url, _):
        base = url.replace("ws://", "http://").removesuffix("/v1/ws")
        async with httpx2.AsyncClient(base_url=base, timeout=PATIENCE) as http:
            players = Players(http)
            for user in _USERS:
                for thing, name in _NAMES.items():
                    await players.tell(user, f"My {thing} is called {name} and I love it")
            for user in _USERS:
                for thing in _NAMES:
                    await eventually_async(partial(players.is_recalled, user, thing))
            playing = asyncio.create_task(players.go_on())
            await reembed(environment, kill_at="Embedding with")
            before = players.asked
            said = await reembed(environment)
            assert "FOREMIND_EMBEDDING_MODEL=three-layers" in said
            assert "already" in await reembed(environment)
            asked = players.asked
            async with asyncio.timeout(PATIENCE):
                while players.asked < asked + 2 * len(_NAMES):
                    assert not playing.done(), playing.exception()
                    await asyncio.sleep(0.05)
            playing.cancel()
            assert before < asked
            with contextlib.suppress(asyncio.CancelledError):
                await playing
    await _check_vectors(tmp_path, models)


async def _check_vectors(data_dir: Path, models: Path) -> None:
    """Every turn has the vector that the new model gives its text, and only that."""
    encoder = find_model("three-layers", models)
    model = await asyncio.to_thread(prepare_model, encoder, models, print)
    async with embedded_postgres(data_dir) as url:
        raw = await asyncpg.connect(url)
        try:
            turns = await raw.fetch(
                "SELECT content, other_embedding::text AS vector FROM turns "
                "WHERE other_embedding IS NOT NULL"
            )
            assert not await raw.fetchval("SELECT count(embedding) FROM turns")
            assert not await raw.fetchval("SELECT count(embedding) FROM memories")
            assert not await raw.fetchval(
                "SELECT count(*) FROM memories WHERE other_embedding IS NULL"
            )
        finally:
            await raw.close()
    assert len(turns) > len(_USERS) * len(_NAMES)
    made = model.encoder().encode([turn["content"] for turn in turns])
    stored = np.array([json.loads(turn["vector"]) for turn in turns])
    assert np.sum(made * stored, axis=1).min() > 0.999
