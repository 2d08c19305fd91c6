"""Background steps with a model that is slow, hangs, refuses or answers nonsense."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import ExitStack
from datetime import timedelta

import pytest

from foremind.background.step_definitions import HELD_AT_LEAST
from foremind.domain.record import NewRecord
from foremind.domain.settings.settings import Settings
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.model_server import Chat
from tests.conftest import PATIENCE, eventually, owner_of
from tests.integration.step_bench import Bench, chat_model_of, step_bench


@pytest.fixture
async def bench(settings: Settings) -> AsyncIterator[Bench]:
    """A worker that is not started yet."""
    async with step_bench(settings) as bench:
        yield bench


def asks_for(chat: Chat, work: str) -> bool:
    """Whether a request asks for notes, a summary or episodes."""
    shape = {"notes": '{"operations"', "summary": '{"lines"', "episodes": '{"episodes"'}[work]
    return shape in chat["messages"][0]["content"]


def notes_of_facts(chat: Chat) -> str:
    """A model that takes a note of each message of the user that starts with "Fact"."""
    prompt = chat["messages"][1]["content"].partition("Said:")[2]
    facts = [line.split('"')[-2] for line in prompt.splitlines() if '"Fact' in line]
    operations = [{"op": "ADD", "kind": "other", "entry": fact} for fact in facts]
    return (
        json.dumps({"operations": operations})
        if asks_for(chat, "notes")
        else background_answer(chat)
    )


async def test_a_failing_step_does_not_stop_others(bench: Bench) -> None:
    """It is retried with backoff, then suspended, and resumed at the next message."""
    session = await bench.open_session()
    bench.script.refusal_status = lambda chat: 401 if asks_for(chat, "summary") else None
    async with bench.worker:
        await bench.say(session, *(f"I like the number {number} very much" for number in range(12)))
        await bench.say(session, "I live in Porto", "Save this: the gate code is 4711")
        await bench.wait_until_idle()
        await bench.clock.leap(26 * 3600.0)
        await bench.wait_until_idle()
        for layer in ("scratchpad", "episodes", "opening", "hot", "profile", "vault"):
            assert await bench.records(session, layer), layer
        for _ in range(26):
            await bench.clock.leap(300.0)
            await bench.wait_until_idle()
        summary = await bench.step(session, "summary")
        assert (summary.state, summary.code, summary.behind) == ("held", "model_refused", 28)
        requests = [chat for chat in bench.script.background_requests if asks_for(chat, "summary")]
        assert len(requests) <= 8
        bench.script.refusal_status = lambda _: None
        await bench.clock.leap(HELD_AT_LEAST.total_seconds())
        await bench.say(session, "Good morning")
        await bench.wait_until_idle()
        assert await bench.records(session, "summary")
        assert (await bench.step(session, "summary")).state == "idle"


async def test_rules_replace_a_model_without_a_usable_answer(bench: Bench) -> None:
    """After a second attempt; the next batch is the model's again."""
    session = await bench.open_session()
    bench.script.background = lambda chat: (
        "no" if asks_for(chat, "notes") else background_answer(chat)
    )
    async with bench.worker:
        await bench.say(session, "I live in Porto")
        await bench.wait_until_idle()
        assert (await bench.step(session, "notes")).code == "model_broken"
        await bench.clock.leap(60.0)
        await bench.wait_until_idle()
        (entry,) = await bench.records(session, "scratchpad")
        assert (entry.made_by, (await bench.step(session, "notes")).state) == ("rules", "idle")
        bench.script.background = background_answer
        await bench.say(session, "My goal is to learn Greek")
        await bench.wait_until_idle()
        assert {record.made_by for record in await bench.records(session, "scratchpad")} == {
            "rules", "model",
        }  # fmt: skip


async def test_a_suspended_step_is_retried_daily_without_new_messages(bench: Bench) -> None:
    """The operator who repairs the model server need not restart anything."""
    session = await bench.open_session()
    bench.script.refusal_status = lambda chat: 401 if asks_for(chat, "notes") else None
    async with bench.worker:
        await bench.say(session, "My goal is to learn Greek")
        for _ in range(30):
            await bench.wait_until_idle()
            await bench.clock.leap(300.0)
        assert (await bench.step(session, "notes")).state == "held"
        for _ in range(2):
            before = sum(asks_for(chat, "notes") for chat in bench.script.background_requests)
            await bench.clock.leap(25 * 3600.0)
            await bench.wait_until_idle()
            assert (await bench.step(session, "notes")).state == "held"
            assert (
                sum(asks_for(chat, "notes") for chat in bench.script.background_requests)
                == before + 1
            )
        bench.script.refusal_status = lambda _: None
        await bench.clock.leap(25 * 3600.0)
        await bench.wait_until_idle()
        assert (await bench.step(session, "notes")).state == "idle"
        assert await bench.records(session, "scratchpad")


