"""The layer cache: bounded in bytes, and loaded again on demand."""

import asyncio
from datetime import UTC, datetime

import pytest

from foremind.app.core import Core
from foremind.domain.companion import CompanionFile
from foremind.domain.errors import NotFound
from foremind.domain.record import NewRecord
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.retrieval.layer_cache import LayerCache
from foremind.text.languages.language_files import ENGLISH
from tests.conftest import eventually

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


async def relationship_with_records(core: Core, user: str, records: int) -> int:
    """Create a relationship with some records; return its id."""
    companion = await core.stores.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await core.stores.turns.open_session(user, user.title(), companion.id, NOW)
    async with core.stores.records.begin_changes(session.relationship_id, NOW) as changes:
        for number in range(records):
            await changes.add(
                NewRecord(layer="vault", content=f"Note {number} of {user}", made_by="user")
            )
    return session.relationship_id


async def test_the_least_recently_used_layers_are_evicted_and_loaded_again(built: Core) -> None:
    """The cache has room for one relationship, and never exceeds its byte limit."""
    ana, bo = (
        await relationship_with_records(built, "ana", 3),
        await relationship_with_records(built, "bo", 3),
    )
    max_bytes = 6000
    async with LayerCache(
        built.stores.records, built.embedder.manifest, max_bytes, built.runtime.metrics
    ) as cache:

        def used_bytes() -> float:
            return built.runtime.metrics.registry.get_sample_value("foremind_layers_bytes") or 0.0

        assert await cache.load(ana, estimate_tokens, ENGLISH) is not None
        assert await cache.load(bo, estimate_tokens, ENGLISH) is not None
        assert 0 < used_bytes() <= max_bytes
        assert cache.get(ana) is None  # was evicted, and is now loaded again
        await eventually(lambda: cache.get(ana) is not None)
        assert used_bytes() <= max_bytes


async def test_layers_that_never_fit_are_loaded_for_each_use(built: Core) -> None:
    """They are not cached, and a lookup without loading does not load them."""
    ana = await relationship_with_records(built, "ana", 9)
    async with LayerCache(
        built.stores.records, built.embedder.manifest, 6000, built.runtime.metrics
    ) as cache:
        for _ in range(2):
            assert (await cache.load(ana, estimate_tokens, ENGLISH)).standing.sections == {}
            assert cache.get(ana) is None
            assert not cache._reading
        assert built.runtime.metrics.registry.get_sample_value("foremind_layers_bytes") == 0


async def test_a_cancelled_load_continues_for_other_waiters(built: Core) -> None:
    """All others get the same result."""
    ana = await relationship_with_records(built, "ana", 3)
    async with LayerCache(
        built.stores.records, built.embedder.manifest, 60_000, built.runtime.metrics
    ) as cache:
        waiters = [asyncio.create_task(cache.load(ana, estimate_tokens, ENGLISH)) for _ in range(3)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        layers = await asyncio.gather(*waiters, return_exceptions=True)
        assert isinstance(layers[0], asyncio.CancelledError)
        assert layers[1] is layers[2] is cache.get(ana)


async def test_windows_in_two_languages_each_get_their_own(built: Core) -> None:
    """However often both ask at the same time; what is cached is in one of them."""
    ana = await relationship_with_records(built, "ana", 3)
    async with LayerCache(
        built.stores.records, built.embedder.manifest, 60_000, built.runtime.metrics
    ) as cache:
        languages = ["de", "fr"] * 3
        loads = [cache.load(ana, estimate_tokens, language) for language in languages]
        assert [layers.language for layers in await asyncio.gather(*loads)] == languages
        assert (await cache.load(ana, estimate_tokens, "de")).language == "de"
        kept = cache.get(ana)
        assert kept is not None and kept.language == "de"


async def test_loading_an_unknown_relationship_is_an_error(built: Core) -> None:
    """It is not served as one without records."""
    async with LayerCache(
        built.stores.records, built.embedder.manifest, 60_000, built.runtime.metrics
    ) as cache:
        with pytest.raises(NotFound):
            await cache.load(999_999, estimate_tokens, ENGLISH)
        assert not cache._reading
