"""A relationship over months, one session a day: what every layer costs, and what it is worth.

A dialogue is told through the real store by a virtual clock; after every exchange and every session
the background work is done. At every message of the user, and for every question at the end, the
context is made as it would be for a language model. Evidence counts as present where the prompt
holds a sentence of the turn that answers, word for word.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from statistics import fmean

import msgspec

from foremind.app import Core, curation_of
from foremind.companions import Behaviour, Companion, CompanionFile, CompanionSettings
from foremind.curation.by_hand import Editor
from foremind.curation.worker import Curation
from foremind.embedding.queue import Priority
from foremind.evaluation.dialogues import Dialogue, SaidTurn
from foremind.generation.assembly import Assembled, assemble
from foremind.generation.prompt import PastTurn
from foremind.generation.voices import Voices
from foremind.layers.held import HeldLayers
from foremind.layers.library import Library
from foremind.layers.tokens import estimate_tokens
from foremind.policies import LayerPolicy, policy_for
from foremind.settings import LAYERS, LayerName
from foremind.storage.records import NewRecord
from foremind.storage.turns import OpenedSession
from foremind.testing.clock import ManualClock
from foremind.typeahead.prepare import Preparer, Subject
from foremind.typeahead.prepared import PreparedContext, Validity

_A_TURN_S = 30.0
_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_LEAST_WORDS = 4
_ALL = "all"
_DOCUMENT = "The night ferry leaves pier nine at ten. The gate of pier nine has a code."
_SAVED = "The code of the gate at pier nine is 4711."
_PROBE = "Do you remember the code of the gate at pier nine?"
_SETTINGS = CompanionSettings(
    recall_any_age=True,
    session_hours=12,
    behaviours=(Behaviour("exact", "Give codes exactly.", says=("code",)),),
)
_WEEK = 7


class LayerReport(msgspec.Struct, frozen=True):
    """One layer: mean tokens and milliseconds of a question, and the evidence in the prompt.

    `without` is the share of evidence that is present with every layer but this one, `alone` with
    only this one.
    """

    layer: str
    tokens: float
    ms: float
    without: float
    alone: float


class WeekReport(msgspec.Struct, frozen=True):
    """The mean of a week of all dialogues, lived as one relationship.

    Tokens of a whole prompt, and milliseconds to make it; `alive` are the layers that were in one.
    """

    week: int
    alive: list[str]
    tokens: float
    ms: float
    most_tokens: int


class LifeReport(msgspec.Struct, frozen=True):
    """What all dialogues together show; `asked` counts background work by kind, per message.

    Of a question on average: the `tokens` of the whole prompt, those that it would have more if
    what stands elsewhere in it were `repeated`, and the lines of `memories`.
    """

    questions: int
    evidence: float
    layers: list[LayerReport]
    weeks: list[WeekReport]
    asked: dict[str, float]
    budget: int
    tokens: float
    repeated: float
    memories: float


@dataclass
class _Costs:
    """What the messages of one day took, and the layers that were in a prompt."""

    tokens: list[int] = field(default_factory=list)
    ms: list[float] = field(default_factory=list)
    alive: set[LayerName] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Bond:
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


class Life:
    """Tells dialogues to one companion, day by day."""

    def __init__(self, core: Core, clock: ManualClock) -> None:
        self._core = core
        self._clock = clock
        self._voices = Voices(core.settings)
        self._curation: Curation = curation_of(core, self._voices)
        self._held = HeldLayers(
            core.records, core.embedder.manifest, core.settings.layers_bytes, core.metrics
        )
        self._library = Library(core.documents, core.embedder, clock, core.supervisor)
        self._editor = Editor(core.records, core.embedder, clock)
        self._preparer = Preparer(
            core.embedder, core.search, self._held, self._library, _Stopwatch(clock), core.metrics
        )
        self.policy: LayerPolicy = policy_for(_SETTINGS, core.settings).layers
        self.messages = 0

    async def aclose(self) -> None:
        """Close connections to language models."""
        await self._voices.close()

    async def tell(
        self, dialogue: Dialogue, days: int, advance: Callable[[int], None]
    ) -> tuple[Bond, list[_Costs]]:
        """Tell a dialogue's sessions, one a day; return what each day's messages took."""
        companion = await self.companion_of(dialogue)
        sessions: dict[str, list[SaidTurn]] = {}
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

    async def meet(self, companion: Companion, dialogue: Dialogue) -> Bond:
        """Open the next session."""
        opened = await self._core.turns.open_session(
            f"user-{dialogue.id}", dialogue.user_name, companion.id, self._clock.now(),
            lives=self.policy.session,
        )  # fmt: skip
        return Bond(companion, opened, dialogue)

    async def rest(self, bond: Bond, seconds: float) -> None:
        """Let time pass, and the background work be done that is due then."""
        await self._clock.leap(seconds)  # at once: there are timers of every second
        await self._curation.curate(bond.opened.relationship_id)

    async def add_what_owners_and_users_add(self, bond: Bond) -> None:
        """Give a relationship a document and something that was saved on purpose."""
        await self._library.add(bond.companion.id, "Ferry", "text/plain", _DOCUMENT.encode())
        await self._library.load(bond.companion.id)
        saved = NewRecord("vault", _SAVED, "user")
        await self._editor.write(bond.opened.relationship_id, "user", saved)

    async def day(
        self, bond: Bond, day: int, said: Sequence[SaidTurn], advance: Callable[[int], None]
    ) -> _Costs:
        """Tell what was said in a session, and do the background work after each reply."""
        costs = _Costs()
        window: list[PastTurn] = []
        if day == 0 and bond.dialogue.id == _ALL:
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
        costs.alive |= _telling(probe)
        return costs

    async def _asked(
        self, bond: Bond, message_id: str, text: str, window: list[PastTurn], costs: _Costs
    ) -> int:
        """Make the prompt for a message, note what it took, and store the message."""
        context = await self.prepare(bond, text)
        started = time.perf_counter()
        made = self.assemble(bond, context, text, window)
        made.prompt.messages()
        assembled_ms = (time.perf_counter() - started) * 1000
        costs.ms.append(context.timings.total_ms + assembled_ms)
        costs.tokens.append(_tokens(made))
        costs.alive |= _telling(made)
        stored = await self._core.turns.commit_message(
            bond.opened, f"{bond.dialogue.id}/{message_id}", text, self._clock.now()
        )
        self._core.rememberer.hand_over(stored.id, context.vector)
        self.messages += 1
        return stored.id

    async def prepare(self, bond: Bond, text: str) -> PreparedContext:
        """Return the context for a text, as of now."""
        await self._held.forget()
        held = await self._held.load(bond.opened.relationship_id, estimate_tokens)
        validity = Validity(
            memory_version=0,
            layers_version=held.version,
            companion_version=bond.companion.version,
            model="",
            embedding="",
            limits=policy_for(_SETTINGS, self._core.settings).recall,
            layers=self.policy,
        )
        subject = Subject(
            bond.opened.relationship_id,
            bond.companion.id,
            bond.dialogue.user_name,
            validity,
            UTC,
        )
        return await self._preparer.prepare(text, lambda: subject, Priority.ENTER)

    def assemble(
        self,
        bond: Bond,
        context: PreparedContext,
        text: str,
        window: Sequence[PastTurn],
        off: frozenset[LayerName] = frozenset(),
    ) -> Assembled:
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


async def measure_life(
    core: Core,
    clock: ManualClock,
    dialogues: Sequence[Dialogue],
    days: int,
    advance: Callable[[int], None],
) -> LifeReport:
    """Tell every dialogue for so many days, then ask its questions with and without each layer."""
    async with aclosing(Life(core, clock)) as life:
        return await _measured(core, life, dialogues, days, advance)


async def _measured(
    core: Core,
    life: Life,
    dialogues: Sequence[Dialogue],
    days: int,
    advance: Callable[[int], None],
) -> LifeReport:
    asked: list[_Asked] = []
    for dialogue in dialogues:
        bond, _ = await life.tell(dialogue, days, advance)
        texts = {turn.id: turn.text for turn in dialogue.turns}
        for question in dialogue.questions:
            wanted = [texts[each] for each in question.evidence]
            context = await life.prepare(bond, question.text)
            shown = partial(life.assemble, bond, context, question.text, ())
            asked.append(_ask(shown, context, wanted))
            advance(1)
    _, costs = await life.tell(_one_after_the_other(dialogues), days, advance)
    done = {
        sample.labels["work"]: sample.value / max(1, life.messages)
        for metric in core.metrics.curated.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    }
    return LifeReport(
        questions=len(asked),
        evidence=_mean([each.present for each in asked]),
        layers=[_of_layer(layer, asked) for layer in LAYERS],
        weeks=_weeks(costs),
        asked={work: round(each, 3) for work, each in done.items()},
        budget=int(life.policy.context_tokens * life.policy.share),
        tokens=_mean([each.whole for each in asked]),
        repeated=_mean([each.repeated for each in asked]),
        memories=_mean([each.memories for each in asked]),
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question: evidence present with all layers, without each, with each alone; its costs."""

    present: float
    without: Mapping[LayerName, float]
    alone: Mapping[LayerName, float]
    tokens: Mapping[LayerName, int]
    ms: Mapping[LayerName, float]
    whole: int
    repeated: int
    memories: int