@pytest.mark.parametrize("how", ["refused", "silent"])
async def test_rules_fill_every_layer_from_what_a_model_refuses_to_read(
    bench: Bench, how: str
) -> None:
    """A content filter refuses some messages, or the model has no answer to them."""
    session = await bench.open_session()
    bench.script.alternating = False

    def is_refused(chat: Chat) -> bool:
        return "poison" in str(chat)

    if how == "refused":
        bench.script.refusal_status = lambda chat: 400 if is_refused(chat) else None
    else:
        bench.script.background = lambda chat: "" if is_refused(chat) else background_answer(chat)
    async with bench.worker:
        for day in range(3):
            await bench.say(
                session, *(f"We decided on the poison number {day}{letter}" for letter in "abcd")
            )
            await bench.say(session, "I live in Porto")
            await bench.clock.leap(26 * 3600.0)
            for _ in range(8):
                await bench.wait_until_idle()
                await bench.clock.leap(60.0)
        await bench.wait_until_idle()
        for layer in ("summary", "scratchpad", "episodes", "opening", "topics", "hot", "profile"):
            records = await bench.records(session, layer)
            assert {record.made_by for record in records} == {"rules"}, layer
        steps = await bench.worker.status(session.relationship_id)
        assert {step.state for step in steps} == {"idle"}
        assert not [step.step for step in steps if step.behind and step.step != "summary"]


async def test_a_hanging_companion_delays_neither_others_nor_steps_without_a_model(
    bench: Bench,
) -> None:
    """On one model server, with more of its users waiting than the server has slots."""
    never = asyncio.Event()
    bench.script.hold_for = lambda chat: never if "HANGS" in str(chat) else None
    async with bench.worker:
        sessions = [await bench.open_session(f"user{number}") for number in range(6)]
        for session in sessions:
            await bench.say(session, "HANGS", "Save this: the gate code is 4711")

        async def all_pinned() -> bool:
            return all([await bench.records(session, "vault") for session in sessions])

        await bench.until(all_pinned)
        await eventually(lambda: len(bench.script.background_requests) >= 3)
        ivy = await bench.open_session("ana", "ivy")
        await bench.say(ivy, "My goal is to learn Greek")
        await bench.until(lambda: bench.records(ivy, "scratchpad"))
        assert sum("HANGS" in str(chat) for chat in bench.script.background_requests) == 3
        steps = [await bench.step(session, "notes") for session in sessions]
        states = [step.state for step in steps]
        assert states.count("running") == 3
        assert set(states) <= {
            "running",
            "due",
            "model",
        }  # depends on whether ivy has the fourth slot
        await bench.clock.advance(10.0)
        await bench.worker.update_metrics()
        sample_value = bench.built.runtime.metrics.registry.get_sample_value
        running = {"step": "notes", "reason": "running"}
        assert sample_value("foremind_background_waiting", running) == 3
        assert (sample_value("foremind_background_oldest_seconds") or 0) >= 10
        never.set()
        await bench.wait_until_idle()


async def test_messages_during_a_slow_request_for_notes_are_noted_once(bench: Bench) -> None:
    """By two concurrent processes, for longer than a lease lasts."""
    slow = asyncio.Event()
    bench.script.background = notes_of_facts
    bench.script.hold_for = lambda chat: slow if asks_for(chat, "notes") else None
    session = await bench.open_session()
    async with bench.another(), bench.worker:
        await bench.say(session, "Fact 0")
        await eventually(
            lambda: any(asks_for(chat, "notes") for chat in bench.script.background_requests)
        )
        for number in range(1, 8):
            await bench.say(session, f"Fact {number}")
            for _ in range(10):
                await bench.clock.advance(2.0)
                await asyncio.sleep(0.01)
        slow.set()
        await bench.wait_until_idle()
    entries = [record.content for record in await bench.records(session, "scratchpad")]
    assert sorted(entries) == [f"Fact {number}" for number in range(8)]
    # One request for the first message, then batches of ten turns.
    assert sum(asks_for(chat, "notes") for chat in bench.script.background_requests) == 3


