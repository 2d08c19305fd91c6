"""`foremind db reembed`: another model's vectors beside those that are searched, then instead."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import msgspec
import numpy as np
import pytest

from foremind.app.core import Core, build_corrector, build_eraser, core
from foremind.domain.clock import SystemClock
from foremind.domain.errors import DatabaseUnsuitable, StorageUnavailable
from foremind.domain.record import NewRecord
from foremind.domain.settings.settings import Settings
from foremind.domain.turn import OpenedSession
from foremind.memory.erasure.eraser import ErasureScope
from foremind.memory.reembed import Reembedding
from foremind.retrieval.classifiers import TEXT_FEATURES
from foremind.runtime.supervision import begin
from foremind.storage.database import Database
from foremind.storage.named_queries import load_queries
from foremind_eval.doubles.random_model import write_random_model
from foremind_models import ConvertedEncoder, Prefixes, describe_folder, ready_model
from tests.conftest import CommitsOnly, eventually_async, owner_of
from tests.integration.test_store import NOW, open_session, recall, say

TABLES = ("turns", "memories", "records", "document_chunks")
NAMES = ("Ana", "Mara")
SAID = (
    "I live in Porto with my sister",
    "She sings in a choir on Thursdays",
    "My boat is called Zephyrine and I love it",
)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> ConvertedEncoder:
    """A model of 96 dimensions."""
    folder, models = tmp_path_factory.mktemp("hub"), tmp_path_factory.mktemp("models")
    write_random_model(folder, dimension=96)
    return ready_model(
        describe_folder("example/wide", folder, Prefixes()), models, TEXT_FEATURES, print
    )


@asynccontextmanager
async def reembedding(settings: Settings, model: ConvertedEncoder) -> AsyncIterator[Reembedding]:
    """The command's work on a database."""
    assert settings.database_url is not None
    url = settings.database_url.reveal()
    async with Database.connect(url, size=3, timeout_s=60, publisher=CommitsOnly()) as database:
        encoder = model.encoder()
        clock = SystemClock()
        yield Reembedding(database, url, model.manifest, encoder, settings, clock, print)


async def a_past(parts: Core) -> tuple[OpenedSession, list[int]]:
    """Store turns, memories, a record and a passage; return the session and the memories."""
    session = await open_session(parts)
    memories = [await say(parts, session, text, number=n) for n, text in enumerate(SAID)]
    await say(parts, session, "hm", number=9)
    vector = await parts.embedder.embed_passage("The gate code")
    record = NewRecord(layer="vault", content="The gate code", made_by="user", vector=vector)
    async with parts.stores.records.begin_changes(session.relationship_id, NOW) as changes:
        await changes.add(record)
    (companion,) = await parts.stores.companions.list()
    documents = parts.stores.documents
    document = await documents.add(companion.id, "Ferry", "text/plain", ["It leaves at six."], NOW)
    ((chunk, text),) = await documents.chunks_to_embed(document)
    await documents.store_chunk_vector(chunk, await parts.embedder.embed_passage(text))
    return session, [memory for memory in memories if memory is not None]


async def vectors(url: str, column: str = "embedding") -> dict[tuple[str, int], Any]:
    """Every vector of a column, by table and id."""
    raw = await asyncpg.connect(url)
    try:
        return {
            (table, row["id"]): row["vector"] and np.array(json.loads(row["vector"]), np.float32)
            for table in TABLES
            for row in await raw.fetch(f"SELECT id, {column}::text AS vector FROM {table}")
        }
    finally:
        await raw.close()


