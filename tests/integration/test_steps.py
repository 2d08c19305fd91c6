"""Background work with a model that is slow, hangs, or answers nonsense."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from foremind.app import Core, core, curation_of
from foremind.background.status import StepStatus
from foremind.background.steps import HELD_FOR
from foremind.background.worker import BackgroundWorker
from foremind.domain.companion import CompanionFile, CompanionSettings
from foremind.domain.record import NewRecord, Record
from foremind.domain.settings import Settings, load_settings
from foremind.domain.turn import OpenedSession
from foremind.llm.model_selection import ChatModels
from foremind.runtime.supervision import Supervisor
from foremind.testing.background_answers import curate
from foremind.testing.manual_clock import ManualClock
from foremind.testing.model_server import Chat, Script, scripted_model
from tests.conftest import PATIENCE, eventually, owner_of

LIVES = timedelta(hours=24)


class Bench:
    """The background work of a server, a clock that the test moves, and a scripted model."""

    def __init__(self, built: Core, clock: ManualClock, script: Script) -> None:
        self.built = built
        self.clock = clock
        self.script = script
        self.voices = ChatModels(built.settings)
        self.worker = self.another()
        self._said = 0

    def another(self) -> BackgroundWorker:
        """Another worker, as of another process."""
        supervisor = Supervisor(self.clock, self.built.metrics)
        return curation_of(replace(self.built, supervisor=supervisor), self.voices)

    async def bond(self, user: str = "ana", companion: str = "wren", **own: Any) -> OpenedSession:
        """A session of a user with a companion."""
        file = CompanionFile(companion, companion.title(), "p", "", CompanionSettings(**own))
        made = await self.built.companions.put(file)
        return await self.built.turns.open_session(
            user, user.title(), made.id, self.clock.now(), lives=LIVES
        )

    async def say(self, bond: OpenedSession, *texts: str) -> None:
        """Say things, each answered."""
        for text in texts:
            self._said += 1
            now = self.clock.now()
            stored = await self.built.turns.commit_message(bond, f"m{self._said}", text, now)
            await self.built.turns.commit_reply(bond, stored.id, "completed", "I see.", now)
            self.worker.look()

    async def records(self, bond: OpenedSession, layer: str) -> list[Record]:
        """The records of a layer."""
        records = await self.built.records.all(bond.relationship_id)
        return [record for record in records if record.layer == layer]

    async def step(self, bond: OpenedSession, name: str) -> StepStatus:
        """How a step stands."""
        status = await self.worker.status(bond.relationship_id)
        return next(each for each in status if each.step == name)

    async def until(self, holds: Callable[[], Awaitable[object]], seconds: float = 0.5) -> None:
        """Let the clock run until something holds."""
        async with asyncio.timeout(PATIENCE):
            while not await holds():
                await self.clock.advance(seconds)
                await asyncio.sleep(0.01)

    async def settled(self) -> None:
        """Let everything be done that is due by now."""

        async def nothing_due() -> bool:
            waiting = await owner_of(self.built).fetchval(
                "SELECT (SELECT count(*) FROM relationships WHERE due_at <= $1) + "
                "(SELECT count(*) FROM curation_steps WHERE due_at <= $1) + "
                "(SELECT count(*) FROM curation_claims)",
                self.clock.now(),
            )
            return not waiting

        await self.until(nothing_due)


@pytest.fixture
async def bench(settings: Settings) -> AsyncIterator[Bench]:
    """A worker that is not begun yet."""
    clock = ManualClock()
    async with scripted_model(Script(background=curate)) as model:
        own = load_settings(**(settings.model_dump() | {"llm_url": model.url, "llm_slots": 4}))
        async with core(own, clock=clock) as built:
            made = Bench(built, clock, model.script)
            await made.voices.prepare(_voice(own))
            try:
                yield made
            finally:
                await made.voices.close()


def _voice(settings: Settings) -> Any:
    from foremind.domain.policy import policy_for  # noqa: PLC0415

    return policy_for(CompanionSettings(), settings).voice


def is_of(chat: Chat, work: str) -> bool:
    """Whether a request asks for a kind of work: notes, summary, episodes."""
    shape = {"notes": '{"operations"', "summary": '{"lines"', "episodes": '{"episodes"'}[work]
    return shape in chat["messages"][0]["content"]


def noted(chat: Chat) -> str:
    """An entry for each sentence of the user that begins with a capital F."""
    given = chat["messages"][1]["content"].partition("Said:")[2]
    facts = [line.split('"')[-2] for line in given.splitlines() if '"Fact' in line]
    operations = [{"op": "ADD", "kind": "other", "entry": fact} for fact in facts]
    return json.dumps({"operations": operations}) if is_of(chat, "notes") else curate(chat)


async def test_a_step_that_fails_stops_no_other(bench: Bench) -> None:
    """It is asked again after growing pauses, then held, and taken up when something is said."""
    bond = await bench.bond()
    bench.script.refuses = lambda chat: 429 if is_of(chat, "summary") else None
    async with bench.worker:
        await bench.say(bond, *(f"I like the number {each} very much" for each in range(12)))
        await bench.say(bond, "I live in Porto", "Save this: the gate code is 4711")
        await bench.settled()
        await bench.clock.leap(26 * 3600.0)
        await bench.settled()
        for layer in ("scratchpad", "episodes", "opening", "hot", "profile", "vault"):
            assert await bench.records(bond, layer), layer
        for _ in range(26):
            await bench.clock.leap(300.0)
            await bench.settled()
        summary = await bench.step(bond, "summary")
        assert (summary.state, summary.code, summary.behind) == ("held", "model_refused", 28)
        asked = [each for each in bench.script.asked if is_of(each, "summary")]
        assert len(asked) <= 8
        bench.script.refuses = lambda _: None
        await bench.clock.leap(HELD_FOR.total_seconds())
        await bench.say(bond, "Good morning")
        await bench.settled()
        assert await bench.records(bond, "summary")
        assert (await bench.step(bond, "summary")).state == "idle"


async def test_rules_stand_in_for_a_model_that_has_no_usable_answer(bench: Bench) -> None:
    """When it is asked again later and has none either; the next portion is the model's."""
    bond = await bench.bond()
    bench.script.background = lambda chat: "no" if is_of(chat, "notes") else curate(chat)
    async with bench.worker:
        await bench.say(bond, "I live in Porto")
        await bench.settled()
        assert (await bench.step(bond, "notes")).code == "model_broken"
        await bench.clock.leap(60.0)
        await bench.settled()
        (entry,) = await bench.records(bond, "scratchpad")
        assert (entry.made_by, (await bench.step(bond, "notes")).state) == ("rules", "idle")
        bench.script.background = curate
        await bench.say(bond, "My goal is to learn Greek")
        await bench.settled()
        assert {record.made_by for record in await bench.records(bond, "scratchpad")} == {
            "rules", "model",
        }  # fmt: skip


