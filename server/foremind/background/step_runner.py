"""Runs one batch of one background step: some of the turns after the step's cursor."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from uuid import UUID
from zoneinfo import ZoneInfo

from foremind.background.background_model import BackgroundModel
from foremind.background.core_memory import update_core_memory
from foremind.background.curation_context import CurationContext
from foremind.background.due_work import (
    is_over,
    is_stale,
    next_retention,
    next_session_end,
    turns_outside_window,
    usage_patterns_due,
)
from foremind.background.episodes import (
    MAX_EPISODE_TURNS,
    rewrite_episodes,
    rewrite_recap,
    write_episodes,
)
from foremind.background.lanes import RunningLane
from foremind.background.notes import rewrite_notes, update_notes
from foremind.background.profile_extraction import turns_to_read, update_profile, uses_model
from foremind.background.retention import apply_retention
from foremind.background.stated_facts import resave_stated_facts, save_stated_facts
from foremind.background.step_definitions import Outcome, StepName, lane_of
from foremind.background.summary import summarise
from foremind.background.topics import update_topics
from foremind.background.usage_patterns import update_usage_patterns
from foremind.domain.policy import Policy, policy_for
from foremind.domain.relationship import RelationshipState, TranscriptTurn
from foremind.domain.settings.setting_levels import effective_settings
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.assembly import MAX_TURNS as MAX_PROMPT_TURNS
from foremind.llm.prompt.token_counter import counter_for
from foremind.memory.erase import Eraser
from foremind.memory.expiry import RetentionEnforcer
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.services import RuntimeServices
from foremind.storage.curation_store import MAX_TURNS, CurationStore
from foremind.storage.record_changes import RecordChanges
from foremind.storage.record_store import RecordStore
from foremind.storage.turn_store import TurnStore

_READ_LIMIT = 200  # turns loaded by a step that handles a few at a time
# Turns of an open session for an episode by rules, which has one topic. A model divides as many as
# it may be shown: other requests follow each time.
_EPISODE_BY_RULES = 8


class StepRunner:
    """Runs steps one by one; the caller makes sure that no other worker runs the same lane."""

    def __init__(
        self,
        curation_store: CurationStore,
        records: RecordStore,
        turns: TurnStore,
        embedder: EmbeddingService,
        chat_models: ChatModels,
        retention_enforcer: RetentionEnforcer,
        eraser: Eraser,
        runtime: RuntimeServices,
    ) -> None:
        self._store = curation_store
        self._records = records
        self._turns = turns
        self._embedder = embedder
        self._chat_models = chat_models
        self._retention_enforcer = retention_enforcer
        self._eraser = eraser
        self._settings = runtime.settings
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._handlers: dict[StepName, Callable[[CurationContext], Awaitable[Outcome]]] = {
            "sessions": self._sessions,
            "retention": self._retention,
            "stated": self._stated,
            "profile": self._profile,
            "notes": self._notes,
            "summary": self._summary,
            "episodes": self._episodes,
            "topics": self._topics,
            "hot": self._core_memory,
            "habits": self._usage_patterns,
        }

    async def run(self, step: StepName, context: CurationContext, attempts: int = 0) -> Outcome:
        """Run one batch of a step that has failed `attempts` times in a row.

        Raises:
            ModelServerError, StorageUnavailable, Overloaded: try again later.
            Conflict: the step's sources changed in the meantime.
        """
        context.now = self._clock.now().astimezone(ZoneInfo(context.relationship.time_zone))
        context.attempts, context.fell_back = attempts, False
        return await self._handlers[step](context)

    def policy_of(self, relationship: RelationshipState) -> Policy:
        """Return the settings in force for a relationship."""
        own = effective_settings(
            relationship.companion_settings, relationship.settings, self._settings
        )
        return policy_for(own, self._settings)

    async def context_for(self, relationship: RelationshipState) -> CurationContext:
        """Return a context for the steps of a relationship; its records are loaded on demand."""
        policy = self.policy_of(relationship)
        await self._chat_models.prepare(policy.chat_model)
        return CurationContext(
            relationship=relationship,
            policy=policy.layers,
            model=BackgroundModel(
                relationship,
                self._chat_models.model_server_for(policy.chat_model, relationship.id),
                policy.layers.context_tokens,
                counter_for(policy.layers.tokenizer),
                self._chat_models.forgets,
                self._metrics,
            ),
            store=self._records,
            curation=self._store,
            turns=self._turns,
            embedder=self._embedder,
            metrics=self._metrics,
            now=self._clock.now().astimezone(ZoneInfo(relationship.time_zone)),
        )

    async def stale_steps(self, lane: RunningLane, context: CurationContext) -> set[StepName]:
        """Return the steps of a lane that are to run though nothing new was said."""
        relationship, stale = context.relationship, set[StepName]()
        if lane.lane == lane_of("habits", lane.model_place) and relationship.inferences_to_redo:
            stale.add("habits")
        if lane.lane == lane_of("hot", lane.model_place) and context.policy.on("hot"):
            await context.load()
            if relationship.change_sets_for("hot") or is_stale(context.records):
                stale |= {"topics", "hot"}
        return stale

    async def _sessions(self, context: CurationContext) -> Outcome:
        """Close sessions that are over, and erase their turns that were not to be remembered."""
        relationship, policy = context.relationship, context.policy
        sessions = relationship.open_sessions
        over = [session for session in sessions if is_over(session, policy, context.now)]
        for session in over:
            await self._store.close_session(
                relationship.id, session.id, context.now, context.now - policy.session
            )
        if over or context.attempts:  # an earlier attempt may have closed some
            unkept = await self._store.unkept_turns(relationship.id)
            if unkept:
                names = (relationship.user_name, relationship.companion_name)
                await self._eraser.erase_turns(relationship.id, names, unkept)
            await self._store.delete_empty_sessions(relationship.id)
        still_open = [session for session in sessions if session not in over]
        return Outcome(
            produced=bool(over), next_check=next_session_end(still_open, policy, context.now)
        )

    async def _retention(self, context: CurationContext) -> Outcome:
        if not context.policy.retention:
            return Outcome()
        await context.load()
        await apply_retention(context, self._retention_enforcer)
        return Outcome(next_check=next_retention(context.policy, context.now))

    async def _stated(self, context: CurationContext) -> Outcome:
        relationship = context.relationship
        turns = await context.said_after(relationship.stated_turn_id, _READ_LIMIT)
        change_sets = relationship.facts_to_redo
        if turns or change_sets:
            await context.load()
        last_turn = await save_stated_facts(context, turns)
        for change_set in change_sets:
            await context.write_now()
            await resave_stated_facts(
                context, change_set, await self._store.turns(relationship.id, change_set.turns)
            )
        return Outcome(more=_has_more(turns, last_turn, _READ_LIMIT))

    async def _profile(self, context: CurationContext) -> Outcome:
        """Have a model extract profile entries from some turns, where one is configured."""
        if not uses_model(context):
            return Outcome()
        relationship = context.relationship
        turns = await context.said_after(relationship.profiled_turn_id, _READ_LIMIT)
        active = _active_sessions(context)
        ready = turns_to_read(turns, active)
        change_sets = relationship.facts_to_redo
        if ready or change_sets:
            await context.load()
        if ready:
            await update_profile(context, ready)
        for change_set in change_sets[:1]:
            await update_profile(
                context, await self._store.turns(relationship.id, change_set.turns), change_set
            )
        remaining = [turn for turn in turns if turn not in ready]
        more = bool(ready) and (len(turns) == _READ_LIMIT or bool(turns_to_read(remaining, active)))
        return Outcome(produced=bool(ready), more=more or len(change_sets) > 1)

    async def _notes(self, context: CurationContext) -> Outcome:
        relationship = context.relationship
        turns = await context.said_after(relationship.noted_turn_id, _READ_LIMIT)
        change_sets = relationship.change_sets_for("scratchpad")
        if turns or change_sets:
            await context.load()
        # A reply made anew stands after what was noted of its message, and is read with it.
        alone = context.model.server is not None and turns and turns[0].speaker == "companion"
        answered = await self._store.answered_by(relationship.id, turns[0].id) if alone else []
        last_turn = await update_notes(context, turns, answered)
        for change_set in change_sets[:1]:
            await context.write_now()
            await rewrite_notes(
                context, change_set, await self._store.turns(relationship.id, change_set.turns)
            )
        return Outcome(more=_has_more(turns, last_turn, _READ_LIMIT) or len(change_sets) > 1)

    async def _summary(self, context: CurationContext) -> Outcome:
        if not context.policy.on("summary"):
            return Outcome()
        relationship = context.relationship
        turns = await context.said_after(relationship.summarised_turn_id, MAX_TURNS)
        if not turns:
            return Outcome()
        await context.load()
        return Outcome(more=await summarise(context, turns))

    async def _episodes(self, context: CurationContext) -> Outcome:
        """Write episodes of sessions that are over, and of turns that left an open one's window."""
        relationship = context.relationship
        if relationship.change_sets_for("episodes") or relationship.change_sets_for("opening"):
            return await self._rewrite_episodes(context)
        if not await self._may_have_left_window(context):
            return Outcome()
        turns = await self._store.turns_after(relationship.id, relationship.narrated_turn_id)
        pending = [turn for turn in turns if not turn.narrated]
        active = _active_sessions(context)
        ended = [turn for turn in pending if turn.session_id not in active]
        running = [turn for turn in pending if turn.session_id in active]
        full = len(turns) == MAX_TURNS
        if ended:
            batch = _of_first_session(ended)
            # The last session that was read may continue in the next page.
            complete = not full or batch[-1].session_id != turns[-1].session_id
            return await self._write_episodes(
                context, batch, closed=complete, more=full or len(batch) < len(ended)
            )
        summarised = context.summarised_turn_id if context.policy.on("summary") else 0
        # A prompt holds at most this many turns: earlier ones are outside its window.
        earlier = running[:-MAX_PROMPT_TURNS] if full else []
        outside = earlier or turns_outside_window(
            running,
            summarised,
            context.policy,
            context.model.count_tokens,
            _EPISODE_BY_RULES if context.model.server is None else MAX_EPISODE_TURNS,
        )
        if outside:
            return await self._write_episodes(context, outside, closed=False, more=full)
        passed = pending[0].id - 1 if pending else turns[-1].id if turns else 0
        if full and passed > relationship.narrated_turn_id:  # a whole page already has episodes

            async def advance(changes: RecordChanges) -> None:
                changes.advance("narrated", passed, relationship.narrated_turn_id)

            context.plan(advance)
            return Outcome(more=True)
        return Outcome()

    async def _may_have_left_window(self, context: CurationContext) -> bool:
        """Return whether turns may have left the prompt's window, or a session has ended.

        After activity that is known without reading the turns of the whole session: of those that
        are not in the summary there are few.
        """
        relationship, policy = context.relationship, context.policy
        summarised = context.summarised_turn_id
        scheduled = "episodes" in relationship.steps_due
        over = len(_active_sessions(context)) < len(relationship.open_sessions)
        if scheduled or over or not policy.on("summary"):
            return True
        if summarised > relationship.narrated_turn_id:
            return True
        turns = await context.said_after(summarised, MAX_TURNS)
        tokens = sum(context.model.count_tokens(turn.content) for turn in turns)
        return len(turns) > MAX_PROMPT_TURNS or tokens > policy.working_tokens

    async def _write_episodes(
        self,
        context: CurationContext,
        turns: Sequence[TranscriptTurn],
        *,
        closed: bool,
        more: bool,
    ) -> Outcome:
        """Write episodes of one batch of turns."""
        batch = turns[:MAX_EPISODE_TURNS]
        incomplete = len(batch) < len(turns)
        await context.load()
        await write_episodes(context, batch, closed=closed and not incomplete)
        return Outcome(produced=True, more=more or incomplete)

    async def _rewrite_episodes(self, context: CurationContext) -> Outcome:
        """Rewrite episodes of which something was erased, then the recap of the last session."""
        relationship = context.relationship
        await context.load()
        for change_set in relationship.change_sets_for("episodes"):
            await rewrite_episodes(
                context, change_set, await self._store.turns(relationship.id, change_set.turns)
            )
        for change_set in relationship.change_sets_for("opening"):
            await rewrite_recap(
                context, change_set, await self._store.last_closed_session(relationship.id)
            )
        return Outcome(produced=True, more=True)

    async def _topics(self, context: CurationContext) -> Outcome:
        await context.load()
        return Outcome(produced=True, more=await update_topics(context))

    async def _core_memory(self, context: CurationContext) -> Outcome:
        await context.load()
        await update_core_memory(context)
        for change_set in context.relationship.change_sets_for("hot"):
            context.plan(partial(RecordChanges.remove_change_set, change_set=change_set))
        return Outcome(produced=True)

    async def _usage_patterns(self, context: CurationContext) -> Outcome:
        relationship = context.relationship
        change_set = relationship.inferences_to_redo
        if change_set is None and not usage_patterns_due(relationship.habits_at, context.now):
            return Outcome()
        if change_set is not None and relationship.change_sets_for("episodes"):
            return Outcome()  # scheduled again once these are rewritten
        await context.load()
        sessions = await self._store.session_usage(relationship.id)
        await update_usage_patterns(context, sessions, change_set)
        return Outcome(produced=True)


def _active_sessions(context: CurationContext) -> set[UUID]:
    """Return the open sessions that are not over yet."""
    return {
        session.id
        for session in context.relationship.open_sessions
        if not is_over(session, context.policy, context.now)
    }


def _has_more(turns: Sequence[TranscriptTurn], last_turn: int | None, limit: int) -> bool:
    """Return whether turns remain after `last_turn`, given that a step loads up to `limit`."""
    return bool(turns) and (len(turns) == limit or (last_turn or 0) < turns[-1].id)


def _of_first_session(turns: Sequence[TranscriptTurn]) -> list[TranscriptTurn]:
    return [turn for turn in turns if turn.session_id == turns[0].session_id]
