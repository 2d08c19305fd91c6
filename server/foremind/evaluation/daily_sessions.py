"""Tells dialogues to one companion day by day, by a virtual clock, through the real store.

After every exchange and every session the background work is done, and for every message of the
user the context is made as it would be for a language model.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from foremind.app import Core, curation_of
from foremind.background.manual_edits import ManualEditor
from foremind.background.worker import BackgroundWorker
from foremind.domain.companion import Behaviour, Companion, CompanionFile, CompanionSettings
from foremind.domain.policy import LayerPolicy, policy_for
from foremind.domain.record import NewRecord
from foremind.domain.settings import LayerName
from foremind.domain.turn import OpenedSession
from foremind.evaluation.dialogues import Dialogue, DialogueTurn
from foremind.llm.model_selection import ChatModels
from foremind.llm.prompt.assembly import AssembledPrompt, assemble
from foremind.llm.prompt.layout import PastTurn
from foremind.llm.prompt.token_counter import estimate_tokens
from foremind.retrieval.documents.library import Library
from foremind.retrieval.embedding.priority_queue import Priority
from foremind.retrieval.layer_cache import LayerCache
from foremind.testing.manual_clock import ManualClock
from foremind.typeahead.context_builder import ContextBuilder, RetrievalScope
from foremind.typeahead.context_cache import CacheKey, PreparedContext

#: The id of the dialogue that is all others, one after the other.
ALL = "all"
_DOCUMENT = "The night ferry leaves pier nine at ten. The gate of pier nine has a code."
_SAVED = "The code of the gate at pier nine is 4711."
_PROBE = "Do you remember the code of the gate at pier nine?"
_SETTINGS = CompanionSettings(
    recall_any_age=True,
    session_hours=12,
    behaviours=(Behaviour("exact", "Give codes exactly.", says=("code",)),),
)
_A_TURN_S = 30.0


@dataclass
class Costs:
    """What the messages of one day took, and the layers that were in a prompt."""

    tokens: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    alive: set[LayerName] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class SimulatedRelationship:
    """Who talks with whom, in which session now, about what."""

    companion: Companion
    opened: OpenedSession
    dialogue: Dialogue


class _Stopwatch(ManualClock):
    """Dates of another clock, but real time for what is measured."""

    def __init__(self, dates: ManualClock) -> None:
        super().__init__()
        self._dates = dates

    def now(self) -> datetime:
        return self._dates.now()

    def monotonic(self) -> float:
        return time.perf_counter()


class DailySessions:
    """Tells dialogues to one companion, day by day."""

    def __init__(self, core: Core, clock: ManualClock) -> None:
        self._core = core
        self._clock = clock
        self._voices = ChatModels(core.settings)
        self._curation: BackgroundWorker = curation_of(core, self._voices)
        self._held = LayerCache(
            core.records, core.embedder.manifest, core.settings.layers_bytes, core.metrics
        )
        self._library = Library(core.documents, core.embedder, clock, core.supervisor)
        self._editor = ManualEditor(core.records, core.embedder, clock)
        self._preparer = ContextBuilder(
            core.embedder, core.search, self._held, self._library, _Stopwatch(clock), core.metrics
        )
        self.policy: LayerPolicy = policy_for(_SETTINGS, core.settings).layers
        self.messages = 0

    async def aclose(self) -> None:
        """Close connections to language models."""
        await self._voices.close()

    async def tell(
        self, dialogue: Dialogue, days: int, advance: Callable[[int], None]
    ) -> tuple[SimulatedRelationship, list[Costs]]:
        """Tell a dialogue's sessions, one a day; return what each day's messages took."""
        companion = await self.companion_of(dialogue)
        sessions: dict[str, list[DialogueTurn]] = {}
        for turn in dialogue.turns:
            sessions.setdefault(turn.session, []).append(turn)
        costs = []
        for number, said in enumerate(list(sessions.values())[:days]):
            bond = await self.meet(companion, dialogue)
            costs.append(await self.day(bond, number, said, advance))
            await self.rest(bond, 24 * 3600 - len(said) * _A_TURN_S)
        return bond, costs

    async def companion_of(self, dialogue: Dialogue) -> Companion:
        """Return a companion to whom nothing but a dialogue is told."""
        return await self._core.companions.put(
            CompanionFile(
                f"life-{dialogue.id}".lower(), dialogue.companion_name, "You listen.",
                settings=_SETTINGS,
            )
        )  # fmt: skip

    async def meet(self, companion: Companion, dialogue: Dialogue) -> SimulatedRelationship:
        """Open the next session."""
        opened = await self._core.turns.open_session(
            f"user-{dialogue.id}", dialogue.user_name, companion.id, self._clock.now(),
            lives=self.policy.session,
        )  # fmt: skip
        return SimulatedRelationship(companion, opened, dialogue)

    async def rest(self, bond: SimulatedRelationship, seconds: float) -> None:
        """Let time pass, and the background work be done that is due then."""
        await self._clock.leap(seconds)  # at once: there are timers of every second
        await self._curation.curate(bond.opened.relationship_id)

    async def add_what_owners_and_users_add(self, bond: SimulatedRelationship) -> None:
        """Give a relationship a document and something that was saved on purpose."""
        await self._library.add(bond.companion.id, "Ferry", "text/plain", _DOCUMENT.encode())
        await self._library.load(bond.companion.id)
        saved = NewRecord("vault", _SAVED, "user")
        await self._editor.write(bond.opened.relationship_id, "user", saved)

    async def day(
        self,
        bond: SimulatedRelationship,
        day: int,
        said: Sequence[DialogueTurn],
        advance: Callable[[int], None],
    ) -> Costs:
        """Tell what was said in a session, and do the background work after each reply."""
        costs = Costs()
        window: list[PastTurn] = []
        if day == 0 and bond.dialogue.id == ALL:
            await self.add_what_owners_and_users_add(bond)
        for turn in said:
            await self._clock.advance(_A_TURN_S)
            now = self._clock.now()
            turn_id: int | None
            if turn.speaker == "user":
                turn_id = await self._asked(bond, f"{day}/{turn.id}", turn.text, window, costs)
            else:
                turn_id = await self._core.turns.commit_reply(
                    bond.opened, None, "completed", turn.text, now
                )
            if turn_id is None:
                continue
            window.append(PastTurn(turn.speaker, turn.text, turn_id))
            await self._core.rememberer.remember(bond.opened.relationship_id, turn_id)
            if turn.speaker == "companion":
                await self._curation.curate(bond.opened.relationship_id)
            advance(1)
        probe = self.assemble(bond, await self.prepare(bond, _PROBE), _PROBE, window)
        costs.alive |= telling(probe)
        return costs

    async def _asked(
        self,
        bond: SimulatedRelationship,
        message_id: str,
        text: str,
        window: list[PastTurn],
        costs: Costs,
    ) -> int:
        """Make the prompt for a message, note what it took, and store the message."""
        context = await self.prepare(bond, text)
        started = time.perf_counter()
        made = self.assemble(bond, context, text, window)
        made.prompt.messages()
        assembled_ms = (time.perf_counter() - started) * 1000
        costs.ms.append(context.timings.total_ms + assembled_ms)
        costs.tokens.append(tokens_of(made))
        costs.alive |= telling(made)
        stored = await self._core.turns.commit_message(
            bond.opened, f"{bond.dialogue.id}/{message_id}", text, self._clock.now()
        )
        self._core.rememberer.hand_over(stored.id, context.vector)
        self.messages += 1
        return stored.id

    async def prepare(self, bond: SimulatedRelationship, text: str) -> PreparedContext:
        """Return the context for a text, as of now."""
        await self._held.forget()
        held = await self._held.load(bond.opened.relationship_id, estimate_tokens)
        validity = CacheKey(
            memory_version=0,
            layers_version=held.version,
            companion_version=bond.companion.version,
            model="",
            embedding="",
            limits=policy_for(_SETTINGS, self._core.settings).recall,
            layers=self.policy,
        )
        subject = RetrievalScope(
            bond.opened.relationship_id,
            bond.companion.id,
            bond.dialogue.user_name,
            validity,
            UTC,
        )
        return await self._preparer.prepare(text, lambda: subject, Priority.ENTER)

    def assemble(
        self,
        bond: SimulatedRelationship,
        context: PreparedContext,
        text: str,
        window: Sequence[PastTurn],
        off: frozenset[LayerName] = frozenset(),
    ) -> AssembledPrompt:
        """Return the prompt, with some layers switched off."""
        upto = context.standing.summarised_turn_id
        return assemble(
            bond.companion,
            replace(self.policy, off=off),
            user_name=bond.dialogue.user_name,
            standing=context.standing.sections,
            recalled=context.recalled,
            memories=context.memories,
            history=[turn for turn in window if (turn.id or 0) > upto],
            message=text,
            opening=not window,
            now=self._clock.now(),
        )


def telling(made: AssembledPrompt) -> set[LayerName]:
    """Return the layers that tell something, also where it stands elsewhere already."""
    return set(made.tokens) | {
        portion.section.layer for portion in made.portions if portion.numbers()
    }


def tokens_of(made: AssembledPrompt) -> int:
    """Return what a whole prompt takes, estimated."""
    return sum(estimate_tokens(message["content"]) for message in made.prompt.messages())