async def test_what_is_held_is_tried_again_though_nobody_says_anything(bench: Bench) -> None:
    """On the next day, and the next: whoever mends the model's server does not know of it."""
    bond = await bench.bond()
    bench.script.refuses = lambda chat: 401 if is_of(chat, "notes") else None
    async with bench.worker:
        await bench.say(bond, "My goal is to learn Greek")
        for _ in range(30):
            await bench.settled()
            await bench.clock.leap(300.0)
        assert (await bench.step(bond, "notes")).state == "held"
        for _ in range(2):
            asked = len([each for each in bench.script.asked if is_of(each, "notes")])
            await bench.clock.leap(25 * 3600.0)
            await bench.settled()
            assert (await bench.step(bond, "notes")).state == "held"
            again = len([each for each in bench.script.asked if is_of(each, "notes")])
            assert again == asked + 1
        bench.script.refuses = lambda _: None
        await bench.clock.leap(25 * 3600.0)
        await bench.settled()
        assert (await bench.step(bond, "notes")).state == "idle"
        assert await bench.records(bond, "scratchpad")


@pytest.mark.parametrize("how", ["refused", "silent"])
async def test_rules_make_every_layer_of_what_a_model_will_not_read(bench: Bench, how: str) -> None:
    """A filter refuses some of what was said, or it has no answer; the rest is the model's."""
    bond = await bench.bond()
    bench.script.alternating = False

    def is_about_it(chat: Chat) -> bool:
        return "poison" in str(chat)

    if how == "refused":
        bench.script.refuses = lambda chat: 400 if is_about_it(chat) else None
    else:
        bench.script.background = lambda chat: "" if is_about_it(chat) else curate(chat)
    async with bench.worker:
        for day in range(3):
            await bench.say(bond, *(f"We decided on poison number {day}{each}" for each in "abcd"))
            await bench.say(bond, "I live in Porto")
            await bench.clock.leap(26 * 3600.0)
            for _ in range(8):
                await bench.settled()
                await bench.clock.leap(60.0)
        await bench.settled()
        for layer in ("summary", "scratchpad", "episodes", "opening", "topics", "hot", "profile"):
            records = await bench.records(bond, layer)
            assert {record.made_by for record in records} == {"rules"}, layer
        steps = await bench.worker.status(bond.relationship_id)
        assert {step.state for step in steps} == {"idle"}
        assert not [step.step for step in steps if step.behind and step.step != "summary"]