async def test_rules_and_a_model_can_update_the_profile_concurrently(
    bench: Bench,
) -> None:
    """The entries of both are kept, and the model is asked once for what it has read."""
    slow = asyncio.Event()
    extracted = {"entries": [{"slot": "work", "value": "baker", "holds": True}]}

    def asks_for_profile(chat: Chat) -> bool:
        return "baker" in chat["messages"][1]["content"] and asks_for(chat, "notes")

    bench.script.background = lambda chat: (
        json.dumps(extracted) if asks_for_profile(chat) else background_answer(chat)
    )
    bench.script.hold_for = lambda chat: slow if asks_for_profile(chat) else None
    session = await bench.open_session()
    async with bench.worker:
        await bench.say(session, "They tell me that I am quite a baker")
        await eventually(
            lambda: any(asks_for_profile(chat) for chat in bench.script.background_requests)
        )
        await bench.say(session, "I live in Porto")
        await bench.until(lambda: bench.records(session, "profile"))
        slow.set()
        await bench.wait_until_idle()
    profile = "\n".join(record.content for record in await bench.records(session, "profile"))
    assert "Porto" in profile and "baker" in profile
    assert sum(asks_for_profile(chat) for chat in bench.script.background_requests) == 1


async def test_the_status_of_a_step_that_waits_for_a_slot_says_so(bench: Bench) -> None:
    """While players use the model server."""
    session = await bench.open_session()
    server = bench.chat_models.model_server_for(chat_model_of(bench.built.runtime.settings))
    assert server is not None
    with ExitStack() as players:
        for _ in range(4):
            players.enter_context(server.slots.foreground())
        async with bench.worker:
            await bench.say(session, "My goal is to learn Greek")

            async def waits_for_slot() -> bool:
                return (await bench.step(session, "notes")).state == "slot"

            await bench.until(waits_for_slot)
            await bench.worker.update_metrics()
            slot = {"step": "notes", "reason": "slot"}
            value = bench.built.runtime.metrics.registry.get_sample_value
            assert value("foremind_background_waiting", slot) == 1
            assert bench.script.background_requests == []
            players.close()
            await bench.until(lambda: bench.records(session, "scratchpad"))


async def test_work_interrupted_by_a_clean_stop_is_resumed_at_once(bench: Bench) -> None:
    """By another process, without waiting for the lease to expire."""
    never = asyncio.Event()
    bench.script.hold_for = lambda _: never
    session = await bench.open_session()
    async with bench.worker:
        await bench.say(session, "My goal is to learn Greek")
        await eventually(lambda: bool(bench.script.background_requests))
    bench.script.hold_for = lambda _: None
    now = bench.clock.now()
    async with bench.another():

        async def written() -> bool:
            return bool(await bench.records(session, "scratchpad"))

        async with asyncio.timeout(PATIENCE):
            while not await written():
                await asyncio.sleep(0.01)
        assert bench.clock.now() == now


async def test_work_of_a_killed_worker_is_resumed_within_a_minute(bench: Bench) -> None:
    """Its lease is not released and has to expire."""
    never = asyncio.Event()
    bench.script.hold_for = lambda _: never
    session = await bench.open_session()
    killed = bench.another()
    await killed.__aenter__()
    await bench.say(session, "My goal is to learn Greek")
    killed.wake(session.relationship_id)
    await eventually(lambda: bool(bench.script.background_requests))
    await killed._stop(0)
    bench.script.hold_for = lambda _: None
    stopped_at = bench.clock.now()
    async with bench.worker:
        await bench.until(lambda: bench.records(session, "scratchpad"), 1.0)
    assert bench.clock.now() - stopped_at < timedelta(minutes=1)


async def test_note_operations_that_fail_do_not_affect_others(bench: Bench) -> None:
    """A model deletes an entry and then updates it; its other operations are applied."""
    session = await bench.open_session()
    async with bench.built.stores.records.begin_changes(
        session.relationship_id, bench.clock.now()
    ) as changes:
        entry = await changes.add(NewRecord("scratchpad", "Has a goat", "model", kind="other"))
    operations = [
        {"op": "DELETE", "id": entry},
        {"op": "UPDATE", "id": entry, "entry": "Has two goats"},
        {"op": "DELETE", "id": entry},
        {"op": "ADD", "kind": "goal", "entry": "Wants to learn Greek"},
    ]
    answer = json.dumps({"operations": operations})
    bench.script.background = lambda chat: (
        answer if asks_for(chat, "notes") else background_answer(chat)
    )
    async with bench.worker:
        await bench.say(session, "I sold the goat. My goal is to learn Greek")
        await bench.wait_until_idle()
    entries = [record.content for record in await bench.records(session, "scratchpad")]
    assert entries == ["Wants to learn Greek"]
    assert sum(asks_for(chat, "notes") for chat in bench.script.background_requests) == 1


