"""Does one step of the background work: a portion of what lies after the step's cursor."""

from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID
from zoneinfo import ZoneInfo

from foremind.background.core_memory import curate_state
from foremind.background.curation_context import CurationContext
from foremind.background.episodes import TOLD_AT_ONCE, open_again, tell, tell_again
from foremind.background.notes import keep_notes, note_again
from foremind.background.profile_extraction import asks_model, keep_profile, to_profile
from foremind.background.retention import let_go
from foremind.background.schedule import (
    fallen_out,
    habits_due,
    is_over,
    is_stale,
    next_look,
    next_retention,
)
from foremind.background.stated_facts import keep_stated, state_again
from foremind.background.steps import Outcome, StepName
from foremind.background.summary import summarise
from foremind.background.topics import distil
from foremind.background.usage_patterns import infer_habits
from foremind.domain.clock import Clock
from foremind.domain.policy import Policy, policy_for
from foremind.domain.relationship import RelationshipState, TranscriptTurn
from foremind.domain.setting_levels import in_force
from foremind.domain.settings import Settings
from foremind.domain.step import PendingLook
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.assembly import MOST_TURNS as MOST_HELD
from foremind.llm.prompt.token_counter import counter_for
from foremind.memory.erase import Eraser
from foremind.memory.expiry import RetentionEnforcer
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.metrics import Metrics
from foremind.storage.curation_store import MOST_TURNS, CurationStore
from foremind.storage.record_store import RecordStore

_READ_AT_ONCE = 200  # turns of which a step that takes a few at a time reads the oldest