async def test_a_companion_that_hangs_holds_up_neither_others_nor_what_needs_no_model(
    bench: Bench,
) -> None:
    """On one model server, with more of its users waiting than there are places."""
    never = asyncio.Event()
    bench.script.holds = lambda chat: never if "HANGS" in str(chat) else None
    async with bench.worker:
        bonds = [await bench.bond(f"user{each}") for each in range(6)]
        for bond in bonds:
            await bench.say(bond, "HANGS", "Save this: the gate code is 4711")

        async def saved() -> bool:
            return all([await bench.records(bond, "vault") for bond in bonds])

        await bench.until(saved)
        await eventually(lambda: len(bench.script.asked) >= 3)
        ivy = await bench.bond("ana", "ivy")
        await bench.say(ivy, "My goal is to learn Greek")
        await bench.until(lambda: bench.records(ivy, "scratchpad"))
        assert sum("HANGS" in str(each) for each in bench.script.asked) == 3
        steps = [await bench.step(bond, "notes") for bond in bonds]
        states = [step.state for step in steps]
        assert states.count("running") == 3
        assert set(states) <= {"running", "due", "model"}  # whether ivy has the fourth place
        await bench.clock.advance(10.0)
        await bench.worker.measure()
        waiting = bench.built.metrics.registry.get_sample_value
        running = {"step": "notes", "reason": "running"}
        assert waiting("foremind_curation_waiting", running) == 3
        assert (waiting("foremind_curation_oldest_seconds") or 0) >= 10
        never.set()
        await bench.settled()


async def test_what_is_said_while_notes_are_slow_is_noted_once(bench: Bench) -> None:
    """By two processes that work beside each other, for longer than a claim lasts."""
    slow = asyncio.Event()
    bench.script.background = noted
    bench.script.holds = lambda chat: slow if is_of(chat, "notes") else None
    bond = await bench.bond()
    async with bench.another(), bench.worker:
        await bench.say(bond, "Fact 0")
        await eventually(lambda: any(is_of(each, "notes") for each in bench.script.asked))
        for each in range(1, 8):
            await bench.say(bond, f"Fact {each}")
            for _ in range(10):
                await bench.clock.advance(2.0)
                await asyncio.sleep(0.01)
        slow.set()
        await bench.settled()
    entries = [record.content for record in await bench.records(bond, "scratchpad")]
    assert sorted(entries) == [f"Fact {each}" for each in range(8)]
    # One for what was said first, the rest in portions of ten turns.
    assert sum(is_of(each, "notes") for each in bench.script.asked) == 3


