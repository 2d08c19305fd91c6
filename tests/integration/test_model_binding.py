"""A database belongs to the embedding model that made its first vector, until then to none."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from pgvector import HalfVector

from foremind.app.core import Core, core
from foremind.domain.errors import ModelMismatch
from foremind.domain.record import NewRecord
from foremind.domain.settings.settings import Settings
from foremind.retrieval.classifiers import TEXT_FEATURES
from foremind_eval.doubles.random_model import write_random_model
from foremind_models import Prefixes, describe_folder, ready_model
from tests.conftest import eventually_async, owner_of
from tests.integration.test_store import NOW, open_session, say


@pytest.fixture(scope="module")
def wide_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of models with one of 96 dimensions."""
    folder, models = tmp_path_factory.mktemp("hub"), tmp_path_factory.mktemp("models")
    write_random_model(folder, dimension=96)
    ready_model(describe_folder("example/wide", folder, Prefixes()), models, TEXT_FEATURES, print)
    return models


@pytest.fixture
def wide(settings: Settings, wide_models: Path) -> Settings:
    """The settings with another model than the default."""
    changes = {"embedding_model": "example/wide", "models_path": wide_models}
    return msgspec.structs.replace(settings, **changes)


async def _a_memory(parts: Core) -> None:
    assert await say(parts, await open_session(parts), "I live in Porto with my sister") is not None


async def _a_turn(parts: Core) -> None:
    """Of which nothing is remembered."""
    assert await say(parts, await open_session(parts, significance_threshold=0.9), "haha") is None


async def _a_record(parts: Core) -> None:
    session = await open_session(parts)
    vector = await parts.embedder.embed_passage("The gate code")
    record = NewRecord(layer="vault", content="The gate code", made_by="user", vector=vector)
    async with parts.stores.records.begin_changes(session.relationship_id, NOW) as changes:
        await changes.add(record)


async def _a_passage(parts: Core) -> None:
    await open_session(parts)
    (companion,) = await parts.stores.companions.list()
    documents = parts.stores.documents
    document = await documents.add(companion.id, "Ferry", "text/plain", ["It leaves at six."], NOW)
    ((chunk, text),) = await documents.chunks_to_embed(document)
    await documents.store_chunk_vector(chunk, await parts.embedder.embed_passage(text))


@pytest.mark.parametrize("store", [_a_memory, _a_turn, _a_record, _a_passage])
async def test_vectors_of_two_models_are_never_mixed(
    settings: Settings, wide: Settings, store: Callable[[Core], Awaitable[None]]
) -> None:
    """Whatever the first vector is of."""
    async with core(settings) as parts:
        await store(parts)
    with pytest.raises(ModelMismatch, match=r"all-MiniLM-L6-v2 \(384\)"):
        async with core(wide):
            pass
    async with core(settings):
        pass


async def test_a_database_without_vectors_takes_another_model(
    settings: Settings, wide: Settings
) -> None:
    """A server had been started with the default, and players had come and said nothing."""
    async with core(settings) as parts:
        await open_session(parts, "ana")
        await open_session(parts, "bo")
    async with core(wide) as parts:
        await _a_memory(parts)
        dimensions = await owner_of(parts).fetchval("SELECT vector_dims(embedding) FROM memories")
        assert dimensions == 96
    with pytest.raises(ModelMismatch, match=r"example/wide \(96\)"):
        async with core(settings):
            pass


async def test_a_vector_that_is_being_stored_keeps_its_model(
    built: Core, settings: Settings, wide: Settings
) -> None:
    """Another server that starts meanwhile waits for it, and is refused."""
    session = await open_session(built)
    turn = await built.stores.turns.commit_message(session, "1", "hi", NOW)
    vector = HalfVector(np.ones(384) / np.sqrt(384))
    fingerprint = built.embedder.manifest.fingerprint

    async def start() -> None:
        async with core(wide):
            pass

    async with built.database.transaction(session.relationship_id) as connection:
        relationship_id = session.relationship_id
        stored = await connection.row(
            "end_wait", relationship_id, [turn.id], [vector], fingerprint, [], [], NOW
        )
        assert stored == (1,)
        starting = asyncio.create_task(start())
        await eventually_async(owner_of(built).is_waited_for)
    with pytest.raises(ModelMismatch, match="all-MiniLM-L6-v2"):
        await starting
