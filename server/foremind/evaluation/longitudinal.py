"""A relationship over months, one session a day: what every layer costs, and what it is worth.

A dialogue is told through the real store by a virtual clock; after every exchange and every session
the background work is done. At every message of the user, and for every question at the end, the
context is made as it would be for a language model. Evidence counts as present where the prompt
holds a sentence of the turn that answers, word for word.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

import msgspec

from foremind.app import Core
from foremind.domain.settings import LAYERS, LayerName
from foremind.evaluation.daily_sessions import ALL, Costs, DailySessions, tokens_of
from foremind.evaluation.dialogues import Dialogue
from foremind.llm.prompt.assembly import AssembledPrompt
from foremind.testing.manual_clock import ManualClock
from foremind.typeahead.context_cache import PreparedContext

_SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
_LEAST_WORDS = 4
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


class LongitudinalReport(msgspec.Struct, frozen=True):
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


async def measure_life(
    core: Core,
    clock: ManualClock,
    dialogues: Sequence[Dialogue],
    days: int,
    advance: Callable[[int], None],
) -> LongitudinalReport:
    """Tell every dialogue for so many days, then ask its questions with and without each layer."""
    async with aclosing(DailySessions(core, clock)) as life:
        return await _measured(core, life, dialogues, days, advance)


async def _measured(
    core: Core,
    life: DailySessions,
    dialogues: Sequence[Dialogue],
    days: int,
    advance: Callable[[int], None],
) -> LongitudinalReport:
    asked: list[_QuestionResult] = []
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
    return LongitudinalReport(
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
class _QuestionResult:
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
    shown: Callable[[frozenset[LayerName]], AssembledPrompt],
    context: PreparedContext,
    wanted: Sequence[str],
) -> _QuestionResult:
    everything = frozenset(LAYERS)
    whole = shown(frozenset())
    return _QuestionResult(
        present=_present(whole, wanted),
        without={each: _present(shown(frozenset({each})), wanted) for each in LAYERS},
        alone={each: _present(shown(everything - {each}), wanted) for each in LAYERS},
        tokens=whole.tokens,
        ms=context.timings.layers_ms,
        whole=tokens_of(whole),
        repeated=whole.repeated,
        memories=sum(len(each.lines) for each in whole.prompt.recalled if each.layer == "memories"),
    )


def _present(made: AssembledPrompt, wanted: Sequence[str]) -> float:
    """Return the share of the wanted turns of which the prompt holds a sentence."""
    text = " ".join(message["content"] for message in made.prompt.messages()).replace('\\"', '"')
    return fmean(any(sentence in text for sentence in _sentences(turn)) for turn in wanted)


def _sentences(text: str) -> list[str]:
    found = [each.strip() for each in _SENTENCE.findall(text)]
    return [each for each in found if len(each.split()) >= _LEAST_WORDS] or [text.strip()]


def _of_layer(layer: LayerName, asked: Sequence[_QuestionResult]) -> LayerReport:
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
        replace(turn, id=f"{dialogue.id}/{turn.id}", session=f"{dialogue.id}/{turn.session}")
        for dialogue in dialogues
        for turn in dialogue.turns
    )
    first = dialogues[0]
    return Dialogue(ALL, first.user_name, first.companion_name, turns, ())


def _weeks(costs: Sequence[Costs]) -> list[WeekReport]:
    """Return the means of each week."""
    weeks = []
    for first in range(0, len(costs), _WEEK):
        days = costs[first : first + _WEEK]
        tokens = [token for day in days for token in day.tokens]
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


def _mean(values: Sequence[float]) -> float:
    return round(fmean(values), 4) if values else 0.0