async def test_a_thousand_turns_are_processed_without_summaries(bench: Bench) -> None:
    """Each step has its own cursor and works in batches."""
    session = await bench.open_session(llm_url="", layers_off=("summary",))
    await bench.say(session, *(f"It rained {count} times" for count in range(600)))
    await bench.say(session, "My goal is to learn Greek", "I live in Porto")
    await bench.worker.run_due_steps(session.relationship_id)
    assert "Greek" in str(await bench.records(session, "scratchpad"))
    assert "Porto" in str(await bench.records(session, "profile"))
    await bench.clock.leap(26 * 3600.0)
    await bench.worker.run_due_steps(session.relationship_id)
    for name in ("stated", "notes", "episodes"):
        assert (await bench.step(session, name)).behind == 0, name
    assert "Porto" in str(await bench.records(session, "episodes"))


async def test_later_retention_settings_reach_inactive_relationships(
    bench: Bench,
) -> None:
    """Also those that the operator sets for a single relationship."""
    session = await bench.open_session()
    async with bench.built.stores.records.begin_changes(
        session.relationship_id, bench.clock.now()
    ) as changes:
        await changes.add(NewRecord("vault", "The gate code is 4711", "user"))
    async with bench.worker:
        await bench.clock.leap(20 * 24 * 3600.0)
        await bench.wait_until_idle()
        assert await bench.records(session, "vault")
        await owner_of(bench.built).execute(
            "UPDATE relationships SET woken_at = $1, "
            'operator_settings = \'{"retention_days": {"vault": 10}}\'',
            bench.clock.now(),
        )
        await bench.clock.leap(25 * 3600.0)
        await bench.wait_until_idle()
        assert await bench.records(session, "vault") == []


async def test_a_model_cannot_delete_notes_of_the_user(bench: Bench) -> None:
    """Its other operations are applied."""
    session = await bench.open_session()
    async with bench.built.stores.records.begin_changes(
        session.relationship_id, bench.clock.now()
    ) as changes:
        by_user = await changes.add(NewRecord("scratchpad", "Has a goat", "user", kind="other"))
        by_model = await changes.add(NewRecord("scratchpad", "Has a cow", "model", kind="other"))
    operations = [{"op": "DELETE", "id": note} for note in (by_user, by_model)]
    bench.script.background = lambda chat: (
        json.dumps({"operations": operations})
        if asks_for(chat, "notes")
        else background_answer(chat)
    )
    async with bench.worker:
        await bench.say(session, "I sold the goat and the cow")
        await bench.wait_until_idle()
    remaining = [record.content for record in await bench.records(session, "scratchpad")]
    assert remaining == ["Has a goat"]


async def test_a_model_is_not_asked_for_disabled_layers(bench: Bench) -> None:
    """Nor for episodes, if all layers derived with them are disabled."""
    layers_off = frozenset(
        {"summary", "scratchpad", "profile", "episodes", "topics", "questions", "opening", "hot"}
    )
    session = await bench.open_session(layers_off=layers_off)
    async with bench.worker:
        await bench.say(session, "My goal is to learn Greek", "I live in Porto")
        await bench.clock.leap(26 * 3600.0)
        await bench.wait_until_idle()
        steps = await bench.worker.status(session.relationship_id)
        assert {step.step: step.behind for step in steps}["episodes"] == 0
    assert bench.script.background_requests == []


async def test_a_lane_whose_lease_another_has_taken_is_ended(bench: Bench) -> None:
    """At the next renewal, so that nothing is written by two."""
    session = await bench.open_session()
    never = asyncio.Event()
    bench.script.hold_for = lambda _: never
    async with bench.worker as worker:
        await bench.say(session, "My goal is to learn Greek")
        worker.wake(session.relationship_id)
        await eventually(lambda: bool(bench.script.background_requests))
        (lane,) = [lane for lane in worker._lanes.values() if lane.lane == "model"]
        await owner_of(bench.built).execute(
            "UPDATE background_claims SET holder = gen_random_uuid()"
        )

        async def is_ended() -> bool:
            return lane.task is not None and lane.task.done()

        await bench.until(is_ended, 1.0)
