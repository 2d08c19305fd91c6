"""Who does which steps: one worker at a time, not passed over, done again where a worker died."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from foremind.app import Core
from foremind.background.steps import HELD_FOR
from foremind.domain.companion import CompanionFile
from foremind.domain.step import ClaimedStep, ScheduledStep, StepState
from foremind.storage.curation_store import CurationStore
from foremind.storage.step_store import StepStore
from tests.conftest import owner_of

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)
NOTES = ScheduledStep("notes", "model", "a model")
STATED = ScheduledStep("stated", "rules", "")


class Bench:
    """A store of steps, and relationships that may be looked at."""

    def __init__(self, built: Core) -> None:
        self.built = built
        self.store = StepStore(built.database, HELD_FOR)

    async def relationship(self, user: str = "ana", companion: str = "wren") -> int:
        """A relationship in which something happened."""
        made = await self.built.companions.put(CompanionFile(companion, "Wren", "p"))
        session = await self.built.turns.open_session(user, user.title(), made.id, NOW)
        await CurationStore(self.built.database).make_due(session.relationship_id, NOW)
        return session.relationship_id

    async def looked_at(self, *steps: ScheduledStep, now: datetime = NOW) -> None:
        """Every relationship in which something happened has been looked at."""
        for each in await self.store.to_look_at(now, 100):
            await self.store.look_at(each, steps, now)

    async def claim(
        self, holder: UUID | None = None, now: datetime = NOW, **full: object
    ) -> ClaimedStep | None:
        """What a worker is given."""
        rest = {"full": [], "models_full": False, "full_of": []} | full
        return await self.store.claim(
            holder or uuid4(),
            now,
            now + timedelta(seconds=30),
            **rest,  # type: ignore[arg-type]
        )

    async def state(self, relationship: int, step: str = "notes") -> StepState:
        """How a step stands."""
        return next(each for each in await self.store.of(relationship) if each.step == step)


async def test_one_that_is_being_written_is_waited_for(built: Core) -> None:
    """Passing over it would leave it until somebody looks again."""
    bench = Bench(built)
    relationship = await bench.relationship()
    async with owner_of(built).acquire() as raw, raw.transaction():
        await raw.execute("UPDATE relationships SET memory_version = memory_version + 1")
        look = asyncio.create_task(bench.looked_at(NOTES))
        await asyncio.wait({look}, timeout=0.2)
        assert not look.done()
    await look
    assert (await bench.state(relationship)).due_at == NOW


async def test_two_workers_never_take_the_same(built: Core) -> None:
    """Also at the same moment; the lanes of one relationship go on beside each other."""
    bench = Bench(built)
    relationship = await bench.relationship()
    await bench.looked_at(NOTES, STATED)
    taken = await asyncio.gather(*(bench.claim() for _ in range(6)))
    taken += [await bench.claim() for _ in range(3)]
    found = [(each.relationship_id, each.lane) for each in taken if each is not None]
    assert sorted(found) == [(relationship, "model"), (relationship, "rules")]


async def test_what_a_dead_worker_took_is_due_again_within_a_minute(built: Core) -> None:
    """After its lease, unless it says that it lives; at once where it gave everything back."""
    bench = Bench(built)
    relationship = await bench.relationship()
    await bench.looked_at(NOTES)
    worker, other = uuid4(), uuid4()
    assert await bench.claim(worker) is not None
    assert await bench.claim(other, LATER - timedelta(seconds=1)) is None
    assert await bench.store.renew(worker, LATER + timedelta(seconds=30)) == {
        (relationship, "model")
    }
    assert await bench.claim(other, LATER) is None
    assert await bench.claim(other, LATER + timedelta(seconds=30)) is not None
    assert await bench.store.renew(worker, LATER + timedelta(seconds=90)) == set()
    await bench.store.give_up_all(other)
    assert await bench.claim(worker, LATER) is not None


async def test_what_comes_while_a_step_runs_makes_it_due_again_once(built: Core) -> None:
    """However often: it is one job for each relationship and step."""
    bench = Bench(built)
    relationship = await bench.relationship()
    await bench.looked_at(NOTES)
    state = await bench.state(relationship)
    for _ in range(3):
        await bench.relationship()
        await bench.looked_at(NOTES)
    await bench.store.finish(relationship, state, None, NOW)
    assert (await bench.state(relationship)).due_at == NOW
    await bench.store.finish(relationship, await bench.state(relationship), None, NOW)
    assert (await bench.state(relationship)).due_at is None


async def test_a_full_model_keeps_nobody_elses_place(built: Core) -> None:
    """Neither those of another model, nor those of another companion, nor the rules'."""
    bench = Bench(built)
    await bench.relationship("ana", "wren")
    await bench.relationship("bob", "wren")
    await bench.looked_at(NOTES)
    ivy = await bench.relationship("ana", "ivy")
    await bench.looked_at(NOTES, STATED, now=NOW + timedelta(seconds=1))
    now = NOW + timedelta(seconds=2)
    first = await bench.claim(now=now)
    assert first is not None and first.relationship_id != ivy
    third = await bench.claim(now=now, full_of=[("a model", first.companion_id)])
    assert third is not None and third.relationship_id == ivy
    by_rules = await bench.claim(now=now, full=["a model"])
    assert by_rules is None or by_rules.lane == "rules"


async def test_a_step_that_fails_waits_whatever_is_said_and_holds_up_no_other(
    built: Core,
) -> None:
    """Once held, it is tried again ten minutes later at the soonest, when something is said."""
    bench = Bench(built)
    relationship = await bench.relationship()
    await bench.looked_at(NOTES, STATED)
    again = NOW + timedelta(seconds=60)
    await bench.store.fail(relationship, "notes", 1, "model_broken", again, None)
    await bench.relationship()
    await bench.looked_at(NOTES, STATED)
    assert (await bench.state(relationship)).due_at == again
    assert (await bench.state(relationship, "stated")).due_at == NOW
    await bench.store.fail(relationship, "notes", 8, "model_broken", None, NOW)
    assert (await bench.state(relationship)).due_at is None
    await bench.relationship()
    await bench.looked_at(NOTES, STATED)
    assert (await bench.state(relationship)).due_at == NOW + HELD_FOR
    await bench.store.take_up(relationship, NOW)
    assert (await bench.state(relationship)).due_at == NOW
