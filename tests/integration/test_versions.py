"""Whatever was done to memories, every way of searching gives the same answer."""

import asyncio
import dataclasses
import itertools
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypeVar

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis import settings as how
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from foremind.app import Core, core, corrector_of, expirer_of, forgetter_of
from foremind.domain.announcements import SessionTaken
from foremind.domain.companion import CompanionFile, CompanionSettings, RelationshipSettings
from foremind.domain.errors import NotFound
from foremind.domain.policy import RecallPolicy, policy_for
from foremind.domain.settings import Settings, load_settings
from foremind.domain.turn import OpenedSession
from foremind.memory.erase import ErasureScope
from foremind.memory.import_relationship import RelationshipImporter
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.retrieval.index.index_cache import IndexedCandidates
from foremind.retrieval.search import Candidates, Query, RankedSearch, StoredCandidates
from foremind.storage.notifications import Announcement, NotificationListener
from foremind.storage.transfer_store import TransferStore
from tests.conftest import PATIENCE, owner_of

START = datetime(2026, 5, 20, 12, tzinfo=UTC)
ROOM = 1 << 30
NAMES = ("Ana", "Mara")
SAID = [
    "I live in Lisbon",
    "I moved to Porto last week",
    "I live in Porto now",
    "My dog is called Scout",
    "my dog, you know, is called Scout",
    "I love rain",
    "I am allergic to peanuts",
    "My exam is on Friday, wish me luck",
    "hm, well",
]
ANSWERED = ["Scout is a fine name for a dog.", "Porto has a lovely harbour, I was born there."]
ASKED = ["Where do I live?", "What is my dog called?", "And on Friday?"]
_DEFAULT = dataclasses.replace(
    policy_for(CompanionSettings(), load_settings()).recall,
    min_score=0.0, min_share=0.0, significance_threshold=0.0, gate=False, limit=20,
)  # fmt: skip
# In the second, what a reply used is fresh again.
POLICIES = [
    _DEFAULT,
    dataclasses.replace(_DEFAULT, decay="half_life", max_age_days=None, half_life_days=10.0),
]
Result = TypeVar("Result")


class Told:
    """A relationship, everything that can be done to its memories, and an index kept of it."""

    def __init__(self, built: Core, kept: IndexedCandidates) -> None:
        self._built = built
        self._kept = kept
        self._transfer = TransferStore(built.database, built.embedder.manifest.fingerprint)
        self._restorer = RelationshipImporter(self._transfer, built.embedder, built.rememberer)
        self._forgetter = forgetter_of(built)
        self._corrector = corrector_of(built)
        self._expirer = expirer_of(built)
        self._numbers = itertools.count()
        self._heard: set[str] = set()
        self.now = START

    def hear(self, announcement: Announcement) -> None:
        """What every process hears."""
        self._kept.heard(announcement)
        if isinstance(announcement, SessionTaken):
            self._heard.add(announcement.session_id)

    async def begin(self) -> None:
        """Meet somebody new; an index is kept from the first moment."""
        self.now = START
        companion = await self._built.companions.put(CompanionFile("mara", "Mara", "A persona."))
        self._companion = companion.id
        self._user = f"user {next(self._numbers)}"
        self._session: OpenedSession = await self._built.turns.open_session(
            self._user, NAMES[0], companion.id, self.now
        )
        assert await self._kept.loaded(self._whose)

    @property
    def _whose(self) -> int:
        return self._session.relationship_id

    async def say(self, text: str) -> None:
        """Say something and have it judged."""
        self.now += timedelta(hours=7)
        number = str(next(self._numbers))
        turn = await self._built.turns.commit_message(self._session, number, text, self.now)
        await self._built.rememberer.remember(self._whose, turn.id)

    async def answer(self, text: str) -> None:
        """Have the companion say something."""
        turn = await self._built.turns.commit_reply(
            self._session, None, "completed", text, self.now
        )
        await self._built.rememberer.remember(self._whose, turn or 0)

    async def rate(self, which: int, rating: int, replaces: int) -> None:
        """Have a model rate what a memory was made of, and say which one it replaces."""
        memory, other = await self._memory(which), await self._memory(replaces)
        turn = await owner_of(self._built).fetchval(
            "SELECT source_turn_id FROM memories WHERE id = $1", memory
        )
        replaced = [other] if other != memory else []
        await self._built.rememberer.remember(self._whose, turn, rating=rating, replaced=replaced)

    async def use(self, which: int) -> None:
        """Let a memory serve a reply, some days on."""
        self.now += timedelta(days=4)
        await self._built.memories.refresh(self._whose, [await self._memory(which)], self.now)

    async def correct(self, which: int, content: str) -> None:
        """Put other words in a memory's place."""
        memory = await self._memory(which)
        await self._corrector.correct(
            self._whose, NAMES, memory, content, actor="user", in_exchange=True
        )

    async def forget(self, scope: ErasureScope) -> None:
        """Forget something, if there is such a thing."""
        try:
            await self._forgetter.forget(
                self._whose, NAMES, scope, actor="user", read_in_exchange=True
            )
        except NotFound:
            return

    async def forget_one(self, which: int) -> None:
        """Forget a memory."""
        await self.forget(ErasureScope(memories=(await self._memory(which),)))

    async def let_go(self, days: float) -> None:
        """Let what is older go."""
        before = self.now - timedelta(days=days)
        await self._expirer.memories(self._whose, NAMES, "conversation", before)

    async def move(self) -> None:
        """Export everything, and import it for somebody of whom an index is kept already."""
        export = await self._transfer.read(
            self._whose, "mara", (NAMES[0], "UTC"), CompanionSettings(), self.now
        )
        await self.begin_as_before()
        await self._restorer.restore(
            self._user,
            (self._companion, NAMES[1]),
            export,
            RelationshipSettings(),
            actor="ana",
            in_exchange=True,
            now=self.now,
        )

    async def begin_as_before(self) -> None:
        """Meet somebody new without turning back time."""
        now = self.now
        await self.begin()
        self.now = now

    async def memories(self) -> list[int]:
        """The ids of all memories."""
        rows = await owner_of(self._built).fetch(
            "SELECT id FROM memories WHERE relationship_id = $1 ORDER BY id", self._whose
        )
        return [row["id"] for row in rows]

    async def _memory(self, which: int) -> int:
        found = await self.memories()
        return found[which % len(found)]

    async def compare(self) -> None:
        """Ask the kept index, a fresh one and the database; all answer alike."""
        await self._everything_heard()
        assert await self._kept.loaded(self._whose)
        async with IndexedCandidates(self._built.memories, ROOM, self._built.metrics) as fresh:
            assert await fresh.loaded(self._whose)
            stored = StoredCandidates(self._built.memories)
            for question, policy in itertools.product(ASKED, POLICIES):
                answers = [
                    await self._search(way, question, policy) for way in (stored, fresh, self._kept)
                ]
                assert answers[1] == answers[0], "a fresh index and the database"
                assert answers[2] == answers[0], "the kept index and the database"
                assert len(answers[0]) == len(await self.memories())

    async def _search(
        self, way: Candidates, question: str, policy: RecallPolicy
    ) -> dict[int, tuple[str, Any]]:
        vector = await self._built.embedder.embed_query(question, Priority.ENTER)
        found = await RankedSearch(way).search(
            Query(self._whose, question, vector, policy, self.now)
        )
        return {each.id: (each.content, pytest.approx(each.score, abs=1e-3)) for each in found}

    async def _everything_heard(self) -> None:
        """Wait until what was announced so far has arrived: announcements keep their order."""
        mark = f"mark {next(self._numbers)}"
        await self._built.database.announce(SessionTaken(mark, "here"))
        async with asyncio.timeout(PATIENCE):
            while mark not in self._heard:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def told(settings: Settings) -> AsyncIterator[Told]:
    """The store and the model, and an index that hears what is announced."""
    async with (
        core(settings) as built,
        IndexedCandidates(built.memories, ROOM, built.metrics) as kept,
    ):
        parts = Told(built, kept)
        listener = NotificationListener(
            built.database.url,
            [parts.hear],
            [kept.forget],
            built.clock,
            built.supervisor,
            built.presence,
        )
        async with listener:
            yield parts


