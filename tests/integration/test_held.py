"""The layers that are held in the process: bounded in bytes, and back when they are asked for."""

from datetime import UTC, datetime

from foremind.app import Core
from foremind.companions import CompanionFile
from foremind.layers.held import HeldLayers
from foremind.layers.tokens import estimate_tokens
from foremind.storage.records import NewRecord
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
    async with HeldLayers(built.records, built.embedder.manifest, room, built.metrics) as held:

        def taken() -> float:
            return built.metrics.registry.get_sample_value("foremind_layers_bytes") or 0.0

        assert await held.load(ana, estimate_tokens) is not None
        assert await held.load(bo, estimate_tokens) is not None
        assert 0 < taken() <= room
        assert held.get(ana) is None  # it had to go, and is asked for
        await eventually(lambda: held.get(ana) is not None)
        assert taken() <= room


async def test_layers_that_never_fit_are_left_in_the_database(built: Core) -> None:
    """And are not read again for each draft."""
    ana = await noted(built, "ana", 9)
    async with HeldLayers(built.records, built.embedder.manifest, 6000, built.metrics) as held:
        assert await held.load(ana, estimate_tokens) is None
        assert held.get(ana) is None
        await eventually(lambda: not held._reading)
        assert held.get(ana) is None
