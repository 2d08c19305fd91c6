"""Ingest and rating: steps that take turns, durably, in every process at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from foremind.background.worker import BackgroundWorker
from foremind.domain.background_step import WITH_REPLY
from foremind.domain.companion_rules import SignificanceRules
from foremind.domain.settings.settings import Settings
from foremind.domain.turn import OpenedSession
from foremind.memory.ingest import MAX_TURNS
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.model_server import Chat
from tests.conftest import PATIENCE, eventually, eventually_async, owner_of
from tests.integration.step_bench import Bench, step_bench

# Without a model, so that only the steps under test are waited for.
NO_MODEL = {"llm_url": ""}
_POISON = """
ALTER TABLE turns ADD CONSTRAINT refuse CHECK (content NOT LIKE '%poison%' OR embedding IS NULL)
"""
# Later connections wait for no lock.
_IMPATIENT = """
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET lock_timeout = 50', current_database());
END $$
"""
_UNTIL = "SELECT until FROM background_claims WHERE relationship_id = $1 AND lane = 'model'"
_ANTIDOTE = "ALTER TABLE turns DROP CONSTRAINT refuse"


@pytest.fixture
async def bench(settings: Settings) -> AsyncIterator[Bench]:
    """A worker that is not started yet."""
    async with step_bench(settings) as bench:
        yield bench


async def store(bench: Bench, session: OpenedSession, *texts: str) -> None:
    """Store messages that have waited for a reply long enough; no worker is told."""
    for text in texts:
        stored_at = bench.clock.now() - WITH_REPLY
        await bench.built.stores.turns.commit_message(session, text, text, stored_at)


async def remembered(bench: Bench, session: OpenedSession) -> list[str]:
    """Return what a relationship remembers, in the order in which it was ingested."""
    rows = await owner_of(bench.built).fetch(
        "SELECT content FROM memories WHERE relationship_id = $1 ORDER BY id",
        session.relationship_id,
    )
    return [row["content"] for row in rows]


async def ingested_in(bench: Bench, session: OpenedSession) -> None:
    """Wait until a relationship remembers something, without moving the clock."""

    async def found() -> bool:
        return bool(await remembered(bench, session))

    await eventually_async(found)


def ingested(bench: Bench) -> float:
    """Return how often any turn was ingested."""
    value = bench.built.runtime.metrics.registry.get_sample_value
    return sum(
        value("foremind_memories_total", {"outcome": outcome}) or 0
        for outcome in ("stored", "insignificant")
    )


def waiting(bench: Bench, reason: str) -> float:
    """Return how many turns wait to be ingested, for a reason, as operators see it."""
    value = bench.built.runtime.metrics.registry.get_sample_value
    return value("foremind_background_waiting", {"step": "ingest", "reason": reason}) or 0


@asynccontextmanager
async def held_up(bench: Bench, session: OpenedSession) -> AsyncIterator[None]:
    """Let nothing be ingested in a relationship meanwhile."""
    async with owner_of(bench.built).acquire() as raw, raw.transaction():
        await raw.execute(
            "SELECT FROM relationships WHERE id = $1 FOR NO KEY UPDATE", session.relationship_id
        )
        yield


async def tries_to_ingest(bench: Bench) -> None:
    """Wait until a worker waits for a relationship that is held up."""
    await bench.until(owner_of(bench.built).is_waited_for, 0.0)


async def test_a_turn_that_cannot_be_ingested_stops_no_other(bench: Bench) -> None:
    """Neither of its relationship nor of another; it is held, shown, and retried on request."""
    ana = await bench.open_session("ana", **NO_MODEL)
    bo = await bench.open_session("bo", **NO_MODEL)
    await owner_of(bench.built).execute(_POISON)
    async with bench.worker:
        await store(bench, ana, "I promise to be early", "I love poison", "I promise to be late")
        await store(bench, bo, "I promise to be kind")
        await bench.wait_until_idle()
        assert await remembered(bench, ana) == ["I promise to be early", "I promise to be late"]
        assert await remembered(bench, bo) == ["I promise to be kind"]
        step = await bench.step(ana, "ingest")
        assert (step.state, step.attempts, step.behind) == ("backing_off", 1, 1)
        delays = []
        while (step := await bench.step(ana, "ingest")).state == "backing_off":
            assert step.due_at is not None
            delays.append((step.due_at - bench.clock.now()).total_seconds())
            await bench.clock.leap(delays[-1])
            await bench.wait_until_idle()
        assert (step.state, step.attempts, step.code, step.asks_model) == (
            "held", 12, "CheckViolationError", False,
        )  # fmt: skip
        assert sum(delays) > 3600 and delays == sorted(delays)
        await store(bench, ana, "I promise to be on time")
        await bench.wait_until_idle()
        assert len(await remembered(bench, ana)) == 3
        assert (await bench.step(ana, "ingest")).attempts == 12
        await bench.worker.update_metrics()
        assert waiting(bench, "held") == 1
        await owner_of(bench.built).execute(_ANTIDOTE)
        await bench.worker.retry_now(ana.relationship_id)
        await bench.wait_until_idle()
    assert "I love poison" in await remembered(bench, ana)
    assert (await bench.step(ana, "ingest")).state == "idle"


async def test_a_held_turn_is_retried_on_the_next_day(bench: Bench) -> None:
    """Whoever repairs what stood in the way need not know of every turn."""
    session = await bench.open_session(**NO_MODEL)
    await owner_of(bench.built).execute(_POISON)
    async with bench.worker:
        await store(bench, session, "I love poison")
        while (await bench.step(session, "ingest")).state != "held":
            await bench.clock.leap(3600.0)
            await bench.wait_until_idle()
        await owner_of(bench.built).execute(_ANTIDOTE)
        await bench.clock.leap(25 * 3600.0)
        await bench.wait_until_idle()
    assert await remembered(bench, session) == ["I love poison"]


async def test_turns_of_a_relationship_are_ingested_in_order(bench: Bench) -> None:
    """Those that were waiting when the worker started, and those that come meanwhile."""
    session = await bench.open_session(**NO_MODEL, consolidate=False)
    texts = [f"I promise to bring {number} lanterns" for number in range(40)]
    await store(bench, session, *texts[:35])
    async with bench.worker:
        await store(bench, session, *texts[35:])
        await bench.wait_until_idle()
    assert await remembered(bench, session) == texts


async def test_two_workers_never_ingest_a_turn_twice(bench: Bench) -> None:
    """Each turn of every relationship is ingested by one of them, once."""
    sessions = [await bench.open_session(f"user{number}", **NO_MODEL) for number in range(6)]
    other = bench.another()
    async with other, bench.worker:
        for number in range(8):
            for session in sessions:
                await store(bench, session, f"I promise to bring {session.user_id} {number}")
                other.wake(session.relationship_id)
                bench.worker.wake(session.relationship_id)
        await bench.wait_until_idle()
    assert ingested(bench) == 8 * len(sessions)
    for session in sessions:
        assert len(await remembered(bench, session)) == 8


async def test_what_a_process_stored_before_it_died_is_ingested_by_another(bench: Bench) -> None:
    """Within a second, though nobody told it."""
    async with bench.worker:
        await bench.wait_until_idle()
        session = await bench.open_session(**NO_MODEL)
        stored_at = bench.clock.now()
        await store(bench, session, "I promise to be early")

        async def found() -> bool:
            return bool(await remembered(bench, session))

        await bench.until(found, 0.1)
    # A timer and the reading of the database, which takes some steps of the clock.
    assert bench.clock.now() - stored_at < timedelta(seconds=5)


async def test_what_another_gateway_stored_is_left_to_it_for_two_seconds(bench: Bench) -> None:
    """Both would wait for each other, and repeat work; what it leaves is done by the others."""
    worker = bench.another(has_peers=True)
    async with worker:
        await bench.wait_until_idle()
        session = await bench.open_session(**NO_MODEL)
        stored_at = bench.clock.now()
        await store(bench, session, "I promise to be early")
        for _ in range(15):
            await bench.clock.advance(0.1)
            await owner_of(bench.built).fetchval("SELECT 1")
        assert await remembered(bench, session) == []

        async def found() -> bool:
            return bool(await remembered(bench, session))

        await bench.until(found, 0.1)
    assert bench.clock.now() - stored_at >= timedelta(seconds=2)


async def test_what_a_gateway_stored_itself_is_ingested_at_once(bench: Bench) -> None:
    """However many gateways there are."""
    worker = bench.another(has_peers=True)
    async with worker:
        await bench.wait_until_idle()
        session = await bench.open_session(**NO_MODEL)
        stored_at = bench.clock.now()
        await store(bench, session, "I promise to be early")
        worker.wake(session.relationship_id)
        await ingested_in(bench, session)
    assert bench.clock.now() == stored_at


@pytest.mark.parametrize("named", [True, False])
async def test_turns_that_a_limit_held_back_follow_as_soon_as_others_are_ingested(
    bench: Bench, named: bool
) -> None:
    """Not only at the next poll, which leaves to other gateways what is new."""
    worker = bench.another(has_peers=named)
    sessions = [await bench.open_session(f"user{number}", **NO_MODEL) for number in range(20)]
    for session in sessions:
        await store(bench, session, "I promise to be early")
    began_at = bench.clock.now()
    async with worker:
        for session in sessions if named else []:
            worker.wake(session.relationship_id)
        for session in sessions:
            await ingested_in(bench, session)
    assert bench.clock.now() == began_at


async def killed(bench: Bench, worker: BackgroundWorker) -> None:
    """End a worker without releasing what it has claimed."""
    await worker._stop(0)


async def test_a_turn_that_a_killed_worker_was_ingesting_is_ingested_by_another(
    bench: Bench,
) -> None:
    """Once its lease of ten seconds has expired, not before, and once."""
    session = await bench.open_session(**NO_MODEL)
    await store(bench, session, "I promise to be early")
    dies = bench.another()
    async with held_up(bench, session):
        await dies.__aenter__()
        await tries_to_ingest(bench)
        await killed(bench, dies)
    async with bench.worker:
        await bench.clock.advance(9.0)
        assert await remembered(bench, session) == []
        await bench.clock.advance(2.0)
        await bench.wait_until_idle()
    assert await remembered(bench, session) == ["I promise to be early"]
    assert ingested(bench) == 1


async def test_a_clean_stop_lets_the_turns_in_progress_finish(bench: Bench) -> None:
    """Those after them wait for the next process."""
    session = await bench.open_session(**NO_MODEL, consolidate=False)
    texts = [f"I promise to bring {number} lanterns" for number in range(MAX_TURNS + 1)]
    await store(bench, session, *texts)
    async with held_up(bench, session):
        await bench.worker.__aenter__()
        await tries_to_ingest(bench)
        stopping = asyncio.create_task(bench.worker.__aexit__())
        assert (await bench.step(session, "ingest")).state == "running"
        assert not stopping.done()
    async with asyncio.timeout(PATIENCE):
        await stopping
    assert await remembered(bench, session) == texts[:MAX_TURNS]
    step = await bench.step(session, "ingest")
    assert (step.state, step.behind) == ("due", 1)


def rates(chat: Chat) -> bool:
    """Whether a request asks how important a turn is."""
    return '"rating"' in chat["messages"][0]["content"]


def rated_ten(chat: Chat) -> str:
    """A model that finds everything important."""
    answer: dict[str, Any] = {"rating": 10, "no_longer": []}
    return json.dumps(answer) if rates(chat) else background_answer(chat)


async def test_ratings_take_no_more_places_at_a_model_than_other_steps(bench: Bench) -> None:
    """While they wait, turns are ingested; each turn is rated once."""
    never = asyncio.Event()
    bench.script.background = rated_ten
    bench.script.hold_for = lambda _: never
    rules = SignificanceRules(model=True)
    sessions = [
        await bench.open_session(f"user{number}", f"friend{number % 3}", significance=rules)
        for number in range(9)
    ]
    async with bench.worker:
        for session in sessions:
            await bench.say(session, "I promise to bring a lantern")
        await eventually(lambda: ingested(bench) >= 2 * len(sessions))
        await eventually(lambda: len(bench.script.background_requests) == 4)
        for _ in range(20):
            await bench.clock.advance(1.0)
        assert len(bench.script.background_requests) == 4
        assert all([(await bench.step(session, "rating")).asks_model for session in sessions])
        never.set()
        await bench.wait_until_idle()
    asked = [chat for chat in bench.script.background_requests if rates(chat)]
    assert len(asked) == 2 * len(sessions)
    scores = await owner_of(bench.built).fetch("SELECT significance FROM memories")
    assert {row["significance"] for row in scores} == {1.0}


async def test_a_relationship_with_much_to_do_lets_others_have_their_turn(bench: Bench) -> None:
    """Who waits for a place at a full model goes before another batch of those that had one.

    Of six companions four have their turns rated first, in batches of 32.
    """
    ingested_all = asyncio.Event()
    bench.script.background = rated_ten
    bench.script.hold_for = lambda _: ingested_all
    rated = {"significance": SignificanceRules(model=True), "consolidate": False}
    sessions = [await bench.open_session("ana", f"wren{number}", **rated) for number in range(6)]
    for number, session in enumerate(sessions):
        await store(bench, session, *(f"I promise {n} lanterns of {number}" for n in range(70)))
    async with bench.worker:
        await eventually(lambda: ingested(bench) == 6 * 70)
        ingested_all.set()
        await bench.wait_until_idle()
    asked = [
        chat["messages"][1]["content"] for chat in bench.script.background_requests if rates(chat)
    ]
    assert len(asked) == 6 * 70
    first = [
        next(index for index, content in enumerate(asked) if f"lanterns of {number}" in content)
        for number in range(6)
    ]
    assert max(first) < 5 * 32


async def test_leases_are_renewed_one_by_one_where_all_at_once_cannot_be(bench: Bench) -> None:
    """As on the nodes that a sharded database still has; here beside a claim that is locked."""
    never = asyncio.Event()
    bench.script.hold_for = lambda _: never
    locked, other = [await bench.open_session(name) for name in ("ana", "bob")]
    owner = owner_of(bench.built)
    async with bench.worker:
        await bench.say(locked, "My goal is to learn Greek")
        await bench.say(other, "My goal is to learn Greek")
        await eventually(lambda: len(bench.script.background_requests) == 2)
        await owner.execute(_IMPATIENT)
        await bench.built.database.pool.expire_connections()
        began_at = bench.clock.now()

        async def renewed() -> bool:
            until = await owner.fetchval(_UNTIL, other.relationship_id)
            return bool(until > began_at + timedelta(minutes=2))

        async with owner.acquire() as raw, raw.transaction():
            await raw.execute(_UNTIL + " FOR UPDATE", locked.relationship_id)
            await bench.until(renewed)
        never.set()
        await bench.wait_until_idle()


async def test_a_rating_that_fails_is_retried_and_stops_no_other(bench: Bench) -> None:
    """By itself, while the model rates other turns."""
    bench.script.background = rated_ten
    bench.script.refusal_status = lambda chat: (
        503 if rates(chat) and "poison" in chat["messages"][1]["content"] else None
    )
    rules = SignificanceRules(model=True)
    session = await bench.open_session(significance=rules)
    async with bench.worker:
        await store(bench, session, "I love poison", "I love rain")
        await bench.wait_until_idle()
        step = await bench.step(session, "rating")
        assert (step.state, step.behind, step.asks_model) == ("backing_off", 1, True)
        scores = await owner_of(bench.built).fetch("SELECT content, significance FROM memories")
        assert dict(map(tuple, scores))["I love rain"] == 1.0
        bench.script.refusal_status = lambda _: None
        while (await bench.step(session, "rating")).state != "idle":
            await bench.clock.leap(3.0)
            await bench.wait_until_idle()
    scores = await owner_of(bench.built).fetch("SELECT significance FROM memories")
    assert [row["significance"] for row in scores] == [1.0, 1.0]


async def test_what_a_model_refuses_to_rate_is_not_sent_again(bench: Bench) -> None:
    """The same text would be refused every day; it keeps the score it has."""
    bench.script.refusal_status = lambda chat: 400 if rates(chat) else None
    session = await bench.open_session(significance=SignificanceRules(model=True))
    async with bench.worker:
        await store(bench, session, "I love poison")
        await bench.wait_until_idle()
        assert any(rates(chat) for chat in bench.script.requests)
        asked = len(bench.script.requests)
        assert (await bench.step(session, "rating")).state == "idle"
        await bench.clock.leap(25 * 3600.0)
        await bench.wait_until_idle()
    assert not any(rates(chat) for chat in bench.script.requests[asked:])
    assert await remembered(bench, session) == ["I love poison"]


async def test_a_step_is_held_only_if_all_its_turns_are(bench: Bench) -> None:
    """Otherwise the status says what the next of them waits for."""
    session = await bench.open_session(**NO_MODEL)
    await owner_of(bench.built).execute(_POISON)
    async with bench.worker:
        await store(bench, session, "I love poison")
        while (await bench.step(session, "ingest")).state != "held":
            await bench.clock.leap(3600.0)
            await bench.wait_until_idle()
        await store(bench, session, "I adore poison")
        await bench.wait_until_idle()
        step = await bench.step(session, "ingest")
        assert (step.state, step.behind) == ("backing_off", 2)