async def test_rules_that_write_while_a_model_reads_for_the_profile_take_nothing_from_it(
    bench: Bench,
) -> None:
    """It is asked once, and both are there."""
    slow = asyncio.Event()
    read = {"entries": [{"slot": "work", "value": "baker", "holds": True}]}

    def profiles(chat: Chat) -> bool:
        return "entries" in chat["messages"][0]["content"] and not is_of(chat, "notes")

    bench.script.background = lambda chat: json.dumps(read) if profiles(chat) else curate(chat)
    bench.script.holds = lambda chat: slow if profiles(chat) else None
    bond = await bench.bond()
    async with bench.worker:
        await bench.say(bond, *(f"I bake {each} loaves a day" for each in range(6)))
        await eventually(lambda: any(profiles(each) for each in bench.script.asked))
        await bench.say(bond, "I live in Porto")
        await bench.until(lambda: bench.records(bond, "profile"))
        slow.set()
        await bench.settled()
    profile = "\n".join(record.content for record in await bench.records(bond, "profile"))
    assert "Porto" in profile and "baker" in profile
    assert sum(profiles(each) for each in bench.script.asked) == 1


async def test_what_waits_for_a_slot_says_so(bench: Bench) -> None:
    """While players use the model server."""
    bond = await bench.bond()
    server = bench.voices.server_of(_voice(bench.built.settings))
    assert server is not None
    with ExitStack() as players:
        for _ in range(4):
            players.enter_context(server.slots.taken())
        async with bench.worker:
            await bench.say(bond, "My goal is to learn Greek")

            async def waits() -> bool:
                return (await bench.step(bond, "notes")).state == "slot"

            await bench.until(waits)
            await bench.worker.measure()
            slot = {"step": "notes", "reason": "slot"}
            value = bench.built.metrics.registry.get_sample_value
            assert value("foremind_curation_waiting", slot) == 1
            assert bench.script.asked == []
            players.close()
            await bench.until(lambda: bench.records(bond, "scratchpad"))


async def test_what_a_clean_stop_interrupted_is_taken_up_at_once(bench: Bench) -> None:
    """By whoever comes, without a second's passing."""
    never = asyncio.Event()
    bench.script.holds = lambda _: never
    bond = await bench.bond()
    async with bench.worker:
        await bench.say(bond, "My goal is to learn Greek")
        await eventually(lambda: bool(bench.script.asked))
    bench.script.holds = lambda _: None
    now = bench.clock.now()
    async with bench.another():

        async def written() -> bool:
            return bool(await bench.records(bond, "scratchpad"))

        async with asyncio.timeout(PATIENCE):
            while not await written():
                await asyncio.sleep(0.01)
        assert bench.clock.now() == now


async def test_what_a_killed_worker_left_is_taken_up_within_a_minute(bench: Bench) -> None:
    """Nobody gives back what it held."""
    never = asyncio.Event()
    bench.script.holds = lambda _: never
    bond = await bench.bond()
    killed = bench.another()
    await killed.__aenter__()
    await bench.say(bond, "My goal is to learn Greek")
    killed.look()
    await eventually(lambda: bool(bench.script.asked))
    assert killed._loop is not None
    await killed._loop.stop()
    await killed._running.stop()
    bench.script.holds = lambda _: None
    at = bench.clock.now()
    async with bench.worker:
        await bench.until(lambda: bench.records(bond, "scratchpad"), 1.0)
    assert bench.clock.now() - at < timedelta(minutes=1)


