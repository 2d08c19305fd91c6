"""The layers that are held in the process: bounded in bytes, and back when they are asked for."""

import asyncio
from datetime import UTC, datetime

import pytest

from foremind.app import Core
from foremind.domain.companion import CompanionFile
from foremind.domain.errors import NotFound
from foremind.domain.record import NewRecord
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.retrieval.layer_cache import LayerCache
from tests.conftest import eventually

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)


async def noted(core: Core, user: str, records: int) -> int:
    """A relationship of which some records are kept; its id."""
    companion = await core.companions.put(CompanionFile("mara", "Mara", "A persona."))
    session = await core.turns.open_session(user, user.title(), companion.id, NOW)
    async with core.records.changing(session.relationship_id, NOW) as changes:
        for number in range(records):
            await changes.add(
                NewRecord(layer="vault", content=f"Note {number} of {user}", made_by="user")
            )
    return session.relationship_id


async def test_the_least_recently_used_layers_go_and_come_back(built: Core) -> None:
    """There is room for one relationship; nothing takes more than its bound."""
    ana, bo = await noted(built, "ana", 3), await noted(built, "bo", 3)
    room = 6000
    async with LayerCache(built.records, built.embedder.manifest, room, built.metrics) as held:

        def taken() -> float:
            return built.metrics.registry.get_sample_value("foremind_layers_bytes") or 0.0

        assert await held.load(ana, estimate_tokens) is not None
        assert await held.load(bo, estimate_tokens) is not None
        assert 0 < taken() <= room
        assert held.get(ana) is None  # it had to go, and is asked for
        await eventually(lambda: held.get(ana) is not None)
        assert taken() <= room


async def test_layers_that_never_fit_are_read_when_they_are_needed(built: Core) -> None:
    """They take no room, and whoever only looks does not have them read."""
    ana = await noted(built, "ana", 9)
    async with LayerCache(built.records, built.embedder.manifest, 6000, built.metrics) as held:
        for _ in range(2):
            assert (await held.load(ana, estimate_tokens)).standing.sections == {}
            assert held.get(ana) is None
            assert not held._reading
        assert built.metrics.registry.get_sample_value("foremind_layers_bytes") == 0


async def test_whoever_gives_up_waiting_leaves_the_reading_to_others(built: Core) -> None:
    """It goes on, and serves all who wait."""
    ana = await noted(built, "ana", 3)
    async with LayerCache(built.records, built.embedder.manifest, 60_000, built.metrics) as held:
        waiting = [asyncio.create_task(held.load(ana, estimate_tokens)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        layers = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(layers[0], asyncio.CancelledError)
        assert layers[1] is layers[2] is held.get(ana)


async def test_what_cannot_be_read_is_an_error(built: Core) -> None:
    """No relationship is served as one of which nothing is known."""
    async with LayerCache(built.records, built.embedder.manifest, 60_000, built.metrics) as held:
        with pytest.raises(NotFound):
            await held.load(999_999, estimate_tokens)
        assert not held._reading