class StepRunner:
    """Does steps, each by itself; whoever calls it sees to it that nobody else does the same."""

    def __init__(
        self,
        due: CurationStore,
        records: RecordStore,
        embedder: EmbeddingService,
        voices: ChatModels,
        expirer: RetentionEnforcer,
        forgetter: Eraser,
        settings: Settings,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._due = due
        self._records = records
        self._embedder = embedder
        self._voices = voices
        self._expirer = expirer
        self._forgetter = forgetter
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._doing: dict[StepName, Callable[[CurationContext], Awaitable[Outcome]]] = {
            "sessions": self._sessions,
            "retention": self._retention,
            "stated": self._stated,
            "profile": self._profile,
            "notes": self._notes,
            "summary": self._summary,
            "episodes": self._episodes,
            "topics": self._topics,
            "hot": self._hot,
            "habits": self._habits,
        }

    async def do(self, step: StepName, work: CurationContext, attempts: int = 0) -> Outcome:
        """Do a portion of a step that failed `attempts` times in a row before.

        Raises:
            ModelServerError, StorageUnavailable, Overloaded: try again later.
            Conflict: what it was made of has changed meanwhile.
        """
        work.now = self._clock.now().astimezone(ZoneInfo(work.bond.time_zone))
        work.attempts, work.stood_in = attempts, False
        return await self._doing[step](work)

    def policy_of(self, whose: RelationshipState | PendingLook) -> Policy:
        """Return the settings that hold for a relationship."""
        own = in_force(whose.companion_settings, whose.settings, self._settings)
        return policy_for(own, self._settings)

    def work(self, bond: RelationshipState) -> CurationContext:
        """Return what steps work with; the records are read when they are used."""
        whole = self.policy_of(bond)
        return CurationContext(
            bond=bond,
            policy=whole.layers,
            server=self._voices.server_of(whole.voice),
            count=counter_for(whole.layers.tokenizer),
            store=self._records,
            embedder=self._embedder,
            metrics=self._metrics,
            now=self._clock.now().astimezone(ZoneInfo(bond.time_zone)),
            forgets=self._voices.forgets,
        )

    async def out_of_date(self, work: CurationContext) -> bool:
        """Tell whether the hot context must be written anew, whatever is said."""
        if not work.policy.on("hot"):
            return False
        if work.bond.remade_in("hot"):
            return True
        await work.read()
        return is_stale(work.records)

    async def _sessions(self, work: CurationContext) -> Outcome:
        """Close sessions that are over, and erase what was not to be remembered of them."""
        bond, policy = work.bond, work.policy
        sessions = await self._due.open_sessions(bond.id)
        over = [session for session in sessions if is_over(session, policy, work.now)]
        for each in over:
            await self._due.close_session(bond.id, each.id, work.now, work.now - policy.session)
        unkept = await self._due.unkept_turns(bond.id)
        if unkept:
            names = (bond.user_name, bond.companion_name)
            await self._forgetter.forget_turns(bond.id, names, unkept)
        if over:
            await self._due.leave_nothing(bond.id)
        left = [session for session in sessions if session not in over]
        return Outcome(made=bool(over), due=next_look(left, policy, work.now))

    async def _retention(self, work: CurationContext) -> Outcome:
        if not work.policy.retention:
            return Outcome()
        await work.read()
        await let_go(work, self._expirer)
        return Outcome(due=next_retention(work.policy, work.now))

    async def _stated(self, work: CurationContext) -> Outcome:
        bond = work.bond
        turns = await self._due.turns_after(bond.id, bond.stated_turn_id, _READ_AT_ONCE)
        portions = bond.stated_again
        if turns or portions:
            await work.read()
        upto = await keep_stated(work, turns)
        for portion in portions:
            await state_again(work, portion, await self._due.turns(bond.id, portion.turns))
        return Outcome(more=_is_left(turns, upto, _READ_AT_ONCE))

    async def _profile(self, work: CurationContext) -> Outcome:
        """Have a model read some of what was said for the profile, where there is one."""
        if not asks_model(work):
            return Outcome()
        bond = work.bond
        turns = await self._due.turns_after(bond.id, bond.profiled_turn_id, _READ_AT_ONCE)
        going_on = await self._going_on(work)
        ready = to_profile(turns, going_on)
        portions = bond.stated_again
        if ready or portions:
            await work.read()
        if ready:
            await keep_profile(work, ready)
        for portion in portions[:1]:
            await keep_profile(work, await self._due.turns(bond.id, portion.turns), portion)
        left = [turn for turn in turns if turn not in ready]
        again = bool(ready) and (len(turns) == _READ_AT_ONCE or bool(to_profile(left, going_on)))
        return Outcome(made=bool(ready), more=again or len(portions) > 1)

    async def _notes(self, work: CurationContext) -> Outcome:
        bond = work.bond
        turns = await self._due.turns_after(bond.id, bond.noted_turn_id, _READ_AT_ONCE)
        portions = bond.remade_in("scratchpad")
        if turns or portions:
            await work.read()
        upto = await keep_notes(work, turns)
        for portion in portions[:1]:
            await note_again(work, portion, await self._due.turns(bond.id, portion.turns))
        return Outcome(more=_is_left(turns, upto, _READ_AT_ONCE) or len(portions) > 1)

    async def _summary(self, work: CurationContext) -> Outcome:
        if not work.policy.on("summary"):
            return Outcome()
        bond = work.bond
        turns = await self._due.turns_after(bond.id, bond.summarised_turn_id)
        await work.read()
        return Outcome(more=await summarise(work, turns))

    async def _episodes(self, work: CurationContext) -> Outcome:
        """Make episodes of sessions that are over, and of what fell out of one that goes on."""
        bond = work.bond
        if bond.remade_in("episodes") or bond.remade_in("opening"):
            return await self._tell_again(work)
        turns = await self._due.turns_after(bond.id, bond.told_turn_id)
        untold = [turn for turn in turns if not turn.told]
        going_on = await self._going_on(work)
        ended = [each for each in untold if each.session_id not in going_on]
        running = [each for each in untold if each.session_id in going_on]
        full = len(turns) == MOST_TURNS
        if ended:
            part = _of_first_session(ended)
            # The last session of those that were read may go on in the next portion.
            whole = not full or part[-1].session_id != turns[-1].session_id
            return await self._tell(work, part, closed=whole, more=full or len(part) < len(ended))
        upto = (await self._records.state(bond.id)).summarised_turn_id
        # The window of a prompt holds at most so many turns: what is before them fell out.
        before = running[:-MOST_HELD] if full else []
        fallen = before or fallen_out(running, upto, work.policy, work.count)
        if fallen:
            return await self._tell(work, fallen, closed=False, more=full)
        passed = untold[0].id - 1 if untold else turns[-1].id if turns else 0
        if full and passed > bond.told_turn_id:  # all told before something else was forgotten
            async with work.changing() as changes:
                await changes.advance("told", passed, bond.told_turn_id)
            return Outcome(more=True)
        return Outcome()

    async def _going_on(self, work: CurationContext) -> set[UUID]:
        """Return the sessions whose time is not over."""
        sessions = await self._due.open_sessions(work.bond.id)
        return {session.id for session in sessions if not is_over(session, work.policy, work.now)}

    async def _tell(
        self, work: CurationContext, turns: Sequence[TranscriptTurn], *, closed: bool, more: bool
    ) -> Outcome:
        """Tell of as many turns as are told of at once."""
        part = turns[:TOLD_AT_ONCE]
        rest = len(part) < len(turns)
        await work.read()
        await tell(work, part, closed=closed and not rest)
        return Outcome(made=True, more=more or rest)

    async def _tell_again(self, work: CurationContext) -> Outcome:
        """Tell again of what is left of what went; then where the last session was left."""
        bond = work.bond
        await work.read()
        for each in bond.remade_in("episodes"):
            await tell_again(work, each, await self._due.turns(bond.id, each.turns))
        for each in bond.remade_in("opening"):
            await open_again(work, each, await self._due.last_session_over(bond.id))
        return Outcome(made=True, more=True)

    async def _topics(self, work: CurationContext) -> Outcome:
        await work.read()
        return Outcome(made=True, more=await distil(work))

    async def _hot(self, work: CurationContext) -> Outcome:
        await work.read()
        await curate_state(work)
        for each in work.bond.remade_in("hot"):
            async with work.changing() as changes:
                await changes.noted_again(each)
        return Outcome(made=True)

    async def _habits(self, work: CurationContext) -> Outcome:
        bond = work.bond
        again = bond.inferred_again
        if again is None and not habits_due(bond.habits_at, work.now):
            return Outcome()
        if again is not None and bond.remade_in("episodes"):
            return Outcome()  # due again once these are told
        await work.read()
        await infer_habits(work, await self._due.habits(bond.id), again)
        return Outcome(made=True)


def _is_left(turns: Sequence[TranscriptTurn], upto: int | None, limit: int) -> bool:
    """Tell whether turns are left after those that a step took, of as many as it reads."""
    return bool(turns) and (len(turns) == limit or (upto or 0) < turns[-1].id)


def _of_first_session(turns: Sequence[TranscriptTurn]) -> list[TranscriptTurn]:
    return [turn for turn in turns if turn.session_id == turns[0].session_id]
