"""Runs one batch of one background step: some of the turns after the step's cursor."""

from collections.abc import Awaitable, Callable
from zoneinfo import ZoneInfo

from foremind.background.core_memory import update_core_memory
from foremind.background.curation_context import CurationContext
from foremind.background.due_work import is_over, is_stale, next_retention, next_session_end
from foremind.background.episodes import update_episodes
from foremind.background.lanes import RunningLane
from foremind.background.notes import update_notes
from foremind.background.profile_extraction import (
    save_stated_facts,
    update_usage_patterns,
)
from foremind.background.step_definitions import Outcome, StepName, lane_of
from foremind.background.summary import summarise
from foremind.background.topics import update_topics
from foremind.domain.policy import Policy, policy_for
from foremind.domain.record import RECORD_LAYERS
from foremind.domain.relationship import RelationshipState
from foremind.domain.settings.setting_definitions import TRANSCRIPT
from foremind.domain.settings.setting_levels import effective_settings
from foremind.domain.step import StepState
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.token_counter import counter_for
from foremind.memory.erase import Eraser
from foremind.memory.expiry import RetentionEnforcer
from foremind.memory.importance_rating import ImportanceRater
from foremind.retrieval.embedding.service import EmbeddingService
from foremind.runtime.services import RuntimeServices
from foremind.storage.background_store import CurationStore
from foremind.storage.stores import Stores

Handler = Callable[[CurationContext], Awaitable[Outcome]]


class StepRunner:
    """Runs steps one by one; the caller makes sure that no other worker runs the same lane."""

    def __init__(
        self,
        curation_store: CurationStore,
        stores: Stores,
        embedder: EmbeddingService,
        chat_models: ChatModels,
        retention_enforcer: RetentionEnforcer,
        eraser: Eraser,
        rater: ImportanceRater,
        runtime: RuntimeServices,
    ) -> None:
        self._curation_store = curation_store
        self._stores = stores
        self._embedder = embedder
        self._chat_models = chat_models
        self._retention_enforcer = retention_enforcer
        self._eraser = eraser
        self._rater = rater
        self._settings = runtime.settings
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._handlers: dict[StepName, Handler] = {
            "rating": self._rating,
            "sessions": self._sessions,
            "retention": self._retention,
            "stated": save_stated_facts,
            "notes": update_notes,
            "summary": summarise,
            "episodes": update_episodes,
            "topics": update_topics,
            "hot": update_core_memory,
            "habits": update_usage_patterns,
        }

    async def run(self, step: StepName, context: CurationContext, state: StepState) -> Outcome:
        """Run one batch of a step, or what it does with the turn of its state.

        Raises:
            ModelServerError, StorageUnavailable, Overloaded: try again later.
            Conflict: the step's sources changed in the meantime.
        """
        context.now = self._clock.now().astimezone(ZoneInfo(context.relationship.time_zone))
        context.attempts, context.turn_id = state.attempts, state.turn_id
        context.fell_back = False
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
            server=self._chat_models.model_server_for(policy.chat_model, relationship.id),
            count_tokens=counter_for(policy.layers.tokenizer),
            erasure_watch=self._chat_models.forgets,
            store=self._stores.records,
            curation=self._curation_store,
            turns=self._stores.turns,
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
            removed = is_stale(context.records, context.policy, context.now)
            if relationship.change_sets_for("hot") or removed:
                stale |= {"topics", "hot"}
        return stale

    async def _sessions(self, context: CurationContext) -> Outcome:
        """Close sessions that are over, and erase their turns that were not to be remembered."""
        relationship, policy = context.relationship, context.policy
        sessions = relationship.open_sessions
        over = [session for session in sessions if is_over(session, policy, context.now)]
        for session in over:
            await context.curation.close_session(
                relationship.id, session.id, context.now, context.now - policy.session
            )
        if over or context.attempts:  # an earlier attempt may have closed some
            unkept = await context.curation.unkept_turns(relationship.id)
            if unkept:
                names = (relationship.user_name, relationship.companion_name)
                await self._eraser.erase_turns(relationship.id, names, unkept)
            await context.curation.delete_empty_sessions(relationship.id)
        still_open = [session for session in sessions if session not in over]
        return Outcome(
            produced=bool(over), next_check=next_session_end(still_open, policy, context.now)
        )

    async def _retention(self, context: CurationContext) -> Outcome:
        """Remove expired records, memories and turns."""
        relationship, enforcer = context.relationship, self._retention_enforcer
        if not context.policy.retention:
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

    async def _rating(self, context: CurationContext) -> Outcome:
        """Have a turn rated, if that is still to be done."""
        return Outcome(produced=await self._rater.rate(context.relationship.id, context.turn_id))
