"""Runs the due steps of a lane, and writes what they found with what became of them.

A step is a function of a `StepContext`: it decides in memory, asks the model if there is one,
and plans what is to be written. One transaction writes that, moves the cursors, schedules what
follows, and ends the claim.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from zoneinfo import ZoneInfo

import structlog

from foremind.background.core_memory import update_core_memory
from foremind.background.due_work import is_stale, next_retention, next_session_end
from foremind.background.episodes import update_episodes
from foremind.background.notes import update_notes
from foremind.background.profile_extraction import save_stated_facts, update_usage_patterns
from foremind.background.step_context import StepContext
from foremind.background.step_definitions import (
    FOLLOW_UP_DELAY,
    STEPS_BY_NAME,
    Outcome,
    StepName,
    after_failure,
    due_steps,
    lane_of,
    scheduled_steps,
    until_tomorrow,
)
from foremind.background.summary import summarise
from foremind.background.topics import update_topics
from foremind.domain.background_step import RULES_PLACE, Claim, FinishedStep, Lane, StepState
from foremind.domain.errors import Conflict, ForemindError, StorageUnavailable, TokenLimitReached
from foremind.domain.policy import Policy, policy_for
from foremind.domain.record import RECORD_LAYERS
from foremind.domain.relationship import RelationshipState
from foremind.domain.settings.setting_definitions import TRANSCRIPT
from foremind.domain.settings.setting_levels import effective_settings
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.token_counter import counter_for
from foremind.memory.erasure.eraser import Eraser
from foremind.memory.expiry import RetentionEnforcer
from foremind.memory.importance_rating import ImportanceRater
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.services import RuntimeServices
from foremind.storage.background_store import MAX_STATES, BackgroundStore, StepStore
from foremind.storage.database import DatabaseConnection
from foremind.storage.stores import Stores

_log = structlog.get_logger("foremind.background")


@dataclass(slots=True, eq=False)
class RunningLane:
    """A lane of a relationship that a worker runs, and the step that it is at.

    `relationship` is as read before the lane was claimed, `states` are those of its due steps, and
    `model_place` is where the relationship's model is. `task` is None until the lane is claimed.
    """

    relationship: RelationshipState
    lane: Lane
    model_place: str
    states: Sequence[StepState] = ()
    task: asyncio.Task[None] | None = None
    step: StepName | None = None
    context: StepContext | None = None
    #: Whether what it found is to be continued in another lane.
    wakes: bool = False

    @property
    def place(self) -> str:
        """Where it runs: at the model, unless rules do the work."""
        return RULES_PLACE if self.lane == "rules" else self.model_place

    @property
    def waits_for_slot(self) -> bool:
        """Whether the step waits for a slot of its model server."""
        server = None if self.context is None else self.context.server
        return server is not None and self.task is not None and server.slots.is_queued(self.task)


@dataclass(slots=True)
class _Results:
    """What became of the steps that are written together, and what follows them, now or later."""

    finished: dict[StepState, FinishedStep] = field(default_factory=dict)
    follow_ups: set[StepName] = field(default_factory=set)
    later: set[StepName] = field(default_factory=set)


class StepRunner:
    """Runs lanes that its caller has claimed."""

    def __init__(
        self,
        background_store: BackgroundStore,
        step_store: StepStore,
        stores: Stores,
        embedder: EmbeddingService,
        chat_models: ChatModels,
        retention_enforcer: RetentionEnforcer,
        eraser: Eraser,
        rater: ImportanceRater,
        runtime: RuntimeServices,
    ) -> None:
        self._background_store = background_store
        self._step_store = step_store
        self._stores = stores
        self._embedder = embedder
        self._chat_models = chat_models
        self._retention_enforcer = retention_enforcer
        self._eraser = eraser
        self._rater = rater
        self._settings = runtime.settings
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._functions: dict[StepName, Callable[[StepContext], Awaitable[Outcome]]] = {
            "rating": self._rate,
            "sessions": self._close_sessions,
            "retention": self._apply_retention,
            "stated": save_stated_facts,
            "notes": update_notes,
            "summary": summarise,
            "episodes": update_episodes,
            "topics": update_topics,
            "hot": update_core_memory,
            "habits": update_usage_patterns,
        }

    def policy_of(self, relationship: RelationshipState) -> Policy:
        """Return the settings in force for a relationship."""
        own = effective_settings(
            relationship.companion_settings, relationship.settings, self._settings
        )
        return policy_for(own, self._settings)

    async def context_for(self, relationship: RelationshipState) -> StepContext:
        """Return a context for the steps of a relationship; its records are loaded on demand."""
        policy = self.policy_of(relationship)
        model = policy.chat_model
        await self._chat_models.prepare(model)
        server = self._chat_models.model_server_for(model, relationship.id)
        return StepContext(
            relationship=relationship,
            policy=policy.layers,
            server=server if model.background else None,
            count_tokens=counter_for(policy.layers.tokenizer),
            erasure_watch=self._chat_models.forgets,
            store=self._stores.records,
            background=self._background_store,
            turns=self._stores.turns,
            embedder=self._embedder,
            metrics=self._metrics,
            now=self._clock.now().astimezone(ZoneInfo(relationship.time_zone)),
        )

    async def run(self, lane: RunningLane, claim: Claim) -> None:
        """Run the due steps of a lane, each once, and end the claim; the others stay due.

        What steps find without a model is written in one transaction, with what became of them.

        Raises:
            StorageUnavailable: what is unfinished stays due.
        """
        context = lane.context = await self.context_for(lane.relationship)
        lane.wakes |= len(lane.states) == MAX_STATES
        results = _Results(follow_ups=await _stale_steps(lane, context))
        due: Sequence[StepState] | None = due_steps(lane.states, lane.lane, self._clock.now())
        done: set[tuple[str, int]] = set()
        while due is not None:
            group = _next_group(due, one_by_one=context.server is not None)
            for state in group:
                done.add((state.step, state.turn_id))
                await self._run_step(lane, context, state, results)
            found = await self._commit(lane, context, results, claim, due[len(group) :])
            due = found and [step for step in found if (step.step, step.turn_id) not in done]
            results = _Results()

    async def _run_step(
        self, lane: RunningLane, context: StepContext, state: StepState, results: _Results
    ) -> None:
        """Run one batch of a step, and add what became of it to the results."""
        step = STEPS_BY_NAME[state.step]
        lane.step = step.name
        results.follow_ups.discard(step.name)  # it follows what has asked for it
        planned = len(context.planned)
        context.now = self._clock.now().astimezone(ZoneInfo(context.relationship.time_zone))
        context.attempts, context.turn_id = state.attempts, state.turn_id
        context.fell_back = False
        try:
            outcome = await self._functions[step.name](context)
        except Exception as error:  # must not stop other steps or other relationships
            del context.planned[planned:]
            results.finished[state] = record_failure(
                context.relationship.id, state, error, self._clock.now()
            )
            return
        if step.by_turn:
            if not outcome.produced:  # otherwise the transaction that rated the turn records it
                await self._step_store.drop_turn(context.relationship.id, state)
            return
        due_at = self._clock.now() if outcome.more else outcome.next_check
        results.finished[state] = FinishedStep(step.name, state.marks, due_at)
        if outcome.produced:
            results.follow_ups.update(step.then)
            results.later.update(step.later)

    async def _commit(
        self,
        lane: RunningLane,
        context: StepContext,
        results: _Results,
        claim: Claim,
        rest: Sequence[StepState],
    ) -> Sequence[StepState] | None:
        """Write what steps have found and what became of them, in one transaction.

        The claim ends with it, unless there is more to do in this lane.

        Returns:
            The states of the steps that are due by now; None if the claim has ended.
        """
        store, relationship_id, now = self._step_store, context.relationship.id, self._clock.now()
        follow_ups = scheduled_steps(results.follow_ups, lane.model_place)
        finished = list(results.finished.values())
        goes_on = bool(rest) or any(step.lane == lane.lane for step in follow_ups)
        goes_on &= all(step.code != "conflict" for step in finished)

        async def finish(connection: DatabaseConnection | None) -> Sequence[StepState] | None:
            # What follows is scheduled first: without a transaction, its cause may not end before.
            found = rest
            if results.later:
                later = scheduled_steps(results.later, lane.model_place)
                await store.schedule(relationship_id, later, now + FOLLOW_UP_DELAY, connection)
            if follow_ups:
                lanes = {lane.lane: lane.place} if goes_on else {}
                states = await store.claim(
                    relationship_id, lanes, claim, now, follow_ups, connection=connection
                )
                found = due_steps(states, lane.lane, now)
            released = [] if goes_on else [lane.lane]
            if finished or released:
                await store.finish(
                    relationship_id, finished, now, released, claim.holder, connection
                )
            return found if goes_on else None

        lane.wakes |= any(step.lane != lane.lane for step in follow_ups)
        lane.wakes |= any(step.due_at is not None and step.due_at <= now for step in finished)
        try:
            return await context.commit(finish)
        except StorageUnavailable:
            raise
        except Exception as error:  # nothing of it was written: each of the steps has failed
            failed = [
                record_failure(relationship_id, state, error, now) for state in results.finished
            ]
            lane.wakes = True
            await store.finish(relationship_id, failed, now, [lane.lane], claim.holder)
            return None

    # Steps that need more than their context

    async def _rate(self, context: StepContext) -> Outcome:
        """Have a turn rated, if that is still to be done."""
        return Outcome(produced=await self._rater.rate(context.relationship.id, context.turn_id))

    async def _close_sessions(self, context: StepContext) -> Outcome:
        """Close sessions that are over, and erase their turns that were not to be remembered."""
        relationship, policy = context.relationship, context.policy
        sessions = relationship.open_sessions
        still_open = [session for session in sessions if session.id in context.active_sessions]
        over = [session for session in sessions if session not in still_open]
        for session in over:
            await context.background.close_session(
                relationship.id, session.id, context.now, context.now - policy.session
            )
        if over or context.attempts:  # an earlier attempt may have closed some
            unkept = await context.background.unkept_turns(relationship.id)
            if unkept:
                names = (relationship.user_name, relationship.companion_name)
                await self._eraser.erase_turns(relationship.id, names, unkept)
            await context.background.delete_empty_sessions(relationship.id)
        next_check = next_session_end(still_open, policy, context.now)
        return Outcome(produced=bool(over), next_check=next_check)

    async def _apply_retention(self, context: StepContext) -> Outcome:
        """Remove expired records, memories and turns, daily where anything expires.

        A mind of a world keeps what it knows: days are real, and time there is the host's.
        """
        relationship, enforcer = context.relationship, self._retention_enforcer
        if not context.policy.retention or relationship.in_world:
            return Outcome()
        await context.load()
        before = {name: context.now - age for name, age in context.policy.retention.items()}
        expired = [
            record.id
            for record in context.records
            if record.layer in before and record.updated_at < before[record.layer]
        ]
        if expired:
            await enforcer.expire_records(relationship.id, expired)
            await context.reload()
        names = (relationship.user_name, relationship.companion_name)
        types = {
            name: time for name, time in before.items() if name not in (TRANSCRIPT, *RECORD_LAYERS)
        }
        if types:
            await enforcer.expire_memories(relationship.id, names, types)
        if TRANSCRIPT in before:
            await enforcer.expire_transcript(relationship.id, names, before[TRANSCRIPT])
        return Outcome(next_check=next_retention(context.policy, context.now))


async def _stale_steps(lane: RunningLane, context: StepContext) -> set[StepName]:
    """Return the steps of a lane that are to run though nothing new was said."""
    relationship, stale = context.relationship, set[StepName]()
    if lane.lane == lane_of("habits", lane.model_place) and relationship.inferences_to_redo:
        stale.add("habits")
    if lane.lane == lane_of("hot", lane.model_place) and context.policy.on("hot"):
        await context.load()
        if relationship.change_sets_for("hot") or is_stale(
            context.records, context.policy, context.now
        ):
            stale |= {"topics", "hot"}
    return stale


def _next_group(states: Sequence[StepState], *, one_by_one: bool) -> Sequence[StepState]:
    """Return the next steps to be written together: up to one that reads what others write. Pure.

    One that has failed is by itself, so that it fails no other.

    Args:
        one_by_one: each step waits for a model, and what it found is written before the next.
    """
    size = 1
    while (
        size < len(states)
        and not one_by_one
        and not (states[0].attempts or states[size].attempts)
        and not STEPS_BY_NAME[states[size].step].reads_records
    ):
        size += 1
    return states[:size]


def record_failure(
    relationship_id: int, state: StepState, error: Exception, now: datetime
) -> FinishedStep:
    """Log that a step has failed, and return what becomes of it."""
    code = error.code if isinstance(error, ForemindError) else type(error).__name__
    if isinstance(error, TokenLimitReached):
        failure = until_tomorrow(state, error, now)
    else:
        failure = after_failure(STEPS_BY_NAME[state.step].retry, state, code, now)
    fields = {"relationship_id": relationship_id, "step": state.step, "reason": code}
    if state.turn_id:
        fields["turn_id"] = state.turn_id
    if isinstance(error, Conflict):
        _log.info("background.begins_anew", **fields)
    elif isinstance(error, ForemindError):
        detail = error.for_operator
        _log.warning("background.failed", **fields, attempts=failure.attempts, detail=detail)
    else:
        _log.error("background.broken", **fields, exc_info=error)
    return failure
