"""Leases of background steps: one worker at a time, none skipped, retried after a crash."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from foremind.app.core import Core
from foremind.background.step_definitions import HELD_AT_LEAST, STEPS_BY_NAME
from foremind.domain.background_step import (
    Claim,
    ClaimLimits,
    FinishedStep,
    Lane,
    ScheduledStep,
    StepState,
)
from foremind.domain.companion import CompanionFile
from foremind.storage.background_store import BackgroundStore, StepStore
from tests.conftest import owner_of

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)
NOTES = ScheduledStep("notes", "model", "a model")
STATED = ScheduledStep("stated", "rules", "")
LANES: dict[Lane, str] = {"rules": "", "model": "a model"}


class LeaseBench:
    """A step store, and relationships with changes."""

    def __init__(self, built: Core) -> None:
        self.built = built
        self.background = BackgroundStore(built.database)
        self.store = StepStore(built.database, HELD_AT_LEAST, STEPS_BY_NAME)

    async def relationship(self, user: str = "ana", companion: str = "wren") -> int:
        """Create a relationship with changes that need background work."""
        stored = await self.built.stores.companions.put(CompanionFile(companion, "Wren", "p"))
        session = await self.built.stores.turns.open_session(user, user.title(), stored.id, NOW)
        await self.background.schedule_now(session.relationship_id, NOW)
        return session.relationship_id

    async def schedule(self, *steps: ScheduledStep, now: datetime = NOW) -> None:
        """Schedule steps for every relationship with changes."""
        for relationship in await self.due(now=now):
            state = await self.background.relationship_state(relationship, now)
            assert state is not None
            if state.due_at is not None:
                nobody = Claim(uuid4(), now)
                await self.store.claim(relationship, {}, nobody, now, steps, state.due_at)

    async def claim(
        self, holder: UUID | None = None, now: datetime = NOW, *, lanes: dict[Lane, str] = LANES
    ) -> list[StepState]:
        """Claim the lanes of the first relationship that are due, for a worker."""
        claim = Claim(holder or uuid4(), now + timedelta(seconds=30))
        for relationship in await self.due(now=now):
            if states := await self.store.claim(relationship, lanes, claim, now):
                return states
        return []

    async def due(self, limits: ClaimLimits | None = None, now: datetime = NOW) -> list[int]:
        """Return the relationships with something to do."""
        found = await self.store.relationships_due(now, now, limits or ClaimLimits(), 8, 8)
        return found.to_visit

    async def state(self, relationship: int, step: str = "notes") -> StepState:
        """Return the state of a step."""
        return next(
            state for state in await self.store.step_states(relationship) if state.step == step
        )


async def test_scheduling_waits_for_a_locked_relationship(built: Core) -> None:
    """Skipping it would delay its steps until the next change."""
    bench = LeaseBench(built)
    relationship = await bench.relationship()
    async with owner_of(built).acquire() as raw, raw.transaction():
        await raw.execute("UPDATE relationships SET memory_version = memory_version + 1")
        scheduling = asyncio.create_task(bench.schedule(NOTES))
        await asyncio.wait({scheduling}, timeout=0.2)
        assert not scheduling.done()
    await scheduling
    assert (await bench.state(relationship)).due_at == NOW


async def test_a_step_is_claimed_by_one_worker_only(built: Core) -> None:
    """Also concurrently; the two lanes of a relationship are claimed independently."""
    bench = LeaseBench(built)
    await bench.relationship()
    await bench.schedule(NOTES, STATED)
    one_by_one: list[dict[Lane, str]] = [{"rules": ""}, {"model": "a model"}] * 3
    claims = await asyncio.gather(*(bench.claim(lanes=lanes) for lanes in one_by_one))
    claims += [await bench.claim() for _ in range(3)]
    assert sorted(state.step for states in claims for state in states) == ["notes", "stated"]


async def test_claims_of_a_dead_worker_expire_within_a_minute(built: Core) -> None:
    """With their lease, unless it is renewed; at once if the worker released them."""
    bench = LeaseBench(built)
    relationship = await bench.relationship()
    await bench.schedule(NOTES)
    worker, other = uuid4(), uuid4()
    assert await bench.claim(worker)
    assert not await bench.claim(other, LATER - timedelta(seconds=1))
    renewed = LATER + timedelta(seconds=30)
    assert await bench.store.renew(worker, renewed) == {(relationship, "model")}
    assert not await bench.claim(other, LATER)
    assert await bench.claim(other, LATER + timedelta(seconds=30))
    assert await bench.store.renew(worker, LATER + timedelta(seconds=90)) == set()
    await bench.store.release_claims(other)
    assert await bench.claim(worker, LATER)


async def test_changes_during_a_step_schedule_it_once_more(built: Core) -> None:
    """However many there are: relationship and step are scheduled once."""
    bench = LeaseBench(built)
    relationship = await bench.relationship()
    await bench.schedule(NOTES)
    holder = uuid4()
    (state,) = await bench.claim(holder)
    for _ in range(3):
        await bench.relationship()
        await bench.schedule(NOTES)
    done = [FinishedStep("notes", state.marks, None)]
    await bench.store.finish(relationship, done, NOW, ["model"], holder)
    (state,) = await bench.claim(holder)
    assert state.due_at == NOW
    done = [FinishedStep("notes", state.marks, None)]
    await bench.store.finish(relationship, done, NOW, ["model"], holder)
    assert (await bench.state(relationship)).due_at is None
    assert not await bench.claim(holder)


async def test_a_step_of_a_newer_version_is_left_to_it(built: Core) -> None:
    """In a cluster that is being updated; a lane with nothing else to do is not claimed."""
    bench = LeaseBench(built)
    await bench.relationship()
    await bench.schedule(ScheduledStep("unheard of", "rules", ""))
    assert not await bench.claim()
    await bench.relationship()
    await bench.schedule(STATED)
    assert [state.step for state in await bench.claim()] == ["stated"]


async def test_a_step_whose_model_is_gone_is_done_by_rules(built: Core) -> None:
    """And the other way round: a due step takes the lane and place that it is scheduled with."""
    bench = LeaseBench(built)
    relationship = await bench.relationship()
    await bench.schedule(NOTES)
    by_rules, claim = ScheduledStep("notes", "rules", ""), Claim(uuid4(), LATER)
    (state,) = await bench.store.claim(relationship, {"rules": ""}, claim, NOW, [by_rules])
    assert (state.lane, state.place) == ("rules", "")
    assert not await bench.claim()


async def test_a_model_server_without_free_slots_blocks_no_other_steps(built: Core) -> None:
    """Neither of other companions nor those of rules."""
    bench = LeaseBench(built)
    ana = await bench.relationship("ana", "wren")
    bob = await bench.relationship("bob", "wren")
    await bench.schedule(NOTES)
    ivy = await bench.relationship("ana", "ivy")
    now = NOW + timedelta(seconds=2)
    await bench.schedule(NOTES, STATED, now=NOW + timedelta(seconds=1))
    assert set(await bench.due(now=now)) == {ana, bob, ivy}
    state = await bench.background.relationship_state(ana, now)
    assert state is not None
    full_of = ClaimLimits(full_of=(("a model", state.companion_id),))
    assert set(await bench.due(full_of, now)) == {ivy}
    for full in (ClaimLimits(full=("a model",)), ClaimLimits(models_full=True)):
        assert await bench.due(full, now) == [ivy]  # for its rules


async def test_a_failing_step_backs_off_and_blocks_no_others(
    built: Core,
) -> None:
    """Once suspended, a new message retries it, but at the earliest ten minutes later."""
    bench = LeaseBench(built)
    relationship = await bench.relationship()
    await bench.schedule(NOTES, STATED)
    retry_at = NOW + timedelta(seconds=60)
    holder = uuid4()

    async def fail(attempts: int, due_at: datetime | None, held_at: datetime | None) -> None:
        failed = FinishedStep("notes", 1, due_at, attempts, "model_broken", held_at)
        await bench.store.finish(relationship, [failed], NOW, [], holder)

    await fail(1, retry_at, None)
    await bench.relationship()
    await bench.schedule(NOTES, STATED)
    assert (await bench.state(relationship)).due_at == retry_at
    assert (await bench.state(relationship, "stated")).due_at == NOW
    await fail(8, None, NOW)
    assert (await bench.state(relationship)).due_at is None
    await bench.relationship()
    await bench.schedule(NOTES, STATED)
    assert (await bench.state(relationship)).due_at == NOW + HELD_AT_LEAST
    await bench.store.retry_failed(relationship, NOW)
    assert (await bench.state(relationship)).due_at == NOW