def _ask(
    shown: Callable[[frozenset[LayerName]], Assembled],
    context: PreparedContext,
    wanted: Sequence[str],
) -> _Asked:
    everything = frozenset(LAYERS)
    whole = shown(frozenset())
    return _Asked(
        present=_present(whole, wanted),
        without={each: _present(shown(frozenset({each})), wanted) for each in LAYERS},
        alone={each: _present(shown(everything - {each}), wanted) for each in LAYERS},
        tokens=whole.tokens,
        ms=context.timings.layers_ms,
        whole=_tokens(whole),
        repeated=whole.repeated,
        memories=sum(len(each.lines) for each in whole.prompt.recalled if each.layer == "memories"),
    )


def _present(made: Assembled, wanted: Sequence[str]) -> float:
    """Return the share of the wanted turns of which the prompt holds a sentence."""
    text = " ".join(each["content"] for each in made.prompt.messages()).replace('\\"', '"')
    return fmean(any(each in text for each in _sentences(turn)) for turn in wanted)


def _sentences(text: str) -> list[str]:
    found = [each.strip() for each in _SENTENCE.findall(text)]
    return [each for each in found if len(each.split()) >= _LEAST_WORDS] or [text.strip()]


def _of_layer(layer: LayerName, asked: Sequence[_Asked]) -> LayerReport:
    return LayerReport(
        layer=layer,
        tokens=_mean([each.tokens.get(layer, 0) for each in asked]),
        ms=_mean([each.ms.get(layer, 0.0) for each in asked]),
        without=_mean([each.without[layer] for each in asked]),
        alone=_mean([each.alone[layer] for each in asked]),
    )