async def test_operations_that_cannot_be_done_spoil_no_others(bench: Bench) -> None:
    """A model deletes an entry and then updates it; the rest of its answer is kept."""
    bond = await bench.bond()
    async with bench.built.records.changing(bond.relationship_id, bench.clock.now()) as changes:
        entry = await changes.add(NewRecord("scratchpad", "Has a goat", "model", kind="other"))
    operations = [
        {"op": "DELETE", "id": entry},
        {"op": "UPDATE", "id": entry, "entry": "Has two goats"},
        {"op": "DELETE", "id": entry},
        {"op": "ADD", "kind": "goal", "entry": "Wants to learn Greek"},
    ]
    answer = json.dumps({"operations": operations})
    bench.script.background = lambda chat: answer if is_of(chat, "notes") else curate(chat)
    async with bench.worker:
        await bench.say(bond, "I sold the goat. My goal is to learn Greek")
        await bench.settled()
    entries = [record.content for record in await bench.records(bond, "scratchpad")]
    assert entries == ["Wants to learn Greek"]
    assert sum(is_of(each, "notes") for each in bench.script.asked) == 1


async def test_a_thousand_turns_stall_nothing_with_summaries_off(bench: Bench) -> None:
    """Each step goes on from its own cursor, in portions."""
    bond = await bench.bond(llm_url="", layers_off=("summary",))
    await bench.say(bond, *(f"It rained {each} times" for each in range(600)))
    await bench.say(bond, "My goal is to learn Greek", "I live in Porto")
    await bench.worker.curate(bond.relationship_id)
    assert "Greek" in str(await bench.records(bond, "scratchpad"))
    assert "Porto" in str(await bench.records(bond, "profile"))
    await bench.clock.leap(26 * 3600.0)
    await bench.worker.curate(bond.relationship_id)
    behind = [(await bench.step(bond, each)).behind for each in ("stated", "notes", "episodes")]
    assert behind == [0, 0, 0]
    assert "Porto" in str(await bench.records(bond, "episodes"))


async def test_days_that_the_operator_sets_later_reach_relationships_that_sleep(
    bench: Bench,
) -> None:
    """Also for one relationship, by the operator, of whose user nobody has heard since."""
    bond = await bench.bond()
    async with bench.built.records.changing(bond.relationship_id, bench.clock.now()) as changes:
        await changes.add(NewRecord("vault", "The gate code is 4711", "user"))
    async with bench.worker:
        await bench.clock.leap(20 * 24 * 3600.0)
        await bench.settled()
        assert await bench.records(bond, "vault")
        await owner_of(bench.built).execute(
            "UPDATE relationships SET woken_at = $1, "
            'operator_settings = \'{"retention_days": {"vault": 10}}\'',
            bench.clock.now(),
        )
        await bench.clock.leap(25 * 3600.0)
        await bench.settled()
        assert await bench.records(bond, "vault") == []


async def test_a_model_takes_away_nothing_that_somebody_wrote(bench: Bench) -> None:
    """What else it answers is done."""
    bond = await bench.bond()
    async with bench.built.records.changing(bond.relationship_id, bench.clock.now()) as changes:
        mine = await changes.add(NewRecord("scratchpad", "Has a goat", "user", kind="other"))
        made = await changes.add(NewRecord("scratchpad", "Has a cow", "model", kind="other"))
    operations = [{"op": "DELETE", "id": each} for each in (mine, made)]
    bench.script.background = lambda chat: (
        json.dumps({"operations": operations}) if is_of(chat, "notes") else curate(chat)
    )
    async with bench.worker:
        await bench.say(bond, "I sold the goat and the cow")
        await bench.settled()
    left = [record.content for record in await bench.records(bond, "scratchpad")]
    assert left == ["Has a goat"]


async def test_a_model_is_not_asked_for_what_is_switched_off(bench: Bench) -> None:
    """Neither for episodes, where nothing that is made with them is wanted."""
    off = frozenset(
        {"summary", "scratchpad", "profile", "episodes", "topics", "questions", "opening", "hot"}
    )
    bond = await bench.bond(layers_off=off)
    async with bench.worker:
        await bench.say(bond, "My goal is to learn Greek", "I live in Porto")
        await bench.clock.leap(26 * 3600.0)
        await bench.settled()
        steps = await bench.worker.status(bond.relationship_id)
        assert {step.step: step.behind for step in steps}["episodes"] == 0
    assert bench.script.asked == []