class Changes(RuleBasedStateMachine):
    """Anything that can happen to memories, in any order."""

    runner: ClassVar[asyncio.Runner]
    parts: ClassVar[Told]

    def _do(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self.runner.run(work)

    @initialize()
    def begin(self) -> None:
        """A new relationship."""
        self._do(self.parts.begin())

    def any_memory(self) -> bool:
        """Whether there is a memory to do something to."""
        return bool(self._do(self.parts.memories()))

    @rule(text=st.sampled_from(SAID))
    def say(self, text: str) -> None:
        """Stored, merged, superseding, or let go; neighbours are read anew."""
        self._do(self.parts.say(text))

    @rule(text=st.sampled_from(ANSWERED))
    def answer(self, text: str) -> None:
        """The companion's own words."""
        self._do(self.parts.answer(text))

    @precondition(any_memory)
    @rule(which=st.integers(0, 9), rating=st.integers(1, 10), replaces=st.integers(0, 9))
    def rate(self, which: int, rating: int, replaces: int) -> None:
        """Another significance; another memory superseded."""
        self._do(self.parts.rate(which, rating, replaces))

    @precondition(any_memory)
    @rule(which=st.integers(0, 9))
    def use(self, which: int) -> None:
        """Fresh again."""
        self._do(self.parts.use(which))

    @precondition(any_memory)
    @rule(which=st.integers(0, 9), content=st.sampled_from(SAID))
    def correct(self, which: int, content: str) -> None:
        """Other words."""
        self._do(self.parts.correct(which, content))

    @precondition(any_memory)
    @rule(which=st.integers(0, 9))
    def forget_one(self, which: int) -> None:
        """Gone, with what quotes it."""
        self._do(self.parts.forget_one(which))

    @rule(
        scope=st.sampled_from(
            [ErasureScope(about="Porto"), ErasureScope(about="dog"), ErasureScope()]
        )
    )
    def forget(self, scope: ErasureScope) -> None:
        """Several gone, or all."""
        self._do(self.parts.forget(scope))

    @rule(days=st.floats(0.1, 5))
    def let_go(self, days: float) -> None:
        """Retention."""
        self._do(self.parts.let_go(days))

    @rule()
    def move(self) -> None:
        """Export and import."""
        self._do(self.parts.move())

    @invariant()
    def every_search_gives_the_same(self) -> None:
        """Same memories, same scores."""
        self._do(self.parts.compare())


def test_after_every_change_all_searches_agree(settings: Settings) -> None:
    """Remembered, used, rated, corrected, forgotten, let go, imported: nothing is lost or late."""
    with asyncio.Runner() as runner:
        opening = told(settings)
        Changes.runner, Changes.parts = runner, runner.run(opening.__aenter__())
        try:
            run_state_machine_as_test(
                Changes,
                settings=how(
                    max_examples=10,
                    stateful_step_count=12,
                    deadline=None,
                    phases=[Phase.generate],  # twelve steps can be read as they are
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(opening.__aexit__(None, None, None))
