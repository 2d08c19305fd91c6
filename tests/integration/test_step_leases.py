"""Leases of background steps: one worker at a time, none skipped, retried after a crash."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

from foremind.app.core import Core
from foremind.background.retry_policy import HELD_FOR
from foremind.background.step_definitions import STEPS_BY_NAME
from foremind.domain.companion import CompanionFile
from foremind.domain.step import ClaimableLane, ClaimLimits, ScheduledStep, StepState
from foremind.storage.curation_store import CurationStore
from foremind.storage.step_store import StepStore
from tests.conftest import owner_of

NOW = datetime(2026, 5, 20, 12, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)
NOTES = ScheduledStep("notes", "model", "a model")
STATED = ScheduledStep("stated", "rules", "")


class LeaseBench:
    """A step store, and relationships with changes."""

    def __init__(self, built: Core) -> None:
        self.built = built
        self.store = StepStore(built.database, HELD_FOR, STEPS_BY_NAME)

    async def relationship(self, user: str = "ana", companion: str = "wren") -> int:
        """Create a relationship with changes that need background work."""
        stored = await self.built.stores.companions.put(CompanionFile(companion, "Wren", "p"))
        session = await self.built.stores.turns.open_session(user, user.title(), stored.id, NOW)
        await CurationStore(self.built.database).schedule_now(session.relationship_id, NOW)
        return session.relationship_id

    async def schedule(self, *steps: ScheduledStep, now: datetime = NOW) -> None:
        """Schedule steps for every relationship with changes."""
        for relationship in await self.store.pending_relationships(now, 100):
            pending = await self.store.pending_relationship(relationship, now)
            assert pending is not None
            await self.store.schedule_pending(pending, steps, now)

    async def claim(self, holder: UUID | None = None, now: datetime = NOW) -> ClaimableLane | None:
        """Claim the first lane that is due, for a worker."""
        until = now + timedelta(seconds=30)
        for relationship in await self.claimable(ClaimLimits(), now):
            for due in await self.store.claimable_lanes_of(relationship, now):
                if await self.store.claim(
                    relationship, due.lane, due.place, holder or uuid4(), now, until
                ):
                    return due
        return None

    async def claimable(self, limits: ClaimLimits, now: datetime = NOW) -> list[int]:
        """Return the relationships with lanes that may start."""
        return (await self.store.claimable_lanes(now, now, limits, 8)).ids

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
    relationship = await bench.relationship()
    await bench.schedule(NOTES, STATED)
    claims = await asyncio.gather(*(bench.claim() for _ in range(6)))
    claims += [await bench.claim() for _ in range(3)]
    lanes = [(claim.relationship_id, claim.lane) for claim in claims if claim is not None]
    assert sorted(lanes) == [(relationship, "model"), (relationship, "rules")]


async def test_claims_of_a_dead_worker_expire_within_a_minute(built: Core) -> None:
    """With their lease, unless it is renewed; at once if the worker released them."""
    bench = LeaseBench(built)
    relationship = await bench.relationship()
    await bench.schedule(NOTES)
    worker, other = uuid4(), uuid4()
    assert await bench.claim(worker) is not None
    assert await bench.claim(other, LATER - timedelta(seconds=1)) is None
    renewed = LATER + timedelta(seconds=30)
    assert await bench.store.renew(worker, renewed, LATER) == {(relationship, "model")}
    assert await bench.claim(other, LATER) is None
    assert await bench.claim(other, LATER + timedelta(seconds=30)) is not None
    assert await bench.store.renew(worker, LATER + timedelta(seconds=90), LATER) == set()
    await bench.store.release_claims(other)
    assert await bench.claim(worker, LATER) is not None


async def test_changes_during_a_step_schedule_it_once_more(built: Core) -> None:
    """However many there are: relationship and step are scheduled once."""
    bench = LeaseBench(built)
    relationship = await bench.relationship()
    await bench.schedule(NOTES)
    state = await bench.state(relationship)
    for _ in range(3):
        await bench.relationship()
        await bench.schedule(NOTES)
    await bench.store.finish(relationship, state, None, NOW)
    assert (await bench.state(relationship)).due_at == NOW
    await bench.store.finish(relationship, await bench.state(relationship), None, NOW)
    assert (await bench.state(relationship)).due_at is None


async def test_a_step_of_a_newer_version_is_left_to_it(built: Core) -> None:
    """In a cluster that is being updated; a lane with nothing else to do is not claimed."""
    bench = LeaseBench(built)
    await bench.relationship()
    await bench.schedule(ScheduledStep("unheard of", "rules", ""))
    assert await bench.claim() is None
    await bench.relationship()
    await bench.schedule(STATED)
    assert await bench.claim() is not None


async def test_a_model_server_without_free_slots_blocks_no_other_steps(built: Core) -> None:
    """Neither of other companions nor those of rules."""
    bench = LeaseBench(built)
    await bench.relationship("ana", "wren")
    await bench.relationship("bob", "wren")
    await bench.schedule(NOTES)
    ivy = await bench.relationship("ana", "ivy")
    await bench.schedule(NOTES, STATED, now=NOW + timedelta(seconds=1))
    now = NOW + timedelta(seconds=2)
    first = await bench.claim(now=now)
    assert first is not None and first.relationship_id != ivy
    full_of = ClaimLimits(full_of=(("a model", first.companion_id),))
    assert set(await bench.claimable(full_of, now)) == {ivy}
    for full in (ClaimLimits(full=("a model",)), ClaimLimits(models_full=True)):
        assert await bench.claimable(full, now) == [ivy]  # for its rules


async def test_a_failing_step_backs_off_and_blocks_no_others(
    built: Core,
) -> None:
    """Once suspended, a new message retries it, but at the earliest ten minutes later."""
    bench = LeaseBench(built)
    relationship = await bench.relationship()
    await bench.schedule(NOTES, STATED)
    retry_at = NOW + timedelta(seconds=60)
    notes = await bench.state(relationship)
    await bench.store.fail(relationship, notes, 1, "model_broken", retry_at, None)
    await bench.relationship()
    await bench.schedule(NOTES, STATED)
    assert (await bench.state(relationship)).due_at == retry_at
    assert (await bench.state(relationship, "stated")).due_at == NOW
    await bench.store.fail(relationship, notes, 8, "model_broken", None, NOW)
    assert (await bench.state(relationship)).due_at is None
    await bench.relationship()
    await bench.schedule(NOTES, STATED)
    assert (await bench.state(relationship)).due_at == NOW + HELD_FOR
    await bench.store.retry_failed(relationship, NOW)
    assert (await bench.state(relationship)).due_at == NOW
