"""Who curates what: taken by one worker, not passed over, done again where a worker died."""

import asyncio
from datetime import UTC, datetime, timedelta

from foremind.app import Core
from foremind.companions import CompanionFile
from foremind.storage.curation import CurationStore
from tests.conftest import owner_of

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=15)


async def due(built: Core) -> tuple[CurationStore, int]:
    """A relationship that is due."""
    companion = await built.companions.put(CompanionFile("wren", "Wren", "p"))
    session = await built.turns.open_session("ana", "Ana", companion.id, NOW)
    store = CurationStore(built.database)
    await store.make_due(session.relationship_id, NOW)
    return store, session.relationship_id


async def test_one_that_is_being_written_is_waited_for(built: Core) -> None:
    """Passing over it would leave it until somebody looks again."""
    store, relationship = await due(built)
    async with owner_of(built).acquire() as raw, raw.transaction():
        await raw.execute("UPDATE relationships SET memory_version = memory_version + 1")
        claim = asyncio.create_task(store.claim(NOW, LATER, 4))
        await asyncio.wait({claim}, timeout=0.2)
        assert not claim.done()
    assert await claim == [relationship]


async def test_two_workers_never_take_the_same(built: Core) -> None:
    """Also at the same moment."""
    store, relationship = await due(built)
    both = await asyncio.gather(store.claim(NOW, LATER, 4), store.claim(NOW, LATER, 4))
    assert sorted(both) == [[], [relationship]]


async def test_what_a_dead_worker_took_is_due_again(built: Core) -> None:
    """After its lease; what became due meanwhile stays due."""
    store, relationship = await due(built)
    assert await store.claim(NOW, LATER, 4) == [relationship]
    assert await store.claim(LATER - timedelta(seconds=1), LATER, 4) == []
    assert await store.claim(LATER, LATER + timedelta(minutes=15), 4) == [relationship]
    await store.make_due(relationship, LATER)
    await store.finish(relationship, LATER + timedelta(minutes=15), None)
    assert await store.claim(LATER, LATER + timedelta(minutes=15), 4) == [relationship]
