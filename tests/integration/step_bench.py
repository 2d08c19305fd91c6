"""A background worker on a clock that tests move, with a scripted model."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from foremind.app.configuration import load_settings
from foremind.app.core import Core, build_background_worker, core
from foremind.background.step_definitions import StepStatus
from foremind.background.worker import BackgroundWorker
from foremind.domain.companion import CompanionFile
from foremind.domain.policy import ChatModelPolicy, policy_for
from foremind.domain.record import Record
from foremind.domain.settings.settings import CompanionSettings, Settings
from foremind.domain.turn import OpenedSession
from foremind.llm.model_selection import ChatModels
from foremind.runtime.supervision import Supervisor
from foremind_eval.doubles.background_answers import background_answer
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.doubles.model_server import Script, scripted_model
from tests.conftest import PATIENCE, owner_of

SESSION_LENGTH = timedelta(hours=24)


class Bench:
    """A background worker, a clock that the test advances, and a scripted model."""

    def __init__(self, built: Core, clock: ManualClock, script: Script) -> None:
        self.built = built
        self.clock = clock
        self.script = script
        self.chat_models = ChatModels(built.runtime.settings)
        self.workers: list[BackgroundWorker] = []
        self.worker = self.another()
        self._said = 0

    def another(self, *, has_peers: bool = False) -> BackgroundWorker:
        """Return another worker, as of another process; perhaps of one among several gateways."""
        supervisor = Supervisor(self.clock, self.built.runtime.metrics)
        runtime = replace(self.built.runtime, supervisor=supervisor)
        built = replace(self.built, runtime=runtime)
        self.workers.append(build_background_worker(built, self.chat_models, lambda: has_peers))
        return self.workers[-1]

    async def open_session(
        self, user: str = "ana", companion: str = "wren", **settings: Any
    ) -> OpenedSession:
        """Open a session of a user with a companion of these settings."""
        file = CompanionFile(companion, companion.title(), "p", "", CompanionSettings(**settings))
        stored = await self.built.stores.companions.put(file)
        return await self.built.stores.turns.open_session(
            user, user.title(), stored.id, self.clock.now(), lifetime=SESSION_LENGTH
        )

    async def say(self, session: OpenedSession, *texts: str) -> None:
        """Store messages with replies, after which nothing more is waited for."""
        for text in texts:
            self._said += 1
            now = self.clock.now()
            stored = await self.built.stores.turns.commit_message(
                session, f"m{self._said}", text, now
            )
            await self.built.stores.turns.commit_reply(
                session, stored.id, "completed", "I see.", now, urgent=True
            )
            self.worker.ingest_soon(session.relationship_id, [stored.id])
            self.worker.wake(session.relationship_id)

    async def records(self, session: OpenedSession, layer: str) -> list[Record]:
        """Return the records of a layer."""
        records = await self.built.stores.records.all(session.relationship_id)
        return [record for record in records if record.layer == layer]

    async def step(self, session: OpenedSession, name: str) -> StepStatus:
        """Return the status of a step."""
        status = await self.worker.status(session.relationship_id)
        return next(step for step in status if step.step == name)

    async def until(self, condition: Callable[[], Awaitable[object]], seconds: float = 0.5) -> None:
        """Advance the clock until a condition holds."""
        async with asyncio.timeout(PATIENCE):
            while not await condition():
                await self.clock.advance(seconds)
                await asyncio.sleep(0.01)

    async def wait_until_idle(self) -> None:
        """Wait until no step is due or running, and none is to be retried after a day."""

        async def is_waiting() -> bool:
            waiting = await owner_of(self.built).fetchval(
                "SELECT (SELECT count(*) FROM relationships WHERE due_at <= $1) + "
                "(SELECT count(*) FROM background_steps WHERE due_at <= $1) + "
                "(SELECT count(*) FROM background_claims) + "
                "(SELECT count(*) FROM relationships WHERE woken_at <= $2) + "
                "(SELECT count(*) FROM background_steps WHERE held_at <= $2)",
                self.clock.now(),
                self.clock.now() - timedelta(days=1),
            )
            return bool(waiting)

        def ingesting() -> bool:
            return any(worker._ingests.running for worker in self.workers)

        async def nothing_due() -> bool:
            for _ in range(200):  # ingest waits for no clock, which would bring its retries nearer
                if not ingesting():
                    break
                await asyncio.sleep(0.005)
            # Twice, as Citus does not count at one moment: a step may be neither held nor due.
            return not (ingesting() or await is_waiting() or ingesting() or await is_waiting())

        await self.until(nothing_due)


@asynccontextmanager
async def step_bench(settings: Settings) -> AsyncIterator[Bench]:
    """A worker that is not started yet."""
    clock = ManualClock()
    async with scripted_model(Script(background=background_answer)) as model:
        model_settings = load_settings(
            **(msgspec.structs.asdict(settings) | {"llm_url": model.url, "llm_slots": 4})
        )
        async with core(model_settings, clock=clock) as built:
            bench = Bench(built, clock, model.script)
            await bench.chat_models.prepare(chat_model_of(model_settings))
            try:
                yield bench
            finally:
                await bench.chat_models.close()


def chat_model_of(settings: Settings) -> ChatModelPolicy:
    """Return the model of companions without settings of their own."""
    return policy_for(CompanionSettings(), settings).chat_model