async def test_there_and_back_gives_the_same_vectors(
    settings: Settings, model: ConvertedEncoder, wide: ConvertedEncoder
) -> None:
    """Of turns, memories in their exchange, records and passages; nothing of the other is left."""
    assert settings.database_url is not None
    url = settings.database_url.reveal()
    async with core(settings) as parts:
        session, _ = await a_past(parts)
    before = await vectors(url)
    async with reembedding(settings, wide) as work:
        assert await work.run()
        assert not await work.run()
    made = await vectors(url, "other_embedding")
    assert {len(vector) for vector in made.values() if vector is not None} == {96}
    assert {key for key, vector in made.items() if vector is not None} == {
        key for key, vector in before.items() if vector is not None
    }
    assert set((await vectors(url)).values()) == {None}
    # A server whose settings name the former model uses the new one.
    used = msgspec.structs.replace(settings, models_path=wide.folder.parent)
    models = settings.models_dir / model.manifest.folder_name
    (wide.folder.parent / model.manifest.folder_name).symlink_to(models.absolute())
    async with core(used) as parts:
        assert parts.embedder.manifest.name == "example/wide"
        assert SAID[2] in await recall(parts, session, "What is my boat called?")
        assert await say(parts, session, "My cat is called Mog and I love her", number=10)
        owner = owner_of(parts)
        newest = "SELECT vector_dims(other_embedding) FROM memories ORDER BY id DESC LIMIT 1"
        assert await owner.fetchval(newest) == 96
    async with reembedding(settings, model) as work:
        assert await work.run()
    after = await vectors(url)
    for key, vector in before.items():
        if vector is not None and key[0] != "memories":
            np.testing.assert_allclose(after[key], vector, atol=2e-3)
    same = [key for key in before if key[0] == "memories"]
    assert min(float(after[key] @ before[key]) for key in same[:2]) > 0.999
    assert set((await vectors(url, "other_embedding")).values()) == {None}


async def test_a_server_that_runs_searches_its_own_vectors_and_changes_nothing(
    built: Core, settings: Settings, wide: ConvertedEncoder
) -> None:
    """Until it starts again: the former vectors are kept for as long as one uses them."""
    session, memories = await a_past(built)
    holding = await asyncpg.connect(built.database.url)
    try:
        fingerprint = built.embedder.manifest.fingerprint
        await holding.execute(load_queries()["hold_embedding_model"], fingerprint)
        async with reembedding(settings, wide) as work:
            running = begin(work.run(), "reembed")

            async def is_switched() -> bool:
                model = await owner_of(built).fetchrow("SELECT swapped, name FROM embedding_model")
                return bool(model["swapped"])

            await eventually_async(is_switched)
            assert (await recall(built, session, "What is my boat called?"))[0] == SAID[2]
            with pytest.raises(StorageUnavailable):
                await say(built, session, "My cat is called Mog and I love her", number=10)
            assert {
                key
                for key, vector in (await vectors(built.database.url)).items()
                if vector is not None
            } >= {("memories", memory) for memory in memories}
            async with reembedding(settings, wide) as second:
                with pytest.raises(DatabaseUnsuitable, match="is running"):
                    await second.run()
            await holding.close()

            async def is_emptied() -> bool:
                query = "SELECT other_fingerprint IS NULL FROM embedding_model"
                return bool(await owner_of(built).fetchval(query))

            await eventually_async(is_emptied)
            assert await running
    finally:
        await holding.close()


async def _correct(parts: Core, session: OpenedSession, memory: int) -> None:
    await build_corrector(parts).correct(
        session.relationship_id, NAMES, memory, "My boat is called Ida", actor="ana",
        read_in_exchange=True,
    )  # fmt: skip


async def _forget(parts: Core, session: OpenedSession, memory: int) -> None:
    scope = ErasureScope(memories=(memory,))
    await build_eraser(parts).erase(
        session.relationship_id, NAMES, scope, actor="ana", read_in_exchange=True
    )


async def _say_more(parts: Core, session: OpenedSession, memory: int) -> None:
    await say(parts, session, "It is painted blue and needs a new sail", number=20)


@pytest.mark.parametrize("change", [_correct, _forget, _say_more])
async def test_what_changes_meanwhile_is_embedded_again(
    built: Core,
    settings: Settings,
    wide: ConvertedEncoder,
    change: Callable[[Core, OpenedSession, int], Awaitable[None]],
) -> None:
    """An interrupted run is continued, and no vector of what was said before is left."""
    session, memories = await a_past(built)
    url = built.database.url
    async with reembedding(settings, wide) as work:
        await work._begin(await work._database.row("embedding_model"))
        await work._embed_changed()  # and is killed
    first = await vectors(url, "other_embedding")
    known = await vectors(url)
    await change(built, session, memories[-1])
    changed = {
        key
        for key, vector in (await vectors(url)).items()
        if key in known and not np.array_equal(vector, known[key])
    }
    assert changed
    other = await vectors(url, "other_embedding")
    assert all(other[key] is None for key in changed)
    assert any(other[key] is not None for key in first if key in other)
    async with reembedding(settings, wide) as work:
        assert await work.run()
    now = await vectors(url, "other_embedding")
    assert all(now[key] is not None for key in now if key[0] == "memories")