def _one_after_the_other(dialogues: Sequence[Dialogue]) -> Dialogue:
    """Return one long relationship of all sessions."""
    turns = tuple(
        replace(turn, id=f"{each.id}/{turn.id}", session=f"{each.id}/{turn.session}")
        for each in dialogues
        for turn in each.turns
    )
    first = dialogues[0]
    return Dialogue(_ALL, first.user_name, first.companion_name, turns, ())


def _weeks(costs: Sequence[_Costs]) -> list[WeekReport]:
    """Return the means of each week."""
    weeks = []
    for first in range(0, len(costs), _WEEK):
        days = costs[first : first + _WEEK]
        tokens = [each for day in days for each in day.tokens]
        ms = [each for day in days for each in day.ms]
        if tokens:
            alive = set().union(*(day.alive for day in days))
            weeks.append(
                WeekReport(
                    week=first // _WEEK + 1,
                    alive=[layer for layer in LAYERS if layer in alive],
                    tokens=_mean(tokens),
                    ms=_mean(ms),
                    most_tokens=max(tokens),
                )
            )
    return weeks


def _telling(made: Assembled) -> set[LayerName]:
    """Return the layers that tell something, also where it stands elsewhere already."""
    return set(made.tokens) | {each.section.layer for each in made.portions if each.numbers()}


def _tokens(made: Assembled) -> int:
    return sum(estimate_tokens(each["content"]) for each in made.prompt.messages())


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 4) if values else 0.0
