"""Run dialogues with one companion, a session a day on a simulated clock, through the real store.

Background work is done after every exchange and every session, and for every message of the user
the context and the prompt are built as for a language model.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import msgspec

from foremind.app.core import Core, build_background_worker
from foremind.background.worker import BackgroundWorker
from foremind.domain.companion import Companion, CompanionFile
from foremind.domain.companion_rules import Behaviour
from foremind.domain.policy import LayerPolicy, policy_for
from foremind.domain.record import NewRecord
from foremind.domain.settings.setting_definitions import LayerName
from foremind.domain.settings.settings import CompanionSettings
from foremind.domain.turn import OpenedSession
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.sections import StandingLayers
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.memory.manual_edits import ManualEditor
from foremind.retrieval.documents.library import Library
from foremind.retrieval.embedding.service import Priority
from foremind.retrieval.layer_cache import LayerCache
from foremind.text.languages.language_files import ENGLISH
from foremind.typeahead.context_builder import ContextBuilder, RetrievalScope
from foremind.typeahead.context_cache import CacheKey, PreparedContext
from foremind.typeahead.prompt_builder import ConversationSnapshot, build_prompt
from foremind_eval.dialogues import Dialogue, DialogueTurn
from foremind_eval.doubles.manual_clock import ManualClock
from foremind_eval.repetition import repeating
from foremind_eval.variants import TWO_PEOPLE

#: The id of the dialogue that joins all others.
ALL = "all"
_DOCUMENT = "The night ferry leaves pier nine at ten. The gate of pier nine has a code."
_PINNED = "The code of the gate at pier nine is 4711."
_PROBE = "Do you remember the code of the gate at pier nine?"
_SETTINGS = CompanionSettings(
    recall_any_age=True,
    **TWO_PEOPLE,
    session_hours=12,
    behaviours=(Behaviour("exact", "Give codes exactly.", says=("code",)),),
)
_SECONDS_PER_TURN = 30.0


@dataclass
class Costs:
    """What the messages of one day cost, and the layers that contributed to a prompt.

    `repeating` are the tokens of the same prompts without deduplication.
    """

    tokens: list[int] = field(default_factory=list)
    repeating: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    alive: set[LayerName] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class SimulatedRelationship:
    """A relationship in its current session, and the dialogue that it follows."""

    companion: Companion
    opened: OpenedSession
    dialogue: Dialogue


class _Stopwatch(ManualClock):
    """Simulated dates, but real elapsed time for measurements."""

    def __init__(self, dates: ManualClock) -> None:
        super().__init__()
        self._dates = dates

    def now(self) -> datetime:
        return self._dates.now()

    def monotonic(self) -> float:
        return time.perf_counter()


class DailySessions:
    """Runs dialogues with one companion, a session a day."""

    def __init__(self, core: Core, clock: ManualClock) -> None:
        self._core = core
        self._clock = clock
        self._chat_models = ChatModels(core.runtime.settings)
        self._background: BackgroundWorker = build_background_worker(core, self._chat_models)
        self._layer_cache = LayerCache(
            core.stores.records,
            core.embedder.manifest,
            core.runtime.settings.layers_bytes,
            core.runtime.metrics,
        )
        self._library = Library(
            core.stores.documents, core.embedder, clock, core.runtime.supervisor
        )
        self._editor = ManualEditor(core.stores.records, core.embedder, clock)
        self._context_builder = ContextBuilder(
            core.embedder,
            core.search,
            self._layer_cache,
            self._library,
            _Stopwatch(clock),
            core.runtime.metrics,
        )
        self.policy: LayerPolicy = policy_for(_SETTINGS, core.runtime.settings).layers
        self.messages = 0

    async def aclose(self) -> None:
        """Close connections to language models."""
        await self._chat_models.close()

    async def run_dialogue(
        self, dialogue: Dialogue, days: int, advance: Callable[[int], None]
    ) -> tuple[SimulatedRelationship, list[Costs]]:
        """Run the first `days` sessions of a dialogue, one a day; return the costs of each day."""
        companion = await self.create_companion(dialogue)
        sessions: dict[str, list[DialogueTurn]] = {}
        for turn in dialogue.turns:
            sessions.setdefault(turn.session, []).append(turn)
        costs = []
        for day, turns in enumerate(list(sessions.values())[:days]):
            relationship = await self.open_session(companion, dialogue)
            costs.append(await self.run_session(relationship, day, turns, advance))
            await self.pass_time(relationship, 24 * 3600 - len(turns) * _SECONDS_PER_TURN)
        return relationship, costs

    async def create_companion(self, dialogue: Dialogue) -> Companion:
        """Create a companion for this dialogue alone."""
        return await self._core.stores.companions.put(
            CompanionFile(
                f"life-{dialogue.id}".lower(), dialogue.companion_name, "You listen.",
                settings=_SETTINGS,
            )
        )  # fmt: skip

    async def open_session(self, companion: Companion, dialogue: Dialogue) -> SimulatedRelationship:
        """Open the next session."""
        opened = await self._core.stores.turns.open_session(
            f"user-{dialogue.id}", dialogue.user_name, companion.id, self._clock.now(),
            lifetime=self.policy.session,
        )  # fmt: skip
        return SimulatedRelationship(companion, opened, dialogue)

    async def pass_time(self, relationship: SimulatedRelationship, seconds: float) -> None:
        """Advance the clock, and do the background work that is due by then."""
        await self._clock.leap(seconds)  # at once: some timers fire every second
        await self._background.run_due_steps(relationship.opened.relationship_id)

    async def _add_document_and_pinned_record(self, relationship: SimulatedRelationship) -> None:
        await self._library.add(
            relationship.companion.id, "Ferry", "text/plain", _DOCUMENT.encode()
        )
        await self._library.load(relationship.companion.id)
        pinned = NewRecord("vault", _PINNED, "user")
        await self._editor.write(relationship.opened.relationship_id, "user", pinned)

    async def run_session(
        self,
        relationship: SimulatedRelationship,
        day: int,
        turns: Sequence[DialogueTurn],
        advance: Callable[[int], None],
    ) -> Costs:
        """Store a session's turns, and do the background work after each reply."""
        costs = Costs()
        window: list[PastTurn] = []
        if day == 0 and relationship.dialogue.id == ALL:
            await self._add_document_and_pinned_record(relationship)
        for turn in turns:
            await self._clock.advance(_SECONDS_PER_TURN)
            turn_id: int | None
            if turn.speaker == "user":
                message_id = f"{day}/{turn.id}"
                turn_id = await self._send(relationship, message_id, turn.text, window, costs)
            else:
                turn_id = await self._core.stores.turns.commit_reply(
                    relationship.opened, None, "completed", turn.text, self._clock.now()
                )
            if turn_id is None:
                continue
            window.append(PastTurn(turn.speaker, turn.text, turn_id))
            await self._core.ingester.ingest(relationship.opened.relationship_id, turn_id)
            if turn.speaker == "companion":
                await self._background.run_due_steps(relationship.opened.relationship_id)
            advance(1)
        context = await self.build_context(relationship, _PROBE)
        costs.alive |= contributing_layers(
            self.assemble_prompt(relationship, context, _PROBE, window)
        )
        return costs

    async def _send(
        self,
        relationship: SimulatedRelationship,
        message_id: str,
        text: str,
        window: list[PastTurn],
        costs: Costs,
    ) -> int:
        """Build the prompt for a message, record its costs, and store the message."""
        context = await self.build_context(relationship, text)
        started = time.perf_counter()
        assembled = self.assemble_prompt(relationship, context, text, window)
        assembled.prompt.messages()
        assembly_ms = (time.perf_counter() - started) * 1000
        costs.ms.append(context.timings.total_ms + assembly_ms)
        costs.tokens.append(prompt_tokens(assembled))
        costs.repeating.append(
            prompt_tokens(
                self.assemble_prompt(relationship, context, text, window, deduplicate=False)
            )
        )
        costs.alive |= contributing_layers(assembled)
        stored = await self._core.stores.turns.commit_message(
            relationship.opened,
            f"{relationship.dialogue.id}/{message_id}",
            text,
            self._clock.now(),
        )
        self._core.ingester.cache_turn(stored.id, text, context.vector)
        self.messages += 1
        return stored.id

    async def build_context(
        self, relationship: SimulatedRelationship, text: str
    ) -> PreparedContext:
        """Return the context for a text, as of now."""
        relationship_id = relationship.opened.relationship_id
        self._layer_cache.set_token_counter(relationship_id, estimate_tokens)  # reads them again
        layers = await self._layer_cache.load(relationship_id, estimate_tokens, ENGLISH)
        cache_key = CacheKey(
            memory_version=0,
            layers_version=layers.version,
            companion_version=relationship.companion.version,
            model="",
            embedding="",
            recall_policy=policy_for(_SETTINGS, self._core.runtime.settings).recall,
            layer_policy=self.policy,
        )
        scope = RetrievalScope(
            relationship_id,
            relationship.companion.id,
            relationship.dialogue.user_name,
            cache_key,
            UTC,
        )
        return await self._context_builder.prepare(text, lambda: scope, Priority.ENTER)

    def assemble_prompt(
        self,
        relationship: SimulatedRelationship,
        context: PreparedContext,
        text: str,
        window: Sequence[PastTurn],
        off: frozenset[LayerName] = frozenset(),
        *,
        deduplicate: bool = True,
    ) -> AssembledPrompt:
        """Return the prompt with the layers in `off` switched off."""
        if not deduplicate:
            context = _repeating(context)
        snapshot = ConversationSnapshot(relationship.dialogue.user_name, window, self._clock.now())
        policy = replace(self.policy, off=off)
        return build_prompt(
            relationship.companion, policy, snapshot, context.standing, context, text
        )


def _repeating(context: PreparedContext) -> PreparedContext:
    """Return a context whose lines are shown although they stand elsewhere in the prompt."""
    standing = context.standing
    return msgspec.structs.replace(
        context,
        standing=StandingLayers(repeating(standing.sections), standing.summarised_turn_id),
        recalled=repeating(context.recalled),
    )


def contributing_layers(assembled: AssembledPrompt) -> set[LayerName]:
    """Return the layers that contribute to a prompt, even if another layer already says it."""
    return set(assembled.tokens) | {
        share.section.layer for share in assembled.shares if share.numbers()
    }


def prompt_tokens(assembled: AssembledPrompt) -> int:
    """Return the estimated tokens of a whole prompt."""
    return sum(estimate_tokens(message["content"]) for message in assembled.prompt.messages())
